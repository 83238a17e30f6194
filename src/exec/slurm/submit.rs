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
    /// So many jobs are queued that Slurm takes no more for now; why, in its words.
    Full(String),
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
        let job = if answer.success { read_job(&answer.stdout) } else { None };
        let job = match job {
            Some(job) => Some(job),
            None => match refusal(&answer) {
                Refusal::Full => {
                    record.intended_at = None;
                    place.record(record)?;
                    return Ok(Submitted::Full(answer.complaint()));
                }
                Refusal::Clear => {
                    record.intended_at = None;
                    place.record(record)?;
                    return Err(Diagnostic::error(format!("Slurm refuses the job: {}", answer.complaint()))
                        .note(format!("the script is {script}"))
                        .help("correct [slurm] in the experiment; `sbatch --test-only` with the script says more"));
                }
                Refusal::Unclear => {
                    on_trouble(format!("sbatch: {}; asking the queue for {}", answer.complaint(), record.name));
                    find(record, queue, SETTLED, &mut pauses)?
                }
            },
        };
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
        pauses.next(&answer.complaint())?;
    }
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
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// A limit on the number of jobs.
    Full,
    /// It was refused, and will be again.
    Clear,
    /// It may have been accepted.
    Unclear,
}

fn refusal(answer: &Answer) -> Refusal {
    let said = answer.stderr.as_str();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if answer.success {
        return Refusal::Unclear;
    }
    if says(&["MaxSubmit", "SubmitJobLimit", "MaxJobCount", "job submit limit"]) {
        return Refusal::Full;
    }
    // Slurm's words for failures on the way; anything else after "failed" is the controller's own decision.
    let on_the_way = [
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
    if said.contains("Batch job submission failed:") && !says(&on_the_way)
        || said.contains("sbatch: unrecognized option")
    {
        return Refusal::Clear;
    }
    Refusal::Unclear
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
    fn only_a_clear_refusal_needs_no_question() {
        let answer =
            |success, stderr: &str| refusal(&Answer { success, stdout: String::new(), stderr: stderr.to_owned() });
        let failed = |why: &str| answer(false, &format!("sbatch: error: Batch job submission failed: {why}\n"));
        assert_eq!(failed("Invalid account or account/partition combination specified"), Refusal::Clear);
        assert_eq!(failed("Socket timed out on send/recv operation"), Refusal::Unclear);
        assert_eq!(failed("Unable to contact slurm controller (connect failure)"), Refusal::Unclear);
        assert_eq!(
            failed("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
            Refusal::Full
        );
        assert_eq!(answer(false, ""), Refusal::Unclear, "killed");
        assert_eq!(answer(true, "sbatch: temporarily unable to accept job, sleeping and retrying"), Refusal::Unclear);
    }
}
