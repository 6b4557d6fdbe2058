mod restarts;

use proptest::prelude::*;

use super::allocations::PATIENCE;
use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Busy,
    Energy,
    Other(&'static str),
}

const A: JobRunId = JobRunId(1);
const B: JobRunId = JobRunId(2);
const SECOND: u64 = 1_000_000_000;

struct Node {
    origin: Instant,
    ledger: GpuLedger<Quantity>,
}

impl Node {
    fn new() -> Self {
        Self {
            origin: Instant::now(),
            ledger: GpuLedger::new(Roles { busy: Quantity::Busy, energy: Quantity::Energy }),
        }
    }

    fn at(&self, millis: u64) -> Instant {
        self.origin + Duration::from_millis(millis)
    }

    fn comes(&mut self, run: JobRunId, millis: u64, units: &[&str]) {
        self.ledger.appeared(run, self.at(millis));
        self.ledger.bind(run, &uuids(units), self.at(millis));
    }

    fn goes(&mut self, run: JobRunId, millis: u64) {
        self.ledger.left(run, self.at(millis));
    }

    fn read(&mut self, millis: u64, counts: &[(Quantity, u64)]) {
        self.read_with(millis, counts, None, &[]);
    }

    fn read_with(
        &mut self,
        millis: u64,
        counts: &[(Quantity, u64)],
        shares: Option<&Shares>,
        parts: &[Part],
    ) {
        self.read_standing(millis, counts, &[], (shares, parts));
    }

    fn read_standing(
        &mut self,
        millis: u64,
        counts: &[(Quantity, u64)],
        standing: &[(Quantity, u64)],
        (shares, parts): (Option<&Shares>, &[Part]),
    ) {
        let gpu_reading =
            GpuReading { at: self.at(millis), seen: true, epoch: 1, counts, standing, shares, parts };
        self.ledger.observe(&"g".into(), &gpu_reading);
        self.ledger.settle(self.at(millis));
    }

    fn of(&self, run: JobRunId, quantity: Quantity) -> Vec<(GpuMethod, u64)> {
        let account = self.ledger.accounts("g").find(|(q, _)| *q == quantity);
        account.map(|(_, account)| account.of(run).collect()).unwrap_or_default()
    }

    /// (what is exported when all jobs are, unattributed)
    fn node(&self, quantity: Quantity) -> (u64, u64) {
        let (_, account) = self.ledger.accounts("g").find(|(q, _)| *q == quantity).unwrap();
        (exported_whole(account), account.residual())
    }
}

fn exported_whole(account: &Account<GpuMethod>) -> u64 {
    let mut account = account.clone();
    account.runs().collect::<Vec<_>>().into_iter().for_each(|run| account.export(run));
    account.exported_total()
}

fn uuids(units: &[&str]) -> Vec<Arc<str>> {
    units.iter().map(|unit| Arc::from(*unit)).collect()
}

fn shares(jobs: &[(JobRunId, u64)], others: u64) -> Shares {
    Shares { jobs: jobs.iter().copied().collect(), others }
}

#[test]
fn what_a_gpu_does_is_its_jobs_and_before_and_after_unattributed() {
    let mut node = Node::new();
    let reading =
        |busy: u64, joules: u64| [(Quantity::Busy, busy * SECOND), (Quantity::Energy, joules * 1_000_000)];
    node.read(0, &reading(100, 5000));
    node.read(10_000, &reading(101, 5500));
    node.comes(A, 10_000, &["g"]);
    node.read(20_000, &reading(108, 7500));
    node.goes(A, 20_000);
    node.read(30_000, &reading(108, 8000));
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 7 * SECOND)]);
    assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Alone, 2_000_000_000)]);
    assert_eq!(node.node(Quantity::Busy), (8 * SECOND, SECOND));
    assert_eq!(node.node(Quantity::Energy), (3_000_000_000, 1_000_000_000));
    let usage = node.ledger.usage(A, "g").unwrap();
    assert_eq!((usage.idle, usage.last), (Duration::from_secs(3), Some((700, node.at(20_000)))));
    assert_eq!(node.ledger.watched("g"), Some((Duration::from_secs(30), Duration::from_secs(20))));
    assert_eq!(node.ledger.allocated(A, node.at(99_000)), [("g".into(), Duration::from_secs(10))]);
}

