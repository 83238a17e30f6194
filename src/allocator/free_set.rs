//! The ordered set of one pool's free blocks on one stream.
//!
//! Best fit needs the smallest block that is large enough, and of equal ones the one at the lowest address: the set is
//! ordered by (size, address). It has four sorted classes for each power of two of the size, and a bit for each class
//! that is not empty; a class is a list of short chunks. With the few hundred free blocks that a training process has,
//! an operation touches a few cache lines, which is several times faster than a search tree; with many blocks it stays
//! proportional to their square root.

use super::block::BlockId;

/// How many blocks a chunk holds.
const CHUNK: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FreeBlock {
    pub(super) size: u64,
    pub(super) address: u64,
    pub(super) block: BlockId,
}

/// A place in the set. Valid until the set changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    class: usize,
    place: Place,
}

/// The set.
#[derive(Debug, Clone)]
pub(super) struct FreeSet {
    /// A bit for each class that has blocks.
    occupied: Occupied,
    classes: Box<[Class; CLASSES]>,
}

const CLASSES: usize = 256;

/// The power of two below a size, and the next two bits.
#[inline]
fn class_of(size: u64) -> usize {
    // The smallest sizes have no two bits below their first.
    let size = size.saturating_add(4);
    let log = size.ilog2();
    (log << 2) as usize | ((size >> (log - 2)) & 3) as usize
}

/// A bit for each class.
#[derive(Debug, Clone, Copy, Default)]
struct Occupied([u64; CLASSES / 64]);

impl Occupied {
    #[inline]
    fn set(&mut self, class: usize) {
        self.0[class / 64] |= 1 << (class % 64);
    }

    #[inline]
    fn clear(&mut self, class: usize) {
        self.0[class / 64] &= !(1 << (class % 64));
    }

    /// The first class above; past the last one where there is none.
    #[inline]
    fn above(&self, class: usize) -> usize {
        let mut word = class / 64;
        let mut bits = self.0[word] & (u64::MAX << (class % 64)) << 1;
        while bits == 0 {
            word += 1;
            match self.0.get(word) {
                Some(more) => bits = *more,
                None => return CLASSES,
            }
        }
        word * 64 + bits.trailing_zeros() as usize
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = bits.checked_ilog2().map(|_| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }

    /// The last class below; None where there is none.
    fn below(&self, class: usize) -> Option<usize> {
        let (word, bit) = (class / 64, class % 64);
        let here = self.0.get(word).map_or(0, |bits| bits & !(u64::MAX << bit));
        let mut words = std::iter::once((word, here)).chain((0..word).rev().map(|word| (word, self.0[word])));
        words.find(|(_, bits)| *bits != 0).map(|(word, bits)| word * 64 + bits.ilog2() as usize)
    }
}

impl Default for FreeSet {
    fn default() -> Self {
        Self { occupied: Occupied::default(), classes: Box::new([const { Class { chunks: Vec::new() } }; CLASSES]) }
    }
}

impl FreeSet {
    /// The first place whose block is not smaller than `size`, and at `address` or above where the size is equal.
    #[inline]
    pub(super) fn lower_bound(&self, size: u64, address: u64) -> Cursor {
        let class = class_of(size);
        let place = self.classes[class].lower_bound(size, address);
        if self.classes[class].get(place).is_some() { Cursor { class, place } } else { self.first_above(class) }
    }

    /// The first place in a class above `class`; past the end where there is none.
    #[inline]
    fn first_above(&self, class: usize) -> Cursor {
        Cursor { class: self.occupied.above(class), place: Place::default() }
    }

    #[inline]
    pub(super) fn get(&self, at: Cursor) -> Option<FreeBlock> {
        self.classes.get(at.class)?.get(at.place)
    }

    pub(super) fn next(&self, at: Cursor) -> Cursor {
        let place = self.classes.get(at.class).map(|class| (class, class.next(at.place)));
        match place {
            Some((class, place)) if class.get(place).is_some() => Cursor { place, ..at },
            _ => self.first_above(at.class.min(CLASSES - 1)),
        }
    }

    pub(super) fn previous(&self, at: Cursor) -> Option<Cursor> {
        if let Some(place) = self.classes.get(at.class).and_then(|class| class.previous(at.place)) {
            return Some(Cursor { place, ..at });
        }
        let class = self.occupied.below(at.class)?;
        Some(Cursor { class, place: self.classes[class].last()? })
    }

