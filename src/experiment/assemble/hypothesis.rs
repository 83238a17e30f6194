//! `[[hypothesis]]`: what is looked at, and which one of the expectations is meant.

use std::collections::BTreeMap;
use std::ops::Range;

use super::selection;
use crate::diag::Diagnostic;
use crate::experiment::layout::TRENDS;
use crate::experiment::reader::{Reader, Section};
use crate::experiment::{Located, WrittenHypothesis};
use crate::protocol::{
    Bounds, Expectation, Hypothesis, Indicator, KnownFailure, Measure, Outcome, Phase, Quantity, Stimulus, Tolerance,
    Trend,
};

/// Reads one hypothesis; null when it says nothing that could be judged.
pub(super) fn hypothesis(reader: &mut Reader<'_>, mut section: Section) -> Option<WrittenHypothesis> {
    let span = section.span.start..section.end;
    let header = section.span.clone();
    let mut places = BTreeMap::new();
    let claim = section.text("claim");
    let measure = measure(reader, &mut section, &header, &mut places);
    let expectation = expectation(reader, &mut section, &header, &mut places);
    let within = section.table("where");
    note(&mut places, "where", within.as_ref());
    let known_failure = section.table("known_failure").and_then(|mut found| {
        Some(KnownFailure {
            reason: found.value.text("reason")?.value,
            until: found.value.text("until").map(|day| day.value),
        })
    });
    let hypothesis = Hypothesis {
        claim: claim?.value,
        measure: measure?,
        within: selection(within.map(|found| found.value)),
        expectation: expectation?,
        known_failure,
    };
    if let (Expectation::RespondsMost(_), Measure::Sampled { .. }) = (&hypothesis.expectation, hypothesis.measure) {
        let help = format!("name the indicator: {}", Indicator::NAMES.join(", "));
        reader.problem(header, "responds_most compares indicators", "`quantity` is no indicator", Some(help));
        return None;
    }
    Some(WrittenHypothesis { hypothesis, span, places })
}

fn note<T>(places: &mut BTreeMap<&'static str, Range<usize>>, key: &'static str, found: Option<&Located<T>>) {
    if let Some(found) = found {
        places.insert(key, found.span.clone());
    }
}