/// A driver that hangs answers some questions and not others.
#[test]
fn time_in_which_a_counter_was_not_read_is_observed_once() {
    let mut node = Node::new();
    let all = |seconds: u64| [(Quantity::Busy, seconds * SECOND), (Quantity::Energy, seconds * 1_000_000)];
    node.read(0, &all(0));
    node.read(10_000, &all(1)[..1]);
    node.read(20_000, &[]);
    node.read(30_000, &all(3));
    node.read(40_000, &all(4));
    assert_eq!(node.ledger.watched("g"), Some((Duration::from_secs(40), Duration::from_secs(40))));
    assert_eq!(node.node(Quantity::Busy), (4 * SECOND, 4 * SECOND));
    assert_eq!(node.node(Quantity::Energy), (4_000_000, 4_000_000));
}

#[test]
fn a_job_that_never_uses_its_gpu_is_idle_all_the_time() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 7)]);
    node.comes(A, 0, &["g"]);
    node.read(10_000, &[(Quantity::Busy, 7)]);
    node.read(20_000, &[(Quantity::Busy, 7)]);
    let usage = node.ledger.usage(A, "g").unwrap();
    assert_eq!((usage.idle, usage.last.unwrap().0), (Duration::from_secs(20), 0));
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 0)], "known to be none, not absent");
}

#[test]
fn an_interval_waits_until_it_is_known_what_a_new_job_has() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 0)]);
    node.ledger.appeared(A, node.at(100));
    node.read(150, &[(Quantity::Busy, 0)]);
    node.read(5_000, &[(Quantity::Busy, 3 * SECOND)]);
    assert_eq!(node.node(Quantity::Busy), (0, 0), "not charged yet");
    assert_eq!(node.ledger.unsettled(node.at(5_000)).collect::<Vec<_>>(), [A]);
    node.ledger.bind(A, &uuids(&["g"]), node.at(5_100));
    node.ledger.settle(node.at(5_100));
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 3 * SECOND)]);
    assert_eq!(
        node.ledger.allocated(A, node.at(5_100)),
        [("g".into(), Duration::from_secs(5))],
        "since it came and not since that is known"
    );
}

#[test]
fn a_job_of_which_nothing_is_found_out_in_time_has_nothing() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 0)]);
    node.ledger.appeared(A, node.at(0));
    let late = u64::try_from(PATIENCE.as_millis()).unwrap();
    node.read(late + 1, &[(Quantity::Busy, 5)]);
    assert_eq!(node.node(Quantity::Busy), (5, 5));
    let mut gone = Node::new();
    gone.read(0, &[(Quantity::Busy, 0)]);
    gone.ledger.appeared(A, gone.at(0));
    gone.goes(A, 500);
    gone.ledger.give_up(A);
    gone.read(600, &[(Quantity::Busy, 5)]);
    assert_eq!(gone.node(Quantity::Busy), (5, 5), "what is gone is not waited for");
}

#[test]
fn a_change_of_hands_between_two_readings_is_unattributed() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Busy, 0)]);
    node.goes(A, 4_000);
    node.comes(B, 4_100, &["g"]);
    node.read(8_000, &[(Quantity::Busy, 6 * SECOND)]);
    assert_eq!(node.node(Quantity::Busy), (6 * SECOND, 6 * SECOND));
    node.read(9_000, &[(Quantity::Busy, 7 * SECOND)]);
    assert_eq!(node.of(B, Quantity::Busy), [(GpuMethod::Alone, SECOND)]);
    let held = |run| node.ledger.allocated(run, node.at(9_000)).pop().unwrap().1;
    assert_eq!((held(A), held(B)), (Duration::from_millis(4_000), Duration::from_millis(4_900)));
    assert_eq!(node.ledger.watched("g").unwrap().1, Duration::from_millis(100));
}

