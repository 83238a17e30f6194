//! How each indicator responds to each perturbation: in MiB and in percent of the run that the perturbation changes.

use std::collections::HashMap;

use super::comparison::{indicator_columns, indicator_values};
use super::row::{Collation, Row};
use super::table::{Cell, Column, Table};
use crate::protocol::Outcome;

/// One row per perturbation, in order; none for a plan without perturbations.
///
/// The strongest response is the largest change in MiB. A percentage of zero is not known, and neither is a change of which
/// one side was not measured.
pub fn responses(collation: &Collation) -> Option<Table> {
    let plan = collation.plan.as_ref().filter(|plan| !plan.perturbations.is_empty())?;
    let rows: HashMap<&str, &Row> = collation.rows.iter().map(|row| (row.run_id.as_str(), row)).collect();
    let mut columns = vec![
        Column::new("perturbation", "perturbation"),
        Column::new("compared_with", "compared with"),
        Column::new("outcome", "outcome"),
    ];
    for column in indicator_columns() {
        let percent = format!("{}_percent", column.key.trim_end_matches("_mib"));
        columns.push(Column { key: format!("{}_by", column.key).into(), ..column });
        columns.push(Column { unit: Some("%"), decimals: 1, ..Column::new(percent, "") });
    }
    columns.push(Column::new("strongest", "strongest response"));
    let mut table = Table::new(columns);
    for perturbation in &plan.perturbations {
        let changed = rows.get(perturbation.run_id.as_str());
        let from = perturbation.from.as_ref().or(plan.base.as_ref()).and_then(|run_id| rows.get(run_id.as_str()));
        let compared = from.map(|row| row.label.as_deref().unwrap_or(&row.run_id));
        let mut cells =
            vec![Cell::from(&*perturbation.label), compared.into(), changed.map(|row| row.state.name()).into()];
        // What a run measured before it was out of memory is no response.
        let values = |row: Option<&&Row>| match row {
            Some(row) if row.outcome() == Some(Outcome::Ok) => indicator_values(&row.indicators()),
            _ => [None; 4],
        };
        let mut strongest: Option<(f64, String)> = None;
        for ((before, after), column) in values(from).into_iter().zip(values(changed)).zip(indicator_columns()) {
            let change = before.zip(after).map(|(before, after)| after - before);
            let percent = before
                .filter(|before| before.abs() > 0.0)
                .zip(change)
                .map(|(before, change)| change / before.abs() * 100.0);
            cells.extend([change.into(), percent.into()]);
            if let Some(size) =
                change.map(f64::abs).filter(|size| *size > strongest.as_ref().map_or(0.0, |(most, _)| *most))
            {
                strongest = Some((size, column.title.replace('\n', " ")));
            }
        }
        cells.push(strongest.map(|(_, name)| name).into());
        table.push(cells);
    }
    Some(table)
}
