//! Runs that differ in one axis only, and the straight line through what they measured.

use std::collections::BTreeMap;

use super::row::Row;
use crate::protocol::{Axis, Outcome, Value};

/// The rows, by number, that differ in this axis only, in the order of its values; one list for each setting of everything
/// else. A run that was not measured to its end is in none, nor is one that no other goes with.
pub fn along(rows: &[Row], axis: Axis) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<Vec<&Value>, Vec<usize>> = BTreeMap::new();
    let mut order = Vec::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.outcome() == Some(Outcome::Ok)) {
        let others: Vec<&Value> = Axis::all().filter(|other| *other != axis).map(|other| row.setting(other)).collect();
        let group = groups.entry(others.clone()).or_default();
        if group.is_empty() {
            order.push(others);
        }
        group.push(at);
    }
    // Numbers by size; names in the order in which they came.
    let mut names: Vec<&Value> = Vec::new();
    for value in rows.iter().map(|row| row.setting(axis)) {
        if !matches!(value, Value::Whole(_)) && !names.contains(&value) {
            names.push(value);
        }
    }
    let groups = order.into_iter().filter_map(|others| groups.remove(&others));
    let sorted = groups.map(|mut group| {
        group.sort_by_key(|at| {
            let value = rows[*at].setting(axis);
            (names.iter().position(|name| *name == value), value)
        });
        group
    });
    sorted
        .filter(|group| group.windows(2).any(|pair| rows[pair[0]].setting(axis) != rows[pair[1]].setting(axis)))
        .collect()
}

/// The axes in which rows differ, in the axes' order.
pub fn varied(rows: &[Row]) -> Vec<Axis> {
    Axis::all().filter(|axis| rows.windows(2).any(|pair| pair[0].setting(*axis) != pair[1].setting(*axis))).collect()
}

/// A straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Change of y for each unit of x.
    pub slope: f64,
    /// y where x is zero.
    pub intercept: f64,
    /// The farthest that a point lies from it, in units of y.
    pub largest_deviation: f64,
}

impl Line {
    /// The line with the least sum of squared deviations; none where the points do not determine one.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if points.is_empty() || spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let intercept = y - slope * x;
        let deviations = points.iter().map(|point| (point.1 - intercept - slope * point.0).abs());
        let largest_deviation = deviations.fold(0.0, f64::max);
        [slope, intercept, largest_deviation].iter().all(|number| number.is_finite()).then_some(Self {
            slope,
            intercept,
            largest_deviation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_what_is_none_is_said() {
        let line = Line::through(&[(1.0, 3.5), (2.0, 5.5), (4.0, 9.5)]).unwrap();
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.intercept - 1.5).abs() < 1e-12);
        assert!(line.largest_deviation < 1e-12);
        let bent = Line::through(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).unwrap();
        assert!((bent.intercept - 1.0).abs() < 1e-12 && (bent.largest_deviation - 2.0).abs() < 1e-12);
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)]), None, "one x only");
        assert_eq!(Line::through(&[(1.0, f64::MAX), (2.0, -f64::MAX)]).map(|line| line.slope.is_finite()), None);
    }
}
