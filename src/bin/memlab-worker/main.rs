//! `memlab-worker` executes exactly one run, or one rank of it, and ends.
//!
//! `memlab-worker run` reads a [`Request`] as one line of JSON from standard input, which then is its lifeline: when it
//! ends, so does the worker. It says where it is as [`Event`] lines on standard output, and leaves a report and a status.
//! Whatever happens first (the end of training, a failure, the time limit, a signal, the lifeline's end) writes them, once.
//! `memlab-worker probe` says what this machine's libtorch can do, and stays to fork runs where its standard input is a socket.
//!
//! Exit codes are memlab's: 0, 2 for a request that cannot be read, 3 out of device memory, 4 any other failure.

mod case;
mod distributed;
mod forkserver;
mod gather;
mod meeting;
mod memory;
mod model;
mod native;
mod optimizer;
mod philox;
mod recorder;
mod report;
mod stop;
mod training;

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use memlab::exit::Exit;
use memlab::protocol::{
    Activity, DeviceKind, Event, Outcome, Phase, Precision, Probe, RankReport, Report, Request, SCHEMA_VERSION, Status,
};
use memlab::store;

use crate::distributed::Ranks;
use crate::forkserver::Served;
use crate::gather::Part;
use crate::memory::Memory;
use crate::native::ranks::Group;
use crate::report::Ending;
use crate::stop::Stop;
use crate::training::{SharedProgress, Trainer};

/// Executes one memlab run. `memlab run` and `memlab sweep` start it.
#[derive(Parser)]
#[command(version, name = "memlab-worker")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Executes the run of a request
    Run {
        /// A file with the request, instead of a line on standard input
        #[arg(long)]
        request: Option<PathBuf>,
    },
    /// Prints as JSON what this machine's libtorch can do
    Probe,
}

fn main() -> ! {
    let started = Instant::now();
    let exit = match Arguments::parse().command {
        Command::Run { request } => run(request.as_deref(), started),
        Command::Probe => match probe() {
            Ok(()) => match forkserver::serve() {
                Served::All => Exit::Success,
                Served::Run => run(None, Instant::now()),
            },
            Err(exit) => exit,
        },
    };
    leave(exit)
}

/// Ends the process at once. What is ours is written by then, and libtorch's own farewell, which takes every operator out of its
/// registry again, costs a third as much as loading it, while other threads may still be using it.
fn leave(exit: Exit) -> ! {
    let _ = std::io::stdout().flush();
    // SAFETY: takes a number, and does not return.
    #[expect(unsafe_code, reason = "the standard library has no way out that leaves the handlers of C++ alone")]
    unsafe {
        nix::libc::_exit(i32::from(exit.code()))
    }
}

/// Says something on standard error, which the runner keeps as the run's log.
fn log(message: &str) {
    let _ = writeln!(std::io::stderr(), "memlab-worker: {message}");
}

fn emit(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        // A runner that no longer listens is noticed by the lifeline.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Answers what this machine's libtorch can do. An error is for the process to end with: one with CUDA open cannot be forked either.
fn probe() -> Result<(), Exit> {
    let driver = Path::new("/proc/driver/nvidia").exists() || Path::new("/dev/nvidiactl").exists();
    let (gpus, cuda_unavailable) = if driver {
        match native::open_cuda(None, None).and_then(|()| native::cuda_devices()) {
            Ok(devices) => (devices.into_iter().map(|(gpu, _)| gpu).collect(), None),
            Err(stop) => (Vec::new(), Some(stop.message().to_owned())),
        }
    } else {
        (Vec::new(), Some("there is no NVIDIA driver on this machine".to_owned()))
    };
    if let Err(Stop::Error(message)) = report::check_libtorch() {
        log(&message);
        return Err(Exit::Usage);
    }
    let probe = Probe {
        schema_version: SCHEMA_VERSION,
        worker_build: report::WORKER_BUILD.to_owned(),
        libtorch_version: report::libtorch_version(),
        cuda_version: native::cuda_version(),
        gpus,
        cuda_unavailable,
    };
    match serde_json::to_string(&probe).map(|text| writeln!(std::io::stdout(), "{text}")) {
        Ok(Ok(())) if driver => Err(Exit::Success),
        Ok(Ok(())) => Ok(()),
        _ => Err(Exit::Usage),
    }
}

/// Reads the request; the rest of standard input is the lifeline.
fn read_request(file: Option<&Path>) -> Result<Request, String> {
    let text = match file {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?
        }
        None => {
            let mut line = String::new();
            std::io::stdin()
                .lock()
                .read_line(&mut line)
                .map_err(|error| format!("cannot read the request: {error}"))?;
            line
        }
    };
    let request: Request = serde_json::from_str(&text).map_err(|error| format!("cannot read the request: {error}"))?;
    if request.schema_version != SCHEMA_VERSION {
        return Err(format!(
            "the request has format version {}, this worker reads {SCHEMA_VERSION}: memlab and memlab-worker are of \
             different builds",
            request.schema_version
        ));
    }
    Ok(request)
}

