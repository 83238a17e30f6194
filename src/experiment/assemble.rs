//! From sections to an experiment: typed parts, and what can be checked within one section.

mod hypothesis;

use std::sync::Arc;

use super::builtin::{self, CLASSES, VOCABULARY};
use super::layout::{self, PERTURB};
use super::reader::{Reader, Section};
use super::{Exclude, Experiment, Located, Perturb, Perturbation};
use crate::diag::{Diagnostic, Source};
use crate::protocol::{
    DeviceModel, Indicator, ModelConfig, Selection, SlurmOverride, SlurmSettings, SnapshotSpec, Tolerances, Value,
};

/// History entries kept per rank when `[snapshot]` does not say.
const SNAPSHOT_ENTRIES: u64 = 100_000;

/// Reads a whole experiment file.
pub(super) fn experiment(source: Source) -> Result<Experiment, Vec<Diagnostic>> {
    let mut reader = Reader {
        source: &source,
        typed: false,
        presets: builtin::presets().into_keys().collect(),
        device_models: builtin::device_models().into_keys().collect(),
        problems: Vec::new(),
    };
    let Some(mut root) = reader.document(&layout::EXPERIMENT) else { return Err(reader.problems) };

    let mut experiment = Experiment::single("");
    experiment.name = root.text("name").map(|name| name.value).unwrap_or_default();
    experiment.title = root.text("title").map(|title| title.value);
    experiment.base = root.table("base").map(|base| base.value.settings).unwrap_or_default();
    experiment.sweep = root.table("sweep").map(|sweep| sweep.value.sweep).unwrap_or_default();
    experiment.zips = root.axis_groups("zip").map(|groups| groups.value).unwrap_or_default();
    experiment.perturb = match root.value("perturb").map(|perturb| perturb.value) {
        Some(value) if value == Value::from(PERTURB[1]) => Perturb::Cumulative,
        _ => Perturb::OneAtATime,
    };
    experiment.timeout_seconds =
        root.table("run").and_then(|mut run| run.value.seconds("timeout")).map(|time| time.value);
    experiment.snapshot = root.table("snapshot").map(|section| snapshot(section.value));
    experiment.slurm = root.table("slurm").map(|section| slurm(section.value));
    experiment.baseline = root.table("baseline").map(|section| tolerances(section.value));
    for section in sections(&mut root, "exclude") {
        experiment.excludes.extend(exclude(&mut reader, section));
    }
    for section in sections(&mut root, "perturbation") {
        experiment.perturbations.extend(perturbation(&mut reader, section, &experiment.perturbations));
    }
    for (name, section) in root.named("presets").map(|named| named.value).unwrap_or_default() {
        let known = experiment.presets.contains_key(name.value.as_str());
        if own_name(&mut reader, &name, known, "preset") {
            experiment.presets.extend(preset(&mut reader, section).map(|preset| (Arc::from(name.value), preset)));
        }
    }
    for (name, section) in root.named("device_models").map(|named| named.value).unwrap_or_default() {
        let known = experiment.device_models.contains_key(name.value.as_str());
        if own_name(&mut reader, &name, known, "device model") {
            let model = device_model(&name.value, section);
            experiment.device_models.insert(Arc::from(name.value), Arc::new(model));
        }
    }
    for section in sections(&mut root, "hypothesis") {
        experiment.hypotheses.extend(hypothesis::hypothesis(&mut reader, section));
    }
    let mut problems = reader.problems;
    if problems.is_empty() {
        experiment.source = source;
        return Ok(experiment);
    }
    // Sections are read after what they contain: order by place, as a reader goes through the file.
    problems.sort_by_key(|problem| problem.labels.first().map_or(0, |label| label.span.start));
    Err(problems)
}

fn sections(root: &mut Section, key: &str) -> Vec<Section> {
    root.tables(key).map(|tables| tables.value).unwrap_or_default()
}

fn own_name(reader: &mut Reader<'_>, name: &Located<String>, known: bool, what: &str) -> bool {
    if known {
        let message = format!("the {what} `{}` is built in", name.value);
        reader.problem(name.span.clone(), message, "this name is taken", Some("choose another name".to_owned()));
    }
    !known
}

pub(super) fn snapshot(mut section: Section) -> SnapshotSpec {
    SnapshotSpec { max_entries: section.whole("max_entries").map_or(SNAPSHOT_ENTRIES, |entries| entries.value) }
}

fn tolerances(mut section: Section) -> Tolerances {
    let default = section.tolerance("tolerance").map_or_else(|| Tolerances::default().default, |found| found.value);
    let own = |indicator: &Indicator| Some((*indicator, section.tolerance(indicator.name())?.value));
    let indicators = Indicator::ALL.iter().filter_map(own).collect();
    let slope = section.tolerance("slope").map_or_else(|| Tolerances::default().slope, |found| found.value);
    Tolerances { default, indicators, slope }
}

