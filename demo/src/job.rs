//! A simulated job: its steps, what comes next in its run, and its groups and processes.

use std::collections::VecDeque;
use std::sync::Arc;

use super::counters::Memory;
use super::group::{Group, Limits};
use super::layout::socket_of;
use super::process::{Io, Process};
use super::profile::Profile;
use super::random::{Random, whole};
use super::workloads::{SRUNS, Traits};

const SECOND: f64 = 1e6;

/// A step that is to come, times in microseconds.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    /// After the job's start.
    pub(super) at: u64,
    pub(super) name: String,
    pub(super) tasks: u32,
    pub(super) lasts: u64,
    /// Whether the job's work is done in it.
    pub(super) works: bool,
}

/// Where a step is in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its tasks run.
    Running,
    /// Its tasks ended; its slurmstepd cleans up.
    Ended,
}

/// A step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) works: bool,
    pub(super) begun: u64,
    pub(super) stage: Stage,
    /// When its stage is over.
    pub(super) due: u64,
    /// When its slurmstepd looks at its tasks next.
    pub(super) poll: u64,
}

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u32,
    pub(super) traits: &'static Traits,
    /// Name, uid and account.
    pub(super) user: (&'static str, u32, &'static str),
    pub(super) cpus: Arc<[u32]>,
    /// Units of the rack, and their ids.
    pub(super) gpus: Vec<(usize, Arc<str>)>,
    pub(super) array: Option<(u32, u32)>,
    pub(super) het: Option<u32>,
    pub(super) started: u64,
    /// Until when its spending is booked.
    pub(super) charged: u64,
    pub(super) plan: VecDeque<Planned>,
    pub(super) steps: Vec<Step>,
    /// When somebody removes the directory that SLURM left behind.
    pub(super) swept: Option<u64>,
}

/// The steps of a job of some kind, none of which is longer than `most` microseconds. `speed` shortens what the job
/// does, not what SLURM does around it.
pub(super) fn plan(traits: &Traits, speed: f64, most: u64, chance: &mut Random) -> VecDeque<Planned> {
    let mut micros =
        |(low, high): (f64, f64), least: f64| whole((chance.between(low, high) / speed).max(least) * SECOND);
    let at = micros((0.05, 0.12), 0.05);
    // Not even a short job is shorter than the fork and exec of its task.
    let lasts = micros(traits.run, 0.05).min(most);
    let step =
        |at, name: &str, tasks, lasts, works| Planned { at, name: name.to_owned(), tasks, lasts, works };
    match traits.profile {
        Profile::Interactive => VecDeque::from([step(at, "step_interactive", 1, lasts, true)]),
        Profile::MultiStep => {
            let each = lasts / u64::from(SRUNS);
            let mut plan = VecDeque::from([step(at, "step_batch", 1, lasts + each / 8, false)]);
            for n in 0..SRUNS {
                let begin = at + 30_000 + u64::from(n) * each;
                plan.push_back(step(begin, &format!("step_{n}"), traits.tasks, each * 7 / 8, true));
            }
            plan
        }
        // MPI programs are started by srun, and the batch script waits.
        Profile::Busy | Profile::Training | Profile::Exclusive => VecDeque::from([
            step(at, "step_batch", 1, lasts + 100_000, false),
            step(at + 50_000, "step_0", traits.tasks, lasts, true),
        ]),
        _ => VecDeque::from([step(at, "step_batch", traits.tasks, lasts, true)]),
    }
}

impl Job {
    /// Its directory's name.
    pub(super) fn directory(&self) -> String {
        format!("job_{}", self.id)
    }

    /// When something of it is due next.
    pub(super) fn due(&self) -> u64 {
        let planned = self.plan.front().map(|next| self.started + next.at);
        let steps = self.steps.iter().map(|step| step.due);
        steps.chain(planned).chain(self.swept).min().unwrap_or(u64::MAX)
    }

    /// What the prolog writes of it (docs/metadata.md).
    pub(super) fn metadata(&self, boot: u64) -> String {
        let (user, uid, account) = self.user;
        let Traits { name, partition, qos, .. } = self.traits;
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

    /// How many of its CPUs are on each socket.
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
        group.limits = Limits { cpus: Some(self.cpus.clone()), memory: Some(self.traits.memory) };
        group.bandwidth.quota = self.traits.quota();
        group
    }

    /// The group of a step, with its processes. `pid` gives out ids for that many threads.
    pub(super) fn step_group(&self, step: &Planned, now: u64, mut pid: impl FnMut(u64) -> u64) -> Group {
        let start_ticks = now / 10_000;
        let title = step.name.trim_start_matches("step_");
        let stepd = pid(STEPD_THREADS);
        let mut slurm = Group::new("slurm");
        slurm.memory = Memory::of(3 << 20, 2 << 20, 0, 0);
        slurm.runs_on = self.runs_on();
        slurm.admit(Process {
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
        user.limits = Limits { cpus: Some(self.cpus.clone()), memory: Some(self.traits.memory) };
        for n in 0..step.tasks {
            let (uid, name, cmdline, threads) = match title {
                // Up to SLURM 24.11 the external step holds a sleep of root's.
                "extern" => (0, "sleep", "sleep\x00100000000\0".to_owned(), 1),
                _ if !step.works => {
                    let script = format!("/bin/bash\0/var/spool/slurmd/job{:05}/slurm_script\0", self.id);
                    (self.user.1, "bash", script, 1)
                }
                _ => {
                    let Traits { program, threads, .. } = self.traits;
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
            task.admit(Process {
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
