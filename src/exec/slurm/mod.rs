//! Runs on a Slurm cluster: job arrays are written, submitted exactly once, followed, and reconciled with the files that runs leave.
//!
//! Slurm alone decides when and where. Nothing here needs to stay alive: records of submissions lie in the results folder, and
//! whoever opens it later knows as much. Inside a job the local executor drives the worker, so that an exit becomes an outcome in the
//! same way everywhere.

mod arrays;
mod client;
mod collation;
mod follow;
mod queue;
mod script;
mod settle;
mod states;
mod submit;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::statfs;

use super::{Job, utc_now};
use crate::diag::Diagnostic;
use crate::protocol::{Outcome, PlanFile, Provenance, SCHEMA_VERSION, SlurmArray, SlurmJob, Status};
use crate::store::{ArrayPlace, ResultsFolder, State};
use queue::{Queue, Sightings, sighting};
use settle::{Decision, Evidence, decide};
use submit::{Pauses, Submitted};

pub use arrays::{Array, Programs};
pub use collation::submit_collation;
pub use queue::{ClusterLimits, Sighting, cluster_limits};
pub use script::{ARRAY_TEMPLATE, Template};
pub use states::JobState;

/// A job that an answer was lost about is in the queue after this time, or never.
const LOST_ANSWER: Duration = Duration::from_secs(60);

/// The submissions of a results folder.
#[derive(Debug)]
pub struct Slurm<'a> {
    folder: &'a ResultsFolder,
    queue: Queue,
    entries: Vec<Entry>,
    /// The array, and the task of it, that is responsible for each run: the latest.
    latest: HashMap<String, (usize, usize)>,
    /// How long files may take to appear after a task is over.
    grace: Duration,
    warned: HashSet<String>,
}

#[derive(Debug)]
struct Entry {
    place: ArrayPlace,
    record: SlurmArray,
    /// Since when a task is over, or not in the queue.
    over: BTreeMap<usize, Instant>,
}

/// Where one run of a job stands.
#[derive(Debug)]
pub struct Standing {
    /// The run.
    pub run_id: String,
    /// What the queue says of its task; none where it does not have it.
    pub seen: Option<Sighting>,
    /// What the run says of itself.
    pub own: State,
    /// Whether it may still change.
    pub in_flight: bool,
    /// Whether its task may still change.
    pub task_over: bool,
}

/// What to submit, and how.
#[derive(Debug)]
pub struct Request<'a> {
    /// The plan that the runs are of.
    pub plan: &'a PlanFile,
    /// Copied into the reports.
    pub provenance: &'a Provenance,
    /// Named in the scripts.
    pub programs: &'a Programs,
    /// The script's template.
    pub template: &'a Template,
    /// The cluster's limits.
    pub limits: ClusterLimits,
}

