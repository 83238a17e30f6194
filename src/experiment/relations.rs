//! What no single value shows: how the parts of an experiment fit together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::reader::first_line;
use super::{Experiment, Located, WrittenHypothesis, setting};
use crate::diag::{Diagnostic, nearest};
use crate::protocol::{Axis, Expectation, Kind, Measure, Selection, Stimulus, Trend, Value};

/// The base's own label.
pub(crate) const BASE_LABEL: &str = "base";

/// Everything that does not fit.
pub(super) fn problems(experiment: &Experiment) -> Vec<Diagnostic> {
    let mut problems = grid_problems(experiment);
    labels(experiment, &mut problems);
    devices(experiment, &mut problems);
    for written in &experiment.hypotheses {
        hypothesis(experiment, written, &mut problems);
    }
    problems
}

/// What does not fit in the grid. The command line may take away what a hypothesis speaks of: it then finds nothing to judge, which
/// is no reason to refuse the runs.
pub(super) fn grid_problems(experiment: &Experiment) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    zips(experiment, &mut problems);
    repetitions(experiment, &mut problems);
    problems
}

/// The axes that have no default, and no value in every run.
pub(crate) fn missing(experiment: &Experiment) -> Vec<Diagnostic> {
    let open = Axis::definitions().iter().filter(|definition| definition.default.is_none());
    open.filter_map(|definition| {
        let axis = definition.axis;
        let in_base = setting(&experiment.base, axis).is_some();
        let in_grid = experiment.swept(axis).is_some();
        let base_runs = experiment.sweep.is_empty() || !experiment.perturbations.is_empty();
        if in_base || (in_grid && !base_runs) {
            return None;
        }
        let help = format!("add {axis} under [base]: {}", definition.kind.expected());
        let error = Diagnostic::error(format!("no `{axis}` is given, and there is no default")).help(help);
        let text = &experiment.source.text;
        let place = match text.find("[base]") {
            Some(at) => at..at + "[base]".len(),
            None => first_line(text),
        };
        Some(if text.is_empty() { error } else { error.at(&experiment.source, place, format!("`{axis}` is missing")) })
    })
    .collect()
}

fn zips(experiment: &Experiment, problems: &mut Vec<Diagnostic>) {
    let source = &experiment.source;
    let mut seen: Vec<&Located<Axis>> = Vec::new();
    for group in &experiment.zips {
        for zipped in group {
            let axis = zipped.value;
            if let Some(first) = seen.iter().find(|other| other.value == axis) {
                let problem = Diagnostic::error(format!("`{axis}` is zipped twice"))
                    .at(source, zipped.span.clone(), "again here")
                    .at(source, first.span.clone(), "first here")
                    .help("an axis advances with one group only");
                problems.push(problem);
            } else if experiment.swept(axis).is_none() {
                let swept: Vec<&str> = experiment.sweep.iter().map(|swept| swept.axis.name()).collect();
                let help = match swept.as_slice() {
                    [] => format!("give it values: [sweep]\n{axis} = [...]"),
                    swept => format!("swept axes: {}", swept.join(", ")),
                };
                let problem = Diagnostic::error(format!("`{axis}` is zipped, and not swept"))
                    .at(source, zipped.span.clone(), "not under [sweep]")
                    .help(help);
                problems.push(problem);
            }
            seen.push(zipped);
        }
        lengths(experiment, group, problems);
    }
}

/// A value twice is a mistake where it would be the same run twice: not on an axis that advances together with others.
fn repetitions(experiment: &Experiment, problems: &mut Vec<Diagnostic>) {
    let zipped = |axis: Axis| experiment.zips.iter().flatten().any(|zipped| zipped.value == axis);
    for swept in experiment.sweep.iter().filter(|swept| !zipped(swept.axis)) {
        let source = swept.typed.as_ref().unwrap_or(&experiment.source);
        let mut seen: BTreeMap<&Value, &Range<usize>> = BTreeMap::new();
        for Located { value, span } in &swept.values {
            if let Some(first) = seen.insert(value, span) {
                let message = format!("`{}` in [sweep] has the value {} twice", swept.axis, swept.axis.show(value));
                let problem = Diagnostic::error(message)
                    .at(source, span.clone(), "again here")
                    .at(source, first.clone(), "first here")
                    .help("keep one of them: a run is never made twice");
                problems.push(problem);
            }
        }
    }
}

