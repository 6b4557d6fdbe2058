use proptest::prelude::*;

use super::*;
use readings::{Counter, Range};

const A: JobRunId = JobRunId(1);
const B: JobRunId = JobRunId(2);
const SECOND: u128 = 1_000_000_000;
const JOULE: u64 = 1_000_000;

fn interval(seconds: u64, cpus: u128, busy: u128, uses: &[(JobRunId, Use)]) -> Interval {
    Interval {
        length: Duration::from_secs(seconds),
        cpu_ns: cpus * u128::from(seconds) * SECOND,
        busy: Some(Busy::of_cores(busy * SECOND)),
        byte_ns: 64 * u128::from(seconds) * SECOND,
        traffic: None,
        core_energy: None,
        uses: uses.iter().copied().collect(),
    }
}

fn used(held_cpus: u128, seconds: u128, used: u128) -> Use {
    Use { held_cpu_ns: held_cpus * seconds * SECOND, used_core_ns: used * SECOND, held_byte_ns: 0 }
}

fn charged(accounts: &EnergyAccounts, run: JobRunId) -> u64 {
    accounts.account().of(run).map(|(_, energy)| energy).sum()
}

fn begun(basis: Basis, idle: IdlePower) -> EnergyAccounts {
    let mut accounts = EnergyAccounts::new(basis, idle);
    accounts.observe(&Interval::default(), Some(Gain::First));
    accounts
}

fn grown(microjoules: u64) -> Option<Gain> {
    Some(Gain::Grown(microjoules))
}

#[test]
fn one_core_of_a_hundred_is_not_charged_with_the_package() {
    // 10 s at 200 W, of which 100 W are idle power; one job on one of 100 CPUs, busy, nothing else runs.
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(100 * JOULE));
    accounts.observe(&interval(10, 100, 10, &[(A, used(1, 10, 10))]), grown(2000 * JOULE));
    // All of what is beyond idle is its own, and a hundredth of the idle power.
    assert_eq!(charged(&accounts, A), 1000 * JOULE + 10 * JOULE);
    assert_eq!(accounts.account().residual(), 990 * JOULE);
    assert_eq!(accounts.account().of(A).map(|(method, _)| method).collect::<Vec<_>>(), [Method::HeldAndUsed]);
}

#[test]
fn while_the_idle_power_is_unknown_a_job_is_charged_by_the_cpus_it_holds() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Learned(None));
    accounts.observe(&interval(10, 4, 10, &[(A, used(1, 10, 10)), (B, used(2, 10, 0))]), grown(1000 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (250 * JOULE, 500 * JOULE));
    assert_eq!(accounts.account().residual(), 250 * JOULE, "a CPU that no job holds");
    assert_eq!(accounts.account().of(A).map(|(method, _)| method).collect::<Vec<_>>(), [Method::Held]);
}

#[test]
fn time_of_the_system_leaves_its_part_to_no_job() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(0));
    accounts.observe(&interval(10, 4, 20, &[(A, used(2, 10, 5))]), grown(400 * JOULE));
    assert_eq!(charged(&accounts, A), 100 * JOULE);
    assert_eq!(accounts.account().residual(), 300 * JOULE);
}

#[test]
fn an_idle_nodes_joules_go_to_no_job() {
    for idle in [IdlePower::Set(50 * JOULE), IdlePower::Learned(None)] {
        let mut accounts = begun(Basis::Cpus, idle);
        accounts.observe(&interval(10, 4, 0, &[]), grown(500 * JOULE));
        assert_eq!(accounts.account().residual(), 500 * JOULE);
    }
}

