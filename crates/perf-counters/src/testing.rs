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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use kernel_files::ReadError;
use perf_events::{Attr, Counters, On, Open, OpenError, Reading};

use super::{Event, Group, Plan, PlausibilityLimits, Quantity};
use crate::sharing::{CounterOwnership, Reason};

/// What each group on each CPU would say now, and how many are open.
pub struct World {
    /// What is asked for.
    pub plan: Plan,
    pub readings: Mutex<BTreeMap<(u32, String), Reading>>,
    pub offline: Mutex<BTreeSet<u32>>,
    pub refused: Mutex<BTreeMap<String, OpenError>>,
    /// Refused on one CPU alone.
    pub refused_on: Mutex<BTreeMap<(u32, String), OpenError>>,
    /// The kernel's own limit.
    pub most: Mutex<Option<usize>>,
    pub open: Arc<AtomicUsize>,
    /// What was done with released groups, and by whom.
    pub done: Mutex<Vec<(&'static str, ThreadId)>>,
    /// Yields when so many were opened.
    pub yields: Mutex<Option<(usize, CounterOwnership)>>,
}

struct Handle {
    world: Arc<World>,
    cpu: u32,
    group: String,
    begin: Reading,
    events: usize,
}

impl World {
    /// A machine that has what this plan asks for.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            readings: Mutex::default(),
            offline: Mutex::default(),
            refused: Mutex::default(),
            refused_on: Mutex::default(),
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

    fn now(&self, cpu: u32, group: &str, events: usize) -> Reading {
        let known = self.readings.lock().unwrap().get(&(cpu, group.to_owned())).cloned();
        known.unwrap_or(Reading { counts: vec![0; events], ..Reading::default() })
    }

    /// Something ran on a CPU: each event of a group counted so much.
    pub fn run(&self, cpu: u32, group: &str, times: (u64, u64), counts: &[u64]) {
        let mut now = self.now(cpu, group, counts.len());
        now.enabled += times.0;
        now.running += times.1;
        now.counts.iter_mut().zip(counts).for_each(|(known, count)| *known += count);
        self.readings.lock().unwrap().insert((cpu, group.to_owned()), now);
    }
}

impl Counters for Handle {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        if self.world.offline.lock().unwrap().contains(&self.cpu) {
            return Err(ReadError::Gone);
        }
        let now = self.world.now(self.cpu, &self.group, self.events);
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
    fn open(&self, _on: On<'_>, cpu: u32, attrs: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
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
        let begin = self.0.now(cpu, &group, events);
        Ok(Box::new(Handle { world: self.0.clone(), cpu, group, begin, events }))
    }
}

pub fn plan() -> Plan {
    let group = |name: &str, quantities: &[Quantity]| {
        let event =
            |quantity: &Quantity| Event { name: "e".into(), quantity: *quantity, attr: Attr::default() };
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
