//! The types that both binaries or the results folder share, with their format version.
//!
//! [`RunSpec`] travels to the worker inside a [`Request`]; [`Event`] lines come back on its standard output; [`Report`] and
//! [`Status`] are the files it leaves. Readers accept what older versions and the exercise's reference script wrote: every
//! key that memlab added is optional when reading. Sizes are bytes in specs and MiB (2^20 bytes) in reports.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Version of every format in this module. Raised when a reader of the previous version would misread.
pub const SCHEMA_VERSION: u32 = 1;

/// The exercise's anonymous cases. What they do is the worker's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Case {
    /// The case `alpha`.
    Alpha,
    /// The case `beta`.
    Beta,
    /// The case `gamma`.
    Gamma,
}

/// Arithmetic of the forward and backward computation. Parameters are fp32 in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point.
    Fp32,
    /// bfloat16 autocast with fp32 parameters.
    Bf16,
}

/// What a run executes on, once `auto` is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A real GPU: memory is measured by the real allocator's counters.
    Cuda,
    /// This machine's CPU: memory is accounted on a modelled GPU.
    Cpu,
}

/// How ranks talk to each other; `auto` is resolved before planning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// gloo: the CPU, and CUDA ranks that share one GPU.
    Gloo,
    /// NCCL: CUDA, one GPU per rank.
    Nccl,
}

macro_rules! text_enum {
    ($type:ident { $($variant:ident => $text:literal),+ $(,)? }) => {
        impl $type {
            /// Every value, in order.
            pub const ALL: &[$type] = &[$($type::$variant),+];

            /// Every value's name, in the same order.
            pub const NAMES: &[&str] = &[$($text),+];

            /// The name used in TOML, CSV, JSON and help.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $text),+ }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
        impl std::str::FromStr for $type {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok($type::$variant),)+ _ => Err(()) }
            }
        }
    };
}

mod axis;
mod hypothesis;
mod id;
mod plan_file;
mod slurm;
mod verdict;

pub use axis::{Axis, Definition, Kind, Value};
pub use hypothesis::{
    Bounds, Expectation, Hypothesis, Indicator, KnownFailure, Measure, Quantity, Selection, Stimulus, Tolerance,
    Tolerances, Trend,
};
pub use id::RunIds;
pub use plan_file::{ExcludedPoint, PlanFile, PlannedPerturbation, PlannedRun, RecordedHypothesis};
pub use slurm::{SlurmArray, SlurmJob, SlurmOverride, SlurmSettings, SlurmTask};
pub use verdict::{
    BaselineVerdict, Change, ChangeKind, Judged, Judgement, Known, KnownFailureState, Line, Point, Unmeasured, Verdict,
    Verdicts, Written,
};

text_enum!(Case { Alpha => "alpha", Beta => "beta", Gamma => "gamma" });
text_enum!(Precision { Fp32 => "fp32", Bf16 => "bf16" });
text_enum!(DeviceKind { Cuda => "cuda", Cpu => "cpu" });
text_enum!(Backend { Gloo => "gloo", Nccl => "nccl" });

/// A resolved preset: the model's dimensions. The keys are the report's `model_config`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Heads of the multi-head attention; divides `hidden_size`.
    pub attention_heads: u64,
    /// Outputs of the classifier.
    pub classes: u64,
    /// Width of the feed-forward layer.
    pub feedforward_size: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Transformer blocks.
    pub layers: u64,
    /// Tokens per sample.
    pub sequence_length: u64,
    /// Rows of the token embedding.
    pub vocabulary_size: u64,
}

impl ModelConfig {
    /// Number of parameters of the model in design.md section 4: embedding, position, blocks, final `LayerNorm`, classifier.
    pub fn parameter_count(&self) -> u64 {
        let Self { hidden_size: h, feedforward_size: f, .. } = *self;
        let block = 4 * h + 4 * h * h + 2 * h * f;
        (self.vocabulary_size + self.sequence_length) * h + self.layers * block + 2 * h + self.classes * h
    }
}

