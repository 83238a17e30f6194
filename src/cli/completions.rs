//! `memlab completions`: what a shell needs to complete memlab's commands and options.

use clap_complete::Shell;

use super::console::{Console, Stop};
use crate::diag::Diagnostic;
use crate::exit::Exit;

/// Which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab completions bash > ~/.local/share/bash-completion/completions/memlab
  memlab completions zsh  > ~/.zfunc/_memlab
  memlab completions fish > ~/.config/fish/completions/memlab.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "memlab", &mut text);
    let text = String::from_utf8(text).map_err(|error| Diagnostic::error(format!("no completions: {error}")))?;
    console.result(&text)?;
    Ok(Exit::Success)
}
