//! What Slurm knows of jobs, asked by their names: a number may be recycled, a name of memlab's is not.
//!
//! `squeue` alone says what is alive. Of what is over it knows the last few minutes; `sacct`, where a cluster has accounting, knows
//! the rest, and reasons that stand only with a job's steps.

use std::collections::HashMap;

use super::client::{Answer, call};
use super::states::{JobState, Verdict};
use crate::diag::Diagnostic;
use crate::protocol::SlurmJob;

/// What Slurm says of one task of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The job's number.
    pub job: SlurmJob,
    /// Where it stands.
    pub state: JobState,
    /// The same in Slurm's word.
    pub word: String,
    /// Its node, where it has one.
    pub node: String,
    /// Why it waits, where it does.
    pub reason: String,
}

/// `PENDING (Resources), job 12`.
impl std::fmt::Display for Sighting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = Some(self.reason.as_str()).filter(|reason| !["", "None"].contains(reason));
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        write!(f, "{}{reason}, job {}", self.word, self.job)
    }
}

/// By name of the job, and index of the task, or [`WHOLE`].
pub(super) type Sightings = HashMap<(String, usize), Sighting>;

/// A cluster's scheduler.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whether `sacct` is worth asking; unknown before it was asked.
    accounting: Option<bool>,
}

impl Queue {
    /// Looks for jobs by name, with one question for all of them; clusters behind one front end are asked one by one.
    ///
    /// # Errors
    /// The scheduler does not answer. Nothing is known then: neither that a job is there, nor that it is not.
    pub(super) fn look(&mut self, names: &[&str], clusters: &[&str], since: &str) -> Result<Sightings, String> {
        let mut found = Sightings::new();
        if names.is_empty() {
            return Ok(found);
        }
        let names = format!("--name={}", names.join(","));
        let clusters: Vec<Option<&str>> =
            if clusters.is_empty() { vec![None] } else { clusters.iter().map(|cluster| Some(*cluster)).collect() };
        for cluster in clusters {
            let place = cluster.map(|cluster| format!("--clusters={cluster}"));
            let mut live = vec!["--noheader", "--array", "--states=all", &names, "--format=%j|%F|%K|%T|%N|%r"];
            live.extend(place.as_deref());
            let answer = ask("squeue", &live)?;
            if !answer.success {
                return Err(format!("squeue: {}", answer.complaint()));
            }
            found.extend(read_squeue(&answer.stdout, cluster));
            if self.accounting != Some(false) {
                let since = format!("--starttime={since}");
                let mut past = vec![
                    "--noheader",
                    "--parsable2",
                    &names,
                    &since,
                    "--format=JobID,JobName,State,NodeList",
                    "--array",
                ];
                past.extend(place.as_deref());
                // Without an answer what `squeue` says stands.
                if let Ok(answer) = ask("sacct", &past) {
                    if answer.success {
                        merge(&mut found, read_sacct(&answer.stdout, cluster));
                    }
                    self.accounting.get_or_insert(answer.success);
                }
            }
        }
        Ok(found)
    }
}

/// A limit of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Tasks of an array at most; the largest index is one less.
    pub array: usize,
    /// Jobs that may be queued at a time, each task counted.
    pub jobs: usize,
}

/// Asks the controller for its limits, and accounting for the user's.
///
/// # Errors
/// The controller does not answer.
pub fn cluster_limits() -> Result<ClusterLimits, String> {
    let answer = ask("scontrol", &["show", "config"])?;
    if !answer.success {
        return Err(format!("scontrol: {}", answer.complaint()));
    }
    let value = |key: &str| {
        let line = answer.stdout.lines().find(|line| line.split('=').next().is_some_and(|name| name.trim() == key))?;
        line.split_once('=')?.1.trim().parse::<usize>().ok()
    };
    // Indices start at 0, and the largest is one less.
    let array = value("MaxArraySize").unwrap_or(1).max(1);
    let jobs = value("MaxJobCount").unwrap_or(usize::MAX);
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten().map(|user| user.name);
    let own = user.and_then(|user| {
        let user = format!("user={user}");
        let arguments = ["--noheader", "--parsable2", "show", "assoc", "where", &user, "format=MaxSubmitJobs"];
        let answer = ask("sacctmgr", &arguments).ok().filter(|answer| answer.success)?;
        answer.stdout.lines().filter_map(|line| line.trim().parse::<usize>().ok()).min()
    });
    let jobs = own.map_or(jobs, |own| own.min(jobs)).max(1);
    Ok(ClusterLimits { array: array.min(jobs), jobs })
}

