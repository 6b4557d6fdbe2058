//! A resctrl of plain files, in which the test does what the kernel does: groups get their files, a control group's numbers
//! have its monitoring groups' in them as far as those are known, tasks are in one group, children are born into their parent's,
//! RMIDs run out and keep what telemetry counted for them, and counters of bandwidth are assigned (fs/resctrl/rdtgroup.c,
//! fs/resctrl/monitor.c).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "only tests use it: what fails here fails them"
)]

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use kernel_files::ReadError;
use rustix::io::Errno;
use test_machine::Machine;

use super::tree::{Lock, Mounted, Tree};
pub use state::{Assigned, State};
use state::{EVENTS, is_control, parent};

/// Writes a file that is not so yet.
fn put(path: PathBuf, text: impl AsRef<[u8]>) {
    if std::fs::read(&path).ok().as_deref() != Some(text.as_ref()) {
        std::fs::write(path, text).unwrap();
    }
}

/// Its clones are the same.
#[derive(Clone)]
pub struct Fake {
    path: PathBuf,
    mounted: Mounted,
    pub state: Arc<Mutex<State>>,
}

impl Fake {
    /// Mounted on a machine, with these domains and room for so many groups.
    pub fn mount(machine: &Machine, domains: &[u32], rmids: usize) -> Self {
        let path = machine.path.join("sys/fs/resctrl");
        machine.write(
            "sys/fs/resctrl/info/L3_MON/mon_features",
            "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
        );
        machine.write("sys/fs/resctrl/info/L3_MON/num_rmids", "224\n");
        machine.write("sys/fs/resctrl/info/L3_MON/mbm_assign_mode", "mbm_event\n[default]\n");
        let state = State {
            rmids,
            domains: domains.to_vec(),
            groups: BTreeSet::from([String::new()]),
            rmid: [(String::new(), 0)].into(),
            identities: [(String::new(), 0)].into(),
            ..State::default()
        };
        let fake = Self {
            mounted: Mounted::at(path.clone()),
            path: machine.path.clone(),
            state: Arc::new(Mutex::new(state)),
        };
        std::fs::create_dir_all(path.join("mon_groups")).unwrap();
        fake.render();
        fake
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join("sys/fs/resctrl").join(path)
    }

    /// Counters of bandwidth are assigned from now on: so many in each domain. The root has some.
    pub fn assigns(&self, counters: u64, on_mkdir: bool) -> &Self {
        let mut state = self.state();
        let free = state.domains.iter().map(|domain| (*domain, counters)).collect();
        let mut assigned = Assigned { free, on_mkdir, ..Assigned::default() };
        for event in EVENTS {
            assigned.assign("", event).unwrap();
        }
        state.assigned = Some(assigned);
        drop(state);
        let info = |file: &str, text: &str| std::fs::write(self.at("info/L3_MON").join(file), text).unwrap();
        info("mbm_assign_mode", "[mbm_event]\ndefault\n");
        info("mbm_assign_on_mkdir", if on_mkdir { "1\n" } else { "0\n" });
        let all: Vec<String> =
            self.state().domains.iter().map(|domain| format!("{domain}={counters}")).collect();
        info("num_mbm_cntrs", &format!("{}\n", all.join(";")));
        let configs = self.at("info/L3_MON/event_configs/mbm_total_bytes");
        std::fs::create_dir_all(&configs).unwrap();
        std::fs::write(configs.join("event_filter"), "local_reads,remote_reads,dirty_victim_writes_all\n")
            .unwrap();
        self.render();
        self
    }

    /// These packages have Intel's telemetry, in which the machine has run for a while.
    pub fn has_telemetry(&self, packages: &[u32]) -> &Self {
        let info = self.at("info/PERF_PKG_MON");
        std::fs::create_dir_all(&info).unwrap();
        std::fs::write(info.join("mon_features"), "core_energy\nactivity\nuops_retired\n").unwrap();
        std::fs::write(info.join("num_rmids"), "96\n").unwrap();
        let mut state = self.state();
        state.packages = packages.to_vec();
        for package in packages {
            state.telemetry.insert((0, *package), (5_000_000_000, 3_000_000));
        }
        drop(state);
        self.render();
        self
    }

    /// A task has cores spend so much energy, microjoules; its activity is a thousandth.
    pub fn spends(&self, task: u32, package: u32, microjoules: u64) -> &Self {
        let mut state = self.state();
        let rmid = state.rmid[&state.tasks[&task].0];
        let (energy, activity) = state.telemetry.entry((rmid, package)).or_default();
        (*energy, *activity) = (*energy + microjoules, *activity + microjoules / 1000);
        drop(state);
        self.render();
        self
    }

