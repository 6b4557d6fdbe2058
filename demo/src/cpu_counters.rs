//! The simulated performance counters of each job, and an [`Open`] that stands in for perf_event_open(2).

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use kernel_files::ReadError;
use parking_lot::Mutex;
use perf_counters::{CacheLevel, Flow, Group, Precision, Quantity, SlotPart, Width};
use perf_events::{Attr, Counters, On, Open, OpenError, Reading};

use super::profile::Profile;
use super::random::{real, whole};

/// How a program uses a CPU. Rates are per second of CPU time.
#[derive(Debug, Clone, Copy)]
struct Behaviour {
    /// Instructions per cycle.
    ipc: f64,
    /// Double- and single-precision operations.
    flops: [f64; 2],
    /// Fractions of them in 512-bit and in 256-bit instructions; the rest is scalar.
    wide: [f64; 2],
    /// Branches per instruction, and mispredictions per branch.
    branches: [f64; 2],
    /// Bytes loaded into L1d, into L2, and from memory.
    loads: [f64; 3],
    /// Parts of the pipeline's slots: given up, empty for the front end, for memory, and for the core's own units; the rest is done.
    slots: [f64; 4],
    /// Context switches.
    switches: f64,
    faults: f64,
}

/// Slots of a cycle.
const SLOTS: f64 = 6.0;

/// Cycles and reference cycles of a busy CPU, per second.
const FREQUENCY: f64 = 3.4e9;
const REFERENCE: f64 = 2.9e9;

fn behaviour(profile: Profile) -> Behaviour {
    let script = Behaviour {
        ipc: 1.4,
        flops: [20e6, 1e6],
        wide: [0.0, 0.0],
        branches: [0.2, 0.02],
        loads: [2e9, 0.6e9, 0.15e9],
        slots: [0.09, 0.28, 0.2, 0.16],
        switches: 120.0,
        faults: 400.0,
    };
    match profile {
        // Bound by memory: few operations for many bytes.
        Profile::Busy | Profile::Heterogeneous => Behaviour {
            ipc: 0.9,
            flops: [1.6e9, 0.0],
            wide: [0.1, 0.7],
            branches: [0.08, 0.004],
            loads: [14e9, 7e9, 4.2e9],
            slots: [0.02, 0.05, 0.61, 0.14],
            switches: 40.0,
            faults: 60.0,
        },
        // Bound by arithmetic.
        Profile::Exclusive | Profile::MultiStep => Behaviour {
            ipc: 2.1,
            flops: [21e9, 4e9],
            wide: [0.8, 0.15],
            branches: [0.05, 0.002],
            loads: [20e9, 3e9, 0.7e9],
            slots: [0.01, 0.06, 0.12, 0.38],
            switches: 25.0,
            faults: 30.0,
        },
        Profile::Array | Profile::Requeued => Behaviour {
            ipc: 1.8,
            flops: [2.2e9, 0.2e9],
            wide: [0.0, 0.1],
            branches: [0.12, 0.01],
            loads: [6e9, 1e9, 0.2e9],
            slots: [0.06, 0.14, 0.15, 0.3],
            ..script
        },
        Profile::Training | Profile::LowUse | Profile::Sharing | Profile::OnPart => {
            Behaviour { flops: [5e6, 0.4e9], wide: [0.5, 0.3], switches: 2_500.0, ..script }
        }
        Profile::Pressured => Behaviour { ipc: 0.6, switches: 6_000.0, faults: 12_000.0, ..script },
        Profile::IoHeavy => Behaviour { ipc: 0.7, flops: [0.0, 0.0], switches: 9_000.0, ..script },
        _ => script,
    }
}

/// The counts of one job.
#[derive(Debug, Clone, Default)]
struct JobCounts {
    /// Number of its CPUs.
    cpus: u64,
    /// CPU time, microseconds.
    usec: u64,
    /// Indexed by [`index_of`].
    counts: [f64; KINDS],
}

const KINDS: usize = 24;
const MINOR: usize = 16;

/// The index of a quantity in [`JobCounts::counts`].
fn index_of(quantity: Quantity) -> Option<usize> {
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
        Quantity::TopDown { part, .. } => match part {
            SlotPart::All => 18,
            SlotPart::Retiring => 19,
            SlotPart::BadSpeculation => 20,
            SlotPart::Frontend => 21,
            SlotPart::Memory => 22,
            SlotPart::Backend => 23,
            _ => return None,
        },
        _ => return None,
    })
}

