//! One hypothesis against the runs that it speaks of.

use super::measure::value;
use super::words::{self, number};
use crate::collate::{Row, Series, along, fit, position};
use crate::protocol::{
    Axis, Bounds, Expectation, Hypothesis, Indicator, Judgement, Line, Measure, Outcome, PlanFile, Point, Selection,
    Stimulus, Trend, Unmeasured,
};

/// A line through two points says nothing about the third.
const POINTS_OF_A_LINE: usize = 3;

/// What was found, before it is put beside the claim.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    pub(super) judgement: Judgement,
    pub(super) found: String,
    pub(super) points: Vec<Point>,
    pub(super) lines: Vec<Line>,
    pub(super) unmeasured: Vec<Unmeasured>,
    /// The runs that it depends on.
    pub(super) runs: Vec<&'a Row>,
}

impl<'a> Finding<'a> {
    fn new(runs: Vec<&'a Row>) -> Self {
        Self {
            judgement: Judgement::Undecided,
            found: String::new(),
            points: Vec::new(),
            lines: Vec::new(),
            unmeasured: Vec::new(),
            runs,
        }
    }

    fn undecided(self, found: impl Into<String>) -> Self {
        Self { judgement: Judgement::Undecided, found: found.into(), ..self }
    }

    fn decided(self, supported: bool, found: impl Into<String>) -> Self {
        let judgement = if supported { Judgement::Supported } else { Judgement::Refuted };
        Self { judgement, found: found.into(), ..self }
    }

    fn unmeasured(self, unmeasured: Vec<Unmeasured>) -> Self {
        let first = unmeasured.first().map(|run| format!("{}: {}", run.run_id, run.why)).unwrap_or_default();
        let more = if unmeasured.len() > 1 { format!(", and {} more", unmeasured.len() - 1) } else { String::new() };
        Self { unmeasured, ..self }.undecided(format!("not measured: {first}{more}"))
    }
}

/// Judges a hypothesis. The rows are the plan's, without those that another hypothesis expects not to fit.
pub(super) fn decide<'a>(hypothesis: &Hypothesis, plan: &PlanFile, rows: &[&'a Row]) -> Finding<'a> {
    let among = |selection: &Selection| -> Vec<&'a Row> {
        let chosen = |row: &&&Row| selection.0.iter().all(|(axis, value)| row.setting(*axis) == value);
        rows.iter().filter(chosen).copied().collect()
    };
    let measure = hypothesis.measure;
    let selected = among(&hypothesis.within);
    if selected.is_empty() {
        return Finding::new(selected).undecided("no run has these values");
    }
    match &hypothesis.expectation {
        Expectation::Trend { along, trend } => follow(selected, measure, *along, trend),
        Expectation::Value(bounds) => bounded(selected, measure, bounds),
        Expectation::GreaterThan(other) => greater(&selected, &among(other), measure, other),
        Expectation::Ratio { to, bounds } => quotient(hypothesis, &selected, &among(to), to, bounds),
        Expectation::RespondsMost(stimulus) => responds(&selected, measure, stimulus, plan, rows),
        Expectation::Outcome(outcome) => ended(selected, *outcome),
    }
}

/// The selected runs that are not on the other side too: a run is not compared with itself.
fn without<'a>(selected: &[&'a Row], others: &[&Row]) -> Vec<&'a Row> {
    let is_other = |row: &&&Row| others.iter().any(|other| other.run_id == row.run_id);
    selected.iter().filter(|row| !is_other(row)).copied().collect()
}

type Measured<'a> = Vec<(&'a Row, f64)>;

fn measured<'a>(rows: &[&'a Row], measure: Measure) -> Result<Measured<'a>, Vec<Unmeasured>> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for row in rows {
        match value(row, measure) {
            Ok(value) => known.push((*row, value)),
            Err(why) => unknown.push(why),
        }
    }
    if unknown.is_empty() { Ok(known) } else { Err(unknown) }
}

fn point(series: &str, row: &Row, axis: Option<Axis>, value: f64) -> Point {
    Point {
        series: series.to_owned(),
        run_id: row.run_id.clone(),
        at: axis.map(|axis| row.setting(axis).clone()),
        value,
        unit: "MiB".to_owned(),
    }
}

