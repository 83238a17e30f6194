//! `memlab limit`: the largest value of an axis that fits, and the runs that prove it.

mod answer;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::collate::tables;
use super::console::{Console, Stop};
use super::format::FormatOption;
use super::machine::Machine;
use super::planning::PlanningOptions;
use super::request::{Executed, Request, prepare};
use crate::collate::Row;
use crate::diag::{Diagnostic, nearest};
use crate::exec::Ending;
use crate::exit::Exit;
use crate::experiment::Experiment;
use crate::limit::{self, Limit, Step};
use crate::plan;
use crate::protocol::{Axis, DeviceKind, Kind, Outcome, RunSpec};

/// Without `--within` the search ends here: whatever still fits does not depend much on the axis.
const FAR: u64 = 65_536;
/// Values at a time, however many cores there are: more would mostly be tried in vain.
const MOST_AT_ONCE: usize = 8;

/// What to vary, and within what.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab limit experiments/alpha_batch.toml --axis batch_size --capacity 1GiB
  memlab limit experiments/forecast_7b.toml --axis batch_size --set precision=bf16
  memlab limit experiments/gamma_steps.toml --axis steps --capacity 4GiB --within 1..1000

The search doubles until a value does not fit, then divides what lies between, until one value fits and the next \
one does not. On a CPU the runs only allocate, on a modelled GPU; on CUDA they are real. They stay in the \
results folder, and another search takes them from there.

Ends with 5 if there is no boundary within the range, with 4 if a run failed for another reason.")]
pub(super) struct Args {
    /// Experiment file; the search varies its base
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    /// What to vary, such as steps
    #[arg(long, value_name = "AXIS", value_parser = axis)]
    axis: Axis,
    /// Memory that the allocator may reserve, such as 80GiB; otherwise that of the experiment or the device
    #[arg(long, value_name = "SIZE")]
    capacity: Option<String>,
    /// Values to search, both ends included [default: from the smallest to 65536]
    #[arg(long, value_name = "LO..HI", value_parser = within)]
    within: Option<RangeInclusive<u64>>,
    /// Change a value of the base
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What runs execute on: auto, cuda or cpu (the same as --set device=...)
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Runs at a time; otherwise as many as cores and GPUs allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Folder for the runs [default: runs/NAME-limit]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatOption,
}

/// An axis whose values are numbers of something: of those, memory may grow with them.
fn axis(name: &str) -> Result<Axis, String> {
    let numeric = || Axis::definitions().iter().filter(|axis| matches!(axis.kind, Kind::Whole { .. }));
    if let Some(axis) = numeric().find(|axis| axis.name == name) {
        return Ok(axis.axis);
    }
    let names: Vec<&str> = numeric().map(|axis| axis.name).collect();
    let remedy = match nearest(name, names.iter().copied()) {
        Some(nearest) if Axis::named(name).is_none() => format!("did you mean {nearest}?"),
        _ => format!("give one of {}", names.join(", ")),
    };
    Err(if Axis::named(name).is_some() {
        format!("its values are not numbers to go through: {remedy}")
    } else {
        format!("no such axis: {remedy}")
    })
}

fn within(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().ok();
    let ends = text.split_once("..").and_then(|(low, high)| Some((number(low)?, number(high)?)));
    match ends {
        Some((low, high)) if low <= high => Ok(low..=high),
        Some((low, high)) => Err(format!("{low} is above {high}: write {high}..{low}")),
        None => Err("expected two whole numbers, such as 1..4096".to_owned()),
    }
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let range = range(args)?;
    let capacity = args.capacity.as_ref().map(|capacity| format!("capacity={capacity}"));
    let planning = PlanningOptions {
        set: args.set.iter().cloned().chain(capacity).collect(),
        device: args.device.clone(),
        first: None,
        sample: None,
        sample_seed: 0,
        yes: true,
    };
    let (machine, experiments) = prepare(std::slice::from_ref(&args.experiment), &planning)?;
    let Some(experiment) = experiments.into_iter().next() else {
        return Err(Diagnostic::error("there is no experiment").into());
    };
    let mut experiment = base_of(experiment, args.axis)?;
    let spec = specification(&mut experiment, args.axis, *range.start(), &machine)?;
    let width = at_once(args, &spec, &machine);
    let request = Request { planning: &planning, jobs: args.jobs, fresh: false, retry: &[], out: args.out.as_deref() };

    let mut values = Vec::new();
    let mut found = None;
    loop {
        let tried = limit::tried(found.as_ref().map_or(&[], |found: &Executed| &found.collation.rows), args.axis);
        let more = match limit::next(&range, &tried, width) {
            Step::Over(limit) => {
                let Some(found) = found else { return Err(Diagnostic::error("nothing was tried").into()) };
                return report(args, &range, limit, &found, console);
            }
            Step::Try(more) => more,
        };
        values.extend(more);
        values.sort_unstable();
        let list: Vec<String> = values.iter().map(u64::to_string).collect();
        let list = if let [one] = &list[..] { one.clone() } else { format!("[{}]", list.join(", ")) };
        experiment.set(&format!("{}={list}", args.axis))?;
        // The folder's lock goes with the rounds before.
        drop(found);
        let executed = request.execute(&experiment, &machine, console)?;
        if executed.ending == Ending::Interrupted {
            return Ok(Exit::Interrupted);
        }
        if let Some(failed) = executed.collation.rows.iter().find(|row| !is_evidence(row)) {
            tables(&executed.folder, &executed.collation, None, console)?;
            return Err(Stop::new(Exit::RunFailed, failure(args.axis, failed, &executed)));
        }
        found = Some(executed);
    }
}