/// Bytes of a cache line, for quantities that count lines.
const LINE: f64 = 64.0;

impl JobCounts {
    fn count(&self, quantity: Quantity) -> f64 {
        let of = |index: usize| self.counts.get(index).copied().unwrap_or(0.0);
        match quantity {
            Quantity::CacheMisses(CacheLevel::L3) => of(15) / LINE,
            Quantity::CacheReferences(CacheLevel::L3) | Quantity::CacheMisses(CacheLevel::L2) => {
                of(13) / LINE
            }
            Quantity::CacheReferences(CacheLevel::L2) | Quantity::CacheMisses(CacheLevel::L1d) => {
                of(11) / LINE
            }
            // Operations that one event counts whatever their precision, by what an instruction does: of these programs double
            // precision in 256 bits; both in 512 and 256 bits; single precision in 512 bits.
            Quantity::Flops { precision: Precision::Any, width: Width::Scalar, .. } => of(5) + of(8),
            Quantity::Flops { precision: Precision::Any, width: Width::Packed, each } => match each {
                4 => of(6) / 4.0,
                8 => (of(7) + of(9)) / 8.0,
                16 => of(10) / 16.0,
                _ => 0.0,
            },
            // Half by what cores ask for, half by what is prefetched into L3, each an event of its own.
            Quantity::MemoryLoads { .. } => of(15) / real(quantity.each()) / 2.0,
            other => index_of(other).map_or(0.0, of) / real(other.each()),
        }
    }

    fn add_work(&mut self, profile: Profile, usec: u64) {
        let behaviour = behaviour(profile);
        let seconds = real(usec) / 1e6;
        let cycles = FREQUENCY * seconds;
        let instructions = cycles * behaviour.ipc;
        let [branches, mispredicted] = behaviour.branches;
        let [widest, wide] = behaviour.wide;
        let [l2, l3, memory] = behaviour.loads;
        let flops =
            behaviour.flops.map(|rate| [1.0 - widest - wide, wide, widest].map(|part| rate * part * seconds));
        let [[a, b, c], [d, e, f]] = flops;
        let [given_up, frontend, memory_slots, units] = behaviour.slots;
        let done = 1.0 - given_up - frontend - memory_slots - units;
        let slots = [1.0, done, given_up, frontend, memory_slots, memory_slots + units]
            .map(|part| part * SLOTS * cycles);
        let more = [
            cycles,
            REFERENCE * seconds,
            instructions,
            instructions * branches,
            instructions * branches * mispredicted,
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
            behaviour.faults * seconds,
            behaviour.switches * seconds,
        ];
        self.usec += usec;
        for (count, more) in self.counts.iter_mut().zip(more.into_iter().chain(slots)) {
            *count += more;
        }
    }
}

/// The counts of all jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuCounters {
    jobs: BTreeMap<u32, JobCounts>,
    /// Ended jobs, the oldest first.
    ended: VecDeque<u32>,
}

/// Ended jobs whose counts are kept: open perf events can be read after the job's end.
const MAX_ENDED: usize = 64;

impl CpuCounters {
    /// Starts a job's counts at 0.
    pub(super) fn job_started(&mut self, job: u32, cpus: usize) {
        let cpus = u64::try_from(cpus).unwrap_or(1).max(1);
        self.ended.retain(|ended| *ended != job);
        self.jobs.insert(job, JobCounts { cpus, ..JobCounts::default() });
    }

    /// Adds `usec` microseconds of a job's work, and page faults beyond the usual ones.
    pub(super) fn add_work(&mut self, job: u32, profile: Profile, usec: u64, faults: f64) {
        if let Some(counts) = self.jobs.get_mut(&job) {
            counts.add_work(profile, usec);
            if let Some(minor) = counts.counts.get_mut(MINOR) {
                *minor += faults;
            }
        }
    }

    /// Keeps a job's counts until [`MAX_ENDED`] more jobs have ended.
    pub(super) fn job_ended(&mut self, job: u32) {
        self.ended.push_back(job);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.jobs.remove(&oldest);
        }
    }
}

/// The counts as the collectors see them.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedCounters(Arc<Mutex<CpuCounters>>);

impl SharedCounters {
    /// The counts of a job, if there are any.
    fn of(&self, job: Option<u32>) -> Option<JobCounts> {
        self.0.lock().jobs.get(&job?).cloned()
    }

