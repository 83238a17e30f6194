//! How runs are executed. An executor emits [`Event`]s, and never prints.
//!
//! Executors differ only in how a configuration reaches a worker. One bad run never ends the others: whatever happens to a run
//! is its outcome, in its `status.json` and in an [`Event::Ended`].

mod child;
mod forkserver;
mod host;
mod local;
mod outcome;
mod provenance;
mod resources;
mod running;
mod signals;
pub mod slurm;
mod worker;

use std::path::PathBuf;

use crate::diag::Diagnostic;
use crate::protocol::{Outcome, Phase, PlannedRun};
use crate::store::RunFolder;

pub use forkserver::Forkserver;
pub use local::{Limits, Local};
pub use provenance::{provenance, utc_now};
pub use worker::Worker;

/// One run to execute.
#[derive(Debug, Clone)]
pub struct Job {
    /// What.
    pub run: PlannedRun,
    /// Where its files go.
    pub place: Place,
}

/// Where the files of a run go.
#[derive(Debug, Clone)]
pub enum Place {
    /// Into its folder, with status and log; what an earlier attempt left there is kept.
    Folder(RunFolder),
    /// To files of the user's choice, without a status.
    Files {
        /// The report.
        report: PathBuf,
        /// The allocator's history, if it is recorded.
        snapshot: Option<PathBuf>,
        /// Whether existing files may be replaced: `[report, snapshot]`.
        overwrite: [bool; 2],
        /// What the logs are called, before `-rankN.log` is added.
        log: PathBuf,
    },
}

impl Place {
    /// What the worker of a rank wrote on standard error.
    pub fn log_path(&self, rank: u64) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.log_path(rank),
            Place::Files { log, .. } => {
                let mut name = log.clone().into_os_string();
                name.push(format!("-rank{rank}.log"));
                name.into()
            }
        }
    }

    fn report_path(&self) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.report_path(),
            Place::Files { report, .. } => report.clone(),
        }
    }
}

/// What happens while jobs are executed. `job` is an index into the list of jobs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A run was started.
    Started {
        /// Which.
        job: usize,
    },
    /// A rank reached a phase boundary.
    Phase {
        /// Which run.
        job: usize,
        /// The rank.
        rank: u64,
        /// The step, -1 before training.
        step: i64,
        /// The phase.
        phase: Phase,
    },
    /// A run ended, and its files are complete.
    Ended {
        /// Which.
        job: usize,
        /// How.
        outcome: Outcome,
        /// Why, where it is not `ok`.
        message: Option<String>,
        /// How long it took, seconds.
        seconds: f64,
    },
    /// Something that is about no single run.
    Notice {
        /// What.
        text: String,
    },
    /// The user asked to stop: nothing is started any more, and what runs is being ended.
    Interrupted,
}

/// Whether everything was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every job ended.
    Complete,
    /// The user stopped it; jobs that were not started have no event.
    Interrupted,
}

/// Bytes of memory that this host, or the control group that this process is in, can still give; none where nothing says so.
pub fn host_memory_available() -> Option<u64> {
    host::Host::this().memory_available()
}

/// Executes runs.
pub trait Executor {
    /// Executes the jobs, and tells what happens in the order in which it does.
    ///
    /// # Errors
    /// Nothing can be executed at all. What happens to a single run is its outcome.
    fn execute(&mut self, jobs: &[Job], on_event: &mut dyn FnMut(Event)) -> Result<Ending, Diagnostic>;
}
