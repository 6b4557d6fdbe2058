//! The machine's PMU, jobs on it, and work whose instructions are known.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;

use cpu_topology::CpuSet;
use jobledger_testkit::cgroups::{Site, enable_controllers, make_group};
use jobledger_testkit::{kernel_types, skip, tools};
use perf_cgroups::{Divided, Hierarchy, SharedGroup};
use perf_counters::counting::{Counted, Counting, Mode};
use perf_counters::sharing::CounterOwnership;
use perf_counters::{Event, Group, Plan, PlausibilityLimits, Quantity};
use perf_events::{Attr, Counters, Kernel, On, Open, OpenError, Reading};

/// INST_RETIRED and CPU_CYCLES (Arm Architecture Reference Manual, D13.12.3).
pub(crate) const INSTRUCTIONS: u64 = 0x08;
pub(crate) const CYCLES: u64 = 0x11;
/// General counters of the emulated PMU. Cycles have one of their own beside them.
pub(crate) const GENERAL: usize = 6;

/// What is counted in place of other events, each a quantity of its own: the emulated PMU has few.
pub(crate) const STAND_INS: [Quantity; 12] = {
    use perf_counters::CacheLevel::{L1d, L2, L3};
    use perf_counters::Flow::Load;
    [
        Quantity::Instructions,
        Quantity::Branches,
        Quantity::BranchMisses,
        Quantity::CacheReferences(L1d),
        Quantity::CacheReferences(L2),
        Quantity::CacheReferences(L3),
        Quantity::CacheMisses(L1d),
        Quantity::CacheMisses(L2),
        Quantity::CacheMisses(L3),
        Quantity::CacheTraffic { level: L2, flow: Load, each: 1 },
        Quantity::CacheTraffic { level: L3, flow: Load, each: 1 },
        Quantity::MemoryLoads { each: 1 },
    ]
};

/// The PMU of the emulated machine's cores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pmu {
    kind: u32,
}

impl Pmu {
    /// Said where there is none: such a test has to return.
    pub(crate) fn find() -> Option<Self> {
        if std::env::var_os("JOBLEDGER_EMULATED_PMU").is_none() {
            skip("pmu", "the emulated machine of `make pmu` has it");
            return None;
        }
        let devices = fs::read_dir("/sys/bus/event_source/devices").unwrap().flatten();
        let mut cores =
            devices.filter(|device| device.file_name().to_string_lossy().starts_with("armv8_pmuv3"));
        let kind = fs::read_to_string(cores.next().expect("a PMU of the cores").path().join("type")).unwrap();
        Some(Self { kind: kind.trim().parse().unwrap() })
    }

    pub(crate) fn attr(self, event: u64) -> Attr {
        Attr::new(self.kind, event)
    }

    /// A group of its own counters on a CPU, beside those of jobs.
    pub(crate) fn open(self, cpu: u32, events: &[u64]) -> Result<Watched, OpenError> {
        let attrs: Vec<Attr> = events.iter().map(|event| self.attr(*event)).collect();
        Kernel.open(On::Host, cpu, &attrs).map(Watched)
    }

    /// Groups by the number of stand-ins in each, after cycles where it is to begin with them.
    pub(crate) fn plan(self, groups: &[(bool, usize)]) -> Plan {
        let mut stand_ins = STAND_INS.into_iter();
        let event = |quantity: Quantity, event| Event {
            name: format!("{quantity:?}").into(),
            quantity,
            attr: self.attr(event),
            minus: false,
        };
        let groups = groups.iter().enumerate().map(|(number, (cycles, events))| {
            let cycles = cycles.then(|| event(Quantity::Cycles, CYCLES));
            let events = cycles.into_iter().chain(
                stand_ins
                    .by_ref()
                    .take(*events)
                    .map(|quantity| event(quantity, INSTRUCTIONS))
                    .collect::<Vec<_>>(),
            );
            Group {
                name: format!("group_{number}").into(),
                hardware: true,
                cpus: None,
                events: events.collect(),
            }
        });
        Plan {
            microarchitecture: None,
            flops: None,
            groups: groups.collect(),
            absent: Vec::new(),
            limits: PlausibilityLimits { instructions_per_cycle: 24.0, flops_per_cycle: None },
        }
    }
}

/// An open group.
pub(crate) struct Watched(Box<dyn Counters>);

impl Watched {
    pub(crate) fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        self.0.read(&mut reading).unwrap();
        reading
    }
}

/// The hierarchies whose control groups counters are divided by: that of v2, and v1's freezer.
pub(crate) fn hierarchies() -> [Hierarchy; 2] {
    let types = kernel_types().expect("CONFIG_DEBUG_INFO_BTF");
    [Hierarchy::unified(&types).unwrap(), Hierarchy::v1(&types, "freezer").unwrap()]
}

/// A job's control group, with two tasks in a step. On v1 that is the freezer's.
pub(crate) struct Job {
    pub(crate) site: Site,
    pub(crate) directory: PathBuf,
    /// Below a step, what the tasks are in.
    within: &'static str,
}