/// A trend has to hold in every series.
fn follow<'a>(selected: Vec<&'a Row>, measure: Measure, axis: Axis, trend: &Trend) -> Finding<'a> {
    let needed = if matches!(trend, Trend::Linear { .. }) { POINTS_OF_A_LINE } else { 2 };
    let all = along(&selected, axis);
    let most = all.iter().map(|series| series.rows.len()).max().unwrap_or(0);
    let series: Vec<Series<'a>> = all.into_iter().filter(|series| series.rows.len() >= needed).collect();
    if series.is_empty() {
        let found = if most < 2 {
            format!("no two runs differ in {axis} alone")
        } else {
            format!("{most} runs differ in {axis} alone, and {needed} are needed")
        };
        return Finding::new(selected).undecided(found);
    }
    let mut finding = Finding::new(series.iter().flat_map(|series| &series.rows).copied().collect());
    let known = match measured(&finding.runs, measure) {
        Ok(known) => known,
        Err(unmeasured) => return finding.unmeasured(unmeasured),
    };
    let (mut holds, mut said) = (true, Vec::new());
    let mut rest = known.as_slice();
    for series in &series {
        let (own, others) = rest.split_at(series.rows.len().min(rest.len()));
        rest = others;
        finding.points.extend(own.iter().map(|(row, value)| point(&series.name, row, Some(axis), *value)));
        let values: Vec<f64> = own.iter().map(|(_, value)| *value).collect();
        let line = line(&series.name, own, axis);
        let (own_holds, found) = match trend {
            Trend::Increasing => (is_increasing(&values), shape(&values)),
            Trend::Decreasing => {
                let reversed: Vec<f64> = values.iter().rev().copied().collect();
                (is_increasing(&reversed), shape(&values))
            }
            Trend::Flat(tolerance) => {
                let (least, most) = range(&values);
                (tolerance.allows(least, most), shape(&values))
            }
            Trend::Linear { slope, intercept, tolerance } => match &line {
                Some(line) => {
                    let on_line = |(row, value): &(&Row, f64)| {
                        position(row, axis).is_some_and(|x| tolerance.allows(line.intercept + line.slope * x, *value))
                    };
                    let within =
                        |bounds: &Option<Bounds>, value| bounds.as_ref().is_none_or(|bounds| bounds.contain(value));
                    let holds =
                        own.iter().all(on_line) && within(slope, line.slope) && within(intercept, line.intercept);
                    (holds, describe(line, axis))
                }
                None => return finding.undecided(format!("no line goes through the values of {axis}")),
            },
        };
        finding.lines.extend(line);
        holds &= own_holds;
        said.push((own_holds, if series.name.is_empty() { found } else { format!("{}: {found}", series.name) }));
    }
    let found = summary(said, holds);
    finding.decided(holds, found)
}

/// Of several series the first that tells: one that contradicts, where one does.
fn summary(said: Vec<(bool, String)>, holds: bool) -> String {
    let count = said.iter().filter(|(own, _)| *own == holds).count();
    let first = said.into_iter().find(|(own, _)| *own == holds).map(|(_, found)| found).unwrap_or_default();
    if count > 1 { format!("{first}; and {} more like it", count - 1) } else { first }
}

/// The line through the runs of a series, where the axis has numbers.
pub(super) fn line(series: &str, measured: &[(&Row, f64)], axis: Axis) -> Option<Line> {
    let points: Vec<(f64, f64)> =
        measured.iter().map(|(row, value)| Some((position(row, axis)?, *value))).collect::<Option<_>>()?;
    let fit = fit(&points)?;
    Some(Line {
        series: series.to_owned(),
        points: fit.points,
        slope: fit.slope,
        intercept: fit.intercept,
        residual: fit.residual,
        slope_error: fit.slope_error,
        largest_deviation: fit.largest_deviation,
    })
}

fn describe(line: &Line, axis: Axis) -> String {
    let residual = line.residual.map(|residual| format!(", residual {}", number(residual))).unwrap_or_default();
    let (slope, intercept) = (number(line.slope), number(line.intercept));
    let off = number(line.largest_deviation);
    format!("slope {slope} MiB per {axis}, intercept {intercept} MiB{residual}, at most {off} off the line")
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// Never smaller than before, and larger at the end.
fn is_increasing(values: &[f64]) -> bool {
    values.windows(2).all(|pair| pair[0] <= pair[1])
        && values.first().zip(values.last()).is_some_and(|(first, last)| first < last)
}

/// The kind of a trend, and its values.
fn shape(values: &[f64]) -> String {
    let reversed: Vec<f64> = values.iter().rev().copied().collect();
    let (least, most) = range(values);
    let kind = if is_increasing(values) {
        "increasing"
    } else if is_increasing(&reversed) {
        "decreasing"
    } else if least < most {
        "up and down"
    } else {
        return format!("flat: {} MiB", number(least));
    };
    let list = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", ");
    let shown = match values {
        [first, .., last] if values.len() > 6 => format!("{} ... {}", number(*first), number(*last)),
        values => list(values),
    };
    format!("{kind}: {shown} MiB")
}

