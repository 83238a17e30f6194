//! Expansion, order and ids: from an experiment to what must be run.
//!
//! A [`Plan`] lists every run once, in the author's order: the grid with its first axis varying slowest, then the base and the
//! perturbations. The same experiment on the same kind of machine always gives the same plan, and a run's id depends on nothing but
//! what it measures.

mod expand;
mod grid;
mod resolve;
mod sample;

use std::sync::Arc;

use crate::diag::Diagnostic;
use crate::experiment::{Experiment, Origin, Perturb, Setting};
use crate::protocol::{
    Axis, DeviceKind, ExcludedPoint, PlanFile, PlannedPerturbation, PlannedRun, RecordedHypothesis, SCHEMA_VERSION,
};

pub use expand::expand;
use grid::Grid;

/// Runs that are planned at most; a grid beyond this is a mistake, and would not fit into memory.
pub const MOST_RUNS: u64 = 1_000_000;

/// What `auto` stands for where the runs will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// For `device = "auto"`.
    pub device: DeviceKind,
    /// GPUs that one run can use, for `backend = "auto"`. On Slurm every rank has its own: `u64::MAX`.
    pub gpus: u64,
}

/// What must be run, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Every run once.
    pub runs: Vec<PlannedRun>,
    /// Id of the run that the perturbations change; null without perturbations, or where a rule excludes it.
    pub base: Option<String>,
    /// The perturbations whose runs are planned, in order.
    pub perturbations: Vec<PlannedPerturbation>,
    /// The axes whose values differ between runs.
    pub varied: Vec<Axis>,
    /// Points that a rule takes out.
    pub excluded: Vec<ExcludedPoint>,
    /// How many points are the same run as an earlier one.
    pub repeated: usize,
    /// What the author may want to know.
    pub warnings: Vec<Diagnostic>,
    /// Where each run first came from.
    points: Vec<Point>,
}

/// What a run was planned as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// A point of the grid, counted in order.
    Grid(u64),
    /// The base.
    Base,
    /// A perturbation, by its place in the list.
    Perturbation(usize),
}

impl Point {
    fn origin(self, experiment: &Experiment, axis: Axis) -> Origin {
        let own = match self {
            Point::Grid(point) => Grid::new(experiment).origin(point, axis),
            Point::Perturbation(at) => {
                let first = if experiment.perturb == Perturb::Cumulative { 0 } else { at };
                let changes = experiment.perturbations.get(first..=at).unwrap_or_default();
                changes.iter().rev().find_map(|change| origin(&change.settings, axis))
            }
            Point::Base => None,
        };
        own.or_else(|| origin(&experiment.base, axis)).unwrap_or(Origin::Default)
    }
}

impl Plan {
    /// Where the value of an axis in a run comes from. The experiment is the one that was planned.
    pub fn origin(&self, experiment: &Experiment, run: usize, axis: Axis) -> Origin {
        let point = self.points.get(run).copied().unwrap_or(Point::Base);
        point.origin(experiment, axis)
    }

    /// The first runs only.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        let keep: Vec<bool> = (0..self.runs.len()).map(|at| at < count).collect();
        self.only(&keep)
    }

    /// That many runs, drawn at random without repetition, in the plan's order. The same seed draws the same runs.
    #[must_use]
    pub fn sample(self, count: usize, seed: u64) -> Self {
        let keep = sample::choose(self.runs.len(), count, seed);
        self.only(&keep)
    }

    fn only(mut self, keep: &[bool]) -> Self {
        let mut keep_run = keep.iter();
        self.runs.retain(|_| keep_run.next().is_some_and(|keep| *keep));
        let mut keep_point = keep.iter();
        self.points.retain(|_| keep_point.next().is_some_and(|keep| *keep));
        let ids: std::collections::HashSet<&str> = self.runs.iter().map(|run| run.run_id.as_str()).collect();
        self.perturbations.retain(|change| ids.contains(change.run_id.as_str()));
        self.base = self.base.filter(|base| ids.contains(base.as_str()));
        self.varied = expand::varied(self.varied.iter().copied(), &self.runs);
        self
    }

    /// What `plan.json` holds. A hypothesis that an earlier plan of the same folder contains keeps the time it was written down;
    /// the others get `now`, RFC 3339 in UTC.
    pub fn file(&self, experiment: &Experiment, now: &str, earlier: Option<&PlanFile>) -> PlanFile {
        let known = earlier.map(|earlier| earlier.hypotheses.as_slice()).unwrap_or_default();
        let record = |written: &crate::experiment::WrittenHypothesis| {
            let text = experiment.source.text.get(written.span.clone()).unwrap_or_default().to_owned();
            let before = known.iter().find(|known| known.hypothesis == written.hypothesis);
            RecordedHypothesis {
                written_at: before.map_or_else(|| now.to_owned(), |before| before.written_at.clone()),
                text,
                hypothesis: written.hypothesis.clone(),
            }
        };
        let path = &experiment.source.path;
        PlanFile {
            schema_version: SCHEMA_VERSION,
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            experiment: std::path::absolute(path).unwrap_or_else(|_| path.clone()),
            runs: self.runs.clone(),
            base: self.base.clone(),
            perturbations: self.perturbations.clone(),
            varied: self.varied.clone(),
            excluded: self.excluded.clone(),
            hypotheses: experiment.hypotheses.iter().map(record).collect(),
            tolerances: experiment.baseline.clone(),
            timeout_seconds: experiment.timeout_seconds,
            slurm: experiment.slurm.clone(),
        }
    }
}

fn origin(settings: &[Setting], axis: Axis) -> Option<Origin> {
    settings.iter().find(|setting| setting.axis == axis).map(|setting| setting.origin.clone())
}

/// A rule or a point in words: `batch_size = 4, seed = 2`.
fn in_words<'a>(settings: impl IntoIterator<Item = (Axis, &'a crate::protocol::Value)>) -> String {
    let parts: Vec<String> =
        settings.into_iter().map(|(axis, value)| format!("{axis} = {}", axis.show(value))).collect();
    parts.join(", ")
}

/// The label of the run that perturbations change.
fn base_label() -> Arc<str> {
    Arc::from(crate::experiment::BASE_LABEL)
}