/// Which fused attention kernel a GPU selects; it decides what forward keeps and what backward allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionFamily {
    /// Memory-efficient attention (always used for fp32).
    Efficient,
    /// Flash attention (bf16).
    Flash,
    /// cuDNN attention (bf16 on compute capability 9.0 and 10.0 with cuDNN above 9.15).
    Cudnn,
}
text_enum!(AttentionFamily { Efficient => "efficient", Flash => "flash", Cudnn => "cudnn" });

/// The description of a GPU whose memory a CPU run accounts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceModel {
    /// The name used in experiments (`h200`).
    pub name: String,
    /// The GPU's own name (`NVIDIA H200`).
    pub gpu_name: String,
    /// Total memory in bytes as `cudaMemGetInfo` reports it, or null for no limit (`none`).
    pub memory_bytes: Option<u64>,
    /// Bytes that the CUDA context and the loaded kernels take outside the allocator; enters `device_used_mib` only.
    pub context_bytes: u64,
    /// Compute capability, major and minor (`[9, 0]`).
    pub compute_capability: [u32; 2],
    /// Streaming multiprocessors; some kernels size their temporaries by it.
    pub multiprocessors: u64,
    /// Bytes of the BLAS workspace that each thread takes at its first matrix product.
    pub blas_workspace_bytes: u64,
    /// Attention kernel in bf16 (fp32 uses memory-efficient attention everywhere).
    pub bf16_attention: AttentionFamily,
    /// Allocator settings in `PyTorch`'s own syntax; empty for the defaults.
    pub alloc_conf: String,
    /// The keys above that nobody measured on this GPU: taken from a datasheet, or from a related GPU.
    pub unmeasured: Vec<String>,
}

/// Recording of the allocator's history.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSpec {
    /// Bound on the number of history entries kept per rank.
    pub max_entries: u64,
}

/// One fully resolved configuration: all that decides what a run measures, and nothing else. [`RunSpec::run_id`] names
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The case.
    pub case: Case,
    /// The preset's name.
    pub preset: Arc<str>,
    /// What the preset resolved to.
    pub model: ModelConfig,
    /// Samples per device and step.
    pub batch_size: u64,
    /// Training steps.
    pub steps: u64,
    /// Arithmetic.
    pub precision: Precision,
    /// Seed of the weights; the batch uses `seed + rank`.
    pub seed: u64,
    /// Number of ranks, one process each.
    pub world_size: u64,
    /// Samples that rank zero has beyond `batch_size`.
    pub rank_zero_extra_samples: u64,
    /// What the run executes on.
    pub device: DeviceKind,
    /// The modelled GPU; null on CUDA.
    pub device_model: Option<Arc<DeviceModel>>,
    /// Bytes that the allocator may reserve; null for all the device has.
    pub capacity: Option<u64>,
    /// Whether values are computed. False: kernels only allocate (CPU only).
    pub compute: bool,
    /// Collective backend; null for a single rank.
    pub backend: Option<Backend>,
    /// Recording of the allocator's history; null for none.
    pub snapshot: Option<SnapshotSpec>,
}

/// Where a run came from; part of its report, without influence on what is measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The exact command line that started the run.
    pub command: Vec<String>,
    /// Absolute path of the experiment file; null for `memlab run`.
    pub experiment: Option<PathBuf>,
    /// Git revision of the experiment's folder; null outside a repository.
    pub git_revision: Option<String>,
    /// Whether that folder had uncommitted changes.
    pub git_dirty: Option<bool>,
}