    /// Publishes the current counts.
    pub(super) fn publish(&self, cpu_counters: &CpuCounters) {
        self.0.lock().clone_from(cpu_counters);
    }
}

/// Opens counters of jobs, as perf_event_open(2) does.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) shared: SharedCounters,
    /// The groups of the plan: they say which quantity an opened event counts.
    pub(super) groups: Vec<Group>,
    /// How many groups of hardware counters are multiplexed.
    pub(super) turns: u64,
}

struct Opened {
    shared: SharedCounters,
    job: Option<u32>,
    quantities: Vec<Quantity>,
    turns: u64,
    begin: JobCounts,
    last: Reading,
}

impl Opened {
    /// One CPU's part of the job's counts. The simulation does not know the CPU, so all parts are equal.
    fn reading(&self, counts: &JobCounts) -> Option<Reading> {
        let usec = counts.usec.checked_sub(self.begin.usec)?;
        let enabled = usec * 1000 / counts.cpus.max(1);
        let running = enabled / self.turns;
        let part = if usec == 0 { 0.0 } else { real(running) / (real(usec) * 1000.0) };
        let count =
            |quantity: &Quantity| whole((counts.count(*quantity) - self.begin.count(*quantity)) * part);
        Some(Reading { enabled, running, counts: self.quantities.iter().map(count).collect() })
    }
}

impl Counters for Opened {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        // Without counts of the job, its last reading is repeated.
        if let Some(now) = self.shared.of(self.job).and_then(|counts| self.reading(&counts)) {
            // Rounding may make a part smaller by one than before.
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

/// The job of a cgroup's directory, by the directory's name. The kernel adds ` (deleted)` after its removal.
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
            On::Host | On::Everybody => None,
        };
        let begin = self.shared.of(job).unwrap_or_default();
        let quantities: Vec<Quantity> = group.events.iter().map(|event| event.quantity).collect();
        let last = Reading { counts: vec![0; quantities.len()], ..Reading::default() };
        let turns = if group.hardware { self.turns.max(1) } else { 1 };
        Ok(Box::new(Opened { shared: self.shared.clone(), job, quantities, turns, begin, last }))
    }
}

#[cfg(test)]
mod tests {
    use perf_counters::Event;

    use super::*;

    #[test]
    fn the_job_of_an_open_directory_is_known_after_its_removal() {
        let scope = std::env::temp_dir().join(format!("jobledger-cpu-counters-{}", std::process::id()));
        let path = scope.join("job_42");
        std::fs::create_dir_all(&path).unwrap();
        let (job, other) = (File::open(&path).unwrap(), File::open(&scope).unwrap());
        assert_eq!((job_of(&job), job_of(&other)), (Some(42), None));
        std::fs::remove_dir_all(&scope).unwrap();
        assert_eq!(job_of(&job), Some(42));
    }

    /// Events are opened by their attributes; the plan says which quantities they count.
    #[test]
    fn only_groups_of_the_plan_can_be_opened_and_they_count_their_quantities() {
        let event = |config, quantity| Event {
            name: "e".into(),
            quantity,
            attr: Attr::new(Attr::RAW, config),
            minus: false,
        };
        let events = vec![event(1, Quantity::Cycles), event(2, Quantity::Instructions)];
        let groups = vec![Group { name: "g".into(), hardware: true, cpus: None, events }];
        let path =
            std::env::temp_dir().join(format!("jobledger-counted-{}", std::process::id())).join("job_7");
        std::fs::create_dir_all(&path).unwrap();
        let directory = File::open(&path).unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        let (shared, mut cpu_counters) = (SharedCounters::default(), CpuCounters::default());
        cpu_counters.job_started(7, 1);
        shared.publish(&cpu_counters);
        let opener = Opener { shared: shared.clone(), groups, turns: 1 };
        let opens = |attrs: &[Attr]| opener.open(On::Cgroup(&directory), 0, attrs);
        let [cycles, instructions] = [1, 2].map(|config| Attr::new(Attr::RAW, config));
        let mut counters = opens(&[cycles, instructions]).unwrap();
        cpu_counters.add_work(7, Profile::Busy, 1_000_000, 0.0);
        shared.publish(&cpu_counters);
        let mut reading = Reading::default();
        counters.read(&mut reading).unwrap();
        assert_eq!(reading.enabled, 1_000_000_000);
        assert_eq!(reading.counts, [3_400_000_000, 3_060_000_000]);
        assert_eq!(opens(&[instructions]).err(), Some(OpenError::Absent));
    }
}