    #[inline]
    pub(super) fn insert(&mut self, free: FreeBlock) {
        let class = class_of(free.size);
        self.classes[class].insert(free);
        self.occupied.set(class);
    }

    /// Takes a block out; returns whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, size: u64, address: u64) -> bool {
        let class = class_of(size);
        let place = self.classes[class].lower_bound(size, address);
        let found = self.classes[class].get(place);
        let there = found.is_some_and(|free| free.size == size && free.address == address);
        if there {
            self.remove_at(Cursor { class, place });
        }
        there
    }

    #[inline]
    pub(super) fn remove_at(&mut self, at: Cursor) {
        if self.classes[at.class].remove_at(at.place) {
            self.occupied.clear(at.class);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.occupied.iter().flat_map(|class| self.classes[class].iter())
    }
}

/// A place in a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    chunk: usize,
    index: usize,
}

/// Blocks in order. No chunk is empty unless it is the only one, none holds more than [`CHUNK`] blocks.
#[derive(Debug, Clone)]
struct Class {
    chunks: Vec<Chunk>,
}

/// Blocks in order, at most [`CHUNK`].
#[derive(Debug, Clone)]
struct Chunk(Vec<FreeBlock>);

impl Chunk {
    fn new() -> Self {
        Self(Vec::with_capacity(CHUNK / 8))
    }

    #[inline]
    fn lower_bound(&self, size: u64, address: u64) -> usize {
        let mut index = self.0.partition_point(|free| free.size < size);
        while self.0.get(index).is_some_and(|free| free.size == size && free.address < address) {
            index += 1;
        }
        index
    }
}

impl Class {
    #[inline]
    fn lower_bound(&self, size: u64, address: u64) -> Place {
        let chunk = if self.chunks.len() <= 1 {
            0
        } else {
            let below = |last: &FreeBlock| (last.size, last.address) < (size, address);
            self.chunks.partition_point(|chunk| chunk.0.last().is_some_and(below))
        };
        let index = self.chunks.get(chunk).map_or(0, |chunk| chunk.lower_bound(size, address));
        Place { chunk, index }
    }

    #[inline]
    fn get(&self, at: Place) -> Option<FreeBlock> {
        self.chunks.get(at.chunk)?.0.get(at.index).copied()
    }

    fn next(&self, at: Place) -> Place {
        match self.chunks.get(at.chunk) {
            Some(chunk) if at.index + 1 < chunk.0.len() => Place { index: at.index + 1, ..at },
            _ => Place { chunk: at.chunk + 1, index: 0 },
        }
    }

    fn previous(&self, at: Place) -> Option<Place> {
        if at.index > 0 {
            return Some(Place { index: at.index - 1, ..at });
        }
        let chunk = at.chunk.checked_sub(1)?;
        Some(Place { chunk, index: self.chunks.get(chunk)?.0.len().checked_sub(1)? })
    }

    fn last(&self) -> Option<Place> {
        let chunk = self.chunks.len().checked_sub(1)?;
        Some(Place { chunk, index: self.chunks[chunk].0.len().checked_sub(1)? })
    }

    #[inline]
    fn insert(&mut self, free: FreeBlock) {
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new());
        }
        // Past the end of all chunks is the end of the last one.
        let Place { mut chunk, mut index } = self.lower_bound(free.size, free.address);
        if chunk == self.chunks.len() {
            chunk -= 1;
            index = self.chunks[chunk].0.len();
        }
        if self.chunks[chunk].0.len() == CHUNK {
            let kept = CHUNK / 2;
            let mut upper = Chunk::new();
            upper.0.extend(self.chunks[chunk].0.drain(kept..));
            self.chunks.insert(chunk + 1, upper);
            if index > kept {
                (chunk, index) = (chunk + 1, index - kept);
            }
        }
        self.chunks[chunk].0.insert(index, free);
    }

    /// Takes a block out; returns whether it was the last one.
    #[inline]
    fn remove_at(&mut self, at: Place) -> bool {
        let chunk = &mut self.chunks[at.chunk];
        chunk.0.remove(at.index);
        if !chunk.0.is_empty() {
            return false;
        }
        if self.chunks.len() > 1 {
            self.chunks.remove(at.chunk);
            return false;
        }
        true
    }

    fn iter(&self) -> impl Iterator<Item = FreeBlock> {
        self.chunks.iter().flat_map(|chunk| &chunk.0).copied()
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
