//! From plain data to a [`Snapshot`], whatever the layout: the present one, a bare list of segments, missing keys,
//! blocks without addresses, blocks with a `history`.

use std::collections::HashMap;

use super::document::{Dict, Document, Kind, Value};
use super::model::{Annotation, Block, Contexts, Entry, Frame, FrameId, RecordedSettings, Segment, Snapshot, StackId};
use crate::allocator::{Action, BlockState, SMALL_SEGMENT_SIZE, Settings};

/// Data that is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` {problem}")]
pub struct DecodeError {
    /// Where in the data.
    pub path: String,
    /// What is wrong with it.
    pub problem: String,
}

fn wrong(path: impl Into<String>, problem: impl Into<String>) -> DecodeError {
    DecodeError { path: path.into(), problem: problem.into() }
}

/// Reads a snapshot out of plain data.
///
/// # Errors
/// [`DecodeError`] where something has another type than in every layout known.
pub(super) fn decode(document: &Document, top: Value) -> Result<Snapshot, DecodeError> {
    let mut decoder = Decoder {
        document,
        contexts: Contexts::default(),
        stacks: HashMap::new(),
        frames: HashMap::new(),
        frame_fields: Fields::default(),
        stack_items: Vec::new(),
        records: document.dicts(),
    };
    let (segments, traces) = match document.kind(top) {
        Kind::List(_) => (Some(top), None),
        Kind::Dict(_) => (document.get(top, "segments"), document.get(top, "device_traces")),
        other => return Err(wrong("snapshot", format!("is {}, expected a dictionary or a list", other.word()))),
    };
    if segments.is_none() && traces.is_none() {
        return Err(wrong("snapshot", "has neither `segments` nor `device_traces`: it is no memory snapshot"));
    }
    let mut snapshot = Snapshot::default();
    for (index, segment) in decoder.list(segments, "segments")?.iter().enumerate() {
        snapshot.segments.push(decoder.segment(*segment, &format!("segments[{index}]"))?);
    }
    for (device, trace) in decoder.list(traces, "device_traces")?.iter().enumerate() {
        let path = format!("device_traces[{device}]");
        let trace = decoder.list(Some(*trace), &path)?;
        snapshot.traces.push(decoder.trace(trace, &path)?);
    }
    snapshot.settings = document.get(top, "allocator_settings").map(|value| decoder.settings(value));
    for (index, annotation) in
        decoder.list(document.get(top, "external_annotations"), "annotations")?.iter().enumerate()
    {
        snapshot.annotations.push(decoder.annotation(*annotation, &format!("external_annotations[{index}]"))?);
    }
    snapshot.overflowed = document.get(top, "trace_alloc_overflowed").is_some_and(|value| is_set(document, value));
    snapshot.contexts = decoder.contexts;
    Ok(snapshot)
}

/// Whether a mark is set, for the process or for any device.
fn is_set(document: &Document, value: Value) -> bool {
    match document.kind(value) {
        Kind::Bool(set) => set,
        Kind::Int(count) => count > 0,
        Kind::List(items) => items.iter().any(|item| *item == Value::bool(true)),
        _ => false,
    }
}

struct Decoder<'a> {
    document: &'a Document,
    contexts: Contexts,
    /// Stacks by the identity of the list: files share them.
    stacks: HashMap<Value, StackId>,
    /// Frames by their name, file and line as values: equal texts are the same value.
    frames: HashMap<[Option<Value>; 3], FrameId>,
    frame_fields: Fields<3>,
    /// The frames of the stack that is being read.
    stack_items: Vec<FrameId>,
    /// How many segments, blocks, entries and annotations may still come: each is a dictionary of its own. A small file
    /// can name one dictionary any number of times.
    records: usize,
}

