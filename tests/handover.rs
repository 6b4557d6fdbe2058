//! The hardware's counters change hands while the real exporter runs: by LIKWID's lock, by order, and at its start and end.
//!
//! What is asserted of counters is asserted through `/proc/PID/fd`: an open counter is a descriptor of `perf_event`.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use jobledger_testkit::cgroups::{Site, attach, make_group, skip_without_groups};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::tools::for_everybody;
use jobledger_testkit::wait::{QUIET, until};
use jobledger_testkit::{eventually, http, skip_without_root};

const EXPORTER: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const USER: u32 = 54_321;
/// What is promised is 100 ms; a machine that builds at the same time is late now and then.
const LOADED: Duration = Duration::from_secs(1);

/// True, and said, where files cannot be given to others or there are no control groups to count in.
fn skip_without_counters() -> bool {
    skip_without_root("giving a lock to another user") || skip_without_groups()
}

/// A lock and a control socket of the test's own.
struct Place(Scratch);

impl Place {
    fn new() -> Self {
        let place = Self(Scratch::new("handover"));
        fs::create_dir(place.0.path().join("run")).unwrap();
        place
    }

    fn lock(&self) -> PathBuf {
        self.0.path().join("run/likwid.lock")
    }

    fn give(&self, owner: u32) {
        chown(self.lock(), Some(owner), None).unwrap();
    }

    fn make(&self, owner: u32) {
        fs::write(self.lock(), "").unwrap();
        self.give(owner);
    }

    /// Another file takes its place, in one step.
    fn replace(&self, owner: u32) {
        let new = self.0.path().join("run/new");
        fs::write(&new, "").unwrap();
        chown(&new, Some(owner), None).unwrap();
        fs::rename(new, self.lock()).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("control.sock")
    }

    fn flags(&self) -> Vec<String> {
        vec![
            format!("--counters.lock-file={}", self.lock().display()),
            format!("--control.socket={}", self.socket().display()),
            "--jobs.metadata-dir=/nonexistent".to_owned(),
        ]
    }

    /// `jobledger-exporter counters …` of some user.
    fn order_as(&self, uid: u32, words: &[&str]) -> Output {
        let mut command = Command::new(for_everybody(Path::new(EXPORTER)));
        command.arg("counters").args(words).arg(format!("--control.socket={}", self.socket().display()));
        if rustix::process::geteuid().is_root() {
            command.uid(uid);
        }
        command.output().unwrap()
    }

    fn order(&self, words: &[&str]) -> String {
        let done = self.order_as(0, words);
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim_end().to_owned()
    }
}

fn scrape(exporter: &Exporter) -> Exposition {
    let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &header, QUIET).unwrap();
    assert_eq!(answer.status, 200);
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn orders_are_obeyed_and_reported_and_forgotten_by_a_new_exporter() {
    let place = Place::new();
    let exporter = Exporter::start(EXPORTER, &place.flags());
    let nothing = "; nothing that runs here holds hardware counters";
    assert!(place.order(&["status"]).starts_with("held; there is no lock"));
    assert!(
        place.order(&["yield"]).contains("none will be opened")
            || !place.order(&["status"]).ends_with(nothing)
    );
    let status = place.order(&["status"]);
    assert!(
        status.starts_with("yielded since 20") && status.contains(", by order; there is no lock"),
        "{status}"
    );
    assert_eq!(place.order(&["resume"]), "the order is lifted; the counters are held");
    assert_eq!(place.order(&["resume"]), "no order stood; the counters are held");

    assert!(place.order(&["yield", "--for", "1s"]).ends_with(", for 1s at most"));
    assert!(place.order(&["status"]).contains("; the order ends in "));
    eventually("its end", || place.order(&["status"]).starts_with("held"));

    if rustix::process::geteuid().is_root() {
        // The socket's mode refuses it before the exporter has to.
        let refused = place.order_as(USER, &["yield"]);
        assert!(!refused.status.success() && !refused.stderr.is_empty());
        assert!(place.order(&["status"]).starts_with("held"));
        place.make(USER);
        let status = place.order(&["status"]);
        assert!(status.contains(&format!(", by lock; the lock is uid {USER}'s")), "{status}");
        place.order(&["yield"]);
        assert!(place.order(&["resume"]).contains(&format!("remain yielded: the lock is uid {USER}'s")));
        place.give(0);
    }

    place.order(&["yield"]);
    drop(exporter); // by SIGKILL
    let gone = place.order_as(0, &["status"]);
    assert!(!gone.status.success() && String::from_utf8_lossy(&gone.stderr).contains("no exporter answers"));
    let _exporter = Exporter::start(EXPORTER, &place.flags());
    assert!(place.order(&["status"]).starts_with("held"), "an order dies with the exporter");
}

