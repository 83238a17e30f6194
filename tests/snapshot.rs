//! `memlab snapshot` as a user meets it, on histories recorded on one H200 (their times are left out to save room).

mod support;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use memlab::allocator::Action;
use memlab::snapshot::{Limits, Snapshot, read, write};
use serde_json::Value;
use support::{Folder, data};

fn snapshot(name: &str) -> String {
    data(&format!("snapshots/{name}.pickle")).to_string_lossy().into_owned()
}

fn load(path: impl AsRef<Path>) -> Snapshot {
    read(File::open(path).expect("the snapshot is there"), Limits::default()).expect("it is a snapshot").0
}

fn save(folder: &Folder, name: &str, snapshot: &Snapshot) {
    let mut bytes = Vec::new();
    write(snapshot, &mut bytes).expect("memory takes it");
    std::fs::write(folder.path().join(name), bytes).expect("the folder takes it");
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the output is JSON")
}

/// What the process was allowed to reserve, and the counters at its end.
fn recorded(name: &str) -> (String, Value) {
    let file = File::open(data(&format!("snapshots/{name}.stats.json"))).expect("the counters are there");
    let stats: Value = serde_json::from_reader(file).expect("they are JSON");
    let bytes = stats["fraction"].as_f64().unwrap_or(0.0) * stats["device_total"].as_f64().unwrap_or(0.0);
    (format!("{}", bytes.floor()), stats["stats"].clone())
}

#[test]
fn recordings_are_reproduced_counter_by_counter() {
    for name in ["refused", "expandable", "streams"] {
        let (capacity, stats) = recorded(name);
        let file = snapshot(name);
        let mut args = vec!["snapshot", "replay", &file, "--format", "json"];
        if capacity != "0" {
            args.extend(["--capacity", &capacity]);
        }
        let output = parse(&Folder::new().memlab(&args).expect(0).stdout);
        let device = &output["devices"][0];
        assert_eq!(device["from_start"], true, "{name}");
        let replayed = &device["replayed"];
        assert_eq!(replayed["mismatches"], 0, "{name}");
        for counter in ["num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"]
        {
            assert_eq!(replayed[counter], stats[counter], "{name} {counter}");
        }
        for counter in [
            "allocated_bytes",
            "reserved_bytes",
            "active_bytes",
            "requested_bytes",
            "inactive_split_bytes",
            "allocation",
            "active",
            "inactive_split",
            "segment",
        ] {
            let key = if counter == "segment" { "segments" } else { counter };
            for what in ["current", "peak", "allocated", "freed"] {
                assert_eq!(replayed[key][what], stats[format!("{counter}.all.{what}")], "{name} {counter} {what}");
            }
        }
    }
}

#[test]
fn a_replay_is_a_table_with_a_line_for_each_setting() {
    let done = Folder::new()
        .memlab(&[
            "snapshot",
            "replay",
            &snapshot("refused"),
            "--alloc-conf",
            "expandable_segments:True",
            "--alloc-conf",
            "garbage_collection_threshold:0.6,roundup_power2_divisions:1",
        ])
        .expect(0);
    insta::assert_snapshot!(done.stdout);
    insta::assert_snapshot!(done.stderr, @"warning: --alloc-conf garbage_collection_threshold:0.6,roundup_power2_divisions:1: one division in roundup_power2_divisions has no effect: sizes round to 512 bytes");
}

#[test]
fn a_recording_that_the_model_does_not_reproduce_ends_with_1() {
    let folder = Folder::new();
    let mut changed = load(snapshot("streams"));
    let entry =
        changed.traces[0].iter_mut().filter(|entry| entry.action == Action::Alloc).nth(100).expect("it is long");
    entry.size += 4096;
    save(&folder, "changed.pickle", &changed);
    let done = folder.memlab(&["snapshot", "replay", "changed.pickle", "--format", "json"]).expect(1);
    let replayed = &parse(&done.stdout)["devices"][0]["replayed"];
    assert!(replayed["mismatches"].as_u64() > Some(0));
    assert!(replayed["described"][0]["recorded"].as_str().is_some_and(|text| text.starts_with("alloc of")));
    let done = folder.memlab(&["snapshot", "replay", "changed.pickle"]).expect(1);
    assert!(done.stdout.contains("and the model differs"), "{}", done.stdout);
}

