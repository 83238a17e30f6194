//! Baselines: what the runs of an experiment measured when it was last saved, and how today's measurements differ.
//!
//! The file is made to be reviewed: one number a line, runs in the plan's order, nothing in it that changes while the measurements do not.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{hypothesis, measure};
use crate::collate::{Collation, Row, along};
use crate::protocol::{
    Axis, BaselineVerdict, Change, ChangeKind, DeviceKind, Indicator, Indicators, Judgement, Kind, Measure, Outcome,
    PlanFile, SCHEMA_VERSION, Tolerance, Tolerances, Unmeasured,
};

/// Memory is whole bytes: what is nearer than half a byte, in MiB, differs in the last bits of a decimal number only.
const HALF_A_BYTE: f64 = 0.5 / (1 << 20) as f64;
/// Through two points every line goes: their own numbers are compared, and that is enough.
const POINTS_OF_A_TREND: usize = 3;

/// What is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Format version.
    pub schema_version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// What it was measured on: the name in the file's name, and the GPU's own.
    pub devices: BTreeMap<String, String>,
    /// libtorch's version without build suffix.
    pub libtorch_version: String,
    /// One entry per run, in the plan's order.
    pub runs: Vec<BaselineRun>,
    /// The lines through runs that differ in one axis only.
    pub trends: Vec<BaselineTrend>,
}

/// What one run measured: the maximum over its ranks, MiB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineRun {
    /// Its id.
    pub run_id: String,
    /// How it ended: `ok`, or out of memory.
    pub outcome: Outcome,
    /// Its indicators; null for a run that is out of memory.
    #[serde(flatten)]
    pub indicators: Indicators,
}

/// A line through the runs of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineTrend {
    /// Of which indicator.
    pub indicator: Indicator,
    /// Along which axis.
    pub along: Axis,
    /// The values that its runs share, where there are several series.
    pub runs: String,
    /// How many points.
    pub points: usize,
    /// MiB per unit of the axis.
    pub slope: f64,
    /// MiB where the axis is zero.
    pub intercept: f64,
    /// Standard deviation of the points around the line, MiB.
    pub residual: Option<f64>,
}

impl Baseline {
    /// What a folder's runs measured.
    ///
    /// # Errors
    /// The runs that were not measured. Out of memory is a measurement.
    pub fn of(collation: &Collation, plan: &PlanFile) -> Result<Self, Vec<Unmeasured>> {
        let (mut runs, mut unmeasured) = (Vec::new(), Vec::new());
        for row in &collation.rows {
            let entry = |outcome, indicators| BaselineRun { run_id: row.run_id.clone(), outcome, indicators };
            match (complete(row), row.outcome()) {
                (Ok(indicators), _) => runs.push(entry(Outcome::Ok, indicators)),
                (Err(_), Some(Outcome::Oom)) => runs.push(entry(Outcome::Oom, Indicators::default())),
                (Err(why), _) => unmeasured.push(why),
            }
        }
        if !unmeasured.is_empty() || runs.is_empty() {
            return Err(unmeasured);
        }
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            experiment: plan.name.clone(),
            devices: devices(collation, plan),
            libtorch_version: libtorch(collation),
            runs,
            trends: trends(collation, plan),
        })
    }

    /// The runs that were out of memory.
    pub fn out_of_memory(&self) -> HashSet<String> {
        self.runs.iter().filter(|run| run.outcome == Outcome::Oom).map(|run| run.run_id.clone()).collect()
    }

    /// Compares today's measurements with it. The file is only for the verdict.
    pub fn compare(&self, file: &Path, collation: &Collation, plan: &PlanFile) -> BaselineVerdict {
        let (devices, libtorch) = (devices(collation, plan), libtorch(collation));
        let problem = if !self.devices.keys().eq(devices.keys()) {
            Some(format!("it is of {}, and this is {}", list(&self.devices), list(&devices)))
        } else if self.libtorch_version != libtorch {
            Some(format!("it was made with libtorch {}, and this is {libtorch}", self.libtorch_version))
        } else {
            None
        };
        if let Some(problem) = problem {
            return without(file, &format!("{problem}: not compared; once the results are right, --save-baseline"));
        }
        let tolerances = plan.tolerances.clone().unwrap_or_default();
        let mut comparison = Comparison { tolerances, compared: 0, changes: Vec::new() };
        comparison.runs(self, collation);
        comparison.trends(self, collation, plan);
        comparison.verdict(file)
    }
}

