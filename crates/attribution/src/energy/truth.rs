//! What jobs are charged with beside what they truly spent, on an invented socket whose power is known: 16 CPUs, 42 W idle, and
//! some 8 W for each busy CPU. Ten minutes pass, then ten minutes are compared.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "invented seconds and joules are small and positive"
)]

use super::*;

const CPUS: u32 = 16;
const IDLE_WATTS: f64 = 42.0;
const MINUTES: u32 = 10;

/// What a history does at a second: watts of a busy CPU, and of each job the CPUs that it holds and those that it keeps busy.
type Moment = (f64, Vec<(u32, f64)>);

/// Something that goes up and down by one, quickly and slowly, and is the same each time.
pub(crate) fn ripple(second: u32) -> f64 {
    let second = f64::from(second);
    0.5 * (2.4 * second).sin() + 0.5 * (0.05 * second).sin()
}

/// One of these, the next after so many seconds.
pub(crate) fn turn(second: u32, seconds: u32, values: &[f64]) -> f64 {
    values[(second / seconds) as usize % values.len()]
}

/// Charged over true of each job in the second ten minutes, and the error of the idle power in watts.
fn charged_over_true(every: u32, noise: f64, at: impl Fn(u32) -> Moment) -> (Vec<f64>, f64) {
    let mut accounts = EnergyAccounts::new(Basis::Cpus, IdlePower::Learned(None));
    accounts.observe(&Interval::default(), Some(Gain::First));
    let (mut truth, mut before): (Vec<f64>, Vec<u64>) = Default::default();
    let mut open = (0.0, Interval::default());
    for second in 0..2 * MINUTES * 60 {
        let (watts, jobs) = at(second);
        truth.resize(jobs.len(), 0.0);
        let mut joules = IDLE_WATTS + noise * ripple(second);
        let (mut busy, mut uses) = (0.0, BTreeMap::new());
        for (job, (held, used)) in jobs.iter().enumerate() {
            joules += watts * used;
            busy += used;
            if second >= MINUTES * 60 {
                truth[job] += IDLE_WATTS * f64::from(*held) / f64::from(CPUS) + watts * used;
            }
            let nanos = |cpus: f64| (cpus * 1e9) as u128;
            let one =
                Use { held_cpu_ns: nanos(f64::from(*held)), used_core_ns: nanos(*used), held_byte_ns: 0 };
            uses.insert(JobRunId(job as u64), one);
        }
        let one = Interval {
            length: Duration::from_secs(1),
            cpu_ns: u128::from(CPUS) * 1_000_000_000,
            busy: Some(Busy::of_cores((busy * 1e9) as u128)),
            uses,
            ..Interval::default()
        };
        open.0 += joules;
        open.1.add(&one);
        if (second + 1) % every == 0 {
            accounts.observe(&std::mem::take(&mut open.1), Some(Gain::Grown((open.0 * 1e6) as u64)));
            open.0 = 0.0;
        }
        if second + 1 == MINUTES * 60 {
            before = (0..truth.len())
                .map(|job| accounts.account().of(JobRunId(job as u64)).map(|m| m.1).sum())
                .collect();
        }
    }
    let charged = |job: usize| {
        let now: u64 = accounts.account().of(JobRunId(job as u64)).map(|(_, energy)| energy).sum();
        (now - before[job]) as f64 / 1e6
    };
    let ratios = truth.iter().enumerate().map(|(job, truth)| charged(job) / truth).collect();
    let idle = accounts.idle().fitted().map_or(f64::NAN, |power| power.microwatts as f64 / 1e6);
    (ratios, idle - IDLE_WATTS)
}

const USUAL: [f64; 5] = [0.0, 4.0, 1.0, 6.0, 3.0];
const HIGH: [f64; 5] = [0.0, 3.0, 6.0, 2.0, 5.0];

/// Histories of a node that is never idle: name, seconds between readings, and what happens.
type History = (&'static str, u32, fn(u32) -> Moment);
const HISTORIES: [History; 6] = [
    ("a notebook that idles, a solver, jobs that come and go", 15, |second| {
        (8.0, vec![(2, 0.02), (8, 7.8), (6, turn(second, 45, &[0.0, 2.0, 4.0, 1.0]))])
    }),
    ("never below 60 % of the CPUs", 15, |second| {
        (8.0, vec![(8, 7.9), (2, 1.8), (6, turn(second, 60, &HIGH))])
    }),
    ("two jobs that always run together", 15, |second| {
        let run = turn(second, 90, &[0.0, 1.0]);
        (8.0, vec![(4, 3.5 * run + 0.3), (4, 1.5 * run + 0.2), (8, 6.0)])
    }),
    ("clocks that change by a tenth, whatever the load", 15, |second| {
        let watts = 8.0 + 0.4 * ripple(7 * second) + turn(second, 130, &[0.0, 0.4, -0.4]);
        (watts, vec![(8, 6.0), (2, 0.1), (6, turn(second, 40, &USUAL))])
    }),
    ("scraped every minute", 60, |second| (8.0, vec![(8, 6.0), (2, 0.1), (6, turn(second, 50, &USUAL))])),
    (BENT, 15, |second| {
        let more = turn(second, 60, &HIGH);
        (10.0 - 0.15 * (9.7 + more), vec![(8, 7.9), (2, 1.8), (6, more)])
    }),
];

/// The one history whose power is no straight line: each further busy CPU draws less, from 10 to 5 W.
const BENT: &str = "never below 60 %, and clocks fall as CPUs become busy";

/// The table of docs/energy.md: `make bench-energy`.
#[test]
fn without_an_idle_moment_jobs_are_charged_with_what_they_spent_within_a_twentieth() {
    println!(
        "| history | charged over true, of each job | error of the idle power, W of {IDLE_WATTS} |\n|---|---|---:|"
    );
    for (name, every, at) in HISTORIES {
        let (ratios, error) = charged_over_true(every, 1.0, at);
        let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
        println!("| {name} | {} | {error:+.2} |", shown.join(", "));
        let most = if name == BENT { 0.12 } else { 0.05 };
        for ratio in ratios {
            assert!((ratio - 1.0).abs() <= most, "{name}: {ratio}");
        }
    }
}

/// What a load that never changes leaves unknown is not made up: the split is by CPUs held, and the method says so.
#[test]
fn a_load_that_never_changes_is_split_by_the_cpus_held() {
    let (ratios, error) = charged_over_true(15, 0.0, |_| (8.0, vec![(8, 7.0), (8, 1.0)]));
    assert!(error.is_nan());
    assert!(ratios[0] < 0.8 && ratios[1] > 1.5, "{ratios:?}");
}
