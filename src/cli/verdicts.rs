//! Verdicts on a results folder: judged, and kept there as `verdicts.json`.

use std::collections::{HashMap, HashSet};

use super::console::Stop;
use crate::check::{self, Terms};
use crate::collate::Collation;
use crate::diag::Diagnostic;
use crate::exec::utc_now;
use crate::protocol::{BaselineVerdict, Judged, Verdicts};
use crate::store::ResultsFolder;

const FILE: &str = "verdicts.json";

/// Judges the hypotheses of a folder's plan, and keeps the verdicts. None where the plan has no hypotheses.
pub(super) fn of_hypotheses(folder: &ResultsFolder, collation: &Collation) -> Result<Option<Judged>, Stop> {
    if collation.plan.as_ref().is_none_or(|plan| plan.hypotheses.is_empty()) {
        // Those of hypotheses that were there earlier would be taken for those of today.
        folder.remove(FILE)?;
        return Ok(None);
    }
    judge(folder, collation, None, false, &HashSet::new())
}

/// The same with a baseline, and with every run that could not be judged counting. None where there is no plan.
pub(super) fn judge(
    folder: &ResultsFolder,
    collation: &Collation,
    baseline: Option<BaselineVerdict>,
    every_run: bool,
    out_of_memory: &HashSet<String>,
) -> Result<Option<Judged>, Stop> {
    let dated = |run_id: &String| Some((run_id.clone(), folder.run(run_id).first_result_at()?));
    let is_asked = collation.plan.as_ref().is_some_and(|plan| !plan.hypotheses.is_empty());
    let first_results: HashMap<String, String> =
        collation.rows.iter().filter(|_| is_asked).filter_map(|row| dated(&row.run_id)).collect();
    let now = utc_now();
    let terms = Terms { now: &now, first_results: &first_results, every_run, out_of_memory };
    let Some(judged) = check::judge(collation, baseline, &terms) else { return Ok(None) };
    folder.write(FILE, &json(&check::document(vec![judged.clone()], &now))?)?;
    Ok(Some(judged))
}

/// The document as text.
pub(super) fn json(document: &Verdicts) -> Result<String, Diagnostic> {
    serde_json::to_string_pretty(document)
        .map(|text| format!("{text}\n"))
        .map_err(|error| Diagnostic::error(format!("the verdicts cannot be written: {error}")))
}
