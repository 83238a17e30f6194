//! A model of `PyTorch`'s CUDA caching allocator (2.11), exact to the byte. It depends on nothing else in this crate.
//!
//! The algorithm, which the sub-modules spell out:
//!
//! 1. A request is **rounded** to a multiple of 512 bytes, or as `roundup_power2_divisions` says ([`Settings::round`]).
//! 2. Requests of at most 1 MiB belong to the **small pool**, others to the **large pool**; a CUDA graph or a memory
//!    pool of the program brings a private pair. Within a pool each stream has free blocks of its own.
//! 3. **Best fit**: the smallest free block that is large enough, and of equal ones that at the lowest address. What
//!    the settings forbid counts as not found; a second candidate is never tried.
//! 4. A block that is larger than needed is **split** when the rest is worth keeping: at least 512 bytes in the small
//!    pool, more than 1 MiB in the large one. So a large block carries up to 1 MiB that nobody asked for.
//! 5. Without a block, a **segment** is reserved from the device: 2 MiB for small requests, 20 MiB below 10 MiB, else
//!    the size itself; or an **expandable** segment grows by whole pages (`expandable`).
//! 6. When the device or the process's limit refuses, memory is **released** in steps (`release`), and when that does
//!    not help the request is refused ([`OutOfMemory`]).
//! 7. A freed block **merges** with free neighbours and waits in its pool; one that other streams used waits first for
//!    them. *When* they finish is the device's affair: the caller says it ([`CachingAllocator::complete_free`]), and
//!    whatever waits for all streams completes them all.
//!
//! For readers of `c10/cuda/CUDACachingAllocator.cpp`:
//!
//! | here | there |
//! | --- | --- |
//! | [`CachingAllocator::malloc_in`] and `make_room` | `malloc` up to the first search, and from there on |
//! | `take_free_block`, `hand_out` | `get_free_block`; `should_split` and `alloc_found_block` |
//! | [`CachingAllocator::free`], `free_block`, `merge` | `free`, `free_block`, `try_merge_blocks` |
//! | `reserve_block`, `map_expandable_block` | `alloc_block`, `try_allocate_expandable_block` |
//! | `collect_garbage`, `release_oversize_blocks` | `garbage_collect_cached_blocks`, `release_available_cached_blocks` |
//! | `release_cached_blocks`, `wait_for_streams` | `release_cached_blocks`, `synchronize_and_free_events` |
//! | a lane: one stream's part of a pool | the blocks of one stream in `BlockPool::blocks`, whose order begins with it |
//!
//! The invariant: the blocks of a segment tile it, no two neighbours are both free, and every counter in [`Stats`]
//! equals what a walk over the blocks would count.

mod address_map;
mod block;
mod device;
mod driver;
mod expandable;
mod free_set;
mod history;
mod oom;
mod pool;
mod release;
mod restore;
mod segment;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use address_map::AddressMap;
use block::{Block, BlockId, Slab, State};
pub use device::{Address, Device, StreamId, VirtualDevice};
pub use driver::{Driver, First};
use expandable::Ranges;
use free_set::FreeBlock;
pub use history::{Action, Entry, History};
pub use oom::OutOfMemory;
pub use pool::{PoolId, PoolOptions};
use pool::{Pools, is_small};
pub use segment::{BlockState, BlockView, Segment};
pub use settings::{
    DEFAULT_LARGE_SEGMENT_SIZE, LARGE_ROUNDING, MIN_BLOCK_SIZE, MIN_LARGE_SEGMENT, SMALL_SEGMENT_SIZE, SMALL_SIZE,
    Settings, SettingsError,
};
pub use stats::{PoolStat, Stat, Stats};

/// An address that the allocator does not know as a block in the state that the call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such block at address {0:#x}")]
pub struct UnknownBlock(pub Address);

/// The allocator of one device.
#[derive(Debug, Clone)]
pub struct CachingAllocator<D> {
    settings: Settings,
    limit: Option<u64>,
    device: D,
    blocks: Slab,
    pools: Pools,
    ranges: Ranges,
    allocated: AddressMap<BlockId>,
    /// The last, in the order of streams, of the other streams that use a block; only blocks marked as shared have one.
    uses: AddressMap<StreamId>,
    pending: Vec<Pending>,
    reserved: u64,
    capturing: bool,
    tag: u32,
    stats: Stats,
    history: Option<History>,
}

