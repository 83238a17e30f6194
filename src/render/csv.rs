//! A table as comma-separated values (RFC 4180, line feeds), for programs.

use std::fmt::Write;

use crate::collate::{Cell, Table};

/// One header line that covers every row. Numbers are written so that they read back equal, the unknown as nothing.
pub fn csv(table: &Table) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail, and every row has the header's length.
    let _ = writer.write_record(table.columns().iter().map(|column| column.key.as_bytes()));
    text(writer) + &csv_rows(table)
}

/// The same without the header, to follow other rows.
pub fn csv_rows(table: &Table) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut number = String::new();
    for row in table.rows() {
        for cell in row {
            number.clear();
            let _ = match cell {
                Cell::Empty => Ok(()),
                Cell::Text(text) => {
                    let _ = writer.write_field(text);
                    continue;
                }
                Cell::Integer(value) => write!(number, "{value}"),
                Cell::Number(value) => write!(number, "{value}"),
            };
            let _ = writer.write_field(&number);
        }
        let _ = writer.write_record(None::<&[u8]>);
    }
    text(writer)
}

fn text(writer: csv::Writer<Vec<u8>>) -> String {
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
