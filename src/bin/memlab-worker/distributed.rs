//! The ranks of one run: who this process is, where it meets the others, and how it connects with them.
//!
//! A launcher (`memlab run`, `srun`, `torchrun --no-python`) starts one worker per rank and says who each is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memlab::protocol::{Activity, Backend, RunSpec};

use crate::gather::Part;
use crate::meeting::{Gathered, Meeting};
use crate::native::Device;
use crate::native::ranks::{Group, Store};
use crate::stop::Stop;

/// Where a launcher says that ranks meet: a file that all of them can reach.
const RENDEZVOUS: &str = "MEMLAB_RENDEZVOUS";
/// Rank, rank on the node, and number of ranks, as launchers say them.
const LAUNCHER: [&str; 3] = ["RANK", "LOCAL_RANK", "WORLD_SIZE"];
/// The same as `srun` says it.
const SLURM: [&str; 3] = ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"];
/// How long ranks wait for one another where the run has no time limit: as long as `torch.distributed` does.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Who this process is among the ranks of its run.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// This process's rank.
    pub(crate) rank: u64,
    /// Its rank on its node.
    pub(crate) local_rank: u64,
    world_size: u64,
    /// None for a run without a backend, whose single rank meets nobody.
    rendezvous: Option<Rendezvous>,
    /// There once the device is open.
    meeting: OnceLock<Arc<Meeting>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Rendezvous {
    File(PathBuf),
    Server { host: String, port: u16, external: bool },
}

impl Ranks {
    /// What the launcher says, as `variable` gives it.
    ///
    /// # Errors
    /// A launcher that says only half of it, or something else than the run asks for.
    pub(crate) fn new(spec: &RunSpec, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str| -> Result<Option<u64>, String> {
            let Some(text) = variable(name) else { return Ok(None) };
            text.parse().map(Some).map_err(|_| format!("{name} is `{text}`, which is no rank or number of ranks"))
        };
        let names =
            if LAUNCHER.iter().any(|name| variable(name).is_some()) || spec.world_size == 1 { LAUNCHER } else { SLURM };
        let [rank, local_rank, world_size] = names.map(number);
        let (rank, local_rank, world_size) = match (rank?, local_rank?, world_size?) {
            (Some(rank), Some(local_rank), Some(world_size)) => (rank, local_rank, world_size),
            (None, None, None) if spec.world_size == 1 => (0, 0, 1),
            _ if names == LAUNCHER => {
                let missing: Vec<_> = names.into_iter().filter(|name| variable(name).is_none()).collect();
                return Err(format!(
                    "{} {} not set: a launcher sets all of RANK, LOCAL_RANK and WORLD_SIZE, and where there is none, none is set",
                    missing.join(" and "),
                    if missing.len() == 1 { "is" } else { "are" }
                ));
            }
            _ => {
                return Err(format!(
                    "the run has {} ranks, and RANK, LOCAL_RANK and WORLD_SIZE do not say which this is: start it with `memlab \
                     run`, or the worker with srun or `torchrun --no-python`",
                    spec.world_size
                ));
            }
        };
        if world_size != spec.world_size {
            return Err(format!(
                "{} is {world_size}, and the run has {} ranks: start as many processes as the run has ranks",
                names[2], spec.world_size
            ));
        }
        if rank >= world_size {
            return Err(format!("{} is {rank}, and there are {world_size} ranks, counted from 0", names[0]));
        }
        if world_size > 1 && spec.backend.is_none() {
            return Err(format!("the run has {world_size} ranks, and no backend that connects them"));
        }
        let rendezvous = if spec.backend.is_none() {
            None
        } else if let Some(path) = variable(RENDEZVOUS) {
            Some(Rendezvous::File(path.into()))
        } else if let (Some(host), Some(port)) = (variable("MASTER_ADDR"), variable("MASTER_PORT")) {
            let port = port.parse().map_err(|_| format!("MASTER_PORT is `{port}`, which is no port"))?;
            // torchrun's agent runs the store that it announces.
            let external = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
            Some(Rendezvous::Server { host, port, external })
        } else {
            return Err(format!(
                "nothing says where the {world_size} ranks meet: set {RENDEZVOUS} to a new file that all of them reach, or \
                 MASTER_ADDR and MASTER_PORT"
            ));
        };
        Ok(Self { rank, local_rank, world_size, rendezvous, meeting: OnceLock::new() })
    }

    /// Which of the visible GPUs is this rank's own, where each rank has one.
    pub(crate) fn own_gpu(&self, spec: &RunSpec) -> Option<u64> {
        (spec.backend == Some(Backend::Nccl)).then_some(self.local_rank)
    }

    fn numbers(&self) -> Result<(i32, i32), Stop> {
        let number = |value: u64| i32::try_from(value).map_err(|_| Stop::Error(format!("{value} ranks are too many")));
        Ok((number(self.rank)?, number(self.world_size)?))
    }

    /// Goes where the ranks meet; does not wait for them. None for a run whose rank meets nobody.
    ///
    /// # Errors
    /// A place that cannot be reached.
    pub(crate) fn meet(&self) -> Result<Option<Arc<Meeting>>, Stop> {
        let Some(rendezvous) = &self.rendezvous else { return Ok(None) };
        let (rank, world_size) = self.numbers()?;
        let (store, hosts) = match rendezvous {
            Rendezvous::File(path) => (Store::file(path, world_size)?, false),
            Rendezvous::Server { host, port, external } => {
                let hosts = rank == 0 && !external;
                (Store::tcp(host, *port, world_size, hosts)?, hosts)
            }
        };
        let hurry = AtomicBool::new(false);
        let meeting = Meeting { store, hosts, rank: self.rank, world_size: self.world_size, hurry };
        Ok(Some(Arc::clone(self.meeting.get_or_init(|| Arc::new(meeting)))))
    }

