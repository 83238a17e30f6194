//! Blocks, in one slab: a block is an index, neighbours are indices, and a block that is gone leaves its place to the
//! next one, so that neither `malloc` nor `free` takes memory from the host once the slab has grown.

/// A block's place in the slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId(u32);

impl BlockId {
    /// No block.
    pub(super) const NONE: BlockId = BlockId(u32::MAX);

    #[inline]
    pub(super) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// A stretch of a segment. The blocks of a segment, from `previous` to `next`, tile it.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) size: u64,
    /// What the program asked for; stale in a free block.
    pub(super) requested: u64,
    /// The pool's call counter when the block became free: its age is counted from there.
    pub(super) age_base: u64,
    pub(super) previous: BlockId,
    pub(super) next: BlockId,
    pub(super) pool: u32,
    pub(super) lane: u32,
    /// Index of the expandable range, or [`Block::FIXED`].
    pub(super) range: u32,
    /// The caller's tag when the block was handed out.
    pub(super) tag: u32,
    /// The caller's tag when the segment was reserved.
    pub(super) segment_tag: u32,
    pub(super) state: State,
    /// Whether other streams use the block while the program holds it.
    pub(super) shared: bool,
}

/// What a block is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The program holds it.
    Allocated,
    /// The program gave it back, and another stream still uses it.
    Pending,
    /// In its pool's free set.
    Free,
    /// Addresses of an expandable range with no memory behind them.
    Unmapped,
}

impl Block {
    /// The range of a block in an ordinary segment.
    pub(super) const FIXED: u32 = u32::MAX;

    /// A new free block that is all of a segment.
    pub(super) fn whole_segment(address: u64, size: u64, pool: u32, lane: u32, tag: u32) -> Self {
        Self {
            address,
            size,
            requested: 0,
            age_base: 0,
            previous: BlockId::NONE,
            next: BlockId::NONE,
            pool,
            lane,
            range: Self::FIXED,
            tag,
            segment_tag: tag,
            state: State::Free,
            shared: false,
        }
    }

    #[inline]
    pub(super) fn is_expandable(&self) -> bool {
        self.range != Self::FIXED
    }

    /// Whether the block is only part of its segment.
    #[inline]
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.size
    }
}

/// All blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Slab {
    blocks: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Slab {
    #[inline]
    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self.blocks[id.0 as usize] = block;
            return id;
        }
        let id = u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks, which would take 200 GB");
        self.blocks.push(block);
        BlockId(id)
    }

    #[inline]
    pub(super) fn remove(&mut self, id: BlockId) {
        // A size of zero marks a vacant place.
        self[id].size = 0;
        self.vacant.push(id);
    }

    /// Every block, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.size > 0)
    }
}

impl std::ops::Index<BlockId> for Slab {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }
}

impl std::ops::IndexMut<BlockId> for Slab {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }
}
