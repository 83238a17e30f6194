//! `memlab cancel`: stop what runs for a folder.

use std::path::PathBuf;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::console::{Console, Stop};
use crate::diag::Diagnostic;
use crate::exec::slurm::Slurm;
use crate::exit::Exit;
use crate::store::{ResultsFolder, hostname};

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memlab cancel runs/alpha_batch

What is finished is kept; the next `memlab sweep` goes on from there.")]
pub(super) struct Args {
    /// The results folder of an experiment
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let folder = ResultsFolder::open(&args.folder)?;
    let mut slurm = Slurm::open(&folder)?;
    if slurm.is_open() {
        let arrays = slurm.cancel()?;
        console.note(&format!("Slurm was asked to cancel {arrays} job arrays; what is finished is kept"));
        // Without accounting Slurm soon forgets why they ended.
        if let Err(late) = slurm.settled() {
            console.diagnostic(&late);
        }
        return Ok(Exit::Success);
    }
    let Some((process, host)) = folder.holder()? else {
        console.note(&format!("nothing is running for {}", folder.path().display()));
        return Ok(Exit::Success);
    };
    if host != hostname() {
        return Err(Diagnostic::error(format!("{} is in use by process {process} on {host}", folder.path().display()))
            .help(format!("run this command on {host}"))
            .into());
    }
    kill(Pid::from_raw(process), Signal::SIGTERM).map_err(|error| {
        Diagnostic::error(format!("cannot end process {process}: {}", error.desc())).help("who started it can end it")
    })?;
    console.note(&format!("process {process} was asked to end; it keeps what is finished"));
    Ok(Exit::Success)
}
