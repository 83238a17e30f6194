//! Submission, exactly once.
//!
//! Before `sbatch` is called the intent is written down, with a name that no other job has. After anything but a clear answer (a
//! time-out, a kill, words that cannot be read) the queue is asked for that name before anything is sent again.

use std::time::{Duration, Instant};

use super::client::{Answer, call};
use super::queue::Queue;
use crate::diag::Diagnostic;
use crate::exec::utc_now;
use crate::protocol::{SlurmArray, SlurmJob};
use crate::store::ArrayPlace;

/// How long a scheduler may fail before memlab gives up for now.
const PATIENCE: Duration = Duration::from_secs(600);
/// A job that a lost answer was about is in the queue by then.
const SETTLED: Duration = Duration::from_secs(15);

/// What became of an array.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// Slurm has it.
    Accepted(SlurmJob),
    /// The cluster has no room for more jobs for now; why, in Slurm's words.
    Busy(String),
    /// The user, with these, would have more jobs than are allowed; why, in Slurm's words.
    TooMany(String),
}

/// Submits an array that was not submitted yet.
///
/// # Errors
/// Slurm refuses it, or does not answer for long. In the latter case it may have been accepted; its record says so, and the next call
/// asks the queue first.
pub(super) fn submit(
    place: &ArrayPlace,
    record: &mut SlurmArray,
    queue: &mut Queue,
    on_trouble: &mut dyn FnMut(String),
) -> Result<Submitted, Diagnostic> {
    let script = place.script();
    let script = script.to_str().ok_or_else(|| Diagnostic::error("the path of the script is not UTF-8"))?;
    let mut pauses = Pauses::new();
    loop {
        record.intended_at = Some(utc_now());
        place.record(record)?;
        let answer = call("sbatch", &["--parsable", script]).map_err(|error| {
            Diagnostic::error(format!("sbatch cannot be started: {error}"))
                .help("submit where Slurm's programs are in PATH; `memlab doctor` says what is found")
        })?;
        let mut job = if answer.success { read_job(&answer.stdout) } else { None };
        let failure = Failure::of(&answer);
        if job.is_none() && !failure.is_certain {
            on_trouble(format!("sbatch: {}; asking the queue for {}", answer.complaint(), record.name));
            // Who said why there is none took the job in time, if at all.
            let patience = if failure.kind == Kind::Refused { Duration::ZERO } else { SETTLED };
            job = find(record, queue, patience, &mut pauses)?;
        }
        if let Some(job) = job {
            record.job = Some(job.clone());
            place.record(record)?;
            return Ok(Submitted::Accepted(job));
        }
        if answer.success {
            // It says that it has the job, and the queue does not: better none than two.
            return Err(Diagnostic::error(format!(
                "sbatch answered {:?}, and the queue does not have the job",
                answer.stdout
            ))
            .help("call the same command again: it asks the queue once more before it submits"));
        }
        if failure.kind != Kind::OnTheWay {
            record.intended_at = None;
            place.record(record)?;
        }
        match failure.kind {
            Kind::Busy => return Ok(Submitted::Busy(answer.complaint())),
            Kind::TooMany => return Ok(Submitted::TooMany(answer.complaint())),
            Kind::Refused => return Err(refused(&answer.complaint(), script)),
            Kind::OnTheWay => pauses.next(&answer.complaint())?,
        }
    }
}

/// Slurm's own words, and where they are about.
pub(super) fn refused(why: &str, script: &str) -> Diagnostic {
    Diagnostic::error(format!("Slurm refuses the job: {why}"))
        .note(format!("the script is {script}"))
        .help("correct [slurm] in the experiment; `sbatch --test-only` with the script says more")
}

/// Looks for a job whose answer was lost, until it would certainly be in the queue.
pub(super) fn find(
    record: &SlurmArray,
    queue: &mut Queue,
    until: Duration,
    pauses: &mut Pauses,
) -> Result<Option<SlurmJob>, Diagnostic> {
    let started = Instant::now();
    let since = record.intended_at.clone().unwrap_or_else(utc_now);
    loop {
        match queue.look(&[&record.name], &[], &super::day_before(&since)) {
            Ok(found) => {
                if let Some(sighting) = found.into_values().next() {
                    return Ok(Some(sighting.job));
                }
                if started.elapsed() >= until {
                    return Ok(None);
                }
                std::thread::sleep(Duration::from_secs(2).min(until));
            }
            Err(trouble) => pauses.next(&trouble)?,
        }
    }
}

