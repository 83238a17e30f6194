//! One run as a row: what was set, how it ended, what it measured.

use std::collections::HashSet;
use std::path::Path;

use rayon::prelude::*;

use super::comparison::maximum_over_ranks;
use crate::diag::Diagnostic;
use crate::parallel::on_all_cores;
use crate::protocol::{Axis, Indicators, Outcome, PlanFile, PlannedRun, Report, Value};
use crate::store::{self, NamedReport, ResultsFolder, State};

/// One run, planned or found.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its id; for a report without one, the name of its file.
    pub run_id: String,
    /// What the experiment calls it.
    pub label: Option<String>,
    /// The value of every axis, in the axes' order; none where the report does not say.
    settings: Vec<Value>,
    /// Where it stands.
    pub state: State,
    /// What it measured.
    pub report: Option<Report>,
    /// Whether it left a report that cannot be read: what it measured is then not known.
    pub is_damaged: bool,
}

impl Row {
    /// The value of an axis.
    pub fn setting(&self, axis: Axis) -> &Value {
        &self.settings[axis as usize]
    }

    /// Each indicator's maximum over the ranks; null where one rank does not know it, or nothing was measured.
    pub fn indicators(&self) -> Indicators {
        self.report.as_ref().map(maximum_over_ranks).unwrap_or_default()
    }

    /// How it ended, where it did.
    pub fn outcome(&self) -> Option<Outcome> {
        self.state.outcome()
    }

    fn planned(run: &PlannedRun, state: State, report: Option<Report>, is_damaged: bool) -> Self {
        let settings = Axis::all().map(|axis| axis.of(&run.spec)).collect();
        let (run_id, label) = (run.run_id.clone(), run.label.as_deref().map(str::to_owned));
        Self { run_id, label, settings, state, report, is_damaged }
    }
}

/// A report on its own: what it says of itself is all there is.
impl From<NamedReport> for Row {
    fn from(NamedReport { name, report }: NamedReport) -> Self {
        let settings = match &report.spec {
            Some(spec) => Axis::all().map(|axis| axis.of(spec)).collect(),
            None => Axis::all().map(|axis| reported(&report, axis)).collect(),
        };
        let outcome = report.outcome();
        let message = report.failure.as_ref().map(|failure| failure.message.clone());
        let message = message.or_else(|| report.oom.as_ref().map(|oom| oom.message.clone()));
        let state = State::Ended { outcome, message };
        Self { run_id: name, label: None, settings, state, report: Some(report), is_damaged: false }
    }
}

/// What a report of the reference script says about an axis: it measures on CUDA, and computes.
fn reported(report: &Report, axis: Axis) -> Value {
    match axis {
        Axis::Case => report.case.name().into(),
        Axis::Preset => report.preset.as_str().into(),
        Axis::BatchSize => Value::Whole(report.batch_size_per_device),
        Axis::Steps => Value::Whole(report.steps),
        Axis::Precision => report.precision.name().into(),
        Axis::Seed => Value::Whole(report.seed),
        Axis::WorldSize => Value::Whole(report.world_size),
        Axis::RankZeroExtraSamples => Value::Whole(report.rank_zero_extra_samples),
        Axis::Device => "cuda".into(),
        Axis::Compute => Value::Switch(true),
        Axis::DeviceModel | Axis::Capacity | Axis::Backend => Value::None,
    }
}

/// A results folder, read.
#[derive(Debug)]
pub struct Collation {
    /// The plan, where the folder has one.
    pub plan: Option<PlanFile>,
    /// One row per planned run, in the plan's order; without a plan, one per run found.
    pub rows: Vec<Row>,
    /// Runs that the plan no longer has.
    pub unplanned: Vec<String>,
    /// Files that cannot be read. Their runs have rows without measurements.
    pub damaged: Vec<Diagnostic>,
}

impl Collation {
    /// Reads a report, a folder of reports, or a results folder.
    ///
    /// # Errors
    /// The path is not there, or it or its plan cannot be read.
    pub fn at(path: &Path) -> Result<Self, Diagnostic> {
        if path.is_dir() {
            let folder = ResultsFolder::open(path)?;
            if let Some(plan) = folder.plan()? {
                return Self::of_plan(&folder, plan);
            }
        }
        let mut collation = Self { plan: None, rows: Vec::new(), unplanned: Vec::new(), damaged: Vec::new() };
        for report in store::reports_at(path)? {
            match report {
                Ok(report) => collation.rows.push(report.into()),
                Err(damage) => collation.damaged.push(damage),
            }
        }
        Ok(collation)
    }

    /// Reads what a plan's runs left, on all cores.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn of_plan(folder: &ResultsFolder, plan: PlanFile) -> Result<Self, Diagnostic> {
        let planned: HashSet<&str> = plan.runs.iter().map(|run| run.run_id.as_str()).collect();
        let unplanned = folder.runs_beside(&planned)?;
        let read = |run: &PlannedRun| {
            let place = folder.run(&run.run_id);
            let (report, damage) = match place.report() {
                Ok(report) => (report, None),
                Err(damage) => (None, Some(damage)),
            };
            // Whatever the status says, what it measured is not known any more.
            let state = match &damage {
                Some(damage) => {
                    let why = damage.labels.first().map_or(&damage.message, |label| &label.message);
                    State::Ended { outcome: Outcome::Error, message: Some(format!("damaged report: {why}")) }
                }
                None => place.state(report.as_ref()),
            };
            (Row::planned(run, state, report, damage.is_some()), damage)
        };
        let (rows, damaged): (Vec<_>, Vec<_>) = on_all_cores(|| plan.runs.par_iter().map(read).unzip())?;
        Ok(Self { plan: Some(plan), rows, unplanned, damaged: damaged.into_iter().flatten().collect() })
    }
}
