//! The page's data: columns rather than objects, each number once, so that 2,000 runs take a few megabytes.
//!
//! Tables keep the keys of `results.csv`. Memory over the phases is in bytes, which are whole numbers where MiB are not, as
//! differences from sample to sample; the places of the samples (step, phase) are shared between runs, and so are equal series.

use std::collections::{BTreeMap, HashMap};
use std::ptr::from_ref;

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use super::super::verdict::{change, remarks, word};
use super::{Page, Recording};
use crate::collate::{self, Cell, Collation, Ranks, Row, Series, Table, fit, position};
use crate::protocol::{Axis, BaselineVerdict, Indicator, Judged, Outcome, Phase, Quantity, RankReport};
use crate::units::MIB;

/// So many changes of recorded histories go into one page; what is beyond is named.
const MOST_CHANGES: usize = 400_000;

#[derive(Serialize)]
struct Data<'a> {
    name: &'a str,
    title: Option<&'a str>,
    runs: usize,
    results: Columns<'a>,
    shown: Vec<String>,
    responses: Option<Columns<'a>>,
    response_rows: usize,
    axes: Vec<&'static str>,
    indicators: &'static [&'static str],
    quantities: &'static [&'static str],
    phases: &'static [&'static str],
    places: Vec<Vec<(i64, usize)>>,
    series: Vec<Numbers>,
    samples: Vec<Samples>,
    along: Vec<Along>,
    ranks: Vec<RankValues>,
    verdicts: Vec<VerdictData<'a>>,
    baseline: Option<BaselineData<'a>>,
    unplanned: &'a [String],
    provenance: Vec<Fact>,
    recordings: Vec<Recorded<'a>>,
}

/// A table, column by column.
struct Columns<'a>(&'a Table);

#[derive(Serialize)]
struct ColumnData<'a> {
    key: &'a str,
    title: String,
    unit: Option<&'static str>,
    decimals: usize,
    /// Where every row has the same value: that value, and no `values`.
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<CellData<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<CellData<'a>>,
}

struct CellData<'a>(&'a Cell);

impl Serialize for CellData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Cell::Empty => serializer.serialize_none(),
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Integer(value) => serializer.serialize_i64(*value),
            Cell::Number(value) => serializer.serialize_f64(*value),
        }
    }
}

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.0.rows();
        let mut list = serializer.serialize_seq(Some(self.0.columns().len()))?;
        for (at, column) in self.0.columns().iter().enumerate() {
            let same = rows.len() > 1 && rows.windows(2).all(|pair| pair[0][at] == pair[1][at]);
            list.serialize_element(&ColumnData {
                key: &column.key,
                title: column.title.replace('\n', " "),
                unit: column.unit,
                decimals: column.decimals,
                all: rows.first().filter(|_| same).map(|row| CellData(&row[at])),
                values: rows.iter().filter(|_| !same).map(|row| CellData(&row[at])).collect(),
            })?;
        }
        list.end()
    }
}

/// Numbers, as differences where all are whole: the first one, and what is added to reach each next one.
#[derive(Serialize, Clone, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Numbers {
    Steps(Vec<i64>),
    Plain(Vec<f64>),
}

impl Numbers {
    fn of(values: &[f64]) -> Self {
        /// Whole numbers up to here are exact.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if !values.iter().all(|value| value.fract() == 0.0 && value.abs() <= EXACT) {
            return Numbers::Plain(values.to_vec());
        }
        let mut before = 0;
        let steps = values.iter().map(|value| {
            #[expect(clippy::cast_possible_truncation, reason = "whole, and small enough")]
            let whole = *value as i64;
            let step = whole - before;
            before = whole;
            step
        });
        Numbers::Steps(steps.collect())
    }
}

/// What one rank of one run measured: places of lists.
#[derive(Serialize)]
struct Samples {
    run: usize,
    rank: u64,
    places: usize,
    /// One for each quantity.
    series: [usize; 4],
}

/// Runs that differ in one axis only, with a line for each indicator.
#[derive(Serialize)]
struct Along {
    axis: &'static str,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    runs: Vec<usize>,
    /// Slope, intercept and largest deviation for each indicator; null where there is no line.
    lines: [Option<(f64, f64, f64)>; 4],
}

