//! Charges what simulated jobs and services use to their groups, their processes and the CPUs.

use super::{SCOPE, SECOND, World};
use crate::counters::{Counters, Memory, Moved, PAGE, add_stalls, stalls};
use crate::gpu;
use crate::group::Group;
use crate::job::Stage;
use crate::process::Io;
use crate::random::{real, whole};
use crate::workloads::Work;

impl World {
    pub(super) fn charge_services(&mut self, elapsed: u64) {
        let (user, system) = (elapsed / 4000, elapsed / 5000);
        let [slice, _] = SCOPE;
        for path in [&["init.scope"][..], &[slice, "slurmd.service"]] {
            if let Some(group) = self.root.below_mut(path) {
                group.charge(user, system);
            }
        }
        // Kernel threads.
        self.root.own.system += elapsed / 200;
        self.root.own += system_traffic(self.now - elapsed, self.now);
        let all = self.machine.all.clone();
        self.machine.charge_cpus(&all, 2 * user, 2 * system + elapsed / 200, 0);
    }

    pub(super) fn charge_stepd(&mut self, at: usize, step: &str, user: u64, system: u64) {
        let Some(job) = self.jobs.get(at) else { return };
        let (id, profile) = (job.id, job.workload.profile);
        let (directory, cpus) = (job.directory(), job.cpus.clone());
        let slurm = self.scope_mut().and_then(|scope| scope.below_mut(&[&directory, step, "slurm"]));
        if let Some(slurm) = slurm {
            slurm.charge(user, system);
            self.machine.charge_cpus(&cpus, user, system, 0);
            self.cpu_counters.add_work(id, profile, user + system, 0.0);
        }
    }

    /// Charges slurmstepd's CPU time before it enters a job's group and after it leaves it.
    pub(super) fn charge_slurm(&mut self, system: u64) {
        if let Some(group) = self.scope_mut().and_then(|scope| scope.child_mut("system")) {
            group.charge(0, system);
            let all = self.machine.all.clone();
            self.machine.charge_cpus(&all, 0, system, 0);
        }
    }

    /// Charges what a job used up to now.
    pub(super) fn charge(&mut self, at: usize) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(at) else { return };
        let elapsed = now - std::mem::replace(&mut job.charged, now);
        let directory = job.directory();
        let mut polls = Vec::new();
        for step in job.steps.iter_mut().filter(|s| s.stage == Stage::Running && s.poll <= now) {
            let starts = step.poll == step.begun + 1;
            step.poll = now + 30 * SECOND;
            polls.push((step.name.clone(), if starts { [8_000, 7_000] } else { [1_000, 2_000] }));
        }
        let steps = job.steps.iter_mut().filter(|s| s.works && s.stage == Stage::Running);
        for step in steps {
            let age = real(now - step.begun) / real(SECOND) * self.speed;
            let work = job.workload.work(age, &mut self.chance);
            let Some(group) = self.root.below_mut(&SCOPE).and_then(|s| s.child_mut(&directory)) else {
                return;
            };
            let (user, system) = (whole(work.user * real(elapsed)), whole(work.system * real(elapsed)));
            let stalled = stalls(work.stalls, elapsed);
            add_stalls(&mut group.pressure, stalled);
            if group.bandwidth.quota.is_some() {
                // An interval may be shorter than a period.
                let [before, periods] = [now - elapsed, now].map(|at| at / 100_000);
                let [were, throttled] = [before, periods].map(|n| whole(work.throttled * real(n)));
                let throttled = throttled - were;
                group.bandwidth.periods += periods - before;
                group.bandwidth.throttled += throttled;
                group.bandwidth.throttled_usec += throttled * 49_000;
            }
            let waiting = whole(work.waiting * real(elapsed));
            self.machine.charge_cpus(&job.cpus, user, system, waiting);
            let faults = work.faults.iter().sum::<f64>() * real(elapsed) / real(SECOND);
            self.cpu_counters.add_work(job.id, job.workload.profile, user + system, faults);
            if apply(
                group,
                &step.name,
                job.workload.memory,
                &work,
                [user, system],
                [now - elapsed, now],
                stalled,
            ) {
                step.due = now;
            }
            let tasks = group.below(&[&step.name, "user"]).map_or(&[][..], |user| &user.children);
            let pids: Vec<u64> =
                tasks.iter().flat_map(|task| &task.processes).map(|process| process.pid).collect();
            for ((unit, _), pid) in job.gpus.iter().zip(pids) {
                let work = gpu::Work::of(job.workload.profile, age, job.id % 2 == 1, &mut self.chance);
                self.node_gpus.run(*unit, pid, work, elapsed);
            }
        }
        for (step, [user, system]) in polls {
            self.charge_stepd(at, &step, user, system);
        }
    }
}

