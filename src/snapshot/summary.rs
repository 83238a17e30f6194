//! What a snapshot holds: the state of each device, what was alive at the peak, what keeps accumulating, and what is
//! wrong with the file.

use std::collections::HashMap;

use super::model::{Contexts, Entry, FrameId, Segment, Snapshot, StackId};
use super::replay::{Damage, Initial};
use super::{Format, fault};
use crate::allocator::{Action, Address, BlockState, Settings};

pub use super::fault::Fault;

/// In how many parts a history is looked at for growth, and in how many of them a group has to grow.
const PARTS: usize = 8;
const GROWING_PARTS: u32 = 3;

/// A snapshot in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// One for each device that the file says something about.
    pub devices: Vec<DeviceSummary>,
    /// What is wrong with the file as a whole.
    pub faults: Vec<Fault>,
}

/// One device. Sizes are bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSummary {
    /// Its number.
    pub device: usize,
    /// Segments at the end.
    pub segments: usize,
    /// Bytes taken from the device.
    pub reserved: u64,
    /// Blocks that the program holds.
    pub allocated: u64,
    /// Blocks that it holds or that wait for a stream.
    pub active: u64,
    /// What active blocks are larger than what was asked for.
    pub slack: u64,
    /// Free blocks in segments that are partly in use: they cannot be given back.
    pub inactive_split: u64,
    /// Free segments: they can.
    pub inactive_whole: u64,
    /// The largest free block.
    pub largest_free: u64,
    /// The largest request of the history; None without one.
    pub largest_request: Option<u64>,
    /// Entries of the history.
    pub entries: usize,
    /// Whether the history begins at process start.
    pub from_start: bool,
    /// The time from the first entry to the last, in microseconds.
    pub duration_us: u64,
    /// The moment when the program had asked for most.
    pub peak: Option<Peak>,
    /// Groups of blocks that were allocated all through the history and not given back.
    pub growth: Vec<Growth>,
    /// What is wrong with the history.
    pub faults: Vec<Fault>,
}

/// The moment when the program had asked for most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// The number of the entry.
    pub entry: usize,
    /// Bytes asked for.
    pub requested: u64,
    /// The note of the entry: the phase, in a snapshot of memlab's.
    pub note: String,
    /// What was alive, largest first.
    pub groups: Vec<Group>,
}

/// Blocks with the same origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Where they come from.
    pub origin: Origin,
    /// How many.
    pub blocks: u64,
    /// Bytes asked for.
    pub requested: u64,
}

/// A group that keeps accumulating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Blocks of the history that are alive at its end.
    pub group: Group,
    /// In how many of the equal parts of the history they were allocated.
    pub parts: u32,
}

/// Where blocks come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// From these places, as `function (file:line)`, the innermost first.
    Stack(Vec<String>),
    /// From nowhere known: all have this size.
    Size(u64),
    /// From before the history.
    Before,
}

/// The key of a group while it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Places(usize),
    Size(u64),
    Before,
}

/// Sums a snapshot up.
///
/// # Errors
/// [`Damage`] for numbers that no device has.
pub fn summarise(snapshot: &Snapshot, format: Format) -> Result<Summary, Damage> {
    let mut devices: Vec<usize> = snapshot.segments.iter().map(|segment| segment.device).collect();
    devices.extend(snapshot.traces.iter().enumerate().filter(|(_, trace)| !trace.is_empty()).map(|(device, _)| device));
    devices.sort_unstable();
    devices.dedup();
    let devices = devices.into_iter().map(|device| summarise_device(snapshot, device));
    Ok(Summary { devices: devices.collect::<Result<_, _>>()?, faults: fault::of_file(snapshot, format) })
}

