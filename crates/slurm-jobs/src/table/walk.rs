//! Finding jobs by walking: SLURM's roots, the directories in them, and what events missed.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cgroups::{Cgroup, Version};
use clocks::Moment;
use kernel_files::{Dir, ReadError};
use rustix::process::{Resource, getrlimit};

use super::{Table, listing};
use crate::job_run::{JobRun, RunState};
use crate::names::{self, JobName};
use crate::scope::{self, join};
use crate::watch::Target;
use crate::{Job, JobRunId, SlurmCgroup};

/// A search for SLURM's roots enters every cgroup of the node: not more often than this without an event.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);
/// Scrapes at which a job is asked for what is not known of it. Most sites have a prolog's file for all jobs or for none.
const ASKED_AT_EACH: u32 = 5;
/// Then one scrape of so many, if it has no id or no owner: whose slurmstepd died has none to the end. New steps and new
/// files of the prolog are events of their own.
const ASKED_LATER: u32 = 16;
/// Scrapes at which a v1 job is looked for in the hierarchies that did not have it yet.
const V1_TRIES: u8 = 5;

impl Table {
    /// Events were lost: all directories are read again.
    pub(super) fn rescan(&mut self) {
        self.search();
        self.read_all_metadata();
        for scope in self.scopes.clone() {
            self.list(&scope, true);
        }
        let roots = self.roots.clone();
        let mut grown = Vec::new();
        for tracked in self.runs.values_mut().filter(|t| !t.has_ended()) {
            tracked.refresh_steps(&roots, &mut self.watches);
            grown.push(tracked.run());
        }
        for run in grown {
            self.grew(run, None);
        }
    }

    /// Searches for SLURM's roots and begins to follow the new ones.
    pub(super) fn search(&mut self) {
        let first = self.searched.is_none();
        self.searched = Some(Instant::now());
        let mut found = scope::find(&self.roots, &self.kept_files);
        // v1: a root that was removed and made again has the same identity, and nothing else of the old one.
        let known: HashMap<u64, Vec<String>> = self
            .scopes
            .iter()
            .filter(|s| !s.cgroup.is_gone() || s.cgroup.version() == Version::V2)
            .map(|s| (s.inode, s.paths.clone()))
            .collect();
        let before: Vec<u64> = self.scopes.iter().map(|s| s.inode).collect();
        for scope in self.scopes.drain(..) {
            // A search that could not enter everything is no proof that a root is gone.
            if !scope.cgroup.is_gone() && !found.scopes.iter().any(|s| s.inode == scope.inode) {
                found.scopes.push(scope);
            }
        }
        self.scopes = found.scopes;
        self.unavailable = found.unavailable.filter(|_| self.scopes.is_empty());
        self.several |= self.scopes.len() > 1;
        for inode in before {
            if self.scope(inode).is_none() || !known.contains_key(&inode) {
                self.scope_gone(inode);
            }
        }
        for scope in self.scopes.clone() {
            match known.get(&scope.inode) {
                Some(paths) if *paths == scope.paths => {}
                // SLURM began to use another hierarchy.
                Some(_) => {
                    self.follow(&scope, first);
                    let runs = self.runs.values_mut().filter(|t| t.scope == scope.inode);
                    runs.for_each(|tracked| tracked.v1_tries = 0);
                    self.complete_v1();
                }
                None => self.follow(&scope, first),
            }
        }
        self.watch_above();
        self.relabel();
    }

    /// Watches the directories in which SLURM's roots appear: the slices below the mount point, v1's hierarchies.
    pub(super) fn watch_above(&mut self) {
        let Ok(root) = Dir::open(&self.roots.cgroup("")) else { return };
        for hierarchy in scope::hierarchies(&root).unwrap_or_default() {
            if hierarchy.version == Version::V1 {
                self.watches.directory(&self.roots.cgroup(&hierarchy.mount), Target::Above);
            }
        }
        for entry in root.directories().unwrap_or_default() {
            if entry.name.ends_with(".slice")
                && entry.name != "user.slice"
                && !entry.name.starts_with("kubepods")
            {
                self.watches.directory(&self.roots.cgroup(&entry.name), Target::Above);
            }
        }
    }

