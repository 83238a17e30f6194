//! From what each rank left to the run's report: everybody's samples, and who is to blame where the run failed.

use std::collections::BTreeMap;

use memlab::protocol::{Activity, Failure, Outcome, Report};
use serde::{Deserialize, Serialize};

/// What one rank leaves at its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The report as if the rank had been alone.
    pub(crate) report: Report,
    /// Whether it failed because others did: what it says then is a consequence.
    pub(crate) consequence: bool,
}

impl Part {
    /// Whether the rank failed.
    pub(crate) fn failed(&self) -> bool {
        self.report.outcome() != Outcome::Ok
    }

    /// Where the rank was when it failed, in the order of training.
    fn place(&self) -> Option<(i64, Activity)> {
        let failure = self.report.failure.as_ref().map(|failure| (failure.step, failure.during));
        failure.or_else(|| self.report.oom.as_ref().map(|oom| (oom.step, oom.during)))
    }
}

/// What a rank did when it was last heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Where it runs.
    pub(crate) hostname: String,
    /// The step, -1 before training.
    pub(crate) step: i64,
    /// What it did.
    pub(crate) during: Activity,
}

/// Why a run failed, the more telling first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blame {
    /// A rank said that it failed, for a reason of its own.
    Failed,
    /// A rank said nothing.
    Silent,
    /// A rank did not come far in its time: the earlier, the more telling.
    Late(i64, usize),
    /// A rank noticed that others failed, or was ended.
    Consequence,
}

/// The run's report. Of several ranks that failed, the one with the most telling reason is named, and of those the first.
pub(crate) fn merge(world_size: u64, parts: &BTreeMap<u64, Part>, seen: &BTreeMap<u64, Seen>) -> Option<Report> {
    let (&first, part) = parts.first_key_value()?;
    let mut report = part.report.clone();
    report.rank_reports = parts.values().flat_map(|part| part.report.rank_reports.iter().cloned()).collect();
    if first != 0 {
        report.final_loss_rank_zero = None;
        report.hostname_rank_zero = seen.get(&0).map(|seen| seen.hostname.clone()).unwrap_or_default();
    }
    if parts.len() as u64 == world_size && !parts.values().any(Part::failed) {
        return Some(report);
    }
    let guilty = (0..world_size).filter_map(|rank| Some((blame(parts.get(&rank))?, rank))).min();
    let (_, rank) = guilty?;
    match parts.get(&rank) {
        Some(guilty) => {
            report.outcome = guilty.report.outcome;
            report.oom.clone_from(&guilty.report.oom);
            report.failure.clone_from(&guilty.report.failure);
            if let Some(failure) = &mut report.failure {
                failure.message = format!("rank {rank}: {}", failure.message);
            }
        }
        None => {
            report.outcome = Some(time_was_over(parts).unwrap_or(Outcome::Error));
            report.oom = None;
            report.failure = Some(silence(rank, seen.get(&rank)));
        }
    }
    Some(report)
}

fn blame(part: Option<&Part>) -> Option<Blame> {
    let Some(part) = part else { return Some(Blame::Silent) };
    match part.report.outcome() {
        Outcome::Ok => None,
        Outcome::Cancelled => Some(Blame::Consequence),
        _ if part.consequence => Some(Blame::Consequence),
        Outcome::Timeout => {
            let (step, during) = part.place().unwrap_or((-1, Activity::Model));
            let order = Activity::ALL.iter().position(|activity| *activity == during).unwrap_or(0);
            Some(Blame::Late(step, order))
        }
        _ => Some(Blame::Failed),
    }
}

/// `timeout` where the other ranks' time was over.
fn time_was_over(parts: &BTreeMap<u64, Part>) -> Option<Outcome> {
    parts.values().map(|part| part.report.outcome()).find(|outcome| *outcome == Outcome::Timeout)
}

fn silence(rank: u64, seen: Option<&Seen>) -> Failure {
    match seen {
        Some(Seen { step, during, hostname }) => {
            let (step, during) = (*step, *during);
            let place = if step < 0 { during.to_string() } else { format!("{during} of step {step}") };
            let message =
                format!("rank {rank} on {hostname} was last heard of in {place}, and did not say why it ended");
            Failure { rank, step, during, message }
        }
        None => {
            let message = format!("rank {rank} never came to where the ranks meet");
            Failure { rank, step: -1, during: Activity::Model, message }
        }
    }
}
