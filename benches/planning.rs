//! How long planning takes, and how much memory: `cargo bench --no-default-features --bench planning`.
//!
//! Reads and expands grids of 1,000, 10,000 and 100,000 runs over four axes, many times each, and prints every single time.
//! `benches/planning.json` holds what it printed last.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use memlab::experiment;
use memlab::plan::{Host, expand};
use memlab::protocol::DeviceKind;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "[")?;
    for (at, (seeds, repetitions)) in [(50, 50), (500, 20), (5_000, 10)].into_iter().enumerate() {
        // 2 presets, 2 precisions, 5 batch sizes: 20 runs for each seed.
        let text = format!(
            "name = \"many\"\n[base]\ncase = \"beta\"\ndevice = \"cpu\"\n[sweep]\npreset = [\"small\", \"medium\"]\n\
             precision = [\"fp32\", \"bf16\"]\nbatch_size = [1, 2, 4, 8, 16]\nseed = {{ from = 1, to = {seeds}, step = 1 }}\n"
        );
        let mut runs = 0;
        let (mut milliseconds, mut on_cpu) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let (start, cpu) = (Instant::now(), on_cpu_milliseconds()?);
            let plan = experiment::parse(Path::new("many.toml"), &text)
                .and_then(|experiment| expand(&experiment, &Host { device: DeviceKind::Cpu, gpus: 0 }))
                .map_err(|problems| std::io::Error::other(format!("{problems:?}")))?;
            milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
            on_cpu.push(on_cpu_milliseconds()? - cpu);
            runs = plan.runs.len();
        }
        let comma = if at == 0 { "" } else { ",\n" };
        let peak = peak_mib()?;
        write!(out, "{comma}{{ \"runs\": {runs}, \"process_peak_mib\": {peak:.1}, \"load_average\": {}, ", load()?)?;
        write!(out, "\"milliseconds\": {milliseconds:.2?}, \"on_cpu_milliseconds\": {on_cpu:.2?} }}")?;
    }
    writeln!(out, "\n]")
}

/// How many processes wanted a processor during the last minute: above the number of cores, wall time says little.
fn load() -> std::io::Result<String> {
    let averages = std::fs::read_to_string("/proc/loadavg")?;
    Ok(averages.split_whitespace().next().unwrap_or("null").to_owned())
}

/// Time that this process spent on a processor: on a machine with other work, what planning itself costs.
fn on_cpu_milliseconds() -> std::io::Result<f64> {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds = schedstat.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    Ok(nanoseconds.unwrap_or(f64::NAN) / 1e6)
}

/// The largest resident size of this process so far.
fn peak_mib() -> std::io::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0)
}
