//! Named threads that sleep until they are notified or due, and are replaced when a call hangs.
//!
//! A [`Worker`] runs its work round by round. A round ends with the time of the next one, if any. Between rounds the
//! thread sleeps, without a timeout where no round is due. A notification during a round leads to another round, so no
//! wake-up is lost. Data for the thread is in a mailbox of the caller's: filled before the notification, emptied by
//! the round.
//!
//! A system call that hangs cannot be interrupted. [`Worker::start`] puts another thread in the place of the stuck one,
//! which ends when its round does.
//!
//! ```
//! use std::sync::mpsc::channel;
//! use worker_threads::Worker;
//!
//! let (done, rounds) = channel();
//! let worker = Worker::new("example", 64 << 10);
//! worker.start(move || move || { let _ = done.send("a round"); None }).unwrap();
//! worker.notify();
//! assert_eq!(rounds.recv(), Ok("a round"));
//! ```
//!
//! [`spread`] is for work that several threads do at once and then are done with.
#![forbid(unsafe_code)]

mod spread;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub use spread::{spread, threads_for};

#[derive(Debug, Default)]
struct State {
    /// Number of the thread in charge; 0 before the first, and when the worker is dropped.
    thread: u64,
    /// Numbers of threads so far.
    threads: u64,
    /// A notification that no round has taken yet.
    notified: bool,
    /// Start of the round under way.
    busy: Option<Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wakeup: Condvar,
}

/// A thread that does its work in rounds. Dropped, it has the thread end after the round under way, and does not wait
/// for that.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    name: &'static str,
    stack: usize,
}

impl Worker {
    /// A worker without a thread yet. `name` is the thread's (at most 15 bytes, prctl(2)), `stack` its stack in bytes.
    pub fn new(name: &'static str, stack: usize) -> Self {
        Self { shared: Arc::default(), name, stack }
    }

    /// Starts the thread, in the place of an earlier one if there is any. `make` runs on the thread and returns the
    /// work of a round, which returns when the next round is due: `None` to wait for a notification. The first round
    /// runs at once.
    ///
    /// # Errors
    ///
    /// Those of pthread_create(3). An earlier thread remains in charge then.
    pub fn start<W>(&self, make: impl FnOnce() -> W + Send + 'static) -> io::Result<()>
    where
        W: FnMut() -> Option<Instant>,
    {
        let mut state = self.shared.state.lock();
        let number = state.threads + 1;
        let shared = self.shared.clone();
        let run = move || {
            let in_charge = InCharge { shared: &shared, number };
            let mut round = make();
            let mut due = Some(Instant::now());
            while in_charge.wait(due) {
                due = round();
            }
        };
        std::thread::Builder::new().name(self.name.to_owned()).stack_size(self.stack).spawn(run)?;
        (state.thread, state.threads, state.busy) = (number, number, None);
        Ok(())
    }

    /// Whether there is a thread. One whose round panicked is gone.
    pub fn is_started(&self) -> bool {
        self.shared.state.lock().thread != 0
    }

    /// Has a round run soon. Without a thread, the first round after its start sees what the caller left for it.
    pub fn notify(&self) {
        self.shared.state.lock().notified = true;
        self.shared.wakeup.notify_all();
    }

    /// For how long the round under way runs.
    pub fn busy(&self) -> Option<Duration> {
        self.shared.state.lock().busy.map(|since| since.elapsed())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.state.lock().thread = 0;
        self.shared.wakeup.notify_all();
    }
}

/// A thread that is or was in charge.
struct InCharge<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for InCharge<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if state.thread == self.number {
            (state.thread, state.busy) = (0, None);
        }
    }
}

