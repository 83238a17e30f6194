//! A table as aligned columns, for a terminal or a log.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid};

use super::{is_numeric, shown};
use crate::collate::Table;

/// Between columns.
const GAP: usize = 2;

/// Aligned columns under a header with units, numbers to the right, one line per row.
///
/// Where a width is given and the columns do not fit into it, those that do not fit follow below, under the first column once
/// more; a column that does not fit beside the first one alone is wrapped. Nothing is left out.
pub fn table(table: &Table, width: Option<usize>) -> String {
    let all: Vec<usize> = (0..table.columns().len()).collect();
    let widths = grid(table, &all).column_max_content_widths();
    let widths: Vec<usize> = widths.into_iter().map(usize::from).collect();
    let width = width.unwrap_or(usize::MAX);
    let blocks = blocks(&widths, width).into_iter().map(|(columns, needed)| {
        let mut grid = grid(table, &columns);
        if needed > width {
            // The first column tells the rows apart, and stays whole.
            if let Some(first) = grid.column_mut(0) {
                first.set_constraint(ColumnConstraint::ContentWidth);
            }
            grid.set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        format!("{}\n", grid.trim_fmt())
    });
    blocks.collect::<Vec<_>>().join("\n")
}

/// Columns that fit side by side into a width, each time with the first one, and the width that they need.
fn blocks(widths: &[usize], width: usize) -> Vec<(Vec<usize>, usize)> {
    let mut blocks: Vec<(Vec<usize>, usize)> = Vec::new();
    for (at, own) in widths.iter().copied().enumerate() {
        match blocks.last_mut() {
            // The first column alone is no block.
            Some((columns, needed)) if *needed + GAP + own <= width || columns.len() == 1 => {
                columns.push(at);
                *needed += GAP + own;
            }
            None => blocks.push((vec![at], own)),
            Some(_) => blocks.push((vec![0, at], widths[0] + GAP + own)),
        }
    }
    blocks
}

/// Some of a table's columns, laid out.
fn grid(table: &Table, columns: &[usize]) -> Grid {
    let titles: Vec<String> = columns
        .iter()
        .map(|at| &table.columns()[*at])
        .map(|column| {
            column.unit.map_or_else(|| column.title.to_string(), |unit| format!("{}\n[{unit}]", column.title))
        })
        .collect();
    // The last line of every title stands right above its column.
    let height = titles.iter().map(|title| title.lines().count()).max().unwrap_or(0);
    let header = titles.iter().map(|title| format!("{}{title}", "\n".repeat(height - title.lines().count())));
    let mut grid = Grid::new();
    grid.load_style(NOTHING).set_header(header.collect::<Vec<_>>());
    for row in table.rows() {
        grid.add_row(columns.iter().map(|at| shown(&row[*at], &table.columns()[*at])).collect::<Vec<_>>());
    }
    for (place, at) in columns.iter().enumerate() {
        if let Some(column) = grid.column_mut(place) {
            column.set_padding((0, 2));
            if is_numeric(table.rows().iter().map(|row| &row[*at])) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Column;

    fn example() -> Table {
        let mut table = Table::new(vec![
            Column::new("run_id", "run"),
            Column::new("case", "case"),
            Column::mib("peak_mib", "maximum\npeak"),
            Column::new("message", "message"),
        ]);
        for (run, peak, message) in
            [("alpha-b1", 133.17, "-"), ("alpha-b4", 211.625, "the process ended without a word")]
        {
            table.push(vec![run.into(), "alpha".into(), peak.into(), message.into()]);
        }
        table
    }

    #[test]
    fn what_does_not_fit_follows_below() {
        assert_eq!(table(&example(), Some(58)), table(&example(), None));
        let expected = "                 maximum
                    peak
run       case     [MiB]
alpha-b1  alpha   133.17
alpha-b4  alpha   211.62

run       message
alpha-b1  -
alpha-b4  the process ended
          without a word
";
        assert_eq!(table(&example(), Some(32)), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let widest = |width| table(&example(), Some(width)).lines().map(str::len).max();
        for width in 17..70 {
            assert!(widest(width) <= Some(width), "{width}:\n{}", table(&example(), Some(width)));
        }
        // Where not even the first column fits, nothing is lost.
        assert!(table(&example(), Some(4)).contains("alpha-b4"));
    }
}
