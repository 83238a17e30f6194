//! One worker process: started in a process group of its own, listened to, and ended.
//!
//! A signal never reaches a process that took over the number of one that ended: the number is forgotten before the system
//! may give it away. The open standard input is the worker's lifeline; when this process ends in any way, the workers end too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::protocol;

/// A worker that was started.
pub(super) struct Child {
    /// Its number.
    pub(super) pid: u32,
    /// Its group, until it ended.
    group: Arc<Mutex<Option<Pid>>>,
    lifeline: Option<ChildStdin>,
}

/// What a worker does.
pub(super) enum News {
    /// It says something.
    Said(protocol::Event),
    /// It ended.
    Exited(Exit),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        }
    }
}

impl Child {
    /// Starts the command with a request on its standard input. Its standard error goes to the log.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(
        mut command: Command,
        request: &str,
        log: File,
        on_news: impl Fn(News) + Send + 'static,
    ) -> io::Result<Self> {
        let mut stray = log.try_clone()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut process = command.spawn()?;
        let pid = process.id();
        let number = i32::try_from(pid).map(Pid::from_raw).map_err(io::Error::other)?;
        let group = Arc::new(Mutex::new(Some(number)));
        let mut lifeline = process.stdin.take();
        if let Some(stdin) = &mut lifeline {
            // A worker that ended already is told apart by its exit.
            let _ = stdin.write_all(request.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        }
        let stdout = process.stdout.take();
        let shared = Arc::clone(&group);
        std::thread::Builder::new().name(format!("worker {pid}")).spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).split(b'\n')) {
                let Ok(line) = line else { break };
                match serde_json::from_slice(&line) {
                    Ok(event) => on_news(News::Said(event)),
                    // A library that prints: kept, not obeyed.
                    Err(_) => {
                        let _ = stray.write_all(&line).and_then(|()| stray.write_all(b"\n"));
                    }
                }
            }
            let _ = waitid(Id::Pid(number), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
            let exit = process.wait().map_or(Exit::Code(-1), Exit::from);
            on_news(News::Exited(exit));
        })?;
        Ok(Self { pid, group, lifeline })
    }

    /// Asks the worker to end: cuts its lifeline and terminates its group.
    pub(super) fn terminate(&mut self) {
        self.lifeline = None;
        self.signal(Signal::SIGTERM);
    }

    /// Ends the worker's group at once.
    pub(super) fn kill(&mut self) {
        self.lifeline = None;
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = *self.group.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended in this moment.
            let _ = killpg(group, signal);
        }
    }
}
