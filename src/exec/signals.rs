//! The signals by which a user ends memlab, as messages.

use std::thread::JoinHandle;

use nix::libc::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

/// Forwards signals until it is dropped.
pub(super) struct Watch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `on_signal` for each signal. What the caller's caller chose to ignore (`nohup`) stays ignored.
    pub(super) fn new(mut on_signal: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let ignored = ignored();
        let watched = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = Signals::new(watched)?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                on_signal();
            }
        })?;
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The set of ignored signals, lowest bit for signal 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