    /// Connects with the others, once they have met. None for a run whose rank meets nobody.
    ///
    /// # Errors
    /// A rank that does not come within the run's time limit.
    pub(crate) fn connect(
        &self,
        backend: Option<Backend>,
        device: Device,
        limit: Option<Duration>,
    ) -> Result<Option<Group>, Stop> {
        let (Some(meeting), Some(backend)) = (self.meeting.get(), backend) else { return Ok(None) };
        let limit = limit.unwrap_or(PATIENCE);
        let group = match backend {
            Backend::Nccl => Group::nccl(meeting.store, self.numbers()?, limit),
            Backend::Gloo => Group::gloo(meeting.store, self.numbers()?, device, limit),
        };
        group.map(Some).map_err(|stop| Stop::Lost(format!("the other ranks cannot be reached: {}", stop.message())))
    }

    /// Tells the others what this rank does now.
    pub(crate) fn tell(&self, step: i64, during: Activity) {
        if let Some(meeting) = self.meeting.get() {
            meeting.tell(step, during);
        }
    }

    /// From now on the others are not waited for longer than a moment.
    pub(crate) fn hurry(&self) {
        if let Some(meeting) = self.meeting.get() {
            meeting.hurry();
        }
    }

    /// The parts of all ranks, if it is this rank that gathers them ([`Meeting::gather`]); its own where it meets nobody, or
    /// where the others cannot be asked any more.
    pub(crate) fn gather(&self, part: &Part) -> Option<Gathered> {
        match self.meeting.get().map(|meeting| meeting.gather(part)) {
            Some(Ok(gathered)) => gathered,
            None | Some(Err(_)) => Some((BTreeMap::from([(self.rank, part.clone())]), BTreeMap::new())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{self, ranks::Reducer};
    use tch::{Kind, Tensor};

    const SAMPLES: i64 = 6;

    fn parameters() -> Vec<Tensor> {
        let ramp = |sizes: [i64; 2]| {
            let count = sizes[0] * sizes[1];
            let values = Tensor::arange(count, (Kind::Float, tch::Device::Cpu)) / count as f64 - 0.5;
            values.view(sizes).set_requires_grad(true)
        };
        vec![ramp([8, 5]), ramp([3, 8])]
    }

    /// The mean loss of a small network over samples.
    fn loss(parameters: &[Tensor], samples: std::ops::Range<i64>) -> Tensor {
        let count = samples.end - samples.start;
        let inputs = Tensor::arange(SAMPLES * 5, (Kind::Float, tch::Device::Cpu)).view([SAMPLES, 5]).sin();
        let labels = Tensor::arange(SAMPLES, (Kind::Int64, tch::Device::Cpu)).remainder(3);
        let hidden = inputs.narrow(0, samples.start, count).linear(&parameters[0], None::<Tensor>).tanh();
        let logits = hidden.linear(&parameters[1], None::<Tensor>);
        logits.cross_entropy_for_logits(&labels.narrow(0, samples.start, count))
    }

    /// Gradients of one rank, in the second step, which has buckets in the order of gradients.
    fn averaged(rank: i32, store: &std::path::Path) -> Vec<Vec<f32>> {
        let store = Store::file(store, 2).unwrap();
        let group = Group::gloo(store, (rank, 2), Device::Modelled, Duration::from_secs(60)).unwrap();
        let parameters = parameters();
        if rank == 1 {
            // Rank zero's parameters are everyone's.
            tch::no_grad(|| parameters.iter().for_each(|parameter| drop(parameter.shallow_clone().fill_(7.0))));
        }
        let reducer = Reducer::new(group, &parameters).unwrap();
        let half = SAMPLES / 2;
        for _ in 0..2 {
            for parameter in &parameters {
                native::clear_gradient(parameter).unwrap();
            }
            reducer.before_forward().unwrap();
            let loss = loss(&parameters, i64::from(rank) * half..(i64::from(rank) + 1) * half);
            reducer.before_backward().unwrap();
            native::backward(&loss, false).unwrap();
        }
        parameters.iter().map(gradient).collect()
    }

    fn gradient(parameter: &Tensor) -> Vec<f32> {
        native::gradient(parameter).unwrap().unwrap().view([-1]).try_into().unwrap()
    }

    #[test]
    fn averaged_gradients_are_those_of_the_joined_batch() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let ranks = [0, 1].map(|rank| {
            let store = store.clone();
            std::thread::spawn(move || averaged(rank, &store))
        });
        let [first, second] = ranks.map(|rank| rank.join().unwrap());
        assert_eq!(first, second);

        let parameters = parameters();
        native::backward(&loss(&parameters, 0..SAMPLES), false).unwrap();
        for (averaged, parameter) in first.iter().zip(&parameters) {
            for (averaged, joined) in averaged.iter().zip(gradient(parameter)) {
                assert!((averaged - joined).abs() <= 1e-6 * joined.abs().max(0.1), "{averaged} and {joined}");
            }
        }
    }
}
