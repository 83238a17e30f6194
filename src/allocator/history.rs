//! The bounded history of what the allocator did: the entries of a snapshot's device trace.

use std::collections::VecDeque;

use super::device::{Address, StreamId};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block was handed out; the size is what was asked for.
    Alloc,
    /// The program gave a block back.
    FreeRequested,
    /// No stream uses the block any more.
    FreeCompleted,
    /// A segment was reserved.
    SegmentAlloc,
    /// A segment was released.
    SegmentFree,
    /// Memory was put behind a part of an expandable segment.
    SegmentMap,
    /// Memory was taken away from a part of an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request was refused; the address is the device's free memory, the size the rounded request.
    Oom,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 9] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Snapshot,
        Action::Oom,
    ];

    /// The name in a snapshot.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Snapshot => "snapshot",
            Action::Oom => "oom",
        }
    }

    /// Whether it is about a segment rather than a block.
    pub fn is_of_segment(self) -> bool {
        matches!(self, Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap)
    }

    /// The action of a name in a snapshot.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// One thing that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub action: Action,
    /// Where; for [`Action::Oom`] the free bytes of the device.
    pub address: Address,
    /// Bytes.
    pub size: u64,
    /// The stream of the block or segment.
    pub stream: StreamId,
    /// When, in microseconds since the Unix epoch.
    pub time_us: u64,
    /// What the caller set with [`super::CachingAllocator::set_tag`]: its phase and stack, as an index of its own.
    pub tag: u32,
}

/// The last entries, up to a bound.
#[derive(Debug, Clone)]
pub struct History {
    max_entries: usize,
    clock: fn() -> u64,
    entries: VecDeque<Entry>,
    dropped: u64,
}

impl History {
    /// An empty history that keeps the last `max_entries`, and takes the time from `clock`.
    pub fn new(max_entries: usize, clock: fn() -> u64) -> Self {
        Self { max_entries, clock, entries: VecDeque::new(), dropped: 0 }
    }

    pub(super) fn record(&mut self, action: Action, address: Address, size: u64, stream: StreamId, tag: u32) {
        if self.entries.len() >= self.max_entries {
            self.dropped += 1;
            if self.entries.pop_front().is_none() {
                return;
            }
        }
        self.entries.push_back(Entry { action, address, size, stream, time_us: (self.clock)(), tag });
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many entries were lost because newer ones came.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}
