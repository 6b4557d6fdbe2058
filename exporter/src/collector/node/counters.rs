//! Whether the hardware's counters are held here or given to a user's profiler.
//!
//! Reads LIKWID's lock (`crate::handover`): some seven system calls a scrape, any kernel, no privilege. Says nothing
//! where no collector that holds hardware counters is on. While they are yielded the counters' own series are absent
//! or stand still; these say why.

use std::sync::Arc;

use exposition::{Family, Profile, Section, SubjectId, Value};
use kernel_files::ReadError;
use perf_counters::sharing::{CounterOwnership, Lock, Owner, Unclear};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static YIELDED: Family = Family::gauge("jobledger_node_counters_yielded").profile(Profile::Lean).help(
    "1 while the hardware's counters are given to somebody else \
     and none is open here, 0 while they are held",
);
static REASON: Family = Family::info("jobledger_node_counters_yield_reason_info").labels(&["reason"]).help(
    "Why the hardware's counters are given to somebody else: lock (LIKWID's lock is \
     another user's, or cannot be looked at), order (jobledger-exporter counters yield)",
);
static YIELDS: Family = Family::counter("jobledger_node_counters_yields_total")
    .help("How often the hardware's counters were given to somebody else since this exporter started");
static SECONDS: Family = Family::counter("jobledger_node_counters_yielded_seconds_total").help(
    "For how long in all the hardware's counters were somebody else's since \
     this exporter started: what jobs did in this time is not in their counters",
);
static JOB_YIELDED: Family = Family::gauge("jobledger_job_counters_yielded").profile(Profile::Lean).help(
    "1 while the hardware's counters of the job's node are given to somebody \
     else (often to this job), so that nothing of it is counted, else 0",
);

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "counters",
    summary: "Whether the hardware's counters are held or given to a user's profiler, where anything that holds them is on",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&YIELDED, &REASON, &YIELDS, &SECONDS, &JOB_YIELDED],
    build: |context| {
        Built::plain(Counters {
            ownership: context.ownership.clone(),
            lock: context.options.get::<CountersOptions>().lock,
        })
    },
};

const LOCK: &str = "LIKWID's lock";

/// Settings of the collector `counters`.
#[derive(Debug, Clone, Default)]
pub struct CountersOptions {
    /// The lock that says whose the hardware counters are, where one is watched.
    pub lock: Option<Arc<Lock>>,
}

struct Counters {
    ownership: CounterOwnership,
    lock: Option<Arc<Lock>>,
}

impl Counters {
    /// Looks at the lock, with any result.
    fn look(&self) -> Result<(), SourceError> {
        let Some(look) = self.lock.as_ref().map(|lock| lock.check_and_notify()) else { return Ok(()) };
        let denied = |what: &str| SourceError::Denied { what: format!("{LOCK} {what}") };
        match (look.owner, look.unwatched) {
            (Owner::Unclear(Unclear::NotAFile), _) => {
                Err(denied("is no regular file, so no counter is held"))
            }
            (Owner::Unclear(Unclear::Denied), _) => {
                Err(denied("may not be looked at, so no counter is held"))
            }
            (Owner::Unclear(Unclear::Failed(error)), _) => Err(SourceError::Io { file: LOCK, error }),
            (_, Some(errno)) => Err(SourceError::Io {
                file: "the watch of LIKWID's lock, which is looked at in scrapes alone (raise fs.inotify.max_user_instances or max_user_watches)",
                error: ReadError::Io(errno.raw_os_error()),
            }),
            _ => Ok(()),
        }
    }
}

