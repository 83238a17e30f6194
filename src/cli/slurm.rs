//! `memlab sweep --slurm`: the same sweep, with a cluster's queue between the plan and the worker.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::console::{Console, Stop};
use super::progress::Progress;
use crate::diag::Diagnostic;
use crate::exec::slurm::{Array, ClusterLimits, Programs, Request, Slurm, Template, cluster_limits, submit_collation};
use crate::exec::{Ending, Job, Worker, provenance};
use crate::experiment::Experiment;
use crate::plan::Host;
use crate::protocol::{DeviceKind, PlanFile, Probe};
use crate::store::ResultsFolder;

/// Options of a sweep that goes to a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "On a Slurm cluster")]
pub(super) struct SlurmOptions {
    /// Write the scripts for a Slurm cluster, and show what would be submitted
    #[arg(long)]
    pub(super) slurm: bool,
    /// Submit them, and follow the jobs to their end
    #[arg(long, requires = "slurm")]
    submit: bool,
    /// Come back after submitting; a small job writes the tables when all others have ended
    #[arg(long, requires = "submit")]
    detach: bool,
    /// Take this template for the scripts instead of the one that `memlab slurm-template` prints
    #[arg(long, value_name = "FILE", requires = "slurm")]
    template: Option<PathBuf>,
    /// Seconds between two questions to the scheduler
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "slurm", value_parser = clap::value_parser!(u64).range(1..))]
    poll: u64,
}

/// What of a cluster is known here: the worker that its nodes have to see, and what it says where it starts here as well.
pub(super) struct Cluster {
    worker: Worker,
    pub(super) probe: Option<Probe>,
}

impl Cluster {
    /// Finds the worker, which need not start on this machine.
    pub(super) fn find() -> Result<Self, Diagnostic> {
        let worker = Worker::find()?;
        let probe = worker.probe().ok();
        Ok(Self { worker, probe })
    }
}

/// What became of a sweep that goes to a cluster.
pub(super) enum Sent {
    /// The runs ended, or were left alone while they go on.
    Followed(Ending),
    /// They are in the queue, or only scripts are written: there is nothing to tabulate yet.
    Away,
}

/// What `auto` stands for on the cluster: the GPUs that the experiment asks Slurm for.
pub(super) fn host(experiment: &Experiment) -> Host {
    let settings = experiment
        .slurm
        .iter()
        .flat_map(|all| std::iter::once(all).chain(all.overrides.iter().map(|over| &over.settings)));
    let gpus = |settings: &crate::protocol::SlurmSettings| {
        settings.gpus_per_node.is_some_and(|gpus| gpus > 0)
            || settings.gres.as_deref().is_some_and(|gres| gres.split(',').any(|one| one.starts_with("gpu")))
    };
    let device = if settings.clone().any(gpus) { DeviceKind::Cuda } else { DeviceKind::Cpu };
    Host { device, gpus: u64::MAX }
}

/// What a results folder has in the queue from earlier calls.
#[derive(Debug)]
pub(super) struct Submissions<'a> {
    folder: &'a ResultsFolder,
    slurm: Slurm<'a>,
    /// The runs that the queue still has.
    in_flight: HashSet<String>,
}

impl<'a> Submissions<'a> {
    /// Asks Slurm about them, and writes down how runs ended that could not say so themselves.
    pub(super) fn open(folder: &'a ResultsFolder, options: &SlurmOptions) -> Result<Self, Diagnostic> {
        let mut slurm = Slurm::open(folder)?;
        let standings = match slurm.settled() {
            Ok(standings) => standings,
            // Without an answer nothing may be sent a second time.
            Err(trouble) if options.submit => return Err(trouble),
            Err(_) => Vec::new(),
        };
        if options.submit {
            slurm.close(&standings)?;
        }
        let in_flight = standings.into_iter().filter(|standing| standing.in_flight).map(|standing| standing.run_id);
        Ok(Self { folder, slurm, in_flight: in_flight.collect() })
    }

