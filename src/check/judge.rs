//! A whole experiment: each hypothesis, and what they amount to.

use std::collections::{HashMap, HashSet};

use super::hypothesis::decide;
use super::{measure, words};
use crate::collate::{Collation, Row};
use crate::protocol::{
    BaselineVerdict, Expectation, Judged, Judgement, Known, KnownFailure, KnownFailureState, Outcome, PlanFile,
    RecordedHypothesis, SCHEMA_VERSION, Selection, Unmeasured, Verdict, Verdicts, Written,
};

/// What is known beside the measurements.
#[derive(Debug)]
pub struct Terms<'a> {
    /// When it is judged, RFC 3339 in UTC.
    pub now: &'a str,
    /// When each run first had a result, RFC 3339 in UTC, by its id.
    pub first_results: &'a HashMap<String, String>,
    /// Whether the whole is undecided as soon as one run cannot be judged, whatever no hypothesis says about it.
    pub every_run: bool,
    /// Runs that are known to be out of memory, beside those that a hypothesis expects to be.
    pub out_of_memory: &'a HashSet<String>,
}

/// Judges what a plan expects of its runs. The rows are the plan's; none are judged without one.
pub fn judge(collation: &Collation, baseline: Option<BaselineVerdict>, terms: &Terms<'_>) -> Option<Judged> {
    let plan = collation.plan.as_ref()?;
    let rows: Vec<&Row> = collation.rows.iter().collect();
    let may_be_out_of_memory = expected_out_of_memory(plan, &rows, terms);
    let fitting: Vec<&Row> =
        rows.iter().zip(&may_be_out_of_memory).filter(|(_, expected)| !**expected).map(|(row, _)| *row).collect();
    let hypotheses: Vec<Verdict> = plan
        .hypotheses
        .iter()
        .map(|recorded| {
            let about_outcomes = matches!(recorded.hypothesis.expectation, Expectation::Outcome(_));
            verdict(recorded, plan, if about_outcomes { &rows } else { &fitting }, terms)
        })
        .collect();
    let unmeasured = rows.iter().zip(&may_be_out_of_memory).filter_map(|(row, expected)| {
        let why = measure::valid(row).err()?;
        let as_expected = *expected && row.outcome() == Some(Outcome::Oom);
        (!as_expected).then(|| Unmeasured { run_id: row.run_id.clone(), why })
    });
    let unmeasured: Vec<Unmeasured> = unmeasured.collect();
    let parts = hypotheses.iter().filter(|verdict| !verdict.is_accepted()).map(|verdict| verdict.judgement);
    let accepted = hypotheses.iter().any(Verdict::is_accepted);
    let open = (terms.every_run && !unmeasured.is_empty()).then_some(Judgement::Undecided);
    let worst = parts.chain(baseline.as_ref().map(|baseline| baseline.judgement)).chain(open).max();
    Some(Judged {
        experiment: plan.name.clone(),
        file: plan.experiment.clone(),
        judgement: worst.unwrap_or(if accepted { Judgement::Supported } else { Judgement::Undecided }),
        runs: rows.len(),
        unmeasured,
        hypotheses,
        baseline,
    })
}

/// The document that holds these verdicts.
pub fn document(experiments: Vec<Judged>, now: &str) -> Verdicts {
    Verdicts {
        schema_version: SCHEMA_VERSION,
        memlab_version: env!("CARGO_PKG_VERSION").to_owned(),
        judged_at: now.to_owned(),
        judgement: experiments.iter().map(|judged| judged.judgement).max().unwrap_or(Judgement::Undecided),
        experiments,
    }
}

/// Which of the runs some hypothesis expects to be out of memory: the others then speak of the rest.
fn expected_out_of_memory(plan: &PlanFile, rows: &[&Row], terms: &Terms<'_>) -> Vec<bool> {
    let expecting: Vec<_> = plan
        .hypotheses
        .iter()
        .map(|recorded| &recorded.hypothesis)
        .filter(|hypothesis| hypothesis.expectation == Expectation::Outcome(Outcome::Oom))
        .collect();
    let expected = |row: &&Row| {
        let covers = |within: &Selection| within.0.iter().all(|(axis, value)| row.setting(*axis) == value);
        terms.out_of_memory.contains(&row.run_id) || expecting.iter().any(|hypothesis| covers(&hypothesis.within))
    };
    rows.iter().map(expected).collect()
}

fn verdict(recorded: &RecordedHypothesis, plan: &PlanFile, rows: &[&Row], terms: &Terms<'_>) -> Verdict {
    let hypothesis = &recorded.hypothesis;
    let finding = decide(hypothesis, plan, rows);
    let first_result_at = finding.runs.iter().filter_map(|row| terms.first_results.get(&row.run_id)).min().cloned();
    // Both are whole seconds: what was written in the second of the first result was written without knowing it.
    let written = first_result_at
        .as_ref()
        .map(|first| if recorded.written_at <= *first { Written::Before } else { Written::After });
    let state = |known: &KnownFailure| known_failure(known, finding.judgement, terms);
    Verdict {
        claim: hypothesis.claim.clone(),
        judgement: finding.judgement,
        measure: words::measure(hypothesis.measure),
        expected: words::expectation(&hypothesis.expectation),
        known_failure: hypothesis.known_failure.as_ref().map(state),
        found: finding.found,
        points: finding.points,
        lines: finding.lines,
        unmeasured: finding.unmeasured,
        text: recorded.text.clone(),
        written_at: recorded.written_at.clone(),
        first_result_at,
        written,
    }
}

fn known_failure(known: &KnownFailure, judgement: Judgement, terms: &Terms<'_>) -> KnownFailureState {
    // Days and moments of this form are ordered as texts; the last day counts in full.
    let today = terms.now.get(..10).unwrap_or(terms.now);
    let state = match judgement {
        Judgement::Refuted if known.until.as_deref().is_some_and(|until| until < today) => Known::Expired,
        Judgement::Refuted => Known::Accepted,
        Judgement::Supported => Known::Unneeded,
        Judgement::Undecided => Known::Open,
    };
    KnownFailureState { reason: known.reason.clone(), until: known.until.clone(), state }
}
