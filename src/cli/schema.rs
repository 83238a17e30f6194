//! `memlab schema`: the JSON schemas of what users write and what programs read.

use super::console::{Console, Stop};
use crate::check;
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::experiment;

/// Which one.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab schema > experiment.schema.json
  memlab schema verdicts

An experiment that starts with the line `#:schema ./experiment.schema.json` is then completed and checked by \
editors that understand TOML schemas (Even Better TOML, taplo, tombi).")]
pub(super) struct Args {
    /// Of what
    #[arg(value_enum, default_value = "experiment")]
    of: Of,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Of {
    /// Experiment files
    Experiment,
    /// verdicts.json, and what `memlab check --format json` prints
    Verdicts,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let text = match args.of {
        Of::Verdicts => check::SCHEMA.to_owned(),
        Of::Experiment => serde_json::to_string_pretty(&experiment::schema())
            .map(|text| format!("{text}\n"))
            .map_err(|error| Diagnostic::error(format!("the schema cannot be written: {error}")))?,
    };
    console.result(&text)?;
    Ok(Exit::Success)
}
