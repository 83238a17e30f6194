//! What `memlab limit` tells people.

use super::super::format::Format;
use super::super::request::Executed;
use crate::collate::Row;
use crate::limit::{self, Limit};
use crate::protocol::{Axis, DeviceKind, Value};
use crate::units::{MIB, format_bytes};

/// The answer for people: the boundary, the two runs that prove it, the peak of the larger one, and everything that was tried.
pub(super) fn prose(axis: Axis, limit: Limit, executed: &Executed, format: Format) -> String {
    let rows = &executed.collation.rows;
    let row = |value: u64| rows.iter().find(|row| limit::value_of(row, axis) == Some(value));
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let (fits, fails) = match limit {
        Limit::Fits(value) => (row(value), row(value + 1)),
        Limit::HighestFits => (rows.last(), None),
        Limit::NothingFits => (None, rows.first()),
    };
    let any = fits.or(fails).and_then(|row| row.report.as_ref());
    let into = any.and_then(limit::capacity_mib).map_or_else(String::new, |mib| format!(" into {}", size(mib)));
    match limit {
        Limit::Fits(value) => say(&format!("{axis} = {value} fits{into}, {} does not.", value + 1)),
        Limit::HighestFits => say(&format!("Every {axis} that was tried fits{into}.")),
        Limit::NothingFits => say(&format!("No {axis} that was tried fits{into}.")),
    }
    if let Some(row) = fits.or(fails) {
        let gpu = any.and_then(limit::gpu_name).unwrap_or("the GPU");
        let modelled = *row.setting(Axis::Device) == Value::from(DeviceKind::Cpu.name());
        if modelled {
            say(&format!("{gpu}: accounted by a model, nothing computed, and nothing measured on a GPU."));
        } else {
            say(&format!("{gpu}: measured."));
        }
        let words = any.and_then(|report| report.device.as_ref()).map(|device| &device.modelled);
        if let Some(words) = words.and_then(|words| words.iter().find(|words| words.starts_with("not measured"))) {
            say(&format!("Of the model itself, {words}."));
        }
    }
    say("");
    let place = |row: &Row| executed.folder.run(&row.run_id).path().display().to_string();
    if let Some((row, report)) = fits.and_then(|row| Some((row, row.report.as_ref()?))) {
        let reserved = limit::fullest_rank(report).map_or(f64::NAN, |(_, reserved)| reserved);
        let left = limit::margin_mib(report).map_or_else(String::new, |left| format!(", {left:.2} MiB left"));
        say(&format!(
            "- {} fits: {reserved:.2} MiB reserved at most{left}; {}",
            axis.show(row.setting(axis)),
            place(row)
        ));
    }
    if let Some((row, oom)) = fails.and_then(|row| Some((row, row.report.as_ref()?.oom.as_ref()?))) {
        let requested = oom.requested_mib.map_or_else(String::new, |mib| format!("{mib:.2} MiB "));
        let when = if oom.step < 0 { "before training".to_owned() } else { format!("in step {}", oom.step) };
        let value = axis.show(row.setting(axis));
        say(&format!("- {value} does not: {requested}refused {when} during {}; {}", oom.during, place(row)));
    }
    if let Some((row, peak)) = fits.and_then(|row| Some((row, limit::peak(row.report.as_ref()?)?))) {
        let limit::Peak { step, phase, allocated_mib, phases } = peak;
        let value = axis.show(row.setting(axis));
        let when = if step < 0 { "before training".to_owned() } else { format!("in step {step}") };
        say(&format!("\nThe peak of {value} is {allocated_mib:.2} MiB allocated, reached {when} by {phase}:\n"));
        say(format.render(&phases).trim_end());
    }
    say("\nEverything that was tried; values in between are taken to behave like those around them:\n");
    say(format.render(&limit::trials(rows, axis, None)).trim_end());
    text
}

/// MiB in the unit that shows them best.
fn size(mib: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size in MiB, as large as a memory")]
    let bytes = (mib * MIB as f64) as u64;
    if bytes.is_multiple_of(MIB) { format_bytes(bytes) } else { format!("{mib:.2} MiB") }
}
