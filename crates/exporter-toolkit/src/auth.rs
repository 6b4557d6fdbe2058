//! Basic authentication against the bcrypt hashes of the web configuration (RFC 7617).
//!
//! bcrypt is slow on purpose. Logins must not overload the exporter, so bcrypt runs on a blocking thread, one login at
//! a time, and right logins are remembered as keyed hashes over unambiguous input (CVE-2022-46146 was a cache key that two
//! different logins could share).
//!
//! Whoever floods the server with wrong passwords must not keep a new and right one out. So those that wait have turns by
//! client and by user. Before that, users who exist come before those who do not, and connections without a wrong password
//! before those that had one. Who knows a user's name and opens a connection for each guess is left: among such guesses
//! every second turn goes to anyone. Connections are bounded, so the right password has a chance with each of them.
//! Under such a flood the order shows that a name exists; it is no secret.

mod remembered;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use config_files::Secret;
use hyper::header::{AUTHORIZATION, HeaderMap};

pub use self::remembered::NotLogins;
pub(crate) use self::remembered::Remembered;
use crate::admission::{Place, Stage};
use crate::queue::{Ask, Order, Queue};

/// bcrypt ignores the rest: the beginning of a longer password would be as good as the whole.
const MAX_PASSWORD_BYTES: usize = 72;

/// The result of checking a request's credentials.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They are those of this user.
    Allowed(String),
    /// They are missing or wrong.
    Denied,
}

/// Whether a password fits a hash.
type Verify = dyn Fn(&[u8], &str) -> bool + Send + Sync;

/// Checks passwords and remembers right ones.
pub(crate) struct Authenticator {
    verify: Arc<Verify>,
    remembered: Arc<Remembered>,
    /// One bcrypt at a time: it leaves the other cores to the jobs.
    queue: Arc<Queue>,
}

impl Authenticator {
    pub(crate) fn new(remembered: Arc<Remembered>) -> Self {
        Self::with(remembered, Arc::new(|password, hash| bcrypt::verify(password, hash).unwrap_or(false)))
    }

    fn with(remembered: Arc<Remembered>, verify: Arc<Verify>) -> Self {
        Authenticator { verify, remembered, queue: Queue::new(1, 0, Order::Chance) }
    }

    /// How many wait for the check of their password.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Whether the request carries the password of one of these users. It may take long; the caller gives up by dropping
    /// the future.
    pub(crate) async fn check(
        &self,
        users: &BTreeMap<String, Secret>,
        headers: &HeaderMap,
        place: &Place,
    ) -> Verdict {
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
        let known = known.is_some();
        let ask = ask(known.then_some(user.as_str()), place);
        place.set(Stage::Login { doubtful: ask.rank >= DOUBTFUL });
        let turn = self.queue.wait(ask).await;
        place.set(Stage::Answering);
        // The login before this one in the queue may have been the same.
        if self.remembered.contains(&login) {
            return Verdict::Allowed(user);
        }
        let (verify, remembered) = (Arc::clone(&self.verify), Arc::clone(&self.remembered));
        let checked = tokio::task::spawn_blocking(move || {
            let allowed = verify(&password, &hash) && known;
            if allowed {
                remembered.insert(login);
            }
            // The next in the queue starts when this one is remembered, even if the client of this one is gone.
            drop(turn);
            allowed
        });
        if checked.await.unwrap_or(false) {
            return Verdict::Allowed(user);
        }
        place.failed_login.store(true, Ordering::Relaxed);
        Verdict::Denied
    }
}

/// From this rank on there is little hope for a login.
const DOUBTFUL: u8 = 2;

