//! The results folder: names, atomic writes, discovery.

use std::path::Path;
use std::sync::Arc;

use crate::diag::{Diagnostic, Source};
use crate::protocol::Report;

/// A report, and what to call it: its run id, or the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedReport {
    /// The name.
    pub name: String,
    /// The report.
    pub report: Report,
}

/// What reading one report gave.
pub type ReadReport = Result<NamedReport, Diagnostic>;

/// The reports at a path: that file, or those in that folder, in natural order of their names.
///
/// # Errors
/// The path is not there, or cannot be read. A damaged report is an error of its own, within the list.
pub fn reports_at(path: &Path) -> Result<Vec<ReadReport>, Diagnostic> {
    let failed = |error: std::io::Error| cannot("read", path, &error);
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![read_report(path)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        let inside = entry.join("report.json");
        if inside.is_file() {
            found.push(inside);
        } else if entry.extension().is_some_and(|extension| extension == "json") && entry.is_file() {
            found.push(entry);
        }
    }
    found.sort_by_cached_key(|path| natural_key(&path.to_string_lossy()));
    Ok(found.iter().map(|path| read_report(path)).collect())
}

/// Reads one report.
///
/// # Errors
/// The file cannot be read, or is no report; the diagnostic shows the place in it.
pub fn read_report(path: &Path) -> ReadReport {
    let text = std::fs::read_to_string(path).map_err(|error| cannot("read", path, &error))?;
    let report = serde_json::from_str::<Report>(&text).map_err(|error| damaged(path, &text, &error))?;
    let name = report.run_id.clone().unwrap_or_else(|| display_name(path));
    Ok(NamedReport { name, report })
}

/// `runs/x/<run-id>/report.json` is called by its folder, any other file by its name without extension.
fn display_name(path: &Path) -> String {
    let own = if path.file_name().is_some_and(|name| name == "report.json") { path.parent() } else { None };
    own.and_then(Path::file_name).or_else(|| path.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

fn damaged(path: &Path, text: &str, error: &serde_json::Error) -> Diagnostic {
    let source = Source { path: path.to_owned(), text: Arc::from(text) };
    let line = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = (line + error.column().saturating_sub(1)).min(text.len());
    let start = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let token = text[start..].split([',', '\n', ' ', '}', ']']).next().unwrap_or_default();
    let what = match token {
        _ if error.is_eof() => "the file ends too early".to_owned(),
        "NaN" | "Infinity" | "-Infinity" => "not a finite number".to_owned(),
        _ => error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    };
    let length = token.len().max(text[start..].chars().next().map_or(0, char::len_utf8));
    Diagnostic::error(format!("{} is no readable report", path.display()))
        .at(&source, start..start + length, what)
        .help("run it again, or take the file out of the comparison")
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::error(format!("cannot {verb} {}: {error}", path.display()))
}

/// Sorts `b4` before `b30`: digits compare as numbers.
fn natural_key(text: &str) -> Vec<(String, u128)> {
    let mut key = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(end);
        key.push((word.to_owned(), number.parse().unwrap_or(u128::MAX)));
        rest = tail;
    }
    key
}
