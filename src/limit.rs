//! The largest value of an axis that fits.
//!
//! [`next`] is the search: it doubles until a value does not fit, then divides what lies between, until the boundary is known from
//! both sides: a value whose run ended well, and the very next one, whose allocator refused. It takes nothing for granted but what
//! was tried. That a smaller value fits where a larger one does is likely and not certain: [`exceptions`] are the values that say
//! otherwise, and what lies between tried values stays untried.
//!
//! The rest turns the runs of a search into tables.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::collate::{Column, Row, Table, axis_cell, axis_column};
use crate::protocol::{Axis, Outcome, Phase, RankReport, Report, Sample, Value};
use crate::units;

/// What was tried, and whether it fits.
pub type Tried = BTreeMap<u64, bool>;

/// What a search does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Try these values, in ascending order.
    Try(Vec<u64>),
    /// Nothing: it is over.
    Over(Limit),
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// This value fits, and the next one does not.
    Fits(u64),
    /// No value that was tried fits, from the lowest on.
    NothingFits,
    /// The highest value fits.
    HighestFits,
}

/// What to try after this, at most `width` values at a time.
pub fn next(range: &RangeInclusive<u64>, tried: &Tried, width: usize) -> Step {
    let fits = tried.iter().rev().find(|(_, fits)| **fits).map(|(value, _)| *value);
    let fails = tried.keys().copied().find(|value| fits.is_none_or(|fits| *value > fits));
    match (fits, fails) {
        (None, Some(_)) => Step::Over(Limit::NothingFits),
        (Some(fits), _) if fits >= *range.end() => Step::Over(Limit::HighestFits),
        (Some(fits), Some(fails)) if fails == fits + 1 => Step::Over(Limit::Fits(fits)),
        (Some(fits), Some(fails)) => Step::Try(divide(fits, fails, width)),
        (fits, None) => Step::Try(double(fits, range, width)),
    }
}

/// Values that divide what lies between two others into equal parts.
fn divide(fits: u64, fails: u64, width: usize) -> Vec<u64> {
    let parts = width.max(1) as u128 + 1;
    let at = |part: u128| fits + u64::try_from(u128::from(fails - fits) * part / parts).unwrap_or(0);
    let mut values: Vec<u64> = (1..parts).map(at).filter(|value| *value > fits).collect();
    values.dedup();
    if values.is_empty() { vec![fits + 1] } else { values }
}

/// Twice the value before, from the lowest to the highest.
fn double(fits: Option<u64>, range: &RangeInclusive<u64>, width: usize) -> Vec<u64> {
    let highest = *range.end();
    let after = |value: u64| value.saturating_mul(2).clamp(value.saturating_add(1), highest.max(value));
    let first = fits.map_or(*range.start(), after);
    let values = std::iter::successors(Some(first), |value| (*value < highest).then(|| after(*value)));
    values.take(width.max(1)).collect()
}

/// Values that do not fit although a larger one does.
pub fn exceptions(tried: &Tried) -> Vec<u64> {
    let fits = tried.iter().rev().find(|(_, fits)| **fits).map_or(0, |(value, _)| *value);
    tried.iter().filter(|(value, does)| !**does && **value < fits).map(|(value, _)| *value).collect()
}

/// The value of the axis in a run.
pub fn value_of(row: &Row, axis: Axis) -> Option<u64> {
    match row.setting(axis) {
        Value::Whole(value) => Some(*value),
        _ => None,
    }
}

/// What the runs say; a run that is evidence of neither is not in it.
pub fn tried(rows: &[Row], axis: Axis) -> Tried {
    let judged = |row: &Row| match row.outcome()? {
        Outcome::Ok => Some((value_of(row, axis)?, true)),
        Outcome::Oom => Some((value_of(row, axis)?, false)),
        _ => None,
    };
    rows.iter().filter_map(judged).collect()
}

