//! `memlab slurm-template`: the script of a job array before anything is filled in.

use super::console::{Console, Stop};
use crate::exec::slurm::ARRAY_TEMPLATE;
use crate::exit::Exit;

/// No options: there is one built-in template.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memlab slurm-template > mine.sh
  memlab sweep --slurm --template mine.sh experiments/alpha_batch.toml

The names that a template can use are listed at its start. A name that is not there is an error.")]
pub(super) struct Args {}

pub(super) fn run(_: &Args, console: &mut Console) -> Result<Exit, Stop> {
    console.result(ARRAY_TEMPLATE)?;
    Ok(Exit::Success)
}
