//! `memlab snapshot`: what a `PyTorch` memory snapshot holds, and the same history under other allocator settings.

mod replay;
mod summary;

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::console::{Console, Stop};
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::snapshot::{self, Format, Limits, Snapshot};

/// What to do with a snapshot.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// What a snapshot holds: segments, what was alive at the peak, what keeps accumulating, faults
    Summary(summary::Args),
    /// Replay a recorded history, under its own allocator settings and under others
    Replay(replay::Args),
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    match &args.command {
        Command::Summary(args) => summary::run(args, console),
        Command::Replay(args) => replay::run(args, console),
    }
}

/// How the result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// For reading
    Table,
    /// One object, sizes in bytes
    Json,
}

fn open(path: &Path) -> Result<(Snapshot, Format), Stop> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Diagnostic::error(format!("there is no file {}", path.display()))
            .help("name a snapshot: a .pickle or .json file"),
        _ => Diagnostic::error(format!("cannot open {}: {error}", path.display())),
    })?;
    snapshot::read(file, Limits::default()).map_err(|error| {
        let message = format!("{} is no snapshot that can be read: {error}", path.display());
        match error {
            snapshot::Error::Io(_) => Diagnostic::error(message).into(),
            snapshot::Error::Read(inner) => damaged(message, inner.help),
            snapshot::Error::Decode(_) => {
                damaged(message, Some("memlab reads what torch.cuda.memory._dump_snapshot() writes"))
            }
        }
    })
}

/// Data that cannot be judged.
fn damaged(message: String, help: Option<&str>) -> Stop {
    let mut diagnostic = Diagnostic::error(message);
    diagnostic.help = help.map(str::to_owned);
    Stop::new(Exit::Undecided, diagnostic)
}

fn json(value: &impl Serialize) -> Result<String, Stop> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Diagnostic::error(error.to_string()))?;
    Ok(format!("{text}\n"))
}
