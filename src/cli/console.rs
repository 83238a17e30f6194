//! Where commands print: results to standard output, all else to standard error, colour only where it is wanted.
//!
//! A reader who closes the pipe ends the command quietly; a standard output that cannot be written is an error.

use std::io::{self, Write};

use anstream::AutoStream;

use crate::diag::{Diagnostic, Severity};
use crate::exit::Exit;
use crate::render;

/// Why a command stopped before its end: what to tell the user, and the exit code.
#[derive(Debug)]
pub(super) struct Stop {
    /// The command's exit code.
    pub(super) exit: Exit,
    /// What to say; empty when everything is said, or nobody reads it.
    pub(super) diagnostics: Vec<Diagnostic>,
}

impl Stop {
    /// Stops with one diagnostic and this exit code.
    pub(super) fn new(exit: Exit, diagnostic: Diagnostic) -> Self {
        Self { exit, diagnostics: vec![diagnostic] }
    }
}

impl From<Diagnostic> for Stop {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::new(Exit::Usage, diagnostic)
    }
}

impl From<Vec<Diagnostic>> for Stop {
    fn from(diagnostics: Vec<Diagnostic>) -> Self {
        Self { exit: Exit::Usage, diagnostics }
    }
}

/// How many characters fit beside one another where results are read on a terminal; none elsewhere.
pub(super) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Both output streams, with the user's wishes about them.
#[derive(Debug)]
pub(super) struct Console {
    quiet: bool,
    stdout: AutoStream<io::Stdout>,
    stderr: AutoStream<io::Stderr>,
}

impl Console {
    /// Colour `auto` means: on a terminal, unless the environment objects (`NO_COLOR`, `TERM=dumb`).
    pub(super) fn new(quiet: bool, color: clap::ColorChoice) -> Self {
        let choice = match color {
            clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
            clap::ColorChoice::Always => anstream::ColorChoice::Always,
            clap::ColorChoice::Never => anstream::ColorChoice::Never,
        };
        Self { quiet, stdout: AutoStream::new(io::stdout(), choice), stderr: AutoStream::new(io::stderr(), choice) }
    }

    /// Whether only results and errors are wanted.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a result, as it is.
    pub(super) fn result(&mut self, text: &str) -> Result<(), Stop> {
        self.stdout.write_all(text.as_bytes()).and_then(|()| self.stdout.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Stop { exit: Exit::Success, diagnostics: Vec::new() },
            _ => Diagnostic::error(format!("cannot write to standard output: {error}")).into(),
        })
    }

    /// Says something that is no result; silent under `--quiet`.
    pub(super) fn note(&mut self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Prints commands to whoever runs this one, such as a CI job: lines of standard error, also under `--quiet`.
    pub(super) fn command(&mut self, text: &str) {
        let _ = self.stderr.write_all(text.as_bytes());
    }

    /// Shows an error, or a warning unless `--quiet`.
    pub(super) fn diagnostic(&mut self, diagnostic: &Diagnostic) {
        if diagnostic.severity == Severity::Error || !self.quiet {
            self.say(&render::diagnostic(diagnostic));
        }
    }

    /// Shows what stopped a command, and gives its exit code.
    pub(super) fn stop(&mut self, stop: &Stop) -> Exit {
        for (at, diagnostic) in stop.diagnostics.iter().enumerate() {
            if at > 0 {
                self.say("");
            }
            self.diagnostic(diagnostic);
        }
        stop.exit
    }

    /// A standard error that nobody reads is no reason to fail.
    fn say(&mut self, text: &str) {
        let _ = writeln!(self.stderr, "{text}");
    }
}
