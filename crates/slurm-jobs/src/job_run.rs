//! One tracked run of a job: its directory, its steps, its watches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use cgroups::{Cgroup, Controller, Version};
use clocks::Boottime;
use kernel_files::parse::flat_keyed;
use kernel_files::{Buffer, Dir, Roots, Stat};

use super::due_times::DueTimes;
use super::readers::ReadBy;
use super::scope::join;
use super::watch::{Target, Watches};
use super::{Job, JobRunId, Levels, Step, Task, names};

/// Pauses before attempts to identify a job, in milliseconds: the first after an event, each other after the last
/// attempt. A task is root's between its fork and its exec, and the user's until it ends: a few milliseconds each, or
/// some hundred on a node that is out of CPU. Each pause is about a third of the time that has passed.
pub(super) const ATTEMPTS_MS: [u64; 15] = [1, 1, 2, 3, 4, 6, 9, 14, 20, 30, 45, 70, 100, 150, 200];

/// Most ended steps of a running job that are exported: a job with a hundred thousand steps must not grow without
/// bound.
const MOST_ENDED_STEPS: usize = 1024;

/// How far a run has come. Its identity may be found in any state but the last ([`JobRun::unknown`]); a dropped run is not
/// in the table any more.
#[derive(Debug)]
pub(super) enum RunState {
    /// Its directory was found without a process in it: it may have been left behind.
    Found,
    /// It had a process, or its directory was seen being made.
    Running,
    /// Ended, and SLURM left its directory behind.
    LeftBehind(End),
    /// Ended, and retained.
    Ended(End),
}

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) at: Instant,
    /// Who has read it.
    pub(super) read_by: ReadBy,
    /// Whether a snapshot had it.
    pub(super) shown: bool,
    /// Whether the next run of the job was shown in its place.
    pub(super) made_room: bool,
    /// Whether the run ever had the state [`RunState::Running`].
    pub(super) has_run: bool,
}

/// A moment in both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) boottime: Boottime,
}

impl Seen {
    pub(super) fn at(at: Instant) -> Self {
        Self { at, boottime: Boottime::now() - at.elapsed() }
    }
}

/// A run and what is needed to follow it.
#[derive(Debug)]
pub(super) struct JobRun {
    /// As it is shown.
    pub(super) job: Arc<Job>,
    /// Inode of the root it is in.
    pub(super) scope: u64,
    /// Directory below the root: `job_1`, `uid_0/job_1`.
    pub(super) dir: String,
    /// Directory below the cgroup mount point, in the hierarchy that is watched.
    pub(super) path: String,
    /// Inode of its directory.
    pub(super) inode: u64,
    /// Its watches.
    watches: Vec<i32>,
    /// Whether its making was seen, so that its start is now.
    pub(super) fresh: bool,
    /// Number of the next attempt to identify it.
    pub(super) attempt: usize,
    /// Since when it has no process at all.
    pub(super) empty_since: Option<Instant>,
    /// When it was last asked whether it has one.
    pub(super) asked_empty: Option<Instant>,
    pub(super) state: RunState,
    /// Scrapes at which its identity or its metadata were not complete.
    pub(super) asked: u32,
    /// How often more hierarchies of it were looked for.
    pub(super) v1_tries: u8,
    /// v1: a directory of it was removed while it still had processes, and so often it was looked again.
    pub(super) looks: Option<u32>,
    /// It went while no exporter looked: when one saw it last.
    pub(super) last_seen: Option<Seen>,
    pub(super) next_ordinal: u32,
}

/// Whether a v2 cgroup has a process in it or below it (`cgroup.events`).
pub(super) fn populated(dir: &Dir, file: &str, buffer: &mut Buffer) -> Option<bool> {
    let mut populated = None;
    flat_keyed(dir.read_record(file, buffer).ok()?, |key, value| {
        if key == b"populated" {
            populated = Some(value != 0);
        }
    })
    .ok()?;
    populated
}

