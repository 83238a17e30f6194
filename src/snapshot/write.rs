//! Writing a snapshot, in the layout of `torch.cuda.memory._dump_snapshot` (2.11).

use std::collections::HashMap;
use std::io::{self, Write};

use super::model::{Contexts, Entry, FrameId, Segment, Snapshot, StackId};
use super::pickle::{Remembered, Writer};
use crate::allocator::{Action, Settings};

/// Writes a snapshot as a pickle that the official viewer opens.
///
/// # Errors
/// What the output says.
pub fn write(snapshot: &Snapshot, output: impl Write) -> io::Result<()> {
    let mut pickle = Writer::new(output)?;
    let mut stacks = Stacks { contexts: &snapshot.contexts, frames: HashMap::new(), whole: HashMap::new() };
    pickle.dict(|w| {
        w.str("segments")?;
        w.list(&snapshot.segments, |w, segment| write_segment(w, segment, &mut stacks))?;
        w.str("device_traces")?;
        w.list(&snapshot.traces, |w, trace| w.list(trace, |w, entry| write_entry(w, entry, &mut stacks)))?;
        if let Some(settings) = &snapshot.settings {
            w.str("allocator_settings")?;
            write_settings(w, &settings.alloc_conf, &settings.settings)?;
        }
        w.str("external_annotations")?;
        w.list(&snapshot.annotations, |w, annotation| {
            w.dict(|w| {
                field(w, "stage", |w| w.str(&annotation.stage))?;
                field(w, "name", |w| w.str(&annotation.name))?;
                field(w, "device", |w| w.uint(annotation.device as u64))?;
                field(w, "time_us", |w| w.uint(annotation.time_us))
            })
        })?;
        if snapshot.overflowed {
            // 2.11 does not tell; later recorders do, by this key.
            field(w, "trace_alloc_overflowed", |w| w.bool(true))?;
        }
        Ok(())
    })?;
    pickle.finish()?.flush()
}

fn field<W: Write>(
    w: &mut Writer<W>,
    key: &str,
    value: impl FnOnce(&mut Writer<W>) -> io::Result<()>,
) -> io::Result<()> {
    w.str(key)?;
    value(w)
}

/// What was written already: the viewer and Python share equal stacks as we do.
struct Stacks<'a> {
    contexts: &'a Contexts,
    frames: HashMap<FrameId, Remembered>,
    whole: HashMap<StackId, Remembered>,
}

impl Stacks<'_> {
    fn write<W: Write>(&mut self, w: &mut Writer<W>, stack: StackId) -> io::Result<()> {
        if let Some(&written) = self.whole.get(&stack) {
            return w.recall(written);
        }
        w.list(self.contexts.frame_numbers(stack), |w, id| {
            if let Some(&written) = self.frames.get(id) {
                return w.recall(written);
            }
            let frame = self.contexts.frame_of(*id);
            w.dict(|w| {
                field(w, "name", |w| w.str(&frame.name))?;
                field(w, "filename", |w| w.str(&frame.filename))?;
                field(w, "line", |w| w.uint(u64::from(frame.line)))
            })?;
            self.frames.insert(*id, w.remember()?);
            Ok(())
        })?;
        self.whole.insert(stack, w.remember()?);
        Ok(())
    }
}

fn write_segment<W: Write>(w: &mut Writer<W>, segment: &Segment, stacks: &mut Stacks<'_>) -> io::Result<()> {
    w.dict(|w| {
        field(w, "device", |w| w.uint(segment.device as u64))?;
        field(w, "address", |w| w.uint(segment.address))?;
        field(w, "total_size", |w| w.uint(segment.total_size))?;
        field(w, "allocated_size", |w| w.uint(segment.allocated_size))?;
        field(w, "active_size", |w| w.uint(segment.active_size))?;
        field(w, "requested_size", |w| w.uint(segment.requested_size))?;
        field(w, "stream", |w| w.uint(segment.stream))?;
        field(w, "segment_type", |w| w.str(if segment.is_small { "small" } else { "large" }))?;
        field(w, "segment_pool_id", |w| w.pair(segment.pool.0, segment.pool.1))?;
        field(w, "is_expandable", |w| w.bool(segment.is_expandable))?;
        field(w, "frames", |w| stacks.write(w, segment.stack))?;
        w.str("blocks")?;
        w.list(&segment.blocks, |w, block| {
            w.dict(|w| {
                field(w, "address", |w| w.uint(block.address))?;
                field(w, "size", |w| w.uint(block.size))?;
                field(w, "requested_size", |w| w.uint(block.requested_size))?;
                field(w, "state", |w| w.str(block.state.name()))?;
                field(w, "frames", |w| stacks.write(w, block.stack))
            })
        })
    })
}

fn write_entry<W: Write>(w: &mut Writer<W>, entry: &Entry, stacks: &mut Stacks<'_>) -> io::Result<()> {
    w.dict(|w| {
        field(w, "action", |w| w.str(entry.action.name()))?;
        field(w, if entry.action == Action::Oom { "device_free" } else { "addr" }, |w| w.uint(entry.address))?;
        field(w, "size", |w| w.uint(entry.size))?;
        field(w, "stream", |w| w.uint(entry.stream))?;
        field(w, "time_us", |w| w.uint(entry.time_us))?;
        field(w, "compile_context", |w| w.str("N/A"))?;
        field(w, "user_metadata", |w| w.str(stacks.contexts.note_of(entry.note)))?;
        if entry.stack != StackId::default() {
            field(w, "frames", |w| stacks.write(w, entry.stack))?;
        }
        Ok(())
    })
}

fn write_settings<W: Write>(w: &mut Writer<W>, alloc_conf: &str, settings: &Settings) -> io::Result<()> {
    w.dict(|w| {
        field(w, "PYTORCH_CUDA_ALLOC_CONF", |w| w.str(alloc_conf))?;
        field(w, "max_split_size", |w| w.int(i64::try_from(settings.max_split_size).unwrap_or(-1)))?;
        field(w, "garbage_collection_threshold", |w| w.float(settings.garbage_collection_threshold))?;
        field(w, "expandable_segments", |w| w.bool(settings.expandable_segments))?;
        w.str("roundup_power2_divisions")?;
        w.dict(|w| {
            for (index, divisions) in settings.roundup_power2_divisions.iter().enumerate() {
                w.str(&(1_u64 << index).to_string())?;
                w.uint(*divisions)?;
            }
            Ok(())
        })
    })
}
