//! Expectations and numbers as people read them.

use crate::collate::setting;
use crate::protocol::{Bounds, Expectation, Indicator, Measure, Selection, Stimulus, Tolerance, Trend};

/// A number with as many digits as it needs: two decimals, more where there are more, up to a byte of a MiB.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let digits = text.trim_end_matches('0');
    let decimals = digits.len() - digits.find('.').map_or(digits.len(), |point| point + 1);
    let text = format!("{value:.*}", decimals.max(2));
    // A value that rounds to zero has no sign.
    match text.strip_prefix('-') {
        Some(zero) if zero.chars().all(|c| matches!(c, '0' | '.')) => zero.to_owned(),
        _ => text,
    }
}

/// What is looked at.
pub(super) fn measure(measure: Measure) -> String {
    match measure {
        Measure::Indicator(indicator) => indicator.to_string(),
        Measure::Sampled { quantity, phase, step } => match step {
            Some(step) => format!("{quantity} {phase} of step {step}"),
            None => format!("{quantity} {phase}"),
        },
        Measure::Outcome => "outcome".to_owned(),
    }
}

/// What is expected.
pub(super) fn expectation(expectation: &Expectation) -> String {
    match expectation {
        Expectation::Trend { along, trend } => match trend {
            Trend::Increasing => format!("increasing along {along}"),
            Trend::Decreasing => format!("decreasing along {along}"),
            Trend::Flat(tolerance) => format!("flat along {along}{}", within(*tolerance)),
            Trend::Linear { slope, intercept, tolerance } => {
                let part = |name: &str, found: &Option<Bounds>| {
                    found.as_ref().map(|found| format!(", {name} {}", bounds(found))).unwrap_or_default()
                };
                let (slope, intercept) = (part("slope", slope), part("intercept", intercept));
                format!("linear along {along}{}{slope}{intercept}", within(*tolerance))
            }
        },
        Expectation::Value(found) => bounds(found),
        Expectation::GreaterThan(other) => format!("greater than with {}", selection(other)),
        Expectation::Ratio { to, bounds: found } => format!("ratio to {}: {}", selection(to), bounds(found)),
        Expectation::RespondsMost(Stimulus::Perturbation(label)) => format!("responds most to \"{label}\""),
        Expectation::RespondsMost(Stimulus::Along(axis)) => format!("responds most along {axis}"),
        Expectation::Outcome(outcome) => outcome.to_string(),
    }
}

/// The runs that are meant.
pub(super) fn selection(selection: &Selection) -> String {
    if selection.0.is_empty() {
        return "all runs".to_owned();
    }
    let parts: Vec<String> = selection.0.iter().map(|(axis, value)| setting(*axis, value)).collect();
    parts.join(", ")
}

/// An indicator without its unit, as a heading has it.
pub(super) fn indicator(indicator: Indicator) -> &'static str {
    indicator.name().trim_end_matches("_mib")
}

fn bounds(bounds: &Bounds) -> String {
    let mut parts = Vec::new();
    if let Some(equals) = bounds.equals {
        parts.push(format!("{}{}", number(equals), within(bounds.tolerance)));
    }
    parts.extend(bounds.min.map(|min| format!("at least {}", number(min))));
    parts.extend(bounds.max.map(|max| format!("at most {}", number(max))));
    parts.join(" and ")
}

/// The tolerance in brackets; nothing for one that only makes up for rounding.
fn within(tolerance: Tolerance) -> String {
    let mut parts = Vec::new();
    if tolerance.relative > 0.0 {
        parts.push(format!("{} %", number(tolerance.relative * 100.0)));
    }
    if tolerance.absolute > 1e-6 {
        parts.push(number(tolerance.absolute));
    }
    if parts.is_empty() { String::new() } else { format!(" (within {})", parts.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_the_digits_they_need() {
        for (value, text) in [
            (64.0, "64.00"),
            (0.75, "0.75"),
            (423.501_464_843_75, "423.501465"),
            (0.000_488, "0.000488"),
            (-1e-9, "0.00"),
            (-1.5, "-1.50"),
            (1.0 / 3.0, "0.333333"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
