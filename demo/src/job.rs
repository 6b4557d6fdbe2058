//! A simulated job: its steps, its schedule, and its groups and processes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::counters::Memory;
use super::group::{Group, Limits};
use super::layout::socket_of;
use super::process::{Io, Process};
use super::profile::Profile;
use super::random::{Random, whole};
use super::workloads::{SRUNS, Workload};

const SECOND: f64 = 1e6;

/// A step that has not started. Times are in microseconds.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// After the job's start.
    pub(super) at: u64,
    pub(super) name: String,
    pub(super) tasks: u32,
    pub(super) lasts: u64,
    /// Whether the job's programs run in this step.
    pub(super) works: bool,
}

/// The stage of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its tasks run.
    Running,
    /// Its tasks ended; its slurmstepd cleans up.
    Ended,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) works: bool,
    pub(super) begun: u64,
    pub(super) stage: Stage,
    /// When its stage ends.
    pub(super) due: u64,
    /// When its slurmstepd polls its tasks next.
    pub(super) poll: u64,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u32,
    pub(super) workload: &'static Workload,
    /// Name, uid and account.
    pub(super) user: (&'static str, u32, &'static str),
    pub(super) cpus: Arc<[u32]>,
    /// Index in the rack and UUID of each GPU.
    pub(super) gpus: Vec<(usize, Arc<str>)>,
    pub(super) array: Option<(u32, u32)>,
    pub(super) het: Option<u32>,
    pub(super) started: u64,
    /// Its usage is charged up to this time.
    pub(super) charged: u64,
    pub(super) plan: VecDeque<Planned>,
    pub(super) steps: Vec<Step>,
    /// When the directory that SLURM left behind is removed.
    pub(super) removal_due: Option<u64>,
}

/// The steps of a job, none longer than `most` microseconds. `speed` shortens the job's steps, but not what SLURM does
/// before and after them.
pub(super) fn plan(workload: &Workload, speed: f64, most: u64, chance: &mut Random) -> VecDeque<Planned> {
    let mut micros =
        |(low, high): (f64, f64), least: f64| whole((chance.between(low, high) / speed).max(least) * SECOND);
    let at = micros((0.05, 0.12), 0.05);
    // No job is shorter than the fork and exec of its task.
    let lasts = micros(workload.run, 0.05).min(most);
    let step =
        |at, name: &str, tasks, lasts, works| Planned { at, name: name.to_owned(), tasks, lasts, works };
    match workload.profile {
        Profile::Interactive => VecDeque::from([step(at, "step_interactive", 1, lasts, true)]),
        Profile::MultiStep => {
            let each = lasts / u64::from(SRUNS);
            let mut plan = VecDeque::from([step(at, "step_batch", 1, lasts + each / 8, false)]);
            for n in 0..SRUNS {
                let begin = at + 30_000 + u64::from(n) * each;
                plan.push_back(step(begin, &format!("step_{n}"), workload.tasks, each * 7 / 8, true));
            }
            plan
        }
        // MPI programs are started by srun, and the batch script waits.
        Profile::Busy | Profile::Training | Profile::Exclusive => VecDeque::from([
            step(at, "step_batch", 1, lasts + 100_000, false),
            step(at + 50_000, "step_0", workload.tasks, lasts, true),
        ]),
        _ => VecDeque::from([step(at, "step_batch", workload.tasks, lasts, true)]),
    }
}

impl Job {
    /// Name of its cgroup's directory.
    pub(super) fn directory(&self) -> String {
        format!("job_{}", self.id)
    }

    /// When its next change is due.
    pub(super) fn due(&self) -> u64 {
        let planned = self.plan.front().map(|next| self.started + next.at);
        let steps = self.steps.iter().map(|step| step.due);
        steps.chain(planned).chain(self.removal_due).min().unwrap_or(u64::MAX)
    }

