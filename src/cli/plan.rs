//! `memlab plan`: what would run, in which order, and where every value comes from.

mod outlook;

use std::path::{Path, PathBuf};

use super::console::{Console, Stop};
use super::format::FormatOption;
use super::planning::{PlanningOptions, likely_host};
use crate::collate::{Cell, Column, Table, axis_cell, axis_column};
use crate::exit::Exit;
use crate::experiment::{Experiment, Origin};
use crate::plan::Plan;
use crate::protocol::Axis;
use outlook::Outlook;

/// What to plan, and how to show it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  memlab plan experiments/alpha_batch.toml
  memlab plan experiments/exercise.toml --set device=cpu --set steps=12
  memlab plan experiments/alpha_batch.toml --format csv > plan.csv

Nothing is run. What earlier results of the same experiment tell about time and memory is shown. With \
--estimate, the modelled GPU tells the memory of the other runs: each is executed without computing anything, \
which takes a fraction of a second.")]
pub(super) struct Args {
    /// Experiment file
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    #[command(flatten)]
    planning: PlanningOptions,
    /// Folder with earlier results [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Ask the modelled GPU how much memory the runs will need, and which of them will not fit
    #[arg(long)]
    estimate: bool,
    #[command(flatten)]
    format: FormatOption,
}

pub(super) fn run(args: &Args, console: &mut Console) -> Result<Exit, Stop> {
    let experiment = args.planning.read(&args.experiment)?;
    let host = likely_host(&experiment, console);
    let plan = args.planning.expand(&experiment, &host, console)?;
    let results = args.out.clone().unwrap_or_else(|| Path::new("runs").join(&experiment.name));
    let mut outlook = Outlook::of_results(&results);
    if args.estimate {
        outlook.ask_the_model(&experiment, &plan, console)?;
    }
    let format = args.format.format;
    if !format.is_prose() {
        console.result(&format.render(&everything(&experiment, &plan, &outlook)))?;
        return Ok(Exit::Success);
    }
    let mut parts = vec![heading(&experiment, &plan), format.render(&runs(&plan, &outlook))];
    parts.push(format!("Where the values come from:\n\n{}", format.render(&values(&experiment, &plan))));
    if !plan.excluded.is_empty() {
        parts.push(format!("Not run:\n\n{}", format.render(&excluded(&plan))));
    }
    parts.extend(outlook.summary(&plan));
    let text = parts.join("\n");
    console.result(&text)?;
    Ok(Exit::Success)
}

