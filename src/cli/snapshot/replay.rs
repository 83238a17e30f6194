//! `memlab snapshot replay`: a recorded history under its own allocator settings, and under others.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::{OutputFormat, damaged};
use crate::allocator::{Settings, Stat, Stats};
use crate::cli::console::{self, Console, Stop};
use crate::collate::{Cell, Column, Table};
use crate::diag::{Diagnostic, Source};
use crate::exit::Exit;
use crate::render;
use crate::snapshot::Snapshot;
use crate::snapshot::replay::{InferredLimit, Recorded, WhatIf, recorded, what_if};
use crate::units::{format_bytes, mib, parse_bytes};

/// Which snapshot, and under what to replay it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab snapshot replay snapshot.pickle
  memlab snapshot replay snapshot.pickle --alloc-conf expandable_segments:True
  memlab snapshot replay snapshot.pickle --capacity 20GiB --alloc-conf max_split_size_mb:64 \\
      --alloc-conf garbage_collection_threshold:0.8

The history is first replayed under its own settings, entry by entry: every address, every segment and every \
refusal of the model is compared with the recording. Then what the program did is done again under each other \
setting.

A snapshot does not record what the process was allowed to reserve. Where requests were refused it is inferred; \
give --capacity where it matters otherwise: the memory fraction times the device's memory, cut to whole bytes.

Exit codes: 0 the model agrees with the recording; 1 it does not; 5 there is no history, or the file is damaged.")]
pub(super) struct Args {
    /// The snapshot: a pickle of `torch.cuda.memory._dump_snapshot()`, or its JSON form
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Settings to try, as `PYTORCH_CUDA_ALLOC_CONF` has them; may be given several times
    #[arg(long, value_name = "TEXT")]
    alloc_conf: Vec<String>,
    /// What the process may reserve: bytes, or a size such as 858.94MiB
    #[arg(long, value_name = "BYTES")]
    capacity: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    format: OutputFormat,
}

/// A device's history, replayed.
struct DeviceReplay {
    device: usize,
    entries: usize,
    alloc_conf: String,
    recorded: Recorded,
    /// The recorded settings again, for what only this way of replaying tells.
    own: WhatIf,
    what_if: Vec<(String, WhatIf)>,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let capacity = args.capacity.as_deref().map(capacity).transpose()?;
    let others = args.alloc_conf.iter().map(|text| settings(text)).collect::<Result<Vec<_>, _>>()?;
    let (snapshot, _) = super::open(&args.file)?;
    let devices: Vec<usize> =
        (0..snapshot.traces.len()).filter(|device| !snapshot.traces[*device].is_empty()).collect();
    if devices.is_empty() {
        return Err(damaged(
            format!("{} has no history to replay", args.file.display()),
            Some("call torch.cuda.memory._record_memory_history() before the program's first allocation"),
        ));
    }
    let mut replays = Vec::new();
    for device in devices {
        let replay = replay(&snapshot, device, capacity, &args.alloc_conf, &others)
            .map_err(|damage| damaged(format!("{}: {damage}", args.file.display()), Some("dump it again")))?;
        replays.push(replay);
    }
    for warning in warnings(&snapshot, &args.alloc_conf, &others, &replays) {
        console.diagnostic(&warning);
    }
    match args.format {
        OutputFormat::Json => {
            let devices = replays.iter().map(DeviceJson::of).collect();
            console.result(&super::json(&ReplayJson { devices })?)?;
        }
        OutputFormat::Table => {
            let devices: Vec<String> = replays.iter().map(text).collect();
            console.result(&devices.join("\n"))?;
        }
    }
    let agrees = replays.iter().all(|replay| replay.recorded.mismatches == 0);
    Ok(if agrees { Exit::Success } else { Exit::Refuted })
}

fn replay(
    snapshot: &Snapshot,
    device: usize,
    capacity: Option<u64>,
    texts: &[String],
    others: &[Settings],
) -> Result<DeviceReplay, crate::snapshot::replay::Damage> {
    let (alloc_conf, settings) = match &snapshot.settings {
        Some(recorded) => (recorded.alloc_conf.clone(), recorded.settings.clone()),
        None => (String::new(), Settings::default()),
    };
    let recorded = recorded(snapshot, device, &settings, capacity)?;
    let limit = recorded.limit;
    let own = what_if(&recorded, settings, limit);
    let run = |(text, settings): (&String, &Settings)| (text.clone(), what_if(&recorded, settings.clone(), limit));
    let what_if = texts.iter().zip(others).map(run).collect();
    Ok(DeviceReplay { device, entries: snapshot.traces[device].len(), alloc_conf, recorded, own, what_if })
}

