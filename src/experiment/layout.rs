//! What may stand where in an experiment file: one table that reading, "did you mean" and the JSON schema follow from.

use crate::protocol::{Indicator, Kind, Outcome, Phase, Quantity};

/// A key of a table.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: &'static str,
    /// One line for the schema.
    pub(super) help: &'static str,
    /// What its value looks like.
    pub(super) shape: Shape,
    /// Whether it has to be there.
    pub(super) required: bool,
}

/// What a value looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// What an axis takes: a name, a whole number, a switch, a size.
    Value(Kind),
    /// Any text that is not empty.
    Text,
    /// Text, which may be empty.
    AnyText,
    /// A name that can be a folder's.
    Name,
    /// A finite number.
    Number,
    /// A duration with its unit.
    Duration,
    /// How far off a number may be.
    Tolerance,
    /// A calendar day.
    Day,
    /// The name of an axis.
    Axis,
    /// Two whole numbers.
    Pair,
    /// A list of texts.
    Lines,
    /// Names with texts.
    Texts,
    /// A list of lists of axes.
    AxisGroups,
    /// A table.
    Table(&'static Layout),
    /// An array of tables.
    Tables(&'static Layout),
    /// Tables by name.
    Named(&'static Layout),
}

/// A table's keys.
#[derive(Debug)]
pub(super) struct Layout {
    /// How an author writes it: `[base]`, `[[hypothesis]]`, `where`.
    pub(super) name: &'static str,
    /// Its own keys, in groups that tables share.
    pub(super) fields: &'static [&'static [Field]],
    /// Whether axes are keys too.
    pub(super) axes: Axes,
}

/// Axes as keys of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axes {
    /// They are not.
    No,
    /// Each with one value.
    One,
    /// Each with several values: a sweep.
    Many,
    /// Each with one value or several: the command line.
    Either,
}

impl Layout {
    /// Every field, in order.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().flat_map(|group| group.iter())
    }
}

const fn required(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, help, shape, required: true }
}

const fn optional(name: &'static str, shape: Shape, help: &'static str) -> Field {
    Field { name, help, shape, required: false }
}

const fn whole(min: u64, max: u64) -> Shape {
    Shape::Value(Kind::Whole { min, max })
}

const SIZE: Shape = Shape::Value(Kind::Bytes);
/// No dimension of a real model is larger, and products of three stay within 64 bits.
const DIMENSION: Shape = whole(1, 1 << 20);
const COUNT: Shape = whole(1, 1_000_000);

/// The names for `perturb`.
pub(super) const PERTURB: &[&str] = &["one_at_a_time", "cumulative"];
/// The names for `trend`.
pub(super) const TRENDS: &[&str] = &["increasing", "decreasing", "flat", "linear"];

/// A whole experiment file.
pub(super) static EXPERIMENT: Layout = Layout {
    name: "the experiment",
    axes: Axes::No,
    fields: &[&[
        required("name", Shape::Name, "names the results folder"),
        optional("title", Shape::Text, "the question that the experiment asks"),
        optional("base", Shape::Table(&BASE), "the run that everything else is a change of"),
        optional("sweep", Shape::Table(&SWEEP), "axes with the values to try; the first varies slowest"),
        optional("zip", Shape::AxisGroups, "groups of swept axes that advance together"),
        optional("exclude", Shape::Tables(&EXCLUDE), "points that are not run, and why"),
        optional(
            "perturb",
            Shape::Value(Kind::Choice(PERTURB)),
            "whether each perturbation changes the base or the one before",
        ),
        optional("perturbation", Shape::Tables(&PERTURBATION), "an ordered, named change of the base"),
        optional("presets", Shape::Named(&PRESET), "your own model dimensions"),
        optional("device_models", Shape::Named(&DEVICE_MODEL), "your own GPUs for CPU runs"),
        optional("run", Shape::Table(&RUN), "limits of each run"),
        optional("snapshot", Shape::Table(&SNAPSHOT), "record the allocator's history"),
        optional("slurm", Shape::Table(&SLURM), "what to ask of Slurm; used only when the sweep goes there"),
        optional("hypothesis", Shape::Tables(&HYPOTHESIS), "what you expect to see"),
        optional("baseline", Shape::Table(&BASELINE), "how far an indicator may be from its saved value"),
    ]],
};

