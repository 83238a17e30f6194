//! Hypotheses, trends and baselines: from measurements to verdicts.
//!
//! Validity comes first. A run that failed, is missing, is out of memory where that is not expected, or lacks a number decides nothing:
//! what depends on it is undecided, neither supported nor refuted. Everything here is arithmetic on a [`crate::collate::Collation`];
//! nothing is read, run or printed, and nothing says why a case behaves as it does.

mod baseline;
mod exit;
mod hypothesis;
mod judge;
mod measure;
mod words;

pub use baseline::{Baseline, BaselineRun, BaselineTrend, baseline_name, without};
pub use exit::exit;
pub use judge::{Terms, document, judge};

/// The JSON schema of the verdict document.
pub const SCHEMA: &str = include_str!("verdicts.schema.json");