fn heading(experiment: &Experiment, plan: &Plan) -> String {
    let title = experiment.title.as_ref().map(|title| format!(": {title}")).unwrap_or_default();
    let mut counts = vec![counted(plan.runs.len(), "run")];
    if !plan.excluded.is_empty() {
        counts.push(format!("{} excluded", plan.excluded.len()));
    }
    if plan.repeated > 0 {
        counts.push(format!("{} the same as another and run once", plan.repeated));
    }
    format!("{}{title}\n{}\n", experiment.name, counts.join(", "))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The runs in order, with what differs between them.
fn runs(plan: &Plan, outlook: &Outlook) -> Table {
    let labelled = plan.runs.iter().any(|run| run.label.is_some());
    let mut columns = vec![Column::new("order", "#"), Column::new("run_id", "run")];
    if labelled {
        columns.push(Column::new("label", "label"));
    }
    columns.extend(plan.varied.iter().map(|axis| axis_column(*axis)));
    columns.extend(outlook.columns());
    let mut table = Table::new(columns);
    for (at, run) in plan.runs.iter().enumerate() {
        let mut row = vec![Cell::from(at as u64 + 1), run.run_id.as_str().into()];
        if labelled {
            row.push(run.label.as_deref().into());
        }
        row.extend(plan.varied.iter().map(|axis| axis_cell(&axis.of(&run.spec))));
        row.extend(outlook.cells(run));
        table.push(row);
    }
    table
}

/// Values of one axis that are listed; the runs show them all.
const SHOWN_VALUES: usize = 8;

/// One line for each axis and place: runs whose values come from the same place share it.
fn values(experiment: &Experiment, plan: &Plan) -> Table {
    let mut table =
        Table::new(vec![Column::new("axis", "axis"), Column::new("value", "value"), Column::new("from", "from")]);
    for axis in Axis::all() {
        let mut places: Vec<(Vec<String>, String)> = Vec::new();
        // What does not vary is shown as the first run has it.
        let runs = if plan.varied.contains(&axis) { plan.runs.len() } else { 1 };
        for (at, run) in plan.runs.iter().enumerate().take(runs) {
            let place = place(experiment, plan, at, axis);
            let value = axis.show(&axis.of(&run.spec));
            match places.iter_mut().find(|(_, known)| *known == place) {
                Some((values, _)) if values.contains(&value) || values.len() > SHOWN_VALUES => {}
                Some((values, _)) if values.len() == SHOWN_VALUES => values.push("...".to_owned()),
                Some((values, _)) => values.push(value),
                None => places.push((vec![value], place)),
            }
        }
        for (values, place) in places {
            table.push(vec![axis.name().into(), values.join(", ").into(), place.into()]);
        }
    }
    table
}

fn excluded(plan: &Plan) -> Table {
    let mut table = Table::new(vec![
        Column::new("label", "point"),
        Column::new("rule", "rule"),
        Column::new("line", "line"),
        Column::new("reason", "reason"),
    ]);
    for point in &plan.excluded {
        let line = Cell::from(point.line as u64);
        table.push(vec![point.label.as_str().into(), point.rule.as_ref().into(), line, point.reason.as_ref().into()]);
    }
    table
}

/// Everything in one table: the runs, each axis with the place of its value, then the excluded points.
fn everything(experiment: &Experiment, plan: &Plan, outlook: &Outlook) -> Table {
    let mut columns = vec![
        Column::new("order", "#"),
        Column::new("run_id", "run"),
        Column::new("label", "label"),
        Column::new("planned", "planned"),
    ];
    columns.extend(Axis::all().map(axis_column));
    columns.extend(Axis::all().map(|axis| Column::new(format!("{axis}_from"), format!("{axis} from"))));
    columns.extend([Column::new("excluded_by", "excluded by"), Column::new("reason", "reason")]);
    columns.extend(outlook.columns());
    let mut table = Table::new(columns);
    for (at, run) in plan.runs.iter().enumerate() {
        let mut row: Vec<Cell> =
            vec![(at as u64 + 1).into(), run.run_id.as_str().into(), run.label.as_deref().into(), "yes".into()];
        row.extend(Axis::all().map(|axis| axis_cell(&axis.of(&run.spec))));
        row.extend(Axis::all().map(|axis| Cell::from(place(experiment, plan, at, axis))));
        row.extend([Cell::Empty, Cell::Empty]);
        row.extend(outlook.cells(run));
        table.push(row);
    }
    for point in &plan.excluded {
        let rule = format!("{}:{}: {}", experiment.source.path.display(), point.line, point.rule);
        let mut row = vec![Cell::Empty, Cell::Empty, point.label.as_str().into(), "no".into()];
        row.extend(std::iter::repeat_n(Cell::Empty, 2 * Axis::COUNT));
        row.extend([rule.into(), point.reason.as_ref().into()]);
        row.extend(outlook.columns().iter().map(|_| Cell::Empty));
        table.push(row);
    }
    table
}

/// A place in words: `experiments/alpha_batch.toml:12`, `default`, `--set steps = 12`; and that a value was `auto` there.
fn place(experiment: &Experiment, plan: &Plan, run: usize, axis: Axis) -> String {
    let (place, written) = match plan.origin(experiment, run, axis) {
        Origin::Default => ("default".to_owned(), axis.definition().default.unwrap_or_default().to_owned()),
        Origin::File(span) => {
            let place = format!("{}:{}", experiment.source.path.display(), experiment.source.line(span.start));
            (place, experiment.source.text.get(span).unwrap_or_default().to_owned())
        }
        Origin::CommandLine(source, span) => {
            let place = format!("{} {}", source.path.display(), source.text);
            (place, source.text.get(span).unwrap_or_default().to_owned())
        }
    };
    if written.trim_matches(['"', '\'']) == "auto" { format!("{place} (auto)") } else { place }
}
