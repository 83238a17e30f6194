//! What an experiment asks of Slurm.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The `[slurm]` section. What is missing is not asked for: the cluster's defaults apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlurmSettings {
    /// Partition.
    pub partition: Option<String>,
    /// Account that is charged.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Features that a node must have.
    pub constraint: Option<String>,
    /// Wall time of one run, seconds.
    pub time_seconds: Option<u64>,
    /// Host memory per node, bytes.
    pub mem_bytes: Option<u64>,
    /// Host memory per CPU, bytes; some sites want this instead.
    pub mem_per_cpu_bytes: Option<u64>,
    /// CPU cores per rank.
    pub cpus_per_task: Option<u64>,
    /// GPUs per node.
    pub gpus_per_node: Option<u64>,
    /// Generic resources, for clusters that want GPUs asked for that way (`gpu:h100:1`).
    pub gres: Option<String>,
    /// Nodes per run.
    pub nodes: Option<u64>,
    /// Largest number of array tasks running at a time.
    pub throttle: Option<u64>,
    /// Runs that one array task executes one after another.
    pub runs_per_task: Option<u64>,
    /// Shell lines before the first run.
    pub setup: Vec<String>,
    /// Further `#SBATCH` directives, without `#SBATCH`.
    pub directives: Vec<String>,
    /// Environment of the runs.
    pub environment: BTreeMap<String, String>,
    /// Container image, for clusters whose `srun` takes one.
    pub container: Option<String>,
    /// Command in front of each worker instead of `srun`.
    pub launcher: Option<String>,
    /// Other needs for some of the runs; of several that apply the last one counts.
    pub overrides: Vec<SlurmOverride>,
}

/// Other needs for the runs that have certain values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmOverride {
    /// Which runs.
    #[serde(rename = "where")]
    pub within: super::Selection,
    /// What they need: only what is present replaces.
    pub settings: SlurmSettings,
}
