//! TOML to typed sections, as a [`Layout`] says. Everything that is wrong is collected, with its place; what is right is kept, so that
//! one mistake does not hide the next.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layout::{Axes, Field, Layout, Shape};
use super::{Located, Origin, Setting, Swept};
use crate::diag::{Diagnostic, Source, nearest};
use crate::protocol::{Axis, Kind, Tolerance, Value};
use crate::units::{self, UnitError};

/// Largest number of values of one axis; more is a mistake in a range.
pub(super) const MOST_VALUES: usize = 1_000_000;

/// A table that was read: its own keys, and the axes among its keys.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// The table, from its header or brace.
    pub(super) span: Range<usize>,
    /// Where the last of its values ends.
    pub(super) end: usize,
    fields: Vec<(&'static str, Located<Parsed>)>,
    /// Its own keys that are written down, readable or not, with the places of their values.
    written: Vec<(&'static str, Range<usize>)>,
    /// Whether an axis is among its keys, readable or not.
    pub(super) names_an_axis: bool,
    /// Axes with one value, in file order.
    pub(super) settings: Vec<Setting>,
    /// Axes with several, in file order.
    pub(super) sweep: Vec<Swept>,
}

/// A value that was read.
#[derive(Debug)]
enum Parsed {
    Value(Value),
    Text(String),
    Number(f64),
    Seconds(u64),
    Tolerance(Tolerance),
    Axis(Axis),
    Pair([u32; 2]),
    Lines(Vec<String>),
    Texts(BTreeMap<String, String>),
    AxisGroups(Vec<Vec<Located<Axis>>>),
    Table(Section),
    Tables(Vec<Section>),
    Named(Vec<(Located<String>, Section)>),
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident => $type:ty;)+) => {
        impl Section {
            $($(#[$doc])*
            pub(super) fn $name(&mut self, key: &str) -> Option<Located<$type>> {
                let at = self.fields.iter().position(|(name, value)| {
                    *name == key && matches!(value.value, Parsed::$variant(_))
                })?;
                let (_, Located { value, span }) = self.fields.remove(at);
                match value {
                    Parsed::$variant(value) => Some(Located { value, span }),
                    _ => None,
                }
            })+
        }
    };
}

// Each takes the value out of the section.
getters! {
    value: Value => Value;
    text: Text => String;
    number: Number => f64;
    seconds: Seconds => u64;
    tolerance: Tolerance => Tolerance;
    axis: Axis => Axis;
    pair: Pair => [u32; 2];
    lines: Lines => Vec<String>;
    texts: Texts => BTreeMap<String, String>;
    axis_groups: AxisGroups => Vec<Vec<Located<Axis>>>;
    table: Table => Section;
    tables: Tables => Vec<Section>;
    named: Named => Vec<(Located<String>, Section)>;
}

impl Section {
    /// Where the value of a key is written, whether or not it could be read.
    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.written.iter().find(|(name, _)| *name == key).map(|(_, span)| span.clone())
    }

    /// Whether one of the keys is written down: what is wrong with its value is reported already.
    pub(super) fn mentions(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.place(key).is_some())
    }

    /// A whole number, or the bytes of a size.
    pub(super) fn whole(&mut self, key: &str) -> Option<Located<u64>> {
        self.value(key).and_then(|Located { value, span }| match value {
            Value::Whole(value) => Some(Located { value, span }),
            _ => None,
        })
    }

    /// One of a few names.
    pub(super) fn choice<T: std::str::FromStr>(&mut self, key: &str) -> Option<Located<T>> {
        self.value(key).and_then(|Located { value, span }| match value {
            Value::Text(text) => text.parse().ok().map(|value| Located { value, span }),
            _ => None,
        })
    }
}

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

    /// Reads an axis that is a key of the table.
    fn axis(
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

    fn excerpt(&self, value: &Spanned<DeValue<'_>>) -> String {
        self.source.text[value.span()].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Reads the values of an axis under `[sweep]`: a list, or a range.
    fn several(&mut self, axis: Axis, value: &Spanned<DeValue<'_>>) -> Option<Vec<Located<Value>>> {
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
    fn range(&mut self, axis: Axis, range: &DeTable<'_>, span: Range<usize>) -> Option<Vec<Located<Value>>> {
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

    /// Reads one value of a kind.
    fn value(&mut self, kind: Kind, name: &str, value: &Spanned<DeValue<'_>>) -> Option<Value> {
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
                    self.problem(span, format!("`{name}` = {text} is too small"), "at least one byte", None);
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

    fn one_of(&mut self, names: &[Arc<str>], key: &str, text: &str, span: Range<usize>) -> Option<Value> {
        if let Some(name) = names.iter().find(|name| name.as_ref() == text) {
            return Some(Value::Text(Arc::clone(name)));
        }
        let all = || format!("known: {}", names.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "));
        let help = nearest(text, names.iter().map(AsRef::as_ref))
            .map_or_else(all, |near| format!("did you mean \"{near}\"? {}", all()));
        self.problem(span, format!("unknown {key} \"{text}\""), "no such name", Some(help));
        None
    }

    fn wrong_type(&mut self, name: &str, expected: &str, found: &DeValue<'_>, span: Range<usize>) {
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

    /// A name that can be part of a file name everywhere.
    fn name(&mut self, text: &str, key: &str, span: Range<usize>) -> Option<String> {
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

    fn number(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<f64> {
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

    fn no_duration(&mut self, name: &str, text: &str, error: UnitError, span: Range<usize>) {
        let help = match error {
            UnitError::NoUnit => format!("say which: \"{text}s\" or \"{text}m\""),
            _ => "write \"90s\", \"10m\", \"1h30m\", or as Slurm does: \"00:10:00\", \"1-02:00:00\"".to_owned(),
        };
        self.problem(span, format!("`{name}` = {text} is no duration"), error.to_string(), Some(help));
    }

    /// A number, in the unit of the value; `"0.5%"`; `"0.5 MiB"`; or two of them with `or` between.
    fn tolerance(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<Tolerance> {
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

    fn axis_name(&mut self, text: &str, name: &str, span: Range<usize>) -> Option<Axis> {
        let axis = Axis::named(text);
        if axis.is_none() {
            let names: Vec<&str> = Axis::all().map(Axis::name).collect();
            let help = nearest(text, names.iter().copied())
                .map_or_else(|| format!("axes: {}", names.join(", ")), |near| format!("did you mean \"{near}\"?"));
            self.problem(span, format!("unknown axis \"{text}\" in `{name}`"), "no such axis", Some(help));
        }
        axis
    }

    fn line(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            other => {
                self.wrong_type(name, "text", other, value.span());
                None
            }
        }
    }

    fn axis_groups(&mut self, name: &str, groups: &toml::de::DeArray<'_>) -> Option<Vec<Vec<Located<Axis>>>> {
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
                self.problem(group.span(), "a zip group needs two axes or more", "nothing to advance together", None);
                return None;
            }
            read.push(located);
        }
        Some(read)
    }
}

const TOLERANCE: &str = "a number, \"0.5%\", \"0.5 MiB\", or \"0.5% or 0.5 MiB\"";

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
