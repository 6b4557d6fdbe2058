//! The one switch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use worker_threads::spread;

/// Why the counters are yielded. Reasons are independent: the counters come back when none is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// LIKWID's lock belongs to another user.
    Lock,
    /// By order.
    Order,
}

impl Reason {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Order => "order",
        }
    }
}

/// The counters are yielded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Yielded {
    /// The reason that came first of those that stand.
    pub reason: Reason,
    /// Since when.
    pub since: Instant,
}

/// The ownership at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnershipStatus {
    /// Whether anything that holds counters takes part.
    pub counter_users: bool,
    /// Every reason that stands, none while the counters are held.
    pub reasons: Vec<Reason>,
    /// Since when they are yielded.
    pub since: Option<Instant>,
    /// Whether some may be open still although they are yielded.
    pub held_up: bool,
    /// How often they were yielded.
    pub yields: u64,
    /// For how long in all, up to this moment.
    pub yielded_for: Duration,
}

/// What holds counters.
///
/// Called one switch after the other, under the ownership's lock of turns; all are released at once. May call everything but a switch.
pub trait CounterUser: Send + Sync {
    /// Releases all counters, with a last reading. None is open when it returns `true`, and none is opened until
    /// [`CounterUser::resume`]: code that opens counters checks [`CounterOwnership::is_yielded`] before each, holding
    /// the lock that this function waits for. `false` when some may still be open; they are closed as soon as
    /// whatever delays them is over.
    fn release(&self) -> bool;

    /// Takes the counters up again. A user that registered while they were yielded gets this call first.
    fn resume(&self);
}

#[derive(Default)]
struct State {
    reasons: BTreeMap<Reason, Instant>,
    counter_users: Vec<Weak<dyn CounterUser>>,
    /// Since the first of the reasons that stood without a gap.
    since: Option<Instant>,
    held_up: bool,
    yields: u64,
    /// Of the yields that are over.
    yielded_for: Duration,
}

impl State {
    fn current_users(&mut self) -> Vec<Arc<dyn CounterUser>> {
        self.counter_users.retain(|counter_user| counter_user.strong_count() > 0);
        self.counter_users.iter().filter_map(Weak::upgrade).collect()
    }
}

#[derive(Default)]
struct Shared {
    /// Held while users are notified, so that they see one switch after the other.
    turn: Mutex<()>,
    /// Never held while users are notified: a query does not wait for a counter.
    state: Mutex<State>,
    /// Asked between two openings, without waiting.
    yielded: AtomicBool,
}

/// A bug in one user must not keep the others from releasing.
fn guarded(notify: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(notify)).unwrap_or_else(|_| {
        tracing::error!("a bug in what holds hardware counters, please report it");
        false
    })
}

/// The switch. Its clones are the same.
#[derive(Clone, Default)]
pub struct CounterOwnership(Arc<Shared>);

impl std::fmt::Debug for CounterOwnership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arbiter").field("yielded", &self.yielded()).finish_non_exhaustive()
    }
}