/// A freed block that other streams still use.
#[derive(Debug, Clone, Copy)]
struct Pending {
    address: Address,
    block: BlockId,
    /// The last of these streams, in the order in which they are waited for.
    last_stream: StreamId,
}

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// What was asked for.
    bytes: u64,
    /// The size of the block.
    size: u64,
    /// The size of a new segment for it.
    segment: u64,
    stream: StreamId,
    pool: u32,
    lane: u32,
    small: bool,
    /// Whether it may be served from expandable segments: not in a pool with an allocator of its own.
    expandable: bool,
}

impl<D: Device> CachingAllocator<D> {
    /// An allocator that has reserved nothing. `limit` is what the process may reserve, in bytes: the fraction of
    /// `set_per_process_memory_fraction`, or of the settings, times the device's memory; None for no such limit.
    pub fn new(settings: Settings, limit: Option<u64>, device: D) -> Self {
        Self {
            settings,
            limit,
            device,
            blocks: Slab::default(),
            pools: Pools::default(),
            ranges: Ranges::default(),
            allocated: AddressMap::default(),
            uses: AddressMap::default(),
            pending: Vec::new(),
            reserved: 0,
            capturing: false,
            tag: 0,
            stats: Stats::default(),
            history: None,
        }
    }

    /// Hands out a block of at least `size` bytes for work on `stream`. Zero bytes are the null address and no block.
    ///
    /// # Errors
    /// [`OutOfMemory`] when nothing that could be released makes room. The state is then as `PyTorch` leaves it:
    /// everything cached that could be released has been.
    #[inline]
    pub fn malloc(&mut self, size: u64, stream: StreamId) -> Result<Address, Box<OutOfMemory>> {
        self.malloc_in(PoolId::DEFAULT, size, stream)
    }

    /// As [`CachingAllocator::malloc`], from a private pool.
    ///
    /// # Errors
    /// [`OutOfMemory`], as there.
    pub fn malloc_in(&mut self, pool: PoolId, size: u64, stream: StreamId) -> Result<Address, Box<OutOfMemory>> {
        if size == 0 {
            return Ok(0);
        }
        if size >= oom::EXABYTE {
            return Err(Box::new(self.out_of_memory(size, size)));
        }
        let rounded = self.settings.round(size);
        let small = rounded <= SMALL_SIZE;
        let pool = pool.index(small);
        let mut request = Request {
            bytes: size,
            size: rounded,
            segment: self.settings.segment_size(rounded),
            stream,
            pool,
            lane: self.pools.lane(pool, stream),
            small,
            expandable: self.settings.expandable_segments && !self.pools.has_own_allocator(pool),
        };
        let block = match self.take_free_block(&request) {
            Some(block) => block,
            None => self.make_room(&mut request)?,
        };
        Ok(self.hand_out(block, &request))
    }

    /// Gives a block back. The null address is ignored. A block that other streams use waits for them.
    ///
    /// # Errors
    /// [`UnknownBlock`] for an address that was not handed out, or was given back already.
    pub fn free(&mut self, address: Address) -> Result<(), UnknownBlock> {
        if address == 0 {
            return Ok(());
        }
        let id = self.allocated.remove(&address).ok_or(UnknownBlock(address))?;
        let block = &mut self.blocks[id];
        let (size, requested, shared) = (block.size, block.requested, block.shared);
        let (pool, lane) = (block.pool, block.lane);
        block.state = State::Pending;
        block.shared = false;
        let small = is_small(pool);
        self.stats.allocation.decrease(small, 1);
        self.stats.allocated_bytes.decrease(small, size);
        if self.history.is_some() {
            self.record(Action::FreeRequested, address, requested, self.pools.stream(pool, lane));
        }
        if size >= self.settings.max_split_size {
            self.stats.oversize_allocations.decrease(1);
        }
        if shared {
            let last_stream = self.uses.remove(&address).unwrap_or_default();
            self.pending.push(Pending { address, block: id, last_stream });
        } else {
            self.free_block(id);
        }
        Ok(())
    }

    /// Notes that work on `stream` uses a block: freeing it will wait for that stream. Its own stream changes nothing.
    ///
    /// # Errors
    /// [`UnknownBlock`] for an address that the program does not hold.
    pub fn record_stream(&mut self, address: Address, stream: StreamId) -> Result<(), UnknownBlock> {
        let id = *self.allocated.get(&address).ok_or(UnknownBlock(address))?;
        let block = &mut self.blocks[id];
        if self.pools.stream(block.pool, block.lane) == stream {
            return Ok(());
        }
        block.shared = true;
        let last_stream = self.uses.entry(address).or_insert(stream);
        *last_stream = stream.max(*last_stream);
        Ok(())
    }

