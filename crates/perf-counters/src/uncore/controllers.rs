//! The memory controllers of this machine: found, opened, read, released.

use std::collections::BTreeMap;
use std::sync::Arc;

use cpu_topology::Topology;
use cpu_topology::microarchitecture::{Microarchitectures, parse_cpuinfo};
use kernel_files::{NodeFiles, ReadError, SourceError};
use perf_events::{Attr, Open, Spec};

use super::counting::{Event, Events, Reading};
use super::table::{Kind, MemoryControllers, Place, Source};
use crate::pmu::Pmu;

const WHAT: &str = "memory controllers' perf events";
const NEEDS: &str = "the memory controllers' PMUs to be online";

/// The traffic of a kind of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Which kind.
    pub kind: Kind,
    /// The pattern of its PMUs' names.
    pub pmu: String,
    /// Events per box.
    pub events: usize,
    /// Hardware counters per box; `None` where that is not known, and for those that count by themselves.
    pub counters: Option<u32>,
    /// Why its bytes are not certain; `None` where what the events mean is documented.
    pub unverified: Option<Arc<str>>,
}

/// A source that this machine has.
struct Candidate {
    found: Found,
    places: BTreeMap<Place, Events>,
}

/// The candidates of one kind, and which of them counts.
struct Counting {
    candidates: Vec<Candidate>,
    chosen: Option<usize>,
}

/// All of them.
pub struct Controllers {
    open: Box<dyn Open>,
    kinds: Vec<Counting>,
}

/// The name of the machine's microarchitecture.
fn microarchitecture(files: &mut NodeFiles) -> Option<String> {
    let cpu = files.read_start("proc/cpuinfo").map(parse_cpuinfo).ok()?;
    Microarchitectures::built_in().name(&cpu).map(str::to_owned)
}

/// How an event is asked for: by sysfs' name for it, else by its fields. One of several channels each.
fn encode(event: &super::table::Event, pmu: &Pmu, files: &mut NodeFiles) -> Option<Vec<Attr>> {
    let alias = event.alias.as_deref().and_then(|alias| pmu.alias(files, alias));
    if let Some(alias) = alias {
        return Some(vec![alias.attr]);
    }
    let encodings = event.encodings();
    let attrs: Option<Vec<Attr>> = encodings.into_iter().map(|fields| pmu.encode(fields)).collect();
    attrs.filter(|attrs| !attrs.is_empty())
}

/// Whether a socket is several NUMA nodes: the firmware has divided its memory (AMD's NPS2 and NPS4), or has made a node of each L3
/// cache, which sysfs does not distinguish.
fn divided(topology: &Topology) -> bool {
    topology.sockets.values().any(|socket| socket.nodes.len() > 1)
}

/// The source on this machine; `None` where it has none of these PMUs, or one of them that cannot be asked.
fn look_for(
    source: &Source,
    names: &[String],
    topology: &Topology,
    files: &mut NodeFiles,
) -> Option<Candidate> {
    if source.undivided.is_some() && divided(topology) {
        return None;
    }
    if source.needs.as_ref().is_some_and(|path| files.stat_of(&format!("sys/{path}")).is_err()) {
        return None;
    }
    let mut places: BTreeMap<Place, Events> = BTreeMap::new();
    let mut events = 0;
    for name in names.iter().filter(|name| source.is(name)) {
        let pmu = Pmu::read(files, name).ok()?;
        events = 0;
        for event in &source.events {
            let attrs = encode(event, &pmu, files)?;
            events += attrs.len();
            for cpu in pmu.cpumask.iter().flat_map(|mask| mask.iter().take(1024)) {
                let place =
                    Place { socket: topology.socket(cpu), kind: source.kind, direction: event.direction };
                let of_place = &mut places.entry(place).or_default().0;
                of_place.extend(attrs.iter().map(|attr| Event::new(Spec { attr: *attr, cpu }, event.bytes)));
            }
        }
    }
    let found = Found {
        kind: source.kind,
        pmu: source.pmu.clone(),
        events,
        counters: source.counters,
        unverified: source.why_unverified(divided(topology)).cloned(),
    };
    (!places.is_empty()).then_some(Candidate { found, places })
}

