//! Options and steps that every command shares which turns experiments into plans.

use std::path::Path;

use super::console::{Console, Stop};
use crate::diag::Diagnostic;
use crate::exec::Worker;
use crate::experiment::{self, Experiment};
use crate::plan::{self, Host, Plan};
use crate::protocol::{DeviceKind, Probe};

/// More runs than this are planned only when asked for.
const MANY_RUNS: usize = 10_000;

/// What to change in an experiment, and which part of it to take.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PlanningOptions {
    /// Change a value of the base or the grid, or a key of run, snapshot or slurm
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// What runs execute on: auto, cuda or cpu (the same as --set device=...)
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<String>,
    /// Take the first N runs of the plan
    #[arg(long, value_name = "N", conflicts_with = "sample")]
    pub(super) first: Option<usize>,
    /// Take N runs at random, in the plan's order
    #[arg(long, value_name = "N")]
    pub(super) sample: Option<usize>,
    /// Draw another sample
    #[arg(long, value_name = "S", default_value_t = 0, requires = "sample")]
    pub(super) sample_seed: u64,
    /// Go on although there are more than 10000 runs
    #[arg(long, short = 'y')]
    pub(super) yes: bool,
}

impl PlanningOptions {
    /// Reads an experiment, and changes it as the options say.
    pub(super) fn read(&self, path: &Path) -> Result<Experiment, Stop> {
        let mut experiment = experiment::read(path)?;
        let device = self.device.as_ref().map(|device| format!("device={device}"));
        for assignment in self.set.iter().chain(&device) {
            experiment.set(assignment)?;
        }
        Ok(experiment)
    }

    /// Expands it, takes the part that is asked for, and shows warnings.
    pub(super) fn expand(&self, experiment: &Experiment, host: &Host, console: &mut Console) -> Result<Plan, Stop> {
        let plan = plan::expand(experiment, host)?;
        for warning in &plan.warnings {
            console.diagnostic(warning);
        }
        let plan = match (self.first, self.sample) {
            (Some(0), _) | (_, Some(0)) => {
                return Err(Diagnostic::error("nothing is planned when 0 runs are taken")
                    .help("take at least one")
                    .into());
            }
            (Some(count), _) => plan.first(count),
            (None, Some(count)) => plan.sample(count, self.sample_seed),
            (None, None) => plan,
        };
        let count = plan.runs.len();
        if count > MANY_RUNS && !self.yes {
            let error = Diagnostic::error(format!("{} expands to {count} runs", experiment.source.path.display()));
            return Err(error.help("give --yes to go on, or take a part: --first N, --sample N").into());
        }
        Ok(plan)
    }
}

/// What `auto` stands for on this machine, given what its worker found.
pub(super) fn host(probe: &Probe) -> Host {
    let device = if probe.gpus.is_empty() { DeviceKind::Cpu } else { DeviceKind::Cuda };
    Host { device, gpus: probe.gpus.len() as u64 }
}

/// The same for a command that runs nothing: the worker is asked only if the experiment leaves something open, and where there is
/// none, `auto` is the CPU.
pub(super) fn likely_host(experiment: &Experiment, console: &mut Console) -> Host {
    let nothing_found = Host { device: DeviceKind::Cpu, gpus: 0 };
    if !experiment.asks_the_machine() {
        return nothing_found;
    }
    if let Ok(probe) = Worker::find().and_then(|worker| worker.probe()) {
        return host(&probe);
    }
    console.note("no worker to ask for a GPU: auto is taken for cpu");
    nothing_found
}
