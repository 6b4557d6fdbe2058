//! What the kernel keeps of groups, tasks and counters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustix::io::Errno;

/// The group above: of a monitoring group its control group, of a control group the root.
pub(super) fn parent(group: &str) -> String {
    group.rsplit_once("mon_groups/").map_or("", |(control, _)| control.trim_end_matches('/')).to_owned()
}

pub(super) fn is_control(group: &str) -> bool {
    !group.contains("mon_groups/")
}

/// The `mbm_event` mode.
#[derive(Default)]
pub struct Assigned {
    /// Counters of each domain that are free.
    pub free: BTreeMap<u32, u64>,
    /// Whether a group gets some when it is made.
    pub on_mkdir: bool,
    /// By group, event and domain.
    pub counters: BTreeSet<(String, &'static str, u32)>,
}

pub(super) const EVENTS: [&str; 2] = ["mbm_total_bytes", "mbm_local_bytes"];

impl Assigned {
    /// Gives an event of a group a counter in each domain, until a domain has none.
    pub(super) fn assign(&mut self, group: &str, event: &'static str) -> Result<Vec<u32>, Errno> {
        let mut given = Vec::new();
        for (domain, free) in &mut self.free {
            let of = (group.to_owned(), event, *domain);
            if !self.counters.contains(&of) {
                *free = free.checked_sub(1).ok_or(Errno::NOSPC)?;
                self.counters.insert(of);
                given.push(*domain);
            }
        }
        Ok(given)
    }

    pub(super) fn unassign(&mut self, group: &str, events: &[&str]) {
        let free = &mut self.free;
        self.counters.retain(|(of, event, domain)| {
            let goes = of == group && events.contains(event);
            if goes {
                *free.get_mut(domain).unwrap() += 1;
            }
            !goes
        });
    }
}

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
    pub(super) tasks: BTreeMap<u32, (String, String)>,
    /// What groups counted themselves.
    pub(super) bytes: BTreeMap<(String, u32), u64>,
    /// What is read in place of a number.
    pub instead: BTreeMap<(String, u32), &'static str>,
    /// Children that are born while their parent is moved.
    pub forks: BTreeMap<u32, u32>,
    pub refuse_tasks: Option<Errno>,
    /// Before Linux 5.6 a task does not say in which groups it is.
    pub silent: bool,
    pub assigned: Option<Assigned>,
    /// Packages with Intel's telemetry.
    pub packages: Vec<u32>,
    /// The RMID of each group, and those that were freed, the oldest first.
    pub(super) rmid: BTreeMap<String, u64>,
    pub(super) freed: VecDeque<u64>,
    /// Microjoules and microfarads by RMID and package, since the machine was started.
    pub(super) telemetry: BTreeMap<(u64, u32), (u64, u64)>,
    /// How many groups were made.
    pub(super) made: u64,
    pub(super) identities: BTreeMap<String, u64>,
    pub unmounted: bool,
}

impl State {
    /// A group comes to be.
    pub(super) fn add(&mut self, group: &str) {
        self.groups.insert(group.to_owned());
        self.made += 1;
        self.identities.insert(group.to_owned(), self.made);
        let rmid = self.freed.pop_front().unwrap_or(self.made);
        self.rmid.insert(group.to_owned(), rmid);
        if let Some(assigned) = self.assigned.as_mut().filter(|assigned| assigned.on_mkdir) {
            EVENTS.into_iter().for_each(|event| drop(assigned.assign(group, event)));
        }
    }

    /// It goes, and its tasks become its parent's.
    pub(super) fn take_away(&mut self, group: &str) -> bool {
        if !self.groups.remove(group) {
            return false;
        }
        self.bytes.retain(|(of, _), _| of != group);
        self.identities.remove(group);
        self.freed.extend(self.rmid.remove(group));
        if let Some(assigned) = &mut self.assigned {
            assigned.unassign(group, &EVENTS);
        }
        for (of, _) in self.tasks.values_mut().filter(|(of, _)| of == group) {
            *of = parent(group);
        }
        true
    }

    /// The group itself, and of a control group those below it.
    fn summed<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a String> {
        let below = move |other: &str| is_control(group) && !is_control(other) && parent(other) == *group;
        self.groups.iter().filter(move |other| *other == group || below(other))
    }

    /// What a file of bytes says: the sum of what is known, or why nothing is.
    pub(super) fn bytes_of(&self, group: &str, domain: u32) -> String {
        let own = |of: &String| {
            let key = (of.clone(), domain);
            if let Some(word) = self.instead.get(&key) {
                return Err(*word);
            }
            let counter = (of.clone(), EVENTS[0], domain);
            match &self.assigned {
                Some(assigned) if !assigned.counters.contains(&counter) => Err("Unassigned"),
                _ => Ok(self.bytes.get(&key).copied().unwrap_or(0)),
            }
        };
        let all: Vec<Result<u64, &str>> = self.summed(group).map(own).collect();
        let known: Vec<u64> = all.iter().filter_map(|value| value.ok()).collect();
        if known.is_empty() { all[0].unwrap_err().to_owned() } else { known.iter().sum::<u64>().to_string() }
    }

    /// The same of the telemetry: energy and activity.
    pub(super) fn telemetry_of(&self, group: &str, package: u32) -> [String; 2] {
        let known = self.summed(group).filter_map(|of| self.telemetry.get(&(self.rmid[of], package)));
        let known: Vec<&(u64, u64)> = known.collect();
        if known.is_empty() {
            return ["Unavailable", "Unavailable"].map(str::to_owned);
        }
        let text = |millionths: u64| format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        [text(known.iter().map(|both| both.0).sum()), text(known.iter().map(|both| both.1).sum())]
    }
}