/// Growing pauses between attempts, up to [`PATIENCE`] in all.
pub(super) struct Pauses {
    started: Instant,
    next: Duration,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), next: Duration::from_secs(1) }
    }

    fn next(&mut self, trouble: &str) -> Result<(), Diagnostic> {
        if self.started.elapsed() > PATIENCE {
            return Err(Diagnostic::error(format!("Slurm does not answer: {trouble}"))
                .help("nothing is lost: call the same command again when it does"));
        }
        std::thread::sleep(self.next);
        self.next = (self.next * 2).min(Duration::from_secs(60));
        Ok(())
    }
}

/// The number in what `sbatch --parsable` prints, whatever a site prints around it: `123`, or `123;cluster`.
pub(super) fn read_job(stdout: &str) -> Option<SlurmJob> {
    stdout.lines().rev().find_map(|line| {
        let (id, cluster) = line.trim().split_once(';').map_or((line.trim(), None), |(id, rest)| (id, Some(rest)));
        let cluster = cluster.map(str::trim).filter(|cluster| !cluster.is_empty()).map(str::to_owned);
        id.parse().ok().filter(|id| *id > 0).map(|id| SlurmJob { id, cluster })
    })
}

/// Why there is no job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The controller has as many jobs as it can.
    Busy,
    /// A limit on a user's jobs.
    TooMany,
    /// It was refused, and will be again.
    Refused,
    /// Something went wrong between here and the controller.
    OnTheWay,
}

/// Slurm's words for failures on the way.
const ON_THE_WAY: [&str; 12] = [
    "timed out",
    "Unable to contact",
    "not responding",
    "Zero Bytes",
    "Connection refused",
    "temporarily",
    "Transport endpoint",
    "onnection failure",
    "send failure",
    "receive failure",
    "standby mode",
    "Protocol authentication",
];

/// What `sbatch` says of its own arguments, and what the controller decided.
const DECIDED: [&str; 5] = [
    "Batch job submission failed:",
    "sbatch: fatal:",
    "sbatch: unrecognized option",
    "sbatch: error: Invalid",
    "sbatch: error: Unable to open file",
];

/// What is known after `sbatch` gave no job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Failure {
    kind: Kind,
    /// Whether there certainly is no job.
    is_certain: bool,
}

impl Failure {
    fn of(answer: &Answer) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| answer.stderr.contains(word));
        let (kind, is_certain) = if answer.success || answer.stderr.trim().is_empty() {
            (Kind::OnTheWay, false)
        } else if says(&["MaxSubmit", "SubmitJobLimit", "MaxJobCount", "job submit limit"]) {
            (Kind::TooMany, true)
        } else if says(&["temporarily unable to accept job"]) {
            // sbatch sleeps and tries again; it may have succeeded when it was ended.
            (Kind::Busy, false)
        } else if says(&ON_THE_WAY) {
            (Kind::OnTheWay, false)
        } else {
            (Kind::Refused, says(&DECIDED))
        };
        Self { kind, is_certain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_among_a_sites_words() {
        let job = |text: &str| read_job(text).map(|job| job.to_string());
        assert_eq!(job("123\n").as_deref(), Some("123"));
        assert_eq!(job("Welcome to Blue, with 4000 GPUs!\n\n123;blue\n").as_deref(), Some("123;blue"));
        assert_eq!(job("77\nthank you for 2 jobs\n").as_deref(), Some("77"));
        assert_eq!(job("Submitted\n"), None);
        assert_eq!(job(""), None);
    }

    #[test]
    fn only_a_decision_needs_no_question() {
        let of = |success, stderr: &str| {
            let failure = Failure::of(&Answer { success, stdout: String::new(), stderr: stderr.to_owned() });
            (failure.kind, failure.is_certain)
        };
        let failed = |why: &str| of(false, &format!("sbatch: error: Batch job submission failed: {why}\n"));
        assert_eq!(failed("Invalid account or account/partition combination specified"), (Kind::Refused, true));
        assert_eq!(failed("Socket timed out on send/recv operation"), (Kind::OnTheWay, false));
        assert_eq!(failed("Unable to contact slurm controller (connect failure)"), (Kind::OnTheWay, false));
        assert_eq!(
            failed("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
            (Kind::TooMany, true)
        );
        for said in [
            "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
            "sbatch: unrecognized option '--no-such-option'\nTry \"sbatch --help\" for more information",
            "sbatch: error: Invalid --time specification",
        ] {
            assert_eq!(of(false, said), (Kind::Refused, true), "{said}");
        }
        assert_eq!(of(false, "this site's wrapper: no budget"), (Kind::Refused, false));
        let busy = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying";
        assert_eq!(of(false, busy), (Kind::Busy, false), "ended while it slept");
        assert_eq!(of(true, busy), (Kind::OnTheWay, false), "accepted, but the answer cannot be read");
        assert_eq!(of(false, ""), (Kind::OnTheWay, false), "killed");
    }
}
