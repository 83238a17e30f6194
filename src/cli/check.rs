//! `memlab check`: run everything again, and judge it: the hypotheses, and the numbers against a baseline.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::collate::{of_runs, tables};
use super::console::{Console, Stop};
use super::format::{Format, FormatOption};
use super::planning::PlanningOptions;
use super::request::{Executed, Request, prepare};
use super::verdicts;
use crate::check::{self, Baseline};
use crate::collate::Collation;
use crate::diag::Diagnostic;
use crate::exec::{Ending, utc_now};
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::protocol::{BaselineVerdict, Judged, PlanFile, SCHEMA_VERSION};
use crate::render;
use crate::store::write_atomic;

/// What to check, and how to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab check experiments/solution/*.toml
  memlab check --save-baseline experiments/solution/alpha_batch.toml
  memlab check --reuse --junit junit.xml --format markdown my_experiment.toml

Baselines are in the folder `baselines` beside the experiment, or above it, one file per experiment and device. \
Ends with 0 if everything is as expected; 1 if a hypothesis is refuted, or a number changed beyond its \
tolerance, for better or worse; 5 if something could not be judged; 4 if a run failed.")]
pub(super) struct Args {
    /// Experiment files
    #[arg(required = true, value_name = "EXPERIMENT")]
    experiments: Vec<PathBuf>,
    #[command(flatten)]
    planning: PlanningOptions,
    /// Take the results that are finished
    #[arg(long)]
    reuse: bool,
    /// Save what is measured as the baseline, instead of comparing with it
    #[arg(long)]
    save_baseline: bool,
    /// Folder of the baselines
    #[arg(long, value_name = "DIR")]
    baselines: Option<PathBuf>,
    #[arg(long, value_name = "FILE", help = "Also write the verdicts as JUnit XML")]
    junit: Option<PathBuf>,
    /// Runs at a time; otherwise as many as cores, host memory and GPUs allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let (machine, experiments) = prepare(&args.experiments, &args.planning)?;
    let request = Request { planning: &args.planning, jobs: args.jobs, fresh: !args.reuse, retry: &[], out: None };
    let mut exit = Exit::Success;
    let mut all = Vec::new();
    for experiment in &experiments {
        let executed = request.execute(experiment, &machine, console)?;
        if executed.ending == Ending::Interrupted {
            // Half of the measurements would be judged as if they were all.
            return Ok(Exit::Interrupted);
        }
        let (judged, own) = judge(args, experiment, &executed, console)?;
        exit = exit.worst(own);
        annotate(experiment, &judged, console);
        all.push(judged);
    }
    print(args, &experiments, all, console)?;
    Ok(exit)
}

/// Judges one experiment, and saves its baseline where that is asked for.
fn judge(
    args: &Args,
    experiment: &Experiment,
    executed: &Executed,
    console: &mut Console,
) -> Result<(Judged, Exit), Stop> {
    let Executed { folder, collation, .. } = executed;
    let plan = collation.plan.as_ref().ok_or_else(|| Diagnostic::error("the results folder lost its plan"))?;
    let baseline = Baselines { args, experiment, collation, plan };
    let (verdict, out_of_memory) = if args.save_baseline { baseline.save(console)? } else { baseline.compare(console) };
    let judged = verdicts::judge(folder, collation, verdict, true, &out_of_memory)?
        .ok_or_else(|| Diagnostic::error("the results folder lost its plan"))?;
    tables(folder, collation, Some(&judged), console)?;
    let exit = check::exit(&judged).worst(of_runs(collation));
    Ok((judged, exit))
}

/// Where an experiment's baseline is, and what to do with it.
struct Baselines<'a> {
    args: &'a Args,
    experiment: &'a Experiment,
    collation: &'a Collation,
    plan: &'a PlanFile,
}

/// The verdict, if there is one, and the runs that are known to be out of memory.
type Compared = (Option<BaselineVerdict>, HashSet<String>);

