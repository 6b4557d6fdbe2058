//! Counters of a machine that tests move.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "only tests use it: what fails here fails them"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use kernel_files::ReadError;
use perf_events::{Attr, Counters, Following, On, Open, OpenError, Reading};

use super::{Event, Group, Plan, PlausibilityLimits, Quantity};
use crate::sharing::{CounterOwnership, Reason};

/// What each group on each CPU would say now, and how many are open.
pub struct World {
    /// What is asked for.
    pub plan: Plan,
    pub readings: Mutex<BTreeMap<(u32, String), Reading>>,
    /// What it counts of a cgroup beside that, by inode.
    pub of_cgroups: Mutex<BTreeMap<(u64, u32, String), Reading>>,
    /// The cgroups that are followed, and what was counted of them before; `None` where none can be.
    pub followed: Mutex<Option<BTreeMap<u64, Before>>>,
    /// So many at most.
    pub followed_at_most: Mutex<usize>,
    /// Followed cgroups of which a CPU is not counted.
    pub cut: Mutex<BTreeSet<u64>>,
    pub offline: Mutex<BTreeSet<u32>>,
    pub refused: Mutex<BTreeMap<String, OpenError>>,
    /// Refused on one CPU alone.
    pub refused_on: Mutex<BTreeMap<(u32, String), OpenError>>,
    /// Groups that have no counters from now on, on any CPU: somebody else keeps them.
    pub kept: Mutex<BTreeSet<String>>,
    /// The kernel's own limit.
    pub most: Mutex<Option<usize>>,
    pub open: Arc<AtomicUsize>,
    /// What was done with released groups, and by whom.
    pub done: Mutex<Vec<(&'static str, ThreadId)>>,
    /// Yields when so many were opened.
    pub yields: Mutex<Option<(usize, CounterOwnership)>>,
}

type Before = BTreeMap<(u64, u32, String), Reading>;

struct Handle {
    world: Arc<World>,
    cgroup: Option<u64>,
    followed: bool,
    cpu: u32,
    group: String,
    begin: Reading,
    events: usize,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// A machine that has what this plan asks for.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            readings: Mutex::default(),
            of_cgroups: Mutex::default(),
            followed: Mutex::default(),
            followed_at_most: Mutex::new(usize::MAX),
            cut: Mutex::default(),
            offline: Mutex::default(),
            refused: Mutex::default(),
            refused_on: Mutex::default(),
            kept: Mutex::default(),
            most: Mutex::default(),
            open: Arc::default(),
            done: Mutex::default(),
            yields: Mutex::default(),
        }
    }

    /// The name of the group with these events on a CPU.
    fn name(&self, cpu: u32, attrs: &[Attr]) -> Option<String> {
        let is_it = |group: &&Group| {
            group.attrs() == attrs && group.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
        };
        self.plan.groups.iter().find(is_it).map(|group| group.name.to_string())
    }

    fn does(&self, what: &'static str) {
        self.done.lock().unwrap().push((what, std::thread::current().id()));
    }

    /// A followed cgroup has its own alone.
    fn now(&self, (cgroup, followed): (Option<u64>, bool), cpu: u32, group: &str, events: usize) -> Reading {
        let mut now = Reading { counts: vec![0; events], ..Reading::default() };
        if !followed && let Some(of_all) = self.readings.lock().unwrap().get(&(cpu, group.to_owned())) {
            add(&mut now, of_all);
        }
        let key = cgroup.map(|cgroup| (cgroup, cpu, group.to_owned()));
        if let Some(own) = key.and_then(|key| self.of_cgroups.lock().unwrap().get(&key).cloned()) {
            add(&mut now, &own);
        }
        now
    }

    /// What was counted of a cgroup before it was followed.
    fn before(&self, cgroup: u64) -> Before {
        self.followed.lock().unwrap().as_ref().unwrap().get(&cgroup).cloned().unwrap()
    }

    /// Something ran on a CPU: each event of a group counted so much.
    pub fn run(&self, cpu: u32, group: &str, times: (u64, u64), counts: &[u64]) {
        let more = Reading { enabled: times.0, running: times.1, counts: counts.to_vec() };
        let nothing = Reading { counts: vec![0; counts.len()], ..Reading::default() };
        add(self.readings.lock().unwrap().entry((cpu, group.to_owned())).or_insert(nothing), &more);
    }

    /// The same in a cgroup, and so in those that it is in.
    pub fn run_in(&self, cgroups: &[&Path], cpu: u32, group: &str, time: u64, counts: &[u64]) {
        let more = Reading { enabled: time, running: time, counts: counts.to_vec() };
        for cgroup in cgroups {
            let key = (std::fs::metadata(cgroup).unwrap().ino(), cpu, group.to_owned());
            let nothing = Reading { counts: vec![0; counts.len()], ..Reading::default() };
            add(self.of_cgroups.lock().unwrap().entry(key).or_insert(nothing), &more);
        }
    }

    /// How many cgroups are followed.
    pub fn follows(&self) -> usize {
        self.followed.lock().unwrap().as_ref().map_or(0, BTreeMap::len)
    }
}