    /// All other streams have finished with a freed block, and the allocator has seen it, as it does at the start of a
    /// request: the block returns to its pool.
    ///
    /// # Errors
    /// [`UnknownBlock`] for an address where no freed block waits.
    pub fn complete_free(&mut self, address: Address) -> Result<(), UnknownBlock> {
        let at = self.pending.iter().position(|pending| pending.address == address).ok_or(UnknownBlock(address))?;
        let pending = self.pending.remove(at);
        self.free_block(pending.block);
        Ok(())
    }

    /// The freed blocks that wait for other streams, in the order in which they were freed.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = Address> {
        self.pending.iter().map(|pending| pending.address)
    }

    /// While a CUDA graph is captured, nothing waits for streams: a request that needs everything released is refused.
    pub fn set_capturing(&mut self, capturing: bool) {
        self.capturing = capturing;
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the process may reserve, in bytes.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Changes what the process may reserve, as `set_per_process_memory_fraction` does. Nothing is released.
    pub fn set_limit(&mut self, limit: Option<u64>) {
        self.limit = limit;
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, to be changed.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&mut self) {
        self.stats.reset_peak();
    }

    /// The size of a block that the program holds, in bytes.
    pub fn block_size(&self, address: Address) -> Option<u64> {
        self.allocated.get(&address).map(|id| self.blocks[*id].size)
    }

    /// Starts a history, or ends it with None.
    pub fn set_history(&mut self, history: Option<History>) {
        self.history = history;
    }

    /// The history, if one is kept.
    pub fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Sets the tag of what follows: it is kept with each entry of the history and with each block.
    pub fn set_tag(&mut self, tag: u32) {
        self.tag = tag;
    }

    #[inline]
    fn record(&mut self, action: Action, address: Address, size: u64, stream: StreamId) {
        if let Some(history) = &mut self.history {
            history.record(action, address, size, stream, self.tag);
        }
    }

    /// Best fit: takes the block that serves a request out of its set.
    #[inline]
    fn take_free_block(&mut self, request: &Request) -> Option<BlockId> {
        if self.settings.garbage_collection_threshold > 0.0 && self.limit.is_some() {
            self.pools.tick(request.pool);
        }
        let max_split_size = self.settings.max_split_size;
        let lane = self.pools.lane_mut(request.pool, request.lane);
        let mut at = lane.free.lower_bound(request.size, 0);
        let mut found = lane.free.get(at)?;
        if self.blocks[found.block].is_expandable() {
            if request.expandable {
                // What an expandable block can grow to counts as its size.
                let reach = |free: FreeBlock| {
                    let next = self.blocks[free.block].next;
                    let unmapped = next.is_some() && self.blocks[next].state == State::Unmapped;
                    free.size + if unmapped { self.blocks[next].size } else { 0 }
                };
                while self.blocks[found.block].is_expandable() {
                    let after = lane.free.next(at);
                    match lane.free.get(after) {
                        Some(free) if reach(free) < reach(found) => (at, found) = (after, free),
                        _ => break,
                    }
                }
            } else {
                while self.blocks[found.block].is_expandable() {
                    at = lane.free.next(at);
                    found = lane.free.get(at)?;
                }
            }
        }
        if request.size < max_split_size {
            if found.size >= max_split_size {
                return None;
            }
        } else if found.size >= request.size.saturating_add(self.settings.max_non_split_rounding) {
            return None;
        }
        lane.free.remove_at(at);
        Some(found.block)
    }

    /// Splits a block that is larger than the request, and counts it as handed out.
    #[inline]
    fn hand_out(&mut self, id: BlockId, request: &Request) -> Address {
        let small = request.small;
        let block = &self.blocks[id];
        let was_split = block.is_split();
        let expandable = block.is_expandable();
        let rest = block.size - request.size;
        let split = if self.pools.is_unsplittable(request.pool) {
            false
        } else if small || request.expandable {
            rest >= MIN_BLOCK_SIZE
        } else {
            request.size < self.settings.max_split_size && rest > SMALL_SIZE
        };
        if split {
            let rest_id = self.split(id, request.size);
            self.insert_free(rest_id);
            if !expandable && was_split {
                self.stats.inactive_split_bytes.decrease(small, request.size);
            } else if !expandable {
                self.stats.inactive_split_bytes.increase(small, rest);
                self.stats.inactive_split.increase(small, 1);
            }
        } else if was_split && !expandable {
            self.stats.inactive_split_bytes.decrease(small, rest + request.size);
            self.stats.inactive_split.decrease(small, 1);
        }
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = request.bytes;
        block.tag = self.tag;
        let (address, size) = (block.address, block.size);
        self.allocated.insert(address, id);
        self.record(Action::Alloc, address, request.bytes, request.stream);
        self.stats.allocation.increase(small, 1);
        self.stats.allocated_bytes.increase(small, size);
        self.stats.active.increase(small, 1);
        self.stats.active_bytes.increase(small, size);
        self.stats.requested_bytes.increase(small, request.bytes);
        if size >= self.settings.max_split_size {
            self.stats.oversize_allocations.increase(1);
        }
        address
    }

    /// Cuts a block in two: it keeps its first `size` bytes, and the new block behind it gets the rest.
    fn split(&mut self, id: BlockId, size: u64) -> BlockId {
        let front = &mut self.blocks[id];
        let back = Block { address: front.address + size, size: front.size - size, previous: id, ..front.clone() };
        front.size = size;
        let next = back.next;
        let back = self.blocks.insert(back);
        self.blocks[id].next = back;
        if next.is_some() {
            self.blocks[next].previous = back;
        }
        back
    }

    /// No stream uses the block any more: it merges with its free neighbours and goes into the free set.
    fn free_block(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Free;
        let (address, size, requested) = (block.address, block.size, block.requested);
        let (pool, lane, expandable) = (block.pool, block.lane, block.is_expandable());
        let (previous, next) = (block.previous, block.next);
        if self.history.is_some() {
            self.record(Action::FreeCompleted, address, requested, self.pools.stream(pool, lane));
        }
        let mut merged = 0_u64;
        let mut merged_bytes = 0;
        for neighbour in [previous, next] {
            let bytes = self.merge(id, neighbour);
            if bytes > 0 {
                merged += 1;
                merged_bytes += bytes;
            }
        }
        self.insert_free(id);
        let small = is_small(pool);
        if !expandable {
            // The net change counts: a merge with both neighbours is one free block less, not two less and one more.
            let block = &self.blocks[id];
            let (now, now_bytes) = if block.is_split() { (1, block.size) } else { (0, 0) };
            if now > merged {
                self.stats.inactive_split.increase(small, now - merged);
            } else {
                self.stats.inactive_split.decrease(small, merged - now);
            }
            if now_bytes > merged_bytes {
                self.stats.inactive_split_bytes.increase(small, now_bytes - merged_bytes);
            } else {
                self.stats.inactive_split_bytes.decrease(small, merged_bytes - now_bytes);
            }
        }
        self.stats.active.decrease(small, 1);
        self.stats.active_bytes.decrease(small, size);
        self.stats.requested_bytes.decrease(small, requested);
    }

    /// Merges a neighbour into a block where both are free, or both without memory. Returns the bytes gained.
    #[inline]
    fn merge(&mut self, id: BlockId, neighbour: BlockId) -> u64 {
        if !neighbour.is_some() || self.blocks[neighbour].state != self.blocks[id].state {
            return 0;
        }
        let gone = self.blocks[neighbour].clone();
        self.take_from_set(&gone);
        self.blocks.remove(neighbour);
        if gone.next == id {
            let block = &mut self.blocks[id];
            block.address = gone.address;
            block.size += gone.size;
            block.previous = gone.previous;
            block.segment_tag = gone.segment_tag;
            if gone.previous.is_some() {
                self.blocks[gone.previous].next = id;
            }
        } else {
            let block = &mut self.blocks[id];
            block.size += gone.size;
            block.next = gone.next;
            if gone.next.is_some() {
                self.blocks[gone.next].previous = id;
            }
        }
        gone.size
    }

    /// Puts a free block into its set; its age starts again.
    #[inline]
    fn insert_free(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.age_base = self.pools.calls(block.pool);
        let free = FreeBlock { size: block.size, address: block.address, block: id };
        self.pools.lane_mut(block.pool, block.lane).free.insert(free);
    }

    #[inline]
    fn take_from_set(&mut self, block: &Block) {
        let lane = self.pools.lane_mut(block.pool, block.lane);
        let there = match block.state {
            State::Free => lane.free.remove(block.size, block.address),
            State::Unmapped => lane.unmapped.remove(&block.address).is_some(),
            State::Allocated | State::Pending => false,
        };
        debug_assert!(there, "a free block is in its set");
    }

    fn out_of_memory(&self, bytes: u64, segment: u64) -> OutOfMemory {
        OutOfMemory {
            requested: bytes,
            segment,
            device_total: self.device.total_bytes(),
            device_free: self.device.free_bytes(),
            limit: self.limit,
            allocated: self.stats.allocated_bytes.all.current,
            free_in_private_pools: self.pools.free_in_private_pools(),
            reserved: self.stats.reserved_bytes.all.current,
        }
    }
}
