//! Runs on this machine: one worker process per rank, side by side as far as cores, host memory and GPUs allow.
//!
//! One loop owns all state and hears of everything through one channel: from a thread per worker, from the signals, and from
//! the clock. A first signal ends the workers and keeps what is finished, a second one kills them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::child::{Child, Exit, News};
use super::host::Host;
use super::outcome::{Evidence, Stop, judge};
use super::resources::{Need, Resources, cost};
use super::signals::Watch;
use super::worker::{Worker, visible_gpus};
use super::{Ending, Event, Executor, Job, Place, utc_now};
use crate::diag::Diagnostic;
use crate::protocol::{self, Outcome, Phase, Provenance, Report, Request, SCHEMA_VERSION, Status};
use crate::store::{self, hostname};

/// How long the other ranks may go on after one failed: enough to leave word of what they saw.
const RANK_GRACE: Duration = Duration::from_secs(3);
/// How long a worker may take beyond its time limit, which it keeps itself, and to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// What bounds the runs.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Runs at a time; none for as many as there is room for.
    pub jobs: Option<usize>,
    /// Seconds per run; none for no limit.
    pub time_limit_seconds: Option<u64>,
}

/// Executes runs on this machine.
#[derive(Debug)]
pub struct Local {
    worker: Worker,
    limits: Limits,
    provenance: Provenance,
    host: Host,
    gpus: Vec<String>,
    cores: usize,
}

impl Local {
    /// With this worker, which found so many GPUs.
    pub fn new(worker: Worker, gpus_found: usize, limits: Limits, provenance: Provenance) -> Self {
        let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Self {
            worker,
            limits,
            provenance,
            host: Host::this(),
            gpus: visible_gpus(gpus_found, chosen.as_deref()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }

    fn resources(&self) -> Resources {
        // A tenth is left to everybody else.
        let memory = self.host.memory_available().map_or(u64::MAX, |bytes| bytes / 10 * 9);
        let runs = self.limits.jobs.unwrap_or(usize::MAX);
        // Asking for more runs than cores is asking for shared cores.
        let cores = self.limits.jobs.map_or(self.cores, |jobs| jobs.max(self.cores));
        Resources::new(runs, cores, memory, self.gpus.clone())
    }
}

impl Executor for Local {
    fn execute(&mut self, jobs: &[Job], on_event: &mut dyn FnMut(Event)) -> Result<Ending, Diagnostic> {
        let (sender, receiver) = channel();
        let on_signal = sender.clone();
        let watch = Watch::new(move || {
            let _ = on_signal.send(Message::Signal);
        })
        .map_err(|error| Diagnostic::error(format!("cannot watch for signals: {error}")))?;
        let mut session = Session {
            resources: self.resources(),
            local: self,
            jobs,
            queue: Vec::new(),
            running: Vec::new(),
            signals: 0,
            sender,
            on_event,
        };
        session.enqueue();
        session.run(&receiver);
        drop(watch);
        Ok(if session.signals > 0 { Ending::Interrupted } else { Ending::Complete })
    }
}

/// What the loop hears of.
enum Message {
    /// The user wants to stop.
    Signal,
    /// Something about a worker.
    Worker { job: usize, rank: u64, news: News },
}

/// A run whose processes have not all ended.
struct Running {
    job: usize,
    attempt: u32,
    children: Vec<Child>,
    alive: usize,
    /// The rank that ended first in another way than well, else the last one, and how.
    exit: (u64, Exit),
    said: Option<(Outcome, Option<String>)>,
    phase: Option<(i64, Phase)>,
    started: Instant,
    started_at: String,
    stopped: Option<Stop>,
    /// When to do something about it, and what.
    alarm: Option<(Instant, Alarm)>,
    ended_for_memory: u64,
    report_before: Option<Stamp>,
    /// Where the ranks meet; removed with the run.
    rendezvous: Option<tempfile::TempDir>,
}

#[derive(Debug, Clone, Copy)]
enum Alarm {
    /// The worker did not keep its time limit.
    TimeLimit { seconds: u64 },
    /// A rank failed, and the others did not end.
    Ranks,
    /// It did not end when it was asked to.
    Kill,
}

/// Tells a file from another that was renamed into its place.
type Stamp = (u64, u64, i64);

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.mtime_nsec()))
}

