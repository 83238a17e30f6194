//! `memlab schema`: the JSON schema of experiment files.

use super::console::{Console, Stop};
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::experiment;

/// No options: there is one schema.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab schema > experiment.schema.json

An experiment that starts with the line `#:schema ./experiment.schema.json` is then completed and
checked by editors that understand TOML schemas (Even Better TOML, taplo, tombi).")]
pub(super) struct Args {}

pub(super) fn run(_: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let text = serde_json::to_string_pretty(&experiment::schema())
        .map_err(|error| Diagnostic::error(format!("the schema cannot be written: {error}")))?;
    console.result(&format!("{text}\n"))?;
    Ok(Exit::Success)
}
