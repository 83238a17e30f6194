//! How fast the allocator model replays, and how fast and in how much memory a snapshot is read.
//!
//! `cargo bench --no-default-features --bench allocator` prints one line per measurement, as CSV: what was measured, how
//! many things, the seconds, and things per second. Arguments are further snapshots to replay. `benches/results` keeps what was
//! measured, with the machine.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and has nobody to report to")]

use std::fs::File;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use memlab::allocator::{CachingAllocator, Settings, VirtualDevice};
use memlab::snapshot::replay::recorded;
use memlab::snapshot::{Limits, Snapshot, read, write};

const REPETITIONS: usize = 7;
const ROUNDS: usize = 100;

fn main() {
    println!("what,count,seconds,per_second");
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots");
    let mut files: Vec<PathBuf> =
        ["refused", "expandable", "streams"].map(|name| data.join(format!("{name}.pickle"))).into();
    files.extend(std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).map(PathBuf::from));
    for file in &files {
        replay(file);
    }
    let (snapshot, _) = read(File::open(&files[0]).unwrap(), Limits::default()).unwrap();
    large_file(&snapshot);
}

fn line(what: &str, count: usize, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!("{what},{count},{seconds:.4},{:.0}", count as f64 / seconds);
}

/// The program of a recording, on a fresh allocator each round; an event is one entry of the recording.
fn replay(file: &PathBuf) {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let (snapshot, _) = read(File::open(file).unwrap(), Limits::default()).unwrap();
    let settings = snapshot.settings.as_ref().map_or_else(Settings::default, |recorded| recorded.settings.clone());
    let recording = recorded(&snapshot, 0, &settings, None).unwrap();
    let (entries, operations) = (snapshot.traces[0].len(), recording.program.operations.len());
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        for _ in 0..ROUNDS {
            let device = VirtualDevice::new(1 << 40, 0);
            let mut allocator = CachingAllocator::new(settings.clone(), recording.limit, device);
            recording.program.run(&mut allocator, |_, _, _| {});
            black_box(allocator.stats());
        }
        line(&format!("events of {name}"), entries * ROUNDS, started);
    }
    println!("# {name}: {operations} calls of the allocator are {entries} events");
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        black_box(recorded(&snapshot, 0, &settings, recording.limit).unwrap().mismatches);
        line(&format!("events of {name} compared with the recording"), entries, started);
    }
}

/// A pickle of 100 MB, from a file in the page cache.
fn large_file(snapshot: &Snapshot) {
    let mut large = snapshot.clone();
    let trace = large.traces[0].clone();
    let mut bytes = Vec::new();
    while bytes.len() < 100_000_000 {
        bytes.clear();
        let missing = 100_000_000 / (trace.len() * 50);
        for _ in 0..missing.max(1) {
            large.traces[0].extend_from_slice(&trace);
        }
        write(&large, &mut bytes).unwrap();
    }
    let entries = large.traces[0].len();
    drop(large);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file.as_file(), &bytes).unwrap();
    let size = bytes.len();
    drop(bytes);
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        black_box(read(File::open(file.path()).unwrap(), Limits::default()).unwrap());
        line("bytes of a pickle", size, started);
    }
    println!("# the pickle has {entries} entries");
}
