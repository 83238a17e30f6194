//! The state before the first entry, inferred by going through the history backwards from the state at its end.
//!
//! What remains when every entry has been undone was there before. Its blocks that lived to the end are known to the
//! byte. Of a block that was freed on the way only the requested size is known; a large one may have carried up to
//! 1 MiB of slack, which shows when a later block begins behind it, and is taken for none when nothing shows it.

use std::collections::BTreeMap;

use crate::allocator::{
    Action, Address, AddressMap, BlockState, BlockView, CachingAllocator, Device, PoolId, SMALL_SEGMENT_SIZE,
    SMALL_SIZE, Segment, Settings, StreamId, VirtualDevice,
};
use crate::snapshot::model::{Entry, Segment as RecordedSegment};

use super::UNKNOWN_TOTAL;
use super::damage::{self, Damage};

/// How far a range of addresses reaches, at least.
pub(super) const RANGE: u64 = UNKNOWN_TOTAL + UNKNOWN_TOTAL / 8;

/// What was there before the first entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Initial {
    /// Segments with their blocks, by address.
    pub segments: Vec<Segment>,
    /// Blocks that were freed later on: frees without an allocation.
    pub freed_later: u64,
    /// Blocks that lived to the end: they have no history.
    pub without_history: u64,
    /// Large blocks whose slack is not known, and taken for none.
    pub assumed_sizes: u64,
    /// Expandable ranges.
    ranges: Vec<Range>,
}

/// A range of addresses of an expandable segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    /// The lowest address that was ever mapped.
    base: Address,
    /// What is mapped at the start, by address.
    stretches: Vec<Segment>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    /// The block's size, where it is known.
    size: Option<u64>,
    requested: u64,
    state: BlockState,
    freed_later: bool,
}

#[derive(Debug, Clone, Copy)]
struct Stretch {
    size: u64,
    stream: StreamId,
    is_small: bool,
    is_expandable: bool,
}

impl Initial {
    /// The state before the first of `entries`, given the segments after the last.
    ///
    /// # Errors
    /// [`Damage`] for a history that no allocator can have.
    pub fn of(entries: &[Entry], last: &[&RecordedSegment], settings: &Settings) -> Result<Self, Damage> {
        damage::check(entries, last)?;
        let initial = Self::infer(entries, last, settings);
        damage::check_initial(&initial)?;
        Ok(initial)
    }

