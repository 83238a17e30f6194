//! The history under its own settings, entry by entry.

use crate::allocator::{Action, Address, AddressMap, CachingAllocator, OutOfMemory, Settings, Stats};
use crate::snapshot::model::{Entry, Snapshot};

use super::damage::Damage;
use super::device::RecordedDevice;
use super::initial::Initial;
use super::limit::{self, InferredLimit};
use super::program::{OTHER_STREAM, Operation, Program};

/// How many differences are described.
const DESCRIBED: usize = 5;
/// How many explanations of one window are tried.
const ATTEMPTS: usize = 64;

/// What the model did with a recorded history.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The state before the first entry.
    pub initial: Initial,
    /// What the process may reserve: as given, or as inferred.
    pub limit: Option<u64>,
    /// The bounds of an inferred limit.
    pub inferred_limit: Option<InferredLimit>,
    /// The counters at the end.
    pub stats: Stats,
    /// What the model refused where the recording did, in order. What the device has and has free is not known to it.
    pub refusals: Vec<OutOfMemory>,
    /// Entries at which model and recording differ.
    pub mismatches: u64,
    /// The first few of them.
    pub described: Vec<Mismatch>,
    /// What the program did.
    pub program: Program,
}

/// A difference between model and recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The number of the entry.
    pub entry: usize,
    /// What it says.
    pub recorded: String,
    /// What the model does.
    pub model: String,
}

/// Replays the history of a device under its own settings. `limit` is what the process was allowed to reserve, where
/// it is known.
///
/// # Errors
/// [`Damage`] for a history that no allocator can have.
pub fn recorded(
    snapshot: &Snapshot,
    device: usize,
    settings: &Settings,
    limit: Option<u64>,
) -> Result<Recorded, Damage> {
    let entries = snapshot.traces.get(device).map_or(&[][..], Vec::as_slice);
    let last: Vec<_> = snapshot.segments.iter().filter(|segment| segment.device == device).collect();
    let initial = Initial::of(entries, &last, settings)?;
    let inferred_limit = match limit {
        Some(_) => None,
        None => limit::infer(entries, settings, initial.reserved()),
    };
    let limit = limit.or(inferred_limit.map(|inferred| inferred.at_most));
    let mut allocator = CachingAllocator::new(settings.clone(), limit, RecordedDevice::new(entries));
    initial.restore(&mut allocator);
    let held: Vec<Address> = initial.blocks().map(|block| block.address).collect();
    let mut replay = Replay {
        entries,
        allocator,
        known: held.iter().zip(0..).map(|(&address, number)| (address, Known { number, place: address })).collect(),
        program: Program { operations: Vec::new(), blocks: held.len(), held },
        refusals: Vec::new(),
        mismatches: 0,
        described: Vec::new(),
    };
    replay.run();
    Ok(Recorded {
        initial,
        limit,
        inferred_limit,
        stats: *replay.allocator.stats(),
        refusals: replay.refusals,
        mismatches: replay.mismatches,
        described: replay.described,
        program: replay.program,
    })
}

type Model<'a> = CachingAllocator<RecordedDevice<'a>>;

struct Replay<'a> {
    entries: &'a [Entry],
    allocator: Model<'a>,
    /// The last block at each recorded address.
    known: AddressMap<Known>,
    program: Program,
    refusals: Vec<OutOfMemory>,
    mismatches: u64,
    described: Vec<Mismatch>,
}

/// A block of the recording.
#[derive(Debug, Clone, Copy)]
struct Known {
    number: u32,
    /// Where the model has it: at the recorded address while they agree.
    place: Address,
}

/// Where the model has the block of a recorded address.
fn place(known: &AddressMap<Known>, address: Address) -> Address {
    known.get(&address).map_or(address, |block| block.place)
}

/// One explanation of the entries before a request: the first `completed` of them were found finished when the request
/// began, after the cache had been emptied or not.
#[derive(Debug, Clone, Copy)]
struct Explanation {
    completed: usize,
    emptied: bool,
}

