//! What a check found: the verdict on each hypothesis and each baseline, with the numbers that decided it. `verdicts.json` in a results
//! folder, and what `memlab check --format json` prints; `src/check/verdicts.schema.json` describes it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Value;

/// A verdict. The order is from good to bad: of several, the last one is that of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The measurements agree with what is expected.
    Supported,
    /// They do not say: too few of them, or not all are valid.
    Undecided,
    /// They contradict what is expected.
    Refuted,
}
text_enum!(Judgement { Supported => "supported", Undecided => "undecided", Refuted => "refuted" });

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Format version.
    pub schema_version: u32,
    /// Version of memlab.
    pub memlab_version: String,
    /// When it was judged, RFC 3339 in UTC.
    pub judged_at: String,
    /// Of everything together.
    pub judgement: Judgement,
    /// One entry per experiment, in the order given.
    pub experiments: Vec<Judged>,
}

/// One experiment, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub experiment: String,
    /// Its file.
    pub file: PathBuf,
    /// Of everything in it; undecided where nothing could be judged.
    pub judgement: Judgement,
    /// How many runs are planned.
    pub runs: usize,
    /// Those that measured nothing that can be judged.
    pub unmeasured: Vec<Unmeasured>,
    /// One entry per hypothesis, in the file's order.
    pub hypotheses: Vec<Verdict>,
    /// The comparison with the baseline; null where none was asked for.
    pub baseline: Option<BaselineVerdict>,
}

/// A run that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmeasured {
    /// Which.
    pub run_id: String,
    /// Why.
    pub why: String,
}

/// The verdict on a hypothesis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The author's sentence.
    pub claim: String,
    /// The verdict.
    pub judgement: Judgement,
    /// What is looked at: an indicator, a quantity at a phase, or the outcome.
    pub measure: String,
    /// What is expected of it, in words.
    pub expected: String,
    /// What was found, in words and numbers; for an undecided one, what is in the way.
    pub found: String,
    /// The numbers that decided.
    pub points: Vec<Point>,
    /// The lines fitted through them.
    pub lines: Vec<Line>,
    /// The runs that are in the way of a decision.
    pub unmeasured: Vec<Unmeasured>,
    /// The failure that is known, if one is.
    pub known_failure: Option<KnownFailureState>,
    /// The hypothesis as it stands in the file.
    pub text: String,
    /// When it was written down, RFC 3339 in UTC.
    pub written_at: String,
    /// When the first result was there by which it is judged; null where none is.
    pub first_result_at: Option<String>,
    /// Which of the two was earlier; null where there is no result.
    pub written: Option<Written>,
}

impl Verdict {
    /// Whether it is a refutation that is known and accepted.
    pub fn is_accepted(&self) -> bool {
        self.known_failure.as_ref().is_some_and(|known| known.state == Known::Accepted)
    }
}

/// Whether a hypothesis is a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Written {
    /// Before the first result.
    Before,
    /// When the first result was there.
    After,
}
text_enum!(Written { Before => "before", After => "after" });

/// A number that decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What it belongs to: the values that its runs share, the other side of a comparison, an indicator. Empty where there is one only.
    pub series: String,
    /// The run.
    pub run_id: String,
    /// The axis's value, for what follows an axis.
    pub at: Option<Value>,
    /// The number.
    pub value: f64,
    /// `MiB`, or empty for a quotient.
    pub unit: String,
}

/// A fitted line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The series of its points.
    pub series: String,
    /// How many points.
    pub points: usize,
    /// MiB per unit of the axis.
    pub slope: f64,
    /// MiB where the axis is zero.
    pub intercept: f64,
    /// Standard deviation of the points around the line, MiB; null for two points.
    pub residual: Option<f64>,
    /// Standard error of the slope; null for two points.
    pub slope_error: Option<f64>,
    /// The farthest that a point is from the line, MiB.
    pub largest_deviation: f64,
}

/// A failure that the author knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFailureState {
    /// Why it fails.
    pub reason: String,
    /// The last day on which that is accepted; null for always.
    pub until: Option<String>,
    /// What it means now.
    pub state: Known,
}

/// What a known failure means for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The hypothesis is refuted, and that does not count.
    Accepted,
    /// The day is over: a refutation counts.
    Expired,
    /// The hypothesis is supported: the mark can go.
    Unneeded,
    /// The hypothesis is undecided, and so is this.
    Open,
}
text_enum!(Known { Accepted => "accepted", Expired => "expired", Unneeded => "unneeded", Open => "open" });

/// The comparison with a baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineVerdict {
    /// Its file.
    pub file: PathBuf,
    /// The verdict: refuted if a number changed beyond its tolerance.
    pub judgement: Judgement,
    /// Why nothing, or not everything, could be compared; null where all was.
    pub problem: Option<String>,
    /// How many numbers were compared.
    pub compared: usize,
    /// Those that changed beyond their tolerance, or are on one side only.
    pub changes: Vec<Change>,
}

/// A number that is not what the baseline says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The run; for a line, the values that its runs share.
    pub subject: String,
    /// The indicator, `slope of` an indicator along an axis, or the outcome.
    pub what: String,
    /// What the baseline says.
    pub old: Option<f64>,
    /// What was measured.
    pub new: Option<f64>,
    /// New less old.
    pub difference: Option<f64>,
    /// The difference that is allowed.
    pub allowed: Option<f64>,
    /// `MiB`, or `MiB per` an axis.
    pub unit: String,
    /// What the change means.
    pub kind: ChangeKind,
    /// What else there is to say, such as both outcomes.
    pub note: Option<String>,
}

impl Change {
    /// The difference in percent of the old value.
    pub fn percent(&self) -> Option<f64> {
        let old = self.old.filter(|old| old.abs() > 0.0)?;
        Some(self.difference? / old.abs() * 100.0)
    }
}

/// What a change means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// More memory than before.
    Worse,
    /// Less memory than before.
    Better,
    /// The baseline does not have it.
    New,
    /// The plan no longer has it.
    Gone,
    /// It was not measured this time.
    Unmeasured,
}
text_enum!(ChangeKind {
    Worse => "worse",
    Better => "better",
    New => "new",
    Gone => "gone",
    Unmeasured => "unmeasured",
});
