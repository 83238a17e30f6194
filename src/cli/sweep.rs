//! `memlab sweep`: expand, execute, collate, judge.

use std::path::{Path, PathBuf};

use super::collate::{Written, write};
use super::console::{Console, Stop};
use super::format::FormatOption;
use super::machine::Machine;
use super::planning::PlanningOptions;
use super::request::{Executed, Request, prepare, read};
use super::slurm::{Cluster, SlurmOptions};
use crate::collate::{self, Collation, Ranks, Row};
use crate::diag::Diagnostic;
use crate::exec::Ending;
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::protocol::Outcome;
use crate::render;
use crate::store::ResultsFolder;

/// So many failed runs are named at the end of a sweep.
const SHOWN: usize = 10;

/// What to run, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab sweep experiments/alpha_batch.toml
  memlab sweep --device cpu --jobs 2 --set 'batch_size=[1, 2, 4, 8]' experiments/alpha_batch.toml
  memlab sweep --retry timeout,killed experiments/exercise.toml
  memlab sweep --slurm --submit experiments/exercise.toml

What is finished is not run again, unless libtorch or the worker changed since. A run that fails does not end \
the sweep; it has a row that says why, and the exit code is 4. Out of memory is evidence, not failure. The \
experiment's hypotheses are judged below the table: 1 if one is refuted, 5 if one is undecided.")]
pub(super) struct Args {
    /// Experiment files
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<PathBuf>,
    #[command(flatten)]
    planning: PlanningOptions,
    /// Runs at a time; otherwise as many as cores, host memory and GPUs allow
    #[arg(long, value_name = "N", conflicts_with = "slurm", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Run everything again
    #[arg(long)]
    fresh: bool,
    /// Of the runs that ended before, run only these again, such as timeout,killed; what never ran is run as well
    #[arg(long, value_name = "OUTCOMES", value_delimiter = ',', value_parser = outcome(), conflicts_with = "fresh")]
    retry: Vec<Outcome>,
    /// End with 3 if a run is out of memory
    #[arg(long)]
    fail_on_oom: bool,
    /// Folder for the results [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatOption,
    // Last: its heading is that of everything behind it.
    #[command(flatten)]
    slurm: SlurmOptions,
}

/// Where the runs go.
enum Target {
    Here(Machine),
    Away(Cluster),
}

fn outcome() -> impl clap::builder::TypedValueParser<Value = Outcome> {
    use clap::builder::TypedValueParser;
    let find = |name: String| Outcome::ALL.iter().find(|outcome| outcome.name() == name).copied();
    clap::builder::PossibleValuesParser::new(Outcome::NAMES)
        .try_map(move |name| find(name).ok_or("one of the outcomes"))
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    if args.out.is_some() && args.experiments.len() > 1 {
        return Err(Diagnostic::error("--out names one folder, and several experiments are given")
            .help("sweep them one by one, or without --out: each then has its folder under runs")
            .into());
    }
    let (target, experiments) = if args.slurm.slurm {
        (Target::Away(Cluster::find()?), read(&args.experiments, &args.planning)?)
    } else {
        let (machine, experiments) = prepare(&args.experiments, &args.planning)?;
        (Target::Here(machine), experiments)
    };
    let format = args.format.format;
    let mut exit = Exit::Success;
    let mut rows = Vec::new();
    for experiment in &experiments {
        let Some((folder, collation, written)) = sweep(args, experiment, &target, console)? else { continue };
        exit = exit.worst(written.exit);
        if format.is_prose() {
            if experiments.len() > 1 {
                console.result(&format!("{}\n\n", experiment.name))?;
            }
            console.result(&format.compare(&collation.rows, Ranks::Maximum))?;
            if let Some(responses) = collate::responses(&collation) {
                console.result(&format!("\n{}", format.render(&responses)))?;
            }
            if let Some(judged) = &written.judged {
                console.result(&format!("\n{}", format.verdicts(judged)))?;
            }
            if experiments.len() > 1 {
                console.result("\n")?;
            }
        }
        summarise(&folder, &collation.rows, console);
        if args.slurm.slurm
            && let Some((node, failed)) = collate::suspect(&folder, &collation.rows)
        {
            console.note(&format!(
                "{failed} runs failed, all of them on {node}, where none finished: \"--exclude={node}\" in [slurm] directives \
                 keeps runs away from it"
            ));
        }
        if let Some(judged) = &written.judged {
            console.note(&format!("hypotheses: {}", render::tally(&judged.hypotheses)));
        }
        rows.extend(collation.rows);
        if written.exit == Exit::Interrupted {
            break;
        }
    }
    if !format.is_prose() && !rows.is_empty() {
        console.result(&format.compare(&rows, Ranks::Maximum))?;
    }
    Ok(exit)
}

/// Sweeps one experiment: where its results are, what they say, and how it ended. Nothing where nobody waits for the runs.
fn sweep(
    args: &Args,
    experiment: &Experiment,
    target: &Target,
    console: &mut Console,
) -> Result<Option<(ResultsFolder, Collation, Written)>, Stop> {
    let Args { planning, jobs, fresh, retry, out, .. } = args;
    let request = Request { planning, jobs: *jobs, fresh: *fresh, retry, out: out.as_deref() };
    let executed = match target {
        Target::Here(machine) => request.execute(experiment, machine, console)?,
        Target::Away(cluster) => match request.send(experiment, cluster, &args.slurm, console)? {
            Some(executed) => executed,
            None => return Ok(None),
        },
    };
    let Executed { folder, collation, ending, .. } = &executed;
    let written = write(folder, collation, console)?;
    let out_of_memory = collation.rows.iter().any(|row| row.outcome() == Some(Outcome::Oom));
    let exit = match ending {
        Ending::Interrupted => Exit::Interrupted,
        Ending::Complete if args.fail_on_oom && out_of_memory => written.exit.worst(Exit::OutOfMemory),
        Ending::Complete => written.exit,
    };
    Ok(Some((executed.folder, executed.collation, Written { exit, ..written })))
}

/// Says how the runs ended, and where everything is.
fn summarise(folder: &ResultsFolder, rows: &[Row], console: &mut Console) {
    let failed: Vec<&Row> =
        rows.iter().filter(|row| row.outcome().is_some_and(|outcome| !outcome.is_finished())).collect();
    for row in failed.iter().take(SHOWN) {
        let log = shown(&folder.run(&row.run_id).log_path(0));
        let why = row.state.message().unwrap_or("no reason is known");
        console.note(&format!("{}: {}: {why} ({log})", row.run_id, row.state.name()));
    }
    if failed.len() > SHOWN {
        console.note(&format!(
            "and {} more, which `memlab status {}` shows",
            failed.len() - SHOWN,
            shown(folder.path())
        ));
    }
    console.note(&format!("{} runs: {}", rows.len(), collate::tally(rows)));
    let place = shown(folder.path());
    console.note(&format!("results.csv, samples.csv, comparison.md, report.html and figures are in {place}"));
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
