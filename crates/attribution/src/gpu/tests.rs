mod balance;
mod restarts;

use super::allocations::PATIENCE;
use super::unit::LONGEST_ABSENCE;
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

/// A GPU that fell off the bus is not read again, and its accounts are kept.
#[test]
fn job_runs_that_are_dropped_are_not_kept_for_a_unit_that_is_gone() {
    let mut node = Node::new();
    node.read(0, &[(Quantity::Busy, 0)]);
    let minute = 60_000;
    for job in 1..1000 {
        let (run, end) = (JobRunId(job), job * minute);
        node.comes(run, end - minute, if job % 2 == 0 { &["g"] } else { &[] });
        node.goes(run, end);
        node.ledger.forget(run);
        node.ledger.settle(node.at(end));
        let kept = u128::try_from(node.ledger.allocations.forgotten().count()).unwrap();
        assert!(kept <= LONGEST_ABSENCE.as_millis() / u128::from(minute), "{kept} after {job}");
    }
    assert_eq!(node.ledger.allocations.forgotten().count(), 0);
    node.read(1000 * minute, &[(Quantity::Busy, 0)]);
    let watched = (Duration::from_secs(60_000), Duration::from_secs(120));
    assert_eq!(node.ledger.watched("g"), Some(watched), "nothing is vacant of which that is not known");
}

#[test]
fn what_a_unit_counted_while_it_was_away_for_long_is_charged_if_all_who_had_it_are_known() {
    let away = u64::try_from(LONGEST_ABSENCE.as_millis()).unwrap() + 10_000;
    let after = |shared: bool| {
        let mut node = Node::new();
        node.comes(A, 0, &["g"]);
        node.read(0, &[(Quantity::Busy, 0), (Quantity::Energy, 0)]);
        node.comes(B, 1_000, if shared { &["g"] } else { &[] });
        node.goes(B, 5_000);
        node.ledger.forget(B);
        node.ledger.settle(node.at(away - 1_000));
        node.read(away, &[(Quantity::Busy, SECOND), (Quantity::Energy, 700)]);
        node.read(away + 2_000, &[(Quantity::Busy, 2 * SECOND), (Quantity::Energy, 900)]);
        node
    };
    let alone = after(false);
    assert_eq!(alone.of(A, Quantity::Busy), [(GpuMethod::Alone, 2 * SECOND)]);
    assert_eq!(alone.of(A, Quantity::Energy), [(GpuMethod::Alone, 900)]);
    let shared = after(true);
    assert_eq!(shared.of(A, Quantity::Busy), [(GpuMethod::Alone, SECOND)], "since it is read again");
    assert_eq!(shared.node(Quantity::Energy), (900, 700));
}