    /// The file that the prolog writes (docs/metadata.md).
    pub(super) fn metadata(&self, boot: u64) -> String {
        let (user, uid, account) = self.user;
        let Workload { name, partition, qos, .. } = self.workload;
        let mut text = format!(
            "version=1\njob_id={}\nuid={uid}\nuser={user}\naccount={account}\npartition={partition}\nqos={qos}\nname={name}\n",
            self.id
        );
        if let Some((array, element)) = self.array {
            text.push_str(&format!("array_job_id={array}\narray_task_id={element}\n"));
        }
        if let Some(leader) = self.het {
            text.push_str(&format!("het_job_id={leader}\n"));
        }
        let list =
            |of: fn(&(usize, Arc<str>)) -> String| self.gpus.iter().map(of).collect::<Vec<_>>().join(",");
        if !self.gpus.is_empty() {
            let (indices, ids) = (list(|(unit, _)| unit.to_string()), list(|(_, id)| id.to_string()));
            text.push_str(&format!("gpus={indices}\ngpu_uuids={ids}\n"));
        }
        text.push_str(&format!("start_time={}\nnode=demo1\n", boot + self.started / 1_000_000));
        text
    }

    /// The number of its CPUs on each socket.
    fn runs_on(&self) -> [u64; 2] {
        let mut on = [0; 2];
        for cpu in self.cpus.iter() {
            if let Some(on) = on.get_mut(socket_of(*cpu)) {
                *on += 1;
            }
        }
        on
    }

    /// Its group, without a step.
    pub(super) fn group(&self) -> Group {
        let mut group = Group::new(self.directory());
        group.limits = Limits { cpus: Some(self.cpus.clone()), memory: Some(self.workload.memory) };
        group.bandwidth.quota = self.workload.quota();
        group
    }

    /// The group of a step, with its processes. `pid` reserves pids for a number of threads and returns the first.
    pub(super) fn step_group(&self, step: &Planned, now: u64, mut pid: impl FnMut(u64) -> u64) -> Group {
        let start_ticks = now / 10_000;
        let title = step.name.trim_start_matches("step_");
        let stepd = pid(STEPD_THREADS);
        let mut slurm = Group::new("slurm");
        slurm.memory = Memory::of(3 << 20, 2 << 20, 0, 0);
        slurm.runs_on = self.runs_on();
        slurm.add_process(Process {
            pid: stepd,
            parent: 1,
            uid: 0,
            name: "slurmstepd",
            cmdline: format!("slurmstepd: [{}.{title}]\0", self.id),
            threads: STEPD_THREADS,
            start_ticks,
            user: 0,
            system: 0,
            io: Io::default(),
            resident: 5 << 20,
            published: None,
        });
        let mut user = Group::new("user");
        user.limits = Limits { cpus: Some(self.cpus.clone()), memory: Some(self.workload.memory) };
        for n in 0..step.tasks {
            let (uid, name, cmdline, threads) = match title {
                // Up to SLURM 24.11 the external step runs a sleep as root.
                "extern" => (0, "sleep", "sleep\x00100000000\0".to_owned(), 1),
                _ if !step.works => {
                    let script = format!("/bin/bash\0/var/spool/slurmd/job{:05}/slurm_script\0", self.id);
                    (self.user.1, "bash", script, 1)
                }
                _ => {
                    let Workload { program, threads, .. } = self.workload;
                    let cmdline = format!("/home/{}/bin/{program}\0", self.user.0);
                    (self.user.1, *program, cmdline, *threads)
                }
            };
            let mut task = Group::new(format!("task_{n}"));
            let anon = 512 << 10;
            task.memory = Memory::of(anon, 2 << 20, 0, 0);
            task.runs_on = self.runs_on();
            task.own.page_faults = anon >> 12;
            task.own.major_faults = 2;
            task.add_process(Process {
                pid: pid(threads),
                parent: stepd,
                uid,
                name,
                cmdline,
                threads,
                start_ticks,
                user: 0,
                system: 0,
                io: Io::default(),
                resident: 2 << 20,
                published: None,
            });
            user.children.push(task);
        }
        Group::new(step.name.clone()).with([slurm, user])
    }
}

const STEPD_THREADS: u64 = 5;
