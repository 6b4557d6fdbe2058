//! What the simulated CPUs count of jobs, and who opens those counters in the kernel's place.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use kernel_files::ReadError;
use parking_lot::{Mutex, MutexGuard};
use perf_counters::{CacheLevel, Flow, Group, Precision, Quantity, Width};
use perf_events::{Attr, Counters, On, Open, OpenError, Reading};

use super::profile::Profile;
use super::random::{real, whole};

/// How a program uses a CPU, per second of CPU time.
#[derive(Debug, Clone, Copy)]
struct Habits {
    /// Instructions per cycle.
    ipc: f64,
    /// Double- and single-precision operations.
    flops: [f64; 2],
    /// Part of them by instructions of 512 bits, by such of 256; the rest is scalar.
    wide: [f64; 2],
    /// Part of the instructions that are branches, and of those that are foreseen wrongly.
    branches: [f64; 2],
    /// Bytes that come into L1d, into L2, and from memory.
    loads: [f64; 3],
    /// Switches to another thread.
    switches: f64,
    /// Page faults.
    faults: f64,
}

/// Cycles of a busy CPU in a second, and those of its clock of fixed frequency.
const FREQUENCY: f64 = 3.4e9;
const REFERENCE: f64 = 2.9e9;

fn habits(profile: Profile) -> Habits {
    let script = Habits {
        ipc: 1.4,
        flops: [20e6, 1e6],
        wide: [0.0, 0.0],
        branches: [0.2, 0.02],
        loads: [2e9, 0.6e9, 0.15e9],
        switches: 120.0,
        faults: 400.0,
    };
    match profile {
        // Bound by memory: few operations for many bytes.
        Profile::Busy | Profile::Heterogeneous => Habits {
            ipc: 0.9,
            flops: [1.6e9, 0.0],
            wide: [0.1, 0.7],
            branches: [0.08, 0.004],
            loads: [14e9, 7e9, 4.2e9],
            switches: 40.0,
            faults: 60.0,
        },
        // Bound by arithmetic.
        Profile::Exclusive | Profile::MultiStep => Habits {
            ipc: 2.1,
            flops: [21e9, 4e9],
            wide: [0.8, 0.15],
            branches: [0.05, 0.002],
            loads: [20e9, 3e9, 0.7e9],
            switches: 25.0,
            faults: 30.0,
        },
        Profile::Array | Profile::Requeued => Habits {
            ipc: 1.8,
            flops: [2.2e9, 0.2e9],
            wide: [0.0, 0.1],
            branches: [0.12, 0.01],
            loads: [6e9, 1e9, 0.2e9],
            ..script
        },
        Profile::Training | Profile::LowUse | Profile::Sharing | Profile::OnPart => {
            Habits { flops: [5e6, 0.4e9], wide: [0.5, 0.3], switches: 2_500.0, ..script }
        }
        Profile::Pressured => Habits { ipc: 0.6, switches: 6_000.0, faults: 12_000.0, ..script },
        Profile::IoHeavy => Habits { ipc: 0.7, flops: [0.0, 0.0], switches: 9_000.0, ..script },
        _ => script,
    }
}

/// What was counted of a job.
#[derive(Debug, Clone, Default)]
struct Spent {
    /// Its CPUs.
    cpus: u64,
    /// CPU time, microseconds.
    usec: u64,
    /// In the order of [`KINDS`].
    counts: [f64; KINDS],
}

const KINDS: usize = 18;
const MINOR: usize = 16;

/// Where a quantity is counted.
fn kind(quantity: Quantity) -> Option<usize> {
    Some(match quantity {
        Quantity::Cycles => 0,
        Quantity::ReferenceCycles => 1,
        Quantity::Instructions => 2,
        Quantity::Branches => 3,
        Quantity::BranchMisses => 4,
        Quantity::Flops { precision, width, .. } => {
            let first = match precision {
                Precision::Double => 5,
                Precision::Single => 8,
                _ => return None,
            };
            match width {
                Width::Scalar => first,
                Width::Bits(256) => first + 1,
                Width::Bits(512) => first + 2,
                _ => return None,
            }
        }
        Quantity::CacheTraffic { level: CacheLevel::L2, flow: Flow::Load, .. } => 11,
        Quantity::CacheTraffic { level: CacheLevel::L2, flow: Flow::Evict, .. } => 12,
        Quantity::CacheTraffic { level: CacheLevel::L3, flow: Flow::Load, .. } => 13,
        Quantity::CacheTraffic { level: CacheLevel::L3, flow: Flow::Evict, .. } => 14,
        Quantity::MemoryLoads { .. } => 15,
        Quantity::MinorFaults => MINOR,
        Quantity::ContextSwitches => 17,
        _ => return None,
    })
}

