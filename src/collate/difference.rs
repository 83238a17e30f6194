//! Two results folders, run by run.

use std::collections::{HashMap, HashSet};

use super::comparison::{indicator_columns, indicator_values, reserved, reserved_column};
use super::row::Row;
use super::table::{Cell, Column, Table};

/// What two sets of rows say about the same runs.
#[derive(Debug)]
pub struct Difference {
    /// One row per run and number that differs, or is known on one side only; all of them on request.
    pub table: Table,
    /// Runs on both sides.
    pub shared: usize,
    /// Runs whose outcome, indicators and reserved memory are equal.
    pub equal: usize,
    /// Runs that only the first has.
    pub only_left: Vec<String>,
    /// Runs that only the second has.
    pub only_right: Vec<String>,
}

/// Compares runs of the same id, in the first side's order. `all` keeps what is equal.
pub fn difference(left: &[Row], right: &[Row], all: bool) -> Difference {
    let partners: HashMap<&str, &Row> = right.iter().map(|row| (row.run_id.as_str(), row)).collect();
    let known: HashSet<&str> = left.iter().map(|row| row.run_id.as_str()).collect();
    let mut table = Table::new(vec![
        Column::new("run_id", "run"),
        Column::new("what", "what"),
        Column::mib("left", "first"),
        Column::mib("right", "second"),
        Column::mib("change", "change"),
        Column { unit: Some("%"), ..Column::new("percent", "") },
    ]);
    let (mut shared, mut equal) = (0, 0);
    let mut only_left = Vec::new();
    for row in left {
        let Some(partner) = partners.get(row.run_id.as_str()) else {
            only_left.push(row.run_id.clone());
            continue;
        };
        shared += 1;
        let mut differs = row.state.name() != partner.state.name();
        if differs || all {
            let outcomes = [row.state.name().into(), partner.state.name().into()];
            let [before, after] = outcomes;
            table.push(vec![row.run_id.as_str().into(), "outcome".into(), before, after, Cell::Empty, Cell::Empty]);
        }
        let columns = indicator_columns().into_iter().chain([reserved_column()]);
        for ((before, after), column) in numbers(row).zip(numbers(partner)).zip(columns) {
            // Equal to the bit: measurements repeat, and whatever does not is worth a line.
            let same = before.map(f64::to_bits) == after.map(f64::to_bits);
            differs |= !same;
            if !same || all {
                let change = before.zip(after).map(|(before, after)| after - before);
                let percent = before
                    .filter(|before| before.abs() > 0.0)
                    .zip(change)
                    .map(|(before, change)| change / before.abs() * 100.0);
                table.push(vec![
                    row.run_id.as_str().into(),
                    column.title.replace('\n', " ").into(),
                    before.into(),
                    after.into(),
                    change.into(),
                    percent.into(),
                ]);
            }
        }
        equal += usize::from(!differs);
    }
    let only_right = right.iter().map(|row| &row.run_id).filter(|id| !known.contains(id.as_str())).cloned().collect();
    Difference { table, shared, equal, only_left, only_right }
}

/// The indicators, and what is reserved at the end.
fn numbers(row: &Row) -> impl Iterator<Item = Option<f64>> {
    indicator_values(&row.indicators()).into_iter().chain([row.report.as_ref().and_then(reserved)])
}