    pub(super) fn follow(&mut self, scope: &Arc<SlurmCgroup>, first: bool) {
        self.watch_scope(scope);
        // Jobs found in the first search were there before; in a root that appeared later they are new.
        self.list(scope, !first);
    }

    fn watch_scope(&mut self, scope: &Arc<SlurmCgroup>) {
        for path in &scope.paths {
            let watch = self.watches.directory(&self.roots.cgroup(path), Target::SlurmCgroup(scope.inode));
            self.scope_watches.entry(scope.inode).or_default().extend(watch);
        }
        if scope.cgroup.version() == Version::V1 {
            for user in listing::v1_users(scope) {
                self.watch_user(scope, &user);
            }
        }
    }

    /// Events come from now on: sets every watch, and takes in what happened before.
    fn watch_all(&mut self) {
        self.watches.directory(&self.roots.cgroup(""), Target::Above);
        for scope in self.scopes.clone() {
            self.watch_scope(&scope);
        }
        let roots = self.roots.clone();
        let mut running = Vec::new();
        for tracked in self.runs.values_mut().filter(|t| !t.has_ended()) {
            tracked.watch_again(&roots, &mut self.watches);
            running.push(tracked.run());
        }
        for run in running {
            self.await_binding(run);
        }
        self.rescan();
    }

    pub(super) fn watch_user(&mut self, scope: &SlurmCgroup, user: &str) {
        let Some(uid) = names::v1_user(user) else { return };
        for path in &scope.paths {
            let path = self.roots.cgroup(&join(path, user));
            let watch = self.watches.directory(&path, Target::User(scope.inode, uid));
            let known = self.scope_watches.entry(scope.inode).or_default();
            // SLURM removes the directory after a user's last job, and makes it again.
            known.retain(|watch| self.watches.has(*watch));
            known.extend(watch);
        }
    }

    pub(super) fn scope_gone(&mut self, inode: u64) {
        self.unfollowed.remove(&inode);
        self.listed.remove(&inode);
        for watch in self.scope_watches.remove(&inode).unwrap_or_default() {
            self.watches.remove(watch);
        }
        self.handed_down.remove(&inode);
        let keys: Vec<_> = self.by_dir.keys().filter(|(scope, _)| *scope == inode).cloned().collect();
        for key in keys {
            self.gone.extend(self.by_dir.remove(&key));
        }
    }

    /// Lists a root: adopts new directories and notes removed ones.
    pub(super) fn list(&mut self, scope: &Arc<SlurmCgroup>, fresh: bool) {
        let Some(there) = self.adopt_unknown(scope, fresh) else { return };
        let missing = |(key, run): (&(u64, String), &JobRunId)| {
            let there = there.get(&key.1).copied();
            let same = |tracked: &JobRun| there.is_some_and(|inode| tracked.is_at(inode));
            let gone = key.0 == scope.inode && !self.runs.get(run).is_some_and(|tracked| same(tracked));
            gone.then(|| (key.clone(), *run))
        };
        let gone: Vec<((u64, String), JobRunId)> = self.by_dir.iter().filter_map(missing).collect();
        for (key, run) in gone {
            self.is_gone(key, run);
        }
    }

    /// Adopts the directories of a root that are not followed yet. Returns all of them, by name and inode.
    pub(super) fn adopt_unknown(
        &mut self,
        scope: &Arc<SlurmCgroup>,
        fresh: bool,
    ) -> Option<HashMap<String, u64>> {
        let (there, links) = listing::list(scope).ok()?;
        let all = self.adopt_those(scope, &there, fresh);
        match links.filter(|_| all) {
            Some(links) => self.listed.insert(scope.inode, links),
            None => self.listed.remove(&scope.inode),
        };
        Some(there)
    }

