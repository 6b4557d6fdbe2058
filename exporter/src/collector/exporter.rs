//! The exporter itself: its resources, its build, and its job table.
//!
//! `/proc/self/stat`, `/proc/self/fd` (man 5 proc), any kernel, no privilege, a handful of system calls. This is the
//! process that answers, so it reads the real `/proc/self` and not that of the configured procfs, which may be a
//! recording or the host's while the exporter runs in a container (where `self` would resolve by another pid
//! namespace). The `process_*` names are those of every Prometheus client library.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clocks::{Boottime, Moment};
use exposition::{Family, Profile, Section, SubjectId, Value};
use kernel_files::parse::ParseError;
use kernel_files::{Buffer, Dir, ReadError};
use parking_lot::Mutex;
use procfs_core::FromRead;
use procfs_core::process::Stat;
use rustix::process::{Resource, getrlimit};
use slurm_jobs::NodeSnapshot;

use crate::collector::durable::{Before, Durable, Unreadable};
use crate::collector::{Built, Collector, Entry, SourceError};

static BUILD: Family = Family::info("jobledger_exporter_build_info")
    .profile(Profile::Lean)
    .labels(&["version", "architecture", "libc"])
    .help(
        "What this exporter is built as; the musl build has no GPUs and knows the users of /etc/passwd only",
    );
static JOBS: Family =
    Family::gauge("jobledger_exporter_jobs").profile(Profile::Lean).labels(&["state"]).help(
        "Jobs of the table: running, retained after their end, unresolved (id not known \
     yet), unfollowed (too few file descriptors), stale (left behind by SLURM)",
    );
static WITHOUT_METADATA: Family =
    Family::gauge("jobledger_exporter_jobs_without_metadata").profile(Profile::Lean).help(
        "Running jobs without the prolog's file, so that reports by account miss them; \
     absent where the prolog's directory is not there",
    );
static RUNS: Family =
    Family::counter("jobledger_exporter_job_runs_total").help("Job runs seen; a requeued job has several");
static LOST: Family = Family::counter("jobledger_exporter_unresolved_jobs_lost_total")
    .profile(Profile::Lean)
    .help("Jobs that ended before their id was known; what they spent is with the node");
static DROPPED: Family = Family::counter("jobledger_exporter_retained_jobs_dropped_total")
    .profile(Profile::Lean)
    .help("Ended jobs given up before their readers had their end: after --jobs.retention-max, or too many");
static OVERFLOWS: Family = Family::counter("jobledger_exporter_inotify_overflows_total")
    .help("Times the kernel's queue of events overflowed; the next walk found what was missed");
static WATCH_FAILURES: Family = Family::counter("jobledger_exporter_inotify_watch_failures_total")
    .help("Watches that the kernel refused; raise fs.inotify.max_user_watches");
static STATE: Family = Family::info("jobledger_exporter_state_info").labels(&["storage", "outcome"]).help(
    "Where the accounts are kept for a restart (descriptor: by systemd, file, none), and what was found there at the start: \
     restored, empty, other_boot, other_version, damaged; off without a storage",
);
static UNOBSERVED: Family = Family::counter("jobledger_exporter_unobserved_seconds_total").profile(Profile::Lean).help(
    "Time in which no exporter looked, between the last state that was saved and the start of the exporter that restored it",
);
static SAVE_FAILURES: Family = Family::counter("jobledger_exporter_state_save_failures_total")
    .help("Times the accounts could not be saved for a restart");
static COUNTING_START: Family =
    Family::gauge("jobledger_exporter_counting_start_time_seconds").profile(Profile::Lean).help(
        "Since when jobs are followed and counters of the exporter add up, seconds since the epoch: its start, or that of the \
     exporter whose accounts it restored",
    );
static CPU_SECONDS: Family =
    Family::counter("process_cpu_seconds_total").help("CPU time of the exporter, user and system");
static RESIDENT: Family =
    Family::gauge("process_resident_memory_bytes").help("Resident memory of the exporter");
static VIRTUAL: Family = Family::gauge("process_virtual_memory_bytes")
    .profile(Profile::Full)
    .help("Address space of the exporter");
static START_TIME: Family = Family::gauge("process_start_time_seconds")
    .profile(Profile::Lean)
    .help("When the exporter was started, seconds since the epoch");
static THREADS: Family = Family::gauge("process_threads").help("Threads of the exporter");
static OPEN_FDS: Family =
    Family::gauge("process_open_fds").help("File descriptors that the exporter has open");
static MAX_FDS: Family = Family::gauge("process_max_fds")
    .help("File descriptors that the exporter may have open; absent when there is no limit");

