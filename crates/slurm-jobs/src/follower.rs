//! The thread that follows jobs. It sleeps until the kernel reports a change of a cgroup or a scrape wants a
//! snapshot; nothing on it reads anything that can hang.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::Job;
use super::table::Table;
use crate::{NodeSnapshot, Reader};

enum Request {
    NodeSnapshot(Sender<Arc<NodeSnapshot>>),
    Delivered(Reader, Vec<Arc<Job>>),
    Save(Sender<Vec<u8>>),
    Stop,
}

/// What can be known of the table without asking its thread.
#[derive(Debug, Default)]
struct Glance {
    looked: AtomicBool,
    running: AtomicUsize,
    turns: AtomicU64,
}

/// Whether the thread makes progress, for whoever does not want to wait for an answer of it.
#[derive(Debug, Clone)]
pub struct Pulse {
    glance: Arc<Glance>,
    wakeup: Arc<OwnedFd>,
}

impl Pulse {
    /// How often the thread has come round since its start. It does once more because of this call.
    pub fn turns(&self) -> u64 {
        let turns = self.glance.turns.load(Ordering::Acquire);
        wake(&self.wakeup);
        turns
    }
}

fn wake(wakeup: &OwnedFd) {
    // EAGAIN means that a wake-up is pending already.
    let _ = write(wakeup, &1_u64.to_ne_bytes());
}

/// The way to the thread.
#[derive(Debug, Clone)]
struct Mailbox {
    requests: Sender<Request>,
    wakeup: Arc<OwnedFd>,
}

impl Mailbox {
    fn ask(&self, request: Request) -> Option<()> {
        self.requests.send(request).ok()?;
        wake(&self.wakeup);
        Some(())
    }
}

/// Asks the following thread for what it knows of job runs, to be saved.
#[derive(Debug, Clone)]
pub struct TableSaver(Mailbox);

impl TableSaver {
    /// The table as [`SavedTable`](crate::table::SavedTable), encoded; `None` when the thread ended or took longer than `limit`.
    pub fn save(&self, limit: Duration) -> Option<Vec<u8>> {
        let (reply, answer) = channel();
        self.0.ask(Request::Save(reply))?;
        answer.recv_timeout(limit).ok()
    }
}

/// Asks the following thread.
#[derive(Debug)]
pub struct Follower {
    mailbox: Mailbox,
    glance: Arc<Glance>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Follower {
    /// Starts the thread and has it look around once.
    pub fn start(mut table: Table) -> std::io::Result<Self> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (requests, mailbox) = channel();
        let received = wakeup.clone();
        let glance = Arc::new(Glance::default());
        let shown = glance.clone();
        let thread =
            std::thread::Builder::new().name("jobs".to_owned()).stack_size(1 << 20).spawn(move || {
                table.verify();
                shown.looked.store(true, Ordering::Release);
                let (mut failed, mut request) = (None, None);
                while serve(&mut table, request.take(), &mailbox) {
                    shown.running.store(table.running(), Ordering::Relaxed);
                    shown.turns.fetch_add(1, Ordering::Release);
                    let waited = wait(&table, received.as_fd());
                    if let Some(pause) = pause_after(waited, &mut failed) {
                        request = match mailbox.recv_timeout(pause) {
                            Ok(request) => Some(request),
                            Err(RecvTimeoutError::Timeout) => None,
                            Err(RecvTimeoutError::Disconnected) => return,
                        };
                    }
                    table.process_events();
                    table.run_due();
                }
            })?;
        let mailbox = Mailbox { requests, wakeup };
        Ok(Self { mailbox, glance, thread: Mutex::new(Some(thread)) })
    }

    /// What saves the table.
    pub fn saver(&self) -> TableSaver {
        TableSaver(self.mailbox.clone())
    }