/// What a runner gives a worker: on standard input as one line of JSON (which then stays open as a lifeline: at its end the
/// worker ends), or in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Format version.
    pub schema_version: u32,
    /// The run's id.
    pub run_id: String,
    /// Copied into the status: counts from 1.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// What to run.
    pub spec: RunSpec,
    /// Where the report goes.
    pub report: PathBuf,
    /// Where the status goes; null for `memlab run`, which has no results folder.
    pub status: Option<PathBuf>,
    /// Where the snapshot goes, before `-rankN` is put in front of its extension; null for none.
    pub snapshot: Option<PathBuf>,
    /// Whether existing report and snapshot files may be replaced: `[report, snapshot]`.
    pub overwrite: [bool; 2],
    /// Seconds after which the worker ends the run with outcome `timeout`; null for no limit.
    pub time_limit_seconds: Option<u64>,
    /// Copied into the report.
    pub provenance: Provenance,
}

fn first_attempt() -> u32 {
    1
}

/// A phase boundary at which memory is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model is built and moved.
    AfterModel,
    /// The optimizer object exists.
    AfterOptimizerCreation,
    /// The batch is on the device.
    AfterInput,
    /// The loss is computed.
    AfterForward,
    /// Gradients are computed.
    AfterBackward,
    /// Parameters are updated.
    AfterOptimizerStep,
    /// Gradients are released.
    AfterClearGradients,
}
text_enum!(Phase {
    AfterModel => "after_model",
    AfterOptimizerCreation => "after_optimizer_creation",
    AfterInput => "after_input",
    AfterForward => "after_forward",
    AfterBackward => "after_backward",
    AfterOptimizerStep => "after_optimizer_step",
    AfterClearGradients => "after_clear_gradients",
});

/// What a worker says while it runs: one JSON object a line on standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A phase boundary was reached.
    Phase {
        /// The rank.
        rank: u64,
        /// The step, -1 before training.
        step: i64,
        /// The phase.
        phase: Phase,
    },
    /// The run ended; the report, if there is one, is written.
    End {
        /// How it ended.
        outcome: Outcome,
        /// Why, when it is not `ok`.
        message: Option<String>,
    },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything was measured.
    Ok,
    /// The device's allocator refused: evidence.
    Oom,
    /// The host had no memory left.
    HostOom,
    /// The worker failed.
    Error,
    /// The time limit was reached.
    Timeout,
    /// Ended by a signal.
    Killed,
    /// The node failed.
    NodeFail,
    /// The job was preempted.
    Preempted,
    /// Cancelled by the user.
    Cancelled,
}
text_enum!(Outcome {
    Ok => "ok",
    Oom => "oom",
    HostOom => "host_oom",
    Error => "error",
    Timeout => "timeout",
    Killed => "killed",
    NodeFail => "node_fail",
    Preempted => "preempted",
    Cancelled => "cancelled",
});

impl Outcome {
    /// Whether the run need not be run again: it measured what there is to measure. Out of device memory is a measurement.
    pub fn is_finished(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::Oom)
    }
}

/// What a run was doing when the device's allocator refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Building and moving the model.
    Model,
    /// Creating the optimizer.
    Optimizer,
    /// Creating the batch.
    Input,
    /// Forward.
    Forward,
    /// Backward.
    Backward,
    /// The optimizer's step.
    OptimizerStep,
    /// Releasing gradients.
    ClearGradients,
}
text_enum!(Activity {
    Model => "model",
    Optimizer => "optimizer",
    Input => "input",
    Forward => "forward",
    Backward => "backward",
    OptimizerStep => "optimizer_step",
    ClearGradients => "clear_gradients",
});

/// Memory at one phase boundary, in MiB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Live tensor memory.
    pub allocated_mib: f64,
    /// Device-wide use, other processes and libraries included; on a modelled GPU reserved plus context.
    pub device_used_mib: f64,
    /// Largest live memory since the peak was reset at the start of the step.
    pub peak_allocated_mib: f64,
    /// The phase.
    pub phase: Phase,
    /// Memory held by the caching allocator.
    pub reserved_mib: f64,
    /// The step, -1 before training.
    pub step: i64,
}