    /// The same for the jobs whose CPU time is counted: on v1 those of the first hierarchy.
    pub(super) fn adopt_counted(&mut self, scope: &Arc<SlurmCgroup>) {
        if let Ok(there) = listing::list_first(scope) {
            self.adopt_those(scope, &there, true);
        }
    }

    /// Whether all of them are followed now.
    fn adopt_those(&mut self, scope: &Arc<SlurmCgroup>, there: &HashMap<String, u64>, fresh: bool) -> bool {
        let mut unfollowed = 0;
        for (dir, inode) in there {
            let run = self.by_dir.get(&(scope.inode, dir.clone()));
            let followed = run.and_then(|run| self.runs.get(run)).is_some_and(|t| t.is_at(*inode));
            if !followed && !self.adopt(scope, dir.clone(), fresh) {
                unfollowed += 1;
            }
        }
        self.unfollowed.insert(scope.inode, unfollowed);
        unfollowed == 0
    }

    pub(super) fn list_user(&mut self, scope: &Arc<SlurmCgroup>, user: &str, fresh: bool) {
        let mut there = HashMap::new();
        for dir in scope.cgroup.dirs() {
            // A user's directory of another hierarchy may not be there yet.
            let _ = listing::list_user(dir, user, &mut there);
        }
        for dir in there.into_keys() {
            self.adopt(scope, dir, fresh);
        }
    }

    /// Begins to follow a job's directory, unless that is done already. False when it cannot be followed: with too
    /// few descriptors the next walk tries again.
    pub(super) fn adopt(&mut self, scope: &Arc<SlurmCgroup>, dir: String, fresh: bool) -> bool {
        let (user, name) = match dir.rsplit_once('/') {
            Some((user, name)) => (names::v1_user(user), name),
            None => (None, dir.as_str()),
        };
        let Some(name) = names::job(name) else { return true };
        if self.follows_all_of(scope, &dir) {
            return true;
        }
        let cgroup = match scope.cgroup.open_below(&dir) {
            Ok(cgroup) if cgroup.dirs().any(takes_reserved_descriptor) => return self.not_followed(scope),
            Ok(cgroup) => Some(cgroup.without_absent_controllers(&mut self.buffer)),
            Err(ReadError::Gone) => None,
            Err(_) => return self.not_followed(scope),
        };
        // An inode of 0: the directory is gone already, and only its name is known.
        let stat = cgroup.as_ref().and_then(|cgroup| cgroup.dirs().next()?.stat().ok());
        let (inode, made) = stat.map_or((0, 0), |stat| (stat.inode, stat.mtime));
        let key = (scope.inode, dir.clone());
        if inode == 0 && self.gone_dirs.iter().any(|dirs| dirs.contains(&key)) {
            return true;
        }
        if let Some(run) = self.by_dir.get(&key).copied() {
            match self.runs.get(&run) {
                // The removal of a directory that is gone already and was followed is reported, too.
                Some(tracked)
                    if inode == 0 || tracked.is_at(inode) || tracked.goes_on_in(cgroup.as_ref()) =>
                {
                    if let Some(cgroup) = cgroup.filter(|cgroup| cgroup.version() == Version::V1) {
                        self.complete(run, cgroup);
                    }
                    return true;
                }
                _ => self.gone.push(run),
            }
        }
        let identity = (name, user);
        let run = self.new_run(scope, dir, cgroup, (inode, made), identity, fresh);
        self.start(run, fresh);
        true
    }

    /// The next walk lists the root again, also if as many directories are in it.
    fn not_followed(&mut self, scope: &SlurmCgroup) -> bool {
        self.listed.remove(&scope.inode);
        false
    }

