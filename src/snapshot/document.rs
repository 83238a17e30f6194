//! Plain data as a pickle or a JSON text holds it, kept compactly: what both readers build.
//!
//! A snapshot is a few hundred thousand small dictionaries with the same keys. So a value takes eight bytes, equal
//! strings are kept once, and a dictionary is a number for its keys and its values in one long array: a document takes
//! little more memory than its file.

use std::collections::HashMap;

/// A value of a [`Document`]: a small integer, or the place of something larger, with its kind in the low bits. Equal
/// values are the same integer, text, list or dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Value(u64);

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind<'a> {
    /// Nothing.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// A list or a tuple.
    List(&'a [Value]),
    /// A dictionary.
    Dict(Dict<'a>),
}

/// A dictionary of a [`Document`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dict<'a> {
    keys: &'a [Value],
    values: &'a [Value],
}

const NONE: u64 = 0;
const FALSE: u64 = 1 << 3;
const TRUE: u64 = 2 << 3;

const INT: u64 = 1;
const WIDE_INT: u64 = 2;
const FLOAT: u64 = 3;
const STR: u64 = 4;
const LIST: u64 = 5;
const DICT: u64 = 6;

impl Value {
    /// Nothing.
    pub(super) const NONE: Value = Value(NONE);

    /// True or false.
    pub(super) fn bool(value: bool) -> Self {
        Value(if value { TRUE } else { FALSE })
    }

    fn place(tag: u64, at: usize) -> Self {
        Value((at as u64) << 3 | tag)
    }

    fn tag(self) -> u64 {
        self.0 & 7
    }

    fn at(self) -> usize {
        (self.0 >> 3) as usize
    }
}

/// Where a list's items are.
#[derive(Debug, Clone, Copy)]
enum Items {
    /// In the common array.
    Slice { start: usize, len: usize },
    /// In an array of its own: it was added to more than once.
    Own(usize),
}

/// Plain data.
#[derive(Debug, Default)]
pub(super) struct Document {
    text: String,
    /// Start and end of each string in `text`.
    strings: Vec<(u32, u32)>,
    by_hash: HashMap<u64, Vec<u32>>,
    wide: Vec<i128>,
    floats: Vec<f64>,
    values: Vec<Value>,
    lists: Vec<Items>,
    own: Vec<Vec<Value>>,
    /// Each dictionary's keys, as an index of `shapes`, and the start of its values; or [`OWN_KEYS`] and an index of
    /// `own_dicts`.
    dicts: Vec<(u32, u32)>,
    shapes: Vec<Vec<Value>>,
    by_keys: HashMap<Vec<Value>, u32>,
    /// Keys and values of dictionaries that were added to more than once.
    own_dicts: Vec<(Vec<Value>, Vec<Value>)>,
}

/// The first shape is that of no keys.
const EMPTY_SHAPE: u32 = 0;

/// In place of a shape: the dictionary has keys and values of its own.
const OWN_KEYS: u32 = u32::MAX;

/// How many keys a dictionary has at most. Those of a snapshot have some twenty.
const MOST_KEYS: usize = 100;

/// More than a document can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooLarge {
    #[error("more than 2^32 values")]
    Values,
    #[error("a dictionary of more than {MOST_KEYS} keys")]
    Keys,
}

/// The place of something as a document keeps it.
fn place(at: usize) -> Result<u32, TooLarge> {
    u32::try_from(at).ok().filter(|at| *at < OWN_KEYS).ok_or(TooLarge::Values)
}

