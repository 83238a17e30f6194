//! Slurm's words for where a job stands.

use crate::protocol::Outcome;

/// Where a task stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It waits.
    Waiting,
    /// It runs, or is about to, or is ending.
    Active,
    /// It will not run any more.
    Over(Verdict),
    /// A word that this table does not have: waited for, with one warning.
    Unknown,
}

/// How a task that is over ended, in Slurm's opinion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// With exit code 0.
    Completed,
    /// In another way that the run knows better than Slurm.
    Failed,
    /// In a way that Slurm knows better than the run.
    Ended(Outcome),
}

/// Every state that Slurm documents (squeue, sacct; job and scheduling states), with what it means here.
pub(super) const STATES: &[(&str, &str, JobState)] = &[
    ("BOOT_FAIL", "BF", JobState::Over(Verdict::Ended(Outcome::NodeFail))),
    ("CANCELLED", "CA", JobState::Over(Verdict::Ended(Outcome::Cancelled))),
    ("COMPLETED", "CD", JobState::Over(Verdict::Completed)),
    ("CONFIGURING", "CF", JobState::Active),
    ("COMPLETING", "CG", JobState::Active),
    ("DEADLINE", "DL", JobState::Over(Verdict::Ended(Outcome::Timeout))),
    ("EXPEDITING", "EX", JobState::Active),
    ("FAILED", "F", JobState::Over(Verdict::Failed)),
    ("LAUNCH_FAILED", "LF", JobState::Over(Verdict::Ended(Outcome::NodeFail))),
    ("NODE_FAIL", "NF", JobState::Over(Verdict::Ended(Outcome::NodeFail))),
    ("OUT_OF_MEMORY", "OOM", JobState::Over(Verdict::Ended(Outcome::HostOom))),
    ("PENDING", "PD", JobState::Waiting),
    ("POWER_UP_NODE", "PU", JobState::Active),
    ("PREEMPTED", "PR", JobState::Over(Verdict::Ended(Outcome::Preempted))),
    ("RECONFIG_FAIL", "RCF", JobState::Over(Verdict::Ended(Outcome::NodeFail))),
    ("REQUEUED", "RQ", JobState::Waiting),
    ("REQUEUE_FED", "RF", JobState::Waiting),
    ("REQUEUE_HOLD", "RH", JobState::Waiting),
    ("RESIZING", "RS", JobState::Active),
    ("RESV_DEL_HOLD", "RD", JobState::Waiting),
    ("REVOKED", "RV", JobState::Over(Verdict::Ended(Outcome::Cancelled))),
    ("RUNNING", "R", JobState::Active),
    ("SIGNALING", "SI", JobState::Active),
    ("SPECIAL_EXIT", "SE", JobState::Waiting),
    ("STAGE_OUT", "SO", JobState::Active),
    ("STOPPED", "ST", JobState::Active),
    ("SUSPENDED", "S", JobState::Active),
    ("TIMEOUT", "TO", JobState::Over(Verdict::Ended(Outcome::Timeout))),
    ("UPDATE_DB", "UD", JobState::Active),
];

impl JobState {
    /// Reads a state as any of Slurm's programs writes it: `CANCELLED by 1000`, `OUT_OF_ME+`, `TO`.
    pub fn read(text: &str) -> Self {
        let word = text.split_whitespace().next().unwrap_or_default();
        let start = word.strip_suffix('+').filter(|start| !start.is_empty());
        let known = STATES.iter().find(|(name, code, _)| {
            *name == word || *code == word || start.is_some_and(|start| name.starts_with(start))
        });
        known.map_or(JobState::Unknown, |(.., state)| *state)
    }

    /// Whether it will not run any more.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Over(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_slurm_writes_them() {
        for (text, state) in [
            ("CANCELLED by 1000", JobState::Over(Verdict::Ended(Outcome::Cancelled))),
            ("CANCELLED+", JobState::Over(Verdict::Ended(Outcome::Cancelled))),
            ("OUT_OF_MEMORY", JobState::Over(Verdict::Ended(Outcome::HostOom))),
            ("OUT_OF_ME+", JobState::Over(Verdict::Ended(Outcome::HostOom))),
            ("TO", JobState::Over(Verdict::Ended(Outcome::Timeout))),
            ("PD", JobState::Waiting),
            ("REQUEUED", JobState::Waiting),
            ("COMPLETING", JobState::Active),
            ("SOMETHING_NEW", JobState::Unknown),
            ("", JobState::Unknown),
        ] {
            assert_eq!(JobState::read(text), state, "{text}");
        }
    }

    #[test]
    fn every_word_means_one_thing() {
        let mut words: Vec<&str> = STATES.iter().flat_map(|(name, code, _)| [*name, *code]).collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
