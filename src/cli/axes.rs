//! One option per axis: `memlab run` has the exercise's options because the table of axes has its fields.

use std::ffi::OsString;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::diag::Diagnostic;
use crate::experiment::Experiment;
use crate::protocol::{Axis, Definition, Kind};

/// The axes that were set on the command line, as `axis=value`.
#[derive(Debug, Clone, Default)]
pub(super) struct AxisOptions {
    assignments: Vec<String>,
}

impl AxisOptions {
    /// Sets them in an experiment.
    pub(super) fn apply(&self, experiment: &mut Experiment) -> Result<(), Vec<Diagnostic>> {
        self.assignments.iter().try_for_each(|assignment| {
            let axis = assignment.split('=').next().unwrap_or_default();
            experiment
                .set(assignment)
                .map_err(|problems| problems.into_iter().map(|problem| typed(problem, axis)).collect())
        })
    }
}

impl clap::Args for AxisOptions {
    fn augment_args(command: Command) -> Command {
        command.args(Axis::definitions().iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for AxisOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let assignments = Axis::definitions().iter().filter_map(|definition| {
            let name = definition.name;
            match definition.kind {
                Kind::Switch => matches.get_flag(name).then(|| format!("{name}=false")),
                _ => matches.get_one::<String>(name).map(|value| format!("{name}={value}")),
            }
        });
        Ok(Self { assignments: assignments.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A mistake in an assignment, shown at the option that was typed.
fn typed(mut problem: Diagnostic, axis: &str) -> Diagnostic {
    for label in &mut problem.labels {
        label.source.path = format!("--{}", axis.replace('_', "-")).into();
    }
    problem
}

/// A switch that is on by default has an option that turns it off; every other axis takes its value.
fn option(definition: &'static Definition) -> Arg {
    let Definition { name, help, kind, default, .. } = *definition;
    let long = name.replace('_', "-");
    let arg = Arg::new(name);
    if kind == Kind::Switch {
        let help = format!("Set {name} to false: {help}");
        return arg.long(format!("no-{long}")).action(ArgAction::SetTrue).help(help);
    }
    let help = sentence(help);
    let help = match default {
        Some(default) => format!("{help} [default: {default}]"),
        None => help,
    };
    let arg = arg.long(long).help(help).required(default.is_none()).value_name(match kind {
        Kind::Whole { .. } => "N",
        Kind::Bytes => "SIZE",
        _ => "NAME",
    });
    let arg = if definition.axis == Axis::BatchSize { arg.alias("batch-size-per-device") } else { arg };
    match kind {
        Kind::Choice(names) => arg.value_parser(PossibleValuesParser::new(names)),
        Kind::Preset | Kind::DeviceModel => arg.value_parser(NonEmptyStringValueParser::new()),
        kind => arg.value_parser(Checked(kind)),
    }
}

/// As every other help text starts.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Refuses what is no value of an axis, in the axis's own words.
#[derive(Debug, Clone)]
struct Checked(Kind);

impl TypedValueParser for Checked {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &std::ffi::OsStr) -> Result<String, clap::Error> {
        let text = OsString::from(value).into_string().unwrap_or_default();
        match self.0.parse(&text) {
            Ok(_) => Ok(text),
            Err(expected) => {
                let option = arg.map(ToString::to_string).unwrap_or_default();
                let message = format!("invalid value '{}' for '{option}': expected {expected}\n", value.display());
                Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, message).with_cmd(command))
            }
        }
    }
}
