//! Verdicts as the workflow commands with which a GitHub job marks lines of a change.

use super::verdict::{change, one_line, remarks};
use crate::protocol::{Judged, Judgement};

/// So many changes of a baseline are marked one by one: GitHub shows ten annotations of a step.
const SHOWN: usize = 8;

/// One command a line, for everything that is not as expected. The file is the experiment as it was named, the lines those of its
/// hypotheses.
pub fn annotations(judged: &Judged, file: &str, lines: &[usize]) -> String {
    let mut commands = Vec::new();
    for (verdict, line) in judged.hypotheses.iter().zip(lines) {
        let level = match verdict.judgement {
            Judgement::Supported => continue,
            _ if verdict.is_accepted() => "notice",
            Judgement::Refuted | Judgement::Undecided => "error",
        };
        let said = [format!("{}: {}", verdict.claim, verdict.found)].into_iter().chain(remarks(verdict));
        let text = said.collect::<Vec<_>>().join("; ");
        commands.push(command(level, file, *line, verdict.judgement.name(), &text));
    }
    if let Some(baseline) = judged.baseline.as_ref().filter(|baseline| baseline.judgement != Judgement::Supported) {
        let title = format!("baseline {}", baseline.judgement);
        commands.extend(baseline.problem.as_ref().map(|problem| command("error", file, 1, &title, problem)));
        for found in baseline.changes.iter().take(SHOWN) {
            let text = format!("{} {} {}: {}", found.kind, found.subject, found.what, change(found));
            commands.push(command("error", file, 1, &title, &text));
        }
    }
    for run in judged.unmeasured.iter().take(SHOWN) {
        commands.push(command("error", file, 1, "not measured", &format!("{}: {}", run.run_id, run.why)));
    }
    commands.concat()
}

fn command(level: &str, file: &str, line: usize, title: &str, text: &str) -> String {
    let (file, title) = (property(file), property(&format!("memlab: {title}")));
    format!("::{level} file={file},line={line},title={title}::{}\n", data(&one_line(text)))
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
