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
    /// A rank noticed that others are gone.
    Noticed,
    /// A rank was ended.
    Ended,
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
    let (blame, rank) = (0..world_size).filter_map(|rank| Some((blame(parts.get(&rank))?, rank))).min()?;
    if let Some(guilty) = parts.get(&rank) {
        report.outcome = guilty.report.outcome;
        report.oom.clone_from(&guilty.report.oom);
        report.failure.clone_from(&guilty.report.failure);
        // Of a run that was ended as a whole no rank is to blame.
        if let Some(failure) = report.failure.as_mut().filter(|_| world_size > 1 && blame != Blame::Ended) {
            failure.message = format!("rank {rank}: {}", failure.message);
        }
    } else {
        let mut failure = silence(rank, seen);
        if let Some(late) = parts.values().find(|part| part.report.outcome() == Outcome::Timeout) {
            report.outcome = Some(Outcome::Timeout);
            if let Some(limit) = &late.report.failure {
                failure.message = format!("{}: {}", limit.message, failure.message);
            }
        } else {
            // Who came and left no word was ended from outside.
            report.outcome = Some(if seen.contains_key(&rank) { Outcome::Killed } else { Outcome::Error });
        }
        report.oom = None;
        report.failure = Some(failure);
    }
    Some(report)
}

fn blame(part: Option<&Part>) -> Option<Blame> {
    let Some(part) = part else { return Some(Blame::Silent) };
    match part.report.outcome() {
        Outcome::Ok => None,
        Outcome::Cancelled => Some(Blame::Ended),
        _ if part.consequence => Some(Blame::Noticed),
        Outcome::Timeout => {
            let (step, during) = part.place().unwrap_or((-1, Activity::Model));
            let order = Activity::ALL.iter().position(|activity| *activity == during).unwrap_or(0);
            Some(Blame::Late(step, order))
        }
        _ => Some(Blame::Failed),
    }
}

