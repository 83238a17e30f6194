//! Where a run of a job stands: what it says of itself, reconciled with what Slurm says of its job.
//!
//! The run's own word comes first. Slurm decides only what the run could not say: that it was ended from outside, and why. Neither
//! a queue that does not answer nor a file that is not there yet ends a run.

use std::path::Path;

use super::queue::Sighting;
use super::states::{JobState, Verdict};
use crate::exec::outcome::last_lines;
use crate::protocol::Outcome;
use crate::store::State;
use crate::units::format_duration;

/// What is known of a run.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// What the run itself says, of this job and no earlier one.
    pub(super) own: &'a State,
    /// What the queue says of its task; none where it no longer has it.
    pub(super) seen: Option<&'a Sighting>,
    /// How many runs the task executes.
    pub(super) runs: usize,
    /// Whether files have had time to appear since the task was over.
    pub(super) waited: bool,
    /// Seconds since the run's last sign of life, where it gave one.
    pub(super) silent: Option<u64>,
    /// The task's log.
    pub(super) log: &'a Path,
}

/// What follows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing yet.
    Wait,
    /// It is as the run says.
    Keep,
    /// It ended in this way, which its status does not say yet.
    Write(Outcome, String),
}

/// Longer than a heartbeat, with room for a network file system that shows files late.
const SILENCE: u64 = 60;

pub(super) fn decide(evidence: &Evidence<'_>) -> Decision {
    let verdict = match evidence.seen.map(|seen| (seen, seen.state)) {
        Some((seen, JobState::Over(verdict))) => Some((seen, verdict)),
        Some(_) => {
            // Ended from outside while its job lives: it was requeued, or Slurm has yet to say why.
            return if is_final(evidence.own) { Decision::Keep } else { Decision::Wait };
        }
        None => None,
    };
    // Some clusters call a job FAILED that they ended for its memory, and say why only in its log.
    let out_of_memory = match (evidence.own, verdict) {
        (State::Ended { outcome, .. }, Some(_)) if is_from_outside(*outcome) || *outcome == Outcome::Error => {
            memory_limit(evidence.log)
        }
        (State::Running(_) | State::Missing, Some(_)) => memory_limit(evidence.log),
        _ => None,
    };
    if let (Some(said), Some((seen, _))) = (out_of_memory, verdict) {
        return Decision::Write(Outcome::HostOom, format!("{}: {said}", describe(seen)));
    }
    match (evidence.own, verdict) {
        (State::Ended { outcome: Outcome::Ok, .. }, Some((seen, Verdict::Ended(Outcome::HostOom))))
            if evidence.runs == 1 =>
        {
            let why = format!("it was measured, but Slurm says {} of job {}: not to be relied on", seen.word, seen.job);
            Decision::Write(Outcome::HostOom, why)
        }
        (State::Ended { outcome, message }, Some((seen, Verdict::Ended(better))))
            if *outcome != better
                && (is_from_outside(*outcome) || better == Outcome::HostOom && *outcome == Outcome::Error) =>
        {
            let own = message.as_deref().map(|message| format!("; the run itself: {message}")).unwrap_or_default();
            Decision::Write(better, format!("{}{own}", describe(seen)))
        }
        (State::Ended { .. }, _) => Decision::Keep,
        _ if !evidence.waited => Decision::Wait,
        // A run that still gives signs of life is not lost, whatever the queue knows.
        (State::Running(_), None) if evidence.silent.is_some_and(|silent| silent < SILENCE) => Decision::Wait,
        (_, Some((seen, Verdict::Ended(outcome)))) => Decision::Write(outcome, describe(seen) + &tail(evidence.log)),
        (State::Running(_), Some((seen, _))) => Decision::Write(
            Outcome::Killed,
            format!("{}, without a last word of the run{}", describe(seen), tail(evidence.log)),
        ),
        (_, Some((seen, _))) => Decision::Write(
            Outcome::Error,
            format!("{} before the run was started{}", describe(seen), tail(evidence.log)),
        ),
        (_, None) => {
            let silent = evidence
                .silent
                .map(|silent| format!(", and nothing was heard of the run for {}", format_duration(silent)));
            let why =
                format!("its job is not in the queue any more{}{}", silent.unwrap_or_default(), tail(evidence.log));
            Decision::Write(Outcome::Killed, why)
        }
    }
}

/// Whether a run said how it ended, and knows it best.
pub(super) fn is_final(own: &State) -> bool {
    own.outcome().is_some_and(|own| !is_from_outside(own))
}

/// Whether a run that says this of itself only knows that somebody ended it.
fn is_from_outside(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled | Outcome::Killed)
}

/// What Slurm's own process on the node said about the job's memory, at the end of the task's log.
fn memory_limit(log: &Path) -> Option<String> {
    const WORDS: [&str; 4] = ["exceeded memory limit", "job memory limit", "oom_kill", "Out Of Memory"];
    let said = last_lines(log, 5);
    said.into_iter().find(|line| line.starts_with("slurmstepd") && WORDS.iter().any(|word| line.contains(word)))
}

