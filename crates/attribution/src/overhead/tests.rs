use proptest::prelude::*;

use super::*;
use crate::{Busy, Use};

const A: JobRunId = JobRunId(1);
const B: JobRunId = JobRunId(2);
const JOULE: u64 = 1_000_000;
const CPUS: u128 = 10;

/// A node whose parts and meter are read at times of the test's choice.
struct Node {
    began: Instant,
    accounts: OverheadAccounts,
    last: f64,
}

/// Joules of the parts in a time: all, and those of jobs.
fn joules(all: f64, jobs: &[(JobRunId, f64)]) -> Charged {
    let micro = |joules: f64| Duration::from_secs_f64(joules).as_micros();
    let micro = |joules| u64::try_from(micro(joules)).unwrap();
    Charged { energy: micro(all), jobs: jobs.iter().map(|(run, part)| (*run, micro(*part))).collect() }
}

impl Node {
    fn new(idle: IdlePower) -> Self {
        Self { began: Instant::now(), accounts: OverheadAccounts::new(idle), last: 0.0 }
    }

    fn at(&self, seconds: f64) -> Instant {
        self.began + Duration::from_secs_f64(seconds)
    }

    fn wall(&mut self, from: f64, to: f64, all: f64) {
        let charge = EnergyCharge { from: self.at(from), to: self.at(to), charged: joules(all, &[]) };
        self.accounts.wall(charge);
    }

    fn gpu(&mut self, (from, to): (f64, f64), all: f64, jobs: &[(JobRunId, f64)]) {
        let charge = EnergyCharge { from: self.at(from), to: self.at(to), charged: joules(all, jobs) };
        self.accounts.gpu("GPU-1", charge);
    }

    /// Reads the parts: CPUs held by jobs, CPUs that are busy, and joules.
    fn parts(&mut self, to: f64, held: &[(JobRunId, u128)], busy: f64, charged: Charged) {
        self.parts_with(to, held, busy, charged, (true, true));
    }

    fn parts_with(
        &mut self,
        to: f64,
        held: &[(JobRunId, u128)],
        busy: f64,
        charged: Charged,
        (complete, known): (bool, bool),
    ) {
        let length = self.at(to) - self.at(self.last);
        let nanos = length.as_nanos();
        let uses = held.iter().map(|(run, cpus)| (*run, Use { held_cpu_ns: cpus * nanos, ..Use::default() }));
        let interval = Interval {
            length,
            cpu_ns: CPUS * nanos,
            busy: Some(Busy::of_cores(length.mul_f64(busy).as_nanos())),
            byte_ns: 0,
            traffic: None,
            core_energy: None,
            uses: uses.collect(),
        };
        let (from, to) = (self.at(self.last), self.at(to));
        self.last = (to - self.began).as_secs_f64();
        let reading = PartsReading { from, to, interval: &interval, charged, complete, known };
        self.accounts.observe(reading, to);
    }

    fn charged(&self, run: JobRunId) -> u64 {
        self.accounts.account().of(run).map(|(_, energy)| energy).sum()
    }

    fn methods(&self, run: JobRunId) -> Vec<&'static str> {
        self.accounts.account().of(run).map(|(method, _)| method.as_str()).collect()
    }

    fn residual(&self) -> u64 {
        self.accounts.account().residual()
    }
}

/// Within a microjoule for each of some divisions.
fn near(a: u64, b: f64) -> bool {
    (a as f64 - b * JOULE as f64).abs() <= 50.0
}

#[test]
fn what_the_parts_do_not_explain_follows_their_joules_while_the_idle_node_is_unknown() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.wall(0.0, 10.0, 1000.0);
    node.parts(10.0, &[(A, 2), (B, 8)], 8.0, joules(500.0, &[(A, 300.0), (B, 100.0)]));
    assert_eq!((node.charged(A), node.charged(B), node.residual()), (300 * JOULE, 100 * JOULE, 100 * JOULE));
    assert_eq!(node.methods(A), ["energy"]);
    assert_eq!(node.accounts.deficit(), 0);
}

#[test]
fn the_overhead_of_the_idle_node_follows_the_cpus_held_and_the_rest_the_joules() {
    let mut node = Node::new(IdlePower::Set(20 * JOULE));
    node.wall(0.0, 10.0, 1000.0);
    node.parts(10.0, &[(A, 2), (B, 4)], 8.0, joules(500.0, &[(A, 400.0), (B, 50.0)]));
    // 200 J of the idle node, 4 of 10 CPUs are no job's; 300 J by 400, 50 and 50 of 500.
    assert_eq!(node.charged(A), (40 + 240) * JOULE);
    assert_eq!(node.charged(B), (80 + 30) * JOULE);
    assert_eq!(node.residual(), (80 + 30) * JOULE);
    assert_eq!(node.methods(A), ["cpus_held_and_energy"]);
}

