//! RAPL through the kernel's `power` PMU (arch/x86/events/rapl.c).
//!
//! `/sys/bus/event_source/devices/power/{type,cpumask,events/energy-*}`; Intel since 3.14, AMD since 5.8. One event per
//! domain and per CPU of the mask, of all processes on that CPU, which means of its socket. CAP_PERFMON (5.8, before
//! it CAP_SYS_ADMIN) or `kernel.perf_event_paranoid` below 1. A reading is one `read` and one interrupt of that CPU.
//!
//! The count is 64 bits wide, but the kernel sums differences of a 32-bit register. A timer reads it twice as often
//! as a socket of 200 W needs. At 400 W a wrap is missed, and on servers whose memory counts in finer units than the
//! package (Haswell to Ice Lake) at 100 W of memory. So these counters, too, are read once a minute.
//!
//! The PMU `power_core` (AMD's counters per core) is not read: cores are within the package.

mod event;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_topology::{CpuSet, Topology};
pub use event::parse_event;
use kernel_files::parse::{ParseError, parse_integer};
use kernel_files::{NodeFiles, ReadError, Roots, SourceError};
use perf_events::{Attr, Count, Open, Single, Spec};

use super::counter::Skips;
use super::powercap::EVERY;
use super::scale::{Scale, parse_scale};
use super::{Domain, Meter, Range, Sample, Source, Zone};

const PMU: &str = "sys/bus/event_source/devices/power";
const WHAT: &str = "RAPL's perf events";
const NEEDS: &str = "the socket of the perf event to be online";

const EVENTS: [(&str, Domain); 5] = [
    ("energy-pkg", Domain::Package),
    ("energy-ram", Domain::Memory),
    ("energy-cores", Domain::Core),
    ("energy-gpu", Domain::Uncore),
    ("energy-psys", Domain::Psys),
];

/// One open event.
struct Event {
    spec: Spec,
    scale: Scale,
    opened: Single,
    /// How long it had been counting when it was read last, nanoseconds.
    enabled: Option<u64>,
    epoch: u32,
}

/// For so long a psys that stands still is read.
const PSYS_MOVES_WITHIN: Duration = Duration::from_secs(60);

/// The events of the PMU.
pub(super) struct PerfRapl {
    zones: Vec<Zone>,
    events: Vec<Event>,
    /// psys that has not moved yet. The kernel offers it by the model of the CPU without a look at its register (`no_check`
    /// in rapl.c), and every other domain only if its register is not 0. In a virtual machine it stands at 0.
    still: Vec<(Zone, Event)>,
    still_until: Instant,
    open: Box<dyn Open>,
    skips: Skips,
}

/// An event as sysfs describes it.
struct Described {
    name: &'static str,
    domain: Domain,
    config: u64,
    scale: Scale,
}

fn describe(
    files: &mut NodeFiles,
    name: &'static str,
    domain: Domain,
) -> Result<Option<Described>, SourceError> {
    let at = |suffix: &str| format!("{PMU}/events/{name}{suffix}");
    let words = |file: &'static str| SourceError::reading(file, "the event's description in sysfs");
    let config = match files.read(&at("")) {
        Ok(bytes) => parse_event(bytes).map_err(SourceError::parsing("power/events/energy-*"))?,
        Err(ReadError::Gone) => return Ok(None),
        Err(error) => return Err(words("power/events/energy-*")(error)),
    };
    let scale = "power/events/energy-*.scale";
    let scale =
        parse_scale(files.read(&at(".scale")).map_err(words(scale))?).map_err(SourceError::parsing(scale))?;
    const UNIT: &str = "power/events/energy-*.unit";
    if files.read(&at(".unit")).map_err(words(UNIT))?.trim_ascii() != b"Joules" {
        return Err(SourceError::Malformed { file: UNIT, error: ParseError::new(1, "not Joules") });
    }
    Ok(Some(Described { name, domain, config, scale }))
}

impl PerfRapl {
    /// The events that can be opened, and the refusals. Both empty where there is no such PMU.
    pub(super) fn find(
        roots: &Arc<Roots>,
        topology: &Topology,
        open: Box<dyn Open>,
    ) -> (Option<Self>, Vec<SourceError>) {
        let mut files = NodeFiles::new(roots);
        let pmu = match files.read(&format!("{PMU}/type")).map(parse_integer) {
            Ok(Ok(pmu)) => u32::try_from(pmu).ok(),
            _ => None,
        };
        let mask = files.read(&format!("{PMU}/cpumask")).ok().and_then(|bytes| CpuSet::parse(bytes).ok());
        let (Some(pmu), Some(mask)) = (pmu, mask) else { return (None, Vec::new()) };
        let mut sockets = BTreeSet::new();
        let cpus: Vec<_> = mask
            .iter()
            .map(|cpu| (cpu, topology.socket(cpu)))
            // The same register once more: see `Topology::one_counter_per_socket`.
            .filter(|(_, socket)| !topology.one_counter_per_socket || sockets.insert(*socket))
            .collect();
        let mut meter = Self {
            zones: Vec::new(),
            events: Vec::new(),
            still: Vec::new(),
            still_until: Instant::now() + PSYS_MOVES_WITHIN,
            open,
            skips: Skips::default(),
        };
        let mut refused: Vec<SourceError> = Vec::new();
        for (name, domain) in EVENTS {
            let outcome = describe(&mut files, name, domain).and_then(|described| match described {
                Some(described) => meter.add(&described, pmu, &cpus),
                None => Ok(()),
            });
            if let Err(error) = outcome
                && !refused.contains(&error)
            {
                refused.push(error);
            }
        }
        ((!meter.zones.is_empty()).then_some(meter), refused)
    }