/// I/O and traffic of the system itself: logs, metrics, the subnet manager, look-ups in home directories.
pub(super) fn system_traffic(from: u64, to: u64) -> Counters {
    let gained = |per_second: u64| {
        let until = |at: u64| at * per_second / SECOND;
        until(to) - until(from)
    };
    let (reads, writes) = (gained(2), gained(12));
    let log = Io { read_bytes: reads << 14, written_bytes: writes << 14, reads, writes };
    Counters {
        io: [log, Io::default()],
        fabric: Moved { received: gained(512), sent: gained(256) },
        network: Moved { received: gained(3_000), sent: gained(9_000) },
        nfs_metadata: gained(1),
        ..Counters::default()
    }
}

/// Charges work to the tasks of a step. True if the memory limit was too low and the kernel killed a task.
fn apply(
    job: &mut Group,
    step: &str,
    limit: u64,
    work: &Work,
    [user_usec, system_usec]: [u64; 2],
    [from, now]: [u64; 2],
    stalled: [[u64; 2]; 3],
) -> bool {
    let elapsed = now - from;
    let whole_job = job.update_totals().memory;
    let Some(step) = job.child_mut(step) else { return false };
    add_stalls(&mut step.pressure, stalled);
    let Some(user) = step.child_mut("user") else { return false };
    add_stalls(&mut user.pressure, stalled);
    let tasks = u64::try_from(user.children.len()).unwrap_or(1).max(1);
    let mine = user.totals.memory;
    let others = whole_job.current() - mine.current();
    let fixed = Memory { threads: mine.threads, ..Memory::of(0, work.file, work.shmem, 0) };
    let room = limit.saturating_sub(others + fixed.current() + 16 * tasks * PAGE * 2);
    let most = Memory::anon_within(room);
    let out_of_memory = work.anon > most;
    for (task, n) in user.children.iter_mut().zip(0..) {
        // The first task gets the remainder.
        let share = |whole: u64| whole / tasks + if n == 0 { whole % tasks } else { 0 };
        add_stalls(&mut task.pressure, stalled);
        task.charge(share(user_usec), share(system_usec));
        let before = task.memory;
        task.memory = Memory::of(share(work.anon.min(most)), share(work.file), share(work.shmem), 0);
        let grown = task.memory.anon.saturating_sub(before.anon) / PAGE;
        let [faults, major] = work.faults.map(|rate| share(whole(rate * real(elapsed) / real(SECOND))));
        task.own.page_faults += grown + faults;
        task.own.major_faults += major;
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
        let moved = |[received, sent]: [f64; 2]| {
            let [received, sent] =
                [received, sent].map(|rate| share(whole(rate * real(elapsed) / real(SECOND))));
            Moved { received, sent }
        };
        task.own.fabric += moved(work.fabric);
        task.own.network += moved(work.network);
        let nfs = moved(work.nfs);
        let nfs = Io {
            read_bytes: nfs.received,
            written_bytes: nfs.sent,
            reads: nfs.received.div_ceil(1 << 20),
            writes: nfs.sent.div_ceil(1 << 20),
        };
        task.own.nfs += nfs;
        // Requests are rare and intervals may be short, so count them from the start.
        let per_request = real(SECOND) / work.nfs_metadata.max(1e-9);
        let requests = |at: u64| whole(real(at) / per_request);
        task.own.nfs_metadata += share(requests(now) - requests(from));
        if let Some(process) = task.processes.first_mut() {
            process.resident = task.memory.anon + task.memory.mapped;
            io.into_iter().chain([nfs]).for_each(|io| process.io += io);
        }
    }
    if out_of_memory {
        // The kernel counts the event in the group at its limit, and the kill in the killed process's group.
        user.own.limit_hits += 40;
        user.own.ooms += 1;
        if let Some(task) = user.children.first_mut() {
            task.own.oom_kills += 1;
        }
    }
    out_of_memory
}
