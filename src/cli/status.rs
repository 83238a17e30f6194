//! `memlab status`: where every run of a folder stands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::console::{Console, Stop};
use super::format::FormatOption;
use crate::collate::{self, Collation};
use crate::exec::slurm::Slurm;
use crate::exit::Exit;
use crate::store::ResultsFolder;

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab status runs/alpha_batch
  memlab status --format json runs/alpha_batch

Reads the files that every run leaves, and asks Slurm about what it was given; nothing needs to be running.")]
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
    let queued = queued(&folder, console)?;
    console.result(&args.format.format.render(&collate::status(&folder, &collation, &queued)))?;
    console.note(&format!("{} runs: {}", collation.rows.len(), collate::tally(&collation.rows)));
    Ok(Exit::Success)
}

/// What Slurm says of the runs that did not start yet, where the folder's sweep went there.
fn queued(folder: &ResultsFolder, console: &mut Console) -> Result<BTreeMap<String, String>, Stop> {
    let mut slurm = Slurm::open(folder)?;
    if !slurm.is_open() {
        return Ok(BTreeMap::new());
    }
    let standings = slurm.survey().unwrap_or_else(|trouble| {
        console.note(&format!("Slurm does not answer ({trouble}): these are the runs' own words"));
        Vec::new()
    });
    let said = standings.into_iter().filter(|standing| standing.in_flight);
    Ok(said.filter_map(|standing| Some((standing.run_id, standing.seen?.to_string()))).collect())
}
