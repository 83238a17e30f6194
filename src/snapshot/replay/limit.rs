//! What the process was allowed to reserve: a snapshot does not record it, but it shows in what was refused.

use crate::allocator::{Action, Settings};
use crate::snapshot::model::Entry;

/// A limit inferred from a history. Any value between the bounds explains the history equally well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferredLimit {
    /// The least that the process must have been allowed to reserve, in bytes.
    pub at_least: u64,
    /// The most, in bytes.
    pub at_most: u64,
}

/// Infers the limit from requests that were refused; None where none was. `reserved` is what was reserved before the
/// first entry.
pub(super) fn infer(entries: &[Entry], settings: &Settings, mut reserved: u64) -> Option<InferredLimit> {
    let mut at_least = 0;
    let mut refusals: Vec<u64> = Vec::new();
    let mut refused = false;
    // Bytes reserved before the releases and the reservations of the request under way.
    let mut before_release = None;
    let mut before_reserve = None;
    for entry in entries {
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => {
                before_reserve.get_or_insert(reserved);
                reserved = reserved.saturating_add(entry.size);
            }
            Action::SegmentFree | Action::SegmentUnmap => {
                before_release.get_or_insert(reserved);
                reserved = reserved.saturating_sub(entry.size);
            }
            Action::Alloc | Action::Oom => {
                let segment = settings.segment_size(settings.round(entry.size));
                if entry.action == Action::Oom {
                    refused = true;
                    refusals.push(reserved.saturating_add(segment));
                } else if let Some(before) = before_reserve {
                    at_least = at_least.max(before.saturating_add(segment));
                    // Released and then reserved: the first attempt may have been refused.
                    refusals.extend(before_release.map(|before| before.saturating_add(segment)));
                }
                (before_release, before_reserve) = (None, None);
            }
            Action::FreeRequested => (before_release, before_reserve) = (None, None),
            Action::FreeCompleted | Action::Snapshot => {}
        }
    }
    let at_most = refusals.into_iter().filter(|bytes| *bytes > at_least).min()? - 1;
    refused.then_some(InferredLimit { at_least, at_most })
}
