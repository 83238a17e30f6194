//! One output format per file. Everything here turns data into text; nothing prints.

mod annotations;
mod csv;
mod diagnostic;
mod figures;
mod html;
mod json;
mod junit;
mod markdown;
mod page;
mod sparkline;
mod svg;
mod table;
mod verdict;
mod verdict_markdown;
mod verdict_table;

pub use self::csv::{csv, csv_rows};
pub use annotations::annotations;
pub use diagnostic::diagnostic;
pub use figures::figures;
pub use html::{Page, Recording, html};
pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
pub use page::page;
pub use sparkline::sparkline;
pub use table::table;
pub use verdict::{tally, verdicts};
pub use verdict_markdown::verdicts_markdown;
pub use verdict_table::verdict_table;

use crate::collate::{Cell, Column};

/// A cell for people: rounded to the column's decimals, on one line, a dash for what is not known.
fn shown(cell: &Cell, column: &Column) -> String {
    match cell {
        Cell::Empty => "-".to_owned(),
        Cell::Text(text) => text.split(char::is_control).collect::<Vec<_>>().join(" "),
        Cell::Integer(value) => value.to_string(),
        Cell::Number(value) => {
            let text = format!("{value:.*}", column.decimals);
            // A value that rounds to zero has no sign.
            match text.strip_prefix('-') {
                Some(zero) if zero.chars().all(|c| matches!(c, '0' | '.')) => zero.to_owned(),
                _ => text,
            }
        }
    }
}

/// Whether a column holds numbers and is aligned right.
fn is_numeric<'a>(mut cells: impl Iterator<Item = &'a Cell>) -> bool {
    cells.all(|cell| !matches!(cell, Cell::Text(_)))
}
