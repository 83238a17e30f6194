//! Hypotheses: what the author of an experiment expects of its indicators. Written in the experiment, kept in `plan.json` with the
//! time they were written down, judged by `check`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Axis, Indicators, Outcome, Phase, RunSpec, Sample, Value};

/// The runs that have these values; all of them where it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Selection(pub BTreeMap<Axis, Value>);

impl Selection {
    /// Whether a run is among them.
    pub fn contains(&self, spec: &RunSpec) -> bool {
        self.0.iter().all(|(axis, value)| axis.of(spec) == *value)
    }
}

/// An expectation, and the words it is put in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hypothesis {
    /// The sentence that is confirmed or refuted.
    pub claim: String,
    /// What is looked at.
    pub measure: Measure,
    /// In which runs.
    #[serde(rename = "where")]
    pub within: Selection,
    /// What is expected.
    pub expectation: Expectation,
    /// A refutation that is known, and does not count as one.
    pub known_failure: Option<KnownFailure>,
}

/// What is looked at: a number that a run's report yields, in MiB, over several ranks the largest; or how the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// One of the indicators.
    Indicator(Indicator),
    /// A sampled quantity at a phase boundary.
    Sampled {
        /// Which quantity.
        quantity: Quantity,
        /// At which boundary.
        phase: Phase,
        /// At which step; null for the last one, and for the phases before training.
        step: Option<u64>,
    },
    /// How the run ends.
    Outcome,
}

/// The name of an indicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Indicator {
    /// Allocation that remains after the first step, relative to before training.
    FirstStepPersistentChangeMib,
    /// Change of the post-cleanup baseline from the first to the last step.
    BetweenStepGrowthMib,
    /// Largest forward allocation above the preceding post-cleanup baseline.
    LargestForwardIncreaseMib,
    /// Largest peak of any sample.
    MaximumPeakAllocatedMib,
}
text_enum!(Indicator {
    FirstStepPersistentChangeMib => "first_step_persistent_change_mib",
    BetweenStepGrowthMib => "between_step_growth_mib",
    LargestForwardIncreaseMib => "largest_forward_increase_mib",
    MaximumPeakAllocatedMib => "maximum_peak_allocated_mib",
});

impl Indicator {
    /// Its value, if it could be derived.
    pub fn of(self, indicators: &Indicators) -> Option<f64> {
        match self {
            Indicator::FirstStepPersistentChangeMib => indicators.first_step_persistent_change_mib,
            Indicator::BetweenStepGrowthMib => indicators.between_step_growth_mib,
            Indicator::LargestForwardIncreaseMib => indicators.largest_forward_increase_mib,
            Indicator::MaximumPeakAllocatedMib => indicators.maximum_peak_allocated_mib,
        }
    }
}

/// The name of a sampled quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Live tensor memory.
    AllocatedMib,
    /// Memory held by the caching allocator.
    ReservedMib,
    /// Largest live memory since the start of the step.
    PeakAllocatedMib,
    /// Device-wide use.
    DeviceUsedMib,
}
text_enum!(Quantity {
    AllocatedMib => "allocated_mib",
    ReservedMib => "reserved_mib",
    PeakAllocatedMib => "peak_allocated_mib",
    DeviceUsedMib => "device_used_mib",
});

impl Quantity {
    /// Its value in a sample.
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Quantity::AllocatedMib => sample.allocated_mib,
            Quantity::ReservedMib => sample.reserved_mib,
            Quantity::PeakAllocatedMib => sample.peak_allocated_mib,
            Quantity::DeviceUsedMib => sample.device_used_mib,
        }
    }
}

/// What is expected of a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// How it changes along an axis, everything else being equal.
    Trend {
        /// The axis.
        along: Axis,
        /// The change.
        trend: Trend,
    },
    /// What it is, in every selected run.
    Value(Bounds),
    /// It is greater in each selected run than in every run of the other selection.
    GreaterThan(Selection),
    /// Its value in the selected runs divided by its value in the other selection.
    Ratio {
        /// The runs divided by.
        to: Selection,
        /// The quotient.
        bounds: Bounds,
    },
    /// Of all indicators it is the one that changes most, in MiB.
    RespondsMost(Stimulus),
    /// Every selected run ends like this; only for [`Measure::Outcome`].
    Outcome(Outcome),
}

/// A change along an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Never smaller than before, and larger at the end.
    Increasing,
    /// Never larger than before, and smaller at the end.
    Decreasing,
    /// The same everywhere, within a tolerance.
    Flat(Tolerance),
    /// A straight line through all points, within a tolerance.
    Linear {
        /// MiB per unit of the axis.
        slope: Option<Bounds>,
        /// MiB where the axis is zero.
        intercept: Option<Bounds>,
        /// How far a point may lie from the line.
        tolerance: Tolerance,
    },
}

/// What an indicator responds to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stimulus {
    /// A perturbation, by its label, compared with the run it changes.
    Perturbation(Arc<str>),
    /// The way from the first to the last value of an axis.
    Along(Axis),
}

/// What a number has to satisfy: every bound that is there. At least one is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Equal to this, within the tolerance.
    pub equals: Option<f64>,
    /// Not less than this.
    pub min: Option<f64>,
    /// Not more than this.
    pub max: Option<f64>,
    /// For `equals`.
    pub tolerance: Tolerance,
}

impl Bounds {
    /// Whether a number satisfies them. One that is not finite never does.
    pub fn contain(&self, number: f64) -> bool {
        number.is_finite()
            && self.equals.is_none_or(|equals| self.tolerance.allows(equals, number))
            && self.min.is_none_or(|min| number >= min)
            && self.max.is_none_or(|max| number <= max)
    }
}

/// How far a number may be from what is expected: whichever of the two allows more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// As a part of the expected value: 0.005 is half a percent.
    pub relative: f64,
    /// In the unit of the value, MiB for a measure.
    pub absolute: f64,
}

impl Tolerance {
    /// Whether a number is near enough.
    pub fn allows(self, expected: f64, number: f64) -> bool {
        (number - expected).abs() <= self.around(expected)
    }

    /// The largest difference that is allowed.
    pub fn around(self, expected: f64) -> f64 {
        self.absolute.max(self.relative * expected.abs())
    }
}

/// A refutation that is expected until something is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFailure {
    /// Why.
    pub reason: String,
    /// The last day, `YYYY-MM-DD`, on which it is accepted; null for always.
    pub until: Option<String>,
}

/// How far an indicator may be from its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tolerances {
    /// Where nothing else is said.
    pub default: Tolerance,
    /// For single indicators.
    pub indicators: BTreeMap<Indicator, Tolerance>,
    /// For the slopes of fitted trends, in MiB per unit of their axis.
    #[serde(default = "slope_tolerance")]
    pub slope: Tolerance,
}

/// One percent, or 0.01 MiB per unit: a line is known better than its points.
fn slope_tolerance() -> Tolerance {
    Tolerance { relative: 0.01, absolute: 0.01 }
}

impl Tolerances {
    /// The tolerance of an indicator.
    pub fn of(&self, indicator: Indicator) -> Tolerance {
        self.indicators.get(&indicator).copied().unwrap_or(self.default)
    }
}

impl Default for Tolerances {
    /// Half a percent or half a MiB, whichever is more; for slopes one percent or 0.01 MiB per unit.
    fn default() -> Self {
        Self {
            default: Tolerance { relative: 0.005, absolute: 0.5 },
            indicators: BTreeMap::new(),
            slope: slope_tolerance(),
        }
    }
}