/// What `--set` can reach.
pub(super) static ASSIGNMENT: Layout = Layout {
    name: "--set",
    axes: Axes::Either,
    fields: &[&[
        optional("run", Shape::Table(&RUN), "limits of each run"),
        optional("snapshot", Shape::Table(&SNAPSHOT), "record the allocator's history"),
        optional("slurm", Shape::Table(&SLURM), "what to ask of Slurm"),
    ]],
};

static BASE: Layout = Layout { name: "[base]", axes: Axes::One, fields: &[] };
static SWEEP: Layout = Layout { name: "[sweep]", axes: Axes::Many, fields: &[] };
static WHERE: Layout = Layout { name: "a selection of runs", axes: Axes::One, fields: &[] };

static EXCLUDE: Layout = Layout {
    name: "[[exclude]]",
    axes: Axes::One,
    fields: &[&[required("reason", Shape::Text, "why these points are not run")]],
};

static PERTURBATION: Layout = Layout {
    name: "[[perturbation]]",
    axes: Axes::One,
    fields: &[&[required("label", Shape::Text, "what the changed run is called")]],
};

static PRESET: Layout = Layout {
    name: "[presets.NAME]",
    axes: Axes::No,
    fields: &[&[
        required("layers", whole(1, 10_000), "transformer blocks"),
        required("hidden_size", DIMENSION, "width of the residual stream"),
        required("attention_heads", DIMENSION, "heads of the attention; divides hidden_size"),
        required("feedforward_size", DIMENSION, "width of the feed-forward layer"),
        required("sequence_length", DIMENSION, "tokens per sample"),
        optional("vocabulary_size", DIMENSION, "rows of the token embedding (4096)"),
        optional("classes", DIMENSION, "outputs of the classifier (16)"),
    ]],
};

static DEVICE_MODEL: Layout = Layout {
    name: "[device_models.NAME]",
    axes: Axes::No,
    fields: &[&[
        required("memory_bytes", SIZE, "total memory, as cudaMemGetInfo reports it; none for no limit"),
        optional("gpu_name", Shape::Text, "the GPU's own name"),
        optional("context_bytes", SIZE, "what the CUDA context takes outside the allocator"),
        optional("compute_capability", Shape::Pair, "major and minor, such as [9, 0]"),
        optional("multiprocessors", whole(1, 100_000), "streaming multiprocessors"),
        optional("blas_workspace_bytes", SIZE, "BLAS workspace of each thread that multiplies matrices"),
        optional(
            "bf16_attention",
            Shape::Value(Kind::Choice(crate::protocol::AttentionFamily::NAMES)),
            "attention kernel in bf16",
        ),
        optional("alloc_conf", Shape::AnyText, "allocator settings in PyTorch's own syntax"),
        optional("unmeasured", Shape::Lines, "keys that nobody measured on this GPU"),
    ]],
};

static RUN: Layout = Layout {
    name: "[run]",
    axes: Axes::No,
    fields: &[&[optional("timeout", Shape::Duration, "time after which a run is ended")]],
};

static SNAPSHOT: Layout = Layout {
    name: "[snapshot]",
    axes: Axes::No,
    fields: &[&[optional("max_entries", whole(1, 100_000_000), "bound on the history entries kept per rank (100000)")]],
};

const NEEDS: &[Field] = &[
    optional("partition", Shape::Text, "partition"),
    optional("account", Shape::Text, "account that is charged"),
    optional("qos", Shape::Text, "quality of service"),
    optional("constraint", Shape::Text, "features that a node must have"),
    optional("time", Shape::Duration, "wall time of one run, such as 00:10:00 or 10m"),
    optional("mem", SIZE, "host memory per node"),
    optional("mem_per_cpu", SIZE, "host memory per CPU, for sites that want it instead of mem"),
    optional("cpus_per_task", COUNT, "CPU cores per rank"),
    optional("gpus_per_node", whole(0, 1024), "GPUs per node"),
    optional("gres", Shape::Text, "generic resources, for clusters that want GPUs asked for that way"),
    optional("nodes", COUNT, "nodes per run"),
];

static SLURM: Layout = Layout {
    name: "[slurm]",
    axes: Axes::No,
    fields: &[
        NEEDS,
        &[
            optional("throttle", COUNT, "largest number of array tasks running at a time"),
            optional("runs_per_task", COUNT, "runs that one array task executes one after another"),
            optional("setup", Shape::Lines, "shell lines before the first run"),
            optional("directives", Shape::Lines, "further #SBATCH directives, such as --exclusive"),
            optional("environment", Shape::Texts, "environment of the runs"),
            optional("container", Shape::Text, "container image, for clusters whose srun takes one"),
            optional("launcher", Shape::Text, "command in front of each worker instead of srun"),
            optional("override", Shape::Tables(&SLURM_OVERRIDE), "other needs for some of the runs"),
        ],
    ],
};