fn silence(rank: u64, seen: &BTreeMap<u64, Seen>) -> Failure {
    let Some(Seen { step, during, hostname }) = seen.get(&rank) else {
        // Whoever gathers was there itself.
        let message = if seen.is_empty() {
            format!("nothing is known of rank {rank}: the place where the ranks meet cannot be reached")
        } else {
            format!("rank {rank} never came to where the ranks meet")
        };
        return Failure { rank, step: -1, during: Activity::Model, message };
    };
    let (step, during) = (*step, *during);
    let place = if step < 0 { during.to_string() } else { format!("{during} of step {step}") };
    let message = format!("rank {rank} on {hostname} was last heard of in {place}, and did not say why it ended");
    Failure { rank, step, during, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memlab::protocol::Oom;
    use serde_json::json;

    fn part(rank: u64, outcome: Outcome) -> Part {
        let samples: [(); 0] = [];
        let report = json!({
            "batch_size_per_device": 2, "case": "alpha", "cuda_version": null, "exercise": "", "final_loss_rank_zero": 1.5,
            "hostname_rank_zero": format!("host{rank}"), "measurement_notes": {}, "parameter_count": 1,
            "model_config": {
                "attention_heads": 1, "classes": 1, "feedforward_size": 1, "hidden_size": 1, "layers": 1,
                "sequence_length": 1, "vocabulary_size": 1,
            },
            "parameters_fp32_mib": 1.0, "precision": "fp32", "preset": "small", "python_version": null,
            "pytorch_version": "2.11.0", "rank_zero_extra_samples": 0, "seed": 1, "slurm_job_id": null, "steps": 3,
            "world_size": 3,
            "rank_reports": [{
                "device_free_at_end_mib": null, "device_total_mib": null, "gpu_name": "", "local_batch_size": 2,
                "local_rank": rank, "rank": rank, "samples": samples, "snapshot": null,
                "indicators": {
                    "between_step_growth_mib": null, "first_step_persistent_change_mib": null,
                    "largest_forward_increase_mib": null, "maximum_peak_allocated_mib": null,
                },
            }],
        });
        let mut report: Report = serde_json::from_value(report).unwrap();
        report.outcome = Some(outcome);
        if outcome != Outcome::Ok {
            let message = format!("rank {rank} says {outcome}");
            report.failure = Some(Failure { rank, step: 1, during: Activity::Backward, message });
        }
        Part { report, consequence: false }
    }

    fn parts(of: impl IntoIterator<Item = Part>) -> BTreeMap<u64, Part> {
        of.into_iter().map(|part| (part.report.rank_reports[0].rank, part)).collect()
    }

    fn seen(step: i64) -> Seen {
        Seen { hostname: "host1".to_owned(), step, during: Activity::Backward }
    }

    #[test]
    fn a_report_has_every_rank_in_order() {
        let report = merge(3, &parts([2, 0, 1].map(|rank| part(rank, Outcome::Ok))), &BTreeMap::new()).unwrap();
        assert_eq!(report.rank_reports.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((report.outcome(), report.hostname_rank_zero.as_str()), (Outcome::Ok, "host0"));
    }

    #[test]
    fn the_rank_that_failed_goes_before_those_that_noticed() {
        let mut refused = part(2, Outcome::Oom);
        refused.report.failure = None;
        let message = "no room".to_owned();
        let (step, during, requested_mib, capacity_mib) = (1, Activity::Forward, Some(2.0), None);
        refused.report.oom = Some(Oom { rank: 2, step, during, requested_mib, capacity_mib, message });
        let noticed = Part { consequence: true, ..part(0, Outcome::Error) };
        let report = merge(3, &parts([noticed, part(1, Outcome::Cancelled), refused]), &BTreeMap::new()).unwrap();
        assert_eq!((report.outcome(), report.oom.unwrap().rank), (Outcome::Oom, 2));
        assert!(report.failure.is_none());
    }

    #[test]
    fn the_rank_that_cannot_reach_the_others_goes_before_those_that_were_ended() {
        let unreachable = Part { consequence: true, ..part(1, Outcome::Error) };
        let report = merge(2, &parts([part(0, Outcome::Cancelled), unreachable]), &BTreeMap::new()).unwrap();
        assert_eq!((report.outcome(), report.failure.unwrap().rank), (Outcome::Error, 1));
    }

    #[test]
    fn of_a_run_that_was_ended_as_a_whole_no_rank_is_to_blame() {
        let ended = [0, 1].map(|rank| part(rank, Outcome::Cancelled));
        let report = merge(2, &parts(ended), &BTreeMap::new()).unwrap();
        assert_eq!(report.failure.unwrap().message, "rank 0 says cancelled");
    }

    #[test]
    fn a_rank_without_a_word_is_named_with_its_place() {
        let noticed = Part { consequence: true, ..part(0, Outcome::Error) };
        let report = merge(2, &parts([noticed.clone()]), &BTreeMap::from([(1, seen(4))])).unwrap();
        let failure = report.failure.unwrap();
        assert_eq!((report.outcome, failure.rank, failure.step), (Some(Outcome::Killed), 1, 4));
        assert_eq!(
            failure.message,
            "rank 1 on host1 was last heard of in backward of step 4, and did not say why it ended"
        );
        // It never came, so nothing ended it that is known of.
        let report = merge(2, &parts([noticed.clone()]), &BTreeMap::from([(0, seen(4))])).unwrap();
        assert_eq!(report.outcome(), Outcome::Error);
        assert_eq!(report.failure.unwrap().message, "rank 1 never came to where the ranks meet");
        // The store is gone, and with it what was known of the others.
        let report = merge(2, &parts([noticed]), &BTreeMap::new()).unwrap();
        let message = "nothing is known of rank 1: the place where the ranks meet cannot be reached";
        assert_eq!(report.failure.unwrap().message, message);
    }

    #[test]
    fn rank_zero_may_be_the_one_that_is_missing() {
        let noticed = Part { consequence: true, ..part(1, Outcome::Error) };
        let report = merge(2, &parts([noticed]), &BTreeMap::from([(0, seen(0))])).unwrap();
        assert_eq!(report.failure.unwrap().rank, 0);
        assert_eq!((report.final_loss_rank_zero, report.hostname_rank_zero.as_str()), (None, "host1"));
    }

    #[test]
    fn of_ranks_whose_time_is_over_the_silent_and_then_the_latest_is_named() {
        let mut late = part(1, Outcome::Timeout);
        late.report.failure.as_mut().unwrap().step = 0;
        let late = parts([part(0, Outcome::Timeout), late]);
        let report = merge(2, &late, &BTreeMap::new()).unwrap();
        assert_eq!((report.outcome(), report.failure.unwrap().rank), (Outcome::Timeout, 1));
        let report = merge(3, &late, &BTreeMap::from([(2, seen(1))])).unwrap();
        let failure = report.failure.unwrap();
        assert_eq!((report.outcome, failure.rank), (Some(Outcome::Timeout), 2));
        assert!(failure.message.starts_with("rank 0 says timeout: rank 2 on host1 was last heard of"), "{failure:?}");
    }
}
