//! The one switch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Why the counters are somebody else's. Each reason stands by itself: they come back when none is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// LIKWID's lock belongs to another user.
    Lock,
    /// Somebody ordered it.
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

/// That the counters are somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Yielded {
    /// The reason that came first of those that stand.
    pub reason: Reason,
    /// Since when.
    pub since: Instant,
}

/// How it stood at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether anything that holds counters takes part.
    pub participants: bool,
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
/// It is told under the arbiter's own lock of turns, one after the other, and may ask the arbiter anything but to switch.
pub trait CounterUser: Send + Sync {
    /// Lets go of all of them, with a last reading. None is open when it returns `true`, and none is opened until
    /// [`CounterUser::resume`]: whoever opens asks [`CounterOwnership::is_yielded`] before each, with that held which this waits for.
    /// `false` when some may be open still, which are closed as soon as what holds them up is over.
    fn release(&self) -> bool;

    /// Takes them up again. One that took part only while they were yielded is told this first.
    fn resume(&self);
}

#[derive(Default)]
struct State {
    reasons: BTreeMap<Reason, Instant>,
    participants: Vec<Weak<dyn CounterUser>>,
    /// Since the first of the reasons that stood without a gap.
    since: Option<Instant>,
    held_up: bool,
    yields: u64,
    /// Of the yields that are over.
    yielded_for: Duration,
}

impl State {
    fn told(&mut self) -> Vec<Arc<dyn CounterUser>> {
        self.participants.retain(|participant| participant.strong_count() > 0);
        self.participants.iter().filter_map(Weak::upgrade).collect()
    }
}

#[derive(Default)]
struct Shared {
    /// Held while participants are told, so that they hear of one switch after the other.
    turn: Mutex<()>,
    /// Never held while anybody is told: whoever asks waits for no counter.
    state: Mutex<State>,
    /// Asked between two openings, without waiting.
    yielded: AtomicBool,
}

