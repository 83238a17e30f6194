//! What a sweep costs beside its runs, and how long collating takes: `cargo bench --no-default-features --bench sweep`.
//!
//! The worker is this program itself: it writes a report of the usual size at once. `bare` starts it as often, two at a time,
//! without memlab; what `sweep` takes longer is memlab's own. `resume` is the same sweep again, with every run finished. Prints
//! every single measurement; `benches/sweep.json` holds what it printed last.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use memlab::protocol::{Event, Outcome, Probe, Report, Request, SCHEMA_VERSION};
use memlab::store;

/// A report of one rank and six steps.
const REPORT: &str = include_str!("../tests/data/reports/alpha-small-b4-s6-fp32.json");
const BUILD: &str = "does nothing";
const LIBTORCH: &str = "2.11.0";
const JOBS: usize = 2;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("probe") => return probe(),
        Some("run") => return run(),
        _ => {}
    }
    let mut out = io::stdout().lock();
    writeln!(out, "[")?;
    for (runs, repetitions) in [(1_000, 5), (10_000, 3)] {
        let place = tempfile::tempdir()?;
        std::fs::write(
            place.path().join("many.toml"),
            format!(
                "name = \"many\"\n[base]\ncase = \"alpha\"\n[sweep]\nseed = {{ from = 1, to = {runs}, step = 1 }}\n"
            ),
        )?;
        let memlab = |args: &[&str]| time(|| memlab(place.path(), args));
        let jobs = JOBS.to_string();
        let sweep = ["sweep", "--yes", "--jobs", &jobs, "many.toml"];
        let mut measure = |what: &str, repetitions: usize, measured: &dyn Fn() -> io::Result<f64>| {
            let seconds = (0..repetitions).map(|_| measured()).collect::<io::Result<Vec<_>>>()?;
            let load = load()?;
            write!(out, "{{ \"what\": \"{what}\", \"runs\": {runs}, \"load_average\": {load}, ")?;
            writeln!(out, "\"seconds\": {seconds:.3?} }},")
        };
        measure("sweep", 1, &|| memlab(&sweep))?;
        measure("bare", 1, &|| time(|| bare(&place.path().join("runs/many"))))?;
        measure("resume", repetitions, &|| memlab(&sweep))?;
        measure("collate", 3 * repetitions, &|| memlab(&["collate", "runs/many"]))?;
    }
    writeln!(out, "{{ \"jobs\": {JOBS} }}\n]")
}

fn time(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn memlab(folder: &Path, args: &[&str]) -> io::Result<()> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memlab"));
    command.args(args).arg("--quiet").current_dir(folder).env("MEMLAB_WORKER", std::env::current_exe()?);
    let output = command.stdin(Stdio::null()).output()?;
    let said = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    if output.status.success() { Ok(()) } else { Err(said()) }
}

/// Every run of the folder once more, as a loop would do it that keeps nothing but the report.
fn bare(folder: &Path) -> io::Result<()> {
    let worker = std::env::current_exe()?;
    let mut requests = Vec::new();
    for run in std::fs::read_dir(folder)? {
        let report = run?.path().join("report.json");
        if let Ok(text) = std::fs::read_to_string(&report) {
            let known: Report = serde_json::from_str(&text).map_err(io::Error::other)?;
            requests.push((report, known));
        }
    }
    let next = AtomicUsize::new(0);
    let take = || -> io::Result<()> {
        while let Some((report, known)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut child = Command::new(&worker).arg("run").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
            let Some(spec) = &known.spec else { continue };
            let request = Request {
                schema_version: SCHEMA_VERSION,
                run_id: known.run_id.clone().unwrap_or_default(),
                attempt: 1,
                spec: spec.clone(),
                report: report.clone(),
                status: None,
                snapshot: None,
                overwrite: [true; 2],
                time_limit_seconds: None,
                provenance: known.provenance.clone().unwrap_or_default(),
            };
            if let Some(stdin) = &mut child.stdin {
                serde_json::to_writer(&mut *stdin, &request)?;
                stdin.write_all(b"\n")?;
            }
            child.wait()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..JOBS).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("panicked"))))
    })
}

/// The worker's part: what this machine can do.
fn probe() -> io::Result<()> {
    let probe = Probe {
        schema_version: SCHEMA_VERSION,
        worker_build: BUILD.to_owned(),
        libtorch_version: LIBTORCH.to_owned(),
        cuda_version: None,
        gpus: Vec::new(),
        cuda_unavailable: Some("it does nothing".to_owned()),
    };
    Ok(serde_json::to_writer(io::stdout(), &probe)?)
}

/// The worker's part: a report at once.
fn run() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let Request { run_id, spec, report: path, provenance, .. } = serde_json::from_str(&line)?;
    let mut report: Report = serde_json::from_str(REPORT)?;
    report.seed = spec.seed;
    report.schema_version = Some(SCHEMA_VERSION);
    report.run_id = Some(run_id);
    report.spec = Some(spec);
    report.outcome = Some(Outcome::Ok);
    report.libtorch_version = Some(LIBTORCH.to_owned());
    report.worker_build = Some(BUILD.to_owned());
    report.provenance = Some(provenance);
    let text = serde_json::to_vec_pretty(&report)?;
    store::write_atomic_soon(&path, &text).map_err(|error| io::Error::other(error.message))?;
    let mut out = io::stdout();
    serde_json::to_writer(&mut out, &Event::End { outcome: Outcome::Ok, message: None })?;
    writeln!(out)
}

/// How many processes wanted a processor during the last minute: above the number of cores, wall time says little.
fn load() -> io::Result<String> {
    let averages = std::fs::read_to_string("/proc/loadavg")?;
    Ok(averages.split_whitespace().next().unwrap_or("null").to_owned())
}