/// What the allocator of a run may reserve, MiB: as a refusal says, else the run's capacity, else all the device has.
pub fn capacity_mib(report: &Report) -> Option<f64> {
    let refused = report.oom.as_ref().and_then(|oom| oom.capacity_mib);
    let set = || report.spec.as_ref().and_then(|spec| spec.capacity).map(units::mib);
    refused.or_else(set).or_else(|| report.rank_reports.iter().find_map(|rank| rank.device_total_mib))
}

/// The GPU of a run; of a CPU run the modelled one, and it says so.
pub fn gpu_name(report: &Report) -> Option<&str> {
    report.rank_reports.first().map(|rank| rank.gpu_name.as_str())
}

/// The rank that reserved most, which is the one that fails first, and how much, MiB.
pub fn fullest_rank(report: &Report) -> Option<(&RankReport, f64)> {
    let reserved = |rank: &RankReport| largest(&rank.samples, |sample| sample.reserved_mib);
    let ranks = report.rank_reports.iter().filter_map(|rank| Some((rank, reserved(rank)?)));
    ranks.reduce(|best, rank| if rank.1 > best.1 { rank } else { best })
}

/// What a run that fits leaves of the capacity where it reserved most, MiB.
pub fn margin_mib(report: &Report) -> Option<f64> {
    Some(capacity_mib(report)? - fullest_rank(report)?.1)
}

fn largest(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Option<f64> {
    samples.iter().map(of).reduce(f64::max)
}

/// The runs of a search. With `folder`, which holds them, every column that a program may want.
pub fn trials(rows: &[Row], axis: Axis, folder: Option<&Path>) -> Table {
    let mut columns = vec![
        axis_column(axis),
        Column::new("outcome", "outcome"),
        Column::mib("maximum_peak_allocated_mib", "maximum\npeak\nallocated"),
        Column::mib("reserved_mib", "largest\nreserved"),
        Column::mib("margin_mib", "left"),
        Column::new("oom_step", "refused\nin step"),
        Column::new("oom_during", "during"),
        Column::mib("oom_requested_mib", "requested"),
        Column::new("run_id", "run"),
    ];
    if folder.is_some() {
        columns.extend([
            Column::mib("capacity_mib", "capacity"),
            Column::new("gpu_name", "GPU"),
            axis_column(Axis::Device),
            axis_column(Axis::Compute),
            Column::new("folder", "folder"),
        ]);
    }
    let mut table = Table::new(columns);
    for row in rows {
        let report = row.report.as_ref();
        let oom = report.and_then(|report| report.oom.as_ref());
        // What a run would have taken that was refused is not known.
        let fits = report.filter(|_| row.outcome() == Some(Outcome::Ok));
        let mut cells = vec![
            axis_cell(row.setting(axis)),
            row.state.name().into(),
            fits.and_then(|_| row.indicators().maximum_peak_allocated_mib).into(),
            fits.and_then(fullest_rank).map(|(_, reserved)| reserved).into(),
            fits.and_then(margin_mib).into(),
            oom.map(|oom| oom.step).into(),
            oom.map(|oom| oom.during.name()).into(),
            oom.and_then(|oom| oom.requested_mib).into(),
            row.run_id.as_str().into(),
        ];
        if let Some(folder) = folder {
            cells.extend([
                report.and_then(capacity_mib).into(),
                report.and_then(gpu_name).into(),
                axis_cell(row.setting(Axis::Device)),
                axis_cell(row.setting(Axis::Compute)),
                folder.join(&row.run_id).display().to_string().into(),
            ]);
        }
        table.push(cells);
    }
    table
}

/// Where a run's memory was largest.
#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    /// The step.
    pub step: i64,
    /// The phase boundary by which it was reached.
    pub phase: Phase,
    /// How large it was, MiB.
    pub allocated_mib: f64,
    /// What it consists of: what was there before training, and what every phase of that step adds.
    pub phases: Table,
}

