//! Counters of jobs: what opening, reading and closing them costs beside the bare calls, what a scrape's part is with many
//! jobs, and what being counted costs the job.
//!
//! The kernel's own events stand in for a PMU's where there is none: the kernel's part (groups, cgroup switches,
//! interrupts of the CPU that counts) is the same, and the writes to the PMU's registers come on top.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use jobledger_testkit::cgroups::{Site, attach, cgroup2_mount, make_group};
use perf_counters::counting::{Counted, Counting, Mode};
use perf_counters::sharing::CounterOwnership;
use perf_counters::{Event, Group, Plan, PlausibilityLimits, Quantity};
use perf_events::{Attr, Kernel, On, Open};

use crate::stats::{median, row};

const ROUNDS: usize = 200;
const JOBS: [u32; 4] = [1, 10, 100, 200];

/// Four groups of four events.
fn plan() -> Plan {
    let event = |config| Event {
        name: "event".into(),
        quantity: Quantity::ContextSwitches,
        attr: Attr::new(Attr::SOFTWARE, config),
        minus: false,
    };
    let group = |number: u32| Group {
        name: format!("group {number}").into(),
        hardware: false,
        cpus: None,
        events: [3, 4, 5, 6].map(event).to_vec(),
    };
    let limits = PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None };
    Plan {
        microarchitecture: None,
        flops: None,
        groups: (0..4).map(group).collect(),
        absent: Vec::new(),
        limits,
    }
}

fn two_cpus() -> CpuSet {
    CpuSet::parse(b"0-1").unwrap()
}

fn home() -> PathBuf {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    cgroup2_mount().unwrap().join(own)
}

/// What is done by this process in a group.
fn inside<T>(group: &Path, work: impl FnOnce() -> T) -> T {
    let home = home();
    attach(group, std::process::id()).unwrap();
    let done = work();
    attach(&home, std::process::id()).unwrap();
    done
}

fn wall(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e6
}

fn job(site: &Site, id: u32) -> PathBuf {
    let dir = site.job_dir(&format!("job_{id}"), 0);
    make_group(&dir);
    dir
}

fn counting() -> Counting {
    Counting::new(Arc::new(Kernel), Arc::new(plan()), CounterOwnership::default(), 1 << 20)
}

fn begin(counting: &mut Counting, group: &Path) -> Counted {
    let mut counted = counting.begin(Mode::Cgroup(File::open(group).unwrap()), None);
    counting.open(&mut counted, &two_cpus());
    assert_eq!(counted.not_counted(), None);
    counted
}

pub(crate) fn measure() {
    let site = Site::v2("slurmstepd.scope").expect("a cgroup2 mount");
    println!("\n## Counters\n");
    println!("Four groups of four of the kernel's own events on two CPUs: 32 descriptors per job.\n");
    descriptors(&site);
    scrapes(&site);
    work(&site);
}

/// Wall time per descriptor, since the kernel works on other CPUs, too.
fn descriptors(site: &Site) {
    let group = job(site, 1);
    let directory = File::open(&group).unwrap();
    let plan = plan();
    let (mut open, mut read, mut close) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_open, mut bare_read, mut bare_close) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut counting = counting();
        let mut counted = None;
        open.push(wall(|| counted = Some(begin(&mut counting, &group))) / 32.0);
        let mut counted = counted.unwrap();
        read.push(wall(|| counting.read(&mut counted)) / 32.0);
        // With its last reading.
        close.push(wall(|| counting.close(&mut counted)) / 32.0);
        let mut all = Vec::new();
        bare_open.push(
            wall(|| {
                for cpu in 0..2 {
                    for group in &plan.groups {
                        all.push(Kernel.open(On::Cgroup(&directory), cpu, &group.attrs()).unwrap());
                    }
                }
            }) / 32.0,
        );
        let mut reading = Default::default();
        bare_read.push(wall(|| all.iter_mut().for_each(|one| one.read(&mut reading).unwrap())) / 32.0);
        bare_close.push(wall(|| all.clear()) / 32.0);
    }
    println!("Of a job at rest, per descriptor, microseconds; bare is the calls alone:\n");
    row(&["", "bare", "here", "ratio"]);
    row(&["---", "---:", "---:", "---:"]);
    for (what, mut bare, mut here) in [
        ("open", bare_open, open),
        ("read", bare_read, read),
        ("read a last time and close", bare_close, close),
    ] {
        let (bare, here) = (median(&mut bare), median(&mut here));
        row(&[what, &format!("{bare:.2}"), &format!("{here:.2}"), &format!("{:.2}", here / bare)]);
    }
}

