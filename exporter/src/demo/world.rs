//! The simulation: a node on which jobs come, spend and go. Time is a parameter, and nothing here touches a file.

use std::sync::Arc;

use super::cast::{CAST, Profile, Traits, USERS};
use super::group::{Group, Memory, add_stalls, stalls};
use super::job::{Job, Planned, Stage, Step, plan};
use super::machine::{CPUS, Machine};
use super::process::{Io, Process};
use super::random::{Random, real, whole};

/// Microseconds.
pub(super) const SECOND: u64 = 1_000_000;
/// How long the directory that SLURM left behind stays; not shortened, so that it is seen as what it is.
const LEFT_BEHIND: u64 = 1200 * SECOND;

/// SLURM's scope below the mount point.
pub(super) const SCOPE: [&str; 2] = ["system.slice", "slurmstepd.scope"];

/// A kind of job that starts again when it is over.
#[derive(Debug)]
struct Role {
    traits: &'static Traits,
    chance: Random,
    /// When it may start; `None` while it runs.
    ready: Option<u64>,
    /// Id to start again with.
    requeue: Option<(u32, usize)>,
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
    pub(super) jobs: Vec<Job>,
    pub(super) changes: Changes,
    cast: Vec<Role>,
    chance: Random,
    speed: f64,
    next_id: u32,
    next_pid: u64,
    ticked: u64,
    /// Jobs started since the beginning, by kind.
    pub(super) started: [u64; CAST.len()],
}

