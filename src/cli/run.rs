//! `memlab run`: one run with the exercise's options.

use std::path::{Path, PathBuf};

use super::axes::AxisOptions;
use super::console::{Console, Stop};
use super::format::FormatOption;
use super::machine::{Ended, Machine};
use crate::collate::{Ranks, Row};
use crate::diag::Diagnostic;
use crate::exec::{Ending, Job, Limits, Place, provenance};
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::plan;
use crate::protocol::{Outcome, SnapshotSpec};
use crate::store;

/// What to run, and where its files go.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab run --case alpha --output alpha.json
  memlab run --case beta --preset medium --batch-size 1 --output beta-medium.json
  memlab run --case gamma --capacity 1GiB --no-compute --output gamma-1gib.json

Ends with 3 if the run is out of memory; the report then holds what was measured until then.")]
pub(super) struct Args {
    #[command(flatten)]
    axes: AxisOptions,
    /// Record the allocator's history into FILE, with -rankN put in front of its extension
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Bound on the entries of the history, per rank
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "snapshot",
        value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_max_entries: u64,
    /// Where the report goes; otherwise a file named after the run
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the report if it exists
    #[arg(long)]
    overwrite_output: bool,
    /// Replace the snapshot if it exists
    #[arg(long)]
    overwrite_snapshot: bool,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let mut experiment = Experiment::single("run");
    args.axes.apply(&mut experiment)?;
    experiment.snapshot = args.snapshot.as_ref().map(|_| SnapshotSpec { max_entries: args.snapshot_max_entries });
    if let Some(output) = &args.output {
        check_target(output, args.overwrite_output, "--overwrite-output")?;
    }
    let machine = Machine::find()?;
    machine.can_run(&experiment)?;
    let plan = plan::expand(&experiment, &machine.host())?;
    for warning in &plan.warnings {
        console.diagnostic(warning);
    }
    let Some(planned) = plan.runs.into_iter().next() else {
        return Err(Diagnostic::error("there is nothing to run").into());
    };
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.json", planned.run_id)));
    check_target(&output, args.overwrite_output, "--overwrite-output")?;
    for rank in 0..planned.spec.world_size {
        if let Some(snapshot) = args.snapshot.as_ref().map(|path| ranked(path, rank)) {
            check_target(&snapshot, args.overwrite_snapshot, "--overwrite-snapshot")?;
        }
    }
    let logs = tempfile::tempdir()
        .map_err(|error| Diagnostic::error(format!("cannot make a folder for temporary files: {error}")))?;
    let place = Place::Files {
        report: output.clone(),
        snapshot: args.snapshot.clone(),
        overwrite: [args.overwrite_output, args.overwrite_snapshot],
        log: logs.path().join("worker"),
    };
    let jobs = [Job { run: planned, place }];
    let (ending, ended) = machine.execute(&jobs, Limits::default(), provenance(None), console)?;
    let result = ended.into_iter().next().flatten();
    let measured = result.as_ref().is_some_and(|ended| ended.outcome.is_finished());
    if measured {
        let row = Row::from(store::read_report(&output)?);
        console.result(&args.format.format.compare(&[row], Ranks::Maximum))?;
        console.note(&format!("the report is in {}", output.display()));
    }
    if ending == Ending::Interrupted {
        return Ok(Exit::Interrupted);
    }
    let Some(Ended { outcome, message }) = result else {
        return Err(Stop::new(Exit::RunFailed, Diagnostic::error("the run was not started")));
    };
    let why = message.unwrap_or_else(|| "no reason is known".to_owned());
    let (exit, what) = match outcome {
        Outcome::Ok => return Ok(Exit::Success),
        Outcome::Oom => (Exit::OutOfMemory, "the run is out of device memory".to_owned()),
        Outcome::Error => (Exit::RunFailed, "the run failed".to_owned()),
        outcome => (Exit::RunFailed, format!("the run did not come to its end: {outcome}")),
    };
    let log = std::fs::read_to_string(jobs[0].place.log_path(0)).unwrap_or_default();
    if exit == Exit::RunFailed && !log.trim().is_empty() {
        console.note(log.trim_end());
    }
    Err(Stop::new(exit, Diagnostic::error(what).note(why)))
}

/// Checks before a long run what would be in its way afterwards.
fn check_target(path: &Path, overwrite: bool, option: &str) -> Result<(), Diagnostic> {
    if path.is_dir() {
        return Err(Diagnostic::error(format!("{} is a folder", path.display())).help("name a file in it"));
    }
    if path.exists() && !overwrite {
        return Err(Diagnostic::error(format!("{} exists", path.display()))
            .help(format!("add {option} to replace it, or choose another name")));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = tempfile::tempfile_in(folder);
    writable.map(drop).map_err(|error| {
        Diagnostic::error(format!("cannot write into {}: {error}", folder.display()))
            .help("make the folder, or choose another one")
    })
}

/// `gamma.pickle` of rank 1 is `gamma-rank1.pickle`.
fn ranked(path: &Path, rank: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-rank{rank}{extension}"))
}
