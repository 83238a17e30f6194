//! The expansion itself.

use std::collections::HashMap;
use std::sync::Arc;

use super::grid::Grid;
use super::resolve::{Conflict, Values, resolve, settle_device};
use super::{Host, MOST_RUNS, Plan, Point, base_label, in_words};
use crate::diag::Diagnostic;
use crate::experiment::{self, Exclude, Experiment, Origin, Perturb, Setting};
use crate::protocol::{Axis, ExcludedPoint, PlannedPerturbation, PlannedRun, RunIds, Value};

/// Conflicts shown; a grid can have thousands that say the same.
const MOST_CONFLICTS: usize = 8;

/// Expands an experiment into what must be run.
///
/// # Errors
/// A value that is missing, values that cannot go together, more runs than anybody would want, or none at all.
pub fn expand(experiment: &Experiment, host: &Host) -> Result<Plan, Vec<Diagnostic>> {
    let missing = experiment::missing(experiment);
    if !missing.is_empty() {
        return Err(missing);
    }
    let grid = Grid::new(experiment);
    let size = grid.size().filter(|size| *size <= MOST_RUNS).ok_or_else(|| vec![too_many(experiment)])?;
    let defaults: Values = std::array::from_fn(|at| Axis::definitions()[at].axis.default_value());
    let base = with(&defaults, &experiment.base);

    let has_grid = !experiment.sweep.is_empty();
    let capacity = usize::try_from(size).unwrap_or(0) + experiment.perturbations.len() + 1;
    let mut expansion = Expansion::new(experiment, host, capacity);
    if has_grid {
        let mut values = base.clone();
        for point in 0..size {
            grid.put(point, &mut values);
            expansion.add(values.clone(), Point::Grid(point), None, || grid.describe(point));
        }
    }
    if !has_grid || !experiment.perturbations.is_empty() {
        let base_run = expansion.add(base.clone(), Point::Base, Some(base_label()), || base_label().to_string());
        expansion.perturb(&base, base_run);
    }
    expansion.finish()
}

/// A plan in the making.
struct Expansion<'a> {
    experiment: &'a Experiment,
    host: &'a Host,
    ids: RunIds,
    /// The place of every run, by its id.
    known: HashMap<String, usize>,
    plan: Plan,
    rules_used: Vec<bool>,
    conflicts: Vec<(Conflict, Point)>,
    rules: Vec<(Arc<str>, usize)>,
}

impl<'a> Expansion<'a> {
    fn new(experiment: &'a Experiment, host: &'a Host, capacity: usize) -> Self {
        let describe = |rule: &Exclude| {
            let words = in_words(rule.settings.iter().map(|setting| (setting.axis, &setting.value)));
            (Arc::from(words), experiment.source.line(rule.span.start))
        };
        Self {
            experiment,
            host,
            ids: RunIds::default(),
            known: HashMap::with_capacity(capacity),
            plan: Plan {
                runs: Vec::with_capacity(capacity),
                base: None,
                perturbations: Vec::new(),
                varied: Vec::new(),
                excluded: Vec::new(),
                repeated: 0,
                warnings: Vec::new(),
                points: Vec::with_capacity(capacity),
            },
            rules_used: vec![false; experiment.excludes.len()],
            conflicts: Vec::new(),
            rules: experiment.excludes.iter().map(describe).collect(),
        }
    }

    /// Adds a point; the place of its run, unless a rule excludes it or its values conflict.
    fn add(
        &mut self,
        mut values: Values,
        point: Point,
        label: Option<Arc<str>>,
        describe: impl FnOnce() -> String,
    ) -> Option<usize> {
        settle_device(&mut values, self.host);
        let holds = |setting: &Setting| values[setting.axis as usize] == setting.value;
        if let Some(rule) = self.experiment.excludes.iter().position(|rule| rule.settings.iter().all(holds)) {
            self.rules_used[rule] = true;
            let (words, line) = &self.rules[rule];
            let reason = Arc::clone(&self.experiment.excludes[rule].reason);
            self.plan.excluded.push(ExcludedPoint { label: describe(), rule: Arc::clone(words), reason, line: *line });
            return None;
        }
        let spec = match resolve(&values, self.experiment, self.host) {
            Ok(spec) => spec,
            Err(conflict) => return self.conflict(conflict, point),
        };
        let run_id = self.ids.id(&spec);
        match self.known.get(&run_id) {
            Some(&at) if self.plan.runs[at].spec == spec => {
                self.plan.repeated += 1;
                let run = &mut self.plan.runs[at];
                run.label = run.label.take().or(label);
                Some(at)
            }
            // The hash tells apart what the readable part does not; should it ever fail to, no result may be lost.
            Some(_) => {
                let message = format!("two different runs would be called {run_id}");
                let help = "rename one of the presets or device models".to_owned();
                self.conflict(Conflict { axes: vec![Axis::Preset, Axis::DeviceModel], message, help }, point)
            }
            None => {
                let at = self.plan.runs.len();
                self.known.insert(run_id.clone(), at);
                self.plan.runs.push(PlannedRun { run_id, label, spec });
                self.plan.points.push(point);
                Some(at)
            }
        }
    }

