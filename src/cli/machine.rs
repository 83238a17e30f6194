//! The worker of this machine, for commands that execute runs.

use super::planning;
use crate::diag::Diagnostic;
use crate::exec::Worker;
use crate::experiment::Experiment;
use crate::plan::Host;
use crate::protocol::{Axis, Probe, Value};

/// A worker, and what it says that this machine can do.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) worker: Worker,
    pub(super) probe: Probe,
}

impl Machine {
    /// Finds the worker, and asks it.
    pub(super) fn find() -> Result<Self, Diagnostic> {
        let worker = Worker::find()?;
        let probe = worker.probe()?;
        Ok(Self { worker, probe })
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
        let why = self.probe.cuda_unavailable.as_deref().unwrap_or("libtorch sees no GPU");
        Err(Diagnostic::error(format!("device = \"cuda\" is asked for, and CUDA does not work here: {why}")).help(
            "take --device cpu, which accounts for the memory of a modelled GPU; `memlab doctor` says what is missing",
        ))
    }
}