impl Document {
    /// What a value is.
    pub(super) fn kind(&self, value: Value) -> Kind<'_> {
        match value.tag() {
            INT => Kind::Int(i128::from(value.0.cast_signed() >> 3)),
            WIDE_INT => Kind::Int(self.wide[value.at()]),
            FLOAT => Kind::Float(self.floats[value.at()]),
            STR => {
                let (start, end) = self.strings[value.at()];
                Kind::Str(&self.text[start as usize..end as usize])
            }
            LIST => Kind::List(match self.lists[value.at()] {
                Items::Slice { start, len } => &self.values[start..start + len],
                Items::Own(own) => &self.own[own],
            }),
            DICT => {
                let (shape, start) = self.dicts[value.at()];
                if shape == OWN_KEYS {
                    let (keys, values) = &self.own_dicts[start as usize];
                    return Kind::Dict(Dict { keys, values });
                }
                let keys = &self.shapes[shape as usize];
                Kind::Dict(Dict { keys, values: &self.values[start as usize..start as usize + keys.len()] })
            }
            _ => match value.0 {
                TRUE => Kind::Bool(true),
                FALSE => Kind::Bool(false),
                _ => Kind::None,
            },
        }
    }

    /// A whole number.
    pub(super) fn int(&mut self, value: i128) -> Value {
        if let Ok(small) = i64::try_from(value)
            && (small << 3) >> 3 == small
        {
            return Value((small << 3).cast_unsigned() | INT);
        }
        self.wide.push(value);
        Value::place(WIDE_INT, self.wide.len() - 1)
    }

    /// Any other number.
    pub(super) fn float(&mut self, value: f64) -> Value {
        self.floats.push(value);
        Value::place(FLOAT, self.floats.len() - 1)
    }

    /// Text; equal texts are the same value.
    pub(super) fn str(&mut self, text: &str) -> Result<Value, TooLarge> {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
        let same = self.by_hash.entry(hash).or_default();
        for &at in same.iter() {
            let (start, end) = self.strings[at as usize];
            if &self.text[start as usize..end as usize] == text {
                return Ok(Value::place(STR, at as usize));
            }
        }
        let start = place(self.text.len())?;
        let end = place(self.text.len() + text.len())?;
        let at = self.strings.len();
        same.push(place(at)?);
        self.text.push_str(text);
        self.strings.push((start, end));
        Ok(Value::place(STR, at))
    }

    /// A list with these items.
    pub(super) fn list(&mut self, items: &[Value]) -> Value {
        let start = self.values.len();
        self.values.extend_from_slice(items);
        self.lists.push(Items::Slice { start, len: items.len() });
        Value::place(LIST, self.lists.len() - 1)
    }

    /// Adds items to a list. False if it is none.
    pub(super) fn extend(&mut self, list: Value, items: &[Value]) -> bool {
        if list.tag() != LIST {
            return false;
        }
        match self.lists[list.at()] {
            Items::Slice { len: 0, .. } => {
                let start = self.values.len();
                self.values.extend_from_slice(items);
                self.lists[list.at()] = Items::Slice { start, len: items.len() };
            }
            Items::Slice { start, len } => {
                let mut own = self.values[start..start + len].to_vec();
                own.extend_from_slice(items);
                self.own.push(own);
                self.lists[list.at()] = Items::Own(self.own.len() - 1);
            }
            Items::Own(own) => self.own[own].extend_from_slice(items),
        }
        true
    }

    /// A dictionary without entries.
    pub(super) fn dict(&mut self) -> Result<Value, TooLarge> {
        if self.shapes.is_empty() {
            self.shape(Vec::new())?;
        }
        self.dicts.push((EMPTY_SHAPE, 0));
        Ok(Value::place(DICT, self.dicts.len() - 1))
    }

    /// Adds entries, key and value in turn. Ok(false) if it is no dictionary.
    pub(super) fn set(&mut self, dict: Value, entries: &[Value]) -> Result<bool, TooLarge> {
        if dict.tag() != DICT {
            return Ok(false);
        }
        let (shape, _) = self.dicts[dict.at()];
        if shape != EMPTY_SHAPE {
            return self.add(dict, entries).map(|()| true);
        }
        if entries.len() > 2 * MOST_KEYS {
            return Err(TooLarge::Keys);
        }
        let start = place(self.values.len())?;
        let shape = match self.familiar_shape(entries) {
            Some(shape) => place(shape)?,
            None => self.shape(entries.iter().step_by(2).copied().collect())?,
        };
        self.values.extend(entries.iter().skip(1).step_by(2));
        self.dicts[dict.at()] = (shape, start);
        Ok(true)
    }

    /// Adds entries to a dictionary that has some: it gets arrays of its own, which grow.
    fn add(&mut self, dict: Value, entries: &[Value]) -> Result<(), TooLarge> {
        let own = match self.dicts[dict.at()] {
            (OWN_KEYS, own) => own,
            _ => {
                let Kind::Dict(Dict { keys, values }) = self.kind(dict) else { return Ok(()) };
                let copy = (keys.to_vec(), values.to_vec());
                let own = place(self.own_dicts.len())?;
                self.own_dicts.push(copy);
                self.dicts[dict.at()] = (OWN_KEYS, own);
                own
            }
        };
        let (keys, values) = &mut self.own_dicts[own as usize];
        if keys.len() + entries.len() / 2 > MOST_KEYS {
            return Err(TooLarge::Keys);
        }
        keys.extend(entries.iter().step_by(2));
        values.extend(entries.iter().skip(1).step_by(2));
        Ok(())
    }

    /// How many dictionaries there are.
    pub(super) fn dicts(&self) -> usize {
        self.dicts.len()
    }

    /// The shape with these keys, if it is one of the first few: a snapshot has no more.
    fn familiar_shape(&self, entries: &[Value]) -> Option<usize> {
        self.shapes.iter().take(16).position(|keys| keys.iter().eq(entries.iter().step_by(2)))
    }

    fn shape(&mut self, keys: Vec<Value>) -> Result<u32, TooLarge> {
        if let Some(&shape) = self.by_keys.get(&keys) {
            return Ok(shape);
        }
        let shape = place(self.shapes.len())?;
        self.shapes.push(keys.clone());
        self.by_keys.insert(keys, shape);
        Ok(shape)
    }

    /// The value of a key of a dictionary; None where there is no such key, or the value is no dictionary.
    pub(super) fn get(&self, value: Value, key: &str) -> Option<Value> {
        match self.kind(value) {
            Kind::Dict(dict) => {
                dict.entries().rfind(|(name, _)| self.kind(*name) == Kind::Str(key)).map(|entry| entry.1)
            }
            _ => None,
        }
    }

    /// The items of a list; nothing for other values.
    pub(super) fn items(&self, value: Value) -> &[Value] {
        match self.kind(value) {
            Kind::List(items) => items,
            _ => &[],
        }
    }
}

impl<'a> Dict<'a> {
    /// Keys with their values, in order.
    pub(super) fn entries(self) -> impl DoubleEndedIterator<Item = (Value, Value)> + use<'a> {
        self.keys.iter().copied().zip(self.values.iter().copied())
    }

    /// The values, in order.
    pub(super) fn values(self) -> &'a [Value] {
        self.values
    }

    /// The keys, in order. Dictionaries with the same keys in the same order share them.
    pub(super) fn keys(self) -> &'a [Value] {
        self.keys
    }
}

impl Kind<'_> {
    /// What it is, in a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::None => "nothing",
            Kind::Bool(_) => "a truth value",
            Kind::Int(_) | Kind::Float(_) => "a number",
            Kind::Str(_) => "a text",
            Kind::List(_) => "a list",
            Kind::Dict(_) => "a dictionary",
        }
    }
}