#[test]
fn the_idle_power_is_the_least_of_idle_intervals_only() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Learned(None));
    let step = |accounts: &mut EnergyAccounts, millis: u64, busy_ns: Option<u128>, watts: u64| {
        let length = Duration::from_millis(millis);
        let interval = Interval {
            length,
            cpu_ns: length.as_nanos() * 4,
            busy: busy_ns.map(Busy::of_cores),
            ..Interval::default()
        };
        accounts.observe(&interval, grown(watts * JOULE / 1000 * millis));
        accounts.idle().seen().microwatts().map(|power| power / JOULE)
    };
    assert_eq!(step(&mut accounts, 10_000, Some(SECOND), 40), None, "a fortieth is not idle");
    assert_eq!(step(&mut accounts, 10_000, None, 40), None, "not known");
    assert_eq!(step(&mut accounts, 100, Some(0), 10), None, "too short");
    assert_eq!(step(&mut accounts, 10_000, Some(SECOND / 2), 60), Some(60));
    assert_eq!(step(&mut accounts, 10_000, Some(0), 50), Some(50));
    assert_eq!(step(&mut accounts, 10_000, Some(0), 70), Some(50));
    let mut set = begun(Basis::Cpus, IdlePower::Set(7));
    assert_eq!(step(&mut set, 10_000, Some(0), 1), Some(0), "what the site says counts");
    assert_eq!(set.idle().seen(), IdlePower::Set(7));
}

#[test]
fn memory_is_charged_by_what_is_held_of_it() {
    let mut accounts = begun(Basis::Memory, IdlePower::Learned(None));
    let held = |bytes: u128| Use { held_byte_ns: bytes * 10 * SECOND, ..Use::default() };
    accounts.observe(&interval(10, 4, 40, &[(A, held(16)), (B, held(8))]), grown(64 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (16 * JOULE, 8 * JOULE));
    assert_eq!(accounts.account().residual(), 40 * JOULE);
}

/// 10 s with so many gigabytes in all, and of the jobs where that is known; each holds a quarter of the CPUs and memory.
fn moved(gigabytes: u64, jobs: Option<&[(JobRunId, u64)]>) -> Interval {
    let quarter = Use { held_cpu_ns: 10 * SECOND, held_byte_ns: 160 * SECOND, ..Use::default() };
    let jobs = jobs.map(|jobs| jobs.iter().map(|(run, bytes)| (*run, bytes * 1_000_000_000)).collect());
    let traffic = Some(Measured { amount: gigabytes * 1_000_000_000, jobs });
    Interval { traffic, ..interval(10, 4, 40, &[(A, quarter), (B, quarter)]) }
}

fn methods(accounts: &EnergyAccounts, run: JobRunId) -> Vec<&'static str> {
    accounts.account().of(run).map(|(method, _)| method.as_str()).collect()
}

