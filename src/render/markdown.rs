//! A table as Markdown.

use super::{is_numeric, shown};
use crate::collate::Table;

/// A pipe table: one line per row, numbers to the right, characters with a meaning escaped.
pub fn markdown(table: &Table) -> String {
    let columns = table.columns();
    let titles = columns.iter().map(|column| {
        let title = column.title.replace('\n', " ");
        escaped(&column.unit.map_or_else(|| title.clone(), |unit| format!("{title} [{unit}]")))
    });
    let rules = (0..columns.len())
        .map(|at| if is_numeric(table.rows().iter().map(|row| &row[at])) { "---:" } else { "---" }.to_owned());
    let rows = table
        .rows()
        .iter()
        .map(|row| line(row.iter().zip(columns).map(|(cell, column)| escaped(&shown(cell, column)))));
    [line(titles), line(rules)].into_iter().chain(rows).collect()
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if matches!(c, '|' | '\\' | '`' | '*' | '<' | '&' | '~') || (c == '(' && out.ends_with(']')) {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn texts_are_only_texts() {
        assert_eq!(
            escaped("a|b <i> *c* ~~d~~ &lt; `e` [f](g) [MiB]"),
            "a\\|b \\<i> \\*c\\* \\~\\~d\\~\\~ \\&lt; \\`e\\` [f]\\(g) [MiB]"
        );
    }
}
