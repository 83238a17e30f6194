//! Verdicts as text for a terminal or a log: what decided stands below each claim.

use std::fmt::Write;

use crate::protocol::{BaselineVerdict, Change, Judged, Known, Verdict, Written};

/// The hypotheses, then the baseline, then the runs that could not be judged; nothing where there is nothing to say.
pub fn verdicts(judged: &Judged) -> String {
    let mut parts = Vec::new();
    if !judged.hypotheses.is_empty() {
        let lines = judged.hypotheses.iter().map(hypothesis);
        parts.push(format!("hypotheses: {}\n{}", tally(&judged.hypotheses), lines.collect::<String>()));
    }
    if let Some(baseline) = &judged.baseline {
        parts.push(self::baseline(baseline));
    }
    if !judged.unmeasured.is_empty() {
        let lines = judged.unmeasured.iter().map(|run| format!("  {}: {}\n", run.run_id, run.why));
        parts.push(format!("not measured:\n{}", lines.collect::<String>()));
    }
    parts.join("\n")
}

/// How many of each verdict: `2 supported, 1 refuted`.
pub fn tally(hypotheses: &[Verdict]) -> String {
    let mut counts: Vec<(&str, usize)> =
        ["supported", "refuted", KNOWN_FAILURE, "undecided"].map(|word| (word, 0)).to_vec();
    for verdict in hypotheses {
        let word = word(verdict);
        counts.iter_mut().filter(|(known, _)| *known == word).for_each(|(_, count)| *count += 1);
    }
    let told = counts.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}"));
    told.collect::<Vec<_>>().join(", ")
}

pub(super) const KNOWN_FAILURE: &str = "known failure";

/// The verdict in one word, as it counts.
pub(super) fn word(verdict: &Verdict) -> &'static str {
    if verdict.is_accepted() { KNOWN_FAILURE } else { verdict.judgement.name() }
}

/// What there is to say beside the verdict: the known failure, and what was there first.
pub(super) fn remarks(verdict: &Verdict) -> Vec<String> {
    let known = verdict.known_failure.as_ref().and_then(|known| {
        let until = known.until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default();
        match known.state {
            Known::Accepted => Some(format!("known failure: {}{until}", known.reason)),
            Known::Expired => Some(format!("no longer accepted as a known failure: {}{until}", known.reason)),
            Known::Unneeded => Some(format!("no failure any more, known_failure can go: {}", known.reason)),
            Known::Open => None,
        }
    });
    let written = verdict.written.map(|written| match written {
        Written::Before => "written before the first result".to_owned(),
        Written::After => "written after the first result".to_owned(),
    });
    known.into_iter().chain(written).collect()
}

/// A change in words: old, new, difference.
pub(super) fn change(change: &Change) -> String {
    let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value}"));
    let mut text = match (change.old, change.new) {
        (None, None) => change.kind.to_string(),
        (old, new) => format!("{} -> {} {}", show(old), show(new), change.unit),
    };
    if let Some(difference) = change.difference {
        // Far below a byte there are only the last bits of a subtraction.
        let difference = (difference * 1e9).round() / 1e9;
        let percent = change.percent().map(|percent| format!(", {percent:+.2} %")).unwrap_or_default();
        let allowed = change.allowed.map(|allowed| format!("; allowed {allowed}")).unwrap_or_default();
        let _ = write!(text, " ({difference:+}{percent}{allowed})");
    }
    if let Some(note) = &change.note {
        let _ = write!(text, "; {note}");
    }
    text
}

fn hypothesis(verdict: &Verdict) -> String {
    let mut text = format!("  {:<13}  {}\n", word(verdict), one_line(&verdict.claim));
    let facts = [
        format!("expected: {}: {}", verdict.measure, verdict.expected),
        format!("found:    {}", one_line(&verdict.found)),
    ];
    for line in facts.into_iter().chain(remarks(verdict).iter().map(|remark| one_line(remark))) {
        let _ = writeln!(text, "  {:<13}  {line}", "");
    }
    text
}

fn baseline(baseline: &BaselineVerdict) -> String {
    let changed = match baseline.changes.len() {
        0 => "none changed".to_owned(),
        count => format!("{count} changed"),
    };
    let mut text = format!(
        "baseline: {}, {} numbers compared, {changed} ({})\n",
        baseline.judgement,
        baseline.compared,
        baseline.file.display()
    );
    if let Some(problem) = &baseline.problem {
        let _ = writeln!(text, "  {problem}");
    }
    for found in &baseline.changes {
        let _ = writeln!(text, "  {:<10}  {}  {}: {}", found.kind, found.subject, found.what, change(found));
    }
    text
}

/// Line breaks and other control characters as spaces.
pub(super) fn one_line(text: &str) -> String {
    text.split(char::is_control).collect::<Vec<_>>().join(" ")
}
