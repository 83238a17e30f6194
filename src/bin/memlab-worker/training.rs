//! The training loop, and a sample of memory at every phase boundary.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memlab::allocator::First;
use memlab::protocol::{Activity, Phase, Precision, RunSpec, Sample};
use memlab::units::mib;
use tch::{Kind, Reduction, Tensor};

use crate::case::Behaviour;
use crate::distributed::Ranks;
use crate::memory::{self, Counters, Memory};
use crate::model::Model;
use crate::native::ranks::{Group, Reducer};
use crate::native::{self, threads_per_multiprocessor};
use crate::philox::CudaGenerator;
use crate::stop::Stop;

/// How far a run is; shared with whoever may have to end it early.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// Samples so far.
    pub(crate) samples: Vec<Sample>,
    /// The step, -1 before training.
    pub(crate) step: i64,
    /// What the run is doing.
    pub(crate) activity: Activity,
    /// Loss of the last finished step; none where nothing is computed.
    pub(crate) loss: Option<f64>,
    /// The device's last counters.
    pub(crate) counters: Option<Counters>,
    /// The recorded history at the end of training, while everything is still alive; none before.
    pub(crate) snapshot: Option<Vec<u8>>,
}

/// [`Progress`] behind a lock.
#[derive(Clone)]
pub(crate) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    /// A run that has not begun.
    pub(crate) fn new() -> Self {
        let progress = Progress {
            samples: Vec::new(),
            step: -1,
            activity: Activity::Model,
            loss: None,
            counters: None,
            snapshot: None,
        };
        Self(Arc::new(Mutex::new(progress)))
    }

    /// The current state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the loop needs besides the spec.
pub(crate) struct Trainer<'a> {
    /// The configuration.
    pub(crate) spec: &'a RunSpec,
    /// Who this process is among the ranks.
    pub(crate) ranks: &'a Ranks,
    /// The connected ranks; none for a single one.
    pub(crate) group: Option<Group>,
    /// Where memory is measured.
    pub(crate) memory: Memory,
    /// Updated as the run goes on.
    pub(crate) progress: SharedProgress,
    /// Called at every phase boundary.
    pub(crate) on_phase: &'a dyn Fn(i64, Phase),
}

