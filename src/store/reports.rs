//! Reading reports, memlab's and the reference script's.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::cannot;
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
    let failed = |error: io::Error| cannot("read", path, &error);
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![read_report(path)]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        let inside = entry.join(super::run::REPORT);
        if inside.is_file() {
            found.push(inside);
        } else if is_report_name(&entry) && entry.is_file() {
            found.push(entry);
        }
    }
    found.sort_by_cached_key(|path| natural_key(&path.to_string_lossy()));
    Ok(found.iter().map(|path| read_report(path)).collect())
}

/// Any JSON file but memlab's own others.
fn is_report_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
        && path.file_name().is_some_and(|name| name != super::run::STATUS && name != super::folder::PLAN)
}

/// Reads one report.
///
/// # Errors
/// The file cannot be read, or is no report; the diagnostic shows the place in it.
pub fn read_report(path: &Path) -> ReadReport {
    match read_json::<Report>(path, "report")? {
        Some(report) => {
            let name = report.run_id.clone().unwrap_or_else(|| display_name(path));
            Ok(NamedReport { name, report })
        }
        None => Err(cannot("read", path, &io::ErrorKind::NotFound.into())),
    }
}

/// Reads a JSON file; none where there is no such file.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Option<T>, Diagnostic> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("read", path, &error)),
    };
    // As a whole, text is checked several times faster than string by string.
    let read = match std::str::from_utf8(&bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(&bytes),
    };
    read.map(Some).map_err(|error| damaged(path, what, &bytes, &error))
}

/// `runs/x/<run-id>/report.json` is called by its folder, any other file by its name without extension.
fn display_name(path: &Path) -> String {
    let own = if path.file_name().is_some_and(|name| name == super::run::REPORT) { path.parent() } else { None };
    own.and_then(Path::file_name).or_else(|| path.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

fn damaged(path: &Path, what: &str, bytes: &[u8], error: &serde_json::Error) -> Diagnostic {
    let text = String::from_utf8_lossy(bytes);
    let line = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let at = (line + error.column().saturating_sub(1)).min(text.len());
    let start = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let token = text[start..].split([',', '\n', ' ', '}', ']']).next().unwrap_or_default();
    let problem = match token {
        _ if error.is_eof() => "the file ends too early".to_owned(),
        "NaN" | "Infinity" | "-Infinity" => "not a finite number".to_owned(),
        _ => error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    };
    let length = token.len().max(text[start..].chars().next().map_or(0, char::len_utf8));
    let source = Source { path: path.to_owned(), text: Arc::from(text.as_ref()) };
    Diagnostic::error(format!("{} is no readable {what}", path.display()))
        .at(&source, start..start + length, problem)
        .help("run it again, or take the file away")
}

/// Sorts `b4` before `b30`: digits compare as numbers.
pub(super) fn natural_key(text: &str) -> Vec<(String, u128)> {
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
