//! The kinds of cores of a machine: what of the catalogue their kernel can be asked for, in groups that fit.

use std::sync::Arc;

use perf_events::Attr;

use super::{Chosen, Counters, DraftCore, DraftGroup, Machine, WIDEST, machine, pack};
use crate::catalogue::{Catalogue, Class, Core, Encoding, Event, Extent, Topic};
use crate::pmu::Pmu;
use crate::{Absent, PlausibilityLimits, Quantity};

/// What even small cores have.
const FEW_COUNTERS: u32 = 4;

/// A core that is known by nothing but the kernel's own events (enum perf_hw_id). What these call cache misses are
/// those of another cache on each architecture.
fn unknown(pmu: &Pmu) -> Core {
    let event = |name: &str, number, quantity| Event {
        name: name.into(),
        quantity,
        encoding: Encoding::Hardware(number),
        counters: u32::MAX,
        pair: false,
        free: false,
        only_in: None,
        verified: true,
        note: None,
        minus: false,
        with_pmu: None,
        without_pmu: None,
    };
    Core {
        pmu: pmu.name.as_str().into(),
        counters_smt_on: FEW_COUNTERS,
        counters_smt_off: FEW_COUNTERS,
        fixed: Vec::new(),
        peak: PlausibilityLimits { instructions_per_cycle: WIDEST, flops_per_cycle: None },
        flops: None,
        events: vec![
            event("cycles", 0, Quantity::Cycles),
            event("instructions", 1, Quantity::Instructions),
            event("branches", 4, Quantity::Branches),
            event("branch-misses", 5, Quantity::BranchMisses),
        ],
        absent: Topic::EXPECTED.map(|topic| (topic, "the catalogue does not have this CPU".into())).into(),
        notes: Vec::new(),
        sources: Vec::new(),
        verified: true,
    }
}

/// A kind of core, what of it can be asked for, and why of the rest not.
struct Kind<'m> {
    pmu: &'m Pmu,
    core: Core,
    known: bool,
    counters: Counters,
    chosen: Vec<Chosen>,
    missing: Vec<(Topic, Arc<str>)>,
}

pub(super) fn cores(
    machine: &Machine,
    catalogue: &Catalogue,
    extent: Extent,
    wanted: &[Class],
    absent: &mut Vec<Absent>,
) -> Vec<DraftCore> {
    let rows =
        machine.microarchitecture.as_deref().and_then(|name| catalogue.cores(name)).unwrap_or_default();
    let several = machine.pmus.len() > 1;
    let asked = Asked { extent, wanted };
    let mut kinds: Vec<Kind<'_>> = machine
        .pmus
        .iter()
        .map(|pmu| {
            let known = rows.iter().find(|core| machine::is_of(pmu, core));
            // Only the first CPU is identified: of several kinds with one name none is known.
            let known =
                known.filter(|core| machine.pmus.iter().filter(|pmu| machine::is_of(pmu, core)).count() == 1);
            let core = known.cloned().unwrap_or_else(|| unknown(pmu));
            let counters = Counters::of(&core, machine.general, machine.smt, machine.watchdog);
            let mut kind =
                Kind { pmu, known: known.is_some(), core, counters, chosen: Vec::new(), missing: Vec::new() };
            kind.choose(machine, &asked);
            kind
        })
        .collect();
    leave_out_parts(&mut kinds, &asked, absent);
    let (pack, why): (fn(&_, _) -> _, _) = match extent {
        Extent::Full => (pack::pack, "an event for it does not fit the counters that are left"),
        Extent::Essential => {
            (pack::essential, "not in the essential plan: what matters more takes the counters")
        }
    };
    let packed = loop {
        let packed: Vec<_> = kinds.iter().map(|kind| pack(&kind.counters, kind.chosen.clone())).collect();
        let Some(lost) =
            packed.iter().find_map(|(_, homeless)| homeless.first()).map(|chosen| chosen.event.topic())
        else {
            break packed;
        };
        absent.push(Absent { what: lost.as_str().into(), why: why.into() });
        drop_topic(&mut kinds, lost);
    };
    absent.extend(asked.left_to_the_full_plan());
    kinds.into_iter().zip(packed).map(|(kind, (groups, _))| kind.draft(named(groups), several)).collect()
}

/// What is to be counted.
struct Asked<'w> {
    extent: Extent,
    wanted: &'w [Class],
}

impl Asked<'_> {
    fn wants(&self, topic: Topic) -> bool {
        topic.class().is_none_or(|class| self.wanted.contains(&class))
            && (self.extent == Extent::Full || topic.is_essential())
    }

    /// What nobody counts because of the extent.
    fn left_to_the_full_plan(&self) -> impl Iterator<Item = Absent> {
        let classes = self.wanted.iter().filter(|class| !class.is_essential()).map(|class| class.as_str());
        let what =
            classes.chain([Topic::ReferenceCycles.as_str()]).filter(|_| self.extent == Extent::Essential);
        what.map(|what| Absent { what: what.into(), why: "not in the essential plan".into() })
    }
}

