//! The wall clock is set while jobs run. Row 25.
//!
//! libfaketime sets it for the exporter alone. `CLOCK_MONOTONIC` is left as it is, and `CLOCK_BOOTTIME` is read by a system
//! call that libfaketime does not see.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;
use jobledger_testkit::scratch::Scratch;

use crate::support::*;

const HAD: &str = "jobledger_job_allocated_cpu_seconds_total";
const START: &str = "jobledger_job_start_time_seconds";
const END: &str = "jobledger_job_end_time_seconds";
const DAY: f64 = 86_400.0;

/// libfaketime for programs with threads; said loudly where it is missing.
fn library() -> Option<PathBuf> {
    let arches = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = arches.map(|arch| arch.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    if found.is_none() {
        jobledger_testkit::skip("faketime", "no libfaketime; as root: apt-get install faketime");
    }
    found
}

/// The wall clock of one exporter.
struct WallClock {
    library: PathBuf,
    scratch: Scratch,
}

impl WallClock {
    fn new() -> Option<Self> {
        let clock = Self { library: library()?, scratch: Scratch::new("wall-clock") };
        clock.set("+0");
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.scratch.path().join("offset")
    }

    /// Sets it so far from the real one, in libfaketime's words.
    fn set(&self, offset: &str) {
        let new = self.scratch.path().join("new");
        std::fs::write(&new, offset).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn start(&self, node: &Node) -> Exporter {
        Exporter::prepared(BINARY, &node.flags(&["--jobs.retention=1h"]), |command| {
            command.env("LD_PRELOAD", &self.library).env("FAKETIME_TIMESTAMP_FILE", self.file());
            command.env("FAKETIME_NO_CACHE", "1").env("NO_FAKE_STAT", "1");
            command.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        })
    }
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// What the exporter shows as the start of a job that begins now: its wall clock.
fn shown_now(node: &Node, exporter: &Exporter, id: u32) -> f64 {
    node.add_job(id, 1);
    of_job(&scrape(exporter), START, id).unwrap()
}

fn had(exposition: &Exposition, id: u32) -> f64 {
    of_job(exposition, HAD, id).unwrap()
}

/// Steps of a day ahead and ten days back: what a job had grows by its two CPUs times the time that passes, its start is
/// shown as before, and its end is as much later as it ran.
#[test]
fn a_step_of_the_wall_clock_is_in_no_account_and_moves_no_start() {
    let Some(clock) = WallClock::new() else { return };
    let node = Node::with_jobs([1, 2]);
    let exporter = clock.start(&node);
    let began = Instant::now();
    let first = scrape(&exporter);
    let start = of_job(&first, START, 1).unwrap();
    assert!((unix_now() - start).abs() < 3600.0, "{start}");
    let mut before = had(&first, 1);
    for (id, offset, step) in [(11, "+1d", DAY), (12, "-10d", -10.0 * DAY), (13, "+0", 0.0)] {
        clock.set(offset);
        let off = shown_now(&node, &exporter, id) - unix_now() - step;
        assert!(off.abs() < 3600.0, "the clock of the exporter was not set to {offset}: {off}");
        let now = eventually(&exporter, "time that is counted", |e| had(e, 1) > before);
        let most = had(&first, 1) + 2.0 * began.elapsed().as_secs_f64();
        assert!(had(&now, 1) <= most + 1e-3, "{offset}: {} of at most {most}", had(&now, 1));
        assert_eq!(of_job(&now, START, 1), Some(start), "{offset}");
        before = had(&now, 1);
    }
    // One that began before all steps, and one of each clock.
    clock.set("-10d");
    for id in [2, 11, 12] {
        node.remove_job(id);
    }
    let now = eventually(&exporter, "the ends", |e| jobs_in(e, END) == [2, 11, 12].into());
    let most = began.elapsed().as_secs_f64() + 3600.0;
    for id in [2, 11, 12] {
        let (start, end) = (of_job(&now, START, id).unwrap(), of_job(&now, END, id).unwrap());
        assert!((start..start + most).contains(&end), "job {id}: {start} to {end}");
        let two_cpus = 2.0 * (end - start);
        assert!((had(&now, id) - two_cpus).abs() < 1e-3, "job {id}: {} of {two_cpus}", had(&now, id));
    }
}

/// An exporter that is started while the clock is wrong, as at a boot before NTP.
#[test]
fn a_clock_that_is_right_only_later_costs_nothing_that_was_counted() {
    let Some(clock) = WallClock::new() else { return };
    clock.set("-10d");
    let node = Node::with_jobs([1]);
    let exporter = clock.start(&node);
    let (id, began) = (2, Instant::now());
    let shown = shown_now(&node, &exporter, id);
    clock.set("+0");
    std::thread::sleep(Duration::from_millis(20));
    node.remove_job(id);
    let now = eventually(&exporter, "the end", |e| jobs_in(e, END) == [id].into());
    let (start, end) = (of_job(&now, START, id).unwrap(), of_job(&now, END, id).unwrap());
    assert_eq!(start, shown);
    let ran = end - start;
    assert!(ran > 0.0 && ran <= began.elapsed().as_secs_f64(), "{ran}");
    assert!((had(&now, id) - 2.0 * ran).abs() < 1e-3, "{} in {ran}", had(&now, id));
    assert!(had(&now, 1) <= 2.0 * (began.elapsed().as_secs_f64() + 3600.0));
}