fn summarise_device(snapshot: &Snapshot, device: usize) -> Result<DeviceSummary, Damage> {
    let segments: Vec<&Segment> = snapshot.segments.iter().filter(|segment| segment.device == device).collect();
    let entries = snapshot.traces.get(device).map_or(&[][..], Vec::as_slice);
    let settings = snapshot.settings.as_ref().map_or_else(Settings::default, |recorded| recorded.settings.clone());
    let initial = Initial::of(entries, &segments, &settings)?;
    let sum = |size: fn(&Segment) -> u64| segments.iter().map(|segment| size(segment)).sum::<u64>();
    let (allocated, active) = (sum(|segment| segment.allocated_size), sum(|segment| segment.active_size));
    let (mut inactive_split, mut inactive_whole, mut largest_free) = (0, 0, 0);
    for segment in &segments {
        for block in segment.blocks.iter().filter(|block| block.state == BlockState::Inactive) {
            let whole = block.size == segment.total_size;
            *(if whole { &mut inactive_whole } else { &mut inactive_split }) += block.size;
            largest_free = largest_free.max(block.size);
        }
    }
    let requests = entries.iter().filter(|entry| matches!(entry.action, Action::Alloc | Action::Oom));
    let mut history = History::new(&snapshot.contexts, entries, &segments, &initial);
    let peak = history.peak();
    let times = (entries.first().map_or(0, |first| first.time_us), entries.last().map_or(0, |last| last.time_us));
    Ok(DeviceSummary {
        device,
        segments: segments.len(),
        reserved: sum(|segment| segment.total_size),
        allocated,
        active,
        slack: active.saturating_sub(sum(|segment| segment.requested_size)),
        inactive_split,
        inactive_whole,
        largest_free,
        largest_request: requests.map(|entry| entry.size).max(),
        entries: entries.len(),
        from_start: initial.is_empty() && !entries.is_empty(),
        duration_us: times.1.saturating_sub(times.0),
        peak,
        growth: history.growth(),
        faults: fault::of_device(snapshot, entries, &segments, &initial),
    })
}

/// A block while it is alive.
#[derive(Debug, Clone, Copy)]
struct Alive {
    key: Key,
    size: u64,
    /// The entry that allocated it; None when it was there before.
    since: Option<usize>,
}

/// The history as blocks that come and go.
struct History<'a> {
    contexts: &'a Contexts,
    entries: &'a [Entry],
    before: Vec<(Address, Alive)>,
    keys: Keys<'a>,
}

impl<'a> History<'a> {
    fn new(contexts: &'a Contexts, entries: &'a [Entry], segments: &[&Segment], initial: &Initial) -> Self {
        let mut keys = Keys { contexts, by_stack: HashMap::new(), by_places: HashMap::new(), places: Vec::new() };
        let stacks: HashMap<Address, StackId> = segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.state != BlockState::Inactive)
            .map(|block| (block.address, block.stack))
            .collect();
        let before = initial
            .blocks()
            .map(|block| {
                let stack = stacks.get(&block.address).copied().unwrap_or_default();
                let key = if stack == StackId::default() { Key::Before } else { keys.key(stack, 0) };
                (block.address, Alive { key, size: block.requested_size, since: None })
            })
            .collect();
        Self { contexts, entries, before, keys }
    }

    /// Goes through the history up to entry `until`, and tells what is alive after each entry.
    fn run(&mut self, until: usize, mut after: impl FnMut(usize, u64)) -> HashMap<Address, Alive> {
        let mut alive: HashMap<Address, Alive> = self.before.iter().copied().collect();
        let mut total: u64 = alive.values().map(|block| block.size).sum();
        for (index, entry) in self.entries.iter().enumerate().take(until) {
            match entry.action {
                Action::Alloc => {
                    let key = self.keys.key(entry.stack, entry.size);
                    let block = Alive { key, size: entry.size, since: Some(index) };
                    total = total.saturating_add(entry.size);
                    if let Some(lost) = alive.insert(entry.address, block) {
                        total -= lost.size;
                    }
                }
                Action::FreeCompleted => {
                    if let Some(block) = alive.remove(&entry.address) {
                        total -= block.size;
                    }
                }
                _ => {}
            }
            after(index, total);
        }
        alive
    }

    fn peak(&mut self) -> Option<Peak> {
        let mut highest: Option<(usize, u64)> = None;
        self.run(self.entries.len(), |index, total| {
            if highest.is_none_or(|(_, most)| total > most) {
                highest = Some((index, total));
            }
        });
        let (entry, requested) = highest?;
        let alive = self.run(entry + 1, |_, _| {});
        let groups = self.groups(alive.values());
        let note = self.contexts.note_of(self.entries[entry].note).to_owned();
        Some(Peak { entry, requested, note, groups: groups.into_iter().map(|(group, _)| group).collect() })
    }

    fn growth(&mut self) -> Vec<Growth> {
        let alive = self.run(self.entries.len(), |_, _| {});
        let groups = self.groups(alive.values().filter(|block| block.since.is_some()));
        let growing = groups.into_iter().filter(|(_, parts)| parts.count_ones() >= GROWING_PARTS);
        growing.map(|(group, parts)| Growth { group, parts: parts.count_ones() }).collect()
    }

    /// Blocks by origin, the most bytes first, with a bit for each part of the history that allocated some of them.
    fn groups<'b>(&self, blocks: impl Iterator<Item = &'b Alive>) -> Vec<(Group, u32)> {
        let mut groups: HashMap<Key, (u64, u64, u32)> = HashMap::new();
        for block in blocks {
            let (count, bytes, parts) = groups.entry(block.key).or_default();
            *count += 1;
            *bytes += block.size;
            if let Some(since) = block.since {
                *parts |= 1 << (since * PARTS / self.entries.len());
            }
        }
        let mut groups: Vec<(Key, (u64, u64, u32))> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|(key, (_, bytes, _))| (std::cmp::Reverse(*bytes), *key));
        groups
            .into_iter()
            .map(|(key, (blocks, requested, parts))| {
                (Group { origin: self.keys.origin(key), blocks, requested }, parts)
            })
            .collect()
    }
}

