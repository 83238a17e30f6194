//! Axes as keys: one value where a run is described, a list or a range where values are swept.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Reader, Section};
use crate::diag::nearest;
use crate::experiment::layout::{Axes, Layout};
use crate::experiment::{Located, Origin, Setting, Swept};
use crate::protocol::{Axis, Kind, Value};

/// Largest number of values of one axis; more is a mistake in a range.
const MOST_VALUES: usize = 1_000_000;

impl Reader<'_> {
    /// Reads an axis that is a key of the table.
    pub(super) fn axis(
        &mut self,
        axis: Axis,
        key: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        layout: &'static Layout,
        section: &mut Section,
    ) {
        let several = matches!(value.get_ref(), DeValue::Array(_) | DeValue::Table(_));
        match (layout.axes, several) {
            (Axes::Many | Axes::Either, true) => {
                if let Some(values) = self.several(axis, value) {
                    let typed = self.typed.then(|| self.source.clone());
                    section.sweep.push(Swept { axis, key, values, typed });
                }
            }
            (Axes::Many, false) => self.problem(
                value.span(),
                format!("`{axis}` in [sweep] has one value"),
                "not a list",
                Some(format!(
                    "a sweep needs a list, such as {axis} = [{0}]; one value for all runs goes under [base]",
                    &self.source.text[value.span()]
                )),
            ),
            (_, true) => self.problem(
                value.span(),
                format!("`{axis}` in {} has several values", layout.name),
                "one value is expected here",
                Some(format!(
                    "values to try one after another go under [sweep]:\n[sweep]\n{axis} = {}",
                    self.excerpt(value)
                )),
            ),
            (_, false) => {
                if let Some(value_read) = self.value(axis.definition().kind, axis.name(), value) {
                    let origin = if self.typed {
                        Origin::CommandLine(self.source.clone(), value.span())
                    } else {
                        Origin::File(value.span())
                    };
                    section.settings.push(Setting { axis, value: value_read, origin });
                }
            }
        }
    }

    pub(super) fn excerpt(&self, value: &Spanned<DeValue<'_>>) -> String {
        self.source.text[value.span()].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Reads the values of an axis under `[sweep]`: a list, or a range.
    pub(super) fn several(&mut self, axis: Axis, value: &Spanned<DeValue<'_>>) -> Option<Vec<Located<Value>>> {
        let values = match value.get_ref() {
            DeValue::Array(list) => {
                let before = self.problems.len();
                let kind = axis.definition().kind;
                let values: Vec<_> = list
                    .iter()
                    .filter_map(|item| {
                        let value = self.value(kind, axis.name(), item)?;
                        Some(Located { value, span: item.span() })
                    })
                    .collect();
                if self.problems.len() > before {
                    return None;
                }
                values
            }
            DeValue::Table(range) => self.range(axis, range, value.span())?,
            _ => return None,
        };
        if values.is_empty() {
            let help = "give at least one value, or take the line out".to_owned();
            self.problem(value.span(), format!("`{axis}` in [sweep] has no values"), "nothing to try", Some(help));
            return None;
        }
        Some(values)
    }

    /// `{ from, to, factor }` or `{ from, to, step }`, both ends included where they are met.
    pub(super) fn range(&mut self, axis: Axis, range: &DeTable<'_>, span: Range<usize>) -> Option<Vec<Located<Value>>> {
        let kind = axis.definition().kind;
        if !matches!(kind, Kind::Whole { .. } | Kind::Bytes) {
            let help = format!("list the values: {axis} = [...], each {}", kind.expected());
            self.problem(span, format!("`{axis}` cannot be a range"), "only numbers and sizes have ranges", Some(help));
            return None;
        }
        let before = self.problems.len();
        let [mut from, mut to, mut factor, mut step] = [None; 4];
        for (key, value) in range {
            let (target, kind) = match key.get_ref().as_ref() {
                "from" => (&mut from, kind),
                "to" => (&mut to, kind),
                "factor" => (&mut factor, Kind::Whole { min: 2, max: u64::MAX }),
                "step" if kind == Kind::Bytes => (&mut step, Kind::Bytes),
                "step" => (&mut step, Kind::Whole { min: 1, max: u64::MAX }),
                other => {
                    let known = ["from", "to", "factor", "step"];
                    let help = nearest(other, known).map_or_else(
                        || "a range is { from = 1, to = 64, factor = 2 } or { from = 1, to = 10, step = 3 }".to_owned(),
                        |near| format!("did you mean `{near}`?"),
                    );
                    let message = format!("unknown key `{other}` in the range of `{axis}`");
                    self.problem(key.span(), message, "not known here", Some(help));
                    continue;
                }
            };
            match self.value(kind, key.get_ref(), value) {
                Some(Value::Whole(number)) => *target = Some(number),
                Some(_) => self.problem(value.span(), "a range needs both ends", "no number", None),
                None => {}
            }
        }
        if self.problems.len() > before {
            return None;
        }
        let (Some(from), Some(to), true) = (from, to, factor.is_some() != step.is_some()) else {
            let help = "a range is { from = 1, to = 64, factor = 2 } or { from = 1, to = 10, step = 3 }".to_owned();
            let message = format!("the range of `{axis}` needs from, to, and either factor or step");
            self.problem(span, message, "incomplete", Some(help));
            return None;
        };
        if from > to || (factor.is_some() && from == 0) {
            let (message, help) = if from > to {
                ("goes down", format!("swap them, or write the list: {axis} = [{to}, {from}]"))
            } else {
                ("stays at zero", "start from 1, or use step".to_owned())
            };
            self.problem(span, format!("the range of `{axis}` {message}"), format!("from {from} to {to}"), Some(help));
            return None;
        }
        let next = |last: &u64| match (factor, step) {
            (Some(factor), _) => last.checked_mul(factor),
            (_, Some(step)) => last.checked_add(step),
            _ => None,
        };
        let mut values: Vec<Located<Value>> = Vec::new();
        for number in std::iter::successors(Some(from), next).take_while(|number| *number <= to) {
            if values.len() == MOST_VALUES {
                let help = "take larger steps".to_owned();
                let message = format!("the range of `{axis}` has more than {MOST_VALUES} values");
                self.problem(span, message, "too many", Some(help));
                return None;
            }
            values.push(Located { value: Value::Whole(number), span: span.clone() });
        }
        Some(values)
    }
}
