//! The job table: every run of every job on the node, kept up to date by the kernel's events and verified by a
//! walk at each scrape whose cost does not grow with steps and tasks.

mod end;
mod hierarchies;
mod listing;
mod metadata;
mod saved;
mod show;
mod walk;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::{Controller, DescriptorBudget, Version};
use kernel_files::{Buffer, Roots};
use rustix::process::{Resource, getrlimit};

use super::due_times::DueTimes;
use super::identity::Identities;
use super::job_run::{JobRun, RunState, populated};
use super::readers::Readers;
use super::scope::join;
use super::watch::{Event, Target, Watches};
use super::{JobRunId, TableStats, Users, binding, names};
use crate::{JobObserver, Levels, SlurmCgroup};
use saved::SavedRun;
pub use saved::SavedTable;

/// Most ended job runs that are retained. With more of them the oldest is dropped, so that memory is bounded also
/// without scrapes.
pub const MOST_RETAINED: usize = 8192;

/// How the table is to behave.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// How long an ended job is exported at least.
    pub retention: Duration,
    /// How long it is exported at most, whoever has not read its end.
    pub retention_max: Duration,
    /// How many different readers are to have its end.
    pub readers: usize,
    /// Ended job runs that are retained at most ([`MOST_RETAINED`]).
    pub most_retained: usize,
    /// How long a directory without any process is a job still.
    pub stale_after: Duration,
    /// Levels that are published.
    pub levels: Levels,
    /// Metadata that goes on every series of a job, by name of the label.
    pub job_labels: Vec<JobLabel>,
    /// Where the prolog writes.
    pub jobs_dir: Option<PathBuf>,
    /// Whether names may come from the environment of a job's processes where nothing else knows them.
    pub environment_hints: bool,
}

/// A label that a site wants on every series of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobLabel {
    /// Owner's name (or uid).
    User,
    /// Account.
    Account,
    /// Partition.
    Partition,
    /// Quality of service.
    Qos,
}

/// The table. Runs on one thread.
pub struct Table {
    roots: Arc<Roots>,
    options: TableOptions,
    identities: Identities,
    users: Arc<Users>,
    hooks: Vec<Arc<dyn JobObserver>>,
    watches: Watches,
    /// The watch of the prolog's directory.
    metadata_watch: Option<i32>,
    scopes: Vec<Arc<SlurmCgroup>>,
    /// Whether several slurmd were ever seen on this host: from then on their jobs are distinguished.
    several: bool,
    /// Job directories per root that could not be opened at the latest walk.
    unfollowed: HashMap<u64, usize>,
    /// What the roots' directories were like when all of them were listed and followed, by inode.
    listed: HashMap<u64, listing::Links>,
    scope_watches: HashMap<u64, Vec<i32>>,
    /// `cgroup.subtree_control` of the v2 roots when it was last looked at.
    handed_down: HashMap<u64, Vec<u8>>,
    unavailable: Option<String>,
    searched: Option<Instant>,
    /// Whether the node was looked at once.
    looked: bool,
    /// Boxed, since a node of the map is half empty where keys only grow.
    runs: BTreeMap<JobRunId, Box<JobRun>>,
    /// Directories of running and stale runs.
    by_dir: HashMap<(u64, String), JobRunId>,
    /// Directories that SLURM had left behind and uses again, until that is followed as a run of its own: the inode,
    /// and the first run in it.
    used_again: HashMap<(u64, String), (u64, JobRunId)>,
    /// Runs whose directory is gone, not ended yet.
    gone: Vec<JobRunId>,
    /// Directories that were found to be gone before their removal was reported: before the last events were read, and since.
    gone_dirs: [HashSet<(u64, String)>; 2],
    /// Whether the kernel dropped events since runs ended last.
    missed_events: bool,
    /// Ended job runs, the oldest first; not those whose directory SLURM left behind.
    retained: BTreeSet<(Instant, JobRunId)>,
    /// Who reads the ends of jobs.
    readers: Readers,
    /// The next attempts to identify job runs.
    attempts: DueTimes,
    /// v1: when to look again whether a job run is over.
    looks: DueTimes,
    next_run: u64,
    /// Files of the jobs' cgroups that are held open.
    kept_files: Arc<DescriptorBudget>,
    /// Runs that were there when the exporter before this one saw them last, by path, until the node was looked at.
    awaited: HashMap<String, SavedRun>,
    /// When that was.
    last_seen: Option<Instant>,
    /// When the table was made, seconds since the epoch.
    following_since: f64,
    buffer: Buffer,
    stats: TableStats,
}

