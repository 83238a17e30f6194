//! Runs that differ in one axis only, everything else being equal.

use std::collections::HashMap;

use super::row::Row;
use crate::protocol::{Axis, Value};

/// Runs along an axis.
#[derive(Debug)]
pub struct Series<'a> {
    /// What tells it from the other series: the values that its runs share. Empty where there is only one.
    pub name: String,
    /// In the order of the axis's values: numbers by size, then names as they came.
    pub rows: Vec<&'a Row>,
}

/// The series along an axis, in the order of the rows. A run that no other goes with is in none.
pub fn along<'a>(rows: &[&'a Row], axis: Axis) -> Vec<Series<'a>> {
    let others: Vec<Axis> = Axis::all().filter(|other| *other != axis && !follows(*other, axis)).collect();
    let mut places: HashMap<Vec<&Value>, usize> = HashMap::new();
    let mut groups: Vec<Vec<&'a Row>> = Vec::new();
    let mut names: Vec<&Value> = Vec::new();
    for row in rows {
        let key = others.iter().map(|other| row.setting(*other)).collect();
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(row);
        let value = row.setting(axis);
        if !matches!(value, Value::Whole(_)) && !names.contains(&value) {
            names.push(value);
        }
    }
    groups.retain(|rows| rows.iter().any(|row| row.setting(axis) != rows[0].setting(axis)));
    // Only what tells the series apart belongs in their names.
    let differs =
        |other: &&Axis| groups.windows(2).any(|pair| pair[0][0].setting(**other) != pair[1][0].setting(**other));
    let telling: Vec<Axis> = others.iter().filter(differs).copied().collect();
    let series = groups.into_iter().map(|mut rows| {
        let parts: Vec<String> = telling.iter().map(|other| setting(*other, rows[0].setting(*other))).collect();
        rows.sort_by_key(|row| {
            let value = row.setting(axis);
            (names.iter().position(|name| *name == value), value)
        });
        Series { name: parts.join(", "), rows }
    });
    series.collect()
}

/// The axes in which rows differ, in the axes' order.
pub fn varied(rows: &[Row]) -> Vec<Axis> {
    Axis::all().filter(|axis| rows.windows(2).any(|pair| pair[0].setting(*axis) != pair[1].setting(*axis))).collect()
}

/// Where an axis's value is a number, that number.
pub fn position(row: &Row, axis: Axis) -> Option<f64> {
    match row.setting(axis) {
        Value::Whole(number) => Some(*number as f64),
        _ => None,
    }
}

/// An axis and its value.
pub fn setting(axis: Axis, value: &Value) -> String {
    format!("{axis} = {}", axis.show(value))
}

/// Whether an axis's value follows from another's rather than being set: it then does not stand in the way of "everything else".
fn follows(axis: Axis, other: Axis) -> bool {
    match axis {
        Axis::Backend => matches!(other, Axis::WorldSize | Axis::Device),
        Axis::DeviceModel => other == Axis::Device,
        _ => false,
    }
}
