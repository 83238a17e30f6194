//! The worker's end of the forkserver (`src/exec/forkserver.rs` has the other, and the protocol).
//!
//! Nothing has started a thread yet when it forks: libtorch is loaded, and not used.

#![expect(unsafe_code, reason = "forking, and taking over the streams that arrive")]

use std::io::{IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe, setpgid};

/// What a call of [`serve`] returns as.
pub(crate) enum Served {
    /// The forkserver itself, when nobody asks any more.
    All,
    /// A new process, which is to execute a run.
    Run,
}

/// Forks a process for each message on standard input, until it ends; at once where standard input is no socket.
pub(crate) fn serve() -> Served {
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else { return Served::All };
    if socket.local_addr().is_err() {
        return Served::All;
    }
    while let Some(streams) = receive(&socket) {
        let answer = match spawn(&streams) {
            Ok(Spawned::Here(pid)) => pid.as_raw(),
            Ok(Spawned::InChild) => return Served::Run,
            Err(error) => -(error as i32),
        };
        if (&socket).write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
    }
    Served::All
}

/// The streams of the next run; none when there is none.
fn receive(socket: &UnixStream) -> Option<[OwnedFd; 3]> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([RawFd; 3]);
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            other => break other.ok()?,
        }
    };
    let streams = message.cmsgs().ok()?.find_map(|content| match content {
        ControlMessageOwned::ScmRights(streams) => Some(streams),
        _ => None,
    })?;
    // SAFETY: the kernel has just opened them for this process.
    let streams: Vec<OwnedFd> = streams.into_iter().map(|stream| unsafe { OwnedFd::from_raw_fd(stream) }).collect();
    streams.try_into().ok()
}

enum Spawned {
    /// This is the forkserver; the process is no child of its own.
    Here(Pid),
    /// This is the new process.
    InChild,
}

fn spawn(streams: &[OwnedFd; 3]) -> Result<Spawned, Errno> {
    let (said, say) = pipe()?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(say);
            let mut answer = [0; 4];
            let heard = std::fs::File::from(said).read_exact(&mut answer);
            // Only when the one between has ended is the new process the runner's.
            waitpid(child, None)?;
            heard.map_err(|error| error.raw_os_error().map_or(Errno::ECHILD, Errno::from_raw))?;
            match i32::from_ne_bytes(answer) {
                pid if pid > 0 => Ok(Spawned::Here(Pid::from_raw(pid))),
                error => Err(Errno::from_raw(-error)),
            }
        }
        ForkResult::Child => {
            drop(said);
            // SAFETY: as above.
            let answer = match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    drop(say);
                    become_run(streams);
                    return Ok(Spawned::InChild);
                }
                Ok(ForkResult::Parent { child }) => {
                    // Before anybody knows the number, so that a signal to the group never misses.
                    let _ = setpgid(child, child);
                    child.as_raw()
                }
                Err(error) => -(error as i32),
            };
            let _ = std::fs::File::from(say).write_all(&answer.to_ne_bytes());
            // SAFETY: takes a number, and does not return.
            unsafe { nix::libc::_exit(0) }
        }
    }
}

/// Takes over the streams that the run was given.
fn become_run(streams: &[OwnedFd; 3]) {
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let taken = dup2_stdin(&streams[0]).and_then(|()| dup2_stdout(&streams[1])).and_then(|()| dup2_stderr(&streams[2]));
    if let Err(error) = taken {
        crate::log(&format!("cannot take over the streams: {error}"));
    }
}