static SLURM_OVERRIDE: Layout = Layout {
    name: "[[slurm.override]]",
    axes: Axes::No,
    fields: &[&[required("where", Shape::Table(&WHERE), "the runs that need something else")], NEEDS],
};

static HYPOTHESIS: Layout = Layout {
    name: "[[hypothesis]]",
    axes: Axes::No,
    fields: &[&[
        required("claim", Shape::Text, "the sentence that is confirmed or refuted"),
        optional("indicator", Shape::Value(Kind::Choice(Indicator::NAMES)), "the indicator that is looked at"),
        optional("quantity", Shape::Value(Kind::Choice(Quantity::NAMES)), "or a sampled quantity, at a phase"),
        optional("phase", Shape::Value(Kind::Choice(Phase::NAMES)), "the phase boundary of the sampled quantity"),
        optional("step", whole(0, 1_000_000), "the step of the sampled quantity; the last one if missing"),
        optional("where", Shape::Table(&WHERE), "the runs that are looked at; all if missing"),
        optional("along", Shape::Axis, "the axis that a trend follows"),
        optional("trend", Shape::Value(Kind::Choice(TRENDS)), "how the measure changes along the axis"),
        optional("slope", Shape::Table(&BOUNDS), "for trend = \"linear\": MiB per unit of the axis"),
        optional("intercept", Shape::Table(&BOUNDS), "for trend = \"linear\": MiB where the axis is zero"),
        optional("tolerance", Shape::Tolerance, "how far a flat or linear trend may be off"),
        optional("value", Shape::Table(&BOUNDS), "what the measure is, in MiB"),
        optional("greater_than", Shape::Table(&WHERE), "the runs in which the measure is smaller"),
        optional("ratio", Shape::Table(&RATIO), "the measure divided by its value in other runs"),
        optional("responds_most", Shape::Table(&STIMULUS), "what this indicator, of all, responds to most strongly"),
        optional("outcome", Shape::Value(Kind::Choice(Outcome::NAMES)), "how the runs end, such as oom"),
        optional("known_failure", Shape::Table(&KNOWN_FAILURE), "a refutation that does not count"),
    ]],
};

const BOUND_FIELDS: &[Field] = &[
    optional("equals", Shape::Number, "equal to this, within the tolerance"),
    optional("min", Shape::Number, "not less than this"),
    optional("max", Shape::Number, "not more than this"),
    optional("tolerance", Shape::Tolerance, "for equals: a number, \"0.5%\", or \"0.5% or 0.5 MiB\""),
];

static BOUNDS: Layout = Layout { name: "bounds", axes: Axes::No, fields: &[BOUND_FIELDS] };

static RATIO: Layout = Layout {
    name: "ratio",
    axes: Axes::No,
    fields: &[&[required("to", Shape::Table(&WHERE), "the runs divided by")], BOUND_FIELDS],
};

static STIMULUS: Layout = Layout {
    name: "responds_most",
    axes: Axes::No,
    fields: &[&[
        optional("perturbation", Shape::Text, "label of a perturbation"),
        optional("along", Shape::Axis, "or an axis, from its first to its last value"),
    ]],
};

static KNOWN_FAILURE: Layout = Layout {
    name: "known_failure",
    axes: Axes::No,
    fields: &[&[
        required("reason", Shape::Text, "why the refutation is accepted"),
        optional("until", Shape::Day, "the last day on which it is, such as 2027-01-31"),
    ]],
};

static BASELINE: Layout = Layout {
    name: "[baseline]",
    axes: Axes::No,
    fields: &[&[
        optional(
            "tolerance",
            Shape::Tolerance,
            "for every indicator: a number of MiB, \"0.5%\", or \"0.5% or 0.5 MiB\"",
        ),
        optional("slope", Shape::Tolerance, "for the slopes of fitted trends, in MiB per unit of their axis"),
        optional(Indicator::FirstStepPersistentChangeMib.name(), Shape::Tolerance, "for this indicator"),
        optional(Indicator::BetweenStepGrowthMib.name(), Shape::Tolerance, "for this indicator"),
        optional(Indicator::LargestForwardIncreaseMib.name(), Shape::Tolerance, "for this indicator"),
        optional(Indicator::MaximumPeakAllocatedMib.name(), Shape::Tolerance, "for this indicator"),
    ]],
};
