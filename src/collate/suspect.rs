//! Whether failures have a machine in common.

use std::collections::{BTreeMap, BTreeSet};

use super::row::Row;
use crate::protocol::Outcome;
use crate::store::ResultsFolder;

/// The machine on which all runs were that failed, and none that finished, while others finished elsewhere; with how many failed.
/// One failure is no evidence, and who was cancelled did not fail.
pub fn suspect(folder: &ResultsFolder, rows: &[Row]) -> Option<(String, usize)> {
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    let mut well = BTreeSet::new();
    for row in rows {
        let Some(outcome) = row.outcome().filter(|outcome| *outcome != Outcome::Cancelled) else { continue };
        let Some(status) = folder.run(&row.run_id).status().ok().flatten() else { continue };
        if status.hostname.is_empty() {
            continue; // nobody knows any more where it was
        }
        if outcome.is_finished() {
            well.insert(status.hostname);
        } else {
            *failed.entry(status.hostname).or_default() += 1;
        }
    }
    let (host, count) = failed.pop_first()?;
    let alone = failed.is_empty() && count > 1 && !well.is_empty() && !well.contains(&host);
    alone.then_some((host, count))
}