fn describe(seen: &Sighting) -> String {
    let node = if seen.node.is_empty() { String::new() } else { format!(" on {}", seen.node) };
    format!("Slurm says {} of job {}{node}", seen.word, seen.job)
}

/// Where the log is, and its last lines.
fn tail(log: &Path) -> String {
    match last_lines(log, 3) {
        lines if lines.is_empty() => format!("; nothing is in its log {}", log.display()),
        lines => format!("; its log {} ends with: {}", log.display(), lines.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::SlurmJob;

    fn seen(word: &str) -> Sighting {
        Sighting {
            job: SlurmJob { id: 7, cluster: None },
            state: JobState::read(word),
            word: word.to_owned(),
            node: "n1".to_owned(),
            reason: String::new(),
        }
    }

    fn ended(outcome: Outcome) -> State {
        State::Ended { outcome, message: None }
    }

    /// The outcome that is written; none for one of the others.
    fn written(own: &State, seen: Option<&Sighting>, waited: bool) -> Result<Outcome, Decision> {
        match decide(&Evidence { own, seen, runs: 1, waited, silent: None, log: Path::new("/no/such/log") }) {
            Decision::Write(outcome, _) => Ok(outcome),
            other => Err(other),
        }
    }

    #[test]
    fn every_state_of_slurm_leads_somewhere() {
        for (name, _, state) in super::super::states::STATES {
            let seen = seen(name);
            let decision = written(&State::Missing, Some(&seen), true);
            match state {
                JobState::Over(Verdict::Ended(outcome)) => assert_eq!(decision, Ok(*outcome), "{name}"),
                JobState::Over(_) => assert_eq!(decision, Ok(Outcome::Error), "{name}"),
                _ => assert_eq!(decision, Err(Decision::Wait), "{name}"),
            }
        }
        assert_eq!(written(&State::Missing, Some(&seen("NEW_STATE")), true), Err(Decision::Wait));
    }

    #[test]
    fn slurm_corrects_only_what_the_run_could_not_know() {
        for (own, word, outcome) in [
            (Outcome::Cancelled, "TIMEOUT", Ok(Outcome::Timeout)),
            (Outcome::Cancelled, "PREEMPTED", Ok(Outcome::Preempted)),
            (Outcome::Killed, "OUT_OF_MEMORY", Ok(Outcome::HostOom)),
            (Outcome::Error, "OUT_OF_MEMORY", Ok(Outcome::HostOom)),
            (Outcome::Ok, "OUT_OF_MEMORY", Ok(Outcome::HostOom)),
            (Outcome::Oom, "FAILED", Err(Decision::Keep)),
            (Outcome::Error, "CANCELLED by 0", Err(Decision::Keep)),
            (Outcome::Timeout, "COMPLETED", Err(Decision::Keep)),
            (Outcome::Ok, "TIMEOUT", Err(Decision::Keep)),
            (Outcome::Cancelled, "CANCELLED by 0", Err(Decision::Keep)),
        ] {
            assert_eq!(written(&ended(own), Some(&seen(word)), true), outcome, "{own} and {word}");
        }
    }

    #[test]
    fn a_memory_limit_that_only_the_log_knows_of_is_host_oom() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let word = "slurmstepd-n1: error: StepId=2.batch exceeded memory limit (110 > 104), being killed";
        std::fs::write(&log, format!("run-x begins\n{word}\n")).unwrap();
        let failed = seen("FAILED");
        for (own, expected) in [
            (State::Missing, Some(Outcome::HostOom)),
            (ended(Outcome::Killed), Some(Outcome::HostOom)),
            (ended(Outcome::Ok), None),
            (ended(Outcome::Timeout), None),
        ] {
            let evidence = Evidence { own: &own, seen: Some(&failed), runs: 1, waited: true, silent: None, log: &log };
            let outcome = match decide(&evidence) {
                Decision::Write(outcome, _) => Some(outcome),
                _ => None,
            };
            assert_eq!(outcome, expected, "{own:?}");
        }
    }

    #[test]
    fn files_that_come_late_are_waited_for() {
        assert_eq!(written(&State::Missing, Some(&seen("COMPLETED")), false), Err(Decision::Wait));
        assert_eq!(written(&State::Missing, None, false), Err(Decision::Wait));
        assert_eq!(written(&State::Missing, None, true), Ok(Outcome::Killed));
    }

    #[test]
    fn a_requeued_run_is_not_over() {
        for word in ["PENDING", "REQUEUED", "RUNNING", "COMPLETING", "SOMETHING_NEW"] {
            assert_eq!(written(&ended(Outcome::Cancelled), Some(&seen(word)), true), Err(Decision::Wait), "{word}");
        }
        // A REQUEUED that accounting shows for ever, with nothing in the queue, is no sighting at all.
        assert_eq!(written(&ended(Outcome::Cancelled), None, true), Err(Decision::Keep));
    }
}
