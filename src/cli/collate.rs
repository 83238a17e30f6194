//! `memlab collate`: the tables of a results folder, from what is there.

use std::path::PathBuf;

use super::console::{Console, Stop};
use crate::collate::{self, Collation};
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::render;
use crate::store::ResultsFolder;

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memlab collate runs/alpha_batch

Can be run at any time, also while runs go on. Ends with 4 if a run failed, is missing, or left a
damaged report.")]
pub(super) struct Args {
    /// The results folder of an experiment
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let folder = ResultsFolder::open(&args.folder)?;
    let collation = Collation::at(folder.path())?;
    if collation.rows.is_empty() && collation.damaged.is_empty() {
        let nothing = Diagnostic::error(format!("nothing to collate in {}", folder.path().display()))
            .help("name the folder of one experiment, such as runs/alpha_batch");
        return Err(Stop::new(Exit::Undecided, nothing));
    }
    let exit = write(&folder, &collation, console)?;
    console.note(&format!("{}: {}", folder.path().display(), collate::tally(&collation.rows)));
    Ok(exit)
}

/// Writes the tables, tells what is not in them, and gives the exit code that the runs deserve.
pub(super) fn write(folder: &ResultsFolder, collation: &Collation, console: &mut Console) -> Result<Exit, Stop> {
    folder.write("results.csv", &render::csv(&collate::results(&collation.rows, collate::Ranks::Maximum)))?;
    folder.write("samples.csv", &render::csv(&collate::samples(&collation.rows)))?;
    folder.write("comparison.md", &render::page(collation))?;
    for damage in &collation.damaged {
        console.diagnostic(damage);
    }
    if !collation.unplanned.is_empty() {
        console.note(&format!("not in the plan any more, and not tabulated: {}", collation.unplanned.join(", ")));
    }
    let damaged = if collation.damaged.is_empty() { Exit::Success } else { Exit::Undecided };
    let failed = if collate::is_complete(&collation.rows) { Exit::Success } else { Exit::RunFailed };
    Ok(failed.worst(damaged))
}