impl Job {
    pub(crate) fn new(id: u32) -> Self {
        Self::make(true, id)
    }

    pub(crate) fn of(hierarchy: Hierarchy, id: u32) -> Self {
        Self::make(hierarchy.is_unified(), id)
    }

    fn make(unified: bool, id: u32) -> Self {
        let name = format!("job_{id}");
        let (site, within) = if unified {
            (Site::v2("slurmstepd.scope").expect("cgroup2"), "user")
        } else {
            (Site::v1().expect("a freezer"), "")
        };
        let directories = site.job_dirs(&name, 0);
        let counted = |controller: &Option<&str>| controller.is_none_or(|controller| controller == "freezer");
        let directory = directories.iter().find(|(controller, _)| counted(controller)).unwrap().1.clone();
        let job = Self { site, directory, within };
        for group in [job.directory.parent().unwrap(), &job.directory] {
            make_group(group);
            enable_controllers(group);
        }
        job.add_step(0);
        job
    }

    /// Another step, with two tasks, too.
    pub(crate) fn add_step(&self, number: u32) {
        let step = self.step(number);
        for group in [&step, &step.join(self.within)] {
            make_group(group);
            enable_controllers(group);
        }
        (0..2).for_each(|task| make_group(&self.task_of(number, task)));
    }

    pub(crate) fn step(&self, number: u32) -> PathBuf {
        self.directory.join(format!("step_{number}"))
    }

    pub(crate) fn task_of(&self, step: u32, number: u32) -> PathBuf {
        self.step(step).join(self.within).join(format!("task_{number}"))
    }

    /// A task of the first step.
    pub(crate) fn task(&self, number: u32) -> PathBuf {
        self.task_of(0, number)
    }

    /// As slurmstepd does at the end.
    pub(crate) fn remove(&self) {
        let step = self.step(0);
        let mut groups =
            vec![self.task(0), self.task(1), step.join(self.within), step, self.directory.clone()];
        groups.dedup();
        for group in groups {
            jobledger_testkit::eventually("an empty control group", || fs::remove_dir(&group).is_ok());
        }
    }
}

/// What counts a plan for jobs, by events of their control groups.
pub(crate) fn counting(plan: Plan) -> Counting {
    Counting::new(Arc::new(Kernel), Arc::new(plan), CounterOwnership::default(), 4096)
}

/// By events that CPU 0 has, divided in BPF; `steps` if those are to be followed.
pub(crate) fn dividing(hierarchy: Hierarchy, plan: Plan, steps: bool) -> (Arc<Divided>, Counting) {
    let groups =
        plan.groups.iter().map(|group| SharedGroup { events: group.attrs(), cpus: group.cpus.clone() });
    let divided = Arc::new(Divided::new(hierarchy, groups.collect(), 2, steps).unwrap());
    let counting = Counting::new(divided.clone(), Arc::new(plan), CounterOwnership::default(), 4096);
    (divided, counting)
}

/// Opens a job's counters on these CPUs.
pub(crate) fn count(counting: &mut Counting, job: &Job, cpus: &str) -> Counted {
    let mut counted = counting.begin(Mode::Cgroup(File::open(&job.directory).unwrap()), None);
    counting.open(&mut counted, &CpuSet::parse(cpus.as_bytes()).unwrap());
    counted
}

/// What was counted of a quantity.
pub(crate) fn of(counting: &Counting, counted: &Counted, quantity: Quantity) -> Option<u64> {
    let tally = counted.tally();
    tally.quantities(counting.layout()).find(|(known, _)| *known == quantity).map(|(_, count)| count)
}

/// A process that enters a group, executes so many instructions in user mode, and ends.
pub(crate) struct Work {
    pub(crate) instructions: u64,
    pub(crate) bursts: u64,
    pub(crate) pause_us: u64,
}

impl Work {
    pub(crate) const fn of(instructions: u64) -> Self {
        Self { instructions, bursts: 1, pause_us: 0 }
    }

    pub(crate) fn total(&self) -> u64 {
        self.instructions * self.bursts
    }

    pub(crate) fn start(&self, group: &Path) -> Child {
        let mut command = Command::new(tools::tool("burn"));
        command.args([
            format!("--instructions={}", self.instructions),
            format!("--bursts={}", self.bursts),
            format!("--pause-us={}", self.pause_us),
            format!("--enter={}", group.display()),
        ]);
        command.spawn().unwrap()
    }

    pub(crate) fn run(&self, group: &Path) {
        assert!(self.start(group).wait().unwrap().success());
    }
}

/// Fails unless what was counted is what was executed, or up to so many percent more: the kernel works for a job, too.
#[track_caller]
pub(crate) fn assert_counted(counted: Option<u64>, executed: u64, percent: u64) {
    let counted = counted.expect("a count");
    println!(
        "  executed {executed}, counted {counted} ({:+.3} %)",
        (counted as f64 / executed as f64 - 1.0) * 100.0
    );
    assert!(counted >= executed - executed / 1000, "{counted} of {executed}");
    assert!(counted <= executed + executed * percent / 100, "{counted} for {executed}");
}
