//! One run in progress: its processes, what is heard of them, and what is known when all have ended.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child::{Child, Exit, News};
use super::forkserver::Forkserver;
use super::host::Host;
use super::outcome::{Evidence, Stop, judge};
use super::worker::LAUNCHER;
use super::{Job, Place, Worker, utc_now};
use crate::diag::Diagnostic;
use crate::protocol::{DeviceKind, Event, Outcome, Phase, Provenance, Report, Request, SCHEMA_VERSION, Status};
use crate::store;

/// How long the other ranks may go on after one failed: enough to leave word of what they saw.
const RANK_GRACE: Duration = Duration::from_secs(3);
/// How long a worker may take beyond its time limit, which it keeps itself, and to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);

/// What every run of an execution has in common.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) worker: Worker,
    /// Starts runs of the modelled GPU faster than the worker does; none, or one that is gone, slows them down and no more.
    pub(super) forkserver: Option<Arc<Forkserver>>,
    /// Words in front of the worker that start every rank of a run; none where memlab starts them itself.
    pub(super) launcher: Option<Vec<String>>,
    pub(super) time_limit_seconds: Option<u64>,
    pub(super) provenance: Provenance,
    pub(super) host: Host,
}

/// A run whose processes have not all ended.
pub(super) struct Running {
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

/// What is to be done about a run whose time has come.
#[derive(Debug, Clone, Copy)]
enum Alarm {
    /// The worker did not keep its time limit.
    TimeLimit { seconds: u64 },
    /// A rank failed, and the others did not end.
    Ranks,
    /// It did not end when it was asked to.
    Kill,
}

/// What hearing of a worker changes.
pub(super) enum Heard {
    /// Nothing that others need to know.
    Nothing,
    /// A rank reached a phase boundary.
    Phase(i64, Phase),
    /// The last process ended.
    End,
}

impl Running {
    /// Starts the processes of a run. What was started before a failure ends with its lifeline.
    pub(super) fn launch(
        job: &Job,
        setting: &Setting,
        gpus: &[String],
        on_news: impl Fn(u64, News) + Send + Clone + 'static,
    ) -> Result<Self, String> {
        let said = |diagnostic: Diagnostic| diagnostic.message;
        let attempt = match &job.place {
            Place::Folder(folder) => folder.begin().map_err(said)?,
            Place::Files { .. } => 1,
        };
        let request = request(job, attempt, setting);
        let ranks = job.run.spec.world_size;
        let meeting = match (&job.place, &setting.launcher) {
            // Ranks on several nodes share the run's own folder.
            (Place::Folder(folder), Some(_)) => Some(absolute(folder.path().to_owned())),
            _ => None,
        };
        let rendezvous = (ranks > 1)
            .then(|| {
                meeting.map_or_else(tempfile::tempdir, |folder| {
                    tempfile::Builder::new().prefix(".meeting-").tempdir_in(folder)
                })
            })
            .transpose()
            .map_err(|error| format!("cannot make a folder where the ranks meet: {error}"))?;
        let started = Instant::now();
        // Ranks whose time is over wait for the word of the others before they end.
        let grace = if ranks > 1 { GRACE + RANK_GRACE } else { GRACE };
        let limit = |seconds| (started + Duration::from_secs(seconds) + grace, Alarm::TimeLimit { seconds });
        let mut running = Self {
            attempt,
            children: Vec::new(),
            alive: 0,
            exit: (0, Exit::Code(0)),
            said: None,
            phase: None,
            started,
            started_at: utc_now(),
            stopped: None,
            alarm: setting.time_limit_seconds.map(limit),
            ended_for_memory: setting.host.processes_ended_for_memory(),
            report_before: stamp(&request.report),
            rendezvous,
        };
        if let Place::Folder(folder) = &job.place {
            // Before the worker starts, so that its own word always comes later.
            let status = status(&job.run.run_id, attempt, &running.started_at, std::process::id());
            folder.set_status(&status).map_err(said)?;
        }
        let text = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let started_here = if setting.launcher.is_some() { 1 } else { ranks };
        for rank in 0..started_here {
            let command = match (&setting.launcher, &request.status) {
                (Some(words), Some(status)) => {
                    let path = status.with_file_name("request.json");
                    store::write_atomic(&path, text.as_bytes()).map_err(said)?;
                    running.launched(words, setting.worker.path(), &path)
                }
                _ => running.command(setting.worker.path(), rank, ranks, gpus),
            };
            let log = open_log(&job.place.log_path(rank))?;
            let on_news = on_news.clone();
            let forkserver = setting.forkserver.as_deref().filter(|_| can_be_forked(job, setting));
            let child = Child::start(command, forkserver, &text, log, move |news| on_news(rank, news))
                .map_err(|error| format!("cannot start the worker {}: {error}", setting.worker.path().display()))?;
            running.children.push(child);
            running.alive += 1;
        }
        Ok(running)
    }

