//! The worker of this machine, for commands that execute runs.

use std::sync::Arc;

use super::console::Console;
use super::planning;
use super::progress::Progress;
use crate::diag::Diagnostic;
use crate::exec::{Ending, Event, Executor, Forkserver, Job, Limits, Local, Worker};
use crate::experiment::Experiment;
use crate::plan::Host;
use crate::protocol::{Axis, Outcome, Probe, Provenance, Value};

/// A worker, and what it says that this machine can do.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) worker: Worker,
    pub(super) probe: Probe,
    forkserver: Option<Arc<Forkserver>>,
}

impl Machine {
    /// Finds the worker, and asks it.
    pub(super) fn find() -> Result<Self, Diagnostic> {
        let worker = Worker::find()?;
        let (probe, forkserver) = worker.open()?;
        Ok(Self { worker, probe, forkserver: forkserver.map(Arc::new) })
    }

    /// What `auto` stands for here.
    pub(super) fn host(&self) -> Host {
        planning::host(&self.probe)
    }

    /// Checks that CUDA works where an experiment asks for it by name.
    pub(super) fn can_run(&self, experiment: &Experiment) -> Result<(), Diagnostic> {
        if !self.probe.gpus.is_empty() || !experiment.values(Axis::Device).contains(&Value::from("cuda")) {
            return Ok(());
        }
        let why = self.why_no_cuda();
        Err(Diagnostic::error(format!("device = \"cuda\" is asked for, and CUDA does not work here: {why}")).help(
            "take --device cpu, which accounts for the memory of a modelled GPU; `memlab doctor` says what is missing",
        ))
    }
    /// Why CUDA does not work here.
    pub(super) fn why_no_cuda(&self) -> &str {
        self.probe.cuda_unavailable.as_deref().unwrap_or("libtorch sees no GPU")
    }

    /// Executes jobs here, and shows their progress. Gives how each of them ended; a job that was not started has no ending.
    pub(super) fn execute(
        &self,
        jobs: &[Job],
        limits: Limits,
        provenance: Provenance,
        console: &mut Console,
    ) -> Result<(Ending, Vec<Option<Ended>>), Diagnostic> {
        let mut local = Local::new(self.worker.clone(), self.probe.gpus.len(), limits, provenance)
            .forked_from(self.forkserver.clone());
        let mut ended = vec![None; jobs.len()];
        let mut progress = Progress::new(jobs, console);
        let ending = local.execute(jobs, &mut |event| {
            progress.show(&event);
            if let Event::Ended { job, outcome, message, .. } = event {
                ended[job] = Some(Ended { outcome, message });
            }
        })?;
        Ok((ending, ended))
    }
}

/// How a job ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// Why, where it is not `ok`.
    pub(super) message: Option<String>,
}
