//! The simulation: a node on which jobs come, spend and go. Time is a parameter, and nothing here touches a file.

mod job_run;
mod schedule;
mod spend;

use self::schedule::Reservation;
use self::spend::system_traffic;
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
use super::workloads::{Traits, WORKLOADS};

/// Simulated before anybody looks, so that the first look shows something.
pub(super) const HISTORY: u64 = 900 * SECOND;
/// Microseconds.
pub(super) const SECOND: u64 = 1_000_000;
/// SLURM's scope below the mount point.
pub(super) const SCOPE: [&str; 2] = ["system.slice", "slurmstepd.scope"];

/// A kind of job that starts again when it is over.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) traits: &'static Traits,
    pub(super) chance: Random,
    /// When it may start; `None` while it runs.
    pub(super) ready: Option<u64>,
    /// Id to start again with.
    pub(super) requeue: Option<(u32, usize)>,
}

/// What happened to files that are not groups since somebody asked.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Paths of groups that were removed.
    pub(super) groups: Vec<String>,
    /// Processes that ended.
    pub(super) pids: Vec<u64>,
    /// What the prolog wrote for a job, `None` for what the epilog removed.
    pub(super) metadata: Vec<(u32, Option<String>)>,
}

/// The node.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) root: Group,
    pub(super) machine: Machine,
    pub(super) node_gpus: NodeGpus,
    pub(super) cpu_counters: CpuCounters,
    pub(super) jobs: Vec<Job>,
    pub(super) changes: Changes,
    pub(super) workloads: Vec<Role>,
    pub(super) chance: Random,
    pub(super) speed: f64,
    pub(super) next_id: u32,
    pub(super) reservation: Reservation,
    pub(super) next_pid: u64,
    ticked: u64,
    /// Jobs started since the beginning, by kind.
    pub(super) started: [u64; WORKLOADS.len()],
}

impl World {
    /// A node that was booted at `boot` (seconds since the epoch) `now` microseconds ago, without a job yet.
    pub(super) fn new(seed: u64, speed: f64, boot: u64, now: u64) -> Self {
        let workloads = WORKLOADS.iter().zip(0..).map(|(traits, stream)| {
            let mut chance = Random::new(seed, stream);
            // The one that goes wrong does so when somebody looks: of a directory that was left behind before, nobody
            // knows whether it was a job's.
            let late = if traits.profile == Profile::LeftBehind { HISTORY + 15 * SECOND } else { 0 };
            let ready = now + late + whole(chance.between(0.1, 3.0) * real(SECOND));
            Role { traits, chance, ready: Some(ready), requeue: None }
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
        let before = world.root.settle().counters;
        let all = world.machine.all.clone();
        world.machine.spend(&all, before.user, before.system, 0);
        world
    }

    /// What runs on a node beside jobs, and what was spent since the boot.
    fn services(&mut self) -> Group {
        let now = self.now;
        let mut service = |group: &str, process: &'static str, command: &str, threads, mib: u64| {
            let mut group = Group::new(group);
            group.memory = Memory::of(mib << 20, mib << 19, 0, 0);
            group.own.user = now / 4000;
            group.own.system = now / 5000;
            group.own.page_faults = 40_000;
            group.admit(Process {
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
        // Jobs of the days before: two thirds of all CPUs.
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

    /// Ids for a process and its further threads.
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

    /// When something happens next that is not the mere passing of time.
    pub(super) fn due(&self) -> u64 {
        let jobs = self.jobs.iter().map(Job::due);
        jobs.chain(self.workloads.iter().filter_map(|role| role.ready)).min().unwrap_or(u64::MAX)
    }

    /// Lets time pass up to `now` and does what is due. What follows from that is due later: each change of a
    /// job's run can be seen before the next one, however late this is called.
    pub(super) fn step(&mut self, now: u64) {
        self.now = self.now.max(now);
        for at in 0..self.jobs.len() {
            if self.jobs.get(at).is_some_and(|job| job.due() <= self.now) {
                self.charge(at);
                self.advance_job(at);
            }
        }
        let over: Vec<usize> = (0..self.jobs.len())
            .rev()
            .filter(|at| self.jobs.get(*at).is_some_and(|j| j.steps.is_empty() && j.swept.is_none()))
            .collect();
        for at in over {
            self.finish_job(at);
        }
        for role in 0..self.workloads.len() {
            self.start(role);
        }
        self.root.settle();
    }

    /// Books everybody's spending up to now: what is done once a second.
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
        let totals = self.root.settle();
        self.machine.tick(self.now, elapsed, totals.places);
        self.node_gpus.tick(self.now, elapsed);
    }
}
