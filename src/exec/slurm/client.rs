//! Slurm's own programs, called with a clean environment and not for ever.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::exec::outcome::says_something;

/// Longer than any controller takes that answers at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a program of Slurm's answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Whether it ended with exit code 0. False also when it was ended after [`PATIENCE`].
    pub(super) success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Answer {
    /// The last thing it complained about.
    pub(super) fn complaint(&self) -> String {
        let line = self.stderr.lines().map(str::trim).rfind(|line| says_something(line));
        line.unwrap_or("no reason is given").to_owned()
    }
}

/// Calls a program, and reads all it says.
///
/// # Errors
/// It cannot be started.
pub(super) fn call(program: &str, arguments: &[&str]) -> std::io::Result<Answer> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(leaks) {
            command.env_remove(name);
        }
    }
    // A group of its own: what the user sends to memlab must not end a submission half-way.
    let mut process = command.process_group(0).spawn()?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = read(process.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let stderr = read(process.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let started = Instant::now();
    let mut pause = Duration::from_millis(2);
    let success = loop {
        if let Some(status) = process.try_wait()? {
            break status.success();
        }
        if started.elapsed() > PATIENCE {
            if let Ok(group) = i32::try_from(process.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            process.wait()?;
            break false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(Answer { success, stdout: text(stdout), stderr: text(stderr) })
}

/// Whether a variable would change what Slurm's programs do: options of an allocation around memlab, or defaults for a person.
/// Which cluster, and who one is, is not among them.
fn leaks(name: &str) -> bool {
    const KEPT: [&str; 2] = ["SLURM_CONF", "SLURM_JWT"];
    const PREFIXES: [&str; 8] = ["SLURM_", "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"];
    !KEPT.contains(&name) && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_around_memlab_does_not_leak() {
        for name in ["SLURM_CPU_BIND", "SBATCH_PARTITION", "SLURM_JOB_ID", "SQUEUE_STATES", "SLURM_CLUSTERS"] {
            assert!(leaks(name), "{name}");
        }
        for name in ["SLURM_CONF", "PATH", "MY_SLURM_THING", "SLURM"] {
            assert!(!leaks(name), "{name}");
        }
    }
}
