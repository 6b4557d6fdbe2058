//! The simulation: a node on which jobs start, use resources and end. Time is a parameter, and no file is touched.

mod charge;
mod job_run;
mod schedule;

use self::charge::system_traffic;
use self::schedule::Reservation;
use super::counters::{Counters, Memory, Moved, add_stalls};
use super::cpu_counters::CpuCounters;
use super::gpu::NodeGpus;
use super::group::Group;
use super::job::Job;
use super::layout::CPUS;
use super::machine::Machine;
use super::process::{Io, Process};
use super::profile::Profile;
use super::random::{Random, real, whole};
use super::workloads::{WORKLOADS, Workload};

/// Simulated before the first scrape, so that it shows a busy node.
pub(super) const HISTORY: u64 = 900 * SECOND;
/// Microseconds.
pub(super) const SECOND: u64 = 1_000_000;
/// SLURM's scope below the mount point.
pub(super) const SCOPE: [&str; 2] = ["system.slice", "slurmstepd.scope"];

/// When and how the next job of a kind starts.
#[derive(Debug)]
pub(super) struct WorkloadState {
    pub(super) workload: &'static Workload,
    pub(super) chance: Random,
    /// When the next job may start; `None` while one runs.
    pub(super) ready: Option<u64>,
    /// Id and number of runs of a requeued job.
    pub(super) requeue: Option<(u32, usize)>,
}

/// Changes since the files were last written.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Paths of removed groups.
    pub(super) groups: Vec<String>,
    /// Processes that ended.
    pub(super) pids: Vec<u64>,
    /// The prolog's file of a job; `None` after the epilog removed it.
    pub(super) metadata: Vec<(u32, Option<String>)>,
}

/// The simulated node.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) root: Group,
    pub(super) machine: Machine,
    pub(super) node_gpus: NodeGpus,
    pub(super) cpu_counters: CpuCounters,
    pub(super) jobs: Vec<Job>,
    pub(super) changes: Changes,
    pub(super) workloads: Vec<WorkloadState>,
    pub(super) chance: Random,
    pub(super) speed: f64,
    pub(super) next_id: u32,
    pub(super) reservation: Reservation,
    pub(super) next_pid: u64,
    ticked: u64,
    /// Jobs started so far, in the order of [`WORKLOADS`].
    pub(super) started: [u64; WORKLOADS.len()],
}

impl World {
    /// A node without jobs, booted at `boot` (seconds since the epoch), `now` microseconds ago.
    pub(super) fn new(seed: u64, speed: f64, boot: u64, now: u64) -> Self {
        let workloads = WORKLOADS.iter().zip(0..).map(|(workload, stream)| {
            let mut chance = Random::new(seed, stream);
            // The exporter has to see this job run: it cannot know whether a directory that was left behind before was
            // a job's.
            let late = if workload.profile == Profile::LeftBehind { HISTORY + 15 * SECOND } else { 0 };
            let ready = now + late + whole(chance.between(0.1, 3.0) * real(SECOND));
            WorkloadState { workload, chance, ready: Some(ready), requeue: None }
        });
        let mut chance = Random::new(seed, u64::MAX);
        let mut world = Self {
            now,
            root: Group::default(),
            machine: Machine::new(boot, now),
            cpu_counters: CpuCounters::default(),
            node_gpus: NodeGpus::new(now, Random::new(seed, u64::MAX - 1)),
            jobs: Vec::new(),
            changes: Changes::default(),
            workloads: workloads.collect(),
            // Nodes of other seeds run other jobs.
            next_id: 1_000_000 + u32::try_from(whole(chance.between(0.0, 9e6))).unwrap_or(0),
            chance,
            speed,
            reservation: Reservation::new(now, speed),
            next_pid: 2_000,
            ticked: now,
            started: [0; WORKLOADS.len()],
        };
        world.root = world.services();
        let before = world.root.update_totals().counters;
        let all = world.machine.all.clone();
        world.machine.charge_cpus(&all, before.user, before.system, 0);
        world
    }

