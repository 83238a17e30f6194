//! A table as comma-separated values (RFC 4180, line feeds), for programs.

use crate::collate::{Cell, Table};

/// One header line that covers every row. Numbers are written so that they read back equal, the unknown as nothing.
pub fn csv(table: &Table) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut record: Vec<String> = table.columns().iter().map(|column| column.key.to_string()).collect();
    // Writing to memory does not fail, and every record has the header's length.
    let _ = writer.write_record(&record);
    for row in table.rows() {
        record.clear();
        record.extend(row.iter().map(|cell| match cell {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Integer(value) => value.to_string(),
            Cell::Number(value) => value.to_string(),
        }));
        let _ = writer.write_record(&record);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
