//! The owner of the counters by LIKWID's lock.
//!
//! LIKWID checks it before it touches a counter (its src/includes/lock.h). Access is granted if the lock file does
//! not exist or belongs to the caller, and denied otherwise. A site gives the file to its monitoring user, and to the
//! user of a job that may measure.

use std::ffi::OsStr;
use std::path::Path;

use kernel_files::{Dir, ReadError};
use rustix::fs::FileType;

/// Why the owner is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclear {
    /// There is something of that name that is no regular file: a link, a directory.
    NotAFile,
    /// The directory may not be looked into.
    Denied,
    /// Looking failed.
    Failed(ReadError),
}

/// The owner of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// There is no lock, so whoever is there may.
    NoLock,
    /// The lock belongs to this exporter's user, or to root: a site that monitors as root bars users by it, and then
    /// no user is measuring.
    Ours(u32),
    /// The lock is this user's.
    Others(u32),
    /// Whether somebody measures is not known. LIKWID treats that as locked, and so does the exporter: a gap is
    /// visible, and counters programmed twice are silently wrong.
    Unclear(Unclear),
}

impl Owner {
    /// Whether this exporter may hold counters.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::NoLock | Self::Ours(_))
    }

    /// Looks at `name` in `directory`, links not followed, for a process of the user `us`.
    pub(super) fn look(directory: &Path, name: &OsStr, us: u32) -> Self {
        let stat = name.to_str().ok_or(ReadError::Gone).and_then(|name| Dir::open(directory)?.stat_of(name));
        match stat {
            Err(ReadError::Gone) => Self::NoLock,
            Err(ReadError::Denied) => Self::Unclear(Unclear::Denied),
            Err(error) => Self::Unclear(Unclear::Failed(error)),
            Ok(stat) if stat.kind != FileType::RegularFile => Self::Unclear(Unclear::NotAFile),
            Ok(stat) if stat.uid == us || stat.uid == 0 => Self::Ours(stat.uid),
            Ok(stat) => Self::Others(stat.uid),
        }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoLock => f.write_str("there is no lock"),
            Self::Ours(uid) => write!(f, "the lock is uid {uid}'s, which is ours"),
            Self::Others(uid) => write!(f, "the lock is uid {uid}'s"),
            Self::Unclear(Unclear::NotAFile) => f.write_str("the lock is no regular file"),
            Self::Unclear(Unclear::Denied) => f.write_str("the lock may not be looked at"),
            Self::Unclear(Unclear::Failed(error)) => write!(f, "the lock cannot be looked at: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("jobledger-owner-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_lock_is_read_as_likwid_reads_it() {
        let dir = scratch("likwid");
        let look = |us| Owner::look(&dir, OsStr::new("likwid.lock"), us);
        assert_eq!(look(0), Owner::NoLock);
        let path = dir.join("likwid.lock");
        std::fs::write(&path, "").unwrap();
        let mine = std::fs::metadata(&path).unwrap().uid();
        assert_eq!(look(mine), Owner::Ours(mine));
        if rustix::process::geteuid().is_root() {
            assert_eq!(look(4321), Owner::Ours(0), "root's bars users, whoever monitors");
            std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
            assert_eq!(look(1234), Owner::Ours(1234));
            assert_eq!(look(0), Owner::Others(1234), "root's exporter yields to a user's, too");
            assert_eq!(look(4321), Owner::Others(1234));
        } else {
            jobledger_testkit::skip("root", "owners beside one's own");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_no_file_is_not_guessed_at() {
        let dir = scratch("odd");
        std::fs::write(dir.join("file"), "").unwrap();
        symlink("file", dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        std::fs::create_dir(dir.join("directory")).unwrap();
        for odd in ["link", "dangling", "directory"] {
            let owner = Owner::look(&dir, OsStr::new(odd), 0);
            assert_eq!(owner, Owner::Unclear(Unclear::NotAFile), "{odd}");
            assert!(!owner.is_ours());
        }
        assert_eq!(
            Owner::look(&dir.join("nowhere"), OsStr::new("x"), 0),
            Owner::NoLock,
            "nor a directory for it"
        );
        let below_a_file = Owner::look(&dir.join("file"), OsStr::new("x"), 0);
        assert!(matches!(below_a_file, Owner::Unclear(Unclear::Failed(_))), "{below_a_file:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_directory_that_may_not_be_searched_shows_nothing() {
        use std::os::unix::fs::PermissionsExt;
        if jobledger_testkit::skip_without_root("another user") {
            return;
        }
        let dir = scratch("closed");
        std::fs::write(dir.join("lock"), "").unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let at = dir.clone();
        // The file system's user of a thread is its own affair, and so are its capabilities.
        let owner = std::thread::spawn(move || {
            let none = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(
                None,
                rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none },
            )
            .unwrap();
            std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o000)).unwrap();
            Owner::look(&at, OsStr::new("lock"), 1234)
        });
        assert_eq!(owner.join().unwrap(), Owner::Unclear(Unclear::Denied));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
