//! From a run's progress to its report.

use std::collections::BTreeMap;
use std::path::Path;

use memlab::indicator;
use memlab::protocol::{
    Device, DeviceKind, Execution, Failure, Oom, Outcome, RankReport, Report, Request, RunSpec, SCHEMA_VERSION, Tool,
};
use memlab::store;
use memlab::units::mib;

use crate::memory::Memory;
use crate::native;
use crate::stop::Stop;
use crate::training::{Progress, Trainer};

/// Identity of this build: a hash of the worker's sources.
pub(crate) const WORKER_BUILD: &str = env!("MEMLAB_WORKER_BUILD");

/// The libtorch that this worker is built for.
const LIBTORCH: [u8; 3] = [2, 11, 0];

/// The version of the libtorch that runs, with its build suffix where the wheel states it (`2.11.0+cu130`).
pub(crate) fn libtorch_version() -> String {
    let (version, libraries) = native::libtorch();
    wheel_version(&libraries).unwrap_or_else(|| version.map(|part| part.to_string()).join("."))
}

/// `__version__` in the `version.py` beside the libraries' folder.
fn wheel_version(libraries: &Path) -> Option<String> {
    let text = std::fs::read_to_string(libraries.parent()?.join("version.py")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(line.trim_matches(['\'', '"']).to_owned())
}

/// Refuses a libtorch that this worker was not built for: its functions would not be the ones that were compiled in.
///
/// # Errors
/// Names both versions and the remedy.
pub(crate) fn check_libtorch() -> Result<(), Stop> {
    let (found, libraries) = native::libtorch();
    if found[..2] == LIBTORCH[..2] {
        return Ok(());
    }
    let text = |version: [u8; 3]| version.map(|part| part.to_string()).join(".");
    Err(Stop::Error(format!(
        "libtorch {} was found in {}, but this worker is built for {}: remove that folder from LD_LIBRARY_PATH, or build \
         memlab again with LIBTORCH set to a libtorch {}",
        text(found),
        libraries.display(),
        text(LIBTORCH),
        text(LIBTORCH),
    )))
}

/// What one process knows at its end.
pub(crate) struct Ending<'a> {
    /// What was asked for.
    pub(crate) request: &'a Request,
    /// This process's rank, and its rank on the node.
    pub(crate) rank: (u64, u64),
    /// How far it came.
    pub(crate) progress: Progress,
    /// How the run ended.
    pub(crate) outcome: Outcome,
    /// Why it ended early.
    pub(crate) stop: Option<Stop>,
    /// Where memory was measured, if a device was opened.
    pub(crate) memory: Option<Memory>,
    /// The GPU and its driver, on CUDA.
    pub(crate) gpu: Option<(String, String)>,
    /// Start, RFC 3339 in UTC.
    pub(crate) started_at: String,
    /// Seconds since the process started.
    pub(crate) wall_seconds: f64,
}

