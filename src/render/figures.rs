//! The main figures of an experiment as SVG: memory over the phases, indicators along the axes, rank by rank.

use std::collections::{HashMap, HashSet};

use super::svg::{Figure, Mark, Panel, colour};
use crate::collate::{self, Collation, Row, Series, fit};
use crate::protocol::{Axis, Indicator, Outcome, Phase, RankReport, Sample, Value};

/// A legend lists so many values; beyond them it shows the first and the last.
const LEGEND: usize = 8;
/// So many runs have their ranks drawn.
const RANKED: usize = 12;

/// Every figure by name; none where there is nothing to show.
pub fn figures(collation: &Collation) -> [(&'static str, Option<String>); 3] {
    let title = collation.plan.as_ref().map_or("Comparison", |plan| plan.title.as_deref().unwrap_or(&plan.name));
    let rows = &collation.rows;
    let document = |figure: Option<Figure>| figure.map(|figure| figure.document());
    [
        ("phases", document(phases(rows, title))),
        ("indicators", document(indicators(rows, title))),
        ("ranks", document(ranks(rows, title))),
    ]
}

/// The values of an axis with their colours.
struct Palette {
    axis: Option<Axis>,
    values: Vec<Value>,
    /// The place of each among them.
    places: HashMap<Value, usize>,
    ordered: bool,
}

impl Palette {
    fn of(rows: &[Row], axis: Option<Axis>) -> Self {
        let mut seen = HashSet::new();
        let all = axis.iter().flat_map(|axis| rows.iter().map(|row| row.setting(*axis)));
        let mut values: Vec<Value> = all.filter(|value| seen.insert(*value)).cloned().collect();
        let ordered = values.iter().all(|value| matches!(value, Value::Whole(_)));
        if ordered {
            values.sort();
        }
        let places = values.iter().cloned().zip(0..).collect();
        Self { axis, values, places, ordered }
    }

    fn place(&self, row: &Row) -> usize {
        self.axis.and_then(|axis| self.places.get(row.setting(axis))).copied().unwrap_or(0)
    }

    fn colour(&self, row: &Row) -> String {
        colour(self.place(row), self.values.len(), self.ordered)
    }

    fn legend(&self) -> Vec<(String, String)> {
        let Some(axis) = self.axis else { return Vec::new() };
        let name = axis.name().replace('_', " ");
        let last = self.values.len().saturating_sub(1);
        let shown = (0..=last).filter(|at| last < LEGEND || *at == 0 || *at == last);
        shown.map(|at| (colour(at, self.values.len(), self.ordered), format!("{name} {}", self.values[at]))).collect()
    }
}

/// The place of a sample on the x axis: three phases before training, then four for each step.
fn place(sample: &Sample) -> f64 {
    let phase = sample.phase as usize as f64;
    if sample.step < 0 { phase } else { sample.step as f64 * 4.0 + phase }
}

fn first_rank(row: &Row) -> Option<&RankReport> {
    row.report.as_ref()?.rank_reports.first().filter(|rank| !rank.samples.is_empty())
}

fn phases(rows: &[Row], title: &str) -> Option<Figure> {
    let varied = collate::varied(rows);
    let by_case = varied.contains(&Axis::Case);
    let palette = Palette::of(rows, varied.iter().copied().find(|axis| *axis != Axis::Case));
    let last = rows.iter().filter_map(first_rank).filter_map(|rank| rank.samples.last()).map(place).fold(0.0, f64::max);
    let steps = ((last - Phase::AfterForward as usize as f64) / 4.0).floor().max(0.0);
    let every = (steps / 10.0).ceil().max(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number of steps")]
    let numbers = (0..=steps as u64).step_by(every as usize);
    let ticks: Vec<(f64, String)> = [(1.0, "start".to_owned())]
        .into_iter()
        .chain(numbers.map(|step| (step as f64 * 4.0 + 4.5, step.to_string())))
        .collect();
    let cases = Palette::of(rows, Some(Axis::Case)).values;
    let panels: Vec<Panel> = cases
        .iter()
        .filter_map(|case| {
            let of_case = rows.iter().filter(|row| row.setting(Axis::Case) == case);
            let marks: Vec<(Mark, String)> = of_case
                .filter_map(|row| Some((row, first_rank(row)?)))
                .map(|(row, rank)| {
                    let points = rank.samples.iter().map(|sample| (place(sample), sample.allocated_mib)).collect();
                    (Mark::Line(points), palette.colour(row))
                })
                .collect();
            let title = if by_case { case.to_string() } else { "allocated after each phase, by step".to_owned() };
            (!marks.is_empty()).then(|| Panel { title, unit: "MiB", ticks: ticks.clone(), x: (0.0, last), marks })
        })
        .collect();
    let size = if panels.len() > 1 { (340.0, 250.0) } else { (680.0, 320.0) };
    (!panels.is_empty()).then(|| Figure { title: title.to_owned(), legend: palette.legend(), panels, columns: 3, size })
}

fn indicators(rows: &[Row], title: &str) -> Option<Figure> {
    let varied = collate::varied(rows);
    let palette = Palette::of(rows, Some(Axis::Case).filter(|case| varied.contains(case)));
    let measured: Vec<&Row> = rows.iter().filter(|row| row.outcome() == Some(Outcome::Ok)).collect();
    let mut panels = Vec::new();
    for axis in &varied {
        let groups: Vec<Series<'_>> = collate::along(&measured, *axis);
        let values = Palette::of(rows, Some(*axis));
        let x = |row: &Row| match row.setting(*axis) {
            Value::Whole(value) if values.ordered => *value as f64,
            _ => values.place(row) as f64,
        };
        let used = || groups.iter().flat_map(|group| &group.rows).copied();
        let (low, high) =
            (used().map(x).fold(f64::INFINITY, f64::min), used().map(x).fold(f64::NEG_INFINITY, f64::max));
        let mut ticks: Vec<(f64, String)> = Vec::new();
        let mut sorted: Vec<&Row> = used().collect();
        sorted.sort_by(|left, right| x(left).total_cmp(&x(right)));
        for row in sorted {
            if ticks.last().is_none_or(|(last, _)| x(row) - last >= (high - low) / 6.0) {
                ticks.push((x(row), row.setting(*axis).to_string()));
            }
        }
        for indicator in Indicator::ALL.iter().filter(|_| !groups.is_empty()) {
            let mut marks = Vec::new();
            for group in &groups {
                let points: Vec<(f64, f64)> =
                    group.rows.iter().filter_map(|row| Some((x(row), indicator.of(&row.indicators())?))).collect();
                let colour = palette.colour(group.rows[0]);
                let line = if values.ordered { fit(&points) } else { None };
                marks.push(match (line, points.first(), points.last()) {
                    (Some(line), Some(first), Some(last)) => {
                        let end = |x: f64| (x, line.at(x));
                        (Mark::Dashed(vec![end(first.0), end(last.0)]), colour.clone())
                    }
                    _ => (Mark::Line(points.clone()), colour.clone()),
                });
                marks.push((Mark::Points(points), colour));
            }
            let name = indicator.name().trim_end_matches("_mib").replace('_', " ");
            let room = (high - low).max(1.0) * 0.06;
            panels.push(Panel {
                title: name,
                unit: "MiB",
                ticks: ticks.iter().map(|(place, text)| (*place, text.clone())).collect(),
                x: (low - room, high + room),
                marks,
            });
        }
        if let Some(first) = panels.len().checked_sub(Indicator::ALL.len()).filter(|_| !groups.is_empty()) {
            let along = format!("along {}", axis.name().replace('_', " "));
            for panel in &mut panels[first..] {
                panel.title = format!("{}, {along}", panel.title);
            }
        }
    }
    (!panels.is_empty()).then(|| Figure {
        title: title.to_owned(),
        legend: palette.legend(),
        panels,
        columns: 2,
        size: (430.0, 210.0),
    })
}

fn ranks(rows: &[Row], title: &str) -> Option<Figure> {
    let several = |row: &&Row| row.report.as_ref().is_some_and(|report| report.rank_reports.len() > 1);
    let panels: Vec<Panel> = rows
        .iter()
        .filter(several)
        .take(RANKED)
        .filter_map(|row| {
            let ranks = &row.report.as_ref()?.rank_reports;
            let bars = ranks
                .iter()
                .enumerate()
                .filter_map(|(at, rank)| Some((at as f64, rank.indicators.maximum_peak_allocated_mib?)));
            Some(Panel {
                title: row.label.clone().unwrap_or_else(|| row.run_id.clone()),
                unit: "maximum peak, MiB",
                ticks: ranks.iter().enumerate().map(|(at, rank)| (at as f64, format!("rank {}", rank.rank))).collect(),
                x: (-0.6, ranks.len() as f64 - 0.4),
                marks: bars.map(|(at, value)| (Mark::Bar(at, value), colour(0, 1, false))).collect(),
            })
        })
        .collect();
    (!panels.is_empty()).then(|| Figure {
        title: title.to_owned(),
        legend: Vec::new(),
        panels,
        columns: 2,
        size: (430.0, 220.0),
    })
}
