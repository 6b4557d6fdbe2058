use std::sync::Arc;

use exposition::{SubjectId, Value, encode_openmetrics};
use proptest::prelude::*;
use slurm_jobs::metadata::parse_metadata;

use super::*;
use crate::collector::testing::{Machine, ended, job, snapshot_of};

/// A run of job `id` of an account.
fn run_of(id: u32, run: u64, account: &str) -> Job {
    let machine = Machine::new();
    machine.write("cgroup/job_7/cgroup.procs", "");
    let metadata = parse_metadata(format!("user=alice\naccount={account}\n").as_bytes());
    let run = JobRunId(run);
    Job { run, first_run: run, metadata: Arc::new(metadata), ..job(id, machine.v2("job_7"), &[]) }
}

struct Bench {
    owners: Owners,
    /// The page of the last collection.
    page: String,
}

/// What a collection shows of a job: user and system time, and CPU time that it had, in microseconds.
type Shown<'a> = (&'a Job, Option<[u64; 2]>, Option<u64>);

impl Bench {
    fn new(labels: &[JobLabel], limit: usize) -> Self {
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let options = OwnerOptions { labels: labels.to_vec(), limit };
        Self { owners: Owners::new(options, users), page: String::new() }
    }

    fn by_account() -> Self {
        Self::new(&[JobLabel::Account], 500)
    }

