//! What jobs are charged with of memory beside what they truly spent, on an invented socket: 16 CPUs, 256 GiB, 10 W whatever happens,
//! 1.2 J for each gigabyte that is moved (0.15 nJ a bit), and a meter that is wrong by half a watt, now more, now less. Ten minutes
//! pass, then ten minutes are compared.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "invented seconds and joules are small and positive"
)]

use super::truth::{ripple, turn};
use super::*;

const CPUS: f64 = 16.0;
const USED_GIB: f64 = 160.0;
const IDLE_WATTS: f64 = 10.0;
const JOULES_PER_GB: f64 = 1.2;
const MINUTES: u32 = 10;

/// What a job does at a second: CPUs and GiB that it holds, gigabytes that it moves.
type Job = (f64, f64, f64);

/// Who says what was moved.
#[derive(Clone, Copy, PartialEq)]
enum Counts {
    /// Of each job.
    OfJobs,
    /// Of the socket alone: a job that is there alone moved it.
    OfTheSocket,
    /// Nobody.
    Nothing,
}

/// Charged over true of each job in the second ten minutes, and the error of the idle power in watts. The system moves 0.1 GB/s and
/// uses 8 GiB.
fn charged_over_true(counts: Counts, every: u32, at: fn(u32) -> Vec<Job>) -> (Vec<f64>, f64) {
    let mut accounts = EnergyAccounts::new(Basis::Memory, IdlePower::Learned(None));
    accounts.observe(&Interval::default(), Some(Gain::First));
    let charged = |accounts: &EnergyAccounts, job: usize| -> u64 {
        accounts.account().of(JobRunId(job as u64)).map(|(_, energy)| energy).sum()
    };
    let (mut truth, mut before): (Vec<f64>, Vec<u64>) = Default::default();
    let mut open = (0.0, Interval::default());
    for second in 0..2 * MINUTES * 60 {
        let jobs = at(second);
        truth.resize(jobs.len(), 0.0);
        let (mut uses, mut moved, mut whole) = (BTreeMap::new(), BTreeMap::new(), 0.1);
        for (job, (cpus, gib, gigabytes)) in jobs.iter().enumerate() {
            if *cpus == 0.0 {
                continue;
            }
            if second >= MINUTES * 60 {
                truth[job] += IDLE_WATTS * cpus / CPUS + JOULES_PER_GB * gigabytes;
            }
            let run = JobRunId(job as u64);
            let held = |amount: f64| (amount * 1e9) as u128;
            let held_byte_ns = held(gib * 1024.0 * 1024.0 * 1024.0);
            uses.insert(run, Use { held_cpu_ns: held(*cpus), used_core_ns: 0, held_byte_ns });
            moved.insert(run, (gigabytes * 1e9) as u64);
            whole += gigabytes;
        }
        let bytes = (whole * 1e9) as u64;
        let alone = uses.keys().next().copied().filter(|_| uses.len() == 1);
        let jobs = match counts {
            Counts::OfJobs => Some(moved),
            Counts::OfTheSocket => alone.map(|run| [(run, bytes)].into()),
            Counts::Nothing => None,
        };
        let one = Interval {
            length: Duration::from_secs(1),
            cpu_ns: (CPUS * 1e9) as u128,
            byte_ns: ((USED_GIB + 8.0) * 1024.0 * 1024.0 * 1024.0 * 1e9) as u128,
            traffic: (counts != Counts::Nothing).then_some(Measured { amount: bytes, jobs }),
            uses,
            ..Interval::default()
        };
        open.0 += IDLE_WATTS + JOULES_PER_GB * whole + 0.5 * ripple(second);
        // An interval ends when jobs come and go, too.
        let there = |second: u32| at(second).iter().map(|(cpus, ..)| *cpus).collect::<Vec<_>>();
        open.1.add(&one);
        if (second + 1) % every == 0 || there(second) != there(second + 1) {
            accounts.observe(&std::mem::take(&mut open.1), Some(Gain::Grown((open.0 * 1e6) as u64)));
            open.0 = 0.0;
        }
        if second + 1 == MINUTES * 60 {
            before = (0..truth.len()).map(|job| charged(&accounts, job)).collect();
        }
    }
    let ratio = |(job, truth): (usize, &f64)| (charged(&accounts, job) - before[job]) as f64 / 1e6 / truth;
    let idle = accounts.idle().fitted().map_or(f64::NAN, |power| power.microwatts as f64 / 1e6);
    (truth.iter().enumerate().map(ratio).collect(), idle - IDLE_WATTS)
}