#[test]
fn a_job_that_had_it_for_a_part_of_the_time_only_is_not_charged_with_the_rest() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 0)]);
    node.comes(A, 900, &["g"]);
    node.read(5_000, &[(Quantity::Busy, SECOND)]);
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, SECOND)], "within the second of grace");
    node.goes(A, 6_000);
    node.read(9_000, &[(Quantity::Busy, 3 * SECOND)]);
    assert_eq!(node.node(Quantity::Busy), (3 * SECOND, 2 * SECOND), "two seconds are too much");
}

#[test]
fn processes_split_a_shared_gpu_and_what_they_do_not_report_is_unattributed() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.comes(B, 0, &["g"]);
    let counts = |busy| [(Quantity::Busy, busy), (Quantity::Other("sm_active"), busy / 2)];
    node.read_with(0, &counts(0), None, &[]);
    node.read_with(10_000, &counts(8 * SECOND), Some(&shares(&[(A, 6 * SECOND), (B, SECOND)], SECOND)), &[]);
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Processes, 6 * SECOND)]);
    assert_eq!(node.of(B, Quantity::Busy), [(GpuMethod::Processes, SECOND)]);
    assert_eq!(node.node(Quantity::Busy), (8 * SECOND, SECOND));
    assert_eq!(node.node(Quantity::Other("sm_active")), (4 * SECOND, 4 * SECOND), "not measured by process");
    assert_eq!(
        node.ledger.usage(B, "g").unwrap().idle,
        Duration::from_secs(8),
        "one second may be its own or not"
    );
    // Kernels of both ran at once: together no more than the GPU was busy.
    node.read_with(
        20_000,
        &counts(18 * SECOND),
        Some(&shares(&[(A, 10 * SECOND), (B, 10 * SECOND)], 0)),
        &[],
    );
    assert_eq!(node.of(B, Quantity::Busy), [(GpuMethod::Processes, 6 * SECOND)]);
    // The processes were not read: the split is not known.
    node.read(30_000, &counts(20 * SECOND));
    assert_eq!(node.node(Quantity::Busy), (20 * SECOND, 3 * SECOND));
}

#[test]
fn energy_of_a_shared_gpu_is_split_by_time_and_beyond_the_idle_power_by_processes() {
    let joules = |joules: u64| joules * 1_000_000;
    let counts =
        |busy: u64, energy: u64| [(Quantity::Busy, busy * SECOND), (Quantity::Energy, joules(energy))];
    let mut node = Node::new();
    node.read(0, &counts(0, 0));
    node.comes(A, 0, &["g"]);
    node.comes(B, 0, &["g"]);
    node.read_with(10_000, &counts(4, 4000), Some(&shares(&[(A, 4 * SECOND)], 0)), &[]);
    assert_eq!(
        node.of(A, Quantity::Energy),
        [(GpuMethod::Time, joules(2000))],
        "the idle power is not known"
    );
    // Idle at 100 W; then 10 s at 400 W, of which B's processes did two thirds.
    node.read_with(20_000, &counts(4, 5000), Some(&shares(&[], 0)), &[]);
    node.read_with(30_000, &counts(13, 9000), Some(&shares(&[(A, 3 * SECOND), (B, 6 * SECOND)], 0)), &[]);
    let of_b = node.of(B, Quantity::Energy);
    assert_eq!(of_b, [(GpuMethod::Time, joules(2500)), (GpuMethod::TimeAndProcesses, joules(500 + 2000))]);
    let (total, unattributed) = node.node(Quantity::Energy);
    assert_eq!((total, unattributed), (joules(9000), 0));
}

