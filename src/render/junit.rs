//! Verdicts as `JUnit` XML, which CI systems show as test results: a suite per experiment, a case per hypothesis, one for the baseline, and
//! one for every run that could not be judged.

use super::verdict::{change, remarks};
use crate::protocol::{Judged, Judgement, Verdicts};

/// How a case ended, and what to say about it.
enum End {
    Passed,
    Skipped(String),
    Failed(String),
    Error(String),
}

/// The whole document. No times: a verdict takes none.
pub fn junit(verdicts: &Verdicts) -> String {
    let suites: Vec<(String, [usize; 3])> = verdicts.experiments.iter().map(suite).collect();
    let total = suites.iter().fold([0; 3], |sum, (_, counts)| std::array::from_fn(|at| sum[at] + counts[at]));
    let bodies: String = suites.into_iter().map(|(body, _)| body).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"memlab\"{}>\n{bodies}</testsuites>\n",
        counted(total)
    )
}

fn counted([tests, failures, errors]: [usize; 3]) -> String {
    format!(" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"")
}

/// A suite, with its tests, failures and errors. What is skipped counts in a suite only: the schema has no place for it in the whole.
fn suite(judged: &Judged) -> (String, [usize; 3]) {
    let mut cases: Vec<(String, End)> = Vec::new();
    for verdict in &judged.hypotheses {
        let text = format!("expected: {}: {}\nfound: {}", verdict.measure, verdict.expected, verdict.found);
        let end = match verdict.judgement {
            _ if verdict.is_accepted() => End::Skipped(format!("{}\n{text}", remarks(verdict).join("\n"))),
            Judgement::Supported => End::Passed,
            Judgement::Refuted => End::Failed(text),
            Judgement::Undecided => End::Error(text),
        };
        cases.push((verdict.claim.clone(), end));
    }
    if let Some(baseline) = &judged.baseline {
        let lines = baseline
            .changes
            .iter()
            .map(|found| format!("{}: {} {}: {}", found.kind, found.subject, found.what, change(found)));
        let text = baseline.problem.iter().cloned().chain(lines).collect::<Vec<_>>().join("\n");
        let end = match baseline.judgement {
            Judgement::Supported => End::Passed,
            Judgement::Refuted => End::Failed(text),
            Judgement::Undecided => End::Error(text),
        };
        cases.push(("as in the baseline".to_owned(), end));
    }
    cases
        .extend(judged.unmeasured.iter().map(|run| (format!("measured: {}", run.run_id), End::Error(run.why.clone()))));
    let count = |wanted: fn(&End) -> bool| cases.iter().filter(|(_, end)| wanted(end)).count();
    let counts = [cases.len(), count(|end| matches!(end, End::Failed(_))), count(|end| matches!(end, End::Error(_)))];
    let skipped = count(|end| matches!(end, End::Skipped(_)));
    let suite = escaped(&judged.experiment);
    let bodies: String = cases.iter().map(|(name, end)| case(&suite, name, end)).collect();
    let opening = format!("<testsuite name=\"{suite}\"{} skipped=\"{skipped}\">", counted(counts));
    (format!("  {opening}\n{bodies}  </testsuite>\n"), counts)
}

fn case(suite: &str, name: &str, end: &End) -> String {
    let (element, text) = match end {
        End::Passed => return format!("    <testcase classname=\"{suite}\" name=\"{}\"/>\n", escaped(name)),
        End::Skipped(text) => ("skipped", text),
        End::Failed(text) => ("failure", text),
        End::Error(text) => ("error", text),
    };
    let message = escaped(text.lines().next().unwrap_or_default());
    let (name, text) = (escaped(name), escaped(text));
    // `skipped` has a message and no text.
    let inside = if element == "skipped" {
        format!("<skipped message=\"{message}\"/>")
    } else {
        format!("<{element} message=\"{message}\">{text}</{element}>")
    };
    format!("    <testcase classname=\"{suite}\" name=\"{name}\">{inside}</testcase>\n")
}

/// Text as XML 1.0 allows it, in an attribute too: control characters have no place there, not even as references.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_breaks_out_of_the_document() {
        assert_eq!(escaped("a<b & \"c\"\n\u{1b}[0m]]>"), "a&lt;b &amp; &quot;c&quot;&#10;\u{fffd}[0m]]&gt;");
    }
}