    /// The jobs as they are now; `None` when the thread ended or took longer than `limit`.
    pub fn snapshot(&self, limit: Duration) -> Option<Arc<NodeSnapshot>> {
        let (reply, answer) = channel();
        self.mailbox.ask(Request::NodeSnapshot(reply))?;
        answer.recv_timeout(limit).ok()
    }

    /// How many jobs run.
    pub fn running(&self) -> usize {
        self.glance.running.load(Ordering::Relaxed)
    }

    /// Whether its thread makes progress.
    pub fn pulse(&self) -> Pulse {
        Pulse { glance: self.glance.clone(), wakeup: self.mailbox.wakeup.clone() }
    }

    /// Whether the node was looked at yet.
    pub fn has_looked(&self) -> bool {
        self.glance.looked.load(Ordering::Acquire)
    }

    /// A reader has got a whole exposition, with the ends of these jobs in it.
    pub fn delivered(&self, reader: Reader, ended: &[Arc<Job>]) {
        let request = Request::Delivered(reader, ended.to_vec());
        if ended.is_empty() {
            // It is enough that the table knows of the reader by its next snapshot.
            let _ = self.mailbox.requests.send(request);
        } else {
            self.mailbox.ask(request);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.mailbox.ask(Request::Stop);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Answers the requests; false when the thread is to end. Requests for snapshots that came while it was busy get one
/// snapshot.
fn serve(table: &mut Table, first: Option<Request>, mailbox: &Receiver<Request>) -> bool {
    let mut asked = Vec::new();
    for request in first.into_iter().chain(mailbox.try_iter()) {
        match request {
            Request::NodeSnapshot(reply) => asked.push(reply),
            Request::Delivered(reader, ended) => table.delivered(&reader, &ended),
            Request::Save(reply) => {
                // The requester may have stopped waiting.
                let _ = reply.send(durable_state::encode(&table.save()));
            }
            Request::Stop => return false,
        }
    }
    if !asked.is_empty() {
        let snapshot = Arc::new(table.snapshot());
        for reply in asked {
            // The requester may have stopped waiting.
            let _ = reply.send(snapshot.clone());
        }
    }
    true
}

/// Sleeps until there is an event or a request, or something is due.
fn wait(table: &Table, wakeup: BorrowedFd<'_>) -> Result<(), Errno> {
    let timeout = table.due().map(|due| {
        let left = due.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let watches = table.watches().descriptor();
    let sources = watches.iter().chain(std::iter::once(&wakeup));
    let mut fds: Vec<_> = sources.map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let polled = poll(&mut fds, timeout.as_ref());
    if fds.last().is_some_and(|fd| !fd.revents().is_empty()) {
        let _ = read(wakeup, &mut [0; 8]);
    }
    polled.map(drop)
}

/// How long to pause after poll(2) failed: EINVAL lasts while the limit on open files is below two, ENOMEM for a
/// while. Requests are answered nevertheless, and events are read ten times a second. `failed` is the last failure;
/// each is logged once.
fn pause_after(waited: Result<(), Errno>, failed: &mut Option<Errno>) -> Option<Duration> {
    const PAUSE: Duration = Duration::from_millis(100);
    let error = waited.err().filter(|error| *error != Errno::INTR);
    if *failed != error {
        match error {
            Some(error) => tracing::error!(%error, "poll(2) fails; jobs are looked at ten times a second"),
            None => tracing::info!("poll(2) works again"),
        }
        *failed = error;
    }
    error.map(|_| PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_poll_is_followed_by_a_pause() {
        let mut failed = None;
        assert_eq!((pause_after(Ok(()), &mut failed), failed), (None, None));
        assert_eq!((pause_after(Err(Errno::INTR), &mut failed), failed), (None, None));
        for _ in 0..3 {
            assert!(pause_after(Err(Errno::INVAL), &mut failed).is_some_and(|pause| !pause.is_zero()));
            assert_eq!(failed, Some(Errno::INVAL));
        }
        assert_eq!((pause_after(Ok(()), &mut failed), failed), (None, None));
    }
}
