//! A worker that has loaded libtorch, and forks the runs of the modelled GPU: loading takes longer than many a run.
//!
//! It is the process that answered `probe`, whose standard input is a socket. A message carries the three standard streams of a run;
//! the answer is the number of a new process, four bytes in the machine's order. That process is a child of this one: the one between
//! the two ends at once, and what it leaves behind is adopted. When this process ends in any way, so does the forkserver.

use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::sys::prctl;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;

/// The runner's end of it.
#[derive(Debug)]
pub struct Forkserver {
    process: Child,
    socket: Mutex<UnixStream>,
}

/// The two ends of the socket: this process's, and what becomes the forkserver's standard input.
pub(super) fn ends() -> io::Result<(UnixStream, Stdio)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((ours, Stdio::from(std::os::fd::OwnedFd::from(theirs))))
}

impl Forkserver {
    /// Of a worker that was started with the other end, and has answered.
    pub(super) fn new(process: Child, socket: UnixStream) -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        Ok(Self { process, socket: Mutex::new(socket) })
    }

    /// A new process, in a group of its own, with these as its standard input, output and error.
    ///
    /// # Errors
    /// The forkserver does not answer: it ended, or never was one (a worker on a machine with CUDA, which does not survive a fork).
    pub(super) fn fork(&self, streams: [BorrowedFd<'_>; 3]) -> io::Result<Pid> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = streams.map(|stream| stream.as_raw_fd());
        let rights = [ControlMessage::ScmRights(&streams)];
        sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        let mut answer = [0; 4];
        socket.read_exact(&mut answer)?;
        match i32::from_ne_bytes(answer) {
            pid if pid > 0 => Ok(Pid::from_raw(pid)),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

impl Drop for Forkserver {
    fn drop(&mut self) {
        // It ends with its standard input.
        let socket = self.socket.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}
