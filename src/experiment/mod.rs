//! What a user writes: types, reading with source spans, checking.
//!
//! [`read`] answers with an [`Experiment`] in which every name is known and every value within bounds, or with all mistakes at once,
//! each at its place in the file. What depends on the machine (`device = "auto"`) stays open until planning.
//!
//! `layout` says what may stand where, `reader` holds the text to it, `assemble` makes typed parts of what was read, and `relations`
//! checks what no single value shows: groups that advance together, trends along axes that vary.

mod assemble;
mod assign;
mod builtin;
mod layout;
mod reader;
mod relations;
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::diag::{Diagnostic, Source};
use crate::protocol::{Axis, DeviceModel, Hypothesis, ModelConfig, SlurmSettings, SnapshotSpec, Tolerances, Value};

pub use builtin::{device_models, presets};
pub(crate) use relations::{BASE_LABEL, missing};
pub use schema::schema;

/// A thing, and where it stands in the experiment file.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// The thing.
    pub value: T,
    /// Byte range in the file.
    pub span: Range<usize>,
}

/// Where the value of an axis comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The exercise's default.
    Default,
    /// The experiment file, at this byte range.
    File(Range<usize>),
    /// An option, as it was typed, and the byte range of the value in it.
    CommandLine(Source, Range<usize>),
}

/// An axis with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The axis.
    pub axis: Axis,
    /// Its value.
    pub value: Value,
    /// Where that comes from.
    pub origin: Origin,
}

/// An axis of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    /// The axis.
    pub axis: Axis,
    /// Where its name stands.
    pub key: Range<usize>,
    /// Its values, in order; never empty, none twice.
    pub values: Vec<Located<Value>>,
    /// The option that these values were typed in, if not in the file.
    pub typed: Option<Source>,
}

/// A named change of the base.
#[derive(Debug, Clone, PartialEq)]
pub struct Perturbation {
    /// What the changed run is called; no two are called the same.
    pub label: Located<Arc<str>>,
    /// What it changes, in file order.
    pub settings: Vec<Setting>,
}

/// What each perturbation is a change of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Perturb {
    /// The base.
    #[default]
    OneAtATime,
    /// The perturbation before, the first one of the base.
    Cumulative,
}

/// Points that are not run.
#[derive(Debug, Clone, PartialEq)]
pub struct Exclude {
    /// All of these together.
    pub settings: Vec<Setting>,
    /// Why.
    pub reason: Arc<str>,
    /// The rule, from its header.
    pub span: Range<usize>,
}

/// A hypothesis as it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenHypothesis {
    /// What it says.
    pub hypothesis: Hypothesis,
    /// The whole table.
    pub span: Range<usize>,
    /// Where its keys' values stand.
    pub places: BTreeMap<&'static str, Range<usize>>,
}

/// An experiment, read and checked.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The file.
    pub source: Source,
    /// Names the results folder.
    pub name: String,
    /// The question.
    pub title: Option<String>,
    /// What every run starts from; what is missing has the exercise's default.
    pub base: Vec<Setting>,
    /// The grid; the first axis varies slowest. Empty without one.
    pub sweep: Vec<Swept>,
    /// Groups of swept axes that advance together.
    pub zips: Vec<Vec<Located<Axis>>>,
    /// Points that are not run.
    pub excludes: Vec<Exclude>,
    /// What each perturbation is a change of.
    pub perturb: Perturb,
    /// Ordered changes of the base.
    pub perturbations: Vec<Perturbation>,
    /// Every preset by name, built in or written.
    pub presets: BTreeMap<Arc<str>, ModelConfig>,
    /// Every device model by name, built in or written.
    pub device_models: BTreeMap<Arc<str>, Arc<DeviceModel>>,
    /// Seconds after which a run is ended.
    pub timeout_seconds: Option<u64>,
    /// Recording of the allocator's history.
    pub snapshot: Option<SnapshotSpec>,
    /// What is asked of Slurm.
    pub slurm: Option<SlurmSettings>,
    /// What the author expects.
    pub hypotheses: Vec<WrittenHypothesis>,
    /// How far an indicator may be from its baseline.
    pub baseline: Option<Tolerances>,
}

