//! What is to be expected of planned runs: from earlier results, and from the modelled GPU.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::counted;
use crate::cli::console::{Console, Stop};
use crate::cli::machine::Machine;
use crate::collate::{Cell, Column};
use crate::diag::Diagnostic;
use crate::exec::{Ending, Job, Limits, Place, provenance};
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::plan::Plan;
use crate::protocol::{Axis, Backend, DeviceKind, Outcome, PlannedRun, Report, RunSpec, Value};
use crate::store::{ResultsFolder, read_report, reports_at};

/// What is known about runs, by their ids.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    measured: BTreeMap<String, Expected>,
    /// The same by [`kind`].
    similar: BTreeMap<String, Expected>,
    /// What the modelled GPU says, by [`kind`].
    modelled: BTreeMap<String, Expected>,
}

/// What a run will be like.
#[derive(Debug, Clone, Copy)]
struct Expected {
    outcome: Outcome,
    /// Null where nothing was computed: that says nothing about time.
    seconds: Option<f64>,
    peak_mib: Option<f64>,
}

impl Outlook {
    /// What the results of a folder tell. Those that cannot be read tell nothing: this is an estimate.
    pub(super) fn of_results(folder: &Path) -> Self {
        let mut outlook = Self::default();
        if ResultsFolder::open(folder).is_err() {
            return outlook;
        }
        for named in reports_at(folder).unwrap_or_default().into_iter().flatten() {
            let report = named.report;
            if let (Some(spec), true) = (&report.spec, report.outcome().is_finished()) {
                let expected = Expected { seconds: report.wall_seconds, ..Expected::of(&report) };
                outlook.similar.insert(kind(spec), expected);
                outlook.measured.insert(named.name, expected);
            }
        }
        outlook
    }

    /// Executes what nothing is known about, without computing, on the modelled GPU. A CUDA run is modelled on the device model that
    /// the base names.
    pub(super) fn ask_the_model(
        &mut self,
        experiment: &Experiment,
        plan: &Plan,
        console: &mut Console,
    ) -> Result<(), Stop> {
        let machine = Machine::find()?;
        let place = tempfile::tempdir()
            .map_err(|error| Diagnostic::error(format!("cannot make a folder for temporary files: {error}")))?;
        let unknown = plan.runs.iter().filter(|run| self.expected(run).is_none());
        // One of each kind: runs that differ by their seed only are modelled once.
        let kinds: BTreeMap<String, &PlannedRun> = unknown.map(|run| (kind(&run.spec), run)).collect();
        let mut jobs = Vec::new();
        for run in kinds.values() {
            let spec = without_computing(&run.spec, experiment);
            let log = place.path().join(jobs.len().to_string());
            let files = Place::Files { report: log.with_extension("json"), snapshot: None, overwrite: [false; 2], log };
            jobs.push(Job { run: PlannedRun { run_id: spec.run_id(), label: None, spec }, place: files });
        }
        let provenance = provenance(Some(&experiment.source.path));
        let (ending, _) = machine.execute(&jobs, Limits::default(), provenance, console)?;
        if ending == Ending::Interrupted {
            return Err(Stop { exit: Exit::Interrupted, diagnostics: Vec::new() });
        }
        for (kind, job) in kinds.into_keys().zip(&jobs) {
            // A run that could not be modelled has no estimate; why has been shown.
            if let Place::Files { report, .. } = &job.place
                && let Ok(named) = read_report(report)
            {
                self.modelled.insert(kind, Expected::of(&named.report));
            }
        }
        Ok(())
    }

    /// What is known about a run, and how.
    fn expected(&self, run: &PlannedRun) -> Option<(Expected, &'static str)> {
        let kind = || kind(&run.spec);
        let measured = self.measured.get(&run.run_id).map(|expected| (*expected, "this run"));
        measured
            .or_else(|| self.similar.get(&kind()).map(|expected| (*expected, "another seed")))
            .or_else(|| self.modelled.get(&kind()).map(|expected| (*expected, "the modelled GPU")))
    }

    /// The columns that it adds to a table of runs; none where nothing is known.
    pub(super) fn columns(&self) -> Vec<Column> {
        if self.measured.is_empty() && self.modelled.is_empty() {
            return Vec::new();
        }
        vec![
            Column::new("expected_outcome", "expected\noutcome"),
            Column::mib("expected_peak_mib", "expected\npeak"),
            Column { unit: Some("s"), ..Column::new("expected_seconds", "expected\ntime") },
            Column::new("known_from", "known from"),
        ]
    }

    /// The cells of a run under [`Outlook::columns`].
    pub(super) fn cells(&self, run: &PlannedRun) -> Vec<Cell> {
        if self.measured.is_empty() && self.modelled.is_empty() {
            return Vec::new();
        }
        match self.expected(run) {
            Some((expected, from)) => {
                vec![expected.outcome.name().into(), expected.peak_mib.into(), expected.seconds.into(), from.into()]
            }
            None => vec![Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty],
        }
    }

    /// How long the runs without results will take, as far as earlier results tell.
    pub(super) fn summary(&self, plan: &Plan) -> Option<String> {
        if self.measured.is_empty() {
            return None;
        }
        let open: Vec<&PlannedRun> = plan.runs.iter().filter(|run| !self.measured.contains_key(&run.run_id)).collect();
        let told: Vec<f64> =
            open.iter().filter_map(|run| self.expected(run).and_then(|(expected, _)| expected.seconds)).collect();
        Some(match (open.len(), told.len()) {
            (0, _) => "Every run has results already.\n".to_owned(),
            (open, 0) => format!("Nothing is known about the time of {} without results.\n", counted(open, "run")),
            (open, told_of) => {
                let seconds: f64 = told.iter().sum();
                let runs = counted(told_of, "run");
                let others =
                    if open > told_of { format!("; {} more may take any time", open - told_of) } else { String::new() };
                format!("{runs} without results will take about {seconds:.1} s one after another{others}.\n")
            }
        })
    }
}

impl Expected {
    /// What a report tells about memory. A run that stopped at its limit does not tell how much it needs.
    fn of(report: &Report) -> Self {
        if report.outcome() == Outcome::Oom {
            return Self { outcome: Outcome::Oom, seconds: None, peak_mib: None };
        }
        let peaks = report.rank_reports.iter().filter_map(|rank| rank.indicators.maximum_peak_allocated_mib);
        Self { outcome: report.outcome(), seconds: None, peak_mib: peaks.reduce(f64::max) }
    }
}

/// What decides time and memory: all but the seed.
fn kind(spec: &RunSpec) -> String {
    RunSpec { seed: 0, ..spec.clone() }.run_id()
}

/// The same run where nothing is computed.
fn without_computing(spec: &RunSpec, experiment: &Experiment) -> RunSpec {
    let named = experiment.base.iter().find(|setting| setting.axis == Axis::DeviceModel);
    let name = named.map_or_else(|| Axis::DeviceModel.default_value(), |setting| setting.value.clone());
    let model = || match &name {
        Value::Text(name) => experiment.device_models.get(name).map(Arc::clone),
        _ => None,
    };
    RunSpec {
        device: DeviceKind::Cpu,
        device_model: spec.device_model.clone().or_else(model),
        compute: false,
        backend: spec.backend.map(|_| Backend::Gloo),
        snapshot: None,
        ..spec.clone()
    }
}