/// A job's directory of v1 below its root.
fn user_dir(uid: u32, job: &str) -> String {
    format!("uid_{uid}/{job}")
}

impl Table {
    /// An empty table; the first [`Table::verify`] fills it.
    pub fn new(
        roots: Arc<Roots>,
        options: TableOptions,
        users: Arc<Users>,
        hooks: Vec<Arc<dyn JobObserver>>,
    ) -> Self {
        let identities = Identities::open(&roots, options.jobs_dir.clone(), options.environment_hints);
        let mut watches = Watches::new();
        watches.directory(&roots.cgroup(""), Target::Above);
        Self {
            roots,
            options,
            identities,
            users,
            hooks,
            watches,
            metadata_watch: None,
            scopes: Vec::new(),
            several: false,
            unfollowed: HashMap::new(),
            listed: HashMap::new(),
            scope_watches: HashMap::new(),
            handed_down: HashMap::new(),
            unavailable: None,
            searched: None,
            looked: false,
            runs: BTreeMap::new(),
            by_dir: HashMap::new(),
            used_again: HashMap::new(),
            gone: Vec::new(),
            gone_dirs: [HashSet::new(), HashSet::new()],
            missed_events: false,
            retained: BTreeSet::new(),
            readers: Readers::default(),
            attempts: DueTimes::default(),
            looks: DueTimes::default(),
            next_run: 0,
            kept_files: DescriptorBudget::new(0),
            awaited: HashMap::new(),
            last_seen: None,
            following_since: clocks::unix_now(),
            buffer: Buffer::default(),
            stats: TableStats::default(),
        }
    }