/// Reads an experiment file.
///
/// # Errors
/// Every mistake in it, each with its place.
pub fn read(path: &Path) -> Result<Experiment, Vec<Diagnostic>> {
    let bytes = std::fs::read(path).map_err(|error| {
        let said = Diagnostic::error(format!("cannot read the experiment {}: {error}", path.display()));
        vec![match error.kind() {
            ErrorKind::IsADirectory => said.help("give the TOML file itself"),
            ErrorKind::NotFound => said.help("give the path of a TOML file, such as experiments/alpha_batch.toml"),
            _ => said,
        }]
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let source = Source { path: path.to_owned(), text: Arc::from(text.as_ref()) };
        let wrong = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
        vec![
            Diagnostic::error("the experiment is not UTF-8 text")
                .at(&source, wrong, "no character")
                .help("save the file as UTF-8"),
        ]
    })?;
    parse(path, &text)
}

/// Reads the text of an experiment; the path is only for messages.
///
/// # Errors
/// Every mistake in it, each with its place.
pub fn parse(path: &Path, text: &str) -> Result<Experiment, Vec<Diagnostic>> {
    let experiment = assemble::experiment(Source { path: path.to_owned(), text: text.into() })?;
    let mut problems = missing(&experiment);
    problems.extend(relations::problems(&experiment));
    if problems.is_empty() { Ok(experiment) } else { Err(problems) }
}

impl Experiment {
    /// An experiment of a single run, of the exercise's defaults, to be filled with [`Experiment::set`].
    pub fn single(name: &str) -> Self {
        Self {
            source: Source { path: name.into(), text: "".into() },
            name: name.to_owned(),
            title: None,
            base: Vec::new(),
            sweep: Vec::new(),
            zips: Vec::new(),
            excludes: Vec::new(),
            perturb: Perturb::default(),
            perturbations: Vec::new(),
            presets: presets(),
            device_models: device_models(),
            timeout_seconds: None,
            snapshot: None,
            slurm: None,
            hypotheses: Vec::new(),
            baseline: None,
        }
    }

    /// Changes the experiment as `--set KEY=VALUE` asks: an axis, or a key of `run`, `snapshot` or `slurm` (`slurm.time=2h`).
    ///
    /// One value for a swept axis takes it out of the grid; a list (`seed=[1, 2]`) becomes its values. Perturbations keep what they
    /// change themselves.
    ///
    /// # Errors
    /// What is wrong with the assignment, or with the grid after it.
    pub fn set(&mut self, assignment: &str) -> Result<(), Vec<Diagnostic>> {
        assign::set(self, assignment)?;
        let problems = relations::grid_problems(self);
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Whether any run leaves something to the machine: its device, or how its ranks talk to each other.
    pub fn asks_the_machine(&self) -> bool {
        let auto = Value::from("auto");
        let ranks = self.values(Axis::WorldSize).into_iter().any(|ranks| ranks != Value::Whole(1));
        self.values(Axis::Device).contains(&auto) || (ranks && self.values(Axis::Backend).contains(&auto))
    }

    /// The values that an axis takes among the runs, before rules exclude any.
    pub fn values(&self, axis: Axis) -> BTreeSet<Value> {
        let mut values = BTreeSet::new();
        let swept = self.swept(axis);
        values.extend(swept.into_iter().flat_map(|swept| &swept.values).map(|value| value.value.clone()));
        // The base is run where there is no grid, and for perturbations to be compared with.
        if swept.is_none() || !self.perturbations.is_empty() {
            values.insert(setting(&self.base, axis).map_or(axis.default_value(), |setting| setting.value.clone()));
        }
        let changes = self.perturbations.iter().filter_map(|change| setting(&change.settings, axis));
        values.extend(changes.map(|setting| setting.value.clone()));
        values
    }

    /// The grid's row for an axis.
    pub fn swept(&self, axis: Axis) -> Option<&Swept> {
        self.sweep.iter().find(|swept| swept.axis == axis)
    }
}

/// The setting of an axis among some.
fn setting(settings: &[Setting], axis: Axis) -> Option<&Setting> {
    settings.iter().find(|setting| setting.axis == axis)
}