/// What is counted of lines and not of bytes is as many lines as make the bytes.
const LINE: f64 = 64.0;

impl Spent {
    fn count(&self, quantity: Quantity) -> f64 {
        let of = |kind: usize| self.counts.get(kind).copied().unwrap_or(0.0);
        match quantity {
            Quantity::CacheMisses(CacheLevel::L3) => of(15) / LINE,
            Quantity::CacheReferences(CacheLevel::L3) | Quantity::CacheMisses(CacheLevel::L2) => {
                of(13) / LINE
            }
            Quantity::CacheReferences(CacheLevel::L2) | Quantity::CacheMisses(CacheLevel::L1d) => {
                of(11) / LINE
            }
            other => kind(other).map_or(0.0, of) / real(other.each()),
        }
    }

    fn run(&mut self, profile: Profile, usec: u64) {
        let habits = habits(profile);
        let seconds = real(usec) / 1e6;
        let cycles = FREQUENCY * seconds;
        let instructions = cycles * habits.ipc;
        let [branches, foreseen_wrongly] = habits.branches;
        let [widest, wide] = habits.wide;
        let [l2, l3, memory] = habits.loads;
        let flops =
            habits.flops.map(|rate| [1.0 - widest - wide, wide, widest].map(|part| rate * part * seconds));
        let [[a, b, c], [d, e, f]] = flops;
        let more = [
            cycles,
            REFERENCE * seconds,
            instructions,
            instructions * branches,
            instructions * branches * foreseen_wrongly,
            a,
            b,
            c,
            d,
            e,
            f,
            l2 * seconds,
            0.4 * l2 * seconds,
            l3 * seconds,
            0.3 * l3 * seconds,
            memory * seconds,
            habits.faults * seconds,
            habits.switches * seconds,
        ];
        self.usec += usec;
        for (count, more) in self.counts.iter_mut().zip(more) {
            *count += more;
        }
    }
}

/// The counters of all jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuCounters {
    jobs: BTreeMap<u32, Spent>,
    /// Those that are over, the oldest first.
    over: VecDeque<u32>,
}

/// Jobs that are over and may be counted still: the kernel keeps what is open.
const KEPT: usize = 64;

impl CpuCounters {
    /// A job begins with counters at 0.
    pub(super) fn begin(&mut self, job: u32, cpus: usize) {
        let cpus = u64::try_from(cpus).unwrap_or(1).max(1);
        self.over.retain(|over| *over != job);
        self.jobs.insert(job, Spent { cpus, ..Spent::default() });
    }

    /// A job worked for so many microseconds, and took page faults beyond its habit.
    pub(super) fn run(&mut self, job: u32, profile: Profile, usec: u64, faults: f64) {
        if let Some(spent) = self.jobs.get_mut(&job) {
            spent.run(profile, usec);
            if let Some(minor) = spent.counts.get_mut(MINOR) {
                *minor += faults;
            }
        }
    }

    /// A job is over.
    pub(super) fn end(&mut self, job: u32) {
        self.over.push_back(job);
        if self.over.len() > KEPT
            && let Some(oldest) = self.over.pop_front()
        {
            self.jobs.remove(&oldest);
        }
    }
}

/// Where the simulation shows its counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown(Arc<Mutex<CpuCounters>>);

impl Shown {
    fn cpu_counters(&self) -> MutexGuard<'_, CpuCounters> {
        self.0.lock()
    }

    /// Shows them as they are now.
    pub(super) fn show(&self, cpu_counters: &CpuCounters) {
        self.cpu_counters().clone_from(cpu_counters);
    }
}

/// Opens them. Groups of hardware counters take turns, so many of them.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) shown: Shown,
    /// The groups that are counted: they say what is meant by the events that are opened.
    pub(super) groups: Vec<Group>,
    pub(super) turns: u64,
}

struct Opened {
    shown: Shown,
    job: Option<u32>,
    quantities: Vec<Quantity>,
    turns: u64,
    begin: Spent,
    last: Reading,
}

