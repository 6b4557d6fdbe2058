//! How soon counters are off, and closed, when LIKWID's lock is given to a user: 512 hardware threads and the largest plan.
//!
//! Where there are fewer CPUs each of them stands for many, and all their counters are open on it. The kernel's own events stand for a
//! PMU's. The floor is the calls alone, by one thread.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use jobledger_testkit::cgroups::{OwnedGroup, attach, cgroup2_mount, make_group};
use jobledger_testkit::eventually;
use kernel_files::ReadError;
use parking_lot::Mutex;
use perf_cgroups::{Divided, Hierarchy, SharedGroup};
use perf_counters::catalogue::{Catalogue, Class, Extent};
use perf_counters::counting::{Counted, Counting, Mode};
use perf_counters::planner::{Machine, plan};
use perf_counters::sharing::{CounterOwnership, CounterUser, Lock};
use perf_counters::{Group, Plan};
use perf_events::{Attr, Counters, Kernel, On, Open, OpenError, Reading, disable, open_group};
use rustix::process::{Resource, getrlimit};

use crate::stats::{median, row};

const THREADS: usize = 512;
const JOBS: usize = 4;
/// Descriptors for everything else.
const RESERVE: usize = 1000;
const ROUNDS: usize = 9;

/// The plan with the most events of all microarchitectures, with the kernel's clock in place of each event of a PMU.
fn largest() -> (String, Plan) {
    let catalogue = Catalogue::built_in();
    let full = |name: &str| {
        let machine = Machine::assumed(&catalogue, name, true, true).unwrap();
        (name.to_owned(), plan(&machine, &catalogue, Extent::Full, &Class::ALL))
    };
    let all = catalogue.names().map(full);
    let (name, mut plan) = all.max_by_key(|(_, plan)| plan.events()).unwrap();
    for event in plan.groups.iter_mut().flat_map(|group| &mut group.events) {
        if event.attr.kind != Attr::SOFTWARE {
            event.attr = Attr::new(Attr::SOFTWARE, 0);
        }
    }
    (name, plan)
}

/// When the last group was stopped and closed, and the first one stopped, nanoseconds since the clock's start.
struct Clock {
    begin: Instant,
    first: AtomicU64,
    off: AtomicU64,
    closed: AtomicU64,
}

impl Clock {
    fn start() -> Arc<Self> {
        let (first, off, closed) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { begin: Instant::now(), first, off, closed })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap()
    }

    fn is_off(&self) {
        self.first.fetch_min(self.now(), Ordering::Relaxed);
        self.off.fetch_max(self.now(), Ordering::Relaxed);
    }
}

/// Opens events of any CPU on those that there are.
struct Folded {
    cpus: u32,
    clock: Arc<Clock>,
}

struct Timed {
    counters: Option<Box<dyn Counters>>,
    clock: Arc<Clock>,
}

impl Open for Folded {
    fn open(&self, on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let counters = Some(Kernel.open(on, cpu % self.cpus, group)?);
        Ok(Box::new(Timed { counters, clock: self.clock.clone() }))
    }
}

impl Counters for Timed {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        self.counters.as_mut().unwrap().read(into)
    }

    fn stop(&mut self) {
        self.counters.as_mut().unwrap().stop();
        self.clock.is_off();
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        drop(self.counters.take());
        self.clock.closed.fetch_max(self.clock.now(), Ordering::Relaxed);
    }
}

/// What the collector does with the counters of its jobs.
struct User(Mutex<(Counting, Vec<Counted>)>);

impl CounterUser for User {
    fn release(&self) -> bool {
        let (counting, jobs) = &mut *self.0.lock();
        counting.release(jobs.iter_mut());
        true
    }

    fn resume(&self) {}
}

/// Counters of CPUs, divided in BPF.
struct DividedUser(Divided, Arc<Clock>);

impl CounterUser for DividedUser {
    fn release(&self) -> bool {
        self.0.release();
        self.1.closed.fetch_max(self.1.now(), Ordering::Relaxed);
        true
    }

    fn resume(&self) {}
}

/// Hardware threads of each job: fewer where this process may not have so many descriptors.
fn share(plan: &Plan) -> usize {
    let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
    THREADS.min(most.saturating_sub(RESERVE) / plan.events()) / JOBS
}

/// The jobs' control groups, and a process on each CPU that computes in one of them.
struct Jobs {
    _top: OwnedGroup,
    groups: Vec<PathBuf>,
    busy: Vec<Child>,
}

impl Jobs {
    fn new() -> Self {
        let top = OwnedGroup::below(&cgroup2_mount().unwrap(), "hand-over");
        let group = |number| {
            let group = top.path().join(format!("job_{number}"));
            make_group(&group);
            group
        };
        Self { groups: (0..JOBS).map(group).collect(), _top: top, busy: Vec::new() }
    }