fn capacity(text: &str) -> Result<u64, Diagnostic> {
    parse_bytes(text).map_err(|error| {
        Diagnostic::error(format!("--capacity '{text}' {error}"))
            .help("give bytes (900659281) or a size (858.94MiB, 80GiB): what the process may reserve")
    })
}

fn settings(text: &str) -> Result<Settings, Diagnostic> {
    Settings::parse(text).map_err(|error| {
        let source = Source { path: "--alloc-conf".into(), text: text.into() };
        let mut diagnostic = Diagnostic::error(error.message).at(&source, error.span, "");
        diagnostic.help = error.help;
        diagnostic
    })
}

fn warnings(snapshot: &Snapshot, texts: &[String], others: &[Settings], replays: &[DeviceReplay]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let limited = replays.iter().any(|replay| replay.recorded.limit.is_some());
    for (text, settings) in texts.iter().zip(others) {
        for message in settings.without_effect(limited) {
            found.push(Diagnostic::warning(format!("--alloc-conf {text}: {message}")));
        }
        if settings.per_process_memory_fraction < 1.0 {
            found.push(
                Diagnostic::warning(format!(
                    "--alloc-conf {text}: the fraction is not used: of what, a snapshot does not say"
                ))
                .help("give --capacity"),
            );
        }
    }
    if let Some(recorded) = &snapshot.settings {
        if let Some(error) = &recorded.error {
            found.push(Diagnostic::warning(format!("the recorded settings '{}': {error}", recorded.alloc_conf)));
        }
        let collects = recorded.settings.garbage_collection_threshold > 0.0;
        if collects && replays.iter().any(|replay| replay.recorded.limit.is_none() && replay.recorded.mismatches > 0) {
            found.push(
                Diagnostic::warning("the recording collects garbage, which depends on what the process may reserve")
                    .help("give --capacity: the memory fraction times the device's memory, cut to whole bytes"),
            );
        }
    } else {
        found.push(Diagnostic::warning("the file does not say how the allocator was set: the defaults are assumed"));
    }
    found
}

fn text(replay: &DeviceReplay) -> String {
    let recorded = &replay.recorded;
    let mut out = format!("Device {}: {} entries", replay.device, replay.entries);
    out.push_str(
        match recorded.mismatches {
            0 => ", and the model does the same at every one of them\n".to_owned(),
            1 => ", and the model differs once\n".to_owned(),
            count => format!(", and the model differs {count} times\n"),
        }
        .as_str(),
    );
    for mismatch in &recorded.described {
        let _ = writeln!(out, "  entry {}: {}; {}", mismatch.entry, mismatch.recorded, mismatch.model);
    }
    for assumption in assumptions(recorded) {
        out.push_str(&assumption);
        out.push('\n');
    }
    let mut table = Table::new(vec![
        Column::new("alloc_conf", "Settings"),
        Column::mib("peak_reserved", "Peak reserved"),
        Column::mib("peak_allocated", "Peak allocated"),
        Column { unit: Some("%"), ..Column::new("fragmentation", "Fragmentation at the peak") }.decimals(1),
        Column::new("retries", "Retries"),
        Column::new("refused", "Refused"),
        Column::new("fits", "Fits"),
    ]);
    let mut row = |name: &str, stats: &Stats, answer: &WhatIf| {
        table.push(vec![
            name.into(),
            mib(stats.reserved_bytes.all.peak).into(),
            mib(stats.allocated_bytes.all.peak).into(),
            (100.0 * answer.fragmentation()).into(),
            Cell::from(stats.num_alloc_retries),
            Cell::from(stats.num_ooms),
            Cell::from(recorded.limit.map(|_| if stats.num_ooms == 0 { "yes" } else { "no" })),
        ]);
    };
    let own = if replay.alloc_conf.is_empty() { "as recorded (the defaults)" } else { &replay.alloc_conf };
    row(own, &recorded.stats, &replay.own);
    for (name, answer) in &replay.what_if {
        row(if name.is_empty() { "the defaults" } else { name }, &answer.stats, answer);
    }
    out.push('\n');
    out.push_str(&render::table(&table, console::width()));
    out
}

/// What had to be assumed, one sentence each.
fn assumptions(recorded: &Recorded) -> Vec<String> {
    let mut found = Vec::new();
    let initial = &recorded.initial;
    if !initial.is_empty() {
        let (segments, blocks) = (initial.segments.len(), initial.freed_later + initial.without_history);
        found.push(format!(
            "The history does not begin at process start: {segments} segments ({}) with {blocks} blocks in use before its \
             first entry are inferred.",
            format_bytes(initial.reserved())
        ));
        if initial.assumed_sizes > 0 {
            found.push(format!(
                "Of these, {} large blocks may be up to 1 MiB larger than assumed: nothing shows where they ended.",
                initial.assumed_sizes
            ));
        }
    }
    if let Some(InferredLimit { at_least, at_most }) = recorded.inferred_limit {
        found.push(format!(
            "The process may reserve between {at_least} and {at_most} bytes: inferred from what was refused \
             (--capacity says it exactly)."
        ));
    }
    found
}

