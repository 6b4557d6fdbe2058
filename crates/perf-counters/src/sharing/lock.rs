//! LIKWID's lock, watched.
//!
//! The file is watched and never opened for writing. inotify(7) reports changes within microseconds, on any kernel,
//! without privilege. Each scrape looks as well, so that what inotify misses (a mount over the directory, a limit on
//! watches) is late by one scrape at most. Each look first sets the watches again, from the root downwards: any later
//! change wakes the thread, and the last state wins.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::{Errno, write};

use super::{CounterOwnership, Owner, Reason};

/// Of every directory on the way: an entry comes, goes or changes hands, or the directory itself does.
const ON_THE_WAY: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);
/// Of the file itself, which may change hands by another name that it has.
const FILE: WatchFlags = WatchFlags::ATTRIB.union(WatchFlags::DONT_FOLLOW);

/// The latest state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The owner of the counters.
    pub owner: Owner,
    /// Why a change is not noticed at once, if so.
    pub unwatched: Option<Errno>,
}

#[derive(Debug, Default)]
struct Seen {
    owner: Option<Owner>,
    watches: Vec<i32>,
    unwatched: Option<Errno>,
    /// Why the watches are not read, if so.
    unread: Option<Errno>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    name: OsString,
    /// Every name on the way, the file's own included. Other entries of those directories do not matter.
    names: Vec<OsString>,
    us: u32,
    ownership: CounterOwnership,
    inotify: OnceLock<OwnedFd>,
    /// Held from a look to the switch that follows, so that an older look never acts after a newer one.
    seen: Mutex<Seen>,
}

/// The lock. Dropping it ends its thread.
#[derive(Debug)]
pub struct Lock {
    shared: Arc<Shared>,
    wakeup: Arc<OwnedFd>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Lock {
    /// The lock at `path` for this process's user. Nothing is looked at yet.
    pub fn new(path: &Path, ownership: CounterOwnership) -> std::io::Result<Self> {
        Self::of_user(path, ownership, rustix::process::geteuid().as_raw())
    }

    fn of_user(path: &Path, ownership: CounterOwnership, us: u32) -> std::io::Result<Self> {
        let shared = Shared {
            directory: path.parent().map(Path::to_path_buf).unwrap_or_default(),
            name: path.file_name().map(OsString::from).unwrap_or_default(),
            names: path.iter().map(OsString::from).collect(),
            us,
            ownership,
            inotify: OnceLock::new(),
            seen: Mutex::default(),
        };
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        Ok(Self { shared: Arc::new(shared), wakeup, thread: Mutex::default() })
    }

    /// Looks, and has counters released or taken up accordingly. On return no counter is open if they belong to
    /// somebody else.
    pub fn look(&self) -> Owner {
        self.shared.look().owner
    }

    /// The same, with why changes are not noticed at once.
    pub fn check_and_notify(&self) -> Look {
        self.shared.look()
    }

    /// Has a thread look whenever something changes; it sleeps otherwise. Where that fails, it is logged, and
    /// [`Lock::look`] is left.
    pub fn watch(&self) {
        if let Err(errno) = self.start() {
            tracing::warn!(
                %errno,
                "LIKWID's lock is only looked at in scrapes (fs.inotify.max_user_instances, max_user_watches?)"
            );
            self.shared.seen().unread = Some(errno);
        }
    }

    fn start(&self) -> Result<(), Errno> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut thread = self.thread.lock();
        if self.shared.inotify.set(inotify).is_err() {
            return Ok(());
        }
        let (shared, wakeup) = (self.shared.clone(), self.wakeup.clone());
        let work = move || {
            shared.look();
            while shared.wait(&wakeup) {
                shared.look();
            }
        };
        let spawned = std::thread::Builder::new().name("lock".to_owned()).stack_size(256 << 10).spawn(work);
        *thread = Some(spawned.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?);
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = write(&*self.wakeup, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }

    fn look(&self) -> Look {
        let mut seen = self.seen();
        if let Some(inotify) = self.inotify.get() {
            self.arm(inotify, &mut seen);
        }
        let owner = Owner::look(&self.directory, &self.name, self.us);
        let began = Instant::now();
        if owner.is_ours() {
            self.ownership.resume_from(Reason::Lock);
        } else {
            self.ownership.yield_for(Reason::Lock);
        }
        let before = seen.owner.replace(owner);
        if before != Some(owner) {
            let took = began.elapsed();
            match (before.is_none_or(Owner::is_ours), owner.is_ours()) {
                (_, false) => tracing::info!(%owner, ?took, "hardware counters are released"),
                (false, true) => tracing::info!(%owner, ?took, "hardware counters are ours again"),
                (true, true) => tracing::debug!(%owner, "hardware counters are ours"),
            }
        }
        Look { owner, unwatched: seen.unread.or(seen.unwatched) }
    }

    /// Watches what leads to the file now, and no more what did before.
    fn arm(&self, inotify: &OwnedFd, seen: &mut Seen) {
        let mut watches = Vec::with_capacity(self.names.len() + 1);
        let mut unwatched = None;
        let mut ways: Vec<&Path> = self.directory.ancestors().collect();
        while let Some(way) = ways.pop() {
            match add_watch(inotify, way, ON_THE_WAY) {
                Ok(watch) => watches.push(watch),
                // The watch on the directory above reports when it appears.
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                // A directory above that may not be listed: what changes there shows in the next scrape.
                Err(Errno::ACCESS) if !ways.is_empty() => {}
                Err(errno) => unwatched = Some(errno),
            }
        }
        // One that may not be read is watched by its directory.
        watches.extend(add_watch(inotify, self.directory.join(&self.name), FILE));
        for old in std::mem::take(&mut seen.watches) {
            if !watches.contains(&old) {
                // EINVAL: the kernel dropped it with the watched file.
                let _ = remove_watch(inotify, old);
            }
        }
        seen.watches = watches;
        if let Some(errno) = unwatched.filter(|_| seen.unwatched.is_none()) {
            tracing::warn!(%errno, "LIKWID's lock cannot be watched; it is looked at in scrapes");
        }
        seen.unwatched = unwatched;
    }

    /// Sleeps until something happened on the way to the file; false when the thread is to end.
    fn wait(&self, wakeup: &OwnedFd) -> bool {
        let Some(inotify) = self.inotify.get() else { return false };
        loop {
            let mut fds = [PollFd::new(inotify, PollFlags::IN), PollFd::new(wakeup, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!(%errno, "LIKWID's lock is not watched any more");
                    self.seen().unread = Some(errno);
                    return false;
                }
            }
            let [_, rung] = fds.map(|fd| !fd.revents().is_empty());
            if rung {
                return false;
            }
            if self.drain(inotify) {
                return true;
            }
        }
    }

    /// Whether any event matters. Events without a name are of a watched directory itself, or some were lost.
    fn drain(&self, inotify: &OwnedFd) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut matters = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            matters |= name.is_none_or(|name| self.names.iter().any(|n| n.as_encoded_bytes() == name));
        }
        matters
    }
}

#[cfg(test)]
mod tests;