/// The peak of the rank that reserved most; none where nothing was measured.
pub fn peak(report: &Report) -> Option<Peak> {
    let (rank, _) = fullest_rank(report)?;
    let allocated_mib = largest(&rank.samples, |sample| sample.peak_allocated_mib)?;
    let at = rank.samples.iter().find(|sample| sample.peak_allocated_mib >= allocated_mib)?;
    let mut phases = Table::new(vec![
        Column::new("step", "step"),
        Column::new("phase", "phase"),
        Column::mib("allocated_mib", "allocated"),
        Column::mib("allocated_change_mib", "change"),
        Column::mib("peak_allocated_mib", "peak\nallocated"),
        Column::mib("reserved_mib", "reserved"),
    ]);
    let mut before = None;
    for sample in &rank.samples {
        if sample.step < 0 || sample.step == at.step {
            phases.push(vec![
                sample.step.into(),
                sample.phase.name().into(),
                sample.allocated_mib.into(),
                before.map(|before: f64| sample.allocated_mib - before).into(),
                sample.peak_allocated_mib.into(),
                sample.reserved_mib.into(),
            ]);
        }
        before = Some(sample.allocated_mib);
    }
    Some(Peak { step: at.step, phase: at.phase, allocated_mib, phases })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches, and gives what it found with everything that was tried.
    fn search(range: &RangeInclusive<u64>, width: usize, fits: impl Fn(u64) -> bool) -> (Limit, Tried) {
        let mut tried = Tried::new();
        for _ in 0..1000 {
            match next(range, &tried, width) {
                Step::Over(limit) => return (limit, tried),
                Step::Try(values) => {
                    assert!(!values.is_empty() && values.len() <= width, "{values:?}");
                    for value in values {
                        assert!(range.contains(&value), "{value} of {range:?}");
                        assert_eq!(tried.insert(value, fits(value)), None, "{value} was tried before");
                    }
                }
            }
        }
        panic!("the search does not end: {tried:?}");
    }

    #[test]
    fn it_doubles_and_then_divides() {
        let (limit, tried) = search(&(1..=1000), 1, |value| value <= 5);
        assert_eq!(limit, Limit::Fits(5));
        assert_eq!(tried.into_keys().collect::<Vec<_>>(), [1, 2, 4, 5, 6, 8]);
    }

    #[test]
    fn where_nothing_or_everything_fits_there_is_no_boundary() {
        assert_eq!(search(&(1..=100), 2, |_| false).0, Limit::NothingFits);
        assert_eq!(search(&(1..=100), 2, |_| true).0, Limit::HighestFits);
        assert_eq!(search(&(7..=7), 3, |_| true), (Limit::HighestFits, Tried::from([(7, true)])));
        assert_eq!(search(&(0..=9), 1, |value| value == 0).0, Limit::Fits(0));
        assert_eq!(search(&(u64::MAX - 2..=u64::MAX), 2, |_| true).0, Limit::HighestFits);
    }

    #[test]
    fn a_value_that_does_not_fit_below_one_that_does_is_an_exception() {
        let (limit, tried) = search(&(1..=100), 2, |value| value != 4 && value <= 20);
        assert_eq!(limit, Limit::Fits(20));
        assert_eq!(exceptions(&tried), [4]);
    }

    proptest! {
        #[test]
        fn the_boundary_is_found_and_seen_from_both_sides(
            low in 0_u64..50, size in 0_u64..100_000, width in 1_usize..9, share in 0.0..1.2_f64,
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
            let boundary = low + (size as f64 * share) as u64;
            let range = low..=low + size;
            let (limit, tried) = search(&range, width, |value| value < boundary);
            match limit {
                Limit::Fits(value) => {
                    prop_assert_eq!(value + 1, boundary);
                    prop_assert_eq!((tried[&value], tried[&(value + 1)]), (true, false));
                }
                Limit::NothingFits => prop_assert!(boundary <= low),
                Limit::HighestFits => prop_assert!(boundary > low + size),
            }
            prop_assert!(exceptions(&tried).is_empty());
        }

        #[test]
        fn it_ends_whatever_fits(seed in any::<u64>(), width in 1_usize..9) {
            let fits = |value: u64| (value ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0;
            let (limit, tried) = search(&(1..=5000), width, fits);
            if let Limit::Fits(value) = limit {
                prop_assert_eq!((tried[&value], tried[&(value + 1)]), (true, false));
            }
        }
    }
}