impl<'a> Slurm<'a> {
    /// Reads the records of a results folder.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn open(folder: &'a ResultsFolder) -> Result<Self, Diagnostic> {
        let mut slurm = Self {
            folder,
            queue: Queue::default(),
            entries: Vec::new(),
            latest: HashMap::new(),
            grace: grace(folder.path()),
            warned: HashSet::new(),
        };
        for (place, record) in folder.arrays()? {
            slurm.add(place, record);
        }
        Ok(slurm)
    }

    fn add(&mut self, place: ArrayPlace, record: SlurmArray) {
        let at = self.entries.len();
        for (task, runs) in record.tasks.iter().enumerate() {
            self.latest.extend(runs.iter().map(|run_id| (run_id.clone(), (at, task))));
        }
        self.entries.push(Entry { place, record, over: BTreeMap::new() });
    }

    /// Whether something may be in the queue.
    pub fn is_open(&self) -> bool {
        self.entries.iter().any(|entry| entry.record.closed.is_none())
    }

    /// Whether something was submitted, as far as is known, of which not every run has said how it ended.
    pub fn may_go_on(&self) -> bool {
        self.latest.iter().any(|(run_id, (at, task))| {
            let record = &self.entries[*at].record;
            let submitted = record.job.is_some() || record.intended_at.is_some();
            let open = record.closed.is_none() && submitted;
            open && !settle::is_final(&own_state(self.folder, run_id, record, *task))
        })
    }

    /// The jobs of which something is to be expected.
    pub fn jobs(&self) -> Vec<SlurmJob> {
        let open = self.entries.iter().filter(|entry| entry.record.closed.is_none());
        open.filter_map(|entry| entry.record.job.clone()).collect()
    }

    /// Arrays for these runs. Nothing is written.
    ///
    /// # Errors
    /// Something that the experiment asks for cannot be asked of Slurm.
    pub fn plan(&self, request: &Request<'_>, jobs: &[Job]) -> Result<Vec<Array>, Diagnostic> {
        let settings = request.plan.slurm.clone().unwrap_or_default();
        arrays::arrays(
            &arrays::Plan {
                folder: self.folder,
                experiment: &request.plan.name,
                submission: &submission_name(),
                settings: &settings,
                timeout_seconds: request.plan.timeout_seconds,
                provenance: request.provenance,
                programs: request.programs,
                template: request.template,
                largest_array: request.limits.array,
            },
            jobs,
        )
    }

    /// Asks the queue about every open array, once, and takes over jobs that were accepted without memlab hearing of it.
    ///
    /// # Errors
    /// The scheduler does not answer.
    pub fn survey(&mut self) -> Result<Vec<Standing>, String> {
        let found = self.look()?;
        let now = Instant::now();
        let mut standings = Vec::new();
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if entry.record.closed.is_some() {
                continue;
            }
            let name = &entry.record.name;
            if entry.record.job.is_none() {
                let sighted = (0..entry.record.tasks.len()).find_map(|task| sighting(&found, name, task));
                entry.record.job = sighted.map(|sighting| sighting.job.clone());
            }
            if entry.record.job.is_none() {
                continue;
            }
            for (task, runs) in entry.record.tasks.iter().enumerate() {
                let seen = sighting(&found, name, task);
                let task_over = seen.is_none_or(|seen| seen.state.is_over());
                if task_over {
                    entry.over.entry(task).or_insert(now);
                } else {
                    entry.over.remove(&task);
                }
                for run_id in runs.iter().filter(|run_id| self.latest.get(*run_id) == Some(&(at, task))) {
                    let own = own_state(self.folder, run_id, &entry.record, task);
                    standings.push(Standing {
                        run_id: run_id.clone(),
                        seen: seen.cloned(),
                        own,
                        in_flight: true,
                        task_over,
                    });
                }
            }
        }
        for standing in &mut standings {
            standing.in_flight = self.judge(standing) == Decision::Wait;
        }
        Ok(standings)
    }

    fn look(&mut self) -> Result<Sightings, String> {
        let open = || self.entries.iter().filter(|entry| entry.record.closed.is_none());
        let names: Vec<&str> = open().map(|entry| entry.record.name.as_str()).collect();
        let mut clusters: Vec<&str> =
            open().filter_map(|entry| entry.record.job.as_ref()?.cluster.as_deref()).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let first = open().filter_map(|entry| entry.record.intended_at.as_deref()).min().map(str::to_owned);
        let since = day_before(&first.unwrap_or_else(utc_now));
        self.queue.look(&names, &clusters, &since)
    }

    /// What follows from what is known of a run.
    fn judge(&self, standing: &Standing) -> Decision {
        let Some((entry, task)) = self.responsible(&standing.run_id) else { return Decision::Keep };
        let run = self.folder.run(&standing.run_id);
        let waited = entry.over.get(&task).is_some_and(|since| since.elapsed() >= self.grace);
        let running = matches!(standing.own, State::Running(_));
        let own = if waited && running {
            // The report may be all that a run could write.
            run.state(run.report().ok().flatten().as_ref())
        } else {
            standing.own.clone()
        };
        let silent = match &own {
            State::Running(status) => seconds_since(&status.heartbeat_at),
            _ => None,
        };
        decide(&Evidence {
            own: &own,
            seen: standing.seen.as_ref(),
            runs: entry.record.tasks[task].len(),
            waited,
            silent,
            log: &entry.place.log(task),
        })
    }

    /// Writes down how runs ended that could not say so themselves. Gives those whose outcome is new.
    ///
    /// # Errors
    /// A status cannot be written.
    pub fn settle(&mut self, standings: &[Standing]) -> Result<Vec<(String, Outcome, String)>, Diagnostic> {
        let decided = standings.iter().filter_map(|standing| match self.judge(standing) {
            Decision::Write(outcome, message) => Some((standing, outcome, message)),
            Decision::Wait | Decision::Keep => None,
        });
        let decided: Vec<_> = decided.collect();
        let _turn = if decided.is_empty() { None } else { Some(self.folder.turn()?) };
        let mut changed = Vec::new();
        for (standing, outcome, message) in decided {
            if self.write(standing, outcome, &message)? {
                changed.push((standing.run_id.clone(), outcome, message));
            }
        }
        Ok(changed)
    }

    /// Gives whether it was not written by another process meanwhile.
    fn write(&self, standing: &Standing, outcome: Outcome, message: &str) -> Result<bool, Diagnostic> {
        let Some((entry, task)) = self.responsible(&standing.run_id) else { return Ok(false) };
        if own_state(self.folder, &standing.run_id, &entry.record, task).outcome() == Some(outcome) {
            return Ok(false);
        }
        let run = self.folder.run(&standing.run_id);
        let earlier = run.status().ok().flatten().filter(|status| is_of(status, &entry.record, task));
        let now = utc_now();
        let status = match earlier {
            Some(status) => status,
            None => Status {
                schema_version: SCHEMA_VERSION,
                run_id: standing.run_id.clone(),
                // What an earlier job left there is kept.
                attempt: run.begin()?,
                outcome: None,
                message: None,
                phase: None,
                started_at: now.clone(),
                heartbeat_at: now.clone(),
                ended_at: None,
                hostname: standing.seen.as_ref().map(|seen| seen.node.clone()).unwrap_or_default(),
                pid: 0,
                slurm_job_id: task_id(&entry.record, task),
                slurm_job_name: Some(entry.record.name.clone()),
                exit_code: None,
                signal: None,
            },
        };
        run.set_status(&Status {
            outcome: Some(outcome),
            message: Some(message.to_owned()),
            ended_at: status.ended_at.or(Some(now)),
            ..status
        })?;
        Ok(true)
    }

    /// Closes arrays of which nothing is to be expected any more. Only whoever holds the folder's lock may do this.
    ///
    /// # Errors
    /// A record cannot be written, or the scheduler does not answer for long.
    pub fn close(&mut self, standings: &[Standing]) -> Result<(), Diagnostic> {
        let open: HashSet<&str> = standings
            .iter()
            .filter(|standing| standing.in_flight || !standing.task_over)
            .map(|standing| standing.run_id.as_str())
            .collect();
        for entry in &mut self.entries {
            let record = &mut entry.record;
            if record.closed.is_some() {
                continue;
            }
            if record.job.is_none() {
                match record.intended_at.as_deref() {
                    // A script that nobody submitted: what it was for is submitted now.
                    None => record.closed = Some("replaced by a later submission".to_owned()),
                    // An intent without a job is settled once and for all.
                    Some(intended) => {
                        let age = seconds_since(intended).map_or(LOST_ANSWER, Duration::from_secs);
                        let wait = LOST_ANSWER.saturating_sub(age);
                        record.job = submit::find(record, &mut self.queue, wait, &mut Pauses::new())?;
                        if record.job.is_none() {
                            record.closed = Some("Slurm never had it".to_owned());
                        }
                    }
                }
            } else if !record.tasks.iter().flatten().any(|run_id| open.contains(run_id.as_str())) {
                record.closed = Some("over".to_owned());
            }
            entry.place.record(record)?;
        }
        Ok(())
    }

    /// Surveys until what is over can be told from what is late, and writes down how runs ended.
    ///
    /// # Errors
    /// The scheduler does not answer, or a status cannot be written.
    pub fn settled(&mut self) -> Result<Vec<Standing>, Diagnostic> {
        let started = Instant::now();
        loop {
            let standings = self.survey().map_err(|trouble| {
                Diagnostic::error(format!("Slurm does not answer: {trouble}"))
                    .note(format!("jobs of {} may be in its queue", self.folder.path().display()))
                    .help("call the same command again when it does; nothing is lost")
            })?;
            let late = standings.iter().any(|standing| standing.in_flight && standing.task_over);
            if !late || started.elapsed() > self.grace + Duration::from_secs(1) {
                self.settle(&standings)?;
                return Ok(standings);
            }
            std::thread::sleep(Duration::from_millis(500).min(self.grace));
        }
    }

    /// The array and the task that a run belongs to.
    fn responsible(&self, run_id: &str) -> Option<(&Entry, usize)> {
        let (at, task) = *self.latest.get(run_id)?;
        Some((self.entries.get(at)?, task))
    }

    /// Cancels every job of the folder, also those whose number was never heard. Gives how many arrays there were.
    ///
    /// # Errors
    /// Slurm does not do it.
    pub fn cancel(&mut self) -> Result<usize, Diagnostic> {
        let open: Vec<&Entry> = self.entries.iter().filter(|entry| entry.record.closed.is_none()).collect();
        for entry in &open {
            let name = format!("--name={}", entry.record.name);
            let cluster = entry.record.job.as_ref().and_then(|job| job.cluster.as_ref());
            let cluster = cluster.map(|cluster| format!("--clusters={cluster}"));
            let arguments: Vec<&str> = [Some(name.as_str()), cluster.as_deref()].into_iter().flatten().collect();
            let answer = client::call("scancel", &arguments)
                .map_err(|error| Diagnostic::error(format!("scancel cannot be started: {error}")))?;
            if !answer.success {
                return Err(Diagnostic::error(format!("scancel: {}", answer.complaint()))
                    .help(format!("call it by hand: scancel --name={}", entry.record.name)));
            }
        }
        Ok(open.len())
    }
}

