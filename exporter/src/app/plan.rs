//! `jobledger-exporter perf`: the plan of a machine, for people and for tools.

mod text;

use std::sync::Arc;

use perf_counters::catalogue::{Class, Quality};
use perf_counters::planner::{Chosen, Counters, Draft, DraftCore, Machine, draft};
use perf_counters::{Absent, Event, Quantity};
use perf_events::Attr;
use serde::Serialize;

use crate::cli::PerfRequest;

/// The report for standard output, or why there is none.
pub fn report(request: &PerfRequest) -> Result<String, String> {
    let catalogue = super::catalogue(request.events_file.as_deref())?;
    if request.list {
        return Ok(catalogue.names().map(|name| format!("{name}\n")).collect());
    }
    let mut machine = match &request.microarchitecture {
        None => Machine::read(&Arc::new(request.roots.clone())),
        Some(name) => Machine::assumed(&catalogue, name, true, true)
            .ok_or_else(|| format!("{name} is not in the catalogue; --list names what is"))?,
    };
    machine.smt = request.smt.unwrap_or(machine.smt);
    machine.watchdog = request.watchdog.unwrap_or(machine.watchdog);
    let draft = draft(&machine, &catalogue, request.extent, &Class::ALL);
    let report = Report::new(&machine, &draft, request);
    if !request.json {
        return Ok(text::text(&report));
    }
    serde_json::to_string_pretty(&report).map(|json| json + "\n").map_err(|error| error.to_string())
}

/// The form of `--format=json`.
#[derive(Debug, Serialize)]
struct Report {
    /// Not of this machine: types of PMUs are the usual ones.
    assumed: bool,
    microarchitecture: Option<String>,
    smt: bool,
    nmi_watchdog: bool,
    /// `essential` or `full`.
    plan: &'static str,
    flops: Option<&'static str>,
    peak: Peak,
    cores: Vec<CoreReport>,
    software: Vec<EventReport>,
    /// Descriptors for each CPU of a job.
    descriptors_per_cpu: usize,
    /// What may be changed where groups take turns.
    advice_on_turns: Option<String>,
    absent: Vec<AbsentReport>,
}

#[derive(Debug, Serialize)]
struct Peak {
    instructions_per_cycle: f64,
    flops_per_cycle: Option<f64>,
}

