//! Where a run came from: the command, the experiment, the revision of its folder, the time.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::protocol::Provenance;

/// Now, as RFC 3339 in UTC with seconds.
pub fn utc_now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Of this command, and of the experiment whose absolute path is given; without one, of the working directory.
pub fn provenance(experiment: Option<&Path>) -> Provenance {
    let folder = experiment.and_then(Path::parent).unwrap_or(Path::new("."));
    let revision = git(folder, &["rev-parse", "HEAD"]);
    let dirty = revision.as_ref().and_then(|_| {
        // Changes to tracked files count, and a new experiment file; results that lie beside it do not.
        let changed = git(folder, &["status", "--porcelain", "--untracked-files=no", "--", "."])?;
        let file = experiment.and_then(Path::file_name).and_then(std::ffi::OsStr::to_str);
        let untracked = file.is_some_and(|file| git(folder, &["ls-files", "--error-unmatch", "--", file]).is_none());
        Some(!changed.is_empty() || untracked)
    });
    Provenance {
        command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        experiment: experiment.map(Path::to_owned),
        git_revision: revision,
        git_dirty: dirty,
    }
}

/// What git answers; none where there is no git, or no repository.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_outside_a_repository_has_no_revision() {
        let folder = tempfile::tempdir().unwrap();
        let found = provenance(Some(&folder.path().join("x.toml")));
        assert_eq!((found.git_revision, found.git_dirty), (None, None));
        assert!(!found.command.is_empty());
    }

    #[test]
    fn a_changed_or_new_experiment_is_marked_and_results_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"];
            git(folder.path(), &[&identity, arguments].concat()).unwrap()
        };
        let experiment = folder.path().join("x.toml");
        run(&["init", "-q"]);
        std::fs::write(&experiment, "").unwrap();
        run(&["add", "."]);
        run(&["commit", "-q", "-m", "first"]);
        let clean = provenance(Some(&experiment));
        assert_eq!(clean.git_dirty, Some(false));
        assert_eq!(clean.git_revision, Some(run(&["rev-parse", "HEAD"])));
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        std::fs::write(folder.path().join("runs/results.csv"), "").unwrap();
        assert_eq!(provenance(Some(&experiment)).git_dirty, Some(false));
        assert_eq!(provenance(Some(&folder.path().join("new.toml"))).git_dirty, Some(true));
        std::fs::write(&experiment, "# changed").unwrap();
        assert_eq!(provenance(Some(&experiment)).git_dirty, Some(true));
    }

    #[test]
    fn times_are_utc() {
        let now = utc_now();
        assert!(now.ends_with('Z') && now.len() == 20, "{now}");
    }
}
