//! The exercise's comparison: one row per report, or per rank, with what was set and the indicators.

use super::table::{Cell, Column, Table};
use crate::protocol::{Indicators, RankReport, Report};
use crate::store::NamedReport;

/// How the ranks of one report enter the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// One row per report: the maximum over its ranks.
    Maximum,
    /// One row per rank.
    Each,
}

/// What was set, the outcome where it is not `ok`, and the indicators.
pub fn comparison(reports: &[NamedReport], ranks: Ranks) -> Table {
    let mut columns = vec![
        Column::new("run", "run"),
        Column::new("case", "case"),
        Column::new("preset", "preset"),
        Column::new("batch_size", "batch"),
        Column::new("steps", "steps"),
        Column::new("precision", "precision"),
        Column::new("world_size", "ranks"),
        Column::new("rank_zero_extra_samples", "extra on\nrank 0"),
    ];
    if ranks == Ranks::Each {
        columns.push(Column::new("rank", "rank"));
    }
    columns.push(Column::new("outcome", "outcome"));
    columns.extend(indicator_columns());
    columns.push(Column::mib("reserved_mib", "reserved\nat the end"));
    let mut table = Table::new(columns);
    for NamedReport { name, report } in reports {
        let fixed = || {
            vec![
                name.as_str().into(),
                report.case.name().into(),
                report.preset.as_str().into(),
                report.batch_size_per_device.into(),
                report.steps.into(),
                report.precision.name().into(),
                report.world_size.into(),
                report.rank_zero_extra_samples.into(),
            ]
        };
        let outcome = Cell::from(report.outcome().name());
        match ranks {
            Ranks::Maximum => {
                let mut row = fixed();
                row.push(outcome);
                row.extend(indicator_cells(&maximum_over_ranks(report)));
                row.push(maximum(&report.rank_reports, final_reserved).into());
                table.push(row);
            }
            Ranks::Each => {
                for rank in &report.rank_reports {
                    let mut row = fixed();
                    row.extend([rank.rank.into(), outcome.clone()]);
                    row.extend(indicator_cells(&rank.indicators));
                    row.push(final_reserved(rank).into());
                    table.push(row);
                }
            }
        }
    }
    table
}

/// Memory at every phase boundary of one report, and how far `allocated` moved since the boundary before.
pub fn phases(report: &NamedReport) -> Table {
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
    for rank in &report.report.rank_reports {
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

/// Every sample of every report: the columns of `samples.csv`.
pub fn samples(reports: &[NamedReport]) -> Table {
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
    for NamedReport { name, report } in reports {
        for rank in &report.rank_reports {
            for sample in &rank.samples {
                table.push(vec![
                    name.as_str().into(),
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
pub(super) fn indicator_cells(indicators: &Indicators) -> [Cell; 4] {
    [
        indicators.first_step_persistent_change_mib.into(),
        indicators.between_step_growth_mib.into(),
        indicators.largest_forward_increase_mib.into(),
        indicators.maximum_peak_allocated_mib.into(),
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

fn final_reserved(rank: &RankReport) -> Option<f64> {
    rank.samples.last().map(|sample| sample.reserved_mib)
}

/// The maximum over the ranks; none where there are no ranks, or one does not know it.
pub(super) fn maximum(ranks: &[RankReport], value: impl Fn(&RankReport) -> Option<f64>) -> Option<f64> {
    ranks.iter().map(value).reduce(|left, right| Some(left?.max(right?)))?
}