fn lengths(experiment: &Experiment, group: &[Located<Axis>], problems: &mut Vec<Diagnostic>) {
    let mut swept = group.iter().filter_map(|zipped| experiment.swept(zipped.value));
    let Some(first) = swept.next() else { return };
    for other in swept.filter(|other| other.values.len() != first.values.len()) {
        let count = |count: usize| format!("{count} value{}", if count == 1 { "" } else { "s" });
        let message = format!("`{}` and `{}` are zipped, and differ in length", first.axis, other.axis);
        let mut problem = Diagnostic::error(message).help("axes that advance together need as many values each");
        for swept in [other, first] {
            let source = swept.typed.as_ref().unwrap_or(&experiment.source);
            problem = problem.at(source, swept.key.clone(), count(swept.values.len()));
        }
        problems.push(problem);
    }
}

fn labels(experiment: &Experiment, problems: &mut Vec<Diagnostic>) {
    for change in experiment.perturbations.iter().filter(|change| change.label.value.as_ref() == BASE_LABEL) {
        let problem = Diagnostic::error(format!("no perturbation can be called \"{BASE_LABEL}\""))
            .at(&experiment.source, change.label.span.clone(), "this is what the unchanged run is called")
            .help("say what the perturbation changes");
        problems.push(problem);
    }
}

/// `auto` is no value of a run: nothing can be selected by it.
fn devices(experiment: &Experiment, problems: &mut Vec<Diagnostic>) {
    let auto = Value::from("auto");
    for setting in experiment.excludes.iter().flat_map(|rule| &rule.settings).filter(|setting| setting.value == auto) {
        if let super::Origin::File(span) = &setting.origin {
            problems.push(resolved_before(setting.axis).at(&experiment.source, span.clone(), "no run has it"));
        }
    }
}

fn resolved_before(axis: Axis) -> Diagnostic {
    Diagnostic::error(format!("no run has {axis} = auto"))
        .help("auto is replaced by what the machine offers before anything is planned: name that")
}

fn hypothesis(experiment: &Experiment, written: &WrittenHypothesis, problems: &mut Vec<Diagnostic>) {
    let place = |key: &str| written.places.get(key).cloned().unwrap_or_else(|| header(written));
    let hypothesis = &written.hypothesis;
    let mut select = |selection: &Selection, key: &str| selects(experiment, selection, place(key), problems);
    select(&hypothesis.within, "where");
    match &hypothesis.expectation {
        Expectation::Trend { along, trend } => {
            varies(experiment, *along, place("along"), problems);
            if let Trend::Linear { .. } = trend {
                numeric(experiment, *along, place("along"), problems);
            }
            if hypothesis.within.0.contains_key(along) {
                let problem = Diagnostic::error(format!("`where` fixes `{along}`, along which the trend is"))
                    .at(&experiment.source, place("where"), "one value is left")
                    .at(&experiment.source, place("along"), "the axis of the trend")
                    .help(format!("take `{along}` out of `where`"));
                problems.push(problem);
            }
        }
        Expectation::GreaterThan(other) => select(other, "greater_than"),
        Expectation::Ratio { to, .. } => select(to, "to"),
        Expectation::RespondsMost(Stimulus::Along(axis)) => varies(experiment, *axis, place("along"), problems),
        Expectation::RespondsMost(Stimulus::Perturbation(label)) => {
            let mut known = experiment.perturbations.iter().map(|change| change.label.value.as_ref());
            if !known.clone().any(|known| known == label.as_ref()) {
                let help = match (nearest(label, known.clone()), known.next()) {
                    (Some(near), _) => format!("did you mean \"{near}\"?"),
                    (None, Some(_)) => format!("perturbations: {}", known_labels(experiment)),
                    (None, None) => "add a [[perturbation]] with this label".to_owned(),
                };
                let problem = Diagnostic::error(format!("no perturbation is called \"{label}\""))
                    .at(&experiment.source, place("perturbation"), "no such label")
                    .help(help);
                problems.push(problem);
            }
        }
        Expectation::Value(_) | Expectation::Outcome(_) => {}
    }
    if let Measure::Sampled { step: Some(step), .. } = hypothesis.measure {
        let most = experiment.values(Axis::Steps).into_iter().max();
        if let Some(Value::Whole(most)) = most
            && step >= most
        {
            let problem = Diagnostic::error(format!("no run has a step {step}"))
                .at(&experiment.source, place("step"), format!("the last step of the longest run is {}", most - 1))
                .help("steps count from 0");
            problems.push(problem);
        }
    }
}