impl Controllers {
    /// Those of this machine. Nothing is opened yet.
    pub fn find(
        files: &mut NodeFiles,
        topology: &Topology,
        open: Box<dyn Open>,
    ) -> Result<Self, SourceError> {
        let unsupported = |needs: String| SourceError::Unsupported { needs };
        let name = microarchitecture(files)
            .ok_or_else(|| unsupported("a CPU whose microarchitecture is known".to_owned()))?;
        let table = MemoryControllers::built_in();
        let sources = table.of(&name);
        if sources.is_empty() {
            return Err(unsupported(format!("a CPU whose memory controllers are known; {name}'s are not")));
        }
        // None in a container without sysfs, and on a kernel without perf events.
        let names = Pmu::names(files).unwrap_or_default();
        let mut kinds = Vec::new();
        for sources in sources.values() {
            let here = sources.iter().filter_map(|source| look_for(source, &names, topology, files));
            let candidates: Vec<Candidate> = here.collect();
            if !candidates.is_empty() {
                kinds.push(Counting { candidates, chosen: None });
            }
        }
        if kinds.is_empty() {
            let here = |source: &&&Source| names.iter().any(|name| source.is(name));
            let mut here = sources.values().flatten().filter(here);
            if let Some(why) = here.find_map(|source| source.undivided.as_ref()).filter(|_| divided(topology))
            {
                return Err(unsupported(format!("sockets that are one NUMA node each (NPS1): {why}")));
            }
            let patterns: Vec<&str> = sources.values().flatten().map(|source| source.pmu.as_str()).collect();
            let needs = format!(
                "the kernel's PMUs of {name}'s memory controllers ({}), which virtual machines do not have",
                patterns.join(", ")
            );
            return Err(unsupported(needs));
        }
        Ok(Self { open, kinds })
    }

    /// The places that are counted.
    pub fn found(&self) -> impl Iterator<Item = &Found> {
        self.kinds.iter().filter_map(|kind| Some(&kind.candidates.get(kind.chosen?)?.found))
    }

    /// Reads every place. Opens those that are not open, as long as `may_open`.
    pub fn read(
        &mut self,
        may_open: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Place, Result<Reading, SourceError>),
    ) {
        let failed = |error: ReadError| SourceError::reading(WHAT, NEEDS)(error);
        for kind in &mut self.kinds {
            let refused = if kind.chosen.is_none() { kind.choose(&*self.open, may_open) } else { None };
            let at = kind.chosen.unwrap_or(0);
            for (place, events) in kind.candidates.get_mut(at).into_iter().flat_map(|c| &mut c.places) {
                let reading = match refused {
                    Some(error) => Err(failed(error)),
                    None => events.read(&*self.open, may_open).map_err(failed),
                };
                each(*place, reading);
            }
        }
    }

    /// Closes all of it. The next reading opens it again and is a first one.
    pub fn close(&mut self) {
        for kind in &mut self.kinds {
            kind.chosen = None;
            let places = kind.candidates.iter_mut().flat_map(|candidate| candidate.places.values_mut());
            places.for_each(Events::close);
        }
    }
}

impl Counting {
    /// Takes the first candidate of which anything can be opened; else says why the first cannot.
    fn choose(&mut self, open: &dyn Open, may_open: &dyn Fn() -> bool) -> Option<ReadError> {
        let mut refused = None;
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            let mut opened = 0;
            for events in candidate.places.values_mut() {
                let (some, error) = events.open(open, may_open);
                opened += some;
                refused = refused.or(error);
            }
            if opened > 0 {
                self.chosen = Some(at);
                return None;
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests;