/// Row of the registry.
pub(super) const ENTRY: Entry = Entry {
    name: "exporter",
    summary: "The exporter itself: its version, its use of CPU, memory and descriptors, its table of jobs",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        vec![
            &BUILD,
            &JOBS,
            &WITHOUT_METADATA,
            &RUNS,
            &LOST,
            &DROPPED,
            &OVERFLOWS,
            &WATCH_FAILURES,
            &STATE,
            &UNOBSERVED,
            &SAVE_FAILURES,
            &COUNTING_START,
            &CPU_SECONDS,
            &RESIDENT,
            &VIRTUAL,
            &START_TIME,
            &THREADS,
            &OPEN_FDS,
            &MAX_FDS,
        ]
    },
    build: |context| {
        let state: StateReport = context.options.get();
        let itself = Itself { dir: None, buffer: Buffer::default(), started: None, state: state.clone() };
        Built { durable: Some(Arc::new(state)), ..Built::plain(itself) }
    },
};

/// How the accounts are kept for a restart. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct StateReport(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    storage: &'static str,
    outcome: &'static str,
    save_failures: u64,
    /// Itself kept.
    unobserved: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self { storage: "none", outcome: "off", save_failures: 0, unobserved: Duration::ZERO }
    }
}

impl StateReport {
    /// Where the accounts are kept, and what was found there.
    pub fn opened(&self, storage: &'static str, outcome: &'static str) {
        let mut state = self.0.lock();
        (state.storage, state.outcome) = (storage, outcome);
    }

    /// They could not be saved.
    pub fn save_failed(&self) {
        self.0.lock().save_failures += 1;
    }

    /// `started` is when the exporter was, `counting` since when it counts.
    fn emit(&self, started: f64, counting: SubjectId, out: &mut Section) {
        let state = self.0.lock();
        let labels = [("storage", state.storage), ("outcome", state.outcome)];
        out.push(&STATE, SubjectId::NODE, &labels, 1);
        out.push(&UNOBSERVED, counting, &[], Value::seconds(state.unobserved));
        let since_start = out.node_since(Some(started));
        out.push(&SAVE_FAILURES, since_start, &[], state.save_failures);
    }
}

impl Durable for StateReport {
    fn save(&self) -> Option<Vec<u8>> {
        Some(durable_state::encode(&self.0.lock().unobserved))
    }

    fn restore(&self, section: &[u8], before: &Before) -> Result<(), Unreadable> {
        let unobserved: Duration = durable_state::decode(section)?;
        let gap = Instant::now().saturating_duration_since(before.seen);
        self.0.lock().unobserved = unobserved.saturating_add(gap);
        Ok(())
    }
}

const STAT: &str = "/proc/self/stat";
const FD: &str = "/proc/self/fd";

/// The source.
#[derive(Debug)]
struct Itself {
    dir: Option<Dir>,
    buffer: Buffer,
    /// Start, computed once: a clock set later must not move it.
    started: Option<f64>,
    state: StateReport,
}

fn unreadable(file: &'static str) -> impl FnOnce(ReadError) -> SourceError {
    SourceError::reading(file, "a procfs at /proc")
}

/// Parses `/proc/self/stat`.
fn parse_stat(bytes: &[u8]) -> Result<Stat, ParseError> {
    Stat::from_read(bytes).map_err(|_| ParseError::new(1, "not a process's stat line"))
}

/// When something happened that the kernel dates in ticks since boot, seconds since the epoch.
fn since_epoch(ticks_since_boot: u64) -> f64 {
    let now = Moment::now();
    now.unix - now.boottime.since(Boottime::from_ticks(ticks_since_boot)).as_secs_f64()
}

/// How many descriptors are open: the directory's size says so since Linux 6.2 (`proc_readfd_count` in
/// fs/proc/fd.c), which spares counting the thousands that performance counters need.
fn open_fds(dir: &Dir) -> Result<u64, ReadError> {
    match dir.stat_of("fd")?.size {
        0 => count_fds(dir),
        size => Ok(size),
    }
}

fn count_fds(dir: &Dir) -> Result<u64, ReadError> {
    let mut count: u64 = 0;
    dir.open_dir("fd")?.for_each(|_, _, _| count += 1)?;
    // Two of them are this counting's own: the directory and its listing.
    Ok(count.saturating_sub(2))
}

impl Itself {
    fn process(&mut self, counting: SubjectId, out: &mut Section) -> Result<(), SourceError> {
        let dir = match &mut self.dir {
            Some(dir) => dir,
            dir => dir.insert(Dir::open(Path::new("/proc/self")).map_err(unreadable(STAT))?),
        };
        let bytes = dir.read_record("stat", &mut self.buffer).map_err(unreadable(STAT))?;
        let stat = parse_stat(bytes).map_err(SourceError::parsing(STAT))?;
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let node = SubjectId::NODE;
        // To the nanosecond; the file has ticks of 10 ms, and a scrape costs less than one.
        let started = *self.started.get_or_insert_with(|| since_epoch(stat.starttime));
        let since_start = out.node_since(Some(started));
        out.push(&CPU_SECONDS, since_start, &[], clocks::process_cpu_seconds());
        out.push(&RESIDENT, node, &[], stat.rss.saturating_mul(page));
        out.push(&VIRTUAL, node, &[], stat.vsize);
        out.push(&START_TIME, node, &[], started);
        self.state.emit(started, counting, out);
        if let Ok(threads) = u64::try_from(stat.num_threads) {
            out.push(&THREADS, node, &[], threads);
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            out.push(&MAX_FDS, node, &[], limit);
        }
        out.push(&OPEN_FDS, node, &[], open_fds(dir).map_err(unreadable(FD))?);
        Ok(())
    }
}

