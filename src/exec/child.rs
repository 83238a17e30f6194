//! One worker process: started in a process group of its own, listened to, and ended.
//!
//! A signal never reaches a process that took over the number of one that ended: the number is forgotten before the system
//! may give it away. The open standard input is the worker's lifeline; when this process ends in any way, the workers end too.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::forkserver::Forkserver;
use crate::protocol;

/// A worker that was started.
pub(super) struct Child {
    /// Its number.
    pub(super) pid: u32,
    /// Its group, until it ended.
    group: Arc<Mutex<Option<Pid>>>,
    lifeline: Option<PipeWriter>,
}

/// This process's ends of a worker's standard input and output.
struct Pipes {
    lifeline: PipeWriter,
    said: PipeReader,
}

/// Pipes, and the worker's ends of them.
fn pipes() -> io::Result<(Pipes, PipeReader, PipeWriter)> {
    let (stdin, lifeline) = io::pipe()?;
    let (said, stdout) = io::pipe()?;
    Ok((Pipes { lifeline, said }, stdin, stdout))
}

fn spawn(mut command: Command, log: File) -> io::Result<(Pid, Pipes)> {
    let (pipes, stdin, stdout) = pipes()?;
    let process = command.stdin(stdin).stdout(stdout).stderr(log).process_group(0).spawn()?;
    Ok((Pid::from_raw(i32::try_from(process.id()).map_err(io::Error::other)?), pipes))
}

/// None where the forkserver is gone. If a process was forked nevertheless, it finds its standard input at the end, and ends.
fn fork(forkserver: &Forkserver, log: &File) -> io::Result<Option<(Pid, Pipes)>> {
    let (pipes, stdin, stdout) = pipes()?;
    let forked = forkserver.fork([stdin.as_fd(), stdout.as_fd(), log.as_fd()]);
    Ok(forked.ok().map(|pid| (pid, pipes)))
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

impl Exit {
    /// How a child that has ended did so; the system may give its number away from now on.
    fn of(pid: Pid) -> Self {
        match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, code)) => Exit::Code(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => Exit::Signal(signal as i32),
            _ => Exit::Code(-1),
        }
    }
}

impl Child {
    /// Starts a worker with a request on its standard input: from the forkserver, or where there is none (any more), by the
    /// command. Its standard error goes to the log.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(
        command: Command,
        forkserver: Option<&Forkserver>,
        request: &str,
        log: File,
        on_news: impl Fn(News) + Send + 'static,
    ) -> io::Result<Self> {
        let mut stray = log.try_clone()?;
        let forked = match forkserver {
            Some(forkserver) => fork(forkserver, &log)?,
            None => None,
        };
        let (pid, Pipes { mut lifeline, said }) = match forked {
            Some(forked) => forked,
            None => spawn(command, log)?,
        };
        let group = Arc::new(Mutex::new(Some(pid)));
        // A worker that ended already is told apart by its exit.
        let _ = lifeline.write_all(request.as_bytes()).and_then(|()| lifeline.write_all(b"\n"));
        let shared = Arc::clone(&group);
        std::thread::Builder::new().name(format!("worker {pid}")).spawn(move || {
            for line in BufReader::new(said).split(b'\n') {
                let Ok(line) = line else { break };
                match serde_json::from_slice(&line) {
                    Ok(event) => on_news(News::Said(event)),
                    // A library that prints: kept, not obeyed.
                    Err(_) => {
                        let _ = stray.write_all(&line).and_then(|()| stray.write_all(b"\n"));
                    }
                }
            }
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = None;
            on_news(News::Exited(Exit::of(pid)));
        })?;
        Ok(Self { pid: pid.as_raw().unsigned_abs(), group, lifeline: Some(lifeline) })
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