/// A cgroup that is gone, the same for all runs.
fn gone(version: Version) -> Arc<Cgroup> {
    static V1: LazyLock<Arc<Cgroup>> = LazyLock::new(|| Arc::new(Cgroup::gone(Version::V1)));
    static V2: LazyLock<Arc<Cgroup>> = LazyLock::new(|| Arc::new(Cgroup::gone(Version::V2)));
    match version {
        Version::V1 => V1.clone(),
        Version::V2 => V2.clone(),
    }
}

impl JobRun {
    pub(super) fn new(job: Job, scope: u64, dir: String, path: String, inode: u64, fresh: bool) -> Self {
        Self {
            job: Arc::new(job),
            scope,
            dir,
            path,
            inode,
            watches: Vec::new(),
            fresh,
            attempt: 0,
            empty_since: None,
            asked_empty: None,
            state: RunState::Found,
            asked: 0,
            v1_tries: 0,
            looks: None,
            last_seen: None,
            next_ordinal: 0,
        }
    }

    pub(super) fn run(&self) -> JobRunId {
        self.job.run
    }

    /// Its end, if it has ended.
    pub(super) fn end(&self) -> Option<&End> {
        match &self.state {
            RunState::Found | RunState::Running => None,
            RunState::LeftBehind(end) | RunState::Ended(end) => Some(end),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end().is_some()
    }

    /// Whether it ever had a process, or its directory was seen being made.
    pub(super) fn has_run(&self) -> bool {
        matches!(self.state, RunState::Running) || self.end().is_some_and(|end| end.has_run)
    }

    /// Ends the run now, or when it was seen last; `left` if its directory is still there.
    pub(super) fn set_ended(&mut self, now: Instant, left: bool) {
        let seen = self.last_seen.unwrap_or_else(|| Seen { at: now, boottime: Boottime::now() });
        let (read_by, has_run) = (ReadBy::default(), self.has_run());
        let end = End { at: seen.at, read_by, shown: false, made_room: false, has_run };
        self.state = if left { RunState::LeftBehind(end) } else { RunState::Ended(end) };
        let job = Arc::make_mut(&mut self.job);
        job.ended = Some(job.started.at(seen.boottime));
    }

    /// Its directory is gone: keeps what is exported of it, and nothing to follow it by. Thousands may be retained.
    pub(super) fn slim(&mut self, levels: Levels) {
        self.watches = Vec::new();
        self.dir = String::new();
        self.path = String::new();
        let version = self.version();
        let job = Arc::make_mut(&mut self.job);
        job.cgroup = gone(version);
        match levels {
            Levels { steps: false, .. } => job.steps = Vec::new(),
            Levels { tasks: false, .. } => job.steps.iter_mut().for_each(|step| step.tasks = Vec::new()),
            Levels { tasks: true, .. } => job.steps.iter_mut().for_each(|step| step.tasks.shrink_to_fit()),
        }
        job.steps.shrink_to_fit();
        job.labels.shrink_to_fit();
    }

    /// Its end, if it has ended, to note who has it.
    pub(super) fn end_mut(&mut self) -> Option<&mut End> {
        match &mut self.state {
            RunState::Found | RunState::Running => None,
            RunState::LeftBehind(end) | RunState::Ended(end) => Some(end),
        }
    }

    /// Whether something about its identity is not known yet.
    pub(super) fn unknown(&self) -> bool {
        self.job.id.is_none() || self.job.uid.is_none()
    }

    /// Whether the directory listed with this inode is this run's. On v1 the hierarchies have inodes of their
    /// own and appear one by one: where it is another inode, the open directories are asked.
    pub(super) fn is_at(&self, inode: u64) -> bool {
        self.inode == inode || (self.version() == Version::V1 && !self.job.cgroup.is_gone())
    }

    /// Whether these are directories of this run that were not known, while those that were known are gone. SLURM makes the directories
    /// of a v1 job one by one, and removes them so. One of another run has the hierarchies that were known, too.
    pub(super) fn goes_on_in(&self, cgroup: Option<&Cgroup>) -> bool {
        let known = &self.job.cgroup;
        let both = |cgroup: &Cgroup| {
            Controller::ALL.iter().any(|which| cgroup.dir(*which).is_some() && known.dir(*which).is_some())
        };
        self.version() == Version::V1 && !self.has_ended() && cgroup.is_some_and(|cgroup| !both(cgroup))
    }

    /// Whether SLURM left its directory behind, and is not just about to remove the rest of it.
    pub(super) fn left_behind(&self, stale_after: Duration) -> bool {
        const REMOVAL: Duration = Duration::from_secs(5);
        matches!(&self.state, RunState::LeftBehind(end) if end.at.elapsed() >= stale_after.min(REMOVAL))
    }

    /// Starts a new round of attempts to identify it.
    pub(super) fn ask_soon(&mut self, now: Instant, attempts: &mut DueTimes) {
        if self.unknown() {
            self.attempt = 0;
            self.schedule(now, attempts);
        }
    }

    /// Schedules the next attempt of the round.
    pub(super) fn schedule(&mut self, now: Instant, attempts: &mut DueTimes) {
        match ATTEMPTS_MS.get(self.attempt) {
            Some(ms) => attempts.set(self.run(), now + Duration::from_millis(*ms)),
            None => attempts.clear(self.run()),
        }
        self.attempt += 1;
    }

    /// v1: SLURM removed one of its directories, and no event reports when the last process leaves. Whether the run
    /// is over: it has had no process for a while, since between two steps there may be none for a moment.
    pub(super) fn is_over(&mut self, now: Instant, looks: &mut DueTimes, buffer: &mut Buffer) -> bool {
        const QUIET: Duration = Duration::from_secs(2);
        const FIRST: Duration = Duration::from_millis(50);
        const MOST: u32 = 8;
        if self.has_processes(buffer) == Some(false) {
            let since = *self.empty_since.get_or_insert(now);
            self.looks = Some(0);
            looks.set(self.run(), since + QUIET);
            return now >= since + QUIET;
        }
        self.empty_since = None;
        let before = self.looks.map_or(0, |looks| looks + 1);
        self.looks = (before < MOST).then_some(before);
        match self.looks {
            Some(before) => looks.set(self.run(), now + FIRST * 2_u32.pow(before)),
            None => looks.clear(self.run()),
        }
        false
    }

    fn version(&self) -> Version {
        self.job.cgroup.version()
    }

    fn at(&self, roots: &Roots, below: &str) -> PathBuf {
        roots.cgroup(&join(&self.path, below))
    }

    fn watch(&mut self, watch: Option<i32>) {
        self.watches.extend(watch);
    }

    /// Ends its watches.
    pub(super) fn unwatch(&mut self, watches: &mut Watches) {
        for watch in self.watches.drain(..) {
            watches.remove(watch);
        }
    }

    /// Forgets its watches, whose directories are gone.
    pub(super) fn forget_watches(&mut self, watches: &mut Watches) {
        self.watches.drain(..).for_each(|watch| watches.forget(watch));
    }

    /// Watches the job's directory and takes in its steps. The watch comes first: a step made in between is found
    /// twice, never missed.
    pub(super) fn take_in(&mut self, roots: &Roots, watches: &mut Watches) {
        let watch = watches.directory(&self.at(roots, ""), Target::Job(self.run()));
        self.watch(watch);
        self.refresh_steps(roots, watches);
    }

    /// Watches a file in which SLURM writes the job's CPUs.
    pub(super) fn watch_cpus(&mut self, file: &Path, watches: &mut Watches) {
        let watch = watches.file(file, Target::Cpus(self.run()));
        self.watch(watch);
    }

    /// More hierarchies of a v1 job exist: slurmstepd makes its directories one after the other, and the watched
    /// files may be in the latest.
    pub(super) fn completed(&mut self, cgroup: Cgroup, roots: &Roots, watches: &mut Watches) {
        Arc::make_mut(&mut self.job).cgroup = Arc::new(cgroup);
        self.watch_again(roots, watches);
    }

    /// Sets its watches anew, and takes in what they missed.
    pub(super) fn watch_again(&mut self, roots: &Roots, watches: &mut Watches) {
        self.unwatch(watches);
        let job = self.job.clone();
        for step in job.steps.iter().filter(|step| step.ended.is_none()) {
            self.watch_step(step.ordinal, &step.name, roots, watches);
        }
        self.take_in(roots, watches);
    }

    /// Looks for steps (and their tasks) that no event reported, and marks those that are gone.
    pub(super) fn refresh_steps(&mut self, roots: &Roots, watches: &mut Watches) {
        let cgroup = self.job.cgroup.clone();
        // On v1 a step has a directory in each hierarchy.
        let mut there = BTreeSet::new();
        for dir in cgroup.dirs().filter(|dir| !dir.stat().is_ok_and(Stat::has_no_directory)) {
            let Ok(listed) = dir.directories() else { return };
            there.extend(listed.into_iter().map(|entry| entry.name));
        }
        for name in there.iter().filter(|name| names::step(name).is_some()) {
            self.step_made(name, roots, watches);
        }
        let gone: Vec<String> = self
            .job
            .steps
            .iter()
            .filter(|s| s.ended.is_none() && !there.contains(&*s.name))
            .map(|s| s.name.to_string())
            .collect();
        for name in gone {
            self.step_removed(&name);
        }
    }

    /// A step's directory was made (or found). Its ordinal.
    pub(super) fn step_made(&mut self, name: &str, roots: &Roots, watches: &mut Watches) -> Option<u32> {
        let id = names::step(name)?;
        let known = self.job.steps.iter().find(|s| &*s.name == name && s.ended.is_none()).map(|s| s.ordinal);
        let ordinal = match known {
            Some(ordinal) => ordinal,
            None => {
                self.forget_old_steps();
                let ordinal = self.ordinal();
                let step = Step {
                    id,
                    name: Arc::from(name),
                    ordinal,
                    tasks: Vec::new(),
                    since: Instant::now(),
                    began: self.now(),
                    ended: None,
                };
                Arc::make_mut(&mut self.job).steps.push(step);
                self.watch_step(ordinal, name, roots, watches);
                ordinal
            }
        };
        self.refresh_tasks(ordinal);
        Some(ordinal)
    }

    fn watch_step(&mut self, ordinal: u32, name: &str, roots: &Roots, watches: &mut Watches) {
        let path = self.at(roots, name);
        let target = match self.version() {
            Version::V2 => Target::Step(self.run(), ordinal),
            Version::V1 => Target::Tasks(self.run(), ordinal),
        };
        let watch = watches.directory(&path, target);
        self.watch(watch);
        if self.version() == Version::V2 {
            self.watch_user(ordinal, name, roots, watches);
        }
    }

    /// A step's `user` directory was made.
    pub(super) fn user_made(&mut self, ordinal: u32, roots: &Roots, watches: &mut Watches) {
        let Some(name) = self.step(ordinal).map(|s| s.name.clone()) else { return };
        self.watch_user(ordinal, &name, roots, watches);
        self.refresh_tasks(ordinal);
    }

    /// Watches a step's `user` directory: when it becomes empty, the step's work is over.
    fn watch_user(&mut self, ordinal: u32, name: &str, roots: &Roots, watches: &mut Watches) {
        let events = self.at(roots, &format!("{name}/user/cgroup.events"));
        let watch = watches.file(&events, Target::Populated(self.run(), ordinal));
        self.watch(watch);
        let watch =
            watches.directory(&self.at(roots, &format!("{name}/user")), Target::Tasks(self.run(), ordinal));
        self.watch(watch);
    }

    fn step(&self, ordinal: u32) -> Option<&Step> {
        self.job.steps.iter().find(|s| s.ordinal == ordinal)
    }

    /// Drops the older half of the ended steps when there are too many.
    fn forget_old_steps(&mut self) {
        let ended = self.job.steps.iter().filter(|step| step.ended.is_some()).count();
        if ended >= MOST_ENDED_STEPS {
            let mut surplus = ended / 2;
            Arc::make_mut(&mut self.job).steps.retain(|step| {
                let old = step.ended.is_some() && surplus > 0;
                surplus -= usize::from(old);
                !old
            });
        }
    }

    /// Now, seconds since the epoch, if what is found now began now: its making is seen. A directory that is used again
    /// has steps of before.
    fn now(&self) -> Option<f64> {
        (self.fresh && self.job.run == self.job.first_run).then(|| self.job.started.at(Boottime::now()).unix)
    }

    fn ordinal(&mut self) -> u32 {
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        ordinal
    }

    fn refresh_tasks(&mut self, ordinal: u32) {
        let Some(step) = self.step(ordinal) else { return };
        let path = match self.version() {
            Version::V2 => format!("{}/user", step.name),
            Version::V1 => step.name.to_string(),
        };
        let cgroup = self.job.cgroup.clone();
        let mut tasks = BTreeSet::new();
        let may_have_some = |dir: &&Dir| dir.stat_of(&path).is_ok_and(|stat| !stat.has_no_directory());
        for dir in cgroup.dirs().filter(may_have_some) {
            // Not every hierarchy has it. A file cannot have a task's name.
            let _ = dir.for_each_below(&path, |name, _, _| {
                tasks.extend(
                    std::str::from_utf8(name)
                        .ok()
                        .filter(|name| names::task(name).is_some())
                        .map(str::to_owned),
                );
            });
        }
        for name in tasks {
            self.task_made(ordinal, &name);
        }
    }

    /// A task's directory was made (or found).
    pub(super) fn task_made(&mut self, step: u32, name: &str) {
        let Some(id) = names::task(name) else { return };
        let known = self.step(step).is_none_or(|s| s.tasks.iter().any(|t| t.id == id));
        if !known {
            let ordinal = self.ordinal();
            let began = self.now();
            if let Some(step) = Arc::make_mut(&mut self.job).steps.iter_mut().find(|s| s.ordinal == step) {
                step.tasks.push(Task { id, ordinal, began });
            }
        }
    }

    /// A step's directory was removed. Its ordinal, if it was known.
    pub(super) fn step_removed(&mut self, name: &str) -> Option<u32> {
        let job = Arc::make_mut(&mut self.job);
        let step = job.steps.iter_mut().find(|s| &*s.name == name && s.ended.is_none())?;
        step.ended = Some(Instant::now());
        Some(step.ordinal)
    }

    /// Whether any process is in it: `cgroup.events` on v2, every `cgroup.procs` on v1.
    pub(super) fn has_processes(&self, buffer: &mut Buffer) -> Option<bool> {
        let cgroup = &self.job.cgroup;
        if cgroup.version() == Version::V2 {
            return populated(cgroup.dirs().next()?, "cgroup.events", buffer);
        }
        let mut lists = vec!["cgroup.procs".to_owned()];
        for step in &self.job.steps {
            lists.push(format!("{}/cgroup.procs", step.name));
            lists.extend(step.tasks.iter().map(|t| format!("{}/task_{}/cgroup.procs", step.name, t.id)));
        }
        // The first process answers it, and most of them are in tasks.
        let mut has_one =
            |(dir, list): (&Dir, &String)| dir.read_list(list, buffer).is_ok_and(|procs| !procs.is_empty());
        Some(cgroup.dirs().any(|dir| lists.iter().rev().any(|list| has_one((dir, list)))))
    }
}
