//! What happens when no free block serves a request: collection, a new segment, and release of cached memory in steps.

use super::block::{Block, BlockId};
use super::device::Address;
use super::history::Action;
use super::oom::OutOfMemory;
use super::pool::{PoolId, PoolOptions, is_small};
use super::{CachingAllocator, Device, Request};

impl<D: Device> CachingAllocator<D> {
    /// The ladder. Each step is taken only when the one before it did not make room:
    ///
    /// 1. a new segment, after old ones were collected if the settings say so;
    /// 2. a free block of a pool that lends;
    /// 3. a new segment, after just enough oversize blocks were released;
    /// 4. a new segment, after everything cached was released: this is what counts as a retry;
    /// 5. refusal.
    #[cold]
    pub(super) fn make_room(&mut self, request: &mut Request) -> Result<BlockId, Box<OutOfMemory>> {
        self.collect_garbage();
        if let Some(block) = self.reserve_block(request, false) {
            return Ok(block);
        }
        if let Some(block) = self.take_from_spare_pools(request) {
            return Ok(block);
        }
        if self.release_oversize_blocks(request)
            && let Some(block) = self.reserve_block(request, false)
        {
            return Ok(block);
        }
        if !self.capturing {
            self.release_cached_blocks();
            // The free set is not searched again, although what waited for other streams is in it now (pytorch #189504).
            if let Some(block) = self.reserve_block(request, true) {
                return Ok(block);
            }
        }
        self.record(Action::Oom, self.device.free_bytes(), request.size, request.stream);
        self.stats.num_ooms += 1;
        Err(Box::new(self.out_of_memory(request.bytes, request.segment)))
    }

    /// Gives everything that is cached and whole back to the device, after waiting for all streams.
    pub fn empty_cache(&mut self) {
        self.release_cached_blocks();
    }

    /// A private pair of pools.
    pub fn create_pool(&mut self, options: PoolOptions) -> PoolId {
        self.pools.create(options)
    }

    /// Nobody will allocate from a private pool any more: what is free in it goes when the cache is emptied.
    pub fn retire_pool(&mut self, pool: PoolId) {
        if pool != PoolId::DEFAULT {
            self.pools.retire(pool);
        }
    }

    /// A new segment, or more of an expandable one. The limit is checked with the size of a segment in both cases.
    fn reserve_block(&mut self, request: &Request, retry: bool) -> Option<BlockId> {
        if retry {
            self.stats.num_alloc_retries += 1;
        }
        if self.limit.is_some_and(|limit| self.reserved.saturating_add(request.segment) > limit) {
            return None;
        }
        if request.expandable {
            return self.map_expandable_block(request);
        }
        let address = self.device.reserve(request.segment, request.stream)?;
        self.reserved = self.reserved.saturating_add(request.segment);
        self.stats.segment.increase(request.small, 1);
        self.stats.reserved_bytes.increase(request.small, request.segment);
        if request.segment >= self.settings.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        self.stats.num_device_alloc += 1;
        self.record(Action::SegmentAlloc, address, request.segment, request.stream);
        let block = Block::whole_segment(address, request.segment, request.pool, request.lane, self.tag);
        Some(self.blocks.insert(block))
    }

    /// The private pools that may help the default one out. The block stays in its pool, and so does what is split off;
    /// their expandable segments are left alone.
    fn take_from_spare_pools(&mut self, request: &mut Request) -> Option<BlockId> {
        if request.pool != PoolId::DEFAULT.index(request.small) {
            return None;
        }
        for spare in self.pools.private(|_, options| options.use_on_oom) {
            let pool = spare.index(request.small);
            let lane = self.pools.lane(pool, request.stream);
            let attempt = Request { pool, lane, expandable: false, ..*request };
            if let Some(block) = self.take_free_block(&attempt) {
                *request = attempt;
                return Some(block);
            }
        }
        None
    }

