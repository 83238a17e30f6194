//! The folder of one run.

use std::path::{Path, PathBuf};

use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::atomic::{TEMPORARY, write_atomic_soon};
use super::cannot;
use super::folder::to_json;
use super::reports::read_json;
use crate::diag::Diagnostic;
use crate::protocol::{Outcome, Report, RunSpec, Status};

pub(super) const REPORT: &str = "report.json";
pub(super) const STATUS: &str = "status.json";
const ATTEMPTS: &str = "attempts";

/// The folder of one run, which need not be there.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Nothing was started.
    Missing,
    /// It was started, and did not end as far as its files say.
    Running(Box<Status>),
    /// It ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// Why, where it is not `ok`.
        message: Option<String>,
    },
}

impl State {
    /// One word: an outcome, `running` or `missing`.
    pub fn name(&self) -> &'static str {
        match self {
            State::Missing => "missing",
            State::Running(_) => "running",
            State::Ended { outcome, .. } => outcome.name(),
        }
    }

    /// How it ended, where it did.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            State::Ended { outcome, .. } => Some(*outcome),
            _ => None,
        }
    }

    /// Why, where it is not `ok`.
    pub fn message(&self) -> Option<&str> {
        match self {
            State::Ended { message, .. } => message.as_deref(),
            _ => None,
        }
    }
}

impl RunFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run measured.
    pub fn report_path(&self) -> PathBuf {
        self.path.join(REPORT)
    }

    /// Where the run stands.
    pub fn status_path(&self) -> PathBuf {
        self.path.join(STATUS)
    }

    /// What the worker of a rank wrote on standard error.
    pub fn log_path(&self, rank: u64) -> PathBuf {
        self.path.join(if rank == 0 { "worker.log".to_owned() } else { format!("worker-rank{rank}.log") })
    }

    /// The allocator's history, before `-rankN` is put in front of its extension.
    pub fn snapshot_path(&self) -> PathBuf {
        self.path.join("snapshot.pickle")
    }

    /// The allocator's history of one rank.
    pub fn rank_snapshot_path(&self, rank: u64) -> PathBuf {
        self.path.join(format!("snapshot-rank{rank}.pickle"))
    }

    /// What the run measured; none where it left nothing.
    ///
    /// # Errors
    /// The report cannot be read, or is damaged.
    pub fn report(&self) -> Result<Option<Report>, Diagnostic> {
        read_json(&self.report_path(), "report")
    }

    /// What the run said of itself; none where it was never started.
    ///
    /// # Errors
    /// The status cannot be read, or is damaged.
    pub fn status(&self) -> Result<Option<Status>, Diagnostic> {
        read_json(&self.status_path(), "status")
    }

    /// Writes the status.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn set_status(&self, status: &Status) -> Result<(), Diagnostic> {
        let path = self.status_path();
        write_atomic_soon(&path, &to_json(&path, status)?)
    }

    /// Where the run stands, given its report. A process of this machine that is gone without a word was killed.
    pub fn state(&self, report: Option<&Report>) -> State {
        // A damaged status is one that says nothing: the report, or its absence, speaks.
        let status = self.status().ok().flatten();
        match (status, report) {
            (Some(Status { outcome: Some(outcome), message, .. }), _) => State::Ended { outcome, message },
            (_, Some(report)) => State::Ended {
                outcome: report.outcome(),
                message: report
                    .failure
                    .as_ref()
                    .map(|failure| failure.message.clone())
                    .or_else(|| report.oom.as_ref().map(|oom| oom.message.clone())),
            },
            (Some(status), None) if is_gone(&status) => State::Ended {
                outcome: Outcome::Killed,
                message: Some(format!("process {} ended without a word, and with it the run", status.pid)),
            },
            (Some(status), None) => State::Running(Box::new(status)),
            (None, None) => State::Missing,
        }
    }

    /// When the run first left a result, over all attempts, RFC 3339 in UTC; none where it left none, or no attempt says when.
    pub fn first_result_at(&self) -> Option<String> {
        let attempts = std::fs::read_dir(self.path.join(ATTEMPTS)).into_iter().flatten();
        let places = attempts.filter_map(|entry| Some(entry.ok()?.path())).chain([self.path.clone()]);
        let ended = |place: PathBuf| {
            let status: Status = read_json(&place.join(STATUS), "status").ok()??;
            status.ended_at.filter(|_| status.outcome.is_some_and(Outcome::is_finished) && place.join(REPORT).exists())
        };
        places.filter_map(ended).min()
    }

    /// Makes the folder ready for another attempt: what an earlier one left goes to `attempts/<n>`. Gives the number of the new one.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn begin(&self) -> Result<u32, Diagnostic> {
        let failed = |error: std::io::Error| cannot("write", &self.path, &error);
        std::fs::create_dir_all(&self.path).map_err(failed)?;
        let mut earlier = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(TEMPORARY) {
                // Left by a process that was killed while it wrote.
                let _ = std::fs::remove_file(entry.path());
            } else if name != ATTEMPTS {
                earlier.push(entry.path());
            }
        }
        let attempts = self.path.join(ATTEMPTS);
        let kept = std::fs::read_dir(&attempts).map_or(0, |entries| {
            let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
            numbers.max().unwrap_or(0)
        });
        if earlier.is_empty() {
            return Ok(kept + 1);
        }
        let attempt = kept + 1;
        let place = attempts.join(attempt.to_string());
        std::fs::create_dir_all(&place).map_err(failed)?;
        for path in earlier {
            if let Some(name) = path.file_name() {
                std::fs::rename(&path, place.join(name)).map_err(failed)?;
            }
        }
        Ok(attempt + 1)
    }
}

/// Whether a run that stands like this need not be run again: it measured what there is to measure, with the same configuration,
/// libtorch and worker. The versions are those of a probe.
pub fn is_finished(state: &State, report: &Report, spec: &RunSpec, libtorch_version: &str, worker_build: &str) -> bool {
    state.outcome().is_some_and(Outcome::is_finished)
        && report.outcome().is_finished()
        && report.spec.as_ref() == Some(spec)
        && report.worker_build.as_deref() == Some(worker_build)
        && report.libtorch_version.as_deref().map(release) == Some(release(libtorch_version))
}

/// A version without its build suffix: `2.11.0+cu130` is `2.11.0`.
fn release(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

/// Whether a local run's process is certainly gone. Of other machines, and of batch jobs, nothing is known here.
fn is_gone(status: &Status) -> bool {
    let here = status.slurm_job_id.is_none() && status.hostname == hostname();
    here && i32::try_from(status.pid).is_ok_and(|pid| pid > 0 && kill(Pid::from_raw(pid), None).is_err())
}

/// This machine's name.
pub fn hostname() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
}

/// The Slurm job that this process is part of (`123`, or `123_4` for a task of an array), if any.
pub fn slurm_job_id() -> Option<String> {
    match (variable("SLURM_ARRAY_JOB_ID"), variable("SLURM_ARRAY_TASK_ID")) {
        (Some(job), Some(task)) => Some(format!("{job}_{task}")),
        _ => variable("SLURM_JOB_ID"),
    }
}

/// What this machine is called where runs are kept apart by it: Slurm's name of the node, which its options take, in a job.
pub fn node() -> String {
    variable("SLURMD_NODENAME").filter(|_| slurm_job_id().is_some()).unwrap_or_else(hostname)
}

/// The name of that job.
pub fn slurm_job_name() -> Option<String> {
    variable("SLURM_JOB_NAME")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
