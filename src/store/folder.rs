//! The results folder of one experiment.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use super::atomic::{TEMPORARY, write_atomic};
use super::cannot;
use super::lines::to_lines;
use super::reports::read_json;
use super::run::{REPORT, RunFolder, STATUS};
use crate::diag::Diagnostic;
use crate::protocol::PlanFile;

pub(super) const PLAN: &str = "plan.json";
const LOCK: &str = ".lock";
const TURN: &str = ".turn";
const FIGURES: &str = "figures";

/// The results folder of one experiment, which exists.
#[derive(Debug, Clone)]
pub struct ResultsFolder {
    path: PathBuf,
}

/// Held while runs are started on this machine; released when dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl ResultsFolder {
    /// Makes the folder where it is not there yet.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, Diagnostic> {
        let path = path.into();
        std::fs::create_dir_all(&path).map_err(|error| cannot("make the folder", &path, &error))?;
        Ok(Self { path })
    }

    /// Opens a folder that was made earlier.
    ///
    /// # Errors
    /// It is not there, or is no folder.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Diagnostic> {
        let path = path.into();
        match std::fs::metadata(&path) {
            Ok(found) if found.is_dir() => Ok(Self { path }),
            Ok(_) => Err(Diagnostic::error(format!("{} is no folder", path.display()))),
            Err(error) => Err(cannot("open", &path, &error).help("name a results folder, such as runs/alpha_batch")),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who holds the folder's lock, where somebody does: a process number and the name of its machine.
    ///
    /// # Errors
    /// The lock cannot be read.
    pub fn holder(&self) -> Result<Option<(i32, String)>, Diagnostic> {
        let path = self.path.join(LOCK);
        let failed = |error: std::io::Error| cannot("read", &path, &error);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Ok(()) => return Ok(None),
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let holder = text.trim().strip_prefix("process ").and_then(|text| text.split_once(" on "));
        let holder = holder.and_then(|(process, host)| Some((process.parse().ok()?, host.to_owned())));
        holder
            .map(Some)
            .ok_or_else(|| Diagnostic::error(format!("{} is in use, and does not say by whom", self.path.display())))
    }

    /// Takes the folder for this process.
    ///
    /// # Errors
    /// Another process has it, or the folder cannot be written.
    pub fn lock(&self) -> Result<Lock, Diagnostic> {
        let path = self.path.join(LOCK);
        let mut file = open_lock(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let by = if holder.is_empty() { "another process".to_owned() } else { holder.trim().to_owned() };
                return Err(Diagnostic::error(format!("{} is in use by {by}", self.path.display()))
                    .help("wait for it to end, or give this sweep its own folder with --out"));
            }
            // A file system without locks: runs and their names still keep writers apart.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(cannot("lock", &path, &error)),
        }
        // Only for the message above.
        let _ = file.set_len(0);
        let _ = writeln!(file, "process {} on {}", std::process::id(), super::run::hostname());
        Ok(Lock { _file: file })
    }

    /// Waits until no other process writes down how runs ended that could not say so themselves: whoever collates may, at any time.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn turn(&self) -> Result<Lock, Diagnostic> {
        let path = self.path.join(TURN);
        let file = open_lock(&path)?;
        match file.lock() {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(cannot("lock", &path, &error)),
            _ => Ok(Lock { _file: file }),
        }
    }

    /// What the folder was made for; none where nothing was planned.
    ///
    /// # Errors
    /// The plan cannot be read.
    pub fn plan(&self) -> Result<Option<PlanFile>, Diagnostic> {
        read_json(&self.path.join(PLAN), "plan")
    }

    /// Writes the plan, in place of an earlier one of the same experiment.
    ///
    /// # Errors
    /// The folder belongs to another experiment file, or cannot be written.
    pub fn set_plan(&self, plan: &PlanFile) -> Result<(), Diagnostic> {
        // A plan that cannot be read protects nothing: the runs keep their own specs.
        if let Ok(Some(earlier)) = self.plan()
            && earlier.experiment != plan.experiment
        {
            return Err(Diagnostic::error(format!("{} holds the results of another experiment", self.path.display()))
                .note(format!("they are of {}", earlier.experiment.display()))
                .note(format!("this one is {}", plan.experiment.display()))
                .help("change the `name` of one of them, or give this sweep its own folder with --out"));
        }
        let path = self.path.join(PLAN);
        let text = to_lines(plan).map_err(|error| cannot_be_json(&path, &error))?;
        write_atomic(&path, &text)
    }

    /// Writes a file of the folder, such as `results.csv`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Diagnostic> {
        write_atomic(&self.path.join(name), text.as_bytes())
    }

    /// Takes such a file away, where it is there.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), Diagnostic> {
        let path = self.path.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot("remove", &path, &error)),
            _ => Ok(()),
        }
    }

    /// Writes `figures/<name>.svg`; a figure without a text has nothing to show, and one of earlier is taken away.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_figures(&self, figures: &[(&str, Option<String>)]) -> Result<(), Diagnostic> {
        let folder = self.path.join(FIGURES);
        if figures.iter().any(|(_, text)| text.is_some()) {
            std::fs::create_dir_all(&folder).map_err(|error| cannot("make the folder", &folder, &error))?;
        }
        for (name, text) in figures {
            let path = folder.join(format!("{name}.svg"));
            match text {
                Some(text) => write_atomic(&path, text.as_bytes())?,
                None => self.remove(&format!("{FIGURES}/{name}.svg"))?,
            }
        }
        Ok(())
    }

    /// The folder of one run, which need not be there yet.
    pub fn run(&self, run_id: &str) -> RunFolder {
        RunFolder::new(self.path.join(run_id))
    }

    /// The runs beside those of these ids that left something here, in natural order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn runs_beside(&self, planned: &HashSet<&str>) -> Result<Vec<String>, Diagnostic> {
        let failed = |error: std::io::Error| cannot("read", &self.path, &error);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if let Some(name) = path.file_name().and_then(std::ffi::OsStr::to_str)
                && !planned.contains(name)
                && !name.starts_with(TEMPORARY)
                && (path.join(REPORT).exists() || path.join(STATUS).exists())
            {
                found.push(name.to_owned());
            }
        }
        found.sort_by_cached_key(|name| super::reports::natural_key(name));
        Ok(found)
    }
}

/// A value as indented JSON with a line break at its end.
pub(super) fn to_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, Diagnostic> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| cannot_be_json(path, &error))?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn cannot_be_json(path: &Path, error: &serde_json::Error) -> Diagnostic {
    Diagnostic::error(format!("cannot write {}: {error}", path.display()))
}

fn open_lock(path: &Path) -> Result<File, Diagnostic> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| cannot("write", path, &error))
}
