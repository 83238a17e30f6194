//! `memlab compare`: the exercise's comparison table.

use std::path::PathBuf;

use super::console::{Console, Stop};
use super::format::FormatOption;
use crate::collate::{self, Ranks};
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::store;

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
    let mut damaged_reports = 0;
    let mut reports = Vec::new();
    for path in &args.paths {
        let found = store::reports_at(path)?;
        if found.is_empty() {
            console.diagnostic(&Diagnostic::warning(format!("no report in {}", path.display())));
        }
        for report in found {
            match report {
                Ok(report) => reports.push(report),
                Err(damaged) => {
                    console.diagnostic(&damaged);
                    damaged_reports += 1;
                }
            }
        }
    }
    if damaged_reports > 0 {
        console.note(&format!("left out because they cannot be read: {damaged_reports}"));
    }
    if reports.is_empty() {
        let nothing = Diagnostic::error("no report to compare")
            .help("give report files (alpha.json), or a folder that holds some (runs/alpha_batch)");
        return Err(Stop::new(Exit::Undecided, nothing));
    }
    let ranks = if args.per_rank { Ranks::Each } else { Ranks::Maximum };
    if format.is_prose() || !args.show_phases {
        console.result(&format.render(&collate::comparison(&reports, ranks)))?;
    }
    if args.show_phases {
        if format.is_prose() {
            for report in &reports {
                console.result(&format!("\n{}\n", report.name))?;
                console.result(&format.render(&collate::phases(report)))?;
            }
        } else {
            console.result(&format.render(&collate::samples(&reports)))?;
        }
    }
    Ok(if damaged_reports > 0 { Exit::Undecided } else { Exit::Success })
}
