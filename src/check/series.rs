//! Runs that differ in one axis only, everything else being equal.

use std::collections::HashMap;

use super::words;
use crate::collate::Row;
use crate::protocol::{Axis, Value};

/// Runs along an axis.
#[derive(Debug)]
pub(super) struct Series<'a> {
    /// What tells it from the other series: the values that its runs share. Empty where there is only one.
    pub(super) name: String,
    /// In the plan's order.
    pub(super) rows: Vec<&'a Row>,
}

impl<'a> Series<'a> {
    /// The runs in the axis's own order: by number where all values are numbers, else as they are listed.
    pub(super) fn sorted(&self, axis: Axis) -> Vec<&'a Row> {
        let mut rows = self.rows.clone();
        if rows.iter().all(|row| matches!(row.setting(axis), Value::Whole(_))) {
            rows.sort_by_key(|row| row.setting(axis).clone());
        }
        rows
    }
}

/// Where an axis's value is a number, that number.
pub(super) fn position(row: &Row, axis: Axis) -> Option<f64> {
    match row.setting(axis) {
        Value::Whole(number) => Some(*number as f64),
        _ => None,
    }
}

/// The series of at least two runs along an axis, in the plan's order.
pub(super) fn along<'a>(rows: &[&'a Row], axis: Axis) -> Vec<Series<'a>> {
    let others: Vec<Axis> = Axis::all().filter(|other| *other != axis && !follows(*other, axis)).collect();
    let mut places: HashMap<Vec<&Value>, usize> = HashMap::new();
    let mut series: Vec<Vec<&'a Row>> = Vec::new();
    for row in rows {
        let key = others.iter().map(|other| row.setting(*other)).collect();
        let place = *places.entry(key).or_insert_with(|| {
            series.push(Vec::new());
            series.len() - 1
        });
        series[place].push(row);
    }
    series.retain(|rows| rows.len() > 1);
    // Only what tells the series apart belongs in their names.
    let differs =
        |other: &&Axis| series.windows(2).any(|pair| pair[0][0].setting(**other) != pair[1][0].setting(**other));
    let telling: Vec<Axis> = others.iter().filter(differs).copied().collect();
    let name = |row: &Row| {
        let parts: Vec<String> = telling.iter().map(|other| words::setting(*other, row.setting(*other))).collect();
        parts.join(", ")
    };
    series.into_iter().map(|rows| Series { name: name(rows[0]), rows }).collect()
}

/// Whether an axis's value follows from another's rather than being set: it then does not stand in the way of "everything else".
fn follows(axis: Axis, other: Axis) -> bool {
    match axis {
        Axis::Backend => matches!(other, Axis::WorldSize | Axis::Device),
        Axis::DeviceModel => other == Axis::Device,
        _ => false,
    }
}