#[derive(Debug, Serialize)]
struct CoreReport {
    pmu: String,
    cpus: Option<String>,
    general_counters: u32,
    fixed_counters: Vec<&'static str>,
    takes_turns: bool,
    verified: bool,
    groups: Vec<GroupReport>,
    notes: Vec<String>,
    sources: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GroupReport {
    name: String,
    events: Vec<EventReport>,
}

#[derive(Debug, Serialize)]
struct EventReport {
    name: String,
    #[serde(flatten)]
    published: Published,
    r#type: u32,
    config: u64,
    config1: u64,
    /// `0-3`, `fixed`, `fixed, 0-7`; none for what the kernel counts.
    counters: Option<String>,
    pair: bool,
    /// Whether its counts are taken off those of the others.
    minus: bool,
    verified: bool,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct AbsentReport {
    what: String,
    why: String,
}

/// A turn that is long enough: a scrape interval has a hundred of them, and they interrupt a CPU 25 times less often than the
/// kernel's 4 ms.
const LONG_TURN_MS: u64 = 100;

/// What an administrator may want to change where groups take turns; `None` where none does, or where turns are long.
pub(super) fn on_turns(machine: &Machine, draft: &Draft) -> Option<String> {
    let short = |core: &&DraftCore| {
        let pmu = machine.pmus.iter().find(|pmu| pmu.name == core.pmu);
        core.turns && pmu.and_then(|pmu| pmu.turn_ms).is_some_and(|ms| ms < LONG_TURN_MS)
    };
    let core = draft.cores.iter().find(short)?;
    let ms = machine.pmus.iter().find(|pmu| pmu.name == core.pmu)?.turn_ms?;
    let less = if core.groups.len() > 2 { "--collector.perf.plan=essential, or " } else { "" };
    let watchdog = if machine.watchdog { ", kernel.nmi_watchdog=0 for one counter more" } else { "" };
    Some(format!(
        "Counters take turns every {ms} ms, which interrupts jobs' CPUs as often: {less}--collector.perf.mux-interval={LONG_TURN_MS}ms costs less{watchdog}"
    ))
}

/// What a count is published as.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Published {
    what: &'static str,
    precision: Option<&'static str>,
    width: Option<&'static str>,
    level: Option<&'static str>,
    direction: Option<&'static str>,
    /// Operations or bytes that a count is worth.
    each: u64,
    /// Of slots: which of them.
    part: Option<&'static str>,
}

impl From<Quantity> for Published {
    fn from(quantity: Quantity) -> Self {
        let what = match quantity {
            Quantity::Cycles => "cycles",
            Quantity::ReferenceCycles => "reference cycles",
            Quantity::Instructions => "instructions",
            Quantity::Branches => "branches",
            Quantity::BranchMisses => "branch misses",
            Quantity::CacheReferences(_) => "cache references",
            Quantity::CacheMisses(_) => "cache misses",
            Quantity::Flops { .. } => "FLOPs",
            Quantity::FlopsOfAllTypes => "FLOPs of all types",
            Quantity::CacheTraffic { .. } => "cache traffic",
            Quantity::MemoryLoads { .. } => "memory loads",
            Quantity::TopDown { .. } | Quantity::PipelineSlots(_) => "pipeline slots",
            Quantity::ContextSwitches => "context switches",
            Quantity::Migrations => "migrations",
            Quantity::MinorFaults => "minor faults",
            Quantity::MajorFaults => "major faults",
        };
        let mut published = Self { what, each: quantity.each(), ..Self::default() };
        match quantity {
            Quantity::Flops { precision, width, .. } => {
                published.precision = Some(precision.as_str());
                published.width = Some(width.as_str());
            }
            Quantity::CacheTraffic { level, flow, .. } => {
                published.level = Some(level.as_str());
                published.direction = Some(flow.as_str());
            }
            Quantity::TopDown { part, .. } => published.part = Some(part.as_str()),
            Quantity::PipelineSlots(category) => published.part = Some(category.as_str()),
            Quantity::CacheReferences(level) | Quantity::CacheMisses(level) => {
                published.level = Some(level.as_str());
            }
            _ => {}
        }
        published
    }
}

impl Report {
    fn new(machine: &Machine, draft: &Draft, request: &PerfRequest) -> Self {
        let cores: Vec<_> = draft.cores.iter().map(CoreReport::new).collect();
        let events = |core: &CoreReport| core.groups.iter().map(|group| group.events.len()).sum::<usize>();
        Self {
            assumed: request.microarchitecture.is_some(),
            microarchitecture: draft.microarchitecture.clone(),
            smt: machine.smt,
            nmi_watchdog: machine.watchdog,
            plan: request.extent.as_str(),
            flops: draft.flops.map(Quality::as_str),
            peak: Peak {
                instructions_per_cycle: draft.limits.instructions_per_cycle,
                flops_per_cycle: draft.limits.flops_per_cycle,
            },
            // A CPU is of one kind.
            descriptors_per_cpu: cores.iter().map(events).max().unwrap_or(0) + draft.software.len(),
            cores,
            advice_on_turns: on_turns(machine, draft),
            software: draft.software.iter().map(EventReport::of_kernel).collect(),
            absent: draft.absent.iter().map(AbsentReport::new).collect(),
        }
    }
}

impl CoreReport {
    fn new(core: &DraftCore) -> Self {
        let known = core.known.as_ref();
        let texts =
            |texts: Option<&Vec<Arc<str>>>| texts.into_iter().flatten().map(ToString::to_string).collect();
        Self {
            pmu: core.pmu.clone(),
            cpus: core.cpus.as_ref().map(ToString::to_string),
            general_counters: core.counters.general,
            fixed_counters: core.counters.fixed.iter().map(|topic| topic.as_str()).collect(),
            takes_turns: core.turns,
            verified: known.is_none_or(|known| known.verified),
            groups: core
                .groups
                .iter()
                .map(|group| GroupReport {
                    name: group.name.to_string(),
                    events: group
                        .events
                        .iter()
                        .map(|event| EventReport::new(event, &core.counters))
                        .collect(),
                })
                .collect(),
            notes: texts(known.map(|known| &known.notes)),
            sources: texts(known.map(|known| &known.sources)),
        }
    }
}

impl EventReport {
    fn new(chosen: &Chosen, counters: &Counters) -> Self {
        let (event, attr) = (&chosen.event, chosen.attr);
        let able = counters.able(event);
        let general: Vec<u32> = (0..counters.general).filter(|at| able >> at & 1 == 1).collect();
        let fixed = (able >> counters.general != 0).then(|| "fixed".to_owned());
        let words: Vec<String> =
            fixed.into_iter().chain((!general.is_empty()).then(|| ranges(&general))).collect();
        Self {
            counters: Some(words.join(", ")),
            pair: event.pair,
            minus: event.minus,
            verified: event.verified,
            note: event.note.as_deref().map(str::to_owned),
            ..Self::plain(&event.name, event.quantity, attr)
        }
    }

    fn of_kernel(event: &Event) -> Self {
        Self::plain(&event.name, event.quantity, event.attr)
    }

    fn plain(name: &str, quantity: Quantity, attr: Attr) -> Self {
        Self {
            name: name.to_owned(),
            published: quantity.into(),
            r#type: attr.kind,
            config: attr.config,
            config1: attr.config1,
            counters: None,
            pair: false,
            minus: false,
            verified: true,
            note: None,
        }
    }
}

impl AbsentReport {
    fn new(absent: &Absent) -> Self {
        Self { what: absent.what.to_string(), why: absent.why.to_string() }
    }
}

/// `0-3,8`, as the kernel writes lists.
fn ranges(numbers: &[u32]) -> String {
    let mut text: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        let run = rest
            .iter()
            .zip(u64::from(*first)..)
            .take_while(|(number, next)| u64::from(**number) == *next)
            .count();
        let last = rest.get(run.saturating_sub(1)).unwrap_or(first);
        text.push(if last == first { first.to_string() } else { format!("{first}-{last}") });
        rest = rest.get(run..).unwrap_or_default();
    }
    text.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_kernel_does() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!((ranges(&[]), ranges(&[u32::MAX])), (String::new(), u32::MAX.to_string()));
    }
}