#[test]
fn energy_of_a_divided_gpu_is_split_over_its_parts() {
    let joules = |joules: u64| joules * 1_000_000;
    let parts = |one: u64, two: u64| {
        let part = |uuid: &str, slices, active| Part {
            uuid: uuid.into(),
            slices: (slices, 7),
            active_ns: Some(active * SECOND),
        };
        [part("p1", 1, one), part("p2", 2, two)]
    };
    let mut node = Node::new();
    // No source reports whether the whole GPU was busy.
    let counts = |energy| [(Quantity::Energy, joules(energy))];
    node.read_with(0, &counts(0), None, &parts(0, 0));
    node.read_with(10_000, &counts(700), None, &parts(0, 0));
    assert_eq!(node.node(Quantity::Energy), (joules(700), joules(700)), "nobody has a part; 70 W idle");
    node.comes(A, 10_000, &["p1"]);
    node.comes(B, 10_000, &["p2"]);
    node.read_with(20_000, &[(Quantity::Energy, joules(2400))], None, &parts(4, 3));
    // 700 J idle: 1/7 and 2/7; the other 1000 J by 4 s of one slice and 3 s of two.
    assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::SlicesAndActivity, joules(100 + 400))]);
    assert_eq!(node.of(B, Quantity::Energy), [(GpuMethod::SlicesAndActivity, joules(200 + 600))]);
    assert_eq!(node.node(Quantity::Energy), (joules(2400), joules(700 + 400)));
}

#[test]
fn counters_that_begin_anew_charge_nothing() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Energy, 1000)]);
    node.read(10_000, &[(Quantity::Energy, 400)]);
    assert_eq!(node.ledger.take_restarts(), 1);
    node.read(20_000, &[(Quantity::Energy, 500)]);
    let again = GpuReading {
        epoch: 2,
        ..GpuReading {
            at: node.at(30_000),
            seen: true,
            epoch: 1,
            counts: &[(Quantity::Energy, 900)],
            standing: &[(Quantity::Energy, 5000)],
            shares: None,
            parts: &[],
        }
    };
    node.ledger.observe(&"g".into(), &again);
    let on = GpuReading { at: node.at(40_000), counts: &[(Quantity::Energy, 950)], ..again };
    node.ledger.observe(&"g".into(), &on);
    node.ledger.settle(node.at(40_000));
    assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Alone, 150)]);
    assert_eq!(node.ledger.take_restarts(), 0, "another epoch is no counter that went back");
}

#[test]
fn what_could_not_be_read_for_a_while_is_of_the_whole_time() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Busy, 0), (Quantity::Energy, 0)]);
    node.read(10_000, &[(Quantity::Busy, 5)]);
    node.goes(A, 10_000);
    node.read(20_000, &[(Quantity::Busy, 5), (Quantity::Energy, 100)]);
    assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 5)]);
    assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Time, 50)], "of 20 s, of which A was there for 10");
    assert_eq!(node.node(Quantity::Energy), (100, 50));
}

#[test]
fn a_gpu_that_was_lost_was_not_seen_idle() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.read(0, &[(Quantity::Busy, 0), (Quantity::Energy, 0)]);
    let counts = [(Quantity::Busy, SECOND), (Quantity::Energy, 700)];
    let back = GpuReading {
        at: node.at(20_000),
        seen: false,
        epoch: 1,
        counts: &counts,
        standing: &[],
        shares: None,
        parts: &[],
    };
    node.ledger.observe(&"g".into(), &back);
    node.ledger.settle(node.at(20_000));
    assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Alone, 700)], "what was counted is the job's");
    assert_eq!(node.ledger.usage(A, "g"), None);
    node.read(30_000, &[(Quantity::Busy, SECOND), (Quantity::Energy, 900)]);
    assert_eq!(node.ledger.usage(A, "g").unwrap().idle, Duration::from_secs(10));
}

