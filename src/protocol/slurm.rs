//! What an experiment asks of Slurm, and the files of a submission.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{PlannedRun, Provenance, RunSpec, Selection};

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

impl SlurmSettings {
    /// What a run needs: the settings for all with the overrides that apply to it.
    #[must_use]
    pub fn of(&self, spec: &RunSpec) -> Self {
        let applying = self.overrides.iter().filter(|over| over.within.contains(spec));
        let all = Self { overrides: Vec::new(), ..self.clone() };
        applying.fold(all, |settings, over| settings.overlaid(over.settings.clone()))
    }

    /// These settings with others laid over them: what is present there counts.
    #[must_use]
    pub fn overlaid(self, over: Self) -> Self {
        fn list<T>(over: Vec<T>, under: Vec<T>) -> Vec<T> {
            if over.is_empty() { under } else { over }
        }
        let mut environment = self.environment;
        environment.extend(over.environment);
        Self {
            partition: over.partition.or(self.partition),
            account: over.account.or(self.account),
            qos: over.qos.or(self.qos),
            constraint: over.constraint.or(self.constraint),
            time_seconds: over.time_seconds.or(self.time_seconds),
            // One of the two says how much memory: Slurm refuses both.
            mem_bytes: over.mem_bytes.or(self.mem_bytes.filter(|_| over.mem_per_cpu_bytes.is_none())),
            mem_per_cpu_bytes: over.mem_per_cpu_bytes.or(self.mem_per_cpu_bytes.filter(|_| over.mem_bytes.is_none())),
            cpus_per_task: over.cpus_per_task.or(self.cpus_per_task),
            gpus_per_node: over.gpus_per_node.or(self.gpus_per_node),
            gres: over.gres.or(self.gres),
            nodes: over.nodes.or(self.nodes),
            throttle: over.throttle.or(self.throttle),
            runs_per_task: over.runs_per_task.or(self.runs_per_task),
            setup: list(over.setup, self.setup),
            directives: list(over.directives, self.directives),
            environment,
            container: over.container.or(self.container),
            launcher: over.launcher.or(self.launcher),
            overrides: list(over.overrides, self.overrides),
        }
    }
}

/// Other needs for the runs that have certain values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmOverride {
    /// Which runs.
    #[serde(rename = "where")]
    pub within: Selection,
    /// What they need: only what is present replaces.
    pub settings: SlurmSettings,
}

/// What one array task executes: one line of JSON in the submission's list of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlurmTask {
    /// Format version.
    pub schema_version: u32,
    /// The runs, one after another.
    pub runs: Vec<PlannedRun>,
    /// Seconds after which each run is ended: a little before the job's own limit. Null for no limit.
    pub time_limit_seconds: Option<u64>,
    /// Copied into the reports.
    pub provenance: Provenance,
}

/// One array of a submission: what it is for, and how far its submission got. Only whoever submits writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmArray {
    /// Format version.
    pub schema_version: u32,
    /// The job's name, which no other job has: by it the queue is asked.
    pub name: String,
    /// The ids of each task's runs, by array index.
    pub tasks: Vec<Vec<String>>,
    /// When `sbatch` was first about to be called, RFC 3339 in UTC; null before.
    pub intended_at: Option<String>,
    /// What `sbatch` answered, or the queue knows; null before.
    pub job: Option<SlurmJob>,
    /// Why nothing is to be expected of it any more: all its tasks are over, or Slurm never had it. Null as long as it is.
    pub closed: Option<String>,
}

/// A job that Slurm accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJob {
    /// Its number; of an array the array's.
    pub id: u64,
    /// Its cluster, where several share a front end.
    pub cluster: Option<String>,
}

impl std::fmt::Display for SlurmJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.cluster {
            Some(cluster) => write!(f, "{};{cluster}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}
