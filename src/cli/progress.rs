//! Progress on standard error: lines that renew themselves on a terminal, one line per finished run elsewhere.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::console::Console;
use crate::exec::{Event, Job};
use crate::protocol::Outcome;

/// Shows the events of one execution.
pub(super) struct Progress<'a> {
    jobs: &'a [Job],
    console: &'a mut Console,
    ended: usize,
    lines: Option<Lines>,
}

/// What is drawn on a terminal.
struct Lines {
    all: MultiProgress,
    total: ProgressBar,
    running: HashMap<usize, ProgressBar>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(jobs: &'a [Job], console: &'a mut Console) -> Self {
        let drawn = !console.is_quiet() && std::io::stderr().is_terminal();
        let lines = drawn.then(|| {
            let all = MultiProgress::new();
            let total = all.add(ProgressBar::new(jobs.len() as u64).with_style(total_style()));
            total.enable_steady_tick(Duration::from_millis(500));
            Lines { all, total, running: HashMap::new() }
        });
        Self { jobs, console, ended: 0, lines }
    }

    /// Shows one event.
    pub(super) fn show(&mut self, event: &Event) {
        match event {
            Event::Started { job } => {
                if let Some(lines) = &mut self.lines {
                    let line = ProgressBar::new_spinner().with_style(style("{spinner} {prefix}  {msg}  {elapsed}"));
                    let line = lines.all.insert_before(&lines.total, line);
                    line.set_prefix(self.jobs[*job].run.run_id.clone());
                    line.set_message("starting");
                    line.enable_steady_tick(Duration::from_millis(200));
                    lines.running.insert(*job, line);
                }
            }
            Event::Phase { job, step, phase, .. } => {
                let line = self.lines.as_ref().and_then(|lines| lines.running.get(job));
                if let Some(line) = line {
                    let steps = self.jobs[*job].run.spec.steps;
                    let step =
                        u64::try_from(*step).map_or(String::new(), |step| format!("step {} of {steps} ", step + 1));
                    line.set_message(format!("{step}{phase}"));
                }
            }
            Event::Ended { job, outcome, message, seconds } => {
                self.ended += 1;
                let (ended, all) = (self.ended, self.jobs.len());
                let width = all.to_string().len();
                let why = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
                let run_id = &self.jobs[*job].run.run_id;
                let text = format!("[{ended:width$}/{all}] {outcome:<9} {seconds:7.2} s  {run_id}{why}");
                match &mut self.lines {
                    Some(lines) => {
                        if let Some(line) = lines.running.remove(job) {
                            line.finish_and_clear();
                        }
                        lines.total.inc(1);
                        if *outcome != Outcome::Ok {
                            let _ = lines.all.println(text);
                        }
                    }
                    // Of a single run the command itself says how it ended.
                    None if all == 1 => {}
                    None => self.console.note(&text),
                }
            }
            Event::Notice { text } => self.say(text),
            Event::Interrupted => self.say("interrupted: ending what runs; once more kills it"),
        }
    }

    /// Says something above the lines that renew themselves.
    fn say(&mut self, text: &str) {
        match &self.lines {
            Some(lines) => {
                let _ = lines.all.println(text);
            }
            None => self.console.note(text),
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(lines) = &self.lines {
            let _ = lines.all.clear();
        }
    }
}

/// Once a run has ended, with the time that the others take if they are like those so far.
fn total_style() -> ProgressStyle {
    let remaining = |state: &ProgressState, out: &mut dyn Write| {
        let (done, all) = (state.pos(), state.len().unwrap_or(0));
        if (1..all).contains(&done) {
            let left = state.elapsed().mul_f64((all - done) as f64 / done as f64);
            // A line that cannot be drawn is drawn again.
            let _ = write!(out, ", about {:#} left", HumanDuration(left));
        }
    };
    style("[{pos}/{len}] {wide_bar} {elapsed}{remaining}").with_key("remaining", remaining)
}

fn style(template: &str) -> ProgressStyle {
    // The templates are the constants above.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
