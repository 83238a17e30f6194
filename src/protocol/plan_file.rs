//! `plan.json`: what a results folder was made for, so that everything after planning works without the experiment file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::RunSpec;

/// The plan of a results folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanFile {
    /// Format version.
    pub schema_version: u32,
    /// The experiment's name.
    pub name: String,
    /// The experiment's title.
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
}

/// One run of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Its id: the name of its folder.
    pub run_id: String,
    /// What the experiment calls it; null for a point of a grid.
    pub label: Option<String>,
    /// What to run.
    pub spec: RunSpec,
}

/// A perturbation, and the run that shows its effect. Two perturbations may share a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPerturbation {
    /// What the experiment calls it.
    pub label: String,
    /// The run.
    pub run_id: String,
}