/// The values to search.
fn range(args: &Args) -> Result<RangeInclusive<u64>, Diagnostic> {
    let definition = args.axis.definition();
    let Kind::Whole { min, max } = definition.kind else {
        return Err(Diagnostic::error(format!("`{}` has no numbers to go through", args.axis)));
    };
    match &args.within {
        Some(within) if *within.start() < min || *within.end() > max => {
            let (low, high) = (within.start(), within.end());
            Err(Diagnostic::error(format!("--within {low}..{high} goes beyond what `{}` can be", args.axis))
                .help(format!("stay within {min}..{max}")))
        }
        Some(within) => Ok(within.clone()),
        None if args.axis == Axis::WorldSize => Err(Diagnostic::error("every rank is a process of its own")
            .help("say how many there may be at most, such as --within 1..8")),
        None => Ok(min..=FAR.min(max)),
    }
}

/// The experiment's base alone, whose limit is searched.
fn base_of(experiment: Experiment, axis: Axis) -> Result<Experiment, Diagnostic> {
    if let Some(other) = experiment.sweep.iter().find(|swept| swept.axis != axis) {
        return Err(Diagnostic::error(format!("{} sweeps `{}`", experiment.source.path.display(), other.axis))
            .note("a limit is that of one configuration")
            .help(format!(
                "choose one of its values: --set {}={}",
                other.axis,
                other.axis.show(&other.values[0].value)
            )));
    }
    Ok(Experiment {
        name: format!("{}-limit", experiment.name),
        sweep: Vec::new(),
        zips: Vec::new(),
        excludes: Vec::new(),
        perturbations: Vec::new(),
        hypotheses: Vec::new(),
        baseline: None,
        ..experiment
    })
}

/// The run that the search starts with. On a modelled GPU, runs only allocate from here on.
fn specification(
    experiment: &mut Experiment,
    axis: Axis,
    lowest: u64,
    machine: &Machine,
) -> Result<RunSpec, Vec<Diagnostic>> {
    experiment.set(&format!("{axis}={lowest}"))?;
    let plan = plan::expand(experiment, &machine.host())?;
    let Some(planned) = plan.runs.into_iter().next() else {
        return Err(vec![Diagnostic::error("there is nothing to run")]);
    };
    let spec = planned.spec;
    if spec.device == DeviceKind::Cpu {
        experiment.set("compute=false")?;
    }
    if let Some(model) =
        spec.device_model.as_ref().filter(|model| model.memory_bytes.is_none() && spec.capacity.is_none())
    {
        let error = Diagnostic::error(format!("the device model `{}` has memory without limit", model.name));
        return Err(vec![error.help("give one: --capacity 80GiB")]);
    }
    Ok(spec)
}

/// How many values to try at a time: as many as run side by side.
fn at_once(args: &Args, spec: &RunSpec, machine: &Machine) -> usize {
    let places = match spec.device {
        DeviceKind::Cuda => machine.probe.gpus.len(),
        DeviceKind::Cpu => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    let ranks = usize::try_from(spec.world_size).unwrap_or(usize::MAX).max(1);
    args.jobs.map_or(places / ranks, usize::from).clamp(1, MOST_AT_ONCE)
}

/// Whether a run says if its value fits.
fn is_evidence(row: &Row) -> bool {
    row.outcome().is_some_and(Outcome::is_finished)
}

fn failure(axis: Axis, row: &Row, executed: &Executed) -> Diagnostic {
    let log = executed.folder.run(&row.run_id).log_path(0);
    let why = row.state.message().unwrap_or("no reason is known");
    let value = axis.show(row.setting(axis));
    Diagnostic::error(format!("the run with {axis} = {value} ended with {}: {why}", row.state.name()))
        .note("it is no evidence of what fits: the search ends here")
        .help(format!("see {}, then search again: finished runs are kept", log.display()))
}

/// Writes the tables of the folder, and tells what was found.
fn report(
    args: &Args,
    range: &RangeInclusive<u64>,
    limit: Limit,
    executed: &Executed,
    console: &mut Console,
) -> Result<Exit, Stop> {
    let rows = &executed.collation.rows;
    tables(&executed.folder, &executed.collation, None, console)?;
    let format = args.format.format;
    let folder = executed.folder.path();
    if format.is_prose() {
        console.result(&answer::prose(args.axis, limit, executed, format))?;
    } else {
        console.result(&format.render(&limit::trials(rows, args.axis, Some(folder))))?;
    }
    let axis = args.axis;
    let exceptions = limit::exceptions(&limit::tried(rows, axis));
    if !exceptions.is_empty() {
        let list: Vec<String> = exceptions.iter().map(u64::to_string).collect();
        console.diagnostic(
            &Diagnostic::warning(format!("{axis} = {} does not fit although a larger value does", list.join(", ")))
                .note("memory is not monotone in this axis: between tried values anything can happen")
                .help("try every value that matters: --within over a small range, or a sweep"),
        );
    }
    let (low, high) = (range.start(), range.end());
    match limit {
        Limit::Fits(_) => Ok(Exit::Success),
        Limit::NothingFits => Err(Stop::new(
            Exit::Undecided,
            Diagnostic::error(format!("no limit found: not even {axis} = {low} fits"))
                .help("lower the start of --within, raise --capacity, or take a smaller preset"),
        )),
        Limit::HighestFits => Err(Stop::new(
            Exit::Undecided,
            Diagnostic::error(format!("no limit found: {axis} = {high}, the highest of the range, fits"))
                .help("search higher with --within, lower --capacity, or take an axis that memory depends on"),
        )),
    }
}