impl World {
    /// A node that was booted at `boot` (seconds since the epoch) `now` microseconds ago, without a job yet.
    pub(super) fn new(seed: u64, speed: f64, boot: u64, now: u64) -> Self {
        let cast = CAST.iter().zip(0..).map(|(traits, stream)| {
            let mut chance = Random::new(seed, stream);
            // The one that goes wrong does so after a while.
            let late = if traits.profile == Profile::LeftBehind { 90.0 / speed } else { 0.0 };
            let ready = now + whole((late + chance.between(0.1, 3.0)) * real(SECOND));
            Role { traits, chance, ready: Some(ready), requeue: None }
        });
        let mut chance = Random::new(seed, u64::MAX);
        let mut world = Self {
            now,
            root: Group::default(),
            machine: Machine::new(boot, now),
            jobs: Vec::new(),
            changes: Changes::default(),
            cast: cast.collect(),
            // Nodes of other seeds run other jobs.
            next_id: 1_000_000 + u32::try_from(whole(chance.between(0.0, 9e6))).unwrap_or(0),
            chance,
            speed,
            next_pid: 2_000,
            ticked: now,
            started: [0; CAST.len()],
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
        SCOPE.iter().try_fold(&self.root, |group, name| group.child(name))
    }

    fn scope_mut(&mut self) -> Option<&mut Group> {
        self.root.below_mut(&SCOPE)
    }

    /// When something happens next that is not the mere passing of time.
    pub(super) fn due(&self) -> u64 {
        let jobs = self.jobs.iter().map(Job::due);
        jobs.chain(self.cast.iter().filter_map(|role| role.ready)).min().unwrap_or(u64::MAX)
    }

    /// Lets time pass up to `now` and does what is due. What follows from that is due later: each change of a
    /// job's life can be seen before the next one, however late this is called.
    pub(super) fn step(&mut self, now: u64) {
        self.now = self.now.max(now);
        for at in 0..self.jobs.len() {
            if self.jobs.get(at).is_some_and(|job| job.due() <= self.now) {
                self.charge(at);
                self.attend(at);
            }
        }
        let over: Vec<usize> = (0..self.jobs.len())
            .rev()
            .filter(|at| self.jobs.get(*at).is_some_and(|j| j.steps.is_empty() && j.swept.is_none()))
            .collect();
        for at in over {
            self.bury(at);
        }
        for role in 0..self.cast.len() {
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
        self.root.settle();
        self.machine.tick(self.now, elapsed);
    }

    fn charge_services(&mut self, elapsed: u64) {
        let (user, system) = (elapsed / 4000, elapsed / 5000);
        let [slice, _] = SCOPE;
        for path in [&["init.scope"][..], &[slice, "slurmd.service"]] {
            if let Some(group) = self.root.below_mut(path) {
                group.charge(user, system);
            }
        }
        // The kernel's own threads.
        self.root.own.system += elapsed / 200;
        let all = self.machine.all.clone();
        self.machine.spend(&all, 2 * user, 2 * system + elapsed / 200, 0);
    }

    /// Starts what is ready and finds CPUs.
    fn start(&mut self, role: usize) {
        let now = self.now;
        let Some(cast) = self.cast.get_mut(role).filter(|cast| cast.ready.is_some_and(|at| at <= now)) else {
            return;
        };
        let traits = cast.traits;
        let taken: Vec<u32> = self.jobs.iter().flat_map(|job| job.cpus.iter().copied()).collect();
        let free: Vec<u32> = (0..CPUS).filter(|cpu| !taken.contains(cpu)).collect();
        let mut free = free.chunks_exact(traits.cpus);
        let together = usize::try_from(traits.together).unwrap_or(usize::MAX);
        if free.len() < together {
            cast.ready = Some(now + SECOND);
            return;
        }
        cast.ready = None;
        let user = cast.chance.pick(&USERS).copied().unwrap_or_default();
        let requeued = cast.requeue.take();
        let leader = requeued.map_or(self.next_id, |(id, _)| id);
        if traits.profile == Profile::Requeued {
            // Whose it is stays with the id.
            let lives = requeued.map_or(1, |(_, lives)| lives + 1);
            cast.requeue = (lives < 3).then_some((leader, lives));
        }
        let user = if traits.profile == Profile::Requeued { owner_of(leader) } else { user };
        for n in 0..traits.together {
            let Some(cast) = self.cast.get_mut(role) else { return };
            let job = Job {
                id: leader + n,
                traits,
                user,
                cpus: Arc::from(free.next().unwrap_or_default()),
                array: (traits.profile == Profile::Array).then_some((leader, n)),
                het: (traits.profile == Profile::Heterogeneous).then_some(leader),
                started: now,
                charged: now,
                plan: plan(traits, self.speed, &mut cast.chance),
                steps: Vec::new(),
                swept: None,
            };
            self.next_id = self.next_id.max(job.id + 1);
            self.changes.metadata.push((job.id, Some(job.metadata(self.machine.boot))));
            let group = job.group();
            if let Some(scope) = self.scope_mut() {
                scope.children.push(group);
            }
            self.jobs.push(job);
            let external = Planned {
                at: 0,
                name: "step_extern".to_owned(),
                tasks: 1,
                lasts: u64::MAX / 2,
                works: false,
            };
            self.begin(self.jobs.len() - 1, external);
        }
        if let Some(started) = self.started.get_mut(role) {
            *started += u64::from(traits.together);
        }
    }

    /// A job is over.
    fn bury(&mut self, at: usize) {
        let job = self.jobs.remove(at);
        let directory = job.directory();
        self.remove(&[], &directory);
        self.changes.metadata.push((job.id, None));
        let others = self.jobs.iter().any(|other| other.traits.profile == job.traits.profile);
        let role = self.cast.iter_mut().find(|role| role.traits.profile == job.traits.profile);
        if let Some(role) = role.filter(|_| !others) {
            let (low, high) = job.traits.pause;
            let pause = role.chance.between(low, high) / self.speed;
            role.ready = Some(self.now + whole(pause.max(0.2) * real(SECOND)));
        }
    }

    /// What is due of a job.
    fn attend(&mut self, at: usize) {
        let now = self.now;
        loop {
            let Some(job) = self.jobs.get_mut(at) else { return };
            match job.plan.front() {
                Some(next) if job.started + next.at <= now => {}
                _ => break,
            }
            let Some(next) = job.plan.pop_front() else { break };
            self.begin(at, next);
        }
        let Some(job) = self.jobs.get(at) else { return };
        let due: Vec<(String, Stage)> =
            job.steps.iter().filter(|s| s.due <= now).map(|s| (s.name.clone(), s.stage)).collect();
        for (name, stage) in due {
            match stage {
                Stage::Running => self.end_tasks(at, &name),
                Stage::Ended => self.end_step(at, &name),
            }
        }
        let Some(job) = self.jobs.get_mut(at) else { return };
        if job.swept.is_some_and(|swept| swept <= now) {
            job.swept = None;
        }
        // The external step lasts as long as any other.
        if job.plan.is_empty()
            && let [only] = job.steps.as_mut_slice()
            && only.name == "step_extern"
            && only.stage == Stage::Running
        {
            only.due = now + 20_000;
        }
    }

    fn begin(&mut self, at: usize, planned: Planned) {
        let now = self.now;
        let mut next_pid = self.next_pid;
        let Some(job) = self.jobs.get_mut(at) else { return };
        let group = job.step_group(&planned, now, |threads| {
            let pid = next_pid;
            next_pid += threads.max(1);
            pid
        });
        self.next_pid = next_pid;
        job.steps.push(Step {
            name: planned.name.clone(),
            works: planned.works,
            begun: now,
            stage: Stage::Running,
            due: now.saturating_add(planned.lasts),
            poll: now + 30 * SECOND,
        });
        let directory = job.directory();
        if let Some(group_of_job) = self.scope_mut().and_then(|scope| scope.child_mut(&directory)) {
            group_of_job.children.push(group);
        }
        self.charge_stepd(at, &planned.name, 8_000, 7_000);
        self.charge_slurm(3_000);
    }

    /// The tasks of a step end; its slurmstepd is left.
    fn end_tasks(&mut self, at: usize, step: &str) {
        let now = self.now;
        // SLURM leaves 133 to 407 ms between the last task and the end of the directory.
        let clean_up = whole(self.chance.between(150e3, 400e3));
        let Some(job) = self.jobs.get_mut(at) else { return };
        if let Some(step) = job.steps.iter_mut().find(|s| s.name == step) {
            step.stage = Stage::Ended;
            step.due = now + clean_up;
        }
        let directory = job.directory();
        let mut ended = Vec::new();
        let group = self.scope_mut().and_then(|scope| scope.below_mut(&[&directory, step]));
        if let Some(group) = group {
            if let Some(user) = group.child_mut("user") {
                user.evict(&mut ended);
            }
            // It waited for them, so their I/O is in its own now.
            let stepd = group.child_mut("slurm").and_then(|slurm| slurm.processes.first_mut());
            if let Some(stepd) = stepd {
                ended.iter().for_each(|process| stepd.io += process.io);
            }
        }
        self.buried(ended);
    }

    /// A slurmstepd removes its step's directory and leaves.
    fn end_step(&mut self, at: usize, step: &str) {
        self.charge_stepd(at, step, 4_000, 9_000);
        let Some(job) = self.jobs.get_mut(at) else { return };
        job.steps.retain(|s| s.name != step);
        if job.steps.is_empty() && job.traits.profile == Profile::LeftBehind {
            job.swept = Some(self.now + LEFT_BEHIND);
            // Nobody may use them, but they are not the job's any more.
            job.cpus = Arc::from([]);
        }
        let directory = job.directory();
        self.remove(&[&directory], step);
        self.charge_slurm(2_000);
    }

    fn buried(&mut self, processes: Vec<Process>) {
        let known = processes.into_iter().filter(|process| process.published.is_some());
        self.changes.pids.extend(known.map(|process| process.pid));
    }

    /// Removes a group below SLURM's scope.
    fn remove(&mut self, path: &[&str], name: &str) {
        let mut ended = Vec::new();
        let removed = self.scope_mut().and_then(|scope| scope.below_mut(path)).and_then(|group| {
            group.child_mut(name)?.evict(&mut ended);
            group.remove(name)
        });
        self.buried(ended);
        if removed.is_some_and(|group| group.published.is_some()) {
            let path: Vec<&str> = SCOPE.iter().chain(path).copied().chain([name]).collect();
            self.changes.groups.push(path.join("/"));
        }
    }

    fn charge_stepd(&mut self, at: usize, step: &str, user: u64, system: u64) {
        let Some(job) = self.jobs.get(at) else { return };
        let (directory, cpus) = (job.directory(), job.cpus.clone());
        let slurm = self.scope_mut().and_then(|scope| scope.below_mut(&[&directory, step, "slurm"]));
        if let Some(slurm) = slurm {
            slurm.charge(user, system);
            self.machine.spend(&cpus, user, system, 0);
        }
    }

    /// What slurmstepd spends before it is in a job's group and after it left it.
    fn charge_slurm(&mut self, system: u64) {
        if let Some(group) = self.scope_mut().and_then(|scope| scope.child_mut("system")) {
            group.charge(0, system);
            let all = self.machine.all.clone();
            self.machine.spend(&all, 0, system, 0);
        }
    }

    /// Books what a job spent up to now.
    fn charge(&mut self, at: usize) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(at) else { return };
        let elapsed = now - std::mem::replace(&mut job.charged, now);
        let directory = job.directory();
        let mut polls = Vec::new();
        for step in job.steps.iter_mut().filter(|s| s.stage == Stage::Running && s.poll <= now) {
            step.poll = now + 30 * SECOND;
            polls.push(step.name.clone());
        }
        let steps = job.steps.iter_mut().filter(|s| s.works && s.stage == Stage::Running);
        for step in steps {
            let age = real(now - step.begun) / real(SECOND) * self.speed;
            let work = job.traits.work(age, &mut self.chance);
            let Some(group) = self.root.below_mut(&SCOPE).and_then(|s| s.child_mut(&directory)) else {
                return;
            };
            let (user, system) = (whole(work.user * real(elapsed)), whole(work.system * real(elapsed)));
            let stalled = stalls(work.stalls, elapsed);
            add_stalls(&mut group.pressure, stalled);
            if group.bandwidth.quota.is_some() {
                let throttled = whole(work.throttled * real(elapsed) / 100e3);
                group.bandwidth.periods += (elapsed / 100_000).max(throttled);
                group.bandwidth.throttled += throttled;
                group.bandwidth.throttled_usec += throttled * 49_000;
            }
            let waiting = whole(work.waiting * real(elapsed));
            self.machine.spend(&job.cpus, user, system, waiting);
            if apply(group, &step.name, job.traits.memory, &work, [user, system], elapsed, stalled) {
                step.due = now;
            }
        }
        for step in polls {
            self.charge_stepd(at, &step, 1_000, 2_000);
        }
    }
}

/// Whose a requeued job is.
fn owner_of(id: u32) -> (&'static str, u32, &'static str) {
    let at = usize::try_from(id).unwrap_or(0) % USERS.len();
    USERS.get(at).copied().unwrap_or_default()
}

/// Books work to the tasks of a step. True if the memory did not suffice and the kernel killed a task.
fn apply(
    job: &mut Group,
    step: &str,
    limit: u64,
    work: &super::cast::Work,
    [user_usec, system_usec]: [u64; 2],
    elapsed: u64,
    stalled: [[u64; 2]; 3],
) -> bool {
    let whole_job = job.settle().memory;
    let Some(step) = job.child_mut(step) else { return false };
    add_stalls(&mut step.pressure, stalled);
    let Some(user) = step.child_mut("user") else { return false };
    add_stalls(&mut user.pressure, stalled);
    let tasks = u64::try_from(user.children.len()).unwrap_or(1).max(1);
    let mine = user.totals.memory;
    let others = whole_job.current() - mine.current();
    let fixed = Memory { threads: mine.threads, ..Memory::of(0, work.file, work.shmem, 0) };
    let room = limit.saturating_sub(others + fixed.current() + 16 * tasks * super::group::PAGE * 2);
    let most = Memory::anon_within(room);
    let out_of_memory = work.anon > most;
    for (task, n) in user.children.iter_mut().zip(0..) {
        // What does not divide is the first one's.
        let share = |whole: u64| whole / tasks + if n == 0 { whole % tasks } else { 0 };
        add_stalls(&mut task.pressure, stalled);
        task.charge(share(user_usec), share(system_usec));
        let before = task.memory;
        task.memory = Memory::of(share(work.anon.min(most)), share(work.file), share(work.shmem), 0);
        let grown = task.memory.anon.saturating_sub(before.anon) / super::group::PAGE;
        task.own.page_faults += grown + share(elapsed / 20_000);
        let mut io = [Io::default(); 2];
        for (io, [read, written]) in io.iter_mut().zip(work.io) {
            let bytes = |rate: f64| share(whole(rate * real(elapsed) / real(SECOND))) / 4096 * 4096;
            let (read_bytes, written_bytes) = (bytes(read), bytes(written));
            *io = Io {
                read_bytes,
                written_bytes,
                reads: read_bytes.div_ceil(128 << 10),
                writes: written_bytes.div_ceil(512 << 10),
            };
        }
        for (total, more) in task.own.io.iter_mut().zip(io) {
            *total += more;
        }
        if let Some(process) = task.processes.first_mut() {
            process.resident = task.memory.anon + task.memory.mapped;
            io.into_iter().for_each(|io| process.io += io);
        }
    }
    if out_of_memory {
        // The lowest group that is at its limit has the event, and the killed process's has the kill.
        user.own.limit_hits += 40;
        user.own.ooms += 1;
        if let Some(task) = user.children.first_mut() {
            task.own.oom_kills += 1;
        }
    }
    out_of_memory
}
