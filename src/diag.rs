//! Diagnostics: one type for every error and warning that a user reads.
//!
//! A diagnostic names what is wrong, where (file, line, the offending text), and the remedy.

use std::path::PathBuf;
use std::sync::Arc;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The command cannot do what it was asked to.
    Error,
    /// The command goes on.
    Warning,
}

/// A text file that diagnostics can point into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Where the text was read from, as the user named it.
    pub path: PathBuf,
    /// The whole text.
    pub text: Arc<str>,
}

impl Source {
    /// The line, counted from 1, in which a byte stands.
    pub fn line(&self, at: usize) -> usize {
        self.text.get(..at).map_or(0, |before| before.matches('\n').count()) + 1
    }
}

/// A place in a [`Source`], with what is to be said about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The text pointed into.
    pub source: Source,
    /// Byte range in `source.text`.
    pub span: std::ops::Range<usize>,
    /// A few words beside the underlined text.
    pub message: String,
}

/// One thing to tell the user. The first label is the primary place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong: a lower-case fragment that names the thing and its value.
    pub message: String,
    /// Where. Empty when there is no text to point at.
    pub labels: Vec<Label>,
    /// What else is known.
    pub notes: Vec<String>,
    /// The remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, message: message.into(), labels: Vec::new(), notes: Vec::new(), help: None }
    }

    /// A warning without a place.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(message) }
    }

    /// Adds a place.
    #[must_use]
    pub fn at(mut self, source: &Source, span: std::ops::Range<usize>, message: impl Into<String>) -> Self {
        self.labels.push(Label { source: source.clone(), span, message: message.into() });
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The name that was probably meant: the most similar one, if it is similar at all.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&lower, candidate), candidate))
        .filter(|(similarity, _)| *similarity > 0.8)
        .max_by(|(left, _), (right, _)| left.total_cmp(right))
        .map(|(_, candidate)| candidate)
}
