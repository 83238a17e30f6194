//! The ordered set of one pool's free blocks on one stream.
//!
//! Best fit needs the smallest block that is large enough, and of equal ones the one at the lowest address: the set is
//! ordered by (size, address). It is a list of short sorted chunks: with the few hundred free blocks that a training
//! process has, every operation is one binary search and one short move in memory that is already in the cache, which
//! is several times faster than a search tree; with many blocks it stays proportional to their square root.

use super::block::BlockId;

const CHUNK: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FreeBlock {
    pub(super) size: u64,
    pub(super) address: u64,
    pub(super) block: BlockId,
}

impl FreeBlock {
    fn key(&self) -> u128 {
        key(self.size, self.address)
    }
}

fn key(size: u64, address: u64) -> u128 {
    u128::from(size) << 64 | u128::from(address)
}

/// A place in the set. Valid until the set changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    chunk: usize,
    index: usize,
}

/// The set. No chunk is empty unless it is the only one, none holds more than [`CHUNK`] blocks, and all are in order.
#[derive(Debug, Clone, Default)]
pub(super) struct FreeSet {
    chunks: Vec<Vec<FreeBlock>>,
}

impl FreeSet {
    /// The first place whose block is not smaller than `size`, and at `address` or above where the size is equal.
    #[inline]
    pub(super) fn lower_bound(&self, size: u64, address: u64) -> Cursor {
        let wanted = key(size, address);
        let chunk = if self.chunks.len() <= 1 {
            0
        } else {
            self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| last.key() < wanted))
        };
        let index = self.chunks.get(chunk).map_or(0, |blocks| blocks.partition_point(|block| block.key() < wanted));
        if self.chunks.get(chunk).is_some_and(|blocks| index == blocks.len()) {
            return Cursor { chunk: chunk + 1, index: 0 };
        }
        Cursor { chunk, index }
    }

    #[inline]
    pub(super) fn get(&self, at: Cursor) -> Option<FreeBlock> {
        self.chunks.get(at.chunk)?.get(at.index).copied()
    }

    pub(super) fn next(&self, at: Cursor) -> Cursor {
        match self.chunks.get(at.chunk) {
            Some(chunk) if at.index + 1 < chunk.len() => Cursor { index: at.index + 1, ..at },
            _ => Cursor { chunk: at.chunk + 1, index: 0 },
        }
    }

    pub(super) fn previous(&self, at: Cursor) -> Option<Cursor> {
        if at.index > 0 {
            return Some(Cursor { index: at.index - 1, ..at });
        }
        let chunk = at.chunk.checked_sub(1)?;
        Some(Cursor { chunk, index: self.chunks.get(chunk)?.len().checked_sub(1)? })
    }

    #[inline]
    pub(super) fn insert(&mut self, free: FreeBlock) {
        if self.chunks.is_empty() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let at = self.lower_bound(free.size, free.address);
        // Past the end of all chunks is the end of the last one.
        let (chunk, index) = match self.chunks.get(at.chunk) {
            Some(_) => (at.chunk, at.index),
            None => (self.chunks.len() - 1, self.chunks[self.chunks.len() - 1].len()),
        };
        if self.chunks[chunk].len() < CHUNK {
            self.chunks[chunk].insert(index, free);
            return;
        }
        let mut upper = Vec::with_capacity(CHUNK);
        upper.extend(self.chunks[chunk].drain(CHUNK / 2..));
        self.chunks.insert(chunk + 1, upper);
        if index <= CHUNK / 2 {
            self.chunks[chunk].insert(index, free);
        } else {
            self.chunks[chunk + 1].insert(index - CHUNK / 2, free);
        }
    }

    /// Takes a block out; returns whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, size: u64, address: u64) -> bool {
        let at = self.lower_bound(size, address);
        let there = self.get(at).is_some_and(|free| free.size == size && free.address == address);
        if there {
            self.remove_at(at);
        }
        there
    }

    #[inline]
    pub(super) fn remove_at(&mut self, at: Cursor) {
        let chunk = &mut self.chunks[at.chunk];
        chunk.remove(at.index);
        if chunk.is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(at.chunk);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.chunks.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn free(size: u64, address: u64) -> FreeBlock {
        FreeBlock { size, address, block: BlockId::NONE }
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_set(operations in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u64..40), 0..2000)) {
            let mut set = FreeSet::default();
            let mut model = BTreeSet::new();
            for (insert, size, address) in operations {
                if insert {
                    if model.insert((size, address)) {
                        set.insert(free(size, address));
                    }
                } else {
                    prop_assert_eq!(set.remove(size, address), model.remove(&(size, address)));
                }
                let found = set.get(set.lower_bound(size, address)).map(|free| (free.size, free.address));
                prop_assert_eq!(found, model.range((size, address)..).next().copied());
                let before = set.previous(set.lower_bound(size, address)).and_then(|at| set.get(at));
                prop_assert_eq!(before.map(|free| (free.size, free.address)), model.range(..(size, address)).next_back().copied());
            }
            let all: Vec<_> = set.iter().map(|free| (free.size, free.address)).collect();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