/// A bug in one participant must not keep the others from letting go.
fn guarded(tell: impl FnOnce() -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(tell)).unwrap_or_else(|_| {
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

    /// Has a participant told from now on, as long as somebody holds it. It must not hold anything yet.
    pub fn take_part(&self, participant: &Arc<dyn CounterUser>) {
        self.state().participants.push(Arc::downgrade(participant));
    }

    /// Whether the counters are somebody else's. Never waits.
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

    /// How it stands.
    pub fn standing(&self) -> Standing {
        let mut state = self.state();
        let participants = !state.told().is_empty();
        let now = state.since.map(|since| since.elapsed()).unwrap_or_default();
        Standing {
            participants,
            reasons: state.reasons.keys().copied().collect(),
            since: state.since,
            held_up: state.held_up,
            yields: state.yields,
            yielded_for: state.yielded_for + now,
        }
    }

    /// Has all participants let go. Whether no counter is open when it returns. A reason that stands already changes nothing, but
    /// where some were held up they are told again.
    pub fn yield_for(&self, reason: Reason) -> bool {
        // A second reason waits here until all have let go for the first.
        let _turn = self.turn();
        let (participants, again) = {
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
            (state.told(), again)
        };
        let held_up =
            participants.iter().filter(|participant| !guarded(|| participant.release())).count() > 0;
        if held_up && !again {
            tracing::warn!("some hardware counters are open still: a reading of them hangs");
        }
        self.state().held_up = held_up;
        !held_up
    }

    /// The reason does not stand any more; with the last one the participants take up again.
    pub fn resume_from(&self, reason: Reason) {
        let _turn = self.turn();
        let participants = {
            let mut state = self.state();
            if state.reasons.remove(&reason).is_none() || !state.reasons.is_empty() {
                return;
            }
            let stood = state.since.take().map(|since| since.elapsed());
            state.yielded_for += stood.unwrap_or_default();
            state.held_up = false;
            // One that takes part from now on sees this; those before are told.
            self.0.yielded.store(false, Ordering::SeqCst);
            state.told()
        };
        for participant in participants {
            guarded(|| {
                participant.resume();
                true
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Double(Mutex<Vec<&'static str>>);

    impl CounterUser for Double {
        fn release(&self) -> bool {
            self.0.lock().push("let go");
            true
        }

        fn resume(&self) {
            self.0.lock().push("resume");
        }
    }

    #[test]
    fn counters_come_back_with_the_last_reason() {
        let arbiter = CounterOwnership::default();
        let double = Arc::new(Double::default());
        let participant: Arc<dyn CounterUser> = double.clone();
        arbiter.take_part(&participant);
        let told = || std::mem::take(&mut *double.0.lock());
        arbiter.resume_from(Reason::Order);
        assert!(told().is_empty(), "nothing was yielded");
        arbiter.yield_for(Reason::Lock);
        arbiter.yield_for(Reason::Order);
        arbiter.yield_for(Reason::Order);
        assert_eq!(told(), ["let go"]);
        assert_eq!(arbiter.yielded().map(|yielded| yielded.reason), Some(Reason::Lock), "it came first");
        arbiter.resume_from(Reason::Lock);
        assert!(told().is_empty() && arbiter.is_yielded());
        assert_eq!(arbiter.reasons(), [Reason::Order]);
        arbiter.resume_from(Reason::Order);
        assert_eq!(told(), ["resume"]);
        assert_eq!(arbiter.yielded(), None);
    }

    #[test]
    fn one_that_is_gone_is_not_told() {
        let arbiter = CounterOwnership::default();
        let participant: Arc<dyn CounterUser> = Arc::new(Double::default());
        arbiter.take_part(&participant);
        drop(participant);
        arbiter.yield_for(Reason::Order);
        assert!(arbiter.is_yielded());
    }

    #[test]
    fn how_often_and_for_how_long_is_one_account() {
        let arbiter = CounterOwnership::default();
        let before = arbiter.standing();
        assert!(!before.participants && before.reasons.is_empty() && before.since.is_none());
        let participant: Arc<dyn CounterUser> = Arc::new(Double::default());
        arbiter.take_part(&participant);
        assert!(arbiter.standing().participants);
        for round in 1..=3 {
            arbiter.yield_for(Reason::Lock);
            arbiter.yield_for(Reason::Order);
            let during = arbiter.standing();
            assert_eq!(
                (during.reasons.as_slice(), during.yields),
                (&[Reason::Lock, Reason::Order][..], round)
            );
            std::thread::sleep(Duration::from_millis(5));
            let later = arbiter.standing();
            assert!(
                later.yielded_for >= during.yielded_for + Duration::from_millis(5),
                "it grows while it stands"
            );
            arbiter.resume_from(Reason::Lock);
            assert!(arbiter.standing().since.is_some());
            arbiter.resume_from(Reason::Order);
            let after = arbiter.standing();
            assert!(after.since.is_none() && after.yielded_for >= later.yielded_for);
            assert_eq!(arbiter.standing(), after, "and only then");
        }
        drop(participant);
        assert!(!arbiter.standing().participants);
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
        let arbiter = CounterOwnership::default();
        let broken: Arc<dyn CounterUser> = Arc::new(Broken);
        let double = Arc::new(Double::default());
        let participant: Arc<dyn CounterUser> = double.clone();
        arbiter.take_part(&broken);
        arbiter.take_part(&participant);
        arbiter.yield_for(Reason::Lock);
        arbiter.resume_from(Reason::Lock);
        arbiter.yield_for(Reason::Order);
        assert_eq!(*double.0.lock(), ["let go", "resume", "let go"]);
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
    fn one_that_is_held_up_is_told_again_until_it_has_let_go() {
        let arbiter = CounterOwnership::default();
        let (stuck, double) = (Arc::new(Stuck::default()), Arc::new(Double::default()));
        let participants: [Arc<dyn CounterUser>; 2] = [stuck.clone(), double.clone()];
        participants.iter().for_each(|participant| arbiter.take_part(participant));
        assert!(!arbiter.yield_for(Reason::Lock) && !arbiter.yield_for(Reason::Order));
        assert!(arbiter.is_yielded() && arbiter.standing().held_up);
        stuck.0.store(true, Ordering::SeqCst);
        assert!(arbiter.yield_for(Reason::Order) && !arbiter.standing().held_up);
        assert!(arbiter.yield_for(Reason::Order));
        assert_eq!(double.0.lock().len(), 3, "and not once more than is needed");
        assert_eq!(arbiter.standing().yields, 1);
    }

    /// Takes a while, and asks the arbiter while it is told, as a collector may on another thread with its own lock held.
    struct Slow {
        arbiter: CounterOwnership,
        open: Mutex<bool>,
        wrong: AtomicBool,
    }

    impl Slow {
        fn set(&self, to: bool) {
            let mut open = self.open.lock();
            if *open == to || self.arbiter.is_yielded() == to {
                self.wrong.store(true, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_micros(300));
            let _ = (self.arbiter.yielded(), self.arbiter.standing());
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
        let arbiter = CounterOwnership::default();
        let slow = Arc::new(Slow {
            arbiter: arbiter.clone(),
            open: Mutex::new(true),
            wrong: AtomicBool::new(false),
        });
        let participant: Arc<dyn CounterUser> = slow.clone();
        arbiter.take_part(&participant);
        std::thread::scope(|scope| {
            for reason in [Reason::Lock, Reason::Order] {
                let (arbiter, slow) = (&arbiter, &slow);
                scope.spawn(move || {
                    for _ in 0..200 {
                        arbiter.yield_for(reason);
                        assert!(!*slow.open.lock(), "{reason:?} has it and a counter is open");
                        arbiter.resume_from(reason);
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..2000 {
                    // With that held which `release` waits for.
                    let _open = slow.open.lock();
                    let _ = (arbiter.standing(), arbiter.yielded(), arbiter.reasons());
                }
            });
        });
        assert!(*slow.open.lock() && !slow.wrong.load(Ordering::SeqCst));
    }
}
