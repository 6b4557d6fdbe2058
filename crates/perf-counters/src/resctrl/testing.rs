//! A resctrl of plain files, in which the test does what the kernel does: groups get their files, a control group's numbers
//! have its monitoring groups' in them, tasks are in one group, children are born into their parent's, and RMIDs run out.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "only tests use it: what fails here fails them"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use kernel_files::ReadError;
use rustix::io::Errno;
use test_machine::Machine;

use super::tree::{Lock, Mounted, Tree};

#[derive(Default)]
pub struct State {
    /// How many groups there may be beside those that are there.
    pub rmids: usize,
    pub domains: Vec<u32>,
    /// Sub-NUMA clusters per domain.
    pub clusters: u32,
    /// By path; the root is empty.
    pub groups: BTreeSet<String>,
    /// Each task's group and the file of its cgroup.
    tasks: BTreeMap<u32, (String, String)>,
    /// What groups counted themselves.
    bytes: BTreeMap<(String, u32), u64>,
    /// What is read in place of a number.
    pub instead: BTreeMap<(String, u32), &'static str>,
    /// Children that are born while their parent is moved.
    pub forks: BTreeMap<u32, u32>,
    pub refuse_tasks: Option<Errno>,
    /// Before Linux 5.6 a task does not say in which groups it is.
    pub silent: bool,
}

/// Its clones are the same.
#[derive(Clone)]
pub struct Fake {
    path: PathBuf,
    mounted: Mounted,
    pub state: Arc<Mutex<State>>,
}

/// The group above: of a monitoring group its control group, of a control group the root.
fn parent(group: &str) -> String {
    group.rsplit_once("mon_groups/").map_or("", |(control, _)| control.trim_end_matches('/')).to_owned()
}

fn is_control(group: &str) -> bool {
    !group.contains("mon_groups/")
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

    /// A control group or a monitoring group of the site's.
    pub fn site_makes(&self, group: &str) -> &Self {
        std::fs::create_dir_all(self.at(group)).unwrap();
        if is_control(group) {
            std::fs::create_dir_all(self.at(group).join("mon_groups")).unwrap();
        }
        self.state().groups.insert(group.to_owned());
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
        *self.state().bytes.entry((group, domain)).or_default() += bytes;
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
        let own =
            |group: &str, domain: u32| state.bytes.get(&(group.to_owned(), domain)).copied().unwrap_or(0);
        for group in &state.groups {
            let of = |task: &&u32| state.tasks[*task].0 == *group;
            let tasks: String = state.tasks.keys().filter(of).map(|task| format!("{task}\n")).collect();
            std::fs::write(self.at(group).join("tasks"), tasks).unwrap();
            for domain in &state.domains {
                let below = state
                    .groups
                    .iter()
                    .filter(|other| is_control(group) && !is_control(other) && parent(other) == *group);
                let sum: u64 = own(group, *domain) + below.map(|other| own(other, *domain)).sum::<u64>();
                let instead = state.instead.get(&(group.clone(), *domain));
                let value = instead.map_or_else(|| format!("{sum}\n"), |word| format!("{word}\n"));
                let dir = self.at(group).join(format!("mon_data/mon_L3_{domain:02}"));
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join("mbm_total_bytes"), &value).unwrap();
                std::fs::write(dir.join("llc_occupancy"), format!("{}\n", sum / 10)).unwrap();
                for cluster in 0..state.clusters {
                    let sub = dir.join(format!("mon_sub_L3_{:02}", domain * state.clusters + cluster));
                    std::fs::create_dir_all(&sub).unwrap();
                    std::fs::write(sub.join("mbm_total_bytes"), &value).unwrap();
                }
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
            if !state.silent {
                std::fs::write(process.join("cpu_resctrl_groups"), format!("res:{control}\nmon:{monitor}\n"))
                    .unwrap();
            }
        }
        for (file, tasks) in cgroups {
            std::fs::write(self.path.join(file), tasks).unwrap();
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
        state.groups.insert(group.to_owned());
        drop(state);
        self.render();
        Ok(())
    }

    fn remove(&self, group: &str) -> Result<(), Errno> {
        let mut state = self.state();
        if !state.groups.remove(group) {
            return Err(Errno::NOENT);
        }
        state.rmids += 1;
        state.bytes.retain(|(of, _), _| of != group);
        for (of, _) in state.tasks.values_mut().filter(|(of, _)| of == group) {
            *of = parent(group);
        }
        std::fs::remove_dir_all(self.at(group)).unwrap();
        drop(state);
        self.render();
        Ok(())
    }

    fn lock(&self) -> Result<Option<Lock>, Errno> {
        self.mounted.lock()
    }
}
