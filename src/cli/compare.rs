//! `memlab compare`: the exercise's comparison table.

use std::path::{Path, PathBuf};

use super::console::{self, Console, Stop};
use super::format::FormatOption;
use super::pictures;
use crate::collate::{self, Collation, Difference, Ranks, Row};
use crate::diag::Diagnostic;
use crate::exit::Exit;
use crate::protocol::RankReport;
use crate::render;
use crate::store;

/// So many characters show a curve, and so many are beside it in its line.
const CURVE: usize = 64;
const BESIDE: usize = 46;

/// What to compare, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab compare alpha.json beta.json gamma.json
  memlab compare --show-phases runs/alpha_batch
  memlab compare runs/alpha_batch other/alpha_batch
  memlab compare --format csv runs/alpha_batch > table.csv
  memlab compare --html cases.html alpha.json beta.json gamma.json

A line holds the maximum over the ranks. csv and json hold one table: with --show-phases, the phases. Two \
folders that share runs are compared run by run: only what differs is shown, csv and json hold everything.")]
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
    /// Also write a page with pictures, which needs nothing but itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let format = args.format.format;
    let mut damaged = 0;
    let mut sides = Vec::new();
    let mut plan = None;
    for path in &args.paths {
        let mut found = Collation::at(path)?;
        plan = found.plan.take().filter(|_| args.paths.len() == 1);
        if found.rows.is_empty() && found.damaged.is_empty() {
            console.diagnostic(&Diagnostic::warning(format!("no report in {}", path.display())));
        }
        for damage in &found.damaged {
            console.diagnostic(damage);
        }
        damaged += found.damaged.len();
        sides.push(found.rows);
    }
    let exit = if damaged > 0 { Exit::Undecided } else { Exit::Success };
    if let Some(html) = &args.html {
        let rows = sides.concat();
        let everything = Collation { plan, rows, unplanned: Vec::new(), damaged: Vec::new() };
        let folders: Vec<&Path> = args.paths.iter().map(PathBuf::as_path).filter(|path| path.is_dir()).collect();
        store::write_atomic(html, pictures::html(&everything, None, &folders)?.as_bytes())?;
        console.note(&format!("{} shows it in pictures", html.display()));
    }
    if let ([left, right], true) = (&sides[..], args.paths.iter().all(|path| path.is_dir())) {
        let difference = collate::difference(left, right, !format.is_prose());
        if difference.shared > 0 {
            if !(format.is_prose() && difference.table.rows().is_empty()) {
                console.result(&format.render(&difference.table))?;
            }
            console.note(&describe(&difference, args));
            return Ok(exit);
        }
    }
    let rows: Vec<Row> = sides.into_iter().flatten().collect();
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
            let curves: String = report.rank_reports.iter().map(curve).collect();
            console.result(&format!("\n{}\n{curves}\n{}", row.run_id, format.render(&collate::phases(report))))?;
        }
    }
    Ok(exit)
}

/// The allocated memory of a rank over the phases, in one line.
fn curve(rank: &RankReport) -> String {
    let allocated: Vec<f64> = rank.samples.iter().map(|sample| sample.allocated_mib).collect();
    let most = allocated.iter().copied().fold(0.0, f64::max);
    let width = console::width().map_or(CURVE, |width| width.saturating_sub(BESIDE).clamp(16, CURVE));
    format!("rank {}  {}  allocated, up to {most:.2} MiB\n", rank.rank, render::sparkline(&allocated, width))
}

/// How much of two folders is the same.
fn describe(difference: &Difference, args: &Args) -> String {
    let mut parts = vec![format!("{} runs in both, {} of them equal", difference.shared, difference.equal)];
    for (path, only) in args.paths.iter().zip([&difference.only_left, &difference.only_right]) {
        if !only.is_empty() {
            parts.push(format!("only in {}: {}", path.display(), only.join(", ")));
        }
    }
    parts.join("\n")
}
