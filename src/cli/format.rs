//! The `--format` option, shared by every command that prints a table.

use super::console;
use crate::collate::{self, Ranks, Row, Table};
use crate::protocol::Judged;
use crate::render;

/// How a table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Aligned columns, for reading
    Table,
    /// Comma-separated values; numbers read back equal
    Csv,
    /// A list of objects
    Json,
    /// A table for a report
    Markdown,
}

impl Format {
    /// Whether it is for people rather than programs: then several tables and headings may follow one another.
    pub(super) fn is_prose(self) -> bool {
        matches!(self, Format::Table | Format::Markdown)
    }

    /// Runs beside one another: for people what matters, for programs everything.
    pub(super) fn compare(self, rows: &[Row], ranks: Ranks) -> String {
        self.render(&if self.is_prose() { collate::comparison(rows, ranks) } else { collate::results(rows, ranks) })
    }

    /// The verdicts on one experiment, for people.
    pub(super) fn verdicts(self, judged: &Judged) -> String {
        match self {
            Format::Markdown => render::verdicts_markdown(judged, 3),
            Format::Table | Format::Csv | Format::Json => render::verdicts(judged),
        }
    }

    /// The table as text, with a line break at its end.
    pub(super) fn render(self, table: &Table) -> String {
        match self {
            Format::Table => render::table(table, console::width()),
            Format::Csv => render::csv(table),
            Format::Json => render::json(table),
            Format::Markdown => render::markdown(table),
        }
    }
}

/// The option itself.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FormatOption {
    /// How to print the table
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(super) format: Format,
}
