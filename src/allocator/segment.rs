//! The state as a snapshot shows it: segments, and the blocks that tile them.

use super::block::{Block, State};
use super::device::{Address, StreamId};
use super::pool::{PoolId, is_small};
use super::{CachingAllocator, Device};

/// A segment, or a contiguous mapped stretch of an expandable one. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: Address,
    /// Its size.
    pub total_size: u64,
    /// Of it, blocks that the program holds.
    pub allocated_size: u64,
    /// Of it, blocks that the program holds or that wait for another stream.
    pub active_size: u64,
    /// What the program asked for, of active blocks.
    pub requested_size: u64,
    /// The stream that it serves.
    pub stream: StreamId,
    /// The pair of pools that it belongs to.
    pub pool: PoolId,
    /// Whether it is part of the small pool.
    pub is_small: bool,
    /// Whether it is expandable.
    pub is_expandable: bool,
    /// The caller's tag when it was reserved.
    pub tag: u32,
    /// Its blocks by address.
    pub blocks: Vec<BlockView>,
}

/// A block. Sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Where it begins.
    pub address: Address,
    /// Its size.
    pub size: u64,
    /// What the program asked for; stale in an inactive block.
    pub requested_size: u64,
    /// What it is doing.
    pub state: BlockState,
    /// The caller's tag when it was handed out.
    pub tag: u32,
}

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// The program holds it.
    ActiveAllocated,
    /// The program gave it back, and another stream still uses it.
    ActivePendingFree,
    /// It is cached.
    Inactive,
}

impl BlockState {
    /// The name in a snapshot.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
        }
    }
}

impl<D: Device> CachingAllocator<D> {
    /// All segments, by address.
    pub fn segments(&self) -> Vec<Segment> {
        let is_mapped = |block: &Block| block.state != State::Unmapped;
        let mut segments: Vec<Segment> = self
            .blocks
            .iter()
            .filter(|block| is_mapped(block))
            .filter(|block| !block.previous.is_some() || !is_mapped(&self.blocks[block.previous]))
            .map(|head| {
                let mut segment = Segment {
                    address: head.address,
                    total_size: 0,
                    allocated_size: 0,
                    active_size: 0,
                    requested_size: 0,
                    stream: self.pools.stream(head.pool, head.lane),
                    pool: PoolId(head.pool / 2),
                    is_small: is_small(head.pool),
                    is_expandable: head.is_expandable(),
                    tag: head.segment_tag,
                    blocks: Vec::new(),
                };
                let mut block = head;
                loop {
                    segment.push(block);
                    if !block.next.is_some() || !is_mapped(&self.blocks[block.next]) {
                        return segment;
                    }
                    block = &self.blocks[block.next];
                }
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        segments
    }
}

impl Segment {
    fn push(&mut self, block: &Block) {
        let state = match block.state {
            State::Allocated => BlockState::ActiveAllocated,
            State::Pending => BlockState::ActivePendingFree,
            State::Free | State::Unmapped => BlockState::Inactive,
        };
        self.total_size += block.size;
        if state == BlockState::ActiveAllocated {
            self.allocated_size += block.size;
        }
        if state != BlockState::Inactive {
            self.active_size += block.size;
            self.requested_size += block.requested;
        }
        self.blocks.push(BlockView {
            address: block.address,
            size: block.size,
            requested_size: block.requested,
            state,
            tag: block.tag,
        });
    }
}