    /// The file system goes with its groups, or is there again.
    pub fn is_mounted(&self, mounted: bool) -> &Self {
        let (here, away) = (self.at(""), self.path.join("sys/fs/away"));
        if mounted {
            std::fs::remove_dir(&here).unwrap();
            std::fs::rename(away, here).unwrap();
        } else {
            let groups: Vec<String> =
                self.state().groups.iter().filter(|group| !group.is_empty()).cloned().collect();
            for group in &groups {
                self.site_removes(group);
            }
            std::fs::rename(&here, away).unwrap();
            std::fs::create_dir(here).unwrap();
        }
        self.state().unmounted = !mounted;
        self.render();
        self
    }

    /// A control group or a monitoring group of the site's.
    pub fn site_makes(&self, group: &str) -> &Self {
        std::fs::create_dir_all(self.at(group)).unwrap();
        if is_control(group) {
            std::fs::create_dir_all(self.at(group).join("mon_groups")).unwrap();
        }
        self.state().add(group);
        self.render();
        self
    }

    /// Somebody removes a group, whoever made it.
    pub fn site_removes(&self, group: &str) -> &Self {
        if self.state().take_away(group) {
            std::fs::remove_dir_all(self.at(group)).unwrap();
            self.render();
        }
        self
    }

    /// Another program moves a monitoring group, with its tasks and counts, below another control group.
    pub fn site_moves_group(&self, group: &str, to: &str) -> &Self {
        std::fs::rename(self.at(group), self.at(to)).unwrap();
        let mut state = self.state();
        state.groups.remove(group);
        state.groups.insert(to.to_owned());
        let rmid = state.rmid.remove(group).unwrap();
        state.rmid.insert(to.to_owned(), rmid);
        let identity = state.identities.remove(group).unwrap();
        state.identities.insert(to.to_owned(), identity);
        let all = std::mem::take(&mut state.bytes).into_iter();
        state.bytes = all
            .map(|((of, domain), bytes)| ((if of == group { to.to_owned() } else { of }, domain), bytes))
            .collect();
        state.tasks.values_mut().filter(|(of, _)| of == group).for_each(|(of, _)| *of = to.to_owned());
        drop(state);
        self.render();
        self
    }

    /// A task comes to be, in a cgroup and a group.
    pub fn spawn(&self, task: u32, cgroup: &str, group: &str) -> &Self {
        let file = format!("cgroup/{cgroup}/cgroup.threads");
        self.state().tasks.insert(task, (group.to_owned(), file));
        self.render();
        self
    }

    pub fn fork(&self, parent: u32, child: u32) -> &Self {
        let of = self.state().tasks[&parent].clone();
        self.state().tasks.insert(child, of);
        self.render();
        self
    }

    pub fn exit(&self, task: u32) -> &Self {
        self.state().tasks.remove(&task);
        let _ = std::fs::remove_dir_all(self.path.join(format!("proc/{task}")));
        self.render();
        self
    }

    /// An admin moves a task to a control group.
    pub fn site_moves(&self, task: u32, group: &str) -> &Self {
        self.state().tasks.get_mut(&task).unwrap().0 = group.to_owned();
        self.render();
        self
    }

    /// A task moves memory.
    pub fn moves(&self, task: u32, domain: u32, bytes: u64) -> &Self {
        let group = self.state().tasks[&task].0.clone();
        let mut state = self.state();
        let counter = (group.clone(), EVENTS[0], domain);
        if state.assigned.as_ref().is_none_or(|assigned| assigned.counters.contains(&counter)) {
            *state.bytes.entry((group, domain)).or_default() += bytes;
        }
        drop(state);
        self.render();
        self
    }

    pub fn group_of(&self, task: u32) -> String {
        self.state().tasks[&task].0.clone()
    }

    /// Groups that begin like ours.
    pub fn ours(&self) -> Vec<String> {
        self.state().groups.iter().filter(|group| group.contains("jobledger_job_")).cloned().collect()
    }

