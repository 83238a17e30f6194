//! The program's operations under other settings.

use crate::allocator::{CachingAllocator, Settings, Stats};

use super::recorded::Recorded;

/// What would have happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WhatIf {
    /// The counters at the end.
    pub stats: Stats,
    /// Bytes that the program held when the reserved memory reached its peak.
    pub allocated_at_peak: u64,
    /// Requests that were granted in the recording and are refused here.
    pub newly_refused: u64,
    /// Requests that were refused in the recording and are granted here.
    pub newly_granted: u64,
}

impl WhatIf {
    /// The share of the reserved memory that nobody held when it was at its peak.
    pub fn fragmentation(&self) -> f64 {
        let peak = self.stats.reserved_bytes.all.peak;
        if peak == 0 { 0.0 } else { (peak - self.allocated_at_peak) as f64 / peak as f64 }
    }

    /// Whether every request was granted.
    pub fn fits(&self) -> bool {
        self.stats.num_ooms == 0
    }
}

/// Runs a recorded program under `settings`, with `limit` bytes to reserve.
pub fn what_if(recorded: &Recorded, settings: Settings, limit: Option<u64>) -> WhatIf {
    let mut allocator = CachingAllocator::new(settings, limit, recorded.initial.device());
    recorded.initial.restore(&mut allocator);
    let mut peak = 0;
    let mut allocated_at_peak = 0;
    let (mut newly_refused, mut newly_granted) = (0, 0);
    recorded.program.run(&mut allocator, |allocator, granted, was_granted| {
        newly_refused += u64::from(was_granted && !granted);
        newly_granted += u64::from(granted && !was_granted);
        let stats = allocator.stats();
        if stats.reserved_bytes.all.current > peak {
            peak = stats.reserved_bytes.all.current;
            allocated_at_peak = stats.allocated_bytes.all.current;
        }
    });
    WhatIf { stats: *allocator.stats(), allocated_at_peak, newly_refused, newly_granted }
}