    /// Releases whole segments of the large pool that have not been used for long, once the process has reserved more
    /// than the threshold's share of its limit.
    fn collect_garbage(&mut self) {
        let threshold = self.settings.garbage_collection_threshold;
        let Some(limit) = self.limit.filter(|_| threshold > 0.0) else { return };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a size; cut as in C++")]
        let allowed = (threshold * limit as f64) as u64;
        if self.reserved <= allowed {
            return;
        }
        let target = self.reserved - allowed;
        let large = PoolId::DEFAULT.index(false);
        let now = self.pools.calls(large);
        let mut candidates: Vec<BlockId> = self.pools.free_blocks(large);
        candidates.retain(|id| !self.blocks[*id].is_split());
        let mut count = candidates.len();
        let mut total_age: u64 = candidates.iter().map(|id| now - self.blocks[*id].age_base).sum();
        let mut reclaimed = 0;
        let mut progress = true;
        while reclaimed < target && progress && count > 0 {
            let mean_age = total_age as f64 / count as f64;
            progress = false;
            // A pass does not stop at the target, so that collections are rare.
            candidates.retain(|&id| {
                let block = &self.blocks[id];
                let age = now - block.age_base;
                if block.is_expandable() || (age as f64) < mean_age {
                    return true;
                }
                reclaimed += block.size;
                total_age -= age;
                count -= 1;
                progress = true;
                self.release_block(id);
                false
            });
        }
    }

    /// With a bound on splitting: releases one free block that is large enough, or else the largest blocks that may
    /// not be split, until they add up. Returns whether they did.
    ///
    /// `PyTorch` takes for granted that such a block is a whole segment. It is, unless the bound is below
    /// `large_segment_size_mb`, which is possible when it comes first in the text: there `cudaFree` fails on a part of
    /// a segment, and the model leaves the part alone.
    fn release_oversize_blocks(&mut self, request: &Request) -> bool {
        let max_split_size = self.settings.max_split_size;
        if max_split_size == u64::MAX {
            return false;
        }
        let wanted = request.size.max(max_split_size);
        let lane = self.pools.lane_ref(request.pool, request.lane);
        let at = lane.free.lower_bound(wanted, 0);
        if let Some(free) = lane.free.get(at)
            && self.is_whole_segment(free.block)
        {
            self.release_block(free.block);
            return true;
        }
        let mut released = 0;
        let mut victims = Vec::new();
        let mut below = lane.free.previous(at);
        while released < wanted
            && let Some(here) = below
            && let Some(free) = lane.free.get(here)
            && free.size >= max_split_size
        {
            below = lane.free.previous(here);
            if self.is_whole_segment(free.block) {
                released += free.size;
                victims.push(free.block);
            }
        }
        for block in victims {
            self.release_block(block);
        }
        released >= wanted
    }

    fn release_cached_blocks(&mut self) {
        if !self.capturing {
            self.wait_for_streams();
            for small in [false, true] {
                self.release_pool(PoolId::DEFAULT.index(small));
            }
        }
        for private in self.pools.private(|retired, _| retired) {
            for small in [true, false] {
                self.release_pool(private.index(small));
            }
        }
    }

    /// Waits for every freed block that other streams use.
    fn wait_for_streams(&mut self) {
        self.stats.num_sync_all_streams += 1;
        if self.pending.is_empty() {
            return;
        }
        // Stream by stream, each in the order of its frees: a block is free when the last of its streams is reached.
        self.pending.sort_by_key(|pending| pending.last_stream);
        let mut order: Vec<Address> = self.pending().collect();
        self.device.synchronize(&mut order);
        for address in order {
            // A device that forgets or repeats an address only loses the order.
            let _ = self.complete_free(address);
        }
        for pending in std::mem::take(&mut self.pending) {
            self.free_block(pending.block);
        }
    }

    /// Releases the free blocks of a pool that are whole segments, then unmaps what expandable segments can spare.
    fn release_pool(&mut self, pool: u32) {
        let (expandable, fixed): (Vec<BlockId>, Vec<BlockId>) =
            self.pools.free_blocks(pool).into_iter().partition(|id| self.blocks[*id].is_expandable());
        for id in fixed {
            if self.is_whole_segment(id) {
                self.release_block(id);
            }
        }
        for id in expandable {
            self.unmap_block(id);
        }
    }

    /// Whether a free block is an ordinary segment of its own, which the device takes back.
    fn is_whole_segment(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        !block.is_expandable() && !block.is_split()
    }

    fn release_block(&mut self, id: BlockId) {
        let block = self.blocks[id].clone();
        self.stats.num_device_free += 1;
        self.record(Action::SegmentFree, block.address, block.size, self.pools.stream(block.pool, block.lane));
        self.device.release(block.address, block.size);
        let small = is_small(block.pool);
        self.reserved -= block.size;
        self.stats.segment.decrease(small, 1);
        self.stats.reserved_bytes.decrease(small, block.size);
        if block.size >= self.settings.max_split_size {
            self.stats.oversize_segments.decrease(1);
        }
        self.take_from_set(&block);
        self.blocks.remove(id);
    }
}