impl Baselines<'_> {
    fn folder(&self) -> PathBuf {
        const NAME: &str = "baselines";
        if let Some(folder) = &self.args.baselines {
            return folder.clone();
        }
        let beside = self.experiment.source.path.parent().unwrap_or(Path::new(""));
        let above = beside.parent().map(|above| above.join(NAME)).filter(|above| above.is_dir());
        let own = beside.join(NAME);
        if own.is_dir() { own } else { above.unwrap_or(own) }
    }

    fn file(&self) -> PathBuf {
        self.folder().join(format!("{}.json", check::baseline_name(self.collation, self.plan)))
    }

    fn compare(&self, console: &mut Console) -> Compared {
        let file = self.file();
        match read(&file) {
            Ok(Some(baseline)) => {
                let verdict = baseline.compare(&file, self.collation, self.plan);
                (Some(verdict), baseline.out_of_memory())
            }
            Ok(None) if self.plan.tolerances.is_none() && !self.plan.hypotheses.is_empty() => (None, HashSet::new()),
            Ok(None) => {
                let problem = format!("there is none{}; save one with --save-baseline", self.others());
                (Some(check::without(&file, &problem)), HashSet::new())
            }
            Err(damage) => {
                console.diagnostic(&damage);
                (Some(check::without(&file, &damage.message)), HashSet::new())
            }
        }
    }

    fn save(&self, console: &mut Console) -> Result<Compared, Stop> {
        let baseline = match Baseline::of(self.collation, self.plan) {
            Ok(baseline) => baseline,
            Err(unmeasured) => {
                let mut error = Diagnostic::error(format!("{}: no baseline is saved", self.plan.name))
                    .help("find out why, and save it when every run is measured");
                for run in unmeasured.iter().take(8) {
                    error = error.note(format!("{}: {}", run.run_id, run.why));
                }
                console.diagnostic(&error);
                return Ok((None, HashSet::new()));
            }
        };
        let file = self.file();
        let text = serde_json::to_string_pretty(&baseline)
            .map_err(|error| Diagnostic::error(format!("cannot write {}: {error}", file.display())))?
            + "\n";
        let said = match std::fs::read_to_string(&file) {
            Ok(there) if there == text => "unchanged",
            Ok(_) => "replaced",
            Err(_) => "new",
        };
        if said != "unchanged" {
            std::fs::create_dir_all(self.folder()).map_err(|error| {
                Diagnostic::error(format!("cannot make the folder {}: {error}", self.folder().display()))
            })?;
            write_atomic(&file, text.as_bytes())?;
        }
        console.note(&format!("{}: baseline {said}: {}", self.plan.name, file.display()));
        Ok((Some(baseline.compare(&file, self.collation, self.plan)), baseline.out_of_memory()))
    }

    /// The baselines of other devices, in words.
    fn others(&self) -> String {
        let entries = std::fs::read_dir(self.folder()).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let own = format!("{}-", self.plan.name);
        let device = |name: String| {
            let device = name.strip_suffix(".json")?.strip_prefix(&own)?;
            (device.starts_with("cpu-") || device.starts_with("cuda-")).then(|| device.to_owned())
        };
        let mut others: Vec<String> = names.filter_map(device).collect();
        others.sort();
        if others.is_empty() { String::new() } else { format!(" of this device, only of {}", others.join(", ")) }
    }
}

/// Reads a baseline; none where there is none.
fn read(file: &Path) -> Result<Option<Baseline>, Diagnostic> {
    let failed = |why: &dyn std::fmt::Display| {
        Diagnostic::error(format!("{} is no readable baseline: {why}", file.display()))
            .help("restore it, or save a new one with --save-baseline")
    };
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let baseline: Baseline = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    if baseline.schema_version != SCHEMA_VERSION {
        return Err(failed(&format!("its format is version {}", baseline.schema_version)));
    }
    Ok(Some(baseline))
}

/// Where a GitHub job is watching, marks the lines of the experiment.
fn annotate(experiment: &Experiment, judged: &Judged, console: &mut Console) {
    if std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
        let source = &experiment.source;
        let lines: Vec<usize> = experiment.hypotheses.iter().map(|written| source.line(written.span.start)).collect();
        console.command(&render::annotations(judged, &source.path.to_string_lossy(), &lines));
    }
}

fn print(args: &Args, experiments: &[Experiment], all: Vec<Judged>, console: &mut Console) -> Result<(), Stop> {
    let document = check::document(all, &utc_now());
    if let Some(path) = &args.junit {
        write_atomic(path, render::junit(&document).as_bytes())?;
    }
    match args.format.format {
        Format::Json => console.result(&verdicts::json(&document)?),
        Format::Csv => console.result(&render::csv(&render::verdict_table(&document))),
        format => {
            for (at, (experiment, judged)) in experiments.iter().zip(&document.experiments).enumerate() {
                let gap = if at == 0 { "" } else { "\n" };
                let heading = if format == Format::Markdown { "## " } else { "" };
                let title = format!("{gap}{heading}{}: {}\n\n", experiment.name, judged.judgement);
                console.result(&format!("{title}{}", format.verdicts(judged)))?;
            }
            Ok(())
        }
    }
}