/// What one kind of core does not count, others do not either: their part would look like the whole.
fn leave_out_parts(kinds: &mut [Kind<'_>], asked: &Asked<'_>, absent: &mut Vec<Absent>) {
    let extra = [Topic::L2Misses, Topic::L1dMisses, Topic::TopDownMemory];
    let topics = Topic::EXPECTED.iter().chain(&extra).copied();
    for topic in topics.filter(|topic| asked.wants(*topic)) {
        let has = |kind: &Kind<'_>| kind.chosen.iter().any(|chosen| chosen.event.topic() == topic);
        let Some(lacking) = kinds.iter().position(|kind| !has(kind)) else { continue };
        let Some(kind) = kinds.get(lacking) else { continue };
        let part = kinds.iter().any(has);
        // L2 and L1d have misses of their own on few cores, and few count the slots that wait for memory.
        if extra.contains(&topic) && !part {
            continue;
        }
        let listed = kind.missing.iter().find(|(missing, _)| *missing == topic);
        let mut why = listed.map_or_else(|| kind.core.why_absent(topic), |(_, why)| why.clone());
        if part {
            why = format!("{why} (cores of {}); a part would look like the whole", kind.pmu.name).into();
        }
        absent.push(Absent { what: topic.as_str().into(), why });
        drop_topic(kinds, topic);
    }
}

fn drop_topic(kinds: &mut [Kind<'_>], topic: Topic) {
    // A part of nothing.
    let with = if topic == Topic::TopDown { Topic::TopDownMemory } else { topic };
    for kind in kinds {
        kind.chosen.retain(|chosen| ![topic, with].contains(&chosen.event.topic()));
    }
}

impl Kind<'_> {
    fn choose(&mut self, machine: &Machine, asked: &Asked<'_>) {
        let stands_in = |event: &Event| event.only_in == Some(Extent::Essential);
        for event in &self.core.events {
            let topic = event.topic();
            // Some stand in for all others of their topic.
            let has_stand_ins = || self.core.events.iter().any(|e| e.topic() == topic && stands_in(e));
            let in_it = match asked.extent {
                Extent::Full => !stands_in(event),
                Extent::Essential => {
                    event.only_in != Some(Extent::Full) && stands_in(event) == has_stand_ins()
                }
            };
            if !asked.wants(topic) || !in_it || !event.is_for(&machine.pmu_names) {
                continue;
            }
            match encode(event, self.pmu, machine.pmus.len() > 1) {
                Ok(_) if event.free && !machine.derives_slots => {
                    self.missing.push((topic, "this kernel has no events slots and topdown-* for it".into()));
                }
                Ok(attr) if machine::lacks(machine, self.pmu, attr) => {
                    self.missing
                        .push((topic, format!("this CPU says that it does not have {}", event.name).into()));
                }
                Ok(attr) => self.chosen.push(Chosen { event: with_slots(event, machine), attr }),
                Err(why) => self.missing.push((topic, why)),
            }
        }
        // A sum with a part missing would be too small.
        let missing = &self.missing;
        self.chosen.retain(|chosen| missing.iter().all(|(topic, _)| *topic != chosen.event.topic()));
    }

    fn draft(self, groups: Vec<DraftGroup>, several: bool) -> DraftCore {
        let together = groups.iter().flat_map(|group| &group.events).map(|chosen| &chosen.event);
        DraftCore {
            pmu: self.pmu.name.clone(),
            cpus: self.pmu.cpus.clone().filter(|_| several),
            turns: groups.len() > 1 && !self.counters.fit(together),
            counters: self.counters,
            known: self.known.then_some(self.core),
            groups,
        }
    }
}

/// An event with the slots of a cycle that the kernel shows of the core.
fn with_slots(event: &Event, machine: &Machine) -> Event {
    let mut event = event.clone();
    if let (Quantity::TopDown { slots, .. }, Some(shown)) = (&mut event.quantity, machine.slots) {
        *slots = shown;
    }
    event
}

/// Groups by the most important of what they count beside cycles and instructions.
fn named(groups: Vec<Vec<Chosen>>) -> Vec<DraftGroup> {
    let mut named: Vec<DraftGroup> = Vec::new();
    for events in groups {
        let class = events.iter().filter_map(|chosen| chosen.event.topic().class()).min();
        let word = class.map_or("cycles", Class::as_str);
        let before = named.iter().filter(|group| group.name.split('_').next() == Some(word)).count();
        let name = if before == 0 { word.to_owned() } else { format!("{word}_{}", before + 1) };
        named.push(DraftGroup { name: name.into(), events });
    }
    named
}

fn encode(event: &Event, pmu: &Pmu, several: bool) -> Result<Attr, Arc<str>> {
    match &event.encoding {
        // Where there are several kinds of cores, the type of one goes into the upper half (PERF_PMU_TYPE_SHIFT, Linux 5.13).
        Encoding::Hardware(number) => {
            let which = if several { u64::from(pmu.kind) << 32 } else { 0 };
            Ok(Attr::new(Attr::HARDWARE, which | number))
        }
        Encoding::Fields(fields) => pmu.encode(fields.iter().copied()).ok_or_else(|| {
            let lacking = fields.iter().find(|(name, _)| pmu.field(name).is_none());
            lacking
                .map_or_else(
                    || format!("the code of {} is too large for this kernel's {}", event.name, pmu.name),
                    |(name, _)| {
                        format!("this kernel's {} has no field {name}, which {} needs", pmu.name, event.name)
                    },
                )
                .into()
        }),
    }
}
