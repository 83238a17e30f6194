//! The allocator's counters, named as in `torch.cuda.memory_stats()`.

/// One quantity over time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// The largest value since the last reset.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
}

impl Stat {
    #[inline]
    pub(super) fn increase(&mut self, amount: u64) {
        self.current = self.current.wrapping_add(amount);
        self.allocated = self.allocated.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(super) fn decrease(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "a counter below zero");
        self.current = self.current.wrapping_sub(amount);
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// The sum of all decreases.
    pub fn freed(&self) -> u64 {
        self.allocated.wrapping_sub(self.current)
    }
}

/// One quantity for all pools, and for each class of pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStat {
    /// Both classes.
    pub all: Stat,
    /// Requests of at most 1 MiB.
    pub small_pool: Stat,
    /// Larger requests.
    pub large_pool: Stat,
}

impl PoolStat {
    #[inline]
    fn class(&mut self, small: bool) -> &mut Stat {
        if small { &mut self.small_pool } else { &mut self.large_pool }
    }

    #[inline]
    pub(super) fn increase(&mut self, small: bool, amount: u64) {
        self.all.increase(amount);
        self.class(small).increase(amount);
    }

    #[inline]
    pub(super) fn decrease(&mut self, small: bool, amount: u64) {
        self.all.decrease(amount);
        self.class(small).decrease(amount);
    }

    fn reset_peak(&mut self) {
        self.all.reset_peak();
        self.small_pool.reset_peak();
        self.large_pool.reset_peak();
    }
}

/// All counters. Sizes are bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that the program holds.
    pub allocation: PoolStat,
    /// Segments reserved; an expandable segment does not count.
    pub segment: PoolStat,
    /// Blocks that the program holds or that wait for another stream.
    pub active: PoolStat,
    /// Free blocks beside a block in use, which therefore cannot be released; not counted in expandable segments.
    pub inactive_split: PoolStat,
    /// Bytes of the blocks that the program holds: `memory_allocated()`.
    pub allocated_bytes: PoolStat,
    /// Bytes taken from the device: `memory_reserved()`.
    pub reserved_bytes: PoolStat,
    /// Bytes of active blocks.
    pub active_bytes: PoolStat,
    /// Bytes of inactive split blocks.
    pub inactive_split_bytes: PoolStat,
    /// Bytes that the program asked for, of active blocks.
    pub requested_bytes: PoolStat,
    /// Blocks of at least `max_split_size` that the program holds.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// Attempts that came after everything cached was released.
    pub num_alloc_retries: u64,
    /// Requests refused.
    pub num_ooms: u64,
    /// Times that all streams were waited for.
    pub num_sync_all_streams: u64,
    /// Segments reserved and stretches mapped.
    pub num_device_alloc: u64,
    /// Segments released and stretches unmapped.
    pub num_device_free: u64,
}

impl Stats {
    pub(super) fn reset_peak(&mut self) {
        for stat in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ] {
            stat.reset_peak();
        }
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    /// The counters that are kept for all pools and for each class, with their names in `torch.cuda.memory_stats()`.
    pub fn pool_stats(&self) -> [(&'static str, &PoolStat); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }
}
