//! A run beside its repetition: whether they measured the same, sample by sample.

use super::table::{Cell, Column, Table};
use crate::protocol::{Report, Sample};

/// A quantity of a sample: its name, and how to read it.
type Quantity = (&'static str, fn(&Sample) -> f64);

/// The quantities of a sample that repeat. `device_used_mib` does not: other processes and libraries are in it.
const QUANTITIES: [Quantity; 3] = [
    ("allocated", |sample| sample.allocated_mib),
    ("reserved", |sample| sample.reserved_mib),
    ("peak allocated", |sample| sample.peak_allocated_mib),
];

/// What differs between two reports of the same configuration: outcome, loss, and every sample. Empty if nothing does.
pub fn reproduction(before: &Report, after: &Report) -> Table {
    let mut table = Table::new(vec![
        Column::new("rank", "rank"),
        Column::new("step", "step"),
        Column::new("phase", "phase"),
        Column::new("what", "what"),
        Column { decimals: 4, ..Column::new("before", "before") },
        Column { decimals: 4, ..Column::new("after", "after") },
    ]);
    let mut differs = |place: [Cell; 3], what: &str, before: Cell, after: Cell| {
        if before != after {
            let [rank, step, phase] = place;
            table.push(vec![rank, step, phase, what.into(), before, after]);
        }
    };
    let whole = || [Cell::Empty, Cell::Empty, Cell::Empty];
    differs(whole(), "outcome", before.outcome().name().into(), after.outcome().name().into());
    differs(whole(), "final loss", before.final_loss_rank_zero.into(), after.final_loss_rank_zero.into());
    differs(whole(), "ranks", count(before.rank_reports.len()), count(after.rank_reports.len()));
    for (left, right) in before.rank_reports.iter().zip(&after.rank_reports) {
        let rank = || Cell::from(left.rank);
        let [before, after] = [&left.samples, &right.samples];
        differs([rank(), Cell::Empty, Cell::Empty], "samples", count(before.len()), count(after.len()));
        for (before, after) in before.iter().zip(after) {
            let place = || [rank(), before.step.into(), before.phase.name().into()];
            differs(place(), "phase", before.phase.name().into(), after.phase.name().into());
            for (name, value) in QUANTITIES {
                differs(place(), name, value(before).into(), value(after).into());
            }
        }
    }
    table
}

fn count(number: usize) -> Cell {
    Cell::from(number as u64)
}
