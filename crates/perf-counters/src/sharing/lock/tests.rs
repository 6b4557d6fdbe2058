use std::os::unix::fs::{chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{CounterUser, Unclear};
use super::*;

const USER: u32 = 54_321;
const ANOTHER: u32 = 54_322;
/// A machine that builds at the same time is late now and then.
const LOADED: Duration = Duration::from_secs(1);

/// Holds counters, and takes a while to release them.
struct Double {
    ownership: CounterOwnership,
    open: Mutex<bool>,
    /// Released twice, or counters open although they are yielded.
    wrong: AtomicBool,
    while_: Duration,
    notified: Mutex<Vec<bool>>,
}

impl CounterUser for Double {
    fn release(&self) -> bool {
        std::thread::sleep(self.while_);
        let mut open = self.open.lock();
        self.wrong.fetch_or(!*open, Ordering::SeqCst);
        *open = false;
        self.notified.lock().push(false);
        true
    }

    fn resume(&self) {
        let mut open = self.open.lock();
        self.wrong.fetch_or(*open || self.ownership.is_yielded(), Ordering::SeqCst);
        *open = true;
        self.notified.lock().push(true);
    }
}

struct Site {
    dir: PathBuf,
    ownership: CounterOwnership,
    double: Arc<Double>,
}

impl Site {
    fn new(name: &str) -> Self {
        Self::slow(name, Duration::ZERO)
    }

    fn slow(name: &str, while_: Duration) -> Self {
        let dir = std::env::temp_dir().join(format!("jobledger-lock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("run")).unwrap();
        let ownership = CounterOwnership::default();
        let double = Arc::new(Double {
            ownership: ownership.clone(),
            open: Mutex::new(true),
            wrong: AtomicBool::new(false),
            while_,
            notified: Mutex::default(),
        });
        let counter_user: Arc<dyn CounterUser> = double.clone();
        ownership.take_part(&counter_user);
        Self { dir, ownership, double }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("run/likwid.lock")
    }

    fn lock(&self) -> Lock {
        Lock::of_user(&self.path(), self.ownership.clone(), 0).unwrap()
    }

    fn watched(&self) -> Lock {
        let lock = self.lock();
        lock.look();
        lock.watch();
        self.until("the thread to watch", || !lock.shared.seen().watches.is_empty());
        lock
    }

    fn until(&self, what: &str, done: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        jobledger_testkit::eventually(what, done);
        began.elapsed()
    }

    fn open(&self) -> bool {
        *self.double.open.lock()
    }

    /// Waits until the counters are open or not.
    fn becomes(&self, open: bool, what: &str) -> Duration {
        self.until(what, || self.open() == open)
    }

    fn make(&self, name: &str, owner: u32) {
        let path = self.dir.join("run").join(name);
        std::fs::write(&path, "").unwrap();
        chown(path, Some(owner), None).unwrap();
    }

    fn give(&self, owner: u32) {
        chown(self.path(), Some(owner), None).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
        assert!(!self.double.wrong.load(Ordering::SeqCst), "{:?}", self.double.notified.lock());
    }
}

fn skip() -> bool {
    jobledger_testkit::skip_without_root("a file that is somebody else's")
}

#[test]
fn every_way_in_which_a_lock_changes_hands_is_reported_at_once() {
    if skip() {
        return;
    }
    let site = Site::new("ways");
    let lock = site.watched();
    assert!(site.open(), "no lock");
    let (mut latest, mut steps) = (Duration::ZERO, 0);
    let mut step = |what: &str, act: &dyn Fn(), open: bool| {
        act();
        latest = latest.max(site.becomes(open, what));
        steps += 1;
    };
    let path = site.path();
    step(
        "moved in as a user's",
        &|| {
            site.make("new", USER);
            std::fs::rename(site.dir.join("run/new"), &path).unwrap();
        },
        false,
    );
    step("chowned back", &|| site.give(0), true);
    step("chowned to a user", &|| site.give(USER), false);
    step("removed", &|| std::fs::remove_file(&path).unwrap(), true);
    step("created by a user", &|| site.make("likwid.lock", USER), false);
    step(
        "replaced by root's",
        &|| {
            site.make("new", 0);
            std::fs::rename(site.dir.join("run/new"), &path).unwrap();
        },
        true,
    );
    step(
        "replaced by a user's",
        &|| {
            site.make("new", ANOTHER);
            std::fs::rename(site.dir.join("run/new"), &path).unwrap();
        },
        false,
    );
    step("moved away", &|| std::fs::rename(&path, site.dir.join("run/old")).unwrap(), true);
    step("moved back", &|| std::fs::rename(site.dir.join("run/old"), &path).unwrap(), false);
    step(
        "chowned by another name that it has",
        &|| {
            std::fs::hard_link(&path, site.dir.join("elsewhere")).unwrap();
            chown(site.dir.join("elsewhere"), Some(0), None).unwrap();
        },
        true,
    );
    step(
        "a link is not followed, and trusted less",
        &|| {
            symlink(site.dir.join("elsewhere"), site.dir.join("run/new")).unwrap();
            std::fs::rename(site.dir.join("run/new"), &path).unwrap();
        },
        false,
    );
    assert_eq!(lock.look(), Owner::Unclear(Unclear::NotAFile));
    step("gone with its directory", &|| std::fs::remove_dir_all(site.dir.join("run")).unwrap(), true);
    step(
        "a new directory with a user's in it",
        &|| {
            std::fs::create_dir(site.dir.join("next")).unwrap();
            std::fs::write(site.dir.join("next/likwid.lock"), "").unwrap();
            chown(site.dir.join("next/likwid.lock"), Some(USER), None).unwrap();
            std::fs::rename(site.dir.join("next"), site.dir.join("run")).unwrap();
        },
        false,
    );
    step("chowned in the new directory", &|| site.give(0), true);
    step(
        "another directory in its place, by a link",
        &|| {
            std::fs::create_dir(site.dir.join("other")).unwrap();
            std::fs::write(site.dir.join("other/likwid.lock"), "").unwrap();
            chown(site.dir.join("other/likwid.lock"), Some(USER), None).unwrap();
            std::fs::rename(site.dir.join("run"), site.dir.join("was")).unwrap();
            symlink("other", site.dir.join("run")).unwrap();
        },
        false,
    );
    step(
        "chowned behind the link",
        &|| chown(site.dir.join("other/likwid.lock"), Some(0), None).unwrap(),
        true,
    );
    eprintln!("{steps} changes, at most {latest:?} from each to the counters");
    assert!(latest < LOADED, "{latest:?}");
    assert_eq!(lock.check_and_notify().unwatched, None);
}

/// The number that is promised is 100 ms; this is what there is of it beside what closing takes.
#[test]
fn from_the_change_to_the_last_counter_is_what_closing_takes_and_little_more() {
    if skip() {
        return;
    }
    let closing = Duration::from_millis(20);
    let site = Site::slow("latency", closing);
    site.make("likwid.lock", 0);
    let _lock = site.watched();
    let mut all = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        site.give(USER);
        site.becomes(false, "released");
        all.push(began.elapsed());
        site.give(0);
        site.becomes(true, "taken up");
    }
    all.sort();
    eprintln!("closing takes {closing:?}; from chown to closed: median {:?}, worst {:?}", all[10], all[19]);
    assert!(all[0] >= closing && all[10] < LOADED, "{all:?}");
}

#[test]
fn one_that_is_somebody_elses_at_start_is_known_before_anything_is_opened() {
    if skip() {
        return;
    }
    let site = Site::new("start");
    site.make("likwid.lock", USER);
    let ownership = CounterOwnership::default();
    let lock = Lock::of_user(&site.path(), ownership.clone(), 0).unwrap();
    assert!(!ownership.is_yielded(), "nobody looked yet");
    assert_eq!(lock.look(), Owner::Others(USER));
    assert!(ownership.is_yielded());
    site.give(0);
    assert_eq!(lock.look(), Owner::Ours(0), "by a look alone, without a thread");
    assert!(!ownership.is_yielded());
}

#[test]
fn a_thousand_changes_alternate_strictly_and_the_last_one_wins() {
    if skip() {
        return;
    }
    for last in [USER, 0] {
        let site = Site::new(if last == 0 { "flapping-ours" } else { "flapping-theirs" });
        site.make("likwid.lock", 0);
        let lock = site.watched();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..1000 {
                    site.give(if i % 2 == 0 { USER } else { 0 });
                }
                site.give(last);
            });
            // Scrapes meanwhile.
            scope.spawn(|| (0..200).for_each(|_| assert_ne!(lock.look(), Owner::NoLock)));
        });
        site.becomes(last == 0, "the last state");
        // No later event changes it.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(site.open(), last == 0);
        let notified = site.double.notified.lock().clone();
        assert!(notified.iter().enumerate().all(|(i, open)| *open == (i % 2 == 1)), "{notified:?}");
        eprintln!("notified {} times", notified.len());
    }
}

#[test]
fn without_inotify_a_look_is_what_is_left_and_the_problem_is_reported() {
    let site = Site::new("unheard");
    let lock = site.lock();
    lock.shared.seen().unread = Some(Errno::MFILE);
    assert_eq!(lock.check_and_notify(), Look { owner: Owner::NoLock, unwatched: Some(Errno::MFILE) });
    if skip() {
        return;
    }
    site.make("likwid.lock", USER);
    assert_eq!(lock.check_and_notify(), Look { owner: Owner::Others(USER), unwatched: Some(Errno::MFILE) });
    assert!(!site.open());
}

#[test]
fn what_else_happens_in_the_directory_wakes_no_thread_up() {
    let site = Site::new("others");
    let lock = site.lock();
    let inotify =
        lock.shared.inotify.get_or_init(|| init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap());
    lock.look();
    assert!(!lock.shared.drain(inotify));
    for i in 0..100 {
        std::fs::write(site.dir.join(format!("run/{i}")), "").unwrap();
        std::fs::remove_file(site.dir.join(format!("run/{i}"))).unwrap();
    }
    assert!(!lock.shared.drain(inotify));
    std::fs::write(site.path(), "").unwrap();
    assert!(lock.shared.drain(inotify));
}
