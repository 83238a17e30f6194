//! `memlab snapshot summary`: what a snapshot holds.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::{OutputFormat, damaged};
use crate::cli::console::{self, Console, Stop};
use crate::collate::{Cell, Column, Table};
use crate::exit::Exit;
use crate::render;
use crate::snapshot::Format;
use crate::snapshot::summary::{DeviceSummary, Fault, Group, Growth, Origin, Peak, Summary, summarise};
use crate::units::mib;

/// Which snapshot, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab snapshot summary snapshot.pickle
  memlab snapshot summary --top 30 snapshot.pickle
  memlab snapshot summary --format json snapshot.pickle | jq '.devices[0].peak.groups[:3]'

Exit code: 0, and 5 when the file is damaged. Nothing in a file is executed.")]
pub(super) struct Args {
    /// The snapshot: a pickle of `torch.cuda.memory._dump_snapshot()`, or its JSON form
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How many groups of blocks to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "table")]
    format: OutputFormat,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let (snapshot, format) = super::open(&args.file)?;
    let summary = summarise(&snapshot, format)
        .map_err(|damage| damaged(format!("{}: {damage}", args.file.display()), Some("dump it again")))?;
    match args.format {
        OutputFormat::Json => console.result(&super::json(&SummaryJson::of(&summary, format))?)?,
        OutputFormat::Table => console.result(&text(&summary, args.top))?,
    }
    Ok(Exit::Success)
}

fn text(summary: &Summary, top: usize) -> String {
    let mut out = String::new();
    if summary.devices.is_empty() {
        out.push_str("no device has segments or a history\n");
    }
    for device in &summary.devices {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&device_text(device, top));
    }
    let faults: Vec<&Fault> =
        summary.faults.iter().chain(summary.devices.iter().flat_map(|device| &device.faults)).collect();
    if !faults.is_empty() {
        out.push_str("\nTo know about this file:\n");
        for fault in faults {
            out.push_str("- ");
            out.push_str(&fault.message);
            out.push_str("; ");
            out.push_str(fault.help);
            out.push('\n');
        }
    }
    out
}

fn device_text(device: &DeviceSummary, top: usize) -> String {
    let mut out = format!("Device {}\n", device.device);
    let mut table =
        Table::new(vec![Column::new("what", "At the end"), Column::mib("mib", ""), Column::new("note", "")]);
    let mut row = |what: &str, bytes: u64, note: &str| table.push(vec![what.into(), mib(bytes).into(), note.into()]);
    row("reserved", device.reserved, &format!("{} segments", device.segments));
    row("allocated", device.allocated, "blocks that the program holds");
    row("active", device.active, "and those that wait for a stream");
    row("slack", device.slack, "what active blocks are larger than what was asked for");
    row("inactive split", device.inactive_split, "free, beside blocks in use: cannot be given back");
    row("inactive whole", device.inactive_whole, "free segments: can be given back");
    row("largest free block", device.largest_free, "");
    if let Some(request) = device.largest_request {
        row("largest request", request, "of the history");
    }
    out.push_str(&render::table(&table, console::width()));
    if let Some(peak) = &device.peak {
        let note = if peak.note.is_empty() { String::new() } else { format!(", in phase {}", peak.note) };
        let held = mib(peak.requested);
        let (entry, entries) = (peak.entry, device.entries);
        let _ = writeln!(out, "\nAlive at the peak: {held:.2} MiB asked for, at entry {entry} of {entries}{note}\n");
        out.push_str(&groups_text(peak.groups.iter().map(|group| (group, None)), top));
        if peak.groups.len() > top {
            let _ = writeln!(out, "and {} more groups (--top)", peak.groups.len() - top);
        }
        if device.growth.is_empty() {
            out.push_str("\nNothing keeps accumulating: no group was allocated throughout the history and kept.\n");
        } else {
            out.push_str("\nWhat keeps accumulating: allocated throughout the history, and kept to its end\n\n");
            out.push_str(&groups_text(device.growth.iter().map(|growth| (&growth.group, Some(growth.parts))), top));
        }
    }
    out
}