    /// Has files of the jobs' cgroups held open from one snapshot to the next, so many at most and no more than a quarter
    /// of the descriptors that the process may have. Before the first [`Table::verify`].
    #[must_use]
    pub fn keeping_files(mut self, most: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit / 4).ok());
        self.kept_files = DescriptorBudget::new(limit.map_or(most, |limit| most.min(limit)));
        self
    }

    /// What to wait for.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// When something is due without an event: an attempt to identify a job, or a check whether one is over.
    pub fn due(&self) -> Option<Instant> {
        [self.attempts.next(), self.looks.next()].into_iter().flatten().min()
    }

    /// Takes in the kernel's events since the last call.
    pub fn process_events(&mut self) {
        self.take_in_events();
        self.end_gone();
        let [before, latest] = &mut self.gone_dirs;
        before.clear();
        std::mem::swap(before, latest);
    }

    /// The same, but ends no run.
    fn take_in_events(&mut self) {
        let mut events = Vec::new();
        self.watches.drain(&mut events);
        // A step of 100 tasks reports its end 100 times: one reading serves them all.
        let mut checkpoints: BTreeSet<(JobRunId, Option<u32>)> = BTreeSet::new();
        // On v1 each hierarchy reports the same directory. What is there is looked at once.
        let mut made: HashSet<(Target, String)> = HashSet::new();
        for event in events {
            if let Event::Removed(..) | Event::Overflow = event {
                made.clear();
            }
            match event {
                Event::Made(target, name) => {
                    if made.insert((target, name.clone())) {
                        self.made(target, &name);
                    }
                }
                Event::Removed(Target::SlurmCgroup(scope), name) => self.removed(scope, name),
                Event::Removed(Target::User(scope, uid), name) => self.removed(scope, user_dir(uid, &name)),
                Event::Removed(Target::Job(run), name) => {
                    let step = self.runs.get_mut(&run).and_then(|t| t.step_removed(&name));
                    checkpoints.insert((run, step));
                }
                Event::Removed(Target::Step(run, step) | Target::Tasks(run, step), _) => {
                    checkpoints.insert((run, Some(step)));
                }
                Event::Changed(Target::Populated(run, step)) => {
                    if self.step_is_empty(run, step) {
                        checkpoints.insert((run, Some(step)));
                    } else if let Some(tracked) = self.runs.get_mut(&run) {
                        tracked.ask_soon(Instant::now(), &mut self.attempts);
                    }
                }
                Event::Changed(Target::Cpus(run)) => self.bound(run),
                Event::Written(name) => self.metadata_written(&name),
                Event::Removed(
                    Target::Above | Target::Populated(..) | Target::Cpus(_) | Target::Metadata,
                    _,
                )
                | Event::Changed(_) => {}
                Event::Overflow => {
                    self.missed_events = true;
                    self.rescan();
                }
            }
        }
        for (run, step) in checkpoints {
            self.checkpoint(run, step);
        }
    }

    fn made(&mut self, target: Target, name: &str) {
        let roots = self.roots.clone();
        match target {
            Target::Above => self.search(),
            Target::SlurmCgroup(inode) => {
                let Some(scope) = self.scope(inode) else { return };
                if names::v1_user(name).is_some() && scope.cgroup.version() == Version::V1 {
                    self.watch_user(&scope, name);
                    self.list_user(&scope, name, true);
                } else {
                    self.adopt(&scope, name.to_owned(), true);
                }
            }
            Target::User(inode, uid) => {
                let Some(scope) = self.scope(inode) else { return };
                self.adopt(&scope, user_dir(uid, name), true);
            }
            Target::Job(run) => {
                let Some(tracked) = self.runs.get_mut(&run) else { return };
                let step = tracked.step_made(name, &roots, &mut self.watches);
                tracked.ask_soon(Instant::now(), &mut self.attempts);
                self.grew(run, step);
            }
            Target::Step(run, step) => {
                if let Some(tracked) = self.runs.get_mut(&run).filter(|_| name == "user") {
                    tracked.user_made(step, &roots, &mut self.watches);
                    tracked.ask_soon(Instant::now(), &mut self.attempts);
                }
                self.grew(run, Some(step));
            }
            Target::Tasks(run, step) => {
                if let Some(tracked) = self.runs.get_mut(&run) {
                    tracked.task_made(step, name);
                }
                self.grew(run, Some(step));
            }
            Target::Populated(..) | Target::Cpus(_) | Target::Metadata => {}
        }
    }

    fn scope(&self, inode: u64) -> Option<Arc<SlurmCgroup>> {
        self.scopes.iter().find(|s| s.inode == inode).cloned()
    }

    fn step_is_empty(&mut self, run: JobRunId, step: u32) -> bool {
        let Some(tracked) = self.runs.get(&run) else { return false };
        let Some(step) = tracked.job.steps.iter().find(|s| s.ordinal == step) else { return false };
        let file = format!("{}/user/cgroup.events", step.name);
        let dir = tracked.job.cgroup.dirs().next();
        dir.is_some_and(|dir| populated(dir, &file, &mut self.buffer) != Some(true))
    }

    /// Something of a job was made, or found: of a step, or of any.
    fn grew(&mut self, run: JobRunId, step: Option<u32>) {
        let Some(tracked) = self.runs.get(&run).filter(|tracked| !tracked.has_ended()) else { return };
        for hook in &self.hooks {
            hook.step_grew(&tracked.job, step);
        }
        if binding::works(&tracked.job) {
            self.bound(run);
        }
    }

    /// SLURM may have bound a job.
    fn bound(&mut self, run: JobRunId) {
        let Some(tracked) = self.runs.get(&run).filter(|t| matches!(t.state, RunState::Running)) else {
            return;
        };
        for hook in &self.hooks {
            hook.cpus_assigned(&tracked.job, &mut self.buffer);
        }
    }

    /// v1, where no directory may show a job's first task: watches for its cpuset. slurmstepd's write of the file is
    /// an event like any write (fsnotify of the VFS). The watch is set first; a value written before is read.
    fn await_binding(&mut self, run: JobRunId) {
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        let scope =
            self.scopes.iter().find(|s| s.inode == tracked.scope && s.cgroup.version() == Version::V1);
        let Some(root) = scope.and_then(|scope| scope.path_of(Controller::Cpuset)) else { return };
        let file = join(&join(root, &tracked.dir), binding::FILE);
        tracked.watch_cpus(&self.roots.cgroup(&file), &mut self.watches);
        self.bound(run);
    }

    fn checkpoint(&mut self, run: JobRunId, step: Option<u32>) {
        let Some(tracked) = self.runs.get(&run).filter(|t| !t.has_ended()) else { return };
        let job = tracked.job.clone();
        for hook in &self.hooks {
            hook.checkpoint(&job, step, self.options.levels, &mut self.buffer);
        }
    }
}

#[cfg(test)]
mod tests;