#[derive(Serialize)]
struct ReplayJson {
    devices: Vec<DeviceJson>,
}

#[derive(Serialize)]
struct DeviceJson {
    device: usize,
    from_start: bool,
    entries: usize,
    alloc_conf: String,
    capacity: Option<u64>,
    capacity_inferred: bool,
    assumptions: Vec<String>,
    replayed: ReplayedJson,
    what_if: Vec<WhatIfJson>,
}

#[derive(Serialize)]
struct ReplayedJson {
    #[serde(flatten)]
    stats: StatsJson,
    fragmentation: f64,
    mismatches: u64,
    described: Vec<MismatchJson>,
}

#[derive(Serialize)]
struct MismatchJson {
    entry: usize,
    recorded: String,
    model: String,
}

#[derive(Serialize)]
struct WhatIfJson {
    alloc_conf: String,
    #[serde(flatten)]
    stats: StatsJson,
    fragmentation: f64,
    fits: bool,
    newly_refused: u64,
    newly_granted: u64,
}

/// The counters, named as in `torch.cuda.memory_stats()`, for both pools together.
#[derive(Serialize)]
struct StatsJson {
    allocated_bytes: StatJson,
    reserved_bytes: StatJson,
    active_bytes: StatJson,
    requested_bytes: StatJson,
    inactive_split_bytes: StatJson,
    allocation: StatJson,
    active: StatJson,
    inactive_split: StatJson,
    segments: StatJson,
    oversize_allocations: StatJson,
    oversize_segments: StatJson,
    num_alloc_retries: u64,
    num_ooms: u64,
    num_sync_all_streams: u64,
    num_device_alloc: u64,
    num_device_free: u64,
}

#[derive(Serialize)]
struct StatJson {
    current: u64,
    peak: u64,
    allocated: u64,
    freed: u64,
}

impl DeviceJson {
    fn of(replay: &DeviceReplay) -> Self {
        let recorded = &replay.recorded;
        let described = recorded.described.iter().map(|mismatch| MismatchJson {
            entry: mismatch.entry,
            recorded: mismatch.recorded.clone(),
            model: mismatch.model.clone(),
        });
        let what_if = replay.what_if.iter().map(|(alloc_conf, answer)| WhatIfJson {
            alloc_conf: alloc_conf.clone(),
            stats: StatsJson::of(&answer.stats),
            fragmentation: answer.fragmentation(),
            fits: answer.fits(),
            newly_refused: answer.newly_refused,
            newly_granted: answer.newly_granted,
        });
        Self {
            device: replay.device,
            from_start: recorded.initial.is_empty(),
            entries: replay.entries,
            alloc_conf: replay.alloc_conf.clone(),
            capacity: recorded.limit,
            capacity_inferred: recorded.inferred_limit.is_some(),
            assumptions: assumptions(recorded),
            replayed: ReplayedJson {
                stats: StatsJson::of(&recorded.stats),
                fragmentation: replay.own.fragmentation(),
                mismatches: recorded.mismatches,
                described: described.collect(),
            },
            what_if: what_if.collect(),
        }
    }
}

impl StatsJson {
    fn of(stats: &Stats) -> Self {
        Self {
            allocated_bytes: StatJson::of(&stats.allocated_bytes.all),
            reserved_bytes: StatJson::of(&stats.reserved_bytes.all),
            active_bytes: StatJson::of(&stats.active_bytes.all),
            requested_bytes: StatJson::of(&stats.requested_bytes.all),
            inactive_split_bytes: StatJson::of(&stats.inactive_split_bytes.all),
            allocation: StatJson::of(&stats.allocation.all),
            active: StatJson::of(&stats.active.all),
            inactive_split: StatJson::of(&stats.inactive_split.all),
            segments: StatJson::of(&stats.segment.all),
            oversize_allocations: StatJson::of(&stats.oversize_allocations),
            oversize_segments: StatJson::of(&stats.oversize_segments),
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_sync_all_streams: stats.num_sync_all_streams,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
        }
    }
}

impl StatJson {
    fn of(stat: &Stat) -> Self {
        Self { current: stat.current, peak: stat.peak, allocated: stat.allocated, freed: stat.freed() }
    }
}