#[derive(Serialize)]
struct RankValues {
    run: usize,
    rank: u64,
    samples: u64,
    indicators: [Option<f64>; 4],
}

/// A claim, and what became of it.
#[derive(Serialize)]
struct VerdictData<'a> {
    verdict: &'static str,
    claim: &'a str,
    expected: Option<String>,
    found: Option<&'a str>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct BaselineData<'a> {
    verdict: &'static str,
    file: String,
    compared: usize,
    problem: Option<&'a str>,
    /// What changed, and how.
    changes: Vec<String>,
}

/// Something that holds for some of the runs.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Fact {
    what: &'static str,
    value: String,
    runs: usize,
}

#[derive(Serialize)]
struct Recorded<'a> {
    run: &'a str,
    file: &'a str,
    /// Why it is not shown.
    missing: Option<String>,
    device: usize,
    before: u64,
    bytes: Vec<i64>,
    note: Vec<usize>,
    origin: Vec<usize>,
    reserved: &'a [(usize, u64)],
    notes: &'a [(usize, usize)],
    words: &'a [String],
    origins: &'a [String],
}

/// The page's data as JSON.
pub(super) fn json(page: &Page<'_>) -> String {
    let Page { collation, judged, recordings } = page;
    let rows = &collation.rows;
    let results = collate::results(rows, Ranks::Maximum);
    let comparison = collate::comparison(rows, Ranks::Maximum);
    let responses = collate::responses(collation);
    let plan = collation.plan.as_ref();
    let mut pools = Pools::default();
    let samples = samples(rows, &mut pools);
    let axes = collate::varied(rows);
    let data = Data {
        name: plan.map_or("comparison", |plan| &plan.name),
        title: plan.and_then(|plan| plan.title.as_deref()),
        runs: rows.len(),
        results: Columns(&results),
        shown: comparison.columns().iter().map(|column| column.key.clone().into_owned()).collect(),
        responses: responses.as_ref().map(Columns),
        response_rows: responses.as_ref().map_or(0, |table| table.rows().len()),
        along: axes.iter().map(|axis| along(rows, *axis)).filter(|along| !along.groups.is_empty()).collect(),
        axes: axes.iter().map(|axis| key(*axis)).collect(),
        indicators: Indicator::NAMES,
        quantities: Quantity::NAMES,
        phases: Phase::NAMES,
        places: pools.places,
        series: pools.series,
        samples,
        ranks: ranks(rows),
        verdicts: verdicts(collation, *judged),
        baseline: judged.and_then(|judged| judged.baseline.as_ref()).map(baseline),
        unplanned: &collation.unplanned,
        provenance: provenance(collation),
        recordings: recorded(recordings),
    };
    // Keys are text and numbers finite, so this does not fail.
    serde_json::to_string(&data).unwrap_or_default()
}

/// An axis's column in `results.csv`.
fn key(axis: Axis) -> &'static str {
    match axis {
        Axis::Capacity => "capacity_bytes",
        axis => axis.name(),
    }
}

/// Lists of which many runs have the same.
#[derive(Default)]
struct Pools {
    places: Vec<Vec<(i64, usize)>>,
    known_places: HashMap<Vec<(i64, usize)>, usize>,
    series: Vec<Numbers>,
    known_series: HashMap<Vec<u64>, usize>,
}

impl Pools {
    fn places(&mut self, rank: &RankReport) -> usize {
        let places: Vec<_> = rank.samples.iter().map(|sample| (sample.step, sample.phase as usize)).collect();
        *self.known_places.entry(places).or_insert_with_key(|places| {
            self.places.push(places.clone());
            self.places.len() - 1
        })
    }

    fn series(&mut self, rank: &RankReport, quantity: Quantity) -> usize {
        let values: Vec<f64> = rank.samples.iter().map(|sample| quantity.of(sample) * MIB as f64).collect();
        let bits = values.iter().map(|value| value.to_bits()).collect();
        *self.known_series.entry(bits).or_insert_with(|| {
            self.series.push(Numbers::of(&values));
            self.series.len() - 1
        })
    }
}