fn add(sum: &mut Reading, more: &Reading) {
    sum.enabled += more.enabled;
    sum.running += more.running;
    sum.counts.iter_mut().zip(&more.counts).for_each(|(sum, more)| *sum += more);
}

#[derive(Debug)]
struct Followed {
    world: Arc<World>,
    inode: u64,
}

impl Following for Followed {
    fn cpus(&self) -> Vec<u32> {
        let before = self.world.before(self.inode);
        let of_cgroups = self.world.of_cgroups.lock().unwrap();
        let ran = of_cgroups.iter().filter(|(key, now)| key.0 == self.inode && before.get(key) != Some(now));
        ran.map(|((_, cpu, _), _)| *cpu).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn open(&self, cpu: u32, attrs: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let group = self.world.name(cpu, attrs).ok_or(OpenError::Absent)?;
        let (world, events, counts) = (self.world.clone(), attrs.len(), vec![0; attrs.len()]);
        world.open.fetch_add(events, Ordering::SeqCst);
        let begin = world.before(self.inode).remove(&(self.inode, cpu, group.clone()));
        let begin = begin.unwrap_or(Reading { counts, ..Reading::default() });
        Ok(Box::new(Handle { world, cgroup: Some(self.inode), followed: true, cpu, group, begin, events }))
    }

    fn is_whole(&self) -> bool {
        !self.world.cut.lock().unwrap().contains(&self.inode)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.world.followed.lock().unwrap().as_mut().unwrap().remove(&self.inode);
    }
}

impl Counters for Handle {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        if self.world.offline.lock().unwrap().contains(&self.cpu) {
            return Err(ReadError::Gone);
        }
        let mut now = self.world.now((self.cgroup, self.followed), self.cpu, &self.group, self.events);
        if now == self.begin && self.world.kept.lock().unwrap().contains(&self.group) {
            now.enabled += 1;
        }
        into.enabled = now.enabled - self.begin.enabled;
        into.running = now.running - self.begin.running;
        into.counts = now.counts.iter().zip(&self.begin.counts).map(|(now, begin)| now - begin).collect();
        self.world.does("read");
        Ok(())
    }

    fn stop(&mut self) {
        self.world.does("stop");
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.world.does("close");
        self.world.open.fetch_sub(self.events, Ordering::SeqCst);
    }
}

pub struct Opener(pub Arc<World>);

impl Open for Opener {
    fn open(&self, on: On<'_>, cpu: u32, attrs: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let group = self.0.name(cpu, attrs).ok_or(OpenError::Absent)?;
        if let Some(error) = self.0.refused.lock().unwrap().get(&group) {
            return Err(*error);
        }
        if let Some(error) = self.0.refused_on.lock().unwrap().get(&(cpu, group.clone())) {
            return Err(*error);
        }
        if self.0.offline.lock().unwrap().contains(&cpu) {
            return Err(OpenError::Offline);
        }
        let events = attrs.len();
        let most = *self.0.most.lock().unwrap();
        if most.is_some_and(|most| self.0.open.load(Ordering::SeqCst) + events > most) {
            return Err(OpenError::Descriptors);
        }
        let open = self.0.open.fetch_add(events, Ordering::SeqCst) + events;
        if let Some((most, ownership)) = &*self.0.yields.lock().unwrap()
            && open >= *most
        {
            ownership.yield_for(Reason::Order);
        }
        let cgroup = match on {
            On::Cgroup(directory) => Some(directory.metadata().unwrap().ino()),
            On::Host | On::Everybody => None,
        };
        let begin = self.0.now((cgroup, false), cpu, &group, events);
        Ok(Box::new(Handle { world: self.0.clone(), cgroup, followed: false, cpu, group, begin, events }))
    }

    fn follows(&self) -> bool {
        self.0.followed.lock().unwrap().is_some()
    }

    fn follow(&self, cgroup: &File) -> Result<Box<dyn Following>, OpenError> {
        let inode = cgroup.metadata().unwrap().ino();
        let mut followed = self.0.followed.lock().unwrap();
        let followed = followed.as_mut().ok_or(OpenError::Unsupported)?;
        if followed.len() >= *self.0.followed_at_most.lock().unwrap() {
            return Err(OpenError::Descriptors);
        }
        followed.insert(inode, self.0.of_cgroups.lock().unwrap().clone());
        Ok(Box::new(Followed { world: self.0.clone(), inode }))
    }
}

pub fn plan() -> Plan {
    let group = |name: &str, quantities: &[Quantity]| {
        let event = |quantity: &Quantity| Event {
            name: "e".into(),
            quantity: *quantity,
            attr: Attr::default(),
            minus: false,
        };
        Group {
            name: name.into(),
            hardware: true,
            cpus: None,
            events: quantities.iter().map(event).collect(),
        }
    };
    Plan {
        microarchitecture: None,
        flops: None,
        groups: vec![
            group("flops", &[Quantity::Cycles, Quantity::Instructions]),
            group("branches", &[Quantity::Branches]),
        ],
        absent: Vec::new(),
        limits: PlausibilityLimits { instructions_per_cycle: 8.0, flops_per_cycle: None },
    }
}