impl<'a> Decoder<'a> {
    fn list(&self, value: Option<Value>, path: &str) -> Result<&'a [Value], DecodeError> {
        match value.map(|value| self.document.kind(value)) {
            None | Some(Kind::None) => Ok(&[]),
            Some(Kind::List(items)) => Ok(items),
            Some(other) => Err(wrong(path, format!("is {}, expected a list", other.word()))),
        }
    }

    fn record(&mut self, path: impl Fn() -> String) -> Result<(), DecodeError> {
        let left = self.records.checked_sub(1);
        self.records = left.ok_or_else(|| wrong(path(), "is a dictionary that stands for several"))?;
        Ok(())
    }

    fn number(&self, value: Value) -> Result<u64, String> {
        match self.document.kind(value) {
            Kind::Int(number) => {
                u64::try_from(number).map_err(|_| format!("is {number}, expected a number from 0 to 2^64"))
            }
            other => Err(format!("is {}, expected a whole number", other.word())),
        }
    }

    /// A number of a dictionary, or a default where the key is missing.
    fn field(&self, dict: Value, key: &str, default: Option<u64>, path: &str) -> Result<u64, DecodeError> {
        let path = || format!("{path}.{key}");
        match (self.document.get(dict, key), default) {
            (Some(value), _) => self.number(value).map_err(|problem| wrong(path(), problem)),
            (None, Some(default)) => Ok(default),
            (None, None) => Err(wrong(path(), "is missing")),
        }
    }

    fn text(&self, dict: Value, key: &str) -> &'a str {
        match self.document.get(dict, key).map(|value| self.document.kind(value)) {
            Some(Kind::Str(text)) => text,
            _ => "",
        }
    }

    fn segment(&mut self, segment: Value, path: &str) -> Result<Segment, DecodeError> {
        let address = self.field(segment, "address", None, path)?;
        self.record(|| path.to_owned())?;
        let total_size = self.field(segment, "total_size", None, path)?;
        let mut at = address;
        let mut blocks = Vec::new();
        for (index, block) in
            self.list(self.document.get(segment, "blocks"), &format!("{path}.blocks"))?.iter().enumerate()
        {
            let block = self.block(*block, at, &format!("{path}.blocks[{index}]"))?;
            at = block.address.saturating_add(block.size);
            blocks.push(block);
        }
        let sum = |wanted: fn(&Block) -> bool, size: fn(&Block) -> u64| {
            blocks.iter().filter(|block| wanted(block)).map(size).fold(0, u64::saturating_add)
        };
        let active = |block: &Block| block.state != BlockState::Inactive;
        let allocated_size = sum(|block| block.state == BlockState::ActiveAllocated, |block| block.size);
        let active_size = sum(active, |block| block.size);
        let requested_size = sum(active, |block| block.requested_size);
        let pool = match self.list(self.document.get(segment, "segment_pool_id"), "segment_pool_id")? {
            [first, second] => (self.number(*first).unwrap_or(0), self.number(*second).unwrap_or(0)),
            _ => (0, 0),
        };
        Ok(Segment {
            device: usize::try_from(self.field(segment, "device", Some(0), path)?).unwrap_or(usize::MAX),
            address,
            total_size,
            allocated_size: self.field(segment, "allocated_size", Some(allocated_size), path)?,
            active_size: self.field(segment, "active_size", Some(active_size), path)?,
            requested_size: self.field(segment, "requested_size", Some(requested_size), path)?,
            stream: self.field(segment, "stream", Some(0), path)?,
            pool,
            is_small: match self.text(segment, "segment_type") {
                "small" => true,
                "large" => false,
                _ => total_size <= SMALL_SEGMENT_SIZE,
            },
            is_expandable: self.document.get(segment, "is_expandable") == Some(Value::bool(true)),
            stack: self.stack(self.document.get(segment, "frames"), || path.to_owned())?,
            blocks,
        })
    }

    fn block(&mut self, block: Value, at: u64, path: &str) -> Result<Block, DecodeError> {
        let size = self.field(block, "size", None, path)?;
        self.record(|| path.to_owned())?;
        // Before 2.1 a block carried what had been in it, newest first.
        let past = self.document.get(block, "history").and_then(|past| self.document.items(past).first().copied());
        let requested = past.map_or(Ok(size), |past| self.field(past, "real_size", Some(size), path))?;
        let frames = self.document.get(block, "frames").or_else(|| self.document.get(past?, "frames"));
        let state = match self.text(block, "state") {
            "active_allocated" => BlockState::ActiveAllocated,
            "active_pending_free" | "active_awaiting_free" => BlockState::ActivePendingFree,
            "inactive" => BlockState::Inactive,
            other => return Err(wrong(format!("{path}.state"), format!("is '{other}', which is no state of a block"))),
        };
        Ok(Block {
            address: self.field(block, "address", Some(at), path)?,
            size,
            requested_size: self.field(block, "requested_size", Some(requested), path)?,
            state,
            stack: self.stack(frames, || path.to_owned())?,
        })
    }

    fn stack(&mut self, frames: Option<Value>, path: impl Fn() -> String) -> Result<StackId, DecodeError> {
        let Some(list) = frames else { return Ok(StackId::default()) };
        if let Some(&stack) = self.stacks.get(&list) {
            return Ok(stack);
        }
        let items = match self.document.kind(list) {
            Kind::None => &[],
            Kind::List(items) => items,
            other => return Err(wrong(format!("{}.frames", path()), format!("is {}, expected a list", other.word()))),
        };
        self.stack_items.clear();
        for item in items {
            let frame = self.frame(*item).map_err(|problem| wrong(format!("{}.frames", path()), problem))?;
            self.stack_items.push(frame);
        }
        let stack = self.contexts.stack(&self.stack_items);
        self.stacks.insert(list, stack);
        Ok(stack)
    }

    fn frame(&mut self, frame: Value) -> Result<FrameId, String> {
        let Kind::Dict(dict) = self.document.kind(frame) else {
            return Err("has a frame that is no dictionary".to_owned());
        };
        self.frame_fields.find(self.document, dict, FRAME_FIELDS);
        let key @ [name, filename, line] = [0, 1, 2].map(|field| self.frame_fields.value(dict, field));
        if let Some(&known) = self.frames.get(&key) {
            return Ok(known);
        }
        let text = |value: Option<Value>| match value.map(|value| self.document.kind(value)) {
            Some(Kind::Str(text)) => text.to_owned(),
            _ => String::new(),
        };
        let line = line.map_or(Ok(0), |line| self.number(line))?;
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let id = self.contexts.frame(Frame { name: text(name), filename: text(filename), line });
        self.frames.insert(key, id);
        Ok(id)
    }

    fn trace(&mut self, trace: &[Value], path: &str) -> Result<Vec<Entry>, DecodeError> {
        let mut entries = Vec::with_capacity(trace.len());
        let mut fields = Fields::<8>::default();
        for (index, item) in trace.iter().enumerate() {
            let Kind::Dict(dict) = self.document.kind(*item) else {
                return Err(wrong(format!("{path}[{index}]"), "is no dictionary"));
            };
            self.record(|| format!("{path}[{index}]"))?;
            fields.find(self.document, dict, FIELDS);
            let at = |key: &str| format!("{path}[{index}].{key}");
            let value = |field: usize| fields.value(dict, field);
            let number = |field: usize, default: Option<u64>| match (value(field), default) {
                (Some(value), _) => self.number(value).map_err(|problem| wrong(at(FIELDS[field]), problem)),
                (None, Some(default)) => Ok(default),
                (None, None) => Err(wrong(at(FIELDS[field]), "is missing")),
            };
            let action = match value(0).map(|value| self.document.kind(value)) {
                Some(Kind::Str(name)) => Action::from_name(name)
                    .ok_or_else(|| wrong(at("action"), format!("is '{name}', which is no action of an allocator")))?,
                _ => return Err(wrong(at("action"), "is missing")),
            };
            let note = match value(7).map(|value| self.document.kind(value)) {
                Some(Kind::Str(note)) => note,
                _ => "",
            };
            let address = match action {
                Action::Oom => number(2, None),
                Action::Snapshot => number(1, Some(0)),
                _ => number(1, None),
            };
            entries.push(Entry {
                action,
                address: address?,
                size: number(3, None)?,
                stream: number(4, Some(0))?,
                time_us: number(5, Some(0))?,
                stack: match value(6) {
                    Some(frames) => self.stack(Some(frames), || format!("{path}[{index}]"))?,
                    None => StackId::default(),
                },
                note: self.contexts.note(note),
            });
        }
        Ok(entries)
    }

    fn settings(&self, value: Value) -> RecordedSettings {
        let alloc_conf = self.text(value, "PYTORCH_CUDA_ALLOC_CONF").to_owned();
        let (mut settings, error) = match Settings::parse(&alloc_conf) {
            Ok(settings) => (settings, None),
            Err(error) => (Settings::default(), Some(error.to_string())),
        };
        let found = |key: &str| self.document.get(value, key).map(|value| self.document.kind(value));
        if let Some(Kind::Int(size)) = found("max_split_size") {
            settings.max_split_size = u64::try_from(size).unwrap_or(u64::MAX);
        }
        if let Some(Kind::Float(threshold)) = found("garbage_collection_threshold") {
            settings.garbage_collection_threshold = threshold;
        }
        if let Some(Kind::Bool(expandable)) = found("expandable_segments") {
            settings.expandable_segments = expandable;
        }
        if let Some(Kind::Dict(divisions)) = found("roundup_power2_divisions") {
            for (boundary, value) in divisions.entries() {
                let (Kind::Str(boundary), Ok(value)) = (self.document.kind(boundary), self.number(value)) else {
                    continue;
                };
                let slot = boundary.parse().ok().filter(|boundary: &u64| boundary.is_power_of_two());
                let slot = slot.map(|boundary| boundary.ilog2() as usize);
                if let Some(slot) = slot.and_then(|slot| settings.roundup_power2_divisions.get_mut(slot)) {
                    *slot = value;
                }
            }
        }
        RecordedSettings { alloc_conf, settings, error }
    }

    fn annotation(&mut self, value: Value, path: &str) -> Result<Annotation, DecodeError> {
        self.record(|| path.to_owned())?;
        Ok(Annotation {
            stage: self.text(value, "stage").to_owned(),
            name: self.text(value, "name").to_owned(),
            device: usize::try_from(self.field(value, "device", Some(0), path)?).unwrap_or(usize::MAX),
            time_us: self.field(value, "time_us", Some(0), path)?,
        })
    }
}

const FIELDS: [&str; 8] = ["action", "addr", "device_free", "size", "stream", "time_us", "frames", "user_metadata"];

const FRAME_FIELDS: [&str; 3] = ["name", "filename", "line"];

/// Where the fields of a dictionary are. Nearly all entries have the same keys, so they are looked for once.
struct Fields<const N: usize> {
    keys: Option<(*const Value, usize)>,
    at: [Option<usize>; N],
}

impl<const N: usize> Default for Fields<N> {
    fn default() -> Self {
        Self { keys: None, at: [None; N] }
    }
}

impl<const N: usize> Fields<N> {
    fn find(&mut self, document: &Document, dict: Dict<'_>, names: [&str; N]) {
        let keys = Some((dict.keys().as_ptr(), dict.keys().len()));
        if self.keys != keys {
            self.keys = keys;
            self.at = names.map(|name| dict.keys().iter().rposition(|key| document.kind(*key) == Kind::Str(name)));
        }
    }

    fn value(&self, dict: Dict<'_>, field: usize) -> Option<Value> {
        self.at[field].map(|at| dict.values()[at])
    }
}
