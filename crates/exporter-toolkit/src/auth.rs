//! Basic authentication against the bcrypt hashes of the web configuration (RFC 7617).
//!
//! bcrypt is slow on purpose. Logins must not overload the exporter, so bcrypt runs on a blocking thread, one login at
//! a time, with a short queue, and right logins are remembered as keyed hashes over unambiguous input (CVE-2022-46146
//! was a cache key that two different logins could share).

mod remembered;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderMap};
use remembered::Remembered;
use tokio::sync::Semaphore;

use crate::config::Secret;

/// Logins that may wait for bcrypt; with cost 10, the last of them waits for about a second.
const QUEUE: usize = 16;
/// bcrypt ignores the rest: the beginning of a longer password would be as good as the whole.
const MAX_PASSWORD_BYTES: usize = 72;

/// The result of checking a request's credentials.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They are those of this user.
    Allowed(String),
    /// They are missing or wrong.
    Denied,
    /// Too many logins wait already.
    Busy,
}

/// Whether a password fits a hash.
type Verify = dyn Fn(&[u8], &str) -> bool + Send + Sync;

/// Checks passwords and remembers right ones.
pub(crate) struct Authenticator {
    verify: Arc<Verify>,
    remembered: Arc<Remembered>,
    queue: Semaphore,
    /// One bcrypt at a time: it leaves the other cores to the jobs.
    bcrypt: Arc<Semaphore>,
}

impl Authenticator {
    /// `Err` when the system has no random numbers.
    pub(crate) fn new() -> std::io::Result<Self> {
        Self::with(Arc::new(|password, hash| bcrypt::verify(password, hash).unwrap_or(false)))
    }

    fn with(verify: Arc<Verify>) -> std::io::Result<Self> {
        Ok(Authenticator {
            verify,
            remembered: Arc::new(Remembered::new()?),
            queue: Semaphore::new(QUEUE),
            bcrypt: Arc::new(Semaphore::new(1)),
        })
    }

    /// Whether the request carries the password of one of these users.
    pub(crate) async fn check(&self, users: &BTreeMap<String, Secret>, headers: &HeaderMap) -> Verdict {
        let Some((user, password)) = credentials(headers) else { return Verdict::Denied };
        if password.len() > MAX_PASSWORD_BYTES {
            return Verdict::Denied;
        }
        let known = users.get(&user);
        let hash = match known {
            Some(hash) => hash.0.clone(),
            None => decoy(users.values(), self.remembered.pick(&user)),
        };
        let login = self.remembered.tag(&[user.as_bytes(), hash.as_bytes(), &password]);
        if self.remembered.contains(&login) {
            return Verdict::Allowed(user);
        }
        let Ok(_place) = self.queue.try_acquire() else { return Verdict::Busy };
        let Ok(turn) = Arc::clone(&self.bcrypt).acquire_owned().await else { return Verdict::Busy };
        // The login before this one in the queue may have been the same.
        if self.remembered.contains(&login) {
            return Verdict::Allowed(user);
        }
        let (verify, remembered, known) =
            (Arc::clone(&self.verify), Arc::clone(&self.remembered), known.is_some());
        let checked = tokio::task::spawn_blocking(move || {
            let allowed = verify(&password, &hash) && known;
            if allowed {
                remembered.insert(login);
            }
            // The next in the queue starts when this one is remembered, even if the client of this one is gone.
            drop(turn);
            allowed
        });
        if checked.await.unwrap_or(false) { Verdict::Allowed(user) } else { Verdict::Denied }
    }
}

/// A hash that no password fits, for a user who does not exist. Without it, the time of an answer would show which users
/// exist. Since hashes may differ in cost, it costs what the hash of one of the users costs, always the same one for
/// the same name.
fn decoy<'a>(mut hashes: impl ExactSizeIterator<Item = &'a Secret>, pick: u64) -> String {
    let count = u64::try_from(hashes.len()).unwrap_or(1).max(1);
    let nth = usize::try_from(pick % count).unwrap_or(0);
    let cost = hashes.nth(nth).and_then(|hash| hash.0.get(4..6)).unwrap_or("10");
    format!("$2b${cost}$......................{}", ".".repeat(31))
}

