//! `--set KEY=VALUE`: the same language as the file's, one assignment at a time, with the same messages.

use super::layout::ASSIGNMENT;
use super::reader::Reader;
use super::{Experiment, assemble};
use crate::diag::{Diagnostic, Source};

/// Changes the experiment. Relations between its parts are the caller's to check.
pub(super) fn set(experiment: &mut Experiment, assignment: &str) -> Result<(), Vec<Diagnostic>> {
    let Some((key, value)) = assignment.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        let error = Diagnostic::error(format!("--set {assignment} assigns nothing"));
        return Err(vec![error.help("write KEY=VALUE, such as --set steps=12")]);
    };
    let text = format!("{} = {}", key.trim(), as_toml(value.trim()));
    let source = Source { path: "--set".into(), text: text.into() };
    let mut reader = Reader {
        source: &source,
        typed: true,
        presets: experiment.presets.keys().cloned().collect(),
        device_models: experiment.device_models.keys().cloned().collect(),
        problems: Vec::new(),
    };
    let section = reader.document(&ASSIGNMENT);
    let (Some(mut section), true) = (section, reader.problems.is_empty()) else { return Err(reader.problems) };

    for setting in section.settings.drain(..) {
        let axis = setting.axis;
        experiment.sweep.retain(|swept| swept.axis != axis);
        for group in &mut experiment.zips {
            group.retain(|zipped| zipped.value != axis);
        }
        experiment.zips.retain(|group| group.len() > 1);
        experiment.base.retain(|other| other.axis != axis);
        experiment.base.push(setting);
    }
    for swept in section.sweep.drain(..) {
        match experiment.sweep.iter_mut().find(|other| other.axis == swept.axis) {
            Some(other) => *other = swept,
            None => experiment.sweep.push(swept),
        }
    }
    if let Some(timeout) = section.table("run").and_then(|mut run| run.value.seconds("timeout")) {
        experiment.timeout_seconds = Some(timeout.value);
    }
    if let Some(snapshot) = section.table("snapshot") {
        experiment.snapshot = Some(assemble::snapshot(snapshot.value));
    }
    if let Some(slurm) = section.table("slurm") {
        let known = experiment.slurm.take().unwrap_or_default();
        experiment.slurm = Some(known.overlaid(assemble::slurm(slurm.value)));
    }
    Ok(())
}

/// What was typed as a TOML value: as it is where it is one, else as text. Times and dates are text here (`slurm.time=00:10:00`).
fn as_toml(value: &str) -> String {
    let is_value = toml::de::DeTable::parse(&format!("value = {value}")).is_ok_and(|table| {
        table.get_ref().len() == 1 && table.get_ref().values().all(|value| !value.get_ref().is_datetime())
    });
    if is_value { value.to_owned() } else { toml::Value::from(value).to_string() }
}
