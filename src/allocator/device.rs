//! What the allocator asks of the device, and a device that has only addresses.

use std::collections::BTreeMap;

/// A device address.
pub type Address = u64;

/// A stream, by the number that orders it: its pointer in a recording, 0 for the default stream.
pub type StreamId = u64;

/// Where segments come from.
pub trait Device {
    /// Reserves a segment (`cudaMalloc`). None when the device has no such memory left.
    fn reserve(&mut self, size: u64, stream: StreamId) -> Option<Address>;

    /// Gives a segment back (`cudaFree`).
    fn release(&mut self, address: Address, size: u64);

    /// Reserves a range of addresses without memory, for an expandable segment.
    fn reserve_range(&mut self, size: u64, stream: StreamId) -> Address;

    /// Gives a range of addresses back.
    fn release_range(&mut self, address: Address, size: u64);

    /// Puts memory behind a part of a range. False, and nothing mapped, when there is not enough.
    fn map(&mut self, address: Address, size: u64) -> bool;

    /// Takes memory away from a part of a range.
    fn unmap(&mut self, address: Address, size: u64);

    /// All memory of the device, in bytes.
    fn total_bytes(&self) -> u64;

    /// Memory of the device that nobody uses, in bytes.
    fn free_bytes(&self) -> u64;

    /// Waits for all streams, and may put the waiting blocks into the order in which they finished.
    fn synchronize(&mut self, waiting: &mut [Address]) {
        let _ = waiting;
    }
}

/// A device that keeps account of memory and hands out addresses as the CUDA driver does, without memory behind them.
///
/// The driver's habit, as the recordings of one H200 show it: it takes stretches of 32 MiB and its multiples from the
/// top of the address space downwards, and puts a segment into the stretch taken last that has room for it, at the
/// lowest address. A stretch without segments is given back. Only the order of addresses matters to the allocator,
/// and only between free blocks of equal size. What the driver takes for itself between segments is in `driver.rs`.
#[derive(Debug, Clone)]
pub struct VirtualDevice {
    total: u64,
    used: u64,
    /// Address and size of each segment.
    segments: BTreeMap<Address, u64>,
    /// Address and size of each stretch taken from the address space, the last one at the end.
    taken: Vec<(Address, u64)>,
    next_range: Address,
    /// Where the address space ends.
    top: Address,
}

const GRANULE: u64 = 32 << 20;
const TOP: Address = 0x7f00_0000_0000;
const FIRST_RANGE: Address = 0x3_0000_0000;

impl VirtualDevice {
    /// A device of `total` bytes, of which `used` belong to others: the context, loaded kernels, other processes.
    pub fn new(total: u64, used: u64) -> Self {
        Self { total, used, segments: BTreeMap::new(), taken: Vec::new(), next_range: FIRST_RANGE, top: TOP }
    }

    /// A segment that was there before, for an allocator that starts in the middle.
    pub fn adopt(&mut self, address: Address, size: u64) {
        self.used += size;
        self.segments.insert(address, size);
        let (mut start, mut end) = (address / GRANULE * GRANULE, (address + size).next_multiple_of(GRANULE));
        self.top = self.top.max(end);
        // No segment reaches from one stretch into another.
        self.taken.retain(|&(other, length)| {
            let apart = other + length <= start || end <= other;
            if !apart {
                (start, end) = (start.min(other), end.max(other + length));
            }
            apart
        });
        self.taken.push((start, end - start));
    }

    /// A range of addresses that was there before, with `mapped` bytes behind it.
    pub fn adopt_range(&mut self, address: Address, size: u64, mapped: u64) {
        self.used += mapped;
        self.next_range = self.next_range.max((address + size).next_multiple_of(GRANULE));
    }

    /// Memory that the driver takes for itself: it has an address, and is not accounted for.
    pub(super) fn take(&mut self, size: u64) -> Address {
        let address = self.place(size);
        self.segments.insert(address, size);
        address
    }

    /// A new stretch of `size` bytes, of which the driver leaves the last `free` bytes for others.
    pub(super) fn take_stretch(&mut self, size: u64, free: u64) -> Address {
        let address = self.open_stretch(size);
        self.segments.insert(address, size - free);
        address
    }

    /// Gives back what the driver took at `address`.
    pub(super) fn give_back(&mut self, address: Address) {
        self.segments.remove(&address);
        let around = self.taken.iter().position(|(start, length)| (*start..start + length).contains(&address));
        if let Some(at) = around {
            let (start, length) = self.taken[at];
            if self.segments.range(start..start + length).next().is_none() {
                self.taken.remove(at);
            }
        }
    }

    fn place(&mut self, size: u64) -> Address {
        for &(start, length) in self.taken.iter().rev() {
            let mut at = start;
            for (&segment, &bytes) in self.segments.range(start..start + length) {
                if segment - at >= size {
                    return at;
                }
                at = segment + bytes;
            }
            if start + length - at >= size {
                return at;
            }
        }
        self.open_stretch(size)
    }

    fn open_stretch(&mut self, size: u64) -> Address {
        let length = size.next_multiple_of(GRANULE);
        let mut stretches = self.taken.clone();
        stretches.sort_unstable();
        let mut end = self.top;
        for (start, bytes) in stretches.into_iter().rev() {
            // The driver asks the system for one granule more, to be able to align.
            if end.saturating_sub(start + bytes) >= length + GRANULE {
                break;
            }
            end = end.min(start);
        }
        self.taken.push((end - length, length));
        end - length
    }
}

impl Device for VirtualDevice {
    fn reserve(&mut self, size: u64, _stream: StreamId) -> Option<Address> {
        if size > self.free_bytes() {
            return None;
        }
        self.used += size;
        Some(self.take(size))
    }

    fn release(&mut self, address: Address, size: u64) {
        self.used -= size;
        self.give_back(address);
    }

    fn reserve_range(&mut self, size: u64, _stream: StreamId) -> Address {
        let address = self.next_range;
        self.next_range += size.next_multiple_of(GRANULE);
        address
    }

    fn release_range(&mut self, _address: Address, _size: u64) {}

    fn map(&mut self, _address: Address, size: u64) -> bool {
        let fits = size <= self.free_bytes();
        if fits {
            self.used += size;
        }
        fits
    }

    fn unmap(&mut self, _address: Address, size: u64) {
        self.used -= size;
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn free_bytes(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn addresses_follow_the_driver() {
        let mut device = VirtualDevice::new(1 << 40, 0);
        let mut reserve = |mebibytes: u64| (TOP - device.reserve(mebibytes * MIB, 0).unwrap()) / MIB;
        assert_eq!(reserve(32), 32);
        assert_eq!(reserve(46), 96);
        assert_eq!(reserve(44), 160);
        assert_eq!(reserve(2), 116, "the lowest place of the last stretch with room for it");
        assert_eq!(reserve(28), 192);
    }

    #[test]
    fn memory_is_accounted_for() {
        let mut device = VirtualDevice::new(64 * MIB, 20 * MIB);
        assert_eq!(device.free_bytes(), 44 * MIB);
        let segment = device.reserve(44 * MIB, 0).unwrap();
        assert_eq!(device.reserve(2 * MIB, 0), None);
        assert!(!device.map(0, 1));
        device.release(segment, 44 * MIB);
        assert_eq!(device.free_bytes(), 44 * MIB);
    }
}
