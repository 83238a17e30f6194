//! How fast the allocator model replays recorded histories, and how fast and in how much memory a snapshot is read:
//! `taskset -c 0 cargo bench --no-default-features --bench allocator`: on one core, which the system would move it away from.
//!
//! Prints every single measurement. `benches/allocator.json` holds what it printed last. An event is an entry of the history: an
//! allocation is one, a free is two. `replayed` is the program of a recording done again, as for other settings; `compared`
//! is the whole of what finds that program: every entry against the model, the initial state, the limit. Further snapshots
//! to replay can be named after `--`.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use memlab::allocator::{CachingAllocator, Settings, VirtualDevice};
use memlab::snapshot::replay::recorded;
use memlab::snapshot::{Limits, Snapshot, read, write};

const REPETITIONS: usize = 15;
/// How often a history is replayed within one measurement.
const ROUNDS: usize = 100;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/snapshots");
    let recording = |name: &str| data.join(format!("{name}.pickle"));
    match &args[..] {
        [what, path] if what == "write-large" => return write_large(&recording("refused"), Path::new(path)),
        [what, path] if what == "read-large" => return read_large(Path::new(path)),
        _ => {}
    }
    let mut out = io::stdout().lock();
    writeln!(out, "[")?;
    let recordings = ["refused", "expandable", "streams"].map(recording);
    for file in recordings.into_iter().chain(args.iter().map(PathBuf::from)) {
        writeln!(out, "{},", replay(&file)?)?;
    }
    // Each in a process of its own, so that the peak is the reader's.
    let file = tempfile::NamedTempFile::new()?;
    let run = |what: &str| Command::new(std::env::current_exe()?).arg(what).arg(file.path()).output();
    run("write-large")?;
    out.write_all(&run("read-large")?.stdout)?;
    writeln!(out, "]")
}

fn open(path: &Path) -> io::Result<Snapshot> {
    read(File::open(path)?, Limits::default()).map(|(snapshot, _)| snapshot).map_err(io::Error::other)
}

/// What the program of a recording did, done again from memory on a new allocator each round; and found out from the
/// recording each round.
fn replay(file: &Path) -> io::Result<String> {
    let snapshot = open(file)?;
    let settings = snapshot.settings.as_ref().map_or_else(Settings::default, |recorded| recorded.settings.clone());
    let compare = || recorded(&snapshot, 0, &settings, None).map_err(io::Error::other);
    let recording = compare()?;
    let events = snapshot.traces[0].len() * ROUNDS;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let replayed = measure(|| {
        for _ in 0..ROUNDS {
            let mut allocator =
                CachingAllocator::new(settings.clone(), recording.limit, VirtualDevice::new(1 << 40, 0));
            recording.program.run(&mut allocator, |_, _, _| {});
            black_box(allocator.stats());
        }
        Ok(())
    })?;
    let compared = measure(|| {
        for _ in 0..ROUNDS {
            black_box(compare()?);
        }
        Ok(())
    })?;
    Ok(format!(
        "{{ \"replayed\": \"{name}\", \"events\": {events}, {replayed} }},\n\
         {{ \"compared\": \"{name}\", \"events\": {events}, {compared} }}"
    ))
}

fn write_large(recording: &Path, path: &Path) -> io::Result<()> {
    let mut snapshot = open(recording)?;
    let trace = std::mem::take(&mut snapshot.traces[0]);
    snapshot.traces[0] = trace.iter().copied().cycle().take(2_400_000).collect();
    write(&snapshot, BufWriter::new(File::create(path)?))
}

fn read_large(path: &Path) -> io::Result<()> {
    let bytes = path.metadata()?.len();
    let measured = measure(|| open(path).map(|snapshot| drop(black_box(snapshot))))?;
    let peak = peak_mib()?;
    writeln!(io::stdout(), "{{ \"read_bytes\": {bytes}, \"process_peak_mib\": {peak:.1}, {measured} }}")
}

fn measure(mut work: impl FnMut() -> io::Result<()>) -> io::Result<String> {
    let (mut milliseconds, mut on_cpu) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let (start, cpu) = (Instant::now(), on_cpu_milliseconds()?);
        work()?;
        milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
        on_cpu.push(on_cpu_milliseconds()? - cpu);
    }
    let load = load()?;
    Ok(format!("\"load_average\": {load}, \"milliseconds\": {milliseconds:.1?}, \"on_cpu_milliseconds\": {on_cpu:.1?}"))
}

/// How many processes wanted a processor during the last minute: above the number of cores, wall time says little.
fn load() -> io::Result<String> {
    let averages = std::fs::read_to_string("/proc/loadavg")?;
    Ok(averages.split_whitespace().next().unwrap_or("null").to_owned())
}

/// Time that this process spent on a processor: on a machine with other work, what the work itself costs.
fn on_cpu_milliseconds() -> io::Result<f64> {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds = schedstat.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    Ok(nanoseconds.unwrap_or(f64::NAN) / 1e6)
}

/// The largest resident size of this process so far.
fn peak_mib() -> io::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0)
}
