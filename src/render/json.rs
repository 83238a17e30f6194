//! A table as JSON: a list of objects with the columns' keys, in the columns' order.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::collate::{Cell, Table};

/// One object per row; the unknown is null.
pub fn json(table: &Table) -> String {
    let rows: Vec<Row<'_>> = table.rows().iter().map(|cells| Row { table, cells }).collect();
    // Keys are text and numbers finite, so this does not fail.
    let text = serde_json::to_string_pretty(&rows).unwrap_or_default();
    format!("{text}\n")
}

struct Row<'a> {
    table: &'a Table,
    cells: &'a [Cell],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.cells.len()))?;
        for (column, cell) in self.table.columns().iter().zip(self.cells) {
            match cell {
                Cell::Empty => map.serialize_entry(&column.key, &())?,
                Cell::Text(text) => map.serialize_entry(&column.key, text)?,
                Cell::Integer(value) => map.serialize_entry(&column.key, value)?,
                Cell::Number(value) => map.serialize_entry(&column.key, value)?,
            }
        }
        map.end()
    }
}