    /// Writes all files.
    pub fn render(&self) {
        let state = self.state();
        for group in state.groups.iter().filter(|_| !state.unmounted) {
            let of = |task: &&u32| state.tasks[*task].0 == *group;
            let tasks: String = state.tasks.keys().filter(of).map(|task| format!("{task}\n")).collect();
            put(self.at(group).join("tasks"), tasks);
            for domain in &state.domains {
                let value = state.bytes_of(group, *domain) + "\n";
                let own = state.bytes.get(&(group.clone(), *domain)).copied().unwrap_or(0);
                let dir = self.at(group).join(format!("mon_data/mon_L3_{domain:02}"));
                std::fs::create_dir_all(&dir).unwrap();
                put(dir.join("mbm_total_bytes"), &value);
                put(dir.join("llc_occupancy"), format!("{}\n", own / 10));
                for cluster in 0..state.clusters {
                    let sub = dir.join(format!("mon_sub_L3_{:02}", domain * state.clusters + cluster));
                    std::fs::create_dir_all(&sub).unwrap();
                    put(sub.join("mbm_total_bytes"), &value);
                }
            }
            for package in &state.packages {
                let dir = self.at(group).join(format!("mon_data/mon_PERF_PKG_{package:02}"));
                std::fs::create_dir_all(&dir).unwrap();
                let [energy, activity] = state.telemetry_of(group, *package);
                put(dir.join("core_energy"), energy + "\n");
                put(dir.join("activity"), activity + "\n");
                put(dir.join("uops_retired"), "1234\n");
            }
            if let Some(assigned) = &state.assigned {
                let list: String = EVENTS
                    .iter()
                    .map(|event| {
                        let states = state.domains.iter().map(|domain| {
                            let there = assigned.counters.contains(&(group.clone(), *event, *domain));
                            format!("{domain}={}", if there { 'e' } else { '_' })
                        });
                        format!("{event}:{}\n", states.collect::<Vec<_>>().join(";"))
                    })
                    .collect();
                put(self.at(group).join("mbm_L3_assignments"), list);
                let free: Vec<String> =
                    assigned.free.iter().map(|(domain, free)| format!("{domain}={free}")).collect();
                let file = self.at("info/L3_MON/available_mbm_cntrs");
                put(file, format!("{}\n", free.join(";")));
            }
        }
        let mut cgroups: BTreeMap<&str, String> = BTreeMap::new();
        for (task, (group, cgroup)) in &state.tasks {
            *cgroups.entry(cgroup).or_default() += &format!("{task}\n");
            let process = self.path.join(format!("proc/{task}"));
            std::fs::create_dir_all(&process).unwrap();
            let (control, monitor) = match group.rsplit_once("mon_groups/") {
                Some((control, monitor)) => (control.trim_end_matches('/'), monitor),
                None => (group.as_str(), ""),
            };
            let control = if control.is_empty() { "/" } else { control };
            let (control, monitor) = if state.unmounted { ("", "") } else { (control, monitor) };
            if !state.silent {
                put(process.join("cpu_resctrl_groups"), format!("res:{control}\nmon:{monitor}\n"));
            }
        }
        for (file, tasks) in cgroups {
            put(self.path.join(file), tasks);
        }
    }
}

impl Tree for Fake {
    fn read(&self, path: &str) -> Result<Vec<u8>, ReadError> {
        self.mounted.read(path)
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, ReadError> {
        self.mounted.directories(path)
    }

    fn add_task(&self, group: &str, task: u32) -> Result<(), Errno> {
        let mut state = self.state();
        if let Some(errno) = state.refuse_tasks {
            return Err(errno);
        }
        if !state.groups.contains(group) {
            return Err(Errno::NOENT);
        }
        if let Some(child) = state.forks.remove(&task) {
            let of = state.tasks[&task].clone();
            state.tasks.insert(child, of);
        }
        let Some((now, _)) = state.tasks.get_mut(&task) else { return Err(Errno::SRCH) };
        let control = if is_control(now) { now.clone() } else { parent(now) };
        if control != parent(group) {
            return Err(Errno::INVAL);
        }
        *now = group.to_owned();
        drop(state);
        self.render();
        Ok(())
    }

    fn make(&self, group: &str) -> Result<(), Errno> {
        let mut state = self.state();
        if state.groups.contains(group) {
            return Err(Errno::EXIST);
        }
        state.rmids = state.rmids.checked_sub(1).ok_or(Errno::NOSPC)?;
        self.mounted.make(group)?;
        state.add(group);
        drop(state);
        self.render();
        Ok(())
    }

    fn assign(&self, group: &str) -> Result<(), Errno> {
        let mut state = self.state();
        if !state.groups.contains(group) {
            return Err(Errno::NOENT);
        }
        let assigned = state.assigned.as_mut().ok_or(Errno::INVAL)?;
        assigned.unassign(group, &EVENTS[1..]);
        let mut outcome = Ok(());
        let mut given = Vec::new();
        // As the kernel does it: domain by domain, up to the first that has none.
        match assigned.assign(group, EVENTS[0]) {
            Ok(domains) => given = domains,
            Err(errno) => outcome = Err(errno),
        }
        for domain in given {
            state.bytes.remove(&(group.to_owned(), domain));
        }
        drop(state);
        self.render();
        outcome
    }

    fn identity(&self, group: &str) -> Option<u64> {
        self.state().identities.get(group).copied()
    }

    fn remove(&self, group: &str) -> Result<(), Errno> {
        let mut state = self.state();
        if !state.take_away(group) {
            return Err(Errno::NOENT);
        }
        state.rmids += 1;
        std::fs::remove_dir_all(self.at(group)).unwrap();
        drop(state);
        self.render();
        Ok(())
    }

    fn lock(&self) -> Result<Option<Lock>, Errno> {
        self.mounted.lock()
    }
}