    /// Sends the jobs to the cluster, except those that are there.
    pub(super) fn sweep(
        mut self,
        options: &SlurmOptions,
        cluster: &Cluster,
        plan: &PlanFile,
        jobs: Vec<Job>,
        console: &mut Console,
    ) -> Result<Sent, Stop> {
        let template = options.template.as_deref().map_or_else(|| Ok(Template::built_in()), Template::read)?;
        let (followed, jobs): (Vec<Job>, Vec<Job>) =
            jobs.into_iter().partition(|job| self.in_flight.contains(&job.run.run_id));
        if !followed.is_empty() {
            console.note(&format!("{}: {} runs are in the queue already", plan.name, followed.len()));
        }
        let limits = limits(options, console)?;
        let provenance = provenance(Some(&plan.experiment));
        let programs = programs(&cluster.worker)?;
        let mut request = Request { plan, provenance: &provenance, programs: &programs, template: &template, limits };
        let arrays = self.slurm.plan(&request, &jobs)?;
        arrays.iter().try_for_each(Array::write)?;
        if !options.submit {
            show(&arrays, console)?;
            return Ok(Sent::Away);
        }
        if arrays.is_empty() && followed.is_empty() {
            console.note("nothing to submit: every run is finished");
            return Ok(Sent::Followed(Ending::Complete));
        }
        let mut waiting = VecDeque::from(arrays);
        if options.detach {
            self.slurm.submit(&mut request, &mut waiting, &mut |event| note(&event, console))?;
            // Also after those of an earlier call, which may have ended before it came to this.
            let jobs = self.slurm.jobs();
            if !jobs.is_empty() {
                let job = submit_collation(self.folder, plan, &programs, &jobs)?;
                console.note(&format!("job {job} writes the tables when they have ended"));
            }
            if !waiting.is_empty() {
                let left: usize = waiting.iter().map(Array::runs).sum();
                console.note(&format!("{left} runs have to wait until there is room: call the same command again"));
            }
            console.note(&come_back(self.folder));
            return Ok(Sent::Away);
        }
        let all: Vec<Job> = followed.into_iter().chain(jobs).collect();
        let mut progress = Progress::new(&all, console);
        self.slurm.submit(&mut request, &mut waiting, &mut |event| progress.show(&event))?;
        let poll = Duration::from_secs(options.poll);
        let ending = self.slurm.follow(&mut request, &all, waiting, poll, &mut |event| progress.show(&event))?;
        drop(progress);
        if ending == Ending::Interrupted {
            console.note(&come_back(self.folder));
        }
        Ok(Sent::Followed(ending))
    }
}

/// How much the cluster takes. Scripts can be written without one.
fn limits(options: &SlurmOptions, console: &mut Console) -> Result<ClusterLimits, Diagnostic> {
    match cluster_limits() {
        Ok(limits) => Ok(limits),
        Err(trouble) if options.submit => Err(Diagnostic::error(format!("Slurm does not answer: {trouble}"))
            .help("submit on a machine of the cluster; `memlab doctor` says what is found")),
        Err(trouble) => {
            console.note(&format!("no cluster to ask for its limits ({trouble}): arrays of at most 1000 tasks"));
            Ok(ClusterLimits { array: 1000, jobs: usize::MAX })
        }
    }
}

/// The commands that would submit the scripts.
fn show(arrays: &[Array], console: &mut Console) -> Result<(), Stop> {
    for array in arrays {
        let script =
            shlex::try_quote(&array.place.script().display().to_string()).map_or_else(|_| String::new(), String::from);
        console.result(&format!("sbatch {script}  # {} tasks, {} runs\n", array.tasks.len(), array.runs()))?;
    }
    if arrays.is_empty() {
        console.note("nothing to submit: every run is finished, or in the queue");
    } else {
        console.note("nothing is submitted yet: add --submit, or call these commands");
    }
    Ok(())
}

/// Refuses to run here what may be in the queue of a cluster.
pub(super) fn refuse_while_queued(folder: &ResultsFolder) -> Result<(), Diagnostic> {
    let mut slurm = Slurm::open(folder)?;
    if !slurm.may_go_on() {
        return Ok(());
    }
    let unknown = |trouble: Diagnostic| {
        trouble.help("call the same command again when it does, or take another folder with --out")
    };
    if !slurm.settled().map_err(unknown)?.iter().any(|standing| standing.in_flight) {
        return Ok(());
    }
    let path = folder.path().display();
    Err(Diagnostic::error(format!("runs of {path} are in the queue of a cluster"))
        .help(format!("follow them with --slurm --submit, or end them with `memlab cancel {path}`")))
}

/// The programs by their real paths, which every node has to see.
fn programs(worker: &Worker) -> Result<Programs, Diagnostic> {
    let text = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let refused =
            || Diagnostic::error(format!("the path {} is not UTF-8", path.display())).help("install memlab elsewhere");
        path.to_str().map(str::to_owned).ok_or_else(refused)
    };
    let memlab = std::env::current_exe()
        .map_err(|error| Diagnostic::error(format!("the path of memlab cannot be found out: {error}")))?;
    Ok(Programs { memlab: text(&memlab)?, worker: text(worker.path())? })
}

fn note(event: &crate::exec::Event, console: &mut Console) {
    if let crate::exec::Event::Notice { text } = event {
        console.note(text);
    }
}

fn come_back(folder: &ResultsFolder) -> String {
    let path = folder.path().display();
    format!(
        "the jobs go on: `memlab status {path}` shows them, the same sweep follows them, `memlab cancel {path}` ends them"
    )
}
