//! Verdicts as one table, for programs that read CSV: a line per hypothesis, per number that changed, per run that was not measured.

use super::verdict::word;
use crate::collate::{Cell, Column, Table};
use crate::protocol::Verdicts;

/// The whole document as one table.
pub fn verdict_table(verdicts: &Verdicts) -> Table {
    let keys = ["experiment", "kind", "verdict", "subject", "what", "expected", "found", "old", "new", "difference"];
    let mut table = Table::new(keys.map(|key| Column::new(key, key)).to_vec());
    for judged in &verdicts.experiments {
        let mut push = |kind: &str, cells: [Cell; 8]| {
            table.push([judged.experiment.as_str().into(), kind.into()].into_iter().chain(cells).collect());
        };
        for verdict in &judged.hypotheses {
            let texts = [word(verdict), &verdict.claim, &verdict.measure, &verdict.expected, &verdict.found];
            let [judgement, claim, measure, expected, found] = texts.map(Cell::from);
            push("hypothesis", [judgement, claim, measure, expected, found, Cell::Empty, Cell::Empty, Cell::Empty]);
        }
        if let Some(baseline) = &judged.baseline {
            let file = baseline.file.display().to_string();
            let compared = format!("{} numbers compared, {} changed", baseline.compared, baseline.changes.len());
            push(
                "baseline",
                [
                    baseline.judgement.name().into(),
                    file.into(),
                    Cell::Empty,
                    Cell::Empty,
                    baseline.problem.clone().unwrap_or(compared).into(),
                    Cell::Empty,
                    Cell::Empty,
                    Cell::Empty,
                ],
            );
            for change in &baseline.changes {
                push(
                    "change",
                    [
                        change.kind.name().into(),
                        change.subject.as_str().into(),
                        change.what.as_str().into(),
                        change.allowed.map(|allowed| format!("within {allowed} {}", change.unit)).into(),
                        change.note.as_deref().into(),
                        change.old.into(),
                        change.new.into(),
                        change.difference.into(),
                    ],
                );
            }
        }
        for run in &judged.unmeasured {
            let [run_id, why] = [&run.run_id, &run.why].map(|text| Cell::from(text.as_str()));
            push(
                "unmeasured",
                ["undecided".into(), run_id, Cell::Empty, Cell::Empty, why, Cell::Empty, Cell::Empty, Cell::Empty],
            );
        }
    }
    table
}
