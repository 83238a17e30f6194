//! The program's own operations, as far as a history tells them.

use crate::allocator::{Address, CachingAllocator, Device, StreamId};

/// Something that the program did. Blocks are numbered in the order of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Asked for bytes on a stream.
    Malloc {
        /// Bytes.
        size: u64,
        /// The stream.
        stream: StreamId,
    },
    /// Asked for bytes, was refused, and went on without them.
    Refused {
        /// Bytes; the recording keeps the rounded size only.
        size: u64,
        /// The stream.
        stream: StreamId,
    },
    /// Gave a block back that no other stream used.
    Free(u32),
    /// Gave a block back that another stream still used.
    FreeLater(u32),
    /// That stream finished with a block.
    Complete(u32),
    /// Emptied the cache.
    EmptyCache,
}

/// All operations of a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// What was done, in order.
    pub operations: Vec<Operation>,
    /// The addresses of the blocks that the program held at the start: they have the first numbers.
    pub held: Vec<Address>,
    /// How many blocks there are in all.
    pub blocks: usize,
}

/// Stands for whatever streams used a block beside its own: a history does not tell which.
pub(super) const OTHER_STREAM: StreamId = StreamId::MAX;

impl Program {
    /// Runs the operations. `observe` sees the allocator after each request, whether the request was granted, and
    /// whether it was in the recording.
    pub fn run<D: Device>(
        &self,
        allocator: &mut CachingAllocator<D>,
        mut observe: impl FnMut(&CachingAllocator<D>, bool, bool),
    ) {
        let mut addresses: Vec<Address> = self.held.clone();
        addresses.reserve(self.blocks.saturating_sub(self.held.len()));
        for operation in &self.operations {
            match *operation {
                Operation::Malloc { size, stream } => {
                    let address = allocator.malloc(size, stream);
                    addresses.push(address.as_ref().copied().unwrap_or(0));
                    observe(allocator, address.is_ok(), true);
                }
                Operation::Refused { size, stream } => {
                    // What the program would have done with the block is unknown: it is given back at once.
                    let address = allocator.malloc(size, stream);
                    observe(allocator, address.is_ok(), false);
                    if let Ok(address) = address {
                        let _ = allocator.free(address);
                    }
                }
                // A block that was refused here has the null address, which is ignored; one that was completed early,
                // because all streams were waited for, is known no more.
                Operation::Free(block) => {
                    let _ = allocator.free(addresses[block as usize]);
                }
                Operation::FreeLater(block) => {
                    let address = addresses[block as usize];
                    let _ = allocator.record_stream(address, OTHER_STREAM);
                    let _ = allocator.free(address);
                }
                Operation::Complete(block) => {
                    let _ = allocator.complete_free(addresses[block as usize]);
                }
                Operation::EmptyCache => allocator.empty_cache(),
            }
        }
    }
}
