//! `memlab reproduce`: the same configuration once more, and what differs.

use std::path::PathBuf;

use super::console::{Console, Stop};
use super::format::FormatOption;
use super::machine::Machine;
use crate::collate;
use crate::diag::Diagnostic;
use crate::exec::{Ending, Job, Limits, Place, provenance};
use crate::exit::Exit;
use crate::protocol::{DeviceKind, PlannedRun, Report};
use crate::store;

/// Which run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memlab reproduce runs/alpha_batch/alpha-small-b4-s6-fp32-8f2d8794

Compares the allocated, reserved and peak memory of every sample, to the byte, and the final loss. Prints what \
differs, and ends with 1 if something does. The run's own files stay as they are.")]
pub(super) struct Args {
    /// Folder of the run, or its report
    #[arg(value_name = "RUN_DIR")]
    run: PathBuf,
    /// Keep the new report
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let path = if args.run.is_dir() { args.run.join("report.json") } else { args.run.clone() };
    let before = store::read_report(&path)?.report;
    let Some(spec) = before.spec.clone() else {
        return Err(Diagnostic::error(format!("{} does not hold the run's configuration", path.display()))
            .help("only reports that memlab wrote can be reproduced; `memlab run` takes the exercise's options")
            .into());
    };
    let machine = Machine::find()?;
    if spec.device == DeviceKind::Cuda && machine.probe.gpus.is_empty() {
        let why = machine.why_no_cuda();
        return Err(Diagnostic::error(format!("the run was made with CUDA, which does not work here: {why}")).into());
    }
    let place = tempfile::tempdir()
        .map_err(|error| Diagnostic::error(format!("cannot make a folder for temporary files: {error}")))?;
    let report = args.output.clone().unwrap_or_else(|| place.path().join("report.json"));
    if args.output.is_some() && report.exists() {
        return Err(Diagnostic::error(format!("{} exists", report.display())).help("choose another name").into());
    }
    let run_id = before.run_id.clone().unwrap_or_default();
    let snapshot = spec.snapshot.as_ref().map(|_| place.path().join("snapshot.pickle"));
    let log = place.path().join("worker");
    let files = Place::Files { report: report.clone(), snapshot, overwrite: [false; 2], log };
    let jobs = [Job { run: PlannedRun { run_id, label: None, spec }, place: files }];
    let provenance = provenance(before.provenance.as_ref().and_then(|known| known.experiment.as_deref()));
    let (ending, _) = machine.execute(&jobs, Limits::default(), provenance, console)?;
    if ending == Ending::Interrupted {
        return Ok(Exit::Interrupted);
    }
    if !report.exists() {
        return Err(Stop::new(Exit::RunFailed, Diagnostic::error("the repetition left no report")));
    }
    let after = store::read_report(&report)?.report;
    for line in circumstances(&before, &after) {
        console.note(&line);
    }
    let differences = collate::reproduction(&before, &after);
    if differences.rows().is_empty() && args.format.format.is_prose() {
        console.note("every sample, the outcome and the final loss are equal");
    } else {
        console.result(&args.format.format.render(&differences))?;
    }
    Ok(if differences.rows().is_empty() { Exit::Success } else { Exit::Refuted })
}

/// What was different about the two runs, and may be why they differ.
fn circumstances(before: &Report, after: &Report) -> Vec<String> {
    let device = |report: &Report| report.rank_reports.first().map(|rank| rank.gpu_name.clone());
    let facts = [
        ("libtorch", before.libtorch_version.clone(), after.libtorch_version.clone()),
        ("worker build", before.worker_build.clone(), after.worker_build.clone()),
        ("GPU", device(before), device(after)),
        ("CUDA", before.cuda_version.clone(), after.cuda_version.clone()),
    ];
    let named = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let differing = facts.into_iter().filter(|(_, before, after)| before != after);
    differing.map(|(what, before, after)| format!("{what} was {}, is {}", named(before), named(after))).collect()
}
