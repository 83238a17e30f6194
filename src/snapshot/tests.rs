//! Files of every kind, good and bad, and the round trip through the writer.

use proptest::prelude::*;

use super::*;
use crate::allocator::{Action, BlockState, CachingAllocator, History, Settings, VirtualDevice};

fn read_bytes(bytes: &[u8]) -> Result<(Snapshot, Format), Error> {
    read(bytes, Limits::default())
}

fn refusal(bytes: &[u8]) -> String {
    read_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn code_is_refused_by_name_and_offset() {
    for (bytes, name) in [
        (&b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."[..], "opcode GLOBAL would name or call code at offset 2"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "opcode STACK_GLOBAL would name or call code at offset 14"),
        (b"\x80\x02)R.", "opcode REDUCE would name or call code at offset 3"),
        (b"\x80\x02}}b.", "opcode BUILD would name or call code at offset 4"),
        (b"\x80\x02)\x81.", "opcode NEWOBJ would name or call code at offset 3"),
        (b"\x80\x02(ios\nsystem\n.", "opcode INST would name or call code at offset 3"),
        (b"\x80\x02\x82\x01.", "opcode EXT1 would name or call code at offset 2"),
        (b"\x80\x02K\x01Q.", "opcode BINPERSID would name or call code at offset 4"),
    ] {
        assert_eq!(refusal(bytes), name);
    }
}

#[test]
fn damage_is_named_with_its_offset() {
    for (bytes, message) in [
        (&b""[..], "the file ends in the middle at offset 0"),
        (b"\x80\x04", "the file ends in the middle at offset 2"),
        (b"\x80\x04X\xff\xff\xff\xffabc", "the file ends in the middle at offset 10"),
        (b"\x80\x06.", "pickle protocol 6, which is not one of 2 to 5, at offset 0"),
        (b"hello", "byte 0x68 begins neither a pickle nor JSON at offset 0"),
        (b"\x80\x04.", "opcode STOP finds nothing on the stack at offset 2"),
        (b"\x80\x04u.", "opcode SETITEMS finds nothing on the stack at offset 2"),
        (b"\x80\x04K\x01(K\x02e.", "opcode APPENDS needs a list at offset 7"),
        (b"\x80\x04](K\x02u.", "opcode SETITEMS needs a value for every key at offset 6"),
        (b"\x80\x04](K\x01K\x02u.", "opcode SETITEMS needs a dictionary at offset 8"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "opcode LONG_BINPUT with a memo number that was not set at offset 3"),
        (
            b"\x80\x04\x8a\x11AAAAAAAAAAAAAAAAA.",
            "opcode LONG1 with a number that is none, or wider than 128 bits at offset 2",
        ),
        (b"\x80\x04\x8c\x01\xff.", "opcode SHORT_BINUNICODE with a text that is not UTF-8 at offset 2"),
        (b"\x80\x04\x8f.", "opcode EMPTY_SET is not plain data of a snapshot at offset 2"),
        (b"\x80\x04\x00.", "no pickle: byte 0x00 is no opcode at offset 2"),
    ] {
        assert_eq!(refusal(bytes), message);
    }
}

#[test]
fn depth_and_size_are_limited() {
    let deep = [b"\x80\x04".as_slice(), &b"(".repeat(2000)].concat();
    assert_eq!(refusal(&deep), "more than 1000 open collections at offset 1002");
    // Values inside values need no mark: they are kept without recursion, and freed without it.
    let nested = [b"\x80\x02".as_slice(), &b"]".repeat(1_000_000), &b"a".repeat(999_999), b"."].concat();
    assert_eq!(refusal(&nested), "`segments[0].address` is missing");
    let long = [b"\x80\x04".as_slice(), &b"N0".repeat(1 << 18), b"N."].concat();
    let error = pickle::read(long.as_slice(), Limits { bytes: 1 << 18, ..Limits::default() }).unwrap_err();
    assert_eq!(error.to_string(), "more than 262144 bytes at offset 262144");
    let json = [b"[".repeat(200), b"]".repeat(200)].concat();
    assert!(refusal(&json).contains("recursion limit"), "{}", refusal(&json));
}

/// A few bytes that name what was built before any number of times, or make it grow step by step.
#[test]
fn a_small_file_stays_small() {
    let segment = b"}q\x01(\x8c\x07addressK\x01\x8c\x0atotal_sizeK\x02u";
    let repeated = [b"\x80\x04}\x8c\x08segments](", segment.as_slice(), &b"h\x01".repeat(9), b"es."].concat();
    assert_eq!(refusal(&repeated), "`segments[2]` is a dictionary that stands for several");
    let entry = b"}q\x01(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x02u";
    let repeated = [b"\x80\x04}\x8c\x0ddevice_traces](](", entry.as_slice(), &b"h\x01".repeat(9), b"ees."].concat();
    assert_eq!(refusal(&repeated), "`device_traces[0][2]` is a dictionary that stands for several");
    let grown = [b"\x80\x04}".as_slice(), &b"K\x01Ns".repeat(200), b"."].concat();
    assert_eq!(refusal(&grown), "a dictionary of more than 100 keys at offset 406");
    let at_once = [b"\x80\x04}(".as_slice(), &b"K\x01N".repeat(200), b"u."].concat();
    assert_eq!(refusal(&at_once), "a dictionary of more than 100 keys at offset 604");
}

#[test]
fn a_dictionary_may_be_built_key_by_key() {
    let segment = b"}\x8c\x07addressK\x01s\x8c\x0atotal_sizeK\x02s\x8c\x06streamK\x03s";
    let (snapshot, _) = read_bytes(&[b"\x80\x04}\x8c\x08segments](", segment.as_slice(), b"es."].concat()).unwrap();
    let found = &snapshot.segments[0];
    assert_eq!((found.address, found.total_size, found.stream), (1, 2, 3));
}

#[test]
fn data_of_something_else_is_no_snapshot() {
    for (text, message) in [
        ("{}", "`snapshot` has neither `segments` nor `device_traces`: it is no memory snapshot"),
        ("[1]", "`segments[0].address` is missing"),
        (r#"{"segments": 3}"#, "`segments` is a number, expected a list"),
        (r#"{"segments": [{"address": "x"}]}"#, "`segments[0].address` is a text, expected a whole number"),
        (
            r#"{"device_traces": [[{"action": "fly"}]]}"#,
            "`device_traces[0][0].action` is 'fly', which is no action of an allocator",
        ),
        (
            r#"{"device_traces": [[{"action": "alloc", "addr": -1}]]}"#,
            "`device_traces[0][0].addr` is -1, expected a number from 0 to 2^64",
        ),
        (r#"{"device_traces": [[{"action": "alloc", "addr": 0}]]}"#, "`device_traces[0][0].size` is missing"),
    ] {
        assert_eq!(refusal(text.as_bytes()), message);
    }
}

#[test]
fn old_layouts_are_read() {
    // 2.0: a bare list of segments; blocks have no addresses and keep what was in them.
    let text = r#" [{"device": 0, "address": 1024, "total_size": 2097152, "stream": 0, "segment_type": "small",
        "blocks": [{"size": 512, "state": "active_allocated",
                    "history": [{"addr": 1024, "real_size": 100, "frames": [{"name": "f", "filename": "a.py", "line": 7}]}]},
                   {"size": 512, "state": "active_awaiting_free"},
                   {"size": 2096128, "state": "inactive"}]}]"#;
    let (snapshot, format) = read_bytes(text.as_bytes()).unwrap();
    assert_eq!(format, Format::Json);
    let segment = &snapshot.segments[0];
    assert_eq!((segment.allocated_size, segment.active_size, segment.requested_size), (512, 1024, 612));
    assert_eq!(segment.blocks.iter().map(|block| block.address).collect::<Vec<_>>(), [1024, 1536, 2048]);
    assert_eq!(segment.blocks[1].state, BlockState::ActivePendingFree);
    let frames: Vec<_> = snapshot.contexts.frames(segment.blocks[0].stack).collect();
    assert_eq!((frames[0].name.as_str(), frames[0].line), ("f", 7));
    assert_eq!(snapshot.settings, None);
}

#[test]
fn the_model_s_history_is_a_snapshot() {
    let mut allocator = CachingAllocator::new(Settings::default(), None, VirtualDevice::new(1 << 30, 0));
    allocator.set_history(Some(History::new(100, || 1_000_000)));
    allocator.set_tag(1);
    let first = allocator.malloc(100, 0).unwrap();
    allocator.set_tag(2);
    allocator.malloc(3 << 20, 0).unwrap();
    allocator.free(first).unwrap();
    let mut snapshot = Snapshot::new("", Settings::default());
    let frame = snapshot.contexts.frame(Frame { name: "forward".into(), filename: "attention".into(), line: 3 });
    let stack = snapshot.contexts.stack(&[frame]);
    let notes = ["", "model", "forward"].map(|note| snapshot.contexts.note(note));
    snapshot.add_device(0, &allocator, |tag| (stack, notes[tag as usize]));
    assert_eq!(snapshot.segments.len(), 2);
    assert_eq!(snapshot.traces[0].len(), 6);
    assert_eq!(snapshot.contexts.note_of(snapshot.traces[0][3].note), "forward");
    let mut bytes = Vec::new();
    write(&snapshot, &mut bytes).unwrap();
    let (again, format) = read_bytes(&bytes).unwrap();
    assert_eq!(format, Format::Pickle(4));
    assert_eq!(again, canonical(&snapshot));
}

/// The same snapshot with its contexts numbered as a reader numbers them: in the order of their use.
fn canonical(snapshot: &Snapshot) -> Snapshot {
    let mut canonical = Snapshot { contexts: Contexts::default(), ..snapshot.clone() };
    let contexts = &mut canonical.contexts;
    let stack = |contexts: &mut Contexts, id: StackId| {
        let frames: Vec<Frame> = snapshot.contexts.frames(id).cloned().collect();
        let frames: Vec<FrameId> = frames.into_iter().map(|frame| contexts.frame(frame)).collect();
        contexts.stack(&frames)
    };
    for segment in &mut canonical.segments {
        for block in &mut segment.blocks {
            block.stack = stack(contexts, block.stack);
        }
        segment.stack = stack(contexts, segment.stack);
    }
    // An entry's stack is read before its note.
    for entry in canonical.traces.iter_mut().flatten() {
        entry.stack = stack(contexts, entry.stack);
        entry.note = contexts.note(snapshot.contexts.note_of(entry.note));
    }
    canonical
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1_u64..300, 0_u64..1 << 20, any::<u64>()]
}

/// The numbers of an entry: action, address, size, stream, time; and which stack and note it has.
type Numbers = (usize, u64, u64, u64, u64, [prop::sample::Index; 2]);

/// More than 1000 entries are more than one batch of a list.
fn trace(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Numbers>> {
    prop::collection::vec((0_usize..9, size(), size(), size(), size(), any::<[prop::sample::Index; 2]>()), length)
}

prop_compose! {
    fn arbitrary()(
        frames in prop::collection::vec(("[a-z]{0,3}", "\\PC{0,4}", any::<u32>()), 1..4),
        stacks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..4),
        notes in prop::collection::vec("\\PC{0,300}", 1..3),
        segments in prop::collection::vec((
            (0_usize..3, size(), size(), size(), any::<[bool; 2]>(), any::<prop::sample::Index>()),
            prop::collection::vec((size(), size(), size(), 0_usize..3, any::<prop::sample::Index>()), 0..4),
        ), 0..3),
        traces in prop::collection::vec(prop_oneof![9 => trace(0..30), 1 => trace(1001..1003)], 0..3),
        settings in prop::option::of(prop::sample::select(vec!["", "max_split_size_mb:32", "roundup_power2_divisions:[64:8,>:2]", "expandable_segments:True,garbage_collection_threshold:0.25"])),
        annotations in prop::collection::vec(("START|END", "\\PC{0,9}", 0_usize..3, size()), 0..3),
    ) -> Snapshot {
        let mut contexts = Contexts::default();
        let frames: Vec<FrameId> = frames.into_iter().map(|(name, filename, line)| contexts.frame(Frame { name, filename, line })).collect();
        let stacks: Vec<StackId> = stacks.into_iter().map(|stack| {
            contexts.stack(&stack.into_iter().map(|at| *at.get(&frames)).collect::<Vec<_>>())
        }).collect();
        let notes: Vec<NoteId> = notes.into_iter().map(|note| contexts.note(&note)).collect();
        let states = [BlockState::ActiveAllocated, BlockState::ActivePendingFree, BlockState::Inactive];
        Snapshot {
            segments: segments.into_iter().map(|((device, address, total_size, stream, [is_small, is_expandable], stack), blocks)| Segment {
                device, address, total_size, stream, is_small, is_expandable,
                allocated_size: total_size / 2, active_size: 1, requested_size: 2, pool: (0, address),
                stack: *stack.get(&stacks),
                blocks: blocks.into_iter().map(|(address, size, requested_size, state, stack)| Block {
                    address, size, requested_size, state: states[state], stack: *stack.get(&stacks),
                }).collect(),
            }).collect(),
            traces: traces.into_iter().map(|trace| trace.into_iter().map(|(action, address, size, stream, time_us, [stack, note])| Entry {
                action: Action::ALL[action], address, size, stream, time_us,
                stack: *stack.get(&stacks), note: *note.get(&notes),
            }).collect()).collect(),
            settings: settings.map(|text| RecordedSettings {
                alloc_conf: text.to_owned(), settings: Settings::parse(text).unwrap(), error: None,
            }),
            annotations: annotations.into_iter().map(|(stage, name, device, time_us)| Annotation { stage, name, device, time_us }).collect(),
            overflowed: true,
            contexts,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(snapshot in arbitrary()) {
        let mut bytes = Vec::new();
        write(&snapshot, &mut bytes).unwrap();
        let (again, _) = read_bytes(&bytes).unwrap();
        prop_assert_eq!(again, canonical(&snapshot));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_bytes(&bytes);
        let _ = read_bytes(&[b"\x80\x04", bytes.as_slice()].concat());
    }

    #[test]
    fn no_change_of_a_file_makes_the_reader_panic(
        snapshot in arbitrary(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = Vec::new();
        write(&snapshot, &mut bytes).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((snapshot, _)) = read_bytes(&bytes) {
            let settings = snapshot.settings.as_ref().map_or(Settings::default(), |recorded| recorded.settings.clone());
            for device in 0..snapshot.traces.len() {
                let _ = replay::recorded(&snapshot, device, &settings, None);
            }
        }
    }
}
