//! Verdicts as Markdown, for a pull request's comment, a job's summary, and `comparison.md`.

use super::markdown::markdown;
use super::verdict::{change, one_line, remarks, tally, word};
use crate::collate::{Column, Table};
use crate::protocol::{BaselineVerdict, Judged, Verdict};

/// So many changes of a baseline, and unmeasured runs, are listed one by one: a comment holds 65,536 characters.
const SHOWN: usize = 60;

/// Headings start with so many `#`; nothing where there is nothing to say.
pub fn verdicts_markdown(judged: &Judged, level: usize) -> String {
    let heading = "#".repeat(level);
    let mut parts = Vec::new();
    if !judged.hypotheses.is_empty() {
        parts.push(format!("{heading} Hypotheses: {}\n", tally(&judged.hypotheses)));
        parts.push(markdown(&hypotheses(&judged.hypotheses)));
    }
    if let Some(baseline) = &judged.baseline {
        parts.extend(self::baseline(baseline, &heading));
    }
    if !judged.unmeasured.is_empty() {
        let mut table = Table::new(vec![Column::new("run_id", "run"), Column::new("why", "why")]);
        for run in judged.unmeasured.iter().take(SHOWN) {
            table.push(vec![run.run_id.as_str().into(), run.why.as_str().into()]);
        }
        parts.push(format!("{heading} Not measured: {}\n", judged.unmeasured.len()));
        parts.push(markdown(&table));
        parts.extend(rest(judged.unmeasured.len()));
    }
    parts.join("\n")
}

/// Says how many of so many are not listed.
fn rest(all: usize) -> Option<String> {
    (all > SHOWN).then(|| format!("and {} more, which verdicts.json in the results folder has.\n", all - SHOWN))
}

fn hypotheses(hypotheses: &[Verdict]) -> Table {
    let mut table = Table::new(
        ["verdict", "claim", "expected", "found", "remarks"].map(|title| Column::new(title, title)).to_vec(),
    );
    for verdict in hypotheses {
        table.push(vec![
            word(verdict).into(),
            one_line(&verdict.claim).into(),
            format!("{}: {}", verdict.measure, verdict.expected).into(),
            verdict.found.as_str().into(),
            Some(remarks(verdict).join("; ")).filter(|text| !text.is_empty()).into(),
        ]);
    }
    table.without_empty(&["remarks"])
}

fn baseline(baseline: &BaselineVerdict, heading: &str) -> Vec<String> {
    let mut parts = vec![format!(
        "{heading} Baseline: {}\n\n{} numbers compared with `{}`, {} changed.\n",
        baseline.judgement,
        baseline.compared,
        baseline.file.display(),
        baseline.changes.len()
    )];
    parts.extend(baseline.problem.as_ref().map(|problem| format!("{problem}\n")));
    if !baseline.changes.is_empty() {
        let mut table =
            Table::new(["change", "run", "what", "old and new"].map(|title| Column::new(title, title)).to_vec());
        for found in baseline.changes.iter().take(SHOWN) {
            let cells = [found.kind.name(), &found.subject, &found.what].map(Into::into);
            table.push(cells.into_iter().chain([change(found).into()]).collect());
        }
        parts.push(markdown(&table));
        parts.extend(rest(baseline.changes.len()));
    }
    parts
}
