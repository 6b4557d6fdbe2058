//! Counting a loop as a job is counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use kernel_files::{NodeFiles, Roots};
use known_work::Ready;
use parking_lot::Mutex;
use perf_counters::counting::{self, Counting, Mode};
use perf_counters::sharing::{CounterOwnership, CounterUser};
use perf_counters::{Plan, Quantity};
use perf_events::{On, Open, OpenError};
use rustix::thread::sched_setaffinity;

use crate::cgroup::Own;
use crate::compare::Counted;
use crate::results::CountedAs;

/// More than the events of any plan on one CPU.
const MOST_DESCRIPTORS: usize = 4096;

/// Why nothing more is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// Somebody else has the counters now.
    Yielded,
    /// A signal.
    Interrupted,
    /// Something that it needs failed.
    Failed(String),
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Yielded => f.write_str("the counters were taken by somebody else (LIKWID's lock)"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// What is open. The lock is never held while a loop runs, so that counters are released at once.
struct Held(Mutex<(Counting, Option<counting::Counted>)>);

impl CounterUser for Held {
    fn release(&self) -> bool {
        let mut held = self.0.lock();
        let (counting, counted) = &mut *held;
        counting.release(counted.iter_mut());
        *counted = None;
        true
    }

    fn resume(&self) {}
}

/// Counts loops of this process.
pub struct Session {
    held: Arc<Held>,
    ownership: CounterOwnership,
    /// `None` where CPUs are counted, whoever runs there.
    cgroup: Option<Own>,
    /// Why not by cgroup.
    why: Option<String>,
    /// The CPU that this thread is bound to.
    cpu: u32,
}

/// Binds this thread to a CPU.
pub(crate) fn bind(cpu: u32) -> Result<(), Stopped> {
    let index = usize::try_from(cpu).unwrap_or(usize::MAX);
    if index >= rustix::thread::CpuSet::MAX_CPU {
        return Err(Stopped::Failed(format!("CPU {cpu} is beyond what one call can bind to")));
    }
    let mut only = rustix::thread::CpuSet::new();
    only.set(index);
    sched_setaffinity(None, &only).map_err(|errno| Stopped::Failed(format!("binding to CPU {cpu}: {errno}")))
}

impl Session {
    /// By a cgroup of its own, or where that is not possible by CPU.
    pub fn begin(
        roots: &Roots,
        files: &mut NodeFiles,
        plan: Arc<Plan>,
        open: &Arc<dyn Open>,
        ownership: &CounterOwnership,
        cpu: u32,
    ) -> Self {
        let attrs = plan.groups.first().map(perf_counters::Group::attrs).unwrap_or_default();
        let counted_by_kernel = |own: Own| {
            let directory = own.directory().map_err(|error| error.to_string())?;
            let opened = open.open(On::Cgroup(&directory), cpu, &attrs).map(drop);
            opened
                .map(|()| own)
                .map_err(|error: OpenError| format!("the kernel does not count this cgroup: {error}"))
        };
        let (cgroup, why) = match Own::make(roots, files).and_then(counted_by_kernel) {
            Ok(own) => (Some(own), None),
            Err(why) => (None, Some(why)),
        };
        let counting = Counting::new(open.clone(), plan, ownership.clone(), MOST_DESCRIPTORS);
        let held = Arc::new(Held(Mutex::new((counting, None))));
        let user: Arc<dyn CounterUser> = held.clone();
        ownership.take_part(&user);
        Self { held, ownership: ownership.clone(), cgroup, why, cpu }
    }

    /// How loops are counted.
    pub fn counted_as(&self) -> CountedAs {
        let mode = if self.cgroup.is_some() { "cgroup" } else { "cpus" };
        CountedAs { mode: mode.to_owned(), why: self.why.clone() }
    }

    /// Goes to another CPU.
    pub fn bind(&mut self, cpu: u32) -> Result<(), Stopped> {
        self.cpu = cpu;
        bind(cpu)
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    fn mode(&self) -> Result<Mode, Stopped> {
        let failed = |error: std::io::Error| Stopped::Failed(error.to_string());
        self.cgroup.as_ref().map_or(Ok(Mode::Cpus), |own| own.directory().map(Mode::Cgroup).map_err(failed))
    }

    /// Counts so many iterations.
    pub fn count(&mut self, ready: &mut Ready, iterations: u64) -> Result<Counted, Stopped> {
        let mode = self.mode()?;
        let cpus: CpuSet = [self.cpu].into_iter().collect();
        let (before, rejected_before) = {
            let mut held = self.held.0.lock();
            let (counting, counted) = &mut *held;
            let mut opened = counting.begin(mode, None);
            counting.open(&mut opened, &cpus);
            counting.read(&mut opened);
            let before = counts(counting, &opened);
            *counted = Some(opened);
            (before, rejected(counting))
        };
        ready.run(iterations);
        let mut held = self.held.0.lock();
        let (counting, counted) = &mut *held;
        let Some(mut opened) = counted.take().filter(|_| !self.ownership.is_yielded()) else {
            return Err(Stopped::Yielded);
        };
        counting.close(&mut opened);
        let mut now = counts(counting, &opened);
        for (quantity, count) in &mut now.counts {
            let known = before.counts.iter().find(|(known, _)| known == quantity);
            *count = count.saturating_sub(known.map_or(0, |(_, count)| *count));
        }
        for (times, before) in now.groups.iter_mut().zip(&before.groups) {
            times.enabled = times.enabled.saturating_sub(before.enabled);
            times.running = times.running.saturating_sub(before.running);
        }
        let newly =
            rejected(counting).into_iter().zip(rejected_before).find(|((_, now), (_, before))| now > before);
        now.rejected = newly.map(|((reason, _), _)| reason);
        Ok(now)
    }
}

fn counts(counting: &Counting, counted: &counting::Counted) -> Counted {
    let counts: Vec<(Quantity, u64)> = counted.tally().quantities(counting.layout()).collect();
    Counted {
        counts,
        groups: counted.tally().groups().collect(),
        not_counted: counted.not_counted(),
        rejected: None,
    }
}

fn rejected(counting: &Counting) -> Vec<(perf_counters::tally::RejectReason, u64)> {
    counting.rejected().collect()
}

/// How many iterations take so long. Runs some first, which also lets the CPU come to its clock.
pub(crate) fn iterations_for(ready: &mut Ready, time: Duration) -> u64 {
    let mut iterations = 16_u64;
    loop {
        let began = Instant::now();
        ready.run(iterations);
        let took = began.elapsed();
        if took >= time / 8 || iterations > u64::MAX / 8 {
            let wanted = time.as_nanos() * u128::from(iterations) / took.as_nanos().max(1);
            return u64::try_from(wanted).unwrap_or(u64::MAX).max(1);
        }
        iterations *= 4;
    }
}
