//! The job table: every life of every job on the node, kept up to date by the kernel's events and verified by a
//! walk at each scrape whose cost does not grow with steps and tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::identity::Identities;
use super::life::{Tracked, populated};
use super::names::{self, JobName};
use super::scope::{self, join};
use super::watch::{Event, Target, Watches};
use super::{Job, LifeId, TableStats, Users};
use crate::cgroup::Version;
use crate::collector::{Fate, Levels, LifeHook, Scene, Scope};
use crate::kernel_file::{Buffer, Dir, ReadError};
use crate::roots::Roots;

/// How the table is to behave.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// How long an ended job is told.
    pub retention: Duration,
    /// How long a directory without any process is a job still.
    pub stale_after: Duration,
    /// Levels that are published.
    pub levels: Levels,
    /// Metadata that goes on every series of a job, by name of the label.
    pub job_labels: Vec<JobLabel>,
    /// Where the prolog writes.
    pub jobs_dir: Option<PathBuf>,
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

/// Ended jobs told at most; beyond that the oldest are given up and counted.
const MOST_RETAINED: usize = 8192;
/// A search for SLURM's roots enters every cgroup of the node: not more often than this without an event.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);
/// Scrapes at which a job without a prolog's file is looked for one; most sites have it for all jobs or for none.
const METADATA_TRIES: u8 = 5;
/// Scrapes at which a v1 job is looked for in the hierarchies that did not have it yet.
const V1_TRIES: u8 = 5;
/// How often a job is asked whether it has a process at all.
const EMPTY_PAUSE: Duration = Duration::from_secs(60);

/// The table. Lives on one thread.
pub struct Table {
    roots: Arc<Roots>,
    options: TableOptions,
    identities: Identities,
    users: Arc<Users>,
    hooks: Vec<Arc<dyn LifeHook>>,
    watches: Watches,
    scopes: Vec<Arc<Scope>>,
    scope_watches: HashMap<u64, Vec<i32>>,
    unavailable: Option<String>,
    searched: Option<Instant>,
    lives: BTreeMap<LifeId, Tracked>,
    /// Directories of running and stale lives.
    by_dir: HashMap<(u64, String), LifeId>,
    next_life: u64,
    buffer: Buffer,
    stats: TableStats,
}

fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Table {
    /// An empty table; the first [`Table::verify`] fills it.
    pub fn new(
        roots: Arc<Roots>,
        options: TableOptions,
        users: Arc<Users>,
        hooks: Vec<Arc<dyn LifeHook>>,
    ) -> Result<Self, rustix::io::Errno> {
        let identities = Identities::open(&roots, options.jobs_dir.clone());
        let mut watches = Watches::new()?;
        watches.directory(&roots.cgroup(""), Target::Above);
        Ok(Self {
            roots,
            options,
            identities,
            users,
            hooks,
            watches,
            scopes: Vec::new(),
            scope_watches: HashMap::new(),
            unavailable: None,
            searched: None,
            lives: BTreeMap::new(),
            by_dir: HashMap::new(),
            next_life: 0,
            buffer: Buffer::default(),
            stats: TableStats::default(),
        })
    }

    /// What to wait for.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// When something is due without an event: the next attempt to find out whose a job is.
    pub fn due(&self) -> Option<Instant> {
        self.lives.values().filter_map(|t| t.due).min()
    }

    /// Takes in what the kernel told since the last call.
    pub fn process_events(&mut self) {
        let mut events = Vec::new();
        self.watches.drain(&mut events);
        // A step of 100 tasks tells its end 100 times: one reading serves them all.
        let mut checkpoints: BTreeSet<(LifeId, Option<u32>)> = BTreeSet::new();
        let mut removed = Vec::new();
        for event in events {
            match event {
                Event::Made(target, name) => self.made(target, &name),
                Event::Removed(Target::Scope(scope), name) => removed.push((scope, name)),
                Event::Removed(Target::User(scope), name) => removed.push((scope, name)),
                Event::Removed(Target::Job(life), name) => {
                    let step = self.lives.get_mut(&life).and_then(|t| t.step_removed(&name));
                    checkpoints.insert((life, step));
                }
                Event::Removed(Target::Step(life, step) | Target::Tasks(life, step), _) => {
                    checkpoints.insert((life, Some(step)));
                }
                Event::Changed(Target::Populated(life, step)) => {
                    if self.step_is_empty(life, step) {
                        checkpoints.insert((life, Some(step)));
                    } else if let Some(tracked) = self.lives.get_mut(&life) {
                        tracked.ask_soon(Instant::now());
                    }
                }
                Event::Removed(Target::Above | Target::Populated(..), _) | Event::Changed(_) => {}
                Event::Overflow => self.rescan(),
            }
        }
        for (life, step) in checkpoints {
            self.checkpoint(life, step);
        }
        if !removed.is_empty() {
            self.look_for_removed(&removed);
        }
    }

    fn made(&mut self, target: Target, name: &str) {
        let roots = self.roots.clone();
        match target {
            Target::Above => self.search(),
            Target::Scope(inode) => {
                let Some(scope) = self.scope(inode) else { return };
                if names::v1_user(name).is_some() && scope.cgroup.version() == Version::V1 {
                    self.watch_user(&scope, name);
                    self.list_user(&scope, name, true);
                } else {
                    self.adopt(&scope, name.to_owned(), true);
                }
            }
            // Which user's directory it was, the event does not say: all are listed, there are few.
            Target::User(inode) => {
                let Some(scope) = self.scope(inode) else { return };
                for user in v1_users(&scope) {
                    self.list_user(&scope, &user, true);
                }
            }
            Target::Job(life) => {
                if let Some(tracked) = self.lives.get_mut(&life) {
                    tracked.step_made(name, &roots, &mut self.watches);
                    tracked.ask_soon(Instant::now());
                }
            }
            Target::Step(life, step) => {
                if let Some(tracked) = self.lives.get_mut(&life).filter(|_| name == "user") {
                    tracked.user_made(step, &roots, &mut self.watches);
                    tracked.ask_soon(Instant::now());
                }
            }
            Target::Tasks(life, step) => {
                if let Some(tracked) = self.lives.get_mut(&life) {
                    tracked.task_made(step, name);
                }
            }
            Target::Populated(..) => {}
        }
    }

    fn scope(&self, inode: u64) -> Option<Arc<Scope>> {
        self.scopes.iter().find(|s| s.inode == inode).cloned()
    }

    fn step_is_empty(&mut self, life: LifeId, step: u32) -> bool {
        let Some(tracked) = self.lives.get(&life) else { return false };
        let Some(step) = tracked.job.steps.iter().find(|s| s.ordinal == step) else { return false };
        let file = format!("{}/user/cgroup.events", step.name);
        let dir = tracked.job.cgroup.dirs().next();
        dir.is_some_and(|dir| populated(dir, &file, &mut self.buffer) != Some(true))
    }

    fn checkpoint(&mut self, life: LifeId, step: Option<u32>) {
        let Some(tracked) = self.lives.get(&life).filter(|t| t.ended.is_none()) else { return };
        let job = tracked.job.clone();
        for hook in &self.hooks {
            hook.checkpoint(&job, step, self.options.levels, &mut self.buffer);
        }
    }

    /// Events were lost: everything is looked at anew.
    fn rescan(&mut self) {
        self.search();
        for scope in self.scopes.clone() {
            self.list(&scope, true);
        }
        let roots = self.roots.clone();
        for tracked in self.lives.values_mut().filter(|t| t.ended.is_none()) {
            tracked.refresh_steps(&roots, &mut self.watches);
        }
    }

    /// Searches for SLURM's roots and begins to follow the new ones.
    fn search(&mut self) {
        let first = self.searched.is_none();
        self.searched = Some(Instant::now());
        let found = scope::find(&self.roots);
        let known: Vec<u64> = self.scopes.iter().map(|s| s.inode).collect();
        self.scopes = found.scopes;
        self.unavailable = found.unavailable;
        let gone: Vec<u64> = known.iter().copied().filter(|i| self.scope(*i).is_none()).collect();
        for inode in gone {
            self.scope_gone(inode);
        }
        for scope in self.scopes.clone() {
            if !known.contains(&scope.inode) {
                self.follow(&scope, first);
            }
        }
        self.watch_above();
        self.relabel();
    }

    /// Labels depend on how many slurmd share the host, and on names that take their time.
    fn relabel(&mut self) {
        let several = self.scopes.len() > 1;
        for tracked in self.lives.values_mut() {
            let labels = labels(&tracked.job, &self.options.job_labels, &self.users, several);
            if tracked.job.labels != labels {
                Arc::make_mut(&mut tracked.job).labels = labels;
            }
        }
    }

    /// Watches the directories in which SLURM's roots appear: the slices below the mount point.
    fn watch_above(&mut self) {
        let Ok(root) = Dir::open(&self.roots.cgroup("")) else { return };
        for entry in root.directories().unwrap_or_default() {
            if entry.name.ends_with(".slice")
                && entry.name != "user.slice"
                && !entry.name.starts_with("kubepods")
            {
                self.watches.directory(&self.roots.cgroup(&entry.name), Target::Above);
            }
        }
    }

    fn follow(&mut self, scope: &Arc<Scope>, first: bool) {
        let watch = self.watches.directory(&self.roots.cgroup(&scope.path), Target::Scope(scope.inode));
        self.scope_watches.entry(scope.inode).or_default().extend(watch);
        if scope.cgroup.version() == Version::V1 {
            for user in v1_users(scope) {
                self.watch_user(scope, &user);
            }
        }
        // Jobs found in the first search were there before; in a root that appeared later they are new.
        self.list(scope, !first);
    }

    fn watch_user(&mut self, scope: &Scope, user: &str) {
        let path = self.roots.cgroup(&join(&scope.path, user));
        let watch = self.watches.directory(&path, Target::User(scope.inode));
        self.scope_watches.entry(scope.inode).or_default().extend(watch);
    }

    fn scope_gone(&mut self, inode: u64) {
        for watch in self.scope_watches.remove(&inode).unwrap_or_default() {
            self.watches.remove(watch);
        }
        let lives: Vec<LifeId> =
            self.lives.values().filter(|t| t.scope == inode).map(Tracked::life).collect();
        let alone = lives.len() == 1;
        for life in lives {
            self.end(life, alone);
        }
    }

    /// Lists a root: adopts what is new and ends what is gone.
    fn list(&mut self, scope: &Arc<Scope>, fresh: bool) {
        let mut there: HashMap<String, u64> = HashMap::new();
        let listed = match scope.cgroup.version() {
            Version::V2 => list_v2(scope, &mut there),
            Version::V1 => list_v1(scope, &mut there),
        };
        if listed.is_err() {
            return;
        }
        let gone: Vec<LifeId> = self
            .by_dir
            .iter()
            .filter(|((inode, dir), life)| {
                let there = there.get(dir).copied();
                *inode == scope.inode
                    && !self.lives.get(life).is_some_and(|t| there.is_some_and(|i| t.is_at(i)))
            })
            .map(|(_, life)| *life)
            .collect();
        let alone = gone.len() == 1;
        for life in gone {
            self.end(life, alone);
        }
        for dir in there.into_keys() {
            if !self.by_dir.contains_key(&(scope.inode, dir.clone())) {
                self.adopt(scope, dir, fresh);
            }
        }
    }

    fn list_user(&mut self, scope: &Arc<Scope>, user: &str, fresh: bool) {
        let mut there = HashMap::new();
        for dir in scope.cgroup.dirs() {
            // A user's directory of another hierarchy may not be there yet.
            let _ = list_v1_user(dir, user, &mut there);
        }
        for dir in there.into_keys() {
            self.adopt(scope, dir, fresh);
        }
    }

    /// Begins to follow a job's directory, unless that is done already.
    fn adopt(&mut self, scope: &Arc<Scope>, dir: String, fresh: bool) {
        let (user, name) = match dir.rsplit_once('/') {
            Some((user, name)) => (names::v1_user(user), name),
            None => (None, dir.as_str()),
        };
        let Some(name) = names::job(name) else { return };
        let Some(cgroup) = scope.cgroup.open_below(&dir) else { return };
        let Some(stat) = cgroup.dirs().next().and_then(|d| d.stat().ok()) else { return };
        let key = (scope.inode, dir.clone());
        if let Some(life) = self.by_dir.get(&key).copied() {
            match self.lives.get(&life) {
                Some(tracked) if tracked.is_at(stat.inode) => return,
                _ => self.end(life, true),
            }
        }
        self.next_life += 1;
        self.stats.lives_total += 1;
        let life = LifeId(self.next_life);
        let (id, sluid) = match name {
            JobName::Id(id) => (Some(id), None),
            JobName::Sluid(sluid) => (None, Some(sluid)),
        };
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        let started = if fresh { unix_now() } else { stat.mtime as f64 };
        let job = Job {
            life,
            id,
            sluid,
            slurm_node: scope.node.clone(),
            started,
            ended: None,
            cgroup: Arc::new(cgroup),
            uid: user,
            metadata: Arc::default(),
            steps: Vec::new(),
            labels: Vec::new(),
        };
        let path = join(&scope.path, &dir);
        let mut tracked = Tracked::new(job, scope.inode, dir, path, stat.inode, fresh);
        tracked.take_in(&self.roots, &mut self.watches);
        tracked.lived = fresh || tracked.has_processes(&mut self.buffer) != Some(false);
        self.by_dir.insert(key, life);
        self.lives.insert(life, tracked);
        self.find_out(life, false);
        if fresh && let Some(tracked) = self.lives.get_mut(&life) {
            tracked.ask_soon(Instant::now());
        }
    }

    /// Finds out what is not known yet of a life's identity.
    fn find_out(&mut self, life: LifeId, last_chance: bool) {
        let Some(tracked) = self.lives.get_mut(&life) else { return };
        let found = self.identities.find(&tracked.job, last_chance, &mut self.buffer);
        let job = Arc::make_mut(&mut tracked.job);
        job.id = job.id.or(found.id);
        job.uid = job.uid.or(found.uid);
        if let Some(metadata) = found.metadata {
            job.sluid = job.sluid.or(metadata.sluid);
            job.metadata = Arc::new(metadata);
        }
        if !tracked.fresh
            && let Some(started) = found.started
        {
            job.started = started;
            tracked.fresh = true;
        }
        if let Some(uid) = job.uid {
            // Asks now, so that the name is there when a scrape wants it.
            self.users.name(uid);
        }
        job.labels = labels(job, &self.options.job_labels, &self.users, self.scopes.len() > 1);
        if !tracked.unknown() {
            tracked.due = None;
        }
    }

    /// Attempts that are due.
    pub fn attend(&mut self) {
        let now = Instant::now();
        let due: Vec<LifeId> =
            self.lives.values().filter(|t| t.due.is_some_and(|due| due <= now)).map(Tracked::life).collect();
        for life in due {
            self.find_out(life, false);
            if let Some(tracked) = self.lives.get_mut(&life).filter(|t| t.unknown()) {
                tracked.schedule(now);
            }
        }
    }

    fn look_for_removed(&mut self, removed: &[(u64, String)]) {
        let named = |dir: &str, name: &str| dir == name || dir.rsplit('/').next() == Some(name);
        let gone: Vec<LifeId> = self
            .lives
            .values()
            .filter(|t| self.by_dir.get(&(t.scope, t.dir.clone())) == Some(&t.life()))
            .filter(|t| removed.iter().any(|(scope, name)| t.scope == *scope && named(&t.dir, name)))
            .filter(|t| t.job.cgroup.is_gone())
            .map(Tracked::life)
            .collect();
        let alone = gone.len() == 1;
        for life in gone {
            self.end(life, alone);
        }
    }

    /// A life's directory is gone.
    fn end(&mut self, life: LifeId, alone: bool) {
        self.find_out_at_the_end(life);
        let Some(tracked) = self.lives.get_mut(&life) else { return };
        self.by_dir.remove(&(tracked.scope, tracked.dir.clone()));
        tracked.unwatch(&mut self.watches);
        tracked.due = None;
        if tracked.ended.is_some() {
            // Left behind, and now removed after all.
            tracked.stale = false;
            return;
        }
        tracked.ended = Some(Instant::now());
        let job = Arc::make_mut(&mut tracked.job);
        job.ended = Some(unix_now());
        let unresolved = job.id.is_none();
        let job = tracked.job.clone();
        let others: Vec<Arc<Job>> =
            self.lives.values().filter(|t| t.ended.is_none()).map(|t| t.job.clone()).collect();
        for hook in &self.hooks {
            hook.vanished(&job, &others, &self.scopes, alone, &mut self.buffer);
        }
        if unresolved {
            self.stats.lost_total += 1;
            self.forget(life, Fate::Lost);
        }
    }

    fn find_out_at_the_end(&mut self, life: LifeId) {
        if self.lives.get(&life).is_some_and(|t| t.unknown() && t.ended.is_none()) {
            self.find_out(life, true);
        }
    }

    fn forget(&mut self, life: LifeId, fate: Fate) {
        if let Some(mut tracked) = self.lives.remove(&life) {
            let fate = if tracked.lived { fate } else { Fate::Leftover };
            tracked.unwatch(&mut self.watches);
            self.by_dir.retain(|_, l| *l != life);
            for hook in &self.hooks {
                hook.forget(life, fate);
            }
        }
    }

    /// Verifies the table by a walk over the job directories.
    pub fn verify(&mut self) {
        self.process_events();
        let scope_missing = self.scopes.iter().any(|s| s.cgroup.is_gone());
        let patient = self.searched.is_some_and(|at| at.elapsed() < SEARCH_PAUSE);
        if scope_missing || self.searched.is_none() || (self.scopes.is_empty() && !patient) {
            self.search();
        }
        for scope in self.scopes.clone() {
            self.list(&scope, true);
        }
        let unwatched = self.watches.failures() > 0;
        let roots = self.roots.clone();
        let mut ask = Vec::new();
        for tracked in self.lives.values_mut().filter(|t| t.ended.is_none()) {
            if unwatched {
                tracked.refresh_steps(&roots, &mut self.watches);
            }
            if tracked.unknown() {
                ask.push(tracked.life());
            } else if tracked.job.metadata.job_id.is_none() && tracked.metadata_tries < METADATA_TRIES {
                tracked.metadata_tries += 1;
                ask.push(tracked.life());
            }
        }
        for life in ask {
            self.find_out(life, false);
        }
        self.complete_v1();
        self.look_for_stale();
    }

    /// v1: directories of hierarchies that were not there when the job was adopted.
    fn complete_v1(&mut self) {
        for tracked in self.lives.values_mut().filter(|t| t.ended.is_none()) {
            let Some(scope) = self.scopes.iter().find(|s| s.inode == tracked.scope) else { continue };
            let have = tracked.job.cgroup.dirs().count();
            if have == scope.cgroup.dirs().count() || tracked.v1_tries >= V1_TRIES {
                continue;
            }
            tracked.v1_tries += 1;
            if let Some(cgroup) = scope.cgroup.open_below(&tracked.dir)
                && cgroup.dirs().count() > have
            {
                Arc::make_mut(&mut tracked.job).cgroup = Arc::new(cgroup);
            }
        }
    }

    fn look_for_stale(&mut self) {
        let now = Instant::now();
        let mut revived = Vec::new();
        for tracked in self.lives.values_mut().filter(|t| t.ended.is_none() || t.stale) {
            let rested = tracked.asked_empty.is_none_or(|at| now.duration_since(at) >= EMPTY_PAUSE);
            if !rested && tracked.empty_since.is_none() {
                continue;
            }
            tracked.asked_empty = Some(now);
            match tracked.has_processes(&mut self.buffer) {
                Some(false) => {
                    let since = *tracked.empty_since.get_or_insert(now);
                    if !tracked.stale && now.duration_since(since) >= self.options.stale_after {
                        tracked.stale = true;
                        tracked.ended = Some(now);
                        Arc::make_mut(&mut tracked.job).ended = Some(unix_now());
                    }
                }
                Some(true) if tracked.stale => {
                    revived.push((tracked.scope, tracked.dir.clone(), tracked.life()))
                }
                Some(true) => {
                    tracked.lived = true;
                    tracked.empty_since = None;
                }
                None => tracked.empty_since = None,
            }
        }
        // SLURM uses the directory it left behind again: that is another life.
        for (scope, dir, life) in revived {
            if let Some(tracked) = self.lives.get_mut(&life) {
                tracked.stale = false;
                tracked.unwatch(&mut self.watches);
            }
            self.by_dir.remove(&(scope, dir.clone()));
            if let Some(scope) = self.scope(scope) {
                self.adopt(&scope, dir, true);
            }
        }
    }

    /// Gives up ended jobs that were told long enough.
    fn purge(&mut self) {
        let retention = self.options.retention;
        let mut ended: Vec<(Instant, LifeId, bool)> = Vec::new();
        for tracked in self.lives.values().filter(|t| !t.stale) {
            if let Some(at) = tracked.ended {
                let over = tracked.told_enough(retention) || !tracked.lived;
                ended.push((at, tracked.life(), over));
            }
        }
        ended.sort();
        let mut surplus = ended.len().saturating_sub(MOST_RETAINED);
        for (_, life, old) in ended {
            if old || surplus > 0 {
                if !old && self.lives.get(&life).is_some_and(|t| !t.told) {
                    self.stats.dropped_total += 1;
                }
                surplus = surplus.saturating_sub(1);
                self.forget(life, Fate::Told);
            }
        }
    }

    /// The jobs as they are now.
    pub fn scene(&mut self) -> Scene {
        self.verify();
        self.purge();
        if self.options.job_labels.contains(&JobLabel::User) {
            self.relabel();
        }
        let mut shown: BTreeMap<_, LifeId> = BTreeMap::new();
        let mut hidden: Vec<LifeId> = Vec::new();
        // Lives of one job in the order they were seen. One of them is told: an ended one until a scrape was
        // served with it, then the next; the others wait.
        for tracked in self.lives.values() {
            let leftover = tracked.stale && tracked.told_enough(self.options.retention);
            let (Some(id), true, false) = (tracked.job.id, tracked.lived, leftover) else {
                hidden.push(tracked.life());
                continue;
            };
            let key = (id, tracked.job.slurm_node.clone());
            match shown.get(&key).and_then(|life| self.lives.get(life)) {
                Some(before) if before.ended.is_none() || !before.told => hidden.push(tracked.life()),
                Some(_) | None => {
                    shown.insert(key, tracked.life());
                }
            }
        }
        let jobs = |lives: Vec<LifeId>| -> Vec<Arc<Job>> {
            lives.iter().filter_map(|life| self.lives.get(life)).map(|t| t.job.clone()).collect()
        };
        let stale = self.lives.values().filter(|t| t.stale).map(|t| t.job.clone()).collect();
        let mut stats = self.stats;
        for tracked in self.lives.values() {
            match (tracked.stale, tracked.ended, tracked.job.id) {
                (true, ..) => stats.stale += 1,
                (_, Some(_), _) => stats.retained += 1,
                (_, None, None) => stats.unresolved += 1,
                (_, None, Some(_)) => stats.running += 1,
            }
        }
        stats.overflows_total = self.watches.overflows();
        stats.watch_failures_total = self.watches.failures();
        Scene {
            jobs: jobs(shown.into_values().collect()),
            pending: jobs(hidden),
            stale,
            scopes: self.scopes.clone(),
            unavailable: self.unavailable.clone(),
            levels: self.options.levels,
            roots: self.roots.clone(),
            table: stats,
        }
    }

    /// A scrape was served with these jobs in it.
    pub fn told(&mut self, jobs: &[Arc<Job>]) {
        for job in jobs.iter().filter(|j| !j.is_running()) {
            if let Some(tracked) = self.lives.get_mut(&job.life) {
                tracked.told = true;
            }
        }
    }
}