#[test]
fn memory_beyond_its_idle_power_is_charged_by_what_is_moved() {
    let mut accounts = begun(Basis::Memory, IdlePower::Set(4 * JOULE));
    accounts.observe(&moved(100, Some(&[(A, 75), (B, 20)])), grown(140 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (85 * JOULE, 30 * JOULE));
    assert_eq!(accounts.account().residual(), 25 * JOULE, "half of the CPUs' and what the system moved");
    assert_eq!(methods(&accounts, A), ["cpus_held_and_memory_traffic"]);
}

#[test]
fn memory_is_charged_by_what_is_held_while_it_is_not_known_who_moved_it_or_what_it_takes_when_idle() {
    let mut accounts = begun(Basis::Memory, IdlePower::Learned(None));
    accounts.observe(&moved(100, Some(&[(A, 75), (B, 20)])), grown(140 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (35 * JOULE, 35 * JOULE));
    let mut accounts = begun(Basis::Memory, IdlePower::Set(4 * JOULE));
    accounts.observe(&moved(100, None), grown(140 * JOULE));
    accounts.observe(&Interval { traffic: None, ..moved(0, None) }, grown(140 * JOULE));
    // Of a time that is known in part nothing is known.
    accounts.observe(&moved(100, Some(&[(A, 100)])), None);
    accounts.observe(&moved(100, None), grown(280 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (140 * JOULE, 140 * JOULE));
    assert_eq!(methods(&accounts, A), ["memory_held"]);
}

#[test]
fn memory_without_an_idle_moment_shows_its_idle_power_and_the_energy_of_a_gigabyte() {
    let mut accounts = begun(Basis::Memory, IdlePower::Learned(None));
    for number in 0..20 {
        // 10 W and 1.2 J for each gigabyte. Whose they are need not be known.
        let gigabytes = 100 + 50 * (number % 3);
        accounts.observe(&moved(gigabytes, None), grown(100 * JOULE + gigabytes * 1_200_000));
    }
    let fitted = accounts.idle().fitted().unwrap();
    assert!(fitted.microwatts.abs_diff(10 * JOULE) < 1000, "{fitted:?}");
    assert!(accounts.idle().energy_of_work().unwrap().abs_diff(1_200_000) < 1000);
    let before = charged(&accounts, A);
    accounts.observe(&moved(100, Some(&[(A, 100)])), grown(220 * JOULE));
    assert!((charged(&accounts, A) - before).abs_diff(145 * JOULE) < JOULE / 10);
    assert_eq!(methods(&accounts, A), ["memory_held", "cpus_held_and_memory_traffic_fitted"]);
    // An idle moment says it better.
    accounts.observe(&moved(1, None), grown(99 * JOULE));
    assert_eq!(accounts.idle().seen().microwatts(), Some(9_900_000));
    accounts.observe(&moved(100, Some(&[(A, 100)])), grown(220 * JOULE));
    assert_eq!(methods(&accounts, A)[2..], ["cpus_held_and_memory_traffic"]);
}

#[test]
fn what_happened_while_a_zone_could_not_be_read_counts_for_its_next_reading() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(0));
    accounts.observe(&interval(10, 2, 10, &[(A, used(1, 10, 10))]), None);
    accounts.observe(&interval(10, 2, 10, &[(B, used(1, 10, 10))]), grown(100 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (50 * JOULE, 50 * JOULE));
}

#[test]
fn what_lies_before_the_first_reading_or_a_restart_is_not_charged() {
    let mut accounts = EnergyAccounts::new(Basis::Cpus, IdlePower::Set(0));
    let second = interval(1, 1, 1, &[(A, used(1, 1, 1))]);
    for (gain, wanted) in
        [(Gain::First, 0), (Gain::Grown(200), 200), (Gain::Restarted, 200), (Gain::Grown(1), 201)]
    {
        accounts.observe(&second, Some(gain));
        assert_eq!((charged(&accounts, A), accounts.account().residual()), (wanted, 0), "{gain:?}");
    }
}

/// A stretch in which nothing changes but time: who is there, how many CPUs each holds and how busy they are.
#[derive(Debug, Clone)]
struct Stretch {
    millis: u64,
    milliwatts: u64,
    system_permille: u64,
    /// (job, CPUs held, use of them in permille, bytes held)
    jobs: Vec<(u8, u64, u64, u64)>,
    /// In how many parts it is sampled.
    parts: u64,
    /// Readings of it that fail.
    fails: bool,
    /// Bytes that the system moves in a millisecond, if that is known, and whether it is known what jobs move: as many as they hold.
    moved: Option<u64>,
    of_jobs: bool,
}

const CPUS: u64 = 16;

fn stretch() -> impl Strategy<Value = Stretch> {
    let job = (0_u8..6, 0..=4_u64, 0..=1000_u64, 0..=32_u64);
    let jobs = proptest::collection::vec(job, 0..4);
    let moved = (proptest::option::of(0..1000_u64), any::<bool>());
    (1..5000_u64, 0..400_000_u64, 0..1000_u64, jobs, 1..6_u64, any::<bool>(), moved).prop_map(
        |(millis, milliwatts, system_permille, mut jobs, parts, fails, (moved, of_jobs))| {
            jobs.sort_unstable();
            jobs.dedup_by_key(|job| job.0);
            // Every part as long as the others, to the nanosecond.
            let millis = millis * parts;
            Stretch { millis, milliwatts, system_permille, jobs, parts, fails, moved, of_jobs }
        },
    )
}

/// Feeds a history to the accounts, sampled in parts or once per stretch. The counter wraps and readings are the
/// counter's values; `None` when a reading fails.
fn run(
    history: &[Stretch],
    basis: Basis,
    idle: IdlePower,
    wrap: u64,
    in_parts: bool,
    failing: bool,
) -> (EnergyAccounts, u64) {
    let mut accounts = EnergyAccounts::new(basis, idle);
    let range = Range::Wraps { at: wrap };
    let (mut spent, mut counter) = (0_u64, Counter::default());
    accounts.observe(&Interval::default(), Some(counter.advance(0, range)));
    for stretch in history {
        let parts = if in_parts { stretch.parts } else { 1 };
        for part in 0..parts {
            let length = Duration::from_millis(stretch.millis / parts);
            let nanos = length.as_nanos();
            spent += stretch.milliwatts * (stretch.millis / parts);
            let mut busy = u128::from(stretch.system_permille) * nanos / 1000;
            let mut uses = BTreeMap::new();
            for (job, cpus, permille, bytes) in &stretch.jobs {
                let used_core_ns = u128::from(cpus * permille) * nanos / 1000;
                busy += used_core_ns;
                let held_cpu_ns = u128::from(*cpus) * nanos;
                uses.insert(
                    JobRunId(u64::from(*job)),
                    Use { held_cpu_ns, used_core_ns, held_byte_ns: u128::from(*bytes) * nanos },
                );
            }
            let millis = stretch.millis / parts;
            let moved =
                stretch.jobs.iter().map(|(job, _, _, bytes)| (JobRunId(u64::from(*job)), bytes * millis));
            let moved: BTreeMap<JobRunId, u64> = moved.collect();
            let traffic = stretch.moved.map(|system| Measured {
                amount: system * millis + moved.values().sum::<u64>(),
                jobs: stretch.of_jobs.then_some(moved),
            });
            let interval = Interval {
                length,
                cpu_ns: u128::from(CPUS) * nanos,
                busy: Some(Busy::of_cores(busy)),
                byte_ns: 256 * nanos,
                core_energy: traffic.clone(),
                traffic,
                uses,
            };
            let last = part + 1 == parts;
            let fails = failing && stretch.fails && !last;
            accounts.observe(&interval, (!fails).then(|| counter.advance(spent % wrap, range)));
        }
    }
    (accounts, spent)
}

proptest! {
    #[test]
    fn the_jobs_and_the_unattributed_rest_make_up_what_was_measured(
        history in proptest::collection::vec(stretch(), 1..20),
        memory in any::<bool>(),
        idle_watts in proptest::option::of(0..300_u64),
        failing in any::<bool>(),
        forgotten in 0_u8..6,
        shown in any::<bool>(),
    ) {
        let basis = if memory { Basis::Memory } else { Basis::Cpus };
        let idle = idle_watts.map_or(IdlePower::Learned(None), |watts| IdlePower::Set(watts * JOULE));
        // Wraps after at least the longest stretch at the highest power.
        let wrap = 400_000 * 30_000;
        let (mut accounts, spent) = run(&history, basis, idle, wrap, true, failing);
        let jobs: u64 = (0..6).map(|job| charged(&accounts, JobRunId(job))).sum();
        prop_assert_eq!(jobs + accounts.account().residual(), spent);
        let forgotten = JobRunId(u64::from(forgotten));
        let gone = if shown { charged(&accounts, forgotten) } else { 0 };
        (0..6).map(JobRunId).filter(|run| shown || *run != forgotten).for_each(|run| accounts.export(run));
        accounts.forget(forgotten);
        let jobs_left: u64 = (0..6).map(|job| charged(&accounts, JobRunId(job))).sum();
        prop_assert_eq!(jobs_left + gone + accounts.account().residual(), spent);
        prop_assert_eq!(accounts.account().exported_total(), spent);
    }

    /// The idle power is set: a learned one is what was seen until then, which is about when was looked.
    #[test]
    fn how_often_is_sampled_makes_no_difference(
        history in proptest::collection::vec(stretch(), 1..20),
        memory in any::<bool>(),
        idle_watts in 0..300_u64,
    ) {
        let basis = if memory { Basis::Memory } else { Basis::Cpus };
        let idle = IdlePower::Set(idle_watts * JOULE);
        let (once, spent) = run(&history, basis, idle, u64::MAX, false, false);
        let (often, spent_often) = run(&history, basis, idle, u64::MAX, true, false);
        prop_assert_eq!(spent, spent_often);
        // Each split rounds down by less than a microjoule per job, and there are two splits per sample.
        let tolerance = 2 * history.iter().map(|stretch| stretch.parts).sum::<u64>();
        for job in 0..6 {
            let (once, often) = (charged(&once, JobRunId(job)), charged(&often, JobRunId(job)));
            prop_assert!(once.abs_diff(often) <= tolerance, "{} {} tolerance {}", once, often, tolerance);
        }
    }

    #[test]
    fn nobody_is_charged_for_what_they_neither_held_nor_used(
        history in proptest::collection::vec(stretch(), 1..20),
        idle_watts in proptest::option::of(0..300_u64),
    ) {
        let idle = idle_watts.map_or(IdlePower::Learned(None), |watts| IdlePower::Set(watts * JOULE));
        let (accounts, _) = run(&history, Basis::Cpus, idle, u64::MAX, true, false);
        for job in 0..6_u8 {
            let had = history.iter().any(|s| s.jobs.iter().any(|(id, cpus, _, spent)| *id == job && (*cpus > 0 || *spent > 0)));
            prop_assert!(had || charged(&accounts, JobRunId(u64::from(job))) == 0);
        }
    }
}

/// 10 s of four CPUs with so many joules of cores, and of the jobs where that is known.
fn measured(joules: u64, jobs: Option<&[(JobRunId, u64)]>) -> Interval {
    let jobs = jobs.map(|jobs| jobs.iter().map(|(run, joules)| (*run, joules * JOULE)).collect());
    let core_energy = Some(Measured { amount: joules * JOULE, jobs });
    let uses = [(A, used(1, 10, 10)), (B, used(1, 10, 10))];
    Interval { core_energy, ..interval(10, 4, 40, &uses) }
}

#[test]
fn what_is_beyond_the_idle_power_goes_by_the_energy_of_cores_where_the_cpu_measures_it() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(4 * JOULE));
    accounts.observe(&measured(80, Some(&[(A, 60), (B, 10)])), grown(140 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (85 * JOULE, 22_500_000));
    assert_eq!(accounts.account().residual(), 32_500_000, "half of the CPUs', and the system's eighth");
    assert_eq!(methods(&accounts, A), ["cpus_held_and_core_energy"]);
}

#[test]
fn cpu_time_divides_it_while_that_is_not_known_of_each_job_or_nothing_was_spent() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(4 * JOULE));
    for interval in
        [measured(80, None), measured(0, Some(&[])), Interval { core_energy: None, ..measured(0, None) }]
    {
        accounts.observe(&interval, grown(140 * JOULE));
    }
    // Of a time that is known in part nothing is known.
    accounts.observe(&measured(80, Some(&[(A, 80)])), None);
    accounts.observe(&measured(80, None), grown(280 * JOULE));
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (175 * JOULE, 175 * JOULE));
    assert_eq!(methods(&accounts, A), ["cpus_held_and_cpu_time"]);
}

#[test]
fn a_job_that_is_forgotten_leaves_its_energy_of_cores_to_no_job() {
    let mut accounts = begun(Basis::Cpus, IdlePower::Set(0));
    accounts.observe(&measured(80, Some(&[(A, 40), (B, 40)])), None);
    accounts.forget(A);
    accounts.observe(
        &Interval { core_energy: Some(Measured::of_nobody(0)), ..Interval::default() },
        grown(80 * JOULE),
    );
    assert_eq!((charged(&accounts, A), charged(&accounts, B)), (0, 40 * JOULE));
}