/// All jobs read once, against the bare reads of as many descriptors.
fn scrapes(site: &Site) {
    println!("\nReading all jobs once, microseconds:\n");
    row(&["jobs", "descriptors", "bare", "here", "ratio"]);
    row(&["---:"; 5]);
    for jobs in JOBS {
        let groups: Vec<PathBuf> = (1..=jobs).map(|id| job(site, id)).collect();
        let mut counting = counting();
        let mut all: Vec<Counted> = groups.iter().map(|group| begin(&mut counting, group)).collect();
        let mut bare = Vec::new();
        for group in &groups {
            let directory = File::open(group).unwrap();
            for (cpu, group) in
                (0..2).flat_map(|cpu| plan().groups.into_iter().map(move |group| (cpu, group)))
            {
                bare.push(Kernel.open(On::Cgroup(&directory), cpu, &group.attrs()).unwrap());
            }
        }
        let (mut ones, mut others, mut reading) = (Vec::new(), Vec::new(), Default::default());
        for _ in 0..ROUNDS.min(20_000 / jobs as usize) {
            ones.push(wall(|| bare.iter_mut().for_each(|one| one.read(&mut reading).unwrap())));
            others.push(wall(|| all.iter_mut().for_each(|counted| counting.read(counted))));
        }
        let (one, other) = (median(&mut ones), median(&mut others));
        row(&[
            &jobs.to_string(),
            &(jobs * 32).to_string(),
            &format!("{one:.0}"),
            &format!("{other:.0}"),
            &format!("{:.2}", other / one),
        ]);
        all.iter_mut().for_each(|counted| counting.close(counted));
    }
}

const TURNS: u32 = 4000;

/// Somebody in another group, on the same CPU: each byte to and fro is two switches from one group to another.
struct Other {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Other {
    fn start() -> Self {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn switch(&mut self) {
        let mut byte = [0];
        for _ in 0..TURNS {
            self.to.write_all(&byte).unwrap();
            self.from.read_exact(&mut byte).unwrap();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compute() {
    let end = Instant::now() + Duration::from_millis(1);
    let mut x = 1_u64;
    for n in 0..20_000_000_u64 {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n));
    }
    assert!(x != 0 && Instant::now() > end);
}

/// The same work counted and not, in turn, all of it on one CPU.
fn work(site: &Site) {
    let group = job(site, 1);
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
    println!("\nWhat a job's work takes, milliseconds:\n");
    row(&["work", "not counted", "4 events", "16 events", "ratio with 4", "with 16"]);
    row(&["---", "---:", "---:", "---:", "---:", "---:"]);
    let mut other = Other::start();
    let works: [(&str, &mut dyn FnMut()); 2] =
        [("8000 switches between groups", &mut || other.switch()), ("computing", &mut compute)];
    for (what, work) in works {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..25 {
            for (groups, times) in [0, 1, 4].into_iter().zip(&mut times) {
                let plan = Plan { groups: plan().groups.into_iter().take(groups).collect(), ..plan() };
                let mut counting =
                    Counting::new(Arc::new(Kernel), Arc::new(plan), CounterOwnership::default(), 1 << 20);
                let mut counted = counting.begin(Mode::Cgroup(File::open(&group).unwrap()), None);
                counting.open(&mut counted, &two_cpus());
                times.push(inside(&group, || wall(&mut *work)) / 1000.0);
                counting.close(&mut counted);
            }
        }
        let [without, four, sixteen] = times.map(|mut times| median(&mut times));
        row(&[
            what,
            &format!("{without:.2}"),
            &format!("{four:.2}"),
            &format!("{sixteen:.2}"),
            &format!("{:.3}", four / without),
            &format!("{:.3}", sixteen / without),
        ]);
    }
    rustix::thread::sched_setaffinity(None, &before).unwrap();
}
