//! Where the ranks of a run meet, and what they tell one another there beside gradients.
//!
//! Every rank says what it is doing, that it failed, and at its end what it measured. Whoever ends first gathers the parts of
//! all, so that a run that lost a rank, whichever it is, still has a report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use memlab::protocol::Activity;
use memlab::store::hostname;
use serde::de::DeserializeOwned;

use crate::gather::{Part, Seen};
use crate::native::ranks::Store;
use crate::stop::Stop;

/// How long the parts of the other ranks are waited for once a rank has failed.
const GATHERING: Duration = Duration::from_millis(1500);
/// How long a store may take to answer after that. Both together are less than what the runner gives the ranks.
const ANSWERING: Duration = Duration::from_millis(200);
/// How often the store is asked whether a rank failed.
const WATCHING: Duration = Duration::from_millis(100);
/// How often it is asked whether what ends a run is there.
const ENDING: Duration = Duration::from_millis(2);

/// Set by a rank that failed.
const FAILED: &str = "failed";
/// Set by the rank that gathers, when it is done.
const GATHERED: &str = "gathered";

/// What ranks left at their ends, and where they were last seen.
pub(crate) type Gathered = (BTreeMap<u64, Part>, BTreeMap<u64, Seen>);

/// This rank's place where all ranks meet.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// Keys and values that all ranks see.
    pub(crate) store: Store,
    /// Whether the store ends with this process.
    pub(crate) hosts: bool,
    /// This process's rank.
    pub(crate) rank: u64,
    /// Number of ranks.
    pub(crate) world_size: u64,
    /// Whether this process has to end soon.
    pub(crate) hurry: AtomicBool,
}

impl Meeting {
    /// Says what this rank does now.
    pub(crate) fn tell(&self, step: i64, during: Activity) {
        let seen = Seen { hostname: hostname(), step, during };
        if let Ok(text) = serde_json::to_vec(&seen) {
            // A store that is gone is noticed by whoever waits for a failure.
            let _ = self.store.set(&format!("seen/{}", self.rank), &text);
        }
    }

    /// Waits until a rank failed, and gives what to say then.
    pub(crate) fn wait_for_failure(&self) -> &'static str {
        loop {
            match self.store.get(FAILED) {
                Ok(None) => std::thread::sleep(WATCHING),
                Ok(Some(_)) => return "another rank failed",
                Err(_) => return "the store where the ranks meet is gone",
            }
        }
    }

    /// From now on nothing is waited for longer than a moment.
    pub(crate) fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }

    /// Leaves this rank's part, and gives those of all ranks that left one, if it is this rank that gathers: the first that
    /// comes. None for the others.
    ///
    /// # Errors
    /// A store that is gone, or whose host hangs.
    pub(crate) fn gather(self: &Arc<Self>, part: &Part) -> Result<Option<Gathered>, Stop> {
        let (sender, answer) = mpsc::channel();
        let (meeting, part) = (Arc::clone(self), part.clone());
        // A host that hangs answers nobody, and no call to it ends by itself.
        std::thread::spawn(move || sender.send(meeting.leave_and_collect(&part)));
        let mut deadline = None;
        loop {
            match answer.recv_timeout(WATCHING) {
                Ok(gathered) => return gathered,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::Error("gathering ended early".to_owned())),
            }
            if self.hurry.load(Ordering::Relaxed)
                && *deadline.get_or_insert_with(|| Instant::now() + GATHERING + ANSWERING) <= Instant::now()
            {
                return Err(Stop::Error("the store where the ranks meet does not answer".to_owned()));
            }
        }
    }

    fn leave_and_collect(&self, part: &Part) -> Result<Option<Gathered>, Stop> {
        let text = serde_json::to_vec(part).map_err(|error| Stop::Error(error.to_string()))?;
        self.store.set(&format!("part/{}", self.rank), &text)?;
        if part.failed() {
            self.store.set(FAILED, b"")?;
        }
        let gathers = self.store.count(c"gathering")? == 1;
        if !gathers && !self.hosts {
            return Ok(None);
        }
        let parts = self.collect(part);
        if !gathers {
            // The rank that gathers reads from the store that this process hosts.
            let deadline = Instant::now() + GATHERING;
            while matches!(self.store.get(GATHERED), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(ENDING);
            }
            return Ok(None);
        }
        let seen = (0..self.world_size).filter_map(|rank| Some((rank, self.read(&format!("seen/{rank}"))?))).collect();
        // Whoever waits for this does not wait for long.
        let _ = self.store.set(GATHERED, b"");
        Ok(Some((parts, seen)))
    }

    /// Waits for the parts of all ranks; only a moment once a rank has failed.
    fn collect(&self, own: &Part) -> BTreeMap<u64, Part> {
        let mut parts = BTreeMap::from([(self.rank, own.clone())]);
        let mut deadline = None;
        loop {
            for rank in 0..self.world_size {
                if !parts.contains_key(&rank)
                    && let Some(part) = self.read(&format!("part/{rank}"))
                {
                    parts.insert(rank, part);
                }
            }
            let soon = self.hurry.load(Ordering::Relaxed) || !matches!(self.store.get(FAILED), Ok(None));
            if soon {
                deadline.get_or_insert_with(|| Instant::now() + GATHERING);
            }
            if parts.len() as u64 == self.world_size || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return parts;
            }
            std::thread::sleep(ENDING);
        }
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_slice(&self.store.get(key).ok()??).ok()
    }
}