#[test]
fn garbage_collection_without_a_capacity_says_what_is_missing() {
    let folder = Folder::new();
    let mut changed = load(snapshot("refused"));
    let recorded = changed.settings.as_mut().expect("the settings are recorded");
    recorded.settings.garbage_collection_threshold = 0.5;
    // Nothing refused: nothing to infer the capacity from.
    let first = changed.traces[0].iter().position(|entry| entry.action == Action::Oom).expect("one is refused");
    changed.traces[0].truncate(first);
    changed.segments.clear();
    let at = changed.traces[0].iter().position(|entry| entry.action == Action::SegmentAlloc).expect("one is reserved");
    let mut free = changed.traces[0][at];
    free.action = Action::SegmentFree;
    changed.traces[0].push(free);
    save(&folder, "gc.pickle", &changed);
    let done = folder.memlab(&["snapshot", "replay", "gc.pickle"]).expect(1);
    insta::assert_snapshot!(done.stderr, @r"
    warning: the recording collects garbage, which depends on what the process may reserve
     |
     = help: give --capacity: the memory fraction times the device's memory, cut to whole bytes
    ");
}

#[test]
fn a_history_that_begins_later_is_replayed_from_an_inferred_state() {
    let folder = Folder::new();
    for name in ["refused", "expandable", "streams"] {
        let mut later = load(snapshot(name));
        let half = later.traces[0].len() / 2;
        // Not in the middle of a request.
        let start = (half..later.traces[0].len())
            .find(|at| later.traces[0][*at - 1].action == Action::Alloc)
            .expect("one follows");
        later.traces[0].drain(..start);
        save(&folder, "later.pickle", &later);
        let (capacity, _) = recorded(name);
        let mut args = vec!["snapshot", "replay", "later.pickle", "--format", "json"];
        if capacity != "0" {
            args.extend(["--capacity", &capacity]);
        }
        let done = folder.memlab(&args);
        let output = parse(&done.stdout);
        let device = &output["devices"][0];
        assert_eq!(device["from_start"], false, "{name}");
        assert!(device["assumptions"][0].as_str().is_some_and(|text| text.contains("inferred")), "{name}");
        insta::assert_snapshot!(
            format!("later_{name}"),
            format!(
                "exit {}, {} of {} entries differ\n{}",
                done.code, device["replayed"]["mismatches"], device["entries"], device["assumptions"]
            )
        );
    }
}

#[test]
fn a_summary_says_what_is_there_and_what_is_wrong() {
    let folder = Folder::new();
    insta::assert_snapshot!(
        "summary",
        folder.memlab(&["snapshot", "summary", &snapshot("streams"), "--top", "4"]).expect(0).stdout
    );
    let mut later = load(snapshot("streams"));
    later.traces[0].drain(..2032);
    later.segments[0].blocks.pop();
    later.settings = None;
    save(&folder, "later.pickle", &later);
    let done = folder.memlab(&["snapshot", "summary", "later.pickle", "--format", "json"]).expect(0);
    let output = parse(&done.stdout);
    let names = |faults: &Value| -> Vec<String> {
        let faults = faults.as_array().expect("a list").iter();
        faults.map(|fault| fault["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(&output["faults"]), ["no_settings"]);
    assert_eq!(
        names(&output["devices"][0]["faults"]),
        ["blocks_do_not_fill_segment", "frees_without_allocation", "history_may_have_overflowed"]
    );
    let mut lasting = load(snapshot("streams"));
    lasting.traces[0].retain(|entry| entry.action == Action::SegmentAlloc);
    lasting.segments[0].blocks[0].state = memlab::allocator::BlockState::ActiveAllocated;
    save(&folder, "lasting.pickle", &lasting);
    let done = folder.memlab(&["snapshot", "summary", "lasting.pickle"]).expect(0);
    assert!(done.stdout.contains("in use without a history; record from process start"), "{}", done.stdout);
    let mut lost = load(snapshot("streams"));
    lost.overflowed = true;
    save(&folder, "lost.pickle", &lost);
    let done = folder.memlab(&["snapshot", "summary", "lost.pickle"]).expect(0);
    assert!(done.stdout.contains("older entries were lost; record with a larger max_entries"), "{}", done.stdout);
    let mut empty = load(snapshot("streams"));
    empty.traces.clear();
    save(&folder, "empty.pickle", &empty);
    let done = folder.memlab(&["snapshot", "summary", "empty.pickle"]).expect(0);
    assert!(done.stdout.contains("there is no history"), "{}", done.stdout);
}

#[test]
fn what_cannot_be_done_is_said_with_its_remedy() {
    let folder = Folder::new();
    folder.write("text.pickle", "hello");
    folder.write("other.json", "{\"a\": 1}");
    let mut empty = load(snapshot("streams"));
    empty.traces.clear();
    save(&folder, "empty.pickle", &empty);
    let mut impossible = load(snapshot("streams"));
    impossible.traces[0][7].size = u64::MAX;
    save(&folder, "impossible.pickle", &impossible);
    let whole = std::fs::read(snapshot("streams")).expect("it is there");
    std::fs::write(folder.path().join("cut.pickle"), &whole[..whole.len() / 2]).expect("the folder takes it");
    let streams = snapshot("streams");
    let cases: [(i32, &[&str]); 10] = [
        (2, &["summary", "nowhere.pickle"]),
        (2, &["replay", "nowhere.pickle"]),
        (5, &["summary", "text.pickle"]),
        (5, &["summary", "other.json"]),
        (5, &["summary", "cut.pickle"]),
        (5, &["replay", "empty.pickle"]),
        (5, &["replay", "impossible.pickle"]),
        (2, &["replay", &streams, "--capacity", "much"]),
        (2, &["replay", &streams, "--alloc-conf", "max_split_size_mb:19"]),
        (2, &["replay", &streams, "--alloc-conf", "expandable_segment:True"]),
    ];
    let texts = cases.map(|(code, args)| {
        let done = folder.memlab(&[&["snapshot"], args].concat()).expect(code);
        format!("{code}: {}", done.stderr)
    });
    insta::assert_snapshot!(texts.join("\n"));
}

/// Runs a Python program in the folder.
fn python(folder: &Folder, program: &str, args: &[&str]) -> String {
    let done = Command::new("python3").arg("-c").arg(program).args(args).current_dir(folder.path()).output();
    let done = support::Done::of(done.expect("python3 is there"));
    done.expect(0).stdout
}

#[test]
fn every_protocol_and_json_are_the_same_snapshot() {
    let folder = Folder::new();
    python(
        &folder,
        "import json, pickle, sys
snapshot = pickle.load(open(sys.argv[1], 'rb'))
for protocol in 2, 3, 4, 5:
    pickle.dump(snapshot, open(f'p{protocol}.pickle', 'wb'), protocol)
json.dump(snapshot, open('p.json', 'w'))",
        &[&snapshot("streams")],
    );
    let expected = load(snapshot("streams"));
    for name in ["p2.pickle", "p3.pickle", "p4.pickle", "p5.pickle", "p.json"] {
        assert_eq!(load(folder.path().join(name)), expected, "{name}");
    }
    let done = folder.memlab(&["snapshot", "summary", "p5.pickle"]).expect(0);
    assert!(done.stdout.contains("protocol 5, which the official viewer refuses"), "{}", done.stdout);
}

#[test]
fn python_reads_what_is_written_and_finds_only_what_the_viewer_knows() {
    let folder = Folder::new();
    save(&folder, "again.pickle", &load(snapshot("expandable")));
    let said = python(
        &folder,
        "import pickle, pickletools, sys
def neutral(snapshot):
    for trace in snapshot['device_traces']:
        for entry in trace:
            for key in 'time_us', 'compile_context', 'user_metadata':
                entry.pop(key, None)
    for key in list(snapshot['allocator_settings']):
        if key.startswith('pinned') or key in ('release_lock_on_cudamalloc', 'graph_capture_record_stream_reuse'):
            del snapshot['allocator_settings'][key]
    return snapshot
first, again = (neutral(pickle.load(open(name, 'rb'))) for name in (sys.argv[1], 'again.pickle'))
print('equal' if first == again else 'different')
viewer = '''PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE
EMPTY_LIST EMPTY_DICT EMPTY_TUPLE APPEND APPENDS SETITEM SETITEMS TUPLE TUPLE1 TUPLE2 TUPLE3 LIST DICT BINPUT LONG_BINPUT
BINGET LONG_BINGET MEMOIZE'''.split()
used = [opcode.name for opcode, _, _ in pickletools.genops(open('again.pickle', 'rb'))]
print(sorted(set(used) - set(viewer)))
batch = longest = 0
for name in used:
    batch = 0 if name in ('MARK', 'APPENDS') else batch + (name == 'SETITEMS')
    longest = max(longest, batch)
print(longest <= 1000)",
        &[&snapshot("expandable")],
    );
    assert_eq!(said, "equal\n[]\nTrue\n");
}

#[test]
fn nothing_in_a_file_is_executed() {
    let folder = Folder::new();
    python(
        &folder,
        "import os, pickle
class Trap:
    def __reduce__(self):
        return os.system, ('touch executed',)
for protocol in 2, 3, 4, 5:
    pickle.dump({'segments': [], 'device_traces': [[Trap()]]}, open(f't{protocol}.pickle', 'wb'), protocol)",
        &[],
    );
    for protocol in 2..=5 {
        let done = folder.memlab(&["snapshot", "summary", &format!("t{protocol}.pickle")]).expect(5);
        assert!(done.stderr.contains("would name or call code at offset"), "{}", done.stderr);
    }
    assert!(!folder.path().join("executed").exists());
}
