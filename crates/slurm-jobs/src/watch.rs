//! The kernel's word of what happens to cgroups: inotify(7).
//!
//! cgroupfs reports mkdir and rmdir like any file system and a change of `cgroup.events` as a modification
//! (kernfs_notify, at most one per 10 ms and file). All watches go through one descriptor.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;

use super::JobRunId;

/// The meaning of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A directory in which a root of SLURM's may appear.
    Above,
    /// A root of SLURM's, by inode.
    SlurmCgroup(u64),
    /// `uid_<U>` of v1, in a root: the root's inode and the uid.
    User(u64, u32),
    /// A job's directory.
    Job(JobRunId),
    /// A step's directory, by ordinal.
    Step(JobRunId, u32),
    /// A step's `user` directory, where tasks are (v2).
    Tasks(JobRunId, u32),
    /// A step's `user/cgroup.events` (v2).
    Populated(JobRunId, u32),
    /// A job's `cpuset.cpus` (v1).
    Cpus(JobRunId),
    /// The directory of the prolog's files.
    Metadata,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A directory of this name was made in the target.
    Made(Target, String),
    /// A directory of this name was removed from the target.
    Removed(Target, String),
    /// The target itself changed (`cgroup.events`).
    Changed(Target),
    /// A file of this name was written, or moved to its place, in the directory of the prolog's files.
    Written(String),
    /// Events were lost.
    Overflow,
}

/// Bytes of events that are read at a time.
const BUFFER: usize = 16 << 10;
/// As many events as fill that with the longest names: NAME_MAX and a nul after 16 bytes.
const FULL: usize = BUFFER / (16 + 256);
/// Pause between attempts to make an instance.
const PAUSE: Duration = Duration::from_secs(10);

/// All watches. Without an instance (EMFILE: the user has `fs.inotify.max_user_instances` of them, or the process no
/// descriptor) none is set and nothing happens; a walk has to do.
#[derive(Debug)]
pub struct Watches {
    inotify: Result<OwnedFd, Errno>,
    /// When an instance was asked for last.
    asked: Instant,
    targets: HashMap<i32, Target>,
    failures: u64,
    overflows: u64,
}

impl Default for Watches {
    fn default() -> Self {
        Self::new()
    }
}

impl Watches {
    /// An empty set.
    pub fn new() -> Self {
        let inotify = instance();
        if let Err(error) = &inotify {
            tracing::warn!(%error, "no inotify instance: scrapes alone find jobs; raise fs.inotify.max_user_instances");
        }
        Self { inotify, asked: Instant::now(), targets: HashMap::new(), failures: 0, overflows: 0 }
    }

    /// Why there is no instance.
    pub fn refused(&self) -> Option<Errno> {
        self.inotify.as_ref().err().copied()
    }

    /// Asks for an instance again now and then. True if there is one from now on, without any watch.
    pub fn ask_again(&mut self, now: Instant) -> bool {
        if self.inotify.is_ok() || now.saturating_duration_since(self.asked) < PAUSE {
            return false;
        }
        (self.asked, self.inotify) = (now, instance());
        if self.inotify.is_ok() {
            tracing::info!("there is an inotify instance again");
        }
        self.inotify.is_ok()
    }

    /// What to wait for.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().ok().map(AsFd::as_fd)
    }

    fn add(&mut self, path: &Path, target: Target, flags: WatchFlags) -> Option<i32> {
        let inotify = self.inotify.as_ref().ok()?;
        match add_watch(inotify, path, flags) {
            Ok(watch) => {
                self.targets.insert(watch, target);
                Some(watch)
            }
            // A removed directory needs no watch; every other failure (ENOSPC above all) is counted.
            Err(Errno::NOENT | Errno::NODEV) => None,
            Err(_) => {
                self.failures += 1;
                None
            }
        }
    }

    /// Watches a directory for directories made and removed in it. One that is moved into it counts as made: the demo
    /// makes its directories so, and an admin may rename some on v1.
    pub fn directory(&mut self, path: &Path, target: Target) -> Option<i32> {
        self.add(
            path,
            target,
            WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR,
        )
    }

    /// Watches a file for changes.
    pub fn file(&mut self, path: &Path, target: Target) -> Option<i32> {
        self.add(path, target, WatchFlags::MODIFY)
    }

    /// Watches a directory for files that are written in it or moved into it.
    pub fn files(&mut self, path: &Path, target: Target) -> Option<i32> {
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let watch = add_watch(self.inotify.as_ref().ok()?, path, flags).ok()?;
        self.targets.insert(watch, target);
        Some(watch)
    }

    /// Whether a watch is still there: the kernel drops it with its directory.
    pub fn has(&self, watch: i32) -> bool {
        self.targets.contains_key(&watch)
    }

    /// Ends a watch.
    pub fn remove(&mut self, watch: i32) {
        if self.targets.remove(&watch).is_some()
            && let Ok(inotify) = &self.inotify
        {
            // EINVAL: the kernel dropped it with the directory.
            let _ = remove_watch(inotify, watch);
        }
    }

    /// Forgets a watch that the kernel drops with its directory.
    pub fn forget(&mut self, watch: i32) {
        self.targets.remove(&watch);
    }

    /// What happened until this call and since the last one, in order. Never waits.
    pub fn drain(&mut self, events: &mut Vec<Event>) {
        let Ok(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut dropped = Vec::new();
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut taken = 0;
        // The kernel gives all events that fit (fs/notify/inotify/inotify_user.c, `inotify_read`), and so few left room for another.
        while taken == 0 || taken >= FULL || !reader.is_buffer_empty() {
            let Ok(event) = reader.next() else { break };
            taken += 1;
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.overflows += 1;
                events.push(Event::Overflow);
                continue;
            }
            let Some(target) = self.targets.get(&event.wd()).copied() else { continue };
            if flags.contains(ReadFlags::IGNORED) {
                dropped.push(event.wd());
                continue;
            }
            let name =
                || event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if target == Target::Metadata {
                events.push(Event::Written(name()));
            } else if flags.contains(ReadFlags::MODIFY) {
                events.push(Event::Changed(target));
            } else if flags.contains(ReadFlags::ISDIR)
                && flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)
            {
                events.push(Event::Made(target, name()));
            } else if flags.contains(ReadFlags::ISDIR | ReadFlags::DELETE) {
                events.push(Event::Removed(target, name()));
            }
        }
        for watch in dropped {
            self.targets.remove(&watch);
        }
    }

    /// Watches that could not be set since the start.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Overflows since the start.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// How many watches there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is no watch.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}

fn instance() -> Result<OwnedFd, Errno> {
    init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}