#[test]
fn an_idle_node_shows_its_overhead() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.wall(0.0, 20.0, 20.0 * 130.0);
    node.parts(20.0, &[], 0.1, joules(20.0 * 50.0, &[]));
    assert_eq!(node.accounts.idle().seen(), IdlePower::Learned(Some(80 * JOULE)));
    node.wall(20.0, 40.0, 20.0 * 300.0);
    node.parts(40.0, &[(A, 10)], 10.0, joules(20.0 * 200.0, &[(A, 20.0 * 200.0)]));
    assert_eq!((node.charged(A), node.methods(A)), (2000 * JOULE, vec!["cpus_held_and_energy"]));
}

#[test]
fn an_overhead_that_follows_the_load_shows_what_is_there_without_any() {
    let mut node = Node::new(IdlePower::Learned(None));
    // 60 W, and a tenth of what the parts take.
    for number in 0..12_u32 {
        let (from, parts) = (f64::from(number) * 10.0, 10.0 * f64::from(100 + number % 4 * 50));
        node.wall(from, from + 10.0, 600.0 + parts * 1.1);
        node.parts(from + 10.0, &[(A, 5)], 5.0, joules(parts, &[(A, parts)]));
    }
    let fitted = node.accounts.idle().fitted().unwrap();
    assert!(fitted.microwatts.abs_diff(60 * JOULE) < JOULE / 100, "{fitted:?}");
    assert_eq!(node.methods(A), ["energy", "cpus_held_and_energy_fitted"]);
    // Half of 600 J, and a tenth of 1000 J.
    let before = node.charged(A);
    node.wall(120.0, 130.0, 1700.0);
    node.parts(130.0, &[(A, 5)], 5.0, joules(1000.0, &[(A, 1000.0)]));
    assert!(near(node.charged(A) - before, 400.0), "{}", node.charged(A) - before);
}

#[test]
fn meters_that_are_read_at_different_times_are_aligned() {
    // The parts take 200 W, 100 of them a job's, a GPU 300 W, all the job's; the whole 700 W.
    let mut node = Node::new(IdlePower::Learned(None));
    node.accounts.set_gpus(["GPU-1".into()], false);
    let step = |number: u32, each: f64| f64::from(number) * each;
    let mut events: Vec<(f64, u32, f64)> = Vec::new();
    events.extend((1..60).map(|n| (step(n, 5.0), 0, 5.0)));
    events.extend((1..40).map(|n| (step(n, 7.3), 1, 7.3)));
    events.extend((1..30).map(|n| (step(n, 9.9), 2, 9.9)));
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (to, what, length) in events {
        match what {
            0 => node.parts(to, &[(A, 5)], 5.0, joules(200.0 * length, &[(A, 100.0 * length)])),
            1 => node.wall(to - length, to, 700.0 * length),
            _ => node.gpu((to - length, to), 300.0 * length, &[(A, 300.0 * length)]),
        }
    }
    let overhead = node.charged(A) + node.residual();
    assert!(overhead > 240 * 200 * JOULE, "{overhead}: all but the last minute");
    assert_eq!(node.accounts.deficit(), 0);
    // 200 W of overhead, of which the job has 4 of 5 parts.
    let seconds = overhead as f64 / (200.0 * JOULE as f64);
    assert!(near(node.charged(A), 160.0 * seconds), "{} in {seconds} s", node.charged(A));
    assert!(near(node.residual(), 40.0 * seconds), "{} in {seconds} s", node.residual());
}

#[test]
fn parts_that_exceed_the_whole_are_a_deficit_that_later_overhead_pays() {
    let mut node = Node::new(IdlePower::Learned(None));
    let part = |joules_: f64| joules(joules_, &[(A, joules_)]);
    node.wall(0.0, 10.0, 400.0);
    node.parts(10.0, &[(A, 10)], 10.0, part(500.0));
    assert_eq!((node.accounts.deficit(), node.charged(A)), (100 * JOULE, 0));
    node.wall(10.0, 20.0, 560.0);
    node.parts(20.0, &[(A, 10)], 10.0, part(500.0));
    assert_eq!((node.accounts.deficit(), node.charged(A)), (40 * JOULE, 0));
    node.wall(20.0, 30.0, 600.0);
    node.parts(30.0, &[(A, 10)], 10.0, part(500.0));
    assert_eq!((node.accounts.deficit(), node.charged(A)), (0, 60 * JOULE));
}

#[test]
fn a_part_that_began_leaves_the_overhead_to_no_job() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.wall(0.0, 10.0, 1000.0);
    node.parts_with(0.0, &[(A, 10)], 0.0, joules(0.0, &[]), (true, false));
    node.parts_with(9.9, &[(A, 10)], 10.0, joules(0.0, &[]), (true, false));
    node.parts(10.0, &[(A, 10)], 10.0, joules(0.0, &[]));
    assert_eq!((node.charged(A), node.residual()), (0, 990 * JOULE), "the first reading of a package");
}

