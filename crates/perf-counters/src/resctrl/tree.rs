//! The file system, behind a trait: tests have no such hardware, and a directory alone does not do what the kernel does.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use kernel_files::{Buffer, Dir, ReadError};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat};
use rustix::io::Errno;

/// Holds the lock of the file system while it is there.
#[derive(Debug)]
pub struct Lock {
    /// Closing it gives the lock back.
    _file: OwnedFd,
}

/// A mounted resctrl. Paths are relative to its root; groups are named as they lie there (`mon_groups/x`, `c/mon_groups/x`).
pub trait Tree: Send {
    /// Reads a file.
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadError>;
    /// Names of the directories in one, in order.
    fn directories(&self, path: &str) -> Result<Vec<String>, ReadError>;
    /// Puts a task into a group.
    fn add_task(&self, group: &str, task: u32) -> Result<(), Errno>;
    /// Makes a group.
    fn make(&self, group: &str) -> Result<(), Errno>;
    /// Assigns a counter to the bytes of a group in each domain (`mbm_event` mode). Where one domain has none, others may have got
    /// theirs.
    fn assign(&self, group: &str) -> Result<(), Errno>;
    /// What distinguishes a group from one that was there before under the same name.
    fn identity(&self, group: &str) -> Option<u64>;
    /// Removes a group; its tasks become its parent's.
    fn remove(&self, group: &str) -> Result<(), Errno>;
    /// Takes the lock that programs hold while they change groups; `None` when another one has it. Never waits.
    fn lock(&self) -> Result<Option<Lock>, Errno>;
}

/// The kernel's own.
#[derive(Debug, Clone)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// The one that is mounted there.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    fn root(&self) -> Result<Dir, ReadError> {
        Dir::open(&self.0)
    }

    /// The root for changing something in it, with an errno of its own.
    fn opened(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(rustix::fs::CWD, &self.0, flags, Mode::empty())
    }
}

impl Tree for Mounted {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        let mut buffer = Buffer::default();
        self.root()?.read_list(path, &mut buffer).map(<[u8]>::to_vec)
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let root = self.root()?;
        let entries =
            if path.is_empty() { root.directories()? } else { root.open_dir(path)?.directories()? };
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    fn add_task(&self, group: &str, task: u32) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(self.opened()?, format!("{group}/tasks"), flags, Mode::empty())?;
        // One at a time: lists are understood since Linux 6.7, and end at the first task that is gone.
        rustix::io::write(file.as_fd(), format!("{task}\n").as_bytes()).map(drop)
    }

    fn make(&self, group: &str) -> Result<(), Errno> {
        mkdirat(self.opened()?, group, Mode::from_raw_mode(0o755))
    }

    fn assign(&self, group: &str) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(self.opened()?, format!("{group}/mbm_L3_assignments"), flags, Mode::empty())?;
        // It would take a second counter, and is not read. Not every CPU has it.
        let _ = rustix::io::write(file.as_fd(), b"mbm_local_bytes:*=_\n");
        rustix::io::write(file.as_fd(), b"mbm_total_bytes:*=e\n").map(drop)
    }

    fn identity(&self, group: &str) -> Option<u64> {
        let root = self.root().ok()?;
        let stat = if group.is_empty() { root.stat() } else { root.stat_of(group) };
        stat.ok().map(|stat| stat.inode)
    }

    fn remove(&self, group: &str) -> Result<(), Errno> {
        unlinkat(self.opened()?, group, AtFlags::REMOVEDIR)
    }

    fn lock(&self) -> Result<Option<Lock>, Errno> {
        let root = self.opened()?;
        match flock(&root, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: root })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