/// The name of the baseline's file, without its extension: the experiment's name, and what it was measured on.
pub fn baseline_name(collation: &Collation, plan: &PlanFile) -> String {
    let devices: Vec<String> = devices(collation, plan).into_keys().collect();
    format!("{}-{}", plan.name, devices.join("+"))
}

/// The verdict where there is nothing to compare with.
pub fn without(file: &Path, problem: &str) -> BaselineVerdict {
    BaselineVerdict {
        file: file.to_owned(),
        judgement: Judgement::Undecided,
        problem: Some(problem.to_owned()),
        compared: 0,
        changes: Vec::new(),
    }
}

struct Comparison {
    tolerances: Tolerances,
    compared: usize,
    changes: Vec<Change>,
}

impl Comparison {
    fn runs(&mut self, baseline: &Baseline, collation: &Collation) {
        let saved: HashMap<&str, &BaselineRun> = baseline.runs.iter().map(|run| (run.run_id.as_str(), run)).collect();
        for row in &collation.rows {
            match (saved.get(row.run_id.as_str()), complete(row)) {
                (None, _) => self.note(&row.run_id, ChangeKind::New, "the baseline does not have this run".to_owned()),
                (Some(old), _) if old.outcome == Outcome::Oom && row.outcome() == Some(Outcome::Oom) => {
                    self.compared += 1;
                }
                (Some(_), Err(why)) => self.note(&row.run_id, ChangeKind::Unmeasured, why.why),
                (Some(old), Ok(_)) if old.outcome == Outcome::Oom => {
                    self.compared += 1;
                    self.note(&row.run_id, ChangeKind::Better, "out of memory before, ok now".to_owned());
                }
                (Some(old), Ok(indicators)) => {
                    for indicator in Indicator::ALL {
                        let values = (indicator.of(&old.indicators), indicator.of(&indicators));
                        let tolerance = self.tolerances.of(*indicator);
                        self.number(&row.run_id, indicator.name().to_owned(), values, tolerance, "MiB".to_owned());
                    }
                }
            }
        }
        let planned: HashSet<&str> = collation.rows.iter().map(|row| row.run_id.as_str()).collect();
        for gone in baseline.runs.iter().filter(|run| !planned.contains(run.run_id.as_str())) {
            self.note(&gone.run_id, ChangeKind::Gone, "the plan does not have this run".to_owned());
        }
    }

    /// A trend that only one side has is one whose runs differ, and they are told already.
    fn trends(&mut self, baseline: &Baseline, collation: &Collation, plan: &PlanFile) {
        for new in trends(collation, plan) {
            let same =
                |old: &&BaselineTrend| old.indicator == new.indicator && old.along == new.along && old.runs == new.runs;
            if let Some(old) = baseline.trends.iter().find(same) {
                let what = format!("slope of {} along {}", new.indicator, new.along);
                let unit = format!("MiB per {}", new.along);
                let subject = if new.runs.is_empty() { "all runs" } else { &new.runs };
                self.number(subject, what, (Some(old.slope), Some(new.slope)), self.tolerances.slope, unit);
            }
        }
    }

    fn number(
        &mut self,
        subject: &str,
        what: String,
        (old, new): (Option<f64>, Option<f64>),
        tolerance: Tolerance,
        unit: String,
    ) {
        let difference = old.zip(new).map(|(old, new)| new - old);
        let allowed = old.map(|old| tolerance.around(old));
        let kind = match (difference, allowed) {
            (Some(difference), Some(allowed)) => {
                self.compared += 1;
                if difference.abs() < allowed + HALF_A_BYTE {
                    return;
                }
                if difference > 0.0 { ChangeKind::Worse } else { ChangeKind::Better }
            }
            (None, Some(_)) => ChangeKind::Unmeasured,
            (_, None) if new.is_some() => ChangeKind::New,
            _ => return,
        };
        self.changes.push(Change {
            subject: subject.to_owned(),
            what,
            old,
            new,
            difference,
            allowed,
            unit,
            kind,
            note: None,
        });
    }

