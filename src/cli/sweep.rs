//! `memlab sweep`: expand, execute, collate, judge.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collate::{Written, write};
use super::console::{Console, Stop};
use super::format::FormatOption;
use super::machine::Machine;
use super::planning::PlanningOptions;
use super::slurm::{self, Cluster, Sent, SlurmOptions, Submissions};
use crate::collate::{self, Collation, Ranks, Row};
use crate::diag::Diagnostic;
use crate::exec::{Ending, Job, Limits, Place, provenance, utc_now};
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::parallel::on_all_cores;
use crate::plan::Host;
use crate::protocol::{Outcome, PlanFile, PlannedRun, Probe};
use crate::render;
use crate::store::{Lock, ResultsFolder, State, is_finished};

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

/// Reads every file before anything is started, and finds what runs them.
pub(super) fn prepare(paths: &[PathBuf], planning: &PlanningOptions) -> Result<(Machine, Vec<Experiment>), Stop> {
    let experiments = read(paths, planning)?;
    let machine = Machine::find()?;
    experiments.iter().try_for_each(|experiment| machine.can_run(experiment))?;
    Ok((machine, experiments))
}

fn read(paths: &[PathBuf], planning: &PlanningOptions) -> Result<Vec<Experiment>, Stop> {
    let experiments = paths.iter().map(|path| planning.read(path)).collect::<Result<Vec<_>, _>>()?;
    let mut names = HashSet::new();
    if let Some(twice) = experiments.iter().find(|experiment| !names.insert(&experiment.name)) {
        return Err(Diagnostic::error(format!("two of the experiments are called {}", twice.name))
            .help("change the `name` of one of them: it names the results folder")
            .into());
    }
    Ok(experiments)
}

/// Which runs of an experiment are executed, and where.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) planning: &'a PlanningOptions,
    /// Runs at a time.
    pub(super) jobs: Option<u16>,
    /// Run again what is finished.
    pub(super) fresh: bool,
    /// Of what ended before, run only these again.
    pub(super) retry: &'a [Outcome],
    /// Folder for the results, where it is not that of the name.
    pub(super) out: Option<&'a Path>,
}

/// What executing an experiment left. The folder is locked as long as this is there.
#[derive(Debug)]
pub(super) struct Executed {
    pub(super) folder: ResultsFolder,
    pub(super) collation: Collation,
    pub(super) ending: Ending,
    _lock: Lock,
}

impl Request<'_> {
    /// Executes what is due of one experiment, and reads what is there then.
    pub(super) fn execute(
        &self,
        experiment: &Experiment,
        machine: &Machine,
        console: &mut Console,
    ) -> Result<Executed, Stop> {
        let (folder, lock, plan) = self.open(experiment, &machine.host(), console)?;
        slurm::refuse_while_queued(&folder)?;
        let jobs = self.due(&plan, &folder, Some(&machine.probe), console)?;
        let limits = Limits { jobs: self.jobs.map(usize::from), time_limit_seconds: plan.timeout_seconds };
        let (ending, _) = machine.execute(&jobs, limits, provenance(Some(&plan.experiment)), console)?;
        let collation = Collation::of_plan(&folder, plan)?;
        Ok(Executed { folder, collation, ending, _lock: lock })
    }

    /// The same on a cluster; nothing where nobody waits for the runs.
    fn send(
        &self,
        experiment: &Experiment,
        cluster: &Cluster,
        options: &SlurmOptions,
        console: &mut Console,
    ) -> Result<Option<Executed>, Stop> {
        let (folder, lock, plan) = self.open(experiment, &slurm::host(experiment), console)?;
        // Before it is decided what is due: a run that ends meanwhile is not sent a second time.
        let submissions = Submissions::open(&folder, options)?;
        let jobs = self.due(&plan, &folder, cluster.probe.as_ref(), console)?;
        let Sent::Followed(ending) = submissions.sweep(options, cluster, &plan, jobs, console)? else {
            return Ok(None);
        };
        let collation = Collation::of_plan(&folder, plan)?;
        Ok(Some(Executed { folder, collation, ending, _lock: lock }))
    }

    /// Takes the experiment's folder, and writes the plan.
    fn open(
        &self,
        experiment: &Experiment,
        host: &Host,
        console: &mut Console,
    ) -> Result<(ResultsFolder, Lock, PlanFile), Stop> {
        let plan = self.planning.expand(experiment, host, console)?;
        let place = self.out.map_or_else(|| Path::new("runs").join(&experiment.name), Path::to_owned);
        let folder = ResultsFolder::create(place)?;
        let lock = folder.lock()?;
        let plan = plan.file(experiment, &utc_now(), folder.plan().ok().flatten().as_ref());
        folder.set_plan(&plan)?;
        Ok((folder, lock, plan))
    }

    /// The runs that are not finished, in the plan's order.
    fn due(
        &self,
        plan: &PlanFile,
        folder: &ResultsFolder,
        probe: Option<&Probe>,
        console: &mut Console,
    ) -> Result<Vec<Job>, Stop> {
        let is_due = |run: &&PlannedRun| {
            if self.fresh {
                return true;
            }
            let place = folder.run(&run.run_id);
            let report = place.report().ok().flatten();
            let state = place.state(report.as_ref());
            let finished = report.is_some_and(|report| {
                // Where the worker cannot be asked, a report is taken at its own word.
                let (libtorch, build) = match probe {
                    Some(probe) => (Some(&probe.libtorch_version), Some(&probe.worker_build)),
                    None => (report.libtorch_version.as_ref(), report.worker_build.as_ref()),
                };
                let [libtorch, build] = [libtorch, build].map(|text| text.map_or("", String::as_str));
                is_finished(&state, &report, &run.spec, libtorch, build)
            });
            match state {
                State::Ended { outcome, .. } if self.retry.contains(&outcome) => true,
                State::Ended { outcome, .. } if !self.retry.is_empty() && !outcome.is_finished() => false,
                _ => !finished,
            }
        };
        let due: Vec<&PlannedRun> = on_all_cores(|| plan.runs.par_iter().filter(is_due).collect())?;
        let (all, finished) = (plan.runs.len(), plan.runs.len() - due.len());
        console.note(&format!("{}: {all} runs, {finished} of them finished before", plan.name));
        Ok(due.into_iter().map(|run| Job { run: run.clone(), place: Place::Folder(folder.run(&run.run_id)) }).collect())
    }
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