fn samples(rows: &[Row], pools: &mut Pools) -> Vec<Samples> {
    let ranks = rows
        .iter()
        .enumerate()
        .flat_map(|(run, row)| row.report.iter().flat_map(|report| &report.rank_reports).map(move |rank| (run, rank)));
    ranks
        .map(|(run, rank)| Samples {
            run,
            rank: rank.rank,
            places: pools.places(rank),
            series: [
                Quantity::AllocatedMib,
                Quantity::ReservedMib,
                Quantity::PeakAllocatedMib,
                Quantity::DeviceUsedMib,
            ]
            .map(|quantity| pools.series(rank, quantity)),
        })
        .collect()
}

/// The series of runs that ended well: what others measured before they ended is no point of a line.
fn along(rows: &[Row], axis: Axis) -> Along {
    let measured: Vec<&Row> = rows.iter().filter(|row| row.outcome() == Some(Outcome::Ok)).collect();
    let numbers: HashMap<*const Row, usize> = rows.iter().enumerate().map(|(at, row)| (from_ref(row), at)).collect();
    let group = |series: Series<'_>| {
        let line = |indicator: Indicator| {
            let point = |row: &&Row| Some((position(row, axis)?, indicator.of(&row.indicators())?));
            let line = fit(&series.rows.iter().map(point).collect::<Option<Vec<_>>>()?)?;
            Some((line.slope, line.intercept, line.largest_deviation))
        };
        Group {
            lines: [0, 1, 2, 3].map(|at| line(Indicator::ALL[at])),
            runs: series.rows.iter().map(|row| numbers[&from_ref(*row)]).collect(),
        }
    };
    Along { axis: key(axis), groups: collate::along(&measured, axis).into_iter().map(group).collect() }
}

fn ranks(rows: &[Row]) -> Vec<RankValues> {
    let several = |row: &&Row| row.report.as_ref().is_some_and(|report| report.rank_reports.len() > 1);
    let values = |run: usize, rank: &RankReport| RankValues {
        run,
        rank: rank.rank,
        samples: rank.local_batch_size,
        indicators: [0, 1, 2, 3].map(|at| Indicator::ALL[at].of(&rank.indicators)),
    };
    let rows = rows.iter().enumerate().filter(|(_, row)| several(row));
    rows.flat_map(|(run, row)| {
        row.report.iter().flat_map(move |report| report.rank_reports.iter().map(move |rank| values(run, rank)))
    })
    .collect()
}

/// The verdicts; without them the plan's claims, which wait for theirs.
fn verdicts<'a>(collation: &'a Collation, judged: Option<&'a Judged>) -> Vec<VerdictData<'a>> {
    if let Some(judged) = judged {
        let data = judged.hypotheses.iter().map(|verdict| VerdictData {
            verdict: word(verdict),
            claim: &verdict.claim,
            expected: Some(format!("{}: {}", verdict.measure, verdict.expected)),
            found: Some(&verdict.found),
            remarks: remarks(verdict),
        });
        return data.collect();
    }
    let claims = collation.plan.iter().flat_map(|plan| &plan.hypotheses).map(|recorded| &recorded.hypothesis.claim);
    claims
        .map(|claim| VerdictData { verdict: "not judged", claim, expected: None, found: None, remarks: Vec::new() })
        .collect()
}

fn baseline(baseline: &BaselineVerdict) -> BaselineData<'_> {
    let words = baseline.changes.iter();
    BaselineData {
        verdict: baseline.judgement.name(),
        file: baseline.file.display().to_string(),
        compared: baseline.compared,
        problem: baseline.problem.as_deref(),
        changes: words.map(|of| format!("{}: {}, {}: {}", of.kind, of.subject, of.what, change(of))).collect(),
    }
}