impl Collector for Itself {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let node = SubjectId::NODE;
        out.expect((ENTRY.families)());
        let counting = out.node_since(Some(snapshot.following_since));
        let outcome = self.process(counting, out);
        // A restart does not keep what the table counted.
        let since_start = out.node_since(self.started);
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("architecture", std::env::consts::ARCH),
            ("libc", if cfg!(target_env = "musl") { "musl" } else { "glibc" }),
        ];
        out.push(&BUILD, node, &labels, 1);
        let table = &snapshot.table;
        for (state, count) in [
            ("running", table.running),
            ("retained", table.retained),
            ("unresolved", table.unresolved),
            ("unfollowed", table.unfollowed),
            ("stale", table.stale),
        ] {
            out.push(&JOBS, node, &[("state", state)], count as u64);
        }
        if let Some(without) = table.without_metadata {
            out.push(&WITHOUT_METADATA, node, &[], without as u64);
        }
        out.push(&COUNTING_START, node, &[], snapshot.following_since);
        for (family, count) in [
            (&RUNS, table.runs_total),
            (&LOST, table.lost_total),
            (&DROPPED, table.dropped_total),
            (&OVERFLOWS, table.overflows_total),
            (&WATCH_FAILURES, table.watch_failures_total),
        ] {
            out.push(family, since_start, &[], count);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use slurm_jobs::TableStats;

    use super::*;
    use crate::collector::testing::{Machine, collect, snapshot_of};

    fn value(text: &str, name: &str) -> f64 {
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    #[test]
    fn the_table_of_jobs_is_exported_with_its_zeros() {
        let machine = Machine::new();
        let mut snapshot = snapshot_of(machine.roots(), Vec::new());
        snapshot.table = TableStats {
            running: 3,
            retained: 1,
            stale: 2,
            runs_total: 9,
            overflows_total: 4,
            ..Default::default()
        };
        let (outcome, text) = collect(&ENTRY, &snapshot);
        assert_eq!(outcome, Ok(()));
        for line in [
            "jobledger_exporter_jobs{state=\"running\"} 3",
            "jobledger_exporter_jobs{state=\"retained\"} 1",
            "jobledger_exporter_jobs{state=\"unresolved\"} 0",
            "jobledger_exporter_jobs{state=\"unfollowed\"} 0",
            "jobledger_exporter_jobs{state=\"stale\"} 2",
            "jobledger_exporter_job_runs_total 9",
            "jobledger_exporter_unresolved_jobs_lost_total 0",
            "jobledger_exporter_inotify_overflows_total 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
        let counting = value(&text, "jobledger_exporter_counting_start_time_seconds");
        assert_eq!(counting, snapshot.following_since, "one moment for all that is counted");
        assert!(text.contains("jobledger_exporter_build_info{version=\"0.1.0\",architecture="), "{text}");
    }

    #[test]
    fn the_live_process_agrees_with_the_clocks_and_the_directory_of_descriptors() {
        let machine = Machine::new();
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
        let stat = parse_stat(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        let cpu = (stat.utime + stat.stime) as f64 / 100.0;
        assert!((value(&text, "process_cpu_seconds_total") - cpu).abs() < 1.0, "{text}");
        let started = value(&text, "process_start_time_seconds");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(started <= now + 0.1 && now - started < 3600.0, "{started} and {now}");
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as f64;
        assert!((value(&text, "process_open_fds") - open).abs() < 100.0, "{text}");
        assert!(value(&text, "process_open_fds") <= value(&text, "process_max_fds"), "{text}");
        assert!(value(&text, "process_threads") >= 2.0, "the tests' runner and this test: {text}");
        let (resident, space) =
            (value(&text, "process_resident_memory_bytes"), value(&text, "process_virtual_memory_bytes"));
        assert!(resident > 1e6 && resident < space, "{text}");
    }

    #[test]
    fn descriptors_are_counted_on_kernels_that_do_not_say_how_many_there_are() {
        let dir = Dir::open(Path::new("/proc/self")).unwrap();
        let (from_proc, counted) = (open_fds(&dir).unwrap(), count_fds(&dir).unwrap());
        assert!(
            counted >= 3 && from_proc.abs_diff(counted) < 100,
            "{from_proc} and {counted}: other tests open files too"
        );
    }

    #[test]
    fn malformed_is_an_error() {
        assert!(parse_stat(b"").is_err() && parse_stat(b"1 (a b) R 1").is_err());
        let line = b"5285 (a) b) R 5274 5274 2654 0 -1 4194304 98 0 0 0 7 3 0 0 20 0 1 0 177621 3133440 389 \
            18446744073709551615 94250552901632 94250552921513 140733359879792 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 \
            94250552937520 94250552939136 94250721390592 140733359880900 140733359880920 140733359880920 \
            140733359882219 0\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.utime, stat.stime, stat.num_threads, stat.rss), (7, 3, 1, 389), "a hostile name");
    }
}
