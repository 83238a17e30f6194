//! Starting in the middle: an allocator that already holds segments, as a snapshot shows them.

use super::block::{Block, BlockId, State};
use super::device::Address;
use super::segment::{BlockState, Segment};
use super::{CachingAllocator, Device, Pending, PoolId};

impl<D: Device> CachingAllocator<D> {
    /// Adds a segment that was reserved earlier. Its blocks have to tile it. Counters grow by what it holds; private
    /// pools are taken for the default one, whose segments may be released. The device is not asked.
    pub fn restore_segment(&mut self, segment: &Segment) {
        let (pool, lane) = self.home(segment.is_small, segment.stream);
        let id = self.blocks.insert(Block::whole_segment(segment.address, segment.total_size, pool, lane, segment.tag));
        self.stats.segment.increase(segment.is_small, 1);
        if segment.total_size >= self.settings.max_split_size {
            self.stats.oversize_segments.increase(1);
        }
        self.restore_blocks(id, segment);
    }

    /// Adds a range of addresses of `size` bytes, a multiple of the page, with what is mapped of it: stretches in the
    /// order of their addresses, each beginning and ending with a page.
    pub fn restore_range(&mut self, address: Address, size: u64, stretches: &[Segment]) {
        let Some(first) = stretches.first() else { return };
        let (pool, lane) = self.home(first.is_small, first.stream);
        let page = self.settings.page_size(first.is_small);
        let mut rest = self.add_range(pool, lane, address, size, page);
        self.pools.lane_mut(pool, lane).unmapped.remove(&address);
        for stretch in stretches {
            let gap = stretch.address - self.blocks[rest].address;
            if gap > 0 {
                let unmapped = rest;
                rest = self.split(rest, gap);
                self.insert_unmapped(unmapped);
            }
            let mapped = rest;
            rest = self.split(mapped, stretch.total_size);
            self.blocks[mapped].state = State::Free;
            self.restore_blocks(mapped, stretch);
        }
        self.insert_unmapped(rest);
    }

    fn home(&mut self, small: bool, stream: u64) -> (u32, u32) {
        let pool = PoolId::DEFAULT.index(small);
        (pool, self.pools.lane(pool, stream))
    }

    fn insert_unmapped(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.pools.lane_mut(block.pool, block.lane).unmapped.insert(block.address, id);
    }

    fn restore_blocks(&mut self, mut id: BlockId, segment: &Segment) {
        let small = segment.is_small;
        self.reserved = self.reserved.saturating_add(segment.total_size);
        self.stats.reserved_bytes.increase(small, segment.total_size);
        let count = segment.blocks.len();
        for (index, view) in segment.blocks.iter().enumerate() {
            let rest = if index + 1 < count { self.split(id, view.size) } else { id };
            let block = &mut self.blocks[id];
            (block.requested, block.tag) = (view.requested_size, view.tag);
            match view.state {
                BlockState::Inactive => {
                    self.insert_free(id);
                    if count > 1 && !segment.is_expandable {
                        self.stats.inactive_split.increase(small, 1);
                        self.stats.inactive_split_bytes.increase(small, view.size);
                    }
                }
                BlockState::ActiveAllocated => {
                    block.state = State::Allocated;
                    self.allocated.insert(view.address, id);
                    self.stats.allocation.increase(small, 1);
                    self.stats.allocated_bytes.increase(small, view.size);
                    if view.size >= self.settings.max_split_size {
                        self.stats.oversize_allocations.increase(1);
                    }
                }
                BlockState::ActivePendingFree => {
                    block.state = State::Pending;
                    self.pending.push(Pending { address: view.address, block: id, last_stream: 0 });
                }
            }
            if view.state != BlockState::Inactive {
                self.stats.active.increase(small, 1);
                self.stats.active_bytes.increase(small, view.size);
                self.stats.requested_bytes.increase(small, view.requested_size);
            }
            id = rest;
        }
    }
}
