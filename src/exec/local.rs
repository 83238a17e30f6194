//! Runs on this machine: one worker process per rank, side by side as far as cores, host memory and GPUs allow.
//!
//! One loop owns all state and hears of everything through one channel: from a thread per worker, from the signals, and from
//! the clock. A first signal ends the workers and keeps what is finished, a second one kills them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

use super::child::News;
use super::forkserver::Forkserver;
use super::host::Host;
use super::outcome::Stop;
use super::resources::{Need, Resources, cost};
use super::running::{Heard, Running, Setting, not_started};
use super::signals::Watch;
use super::worker::{Worker, visible_gpus};
use super::{Ending, Event, Executor, Job};
use crate::diag::Diagnostic;
use crate::protocol::{Outcome, Provenance};

/// What bounds the runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Runs at a time; none for as many as there is room for.
    pub jobs: Option<usize>,
    /// Seconds per run; none for no limit.
    pub time_limit_seconds: Option<u64>,
}

/// Executes runs on this machine.
#[derive(Debug)]
pub struct Local {
    setting: Setting,
    jobs: Option<usize>,
    gpus: Vec<String>,
    cores: usize,
}

impl Local {
    /// With this worker, which found so many GPUs.
    pub fn new(worker: Worker, gpus_found: usize, limits: Limits, provenance: Provenance) -> Self {
        let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let Limits { jobs, time_limit_seconds } = limits;
        Self {
            setting: Setting {
                worker,
                forkserver: None,
                launcher: None,
                time_limit_seconds,
                provenance,
                host: Host::this(),
            },
            jobs,
            gpus: visible_gpus(gpus_found, chosen.as_deref()),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }

    /// Runs of the modelled GPU are forked from here, if there is one.
    #[must_use]
    pub fn forked_from(mut self, forkserver: Option<Arc<Forkserver>>) -> Self {
        self.setting.forkserver = forkserver;
        self
    }

    /// Puts words in front of the worker, which start every rank of a run (`srun`). They place the ranks on GPUs.
    #[must_use]
    pub fn behind(mut self, launcher: Vec<String>) -> Self {
        self.setting.launcher = Some(launcher);
        self
    }

    fn resources(&self) -> Resources {
        // A tenth is left to everybody else.
        let memory = self.setting.host.memory_available().map_or(u64::MAX, |bytes| bytes / 10 * 9);
        // Asking for more runs than cores is asking for shared cores.
        let cores = self.jobs.map_or(self.cores, |jobs| jobs.max(self.cores));
        Resources::new(self.jobs.unwrap_or(usize::MAX), cores, memory, self.gpus.clone())
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
        let resources = self.resources();
        let mut session = Session {
            queue: in_order(jobs, resources.is_parallel()),
            resources,
            local: self,
            jobs,
            running: BTreeMap::new(),
            signals: 0,
            sender,
            on_event,
        };
        session.run(&receiver);
        drop(watch);
        Ok(if session.signals > 0 { Ending::Interrupted } else { Ending::Complete })
    }
}

/// Side by side the longest go first, so that none is left over at the end; one at a time keeps the plan's order. The next one is
/// the last of the list.
fn in_order(jobs: &[Job], parallel: bool) -> Vec<usize> {
    let mut queue: Vec<usize> = (0..jobs.len()).collect();
    if parallel {
        queue.sort_by_cached_key(|job| std::cmp::Reverse(cost(&jobs[*job].run.spec)));
    }
    queue.reverse();
    queue
}

/// What the loop hears of.
enum Message {
    /// The user wants to stop.
    Signal,
    /// Something about a worker.
    Worker { job: usize, rank: u64, news: News },
}

struct Session<'a> {
    local: &'a Local,
    jobs: &'a [Job],
    resources: Resources,
    /// Jobs not yet started; the next one is the last.
    queue: Vec<usize>,
    running: BTreeMap<usize, Running>,
    signals: usize,
    sender: Sender<Message>,
    on_event: &'a mut dyn FnMut(Event),
}

impl Session<'_> {
    fn run(&mut self, receiver: &Receiver<Message>) {
        loop {
            // Nothing runs: at the start, and after a run that others waited for could not be started.
            while self.running.is_empty() && !self.queue.is_empty() {
                self.start_what_fits();
            }
            if self.running.is_empty() {
                return;
            }
            let alarm = self.running.values().filter_map(Running::alarm).min();
            let message = match alarm {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Signal) => self.interrupt(),
                Ok(Message::Worker { job, rank, news }) => self.hear(job, rank, news),
                Err(_) => {
                    let now = Instant::now();
                    self.running.values_mut().for_each(|run| run.ring(now));
                }
            }
        }
    }

    fn start_what_fits(&mut self) {
        let mut waiting = Vec::new();
        while let Some(job) = self.queue.pop() {
            let mut need = Need::of(&self.jobs[job].run.spec);
            if self.local.setting.launcher.is_some() {
                need.gpus = 0;
            }
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
        let sender = self.sender.clone();
        let on_news = move |rank, news| {
            let _ = sender.send(Message::Worker { job, rank, news });
        };
        match Running::launch(&self.jobs[job], &self.local.setting, gpus, on_news) {
            Ok(running) => {
                self.running.insert(job, running);
            }
            Err(message) => {
                self.resources.give_back(job);
                self.fail(job, message);
            }
        }
    }

    fn interrupt(&mut self) {
        self.signals += 1;
        if self.signals == 1 {
            (self.on_event)(Event::Interrupted);
            self.queue.clear();
        }
        for run in self.running.values_mut() {
            run.end(Stop::User);
            if self.signals > 1 {
                run.kill();
            }
        }
    }

    fn hear(&mut self, job: usize, rank: u64, news: News) {
        // Of a run that could not be started completely nothing is heard any more.
        let Some(run) = self.running.get_mut(&job) else { return };
        match run.hear(rank, news) {
            Heard::Nothing => {}
            Heard::Phase(step, phase) => (self.on_event)(Event::Phase { job, rank, step, phase }),
            Heard::End => {
                let (outcome, message) = run.finish(&self.jobs[job], &self.local.setting.host);
                let seconds = run.seconds();
                self.running.remove(&job);
                self.resources.give_back(job);
                (self.on_event)(Event::Ended { job, outcome, message, seconds });
                self.start_what_fits();
            }
        }
    }

    /// A run that could not be started.
    fn fail(&mut self, job: usize, message: String) {
        not_started(&self.jobs[job], &message);
        (self.on_event)(Event::Ended { job, outcome: Outcome::Error, message: Some(message), seconds: 0.0 });
    }
}
