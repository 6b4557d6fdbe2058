//! What unlike jobs are charged with beside what they truly spent, on an invented socket: 16 CPUs, 42 W idle, 1 W more or less. A
//! second of a core takes 4 J in a job that waits for memory and 12 J in one with wide vectors. A tenth of what cores spend is spent
//! once more beyond them (L3, mesh), which no core counts. Ten minutes pass, then ten minutes are compared.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "invented seconds and joules are small and positive"
)]

use super::truth::{ripple, turn};
use super::*;

const CPUS: f64 = 16.0;
const IDLE_WATTS: f64 = 42.0;
const BEYOND: f64 = 0.1;
const MINUTES: u32 = 10;

/// What a job does at a second: CPUs that it holds, those that it keeps busy, and joules that one of these takes.
type Job = (f64, f64, f64);

/// Charged over true of each job in the second ten minutes. The system keeps a twentieth of a core busy at 8 W.
fn charged_over_true(measured: bool, every: u32, at: fn(u32) -> Vec<Job>) -> (Vec<f64>, Vec<&'static str>) {
    let mut accounts = EnergyAccounts::new(Basis::Cpus, IdlePower::Learned(None));
    accounts.observe(&Interval::default(), Some(Gain::First));
    let charged = |accounts: &EnergyAccounts, job: usize| -> u64 {
        accounts.account().of(JobRunId(job as u64)).map(|(_, energy)| energy).sum()
    };
    let (mut truth, mut before): (Vec<f64>, Vec<u64>) = Default::default();
    let mut open = (0.0, Interval::default());
    for second in 0..2 * MINUTES * 60 {
        let jobs = at(second);
        truth.resize(jobs.len(), 0.0);
        let (mut uses, mut spent) = (BTreeMap::new(), BTreeMap::new());
        let (mut busy, mut cores) = (0.05, 0.4);
        for (job, (held, used, joules)) in jobs.iter().enumerate() {
            let run = JobRunId(job as u64);
            let nanos = |cpus: f64| (cpus * 1e9) as u128;
            uses.insert(run, Use { held_cpu_ns: nanos(*held), used_core_ns: nanos(*used), held_byte_ns: 0 });
            spent.insert(run, (used * joules * 1e6) as u64);
            (busy, cores) = (busy + used, cores + used * joules);
            if second >= MINUTES * 60 {
                truth[job] += IDLE_WATTS * held / CPUS + (1.0 + BEYOND) * used * joules;
            }
        }
        let core_energy = Measured { amount: (cores * 1e6) as u64, jobs: Some(spent) };
        open.0 += IDLE_WATTS + (1.0 + BEYOND) * cores + ripple(second);
        open.1.add(&Interval {
            length: Duration::from_secs(1),
            cpu_ns: (CPUS * 1e9) as u128,
            busy: Some(Busy::of_cores((busy * 1e9) as u128)),
            core_energy: measured.then_some(core_energy),
            uses,
            ..Interval::default()
        });
        if (second + 1) % every == 0 {
            accounts.observe(&std::mem::take(&mut open.1), Some(Gain::Grown((open.0 * 1e6) as u64)));
            open.0 = 0.0;
        }
        if second + 1 == MINUTES * 60 {
            before = (0..truth.len()).map(|job| charged(&accounts, job)).collect();
        }
    }
    let ratio = |(job, truth): (usize, &f64)| (charged(&accounts, job) - before[job]) as f64 / 1e6 / truth;
    let methods = accounts.account().of(JobRunId(0)).map(|(method, _)| method.as_str()).collect();
    (truth.iter().enumerate().map(ratio).collect(), methods)
}

/// Name, seconds between readings, and what happens.
type History = (&'static str, u32, fn(u32) -> Vec<Job>);
const HISTORIES: [History; 3] = [
    ("wide vectors beside a job that waits for memory; the socket was idle once", 15, |second| {
        let runs = f64::from(u8::from(second >= 30));
        vec![(8.0, 7.8 * runs, 12.0), (8.0, 7.8 * runs, 4.0)]
    }),
    ("the same, never idle, now more, now less", 15, |second| {
        let more = turn(second, 45, &[2.0, 5.0, 3.0, 6.0]);
        vec![(8.0, 1.5 + more, 12.0), (8.0, 1.5 + more, 4.0)]
    }),
    ("clocks that change by a tenth, scraped every minute; idle once", 60, |second| {
        let runs = f64::from(u8::from(second >= 120));
        let clock = 1.0 + 0.05 * ripple(7 * second);
        vec![(4.0, 3.9 * runs, 12.0 * clock), (12.0, 8.0 * runs, 6.0 * clock)]
    }),
];

/// The fourth table of docs/energy.md: `make bench-energy`.
#[test]
fn unlike_jobs_are_charged_with_the_energy_of_their_cores_within_a_twentieth() {
    println!("| history | by the measured energy of cores | by CPU time |\n|---|---|---|");
    for (name, every, at) in HISTORIES {
        let [(measured, methods), (by_time, _)] = [true, false].map(|m| charged_over_true(m, every, at));
        let shown =
            |ratios: &[f64]| ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ");
        println!("| {name} | {} | {} |", shown(&measured), shown(&by_time));
        assert!(methods.iter().any(|method| method.starts_with("cpus_held_and_core_energy")), "{methods:?}");
        for ratio in &measured {
            assert!((ratio - 1.0).abs() <= 0.05, "{name}: {ratio}");
        }
        assert!(by_time.iter().any(|ratio| (ratio - 1.0).abs() > 0.2), "{name}: {by_time:?}");
    }
}
