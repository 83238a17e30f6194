//! What was read of one table, for `assemble` to take its parts from.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::experiment::{Located, Setting, Swept};
use crate::protocol::{Axis, Tolerance, Value};

/// A table that was read: its own keys, and the axes among its keys.
#[derive(Debug, Default)]
pub(in crate::experiment) struct Section {
    /// The table, from its header or brace.
    pub(in crate::experiment) span: Range<usize>,
    /// Where the last of its values ends.
    pub(in crate::experiment) end: usize,
    pub(super) fields: Vec<(&'static str, Located<Parsed>)>,
    /// Its own keys that are written down, readable or not, with the places of their values.
    pub(super) written: Vec<(&'static str, Range<usize>)>,
    /// Whether an axis is among its keys, readable or not.
    pub(in crate::experiment) names_an_axis: bool,
    /// Axes with one value, in file order.
    pub(in crate::experiment) settings: Vec<Setting>,
    /// Axes with several, in file order.
    pub(in crate::experiment) sweep: Vec<Swept>,
}

/// A value that was read.
#[derive(Debug)]
pub(super) enum Parsed {
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
            pub(in crate::experiment) fn $name(&mut self, key: &str) -> Option<Located<$type>> {
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
    pub(in crate::experiment) fn place(&self, key: &str) -> Option<Range<usize>> {
        self.written.iter().find(|(name, _)| *name == key).map(|(_, span)| span.clone())
    }

    /// Whether one of the keys is written down: what is wrong with its value is reported already.
    pub(in crate::experiment) fn mentions(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.place(key).is_some())
    }

    /// A whole number, or the bytes of a size.
    pub(in crate::experiment) fn whole(&mut self, key: &str) -> Option<Located<u64>> {
        self.value(key).and_then(|Located { value, span }| match value {
            Value::Whole(value) => Some(Located { value, span }),
            _ => None,
        })
    }

    /// One of a few names.
    pub(in crate::experiment) fn choice<T: std::str::FromStr>(&mut self, key: &str) -> Option<Located<T>> {
        self.value(key).and_then(|Located { value, span }| match value {
            Value::Text(text) => text.parse().ok().map(|value| Located { value, span }),
            _ => None,
        })
    }
}