    fn note(&mut self, run_id: &str, kind: ChangeKind, note: String) {
        self.changes.push(Change {
            subject: run_id.to_owned(),
            what: "run".to_owned(),
            old: None,
            new: None,
            difference: None,
            allowed: None,
            unit: String::new(),
            kind,
            note: Some(note),
        });
    }

    fn verdict(self, file: &Path) -> BaselineVerdict {
        let has = |kinds: &[ChangeKind]| self.changes.iter().any(|change| kinds.contains(&change.kind));
        let other_runs = has(&[ChangeKind::New, ChangeKind::Gone]);
        let judgement = if has(&[ChangeKind::Worse, ChangeKind::Better]) {
            Judgement::Refuted
        } else if other_runs || has(&[ChangeKind::Unmeasured]) || self.compared == 0 {
            Judgement::Undecided
        } else {
            Judgement::Supported
        };
        BaselineVerdict {
            file: file.to_owned(),
            judgement,
            problem: other_runs
                .then(|| "it is of other runs than the plan's: once the results are right, --save-baseline".to_owned()),
            compared: self.compared,
            changes: self.changes,
        }
    }
}

/// All four indicators of a run that measured all it should.
fn complete(row: &Row) -> Result<Indicators, Unmeasured> {
    for indicator in Indicator::ALL {
        measure::value(row, Measure::Indicator(*indicator))?;
    }
    Ok(row.indicators())
}

/// The lines through every series of the plan's numeric axes.
fn trends(collation: &Collation, plan: &PlanFile) -> Vec<BaselineTrend> {
    let rows: Vec<&Row> = collation.rows.iter().collect();
    let numeric = |axis: &&Axis| matches!(axis.definition().kind, Kind::Whole { .. } | Kind::Bytes);
    let mut trends = Vec::new();
    for axis in plan.varied.iter().filter(numeric).copied() {
        for series in along(&rows, axis).into_iter().filter(|series| series.rows.len() >= POINTS_OF_A_TREND) {
            for indicator in Indicator::ALL.iter().copied() {
                let measured = |row: &&Row| measure::value(row, Measure::Indicator(indicator)).ok();
                let values: Option<Vec<f64>> = series.rows.iter().map(measured).collect();
                let Some(values) = values else { continue };
                let points: Vec<(&Row, f64)> = series.rows.iter().copied().zip(values).collect();
                if let Some(line) = hypothesis::line("", &points, axis) {
                    trends.push(BaselineTrend {
                        indicator,
                        along: axis,
                        runs: series.name.clone(),
                        points: line.points,
                        slope: rounded(line.slope),
                        intercept: rounded(line.intercept),
                        residual: line.residual.map(rounded),
                    });
                }
            }
        }
    }
    trends
}

/// To a thousandth of a byte: the last bits of a fit are of no interest to a reviewer.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9 + 0.0
}

/// What the runs are measured on: `cpu-h200`, `cuda-nvidia-h200`, with the GPU's own name.
fn devices(collation: &Collation, plan: &PlanFile) -> BTreeMap<String, String> {
    let device = |(run, row): (&crate::protocol::PlannedRun, &Row)| {
        let gpu = row.report.as_ref()?.rank_reports.first()?.gpu_name.clone();
        let name = match (run.spec.device, &run.spec.device_model) {
            (DeviceKind::Cpu, Some(model)) => format!("cpu-{}", model.name),
            (kind, _) => format!("{kind}-{gpu}"),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        Some((name.chars().map(plain).collect(), gpu))
    };
    plan.runs.iter().zip(&collation.rows).filter_map(device).collect()
}

fn list(devices: &BTreeMap<String, String>) -> String {
    if devices.is_empty() { "nothing".to_owned() } else { devices.keys().cloned().collect::<Vec<_>>().join(" and ") }
}

/// libtorch's versions in the reports, without build suffixes.
fn libtorch(collation: &Collation) -> String {
    let reports = collation.rows.iter().filter_map(|row| row.report.as_ref());
    let version = |report: &crate::protocol::Report| {
        let version = report.libtorch_version.as_deref().unwrap_or(&report.pytorch_version);
        version.split('+').next().unwrap_or(version).to_owned()
    };
    reports.map(version).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" and ")
}