    /// Notes a conflict, once; there is no run.
    fn conflict(&mut self, conflict: Conflict, point: Point) -> Option<usize> {
        let told = self.conflicts.iter().any(|(known, _)| *known == conflict);
        if !told && self.conflicts.len() < MOST_CONFLICTS {
            self.conflicts.push((conflict, point));
        }
        None
    }

    /// Adds the perturbations, each as a change of the base or of the one before.
    fn perturb(&mut self, base: &Values, base_run: Option<usize>) {
        let id = |plan: &Plan, at: Option<usize>| at.map(|at| plan.runs[at].run_id.clone());
        if !self.experiment.perturbations.is_empty() {
            self.plan.base = id(&self.plan, base_run);
        }
        let (mut values, mut from) = (base.clone(), base_run);
        for (at, change) in self.experiment.perturbations.iter().enumerate() {
            let label = Arc::clone(&change.label.value);
            let start = if self.experiment.perturb == Perturb::Cumulative { &values } else { base };
            let changed = with(start, &change.settings);
            let run =
                self.add(changed.clone(), Point::Perturbation(at), Some(Arc::clone(&label)), || label.to_string());
            if run.is_some() && run == from {
                let warning = Diagnostic::warning(format!("the perturbation \"{label}\" changes nothing"))
                    .at(&self.experiment.source, change.label.span.clone(), "the same run as before it")
                    .help("change another value, or take it out");
                self.plan.warnings.push(warning);
            }
            if let Some(run_id) = id(&self.plan, run) {
                let from = id(&self.plan, from);
                self.plan.perturbations.push(PlannedPerturbation { label, run_id, from });
            }
            if self.experiment.perturb == Perturb::Cumulative {
                (values, from) = (changed, run);
            }
        }
    }

    fn finish(mut self) -> Result<Plan, Vec<Diagnostic>> {
        let experiment = self.experiment;
        if !self.conflicts.is_empty() {
            let conflicts = std::mem::take(&mut self.conflicts);
            return Err(conflicts.into_iter().map(|(conflict, point)| self.explain(conflict, point)).collect());
        }
        if self.plan.runs.is_empty() {
            let mut error = Diagnostic::error("the plan is empty: every point is excluded");
            for (rule, _) in experiment.excludes.iter().zip(&self.rules_used).filter(|(_, used)| **used) {
                error = error.at(&experiment.source, rule.span.clone(), rule.reason.as_ref());
            }
            return Err(vec![error.help("narrow the rules, or add values to try")]);
        }
        for (rule, _) in experiment.excludes.iter().zip(&self.rules_used).filter(|(_, used)| !**used) {
            let warning = Diagnostic::warning("a rule excludes nothing")
                .at(&experiment.source, rule.span.clone(), "no point has these values")
                .help("check its values, or take it out");
            self.plan.warnings.push(warning);
        }
        let changed = experiment.perturbations.iter().flat_map(|change| &change.settings).map(|setting| setting.axis);
        let swept = experiment.sweep.iter().map(|swept| swept.axis);
        // These two follow from others: a device model only where there is a CPU, a backend only between ranks.
        let mut candidates: Vec<Axis> = changed.chain(swept).chain([Axis::DeviceModel, Axis::Backend]).collect();
        candidates.sort_unstable();
        candidates.dedup();
        self.plan.varied = varied(candidates.into_iter(), &self.plan.runs);
        Ok(self.plan)
    }

    fn explain(&self, conflict: Conflict, point: Point) -> Diagnostic {
        let Conflict { axes, message, help } = conflict;
        let mut error = Diagnostic::error(message).help(help);
        for axis in axes {
            error = match point.origin(self.experiment, axis) {
                Origin::File(span) => error.at(&self.experiment.source, span, format!("`{axis}` is set here")),
                Origin::CommandLine(source, span) => error.at(&source, span, format!("`{axis}` is set here")),
                Origin::Default => {
                    error.note(format!("`{axis}` has its default, {}", axis.show(&axis.default_value())))
                }
            };
        }
        error
    }
}

/// The axes among some whose values differ between runs.
pub(super) fn varied(candidates: impl Iterator<Item = Axis>, runs: &[PlannedRun]) -> Vec<Axis> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    candidates
        .filter(|axis| {
            let value: Value = axis.of(&first.spec);
            others.iter().any(|run| axis.of(&run.spec) != value)
        })
        .collect()
}

fn with(values: &Values, settings: &[Setting]) -> Values {
    let mut values = values.clone();
    for setting in settings {
        values[setting.axis as usize].clone_from(&setting.value);
    }
    values
}

fn too_many(experiment: &Experiment) -> Diagnostic {
    let mut error = Diagnostic::error(format!("the grid has more than {MOST_RUNS} points"));
    for swept in &experiment.sweep {
        let source = swept.typed.as_ref().unwrap_or(&experiment.source);
        error = error.at(source, swept.key.clone(), format!("{} values", swept.values.len()));
    }
    error.help("take fewer values, or zip axes that belong together")
}
