//! Which events are counted on a machine, and in which groups. Pure but for [`Machine::read`].

mod cpuid;
mod fit;
mod kinds;
mod machine;
mod pack;

use std::sync::Arc;

use cpu_topology::CpuSet;
pub use fit::Counters;
pub use machine::Machine;
use perf_events::Attr;

use super::catalogue::{Catalogue, Class, Core, Event, Extent, Quality, Topic};
use super::{Absent, Group, Plan, PlausibilityLimits, Quantity, plan};

/// An event as this machine's kernel is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The event.
    pub event: Event,
    /// Its code.
    pub attr: Attr,
}

/// A group of a kind of core.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftGroup {
    /// Its purpose.
    pub name: Arc<str>,
    /// Its events.
    pub events: Vec<Chosen>,
}

/// The counting on a kind of core.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftCore {
    /// Its PMU in sysfs.
    pub pmu: String,
    /// The CPUs of this kind, where there are several kinds.
    pub cpus: Option<CpuSet>,
    /// The counters that exist.
    pub counters: Counters,
    /// Its row in the catalogue; `None` without one.
    pub known: Option<Core>,
    /// Its groups.
    pub groups: Vec<DraftGroup>,
    /// Whether the kernel has to take turns with them.
    pub turns: bool,
}

/// A plan with what an administrator wants to know of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The microarchitecture, where the catalogue has it.
    pub microarchitecture: Option<String>,
    /// How good its FLOPs are.
    pub flops: Option<Quality>,
    /// Its kinds of cores.
    pub cores: Vec<DraftCore>,
    /// What the kernel counts.
    pub software: Vec<plan::Event>,
    /// What is not counted.
    pub absent: Vec<Absent>,
    /// The limits of plausible counts.
    pub limits: PlausibilityLimits,
}

/// What to count on a machine.
pub fn plan(machine: &Machine, catalogue: &Catalogue, extent: Extent, wanted: &[Class]) -> Plan {
    draft(machine, catalogue, extent, wanted).plan()
}

/// Twice the widest issue that anybody has announced.
const WIDEST: f64 = 24.0;

/// The same, with everything that was reported about it.
pub fn draft(machine: &Machine, catalogue: &Catalogue, extent: Extent, wanted: &[Class]) -> Draft {
    let mut absent = Vec::new();
    let hardware = wanted.iter().any(|class| *class != Class::Software);
    if hardware && machine.pmus.is_empty() {
        let why = machine.trouble.clone().unwrap_or_else(|| {
            "the kernel has no PMU of the cores, as in virtual machines that are not given one".to_owned()
        });
        absent.push(Absent { what: "hardware counters".into(), why: why.into() });
    }
    let cores =
        if hardware { kinds::cores(machine, catalogue, extent, wanted, &mut absent) } else { Vec::new() };
    let known = cores.iter().all(|core| core.known.is_some());
    let flops: Vec<Quality> = cores
        .iter()
        .filter(|core| counts(core, Topic::Flops))
        .filter_map(|core| core.known.as_ref()?.flops)
        .collect();
    let peaks = || cores.iter().filter_map(|core| core.known.as_ref().map(|known| known.peak));
    let largest = |numbers: &mut dyn Iterator<Item = f64>| numbers.reduce(f64::max);
    Draft {
        microarchitecture: machine
            .microarchitecture
            .clone()
            .filter(|name| known && catalogue.cores(name).is_some()),
        // The worse one of two kinds of cores.
        flops: flops
            .iter()
            .copied()
            .find(|quality| *quality == Quality::Speculative)
            .or(flops.first().copied()),
        limits: PlausibilityLimits {
            instructions_per_cycle: largest(&mut peaks().map(|peak| peak.instructions_per_cycle))
                .filter(|_| known)
                .unwrap_or(WIDEST),
            flops_per_cycle: largest(&mut peaks().filter_map(|peak| peak.flops_per_cycle))
                .filter(|_| !flops.is_empty()),
        },
        software: if wanted.contains(&Class::Software) { software() } else { Vec::new() },
        cores,
        absent,
    }
}

fn counts(core: &DraftCore, topic: Topic) -> bool {
    core.groups.iter().flat_map(|group| &group.events).any(|chosen| chosen.event.topic() == topic)
}

/// `include/uapi/linux/perf_event.h`, enum perf_sw_ids.
fn software() -> Vec<plan::Event> {
    let event = |name: &str, number, quantity| plan::Event {
        name: name.into(),
        quantity,
        attr: Attr::new(Attr::SOFTWARE, number),
        minus: false,
    };
    vec![
        event("context-switches", 3, Quantity::ContextSwitches),
        event("cpu-migrations", 4, Quantity::Migrations),
        event("minor-faults", 5, Quantity::MinorFaults),
        event("major-faults", 6, Quantity::MajorFaults),
    ]
}

impl Draft {
    /// The plan that follows from it.
    pub fn plan(&self) -> Plan {
        let mut groups: Vec<(usize, Group)> = Vec::new();
        for core in &self.cores {
            groups.extend(core.groups.iter().enumerate().map(|(rank, group)| {
                let events = group.events.iter().map(|chosen| plan::Event {
                    name: chosen.event.name.clone(),
                    quantity: chosen.event.quantity,
                    attr: chosen.attr,
                    minus: chosen.event.minus,
                });
                (
                    rank,
                    Group {
                        name: group.name.clone(),
                        hardware: true,
                        cpus: core.cpus.clone(),
                        events: events.collect(),
                    },
                )
            }));
        }
        // The first of every kind of core, then the second.
        groups.sort_by_key(|(rank, _)| *rank);
        let mut groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
        if !self.software.is_empty() {
            groups.push(Group {
                name: Class::Software.as_str().into(),
                hardware: false,
                cpus: None,
                events: self.software.clone(),
            });
        }
        Plan {
            microarchitecture: self.microarchitecture.as_deref().map(Into::into),
            flops: self.flops.map(|quality| quality.as_str().into()),
            groups,
            absent: self.absent.clone(),
            limits: self.limits,
        }
    }
}

#[cfg(test)]
mod tests;