    fn compute(&mut self, cpus: u32) {
        for (cpu, group) in (0..cpus).zip(self.groups.iter().cycle()) {
            let mut shell = Command::new("taskset");
            shell.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]).stdin(Stdio::null());
            let child = shell.spawn().unwrap();
            attach(group, child.id()).unwrap();
            self.busy.push(child);
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for child in &mut self.busy {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn cpus() -> u32 {
    u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap()
}

/// A lock of the exporter's, watched; given to a user with the returned call.
fn watched(scratch: &Path, ownership: &CounterOwnership) -> (Lock, impl Fn()) {
    let path = scratch.join("likwid.lock");
    let _ = fs::remove_file(&path);
    fs::write(&path, "").unwrap();
    let lock = Lock::new(&path, ownership.clone()).unwrap();
    lock.watch();
    assert!(lock.look().is_ours());
    (lock, move || chown(&path, Some(1234), None).unwrap())
}

/// Milliseconds from the request to the first group that is off, to the last one, and to the last descriptor that is closed.
fn hand_over(plan: &Plan, jobs: &Jobs, scratch: &Path) -> [f64; 3] {
    let ownership = CounterOwnership::default();
    let clock = Clock::start();
    let open = Arc::new(Folded { cpus: cpus(), clock: clock.clone() });
    let mut counting = Counting::new(open, Arc::new(plan.clone()), ownership.clone(), 1 << 20);
    let share = share(plan);
    let opened = jobs.groups.iter().zip(0..).map(|(group, number)| {
        let mut counted = counting.begin(Mode::Cgroup(File::open(group).unwrap()), None);
        let own = format!("{}-{}", number * share, (number + 1) * share - 1);
        counting.open(&mut counted, &CpuSet::parse(own.as_bytes()).unwrap());
        assert_eq!(counted.not_counted(), None);
        counted
    });
    let opened = opened.collect();
    let user: Arc<dyn CounterUser> = Arc::new(User(Mutex::new((counting, opened))));
    ownership.take_part(&user);
    let (_lock, request) = watched(scratch, &ownership);
    let asked = clock.now();
    request();
    eventually("all are closed", || {
        ownership.ownership_status().yields == 1 && !ownership.ownership_status().held_up
    });
    [&clock.first, &clock.off, &clock.closed].map(|at| millis(at.load(Ordering::Relaxed) - asked))
}

/// The same with counters of the CPUs that there are, divided in BPF: to the last descriptor that is closed.
fn divided(plan: &Plan, scratch: &Path) -> f64 {
    let shared = |group: &Group| SharedGroup { events: group.attrs(), cpus: None };
    let types = jobledger_testkit::kernel_types().unwrap();
    let divided = Divided::new(
        Hierarchy::unified(&types).unwrap(),
        plan.groups.iter().map(shared).collect(),
        cpus(),
        false,
    )
    .unwrap();
    divided.prepare(0..cpus(), || false).unwrap();
    let (ownership, clock) = (CounterOwnership::default(), Clock::start());
    let user: Arc<dyn CounterUser> = Arc::new(DividedUser(divided, clock.clone()));
    ownership.take_part(&user);
    let (_lock, request) = watched(scratch, &ownership);
    let asked = clock.now();
    request();
    eventually("all are closed", || clock.closed.load(Ordering::Relaxed) > 0);
    millis(clock.closed.load(Ordering::Relaxed) - asked)
}

/// The calls alone, by one thread: to the last group that is off, and to the last descriptor that is closed.
fn bare(plan: &Plan, jobs: &Jobs) -> [f64; 2] {
    let mut open = Vec::new();
    for directory in &jobs.groups {
        let directory = File::open(directory).unwrap();
        for cpu in (0..cpus()).cycle().take(share(plan)) {
            for group in &plan.groups {
                open.push(open_group(On::Cgroup(&directory), cpu, &group.attrs()).unwrap());
            }
        }
    }
    let begun = Instant::now();
    open.iter().for_each(|group| disable(&group[0]).unwrap());
    let off = begun.elapsed();
    drop(open);
    [off, begun.elapsed()].map(|passed| passed.as_secs_f64() * 1e3)
}

fn millis(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3
}

pub(crate) fn measure() {
    let (name, plan) = largest();
    let scratch = std::env::temp_dir().join(format!("jobledger-hand-over-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let threads = JOBS * share(&plan);
    println!("\n## LIKWID's lock is given to a user\n");
    println!(
        "{threads} hardware threads on {} CPUs, {JOBS} jobs, the full plan of {name}: {} descriptors in {} groups.\n",
        cpus(),
        threads * plan.events(),
        threads * plan.groups.len(),
    );
    println!(
        "Milliseconds from the change of owner; median, and the worst of {ROUNDS}. Bare is the calls alone, by one thread.\n"
    );
    row(&["", "first is off", "all are off", "worst", "all are closed", "worst", "bare: off", "closed"]);
    row(&["---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"]);
    let mut jobs = Jobs::new();
    for what in ["jobs at rest", "jobs that compute on each CPU"] {
        let (mut here, mut calls): ([Vec<f64>; 3], [Vec<f64>; 2]) = Default::default();
        for _ in 0..ROUNDS {
            here.iter_mut().zip(hand_over(&plan, &jobs, &scratch)).for_each(|(all, one)| all.push(one));
            calls.iter_mut().zip(bare(&plan, &jobs)).for_each(|(all, one)| all.push(one));
        }
        let shown = |all: &mut Vec<f64>| format!("{:.1}", median(all));
        let worst = |all: &[f64]| format!("{:.1}", all.iter().copied().fold(0.0, f64::max));
        let [first, off, closed] = &mut here;
        let [bare_off, bare_closed] = &mut calls;
        row(&[
            what,
            &format!("{:.2}", median(first)),
            &shown(off),
            &worst(off),
            &shown(closed),
            &worst(closed),
            &shown(bare_off),
            &shown(bare_closed),
        ]);
        if jobs.busy.is_empty() {
            jobs.compute(cpus());
        }
    }
    println!(
        "\nDivided in BPF, the {} CPUs that there are, {} descriptors:\n",
        cpus(),
        cpus() as usize * (plan.events() + 1)
    );
    row(&["", "all are closed", "worst"]);
    row(&["---", "---:", "---:"]);
    let mut all: Vec<f64> = (0..ROUNDS).map(|_| divided(&plan, &scratch)).collect();
    let worst = all.iter().copied().fold(0.0, f64::max);
    row(&["jobs that compute on each CPU", &format!("{:.2}", median(&mut all)), &format!("{worst:.2}")]);
    fs::remove_dir_all(&scratch).unwrap();
}
