//! `memlab doctor`: what is found on this machine, and what to do about what is not.

mod device_model;

use std::path::{Path, PathBuf};

use super::console::{Console, Stop};
use super::format::FormatOption;
use crate::collate::{Cell, Column, Table};
use crate::exec::slurm::{ClusterLimits, cluster_limits};
use crate::exec::{self, Worker};
use crate::exit::Exit;
use crate::units::{format_bytes, mib};

/// How to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab doctor
  memlab doctor --format json
  memlab doctor --device-model > my_gpu.toml

A device model is measured: a few short runs on the GPU are compared with the same runs on its model. Ends with \
2 if runs cannot be executed here.")]
pub(super) struct Args {
    /// Measure the first GPU, and describe it as a device model for experiments
    #[arg(long, conflicts_with = "format")]
    device_model: bool,
    #[command(flatten)]
    format: FormatOption,
}

/// One thing that was looked for.
struct Finding {
    what: &'static str,
    state: &'static str,
    found: String,
    remedy: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, state: "ok", found: found.into(), remedy: None }
    }

    /// Something that only some uses need.
    fn absent(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, state: "absent", found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Something without which runs cannot be executed.
    fn bad(what: &'static str, found: impl Into<String>, remedy: Option<String>) -> Self {
        Self { what, state: "error", found: found.into(), remedy }
    }
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    if args.device_model {
        return device_model::describe(console);
    }
    let mut findings = vec![Finding::good("memlab", env!("CARGO_PKG_VERSION"))];
    findings.extend(libtorch());
    findings.extend(machine());
    findings.push(slurm());
    let mut table = Table::new(vec![
        Column::new("what", "what"),
        Column::new("state", "state"),
        Column::new("found", "found"),
        Column::new("remedy", "what to do"),
    ]);
    let usable = findings.iter().all(|finding| finding.state != "error");
    for Finding { what, state, found, remedy } in findings {
        table.push(vec![what.into(), state.into(), found.into(), Cell::from(remedy)]);
    }
    console.result(&args.format.format.render(&table.without_empty(&["remedy"])))?;
    Ok(if usable { Exit::Success } else { Exit::Usage })
}

fn libtorch() -> Vec<Finding> {
    let worker = match Worker::find() {
        Ok(worker) => worker,
        Err(missing) => return vec![Finding::bad("worker", missing.message, missing.help)],
    };
    let mut findings = vec![Finding::good("worker", worker.path().display().to_string())];
    let probe = match worker.probe() {
        Ok(probe) => probe,
        Err(error) => {
            let remedy = "run `make` again where memlab was built: libtorch may have been moved or replaced since";
            findings.push(Finding::bad("libtorch", error.message, Some(remedy.to_owned())));
            return findings;
        }
    };
    findings
        .push(Finding::good("libtorch", format!("{}, worker build {}", probe.libtorch_version, probe.worker_build)));
    for (index, gpu) in probe.gpus.iter().enumerate() {
        let [major, minor] = gpu.compute_capability;
        let memory = mib(gpu.memory_bytes);
        let found = format!("{index}: {}, {memory:.2} MiB, compute capability {major}.{minor}", gpu.name);
        findings.push(Finding::good("gpu", found));
    }
    if probe.gpus.is_empty() {
        let why = probe.cuda_unavailable.unwrap_or_else(|| "libtorch sees none".to_owned());
        let remedy = "none is needed: runs with device = \"cpu\" account for the memory of a modelled GPU";
        findings.push(Finding::absent("gpu", why, remedy));
    }
    findings
}

fn machine() -> Vec<Finding> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory =
        exec::host_memory_available().map_or_else(|| "unknown".to_owned(), |bytes| format_bytes(bytes >> 20 << 20));
    vec![Finding::good("cores", cores.to_string()), Finding::good("host memory", format!("{memory} available"))]
}

fn slurm() -> Finding {
    let Some(place) = in_path(Path::new("sbatch")) else {
        return Finding::absent("slurm", "no sbatch in PATH", "only `memlab sweep --slurm` needs it");
    };
    let place = place.display();
    match cluster_limits() {
        Ok(ClusterLimits { array, jobs }) => {
            Finding::good("slurm", format!("{place}: arrays of at most {array} tasks, {jobs} jobs at a time"))
        }
        Err(trouble) => Finding::absent(
            "slurm",
            format!("{place}, and no controller that answers: {trouble}"),
            "only `memlab sweep --slurm` needs it; tests/slurm/cluster starts a cluster of one node to try it",
        ),
    }
}

/// Where a program is found.
fn in_path(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|place| place.is_file())
}
