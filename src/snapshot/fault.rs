//! What can be wrong with a snapshot, and what to do about it.

use std::collections::HashSet;

use super::Format;
use super::model::{Entry, Segment, Snapshot};
use super::replay::Initial;
use crate::allocator::Action;

/// Something that a reader of the snapshot has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its name, for programs.
    pub name: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: &'static str,
}

fn fault(name: &'static str, message: impl Into<String>, help: &'static str) -> Fault {
    Fault { name, message: message.into(), help }
}

/// What is wrong with the file as a whole.
pub(super) fn of_file(snapshot: &Snapshot, format: Format) -> Vec<Fault> {
    let mut found = Vec::new();
    if let Format::Pickle(protocol @ 5..) = format {
        found.push(fault(
            "viewer_refuses_protocol",
            format!("the file is a pickle of protocol {protocol}, which the official viewer refuses"),
            "load it and dump it again with protocol=4",
        ));
    }
    if snapshot.traces.iter().all(Vec::is_empty) {
        found.push(fault(
            "empty_history",
            "there is no history, only the state at the end",
            "call torch.cuda.memory._record_memory_history() before the part of the program that is to be seen",
        ));
    }
    if snapshot.overflowed {
        found.push(fault(
            "history_overflowed",
            "the recorder says that older entries were lost",
            "record with a larger max_entries, or a shorter part of the program",
        ));
    }
    match &snapshot.settings {
        None => found.push(fault(
            "no_settings",
            "the file does not say how the allocator was set: the defaults are assumed",
            "dump it with PyTorch 2.1 or later",
        )),
        Some(recorded) => {
            if let Some(error) = &recorded.error {
                found.push(fault(
                    "settings_not_understood",
                    format!("the allocator was told '{}': {error}", recorded.alloc_conf),
                    "what the file spells out beside the text is used",
                ));
            }
            for message in recorded.settings.without_effect(true) {
                found.push(fault("setting_without_effect", message, "leave it out"));
            }
            if recorded.settings.garbage_collection_threshold > 0.0 {
                found.push(fault(
                    "threshold_needs_a_fraction",
                    "garbage_collection_threshold has no effect unless the program sets a memory fraction",
                    "call torch.cuda.set_per_process_memory_fraction(); a snapshot does not tell whether it was called",
                ));
            }
        }
    }
    found
}

/// What is wrong with the history of a device.
pub(super) fn of_device(
    snapshot: &Snapshot,
    entries: &[Entry],
    segments: &[&Segment],
    initial: &Initial,
) -> Vec<Fault> {
    let mut found = Vec::new();
    if let Some(segment) =
        segments.iter().find(|segment| segment.blocks.iter().map(|block| block.size).sum::<u64>() != segment.total_size)
    {
        found.push(fault(
            "blocks_do_not_fill_segment",
            format!(
                "the blocks of the segment at {:#x} do not add up to its {} bytes",
                segment.address, segment.total_size
            ),
            "the file is damaged: dump it again",
        ));
    }
    if entries.is_empty() {
        return found;
    }
    if initial.freed_later > 0 {
        let (count, s) = (initial.freed_later, plural(initial.freed_later));
        found.push(fault(
            "frees_without_allocation",
            format!("{count} block{s} that the history frees, it never allocated"),
            "record from process start: before the first allocation, and with max_entries large enough",
        ));
    }
    if initial.without_history > 0 {
        let (count, s) = (initial.without_history, plural(initial.without_history));
        found.push(fault(
            "blocks_without_history",
            format!("{count} block{s} in use without a history"),
            "record from process start: before the first allocation, and with max_entries large enough",
        ));
    }
    if !initial.is_empty() && !snapshot.overflowed && entries.len().is_multiple_of(1000) {
        found.push(fault(
            "history_may_have_overflowed",
            format!("the history has exactly {} entries and does not begin at process start", entries.len()),
            "older entries were probably lost: record with a larger max_entries",
        ));
    }
    let lost = lost_frees(entries);
    if lost > 0 {
        found.push(fault(
            "frees_missing",
            format!("{lost} block{} allocated where one was still in use", plural(lost)),
            "the history has a gap: do not stop and start recording in between",
        ));
    }
    found
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// How many blocks were allocated at the address of one that was not freed.
fn lost_frees(entries: &[Entry]) -> u64 {
    let mut alive: HashSet<u64> = HashSet::new();
    let mut lost = 0;
    for entry in entries {
        match entry.action {
            Action::Alloc => lost += u64::from(!alive.insert(entry.address)),
            Action::FreeCompleted => {
                alive.remove(&entry.address);
            }
            _ => {}
        }
    }
    lost
}
