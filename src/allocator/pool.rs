//! Pools: the default pair, and a pair for each private pool of a CUDA graph or of the program.
//!
//! A pool has one lane per stream: a block serves only requests of the stream that its segment was reserved for.

use std::collections::BTreeMap;

use super::block::BlockId;
use super::device::{Address, StreamId};
use super::free_set::FreeSet;

/// A pair of pools, one for small and one for large requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub(super) u32);

impl PoolId {
    /// The pair that everything uses that was not told otherwise.
    pub const DEFAULT: PoolId = PoolId(0);

    /// The number of the pair; 0 is the default one.
    pub fn number(self) -> u32 {
        self.0
    }

    pub(super) fn index(self, small: bool) -> u32 {
        self.0 * 2 + u32::from(!small)
    }
}

/// Whether a pool, by its index, is the small one of its pair.
#[inline]
pub(super) fn is_small(pool: u32) -> bool {
    pool.is_multiple_of(2)
}

/// How a private pool differs from the default one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// Blocks are never split.
    pub no_split: bool,
    /// Segments come from the pool's own allocator, which has no expandable segments.
    pub own_allocator: bool,
    /// Its free blocks may serve a request of the default pool before cached memory is released.
    pub use_on_oom: bool,
}

/// One stream's part of a pool.
#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) stream: StreamId,
    pub(super) free: FreeSet,
    /// Stretches of expandable segments without memory, by address.
    pub(super) unmapped: BTreeMap<Address, BlockId>,
}

#[derive(Debug, Clone, Default)]
struct Pool {
    lanes: Vec<Lane>,
    /// How often a free block was looked for while garbage collection is on: the clock of a block's age.
    calls: u64,
    options: PoolOptions,
    /// Nobody allocates from the private pool any more: what is free in it may be released.
    retired: bool,
}

/// All pools.
#[derive(Debug, Clone)]
pub(super) struct Pools {
    pools: Vec<Pool>,
}

impl Default for Pools {
    fn default() -> Self {
        Self { pools: vec![Pool::default(), Pool::default()] }
    }
}

impl Pools {
    fn pool(&self, pool: u32) -> &Pool {
        &self.pools[pool as usize]
    }

    fn pool_mut(&mut self, pool: u32) -> &mut Pool {
        &mut self.pools[pool as usize]
    }

    pub(super) fn create(&mut self, options: PoolOptions) -> PoolId {
        let id = u32::try_from(self.pools.len() / 2).unwrap_or(u32::MAX);
        for _ in 0..2 {
            self.pools.push(Pool { options, ..Pool::default() });
        }
        PoolId(id)
    }

    pub(super) fn retire(&mut self, id: PoolId) {
        for small in [true, false] {
            self.pool_mut(id.index(small)).retired = true;
        }
    }

    /// The private pools of which `wanted` holds, oldest first.
    pub(super) fn private(&self, wanted: impl Fn(bool, PoolOptions) -> bool) -> Vec<PoolId> {
        (1..self.pools.len() / 2)
            .filter(|at| wanted(self.pools[at * 2].retired, self.pools[at * 2].options))
            .filter_map(|at| u32::try_from(at).ok().map(PoolId))
            .collect()
    }

    pub(super) fn is_unsplittable(&self, pool: u32) -> bool {
        self.pool(pool).options.no_split
    }

    pub(super) fn has_own_allocator(&self, pool: u32) -> bool {
        self.pool(pool).options.own_allocator
    }

    #[inline]
    pub(super) fn tick(&mut self, pool: u32) {
        self.pool_mut(pool).calls += 1;
    }

    #[inline]
    pub(super) fn calls(&self, pool: u32) -> u64 {
        self.pool(pool).calls
    }

    /// The lane of a stream, which is made when it is new.
    #[inline]
    pub(super) fn lane(&mut self, pool: u32, stream: StreamId) -> u32 {
        let lanes = &mut self.pool_mut(pool).lanes;
        let at = lanes.iter().position(|lane| lane.stream == stream).unwrap_or_else(|| {
            lanes.push(Lane { stream, ..Lane::default() });
            lanes.len() - 1
        });
        u32::try_from(at).expect("fewer than 2^32 streams")
    }

    #[inline]
    pub(super) fn lane_mut(&mut self, pool: u32, lane: u32) -> &mut Lane {
        &mut self.pool_mut(pool).lanes[lane as usize]
    }

    pub(super) fn lane_ref(&self, pool: u32, lane: u32) -> &Lane {
        &self.pool(pool).lanes[lane as usize]
    }

    #[inline]
    pub(super) fn stream(&self, pool: u32, lane: u32) -> StreamId {
        self.pool(pool).lanes[lane as usize].stream
    }

    /// The free blocks of a pool in the order in which they are looked at: by stream, size and address.
    pub(super) fn free_blocks(&self, pool: u32) -> Vec<BlockId> {
        let mut lanes: Vec<&Lane> = self.pool(pool).lanes.iter().collect();
        lanes.sort_by_key(|lane| lane.stream);
        lanes.into_iter().flat_map(|lane| lane.free.iter()).map(|free| free.block).collect()
    }

    pub(super) fn free_in_private_pools(&self) -> u64 {
        self.pools[2..]
            .iter()
            .flat_map(|pool| &pool.lanes)
            .flat_map(|lane| lane.free.iter())
            .map(|free| free.size)
            .sum()
    }
}
