//! The scripts that `sbatch` is given: templates, and the quoting of every value that goes into one.

use std::path::Path;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use serde::Serialize;

use crate::diag::{Diagnostic, Source};

/// The built-in template of an array's script, with its variables documented at its start.
pub const ARRAY_TEMPLATE: &str = include_str!("../../../templates/slurm-array.sh");

/// The template of the job that collates when nobody watches.
const COLLATE_TEMPLATE: &str = include_str!("../../../templates/slurm-collate.sh");

/// A template of scripts.
#[derive(Debug, Clone)]
pub struct Template {
    source: Source,
}

impl Template {
    /// The built-in one of arrays.
    pub fn built_in() -> Self {
        Self::of("templates/slurm-array.sh", ARRAY_TEMPLATE)
    }

    pub(super) fn collate() -> Self {
        Self::of("templates/slurm-collate.sh", COLLATE_TEMPLATE)
    }

    /// The user's own.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> Result<Self, Diagnostic> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Diagnostic::error(format!("cannot read the template {}: {error}", path.display()))
                .help("`memlab slurm-template` prints the built-in one, to start from")
        })?;
        Ok(Self { source: Source { path: path.to_owned(), text: text.into() } })
    }

    fn of(path: &str, text: &str) -> Self {
        Self { source: Source { path: path.into(), text: Arc::from(text) } }
    }

    /// The script.
    pub(super) fn render(&self, context: &impl Serialize) -> Result<String, Diagnostic> {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
        let mut environment = Environment::new();
        environment.set_syntax(syntax.map_err(|error| self.fault(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        // For errors to have a place in the text.
        environment.set_debug(true);
        environment.add_filter("sh", |value: &str| shell(value).ok_or_else(|| refused(value, "the shell")));
        environment
            .add_filter("directive", |value: &str| directive(value).ok_or_else(|| refused(value, "a directive")));
        environment
            .template_from_named_str("template", &self.source.text)
            .and_then(|template| template.render(minijinja::value::Serde(context)))
            .map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &Error) -> Diagnostic {
        let (problem, help) = match error.kind() {
            ErrorKind::UndefinedError => (
                "no such name here".to_owned(),
                "`memlab slurm-template` prints the built-in template, which lists the names at its start",
            ),
            _ => (
                error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
                "correct the template or the value; `memlab slurm-template` prints the built-in template",
            ),
        };
        let path = self.source.path.display();
        let said = Diagnostic::error(format!("the template {path} cannot be filled in: {problem}")).help(help);
        match error.range().filter(|range| self.source.text.get(range.clone()).is_some()) {
            Some(range) => said.at(&self.source, range, problem),
            None => said,
        }
    }
}

fn refused(value: &str, by: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{value:?} cannot be expressed for {by}"))
}

/// A word of the shell. None for what no word can hold.
pub(super) fn shell(value: &str) -> Option<String> {
    shlex::try_quote(value).ok().map(std::borrow::Cow::into_owned)
}

/// A value behind `#SBATCH --option=`. None for what cannot stand there: a directive ends with its line.
fn directive(value: &str) -> Option<String> {
    if value.is_empty() || value.chars().any(char::is_control) {
        return None;
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=@%+&|*[]()!".contains(c);
    if value.chars().all(plain) {
        return Some(value.to_owned());
    }
    // Slurm takes quotes and backslashes as the shell does, and expands nothing.
    Some(format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A path in a pattern of file names, where a percent sign means something else.
pub(super) fn pattern(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

/// What can be part of a job's name on every cluster.
pub(super) fn job_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_shell_arrive_unchanged() {
        for value in
            ["plain", "", "my runs (ü)", "it's", "\"quoted\"", "$(touch x)`y`", "a\nb", "\\ * ? ~ # ; &", "日本"]
        {
            let script = format!("printf %s {}", shell(value).unwrap());
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
        assert_eq!(shell("a\0b"), None);
    }

    #[test]
    fn a_directive_holds_one_line() {
        assert_eq!(directive("gpu:h100:1").unwrap(), "gpu:h100:1");
        assert_eq!(directive("it's \"q\" \\ $(x) # ü").unwrap(), "\"it's \\\"q\\\" \\\\ $(x) # ü\"");
        for value in ["a\nb", "a\0b", "a\tb", ""] {
            assert_eq!(directive(value), None, "{value:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_its_place() {
        let template = Template::of("mine.sh", "#!/bin/bash\n#SBATCH --time={{ tiem }}\n");
        let error = template.render(&std::collections::BTreeMap::from([("time", "00:01:00")])).unwrap_err();
        assert_eq!(error.labels.len(), 1, "{error:?}");
        let label = &error.labels[0];
        assert_eq!(&label.source.text[label.span.clone()], "tiem");
        assert_eq!(label.source.line(label.span.start), 2);
    }

    #[test]
    fn a_value_that_cannot_be_expressed_is_refused() {
        let template = Template::of("mine.sh", "#SBATCH --account={{ account | directive }}\n");
        let error = template.render(&std::collections::BTreeMap::from([("account", "a\n#SBATCH --x")])).unwrap_err();
        assert!(error.message.contains("cannot be expressed for a directive"), "{}", error.message);
    }
}
