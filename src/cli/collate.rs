//! `memlab collate`: the tables and verdicts of a results folder, from what is there.

use std::path::PathBuf;

use rayon::prelude::*;

use super::console::{Console, Stop};
use super::{pictures, verdicts};
use crate::check;
use crate::collate::{self, Collation, Ranks, Row};
use crate::diag::Diagnostic;
use crate::exec::slurm::Slurm;
use crate::exit::Exit;
use crate::parallel::on_all_cores;
use crate::protocol::Judged;
use crate::render;
use crate::store::ResultsFolder;

/// Makes the text of a file.
type Text<'a> = &'a (dyn Fn() -> Result<String, Diagnostic> + Sync);

/// Runs whose samples are one part of `samples.csv`.
const SAMPLED_TOGETHER: usize = 256;

/// Which folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  memlab collate runs/alpha_batch

Can be run at any time, also while runs go on. Ends with 4 if a run failed or is missing, with 1 if a \
hypothesis of the experiment is refuted, and with 5 if one is undecided, or a report is damaged.")]
pub(super) struct Args {
    /// The results folder of an experiment
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let folder = ResultsFolder::open(&args.folder)?;
    let mut slurm = Slurm::open(&folder)?;
    if slurm.is_open()
        && let Err(trouble) = slurm.settled()
    {
        console.diagnostic(&trouble);
    }
    let collation = Collation::at(folder.path())?;
    if collation.rows.is_empty() && collation.damaged.is_empty() {
        let nothing = Diagnostic::error(format!("nothing to collate in {}", folder.path().display()))
            .help("name the folder of one experiment, such as runs/alpha_batch");
        return Err(Stop::new(Exit::Undecided, nothing));
    }
    let written = write(&folder, &collation, console)?;
    if let Some(judged) = &written.judged {
        console.result(&render::verdicts(judged))?;
    }
    console.note(&format!("{}: {}", folder.path().display(), collate::tally(&collation.rows)));
    Ok(written.exit)
}

/// What is written about a results folder, as far as a command tells it too.
#[derive(Debug)]
pub(super) struct Written {
    /// The verdicts on the plan's hypotheses, where it has some.
    pub(super) judged: Option<Judged>,
    /// The exit code that the runs and the verdicts deserve.
    pub(super) exit: Exit,
}

/// Writes the tables and the verdicts, and tells what is not in them.
pub(super) fn write(folder: &ResultsFolder, collation: &Collation, console: &mut Console) -> Result<Written, Stop> {
    let judged = verdicts::of_hypotheses(folder, collation)?;
    tables(folder, collation, judged.as_ref(), console)?;
    let exit = judged.as_ref().map_or(Exit::Success, check::exit).worst(of_runs(collation));
    Ok(Written { judged, exit })
}

/// Writes the tables, with these verdicts below the comparison, and tells what is not in them.
pub(super) fn tables(
    folder: &ResultsFolder,
    collation: &Collation,
    judged: Option<&Judged>,
    console: &mut Console,
) -> Result<(), Stop> {
    let rows = &collation.rows;
    let files: [(&str, Text<'_>); 4] = [
        ("samples.csv", &|| Ok(samples(rows))),
        ("report.html", &|| pictures::html(collation, judged, &[folder.path()])),
        ("results.csv", &|| Ok(render::csv(&collate::results(rows, Ranks::Maximum)))),
        ("comparison.md", &|| {
            let verdicts = judged.map(|judged| format!("\n{}", render::verdicts_markdown(judged, 2)));
            Ok(format!("{}{}", render::page(collation), verdicts.unwrap_or_default()))
        }),
    ];
    let (tables, figures) = on_all_cores(|| {
        let write = |(name, text): &(&str, Text<'_>)| folder.write(name, &text()?);
        rayon::join(|| files.par_iter().map(write).collect::<Vec<_>>(), || pictures::write_figures(folder, collation))
    })?;
    // Each on its own: a disk that has no room for one may have some for another.
    tables.into_iter().chain([figures]).collect::<Result<(), _>>()?;
    for damage in &collation.damaged {
        console.diagnostic(damage);
    }
    if !collation.unplanned.is_empty() {
        console.note(&format!("not in the plan any more, and not tabulated: {}", collation.unplanned.join(", ")));
    }
    Ok(())
}

/// `samples.csv`, a part at a time: as one table it would take more memory than all reports.
fn samples(rows: &[Row]) -> String {
    let parts = rows.par_chunks(SAMPLED_TOGETHER).map(|rows| render::csv_rows(&collate::samples(rows)));
    render::csv(&collate::samples(&[])) + &parts.collect::<Vec<_>>().concat()
}

/// The exit code that the runs deserve: 4 where one failed or is missing, 5 where a report is damaged.
pub(super) fn of_runs(collation: &Collation) -> Exit {
    let damaged = if collation.damaged.is_empty() { Exit::Success } else { Exit::Undecided };
    let failed = if collate::has_failed(&collation.rows) { Exit::RunFailed } else { Exit::Success };
    failed.worst(damaged)
}
