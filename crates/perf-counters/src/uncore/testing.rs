//! Machines with memory controllers, and events that count what a test says.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "only tests use it: what fails here fails them"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kernel_files::ReadError;
use perf_events::{Attr, Count, Counters, On, Open, OpenError, Reading, Spec};
use test_machine::Machine;

use crate::pmu::DEVICES;

/// Sockets with so many CPUs each, a NUMA node per socket.
pub fn sockets(machine: &Machine, sockets: u32, cpus: u32) {
    const CPU: &str = "sys/devices/system/cpu";
    machine.write(&format!("{CPU}/online"), format!("0-{}\n", sockets * cpus - 1));
    machine.write("sys/devices/system/node/online", format!("0-{}\n", sockets - 1));
    for cpu in 0..sockets * cpus {
        machine.write(&format!("{CPU}/cpu{cpu}/topology/physical_package_id"), format!("{}\n", cpu / cpus));
    }
    for node in 0..sockets {
        let (first, last) = (node * cpus, (node + 1) * cpus - 1);
        machine.write(&format!("sys/devices/system/node/node{node}/cpulist"), format!("{first}-{last}\n"));
    }
}

/// An L3 cache for each `shared` of the CPUs.
pub fn caches(machine: &Machine, cpus: u32, shared: u32) {
    for cpu in 0..cpus {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/cache/index3");
        machine
            .write(&format!("{at}/level"), "3\n")
            .write(&format!("{at}/id"), format!("{}\n", cpu / shared));
    }
}

pub fn intel(machine: &Machine, model: u32, stepping: u32) {
    let info = format!(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nstepping\t: {stepping}\n\n"
    );
    machine.write("proc/cpuinfo", info);
}

pub fn amd(machine: &Machine, family: u32, model: u32) {
    let info = format!(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: 1\n\n"
    );
    machine.write("proc/cpuinfo", info);
}

/// A PMU: its type, cpumask, format and aliases.
pub fn pmu(
    machine: &Machine,
    name: &str,
    kind: u32,
    mask: &str,
    format: &[(&str, &str)],
    aliases: &[(&str, &str)],
) {
    let at = |file: &str| format!("{DEVICES}/{name}/{file}");
    machine.write(&at("type"), format!("{kind}\n")).write(&at("cpumask"), format!("{mask}\n"));
    for (field, bits) in format {
        machine.write(&at(&format!("format/{field}")), format!("{bits}\n"));
    }
    for (alias, terms) in aliases {
        machine.write(&at(&format!("events/{alias}")), format!("{terms}\n"));
        machine.write(&at(&format!("events/{alias}.scale")), "6.103515625e-5\n");
        machine.write(&at(&format!("events/{alias}.unit")), "MiB\n");
    }
}

/// What Intel's boxes have.
pub const IMC: [(&str, &str); 5] = [
    ("event", "config:0-7"),
    ("umask", "config:8-15"),
    ("edge", "config:18"),
    ("inv", "config:23"),
    ("thresh", "config:24-31"),
];
/// AMD's data fabric, Zen to Zen 3.
pub const DF: [(&str, &str); 2] = [("event", "config:0-7,32-35,59-60"), ("umask", "config:8-15")];

/// Ice Lake with so many channels per socket: types 20, 21, ...
pub fn ice_lake(machine: &Machine, channels: u32) {
    sockets(machine, 2, 4);
    intel(machine, 0x6a, 6);
    for channel in 0..channels {
        let aliases =
            [("cas_count_read", "event=0x04,umask=0x0f"), ("cas_count_write", "event=0x04,umask=0x30")];
        pmu(machine, &format!("uncore_imc_{channel}"), 20 + channel, "0,4", &IMC, &aliases);
    }
}

/// One event's state.
#[derive(Debug, Clone, Default)]
pub struct Fake {
    count: Count,
    fails: Option<ReadError>,
    stopped: bool,
    /// It has no counter.
    idle: bool,
}

impl Fake {
    /// Counts more.
    pub fn gains(&mut self, more: u64) {
        self.count.value += more;
    }
}