impl Replay<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while at < self.entries.len() {
            // Entries that belong to the operation which ends the window, or to a call that left no entry of its own.
            let start = at;
            at += self.entries[at..].iter().take_while(|entry| !is_operation(entry)).count();
            match self.entries.get(at) {
                Some(entry) if matches!(entry.action, Action::Alloc | Action::Oom) => {
                    self.request(start, at);
                    at += 1;
                }
                other => {
                    self.between(start, at);
                    if other.is_some_and(|entry| entry.action == Action::FreeRequested) {
                        at = self.free(at);
                    } else {
                        at += 1;
                    }
                }
            }
        }
    }

    /// A free, and its completion if that follows at once. Returns what comes next.
    fn free(&mut self, at: usize) -> usize {
        let address = self.entries[at].address;
        let adjacent = self
            .entries
            .get(at + 1)
            .is_some_and(|next| next.action == Action::FreeCompleted && next.address == address);
        let completed = adjacent && !self.was_waited_for(at);
        let number = self.number(address);
        let place = place(&self.known, address);
        self.allocator.device_mut().open(at, at + 1);
        if !completed {
            let _ = self.allocator.record_stream(place, OTHER_STREAM);
        }
        if self.allocator.free(place).is_err() {
            self.allocator.device_mut().differ("the model holds no such block".to_owned());
        }
        self.count();
        if let Some(number) = number {
            self.program.operations.push(if completed {
                Operation::Free(number)
            } else {
                Operation::FreeLater(number)
            });
        }
        if completed {
            self.forget(address);
            return at + 2;
        }
        at + 1
    }

    /// Whether a free whose completion follows at once was completed by the request after it all the same: that shows
    /// when the request needed new memory although the block would have served it.
    fn was_waited_for(&self, at: usize) -> bool {
        let rest = &self.entries[at + 2..];
        let Some(length) = rest.iter().position(is_operation) else { return false };
        let (window, request) = (&rest[..length], &rest[length]);
        let needed_memory = request.action == Action::Oom || window.iter().any(|entry| entry.action.is_of_segment());
        if !needed_memory || !matches!(request.action, Action::Alloc | Action::Oom) {
            return false;
        }
        let place = place(&self.known, self.entries[at].address);
        // Fewer differences are better, and what does not need a cache that happened to be emptied.
        let fault = |later: bool| {
            let mut model = self.allocator.clone();
            if later {
                let _ = model.record_stream(place, OTHER_STREAM);
            }
            let _ = model.free(place);
            let (differences, explanation) = self.explain(&model, if later { at + 1 } else { at + 2 }, at + 2 + length);
            (differences, explanation.emptied)
        };
        let at_once = fault(false);
        at_once > (0, false) && fault(true) < at_once
    }

    /// Entries with no request behind them: streams finished, or the cache was emptied.
    fn between(&mut self, start: usize, end: usize) {
        if start == end {
            return;
        }
        let window = &self.entries[start..end];
        let completions = window.iter().filter(|entry| entry.action == Action::FreeCompleted).count();
        if completions == window.len() && completions < self.allocator.pending().len() {
            self.complete(start, end);
            return;
        }
        self.allocator.device_mut().open(start, end);
        self.allocator.empty_cache();
        self.allocator.device_mut().close();
        self.count();
        self.program.operations.push(Operation::EmptyCache);
    }

    /// Completes the frees of these entries.
    fn complete(&mut self, start: usize, end: usize) {
        for entry in &self.entries[start..end] {
            let place = place(&self.known, entry.address);
            self.forget(entry.address);
            if self.allocator.complete_free(place).is_err() {
                self.allocator.device_mut().open(start, start);
                self.allocator.device_mut().differ("the model has no such block waiting".to_owned());
                self.count();
            }
            if let Some(number) = self.number(entry.address) {
                self.program.operations.push(Operation::Complete(number));
            }
        }
    }

    /// The best explanation of the entries `start..at` before a request, with the differences that it leaves.
    fn explain(&self, model: &Model<'_>, start: usize, at: usize) -> (u64, Explanation) {
        let window = &self.entries[start..at];
        let leading = window.iter().take_while(|entry| entry.action == Action::FreeCompleted).count();
        let obvious = Explanation { completed: leading, emptied: false };
        // A cache that was emptied just before it would have been anyway comes last.
        let waited = (0..leading).take(ATTEMPTS).map(|completed| Explanation { completed, emptied: false });
        let others = waited.chain([Explanation { completed: 0, emptied: true }]);
        let mut best = (u64::MAX, obvious);
        for explanation in std::iter::once(obvious).chain(others) {
            let mut trial = model.clone();
            let _ = attempt(self.entries, &self.known, &mut trial, start, at, explanation);
            if trial.device().mismatches < best.0 {
                best = (trial.device().mismatches, explanation);
            }
            if best.0 == 0 {
                break;
            }
        }
        best
    }

    fn request(&mut self, start: usize, at: usize) {
        let window = &self.entries[start..at];
        // Where nothing was released there is nothing to explain: what was found finished comes first, and a request
        // that had waited for more would have needed a release to be served.
        let completed = window.iter().take_while(|entry| entry.action == Action::FreeCompleted).count();
        let reserves = |entry: &Entry| matches!(entry.action, Action::SegmentAlloc | Action::SegmentMap);
        let served = self.entries[at].action == Action::Alloc;
        let explanation = if window[completed..].iter().all(reserves) && (served || completed == 0) {
            Explanation { completed, emptied: false }
        } else {
            self.explain(&self.allocator, start, at).1
        };
        if explanation.emptied {
            self.program.operations.push(Operation::EmptyCache);
        } else {
            for entry in &window[..explanation.completed] {
                if let Some(number) = self.number(entry.address) {
                    self.program.operations.push(Operation::Complete(number));
                }
            }
        }
        let place = attempt(self.entries, &self.known, &mut self.allocator, start, at, explanation);
        self.count();
        for entry in window.iter().filter(|entry| entry.action == Action::FreeCompleted) {
            self.forget(entry.address);
        }
        let entry = &self.entries[at];
        let (size, stream) = (entry.size, entry.stream);
        match (entry.action, place) {
            (Action::Oom, place) => {
                match place {
                    Ok(place) => drop(self.allocator.free(place)),
                    Err(refused) => self.refusals.push(*refused),
                }
                self.program.operations.push(Operation::Refused { size, stream });
            }
            (_, place) => {
                let number = u32::try_from(self.program.blocks).unwrap_or(u32::MAX);
                self.known.insert(entry.address, Known { number, place: place.unwrap_or(0) });
                self.program.blocks += 1;
                self.program.operations.push(Operation::Malloc { size, stream });
            }
        }
        // What this request waited for has finished by now, also where it would not have had to wait.
        for entry in window.iter().filter(|entry| entry.action == Action::FreeCompleted).skip(explanation.completed) {
            if let Some(number) = self.number(entry.address) {
                self.program.operations.push(Operation::Complete(number));
            }
        }
    }

    fn number(&self, address: Address) -> Option<u32> {
        self.known.get(&address).map(|block| block.number)
    }

    /// The block is gone: whatever comes next at this address, the model may have at the same one.
    fn forget(&mut self, address: Address) {
        if let Some(block) = self.known.get_mut(&address) {
            block.place = address;
        }
    }

    /// Adds the differences of the window to the total.
    fn count(&mut self) {
        let device = self.allocator.device_mut();
        if device.mismatches == 0 {
            return;
        }
        self.mismatches += device.mismatches;
        if self.described.len() < DESCRIBED
            && let Some((entry, model)) = device.first.take()
            && let Some(recorded) = self.entries.get(entry)
        {
            self.described.push(Mismatch {
                entry,
                recorded: format!("{} of {} bytes at {:#x}", recorded.action.name(), recorded.size, recorded.address),
                model,
            });
        }
    }
}