impl Ending<'_> {
    /// This rank's part.
    pub(crate) fn rank_report(&self) -> RankReport {
        let counters = self.progress.counters;
        let total = counters.and_then(|counters| counters.device_total);
        RankReport {
            device_free_at_end_mib: total.zip(counters).map(|(total, c)| mib(total.saturating_sub(c.device_used))),
            device_total_mib: total.map(mib),
            gpu_name: self.device_name(),
            indicators: indicator::derive(&self.progress.samples),
            local_batch_size: Trainer::local_batch_size(&self.request.spec, self.rank.0),
            local_rank: self.rank.1,
            rank: self.rank.0,
            samples: self.progress.samples.clone(),
            snapshot: None,
            operators_without_recipe: self
                .memory
                .and_then(|memory| memory.operators_without_recipe().ok())
                .unwrap_or_default(),
        }
    }

    fn device_name(&self) -> String {
        match (&self.gpu, &self.request.spec.device_model) {
            (Some((name, _)), _) => name.clone(),
            (None, Some(model)) => format!("{} (modelled)", model.gpu_name),
            (None, None) => "none".to_owned(),
        }
    }

    /// The whole report, with the parts of all ranks.
    pub(crate) fn report(&self, rank_reports: Vec<RankReport>) -> Report {
        let spec = &self.request.spec;
        let parameters = spec.model.parameter_count();
        let (rank, step, during) = (self.rank.0, self.progress.step, self.progress.activity);
        let (oom, failure) = match &self.stop {
            None => (None, None),
            Some(Stop::OutOfMemory { requested_mib, capacity_mib, message }) => {
                let (requested_mib, capacity_mib, message) = (*requested_mib, *capacity_mib, message.clone());
                (Some(Oom { rank, step, during, requested_mib, capacity_mib, message }), None)
            }
            Some(Stop::HostOutOfMemory(message) | Stop::Lost(message) | Stop::Error(message)) => {
                (None, Some(Failure { rank, step, during, message: message.clone() }))
            }
        };
        Report {
            batch_size_per_device: spec.batch_size,
            case: spec.case,
            cuda_version: self.gpu.as_ref().and_then(|_| native::cuda_version()),
            exercise: "empirical CUDA memory diagnosis".to_owned(),
            final_loss_rank_zero: self.progress.loss,
            hostname_rank_zero: store::hostname(),
            measurement_notes: measurement_notes(spec),
            model_config: spec.model.clone(),
            parameter_count: parameters,
            parameters_fp32_mib: mib(4 * parameters),
            precision: spec.precision,
            preset: spec.preset.to_string(),
            python_version: None,
            pytorch_version: libtorch_version(),
            rank_reports,
            rank_zero_extra_samples: spec.rank_zero_extra_samples,
            seed: spec.seed,
            slurm_job_id: store::slurm_job_id(),
            steps: spec.steps,
            world_size: spec.world_size,
            schema_version: Some(SCHEMA_VERSION),
            tool: Some(Tool {
                name: "memlab".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                revision: option_env!("MEMLAB_GIT_REVISION").map(ToOwned::to_owned),
            }),
            run_id: Some(self.request.run_id.clone()),
            spec: Some(spec.clone()),
            outcome: Some(self.outcome),
            device: Some(self.device()),
            libtorch_version: Some(native::libtorch().0.map(|part| part.to_string()).join(".")),
            worker_build: Some(WORKER_BUILD.to_owned()),
            started_at: Some(self.started_at.clone()),
            wall_seconds: Some(self.wall_seconds),
            provenance: Some(self.request.provenance.clone()),
            oom,
            failure,
        }
    }

    fn device(&self) -> Device {
        let spec = &self.request.spec;
        Device {
            kind: spec.device,
            name: self.device_name(),
            model: spec.device_model.as_ref().map(|model| model.name.clone()),
            execution: if spec.compute { Execution::Computed } else { Execution::AllocationOnly },
            modelled: modelled(spec),
            driver_version: self.gpu.as_ref().map(|(_, driver)| driver.clone()),
        }
    }
}

/// What a CPU run models rather than measures, in words; empty on CUDA.
fn modelled(spec: &RunSpec) -> Vec<String> {
    let Some(model) = &spec.device_model else { return Vec::new() };
    let mut notes = vec![
        "allocated, reserved and peak: a model of PyTorch's CUDA caching allocator, fed with what the CUDA kernels of each \
         operator allocate"
            .to_owned(),
        format!("device_used: reserved plus a context of {:.2} MiB", mib(model.context_bytes)),
    ];
    if !model.unmeasured.is_empty() {
        notes.push(format!("not measured on this GPU: {}", model.unmeasured.join(", ")));
    }
    if !spec.compute {
        notes.push("kernels only allocate: nothing was computed".to_owned());
    }
    notes
}

fn measurement_notes(spec: &RunSpec) -> BTreeMap<String, String> {
    let source = match spec.device {
        DeviceKind::Cuda => "measured",
        DeviceKind::Cpu => "modelled",
    };
    [
        ("allocated", format!("live tensor memory in the PyTorch CUDA allocator, {source}")),
        ("device_used", format!("device-wide use, other processes and libraries included, {source}")),
        ("peak", format!("largest allocated since the reset at the start of the step, {source}")),
        ("reserved", format!("memory held by the PyTorch caching allocator, {source}")),
    ]
    .into_iter()
    .map(|(name, note)| (name.to_owned(), note))
    .collect()
}