fn bounded<'a>(selected: Vec<&'a Row>, measure: Measure, bounds: &Bounds) -> Finding<'a> {
    let mut finding = Finding::new(selected);
    let known = match measured(&finding.runs, measure) {
        Ok(known) => known,
        Err(unmeasured) => return finding.unmeasured(unmeasured),
    };
    finding.points = known.iter().map(|(row, value)| point("", row, None, *value)).collect();
    let outside = known.iter().find(|(_, value)| !bounds.contain(*value));
    let found = match outside {
        Some((row, value)) => format!("{} MiB in {}", number(*value), row.run_id),
        None => spread(&known),
    };
    let supported = outside.is_none();
    finding.decided(supported, found)
}

fn spread(known: &[(&Row, f64)]) -> String {
    let values: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    match (values.as_slice(), range(&values)) {
        ([only], _) => format!("{} MiB", number(*only)),
        (_, (least, most)) if least < most => {
            format!("{} to {} MiB in {}", number(least), number(most), count(known.len()))
        }
        (_, (least, _)) => format!("{} MiB in {}", number(least), count(known.len())),
    }
}

fn greater<'a>(selected: &[&'a Row], others: &[&'a Row], measure: Measure, other: &Selection) -> Finding<'a> {
    let own = without(selected, others);
    let mut finding = Finding::new(own.iter().chain(others).copied().collect());
    if own.is_empty() || others.is_empty() {
        return finding.undecided("no run on one side");
    }
    let (own, others) = match (measured(&own, measure), measured(others, measure)) {
        (Ok(own), Ok(others)) => (own, others),
        (own, others) => {
            let unmeasured = [own.err(), others.err()].into_iter().flatten().flatten().collect();
            return finding.unmeasured(unmeasured);
        }
    };
    let name = words::selection(other);
    finding.points = own.iter().map(|(row, value)| point("", row, None, *value)).collect();
    finding.points.extend(others.iter().map(|(row, value)| point(&name, row, None, *value)));
    let least = own.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let most = others.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    let found = format!("{} against {}", spread(&own), spread(&others));
    finding.decided(least > most, found)
}

fn quotient<'a>(
    hypothesis: &Hypothesis,
    selected: &[&'a Row],
    others: &[&'a Row],
    to: &Selection,
    bounds: &Bounds,
) -> Finding<'a> {
    let own = without(selected, others);
    let mut finding = Finding::new(own.iter().chain(others).copied().collect());
    if own.is_empty() || others.is_empty() {
        return finding.undecided("no run on one side");
    }
    // A run is divided by the one that differs from it only in what tells the two selections apart.
    let named = |axis: Axis| hypothesis.within.0.contains_key(&axis) || to.0.contains_key(&axis);
    let same =
        |left: &Row, right: &Row| Axis::all().all(|axis| named(axis) || left.setting(axis) == right.setting(axis));
    let mut pairs = Vec::new();
    for row in &own {
        let partners: Vec<&Row> = others.iter().filter(|other| same(row, other)).copied().collect();
        match (partners.as_slice(), others) {
            ([partner], _) | ([], [partner]) => pairs.push((*row, *partner)),
            _ => {
                let found = format!("{} runs that {} could be divided by", partners.len(), row.run_id);
                return finding.undecided(found);
            }
        }
    }
    let (mut holds, mut said) = (true, Vec::new());
    let mut unmeasured = Vec::new();
    for (row, partner) in pairs {
        match (value(row, hypothesis.measure), value(partner, hypothesis.measure)) {
            (Ok(_), Ok(below)) if below.abs() <= 0.0 => {
                return finding.undecided(format!("{} would be divided by the zero of {}", row.run_id, partner.run_id));
            }
            (Ok(above), Ok(below)) => {
                let ratio = above / below;
                let own = bounds.contain(ratio);
                finding.points.push(Point { unit: String::new(), ..point(&partner.run_id, row, None, ratio) });
                holds &= own;
                said.push((own, format!("{} = {} / {} MiB", number(ratio), number(above), number(below))));
            }
            (above, below) => unmeasured.extend([above.err(), below.err()].into_iter().flatten()),
        }
    }
    if !unmeasured.is_empty() {
        return finding.unmeasured(unmeasured);
    }
    let found = summary(said, holds);
    finding.decided(holds, found)
}

fn responds<'a>(
    selected: &[&'a Row],
    measure: Measure,
    stimulus: &Stimulus,
    plan: &PlanFile,
    rows: &[&'a Row],
) -> Finding<'a> {
    let find = |run_id: &str| rows.iter().find(|row| row.run_id == run_id).copied();
    let pairs: Vec<(String, &Row, &Row)> = match stimulus {
        Stimulus::Perturbation(label) => {
            let change = plan.perturbations.iter().find(|change| change.label == *label);
            let pair = change.and_then(|change| Some((find(change.from.as_deref()?)?, find(&change.run_id)?)));
            pair.into_iter().map(|(from, changed)| (String::new(), from, changed)).collect()
        }
        Stimulus::Along(axis) => along(selected, *axis)
            .into_iter()
            .filter_map(|series| Some((series.name.clone(), *series.rows.first()?, *series.rows.last()?)))
            .collect(),
    };
    let mut finding = Finding::new(pairs.iter().flat_map(|(_, from, changed)| [*from, *changed]).collect());
    if pairs.is_empty() {
        return finding.undecided("no two runs to compare");
    }
    let (mut holds, mut said) = (true, Vec::new());
    for (name, from, changed) in pairs {
        let mut changes = Vec::new();
        let mut unmeasured: Vec<Unmeasured> = Vec::new();
        for indicator in Indicator::ALL {
            match (value(from, Measure::Indicator(*indicator)), value(changed, Measure::Indicator(*indicator))) {
                (Ok(before), Ok(after)) => {
                    let change = after - before;
                    let series =
                        [name.as_str(), words::indicator(*indicator)].into_iter().filter(|part| !part.is_empty());
                    let series = series.collect::<Vec<_>>().join(": ");
                    finding.points.push(point(&series, changed, None, change));
                    changes.push((*indicator, change));
                }
                (before, after) => unmeasured.extend([before.err(), after.err()].into_iter().flatten()),
            }
        }
        if !unmeasured.is_empty() {
            unmeasured.dedup_by(|left, right| left.run_id == right.run_id);
            return finding.unmeasured(unmeasured);
        }
        changes.sort_by(|left, right| right.1.abs().total_cmp(&left.1.abs()));
        let (strongest, next) = (changes[0], changes[1]);
        let own = measure == Measure::Indicator(strongest.0) && strongest.1.abs() > next.1.abs();
        holds &= own;
        let words =
            |(indicator, change): (Indicator, f64)| format!("{} {}", words::indicator(indicator), signed(change));
        let found = format!("{} MiB, then {} MiB", words(strongest), words(next));
        said.push((own, if name.is_empty() { found } else { format!("{name}: {found}") }));
    }
    let found = summary(said, holds);
    finding.decided(holds, found)
}

fn signed(value: f64) -> String {
    let text = number(value);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// Out of memory is a result like any other where it is what is expected; a run that did not end as it could is none.
fn ended(selected: Vec<&Row>, expected: Outcome) -> Finding<'_> {
    let finding = Finding::new(selected);
    let is_open = |row: &&&Row| row.outcome().is_none_or(|outcome| !outcome.is_finished() && outcome != expected);
    let open: Vec<Unmeasured> = finding
        .runs
        .iter()
        .filter(is_open)
        .map(|row| Unmeasured { run_id: row.run_id.clone(), why: row.state.name().to_owned() })
        .collect();
    if !open.is_empty() {
        return finding.unmeasured(open);
    }
    let other = finding.runs.iter().find(|row| row.outcome() != Some(expected));
    let found = match other {
        Some(row) => format!("{} in {}", row.state.name(), row.run_id),
        None => format!("{expected} in {}", count(finding.runs.len())),
    };
    let supported = other.is_none();
    finding.decided(supported, found)
}

fn count(runs: usize) -> String {
    if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") }
}