    /// Infers the state before the first of `entries` from the segments after the last.
    fn infer(entries: &[Entry], last: &[&RecordedSegment], settings: &Settings) -> Self {
        let mut stretches = Stretches::default();
        let mut held: AddressMap<Held> = AddressMap::default();
        let mut pools = None;
        for segment in last {
            let (stream, is_small, is_expandable) = (segment.stream, segment.is_small, segment.is_expandable);
            stretches.add(segment.address, Stretch { size: segment.total_size, stream, is_small, is_expandable });
            for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
                let (size, requested) = (Some(block.size), block.requested_size);
                held.insert(block.address, Held { size, requested, state: block.state, freed_later: false });
            }
        }
        for entry in entries.iter().rev() {
            let is_small = entry.size == SMALL_SEGMENT_SIZE;
            let fixed = Stretch { size: entry.size, stream: entry.stream, is_small, is_expandable: false };
            match entry.action {
                Action::Alloc => {
                    held.remove(&entry.address);
                }
                Action::FreeCompleted => {
                    let (requested, state) = (entry.size, BlockState::ActivePendingFree);
                    held.insert(entry.address, Held { size: None, requested, state, freed_later: true });
                }
                Action::FreeRequested => {
                    if let Some(block) = held.get_mut(&entry.address) {
                        block.state = BlockState::ActiveAllocated;
                        block.freed_later = true;
                    }
                }
                Action::SegmentAlloc | Action::SegmentMap => stretches.remove(entry.address, entry.size),
                Action::SegmentFree => stretches.add(entry.address, fixed),
                Action::SegmentUnmap => {
                    let is_small = pools
                        .get_or_insert_with(|| PoolsByAddress::new(entries, last, settings))
                        .is_small(entry.address, entry.size);
                    stretches.add(entry.address, Stretch { is_small, is_expandable: true, ..fixed });
                }
                Action::Snapshot | Action::Oom => {}
            }
        }
        let held: BTreeMap<Address, Held> = held.into_iter().collect();
        let mut initial = Initial::default();
        initial.freed_later = held.values().filter(|block| block.freed_later).count() as u64;
        initial.without_history = held.len() as u64 - initial.freed_later;
        let slack = Slack::find(entries, &held, &stretches, settings);
        for (&address, stretch) in &stretches.0 {
            let segment = tile(address, *stretch, &held, &slack, settings, &mut initial.assumed_sizes);
            if stretch.is_expandable {
                initial.add_stretch(&segment);
            }
            initial.segments.push(segment);
        }
        // Memory may be mapped later below what is mapped now.
        for entry in entries.iter().filter(|entry| entry.action == Action::SegmentMap) {
            for range in &mut initial.ranges {
                let below = range.base.checked_sub(entry.address).is_some_and(|distance| distance < UNKNOWN_TOTAL / 8);
                if below && range.stretches[0].stream == entry.stream {
                    range.base = entry.address;
                }
            }
        }
        initial
    }

    fn add_stretch(&mut self, stretch: &Segment) {
        let same = |range: &&mut Range| {
            let first = &range.stretches[0];
            (first.stream, first.is_small) == (stretch.stream, stretch.is_small)
                && stretch.address + stretch.total_size - range.base <= UNKNOWN_TOTAL
        };
        match self.ranges.iter_mut().find(same) {
            Some(range) => range.stretches.push(stretch.clone()),
            None => self.ranges.push(Range { base: stretch.address, stretches: vec![stretch.clone()] }),
        }
    }

    /// Whether the history begins at process start.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.freed_later + self.without_history == 0
    }

    /// Bytes that were reserved.
    pub fn reserved(&self) -> u64 {
        self.segments.iter().map(|segment| segment.total_size).sum()
    }

    /// A device that has reserved and mapped just this.
    pub(super) fn device(&self) -> VirtualDevice {
        let mut device = VirtualDevice::new(UNKNOWN_TOTAL, 0);
        for segment in self.segments.iter().filter(|segment| !segment.is_expandable) {
            device.adopt(segment.address, segment.total_size);
        }
        for range in &self.ranges {
            let mapped = range.stretches.iter().map(|stretch| stretch.total_size).sum();
            device.adopt_range(range.base, 2 * RANGE, mapped);
        }
        device
    }

    /// Puts the state into an allocator.
    pub(super) fn restore<D: Device>(&self, allocator: &mut CachingAllocator<D>) {
        for segment in self.segments.iter().filter(|segment| !segment.is_expandable) {
            allocator.restore_segment(segment);
        }
        for Range { base, stretches } in &self.ranges {
            let page = allocator.settings().page_size(stretches[0].is_small);
            allocator.restore_range(*base, RANGE.next_multiple_of(page), stretches);
        }
    }

    /// The blocks that the program held, or that waited for a stream.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockView> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state != BlockState::Inactive)
    }
}

/// What is reserved, by address. Expandable stretches that touch are one.
#[derive(Debug, Default)]
struct Stretches(BTreeMap<Address, Stretch>);

impl Stretches {
    fn add(&mut self, address: Address, stretch: Stretch) {
        let (mut start, mut end) = (address, address + stretch.size);
        if stretch.is_expandable {
            if let Some((&before, found)) = self.0.range(..start).next_back()
                && found.is_expandable
                && before + found.size == start
            {
                start = before;
            }
            if let Some(after) = self.0.get(&end).filter(|found| found.is_expandable).copied() {
                self.0.remove(&end);
                end += after.size;
            }
        }
        self.0.insert(start, Stretch { size: end - start, ..stretch });
    }

    /// Takes addresses out, also from the middle of a stretch.
    fn remove(&mut self, address: Address, size: u64) {
        let Some((&start, &stretch)) = self.0.range(..=address).next_back() else { return };
        let (end, stretch_end) = (address + size, start + stretch.size);
        if address >= stretch_end {
            return;
        }
        self.0.remove(&start);
        if start < address {
            self.0.insert(start, Stretch { size: address - start, ..stretch });
        }
        if end < stretch_end {
            self.0.insert(end, Stretch { size: stretch_end - end, ..stretch });
        }
    }
}

/// To which pool the addresses of expandable segments belong: that of the nearest block, because ranges lie far apart.
struct PoolsByAddress {
    by_address: BTreeMap<Address, bool>,
    large_page: u64,
}

