//! Histories that no allocator can have: they are refused before anything is computed with their numbers.

use crate::allocator::Action;
use crate::snapshot::model::{Entry, Segment};

use super::{Initial, UNKNOWN_TOTAL};

/// No device has addresses beyond this.
const LAST_ADDRESS: u64 = 1 << 57;

/// What is impossible in a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damage(String);

/// Checks sizes and addresses.
pub(super) fn check(entries: &[Entry], segments: &[&Segment]) -> Result<(), Damage> {
    for (index, entry) in entries.iter().enumerate() {
        let address = if entry.action == Action::Oom { 0 } else { entry.address };
        if entry.size > UNKNOWN_TOTAL || address > LAST_ADDRESS {
            let action = entry.action.name();
            return Err(Damage(format!(
                "entry {index}, {action} of {} bytes at {address:#x}, is impossible",
                entry.size
            )));
        }
    }
    for segment in segments {
        if segment.total_size == 0 || segment.total_size > UNKNOWN_TOTAL || segment.address > LAST_ADDRESS {
            let (size, address) = (segment.total_size, segment.address);
            return Err(Damage(format!("a segment of {size} bytes at {address:#x} is impossible")));
        }
        if segment.blocks.iter().any(|block| block.size == 0 || block.size > segment.total_size) {
            return Err(Damage(format!("the segment at {:#x} has a block of an impossible size", segment.address)));
        }
        if segment.blocks.iter().any(|block| block.requested_size > UNKNOWN_TOTAL || block.address > LAST_ADDRESS) {
            return Err(Damage(format!("the segment at {:#x} has an impossible block", segment.address)));
        }
    }
    Ok(())
}

/// Checks that what was there before the first entry does not overlap.
pub(super) fn check_initial(initial: &Initial) -> Result<(), Damage> {
    for pair in initial.segments.windows(2) {
        if pair[0].total_size == 0 || pair[0].address + pair[0].total_size > pair[1].address {
            return Err(Damage(format!("the segments at {:#x} and {:#x} overlap", pair[0].address, pair[1].address)));
        }
    }
    match initial.segments.last() {
        Some(last) if last.total_size == 0 => Err(Damage(format!("the segment at {:#x} has no bytes", last.address))),
        _ => Ok(()),
    }
}