/// The first line of a hypothesis: its header.
fn header(written: &WrittenHypothesis) -> Range<usize> {
    written.span.start..written.span.end.min(written.span.start + "[[hypothesis]]".len())
}

fn known_labels(experiment: &Experiment) -> String {
    let labels: Vec<String> =
        experiment.perturbations.iter().map(|change| format!("\"{}\"", change.label.value)).collect();
    labels.join(", ")
}

fn varies(experiment: &Experiment, axis: Axis, place: Range<usize>, problems: &mut Vec<Diagnostic>) {
    let values = experiment.values(axis);
    if values.len() > 1 {
        return;
    }
    let varying: Vec<&str> = Axis::all().filter(|axis| experiment.values(*axis).len() > 1).map(Axis::name).collect();
    let label =
        values.first().map_or_else(|| "it has no value".to_owned(), |value| format!("always {}", axis.show(value)));
    let help = match varying.as_slice() {
        [] => format!("nothing varies in this experiment; add [sweep] with {axis} = [...]"),
        varying => format!("axes that vary: {}", varying.join(", ")),
    };
    let problem = Diagnostic::error(format!("`{axis}` does not vary")).at(&experiment.source, place, label).help(help);
    problems.push(problem);
}

fn numeric(experiment: &Experiment, axis: Axis, place: Range<usize>, problems: &mut Vec<Diagnostic>) {
    if !matches!(axis.definition().kind, Kind::Whole { .. } | Kind::Bytes) {
        let problem = Diagnostic::error(format!("`{axis}` has no numbers to draw a line through"))
            .at(&experiment.source, place, "its values are not numbers")
            .help("use increasing, decreasing or flat, in the order in which the values are listed");
        problems.push(problem);
    }
}

/// Every value selected by has to be some run's.
fn selects(experiment: &Experiment, selection: &Selection, place: Range<usize>, problems: &mut Vec<Diagnostic>) {
    for (axis, value) in &selection.0 {
        if *value == Value::from("auto") {
            problems.push(resolved_before(*axis).at(&experiment.source, place.clone(), "selects nothing"));
            continue;
        }
        // What these resolve to is known only when planning.
        if matches!(axis, Axis::Device | Axis::DeviceModel | Axis::Backend) {
            continue;
        }
        let values: BTreeSet<Value> = experiment.values(*axis);
        if !values.contains(value) {
            let known: Vec<String> = values.iter().take(8).map(|value| axis.show(value)).collect();
            let problem = Diagnostic::error(format!("no run has {axis} = {}", axis.show(value)))
                .at(&experiment.source, place.clone(), "selects nothing")
                .help(format!("values of `{axis}` in this experiment: {}", known.join(", ")));
            problems.push(problem);
        }
    }
}
