//! Which runs fit beside one another: cores, host memory, GPUs.
//!
//! A run that needs more than there is runs alone: whether it succeeds is its own evidence.

use std::collections::HashMap;

use crate::protocol::{Backend, DeviceKind, RunSpec};
use crate::units::MIB;

/// What a run takes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Need {
    /// Cores: one per rank.
    pub(super) cores: usize,
    /// Host memory in bytes: an estimate from above.
    pub(super) memory: u64,
    /// GPUs.
    pub(super) gpus: usize,
}

/// What libtorch itself takes in a process, bytes.
const LIBTORCH: u64 = 400 * MIB;

impl Need {
    /// Of a run. A CUDA run takes a GPU per rank, or one for all ranks where they talk over gloo.
    pub(super) fn of(spec: &RunSpec) -> Self {
        let ranks = usize::try_from(spec.world_size).unwrap_or(usize::MAX);
        let gpus = match (spec.device, spec.backend) {
            (DeviceKind::Cpu, _) => 0,
            (DeviceKind::Cuda, Some(Backend::Nccl)) => ranks,
            (DeviceKind::Cuda, _) => 1,
        };
        let tensors = if spec.device == DeviceKind::Cpu && spec.compute { tensor_bytes(spec) } else { 0 };
        Self { cores: ranks, memory: spec.world_size.saturating_mul(LIBTORCH.saturating_add(tensors)), gpus }
    }
}

/// Bytes that the tensors of one rank take at most. What a case does is not known here, so everything that a step could leave
/// behind is counted as if it did.
fn tensor_bytes(spec: &RunSpec) -> u64 {
    const FLOAT: u64 = 4;
    let model = &spec.model;
    // Weights, gradients, and up to two further values per parameter.
    let parameters = model.parameter_count().saturating_mul(4 * FLOAT);
    // Per token and block, generously: a forward pass keeps 10 hidden and 2 feed-forward vectors, and uses a few more.
    let per_token = model.layers.saturating_mul(12 * model.hidden_size + 3 * model.feedforward_size);
    let samples = spec.batch_size.saturating_add(spec.rank_zero_extra_samples);
    let step = samples.saturating_mul(model.sequence_length).saturating_mul(per_token).saturating_mul(FLOAT);
    parameters.saturating_add(step.saturating_mul(spec.steps.saturating_add(1)))
}

/// How long a run takes against others, in no unit: proportional to its arithmetic.
pub(super) fn cost(spec: &RunSpec) -> u128 {
    if !spec.compute {
        return u128::from(spec.steps);
    }
    let model = &spec.model;
    let per_token = u128::from(model.hidden_size)
        * (4 * u128::from(model.hidden_size)
            + 2 * u128::from(model.feedforward_size)
            + 2 * u128::from(model.sequence_length));
    let tokens = u128::from(spec.batch_size + spec.rank_zero_extra_samples) * u128::from(model.sequence_length);
    tokens * per_token * u128::from(model.layers) * u128::from(spec.steps) * u128::from(spec.world_size)
}

/// What is free, and who holds the rest.
#[derive(Debug)]
pub(super) struct Resources {
    /// Runs that may still be started, whatever they need.
    runs: usize,
    cores: usize,
    memory: u64,
    /// As `CUDA_VISIBLE_DEVICES` names them.
    gpus: Vec<String>,
    held: HashMap<usize, Held>,
}

#[derive(Debug)]
struct Held {
    cores: usize,
    memory: u64,
    gpus: Vec<String>,
}

impl Resources {
    /// At most `runs` runs at a time, within these cores, this memory and these GPUs.
    pub(super) fn new(runs: usize, cores: usize, memory: u64, gpus: Vec<String>) -> Self {
        Self { runs: runs.max(1), cores, memory, gpus, held: HashMap::new() }
    }

    /// Whether runs can go on beside one another.
    pub(super) fn is_parallel(&self) -> bool {
        self.runs > 1
    }

    /// Whether nothing more can be started, however small.
    pub(super) fn is_full(&self) -> bool {
        self.runs == 0 || (self.cores == 0 && !self.held.is_empty())
    }

    /// Takes what a job needs, where it is free, or where nothing else runs. Gives the job's GPUs.
    pub(super) fn take(&mut self, job: usize, need: &Need) -> Option<&[String]> {
        let alone = self.held.is_empty();
        let fits = need.cores <= self.cores && need.memory <= self.memory;
        if self.runs == 0 || need.gpus > self.gpus.len() || !(fits || alone) {
            return None;
        }
        let cores = need.cores.min(self.cores);
        let memory = need.memory.min(self.memory);
        let gpus = self.gpus.drain(..need.gpus).collect();
        self.runs -= 1;
        self.cores -= cores;
        self.memory -= memory;
        let held = self.held.entry(job).insert_entry(Held { cores, memory, gpus });
        Some(&held.into_mut().gpus)
    }

    /// Gives back what a job held.
    pub(super) fn give_back(&mut self, job: usize) {
        if let Some(held) = self.held.remove(&job) {
            self.runs += 1;
            self.cores += held.cores;
            self.memory += held.memory;
            self.gpus.extend(held.gpus);
            self.gpus.sort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need = Need { cores: 1, memory: 10, gpus: 0 };

    #[test]
    fn memory_bounds_the_number_of_runs() {
        let mut resources = Resources::new(8, 8, 25, Vec::new());
        assert!(resources.take(0, &NEED).is_some());
        assert!(resources.take(1, &NEED).is_some());
        assert!(resources.take(2, &NEED).is_none());
        resources.give_back(0);
        assert!(resources.take(2, &NEED).is_some());
    }

    #[test]
    fn a_run_beyond_everything_runs_alone() {
        let mut resources = Resources::new(8, 2, 25, Vec::new());
        let large = Need { cores: 4, memory: 1_000, gpus: 0 };
        assert!(resources.take(0, &large).is_some());
        assert!(resources.take(1, &NEED).is_none());
        resources.give_back(0);
        assert!(resources.take(1, &NEED).is_some());
        assert!(resources.take(0, &large).is_none());
        resources.give_back(1);
        assert_eq!((resources.cores, resources.memory, resources.runs), (2, 25, 8));
    }

    #[test]
    fn every_gpu_has_one_run() {
        let mut resources = Resources::new(8, 8, 100, vec!["2".to_owned(), "5".to_owned()]);
        let need = Need { gpus: 1, ..NEED };
        assert_eq!(resources.take(0, &need).unwrap(), ["2"]);
        assert_eq!(resources.take(1, &need).unwrap(), ["5"]);
        assert!(resources.take(2, &need).is_none());
        resources.give_back(1);
        assert!(resources.take(2, &Need { gpus: 2, ..NEED }).is_none());
        assert_eq!(resources.take(2, &need).unwrap(), ["5"]);
    }
}
