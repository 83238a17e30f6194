//! Single values: of the right type, within bounds, and of a known name, or explained.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::Reader;
use crate::diag::nearest;
use crate::experiment::Located;
use crate::protocol::{Axis, Kind, Tolerance, Value};
use crate::units::{self, UnitError};

impl Reader<'_> {
    /// Reads one value of a kind.
    pub(super) fn value(&mut self, kind: Kind, name: &str, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let span = value.span();
        match (kind, value.get_ref()) {
            (Kind::Choice(names), DeValue::String(text)) => {
                let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
                self.one_of(&names, name, text, span)
            }
            (Kind::Preset, DeValue::String(text)) => self.one_of(&self.presets.clone(), name, text, span),
            (Kind::DeviceModel, DeValue::String(text)) => self.one_of(&self.device_models.clone(), name, text, span),
            (Kind::Whole { min, max }, DeValue::Integer(integer)) => {
                let number = i128::from_str_radix(integer.as_str(), integer.radix()).unwrap_or(i128::MAX);
                if let Some(number) = u64::try_from(number).ok().filter(|number| (min..=max).contains(number)) {
                    return Some(Value::Whole(number));
                }
                let (how, bound) = if number < i128::from(min) {
                    ("small", format!("the smallest is {min}"))
                } else {
                    ("large", format!("the largest is {max}"))
                };
                let message = format!("`{name}` = {} is too {how}", &self.source.text[span.clone()]);
                self.problem(span, message, bound, None);
                None
            }
            (Kind::Bytes, DeValue::String(text)) if text == "none" => Some(Value::None),
            (Kind::Bytes, DeValue::String(text)) => match units::parse_bytes(text) {
                Ok(0) => {
                    self.problem(span, format!("`{name}` = \"{text}\" is too small"), "at least one byte", None);
                    None
                }
                Ok(bytes) => Some(Value::Whole(bytes)),
                Err(error) => {
                    let help = "write a number and KiB, MiB, GiB or TiB, such as \"80GiB\"".to_owned();
                    self.problem(span, format!("`{name}` = \"{text}\" is no size"), error.to_string(), Some(help));
                    None
                }
            },
            (Kind::Bytes, DeValue::Integer(_)) => self.value(Kind::Whole { min: 1, max: u64::MAX }, name, value),
            (Kind::Switch, DeValue::Boolean(on)) => Some(Value::Switch(*on)),
            (kind, found) => {
                self.wrong_type(name, &kind.expected(), found, span);
                None
            }
        }
    }

    pub(super) fn one_of(&mut self, names: &[Arc<str>], key: &str, text: &str, span: Range<usize>) -> Option<Value> {
        if let Some(name) = names.iter().find(|name| name.as_ref() == text) {
            return Some(Value::Text(Arc::clone(name)));
        }
        let all = || format!("known: {}", names.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "));
        let help = nearest(text, names.iter().map(AsRef::as_ref))
            .map_or_else(all, |near| format!("did you mean \"{near}\"? {}", all()));
        self.problem(span, format!("unknown {key} \"{text}\""), "no such name", Some(help));
        None
    }

    pub(super) fn wrong_type(&mut self, name: &str, expected: &str, found: &DeValue<'_>, span: Range<usize>) {
        let is = match found {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or a time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let text = &self.source.text[span.clone()];
        let help = match found {
            DeValue::String(inner) if expected.contains("list") && !expected.contains("two") => {
                Some(format!("put it in brackets: {name} = [\"{inner}\"]"))
            }
            DeValue::String(inner) if would_do(inner, expected) => {
                Some(format!("write it without quotes: {name} = {inner}"))
            }
            DeValue::String(inner) if self.typed && inner.contains(',') => {
                Some(format!("several values need brackets: --set '{name}=[{inner}]'"))
            }
            DeValue::Integer(_) | DeValue::Boolean(_) | DeValue::Datetime(_) if expected.contains("text") => {
                Some(format!("write it in quotes: {name} = \"{text}\""))
            }
            DeValue::Float(float) if expected.contains("whole number") => {
                let whole =
                    float.as_str().parse::<f64>().ok().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
                whole.map(|number| format!("write it without a fraction: {name} = {number}"))
            }
            DeValue::Datetime(_) => Some(format!("write it in quotes: {name} = \"{text}\"")),
            _ => None,
        };
        self.problem(span, format!("`{name}` is {is}"), format!("expected {expected}"), help);
    }

    /// A name that can be part of a file name everywhere.
    pub(super) fn name(&mut self, text: &str, key: &str, span: Range<usize>) -> Option<String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let problem = match text.chars().next() {
            None => "it is empty",
            Some(first) if !first.is_ascii_alphanumeric() => "it has to start with a letter or a digit",
            _ if text.len() > 64 => "it is longer than 64 characters",
            _ if !text.chars().all(allowed) => "only letters, digits, `_`, `-` and `.` are allowed",
            _ => return Some(text.to_owned()),
        };
        let message = match key {
            "name" => format!("\"{text}\" cannot name a results folder"),
            _ => format!("\"{text}\" cannot be a name in [{key}]"),
        };
        let help = "use letters, digits, `_` and `-`, such as my_first_sweep".to_owned();
        self.problem(span, message, problem, Some(help));
        None
    }

    pub(super) fn number(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(integer) => {
                i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(|number| number as f64)
            }
            DeValue::Float(float) => float.as_str().parse().ok(),
            other => {
                self.wrong_type(name, "a number", other, value.span());
                return None;
            }
        };
        let finite = number.filter(|number: &f64| number.is_finite());
        if finite.is_none() {
            let text = self.source.text[value.span()].to_owned();
            self.problem(
                value.span(),
                format!("`{name}` = {text} is no usable number"),
                "expected a finite number",
                None,
            );
        }
        finite
    }

    pub(super) fn no_duration(&mut self, name: &str, text: &str, error: UnitError, span: Range<usize>) {
        let help = match error {
            UnitError::NoUnit => format!("say which: \"{text}s\" or \"{text}m\""),
            _ => "write \"90s\", \"10m\", \"1h30m\", or as Slurm does: \"00:10:00\", \"1-02:00:00\"".to_owned(),
        };
        let written = self.source.text[span.clone()].to_owned();
        self.problem(span, format!("`{name}` = {written} is no duration"), error.to_string(), Some(help));
    }

    /// A number, in the unit of the value; `"0.5%"`; `"0.5 MiB"`; or two of them with `or` between.
    pub(super) fn tolerance(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<Tolerance> {
        let tolerance = match value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) => {
                Some(Tolerance { absolute: self.number(name, value)?, relative: 0.0 })
            }
            DeValue::String(text) => parse_tolerance(text),
            other => {
                self.wrong_type(name, TOLERANCE, other, value.span());
                return None;
            }
        };
        let valid = tolerance.filter(|tolerance| tolerance.absolute >= 0.0 && tolerance.relative >= 0.0);
        if valid.is_none() {
            let text = self.source.text[value.span()].to_owned();
            self.problem(
                value.span(),
                format!("`{name}` = {text} is no tolerance"),
                format!("expected {TOLERANCE}"),
                None,
            );
        }
        valid
    }

    pub(super) fn axis_name(&mut self, text: &str, name: &str, span: Range<usize>) -> Option<Axis> {
        let axis = Axis::named(text);
        if axis.is_none() {
            let names: Vec<&str> = Axis::all().map(Axis::name).collect();
            let help = nearest(text, names.iter().copied())
                .map_or_else(|| format!("axes: {}", names.join(", ")), |near| format!("did you mean \"{near}\"?"));
            self.problem(span, format!("unknown axis \"{text}\" in `{name}`"), "no such axis", Some(help));
        }
        axis
    }

    pub(super) fn line(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => {
                self.wrong_type(name, "text", other, value.span());
                None
            }
        }
    }

    pub(super) fn axis_groups(&mut self, name: &str, groups: &DeArray<'_>) -> Option<Vec<Vec<Located<Axis>>>> {
        let mut read = Vec::new();
        for group in groups {
            let DeValue::Array(axes) = group.get_ref() else {
                let help = "each group is a list of its own: zip = [[\"preset\", \"batch_size\"]]".to_owned();
                self.problem(group.span(), "`zip` is a list of groups", "expected a list of axes", Some(help));
                return None;
            };
            let mut located = Vec::new();
            for axis in axes {
                match axis.get_ref() {
                    DeValue::String(text) => {
                        let value = self.axis_name(text, name, axis.span())?;
                        located.push(Located { value, span: axis.span() });
                    }
                    other => {
                        self.wrong_type(name, "the name of an axis", other, axis.span());
                        return None;
                    }
                }
            }
            if located.len() < 2 {
                let help = "add the axis that this one advances with, or take the group out".to_owned();
                self.problem(group.span(), "a zip group needs two axes", "nothing advances together", Some(help));
                return None;
            }
            read.push(located);
        }
        Some(read)
    }
}

/// A tolerance, in words.
pub(super) const TOLERANCE: &str = "a number, \"0.5%\", \"0.5 MiB\", or \"0.5% or 0.5 MiB\"";

fn parse_tolerance(text: &str) -> Option<Tolerance> {
    let mut tolerance = Tolerance::default();
    for part in text.split(" or ") {
        let part = part.trim();
        let (number, slot, factor) = if let Some(number) = part.strip_suffix('%') {
            (number, &mut tolerance.relative, 0.01)
        } else {
            (part.strip_suffix("MiB").unwrap_or(part), &mut tolerance.absolute, 1.0)
        };
        *slot = number.trim().parse::<f64>().ok().filter(|number| number.is_finite())? * factor;
    }
    Some(tolerance)
}

/// Whether a text would be what is expected, were it not in quotes.
fn would_do(text: &str, expected: &str) -> bool {
    let number = text.parse::<f64>().is_ok() && expected.contains("number") && !expected.contains("list");
    number || (["true", "false"].contains(&text) && expected.contains("true"))
}