impl CounterOwnership {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing here is left half-written by a panic.
        self.0.state.lock()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock()
    }

    /// Registers a user for as long as somebody holds it. It must not hold any counter yet.
    pub fn take_part(&self, counter_user: &Arc<dyn CounterUser>) {
        self.state().counter_users.push(Arc::downgrade(counter_user));
    }

    /// Whether the counters are yielded. Never waits.
    pub fn is_yielded(&self) -> bool {
        self.0.yielded.load(Ordering::SeqCst)
    }

    /// Why, and since when.
    pub fn yielded(&self) -> Option<Yielded> {
        let state = self.state();
        state
            .reasons
            .iter()
            .map(|(reason, since)| Yielded { reason: *reason, since: *since })
            .min_by_key(|y| y.since)
    }

    /// Every reason that stands.
    pub fn reasons(&self) -> Vec<Reason> {
        self.state().reasons.keys().copied().collect()
    }

    /// The ownership now.
    pub fn ownership_status(&self) -> OwnershipStatus {
        let mut state = self.state();
        let counter_users = !state.current_users().is_empty();
        let now = state.since.map(|since| since.elapsed()).unwrap_or_default();
        OwnershipStatus {
            counter_users,
            reasons: state.reasons.keys().copied().collect(),
            since: state.since,
            held_up: state.held_up,
            yields: state.yields,
            yielded_for: state.yielded_for + now,
        }
    }

    /// Has all users release their counters. Returns whether none is open. A reason that already holds changes
    /// nothing, but users that were held up are asked again.
    pub fn yield_for(&self, reason: Reason) -> bool {
        // A second reason waits here until all have released for the first.
        let _turn = self.turn();
        let (counter_users, again) = {
            let mut state = self.state();
            let now = Instant::now();
            state.reasons.entry(reason).or_insert(now);
            let again = self.0.yielded.swap(true, Ordering::SeqCst);
            if again && !state.held_up {
                return true;
            }
            if !again {
                state.since = Some(now);
                state.yields += 1;
            }
            // Until all have said otherwise.
            state.held_up = true;
            (state.current_users(), again)
        };
        // At once: one whose reading hangs holds up no other.
        let (held_up, threads) = (AtomicBool::new(false), counter_users.len());
        spread("release", counter_users, threads, |counter_user| {
            if !guarded(|| counter_user.release()) {
                held_up.store(true, Ordering::SeqCst);
            }
        });
        let held_up = held_up.into_inner();
        if held_up && !again {
            tracing::warn!("some hardware counters are open still: a reading of them hangs");
        }
        self.state().held_up = held_up;
        !held_up
    }

    /// The reason does not stand any more; with the last one the participants take up again.
    pub fn resume_from(&self, reason: Reason) {
        let _turn = self.turn();
        let counter_users = {
            let mut state = self.state();
            if state.reasons.remove(&reason).is_none() || !state.reasons.is_empty() {
                return;
            }
            let stood = state.since.take().map(|since| since.elapsed());
            state.yielded_for += stood.unwrap_or_default();
            state.held_up = false;
            // A user that registers from now on sees this; earlier ones are notified.
            self.0.yielded.store(false, Ordering::SeqCst);
            state.current_users()
        };
        for counter_user in counter_users {
            guarded(|| {
                counter_user.resume();
                true
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use jobledger_testkit::wait::LONGEST;

    use super::*;

    #[derive(Default)]
    struct Double(Mutex<Vec<&'static str>>);

    impl CounterUser for Double {
        fn release(&self) -> bool {
            self.0.lock().push("release");
            true
        }

        fn resume(&self) {
            self.0.lock().push("resume");
        }
    }

    #[test]
    fn counters_come_back_with_the_last_reason() {
        let ownership = CounterOwnership::default();
        let double = Arc::new(Double::default());
        let counter_user: Arc<dyn CounterUser> = double.clone();
        ownership.take_part(&counter_user);
        let current_users = || std::mem::take(&mut *double.0.lock());
        ownership.resume_from(Reason::Order);
        assert!(current_users().is_empty(), "nothing was yielded");
        ownership.yield_for(Reason::Lock);
        ownership.yield_for(Reason::Order);
        ownership.yield_for(Reason::Order);
        assert_eq!(current_users(), ["release"]);
        assert_eq!(ownership.yielded().map(|yielded| yielded.reason), Some(Reason::Lock), "it came first");
        ownership.resume_from(Reason::Lock);
        assert!(current_users().is_empty() && ownership.is_yielded());
        assert_eq!(ownership.reasons(), [Reason::Order]);
        ownership.resume_from(Reason::Order);
        assert_eq!(current_users(), ["resume"]);
        assert_eq!(ownership.yielded(), None);
    }

    #[test]
    fn one_that_is_gone_is_not_reported() {
        let ownership = CounterOwnership::default();
        let counter_user: Arc<dyn CounterUser> = Arc::new(Double::default());
        ownership.take_part(&counter_user);
        drop(counter_user);
        ownership.yield_for(Reason::Order);
        assert!(ownership.is_yielded());
    }

    #[test]
    fn how_often_and_for_how_long_is_one_account() {
        let ownership = CounterOwnership::default();
        let before = ownership.ownership_status();
        assert!(!before.counter_users && before.reasons.is_empty() && before.since.is_none());
        let counter_user: Arc<dyn CounterUser> = Arc::new(Double::default());
        ownership.take_part(&counter_user);
        assert!(ownership.ownership_status().counter_users);
        for round in 1..=3 {
            ownership.yield_for(Reason::Lock);
            ownership.yield_for(Reason::Order);
            let during = ownership.ownership_status();
            assert_eq!(
                (during.reasons.as_slice(), during.yields),
                (&[Reason::Lock, Reason::Order][..], round)
            );
            std::thread::sleep(Duration::from_millis(5));
            let later = ownership.ownership_status();
            assert!(
                later.yielded_for >= during.yielded_for + Duration::from_millis(5),
                "it grows while it stands"
            );
            ownership.resume_from(Reason::Lock);
            assert!(ownership.ownership_status().since.is_some());
            ownership.resume_from(Reason::Order);
            let after = ownership.ownership_status();
            assert!(after.since.is_none() && after.yielded_for >= later.yielded_for);
            assert_eq!(ownership.ownership_status(), after, "and only then");
        }
        drop(counter_user);
        assert!(!ownership.ownership_status().counter_users);
    }

    struct Broken;

    impl CounterUser for Broken {
        fn release(&self) -> bool {
            panic!("a bug");
        }

        fn resume(&self) {
            panic!("a bug");
        }
    }

    #[test]
    fn a_bug_in_one_does_not_keep_the_others() {
        let ownership = CounterOwnership::default();
        let broken: Arc<dyn CounterUser> = Arc::new(Broken);
        let double = Arc::new(Double::default());
        let counter_user: Arc<dyn CounterUser> = double.clone();
        ownership.take_part(&broken);
        ownership.take_part(&counter_user);
        ownership.yield_for(Reason::Lock);
        ownership.resume_from(Reason::Lock);
        ownership.yield_for(Reason::Order);
        assert_eq!(*double.0.lock(), ["release", "resume", "release"]);
    }

    /// Hangs until it is let.
    #[derive(Default)]
    struct Stuck(AtomicBool);

    impl CounterUser for Stuck {
        fn release(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        fn resume(&self) {}
    }

    #[test]
    fn one_that_is_held_up_is_reported_again_until_it_has_released() {
        let ownership = CounterOwnership::default();
        let (stuck, double) = (Arc::new(Stuck::default()), Arc::new(Double::default()));
        let counter_users: [Arc<dyn CounterUser>; 2] = [stuck.clone(), double.clone()];
        counter_users.iter().for_each(|counter_user| ownership.take_part(counter_user));
        assert!(!ownership.yield_for(Reason::Lock) && !ownership.yield_for(Reason::Order));
        assert!(ownership.is_yielded() && ownership.ownership_status().held_up);
        stuck.0.store(true, Ordering::SeqCst);
        assert!(ownership.yield_for(Reason::Order) && !ownership.ownership_status().held_up);
        assert!(ownership.yield_for(Reason::Order));
        assert_eq!(double.0.lock().len(), 3, "and not once more than is needed");
        assert_eq!(ownership.ownership_status().yields, 1);
    }

    /// Releases when another one has.
    struct Behind {
        released: Mutex<mpsc::Receiver<()>>,
        own: mpsc::Sender<()>,
    }

    impl CounterUser for Behind {
        fn release(&self) -> bool {
            self.own.send(()).is_ok() && self.released.lock().recv_timeout(LONGEST).is_ok()
        }

        fn resume(&self) {}
    }

    #[test]
    fn nobody_waits_for_another_ones_release() {
        let ownership = CounterOwnership::default();
        let ((own, released), (others, here)) = (mpsc::channel(), mpsc::channel());
        let behind = |released, own| -> Arc<dyn CounterUser> {
            Arc::new(Behind { released: Mutex::new(released), own })
        };
        let both = [behind(released, others), behind(here, own)];
        both.iter().for_each(|counter_user| ownership.take_part(counter_user));
        assert!(ownership.yield_for(Reason::Lock));
    }

    /// Takes a while, and queries the ownership while it is notified, as a collector may on another thread with its
    /// own lock held.
    struct Slow {
        ownership: CounterOwnership,
        open: Mutex<bool>,
        wrong: AtomicBool,
    }

    impl Slow {
        fn set(&self, to: bool) {
            let mut open = self.open.lock();
            if *open == to || self.ownership.is_yielded() == to {
                self.wrong.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(300));
            let _ = (self.ownership.yielded(), self.ownership.ownership_status());
            *open = to;
        }
    }

    impl CounterUser for Slow {
        fn release(&self) -> bool {
            self.set(false);
            true
        }

        fn resume(&self) {
            self.set(true);
        }
    }

    #[test]
    fn from_many_threads_it_alternates_and_nothing_is_open_when_a_yield_returns() {
        let ownership = CounterOwnership::default();
        let slow = Arc::new(Slow {
            ownership: ownership.clone(),
            open: Mutex::new(true),
            wrong: AtomicBool::new(false),
        });
        let counter_user: Arc<dyn CounterUser> = slow.clone();
        ownership.take_part(&counter_user);
        std::thread::scope(|scope| {
            for reason in [Reason::Lock, Reason::Order] {
                let (ownership, slow) = (&ownership, &slow);
                scope.spawn(move || {
                    for _ in 0..200 {
                        ownership.yield_for(reason);
                        assert!(!*slow.open.lock(), "{reason:?} has it and a counter is open");
                        ownership.resume_from(reason);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..2000 {
                    // With that held which `release` waits for.
                    let _open = slow.open.lock();
                    let _ = (ownership.ownership_status(), ownership.yielded(), ownership.reasons());
                }
            });
        });
        assert!(*slow.open.lock() && !slow.wrong.load(Ordering::SeqCst));
    }
}
