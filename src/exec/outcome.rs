//! How a run ended, from everything that is known about it. The report speaks first; where there is none, the process does.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use nix::sys::signal::Signal;

use super::child::Exit;
use crate::diag::Diagnostic;
use crate::protocol::{Outcome, Report};

/// Why this process ended a run before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its time was over.
    TimeLimit {
        /// The limit.
        seconds: u64,
    },
    /// The user asked for it.
    User,
    /// Another of its ranks had failed.
    Ranks,
}

/// What is known of a run whose processes have all ended.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    /// What it measured, if it left a report.
    pub(super) report: Result<Option<Report>, Diagnostic>,
    /// The rank that ended first in another way than well, else the last one, and how.
    pub(super) exit: (u64, Exit),
    /// What the worker said at its end.
    pub(super) said: Option<(Outcome, Option<String>)>,
    /// Whether we ended it.
    pub(super) stopped: Option<Stop>,
    /// Whether the host ended processes for lack of memory meanwhile.
    pub(super) host_ran_out: bool,
    /// The worker's standard error.
    pub(super) log: &'a Path,
}

/// The outcome, and why it is not `ok`.
pub(super) fn judge(evidence: Evidence<'_>) -> (Outcome, Option<String>) {
    let Evidence { report, exit: (rank, exit), said, stopped, host_ran_out, log } = evidence;
    let report = match report {
        Ok(report) => report,
        Err(damage) => {
            let why = damage.labels.first().map_or(&damage.message, |label| &label.message);
            return (Outcome::Error, Some(format!("damaged report: {why}")));
        }
    };
    // What is left of a run whose ranks were ended because one had failed says less than that one did.
    let says_less = |outcome| matches!(outcome, Outcome::Cancelled | Outcome::Error);
    let report = report.filter(|report| stopped != Some(Stop::Ranks) || !says_less(report.outcome()));
    if let Some(report) = report {
        let outcome = report.outcome();
        let reason = report.failure.map(|failure| failure.message).or(report.oom.map(|oom| oom.message));
        // The other ranks noticed that one is gone; how it ended is known here.
        if outcome == Outcome::Killed && matches!(exit, Exit::Signal(_)) {
            let (outcome, ending) = ended_by_signal(rank, exit, host_ran_out);
            return (outcome, Some([Some(ending), reason].into_iter().flatten().collect::<Vec<_>>().join("; ")));
        }
        match stopped {
            Some(Stop::TimeLimit { seconds }) if !outcome.is_finished() => return time_limit(seconds),
            Some(Stop::User) if !outcome.is_finished() => return cancelled(),
            _ => {}
        }
        if outcome == Outcome::Ok && exit != Exit::Code(0) {
            return (Outcome::Ok, Some(format!("everything was measured; afterwards {}", describe(rank, exit))));
        }
        return (outcome, reason.filter(|_| outcome != Outcome::Ok));
    }
    match (stopped, said, exit) {
        (Some(Stop::TimeLimit { seconds }), ..) => time_limit(seconds),
        (Some(Stop::User), ..) => cancelled(),
        (_, Some((outcome, message)), _) if outcome != Outcome::Ok => (outcome, message.or_else(|| last_line(log))),
        (_, _, Exit::Code(0)) => (Outcome::Error, Some("the worker ended without a report".to_owned())),
        (_, _, Exit::Code(_)) => {
            let why = last_line(log);
            let ending = describe(rank, exit);
            (Outcome::Error, Some(why.map_or_else(|| ending.clone(), |why| format!("{ending}: {why}"))))
        }
        (_, _, Exit::Signal(_)) => {
            let (outcome, ending) = ended_by_signal(rank, exit, host_ran_out);
            (outcome, Some(ending))
        }
    }
}

fn ended_by_signal(rank: u64, exit: Exit, host_ran_out: bool) -> (Outcome, String) {
    if host_ran_out && exit == Exit::Signal(nix::libc::SIGKILL) {
        let advice = "run fewer at a time (--jobs), or use `compute = false`";
        return (Outcome::HostOom, format!("the host ran out of memory and ended the worker: {advice}"));
    }
    (Outcome::Killed, describe(rank, exit))
}

fn time_limit(seconds: u64) -> (Outcome, Option<String>) {
    let limit = crate::units::format_duration(seconds);
    (Outcome::Timeout, Some(format!("the time limit of {limit} was reached")))
}

fn cancelled() -> (Outcome, Option<String>) {
    (Outcome::Cancelled, Some("ended by the user".to_owned()))
}