    fn command(&self, worker: &Path, rank: u64, ranks: u64, gpus: &[String]) -> Command {
        let mut command = Command::new(worker);
        command.arg("run");
        forget_ranks(&mut command);
        if let Some(rendezvous) = &self.rendezvous {
            let rank = rank.to_string();
            command.env("RANK", &rank).env("LOCAL_RANK", &rank).env("WORLD_SIZE", ranks.to_string());
            command.env("MEMLAB_RENDEZVOUS", rendezvous.path().join("store"));
            if std::env::var_os("GLOO_SOCKET_IFNAME").is_none() {
                // They share this machine, whatever its name resolves to.
                command.env("GLOO_SOCKET_IFNAME", "lo");
            }
        }
        if !gpus.is_empty() {
            command.env("CUDA_VISIBLE_DEVICES", gpus.join(","));
        }
        command
    }

    /// The worker behind a launcher, which starts a process per rank and tells it which it is (`torchrun`), or leaves that to
    /// Slurm. What to run is in a file.
    fn launched(&self, launcher: &[String], worker: &Path, request: &Path) -> Command {
        let mut command = Command::new(launcher.first().map_or("srun", String::as_str));
        command.args(launcher.iter().skip(1));
        forget_ranks(&mut command);
        if let Some(rendezvous) = &self.rendezvous {
            command.env("MEMLAB_RENDEZVOUS", rendezvous.path().join("store"));
        }
        command.arg(worker).args(["run", "--request"]).arg(request);
        command
    }

    /// When the next thing is to be done about it.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.alarm.map(|(at, _)| at)
    }

    /// Does what is due.
    pub(super) fn ring(&mut self, now: Instant) {
        match self.alarm {
            Some((at, alarm)) if at <= now => match alarm {
                Alarm::TimeLimit { seconds } => self.end(Stop::TimeLimit { seconds }),
                Alarm::Ranks => self.end(Stop::Ranks),
                Alarm::Kill => self.kill(),
            },
            _ => {}
        }
    }

    /// Takes note of what a rank does.
    pub(super) fn hear(&mut self, rank: u64, news: News) -> Heard {
        match news {
            News::Said(Event::Phase { step, phase, .. }) => {
                self.phase = Some((step, phase));
                return Heard::Phase(step, phase);
            }
            News::Said(Event::End { outcome, message }) => {
                // The first bad word of a rank is the cause, the others' are consequences.
                if self.said.as_ref().is_none_or(|(earlier, _)| *earlier == Outcome::Ok) {
                    self.said = Some((outcome, message));
                }
            }
            News::Exited(exit) => {
                self.alive -= 1;
                if self.exit.1 == Exit::Code(0) {
                    self.exit = (rank, exit);
                }
                if self.alive == 0 {
                    return Heard::End;
                }
                if exit != Exit::Code(0) && self.stopped.is_none() {
                    self.alarm = Some((Instant::now() + RANK_GRACE, Alarm::Ranks));
                }
            }
        }
        Heard::Nothing
    }

    /// Asks it to end; it is killed if it does not.
    pub(super) fn end(&mut self, why: Stop) {
        self.stopped.get_or_insert(why);
        self.children.iter_mut().for_each(Child::terminate);
        self.alarm = Some((Instant::now() + GRACE, Alarm::Kill));
    }

    /// Ends it at once.
    pub(super) fn kill(&mut self) {
        self.children.iter_mut().for_each(Child::kill);
        self.alarm = None;
    }

