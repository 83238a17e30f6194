//! TOML to typed sections, as a [`Layout`] says. Everything that is wrong is collected, with its place; what is right is kept, so that
//! one mistake does not hide the next.

mod axes;
mod section;
mod values;

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Located;
use super::layout::{Axes, Field, Layout, Shape};
use crate::diag::{Diagnostic, Source, nearest};
use crate::protocol::{Axis, Kind, Value};
use crate::units::{self, UnitError};
use section::Parsed;
pub(super) use section::Section;
use values::TOLERANCE;

/// Reads tables, and collects what is wrong with them.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    /// Whether the text is an option rather than a file.
    pub(super) typed: bool,
    pub(super) presets: Vec<Arc<str>>,
    pub(super) device_models: Vec<Arc<str>>,
    pub(super) problems: Vec<Diagnostic>,
}

impl Reader<'_> {
    /// Reads a whole document; null when it is not TOML.
    pub(super) fn document(&mut self, layout: &'static Layout) -> Option<Section> {
        let source = self.source;
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        if !errors.is_empty() {
            self.syntax(&errors);
            return None;
        }
        for (key, names) in [("presets", &mut self.presets), ("device_models", &mut self.device_models)] {
            if let Some(own) = table.get_ref().get(key).and_then(|value| value.get_ref().as_table()) {
                names.extend(own.keys().map(|name| Arc::from(name.get_ref().as_ref())));
            }
        }
        Some(self.section(table.get_ref(), 0..0, layout))
    }

    /// Reports a problem at a place.
    pub(super) fn problem(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: Option<String>,
    ) {
        let diagnostic = Diagnostic::error(message).at(self.source, span, label);
        self.problems.push(match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        });
    }

    /// Syntax errors, one for each line that has any: what follows on the same line is mostly its echo.
    fn syntax(&mut self, errors: &[toml::de::Error]) {
        let mut lines = std::collections::BTreeSet::new();
        let text = Arc::clone(&self.source.text);
        for error in errors {
            let span = on_characters(&text, error.span().unwrap_or(0..0));
            let line = text[..span.start].matches('\n').count();
            if !lines.insert(line) {
                continue;
            }
            let word = text[span.clone()].trim();
            let help = match error.message() {
                _ if ["True", "False"].contains(&word) => Some(format!("write `{}`", word.to_lowercase())),
                "duplicate key" => Some("keep one of them".to_owned()),
                message if message.starts_with("key with no value") => Some("write key = value".to_owned()),
                message if message.starts_with("string values must be quoted") || message.contains("boolean") => {
                    (!word.is_empty()).then(|| format!("if it is text, write it in quotes: \"{word}\""))
                }
                _ => None,
            };
            self.problem(span, "the experiment is not valid TOML", error.message(), help);
        }
    }

    /// Reads a table.
    fn section(&mut self, table: &DeTable<'_>, span: Range<usize>, layout: &'static Layout) -> Section {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut section = Section { end: span.end, span, ..Section::default() };
        let mut meant = Vec::new();
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            section.end = section.end.max(end_of(value)).max(key.span().end);
            if let Some(field) = layout.fields().find(|field| field.name == name) {
                section.written.push((field.name, value.span()));
                if let Some(parsed) = self.field(field, value, layout) {
                    section.fields.push((field.name, Located { value: parsed, span: value.span() }));
                }
            } else if let Some(axis) = Axis::named(name).filter(|_| layout.axes != Axes::No) {
                section.names_an_axis = true;
                self.axis(axis, key.span(), value, layout, &mut section);
            } else {
                meant.extend(self.unknown_key(name, key.span(), value, layout));
            }
        }
        let absent =
            |field: &&Field| field.required && !section.mentions(&[field.name]) && !meant.contains(&field.name);
        for field in layout.fields().filter(absent) {
            let message = format!("{} has no `{}`", layout.name, field.name);
            let label = format!("`{}` is missing: {}", field.name, field.help);
            let place = if section.span.is_empty() { first_line(&self.source.text) } else { section.span.clone() };
            self.problem(place, message, label, None);
        }
        section
    }

    /// Reports a key that is not known; the one that was probably meant.
    fn unknown_key(
        &mut self,
        name: &str,
        span: Range<usize>,
        value: &Spanned<DeValue<'_>>,
        layout: &'static Layout,
    ) -> Option<&'static str> {
        let own = layout.fields().map(|field| field.name);
        let axes = Axis::all().map(Axis::name).filter(|_| layout.axes != Axes::No);
        let names: Vec<&'static str> = own.chain(axes).collect();
        let at_home = Axis::named(name).map(|axis| match value.get_ref() {
            DeValue::Array(_) => format!("values of `{axis}` to try go under [sweep]"),
            _ => format!("a value of `{axis}` for every run goes under [base]"),
        });
        let meant = nearest(name, names.iter().copied());
        let help = at_home
            .or(meant.map(|near| format!("did you mean `{near}`?")))
            .unwrap_or_else(|| format!("known here: {}", names.join(", ")));
        self.problem(span, format!("unknown key `{name}` in {}", layout.name), "not known here", Some(help));
        meant
    }

    /// Reads a table's own key.
    fn field(&mut self, field: &'static Field, value: &Spanned<DeValue<'_>>, within: &Layout) -> Option<Parsed> {
        let (name, span) = (field.name, value.span());
        match (field.shape, value.get_ref()) {
            (Shape::Value(kind), _) => self.value(kind, name, value).map(Parsed::Value),
            (Shape::AnyText, DeValue::String(text)) => Some(Parsed::Text(text.to_string())),
            (Shape::Text, DeValue::String(text)) => {
                if text.trim().is_empty() {
                    self.problem(span, format!("`{name}` in {} is empty", within.name), field.help, None);
                    return None;
                }
                Some(Parsed::Text(text.to_string()))
            }
            (Shape::Name, DeValue::String(text)) => self.name(text, name, span).map(Parsed::Text),
            (Shape::Number, DeValue::Integer(_) | DeValue::Float(_)) => self.number(name, value).map(Parsed::Number),
            (Shape::Duration, DeValue::String(text)) => match units::parse_duration(text) {
                Ok(0) => {
                    self.problem(span, format!("`{name}` = \"{text}\" leaves no time"), "zero", None);
                    None
                }
                Ok(seconds) => Some(Parsed::Seconds(seconds)),
                Err(error) => {
                    self.no_duration(name, text, error, span);
                    None
                }
            },
            (Shape::Duration, DeValue::Integer(number)) => {
                self.no_duration(name, number.as_str(), UnitError::NoUnit, span);
                None
            }
            (Shape::Tolerance, _) => self.tolerance(name, value).map(Parsed::Tolerance),
            (Shape::Day, DeValue::Datetime(day)) if day.date.is_some() && day.time.is_none() => {
                Some(Parsed::Text(day.to_string()))
            }
            (Shape::Day, DeValue::String(text)) if text.parse::<jiff::civil::Date>().is_ok() => {
                Some(Parsed::Text(text.to_string()))
            }
            (Shape::Axis, DeValue::String(text)) => self.axis_name(text, name, span).map(Parsed::Axis),
            (Shape::Pair, DeValue::Array(list)) if list.len() == 2 => {
                let kind = Kind::Whole { min: 0, max: 1_000 };
                let numbers: Vec<u32> = list
                    .iter()
                    .filter_map(|item| match self.value(kind, name, item)? {
                        Value::Whole(number) => u32::try_from(number).ok(),
                        _ => None,
                    })
                    .collect();
                numbers.try_into().ok().map(Parsed::Pair)
            }
            (Shape::Lines, DeValue::Array(list)) => {
                let lines: Vec<Option<String>> = list.iter().map(|item| self.line(name, item)).collect();
                lines.into_iter().collect::<Option<_>>().map(Parsed::Lines)
            }
            (Shape::Texts, DeValue::Table(table)) => {
                let read = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                    let key: &std::borrow::Cow<'_, str> = key.get_ref();
                    Some((key.to_string(), self.line(key, value)?))
                };
                let texts: Vec<_> = table.iter().map(read).collect();
                texts.into_iter().collect::<Option<_>>().map(Parsed::Texts)
            }
            (Shape::AxisGroups, DeValue::Array(groups)) => self.axis_groups(name, groups).map(Parsed::AxisGroups),
            (Shape::Table(layout), DeValue::Table(table)) => Some(Parsed::Table(self.section(table, span, layout))),
            (Shape::Tables(layout), DeValue::Array(list)) => {
                let mut tables = Vec::new();
                for item in list {
                    match item.get_ref() {
                        DeValue::Table(table) => tables.push(self.section(table, item.span(), layout)),
                        other => self.wrong_type(name, &expected(field.shape), other, item.span()),
                    }
                }
                Some(Parsed::Tables(tables))
            }
            (Shape::Tables(layout), DeValue::Table(_)) => {
                let help = format!("write {} with two brackets: there can be several", layout.name);
                self.problem(span, format!("`{name}` is a single table"), "expected a list of tables", Some(help));
                None
            }
            (Shape::Table(layout), DeValue::Array(_)) if layout.name.starts_with('[') => {
                let help = format!("write {} with single brackets: there is only one", layout.name);
                self.problem(span, format!("`{name}` is a list of tables"), "expected a single table", Some(help));
                None
            }
            (Shape::Named(layout), DeValue::Table(table)) => {
                let mut named = Vec::new();
                let mut entries: Vec<_> = table.iter().collect();
                entries.sort_by_key(|(key, _)| key.span().start);
                for (key, value) in entries {
                    let valid = self.name(key.get_ref(), name, key.span());
                    match value.get_ref() {
                        DeValue::Table(table) => {
                            let section = self.section(table, value.span(), layout);
                            if let Some(value) = valid {
                                named.push((Located { value, span: key.span() }, section));
                            }
                        }
                        other => self.wrong_type(key.get_ref(), layout.name, other, value.span()),
                    }
                }
                Some(Parsed::Named(named))
            }
            (shape, found) => {
                self.wrong_type(name, &expected(shape), found, span);
                None
            }
        }
    }
}