/// Whether this user has no job at all.
///
/// # Errors
/// The controller does not answer.
pub(super) fn is_empty_of_own() -> Result<bool, Diagnostic> {
    let user = format!("--user={}", nix::unistd::getuid());
    let answer = ask("squeue", &["--noheader", "--format=%i", &user]);
    let complaint = match answer {
        Ok(answer) if answer.success => return Ok(answer.stdout.trim().is_empty()),
        Ok(answer) => answer.complaint(),
        Err(trouble) => trouble,
    };
    Err(Diagnostic::error(format!("Slurm does not answer: {complaint}"))
        .help("call the same command again when it does"))
}

fn ask(program: &str, arguments: &[&str]) -> Result<Answer, String> {
    call(program, arguments).map_err(|error| format!("{program} cannot be started: {error}"))
}

/// In the place of an index: an array that was cancelled before any of its tasks started is shown without.
const WHOLE: usize = usize::MAX;

/// What is known of a task, by itself or with its whole array.
pub(super) fn sighting<'a>(found: &'a Sightings, name: &str, task: usize) -> Option<&'a Sighting> {
    found.get(&(name.to_owned(), task)).or_else(|| found.get(&(name.to_owned(), WHOLE)))
}

fn read_squeue(text: &str, cluster: Option<&str>) -> Sightings {
    let mut found = Sightings::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
        let &[name, job, tasks, word, node, reason] = fields.as_slice() else { continue };
        let Ok(id) = job.parse() else { continue };
        for task in if tasks == "N/A" { vec![WHOLE] } else { indices(tasks) } {
            let sighting = Sighting {
                job: SlurmJob { id, cluster: cluster.map(str::to_owned) },
                state: JobState::read(word),
                word: word.to_owned(),
                node: node.to_owned(),
                reason: reason.to_owned(),
            };
            // Of a name that a user submitted twice by hand, what is alive counts.
            let key = (name.to_owned(), task);
            if found.get(&key).is_none_or(|other: &Sighting| other.state.is_over()) {
                found.insert(key, sighting);
            }
        }
    }
    found
}

fn read_sacct(text: &str, cluster: Option<&str>) -> Sightings {
    let mut found: HashMap<(u64, usize), (Option<String>, Sighting)> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(4, '|').collect();
        let &[job, name, word, node] = fields.as_slice() else { continue };
        let (job, step) = job.split_once('.').map_or((job, None), |(job, step)| (job, Some(step)));
        let Some((id, tasks)) = job.split_once('_') else { continue };
        let Ok(id) = id.parse() else { continue };
        for task in indices(tasks) {
            let state = JobState::read(word);
            let sighting = Sighting {
                job: SlurmJob { id, cluster: cluster.map(str::to_owned) },
                state,
                word: word.to_owned(),
                node: node.to_owned(),
                reason: String::new(),
            };
            match (found.get_mut(&(id, task)), step) {
                // Of a job that was requeued, the last line is the last attempt.
                (_, None) => {
                    found.insert((id, task), (Some(name.to_owned()), sighting));
                }
                // The reason may stand with a step only.
                (Some((_, known)), Some(_)) => {
                    let vague = matches!(known.state, JobState::Over(Verdict::Failed | Verdict::Completed));
                    if vague && matches!(state, JobState::Over(Verdict::Ended(_))) {
                        (known.state, known.word) = (state, sighting.word);
                    }
                }
                (None, Some(_)) => {}
            }
        }
    }
    found.into_iter().filter_map(|((_, task), (name, sighting))| Some(((name?, task), sighting))).collect()
}