    /// Makes the run of a job's directory, and watches it. `inode` is 0 for one that is gone already.
    fn new_run(
        &mut self,
        scope: &SlurmCgroup,
        dir: String,
        cgroup: Option<Cgroup>,
        (inode, made): (u64, i64),
        (name, uid): (JobName, Option<u32>),
        fresh: bool,
    ) -> JobRunId {
        let key = (scope.inode, dir.clone());
        if let Some(run) = self.revive(scope, &dir, cgroup.as_ref(), inode) {
            return run;
        }
        self.next_run += 1;
        self.stats.runs_total += 1;
        let run = JobRunId(self.next_run);
        // On v1 each hierarchy has an inode of its own.
        let same = |known: u64| known == inode || scope.cgroup.version() == Version::V1;
        let before = self.used_again.remove(&key).filter(|(known, _)| same(*known));
        let (id, sluid) = match name {
            JobName::Id(id) => (Some(id), None),
            JobName::Sluid(sluid) => (None, Some(sluid)),
        };
        let now = Moment::now();
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
        let started = if fresh { now } else { Moment::of_unix(made as f64, now) };
        let job = Job {
            run,
            first_run: before.map_or(run, |(_, first)| first),
            id,
            sluid,
            slurm_node: scope.node.clone(),
            since: Instant::now(),
            started,
            ended: None,
            cgroup: Arc::new(cgroup.unwrap_or_else(|| scope.cgroup.closed())),
            inode,
            uid,
            metadata: Arc::default(),
            steps: Vec::new(),
            labels: Vec::new(),
        };
        let path = join(scope.path(), &dir);
        tracing::debug!(path, run = run.0, fresh, "following a job");
        let mut tracked = JobRun::new(job, scope.inode, dir, path, inode, fresh);
        if inode == 0 {
            self.is_gone(key, run);
        } else {
            tracked.take_in(&self.roots, &mut self.watches);
            self.by_dir.insert(key, run);
        }
        if fresh || (inode != 0 && tracked.has_processes(&mut self.buffer) != Some(false)) {
            tracked.state = RunState::Running;
        }
        self.runs.insert(run, Box::new(tracked));
        run
    }

    /// Identifies a new run, and notifies the observers of it.
    fn start(&mut self, run: JobRunId, fresh: bool) {
        // First, so that observers get the prolog's metadata at once.
        self.find_out(run, false);
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        if tracked.has_run() && !tracked.has_ended() {
            for hook in &self.hooks {
                hook.job_started(&tracked.job);
            }
        }
        if fresh {
            tracked.ask_soon(Instant::now(), &mut self.attempts);
        }
        self.await_binding(run);
        self.grew(run, None);
    }

    /// Verifies the table by a walk over the job directories.
    pub fn verify(&mut self) {
        if self.watches.ask_again(Instant::now()) {
            self.watch_all();
        }
        self.process_events();
        self.watch_metadata();
        let unreported = self.watches.refused().is_some();
        let scope_missing = self.scopes.iter().any(|s| s.cgroup.is_gone());
        let patient = self.searched.is_some_and(|at| at.elapsed() < SEARCH_PAUSE);
        if scope_missing || self.searched.is_none() || ((self.scopes.is_empty() || unreported) && !patient) {
            self.search();
        }
        let unwatched = unreported || self.watches.failures() > 0;
        for scope in self.scopes.clone() {
            let listed = self.listed.get(&scope.inode);
            if unwatched || !listed.is_some_and(|links| links.are_as_before(&scope)) {
                self.list(&scope, true);
            }
        }
        if unreported {
            self.read_all_metadata();
        }
        let roots = self.roots.clone();
        let (mut ask, mut grown) = (Vec::new(), Vec::new());
        for tracked in self.runs.values_mut().filter(|t| !t.has_ended()) {
            if unwatched {
                tracked.refresh_steps(&roots, &mut self.watches);
                grown.push(tracked.run());
            }
            if tracked.unknown() || tracked.job.metadata.job_id.is_none() {
                let before = tracked.asked;
                tracked.asked = before.saturating_add(1);
                if before < ASKED_AT_EACH || (tracked.unknown() && before.is_multiple_of(ASKED_LATER)) {
                    ask.push(tracked.run());
                }
            }
        }
        for run in grown {
            self.grew(run, None);
        }
        for run in ask {
            self.find_out(run, false);
        }
        self.complete_v1();
        self.note_controllers();
        self.look_for_stale();
        self.end_gone();
        self.end_awaited();
        if !std::mem::replace(&mut self.looked, true) {
            self.hooks.iter().for_each(|hook| hook.initial_scan_done());
        }
    }

