//! User names through NSS, on a thread of their own: a lookup at a hanging LDAP server costs nothing but the name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use kernel_files::label_text;
use parking_lot::{Condvar, Mutex};

/// How long an answer counts; a uid that has no name is asked again sooner.
const FRESH: Duration = Duration::from_secs(3600);
const FRESH_UNKNOWN: Duration = Duration::from_secs(60);
/// Questions that may wait for the resolver; beyond that they are asked again by a later scrape.
const QUEUE: usize = 1024;

/// Looks up a user's name, blocking; `None` when there is no such user.
pub type Resolver = Box<dyn Fn(u32) -> Option<String> + Send>;

#[derive(Debug, Clone)]
enum Answer {
    Waiting,
    Known { name: Option<Arc<str>>, since: Instant },
}

/// The names of users, as far as they are known.
#[derive(Debug)]
pub struct Users {
    answers: Arc<(Mutex<HashMap<u32, Answer>>, Condvar)>,
    questions: SyncSender<u32>,
}

/// Asks the system's name service (nsswitch.conf). A static musl build knows `/etc/passwd` alone.
pub fn name_service(uid: u32) -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)).ok()??;
    Some(label_text(user.name.as_bytes()))
}

impl Users {
    /// Starts the resolver's thread. It ends when this value is dropped and its last lookup returned.
    pub fn start(resolver: Resolver) -> std::io::Result<Self> {
        let answers = Arc::new((Mutex::new(HashMap::new()), Condvar::new()));
        let (questions, mailbox) = sync_channel::<u32>(QUEUE);
        let shared = answers.clone();
        std::thread::Builder::new().name("users".to_owned()).stack_size(512 << 10).spawn(move || {
            while let Ok(uid) = mailbox.recv() {
                let name = resolver(uid).map(Arc::from);
                shared.0.lock().insert(uid, Answer::Known { name, since: Instant::now() });
                shared.1.notify_all();
            }
        })?;
        Ok(Self { answers, questions })
    }

    /// The name of a uid if it is known, and a question to the resolver if it is not or is old. Never waits.
    pub fn name(&self, uid: u32) -> Option<Arc<str>> {
        let mut answers = self.answers.0.lock();
        let (name, fresh) = match answers.get(&uid) {
            Some(Answer::Waiting) => return None,
            Some(Answer::Known { name, since }) => {
                (name.clone(), since.elapsed() < if name.is_some() { FRESH } else { FRESH_UNKNOWN })
            }
            None => (None, false),
        };
        if !fresh && self.questions.try_send(uid).is_ok() && name.is_none() {
            answers.insert(uid, Answer::Waiting);
        }
        name
    }

    /// Waits until no question is open or the time is up: for `--once`, which has no later scrape.
    pub fn settle(&self, limit: Duration) {
        let waiting = |answers: &mut HashMap<u32, Answer>| {
            answers.values().any(|answer| matches!(answer, Answer::Waiting))
        };
        // Whether the time ran out or all is known does not matter to the caller.
        self.answers.1.wait_while_for(&mut self.answers.0.lock(), waiting, limit);
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
    fn the_name_service_knows_root() {
        assert_eq!(name_service(0).as_deref(), Some("root"));
    }
}
