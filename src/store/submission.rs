//! The files of a submission to Slurm.
//!
//! ```text
//! runs/<experiment>/slurm/<submission>/array-0.sh       what `sbatch` is given
//! runs/<experiment>/slurm/<submission>/array-0.jsonl    what each task executes, a line per array index
//! runs/<experiment>/slurm/<submission>/array-0.json     how far its submission got
//! runs/<experiment>/slurm/<submission>/array-0-<n>.log  what task n wrote
//! ```
//!
//! A list of tasks never changes, because jobs in the queue read it; the record beside it has one writer, who holds the
//! folder's lock.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::atomic::write_atomic;
use super::cannot;
use super::folder::{ResultsFolder, to_json};
use super::reports::{natural_key, read_json};
use crate::diag::Diagnostic;
use crate::protocol::{SlurmArray, SlurmTask};

/// Where a results folder keeps its submissions.
const SLURM: &str = "slurm";

/// The place of one array's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayPlace {
    /// `.../slurm/<submission>/array-0`.
    stem: PathBuf,
}

impl ResultsFolder {
    /// The place of an array of a submission, which need not be there yet.
    pub fn array(&self, submission: &str, number: usize) -> ArrayPlace {
        let folder = std::path::absolute(self.path()).unwrap_or_else(|_| self.path().to_owned());
        ArrayPlace { stem: folder.join(SLURM).join(submission).join(format!("array-{number}")) }
    }

    /// The arrays of every submission, oldest first.
    ///
    /// # Errors
    /// A folder or a record cannot be read.
    pub fn arrays(&self) -> Result<Vec<(ArrayPlace, SlurmArray)>, Diagnostic> {
        let mut found = Vec::new();
        for submission in entries(&self.path().join(SLURM))? {
            for path in entries(&submission)? {
                if path.extension().is_some_and(|extension| extension == "json")
                    && let Some(record) = read_json(&path, "record of a submission")?
                {
                    let path = std::path::absolute(&path).unwrap_or(path);
                    found.push((ArrayPlace { stem: path.with_extension("") }, record));
                }
            }
        }
        Ok(found)
    }
}

impl ArrayPlace {
    /// What the names of all its files start with.
    pub fn stem(&self) -> &Path {
        &self.stem
    }

    /// The script.
    pub fn script(&self) -> PathBuf {
        self.stem.with_extension("sh")
    }

    /// The list of tasks.
    pub fn tasks(&self) -> PathBuf {
        self.stem.with_extension("jsonl")
    }

    /// What a task wrote.
    pub fn log(&self, task: usize) -> PathBuf {
        let mut name = self.stem.file_name().unwrap_or_default().to_owned();
        name.push(format!("-{task}.log"));
        self.stem.with_file_name(name)
    }

    /// Writes what is to be submitted: the tasks, the script, and last the record, without which the others mean nothing.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create(&self, tasks: &[SlurmTask], script: &str, record: &SlurmArray) -> Result<(), Diagnostic> {
        let folder = self.stem.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|error| cannot("make the folder", folder, &error))?;
        let path = self.tasks();
        let mut lines = Vec::new();
        for task in tasks {
            serde_json::to_writer(&mut lines, task)
                .map_err(|error| Diagnostic::error(format!("cannot write {}: {error}", path.display())))?;
            lines.push(b'\n');
        }
        write_atomic(&path, &lines)?;
        write_atomic(&self.script(), script.as_bytes())?;
        self.record(record)
    }

    /// Removes what was never submitted. The record goes first, as it came last.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove(&self) -> Result<(), Diagnostic> {
        [self.stem.with_extension("json"), self.script(), self.tasks()]
            .iter()
            .try_for_each(|path| std::fs::remove_file(path).map_err(|error| cannot("remove", path, &error)))
    }

    /// Writes how far the submission got.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn record(&self, record: &SlurmArray) -> Result<(), Diagnostic> {
        let path = self.stem.with_extension("json");
        write_atomic(&path, &to_json(&path, record)?)
    }
}

/// The task with this index in a list of tasks, and the results folder that it belongs to.
///
/// # Errors
/// The list cannot be read, or has no such task.
pub fn slurm_task(list: &Path, index: usize) -> Result<(ResultsFolder, SlurmTask), Diagnostic> {
    let failed = |error: std::io::Error| cannot("read", list, &error);
    let file = std::fs::File::open(list).map_err(failed)?;
    let no_task = || Diagnostic::error(format!("{} has no task {index}", list.display()));
    let line = BufReader::new(file).lines().nth(index).ok_or_else(no_task)?.map_err(failed)?;
    let task = serde_json::from_str(&line)
        .map_err(|error| Diagnostic::error(format!("task {index} of {} cannot be read: {error}", list.display())))?;
    let folder = list.ancestors().nth(3).ok_or_else(no_task)?;
    Ok((ResultsFolder::open(folder)?, task))
}

/// What is in a folder, in natural order; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let failed = |error: std::io::Error| cannot("read", folder, &error);
    let listed = match std::fs::read_dir(folder) {
        Ok(listed) => listed,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths =
        listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
    paths.sort_by_cached_key(|path| natural_key(&path.to_string_lossy()));
    Ok(paths)
}
