//! `comparison.md`: everything that a results folder shows, as one page of Markdown.

use super::markdown::markdown;
use crate::collate::{self, Collation, Ranks};

/// On what the reports were measured, where there are reports.
fn circumstances(collation: &Collation) -> Option<String> {
    let mut places = Vec::new();
    for report in collation.rows.iter().filter_map(|row| row.report.as_ref()) {
        let gpu = report.rank_reports.first().map_or("an unknown device", |rank| &rank.gpu_name);
        let libtorch = report.libtorch_version.as_deref().unwrap_or(&report.pytorch_version);
        let place = format!("{gpu}, libtorch {libtorch}");
        if !places.contains(&place) {
            places.push(place);
        }
    }
    (!places.is_empty())
        .then(|| format!("Memory in MiB (2^20 bytes), the maximum over the ranks. Device: {}.\n", places.join("; ")))
}

/// The comparison, the responses to perturbations, why runs have no measurements, and which runs are not in the plan.
pub fn page(collation: &Collation) -> String {
    let plan = collation.plan.as_ref();
    let mut parts = vec![format!("# {}\n", plan.map_or("Comparison", |plan| plan.name.as_str()))];
    parts.extend(plan.and_then(|plan| plan.title.as_ref()).map(|title| format!("{title}\n")));
    parts.push(format!("{} runs: {}.\n", collation.rows.len(), collate::tally(&collation.rows)));
    parts.push(markdown(&collate::comparison(&collation.rows, Ranks::Maximum)));
    parts.extend(circumstances(collation));
    if let Some(responses) = collate::responses(collation) {
        parts.push("## Responses\n".to_owned());
        parts.push(markdown(&responses));
    }
    let said: Vec<String> = collation
        .rows
        .iter()
        .filter_map(|row| Some((row, row.state.message()?)))
        .map(|(row, message)| format!("- `{}`: {}: {}\n", row.run_id, row.state.name(), message.replace('\n', " ")))
        .collect();
    if !said.is_empty() {
        parts.push("## What runs say\n".to_owned());
        parts.push(said.concat());
    }
    if !collation.unplanned.is_empty() {
        parts.push("## Not in the plan\n".to_owned());
        parts.push("The plan no longer has these runs, and they are not in the tables.\n".to_owned());
        parts.push(format!("- `{}`\n", collation.unplanned.join("`\n- `")));
    }
    parts.join("\n")
}
