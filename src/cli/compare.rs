//! `memlab compare`: the exercise's comparison table.

use std::path::PathBuf;

use super::console::{Console, Stop};
use super::format::FormatOption;
use crate::collate::{self, Collation, Ranks};
use crate::diag::Diagnostic;
use crate::exit::Exit;

/// What to compare, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab compare alpha.json beta.json gamma.json
  memlab compare --show-phases runs/alpha_batch
  memlab compare --format csv runs/alpha_batch > table.csv

A line holds the maximum over the ranks. csv and json hold one table: with --show-phases, the phases.")]
pub(super) struct Args {
    /// Report files, or folders that hold them
    #[arg(required = true, value_name = "REPORT_OR_DIR")]
    paths: Vec<PathBuf>,
    /// Also show the memory at every phase boundary
    #[arg(long)]
    show_phases: bool,
    /// One line per rank instead of the maximum over ranks
    #[arg(long)]
    per_rank: bool,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let format = args.format.format;
    let mut damaged = 0;
    let mut rows = Vec::new();
    for path in &args.paths {
        let found = Collation::at(path)?;
        if found.rows.is_empty() && found.damaged.is_empty() {
            console.diagnostic(&Diagnostic::warning(format!("no report in {}", path.display())));
        }
        for damage in &found.damaged {
            console.diagnostic(damage);
        }
        damaged += found.damaged.len();
        rows.extend(found.rows);
    }
    if damaged > 0 {
        console.note(&format!("left out because they cannot be read: {damaged}"));
    }
    if rows.is_empty() {
        let nothing = Diagnostic::error("no report to compare")
            .help("give report files (alpha.json), or a folder that holds some (runs/alpha_batch)");
        return Err(Stop::new(Exit::Undecided, nothing));
    }
    let ranks = if args.per_rank { Ranks::Each } else { Ranks::Maximum };
    if format.is_prose() || !args.show_phases {
        console.result(&format.compare(&rows, ranks))?;
    } else {
        console.result(&format.render(&collate::samples(&rows)))?;
    }
    for row in rows.iter().filter(|_| args.show_phases && format.is_prose()) {
        if let Some(report) = &row.report {
            console.result(&format!("\n{}\n{}", row.run_id, format.render(&collate::phases(report))))?;
        }
    }
    Ok(if damaged > 0 { Exit::Undecided } else { Exit::Success })
}
