//! `memlab status`: where every run of a folder stands.

use std::path::PathBuf;

use super::console::{Console, Stop};
use super::format::FormatOption;
use crate::collate::{self, Collation};
use crate::exit::Exit;
use crate::store::ResultsFolder;

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab status runs/alpha_batch
  memlab status --format json runs/alpha_batch

Reads the files that every run leaves; nothing needs to be running.")]
pub(super) struct Args {
    /// The results folder of an experiment
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let folder = ResultsFolder::open(&args.folder)?;
    let collation = Collation::at(folder.path())?;
    for damage in &collation.damaged {
        console.diagnostic(damage);
    }
    console.result(&args.format.format.render(&collate::status(&folder, &collation)))?;
    console.note(&format!("{} runs: {}", collation.rows.len(), collate::tally(&collation.rows)));
    Ok(Exit::Success)
}