/// Stacks as groups. What the unwinder could not place in a source file says nothing to a reader, and tells apart what
/// belongs together: only frames with a line count, where there are any.
struct Keys<'a> {
    contexts: &'a Contexts,
    by_stack: HashMap<StackId, usize>,
    by_places: HashMap<Vec<FrameId>, usize>,
    places: Vec<Vec<FrameId>>,
}

impl Keys<'_> {
    fn key(&mut self, stack: StackId, size: u64) -> Key {
        if stack == StackId::default() {
            return Key::Size(size);
        }
        if let Some(&at) = self.by_stack.get(&stack) {
            return Key::Places(at);
        }
        let frames = self.contexts.frame_numbers(stack);
        let placed: Vec<FrameId> =
            frames.iter().copied().filter(|frame| self.contexts.frame_of(*frame).line > 0).collect();
        let places = if placed.is_empty() {
            let inside = |frame: &&FrameId| is_allocator(&self.contexts.frame_of(**frame).name);
            frames.iter().skip_while(inside).copied().collect()
        } else {
            placed
        };
        let next = self.places.len();
        let at = *self.by_places.entry(places).or_insert_with_key(|places| {
            self.places.push(places.clone());
            next
        });
        self.by_stack.insert(stack, at);
        Key::Places(at)
    }

    fn origin(&self, key: Key) -> Origin {
        match key {
            Key::Size(size) => Origin::Size(size),
            Key::Before => Origin::Before,
            Key::Places(at) => Origin::Stack(
                self.places[at]
                    .iter()
                    .map(|frame| {
                        let frame = self.contexts.frame_of(*frame);
                        match frame.line {
                            0 => format!("{} ({})", frame.name, frame.filename),
                            line => format!("{} ({}:{line})", frame.name, frame.filename),
                        }
                    })
                    .collect(),
            ),
        }
    }
}

/// Whether a function is the recorder's or the allocator's own: every stack begins with some of them.
pub(super) fn is_allocator(function: &str) -> bool {
    ["torch::unwind", "torch::CapturedTraceback", "torch::cuda::", "c10::", "at::detail::"]
        .iter()
        .any(|prefix| function.starts_with(prefix))
}
