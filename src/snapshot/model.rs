//! A snapshot in memory: what readers make of any layout, what the worker fills in, and what is written.

use std::collections::HashMap;

use crate::allocator::{Action, Address, BlockState, CachingAllocator, Device, History, Settings, StreamId};

/// A memory snapshot of one process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Segments of all devices.
    pub segments: Vec<Segment>,
    /// The history of each device, oldest entry first.
    pub traces: Vec<Vec<Entry>>,
    /// What the allocator was told, where the file says it.
    pub settings: Option<RecordedSettings>,
    /// Whether the recorder says that older entries were lost; most versions do not say.
    pub overflowed: bool,
    /// Marks that the program set.
    pub annotations: Vec<Annotation>,
    /// Stacks and phases that entries and blocks refer to.
    pub contexts: Contexts,
}

/// What the allocator was told.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedSettings {
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub alloc_conf: String,
    /// The settings: the text's, and over them those that the file spells out.
    pub settings: Settings,
    /// Why the text was not understood, if it was not.
    pub error: Option<String>,
}

/// A segment: the allocator's own [`crate::allocator::Segment`], with what its tag stands for. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The device's number.
    pub device: usize,
    /// Where it begins.
    pub address: Address,
    /// Its size.
    pub total_size: u64,
    /// Of it, blocks that the program holds.
    pub allocated_size: u64,
    /// Of it, blocks in use or waiting for a stream.
    pub active_size: u64,
    /// What the program asked for, of active blocks.
    pub requested_size: u64,
    /// The stream that it serves.
    pub stream: StreamId,
    /// The pair of pools; (0, 0) is the default one.
    pub pool: (u64, u64),
    /// Whether it is part of the small pool.
    pub is_small: bool,
    /// Whether it is expandable.
    pub is_expandable: bool,
    /// Who reserved it.
    pub stack: StackId,
    /// Its blocks, by address.
    pub blocks: Vec<Block>,
}

/// A block. Sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Where it begins.
    pub address: Address,
    /// Its size.
    pub size: u64,
    /// What the program asked for; stale in an inactive block.
    pub requested_size: u64,
    /// What it is doing.
    pub state: BlockState,
    /// Who asked for it.
    pub stack: StackId,
}

/// Something that the allocator did: its own [`crate::allocator::Entry`], with what the tag stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub action: Action,
    /// Where; for [`Action::Oom`] the free bytes of the device.
    pub address: Address,
    /// Bytes: requested ones for blocks, all for segments.
    pub size: u64,
    /// The stream.
    pub stream: StreamId,
    /// When, in microseconds since the Unix epoch.
    pub time_us: u64,
    /// Who.
    pub stack: StackId,
    /// The user's own word about it: memlab writes the phase.
    pub note: NoteId,
}

/// A mark that the program set, such as the start of the optimizer's step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Annotation {
    /// `START` or `END`.
    pub stage: String,
    /// Its name.
    pub name: String,
    /// The device's number.
    pub device: usize,
    /// When, in microseconds since the Unix epoch.
    pub time_us: u64,
}

/// A place in a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub name: String,
    /// The file; `??` where it is unknown.
    pub filename: String,
    /// The line; 0 where it is unknown.
    pub line: u32,
}

/// A stack of [`Contexts`]. The default one is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId(u32);

/// A note of [`Contexts`]. The default one is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteId(u32);

/// A frame of [`Contexts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u32);

/// Stacks and notes, each kept once.
#[derive(Debug, Clone)]
pub struct Contexts {
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, FrameId>,
    stacks: Vec<Box<[FrameId]>>,
    stack_ids: HashMap<Box<[FrameId]>, StackId>,
    notes: Vec<String>,
    note_ids: HashMap<String, NoteId>,
}

impl Default for Contexts {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: vec![Box::default()],
            stack_ids: HashMap::from([(Box::default(), StackId(0))]),
            notes: vec![String::new()],
            note_ids: HashMap::from([(String::new(), NoteId(0))]),
        }
    }
}

impl PartialEq for Contexts {
    fn eq(&self, other: &Self) -> bool {
        (&self.frames, &self.stacks, &self.notes) == (&other.frames, &other.stacks, &other.notes)
    }
}

impl Contexts {
    /// The number of a frame.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        let id = FrameId(number(self.frames.len()));
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, id);
        id
    }

    /// The number of a stack, innermost frame first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        if let Some(&id) = self.stack_ids.get(frames) {
            return id;
        }
        let id = StackId(number(self.stacks.len()));
        self.stacks.push(frames.into());
        self.stack_ids.insert(frames.into(), id);
        id
    }

    /// The number of a note.
    pub fn note(&mut self, note: &str) -> NoteId {
        if note.is_empty() {
            return NoteId::default();
        }
        if let Some(&id) = self.note_ids.get(note) {
            return id;
        }
        let id = NoteId(number(self.notes.len()));
        self.notes.push(note.to_owned());
        self.note_ids.insert(note.to_owned(), id);
        id
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        self.frame_numbers(stack).iter().map(|id| &self.frames[id.0 as usize])
    }

    /// The frames of a stack, as numbers.
    pub fn frame_numbers(&self, StackId(stack): StackId) -> &[FrameId] {
        &self.stacks[stack as usize]
    }

    /// A frame.
    pub fn frame_of(&self, FrameId(frame): FrameId) -> &Frame {
        &self.frames[frame as usize]
    }

    /// A note.
    pub fn note_of(&self, NoteId(note): NoteId) -> &str {
        &self.notes[note as usize]
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 contexts fit into memory")
}

impl Snapshot {
    /// A snapshot of a process whose allocator was told `alloc_conf`.
    pub fn new(alloc_conf: &str, settings: Settings) -> Self {
        let settings = RecordedSettings { alloc_conf: alloc_conf.to_owned(), settings, error: None };
        Self { settings: Some(settings), ..Self::default() }
    }

    /// Adds the state and the history of a model of `device`'s allocator. `context` says what a tag stands for:
    /// the stack and the note that were current when it was set.
    pub fn add_device<D: Device>(
        &mut self,
        device: usize,
        allocator: &CachingAllocator<D>,
        mut context: impl FnMut(u32) -> (StackId, NoteId),
    ) {
        for segment in allocator.segments() {
            let blocks = segment.blocks.iter().map(|block| Block {
                address: block.address,
                size: block.size,
                requested_size: block.requested_size,
                state: block.state,
                stack: context(block.tag).0,
            });
            let blocks = blocks.collect();
            self.segments.push(Segment {
                device,
                address: segment.address,
                total_size: segment.total_size,
                allocated_size: segment.allocated_size,
                active_size: segment.active_size,
                requested_size: segment.requested_size,
                stream: segment.stream,
                pool: (0, u64::from(segment.pool.number())),
                is_small: segment.is_small,
                is_expandable: segment.is_expandable,
                stack: context(segment.tag).0,
                blocks,
            });
        }
        if self.traces.len() <= device {
            self.traces.resize_with(device + 1, Vec::new);
        }
        self.overflowed |= allocator.history().is_some_and(|history| history.dropped() > 0);
        let entries = allocator.history().into_iter().flat_map(History::entries);
        self.traces[device].extend(entries.map(|entry| {
            let (stack, note) = context(entry.tag);
            Entry {
                action: entry.action,
                address: entry.address,
                size: entry.size,
                stream: entry.stream,
                time_us: entry.time_us,
                stack,
                note,
            }
        }));
    }
}