    fn collect(&mut self, shown: &[Shown<'_>]) {
        let snapshot =
            snapshot_of(Machine::new().roots(), shown.iter().map(|(job, ..)| (*job).clone()).collect());
        let (mut cpu, mut cpuset) = (Section::default(), Section::default());
        for (job, modes, held) in shown {
            let subject = cpu.subject(job.labels());
            for (mode, usec) in ["user", "system"].into_iter().zip(modes.iter().flatten()) {
                cpu.push(&CPU_SECONDS.job, subject, &[("mode", mode)], Value::micro(*usec));
            }
            let subject = cpuset.subject(job.labels());
            if let Some(held) = held {
                cpuset.push(&cpuset::ALLOCATED, subject, &[], Value::micro(*held));
            }
        }
        // Not a job's.
        cpu.push(&CPU_SECONDS.job, SubjectId::NODE, &[], Value::micro(99));
        let mut own = Section::default();
        let sections = [(0, Arc::new(cpu)), (1, Arc::new(cpuset))];
        self.owners.summarize(&snapshot, &sections, &mut own);
        self.page.clear();
        encode_openmetrics(&[Arc::new(own)], &mut self.page).unwrap();
    }

    /// The lines of a family, without its name.
    fn of(&self, family: &Family) -> Vec<&str> {
        self.page.lines().filter_map(|line| line.strip_prefix(family.name)).collect()
    }

    fn removed(&self, run: u64) {
        self.owners.job_removed(JobRunId(run), Disposition::Exported);
    }

    fn runs(&self) -> usize {
        self.owners.ledger.lock().runs()
    }
}

/// What a profile leaves out reaches no summary.
#[test]
fn what_an_owner_is_charged_with_is_exported_where_the_owners_counter_is() {
    for row in &ROWS {
        let of_jobs = row.jobs.map(|jobs| jobs());
        assert!(of_jobs.is_none_or(|jobs| jobs.profile <= row.owners.profile), "{}", row.owners.name);
    }
    // What is not used follows from these two.
    assert!(CPU_SECONDS.job.profile <= UNUSED.profile && cpuset::ALLOCATED.profile <= UNUSED.profile);
}

#[test]
fn the_total_of_an_owner_goes_on_when_its_jobs_are_gone_and_ids_come_again() {
    let mut bench = Bench::by_account();
    let first = run_of(7, 1, "physics");
    bench.collect(&[(&first, Some([1_000_000, 0]), None)]);
    bench.collect(&[(&ended(&first), Some([2_000_000, 500_000]), None)]);
    bench.collect(&[(&ended(&first), Some([2_000_000, 500_000]), None)]);
    assert_eq!(bench.of(&CPU), ["{account=\"physics\"} 2.5"]);
    assert_eq!(bench.of(&ENDED), ["{account=\"physics\"} 1"], "once");
    bench.removed(1);
    let again = run_of(7, 2, "physics");
    bench.collect(&[(&again, Some([250_000, 0]), None)]);
    assert_eq!(bench.of(&CPU), ["{account=\"physics\"} 2.75"]);
    bench.removed(2);
    bench.collect(&[]);
    assert_eq!(bench.of(&CPU), ["{account=\"physics\"} 2.75"]);
    assert_eq!(bench.runs(), 0, "only the totals remain");
}

#[test]
fn time_that_passes_from_one_mode_to_the_other_is_counted_once() {
    let mut bench = Bench::by_account();
    let job = run_of(7, 1, "a");
    bench.collect(&[(&job, Some([6_000_000, 1_000_000]), None)]);
    bench.collect(&[(&job, Some([5_000_000, 3_000_000]), None)]);
    assert_eq!(bench.of(&CPU), ["{account=\"a\"} 8.0"]);
}

#[test]
fn what_a_collection_lacks_comes_with_the_next_one() {
    let mut bench = Bench::by_account();
    let job = run_of(7, 1, "a");
    bench.collect(&[(&job, Some([1_000_000, 0]), Some(4_000_000))]);
    bench.collect(&[(&job, None, Some(8_000_000))]);
    assert_eq!(bench.of(&CPU), ["{account=\"a\"} 1.0"]);
    assert_eq!(bench.of(&UNUSED), ["{account=\"a\"} 3.0"], "its CPU time is not known");
    bench.collect(&[(&job, Some([6_000_000, 0]), Some(8_000_000))]);
    assert_eq!(bench.of(&CPU), ["{account=\"a\"} 6.0"]);
    assert_eq!(bench.of(&HELD), ["{account=\"a\"} 8.0"]);
    assert_eq!(bench.of(&UNUSED), ["{account=\"a\"} 3.0"], "never taken back");
    bench.collect(&[(&job, Some([6_000_000, 0]), Some(12_000_000))]);
    assert_eq!(bench.of(&UNUSED), ["{account=\"a\"} 6.0"]);
}

#[test]
fn what_was_counted_is_never_moved_to_another_owner() {
    let mut bench = Bench::by_account();
    let unknown = Job { metadata: Arc::default(), ..run_of(7, 1, "") };
    bench.collect(&[(&unknown, Some([1_000_000, 0]), None)]);
    bench.collect(&[(&run_of(7, 1, "b"), Some([3_000_000, 0]), None)]);
    assert_eq!(bench.of(&CPU), ["{account=\"\"} 1.0", "{account=\"b\"} 2.0"]);
}

#[test]
fn a_job_that_is_dropped_while_it_is_collected_counts_once() {
    let mut bench = Bench::by_account();
    let job = run_of(7, 1, "a");
    bench.collect(&[(&job, Some([1_000_000, 0]), None)]);
    bench.removed(1);
    bench.collect(&[(&ended(&job), Some([4_000_000, 0]), None)]);
    assert_eq!(bench.of(&CPU), ["{account=\"a\"} 4.0"]);
    // One that no collection had before.
    bench.removed(2);
    bench.collect(&[(&ended(&run_of(8, 2, "a")), Some([1_000_000, 0]), None)]);
    assert_eq!((bench.of(&CPU), bench.runs()), (vec!["{account=\"a\"} 5.0"], 0));
}

#[test]
fn a_directory_that_is_used_again_goes_on_counting() {
    let mut bench = Bench::by_account();
    let first = run_of(7, 1, "a");
    bench.collect(&[(&first, Some([1_000_000, 0]), None)]);
    bench.owners.job_removed(JobRunId(1), Disposition::Superseded);
    let second = Job { first_run: JobRunId(1), ..run_of(7, 2, "b") };
    bench.owners.job_started(&second);
    bench.collect(&[]);
    bench.collect(&[(&second, Some([1_500_000, 0]), Some(1_000_000))]);
    assert_eq!(bench.of(&CPU), ["{account=\"a\"} 1.0", "{account=\"b\"} 0.5"]);
    assert_eq!(bench.of(&UNUSED), ["{account=\"b\"} 0.5"], "of what it used itself");
    bench.removed(2);
    bench.collect(&[]);
    assert_eq!(bench.runs(), 0);
}

#[test]
fn owners_beyond_the_limit_are_added_up_and_the_others_keep_their_series() {
    let mut bench = Bench::new(&[JobLabel::User, JobLabel::Account], 2);
    let jobs: Vec<Job> = (1..=5).map(|id| run_of(id, u64::from(id), &format!("a{id}"))).collect();
    for second in 1..=2 {
        let shown: Vec<Shown<'_>> =
            jobs.iter().map(|job| (job, Some([second * 1_000_000, 0]), None)).collect();
        bench.collect(&shown);
    }
    let wanted = [
        "{user=\"alice\",account=\"a1\"} 2.0",
        "{user=\"alice\",account=\"a2\"} 2.0",
        "{user=\"other\",account=\"other\"} 6.0",
    ];
    assert_eq!(bench.of(&CPU), wanted);
}

#[test]
fn hostile_names_are_one_owner_each_on_one_line() {
    let mut bench = Bench::new(&[JobLabel::Account, JobLabel::Qos], 500);
    let long = "x".repeat(100_000);
    let names = ["a\"} 1\u{1f}b", "a\"} 1", "\u{1b}[31m\u{1f}", &long, "other", "\\"];
    let jobs: Vec<Job> = (1..).zip(names).map(|(id, name)| run_of(id, u64::from(id), name)).collect();
    let shown: Vec<Shown<'_>> = jobs.iter().map(|job| (job, Some([1_000_000, 0]), None)).collect();
    bench.collect(&shown);
    let lines = bench.of(&CPU);
    assert_eq!(lines.len(), names.len(), "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with("} 1.0") && line.len() < 400), "{lines:?}");
}

#[test]
fn other_labels_after_a_restart_lose_nothing() {
    let mut bench = Bench::new(&[JobLabel::User, JobLabel::Account], 500);
    let (one, two) = (run_of(1, 1, "a"), run_of(2, 2, "b"));
    bench.collect(&[(&one, Some([1_000_000, 0]), None), (&two, Some([2_000_000, 0]), None)]);
    let saved = bench.owners.save().unwrap();
    let before = |runs: &[u64]| Before {
        runs: runs.iter().map(|run| JobRunId(*run)).collect(),
        seen: std::time::Instant::now(),
    };
    let mut fewer = Bench::new(&[JobLabel::User], 500);
    fewer.owners.restore(&saved, &before(&[1])).unwrap();
    assert_eq!(fewer.runs(), 1, "the other is in no table any more");
    fewer.collect(&[(&one, Some([1_500_000, 0]), None)]);
    assert_eq!(fewer.of(&CPU), ["{user=\"alice\"} 3.5"]);
    let mut others = Bench::new(&[JobLabel::Account, JobLabel::Partition], 1);
    others.owners.restore(&saved, &before(&[1, 2])).unwrap();
    others.collect(&[(&two, Some([3_000_000, 0]), None)]);
    let wanted = ["{account=\"a\",partition=\"\"} 1.0", "{account=\"b\",partition=\"\"} 3.0"];
    assert_eq!(others.of(&CPU), wanted, "series remain, also beyond the limit");
    assert!(others.owners.restore(b"?", &before(&[])).is_err());
}

proptest! {
    // A collection here makes directories.
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Readings of two sources that are not made at one moment.
    #[test]
    fn unused_time_never_falls_and_is_never_less_than_what_is_left(
        steps in proptest::collection::vec((0..5_000_000_u64, 0..5_000_000_u64, any::<bool>()), 1..30)
    ) {
        let mut bench = Bench::by_account();
        let job = run_of(7, 1, "a");
        let (mut used, mut held, mut before) = (0, 0, 0.0);
        for (more_used, more_held, late) in steps {
            (used, held) = (used + more_used, held + more_held);
            bench.collect(&[(&job, (!late).then_some([used, 0]), Some(held))]);
            let unused = bench.of(&UNUSED).first().map_or(0.0, |line| {
                line.rsplit(' ').next().unwrap().parse().unwrap()
            });
            prop_assert!(unused >= before);
            if !late {
                prop_assert!(unused * 1e6 + 0.5 >= held.saturating_sub(used) as f64);
            }
            before = unused;
        }
    }
}
