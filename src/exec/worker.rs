//! The worker binary: where it is, and what it can do.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::forkserver::{self, Forkserver};
use crate::diag::Diagnostic;
use crate::protocol::{Probe, SCHEMA_VERSION};

/// Names another worker than the one beside `memlab`.
const VARIABLE: &str = "MEMLAB_WORKER";
const NAME: &str = "memlab-worker";

/// What a launcher around memlab says of the processes that it started; to a worker of memlab's it would be about others.
pub(super) const LAUNCHER: [&str; 4] = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MEMLAB_RENDEZVOUS"];

/// A worker binary that exists.
#[derive(Debug, Clone)]
pub struct Worker {
    path: PathBuf,
}

impl Worker {
    /// `$MEMLAB_WORKER`, else the one beside this program.
    ///
    /// # Errors
    /// There is none, with what to do about it.
    pub fn find() -> Result<Self, Diagnostic> {
        Self::among(std::env::var_os(VARIABLE), std::env::current_exe().ok().as_deref())
    }

    fn among(named: Option<OsString>, program: Option<&Path>) -> Result<Self, Diagnostic> {
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let path = PathBuf::from(named);
            return if path.is_file() {
                Ok(Self { path })
            } else {
                Err(Diagnostic::error(format!("the worker is not at {}", path.display()))
                    .help(format!("{VARIABLE} names it: correct or unset that variable")))
            };
        }
        // The real place counts where `memlab` is a link in somebody's path.
        let program = program.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let beside = program.as_deref().and_then(Path::parent).map(|folder| folder.join(NAME));
        match beside {
            Some(path) if path.is_file() => Ok(Self { path }),
            beside => {
                let place = beside.map_or_else(|| NAME.to_owned(), |path| path.display().to_string());
                Err(Diagnostic::error(format!("the worker, which executes runs, is not at {place}"))
                    .note("this memlab was built without it: planning, comparing and checking results work, running does not")
                    .help(format!("build it with `make`, or name another with {VARIABLE}; `memlab doctor` says what is missing")))
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks it what this machine's libtorch can do.
    ///
    /// # Errors
    /// It does not start, or answers what this version does not understand.
    pub fn probe(&self) -> Result<Probe, Diagnostic> {
        self.open().map(|(probe, _)| probe)
    }

    /// Asks it what this machine's libtorch can do, and keeps the process that answered: it forks runs. Not where a program in front of
    /// the worker answered, which is there to see every run.
    ///
    /// # Errors
    /// As [`Worker::probe`].
    pub fn open(&self) -> Result<(Probe, Option<Forkserver>), Diagnostic> {
        let cannot_start = |why: &dyn std::fmt::Display| {
            Diagnostic::error(format!("the worker {} does not start: {why}", self.path.display()))
                .help("`memlab doctor` says what is missing")
        };
        let (socket, theirs) = forkserver::ends().map_err(|error| cannot_start(&error))?;
        let mut command = Command::new(&self.path);
        command.arg("probe").stdin(theirs).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        for variable in LAUNCHER {
            command.env_remove(variable);
        }
        let mut process = command.spawn().map_err(|error| cannot_start(&error))?;
        // The command holds the other end of the socket.
        drop(command);
        let mut answer = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut answer).map_err(|error| cannot_start(&error))?;
        }
        if answer.is_empty() {
            drop(socket);
            let output = process.wait_with_output().map_err(|error| cannot_start(&error))?;
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
            return Err(cannot_start(&why.unwrap_or_else(|| output.status.to_string())));
        }
        let answered = std::fs::read_link(format!("/proc/{}/exe", process.id())).ok();
        let is_worker = answered.is_some() && answered == self.path.canonicalize().ok();
        let forkserver = Forkserver::new(process, socket).map_err(|error| cannot_start(&error))?;
        let probe: Probe = serde_json::from_str(&answer)
            .map_err(|error| cannot_start(&format!("its answer cannot be read ({error})")))?;
        if probe.schema_version != SCHEMA_VERSION {
            return Err(Diagnostic::error(format!("the worker {} is of another version", self.path.display()))
                .note(format!("it speaks format {}, memlab speaks {SCHEMA_VERSION}", probe.schema_version))
                .help("build both together with `make`"));
        }
        Ok((probe, is_worker.then_some(forkserver)))
    }
}

/// The GPUs that runs may use, as `CUDA_VISIBLE_DEVICES` names them: those it names already, else all that were found.
pub(super) fn visible_gpus(found: usize, variable: Option<&str>) -> Vec<String> {
    match variable {
        Some(named) => {
            named.split(',').map(str::trim).filter(|name| !name.is_empty()).take(found).map(str::to_owned).collect()
        }
        None => (0..found).map(|index| index.to_string()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_worker_goes_before_the_one_beside() {
        let folder = tempfile::tempdir().unwrap();
        let (program, beside) = (folder.path().join("memlab"), folder.path().join(NAME));
        for path in [&program, &beside] {
            std::fs::write(path, "").unwrap();
        }
        let canonical = beside.canonicalize().unwrap();
        assert_eq!(Worker::among(None, Some(&program)).unwrap().path(), canonical);
        assert_eq!(Worker::among(Some(program.clone().into()), Some(&program)).unwrap().path(), program);
        assert_eq!(Worker::among(Some("".into()), Some(&program)).unwrap().path(), canonical);
    }

    #[test]
    fn a_missing_worker_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Worker::among(None, Some(&folder.path().join("memlab"))).unwrap_err();
        assert!(error.message.ends_with("memlab-worker"), "{}", error.message);
        let error = Worker::among(Some("/no/such/worker".into()), None).unwrap_err();
        assert!(error.message.contains("/no/such/worker"), "{}", error.message);
    }

    #[test]
    fn the_gpus_that_the_user_chose_are_kept() {
        assert_eq!(visible_gpus(2, None), ["0", "1"]);
        assert_eq!(visible_gpus(2, Some("3, 5")), ["3", "5"]);
        assert_eq!(visible_gpus(1, Some("GPU-8f,1")), ["GPU-8f"]);
        assert_eq!(visible_gpus(0, None), [""; 0]);
    }
}
