//! A table as data.

use std::borrow::Cow;

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Not known, or without meaning here. Never written as zero.
    Empty,
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A finite number. Formats for programs write it so that it reads back equal.
    Number(f64),
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Cell::Empty, Cell::Number)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Some(value).into()
    }
}

impl From<u64> for Cell {
    /// A number beyond `i64` keeps its digits as text.
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or_else(|_| Cell::Text(value.to_string()), Cell::Integer)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Cell::Integer(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Cell::Text(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell
where
    T: NotFloat,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Empty, Into::into)
    }
}

/// Types for which `Some` is always a value; a float may be not a number, and has its own conversion.
pub trait NotFloat {}
impl NotFloat for u64 {}
impl NotFloat for i64 {}
impl NotFloat for &str {}
impl NotFloat for String {}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name for programs: the CSV header and the JSON key.
    pub key: Cow<'static, str>,
    /// Name for people.
    pub title: Cow<'static, str>,
    /// Unit, shown with the title.
    pub unit: Option<&'static str>,
    /// Decimal places shown to people.
    pub decimals: usize,
}

impl Column {
    /// A column without unit.
    pub fn new(key: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Self {
        Self { key: key.into(), title: title.into(), unit: None, decimals: 2 }
    }

    /// A column in MiB.
    pub fn mib(key: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Self {
        Self { unit: Some("MiB"), ..Self::new(key, title) }
    }

    /// A column in bytes.
    pub fn bytes(key: impl Into<Cow<'static, str>>, title: impl Into<Cow<'static, str>>) -> Self {
        Self { unit: Some("B"), ..Self::new(key, title) }
    }

    /// Sets the decimal places.
    #[must_use]
    pub fn decimals(self, decimals: usize) -> Self {
        Self { decimals, ..self }
    }
}

/// Rows under columns. Every row has one cell per column.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns.
    columns: Vec<Column>,
    /// The rows, in order.
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. A row of another length is cut or filled with empty cells, so that the header covers it.
    pub fn push(&mut self, mut row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "one cell per column");
        row.resize(self.columns.len(), Cell::Empty);
        self.rows.push(row);
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows, in order.
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// The same table without those of the named columns that are empty in every row.
    #[must_use]
    pub fn without_empty(self, keys: &[&str]) -> Self {
        let is_empty = |at: usize| self.rows.iter().all(|row| row[at] == Cell::Empty);
        let keep: Vec<bool> = (0..)
            .zip(&self.columns)
            .map(|(at, column)| !(keys.contains(&column.key.as_ref()) && is_empty(at)))
            .collect();
        Self { columns: kept(self.columns, &keep), rows: self.rows.into_iter().map(|row| kept(row, &keep)).collect() }
    }
}

fn kept<T>(items: Vec<T>, keep: &[bool]) -> Vec<T> {
    items.into_iter().zip(keep).filter_map(|(item, keep)| keep.then_some(item)).collect()
}
