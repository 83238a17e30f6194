//! A history as live memory over time: what is alive after every change, by where it was asked for and when.

use std::collections::HashMap;

use super::model::{Contexts, Segment, Snapshot, StackId};
use super::replay::{Damage, Initial};
use crate::allocator::{Action, Address, Settings};

/// The history of one device. Sizes are bytes that the program asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The device's number.
    pub device: usize,
    /// Alive before the first change.
    pub before: u64,
    /// What came and went, oldest first.
    pub changes: Vec<Change>,
    /// Memory taken from the device: from which change on, and how much.
    pub reserved: Vec<(usize, u64)>,
    /// The user's own word about what goes on, from which change on; memlab's worker writes step and phase.
    pub notes: Vec<(usize, usize)>,
    /// The words that [`Change::note`] and [`Timeline::notes`] are places of. The first is empty.
    pub words: Vec<String>,
    /// The places that [`Change::origin`] is a place of. The first stands for blocks from before the history.
    pub origins: Vec<String>,
}

/// A block that came, or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Bytes asked for; negative when the block goes.
    pub bytes: i64,
    /// The word that held when the block came.
    pub note: usize,
    /// Where it was asked for.
    pub origin: usize,
}

impl Timeline {
    /// The history of every device of a snapshot that has one.
    ///
    /// # Errors
    /// [`Damage`] for a history that no device can have.
    pub fn of(snapshot: &Snapshot) -> Result<Vec<Self>, Damage> {
        let devices = 0..snapshot.traces.len();
        devices
            .filter(|device| !snapshot.traces[*device].is_empty())
            .map(|device| of_device(snapshot, device))
            .collect()
    }
}

fn of_device(snapshot: &Snapshot, device: usize) -> Result<Timeline, Damage> {
    let entries = &snapshot.traces[device];
    let segments: Vec<&Segment> = snapshot.segments.iter().filter(|segment| segment.device == device).collect();
    let settings = snapshot.settings.as_ref().map_or_else(Settings::default, |recorded| recorded.settings.clone());
    let initial = Initial::of(entries, &segments, &settings)?;
    let (mut words, mut origins) = (Names::with(String::new()), Names::with("before the recording".to_owned()));
    let mut alive: HashMap<Address, Change> = initial
        .blocks()
        .map(|block| (block.address, Change { bytes: signed(block.requested_size), note: 0, origin: 0 }))
        .collect();
    let before = alive.values().map(|block| block.bytes.unsigned_abs()).sum();
    let mut reserved = initial.reserved();
    let mut timeline = Timeline { device, before, reserved: vec![(0, reserved)], ..Timeline::default() };
    for entry in entries {
        let now = timeline.changes.len();
        let note = words.place(snapshot.contexts.note_of(entry.note));
        if timeline.notes.last().is_none_or(|(_, last)| *last != note) {
            timeline.notes.push((now, note));
        }
        match entry.action {
            Action::Alloc => {
                let origin = origins.place(&origin(&snapshot.contexts, entry.stack));
                let block = Change { bytes: signed(entry.size), note, origin };
                timeline.changes.push(block);
                alive.insert(entry.address, block);
            }
            Action::FreeCompleted => {
                if let Some(block) = alive.remove(&entry.address) {
                    timeline.changes.push(Change { bytes: -block.bytes, ..block });
                }
            }
            Action::SegmentAlloc | Action::SegmentMap => reserved = reserved.saturating_add(entry.size),
            Action::SegmentFree | Action::SegmentUnmap => reserved = reserved.saturating_sub(entry.size),
            _ => {}
        }
        if timeline.reserved.last().is_some_and(|(_, last)| *last != reserved) {
            timeline.reserved.push((timeline.changes.len(), reserved));
        }
    }
    Ok(Timeline { words: words.names, origins: origins.names, ..timeline })
}

/// The innermost function of the program, past the recorder's and the allocator's own; a size where no stack is known.
fn origin(contexts: &Contexts, stack: StackId) -> String {
    let mut frames = contexts.frames(stack);
    let frame = frames.find(|frame| !super::summary::is_allocator(&frame.name));
    frame.map_or_else(|| "no stack recorded".to_owned(), |frame| frame.name.clone())
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Names by number, each kept once.
struct Names {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    fn with(first: String) -> Self {
        Self { names: vec![first.clone()], places: HashMap::from([(first, 0)]) }
    }

    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Limits, read};

    /// The recordings end with the state after their last entry: what the timeline says is alive then is what blocks say.
    #[test]
    fn what_is_alive_at_the_end_is_what_the_blocks_hold() {
        for name in ["expandable", "streams", "refused"] {
            let path = format!("{}/tests/data/snapshots/{name}.pickle", env!("CARGO_MANIFEST_DIR"));
            let (snapshot, _) = read(std::fs::File::open(path).unwrap(), Limits::default()).unwrap();
            let timelines = Timeline::of(&snapshot).unwrap();
            assert!(!timelines.is_empty(), "{name}");
            for timeline in timelines {
                let segments = snapshot.segments.iter().filter(|segment| segment.device == timeline.device);
                let (requested, reserved) = segments.fold((0, 0), |(requested, reserved), segment| {
                    (requested + segment.requested_size, reserved + segment.total_size)
                });
                let end = signed(timeline.before) + timeline.changes.iter().map(|change| change.bytes).sum::<i64>();
                assert_eq!(end, signed(requested), "{name}");
                assert_eq!(timeline.reserved.last().map(|(_, bytes)| *bytes), Some(reserved), "{name}");
                assert!(timeline.changes.iter().all(|change| change.origin < timeline.origins.len()));
                assert!(timeline.changes.iter().all(|change| change.note < timeline.words.len()));
            }
        }
    }
}