/// Adds what accounting knows to what the queue knows: how a task ended, never that one is alive.
fn merge(found: &mut Sightings, past: Sightings) {
    let mut past: Vec<_> = past.into_iter().filter(|(_, sighting)| sighting.state.is_over()).collect();
    past.sort_by(|left, right| left.0.cmp(&right.0));
    for (key, sighting) in past {
        match found.get_mut(&key) {
            Some(live) if live.state.is_over() && live.job == sighting.job => *live = sighting,
            Some(_) => {}
            None => {
                found.insert(key, sighting);
            }
        }
    }
}

/// The indices in `7`, `[0-9,12%3]`, `[1-5:2]`. A list that Slurm cut short (`...`) gives what it shows.
fn indices(text: &str) -> Vec<usize> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let text = text.split('%').next().unwrap_or_default();
    let mut found = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last), Ok(step)) = (first.parse::<usize>(), last.parse::<usize>(), step.parse::<usize>())
        {
            found.extend((first..=last).step_by(step.max(1)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Outcome;

    #[test]
    fn lists_of_indices() {
        assert_eq!(indices("7"), [7]);
        assert_eq!(indices("[0-3,12%3]"), [0, 1, 2, 3, 12]);
        assert_eq!(indices("[1-5:2]"), [1, 3, 5]);
        assert_eq!(indices("[0-2,7,..."), [0, 1, 2, 7]);
        assert_eq!(indices("N/A"), [0_usize; 0]);
    }

    #[test]
    fn the_queue_is_read_with_headers_and_strange_reasons() {
        let text =
            "CLUSTER: blue\nmemlab-x|12|0|RUNNING|node1|None\nmemlab-x|12|[1-2%1]|PENDING||a|b\nslurm_load: noise\n";
        let found = read_squeue(text, Some("blue"));
        assert_eq!(found.len(), 3);
        let first = &found[&("memlab-x".to_owned(), 0)];
        assert_eq!((first.job.to_string().as_str(), first.state), ("12;blue", JobState::Active));
        assert_eq!(found[&("memlab-x".to_owned(), 2)].reason, "a|b");
    }

    #[test]
    fn an_array_that_never_started_is_seen_as_a_whole() {
        let found = read_squeue("memlab-x|12|N/A|CANCELLED||Resources\nmemlab-y|13|0|RUNNING|n1|None\n", None);
        let cancelled = JobState::Over(Verdict::Ended(Outcome::Cancelled));
        assert_eq!(sighting(&found, "memlab-x", 7).map(|seen| seen.state), Some(cancelled));
        assert_eq!(sighting(&found, "memlab-y", 1), None);
    }

    #[test]
    fn a_reason_that_stands_with_a_step_counts() {
        let text = "12_0|memlab-x|FAILED|node1\n12_0.batch|batch|OUT_OF_MEMORY|node1\n12_1|memlab-x|COMPLETED|node1\n12_1.batch|batch|COMPLETED|node1\n12_[2-3%1]|memlab-x|PENDING|None assigned\n";
        let found = read_sacct(text, None);
        let state = |task| found[&("memlab-x".to_owned(), task)].state;
        assert_eq!(state(0), JobState::Over(Verdict::Ended(Outcome::HostOom)));
        assert_eq!(state(1), JobState::Over(Verdict::Completed));
        assert_eq!(state(3), JobState::Waiting);
    }

    #[test]
    fn accounting_never_makes_a_job_alive() {
        let past = "12_0|memlab-x|REQUEUED|node1\n12_1|memlab-x|TIMEOUT|node1\n12_2|memlab-x|COMPLETED|node1\n";
        let mut found = read_squeue("memlab-x|12|2|RUNNING|node1|None\n", None);
        merge(&mut found, read_sacct(past, None));
        assert!(!found.contains_key(&("memlab-x".to_owned(), 0)));
        assert_eq!(found[&("memlab-x".to_owned(), 1)].state, JobState::Over(Verdict::Ended(Outcome::Timeout)));
        assert_eq!(found[&("memlab-x".to_owned(), 2)].state, JobState::Active, "requeued: the queue knows better");
    }
}