/// Opens whatever it is asked for, unless a test says otherwise. Its clones are the same.
#[derive(Clone, Default)]
pub struct Hardware {
    pub events: Arc<Mutex<BTreeMap<Spec, Fake>>>,
    pub refuses: Arc<Mutex<BTreeMap<Spec, OpenError>>>,
    /// What refuses all.
    pub refused: Arc<Mutex<Option<OpenError>>>,
    /// No time passes but what a test says; else a nanosecond with every reading.
    pub still: Arc<Mutex<bool>>,
    /// How many are open.
    pub open: Arc<Mutex<i64>>,
}

struct Event {
    hardware: Hardware,
    spec: Spec,
    /// What had been counted when it was opened.
    begin: Count,
}

impl Drop for Event {
    fn drop(&mut self) {
        *self.hardware.open.lock().unwrap() -= 1;
    }
}

impl Open for Hardware {
    fn open(&self, _on: On<'_>, cpu: u32, group: &[Attr]) -> Result<Box<dyn Counters>, OpenError> {
        let [attr] = *group else { panic!("the events of a box are opened one by one: {group:?}") };
        let spec = Spec { attr, cpu };
        let refused = self.refuses.lock().unwrap().get(&spec).copied().or(*self.refused.lock().unwrap());
        if let Some(error) = refused {
            return Err(error);
        }
        let mut events = self.events.lock().unwrap();
        let event = events.entry(spec).or_default();
        event.stopped = false;
        *self.open.lock().unwrap() += 1;
        Ok(Box::new(Event { hardware: self.clone(), spec, begin: event.count }))
    }
}

impl Counters for Event {
    fn read(&mut self, into: &mut Reading) -> Result<(), ReadError> {
        let mut events = self.hardware.events.lock().unwrap();
        let event = events.get_mut(&self.spec).unwrap();
        let passed = u64::from(!*self.hardware.still.lock().unwrap());
        event.count.enabled += passed;
        event.count.running += if event.idle { 0 } else { passed };
        if event.stopped {
            return Err(ReadError::Gone);
        }
        let (now, begin) = (event.count, self.begin);
        if let Some(error) = event.fails {
            return Err(error);
        }
        *into = Reading {
            enabled: now.enabled - begin.enabled,
            running: now.running - begin.running,
            counts: vec![now.value.wrapping_sub(begin.value)],
        };
        Ok(())
    }
}

impl Hardware {
    /// Every event runs for so many milliseconds.
    pub fn runs(&self, millis: u64) -> &Self {
        self.turns(millis, millis)
    }

    /// Every event is wanted for so long and has a counter for so long.
    pub fn turns(&self, enabled: u64, running: u64) -> &Self {
        for event in self.events.lock().unwrap().values_mut() {
            event.count.enabled += enabled * 1_000_000;
            event.count.running += running * 1_000_000;
            event.idle = running == 0;
        }
        self
    }

    /// Counts at an event, by its PMU's type, its configuration and its CPU.
    pub fn counts(&self, kind: u32, config: u64, cpu: u32, more: u64) -> &Self {
        self.change(kind, config, cpu, |event| event.count.value += more)
    }

    pub fn fails(&self, kind: u32, config: u64, cpu: u32, error: Option<ReadError>) -> &Self {
        self.change(kind, config, cpu, |event| event.fails = error)
    }

    /// The kernel has taken it off its CPU.
    pub fn stops(&self, kind: u32, config: u64, cpu: u32) -> &Self {
        self.change(kind, config, cpu, |event| event.stopped = true)
    }

    /// Goes back by so much.
    pub fn goes_back(&self, kind: u32, config: u64, cpu: u32, less: u64) -> &Self {
        self.change(kind, config, cpu, |event| event.count.value -= less)
    }

    fn change(&self, kind: u32, config: u64, cpu: u32, change: impl FnOnce(&mut Fake)) -> &Self {
        let spec = Spec { attr: Attr::new(kind, config), cpu };
        let mut events = self.events.lock().unwrap();
        change(events.get_mut(&spec).unwrap_or_else(|| panic!("{spec:?} was never opened")));
        drop(events);
        self
    }

    pub fn specs(&self) -> Vec<(u32, u64, u32)> {
        self.events.lock().unwrap().keys().map(|spec| (spec.attr.kind, spec.attr.config, spec.cpu)).collect()
    }

    pub fn are_open(&self) -> i64 {
        *self.open.lock().unwrap()
    }
}