/// A streaming job with little memory, and one that computes in much of it.
const STREAM: Job = (4.0, 12.0, 40.0);
const COMPUTES: Job = (12.0, 148.0, 4.0);
const NOT_THERE: Job = (0.0, 0.0, 0.0);

/// Histories without an idle moment: name, seconds between readings, and what happens.
type History = (&'static str, u32, fn(u32) -> Vec<Job>);
const HISTORIES: [History; 4] = [
    ("a job that streams now more, now less, beside one that computes", 15, |second| {
        vec![(4.0, 12.0, turn(second, 50, &[40.0, 25.0, 35.0])), COMPUTES]
    }),
    (ALONE, 15, |second| match second / 80 % 3 {
        0 => vec![STREAM, NOT_THERE],
        1 => vec![STREAM, COMPUTES],
        _ => vec![NOT_THERE, COMPUTES],
    }),
    ("each alone, one after the other", 15, |second| match second / 80 % 2 {
        0 => vec![STREAM, NOT_THERE],
        _ => vec![NOT_THERE, COMPUTES],
    }),
    ("four alike, scraped every minute", 60, |second| {
        (0..4).map(|job| (4.0, 40.0, 6.0 + turn(second + 37 * job, 70, &[0.0, 3.0, 1.0, 2.0]))).collect()
    }),
];

/// The history in which controllers that count a socket do not say whose the bytes were for a third of the time.
const ALONE: &str = "both alone and together, in turns";

/// The table of docs/energy.md: `make bench-energy`.
#[test]
fn jobs_are_charged_with_the_memory_energy_that_they_spent_within_a_twentieth() {
    println!(
        "| history | by traffic of jobs | by traffic of the socket | by memory held | error of the idle power, W of {IDLE_WATTS} |\n|---|---|---|---|---:|"
    );
    for (name, every, at) in HISTORIES {
        let all =
            [Counts::OfJobs, Counts::OfTheSocket, Counts::Nothing].map(|c| charged_over_true(c, every, at));
        let shown = all.each_ref().map(|(ratios, _)| {
            ratios.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(", ")
        });
        println!("| {name} | {} | {:+.2} |", shown.join(" | "), all[0].1);
        for ratio in &all[0].0 {
            assert!((ratio - 1.0).abs() <= 0.05, "{name}: {ratio}");
        }
    }
}

#[test]
fn a_job_that_is_alone_is_charged_by_what_the_socket_counts() {
    let (_, every, at) = HISTORIES[2];
    let (ratios, _) = charged_over_true(Counts::OfTheSocket, every, at);
    assert!(ratios.iter().all(|ratio| (ratio - 1.0).abs() <= 0.05), "{ratios:?}");
    // Of the time together memory held is all there is; it is no worse than without any counts.
    let (_, every, at) = HISTORIES[1];
    let [socket, nothing] = [Counts::OfTheSocket, Counts::Nothing].map(|c| charged_over_true(c, every, at).0);
    assert!(
        nothing.iter().zip(&socket).all(|(n, s)| (s - 1.0).abs() < (n - 1.0).abs()),
        "{socket:?} {nothing:?}"
    );
}

/// Without a load that varies the idle power remains unknown, and it goes by memory held.
#[test]
fn traffic_that_never_changes_is_split_by_the_memory_held() {
    let (ratios, error) = charged_over_true(Counts::OfJobs, 15, |_| vec![STREAM, COMPUTES]);
    assert!(error.is_nan() && ratios[0] < 0.2 && ratios[1] > 2.0, "{ratios:?}");
}