/// Does a request under one explanation, and compares it with the recording. Returns where the model put it.
fn attempt(
    entries: &[Entry],
    known: &AddressMap<Known>,
    model: &mut Model<'_>,
    start: usize,
    at: usize,
    explanation: Explanation,
) -> Result<Address, Box<OutOfMemory>> {
    let mut next = start;
    let mut refused = 0;
    if explanation.emptied {
        model.device_mut().open(start, at);
        model.empty_cache();
        next = model.device().position();
        refused = model.device().mismatches;
    } else {
        for entry in &entries[start..start + explanation.completed] {
            let place = place(known, entry.address);
            refused += u64::from(model.complete_free(place).is_err());
            next += 1;
        }
    }
    let entry = &entries[at];
    model.device_mut().open(next, at);
    model.device_mut().mismatches = refused;
    let place = model.malloc(entry.size, entry.stream);
    let device = model.device_mut();
    device.close();
    match (entry.action, &place) {
        (Action::Oom, Ok(place)) => device.differ(format!("the model serves it at {place:#x}")),
        (Action::Alloc, Err(_)) => device.differ("the model refuses it".to_owned()),
        (Action::Alloc, Ok(place)) if *place != entry.address => {
            device.differ(format!("the model serves it at {place:#x}"));
        }
        _ => {}
    }
    place
}

/// Whether an entry begins or is an operation of the program; the others belong to the operation after them.
fn is_operation(entry: &Entry) -> bool {
    matches!(entry.action, Action::Alloc | Action::Oom | Action::FreeRequested | Action::Snapshot)
}
