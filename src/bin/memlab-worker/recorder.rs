//! Recording the allocator's history: who allocated, in which phase, and the snapshot file that tells it.

use std::collections::HashMap;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memlab::allocator::{CachingAllocator, Device};
use memlab::protocol::Activity;
use memlab::snapshot::{self, Contexts, Frame, Limits, NoteId, Snapshot, StackId};

use crate::stop::Stop;

/// Microseconds since the Unix epoch, the clock of `PyTorch`'s own recorder.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The phase as entries carry it.
pub(crate) fn phase_note(step: i64, activity: Activity) -> String {
    if step < 0 { activity.to_string() } else { format!("step {step} {activity}") }
}

/// On whose behalf a block of the modelled GPU is allocated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Origin {
    /// The operator (`aten::mm`); empty outside.
    pub(crate) operator: String,
    /// The autograd node in backward (`MmBackward0`); empty in forward.
    pub(crate) node: String,
    /// The module whose forward runs (`blocks.0.attention`); empty outside.
    pub(crate) module: String,
}

/// Numbers each origin and phase, for the history's tags.
#[derive(Debug)]
pub(crate) struct Recorder {
    contexts: Contexts,
    note: NoteId,
    tags: Vec<(StackId, NoteId)>,
    numbers: HashMap<(Origin, NoteId), u32>,
}

impl Recorder {
    /// A recorder that has seen nothing. Tag 0 is what happened on nobody's behalf.
    pub(crate) fn new() -> Self {
        Self {
            contexts: Contexts::default(),
            note: NoteId::default(),
            tags: vec![(StackId::default(), NoteId::default())],
            numbers: HashMap::new(),
        }
    }

    /// What follows happens in this phase.
    pub(crate) fn set_phase(&mut self, step: i64, activity: Activity) {
        self.note = self.contexts.note(&phase_note(step, activity));
    }

    /// The tag of an origin in the current phase.
    pub(crate) fn tag(&mut self, origin: Origin) -> u32 {
        let key = (origin, self.note);
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let frames = [(&key.0.operator, "operator"), (&key.0.node, "autograd"), (&key.0.module, "model")];
        let frames: Vec<_> = frames
            .into_iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, filename)| {
                self.contexts.frame(Frame { name: name.clone(), filename: filename.to_owned(), line: 0 })
            })
            .collect();
        let stack = self.contexts.stack(&frames);
        let number = u32::try_from(self.tags.len()).unwrap_or(0);
        self.tags.push((stack, self.note));
        self.numbers.insert(key, number);
        number
    }

    /// The snapshot of a modelled GPU.
    pub(crate) fn snapshot<D: Device>(&self, alloc_conf: &str, allocator: &CachingAllocator<D>) -> Snapshot {
        let mut snapshot = Snapshot::new(alloc_conf, allocator.settings().clone());
        snapshot.contexts = self.contexts.clone();
        snapshot.add_device(0, allocator, |tag| self.tags.get(tag as usize).copied().unwrap_or_default());
        snapshot
    }
}

/// Adds to a snapshot of `PyTorch`'s recorder the phase that each entry happened in; `phases` are the starts, in order.
///
/// A snapshot that memlab cannot read is left as it is.
pub(crate) fn with_phases(pickled: Vec<u8>, phases: &[(u64, i64, Activity)]) -> Vec<u8> {
    let Ok((mut snapshot, _)) = snapshot::read(pickled.as_slice(), Limits::default()) else { return pickled };
    let notes: Vec<(u64, NoteId)> = phases
        .iter()
        .map(|(time, step, activity)| (*time, snapshot.contexts.note(&phase_note(*step, *activity))))
        .collect();
    for entry in snapshot.traces.iter_mut().flatten() {
        let started = notes.partition_point(|(time, _)| *time <= entry.time_us);
        if let Some((_, note)) = started.checked_sub(1).and_then(|index| notes.get(index)) {
            entry.note = *note;
        }
    }
    let mut bytes = Vec::with_capacity(pickled.len());
    match snapshot::write(&snapshot, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => pickled,
    }
}

/// `gamma.pickle` for rank 0 is `gamma-rank0.pickle`, as the exercise names it.
pub(crate) fn rank_qualified(path: &Path, rank: u64) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}-rank{rank}.{}", extension.to_string_lossy()),
        None => format!("{stem}-rank{rank}"),
    };
    path.with_file_name(name)
}

/// The bytes of a snapshot file.
///
/// # Errors
/// None in practice: memory does not refuse to be written.
pub(crate) fn encode(snapshot: &Snapshot) -> Result<Vec<u8>, Stop> {
    let mut bytes = Vec::new();
    snapshot::write(snapshot, BufWriter::new(&mut bytes))
        .map_err(|error| Stop::Error(format!("cannot encode the snapshot: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_stands_before_the_extension() {
        let name = |path: &str| rank_qualified(Path::new(path), 3).display().to_string();
        assert_eq!(name("a/gamma.pickle"), "a/gamma-rank3.pickle");
        assert_eq!(name("gamma"), "gamma-rank3");
        assert_eq!(name("a.b/gamma.v2.pickle"), "a.b/gamma.v2-rank3.pickle");
    }

    #[test]
    fn an_origin_has_one_tag_in_each_phase() {
        let mut recorder = Recorder::new();
        let origin = || Origin { operator: "aten::mm".to_owned(), ..Origin::default() };
        recorder.set_phase(0, Activity::Forward);
        let first = recorder.tag(origin());
        assert_eq!(recorder.tag(origin()), first);
        recorder.set_phase(0, Activity::Backward);
        assert_ne!(recorder.tag(origin()), first);
    }
}