/// The indicators of one rank, in MiB; null where one cannot be derived.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Indicators {
    /// Change of the post-cleanup baseline from the first to the last step.
    pub between_step_growth_mib: Option<f64>,
    /// Allocation that remains after the first step, relative to before training.
    pub first_step_persistent_change_mib: Option<f64>,
    /// Largest forward allocation above the preceding post-cleanup baseline.
    pub largest_forward_increase_mib: Option<f64>,
    /// Largest peak of any sample.
    pub maximum_peak_allocated_mib: Option<f64>,
}

/// What one rank measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Free device memory at the end, MiB.
    pub device_free_at_end_mib: Option<f64>,
    /// Total device memory, MiB.
    pub device_total_mib: Option<f64>,
    /// The GPU; on a CPU run the modelled one, and it says so.
    pub gpu_name: String,
    /// Derived from the samples.
    pub indicators: Indicators,
    /// Samples in this rank's batch.
    pub local_batch_size: u64,
    /// Rank on its node.
    pub local_rank: u64,
    /// Rank.
    pub rank: u64,
    /// In the order measured.
    pub samples: Vec<Sample>,
    /// Path of the allocator history, if one was recorded.
    pub snapshot: Option<String>,
    /// Operators that ran without a recipe on a modelled GPU: `(name, calls)`. Their memory is not accounted for exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators_without_recipe: Vec<(String, u64)>,
}

/// The device's allocator refused a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Oom {
    /// The rank.
    pub rank: u64,
    /// The step, -1 before training.
    pub step: i64,
    /// What the run was doing.
    pub during: Activity,
    /// What was asked for, MiB.
    pub requested_mib: Option<f64>,
    /// What the allocator may reserve, MiB.
    pub capacity_mib: Option<f64>,
    /// The message that `PyTorch` prints; on a modelled GPU it says that it is modelled.
    pub message: String,
}

/// A rank that failed, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The rank.
    pub rank: u64,
    /// The step, -1 before training.
    pub step: i64,
    /// What the run was doing.
    pub during: Activity,
    /// Why.
    pub message: String,
}

/// The program that wrote a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// `memlab`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Git revision it was built from; null outside a repository.
    pub revision: Option<String>,
}

/// What a run executed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// CUDA or CPU.
    pub kind: DeviceKind,
    /// The GPU's or the processor's name.
    pub name: String,
    /// The device model's name; null on CUDA.
    pub model: Option<String>,
    /// `computed`, or `allocation-only`.
    pub execution: Execution,
    /// What is modelled rather than measured, in words; empty on CUDA.
    pub modelled: Vec<String>,
    /// CUDA driver version; null on a CPU run.
    #[serde(default)]
    pub driver_version: Option<String>,
}

/// Whether a run computed values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Execution {
    /// Values were computed.
    Computed,
    /// Kernels only allocated.
    AllocationOnly,
}
text_enum!(Execution { Computed => "computed", AllocationOnly => "allocation-only" });

