//! User names through NSS, on a thread of their own: a lookup at a hanging LDAP server costs nothing but the name.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::label_text;
use parking_lot::{Condvar, Mutex};
use worker_threads::Worker;

/// How long an answer is used. A uid without a name is looked up again sooner.
const FRESH: Duration = Duration::from_secs(3600);
const FRESH_UNKNOWN: Duration = Duration::from_secs(60);
/// Most uids that wait for the resolver. A later scrape asks for the others again.
const QUEUE: usize = 1024;

/// Looks up a user's name, blocking; `None` when there is no such user.
pub type Resolver = Box<dyn Fn(u32) -> Option<String> + Send>;

/// What is known of a uid.
#[derive(Debug, Default)]
struct Answer {
    name: Option<Arc<str>>,
    /// When the resolver answered last.
    since: Option<Instant>,
    /// The resolver has the question.
    waiting: bool,
}

impl Answer {
    fn is_fresh(&self) -> bool {
        let limit = if self.name.is_some() { FRESH } else { FRESH_UNKNOWN };
        self.since.is_some_and(|since| since.elapsed() < limit)
    }

    /// The resolver answered. A name service that fails says as little as one that has no such user: a name that was known remains.
    fn take(&mut self, name: Option<Arc<str>>, now: Instant) {
        *self = Self { name: name.or(self.name.take()), since: Some(now), waiting: false };
    }
}

#[derive(Debug, Default)]
struct Shared {
    answers: Mutex<HashMap<u32, Answer>>,
    answered: Condvar,
    questions: Mutex<VecDeque<u32>>,
}

/// The names of users, as far as they are known.
#[derive(Debug)]
pub struct Users {
    shared: Arc<Shared>,
    worker: Worker,
}

/// Asks the system's name service (nsswitch.conf). A static musl build knows `/etc/passwd` alone.
pub fn name_service(uid: u32) -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok()??;
    Some(label_text(user.name.as_bytes()))
}

impl Users {
    /// Starts the resolver's thread. It ends when this value is dropped and its last lookup returned.
    pub fn start(resolver: Resolver) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let worker = Worker::new("users", 512 << 10);
        let ours = Arc::downgrade(&shared);
        worker.start(move || {
            move || {
                let shared = ours.upgrade()?;
                let uid = shared.questions.lock().pop_front()?;
                let name = resolver(uid).map(Arc::from);
                let now = Instant::now();
                shared.answers.lock().entry(uid).or_default().take(name, now);
                shared.answered.notify_all();
                // At once, for the next question.
                Some(now)
            }
        })?;
        Ok(Self { shared, worker })
    }

    /// The name of a uid, if it is known. Asks the resolver for an unknown or old one. Never waits.
    pub fn name(&self, uid: u32) -> Option<Arc<str>> {
        let mut answers = self.shared.answers.lock();
        let answer = answers.entry(uid).or_default();
        if !answer.waiting && !answer.is_fresh() {
            answer.waiting = self.ask(uid);
        }
        answer.name.clone()
    }

    /// Whether the resolver has room for the question.
    fn ask(&self, uid: u32) -> bool {
        let mut questions = self.shared.questions.lock();
        let has_room = questions.len() < QUEUE;
        if has_room {
            questions.push_back(uid);
            drop(questions);
            self.worker.notify();
        }
        has_room
    }

    /// Waits until all questions are answered or the time is up: for `--once`, which has no later scrape.
    pub fn settle(&self, limit: Duration) {
        let waiting = |answers: &mut HashMap<u32, Answer>| answers.values().any(|answer| answer.waiting);
        self.shared.answered.wait_while_for(&mut self.shared.answers.lock(), waiting, limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_after_the_resolver_answered() {
        let users = Users::start(Box::new(|uid| (uid == 7).then(|| "alice".to_owned()))).unwrap();
        users.name(7);
        users.name(8);
        users.settle(Duration::from_secs(10));
        assert_eq!(users.name(7).as_deref(), Some("alice"));
        assert_eq!(users.name(8), None);
    }

    #[test]
    fn a_hanging_name_service_costs_nothing_but_the_name() {
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let users = Users::start(Box::new(move |_| {
            let _ = hang.recv();
            None
        }))
        .unwrap();
        let (slept, ()) = jobledger_testkit::wait::quiet_time(|| {
            for uid in 0..5000 {
                assert_eq!(users.name(uid), None);
            }
        });
        assert!(slept < Duration::from_secs(5), "{slept:?}");
        drop(release);
    }

    #[test]
    fn a_name_remains_while_the_name_service_fails_and_is_asked_for_once() {
        let asked = Arc::new(Mutex::new(0));
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let users = Users::start(Box::new({
            let asked = asked.clone();
            move |_| {
                *asked.lock() += 1;
                let _ = hang.recv();
                (*asked.lock() == 1).then(|| "alice".to_owned())
            }
        }))
        .unwrap();
        users.name(7);
        release.send(()).unwrap();
        users.settle(Duration::from_secs(60));
        users.shared.answers.lock().get_mut(&7).unwrap().since = None;
        for _ in 0..5 {
            assert_eq!(users.name(7).as_deref(), Some("alice"));
        }
        release.send(()).unwrap();
        users.settle(Duration::from_secs(60));
        assert_eq!(users.name(7).as_deref(), Some("alice"));
        assert_eq!(*asked.lock(), 2);
    }

    #[test]
    fn the_name_service_knows_root() {
        assert_eq!(name_service(0).as_deref(), Some("root"));
    }
}
