//! Overhead that jobs are charged with beside what is theirs by the declared rule, on an invented node: 16 CPUs, packages of 42 W
//! and 8 W for each busy CPU, a board and fans of 60 W, and supplies that lose 12 % of what the parts take. Ten minutes pass,
//! then ten minutes are compared.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "invented seconds and joules are small and positive"
)]

use super::*;
use crate::energy::truth::turn;
use crate::{Busy, Use};

const CPUS: f64 = 16.0;
const BOARD: f64 = 60.0;
const LOSS: f64 = 0.12;
const MINUTES: u32 = 10;

/// What jobs do at a second: CPUs that they hold, CPUs that they keep busy, and watts of the GPU that is theirs.
type Moment = Vec<(f64, f64, f64)>;

/// How the node's meter is read. All are read when one of those that are read apart is.
#[derive(Clone, Copy)]
enum Wall {
    /// It counts, and is read with the parts.
    Counter,
    /// It counts, and is read every ten seconds, the parts right after it.
    Late,
    /// It shows the power of the last second, every ten seconds, the parts right after it.
    Power,
}

fn micro(joules: f64) -> u64 {
    (joules * 1e6).round() as u64
}

/// Charged over the rule's part of each job in the second ten minutes.
fn charged_over_true(wall: Wall, at: impl Fn(u32) -> Moment) -> Vec<f64> {
    let began = Instant::now();
    let time = |second: u32| began + Duration::from_secs(second.into());
    let mut accounts = OverheadAccounts::new(IdlePower::Learned(None));
    let jobs = at(0).len();
    accounts.set_gpus(["GPU-1".into()], false);
    let (mut truth, mut before) = (vec![0.0; jobs], vec![0; jobs]);
    let (mut from, mut wall_from, mut gpu_from) = (0, 0, 0);
    let (mut interval, mut parts, mut gpu) = (Interval::default(), Charged::default(), Charged::default());
    let (mut counted, mut power) = (0.0, 0.0);
    let charged = |accounts: &OverheadAccounts, job: usize| -> u64 {
        accounts.account().of(JobRunId(job as u64)).map(|(_, energy)| energy).sum()
    };
    for second in 0..2 * MINUTES * 60 {
        let moment = at(second);
        let (mut uses, mut busy, mut all, mut of_gpu) = (BTreeMap::new(), 0.0, 42.0, 0.0);
        for (job, (held, used, watts)) in moment.iter().enumerate() {
            let run = JobRunId(job as u64);
            let own = 42.0 * held / CPUS + 8.0 * used;
            let nanos = |cpus: f64| (cpus * 1e9) as u128;
            uses.insert(run, Use { held_cpu_ns: nanos(*held), used_core_ns: nanos(*used), held_byte_ns: 0 });
            *parts.jobs.entry(run).or_default() += micro(own);
            *gpu.jobs.entry(run).or_default() += micro(*watts);
            (busy, all, of_gpu) = (busy + used, all + 8.0 * used, of_gpu + watts);
            if second >= MINUTES * 60 {
                truth[job] += BOARD * held / CPUS + LOSS * (own + watts);
            }
        }
        parts.energy += micro(all);
        gpu.energy += micro(of_gpu);
        let watts = BOARD + (1.0 + LOSS) * (all + of_gpu);
        interval.add(&Interval {
            length: Duration::from_secs(1),
            cpu_ns: (CPUS * 1e9) as u128,
            busy: Some(Busy::of_cores((busy * 1e9) as u128)),
            uses,
            ..Interval::default()
        });
        let now = second + 1;
        let reads_wall = match wall {
            Wall::Counter => now % 15 == 0 || now % 10 == 0,
            Wall::Late | Wall::Power => now % 10 == 3,
        };
        counted += watts;
        if reads_wall {
            let length = f64::from(now - wall_from);
            let energy = if matches!(wall, Wall::Power) { (power + watts) / 2.0 * length } else { counted };
            let charge = Charged { energy: micro(energy), ..Charged::default() };
            accounts.wall(EnergyCharge { from: time(wall_from), to: time(now), charged: charge });
            (wall_from, counted, power) = (now, 0.0, watts);
        }
        // GPUs are read every ten seconds, all else is read then, too.
        let apart = !matches!(wall, Wall::Counter);
        let reads_gpu = now % 10 == if apart { 3 } else { 0 };
        if reads_gpu {
            let charged = std::mem::take(&mut gpu);
            accounts.gpu("GPU-1", EnergyCharge { from: time(gpu_from), to: time(now), charged });
            gpu_from = now;
        }
        if now % 15 == 0 || reads_gpu {
            let reading = PartsReading {
                from: time(from),
                to: time(now),
                interval: &std::mem::take(&mut interval),
                charged: std::mem::take(&mut parts),
                complete: true,
                known: true,
            };
            accounts.observe(reading, time(now));
            from = now;
        }
        if now == MINUTES * 60 {
            before = (0..jobs).map(|job| charged(&accounts, job)).collect();
        }
    }
    let share = |(job, truth): (usize, &f64)| (charged(&accounts, job) - before[job]) as f64 / 1e6 / truth;
    truth.iter().enumerate().map(share).collect()
}

/// Name, and what happens.
type History = (&'static str, fn(u32) -> Moment);
const HISTORIES: [History; 3] = [
    ("a notebook that idles, a solver, jobs that come and go", |second| {
        vec![(2.0, 0.02, 0.0), (8.0, 7.8, 0.0), (6.0, turn(second, 45, &[0.0, 2.0, 4.0, 1.0]), 0.0)]
    }),
    ("a GPU that works and rests, minutes each", |second| {
        vec![
            (4.0, 0.5, turn(second, 120, &[60.0, 400.0, 250.0])),
            (12.0, turn(second, 75, &[11.0, 4.0]), 0.0),
        ]
    }),
    (BLINKS, |second| {
        vec![(4.0, 0.5, turn(second, 7, &[60.0, 400.0])), (12.0, turn(second, 75, &[11.0, 4.0]), 0.0)]
    }),
];

/// What changes more quickly than power is read: the sum over readings is not its energy.
const BLINKS: &str = "a GPU that works and rests, seconds each";

/// The table of docs/energy.md: `make bench-energy`.
#[test]
fn jobs_are_charged_with_the_overhead_that_is_theirs_by_the_rule() {
    println!("| history | meter of the node | charged over the rule, of each job |\n|---|---|---|");
    for (name, at) in HISTORIES {
        for (wall, meter, most) in [
            (Wall::Counter, "a counter, read with packages", 0.01),
            (Wall::Late, "a counter, every 10 s", 0.02),
            (Wall::Power, "power, every 10 s", if name == BLINKS { 0.7 } else { 0.15 }),
        ] {
            let ratios = charged_over_true(wall, at);
            let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.3}")).collect();
            println!("| {name} | {meter} | {} |", shown.join(", "));
            for ratio in ratios {
                assert!((ratio - 1.0).abs() <= most, "{name}, {meter}: {ratio}");
            }
        }
    }
}