fn run(file: Option<&Path>, started: Instant) -> Exit {
    let request = match read_request(file) {
        Ok(request) => request,
        Err(message) => {
            log(&message);
            return Exit::Usage;
        }
    };
    let ranks = match Ranks::new(&request.spec, |name| std::env::var(name).ok()) {
        Ok(ranks) => ranks,
        Err(message) => {
            log(&message);
            return Exit::Usage;
        }
    };
    // Of several ranks one may be done with it before another looks.
    if ranks.rank == 0 && request.report.exists() && !request.overwrite[0] {
        log(&format!("{} exists, and is not to be replaced", request.report.display()));
        return Exit::Usage;
    }
    if let Some(snapshot) = request.snapshot.as_deref().map(|path| recorder::rank_qualified(path, ranks.rank))
        && snapshot.exists()
        && !request.overwrite[1]
    {
        log(&format!("{} exists, and is not to be replaced", snapshot.display()));
        return Exit::Usage;
    }
    let run = Arc::new(Run {
        request,
        ranks,
        started,
        started_at: now(),
        progress: SharedProgress::new(),
        device: Mutex::new(None),
        over: Mutex::new(false),
        phase: Mutex::new(None),
    });
    if run.ranks.rank == 0 {
        run.write_status(None, None);
    }
    run.watch(file.is_none());

    // A panic is a fault of memlab's; the run's other evidence must not be lost with it.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.train()))
        .unwrap_or_else(|_| Err(Stop::Error("the worker panicked; its log says where".to_owned())));
    let (outcome, stop) = match result {
        Ok(()) => (Outcome::Ok, None),
        Err(stop @ Stop::OutOfMemory { .. }) => (Outcome::Oom, Some(stop)),
        Err(stop @ Stop::HostOutOfMemory(_)) => (Outcome::HostOom, Some(stop)),
        Err(stop @ (Stop::Lost(_) | Stop::Error(_))) => (Outcome::Error, Some(stop)),
    };
    // A thread that ends the run early ends the process with it.
    run.finish(outcome, stop).unwrap_or_else(|| {
        loop {
            std::thread::park();
        }
    })
}

/// Where memory is measured, and on CUDA the GPU's name and driver.
type OpenDevice = (Memory, Option<(String, String)>);

/// One run, shared by the thread that trains and those that may end it.
struct Run {
    request: Request,
    ranks: Ranks,
    started: Instant,
    started_at: String,
    progress: SharedProgress,
    /// The device, once it is open.
    device: Mutex<Option<OpenDevice>>,
    /// Whether report and status are written: by the first that gets here.
    over: Mutex<bool>,
    phase: Mutex<Option<(i64, Phase)>>,
}

/// How often a run that goes on says so in its status.
const HEARTBEAT: Duration = Duration::from_secs(10);

impl Run {
    fn train(self: &Arc<Self>) -> Result<(), Stop> {
        let spec = &self.request.spec;
        let memory = Memory::open(spec, self.ranks.own_gpu(spec))?;
        report::check_libtorch()?;
        // Samples must not depend on how many cores there are, nor on who else uses them.
        tch::set_num_threads(1);
        let gpu = match spec.device {
            DeviceKind::Cuda => native::cuda_devices()?.into_iter().next(),
            DeviceKind::Cpu => None,
        };
        let capability = gpu.as_ref().map(|(gpu, _)| gpu.compute_capability);
        let gpu = gpu.map(|(gpu, driver)| (gpu.name, driver));
        *self.device.lock().unwrap_or_else(PoisonError::into_inner) = Some((memory, gpu));
        if let Some(meeting) = self.ranks.meet()? {
            let run = Arc::clone(self);
            std::thread::spawn(move || run.end_early(Outcome::Cancelled, meeting.wait_for_failure()));
        }
        self.ranks.tell(-1, Activity::Model);
        // Ranks agree on this as on everything: one that cannot go on ends them all.
        if spec.precision == Precision::Bf16
            && let Some([major, minor]) = capability
            && major < 8
        {
            return Err(Stop::Error(format!(
                "the GPU has no bf16 (its compute capability is {major}.{minor}, and 8.0 is needed): use precision = \"fp32\""
            )));
        }
        let limit = self.request.time_limit_seconds.map(Duration::from_secs);
        let group = self.ranks.connect(spec.backend, memory.device(), limit)?;
        let trainer = Trainer {
            spec,
            ranks: &self.ranks,
            group,
            memory,
            progress: self.progress.clone(),
            on_phase: &|step, phase| {
                *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = Some((step, phase));
                emit(&Event::Phase { rank: self.ranks.rank, step, phase });
            },
        };
        trainer.run()?;
        group.map_or(Ok(()), Group::shut_down)
    }

