//! `plan.json`: what a results folder was made for, so that everything after planning works without the experiment file.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Axis, Hypothesis, RunSpec, SlurmSettings, Tolerances};

/// The plan of a results folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Format version.
    pub schema_version: u32,
    /// The experiment's name; the results folder is named after it.
    pub name: String,
    /// The question, in the author's words.
    pub title: Option<String>,
    /// Absolute path of the experiment file.
    pub experiment: PathBuf,
    /// What to run, in order, each run once.
    pub runs: Vec<PlannedRun>,
    /// Id of the run that the perturbations change; null without perturbations.
    #[serde(default)]
    pub base: Option<String>,
    /// The perturbations, in order.
    #[serde(default)]
    pub perturbations: Vec<PlannedPerturbation>,
    /// The axes whose values differ between runs, in the axes' order.
    #[serde(default)]
    pub varied: Vec<Axis>,
    /// Points that a rule takes out.
    #[serde(default)]
    pub excluded: Vec<ExcludedPoint>,
    /// What the author expects.
    #[serde(default)]
    pub hypotheses: Vec<RecordedHypothesis>,
    /// How far an indicator may be from its baseline; null without a `[baseline]`.
    #[serde(default)]
    pub tolerances: Option<Tolerances>,
    /// Seconds after which a run is ended; null for no limit.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// What is asked of Slurm; null without a `[slurm]`.
    #[serde(default)]
    pub slurm: Option<SlurmSettings>,
}

/// One run of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Its id: the name of its folder.
    pub run_id: String,
    /// What the experiment calls it; null for a point of a grid.
    pub label: Option<Arc<str>>,
    /// What to run.
    pub spec: RunSpec,
}

/// A perturbation, and the run that shows its effect. Two perturbations may share a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPerturbation {
    /// What the experiment calls it.
    pub label: Arc<str>,
    /// The run.
    pub run_id: String,
    /// The run that it changes: the base, or where perturbations add up the one before; null if that run is excluded.
    #[serde(default)]
    pub from: Option<String>,
}

/// A point that is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedPoint {
    /// What the run would be called.
    pub label: String,
    /// The rule, as `axis = value` pairs.
    pub rule: Arc<str>,
    /// Why, in the author's words.
    pub reason: Arc<str>,
    /// Line of the rule in the experiment file, from 1.
    pub line: usize,
}

/// A hypothesis, and when it was written down: before the first run that it judges, or after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedHypothesis {
    /// RFC 3339 in UTC, when a plan first contained it in this form.
    pub written_at: String,
    /// Its text in the experiment file.
    pub text: String,
    /// What it says.
    pub hypothesis: Hypothesis,
}