#[test]
fn a_requeued_job_and_a_unit_that_is_taken_away_have_their_own_times() {
    let mut node = Node::new();
    node.comes(A, 0, &["g", "h"]);
    node.ledger.bind(A, &uuids(&["h"]), node.at(4_000));
    node.ledger.bind(A, &uuids(&["h", "g"]), node.at(6_000));
    node.goes(A, 10_000);
    let held: BTreeMap<_, _> = node.ledger.allocated(A, node.at(60_000)).into_iter().collect();
    assert_eq!((held["g"], held["h"]), (Duration::from_secs(8), Duration::from_secs(10)));
    assert_eq!(node.ledger.holders("g"), 0);
}

#[test]
fn a_job_that_was_taken_for_gone_and_is_back_has_its_gpu_again() {
    let mut node = Node::new();
    node.comes(A, 0, &["g"]);
    node.goes(A, 4_000);
    node.comes(A, 6_000, &["g"]);
    assert_eq!(node.ledger.allocated(A, node.at(10_000)), [("g".into(), Duration::from_secs(8))]);
    assert_eq!(node.ledger.holders("g"), 1);
}

#[test]
fn what_a_dropped_run_is_charged_with_late_is_unattributed() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 0)]);
    node.comes(A, 0, &["g"]);
    node.ledger.appeared(B, node.at(1_000));
    node.goes(A, 9_500);
    node.read(10_000, &[(Quantity::Busy, 8)]);
    node.ledger.forget(A);
    node.ledger.bind(B, &[], node.at(10_500));
    node.ledger.settle(node.at(10_500));
    assert_eq!(node.of(A, Quantity::Busy), []);
    assert_eq!(node.node(Quantity::Busy), (8, 8));
}

