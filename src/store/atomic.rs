//! Files that appear complete or not at all.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::cannot;
use crate::diag::Diagnostic;

/// Writes a file under a temporary name beside it, flushes it to the disk, and renames it.
///
/// # Errors
/// The folder cannot be written, or is full. The file then is what it was before.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    write(path, bytes, true).map_err(|error| cannot("write", path, &error))
}

/// The same for a file that changes often and can be done without, such as a status: complete or not at all for every reader, but
/// perhaps lost or empty after a power failure. Waiting for the disk would take longer than a small run.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_atomic_soon(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    write(path, bytes, false).map_err(|error| cannot("write", path, &error))
}

fn write(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(TEMPORARY)
        // Less the umask: the group of a shared project reads the results, where the user lets it.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    if durable {
        file.as_file().sync_all()?;
    }
    file.persist(path)?;
    // The name, too, survives a power failure; not every file system can flush a folder.
    if durable && let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// What temporary names start with.
pub(super) const TEMPORARY: &str = ".memlab-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_file_survives_a_write_that_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/file");
        let error = write_atomic(&path, b"new").unwrap_err();
        assert!(error.message.contains("a/file"), "{}", error.message);
        std::fs::create_dir(folder.path().join("a")).unwrap();
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path().join("a")).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn the_umask_alone_decides_who_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write_atomic(&ours, b"").unwrap();
        std::fs::write(&plain, b"").unwrap();
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
