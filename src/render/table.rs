//! A table as aligned columns, for a terminal or a log.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table as Grid};

use super::{is_numeric, shown};
use crate::collate::Table;

/// Aligned columns under a header with units, numbers to the right, one line per row.
pub fn table(table: &Table) -> String {
    let columns = table.columns();
    let header: Vec<String> = columns
        .iter()
        .map(|column| {
            column.unit.map_or_else(|| column.title.to_string(), |unit| format!("{}\n[{unit}]", column.title))
        })
        .collect();
    // The last line of every title stands right above its column.
    let height = header.iter().map(|title| title.lines().count()).max().unwrap_or(0);
    let header = header.iter().map(|title| format!("{}{title}", "\n".repeat(height - title.lines().count())));
    let mut grid = Grid::new();
    grid.load_style(NOTHING).set_header(header.collect::<Vec<_>>());
    for row in table.rows() {
        grid.add_row(row.iter().zip(columns).map(|(cell, column)| shown(cell, column)).collect::<Vec<_>>());
    }
    for at in 0..columns.len() {
        if let Some(column) = grid.column_mut(at) {
            column.set_padding((0, 2));
            if is_numeric(table.rows().iter().map(|row| &row[at])) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    format!("{}\n", grid.trim_fmt())
}