#[test]
fn a_lock_is_never_made_nor_changed_and_one_that_is_not_watched_says_nothing() {
    let place = Place::new();
    let exporter = Exporter::start(EXPORTER, &place.flags());
    let _ = scrape(&exporter);
    place.order(&["yield"]);
    place.order(&["resume"]);
    assert!(!place.lock().exists());
    drop(exporter);
    let mut flags = place.flags();
    flags[0] = "--counters.lock-file=".to_owned();
    fs::write(place.lock(), "").unwrap();
    if rustix::process::geteuid().is_root() {
        place.give(USER);
    }
    let before = fs::metadata(place.lock()).unwrap().modified().unwrap();
    let _exporter = Exporter::start(EXPORTER, &flags);
    assert!(place.order(&["status"]).starts_with("held; no lock is watched"));
    assert_eq!(fs::metadata(place.lock()).unwrap().modified().unwrap(), before);
}

/// A job that computes in real control groups, under an exporter that counts what it does.
struct Busy {
    site: Site,
    job: Child,
}

impl Busy {
    fn new() -> Self {
        let site = Site::v2("slurmstepd.scope").unwrap();
        let task = site.job_dir("job_701", 0).join("step_0/user/task_0");
        for group in task.ancestors().take(4).collect::<Vec<_>>().into_iter().rev() {
            make_group(group);
        }
        let mut job = Command::new("sh");
        job.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let job = job.spawn().unwrap();
        attach(&task, job.id()).unwrap();
        Self { site, job }
    }

    fn flags(&self, place: &Place) -> Vec<String> {
        let mut flags = place.flags();
        // Nothing else here has a descriptor of perf_event: energy may, and keeps it.
        let only = ["disable-defaults", "job", "exporter", "counters", "perf"];
        flags.extend(only.map(|name| format!("--collector.{name}")));
        flags.push(format!("--path.cgroupfs={}", self.site.cgroupfs().display()));
        flags
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.job.kill();
        let _ = self.job.wait();
    }
}

/// The counters that a process has open.
fn open_counters(pid: u32) -> usize {
    let counter = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target == Path::new("anon_inode:[perf_event]"))
    };
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter(counter).count()
}

/// Waits until counters are open or none is, and says how long it took.
fn becomes(exporter: &Exporter, open: bool, what: &str) -> Duration {
    let began = Instant::now();
    until(what, || match open_counters(exporter.pid()) {
        count if (count > 0) == open => Ok(()),
        count => Err(format!("{count} counters are open")),
    });
    began.elapsed()
}

fn yielded(now: &Exposition, yielded: bool) {
    let wanted = Some(f64::from(u8::from(yielded)));
    assert_eq!(now.value("jobledger_node_counters_yielded", &[]), wanted);
    assert_eq!(now.value("jobledger_job_counters_yielded", &[("jobid", "701")]), wanted);
    assert_eq!(now.value("jobledger_exporter_collector_success", &[("collector", "counters")]), Some(1.0));
}

#[test]
fn no_counter_is_open_while_the_lock_is_somebody_elses() {
    if skip_without_counters() {
        return;
    }
    let (place, busy) = (Place::new(), Busy::new());
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    becomes(&exporter, true, "without a lock");
    yielded(&scrape(&exporter), false);
    let mut worst = Duration::ZERO;
    let mut step = |what: &str, act: &dyn Fn(), open: bool| {
        act();
        let took = becomes(&exporter, open, what);
        if !open {
            worst = worst.max(took);
        }
        yielded(&scrape(&exporter), !open);
        assert_eq!(open_counters(exporter.pid()) > 0, open, "{what}: a scrape changes nothing");
    };
    step("made by a user", &|| place.make(USER), false);
    step("chowned to root", &|| place.give(0), true);
    step("chowned to a user", &|| place.give(USER), false);
    step("removed", &|| fs::remove_file(place.lock()).unwrap(), true);
    step("replaced by a user's", &|| place.replace(USER), false);
    step("replaced by root's", &|| place.replace(0), true);
    let text = exporter.metrics();
    assert!(text.contains("jobledger_node_counters_yields_total 3\n"), "{text}");
    eprintln!("from the change to no open counter: {worst:?} at most");
    assert!(worst < LOADED, "{worst:?}");
}

