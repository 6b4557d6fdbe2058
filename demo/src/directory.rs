//! The private directory of a simulated node: created securely, locked while its process runs, removed at the end.

use std::fs::{DirBuilder, remove_dir_all};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Pid, geteuid, getpid, test_kill_process};

const PREFIX: &str = "jobledger-demo-";

/// A directory `jobledger-demo-<pid>-<random>` that no other user can enter. Removed on drop.
#[derive(Debug)]
pub(super) struct PrivateDirectory {
    path: PathBuf,
    /// The lock shows that the process runs. Pids are not unique across containers.
    _lock: OwnedFd,
}

/// `/dev/shm` if it is writable, else the directory for temporary files.
pub(crate) fn default_base() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty())?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

impl PrivateDirectory {
    /// Creates one in `base`, after removing those of dead processes.
    pub(super) fn make(base: &Path) -> io::Result<Self> {
        remove_dead(base);
        // The standard library seeds its hashers with random keys. Guessing the name does not help an attacker: mkdir(2)
        // fails if the name exists, also as a link.
        let random = RandomState::new().build_hasher().finish();
        let path = base.join(format!("{PREFIX}{}-{random:016x}", getpid().as_raw_nonzero()));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the simulated node");
        }
    }
}

/// Removes the directories of this user's dead processes. Errors do not prevent a start.
fn remove_dead(base: &Path) {
    for entry in base.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(pid_of) else { continue };
        let mine = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == geteuid().as_raw());
        // A new directory is not locked yet; only its pid shows that its process runs.
        let dead = test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
        if mine && dead && lock(&entry.path()).is_ok() {
            match remove_dir_all(entry.path()) {
                Ok(()) => {
                    tracing::info!(path = %entry.path().display(), "removed the directory of a dead demo")
                }
                Err(error) => {
                    tracing::warn!(path = %entry.path().display(), %error, "cannot remove the directory of a dead demo");
                }
            }
        }
    }
}

fn pid_of(name: &str) -> Option<Pid> {
    let (pid, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let whole = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
    Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 0)?).filter(|_| whole)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn base(name: &str) -> PathBuf {
        let base = std::env::temp_dir().join(format!("jobledger-directory-{name}-{}", std::process::id()));
        let _ = remove_dir_all(&base);
        std::fs::create_dir_all(&base).unwrap();
        base
    }

    #[test]
    fn is_private_and_removed_on_drop() {
        let base = base("private");
        let directory = PrivateDirectory::make(&base).unwrap();
        let path = directory.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        std::fs::write(path.join("file"), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn only_directories_of_dead_processes_are_removed() {
        let base = base("sweep");
        // Pids end at 2^22 (PID_MAX_LIMIT), so no process has these.
        let dead = base.join(format!("{PREFIX}4194305-0123456789abcdef"));
        let locked = base.join(format!("{PREFIX}4194306-0123456789abcdef"));
        let living = base.join(format!("{PREFIX}{}-0123456789abcdef", std::process::id()));
        let others = base.join(format!("{PREFIX}4194305-x"));
        let link = base.join(format!("{PREFIX}4194307-0123456789abcdef"));
        for path in [&dead, &locked, &living, &others] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("file"), "x").unwrap();
        }
        symlink(&others, &link).unwrap();
        let held = lock(&locked).unwrap();
        let directory = PrivateDirectory::make(&base).unwrap();
        assert!(!dead.exists(), "dead and not locked");
        for kept in [&locked, &living, &others, &link] {
            assert!(kept.exists(), "{}", kept.display());
        }
        assert!(others.join("file").exists(), "nothing is removed through a link");
        drop((held, directory));
        std::fs::remove_dir_all(base).unwrap();
    }
}