#[test]
fn a_reading_that_fails_is_made_up_for_by_the_next_one_and_not_waited_for_longer() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.wall(0.0, 10.0, 1000.0);
    node.parts_with(10.0, &[(A, 10)], 10.0, joules(0.0, &[]), (false, true));
    assert_eq!(node.residual(), 0, "it waits");
    node.wall(10.0, 20.0, 1000.0);
    node.parts(20.0, &[(A, 10)], 10.0, joules(1000.0, &[(A, 500.0)]));
    assert_eq!((node.charged(A), node.residual()), (500 * JOULE, 500 * JOULE));
    node.wall(20.0, 400.0, 1000.0);
    node.parts_with(400.0, &[(A, 10)], 10.0, joules(0.0, &[]), (false, true));
    assert_eq!((node.charged(A), node.residual()), (500 * JOULE, 1500 * JOULE));
}

#[test]
fn a_gpu_that_is_not_measured_leaves_the_overhead_to_no_job() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.accounts.set_gpus([], true);
    node.wall(0.0, 10.0, 3000.0);
    node.parts(10.0, &[(A, 10)], 10.0, joules(500.0, &[(A, 500.0)]));
    assert_eq!((node.charged(A), node.residual()), (0, 2500 * JOULE));
}

#[test]
fn a_gpu_is_waited_for_and_not_for_ever() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.accounts.set_gpus(["GPU-1".into()], false);
    let part = || joules(500.0, &[(A, 500.0)]);
    node.wall(0.0, 10.0, 1000.0);
    node.parts(10.0, &[(A, 10)], 10.0, part());
    assert_eq!(node.charged(A), 0, "the GPU may have taken all of it");
    node.gpu((0.0, 20.0), 600.0, &[(A, 600.0)]);
    node.wall(10.0, 20.0, 1000.0);
    node.parts(20.0, &[(A, 10)], 10.0, part());
    assert_eq!((node.charged(A), node.residual()), (400 * JOULE, 0));
    node.wall(20.0, 400.0, 38_000.0);
    node.parts(330.0, &[], 0.0, joules(310.0, &[]));
    assert_eq!(node.residual(), 0, "it is waited for");
    node.parts(640.0, &[], 0.0, joules(0.0, &[]));
    assert_eq!((node.charged(A), node.residual()), (400 * JOULE, (31_000 - 310) * JOULE));
}

#[test]
fn a_meter_that_was_away_knows_nothing_of_that_time() {
    let mut node = Node::new(IdlePower::Learned(None));
    let part = || joules(500.0, &[(A, 500.0)]);
    node.wall(0.0, 10.0, 1000.0);
    node.parts(10.0, &[(A, 10)], 10.0, part());
    node.wall(15.0, 20.0, 500.0);
    node.parts(20.0, &[(A, 10)], 10.0, part());
    // Of the 5 s that were seen, half of the parts' 500 J are taken from 500 J.
    assert_eq!((node.charged(A), node.residual()), (500 * JOULE, 250 * JOULE));
}

#[test]
fn a_forgotten_run_is_charged_with_nothing_more() {
    let mut node = Node::new(IdlePower::Learned(None));
    node.parts(10.0, &[(A, 10)], 10.0, joules(500.0, &[(A, 500.0)]));
    node.accounts.forget(A);
    node.wall(0.0, 20.0, 2000.0);
    node.parts(20.0, &[], 0.0, joules(500.0, &[]));
    assert_eq!(node.accounts.account().runs().count(), 0);
    assert_eq!(node.residual(), 1000 * JOULE);
}

proptest! {
    /// Whatever is read and when: parts + overhead - deficit is what the meter counted.
    #[test]
    fn the_sum_is_the_wall(
        steps in proptest::collection::vec((1_u32..40, 0_u32..900, 0_u32..900, 0_u32..600, any::<bool>()), 1..60),
        idle in proptest::option::of(0_u64..200),
    ) {
        let mut node = Node::new(idle.map_or(IdlePower::Learned(None), |watts| IdlePower::Set(watts * JOULE)));
        let (mut now, mut parts, mut whole) = (0.0, 0, 0);
        for (length, part, job, wall, read) in steps {
            let to = now + f64::from(length);
            let job = job.min(part);
            node.wall(now, to, f64::from(wall));
            let charged = joules(f64::from(part), &[(A, f64::from(job))]);
            let charged = if read { charged } else { Charged::default() };
            parts += charged.energy;
            whole += u64::from(wall) * JOULE;
            node.parts_with(to, &[(A, 3)], 4.0, charged, (read, true));
            now = to;
        }
        // A last reading of all, at once.
        node.wall(now, now + 1.0, 7.0);
        node.parts(now + 1.0, &[], 0.0, joules(0.0, &[]));
        let accounts = &node.accounts;
        let overhead = node.charged(A) + node.residual();
        prop_assert_eq!(parts + overhead, whole + 7 * JOULE + accounts.deficit());
    }
}
