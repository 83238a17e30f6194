//! `memlab slurm-task`: what a task of a job array calls. It executes the task's runs one after another, as a local sweep would.

use std::path::PathBuf;

use super::console::{Console, Stop};
use crate::exec::{Ending, Event, Executor, Job, Limits, Local, Place, Worker};
use crate::exit::Exit;
use crate::store::{self, RunFolder, slurm_job_id, slurm_job_name};

/// Which task, and how its workers are started.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The submission's list of tasks
    list: PathBuf,
    /// The index in it
    index: usize,
    /// Words in front of each worker
    #[arg(last = true)]
    launcher: Vec<String>,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let (folder, task) = store::slurm_task(&args.list, args.index)?;
    let runs = task.runs.into_iter().map(|run| (folder.run(&run.run_id), run));
    // After a requeue, what this task finished before is kept.
    let due = runs.filter(|(place, _)| !is_done(place));
    let jobs: Vec<Job> = due.map(|(place, run)| Job { run, place: Place::Folder(place) }).collect();
    let limits = Limits { jobs: Some(1), time_limit_seconds: task.time_limit_seconds };
    // Slurm names the GPUs of a job; where it does not, the worker finds what is there.
    let ranks = jobs.iter().map(|job| job.run.spec.world_size).max().unwrap_or(0);
    let mut local = Local::new(Worker::find()?, usize::try_from(ranks).unwrap_or(0), limits, task.provenance);
    if !args.launcher.is_empty() {
        local = local.behind(args.launcher.clone());
    }
    let mut exit = Exit::Success;
    let ending = local.execute(&jobs, &mut |event| match event {
        Event::Started { job } => console.note(&format!("{} begins", jobs[job].run.run_id)),
        Event::Ended { job, outcome, message, seconds } => {
            let why = message.map(|message| format!(": {message}")).unwrap_or_default();
            console.note(&format!("{} ended after {seconds:.2} s: {outcome}{why}", jobs[job].run.run_id));
            if !outcome.is_finished() {
                exit = Exit::RunFailed;
            }
        }
        Event::Interrupted => console.note("asked to end"),
        Event::Phase { .. } | Event::Notice { .. } => {}
    })?;
    Ok(if ending == Ending::Interrupted { Exit::Interrupted } else { exit })
}

/// Whether this very task finished a run already.
fn is_done(place: &RunFolder) -> bool {
    let Ok(Some(status)) = place.status() else { return false };
    status.slurm_job_id.is_some()
        && (status.slurm_job_id, status.slurm_job_name) == (slurm_job_id(), slurm_job_name())
        && status.outcome.is_some_and(crate::protocol::Outcome::is_finished)
        && place.report_path().exists()
}