impl Collector for Counters {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        if !self.ownership.ownership_status().counter_users {
            return Ok(());
        }
        let outcome = self.look();
        let ownership_status = self.ownership.ownership_status();
        let yielded = u64::from(ownership_status.since.is_some());
        out.push(&YIELDED, SubjectId::NODE, &[], yielded);
        for reason in &ownership_status.reasons {
            out.push(&REASON, SubjectId::NODE, &[("reason", reason.as_str())], 1);
        }
        let since_start = out.node_since(Some(snapshot.following_since));
        out.push(&YIELDS, since_start, &[], ownership_status.yields);
        out.push(&SECONDS, since_start, &[], Value::seconds(ownership_status.yielded_for));
        for job in snapshot.jobs.iter().filter(|job| job.ended.is_none()) {
            let subject = out.subject(job.labels());
            out.push(&JOB_YIELDED, subject, &[], yielded);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use exposition::encode_openmetrics;
    use perf_counters::sharing::{CounterUser, Reason};

    use super::*;
    use crate::collector::CollectError;
    use crate::collector::testing::{Machine, ended, job, snapshot_of, value};

    struct Double;

    impl CounterUser for Double {
        fn release(&self) -> bool {
            true
        }

        fn resume(&self) {}
    }

    struct Bench {
        machine: Machine,
        ownership: CounterOwnership,
        counter_user: Arc<dyn CounterUser>,
        counters: Counters,
    }

    impl Bench {
        fn new(lock: &str) -> Self {
            let machine = Machine::new();
            let ownership = CounterOwnership::default();
            let counter_user: Arc<dyn CounterUser> = Arc::new(Double);
            let lock = Lock::new(&machine.path.join(lock), ownership.clone()).unwrap();
            let counters = Counters { ownership: ownership.clone(), lock: Some(Arc::new(lock)) };
            Self { machine, ownership, counter_user, counters }
        }

        fn collect(&mut self) -> (Result<(), SourceError>, String) {
            self.machine.write("cgroup/job_1/x", "").write("cgroup/job_2/x", "");
            let jobs =
                vec![job(1, self.machine.v2("job_1"), &[]), ended(&job(2, self.machine.v2("job_2"), &[]))];
            let mut section = Section::default();
            let outcome = self.counters.collect(&snapshot_of(self.machine.roots(), jobs), &mut section);
            let mut text = String::new();
            encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
            (outcome, text)
        }

        fn chown(&self, path: &str, uid: u32) {
            std::os::unix::fs::chown(Path::new(&self.machine.path).join(path), Some(uid), None).unwrap();
        }
    }

    #[test]
    fn where_nothing_holds_counters_nothing_is_said() {
        let mut bench = Bench::new("lock");
        assert_eq!(bench.collect(), (Ok(()), "# EOF\n".to_owned()));
        bench.ownership.yield_for(Reason::Order);
        assert_eq!(bench.collect().1, "# EOF\n");
    }

    #[test]
    fn held_then_yielded_by_order_then_held() {
        let mut bench = Bench::new("lock");
        bench.ownership.take_part(&bench.counter_user);
        let (outcome, held) = bench.collect();
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&held, "jobledger_node_counters_yielded"), Some(0.0));
        assert_eq!(value(&held, "jobledger_node_counters_yields_total"), Some(0.0));
        assert_eq!(value(&held, "jobledger_node_counters_yielded_seconds_total"), Some(0.0));
        assert_eq!(value(&held, "jobledger_job_counters_yielded{jobid=\"1\"}"), Some(0.0));
        assert!(!held.contains("jobid=\"2\"") && !held.contains("reason="), "{held}");
        bench.ownership.yield_for(Reason::Order);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (_, yielded) = bench.collect();
        assert_eq!(value(&yielded, "jobledger_node_counters_yielded"), Some(1.0));
        assert_eq!(value(&yielded, "jobledger_node_counters_yield_reason_info{reason=\"order\"}"), Some(1.0));
        assert_eq!(value(&yielded, "jobledger_node_counters_yields_total"), Some(1.0));
        let seconds = value(&yielded, "jobledger_node_counters_yielded_seconds_total").unwrap();
        assert!((0.02..20.0).contains(&seconds), "{seconds}");
        assert_eq!(value(&yielded, "jobledger_job_counters_yielded{jobid=\"1\"}"), Some(1.0));
        bench.ownership.resume_from(Reason::Order);
        let (_, again) = bench.collect();
        assert_eq!(value(&again, "jobledger_node_counters_yielded"), Some(0.0));
        assert_eq!(value(&again, "jobledger_node_counters_yields_total"), Some(1.0));
        assert!(value(&again, "jobledger_node_counters_yielded_seconds_total").unwrap() >= seconds);
    }

    #[test]
    fn a_scrape_looks_at_the_lock_itself() {
        if jobledger_testkit::skip_without_root("a file that is somebody else's") {
            return;
        }
        let mut bench = Bench::new("dev/lock");
        bench.ownership.take_part(&bench.counter_user);
        bench.machine.write("dev/lock", "");
        bench.chown("dev/lock", 4321);
        let (outcome, text) = bench.collect();
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, "jobledger_node_counters_yield_reason_info{reason=\"lock\"}"), Some(1.0));
        bench.chown("dev/lock", 0);
        assert_eq!(value(&bench.collect().1, "jobledger_node_counters_yielded"), Some(0.0));
    }

    #[test]
    fn what_cannot_be_reported_is_a_problem_and_no_counter_is_held() {
        let mut bench = Bench::new("dev/lock");
        bench.ownership.take_part(&bench.counter_user);
        std::os::unix::fs::symlink("nowhere", bench.machine.path.join("dev/lock")).unwrap();
        let (outcome, text) = bench.collect();
        let error = CollectError::from(outcome.unwrap_err()).to_string();
        assert!(error.contains("no regular file") && error.contains("--counters.lock-file"), "{error}");
        assert_eq!(value(&text, "jobledger_node_counters_yielded"), Some(1.0));
        bench.machine.remove("dev/lock");
        assert_eq!(bench.collect().0, Ok(()));
    }
}