/// Where in the queue a login of this user, or of none that exists, waits. All names that no user has are one.
fn ask(user: Option<&str>, place: &Place) -> Ask {
    let rank = match user {
        _ if place.scraper => 0,
        Some(_) if !place.failed_login.load(Ordering::Relaxed) => 1,
        Some(_) => DOUBTFUL,
        None => 3,
    };
    Ask { rank, peer: place.peer, name: user.unwrap_or_default().to_owned() }
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
    use std::future::Future;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::task::Poll;

    use hyper::header::HeaderValue;

    use super::*;
    use crate::WebOptions;
    use crate::admission::Admission;

    fn login(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&value).unwrap())])
    }

    fn allowed(user: &str) -> Verdict {
        Verdict::Allowed(user.to_owned())
    }

    fn gate_with(verify: impl Fn(&[u8], &str) -> bool + Send + Sync + 'static) -> Authenticator {
        Authenticator::with(Arc::new(Remembered::new().unwrap()), Arc::new(verify))
    }

    fn gate() -> Authenticator {
        Authenticator::new(Arc::new(Remembered::new().unwrap()))
    }

    /// A place for a connection from this address.
    fn place_of(address: &str, scraper: bool) -> Place {
        let ends = (format!("{address}:1").parse().unwrap(), "198.51.100.1:9810".parse().unwrap());
        let scrapers = vec!["192.0.2.0/24".parse().unwrap()];
        let admission = Arc::new(Admission::new(&WebOptions { scrapers, ..WebOptions::default() }));
        admission.admit(ends, scraper, Stage::Head).0.unwrap()
    }

    async fn check(gate: &Authenticator, users: &BTreeMap<String, Secret>, headers: &HeaderMap) -> Verdict {
        gate.check(users, headers, &place_of("127.0.0.1", false)).await
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
        let gate = gate();
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
                assert_eq!(check(&gate, &users, &headers).await, wanted);
            }
        });
    }

    #[test]
    fn what_was_right_is_forgotten_with_the_hash() {
        let gate = gate();
        run(async {
            assert_eq!(check(&gate, &users(4), &login("alice", "right")).await, allowed("alice"));
            let mut changed = users(4);
            changed.insert("alice".into(), Secret(bcrypt::hash("new", 4).unwrap()));
            assert_eq!(check(&gate, &changed, &login("alice", "right")).await, Verdict::Denied);
            changed.remove("alice");
            assert_eq!(check(&gate, &changed, &login("alice", "right")).await, Verdict::Denied);
        });
    }

    #[test]
    fn a_password_of_72_bytes_is_whole_and_a_longer_one_no_password() {
        let whole = "x".repeat(72);
        let users = BTreeMap::from([("a".to_owned(), Secret(bcrypt::hash(&whole, 4).unwrap()))]);
        let gate = gate();
        run(async {
            assert_eq!(check(&gate, &users, &login("a", &whole)).await, allowed("a"));
            assert_eq!(check(&gate, &users, &login("a", &format!("{whole}y"))).await, Verdict::Denied);
        });
    }

    #[test]
    fn an_unknown_user_costs_what_a_known_one_costs_and_a_remembered_login_nothing() {
        let costs = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&costs);
        let gate = gate_with(move |password, hash| {
            seen.lock().unwrap().push(hash.parse::<bcrypt::HashParts>().unwrap().get_cost());
            bcrypt::verify(password, hash).unwrap()
        });
        let users = users(5);
        run(async {
            for (headers, wanted) in [
                (login("alice", "wrong"), &[5][..]),
                (login("alice", "wrong"), &[5]),
                (login("mallory", "wrong"), &[5]),
                (login("alice", "right"), &[5]),
                (login("alice", "right"), &[]),
            ] {
                check(&gate, &users, &headers).await;
                assert_eq!(std::mem::take(&mut *costs.lock().unwrap()), wanted);
            }
            // Two scrapers that begin with the same login share one bcrypt.
            let bob = login("bob", "other");
            let both = tokio::join!(check(&gate, &users, &bob), check(&gate, &users, &bob));
            assert_eq!(both, (allowed("bob"), allowed("bob")));
            assert_eq!(*costs.lock().unwrap(), [5]);
        });
    }

    #[test]
    fn a_decoy_is_no_users_password() {
        let gate = gate_with(|_, _| true);
        assert_eq!(run(check(&gate, &users(4), &login("mallory", "any"))), Verdict::Denied);
        assert_eq!(run(check(&gate, &users(4), &login("mallory", "any"))), Verdict::Denied);
    }

    #[test]
    fn those_with_hope_come_first() {
        let rank = |user, address, scraper, failed| {
            let place = place_of(address, scraper);
            place.failed_login.store(failed, Ordering::Relaxed);
            ask(user, &place)
        };
        let ranks = [
            rank(Some("alice"), "198.51.100.7", true, true),
            rank(Some("alice"), "198.51.100.7", false, false),
            rank(Some("alice"), "198.51.100.7", false, true),
            rank(None, "198.51.100.7", false, false),
        ];
        assert_eq!(ranks.each_ref().map(|ask| ask.rank), [0, 1, 2, 3]);
        assert!(ranks.iter().all(|ask| ask.peer == ranks[0].peer));
        assert_ne!(rank(None, "198.51.100.8", false, false).peer, ranks[0].peer);
        assert_eq!(ranks.map(|ask| ask.name), ["alice", "alice", "alice", ""]);
    }

    /// How many passwords were checked until the right one of alice was, while these wait.
    fn checks_before_the_right_one(flood: &[(&str, &str)], address: &str, failed: bool) -> usize {
        let (count, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counting, found) = (Arc::clone(&count), Arc::clone(&seen));
        // No check ends before the right one waits, too, however slow this thread is.
        let asked = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&asked);
        let gate = Arc::new(gate_with(move |password, _| {
            while !is_asked.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let nth = counting.fetch_add(1, Ordering::SeqCst);
            let right = password == b"right";
            if right {
                found.store(nth, Ordering::SeqCst);
            }
            right
        }));
        run(async {
            let mut checks = tokio::task::JoinSet::new();
            for (nth, (user, address)) in flood.iter().enumerate() {
                let (gate, users, headers) =
                    (Arc::clone(&gate), users(4), login(user, &format!("wrong {nth}")));
                let place = place_of(address, false);
                place.failed_login.store(failed, Ordering::Relaxed);
                checks.spawn(async move { gate.check(&users, &headers, &place).await });
            }
            tokio::task::yield_now().await;
            let place = place_of(address, false);
            let (users, headers) = (users(4), login("alice", "right"));
            let mut check = std::pin::pin!(gate.check(&users, &headers, &place));
            let first = std::future::poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
            asked.store(true, Ordering::SeqCst);
            let verdict = match first {
                Poll::Ready(verdict) => verdict,
                Poll::Pending => check.await,
            };
            assert_eq!(verdict, allowed("alice"));
            assert!(!place.failed_login.load(Ordering::Relaxed));
            let others = checks.join_all().await;
            assert!(others.iter().all(|verdict| *verdict == Verdict::Denied));
        });
        seen.load(Ordering::SeqCst)
    }

    fn assert_at_most(most: usize, flood: &[(&str, &str)], address: &str, failed: bool) {
        let checks = checks_before_the_right_one(flood, address, failed);
        assert!(checks <= most, "{checks} checks before that of {address}, of {:?}, {failed}", flood.first());
    }

    #[test]
    fn a_flood_of_wrong_passwords_does_not_keep_the_right_one_out() {
        // So many may be over before the right one comes.
        const FEW: usize = 10;
        let far = [("alice", "198.51.100.7"); 60];
        assert_at_most(FEW, &far, "198.51.100.8", false);
        let unknown = [("mallory", "127.0.0.1"); 60];
        assert_at_most(FEW, &unknown, "127.0.0.1", false);
        let other = [("bob", "127.0.0.1"); 60];
        assert_at_most(FEW, &other, "127.0.0.1", false);
        let again = [("alice", "127.0.0.1"); 60];
        assert_at_most(FEW, &again, "127.0.0.1", true);
        assert_at_most(60, &again, "127.0.0.1", false);
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