#[derive(Debug, Clone)]
enum Step {
    Comes(u64, Option<Vec<usize>>),
    Binds(u64, Vec<usize>),
    Goes(u64),
    Forget(u64),
    /// A scrape shows these jobs.
    Scrape(Vec<u64>),
    Read(Vec<u64>, Option<Vec<(u64, u64)>>),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let units = || proptest::collection::vec(0..2_usize, 0..3);
    let run = || 1..6_u64;
    let processes = proptest::option::of(proptest::collection::vec((run(), 0..3 * SECOND), 0..4));
    let step = prop_oneof![
        2 => (run(), proptest::option::of(units())).prop_map(|(l, u)| Step::Comes(l, u)),
        1 => (run(), units()).prop_map(|(l, u)| Step::Binds(l, u)),
        2 => run().prop_map(Step::Goes),
        1 => run().prop_map(Step::Forget),
        2 => proptest::collection::vec(run(), 0..4).prop_map(Step::Scrape),
        4 => (proptest::collection::vec(0..5 * SECOND, 4), processes).prop_map(|(g, p)| Step::Read(g, p)),
        4 => (0..4_000_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever the order of events: every count is charged once, to a job or to the unattributed rest.
    #[test]
    fn it_balances(steps in steps()) {
        let mut node = Node::new();
        let names: [Arc<str>; 2] = ["g".into(), "h".into()];
        let of = |units: &[usize]| units.iter().map(|u| names[*u].clone()).collect::<Vec<_>>();
        let (mut millis, mut raw, mut read) = (0, [0_u64; 4], [0_u64; 4]);
        let mut first = true;
        let quantities = [Quantity::Busy, Quantity::Energy];
        let sums = |node: &GpuLedger<Quantity>, index: usize| {
            let account = node.accounts(&names[index / 2]).find(|(q, _)| *q == quantities[index % 2]).unwrap().1;
            let jobs: u64 = account.runs().flat_map(|run| account.of(run)).map(|(_, a)| a).sum();
            (exported_whole(account), account.residual(), jobs)
        };
        // The last values that scrapes showed, by unit and quantity.
        let mut shown: [BTreeMap<JobRunId, u64>; 4] = Default::default();
        // A run that comes after one was dropped is another one.
        let mut ages = [0_u64; 6];
        let run_of = |ages: &[u64; 6], run: u64| JobRunId(run + 10 * ages[usize::try_from(run).unwrap()]);
        for step in steps {
            let at = node.at(millis);
            match step {
                Step::Comes(run, units) => {
                    node.ledger.appeared(run_of(&ages, run), at);
                    if let Some(units) = units {
                        node.ledger.bind(run_of(&ages, run), &of(&units), at);
                    }
                }
                Step::Binds(run, units) => node.ledger.bind(run_of(&ages, run), &of(&units), at),
                Step::Goes(run) => node.ledger.left(run_of(&ages, run), at),
                Step::Forget(run) => {
                    node.ledger.left(run_of(&ages, run), at);
                    node.ledger.forget(run_of(&ages, run));
                    ages[usize::try_from(run).unwrap()] += 1;
                }
                Step::Wait(more) => millis += more,
                Step::Scrape(runs) if !first => {
                    for (index, shown) in shown.iter_mut().enumerate() {
                        let (unit, quantity) = (&names[index / 2], quantities[index % 2]);
                        for run in runs.iter().map(|run| run_of(&ages, *run)) {
                            node.ledger.export(run, unit);
                            let (_, account) = node.ledger.accounts(unit).find(|(q, _)| *q == quantity).unwrap();
                            shown.insert(run, account.of(run).map(|(_, amount)| amount).sum());
                        }
                        let (_, account) = node.ledger.accounts(unit).find(|(q, _)| *q == quantity).unwrap();
                        let jobs: u64 = shown.values().sum();
                        prop_assert_eq!(jobs + account.residual(), account.exported_total());
                    }
                }
                Step::Scrape(_) => {}
                Step::Read(gains, processes) => {
                    for (raw, gain) in raw.iter_mut().zip(gains) {
                        *raw += gain;
                    }
                    if first {
                        read = raw;
                        first = false;
                    }
                    let shares = processes.map(|p| shares(&p.iter().map(|(l, ns)| (run_of(&ages, *l), *ns)).collect::<Vec<_>>(), 7));
                    for (unit, raw) in raw.chunks(2).enumerate() {
                        let counts = [(Quantity::Busy, raw[0]), (Quantity::Energy, raw[1])];
                        let gpu_reading = GpuReading { at, seen: true,
 epoch: 1, counts: &counts, standing: &[], shares: shares.as_ref(), parts: &[] };
                        node.ledger.observe(&names[unit], &gpu_reading);
                    }
                }
            }
        }
        if !first {
            node.ledger.settle(node.at(millis) + PATIENCE * 2);
            for (index, shown) in shown.iter().enumerate() {
                let (total, residual, jobs) = sums(&node.ledger, index);
                // What scrapes showed of runs that were dropped counts as theirs.
                let there = |run: &JobRunId| ages.iter().zip(0..).any(|(_, l)| run_of(&ages, l) == *run);
                let gone: u64 = shown.iter().filter(|(run, _)| !there(run)).map(|(_, amount)| amount).sum();
                prop_assert_eq!((total, residual + jobs + gone), (raw[index] - read[index], total));
            }
        }
    }

    /// A job alone on a GPU is charged with what was counted while it was there, however often it was read.
    #[test]
    fn how_often_it_is_read_makes_no_difference(readings in proptest::collection::btree_set(1..9_999_u64, 0..30)) {
        let mut node = Node::new();
        let count = |millis: u64| [(Quantity::Busy, millis * 700_000), (Quantity::Energy, millis * 300_000)];
        node.comes(A, 0, &["g"]);
        for millis in std::iter::once(0).chain(readings).chain([10_000]) {
            node.read(millis, &count(millis));
        }
        prop_assert_eq!(node.of(A, Quantity::Busy), [(GpuMethod::Alone, 7 * SECOND)]);
        prop_assert_eq!(node.of(A, Quantity::Energy), [(GpuMethod::Alone, 3_000_000_000)]);
        prop_assert_eq!(node.ledger.usage(A, "g").unwrap().idle, Duration::from_secs(3));
    }
}