    /// The services of a node, and what the node has used since its boot.
    fn services(&mut self) -> Group {
        let now = self.now;
        let mut service = |group: &str, process: &'static str, command: &str, threads, mib: u64| {
            let mut group = Group::new(group);
            group.memory = Memory::of(mib << 20, mib << 19, 0, 0);
            group.own.user = now / 4000;
            group.own.system = now / 5000;
            group.own.page_faults = 40_000;
            group.add_process(Process {
                pid: if process == "systemd" { 1 } else { self.pid(threads) },
                parent: u64::from(process != "systemd"),
                uid: 0,
                name: process,
                cmdline: command.to_owned(),
                threads,
                start_ticks: 1_053,
                user: now / 4000,
                system: now / 5000,
                io: Io::default(),
                resident: mib << 20,
                published: None,
            });
            group
        };
        let init = service("init.scope", "systemd", "/sbin/init\0", 1, 12);
        let slurmd = service("slurmd.service", "slurmd", "/usr/sbin/slurmd\0-D\0-s\0", 6, 24);
        let infinity = service("system", "slurmstepd", "/usr/sbin/slurmstepd\0infinity\0", 1, 4);
        let [slice, scope] = SCOPE;
        let mut scope = Group::new(scope).with([infinity]);
        // Earlier jobs used two thirds of all CPUs.
        scope.own.user = now / 100 * 62 * u64::from(CPUS);
        scope.own.system = now / 100 * 4 * u64::from(CPUS);
        let mut root =
            Group::new("").with([init, Group::new("user.slice"), Group::new(slice).with([slurmd, scope])]);
        root.memory = Memory::of(700 << 20, 9 << 30, 16 << 20, 0);
        root.own.system = now / 200;
        root.own += system_traffic(0, now);
        let days = |per_second: u64| now / SECOND * per_second;
        let disk =
            Io { read_bytes: days(5 << 20), written_bytes: days(8 << 20), reads: days(40), writes: days(16) };
        root.own += Counters {
            io: [disk; 2],
            fabric: Moved { received: days(300 << 20), sent: days(290 << 20) },
            network: Moved { received: days(20 << 10), sent: days(40 << 10) },
            nfs: Io {
                read_bytes: days(12 << 20),
                written_bytes: days(4 << 20),
                reads: days(14),
                writes: days(5),
            },
            nfs_metadata: days(30),
            ..Counters::default()
        };
        root
    }

    /// Reserves ids for a process and its threads, and returns the first.
    fn pid(&mut self, threads: u64) -> u64 {
        let pid = self.next_pid;
        self.next_pid += threads.max(1);
        pid
    }

    /// Processes and threads started since the boot.
    pub(super) fn forks(&self) -> u64 {
        self.next_pid
    }

    pub(super) fn scope(&self) -> Option<&Group> {
        self.root.below(&SCOPE)
    }

    pub(super) fn scope_mut(&mut self) -> Option<&mut Group> {
        self.root.below_mut(&SCOPE)
    }

    /// When the next job changes or starts.
    pub(super) fn due(&self) -> u64 {
        let jobs = self.jobs.iter().map(Job::due);
        jobs.chain(self.workloads.iter().filter_map(|state| state.ready)).min().unwrap_or(u64::MAX)
    }

    /// Advances time to `now` and makes the changes that are due. Each job makes one change at most, so that every change
    /// of a job can be seen before the next one, however late this is called.
    pub(super) fn step(&mut self, now: u64) {
        self.now = self.now.max(now);
        for at in 0..self.jobs.len() {
            if self.jobs.get(at).is_some_and(|job| job.due() <= self.now) {
                self.charge(at);
                self.advance_job(at);
            }
        }
        let ended: Vec<usize> = (0..self.jobs.len())
            .rev()
            .filter(|at| self.jobs.get(*at).is_some_and(|j| j.steps.is_empty() && j.removal_due.is_none()))
            .collect();
        for at in ended {
            self.finish_job(at);
        }
        for at in 0..self.workloads.len() {
            self.start_workload(at);
        }
        self.root.update_totals();
    }

    /// Charges the usage of all jobs and services up to now, and updates averages. Called once a second.
    pub(super) fn tick(&mut self) {
        for at in 0..self.jobs.len() {
            self.charge(at);
        }
        let elapsed = self.now - self.ticked;
        self.ticked = self.now;
        self.charge_services(elapsed);
        let most = self.scope().map_or([[0; 2]; 3], Group::most_stalled);
        let [slice, _] = SCOPE;
        for path in [&[][..], &[slice], &SCOPE] {
            if let Some(group) = self.root.below_mut(path) {
                add_stalls(&mut group.pressure, most);
            }
        }
        self.root.tick(elapsed);
        let totals = self.root.update_totals();
        self.machine.tick(self.now, elapsed, totals.places);
        self.node_gpus.tick(self.now, elapsed);
    }
}
