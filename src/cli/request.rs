//! Which runs of experiments are executed, and where: what `sweep`, `check` and `limit` have in common.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::console::{Console, Stop};
use super::machine::Machine;
use super::planning::PlanningOptions;
use super::slurm::{self, Cluster, Sent, SlurmOptions, Submissions};
use crate::collate::Collation;
use crate::diag::Diagnostic;
use crate::exec::{Ending, Job, Limits, Place, provenance, utc_now};
use crate::experiment::Experiment;
use crate::parallel::on_all_cores;
use crate::plan::Host;
use crate::protocol::{Outcome, PlanFile, PlannedRun, Probe};
use crate::store::{Lock, ResultsFolder, State, is_finished};

/// Reads every file before anything is started, and finds what runs them.
pub(super) fn prepare(paths: &[PathBuf], planning: &PlanningOptions) -> Result<(Machine, Vec<Experiment>), Stop> {
    let experiments = read(paths, planning)?;
    let machine = Machine::find()?;
    experiments.iter().try_for_each(|experiment| machine.can_run(experiment))?;
    Ok((machine, experiments))
}

pub(super) fn read(paths: &[PathBuf], planning: &PlanningOptions) -> Result<Vec<Experiment>, Stop> {
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
    pub(super) fn send(
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
