//! Expandable segments: a range of addresses somewhat larger than the device, and memory mapped into it page by page.
//!
//! A range starts as one unmapped block. Memory is mapped where free or unmapped blocks follow each other far enough,
//! and taken away again in whole pages from free blocks. The blocks of a range tile it, mapped or not.

use super::block::{Block, BlockId, State};
use super::device::Address;
use super::history::Action;
use super::pool::is_small;
use super::{CachingAllocator, Device, Request};

/// The ranges reserved, by their number. A range that was given back keeps its number.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(Vec<Range>);

#[derive(Debug, Clone, Copy)]
struct Range {
    address: Address,
    size: u64,
    page: u64,
}

impl<D: Device> CachingAllocator<D> {
    /// Maps memory for a request, and takes the block out of the free set. None when the device refuses a page; what
    /// was mapped until then stays, as a free block.
    pub(super) fn map_expandable_block(&mut self, request: &Request) -> Option<BlockId> {
        let candidate = self.find_expandable_block(request);
        let mut block = candidate;
        if self.blocks[block].state == State::Unmapped {
            self.map_block(block, self.blocks[block].size.min(request.size))?;
        }
        while self.blocks[block].size < request.size {
            let missing = request.size - self.blocks[block].size;
            let next = self.blocks[block].next;
            self.map_block(next, self.blocks[next].size.min(missing))?;
            block = next;
        }
        let found = self.blocks[block].clone();
        self.take_from_set(&found);
        Some(block)
    }

    /// The first place, by address, from which free or unmapped blocks follow each other for the size of the request;
    /// a new range where there is none.
    fn find_expandable_block(&mut self, request: &Request) -> BlockId {
        let usable = |id: BlockId| id.is_some() && matches!(self.blocks[id].state, State::Free | State::Unmapped);
        let lane = self.pools.lane_ref(request.pool, request.lane);
        for &unmapped in lane.unmapped.values() {
            let previous = self.blocks[unmapped].previous;
            let start = if usable(previous) { previous } else { unmapped };
            let mut bytes = 0;
            let mut at = start;
            while bytes < request.size && usable(at) {
                bytes += self.blocks[at].size;
                at = self.blocks[at].next;
            }
            if bytes >= request.size {
                return start;
            }
        }
        let page = self.settings.page_size(request.small);
        let total = self.device.total_bytes();
        let size = (total + total / 8).div_ceil(page) * page;
        let address = self.device.reserve_range(size, request.stream);
        self.add_range(request.pool, request.lane, address, size, page)
    }

    /// A new range, as one unmapped block.
    pub(super) fn add_range(&mut self, pool: u32, lane: u32, address: Address, size: u64, page: u64) -> BlockId {
        let range = u32::try_from(self.ranges.0.len()).unwrap_or(Block::FIXED);
        self.ranges.0.push(Range { address, size, page });
        let block =
            Block { range, state: State::Unmapped, ..Block::whole_segment(address, size, pool, lane, self.tag) };
        let id = self.blocks.insert(block);
        self.pools.lane_mut(pool, lane).unmapped.insert(address, id);
        id
    }

    /// Maps whole pages from the start of an unmapped block, at least `size` bytes.
    fn map_block(&mut self, id: BlockId, size: u64) -> Option<()> {
        let block = &self.blocks[id];
        let page = self.ranges.0[block.range as usize].page;
        // An unmapped block is whole pages, unless a damaged recording said otherwise.
        let size = size.next_multiple_of(page).min(block.size);
        let (address, pool, lane) = (block.address, block.pool, block.lane);
        if !self.device.map(address, size) {
            return None;
        }
        self.pools.lane_mut(pool, lane).unmapped.remove(&address);
        if size < self.blocks[id].size {
            let rest = self.split(id, size);
            self.pools.lane_mut(pool, lane).unmapped.insert(address + size, rest);
        }
        let block = &mut self.blocks[id];
        block.state = State::Free;
        block.segment_tag = self.tag;
        let (previous, next) = (block.previous, block.next);
        self.merge(id, previous);
        self.merge(id, next);
        self.insert_free(id);
        let small = is_small(pool);
        self.reserved = self.reserved.saturating_add(size);
        self.stats.reserved_bytes.increase(small, size);
        self.stats.num_device_alloc += 1;
        self.record(Action::SegmentMap, address, size, self.pools.stream(pool, lane));
        Some(())
    }

    /// Takes the memory away from the whole pages inside a free block.
    pub(super) fn unmap_block(&mut self, id: BlockId) {
        let block = self.blocks[id].clone();
        let range = self.ranges.0[block.range as usize];
        let start = range.address + (block.address - range.address).next_multiple_of(range.page);
        let end = range.address + (block.end() - range.address) / range.page * range.page;
        if start >= end {
            return;
        }
        self.device.unmap(start, end - start);
        self.take_from_set(&block);
        let mut unmapped = id;
        if start > block.address {
            unmapped = self.split(id, start - block.address);
            self.blocks[id].requested = 0;
            self.insert_free(id);
        }
        if end < block.end() {
            let after = self.split(unmapped, end - start);
            self.blocks[after].requested = 0;
            self.insert_free(after);
        }
        self.blocks[unmapped].state = State::Unmapped;
        let (previous, next) = (self.blocks[unmapped].previous, self.blocks[unmapped].next);
        self.merge(unmapped, previous);
        self.merge(unmapped, next);
        let address = self.blocks[unmapped].address;
        self.pools.lane_mut(block.pool, block.lane).unmapped.insert(address, unmapped);
        let small = is_small(block.pool);
        self.reserved -= end - start;
        self.stats.reserved_bytes.decrease(small, end - start);
        self.stats.num_device_free += 1;
        self.record(Action::SegmentUnmap, start, end - start, self.pools.stream(block.pool, block.lane));
        if !self.blocks[unmapped].is_split() {
            self.pools.lane_mut(block.pool, block.lane).unmapped.remove(&address);
            self.blocks.remove(unmapped);
            self.device.release_range(range.address, range.size);
        }
    }
}