struct Session<'a> {
    local: &'a Local,
    jobs: &'a [Job],
    resources: Resources,
    /// Jobs not yet started; the next one is the last.
    queue: Vec<usize>,
    running: Vec<Running>,
    signals: usize,
    sender: Sender<Message>,
    on_event: &'a mut dyn FnMut(Event),
}

impl Session<'_> {
    /// Side by side the longest go first, so that none is left over at the end; one at a time keeps the plan's order.
    fn enqueue(&mut self) {
        self.queue = (0..self.jobs.len()).collect();
        if self.resources.is_parallel() {
            self.queue.sort_by_key(|job| std::cmp::Reverse(cost(&self.jobs[*job].run.spec)));
        }
        self.queue.reverse();
    }

    fn run(&mut self, receiver: &Receiver<Message>) {
        loop {
            if self.signals == 0 {
                self.start_what_fits();
            }
            if self.running.is_empty() && (self.queue.is_empty() || self.signals > 0) {
                return;
            }
            let alarm = self.running.iter().filter_map(|run| run.alarm.map(|(at, _)| at)).min();
            let message = match alarm {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Signal) => self.interrupt(),
                Ok(Message::Worker { job, rank, news }) => self.hear(job, rank, news),
                Err(_) => self.ring(),
            }
        }
    }

    fn start_what_fits(&mut self) {
        let mut waiting = Vec::new();
        while let Some(job) = self.queue.pop() {
            let need = Need::of(&self.jobs[job].run.spec);
            if need.gpus > self.local.gpus.len() {
                let found = self.local.gpus.len();
                self.fail(job, format!("the run needs {} GPUs, and {found} can be used here", need.gpus));
            } else if let Some(gpus) = self.resources.take(job, &need).map(<[String]>::to_vec) {
                self.start(job, &gpus);
            } else {
                waiting.push(job);
                // A run that fits fills the room that a larger one has to wait for; with no room at all nobody fits.
                if self.resources.is_full() {
                    break;
                }
            }
        }
        self.queue.extend(waiting.into_iter().rev());
    }

    fn start(&mut self, job: usize, gpus: &[String]) {
        (self.on_event)(Event::Started { job });
        match self.launch(job, gpus) {
            Ok(running) => self.running.push(running),
            Err(message) => {
                self.resources.give_back(job);
                self.fail(job, message);
            }
        }
    }

    /// Starts the processes of a run. What was started before a failure ends with its lifeline.
    fn launch(&self, job: usize, gpus: &[String]) -> Result<Running, String> {
        let Job { run, place } = &self.jobs[job];
        let said = |diagnostic: Diagnostic| diagnostic.message;
        let attempt = match place {
            Place::Folder(folder) => folder.begin().map_err(said)?,
            Place::Files { .. } => 1,
        };
        let limit = self.local.limits.time_limit_seconds;
        let (report, status, snapshot, overwrite) = match place {
            Place::Folder(folder) => {
                let snapshot = run.spec.snapshot.as_ref().map(|_| absolute(folder.snapshot_path()));
                (absolute(folder.report_path()), Some(absolute(folder.status_path())), snapshot, [false; 2])
            }
            Place::Files { report, snapshot, overwrite } => {
                (absolute(report.clone()), None, snapshot.clone().map(absolute), *overwrite)
            }
        };
        let report_before = stamp(&report);
        let request = Request {
            schema_version: SCHEMA_VERSION,
            run_id: run.run_id.clone(),
            attempt,
            spec: run.spec.clone(),
            report,
            status,
            snapshot,
            overwrite,
            time_limit_seconds: limit,
            provenance: self.local.provenance.clone(),
        };
        let request = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let ranks = run.spec.world_size;
        let rendezvous = (ranks > 1)
            .then(tempfile::tempdir)
            .transpose()
            .map_err(|error| format!("cannot make a folder where the ranks meet: {error}"))?;
        let started = Instant::now();
        let mut running = Running {
            job,
            attempt,
            children: Vec::new(),
            alive: 0,
            exit: (0, Exit::Code(0)),
            said: None,
            phase: None,
            started,
            started_at: utc_now(),
            stopped: None,
            alarm: limit.map(|seconds| (started + Duration::from_secs(seconds) + GRACE, Alarm::TimeLimit { seconds })),
            ended_for_memory: self.local.host.processes_ended_for_memory(),
            report_before,
            rendezvous,
        };
        if let Place::Folder(folder) = place {
            // Before the worker starts, so that its own word always comes later.
            folder.set_status(&status_of(run.run_id.clone(), &running, std::process::id())).map_err(said)?;
        }
        for rank in 0..ranks {
            let mut command = Command::new(self.local.worker.path());
            command.arg("run");
            for variable in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MEMLAB_RENDEZVOUS"] {
                // Inherited from a launcher around memlab, these would be about other processes.
                command.env_remove(variable);
            }
            if let Some(rendezvous) = &running.rendezvous {
                let rank = rank.to_string();
                command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", ranks.to_string());
                command.env("MEMLAB_RENDEZVOUS", rendezvous.path().join("store"));
            }
            if !gpus.is_empty() {
                command.env("CUDA_VISIBLE_DEVICES", gpus.join(","));
            }
            let log = match place {
                Place::Folder(folder) => Some(open_log(&folder.log_path(rank))?),
                Place::Files { .. } => None,
            };
            let sender = self.sender.clone();
            let on_news = move |news| {
                let _ = sender.send(Message::Worker { job, rank, news });
            };
            let child = Child::start(command, &request, log, on_news)
                .map_err(|error| format!("cannot start the worker {}: {error}", self.local.worker.path().display()))?;
            running.children.push(child);
            running.alive += 1;
        }
        Ok(running)
    }

    fn interrupt(&mut self) {
        self.signals += 1;
        if self.signals == 1 {
            (self.on_event)(Event::Interrupted);
        }
        for run in &mut self.running {
            run.stopped.get_or_insert(Stop::User);
            if self.signals == 1 {
                run.terminate();
            } else {
                run.kill();
            }
        }
    }

    fn hear(&mut self, job: usize, rank: u64, news: News) {
        // Of a run that could not be started completely nothing is heard any more.
        let Some(at) = self.running.iter().position(|run| run.job == job) else { return };
        let run = &mut self.running[at];
        match news {
            News::Said(protocol::Event::Phase { step, phase, .. }) => {
                run.phase = Some((step, phase));
                (self.on_event)(Event::Phase { job, rank, step, phase });
            }
            News::Said(protocol::Event::End { outcome, message }) => {
                // The first bad word of a rank is the cause, the others' are consequences.
                if run.said.as_ref().is_none_or(|(earlier, _)| *earlier == Outcome::Ok) {
                    run.said = Some((outcome, message));
                }
            }
            News::Exited(exit) => {
                run.alive -= 1;
                if run.exit.1 == Exit::Code(0) {
                    run.exit = (rank, exit);
                }
                if run.alive == 0 {
                    let run = self.running.swap_remove(at);
                    self.finish(&run);
                } else if exit != Exit::Code(0) && run.stopped.is_none() {
                    run.alarm = Some((Instant::now() + RANK_GRACE, Alarm::Ranks));
                }
            }
        }
    }

    /// Deals with the runs whose time has come.
    fn ring(&mut self) {
        let now = Instant::now();
        for run in &mut self.running {
            match run.alarm {
                Some((at, alarm)) if at <= now => match alarm {
                    Alarm::TimeLimit { seconds } => {
                        run.stopped.get_or_insert(Stop::TimeLimit { seconds });
                        run.terminate();
                    }
                    Alarm::Ranks => {
                        run.stopped.get_or_insert(Stop::Ranks);
                        run.terminate();
                    }
                    Alarm::Kill => run.kill(),
                },
                _ => {}
            }
        }
    }

    fn finish(&mut self, run: &Running) {
        let Job { run: planned, place } = &self.jobs[run.job];
        let (path, log) = match place {
            Place::Folder(folder) => (folder.report_path(), Some(folder.log_path(run.exit.0))),
            Place::Files { report, .. } => (report.clone(), None),
        };
        let (outcome, message) = judge(Evidence {
            report: new_report(&path, run.report_before),
            exit: run.exit,
            said: run.said.clone(),
            stopped: run.stopped,
            host_ran_out: self.local.host.processes_ended_for_memory() > run.ended_for_memory,
            log: log.as_deref(),
        });
        let mut message = message;
        if let Place::Folder(folder) = place {
            let worker = folder.status().ok().flatten();
            let pid = run.children.first().map_or(0, |child| child.pid);
            let mut status = status_of(planned.run_id.clone(), run, pid);
            if let Some(worker) = worker {
                status.phase = worker.phase.or(status.phase);
            }
            status.ended_at = Some(status.heartbeat_at.clone());
            status.outcome = Some(outcome);
            status.message.clone_from(&message);
            match run.exit.1 {
                Exit::Code(code) => status.exit_code = Some(code),
                Exit::Signal(signal) => status.signal = Some(signal),
            }
            if let Err(error) = folder.set_status(&status) {
                message =
                    Some(message.map_or_else(|| error.message.clone(), |said| format!("{said}; {}", error.message)));
            }
        }
        let seconds = run.started.elapsed().as_secs_f64();
        self.resources.give_back(run.job);
        (self.on_event)(Event::Ended { job: run.job, outcome, message, seconds });
    }

    /// A run that could not be started.
    fn fail(&mut self, job: usize, message: String) {
        let Job { run, place } = &self.jobs[job];
        let outcome = Outcome::Error;
        if let Place::Folder(folder) = place {
            let now = utc_now();
            let status = Status {
                schema_version: SCHEMA_VERSION,
                run_id: run.run_id.clone(),
                attempt: folder.status().ok().flatten().map_or(1, |status| status.attempt),
                outcome: Some(outcome),
                message: Some(message.clone()),
                phase: None,
                started_at: now.clone(),
                heartbeat_at: now.clone(),
                ended_at: Some(now),
                hostname: hostname(),
                pid: std::process::id(),
                slurm_job_id: None,
                exit_code: None,
                signal: None,
            };
            // The folder may be the reason; then the event is all there is.
            let _ = std::fs::create_dir_all(folder.path());
            let _ = folder.set_status(&status);
        }
        (self.on_event)(Event::Ended { job, outcome, message: Some(message), seconds: 0.0 });
    }
}

impl Running {
    fn terminate(&mut self) {
        for child in &mut self.children {
            child.terminate();
        }
        self.alarm = Some((Instant::now() + GRACE, Alarm::Kill));
    }

    fn kill(&mut self) {
        for child in &mut self.children {
            child.kill();
        }
        self.alarm = None;
    }
}

fn status_of(run_id: String, run: &Running, pid: u32) -> Status {
    Status {
        schema_version: SCHEMA_VERSION,
        run_id,
        attempt: run.attempt,
        outcome: None,
        message: None,
        phase: run.phase,
        started_at: run.started_at.clone(),
        heartbeat_at: utc_now(),
        ended_at: None,
        hostname: hostname(),
        pid,
        slurm_job_id: None,
        exit_code: None,
        signal: None,
    }
}

/// The report that this run wrote, if it did: one that was there before is not its own.
fn new_report(path: &std::path::Path, before: Option<Stamp>) -> Result<Option<Report>, Diagnostic> {
    match stamp(path) {
        now if now == before => Ok(None),
        None => Ok(None),
        Some(_) => store::read_report(path).map(|named| Some(named.report)),
    }
}

fn open_log(path: &std::path::Path) -> Result<File, String> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Workers need not share this process's idea of the working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