    /// How long it has been running, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Judges a run whose processes have all ended, and completes its status.
    pub(super) fn finish(&self, job: &Job, host: &Host) -> (Outcome, Option<String>) {
        let (outcome, message) = judge(Evidence {
            report: new_report(&job.place.report_path(), self.report_before),
            exit: self.exit,
            said: self.said.clone(),
            stopped: self.stopped,
            // Asked only where it matters: a host has many counters.
            host_ran_out: self.exit.1 == Exit::Signal(nix::libc::SIGKILL)
                && host.processes_ended_for_memory() > self.ended_for_memory,
            log: &job.place.log_path(self.exit.0),
        });
        let Place::Folder(folder) = &job.place else { return (outcome, message) };
        let pid = self.children.first().map_or(0, |child| child.pid);
        let mut status = status(&job.run.run_id, self.attempt, &self.started_at, pid);
        let known = folder.status().ok().flatten().and_then(|status| status.phase);
        status.phase = known.or(self.phase);
        status.ended_at = Some(status.heartbeat_at.clone());
        status.outcome = Some(outcome);
        status.message.clone_from(&message);
        match self.exit.1 {
            Exit::Code(code) => status.exit_code = Some(code),
            Exit::Signal(signal) => status.signal = Some(signal),
        }
        match folder.set_status(&status) {
            Ok(()) => (outcome, message),
            Err(error) => (outcome, Some(message.into_iter().chain([error.message]).collect::<Vec<_>>().join("; "))),
        }
    }
}

/// Whether a run needs nothing of its own before libtorch is loaded: no GPU, no other ranks, no launcher.
fn can_be_forked(job: &Job, setting: &Setting) -> bool {
    let spec = &job.run.spec;
    spec.device == DeviceKind::Cpu && spec.world_size == 1 && setting.launcher.is_none()
}

/// Writes down that a run could not be started.
pub(super) fn not_started(job: &Job, message: &str) {
    if let Place::Folder(folder) = &job.place {
        let now = utc_now();
        let attempt = folder.status().ok().flatten().map_or(1, |status| status.attempt);
        let mut status = status(&job.run.run_id, attempt, &now, std::process::id());
        status.outcome = Some(Outcome::Error);
        status.message = Some(message.to_owned());
        status.ended_at = Some(now);
        // The folder may be the reason; then the event is all there is.
        let _ = std::fs::create_dir_all(folder.path());
        let _ = folder.set_status(&status);
    }
}

/// Inherited from a launcher around memlab, these would be about other processes.
fn forget_ranks(command: &mut Command) {
    for variable in LAUNCHER {
        command.env_remove(variable);
    }
}

/// What the worker is asked to do. It need not share this process's working directory.
fn request(job: &Job, attempt: u32, setting: &Setting) -> Request {
    let (report, status, snapshot, overwrite) = match &job.place {
        Place::Folder(folder) => {
            let snapshot = job.run.spec.snapshot.as_ref().map(|_| absolute(folder.snapshot_path()));
            (absolute(folder.report_path()), Some(absolute(folder.status_path())), snapshot, [false; 2])
        }
        Place::Files { report, snapshot, overwrite, .. } => {
            (absolute(report.clone()), None, snapshot.clone().map(absolute), *overwrite)
        }
    };
    Request {
        schema_version: SCHEMA_VERSION,
        run_id: job.run.run_id.clone(),
        attempt,
        spec: job.run.spec.clone(),
        report,
        status,
        snapshot,
        overwrite,
        time_limit_seconds: setting.time_limit_seconds,
        provenance: setting.provenance.clone(),
    }
}

/// The status of a run that goes on.
fn status(run_id: &str, attempt: u32, started_at: &str, pid: u32) -> Status {
    Status {
        schema_version: SCHEMA_VERSION,
        run_id: run_id.to_owned(),
        attempt,
        outcome: None,
        message: None,
        phase: None,
        started_at: started_at.to_owned(),
        heartbeat_at: utc_now(),
        ended_at: None,
        hostname: store::node(),
        pid,
        slurm_job_id: store::slurm_job_id(),
        slurm_job_name: store::slurm_job_name(),
        exit_code: None,
        signal: None,
    }
}

/// Tells a file from another that was renamed into its place.
type Stamp = (u64, u64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.mtime_nsec()))
}

/// The report that this run wrote, if it did: one that was there before is not its own.
fn new_report(path: &Path, before: Option<Stamp>) -> Result<Option<Report>, Diagnostic> {
    let now = stamp(path);
    if now.is_none() || now == before {
        return Ok(None);
    }
    store::read_report(path).map(|named| Some(named.report))
}

fn open_log(path: &Path) -> Result<File, String> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