fn groups_text<'a>(groups: impl Iterator<Item = (&'a Group, Option<u32>)>, top: usize) -> String {
    let mut table = Table::new(vec![
        Column::mib("requested", "Asked for"),
        Column::new("blocks", "Blocks"),
        Column::new("origin", "From"),
    ]);
    for (group, parts) in groups.take(top) {
        let parts = parts.map_or(String::new(), |parts| format!(", in {parts} of 8 parts of the history"));
        let origin = match &group.origin {
            Origin::Size(size) => format!("blocks of {size} bytes{parts}"),
            Origin::Before => "before the history".to_owned(),
            Origin::Stack(places) => format!("{}{parts}", short(places)),
        };
        table.push(vec![mib(group.requested).into(), Cell::from(group.blocks), origin.into()]);
    }
    render::table(&table, console::width())
}

/// The innermost place, and the innermost one that is not `PyTorch`'s own.
fn short(places: &[String]) -> String {
    let Some(first) = places.first() else { return "nowhere".to_owned() };
    match places.iter().find(|place| !is_pytorch(place)) {
        Some(own) if own != first => format!("{first}, called from {own}"),
        _ => first.clone(),
    }
}

fn is_pytorch(place: &str) -> bool {
    place.contains("(torch/") || place.contains("/torch/")
}

#[derive(Serialize)]
struct SummaryJson<'a> {
    format: String,
    devices: Vec<DeviceJson<'a>>,
    faults: Vec<FaultJson<'a>>,
}

#[derive(Serialize)]
struct DeviceJson<'a> {
    device: usize,
    segments: usize,
    reserved_bytes: u64,
    allocated_bytes: u64,
    active_bytes: u64,
    slack_bytes: u64,
    inactive_split_bytes: u64,
    inactive_whole_bytes: u64,
    largest_free_block_bytes: u64,
    largest_request_bytes: Option<u64>,
    entries: usize,
    from_start: bool,
    duration_us: u64,
    peak: Option<PeakJson<'a>>,
    growth: Vec<GroupJson<'a>>,
    faults: Vec<FaultJson<'a>>,
}

#[derive(Serialize)]
struct PeakJson<'a> {
    entry: usize,
    requested_bytes: u64,
    note: &'a str,
    groups: Vec<GroupJson<'a>>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    requested_bytes: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts_of_8: Option<u32>,
}

#[derive(Serialize)]
struct FaultJson<'a> {
    name: &'a str,
    message: &'a str,
    help: &'a str,
}

impl<'a> SummaryJson<'a> {
    fn of(summary: &'a Summary, format: Format) -> Self {
        Self {
            format: match format {
                Format::Pickle(protocol) => format!("pickle protocol {protocol}"),
                Format::Json => "json".to_owned(),
            },
            devices: summary.devices.iter().map(DeviceJson::of).collect(),
            faults: FaultJson::all(&summary.faults),
        }
    }
}

impl<'a> DeviceJson<'a> {
    fn of(device: &'a DeviceSummary) -> Self {
        Self {
            device: device.device,
            segments: device.segments,
            reserved_bytes: device.reserved,
            allocated_bytes: device.allocated,
            active_bytes: device.active,
            slack_bytes: device.slack,
            inactive_split_bytes: device.inactive_split,
            inactive_whole_bytes: device.inactive_whole,
            largest_free_block_bytes: device.largest_free,
            largest_request_bytes: device.largest_request,
            entries: device.entries,
            from_start: device.from_start,
            duration_us: device.duration_us,
            peak: device.peak.as_ref().map(PeakJson::of),
            growth: device.growth.iter().map(GroupJson::growing).collect(),
            faults: FaultJson::all(&device.faults),
        }
    }
}

impl<'a> PeakJson<'a> {
    fn of(peak: &'a Peak) -> Self {
        Self {
            entry: peak.entry,
            requested_bytes: peak.requested,
            note: &peak.note,
            groups: peak.groups.iter().map(GroupJson::of).collect(),
        }
    }
}

impl<'a> GroupJson<'a> {
    fn of(group: &'a Group) -> Self {
        let (size, stack) = match &group.origin {
            Origin::Size(size) => (Some(*size), None),
            Origin::Stack(places) => (None, Some(places.as_slice())),
            Origin::Before => (None, None),
        };
        Self { requested_bytes: group.requested, blocks: group.blocks, size, stack, parts_of_8: None }
    }

    fn growing(growth: &'a Growth) -> Self {
        Self { parts_of_8: Some(growth.parts), ..Self::of(&growth.group) }
    }
}

impl<'a> FaultJson<'a> {
    fn all(faults: &'a [Fault]) -> Vec<Self> {
        faults.iter().map(|fault| Self { name: fault.name, message: &fault.message, help: fault.help }).collect()
    }
}
