//! The tables of one experiment: the exercise's comparison, `results.csv`, `samples.csv`, and the phases of one run.

use super::row::Row;
use super::table::{Cell, Column, Table};
use crate::protocol::{Axis, Indicators, RankReport, Report, Value};

/// How the ranks of one report enter a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// One row per report: the maximum over its ranks.
    Maximum,
    /// One row per rank.
    Each,
}

/// The axes that the exercise is about: always shown. The others are shown where the rows differ in them.
const ALWAYS: [Axis; 5] = [Axis::Case, Axis::Preset, Axis::BatchSize, Axis::Steps, Axis::Precision];

/// The comparison, for people: what was set, the outcome, and the indicators.
pub fn comparison(rows: &[Row], ranks: Ranks) -> Table {
    let differ = |axis: Axis| rows.windows(2).any(|pair| pair[0].setting(axis) != pair[1].setting(axis));
    let axes: Vec<Axis> = Axis::all().filter(|axis| ALWAYS.contains(axis) || differ(*axis)).collect();
    let mut columns = vec![Column::new("run_id", "run"), Column::new("label", "label")];
    columns.extend(axes.iter().map(|axis| axis_column(*axis)));
    columns.extend([Column::new("rank", "rank"), Column::new("outcome", "outcome")]);
    columns.extend(indicator_columns());
    columns.push(reserved_column());
    columns.push(Column::mib("peak_spread_mib", "peak differs\nover ranks by"));
    let mut table = Table::new(columns);
    for row in rows {
        let mut push = |rank: Cell, indicators: &Indicators, reserved: Option<f64>, spread: Option<f64>| {
            let mut cells = vec![row.run_id.as_str().into(), row.label.as_deref().into()];
            cells.extend(axes.iter().map(|axis| axis_cell(row.setting(*axis))));
            cells.extend([rank, row.state.name().into()]);
            cells.extend(indicator_cells(indicators));
            cells.extend([reserved.into(), spread.into()]);
            table.push(cells);
        };
        match (ranks, &row.report) {
            (Ranks::Each, Some(report)) => {
                for rank in &report.rank_reports {
                    push(rank.rank.into(), &rank.indicators, final_reserved(rank), None);
                }
            }
            (_, report) => {
                let report = report.as_ref();
                push(Cell::Empty, &row.indicators(), report.and_then(reserved), report.and_then(peak_spread));
            }
        }
    }
    table.without_empty(&["label", "rank", "peak_spread_mib"])
}

/// How far the ranks' peaks are apart; none for a single rank, and where one rank's is not known.
fn peak_spread(report: &Report) -> Option<f64> {
    let peaks = report.rank_reports.iter().map(|rank| rank.indicators.maximum_peak_allocated_mib);
    let peaks = peaks.collect::<Option<Vec<f64>>>().filter(|peaks| peaks.len() > 1)?;
    let (least, most) =
        peaks.iter().fold((f64::MAX, f64::MIN), |(least, most), peak| (least.min(*peak), most.max(*peak)));
    Some(most - least)
}