    /// Starts what may end the run early, and its heartbeat.
    fn watch(self: &Arc<Self>, lifeline: bool) {
        if lifeline {
            let run = Arc::clone(self);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
                run.end_early(Outcome::Cancelled, "memlab, which had started this run, ended");
            });
        }
        if let Some(limit) = self.request.time_limit_seconds {
            let run = Arc::clone(self);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(limit));
                run.end_early(Outcome::Timeout, &format!("the time limit of {limit} s was reached"));
            });
        }
        if let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]) {
            let run = Arc::clone(self);
            std::thread::spawn(move || {
                if signals.forever().next().is_some() {
                    run.end_early(Outcome::Cancelled, "ended by SIGTERM");
                }
            });
        }
        if self.request.status.is_some() && self.ranks.rank == 0 {
            let run = Arc::clone(self);
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(HEARTBEAT);
                    let over = run.over.lock().unwrap_or_else(PoisonError::into_inner);
                    if *over {
                        return;
                    }
                    run.write_status(None, None);
                }
            });
        }
    }

    fn end_early(&self, outcome: Outcome, why: &str) {
        self.ranks.hurry();
        if let Some(exit) = self.finish(outcome, Some(Stop::Error(why.to_owned()))) {
            // The training thread may be deep in a kernel: nothing waits for it.
            leave(exit);
        }
    }

    /// Writes report and status; of several threads that come here the first, which then ends the process. None for the others.
    fn finish(&self, outcome: Outcome, stop: Option<Stop>) -> Option<Exit> {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if *over {
            return None;
        }
        *over = true;
        let message = stop.as_ref().map(|stop| stop.message().to_owned());
        if let Some(message) = &message {
            log(message);
        }
        let (memory, gpu) = self.device.lock().unwrap_or_else(PoisonError::into_inner).clone().unzip();
        let ending = Ending {
            request: &self.request,
            rank: (self.ranks.rank, self.ranks.local_rank),
            progress: self.progress.lock().clone(),
            outcome,
            stop,
            memory,
            gpu: gpu.flatten(),
            started_at: self.started_at.clone(),
            wall_seconds: self.started.elapsed().as_secs_f64(),
        };
        let snapshot = self.write_snapshot(memory);
        let consequence = matches!(ending.stop, Some(Stop::Lost(_)));
        let report = ending.report(vec![RankReport { snapshot, ..ending.rank_report() }]);
        let exit = match outcome {
            Outcome::Ok => Exit::Success,
            Outcome::Oom => Exit::OutOfMemory,
            _ => Exit::RunFailed,
        };
        let gathered = self.ranks.gather(&Part { report, consequence });
        let report = gathered.and_then(|(parts, seen)| gather::merge(self.request.spec.world_size, &parts, &seen));
        // The rank that gathers says how the run ended, the others how they did.
        let Some(report) = report else {
            emit(&Event::End { outcome, message });
            return Some(exit);
        };
        Some(self.conclude(&report, outcome, exit, memory.is_some()))
    }

    /// Writes the run's report, and with its status says how it ended.
    fn conclude(&self, report: &Report, own: Outcome, mut exit: Exit, opened: bool) -> Exit {
        let outcome = report.outcome();
        let message = report.failure.as_ref().map(|failure| failure.message.clone());
        let message = message.or_else(|| report.oom.as_ref().map(|oom| oom.message.clone()));
        // A report exists wherever anything was measured.
        let measured = report.rank_reports.iter().any(|rank| !rank.samples.is_empty());
        if (outcome == Outcome::Ok || measured || opened)
            && let Err(message) = write_json(&self.request.report, report)
        {
            log(&message);
            exit = Exit::RunFailed;
        }
        if own == Outcome::Ok && outcome != Outcome::Ok {
            exit = Exit::RunFailed;
        }
        self.write_status(Some((outcome, exit)), message.clone());
        emit(&Event::End { outcome, message });
        exit
    }

    /// Writes the recorded history, and gives its path.
    fn write_snapshot(&self, memory: Option<Memory>) -> Option<String> {
        let path = recorder::rank_qualified(self.request.snapshot.as_deref()?, self.ranks.rank);
        let at_end = self.progress.lock().snapshot.take();
        let bytes = match at_end.map_or_else(|| memory?.snapshot().transpose(), |bytes| Some(Ok(bytes)))? {
            Ok(bytes) => bytes,
            Err(stop) => {
                log(&format!("no snapshot: {stop:?}"));
                return None;
            }
        };
        match store::write_atomic(&path, &bytes) {
            Ok(()) => Some(path.display().to_string()),
            Err(problem) => {
                log(&problem.message);
                None
            }
        }
    }

    fn write_status(&self, end: Option<(Outcome, Exit)>, message: Option<String>) {
        let Some(path) = &self.request.status else { return };
        let status = Status {
            schema_version: SCHEMA_VERSION,
            run_id: self.request.run_id.clone(),
            attempt: self.request.attempt,
            outcome: end.map(|(outcome, _)| outcome),
            message,
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
            started_at: self.started_at.clone(),
            heartbeat_at: now(),
            ended_at: end.map(|_| now()),
            hostname: store::node(),
            pid: std::process::id(),
            slurm_job_id: store::slurm_job_id(),
            slurm_job_name: store::slurm_job_name(),
            exit_code: end.map(|(_, exit)| i32::from(exit.code())),
            signal: None,
        };
        if let Err(message) = write_json(path, &status) {
            log(&message);
        }
    }
}

fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), String> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| error.to_string())?;
    text.push(b'\n');
    store::write_atomic(path, &text).map_err(|error| error.message)
}
