//! Word of each opening and closing of device nodes, from inotify(7): it is of the inode, so a node that is bound into a
//! container is heard as well. The kernel merges words that are alike, so they are not counted.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use attribution::{Heard, SETTLE};
use kernel_files::{Dir, ReadError, Roots};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::FileType;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::io::{Errno, write};

use super::super::CollectError;

const DIRECTORY: &str = "infiniband";
const FIX: &str =
    "let the exporter's user read /dev/infiniband/uverbs* (rdma-core's udev rules do), no PrivateDevices=";

/// A node that is listened to.
#[derive(Debug)]
struct Node {
    watch: i32,
    /// The device that it stands for.
    number: u64,
    /// File system and inode.
    identity: (u64, u64),
}

#[derive(Debug, Default)]
struct State {
    nodes: Vec<Node>,
    heard: BTreeMap<u64, Heard>,
    due: Option<Instant>,
}

/// The listener. Its thread sleeps until something is opened or closed.
#[derive(Debug)]
pub(super) struct Listener {
    inotify: OwnedFd,
    stop: OwnedFd,
    state: Mutex<State>,
}

impl Listener {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            inotify: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            state: Mutex::default(),
        })
    }

    /// Starts the thread, which calls `ring` when something was heard.
    pub(super) fn start(self: &Arc<Self>, ring: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let listener = self.clone();
        let work = move || {
            while listener.wait() {
                drop(listener.drain());
                ring();
            }
        };
        std::thread::Builder::new().name("holders".to_owned()).stack_size(128 << 10).spawn(work).map(drop)
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        // A counter that is full has been rung already.
        let _ = write(&self.stop, &1_u64.to_ne_bytes());
    }

    fn wait(&self) -> bool {
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        loop {
            match poll(&mut fds, None) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "poll failed");
                    return false;
                }
            }
        }
        fds.get(1).is_some_and(|stop| stop.revents().is_empty())
    }

    fn drain(&self) -> MutexGuard<'_, State> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let (flags, watch, now) = (event.events(), event.wd(), Instant::now());
            state.due = Some(now + SETTLE);
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                state.heard.values_mut().for_each(|heard| heard.opened(now));
                continue;
            }
            let Some(at) = state.nodes.iter().position(|node| node.watch == watch) else { continue };
            let Some(number) = state.nodes.get(at).map(|node| node.number) else { continue };
            let heard = state.heard.entry(number).or_default();
            if flags.contains(ReadFlags::IGNORED) {
                state.nodes.swap_remove(at);
                heard.opened(now);
            } else if flags.contains(ReadFlags::OPEN) {
                heard.opened(now);
            } else {
                heard.closed(now);
            }
        }
        guard
    }

    /// Listens to every node of these devices. What was not listened to until now may have been opened.
    pub(super) fn follow(&self, roots: &Roots, numbers: &[u64]) -> Result<(), CollectError> {
        let failed = |error| {
            CollectError::reading("/dev/infiniband", "the device nodes of InfiniBand verbs", FIX)(error)
        };
        let directory = Dir::open(&roots.dev(DIRECTORY)).map_err(failed)?;
        let mut found = Vec::new();
        for entry in directory.list().map_err(failed)? {
            let Ok(stat) = directory.stat_of(&entry.name) else { continue };
            if stat.kind == FileType::CharacterDevice && numbers.contains(&stat.rdev) {
                found.push((entry.name, stat.rdev, (stat.device, stat.inode)));
            }
        }
        let mut state = self.drain();
        let State { nodes, heard, .. } = &mut *state;
        nodes.retain(|node| {
            let stays = found
                .iter()
                .any(|(_, number, identity)| (node.number, node.identity) == (*number, *identity));
            if !stays {
                heard.entry(node.number).or_default().opened(Instant::now());
                // EINVAL: the kernel dropped it with the node.
                let _ = remove_watch(&self.inotify, node.watch);
            }
            stays
        });
        for (name, number, identity) in found {
            if nodes.iter().any(|node| node.identity == identity) {
                continue;
            }
            let path = roots.dev(&format!("{DIRECTORY}/{name}"));
            let flags = WatchFlags::OPEN | WatchFlags::CLOSE | WatchFlags::DONT_FOLLOW;
            let watch = add_watch(&self.inotify, path, flags)
                .map_err(|errno| failed(ReadError::from_errno(errno)))?;
            nodes.push(Node { watch, number, identity });
            heard.entry(number).or_default().opened(Instant::now());
        }
        Ok(())
    }

    /// Whether a node is one that is listened to.
    pub(super) fn hears(&self, number: u64, identity: (u64, u64)) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.nodes.iter().any(|node| (node.number, node.identity) == (number, identity))
    }

    /// Whether a device has any node that is listened to.
    pub(super) fn follows(&self, number: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.nodes.iter().any(|node| node.number == number)
    }

    /// What was heard of a device since this was asked last.
    pub(super) fn take(&self, number: u64) -> Heard {
        self.drain().heard.insert(number, Heard::default()).unwrap_or_default()
    }

    /// When a look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).due
    }

    /// The look that was due is being made.
    pub(super) fn called(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).due = None;
    }

    /// A look is due then, if none is sooner.
    pub(super) fn add_due(&self, due: Option<Instant>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.due = [state.due, due].into_iter().flatten().min();
    }
}
