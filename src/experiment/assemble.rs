//! From sections to an experiment: typed parts, and what can be checked within one section.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::builtin::{self, CLASSES, VOCABULARY};
use super::layout::{self, PERTURB, TRENDS};
use super::reader::{Reader, Section};
use super::{Exclude, Experiment, Located, Perturb, Perturbation, WrittenHypothesis};
use crate::diag::{Diagnostic, Source};
use crate::protocol::{
    Bounds, DeviceModel, Expectation, Hypothesis, Indicator, KnownFailure, Measure, ModelConfig, Phase, Quantity,
    Selection, SlurmOverride, SlurmSettings, SnapshotSpec, Stimulus, Tolerance, Tolerances, Trend, Value,
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
        experiment.hypotheses.extend(hypothesis(&mut reader, section));
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
    Tolerances { default, indicators: Indicator::ALL.iter().filter_map(own).collect() }
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

fn hypothesis(reader: &mut Reader<'_>, mut section: Section) -> Option<WrittenHypothesis> {
    let span = section.span.start..section.end;
    let header = section.span.clone();
    let mut places = BTreeMap::new();
    let claim = section.text("claim");
    let measure = measure(reader, &mut section, &header, &mut places);
    let expectation = expectation(reader, &mut section, &header, &mut places);
    let within = section.table("where");
    note(&mut places, "where", within.as_ref());
    let known_failure = section.table("known_failure").and_then(|mut found| {
        Some(KnownFailure {
            reason: found.value.text("reason")?.value,
            until: found.value.text("until").map(|day| day.value),
        })
    });
    let hypothesis = Hypothesis {
        claim: claim?.value,
        measure: measure?,
        within: selection(within.map(|found| found.value)),
        expectation: expectation?,
        known_failure,
    };
    if let (Expectation::RespondsMost(_), Measure::Sampled { .. }) = (&hypothesis.expectation, hypothesis.measure) {
        let help = format!("name the indicator: {}", Indicator::NAMES.join(", "));
        reader.problem(header, "responds_most compares indicators", "`quantity` is no indicator", Some(help));
        return None;
    }
    Some(WrittenHypothesis { hypothesis, span, places })
}

fn note<T>(places: &mut BTreeMap<&'static str, Range<usize>>, key: &'static str, found: Option<&Located<T>>) {
    if let Some(found) = found {
        places.insert(key, found.span.clone());
    }
}

fn measure(
    reader: &mut Reader<'_>,
    section: &mut Section,
    header: &Range<usize>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Measure> {
    let indicator = section.choice::<Indicator>("indicator");
    let quantity = section.choice::<Quantity>("quantity");
    let phase = section.choice::<Phase>("phase");
    let step = section.whole("step");
    note(places, "indicator", indicator.as_ref());
    note(places, "step", step.as_ref());
    match (indicator, quantity) {
        (Some(indicator), None) => {
            for span in [section.place("phase"), section.place("step")].into_iter().flatten() {
                let help = "an indicator belongs to a whole run; take it out, or use quantity instead".to_owned();
                reader.problem(span, "an indicator has no phase and no step", "not needed", Some(help));
            }
            Some(Measure::Indicator(indicator.value))
        }
        (None, Some(quantity)) => {
            let Some(phase) = phase else {
                let help = format!("phases: {}", Phase::NAMES.join(", "));
                let message = format!("`quantity = \"{}\"` needs a phase", quantity.value);
                reader.problem(quantity.span, message, "measured at which phase boundary?", Some(help));
                return None;
            };
            let before_training =
                matches!(phase.value, Phase::AfterModel | Phase::AfterOptimizerCreation | Phase::AfterInput);
            if let (true, Some(step)) = (before_training, &step) {
                let message = format!("{} comes before the first step", phase.value);
                reader.problem(step.span.clone(), message, "no step here", Some("take `step` out".to_owned()));
            }
            Some(Measure::Sampled {
                quantity: quantity.value,
                phase: phase.value,
                step: step.map(|step| step.value).filter(|_| !before_training),
            })
        }
        (Some(_), Some(quantity)) => {
            let help = "keep one of them".to_owned();
            reader.problem(
                quantity.span,
                "a hypothesis looks at an indicator or at a quantity",
                "both given",
                Some(help),
            );
            None
        }
        (None, None) => {
            if !section.mentions(&["indicator", "quantity"]) {
                let help = format!("indicators: {}", Indicator::NAMES.join(", "));
                let message = "a hypothesis needs an indicator, or a quantity at a phase";
                reader.problem(header.clone(), message, "what is looked at?", Some(help));
            }
            None
        }
    }
}

/// The keys that each form a hypothesis of their own.
const FORMS: [&str; 5] = ["trend", "value", "greater_than", "ratio", "responds_most"];

fn expectation(
    reader: &mut Reader<'_>,
    section: &mut Section,
    header: &Range<usize>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Expectation> {
    let trend = section.choice::<String>("trend");
    let value = section.table("value");
    let greater = section.table("greater_than");
    let ratio = section.table("ratio");
    let responds = section.table("responds_most");
    note(places, "value", value.as_ref());
    note(places, "greater_than", greater.as_ref());
    note(places, "ratio", ratio.as_ref());
    note(places, "responds_most", responds.as_ref());
    let forms = [
        trend.as_ref().map(|found| found.span.clone()),
        value.as_ref().map(|found| found.span.clone()),
        greater.as_ref().map(|found| found.span.clone()),
        ratio.as_ref().map(|found| found.span.clone()),
        responds.as_ref().map(|found| found.span.clone()),
    ];
    let mut given = forms.iter().zip(FORMS).filter_map(|(span, name)| Some((span.clone()?, name)));
    if let (Some((first, first_name)), Some((second, name))) = (given.next(), given.next()) {
        let problem = Diagnostic::error("a hypothesis has one expectation")
            .at(reader.source, second, format!("`{name}` is a second one"))
            .at(reader.source, first, format!("`{first_name}` is the first"))
            .help("write two hypotheses");
        reader.problems.push(problem);
        return None;
    }
    let expectation = if let Some(trend) = trend {
        self::trend(reader, section, trend, places)
    } else if let Some(mut value) = value {
        bounds(reader, &mut value.value, value.span).map(Expectation::Value)
    } else if let Some(greater) = greater {
        Some(Expectation::GreaterThan(selection(Some(greater.value))))
    } else if let Some(mut ratio) = ratio {
        let to = ratio.value.table("to");
        note(places, "to", to.as_ref());
        let to = selection(to.map(|found| found.value));
        bounds(reader, &mut ratio.value, ratio.span).map(|bounds| Expectation::Ratio { to, bounds })
    } else if let Some(responds) = responds {
        stimulus(reader, responds, places).map(Expectation::RespondsMost)
    } else {
        if !section.mentions(&FORMS) {
            let help = format!("add one of: {}", FORMS.join(", "));
            reader.problem(header.clone(), "a hypothesis without an expectation", "what is expected?", Some(help));
        }
        return None;
    };
    if !section.mentions(&["trend"]) {
        for key in ["along", "slope", "intercept", "tolerance"] {
            if let Some(span) = section.place(key) {
                let help = "take it out, or use trend".to_owned();
                reader.problem(span, format!("`{key}` belongs to a trend"), "without effect here", Some(help));
            }
        }
    }
    expectation
}

fn trend(
    reader: &mut Reader<'_>,
    section: &mut Section,
    name: Located<String>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Expectation> {
    let along = section.axis("along");
    note(places, "along", along.as_ref());
    let tolerance = section.tolerance("tolerance");
    let [slope, intercept] = ["slope", "intercept"].map(|key| section.table(key));
    let linear = name.value == TRENDS[3];
    for (key, found) in [("slope", &slope), ("intercept", &intercept)] {
        if let (false, Some(found)) = (linear, found) {
            let message = format!("`{key}` belongs to trend = \"linear\"");
            reader.problem(found.span.clone(), message, "without effect here", None);
        }
    }
    if let (true, Some(tolerance)) = (TRENDS[..2].contains(&name.value.as_str()), &tolerance) {
        let message = format!("`tolerance` has no meaning for trend = \"{}\"", name.value);
        reader.problem(tolerance.span.clone(), message, "without effect here", None);
    }
    let mut line =
        |found: Option<Located<Section>>| found.and_then(|mut found| bounds(reader, &mut found.value, found.span));
    let (slope, intercept) = (line(slope), line(intercept));
    let tolerance = tolerance.map(|found| found.value);
    let trend = match name.value.as_str() {
        "increasing" => Trend::Increasing,
        "decreasing" => Trend::Decreasing,
        "flat" => Trend::Flat(tolerance.unwrap_or(EXACT)),
        _ => Trend::Linear { slope, intercept, tolerance: tolerance.unwrap_or(NEAR) },
    };
    if along.is_none() && !section.mentions(&["along"]) {
        let help = "add along = \"batch_size\", or another axis that varies".to_owned();
        reader.problem(name.span, "a trend needs an axis to follow", "along which axis?", Some(help));
    }
    Some(Expectation::Trend { along: along?.value, trend })
}

/// Memory repeats to the byte: a flat trend is flat, except for the last bits of a sum of MiB.
const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 1e-6 };
/// Rounding of allocations bends a straight line by up to a block.
const NEAR: Tolerance = Tolerance { relative: 0.01, absolute: 1.0 };

fn bounds(reader: &mut Reader<'_>, section: &mut Section, span: Range<usize>) -> Option<Bounds> {
    let mut number = |key: &str| section.number(key).map(|number| number.value);
    let (equals, min, max) = (number("equals"), number("min"), number("max"));
    let tolerance = section.tolerance("tolerance");
    if let (Some(tolerance), None) = (&tolerance, equals) {
        let help = "min and max are exact; use equals with a tolerance".to_owned();
        reader.problem(tolerance.span.clone(), "`tolerance` belongs to `equals`", "without effect here", Some(help));
        return None;
    }
    if equals.or(min).or(max).is_none() {
        if !section.mentions(&["equals", "min", "max"]) {
            let help = "add equals, min or max".to_owned();
            reader.problem(span, "bounds without a bound", "nothing is expected", Some(help));
        }
        return None;
    }
    if let (Some(low), Some(high)) = (min, max)
        && low > high
    {
        reader.problem(span, format!("min = {low} is above max = {high}"), "no number is in between", None);
        return None;
    }
    Some(Bounds { equals, min, max, tolerance: tolerance.map_or(EXACT, |found| found.value) })
}

fn stimulus(
    reader: &mut Reader<'_>,
    mut section: Located<Section>,
    places: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<Stimulus> {
    let perturbation = section.value.text("perturbation");
    let along = section.value.axis("along");
    note(places, "perturbation", perturbation.as_ref());
    note(places, "along", along.as_ref());
    match (perturbation, along) {
        (Some(label), None) => Some(Stimulus::Perturbation(label.value.into())),
        (None, Some(axis)) => Some(Stimulus::Along(axis.value)),
        (both, _) => {
            if both.is_some() || !section.value.mentions(&["perturbation", "along"]) {
                let help = "write { perturbation = \"its label\" } or { along = \"batch_size\" }".to_owned();
                reader.problem(section.span, "responds_most needs a perturbation or an axis", "to what?", Some(help));
            }
            None
        }
    }
}