    fn take(&mut self, zone: Zone, event: Event) {
        self.zones.push(zone);
        self.events.push(event);
    }

    /// Opens an event on every CPU of the mask, or on none: half of the sockets would be taken for all.
    fn add(
        &mut self,
        described: &Described,
        pmu: u32,
        cpus: &[(u32, Option<u32>)],
    ) -> Result<(), SourceError> {
        let mut opened: Vec<(Zone, Event)> = Vec::new();
        for (cpu, socket) in cpus {
            // A CPU of each die is in the mask, and each die's counter is a zone of its own.
            let before = opened.iter().filter(|(zone, _)| zone.socket == *socket).count();
            let die = if before == 0 { String::new() } else { format!("-{before}") };
            let spec = Spec { attr: Attr::new(pmu, described.config), cpu: *cpu };
            let event = Single::open(&*self.open, spec).map_err(SourceError::reading(WHAT, NEEDS))?;
            let zone = Zone {
                domain: described.domain,
                socket: *socket,
                source: Source::PerfRapl,
                name: format!("{}{die}", described.name),
                estimated: false,
            };
            opened
                .push((zone, Event { spec, scale: described.scale, opened: event, enabled: None, epoch: 0 }));
        }
        if described.domain == Domain::Psys {
            self.still.extend(opened);
        } else {
            opened.into_iter().for_each(|(zone, event)| self.take(zone, event));
        }
        Ok(())
    }
}

impl Event {
    /// Reads it. An event that stopped was taken off its CPU for good, as when its whole socket was offline: it is
    /// opened again, and counts from 0 in a new epoch.
    fn read(&mut self, open: &dyn Open) -> Result<Count, ReadError> {
        let count = self.opened.read();
        let runs = |count: &Count| self.enabled.is_none_or(|before| count.enabled > before);
        let count = match count {
            Ok(count) if runs(&count) => count,
            Ok(_) | Err(ReadError::Gone) => {
                self.opened = Single::open(open, self.spec)?;
                self.epoch = self.epoch.wrapping_add(1);
                self.enabled = None;
                self.opened.read()?
            }
            Err(error) => return Err(error),
        };
        self.enabled = Some(count.enabled);
        Ok(count)
    }

    fn sample(&mut self, open: &dyn Open) -> Result<Sample, SourceError> {
        let count = self.read(open).map_err(SourceError::reading(WHAT, NEEDS))?;
        let error = ParseError::new(1, "more microjoules than 64 bits hold");
        let energy_uj =
            self.scale.microjoules(count.value).ok_or(SourceError::Malformed { file: WHAT, error })?;
        let range = self.scale.wraps_at().map_or(Range::Full, |at| Range::Wraps { at });
        Ok(Sample { energy_uj, range, epoch: self.epoch, power_uw: None })
    }
}

impl Meter for PerfRapl {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// psys is a zone from its first joule on. It counts from when it was opened, so that joule is not lost.
    fn has_other_zones(&mut self) -> bool {
        let before = self.zones.len();
        for (zone, mut event) in std::mem::take(&mut self.still) {
            match event.sample(&*self.open) {
                Ok(sample) if sample.energy_uj > 0 => self.take(zone, event),
                _ if Instant::now() < self.still_until => self.still.push((zone, event)),
                _ => {}
            }
        }
        self.zones.len() > before
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, _now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        for (zone, event) in self.events.iter_mut().enumerate().filter(|(z, _)| !self.skips.has(*z)) {
            each(zone, event.sample(&*self.open));
        }
    }

    fn at_least_every(&self) -> Option<Duration> {
        (!self.skips.all(self.zones.len())).then_some(EVERY)
    }

    fn kept(self: Box<Self>) -> Option<Box<dyn Meter>> {
        let Self { zones, events, open, .. } = *self;
        let events = zones.into_iter().zip(events);
        let (zones, events): (Vec<_>, Vec<_>) = events
            .filter_map(|(zone, mut event)| event.sample(&*open).is_ok().then_some((zone, event)))
            .unzip();
        let meter = Self {
            zones,
            events,
            open,
            still: Vec::new(),
            still_until: self.still_until,
            skips: Skips::default(),
        };
        (!meter.zones.is_empty()).then(|| -> Box<dyn Meter> { Box::new(meter) })
    }
}

#[cfg(test)]
pub(super) mod tests;