fn measure(
    reader: &mut Reader<'_>,
    section: &mut Section,
    header: &Range<usize>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Measure> {
    let indicator = section.choice::<Indicator>("indicator");
    let quantity = section.choice::<Quantity>("quantity");
    let phase = section.choice::<Phase>("phase");
    let step = section.whole("step");
    note(places, "indicator", indicator.as_ref());
    note(places, "step", step.as_ref());
    if section.mentions(&["outcome"]) {
        for span in ["indicator", "quantity", "phase", "step"].into_iter().filter_map(|key| section.place(key)) {
            let help = "keep `outcome`, or what is measured".to_owned();
            reader.problem(span, "an outcome is of a whole run, measured or not", "not needed", Some(help));
        }
        return Some(Measure::Outcome);
    }
    match (indicator, quantity) {
        (Some(indicator), None) => {
            for span in [section.place("phase"), section.place("step")].into_iter().flatten() {
                let help = "an indicator belongs to a whole run; take it out, or use quantity instead".to_owned();
                reader.problem(span, "an indicator has no phase and no step", "not needed", Some(help));
            }
            Some(Measure::Indicator(indicator.value))
        }
        (None, Some(quantity)) => {
            let Some(phase) = phase else {
                let help = format!("phases: {}", Phase::NAMES.join(", "));
                let message = format!("`quantity = \"{}\"` needs a phase", quantity.value);
                reader.problem(quantity.span, message, "measured at which phase boundary?", Some(help));
                return None;
            };
            let before_training =
                matches!(phase.value, Phase::AfterModel | Phase::AfterOptimizerCreation | Phase::AfterInput);
            if let (true, Some(step)) = (before_training, &step) {
                let message = format!("{} comes before the first step", phase.value);
                reader.problem(step.span.clone(), message, "no step here", Some("take `step` out".to_owned()));
            }
            Some(Measure::Sampled {
                quantity: quantity.value,
                phase: phase.value,
                step: step.map(|step| step.value).filter(|_| !before_training),
            })
        }
        (Some(_), Some(quantity)) => {
            let help = "keep one of them".to_owned();
            reader.problem(
                quantity.span,
                "a hypothesis looks at an indicator or at a quantity",
                "both given",
                Some(help),
            );
            None
        }
        (None, None) => {
            if !section.mentions(&["indicator", "quantity"]) {
                let help = format!("indicators: {}", Indicator::NAMES.join(", "));
                let message = "a hypothesis needs an indicator, or a quantity at a phase";
                reader.problem(header.clone(), message, "what is looked at?", Some(help));
            }
            None
        }
    }
}

/// The keys that each form a hypothesis of their own.
const FORMS: [&str; 6] = ["trend", "value", "greater_than", "ratio", "responds_most", "outcome"];

fn expectation(
    reader: &mut Reader<'_>,
    section: &mut Section,
    header: &Range<usize>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Expectation> {
    let trend = section.choice::<String>("trend");
    let value = section.table("value");
    let greater = section.table("greater_than");
    let ratio = section.table("ratio");
    let responds = section.table("responds_most");
    let outcome = section.choice::<Outcome>("outcome");
    note(places, "value", value.as_ref());
    note(places, "greater_than", greater.as_ref());
    note(places, "ratio", ratio.as_ref());
    note(places, "responds_most", responds.as_ref());
    let forms = [
        trend.as_ref().map(|found| found.span.clone()),
        value.as_ref().map(|found| found.span.clone()),
        greater.as_ref().map(|found| found.span.clone()),
        ratio.as_ref().map(|found| found.span.clone()),
        responds.as_ref().map(|found| found.span.clone()),
        outcome.as_ref().map(|found| found.span.clone()),
    ];
    let mut given = forms.iter().zip(FORMS).filter_map(|(span, name)| Some((span.clone()?, name)));
    if let (Some((first, first_name)), Some((second, name))) = (given.next(), given.next()) {
        let problem = Diagnostic::error("a hypothesis has one expectation")
            .at(reader.source, second, format!("`{name}` is a second one"))
            .at(reader.source, first, format!("`{first_name}` is the first"))
            .help("write two hypotheses");
        reader.problems.push(problem);
        return None;
    }
    let expectation = if let Some(trend) = trend {
        self::trend(reader, section, trend, places)
    } else if let Some(mut value) = value {
        bounds(reader, &mut value.value, value.span).map(Expectation::Value)
    } else if let Some(greater) = greater {
        Some(Expectation::GreaterThan(selection(Some(greater.value))))
    } else if let Some(mut ratio) = ratio {
        let to = ratio.value.table("to");
        note(places, "to", to.as_ref());
        let to = selection(to.map(|found| found.value));
        bounds(reader, &mut ratio.value, ratio.span).map(|bounds| Expectation::Ratio { to, bounds })
    } else if let Some(responds) = responds {
        stimulus(reader, responds, places).map(Expectation::RespondsMost)
    } else if let Some(outcome) = outcome {
        Some(Expectation::Outcome(outcome.value))
    } else {
        if !section.mentions(&FORMS) {
            let help = format!("add one of: {}", FORMS.join(", "));
            reader.problem(header.clone(), "a hypothesis without an expectation", "what is expected?", Some(help));
        }
        return None;
    };
    if !section.mentions(&["trend"]) {
        for key in ["along", "slope", "intercept", "tolerance"] {
            if let Some(span) = section.place(key) {
                let help = "take it out, or use trend".to_owned();
                reader.problem(span, format!("`{key}` belongs to a trend"), "without effect here", Some(help));
            }
        }
    }
    expectation
}

fn trend(
    reader: &mut Reader<'_>,
    section: &mut Section,
    name: Located<String>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Expectation> {
    let along = section.axis("along");
    note(places, "along", along.as_ref());
    let tolerance = section.tolerance("tolerance");
    let [slope, intercept] = ["slope", "intercept"].map(|key| section.table(key));
    let linear = name.value == TRENDS[3];
    for (key, found) in [("slope", &slope), ("intercept", &intercept)] {
        if let (false, Some(found)) = (linear, found) {
            let message = format!("`{key}` belongs to trend = \"linear\"");
            reader.problem(found.span.clone(), message, "without effect here", None);
        }
    }
    if let (true, Some(tolerance)) = (TRENDS[..2].contains(&name.value.as_str()), &tolerance) {
        let message = format!("`tolerance` has no meaning for trend = \"{}\"", name.value);
        reader.problem(tolerance.span.clone(), message, "without effect here", None);
    }
    let mut line =
        |found: Option<Located<Section>>| found.and_then(|mut found| bounds(reader, &mut found.value, found.span));
    let (slope, intercept) = (line(slope), line(intercept));
    let tolerance = tolerance.map(|found| found.value);
    let trend = match name.value.as_str() {
        "increasing" => Trend::Increasing,
        "decreasing" => Trend::Decreasing,
        "flat" => Trend::Flat(tolerance.unwrap_or(EXACT)),
        _ => Trend::Linear { slope, intercept, tolerance: tolerance.unwrap_or(NEAR) },
    };
    if along.is_none() && !section.mentions(&["along"]) {
        let help = "add along = \"batch_size\", or another axis that varies".to_owned();
        reader.problem(name.span, "a trend needs an axis to follow", "along which axis?", Some(help));
    }
    Some(Expectation::Trend { along: along?.value, trend })
}

/// Memory repeats to the byte: a flat trend is flat, except for the last bits of a sum of MiB.
const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 1e-6 };
/// Rounding of allocations bends a straight line by up to a block.
const NEAR: Tolerance = Tolerance { relative: 0.01, absolute: 1.0 };

fn bounds(reader: &mut Reader<'_>, section: &mut Section, span: Range<usize>) -> Option<Bounds> {
    let mut number = |key: &str| section.number(key).map(|number| number.value);
    let (equals, min, max) = (number("equals"), number("min"), number("max"));
    let tolerance = section.tolerance("tolerance");
    if let (Some(tolerance), None) = (&tolerance, equals) {
        let help = "min and max are exact; use equals with a tolerance".to_owned();
        reader.problem(tolerance.span.clone(), "`tolerance` belongs to `equals`", "without effect here", Some(help));
        return None;
    }
    if equals.or(min).or(max).is_none() {
        if !section.mentions(&["equals", "min", "max"]) {
            let help = "add equals, min or max".to_owned();
            reader.problem(span, "bounds without a bound", "nothing is expected", Some(help));
        }
        return None;
    }
    if let (Some(low), Some(high)) = (min, max)
        && low > high
    {
        reader.problem(span, format!("min = {low} is above max = {high}"), "no number is in between", None);
        return None;
    }
    Some(Bounds { equals, min, max, tolerance: tolerance.map_or(EXACT, |found| found.value) })
}

fn stimulus(
    reader: &mut Reader<'_>,
    mut section: Located<Section>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Stimulus> {
    let perturbation = section.value.text("perturbation");
    let along = section.value.axis("along");
    note(places, "perturbation", perturbation.as_ref());
    note(places, "along", along.as_ref());
    match (perturbation, along) {
        (Some(label), None) => Some(Stimulus::Perturbation(label.value.into())),
        (None, Some(axis)) => Some(Stimulus::Along(axis.value)),
        (both, _) => {
            if both.is_some() || !section.value.mentions(&["perturbation", "along"]) {
                let help = "write { perturbation = \"its label\" } or { along = \"batch_size\" }".to_owned();
                reader.problem(section.span, "responds_most needs a perturbation or an axis", "to what?", Some(help));
            }
            None
        }
    }
}