    /// v2: jobs get the controllers that their root hands down; a slurmd with a new configuration may hand down
    /// others.
    fn note_controllers(&mut self) {
        for scope in self.scopes.iter().filter(|scope| scope.cgroup.version() == Version::V2) {
            let file = scope
                .cgroup
                .dirs()
                .next()
                .map(|dir| dir.read_record("cgroup.subtree_control", &mut self.buffer));
            let Some(Ok(handed)) = file else { continue };
            if self.handed_down.get(&scope.inode).is_some_and(|known| known == handed) {
                continue;
            }
            if self.handed_down.insert(scope.inode, handed.to_vec()).is_none() {
                // The jobs were just opened. Opened again, they would leave the lowest descriptors to more jobs than may have one.
                continue;
            }
            let here = |t: &&mut Box<JobRun>| t.scope == scope.inode && !t.has_ended();
            for tracked in self.runs.values_mut().filter(here) {
                if let Some(cgroup) = tracked.job.cgroup.reopened(&mut self.buffer) {
                    Arc::make_mut(&mut tracked.job).cgroup = Arc::new(cgroup);
                }
            }
        }
    }

    /// v1: directories of hierarchies that were not there when the job was adopted.
    pub(super) fn complete_v1(&mut self) {
        let mut incomplete = Vec::new();
        for tracked in self.runs.values_mut().filter(|t| !t.has_ended() && t.v1_tries < V1_TRIES) {
            let Some(scope) = self.scopes.iter().find(|s| s.inode == tracked.scope) else { continue };
            if tracked.job.cgroup.dirs().count() < scope.cgroup.dirs().count() {
                tracked.v1_tries += 1;
                incomplete.push((tracked.run(), scope.clone(), tracked.dir.clone()));
            }
        }
        for (run, scope, dir) in incomplete {
            if let Ok(cgroup) = scope.cgroup.open_below(&dir) {
                self.complete(run, cgroup);
            }
        }
    }

    /// Takes a job's directories if they are more than were known, or one of them was made again: a step that ends
    /// may remove the job's directory in a hierarchy in which the next step makes it again.
    fn complete(&mut self, run: JobRunId, cgroup: Cgroup) {
        let Some(tracked) = self.runs.get_mut(&run) else { return };
        let known = &tracked.job.cgroup;
        let (more, as_many) =
            (cgroup.dirs().count() > known.dirs().count(), cgroup.dirs().count() == known.dirs().count());
        if more || known.is_gone() || (as_many && known.dirs().any(|dir| !dir.has("cgroup.procs"))) {
            tracked.completed(cgroup, &self.roots, &mut self.watches);
            self.await_binding(run);
            self.grew(run, None);
        }
    }
}

/// Whether a directory has a descriptor that is kept for connections and for reading: the kernel gives the lowest
/// number that is free, so a high one says how many are taken.
fn takes_reserved_descriptor(dir: &Dir) -> bool {
    const RESERVED: u64 = 512;
    let Some(limit) = getrlimit(Resource::Nofile).current else { return false };
    let number = u64::try_from(dir.as_fd().as_raw_fd()).unwrap_or(0);
    number >= limit - RESERVED.min(limit / 2)
}