impl PoolsByAddress {
    fn new(entries: &[Entry], last: &[&RecordedSegment], settings: &Settings) -> Self {
        let is_small = |size: u64| settings.round(size) <= SMALL_SIZE;
        let blocks = entries.iter().filter(|entry| matches!(entry.action, Action::Alloc | Action::FreeCompleted));
        let blocks = blocks.map(|entry| (entry.address, is_small(entry.size)));
        let segments = last.iter().map(|segment| (segment.address, segment.is_small));
        Self { by_address: blocks.chain(segments).collect(), large_page: settings.page_size(false) }
    }

    fn is_small(&self, address: Address, size: u64) -> bool {
        let before = self.by_address.range(..=address).next_back();
        let after = self.by_address.range(address..).next();
        let near = before.into_iter().chain(after).filter(|(other, _)| other.abs_diff(address) < UNKNOWN_TOTAL / 16);
        // Without a block anywhere near: large ranges grow by large pages.
        near.min_by_key(|(other, _)| other.abs_diff(address))
            .map_or(!size.is_multiple_of(self.large_page), |(_, small)| *small)
    }
}

/// The slack that later entries show behind large blocks of unknown size.
#[derive(Debug, Default)]
struct Slack(BTreeMap<Address, u64>);

impl Slack {
    fn find(entries: &[Entry], held: &BTreeMap<Address, Held>, stretches: &Stretches, settings: &Settings) -> Self {
        // By the end of the rounded request: the block behind it cannot begin later than 1 MiB after.
        let mut open: BTreeMap<Address, Address> = held
            .iter()
            .filter(|(_, block)| block.size.is_none() && block.requested > 0)
            .map(|(&address, block)| (address + settings.round(block.requested), address))
            .filter(|(_, address)| {
                let stretch = stretches.0.range(..=*address).next_back();
                stretch.is_some_and(|(_, stretch)| !stretch.is_small && !stretch.is_expandable)
            })
            .collect();
        let mut found = BTreeMap::new();
        for entry in entries {
            if open.is_empty() {
                break;
            }
            match entry.action {
                Action::Alloc => {
                    let behind = open.range(entry.address.saturating_sub(SMALL_SIZE)..=entry.address).next_back();
                    if let Some((&end, &block)) = behind {
                        found.insert(block, entry.address - end);
                        open.remove(&end);
                    }
                }
                Action::FreeCompleted => {
                    open.retain(|_, block| *block != entry.address);
                }
                _ => {}
            }
        }
        Slack(found)
    }
}

/// A segment with its blocks, and the free blocks between them.
fn tile(
    address: Address,
    stretch: Stretch,
    held: &BTreeMap<Address, Held>,
    slack: &Slack,
    settings: &Settings,
    assumed: &mut u64,
) -> Segment {
    let end = address + stretch.size;
    let mut segment = Segment {
        address,
        total_size: stretch.size,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        stream: stretch.stream,
        pool: PoolId::DEFAULT,
        is_small: stretch.is_small,
        is_expandable: stretch.is_expandable,
        tag: 0,
        blocks: Vec::new(),
    };
    let mut at = address;
    let push = |segment: &mut Segment, address, size, requested_size, state| {
        if size > 0 {
            segment.blocks.push(BlockView { address, size, requested_size, state, tag: 0 });
        }
    };
    let mut inside = held.range(address..end).peekable();
    while let Some((&start, block)) = inside.next() {
        if start < at {
            continue;
        }
        push(&mut segment, at, start - at, 0, BlockState::Inactive);
        let room = inside.peek().map_or(end, |(next, _)| **next) - start;
        let size = block.size.unwrap_or_else(|| {
            let rounded = settings.round(block.requested).min(room);
            let rest = room - rounded;
            let keeps_rest = !stretch.is_small && !settings.expandable_segments;
            if keeps_rest && (rest <= SMALL_SIZE || rounded >= settings.max_split_size) {
                return room;
            }
            if keeps_rest && !slack.0.contains_key(&start) {
                *assumed += 1;
            }
            rounded + slack.0.get(&start).copied().unwrap_or(0).min(rest)
        });
        let size = size.min(room);
        push(&mut segment, start, size, block.requested, block.state);
        at = start + size;
    }
    push(&mut segment, at, end - at, 0, BlockState::Inactive);
    segment
}