/// User and password, as Go's `Request.BasicAuth` reads them.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("Basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = decoded.split_at_checked(colon)?;
    Some((String::from_utf8(user.to_vec()).ok()?, password.get(1..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use hyper::header::HeaderValue;

    use super::*;

    fn login(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&value).unwrap())])
    }

    fn allowed(user: &str) -> Verdict {
        Verdict::Allowed(user.to_owned())
    }

    fn users(cost: u32) -> BTreeMap<String, Secret> {
        let hash = |password| Secret(bcrypt::hash(password, cost).unwrap());
        [("alice", hash("right")), ("bob", hash("other"))].map(|(name, hash)| (name.to_owned(), hash)).into()
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    #[test]
    fn only_the_users_own_password_is_right() {
        let users = users(4);
        let gate = Authenticator::new().unwrap();
        run(async {
            for (headers, wanted) in [
                (login("alice", "right"), allowed("alice")),
                (login("alice", "right"), allowed("alice")),
                (login("bob", "other"), allowed("bob")),
                (login("alice", "other"), Verdict::Denied),
                (login("alice", ""), Verdict::Denied),
                (login("", ""), Verdict::Denied),
                (login("nobody", "right"), Verdict::Denied),
                (login("alice", &"x".repeat(73)), Verdict::Denied),
                (HeaderMap::new(), Verdict::Denied),
            ] {
                assert_eq!(gate.check(&users, &headers).await, wanted);
            }
        });
    }

    #[test]
    fn what_was_right_is_forgotten_with_the_hash() {
        let gate = Authenticator::new().unwrap();
        run(async {
            assert_eq!(gate.check(&users(4), &login("alice", "right")).await, allowed("alice"));
            let mut changed = users(4);
            changed.insert("alice".into(), Secret(bcrypt::hash("new", 4).unwrap()));
            assert_eq!(gate.check(&changed, &login("alice", "right")).await, Verdict::Denied);
            changed.remove("alice");
            assert_eq!(gate.check(&changed, &login("alice", "right")).await, Verdict::Denied);
        });
    }

    #[test]
    fn a_password_of_72_bytes_is_whole_and_a_longer_one_no_password() {
        let whole = "x".repeat(72);
        let users = BTreeMap::from([("a".to_owned(), Secret(bcrypt::hash(&whole, 4).unwrap()))]);
        let gate = Authenticator::new().unwrap();
        run(async {
            assert_eq!(gate.check(&users, &login("a", &whole)).await, allowed("a"));
            assert_eq!(gate.check(&users, &login("a", &format!("{whole}y"))).await, Verdict::Denied);
        });
    }

    #[test]
    fn an_unknown_user_costs_what_a_known_one_costs_and_a_remembered_login_nothing() {
        let costs = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&costs);
        let gate = Authenticator::with(Arc::new(move |password, hash| {
            seen.lock().unwrap().push(hash.parse::<bcrypt::HashParts>().unwrap().get_cost());
            bcrypt::verify(password, hash).unwrap()
        }));
        let (gate, users) = (gate.unwrap(), users(5));
        run(async {
            for (headers, wanted) in [
                (login("alice", "wrong"), &[5][..]),
                (login("alice", "wrong"), &[5]),
                (login("mallory", "wrong"), &[5]),
                (login("alice", "right"), &[5]),
                (login("alice", "right"), &[]),
            ] {
                gate.check(&users, &headers).await;
                assert_eq!(std::mem::take(&mut *costs.lock().unwrap()), wanted);
            }
            // Two scrapers that begin with the same login share one bcrypt.
            let bob = login("bob", "other");
            let both = tokio::join!(gate.check(&users, &bob), gate.check(&users, &bob));
            assert_eq!(both, (allowed("bob"), allowed("bob")));
            assert_eq!(*costs.lock().unwrap(), [5]);
        });
    }

    #[test]
    fn a_decoy_is_no_users_password() {
        let gate = Authenticator::with(Arc::new(|_, _| true)).unwrap();
        assert_eq!(run(gate.check(&users(4), &login("mallory", "any"))), Verdict::Denied);
        assert_eq!(run(gate.check(&users(4), &login("mallory", "any"))), Verdict::Denied);
    }

    #[test]
    fn the_queue_for_bcrypt_is_short() {
        let users = users(8);
        let gate = Arc::new(Authenticator::new().unwrap());
        let verdicts = run(async {
            let mut checks = tokio::task::JoinSet::new();
            for nth in 0..QUEUE + 10 {
                let (gate, users) = (Arc::clone(&gate), users.clone());
                checks
                    .spawn(async move { gate.check(&users, &login("alice", &format!("wrong {nth}"))).await });
            }
            checks.join_all().await
        });
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Busy).count(), 10);
        assert_eq!(run(gate.check(&users, &login("alice", "right"))), allowed("alice"));
    }

    #[test]
    fn decoys_cost_what_a_user_costs() {
        let mut users = users(5);
        users.insert("carol".into(), Secret(bcrypt::hash("x", 4).unwrap()));
        let cost = |pick| decoy(users.values(), pick).parse::<bcrypt::HashParts>().unwrap().get_cost();
        assert_eq!([0, 1, 2, 3].map(cost), [5, 5, 4, 5]);
    }

    #[test]
    fn credentials_are_read_as_go_reads_them() {
        for (value, wanted) in [
            ("Basic YTpi", Some(("a", "b"))),
            ("bAsIc YTpiOmM=", Some(("a", "b:c"))),
            ("Basic Og==", Some(("", ""))),
            ("Basic YQ==", None),
            ("Basic !!!", None),
            ("Basic", None),
            ("Bearer YTpi", None),
            ("Basic /zpi", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            let wanted = wanted.map(|(user, password)| (user.to_owned(), password.as_bytes().to_vec()));
            assert_eq!(credentials(&headers), wanted, "{value}");
        }
    }
}
