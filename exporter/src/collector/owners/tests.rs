use std::sync::Arc;

use exposition::{SubjectId, Value, encode_openmetrics};
use gpu_devices::Quantity;
use proptest::prelude::*;
use slurm_jobs::metadata::parse_metadata;

use super::rows::{CO2, CPU, ENDED, HELD, UNUSED};
use super::*;
use crate::collector::devices::energy::metrics::{JOB_ENERGY, NODE_ENERGY, UNATTRIBUTED};
use crate::collector::job::cpu::CPU_SECONDS;
use crate::collector::job::cpuset;
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
    /// Index of the latest GPU: they have another one in each collection.
    gpus: u32,
}

/// What a collection shows of a job: user and system time, and CPU time that it had, in microseconds.
type Shown<'a> = (&'a Job, Option<[u64; 2]>, Option<u64>);

impl Bench {
    fn new(labels: &[JobLabel], limit: usize) -> Self {
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let options = OwnerOptions { labels: labels.to_vec(), limit, co2: None };
        Self { owners: Owners::new(options, users), page: String::new(), gpus: 0 }
    }

    /// With so many grams for each kilowatt hour, and what another exporter saved.
    fn with_co2(grams: Option<&str>, saved: Option<&[u8]>) -> Self {
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let co2 = grams.map(|grams| grams.parse().unwrap());
        let options = OwnerOptions { labels: vec![JobLabel::Account], limit: 500, co2 };
        let owners = Owners::new(options, users);
        let before = Before { runs: (0..10).map(JobRunId).collect(), seen: std::time::Instant::now() };
        saved.iter().for_each(|saved| owners.restore(saved, &before).unwrap());
        Self { owners, page: String::new(), gpus: 0 }
    }

    /// A collection of a CPU package and two GPUs: what a job was charged with of each, and what nobody, microjoules.
    fn burn(&mut self, job: &Job, charged: [u64; 3], rest: [u64; 3]) {
        let mut energy = Section::default();
        let subject = energy.subject(job.labels());
        let method = ("method", "alone");
        let package = [("domain", "package"), ("socket", "0")];
        energy.push(&JOB_ENERGY, subject, &[package[0], package[1], method], Value::micro(charged[0]));
        energy.push(&UNATTRIBUTED, SubjectId::NODE, &package, Value::micro(rest[0]));
        let counter = Quantity::ENERGY.counter;
        for (at, uuid) in [(1, "GPU-a"), (2, "GPU-b")] {
            self.gpus += 1;
            let index = self.gpus.to_string();
            let gpu = [("gpu", index.as_str()), ("uuid", uuid)];
            energy.push(&counter.job, subject, &[gpu[0], gpu[1], method], Value::micro(charged[at]));
            energy.push(&counter.unattributed, SubjectId::NODE, &gpu, Value::micro(rest[at]));
        }
        // Of a meter of the whole node, which has the package once more.
        energy.push(&NODE_ENERGY, SubjectId::NODE, &[], 7777);
        self.summarize(std::slice::from_ref(job), vec![energy]);
    }

    fn summarize(&mut self, jobs: &[Job], sections: Vec<Section>) {
        let snapshot = snapshot_of(Machine::new().roots(), jobs.to_vec());
        let sections: Vec<_> = sections.into_iter().map(Arc::new).enumerate().collect();
        let mut own = Section::default();
        self.owners.summarize(&snapshot, &sections, &mut own);
        self.page.clear();
        encode_openmetrics(&[Arc::new(own)], &mut self.page).unwrap();
    }

    fn by_account() -> Self {
        Self::new(&[JobLabel::Account], 500)
    }

    fn collect(&mut self, shown: &[Shown<'_>]) {
        let jobs: Vec<Job> = shown.iter().map(|(job, ..)| (*job).clone()).collect();
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
        self.summarize(&jobs, vec![cpu, cpuset]);
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

/// Microjoules.
const KWH: u64 = 3_600_000_000_000;

#[test]
fn co2_follows_the_energy_of_all_domains_and_owners_and_the_rest_are_the_node() {
    let mut bench = Bench::with_co2(Some("380.5"), None);
    let job = run_of(7, 1, "a");
    bench.burn(&job, [KWH, 2 * KWH, 0], [KWH / 2, 0, KWH]);
    assert_eq!(bench.of(&CO2), ["{account=\"a\"} 1141.5"]);
    assert_eq!(bench.of(&CO2_UNATTRIBUTED), [" 570.75"]);
    assert_eq!(bench.of(&CO2_NODE), [" 1712.25"]);
    bench.burn(&job, [KWH, 2 * KWH, 0], [KWH / 2, 0, KWH]);
    assert_eq!(bench.of(&CO2_NODE), [" 1712.25"], "nothing grew");
    let other = run_of(8, 2, "b");
    bench.burn(&other, [1, 0, 0], [KWH / 2, 0, KWH + 17]);
    let grams = |lines: Vec<&str>| -> Vec<u64> {
        let nano = |line: &&str| {
            let (whole, fraction) = line.rsplit(' ').next().unwrap().split_once('.').unwrap();
            format!("{whole}{fraction:0<9}").parse().unwrap()
        };
        lines.iter().map(nano).collect()
    };
    let (owners, rest) = (grams(bench.of(&CO2)), grams(bench.of(&CO2_UNATTRIBUTED)));
    assert_eq!((owners.len(), owners[1]), (2, 0), "a microjoule is less than a nanogram");
    assert_eq!(rest, [570_750_000_000 + 17 * 380_500_000 / 3_600_000_000]);
    assert_eq!(grams(bench.of(&CO2_NODE)), [owners.iter().sum::<u64>() + rest[0]], "to the last digit");
}

#[test]
fn energy_of_all_domains_is_there_where_that_of_any_is() {
    let mut bench = Bench::by_account();
    bench.burn(&run_of(7, 1, "a"), [1_000_000, 2_000_000, 4_000_001], [0, 0, 0]);
    assert_eq!(bench.of(&CHARGED), ["{account=\"a\"} 7.000001"]);
    let mut bench = Bench::by_account();
    bench.collect(&[(&run_of(8, 2, "b"), Some([1_000_000, 0]), None)]);
    assert_eq!((bench.of(&CPU).len(), bench.of(&CHARGED).len()), (1, 0), "no meter");
}

#[test]
fn another_factor_leaves_what_was_counted_as_it_is() {
    let job = run_of(7, 1, "a");
    let mut bench = Bench::with_co2(None, None);
    bench.burn(&job, [KWH, 0, 0], [KWH, 0, 0]);
    assert!(!bench.page.contains("co2"), "{}", bench.page);
    let mut shown = Vec::new();
    for (grams, burnt) in [(Some("100"), 3), (Some("50.5"), 5), (None, 6), (Some("200"), 7)] {
        bench = Bench::with_co2(grams, Some(&bench.owners.save().unwrap()));
        for kwh in [burnt - 1, burnt] {
            bench.burn(&job, [kwh * KWH, 0, 0], [KWH, kwh * KWH, 0]);
        }
        shown.push([&CO2, &CO2_UNATTRIBUTED].map(|family| {
            bench.of(family).first().map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        }));
    }
    let wanted = [
        [Some(200.0), Some(300.0)],
        [Some(200.0 + 2.0 * 50.5), Some(300.0 + 2.0 * 50.5)],
        [None, None],
        [Some(501.0), Some(601.0)],
    ];
    assert_eq!(shown, wanted);
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