fn describe(rank: u64, exit: Exit) -> String {
    let who = if rank == 0 { "the worker".to_owned() } else { format!("the worker of rank {rank}") };
    match exit {
        Exit::Code(code) => format!("{who} ended with exit code {code}"),
        Exit::Signal(number) => match Signal::try_from(number) {
            Ok(signal) => format!("{who} was ended by {signal}"),
            Err(_) => format!("{who} was ended by signal {number}"),
        },
    }
}

/// The last line that says something.
fn last_line(path: &Path) -> Option<String> {
    last_lines(path, 1).pop()
}

/// The last lines that say something, of a file that may be large.
pub(super) fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let tail = read_tail(path).unwrap_or_default();
    let said: Vec<&str> = tail.lines().map(str::trim).filter(|line| says_something(line)).collect();
    said[said.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// Whether a line tells a reason: not where a program points to its help, nor where `srun` counts the tasks that ended.
pub(super) fn says_something(line: &str) -> bool {
    let points_to_help = line.starts_with("Try \"");
    let counts_tasks = line.starts_with("srun: error: ") && line.contains(": Exited with exit code ");
    !line.trim().is_empty() && !points_to_help && !counts_tasks
}

fn read_tail(path: &Path) -> std::io::Result<String> {
    const TAIL: u64 = 4096;
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(exit: Exit) -> Evidence<'static> {
        Evidence {
            report: Ok(None),
            exit: (0, exit),
            said: None,
            stopped: None,
            host_ran_out: false,
            log: Path::new("/no/such/log"),
        }
    }

    #[test]
    fn a_kill_is_host_oom_only_with_evidence() {
        let kill = Exit::Signal(nix::libc::SIGKILL);
        assert_eq!(judge(evidence(kill)).0, Outcome::Killed);
        assert_eq!(judge(Evidence { host_ran_out: true, ..evidence(kill) }).0, Outcome::HostOom);
        // Other signals are not the host's memory, whatever happened to others meanwhile.
        let abort = Exit::Signal(nix::libc::SIGABRT);
        let (outcome, message) = judge(Evidence { host_ran_out: true, ..evidence(abort) });
        assert_eq!(outcome, Outcome::Killed);
        assert_eq!(message.as_deref(), Some("the worker was ended by SIGABRT"));
    }

    #[test]
    fn the_reason_is_not_what_a_launcher_adds_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("worker.log");
        for (text, reason) in [
            (
                "srun: unrecognized option '--x'\nTry \"srun --help\" for more information\n",
                "srun: unrecognized option '--x'",
            ),
            ("cannot do this\nsrun: error: node1: task 1: Exited with exit code 1\n\n", "cannot do this"),
        ] {
            std::fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log).as_deref(), Some(reason));
        }
    }

    #[test]
    fn what_we_ended_ourselves_is_not_killed() {
        let kill = Exit::Signal(nix::libc::SIGKILL);
        let limit = Some(Stop::TimeLimit { seconds: 90 });
        let (outcome, message) = judge(Evidence { stopped: limit, host_ran_out: true, ..evidence(kill) });
        assert_eq!((outcome, message.as_deref()), (Outcome::Timeout, Some("the time limit of 1m30s was reached")));
        assert_eq!(judge(Evidence { stopped: Some(Stop::User), ..evidence(kill) }).0, Outcome::Cancelled);
    }

    #[test]
    fn without_a_report_the_exit_decides() {
        assert_eq!(judge(evidence(Exit::Code(0))).0, Outcome::Error);
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("worker.log");
        std::fs::write(&log, "loading\nlibtorch_cpu.so: cannot open\n\n").unwrap();
        let (outcome, message) = judge(Evidence { log: &log, ..evidence(Exit::Code(127)) });
        assert_eq!(outcome, Outcome::Error);
        assert_eq!(message.as_deref(), Some("the worker ended with exit code 127: libtorch_cpu.so: cannot open"));
        let said = Some((Outcome::Oom, Some("no room".to_owned())));
        assert_eq!(judge(Evidence { said, ..evidence(Exit::Code(3)) }), (Outcome::Oom, Some("no room".to_owned())));
    }

    #[test]
    fn a_damaged_report_is_an_error() {
        let damage = Err(Diagnostic::error("r/report.json is no readable report"));
        let (outcome, message) = judge(Evidence { report: damage, ..evidence(Exit::Code(0)) });
        assert_eq!(outcome, Outcome::Error);
        assert!(message.unwrap().contains("r/report.json"));
    }
}
