//! One file per sub-command: parse, call, print. Only this module prints.
//!
//! A new sub-command is a file with `Args` and `run`, and one entry in `Command`. Results go to standard output, everything
//! else to standard error; what stops a command is a `Stop`, and its exit code is decided here and nowhere else.

mod axes;
mod cancel;
mod check;
mod collate;
mod compare;
mod completions;
mod console;
mod doctor;
mod format;
mod limit;
mod machine;
mod pictures;
mod plan;
mod planning;
mod progress;
mod reproduce;
mod request;
mod run;
mod schema;
mod slurm;
mod slurm_task;
mod slurm_template;
mod snapshot;
mod status;
mod sweep;
mod verdicts;

use clap::{CommandFactory, Parser, Subcommand};

use crate::exit::Exit;
use console::Console;

/// Finds out why a PyTorch training job uses the GPU memory it uses.
#[derive(Debug, Parser)]
#[command(name = "memlab", version, propagate_version = true, infer_subcommands = false, max_term_width = 100)]
#[command(after_help = "\
Examples:
  memlab sweep experiments/alpha_batch.toml      run an experiment and tabulate it
  memlab compare runs/alpha_batch                look at its results again

Exit codes:
  0 fine; 1 a hypothesis was refuted; 2 the command could not be carried out; 3 a single run was
  out of memory; 4 a run failed or is missing; 5 nothing could be judged; 130 interrupted")]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Options of every sub-command.
#[derive(Debug, clap::Args)]
struct Common {
    /// Print results and errors only
    #[arg(long, short, global = true, display_order = 100)]
    quiet: bool,
    /// When to use colour; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = 101)]
    color: clap::ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment, and tabulate it
    Sweep(sweep::Args),
    /// Run an experiment again, and judge it: for CI
    Check(check::Args),
    /// Run once, with the exercise's options
    Run(run::Args),
    /// Find the largest value of an axis that fits into memory
    Limit(limit::Args),
    /// Compare reports in one table
    Compare(compare::Args),
    /// Show what an experiment would run, in order, and where each value comes from
    Plan(plan::Args),
    /// Write the tables of a results folder from what is there
    Collate(collate::Args),
    /// Show where every run of a results folder stands
    Status(status::Args),
    /// Run the same configuration once more, and say what differs
    Reproduce(reproduce::Args),
    /// Stop what runs for a results folder
    Cancel(cancel::Args),
    /// Show what is found on this machine, and what to do about what is not
    Doctor(doctor::Args),
    /// Print the JSON schema of experiment files, for editors
    Schema(schema::Args),
    /// Print the template of the scripts that go to a Slurm cluster
    SlurmTemplate(slurm_template::Args),
    /// Execute the runs of one task, inside a job
    #[command(hide = true)]
    SlurmTask(slurm_task::Args),
    /// Print the completions of a shell
    Completions(completions::Args),
    /// Explain a PyTorch memory snapshot, and replay it under other allocator settings
    Snapshot(snapshot::Args),
}

/// Runs the command line and says what the process ends with.
pub fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed pipe is the only way this fails, and then nobody is there to be told.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success };
        }
    };
    let mut console = Console::new(cli.common.quiet, cli.common.color);
    let done = match cli.command {
        Command::Sweep(args) => sweep::run(&args, &mut console),
        Command::Check(args) => check::run(&args, &mut console),
        Command::Run(args) => run::run(&args, &mut console),
        Command::Limit(args) => limit::run(&args, &mut console),
        Command::Compare(args) => compare::run(&args, &mut console),
        Command::Plan(args) => plan::run(&args, &mut console),
        Command::Collate(args) => collate::run(&args, &mut console),
        Command::Status(args) => status::run(&args, &mut console),
        Command::Reproduce(args) => reproduce::run(&args, &mut console),
        Command::Cancel(args) => cancel::run(&args, &mut console),
        Command::Doctor(args) => doctor::run(&args, &mut console),
        Command::Schema(args) => schema::run(&args, &mut console),
        Command::SlurmTemplate(args) => slurm_template::run(&args, &mut console),
        Command::SlurmTask(args) => slurm_task::run(&args, &mut console),
        Command::Completions(args) => completions::run(&args, &mut console),
        Command::Snapshot(args) => snapshot::run(&args, &mut console),
    };
    done.unwrap_or_else(|stop| console.stop(&stop))
}

/// The command line as clap knows it, for completions.
pub fn command() -> clap::Command {
    Cli::command()
}