/// `123_4`.
fn task_id(record: &SlurmArray, task: usize) -> Option<String> {
    record.job.as_ref().map(|job| format!("{}_{task}", job.id))
}

/// Whether a status is of this task of this array, and of no earlier one: a number alone may be that of a job long ago.
fn is_of(status: &Status, record: &SlurmArray, task: usize) -> bool {
    status.slurm_job_name.as_ref() == Some(&record.name) && status.slurm_job_id == task_id(record, task)
}

/// What a run says of itself, where it was started by this task of this array.
fn own_state(folder: &ResultsFolder, run_id: &str, record: &SlurmArray, task: usize) -> State {
    let run = folder.run(run_id);
    match run.status() {
        Ok(Some(status)) if is_of(&status, record, task) => run.state(None),
        _ => State::Missing,
    }
}

/// A name that no other submission has; later ones sort later.
fn submission_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let now = jiff::Timestamp::now();
    hasher.write_i128(now.as_nanosecond());
    format!("{}-{:08x}", now.strftime("%Y%m%dT%H%M%S.%3fZ"), hasher.finish() >> 32)
}

/// A time in the form that `sacct` reads, far enough back for any time zone.
fn day_before(time: &str) -> String {
    let time = time.parse().unwrap_or_else(|_| jiff::Timestamp::now());
    let before = time.checked_sub(jiff::SignedDuration::from_hours(48)).unwrap_or(time);
    before.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

fn seconds_since(time: &str) -> Option<u64> {
    let time: jiff::Timestamp = time.parse().ok()?;
    u64::try_from(jiff::Timestamp::now().duration_since(time).as_secs()).ok()
}

/// How long another machine's files may take to appear: at once where the file system is this machine's own.
fn grace(path: &Path) -> Duration {
    let own = [
        statfs::EXT4_SUPER_MAGIC,
        statfs::XFS_SUPER_MAGIC,
        statfs::BTRFS_SUPER_MAGIC,
        statfs::TMPFS_MAGIC,
        statfs::OVERLAYFS_SUPER_MAGIC,
    ];
    let local = statfs::statfs(path).is_ok_and(|found| own.contains(&found.filesystem_type()));
    Duration::from_secs(if local { 2 } else { 40 })
}
