//! A directory that runs as long as a test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory below the temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory whose name starts with `jobledger-<label>`.
    #[must_use]
    pub fn new(label: &str) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("jobledger-{label}-{}-{serial}", std::process::id());
        let path = base().join(name);
        // A killed test run of an earlier process with this id may have left one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Memory before disk: a machine is thousands of files, and `TMPDIR` has the last word.
fn base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none() && memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        make_traversable(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A directory of mode 000 cannot be emptied by its owner unless the owner is root.
fn make_traversable(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            make_traversable(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_removed_on_drop_even_with_an_unreadable_directory_inside() {
        let scratch = Scratch::new("scratch");
        let path = scratch.path().to_path_buf();
        fs::create_dir(path.join("closed")).unwrap();
        fs::write(path.join("closed/file"), "x").unwrap();
        fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