impl Opened {
    /// An equal part of what the job did: the simulation does not say on which of its CPUs.
    fn reading(&self, spent: &Spent) -> Option<Reading> {
        let usec = spent.usec.checked_sub(self.begin.usec)?;
        let enabled = usec * 1000 / spent.cpus.max(1);
        let running = enabled / self.turns;
        let part = if usec == 0 { 0.0 } else { real(running) / (real(usec) * 1000.0) };
        let count =
            |quantity: &Quantity| whole((spent.count(*quantity) - self.begin.count(*quantity)) * part);
        Some(Reading { enabled, running, counts: self.quantities.iter().map(count).collect() })
    }
}

impl Counters for Opened {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        let spent = self.job.and_then(|job| self.shown.cpu_counters().jobs.get(&job).cloned());
        // Those of a job that is gone stay as they were.
        if let Some(now) = spent.and_then(|spent| self.reading(&spent)) {
            // A share of a mean may be less by one than it was.
            for (count, before) in self.last.counts.iter_mut().zip(&now.counts) {
                *count = (*count).max(*before);
            }
            self.last.enabled = self.last.enabled.max(now.enabled);
            self.last.running = self.last.running.max(now.running);
        }
        into.clone_from(&self.last);
        Ok(())
    }
}

/// The job whose group this is, by the name of its directory. One that was removed has its last name.
fn job_of(directory: &File) -> Option<u32> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?;
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(" (deleted)").unwrap_or(name).strip_prefix("job_")?.parse().ok()
}

impl Open for Opener {
    fn open(&self, on: On<'_>, _cpu: u32, attrs: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let group = self.groups.iter().find(|group| group.attrs() == attrs).ok_or(OpenError::Absent)?;
        let job = match on {
            On::Cgroup(directory) => job_of(directory),
            On::Everybody => None,
        };
        let begin = job.and_then(|job| self.shown.cpu_counters().jobs.get(&job).cloned()).unwrap_or_default();
        let quantities: Vec<Quantity> = group.events.iter().map(|event| event.quantity).collect();
        let last = Reading { counts: vec![0; quantities.len()], ..Reading::default() };
        let turns = if group.hardware { self.turns.max(1) } else { 1 };
        Ok(Box::new(Opened { shown: self.shown.clone(), job, quantities, turns, begin, last }))
    }
}

#[cfg(test)]
mod tests {
    use perf_counters::Event;

    use super::*;

    #[test]
    fn a_group_is_its_jobs_by_the_directory_that_is_held_also_after_its_removal() {
        let scope = std::env::temp_dir().join(format!("jobledger-chip-{}", std::process::id()));
        let path = scope.join("job_42");
        std::fs::create_dir_all(&path).unwrap();
        let (job, other) = (File::open(&path).unwrap(), File::open(&scope).unwrap());
        assert_eq!((job_of(&job), job_of(&other)), (Some(42), None));
        std::fs::remove_dir_all(&scope).unwrap();
        assert_eq!(job_of(&job), Some(42));
    }

    /// What is opened are bare events; the plan says which quantities they are.
    #[test]
    fn events_of_the_plans_groups_count_their_quantities_and_no_others_are_there() {
        let event =
            |config, quantity| Event { name: "e".into(), quantity, attr: Attr::new(Attr::RAW, config) };
        let events = vec![event(1, Quantity::Cycles), event(2, Quantity::Instructions)];
        let groups = vec![Group { name: "g".into(), hardware: true, cpus: None, events }];
        let path = std::env::temp_dir().join(format!("jobledger-chips-{}", std::process::id())).join("job_7");
        std::fs::create_dir_all(&path).unwrap();
        let directory = File::open(&path).unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let (shown, mut cpu_counters) = (Shown::default(), CpuCounters::default());
        cpu_counters.begin(7, 1);
        shown.show(&cpu_counters);
        let opener = Opener { shown: shown.clone(), groups, turns: 1 };
        let opens = |attrs: &[Attr]| opener.open(On::Cgroup(&directory), 0, attrs);
        let [cycles, instructions] = [1, 2].map(|config| Attr::new(Attr::RAW, config));
        let mut counters = opens(&[cycles, instructions]).unwrap();
        cpu_counters.run(7, Profile::Busy, 1_000_000, 0.0);
        shown.show(&cpu_counters);
        let mut reading = Reading::default();
        counters.read(&mut reading).unwrap();
        assert_eq!(reading.enabled, 1_000_000_000);
        assert_eq!(reading.counts, [3_400_000_000, 3_060_000_000]);
        assert_eq!(opens(&[instructions]).err(), Some(OpenError::Absent));
    }
}