/// What one run measured: the reference script's keys, then memlab's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Samples per device.
    pub batch_size_per_device: u64,
    /// The case.
    pub case: Case,
    /// CUDA version of libtorch; null on a CPU run.
    pub cuda_version: Option<String>,
    /// What the numbers belong to.
    pub exercise: String,
    /// Loss of the last step on rank zero; null when nothing was computed or the run did not get there.
    pub final_loss_rank_zero: Option<f64>,
    /// Host of rank zero.
    pub hostname_rank_zero: String,
    /// What each quantity means.
    pub measurement_notes: std::collections::BTreeMap<String, String>,
    /// The model's dimensions.
    pub model_config: ModelConfig,
    /// Parameters.
    pub parameter_count: u64,
    /// Their size in fp32, MiB.
    pub parameters_fp32_mib: f64,
    /// Arithmetic.
    pub precision: Precision,
    /// The preset's name.
    pub preset: String,
    /// Python version of the reference script; null here.
    pub python_version: Option<String>,
    /// libtorch version.
    pub pytorch_version: String,
    /// One entry per rank, by rank.
    pub rank_reports: Vec<RankReport>,
    /// Extra samples of rank zero.
    pub rank_zero_extra_samples: u64,
    /// Seed.
    pub seed: u64,
    /// Slurm job, if any.
    pub slurm_job_id: Option<String>,
    /// Steps asked for.
    pub steps: u64,
    /// Ranks.
    pub world_size: u64,

    /// Format version; null in the reference's reports, like everything below.
    #[serde(default)]
    pub schema_version: Option<u32>,
    /// Who wrote it.
    #[serde(default)]
    pub tool: Option<Tool>,
    /// The run's id.
    #[serde(default)]
    pub run_id: Option<String>,
    /// The run's whole configuration.
    #[serde(default)]
    pub spec: Option<RunSpec>,
    /// How it ended. The reference writes reports of finished runs only.
    #[serde(default)]
    pub outcome: Option<Outcome>,
    /// What it executed on.
    #[serde(default)]
    pub device: Option<Device>,
    /// libtorch's version without build suffix.
    #[serde(default)]
    pub libtorch_version: Option<String>,
    /// Identity of the worker's build: reports of different builds are not taken for one another.
    #[serde(default)]
    pub worker_build: Option<String>,
    /// Start, RFC 3339 in UTC.
    #[serde(default)]
    pub started_at: Option<String>,
    /// Duration of the whole process, seconds.
    #[serde(default)]
    pub wall_seconds: Option<f64>,
    /// Where the run came from.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// The refusal, if the outcome is `oom`.
    #[serde(default)]
    pub oom: Option<Oom>,
    /// The failure, if the outcome is `error`, `timeout` or `host_oom`.
    #[serde(default)]
    pub failure: Option<Failure>,
}

impl Report {
    /// How the run ended; a report of the reference script is of a finished run.
    pub fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Ok)
    }
}

/// The life of one run: written by the worker at its start, now and then, and at its end; the runner or the collation
/// completes it when the worker could not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Format version.
    pub schema_version: u32,
    /// The run's id.
    pub run_id: String,
    /// Counts from 1; each attempt keeps its log.
    pub attempt: u32,
    /// How it ended; null while it runs.
    pub outcome: Option<Outcome>,
    /// Why, when it is not `ok`.
    pub message: Option<String>,
    /// Where it is: the last phase boundary.
    pub phase: Option<(i64, Phase)>,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// Last sign of life, RFC 3339 in UTC.
    pub heartbeat_at: String,
    /// End, RFC 3339 in UTC; null while it runs.
    pub ended_at: Option<String>,
    /// Host; in a Slurm job the node, by Slurm's name.
    pub hostname: String,
    /// Process of rank zero.
    pub pid: u32,
    /// Slurm job (`123` or `123_4`), if any.
    pub slurm_job_id: Option<String>,
    /// Its name. memlab gives a name once, while Slurm's numbers come again.
    pub slurm_job_name: Option<String>,
    /// Exit status, where known.
    pub exit_code: Option<i32>,
    /// Signal that ended it, where known.
    pub signal: Option<i32>,
}

/// What `memlab-worker probe` prints: what this machine's libtorch can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Format version.
    pub schema_version: u32,
    /// Identity of the worker's build.
    pub worker_build: String,
    /// libtorch version at run time (`2.11.0+cu130`).
    pub libtorch_version: String,
    /// CUDA version libtorch was built for; null for a build without CUDA.
    pub cuda_version: Option<String>,
    /// Usable GPUs by index; empty where CUDA does not work.
    pub gpus: Vec<Gpu>,
    /// Why CUDA does not work, where it does not.
    pub cuda_unavailable: Option<String>,
}

/// One usable GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Total memory, bytes.
    pub memory_bytes: u64,
    /// Compute capability.
    pub compute_capability: [u32; 2],
    /// Streaming multiprocessors.
    pub multiprocessors: u64,
}