#[test]
fn one_that_finds_the_lock_somebody_elses_opens_nothing() {
    if skip_without_counters() {
        return;
    }
    let (place, busy) = (Place::new(), Busy::new());
    place.make(USER);
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    for _ in 0..20 {
        yielded(&scrape(&exporter), true);
        assert_eq!(open_counters(exporter.pid()), 0);
        std::thread::sleep(Duration::from_millis(10));
    }
    place.give(0);
    becomes(&exporter, true, "given back");
    // One that is killed while it holds them, and its successor.
    drop(exporter);
    place.give(USER);
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    yielded(&scrape(&exporter), true);
    assert_eq!(open_counters(exporter.pid()), 0);
}

#[test]
fn an_order_has_all_counters_closed_when_it_is_answered() {
    if skip_without_counters() {
        return;
    }
    let (place, busy) = (Place::new(), Busy::new());
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    becomes(&exporter, true, "at first");
    for _ in 0..10 {
        let answer = place.order(&["yield"]);
        assert_eq!(open_counters(exporter.pid()), 0, "{answer}");
        assert!(answer.starts_with("no hardware counter is open any more, after "), "{answer}");
        assert_eq!(place.order(&["resume"]), "the order is lifted; the counters are held");
        becomes(&exporter, true, "resumed");
    }
    place.order(&["yield", "--for=1s"]);
    assert_eq!(open_counters(exporter.pid()), 0);
    let reason = [("reason", "order")];
    assert_eq!(scrape(&exporter).value("jobledger_node_counters_yield_reason_info", &reason), Some(1.0));
    becomes(&exporter, true, "its time is over");
}

/// The counts of a job before its counters were released are kept, and nothing falls.
#[test]
fn counters_of_jobs_go_on_from_where_they_were() {
    if skip_without_counters() {
        return;
    }
    let (place, busy) = (Place::new(), Busy::new());
    place.make(0);
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    becomes(&exporter, true, "at first");
    let totals = |now: &str| -> Vec<(String, f64)> {
        let of_job = |line: &&str| {
            line.starts_with("jobledger_job_") && line.contains("_total{") && line.contains("\"701\"")
        };
        let split = |line: &str| {
            line.rsplit_once(' ').map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        };
        now.lines().filter(of_job).filter_map(split).collect()
    };
    let mut last = totals(&exporter.metrics());
    for round in 0..6 {
        place.give(if round % 2 == 0 { USER } else { 0 });
        becomes(&exporter, round % 2 == 1, "handed over");
        std::thread::sleep(Duration::from_millis(50));
        let now = totals(&exporter.metrics());
        for (series, value) in &now {
            let before = last.iter().find(|(known, _)| known == series);
            assert!(before.is_none_or(|(_, before)| value >= before), "{series}: {value} after {before:?}");
        }
        // One that is absent for a while is held against what it was before.
        last.retain(|(known, _)| now.iter().all(|(series, _)| series != known));
        last.extend(now);
    }
}

#[test]
fn a_thousand_changes_of_hands_end_as_the_last_one() {
    if skip_without_counters() {
        return;
    }
    let (place, busy) = (Place::new(), Busy::new());
    place.make(0);
    let exporter = Exporter::start(EXPORTER, &busy.flags(&place));
    becomes(&exporter, true, "at first");
    for i in 0..1000 {
        place.give(if i % 2 == 0 { USER } else { 0 });
        match i {
            // Now and then it is asked whether they are closed, which it says only when they are.
            _ if i % 100 == 50 => {
                let status = place.order(&["status"]);
                assert!(status.starts_with("yielded"), "{status}");
                assert_eq!(open_counters(exporter.pid()), 0);
            }
            _ if i % 100 == 73 => drop(scrape(&exporter)),
            _ => {}
        }
    }
    becomes(&exporter, true, "the last state is ours");
    place.give(USER);
    becomes(&exporter, false, "and then a user's");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(open_counters(exporter.pid()), 0);
    yielded(&scrape(&exporter), true);
}