/// What a value looks like, in words.
fn expected(shape: Shape) -> String {
    match shape {
        Shape::Value(kind) => return kind.expected(),
        Shape::Text | Shape::AnyText => "text",
        Shape::Name => "a name, as text",
        Shape::Number => "a number",
        Shape::Duration => "a duration as text, such as \"10m\" or \"00:10:00\"",
        Shape::Tolerance => TOLERANCE,
        Shape::Day => "a day such as 2027-01-31",
        Shape::Axis => "the name of an axis, as text",
        Shape::Pair => "a list of two whole numbers",
        Shape::Lines => "a list of texts",
        Shape::Texts => "names with texts, such as { NAME = \"value\" }",
        Shape::AxisGroups => "a list of groups, such as [[\"preset\", \"batch_size\"]]",
        Shape::Table(layout) if !layout.name.starts_with('[') => "a table, such as { key = value }",
        Shape::Tables(layout) | Shape::Table(layout) => return format!("a table: {}", layout.name),
        Shape::Named(layout) => return format!("tables by name: {}", layout.name),
    }
    .to_owned()
}

/// Where a value ends, with everything inside it.
fn end_of(value: &Spanned<DeValue<'_>>) -> usize {
    let inner = match value.get_ref() {
        DeValue::Array(list) => list.iter().map(end_of).max(),
        DeValue::Table(table) => table.values().map(end_of).max(),
        _ => None,
    };
    value.span().end.max(inner.unwrap_or(0))
}

/// The first line that says something, to point at when the whole file is meant.
pub(super) fn first_line(text: &str) -> Range<usize> {
    let start = text.len() - text.trim_start().len();
    let end = text[start..].find('\n').map_or(text.len(), |end| start + end);
    start..end
}

/// The span, made to lie on characters within the text.
fn on_characters(text: &str, span: Range<usize>) -> Range<usize> {
    let floor = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let ceiling = |at: usize| (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let start = floor(span.start);
    start..ceiling(span.end.max(start))
}