fn v1_users(scope: &Scope) -> BTreeSet<String> {
    let mut users = BTreeSet::new();
    for dir in scope.cgroup.dirs() {
        let entries = dir.directories().unwrap_or_default();
        users.extend(entries.into_iter().map(|e| e.name).filter(|name| names::v1_user(name).is_some()));
    }
    users
}

fn list_v2(scope: &Scope, there: &mut HashMap<String, u64>) -> Result<(), ReadError> {
    let Some(dir) = scope.cgroup.dirs().next() else { return Ok(()) };
    dir.for_each(|name, inode, _| {
        if let Ok(name) = std::str::from_utf8(name)
            && names::job(name).is_some()
        {
            there.insert(name.to_owned(), inode);
        }
    })
}

fn list_v1(scope: &Scope, there: &mut HashMap<String, u64>) -> Result<(), ReadError> {
    for dir in scope.cgroup.dirs() {
        for entry in dir.directories()?.iter().filter(|e| names::v1_user(&e.name).is_some()) {
            list_v1_user(dir, &entry.name, there)?;
        }
    }
    Ok(())
}

/// The hierarchy that is watched comes first, and its inode is the one that counts.
fn list_v1_user(dir: &Dir, user: &str, there: &mut HashMap<String, u64>) -> Result<(), ReadError> {
    dir.open_dir(user)?.for_each(|name, inode, _| {
        if let Ok(name) = std::str::from_utf8(name)
            && names::job(name).is_some()
        {
            there.entry(join(user, name)).or_insert(inode);
        }
    })
}

/// The labels of each series of a job.
fn labels(job: &Job, wanted: &[JobLabel], users: &Users, several: bool) -> Vec<(&'static str, String)> {
    let mut labels = Vec::with_capacity(2 + wanted.len());
    if let Some(id) = job.id {
        labels.push(("jobid", id.to_string()));
    }
    if let Some(node) = job.slurm_node.as_ref().filter(|_| several) {
        labels.push(("slurm_node", node.to_string()));
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    for label in wanted {
        let metadata = &job.metadata;
        labels.push(match label {
            JobLabel::User => {
                let name = job.uid.and_then(|uid| users.name(uid)).map(|name| name.to_string());
                let uid = || job.uid.map(|uid| uid.to_string());
                ("user", name.or_else(|| metadata.user.clone()).or_else(uid).unwrap_or_default())
            }
            JobLabel::Account => ("account", text(&metadata.account)),
            JobLabel::Partition => ("partition", text(&metadata.partition)),
            JobLabel::Qos => ("qos", text(&metadata.qos)),
        });
    }
    labels
}