/// Where the numbers come from: each fact once, with how many runs it holds for.
fn provenance(collation: &Collation) -> Vec<Fact> {
    let mut facts: Vec<(&'static str, BTreeMap<String, usize>)> = Vec::new();
    let mut add = |what: &'static str, value: Option<String>| {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return };
        let at = facts.iter().position(|(known, _)| *known == what).unwrap_or_else(|| {
            facts.push((what, BTreeMap::new()));
            facts.len() - 1
        });
        *facts[at].1.entry(value).or_default() += 1;
    };
    for report in collation.rows.iter().filter_map(|row| row.report.as_ref()) {
        let device = report.device.as_ref();
        let gpu = report.rank_reports.first().map(|rank| rank.gpu_name.clone());
        add("device", device.map(|device| format!("{}, {}", device.name, device.execution)).or_else(|| gpu.clone()));
        add("GPU of the memory", gpu);
        match device {
            Some(device) if device.modelled.is_empty() => add("measured", Some("everything".to_owned())),
            Some(device) => device.modelled.iter().for_each(|what| add("modelled, not measured", Some(what.clone()))),
            None => add("measured", Some("everything, by the reference script".to_owned())),
        }
        for (operator, _) in report.rank_reports.iter().flat_map(|rank| &rank.operators_without_recipe) {
            add("without a recipe: its memory is not exact", Some(operator.clone()));
        }
        add("libtorch", Some(report.libtorch_version.clone().unwrap_or_else(|| report.pytorch_version.clone())));
        add("CUDA", report.cuda_version.clone());
        add("driver", device.and_then(|device| device.driver_version.clone()));
        add("Python", report.python_version.clone());
        add("worker build", report.worker_build.clone());
        add(
            "tool",
            report.tool.as_ref().map(|tool| {
                let revision = tool.revision.as_ref().map_or_else(String::new, |revision| format!(", {revision}"));
                format!("{} {}{revision}", tool.name, tool.version)
            }),
        );
        add("host", Some(report.hostname_rank_zero.clone()));
        add("Slurm job", report.slurm_job_id.clone());
        if let Some(provenance) = &report.provenance {
            add("command", Some(provenance.command.join(" ")));
            add("experiment", provenance.experiment.as_ref().map(|path| path.display().to_string()));
            let dirty = if provenance.git_dirty == Some(true) { ", with uncommitted changes" } else { "" };
            add("revision of the experiment", provenance.git_revision.as_ref().map(|of| format!("{of}{dirty}")));
        }
    }
    let mut facts: Vec<Fact> = facts
        .into_iter()
        .flat_map(|(what, values)| values.into_iter().map(move |(value, runs)| Fact { what, value, runs }))
        .collect();
    let started = || collation.rows.iter().filter_map(|row| row.report.as_ref()?.started_at.as_deref());
    let seconds: f64 = collation.rows.iter().filter_map(|row| row.report.as_ref()?.wall_seconds).sum();
    let timed = started().count();
    if let (Some(first), Some(last)) = (started().min(), started().max()) {
        // To the second is enough for people; results.csv has all of it.
        let second = |time: &str| format!("{} UTC", time.get(..19).unwrap_or(time).replace('T', " "));
        facts.push(Fact { what: "first run started", value: second(first), runs: timed });
        facts.push(Fact { what: "last run started", value: second(last), runs: timed });
        facts.push(Fact { what: "time of all runs together", value: format!("{seconds:.1} s"), runs: timed });
    }
    facts
}

/// The histories, as far as they fit into a page.
fn recorded(recordings: &[Recording]) -> Vec<Recorded<'_>> {
    let mut room = MOST_CHANGES;
    recordings
        .iter()
        .map(|Recording { run_id, file, history }| {
            let (timeline, missing) = match history {
                Ok(timeline) if timeline.changes.len() <= room => (Some(timeline), None),
                Ok(timeline) => (None, Some(format!(
                    "{} changes do not fit into this page beside the others; memlab snapshot summary shows the file",
                    timeline.changes.len()
                ))),
                Err(why) => (None, Some(why.clone())),
            };
            room -= timeline.map_or(0, |timeline| timeline.changes.len());
            let changes = timeline.map_or(&[][..], |timeline| &timeline.changes);
            Recorded {
                run: run_id,
                file,
                missing,
                device: timeline.map_or(0, |timeline| timeline.device),
                before: timeline.map_or(0, |timeline| timeline.before),
                bytes: changes.iter().map(|change| change.bytes).collect(),
                note: changes.iter().map(|change| change.note).collect(),
                origin: changes.iter().map(|change| change.origin).collect(),
                reserved: timeline.map_or(&[][..], |timeline| &timeline.reserved),
                notes: timeline.map_or(&[][..], |timeline| &timeline.notes),
                words: timeline.map_or(&[][..], |timeline| &timeline.words),
                origins: timeline.map_or(&[][..], |timeline| &timeline.origins),
            }
        })
        .collect()
}