/// `[slurm]`, or one of its overrides, which has fewer keys.
pub(super) fn slurm(mut section: Section) -> SlurmSettings {
    let overrides = sections(&mut section, "override");
    let text = |section: &mut Section, key: &str| section.text(key).map(|text| text.value);
    let whole = |section: &mut Section, key: &str| section.whole(key).map(|whole| whole.value);
    let lines = |section: &mut Section, key: &str| section.lines(key).map(|lines| lines.value).unwrap_or_default();
    SlurmSettings {
        partition: text(&mut section, "partition"),
        account: text(&mut section, "account"),
        qos: text(&mut section, "qos"),
        constraint: text(&mut section, "constraint"),
        time_seconds: section.seconds("time").map(|time| time.value),
        mem_bytes: whole(&mut section, "mem"),
        mem_per_cpu_bytes: whole(&mut section, "mem_per_cpu"),
        cpus_per_task: whole(&mut section, "cpus_per_task"),
        gpus_per_node: whole(&mut section, "gpus_per_node"),
        gres: text(&mut section, "gres"),
        nodes: whole(&mut section, "nodes"),
        throttle: whole(&mut section, "throttle"),
        runs_per_task: whole(&mut section, "runs_per_task"),
        setup: lines(&mut section, "setup"),
        directives: lines(&mut section, "directives"),
        environment: section.texts("environment").map(|texts| texts.value).unwrap_or_default(),
        container: text(&mut section, "container"),
        launcher: text(&mut section, "launcher"),
        overrides: overrides
            .into_iter()
            .map(|mut section| SlurmOverride {
                within: selection(section.table("where").map(|found| found.value)),
                settings: slurm(section),
            })
            .collect(),
    }
}

fn selection(section: Option<Section>) -> Selection {
    let settings = section.map(|section| section.settings).unwrap_or_default();
    Selection(settings.into_iter().map(|setting| (setting.axis, setting.value)).collect())
}

fn exclude(reader: &mut Reader<'_>, mut section: Section) -> Option<Exclude> {
    let reason = section.text("reason")?.value;
    if section.settings.is_empty() {
        if section.names_an_axis {
            return None;
        }
        let help = "name the values whose points are not run, such as preset = \"medium\"".to_owned();
        reader.problem(section.span, "an [[exclude]] without values excludes everything", "no axis here", Some(help));
        return None;
    }
    Some(Exclude { settings: section.settings, reason: reason.into(), span: section.span })
}

fn perturbation(reader: &mut Reader<'_>, mut section: Section, earlier: &[Perturbation]) -> Option<Perturbation> {
    let label = section.text("label")?;
    if let Some(other) = earlier.iter().find(|other| *other.label.value == *label.value) {
        let problem = Diagnostic::error(format!("two perturbations are called \"{}\"", label.value))
            .at(reader.source, label.span, "again here")
            .at(reader.source, other.label.span.clone(), "first here")
            .help("give each its own label");
        reader.problems.push(problem);
        return None;
    }
    if section.settings.is_empty() && !section.names_an_axis {
        let help = "name an axis and its new value, such as steps = 12".to_owned();
        let message = format!("the perturbation \"{}\" changes nothing", label.value);
        reader.problem(section.span, message, "no axis here", Some(help));
        return None;
    }
    let Located { value, span } = label;
    Some(Perturbation { label: Located { value: value.into(), span }, settings: section.settings })
}

fn preset(reader: &mut Reader<'_>, mut section: Section) -> Option<ModelConfig> {
    let hidden = section.whole("hidden_size");
    let heads = section.whole("attention_heads");
    if let (Some(hidden), Some(heads)) = (&hidden, &heads)
        && !hidden.value.is_multiple_of(heads.value)
    {
        let near = (1..=heads.value).rev().find(|heads| hidden.value.is_multiple_of(*heads)).unwrap_or(1);
        let problem = Diagnostic::error(format!(
            "attention_heads = {} does not divide hidden_size = {}",
            heads.value, hidden.value
        ))
        .at(reader.source, heads.span.clone(), "every head needs the same width")
        .at(reader.source, hidden.span.clone(), "the width that is divided")
        .help(format!("{near} heads would divide it"));
        reader.problems.push(problem);
        return None;
    }
    let mut whole = |key: &str| section.whole(key).map(|whole| whole.value);
    Some(ModelConfig {
        layers: whole("layers")?,
        hidden_size: hidden?.value,
        attention_heads: heads?.value,
        feedforward_size: whole("feedforward_size")?,
        sequence_length: whole("sequence_length")?,
        vocabulary_size: whole("vocabulary_size").unwrap_or(VOCABULARY),
        classes: whole("classes").unwrap_or(CLASSES),
    })
}

/// What is left out follows from the compute capability or is the default device's, and counts as unmeasured.
fn device_model(name: &str, mut section: Section) -> DeviceModel {
    let capability = section.pair("compute_capability");
    let mut unmeasured: Vec<String> =
        capability.is_none().then(|| "compute_capability".to_owned()).into_iter().collect();
    let guess = builtin::of_capability(capability.map_or(builtin::h200().compute_capability, |found| found.value));
    let mut whole = |key: &str, guess: u64| {
        section.whole(key).map_or_else(
            || {
                unmeasured.push(key.to_owned());
                guess
            },
            |found| found.value,
        )
    };
    let context_bytes = whole("context_bytes", guess.context_bytes);
    let multiprocessors = whole("multiprocessors", guess.multiprocessors);
    let blas_workspace_bytes = whole("blas_workspace_bytes", guess.blas_workspace_bytes);
    let memory_bytes = section.whole("memory_bytes").map(|found| found.value);
    let bf16_attention = section.choice("bf16_attention").map_or_else(
        || {
            unmeasured.push("bf16_attention".to_owned());
            guess.bf16_attention
        },
        |found| found.value,
    );
    unmeasured.extend(section.lines("unmeasured").map(|lines| lines.value).unwrap_or_default());
    unmeasured.sort();
    unmeasured.dedup();
    DeviceModel {
        name: name.to_owned(),
        gpu_name: section.text("gpu_name").map_or_else(|| name.to_owned(), |found| found.value),
        memory_bytes,
        context_bytes,
        compute_capability: guess.compute_capability,
        multiprocessors,
        blas_workspace_bytes,
        bf16_attention,
        alloc_conf: section.text("alloc_conf").map(|found| found.value).unwrap_or_default(),
        unmeasured,
    }
}