/// The columns of `results.csv`, for programs: everything that was set, how it ended, and the indicators.
pub fn results(rows: &[Row], ranks: Ranks) -> Table {
    let (first, more): (Vec<Axis>, Vec<Axis>) = Axis::all().partition(|axis| *axis <= Axis::Device);
    let mut columns = vec![Column::new("run_id", "run"), Column::new("label", "label")];
    columns.extend(first.iter().map(|axis| axis_column(*axis)));
    columns.push(Column::new("outcome", "outcome"));
    if ranks == Ranks::Each {
        columns.push(Column::new("rank", "rank"));
    }
    columns.extend(indicator_columns());
    columns.push(reserved_column());
    columns.extend(more.iter().map(|axis| axis_column(*axis)));
    columns.extend([
        Column::new("parameter_count", "parameters"),
        Column::new("final_loss_rank_zero", "final loss\nof rank 0"),
        Column::new("oom_rank", "out of memory\non rank"),
        Column::new("oom_step", "in step"),
        Column::new("oom_during", "during"),
        Column::mib("oom_requested_mib", "requested"),
        Column::new("message", "message"),
        Column::new("device_name", "device name"),
        Column::new("libtorch_version", "libtorch"),
        Column::new("worker_build", "worker build"),
        Column::new("started_at", "started"),
        Column::new("wall_seconds", "seconds"),
    ]);
    let mut table = Table::new(columns);
    for row in rows {
        let report = row.report.as_ref();
        let mut push = |rank: Option<u64>, indicators: &Indicators, reserved: Option<f64>| {
            let mut cells = vec![row.run_id.as_str().into(), row.label.as_deref().into()];
            cells.extend(first.iter().map(|axis| axis_cell(row.setting(*axis))));
            cells.push(row.state.name().into());
            if ranks == Ranks::Each {
                cells.push(rank.into());
            }
            cells.extend(indicator_cells(indicators));
            cells.push(reserved.into());
            cells.extend(more.iter().map(|axis| axis_cell(row.setting(*axis))));
            let oom = report.and_then(|report| report.oom.as_ref());
            cells.extend([
                report.map(|report| report.parameter_count).into(),
                report.and_then(|report| report.final_loss_rank_zero).into(),
                oom.map(|oom| oom.rank).into(),
                oom.map(|oom| oom.step).into(),
                oom.map(|oom| oom.during.name()).into(),
                oom.and_then(|oom| oom.requested_mib).into(),
                row.state.message().into(),
                report.map(device_name).into(),
                report.map(|report| report.libtorch_version.as_deref().unwrap_or(&report.pytorch_version)).into(),
                report.and_then(|report| report.worker_build.as_deref()).into(),
                report.and_then(|report| report.started_at.as_deref()).into(),
                report.and_then(|report| report.wall_seconds).into(),
            ]);
            table.push(cells);
        };
        match (ranks, report) {
            (Ranks::Each, Some(report)) => {
                for rank in &report.rank_reports {
                    push(Some(rank.rank), &rank.indicators, final_reserved(rank));
                }
            }
            _ => push(None, &row.indicators(), report.and_then(reserved)),
        }
    }
    table
}

/// Memory at every phase boundary of one report, and how far `allocated` moved since the boundary before.
pub fn phases(report: &Report) -> Table {
    let mut table = Table::new(vec![
        Column::new("rank", "rank"),
        Column::new("step", "step"),
        Column::new("phase", "phase"),
        Column::mib("allocated_mib", "allocated"),
        Column::mib("allocated_change_mib", "change"),
        Column::mib("reserved_mib", "reserved"),
        Column::mib("peak_allocated_mib", "peak\nallocated"),
        Column::mib("device_used_mib", "device\nused"),
    ]);
    for rank in &report.rank_reports {
        let mut before = None;
        for sample in &rank.samples {
            table.push(vec![
                rank.rank.into(),
                sample.step.into(),
                sample.phase.name().into(),
                sample.allocated_mib.into(),
                before.map(|before: f64| sample.allocated_mib - before).into(),
                sample.reserved_mib.into(),
                sample.peak_allocated_mib.into(),
                sample.device_used_mib.into(),
            ]);
            before = Some(sample.allocated_mib);
        }
    }
    table
}

/// Every sample of every report: `samples.csv`.
pub fn samples(rows: &[Row]) -> Table {
    let mut table = Table::new(vec![
        Column::new("run_id", "run"),
        Column::new("rank", "rank"),
        Column::new("step", "step"),
        Column::new("phase", "phase"),
        Column::mib("allocated_mib", "allocated"),
        Column::mib("reserved_mib", "reserved"),
        Column::mib("peak_allocated_mib", "peak\nallocated"),
        Column::mib("device_used_mib", "device\nused"),
    ]);
    for row in rows {
        for rank in row.report.iter().flat_map(|report| &report.rank_reports) {
            for sample in &rank.samples {
                table.push(vec![
                    row.run_id.as_str().into(),
                    rank.rank.into(),
                    sample.step.into(),
                    sample.phase.name().into(),
                    sample.allocated_mib.into(),
                    sample.reserved_mib.into(),
                    sample.peak_allocated_mib.into(),
                    sample.device_used_mib.into(),
                ]);
            }
        }
    }
    table
}