impl Trainer<'_> {
    /// Samples in this rank's batch.
    pub(crate) fn local_batch_size(spec: &RunSpec, rank: u64) -> u64 {
        spec.batch_size + if rank == 0 { spec.rank_zero_extra_samples } else { 0 }
    }

    fn begin(&self, activity: Activity, step: i64) -> Result<(), Stop> {
        let mut progress = self.progress.lock();
        progress.activity = activity;
        progress.step = step;
        drop(progress);
        self.ranks.tell(step, activity);
        self.memory.begin(step, activity)
    }

    fn sample(&self, step: i64, phase: Phase) -> Result<(), Stop> {
        let counters = self.memory.counters()?;
        let mut progress = self.progress.lock();
        progress.counters = Some(counters);
        progress.samples.push(Sample {
            allocated_mib: mib(counters.allocated),
            device_used_mib: mib(counters.device_used),
            peak_allocated_mib: mib(counters.peak_allocated),
            phase,
            reserved_mib: mib(counters.reserved),
            step,
        });
        drop(progress);
        (self.on_phase)(step, phase);
        Ok(())
    }

    /// Runs everything.
    ///
    /// # Errors
    /// What ended the run early; `progress` says where.
    pub(crate) fn run(&self) -> Result<(), Stop> {
        let spec = self.spec;
        let behaviour = Behaviour::of(spec.case);
        let device = self.memory.device();

        self.begin(Activity::Model, -1)?;
        let model = Model::new(&spec.model, spec.seed, spec.compute, device)?;
        let parameters = model.parameters();
        let reducer = self.group.map(|group| Reducer::new(group, &parameters)).transpose()?;
        self.memory.reset_peak()?;
        self.sample(-1, Phase::AfterModel)?;

        self.begin(Activity::Optimizer, -1)?;
        let mut optimizer = behaviour.optimizer();
        self.sample(-1, Phase::AfterOptimizerCreation)?;

        self.begin(Activity::Input, -1)?;
        let (tokens, labels) = self.batch()?;
        self.sample(-1, Phase::AfterInput)?;

        let mut retained = Vec::new();
        // Stands for the loss until there is one, and is alive until the first step's loss takes its place.
        let mut last_loss = native::to_device(&Tensor::f_zeros([0_i64; 0], (Kind::Float, tch::Device::Cpu))?, device)?;
        for step in 0..i64::try_from(spec.steps).unwrap_or(i64::MAX) {
            self.memory.reset_peak()?;

            self.begin(Activity::Forward, step)?;
            if let Some(reducer) = &reducer {
                reducer.before_forward()?;
            }
            let logits = match spec.precision {
                Precision::Fp32 => model.forward(&tokens)?,
                Precision::Bf16 => native::autocast(device, || model.forward(&tokens))?,
            };
            let loss = logits.f_to_kind(Kind::Float)?.f_cross_entropy_loss(
                &labels,
                None::<Tensor>,
                Reduction::Mean,
                -100,
                0.0,
            )?;
            if let Some(reducer) = &reducer {
                reducer.before_backward()?;
            }
            self.sample(step, Phase::AfterForward)?;

            self.begin(Activity::Backward, step)?;
            native::backward(&loss, behaviour.retains_graphs)?;
            self.sample(step, Phase::AfterBackward)?;

            self.begin(Activity::OptimizerStep, step)?;
            optimizer.step(&parameters)?;
            self.sample(step, Phase::AfterOptimizerStep)?;

            self.begin(Activity::ClearGradients, step)?;
            for parameter in &parameters {
                native::clear_gradient(parameter)?;
            }
            let detached = loss.f_detach()?;
            if behaviour.retains_graphs {
                retained.push(loss);
            } else {
                drop(loss);
            }
            self.sample(step, Phase::AfterClearGradients)?;
            drop(logits);
            last_loss = detached;
        }
        if spec.compute {
            let value = native::scalar(&last_loss)?;
            if !value.is_finite() {
                return Err(Stop::Error(format!(
                    "the final loss is {value}: training diverged, and nothing is to be learnt from its memory"
                )));
            }
            self.progress.lock().loss = Some(value);
        }
        let snapshot = self.memory.snapshot()?;
        self.progress.lock().snapshot = snapshot;
        Ok(())
    }

    /// Tokens (B, S) and labels (B), drawn by CUDA's generator, seeded with seed + rank.
    fn batch(&self) -> Result<(Tensor, Tensor), Stop> {
        let spec = self.spec;
        let signed =
            |value: u64| i64::try_from(value).map_err(|_| Stop::Error(format!("a dimension of {value} is too large")));
        let batch = Self::local_batch_size(spec, self.ranks.rank);
        let (b, s) = (signed(batch)?, signed(spec.model.sequence_length)?);
        let seed = spec.seed.wrapping_add(self.ranks.rank);
        match (self.memory, &spec.device_model) {
            (Memory::Modelled, Some(model)) => {
                let threads = threads_per_multiprocessor(model.compute_capability);
                memory::note_first(First::RandomNumbers);
                let mut generator = CudaGenerator::new(seed, model.multiprocessors, threads);
                let mut draw = |high: u64, sizes: &[i64]| -> Result<Tensor, Stop> {
                    let host = if spec.compute {
                        let count = usize::try_from(sizes.iter().product::<i64>()).unwrap_or(0);
                        Tensor::f_from_slice(&generator.integers(high, count))?.f_view(sizes)?
                    } else {
                        Tensor::f_empty(sizes, (Kind::Int64, tch::Device::Cpu))?
                    };
                    native::to_device(&host, self.memory.device())
                };
                Ok((draw(spec.model.vocabulary_size, &[b, s])?, draw(spec.model.classes, &[b])?))
            }
            _ => {
                native::cuda_seed(seed)?;
                let tokens = native::cuda_randint(signed(spec.model.vocabulary_size)?, &[b, s])?;
                Ok((tokens, native::cuda_randint(signed(spec.model.classes)?, &[b])?))
            }
        }
    }
}
