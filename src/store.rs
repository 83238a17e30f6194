//! The results folder: names, atomic writes, discovery.
//!
//! ```text
//! runs/<experiment>/plan.json  results.csv  samples.csv  comparison.md  report.html  figures/*.svg
//! runs/<experiment>/<run-id>/report.json  status.json  worker.log  snapshot-rank0.pickle
//! runs/<experiment>/<run-id>/attempts/<n>/    the files of an earlier attempt
//! runs/<experiment>/slurm/<submission>/array-0.sh  array-0.jsonl  array-0.json  array-0-<task>.log
//! ```
//!
//! A file appears under its name complete or not at all, and is readable by the group. Writers never share a file. Only what
//! changes the plan or starts local runs takes the folder's lock; reading never does.

mod atomic;
mod folder;
mod lines;
mod reports;
mod run;
mod submission;

use std::path::Path;

use crate::diag::Diagnostic;

pub use atomic::{write_atomic, write_atomic_soon};
pub use folder::{Lock, ResultsFolder};
pub use reports::{NamedReport, ReadReport, read_report, reports_at};
pub use run::{RunFolder, State, hostname, is_finished, node, slurm_job_id, slurm_job_name};
pub use submission::{ArrayPlace, slurm_task};

/// Says that something could not be done to a file or folder, and what to do about the usual reasons.
fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Diagnostic {
    let why = error.to_string();
    // `tempfile` adds the name of its own file, which nobody knows.
    let why = why.split(" at path \"").next().unwrap_or_default();
    let said = Diagnostic::error(format!("cannot {verb} {}: {why}", path.display()));
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => said.help("check who owns it and what its permissions allow"),
        std::io::ErrorKind::ReadOnlyFilesystem => said.help("choose a folder on a file system that can be written"),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            said.help("free some space, or choose a folder elsewhere; what is finished is kept")
        }
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_is_named_with_the_remedy_and_nothing_else() {
        for (number, remedy) in [
            (nix::libc::EACCES, "permissions"),
            (nix::libc::EROFS, "file system that can be written"),
            (nix::libc::ENOSPC, "free some space"),
            (nix::libc::EDQUOT, "free some space"),
        ] {
            let said = cannot("write", Path::new("runs/x/results.csv"), &std::io::Error::from_raw_os_error(number));
            assert!(said.message.starts_with("cannot write runs/x/results.csv: "), "{}", said.message);
            assert!(said.help.is_some_and(|help| help.contains(remedy)), "{number}");
        }
        let folder = tempfile::tempdir().unwrap();
        let said = write_atomic(&folder.path().join("none/file"), b"").unwrap_err();
        assert!(!said.message.contains(atomic::TEMPORARY), "{}", said.message);
    }
}