/// An axis as a column; the titles are those of the exercise's table where they are shorter.
pub fn axis_column(axis: Axis) -> Column {
    match axis {
        Axis::BatchSize => Column::new(axis.name(), "batch"),
        Axis::WorldSize => Column::new(axis.name(), "ranks"),
        Axis::RankZeroExtraSamples => Column::new(axis.name(), "extra on\nrank 0"),
        Axis::DeviceModel => Column::new(axis.name(), "device\nmodel"),
        Axis::Capacity => Column::bytes("capacity_bytes", "capacity"),
        axis => Column::new(axis.name(), axis.name()),
    }
}

/// The cell under [`axis_column`].
pub fn axis_cell(value: &Value) -> Cell {
    match value {
        Value::None => Cell::Empty,
        Value::Whole(number) => (*number).into(),
        Value::Switch(_) | Value::Text(_) => value.to_string().into(),
    }
}

/// The four indicators, in the order of the exercise.
pub(super) fn indicator_columns() -> [Column; 4] {
    [
        Column::mib("first_step_persistent_change_mib", "first-step\npersistent\nchange"),
        Column::mib("between_step_growth_mib", "between-step\ngrowth"),
        Column::mib("largest_forward_increase_mib", "largest\nforward\nincrease"),
        Column::mib("maximum_peak_allocated_mib", "maximum\npeak\nallocated"),
    ]
}

/// The cells under [`indicator_columns`].
fn indicator_cells(indicators: &Indicators) -> [Cell; 4] {
    indicator_values(indicators).map(Cell::from)
}

/// The values under [`indicator_columns`].
pub(super) fn indicator_values(indicators: &Indicators) -> [Option<f64>; 4] {
    [
        indicators.first_step_persistent_change_mib,
        indicators.between_step_growth_mib,
        indicators.largest_forward_increase_mib,
        indicators.maximum_peak_allocated_mib,
    ]
}

/// Each indicator's maximum over the ranks; null where one rank does not know it.
pub fn maximum_over_ranks(report: &Report) -> Indicators {
    let ranks = &report.rank_reports;
    Indicators {
        between_step_growth_mib: maximum(ranks, |rank| rank.indicators.between_step_growth_mib),
        first_step_persistent_change_mib: maximum(ranks, |rank| rank.indicators.first_step_persistent_change_mib),
        largest_forward_increase_mib: maximum(ranks, |rank| rank.indicators.largest_forward_increase_mib),
        maximum_peak_allocated_mib: maximum(ranks, |rank| rank.indicators.maximum_peak_allocated_mib),
    }
}

fn device_name(report: &Report) -> &str {
    let gpu = || report.rank_reports.first().map_or("", |rank| &rank.gpu_name);
    report.device.as_ref().map_or_else(gpu, |device| &device.name)
}

/// What the allocator holds at the end of a run.
pub(super) fn reserved_column() -> Column {
    Column::mib("reserved_mib", "reserved\nat the end")
}

/// The value under [`reserved_column`]: the maximum over the ranks.
pub(super) fn reserved(report: &Report) -> Option<f64> {
    maximum(&report.rank_reports, final_reserved)
}

fn final_reserved(rank: &RankReport) -> Option<f64> {
    rank.samples.last().map(|sample| sample.reserved_mib)
}

/// The maximum over the ranks; none where there are no ranks, or one does not know it.
fn maximum(ranks: &[RankReport], value: impl Fn(&RankReport) -> Option<f64>) -> Option<f64> {
    ranks.iter().map(value).reduce(|left, right| Some(left?.max(right?)))?
}
