//! Where every run of a folder stands, for `memlab status`.

use std::collections::BTreeMap;

use super::row::{Collation, Row};
use super::table::{Cell, Column, Table};
use crate::protocol::{Outcome, Status};
use crate::store::{ResultsFolder, State};

/// One row per run, in the plan's order. `running` and `missing` stand beside the outcomes.
/// What a queue says of runs is shown with those that have nothing to say yet.
pub fn status(folder: &ResultsFolder, collation: &Collation, queued: &BTreeMap<String, String>) -> Table {
    let mut table = Table::new(vec![
        Column::new("run_id", "run"),
        Column::new("label", "label"),
        Column::new("state", "state"),
        Column::new("attempt", "attempt"),
        Column::new("step", "step"),
        Column::new("phase", "last phase"),
        Column::new("started_at", "started"),
        Column::new("heartbeat_at", "last sign of life"),
        Column::new("ended_at", "ended"),
        Column::new("hostname", "host"),
        Column::new("slurm_job_id", "job"),
        Column::new("message", "message"),
    ]);
    for row in &collation.rows {
        let said = queued.get(&row.run_id).filter(|_| row.state.outcome().is_none());
        let state = if said.is_some() && row.state == State::Missing { "queued" } else { row.state.name() };
        let status = folder.run(&row.run_id).status().ok().flatten();
        let of = |value: fn(&Status) -> Cell| status.as_ref().map_or(Cell::Empty, value);
        table.push(vec![
            row.run_id.as_str().into(),
            row.label.as_deref().into(),
            state.into(),
            of(|status| u64::from(status.attempt).into()),
            of(|status| status.phase.map(|(step, _)| step).into()),
            of(|status| status.phase.map(|(_, phase)| phase.name()).into()),
            of(|status| status.started_at.as_str().into()),
            of(|status| status.heartbeat_at.as_str().into()),
            of(|status| status.ended_at.as_deref().into()),
            of(|status| status.hostname.as_str().into()),
            of(|status| status.slurm_job_id.as_deref().into()),
            row.state.message().or(said.map(String::as_str)).into(),
        ]);
    }
    table.without_empty(&["label", "slurm_job_id", "message"])
}

/// How many runs are in each state, most advanced first: `10 ok, 1 error, 2 running, 3 missing`.
pub fn tally(rows: &[Row]) -> String {
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for row in rows {
        let name = row.state.name();
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    let rank = |name: &str| match name {
        "ok" => 0,
        "running" => 2,
        "missing" => 3,
        _ => 1,
    };
    counts.sort_by_key(|(name, _)| (rank(name), *name));
    counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// Whether a run failed, or is missing. Out of device memory is evidence, and a report that cannot be read says nothing of how its
/// run went.
pub fn has_failed(rows: &[Row]) -> bool {
    let is_measured = |row: &Row| row.outcome().is_some_and(Outcome::is_finished) && row.report.is_some();
    rows.iter().any(|row| !row.is_damaged && !is_measured(row))
}
