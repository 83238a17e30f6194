//! A diagnostic as a compiler shows it: the file, the line, the offending text underlined, the remedy.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Renderer, Snippet};

use crate::diag::{Diagnostic, Severity};

/// With colours; whoever prints it takes them out where they are not wanted.
pub fn diagnostic(diagnostic: &Diagnostic) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut elements: Vec<Element<'_>> = Vec::new();
    for (at, label) in diagnostic.labels.iter().enumerate() {
        // Labels in one file share a snippet, which the first of them opens.
        if diagnostic.labels[..at].iter().any(|earlier| earlier.source == label.source) {
            continue;
        }
        let in_file = diagnostic.labels.iter().enumerate().filter(|(_, other)| other.source == label.source);
        let annotations = in_file.map(|(at, label)| {
            let kind = if at == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            kind.span(label.span.clone()).label(label.message.as_str())
        });
        let path = label.source.path.to_string_lossy().into_owned();
        elements.push(Snippet::source(label.source.text.as_ref()).path(path).annotations(annotations).into());
    }
    elements.extend(diagnostic.notes.iter().map(|note| Level::NOTE.message(note.as_str()).into()));
    elements.extend(diagnostic.help.iter().map(|help| Level::HELP.message(help.as_str()).into()));
    let title = level.primary_title(diagnostic.message.as_str());
    Renderer::styled().render(&[Group::with_title(title).elements(elements)])
}