impl InCharge<'_> {
    /// Sleeps until a round is to run; false when another thread is in charge, or none.
    fn wait(&self, due: Option<Instant>) -> bool {
        let mut state = self.shared.state.lock();
        if state.thread == self.number {
            state.busy = None;
        }
        loop {
            if state.thread != self.number {
                return false;
            }
            let now = Instant::now();
            if std::mem::take(&mut state.notified) || due.is_some_and(|due| due <= now) {
                state.busy = Some(now);
                return true;
            }
            match due {
                Some(due) => drop(self.shared.wakeup.wait_until(&mut state, due)),
                None => self.shared.wakeup.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use jobledger_testkit::eventually;
    use jobledger_testkit::wait::{LONGEST, quiet_time};

    use super::*;

    /// Work that reports the number of each round and takes the time of the next one from a channel.
    fn scripted(worker: &Worker) -> (Receiver<u32>, Sender<Option<Instant>>) {
        let ((done, rounds), (next, script)) = (channel(), channel());
        let make = move || {
            let mut round = 0;
            move || {
                round += 1;
                let _ = done.send(round);
                script.recv().ok().flatten()
            }
        };
        worker.start(make).unwrap();
        (rounds, next)
    }

    fn next_of(rounds: &Receiver<u32>) -> u32 {
        rounds.recv_timeout(LONGEST).unwrap()
    }

    #[test]
    fn a_round_runs_at_once_when_due_and_when_notified() {
        let worker = Worker::new("test", 64 << 10);
        assert!(!worker.is_started());
        let (rounds, next) = scripted(&worker);
        assert_eq!(next_of(&rounds), 1);
        let due = Instant::now() + Duration::from_millis(30);
        next.send(Some(due)).unwrap();
        assert_eq!(next_of(&rounds), 2);
        assert!(Instant::now() >= due);
        next.send(None).unwrap();
        assert!(rounds.recv_timeout(Duration::from_millis(30)).is_err(), "no round without a reason");
        worker.notify();
        assert_eq!(next_of(&rounds), 3);
    }

    #[test]
    fn a_notification_during_a_round_leads_to_another() {
        let worker = Worker::new("test", 64 << 10);
        let (rounds, next) = scripted(&worker);
        assert_eq!(next_of(&rounds), 1);
        worker.notify();
        worker.notify();
        next.send(None).unwrap();
        assert_eq!(next_of(&rounds), 2);
        next.send(None).unwrap();
        assert!(rounds.recv_timeout(Duration::from_millis(30)).is_err(), "two notifications are one round");
    }

    #[test]
    fn a_stuck_thread_is_replaced_and_ends_with_its_round() {
        let worker = Worker::new("test", 64 << 10);
        let (stuck, let_it_return) = scripted(&worker);
        assert_eq!(next_of(&stuck), 1);
        eventually("a busy worker", || worker.busy().is_some_and(|time| time > Duration::ZERO));
        let (rounds, next) = scripted(&worker);
        assert_eq!(next_of(&rounds), 1);
        next.send(None).unwrap();
        worker.notify();
        assert_eq!(next_of(&rounds), 2);
        let_it_return.send(Some(Instant::now())).unwrap();
        assert!(stuck.recv_timeout(LONGEST).is_err(), "its channel is closed, and no round came before");
        assert!(worker.busy().is_some(), "the end of the stuck round is not that of the new one");
    }

    #[test]
    fn a_thread_that_panicked_is_gone_and_can_be_started_again() {
        let worker = Worker::new("test", 64 << 10);
        worker.start(|| || panic!("a bug")).unwrap();
        eventually("its end", || !worker.is_started());
        assert_eq!(worker.busy(), None);
        let (rounds, next) = scripted(&worker);
        assert_eq!(next_of(&rounds), 1);
        next.send(None).unwrap();
    }

    #[test]
    fn the_thread_ends_when_the_worker_is_dropped_and_nobody_waits_for_it() {
        let worker = Worker::new("test", 64 << 10);
        let (rounds, next) = scripted(&worker);
        assert_eq!(next_of(&rounds), 1);
        let (slept, ()) = quiet_time(|| drop(worker));
        assert!(slept < Duration::from_secs(5), "{slept:?}");
        next.send(Some(Instant::now())).unwrap();
        assert!(rounds.recv_timeout(LONGEST).is_err(), "no round after the one under way");
    }
}
