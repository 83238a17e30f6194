//! What every user-level test needs: the binary in a folder of its own, with a clean environment.
#![allow(clippy::allow_attributes, dead_code, unused_macros, reason = "each test file uses a part of this one")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A snapshot of a text in which run ids stand without their hashes, which change with every preset and device model.
macro_rules! snapshot {
    ($text:expr) => {
        insta::with_settings!({ filters => vec![(r"-[0-9a-f]{8}\b", "-HASHHASH")] }, { insta::assert_snapshot!($text) })
    };
}
#[allow(unused_imports, reason = "each test file uses a part of this one")]
pub(crate) use snapshot;

/// A fresh folder in which commands run; removed at the end.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file, and the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The command, not yet started: `memlab` in this folder, with nothing of the caller's environment but PATH.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memlab"));
        command.args(args).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.path());
        command
    }

    /// The same with the stand-in for the worker, which does what a run's seed tells it to (tests/support/worker.sh).
    pub(crate) fn command_with_worker(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.env("MEMLAB_WORKER", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/worker.sh"));
        command
    }

    /// Runs `memlab` with the stand-in to its end.
    pub(crate) fn with_worker(&self, args: &[&str]) -> Done {
        Done::of(self.command_with_worker(args).output().unwrap())
    }

    /// The same with the real worker.
    #[cfg(feature = "worker")]
    pub(crate) fn command_with_real_worker(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.env("MEMLAB_WORKER", env!("CARGO_BIN_EXE_memlab-worker"));
        // A worker of a checkout finds its libtorch through its own path; an installed one through this.
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    /// Runs `memlab` with the real worker to its end.
    #[cfg(feature = "worker")]
    pub(crate) fn with_real_worker(&self, args: &[&str]) -> Done {
        Done::of(self.command_with_real_worker(args).output().unwrap())
    }

    /// Runs `memlab` with the stand-in in a terminal of so many columns: what is shown there is its standard output.
    pub(crate) fn in_terminal(&self, columns: u16, args: &[&str]) -> Done {
        let plain = self.command_with_worker(args);
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/terminal.py")).arg(columns.to_string());
        command.arg(plain.get_program()).args(plain.get_args()).current_dir(self.path()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm-256color");
        Done::of(command.output().unwrap())
    }

    /// Runs `memlab` to its end.
    pub(crate) fn memlab(&self, args: &[&str]) -> Done {
        Done::of(self.command(args).output().unwrap())
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            // A signal is told apart from every exit code.
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Checks the exit code, and shows everything when it is another.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "exit code\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }
}

/// A file under tests/data.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
