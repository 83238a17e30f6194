//! The allocator against the source: where a test follows a function of `CUDACachingAllocator.cpp`, it names it.

mod blocks;
mod property;
mod release;
mod settings;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn allocator(settings: &str, limit: Option<u64>) -> CachingAllocator<VirtualDevice> {
    CachingAllocator::new(Settings::parse(settings).unwrap(), limit, VirtualDevice::new(80 << 30, 0))
}
