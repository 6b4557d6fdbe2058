//! Whether a file is complete and sound: nothing that a kernel would be asked for is guessed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cpu_topology::CpuSet;
use cpu_topology::microarchitecture::Microarchitectures;

use super::file::{
    CoreRow, EventKind, EventRow, File, FlopsRow, FlowRow, LevelRow, PartRow, PrecisionRow, WidthRow,
    WidthWord,
};
use super::{Core, Encoding, Event, OFFCORE, Quality, Topic, ones};
use crate::{CacheLevel, Flow, PlausibilityLimits, Precision, Quantity, SlotPart, Width};

/// More than any core has.
const MOST_COUNTERS: u32 = 16;
/// More than anybody can count in turns.
const MOST_EVENTS: usize = 64;
/// Longest text.
const LONGEST: usize = 400;

pub(super) fn rows(file: &File, known: &Microarchitectures) -> Result<BTreeMap<Arc<str>, Vec<Core>>, String> {
    let mut rows = BTreeMap::new();
    for row in &file.microarchitectures {
        for name in &row.names {
            if !known.names().any(|known| known == name) {
                return Err(format!(
                    "{name} is no microarchitecture that is known (jobledger-exporter perf --list)"
                ));
            }
            let core = |row: &CoreRow| core(row, file).map_err(|why| format!("{name}, {}: {why}", row.pmu));
            let cores = row.cores.iter().map(core).collect::<Result<Vec<_>, _>>()?;
            let twice =
                |(at, core): (usize, &Core)| cores.iter().skip(at + 1).any(|other| other.pmu == core.pmu);
            if cores.is_empty() || cores.iter().enumerate().any(twice) {
                return Err(format!("{name} has no cores, or two with the same PMU"));
            }
            rows.insert(name.as_str().into(), cores);
        }
    }
    Ok(rows)
}

fn text(text: &str) -> Result<Arc<str>, String> {
    let limits = !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control);
    limits
        .then(|| text.into())
        .ok_or_else(|| "a text is empty, too long or has control characters".to_owned())
}

fn texts(all: &[String]) -> Result<Vec<Arc<str>>, String> {
    all.iter().map(|one| text(one)).collect()
}

fn core(row: &CoreRow, file: &File) -> Result<Core, String> {
    let counters = row.counters.ok_or("counters are missing")?;
    if ![counters.smt_on, counters.smt_off].iter().all(|n| (1..=MOST_COUNTERS).contains(n)) {
        return Err(format!("counters are from 1 to {MOST_COUNTERS}"));
    }
    let fixed = row.fixed.clone().ok_or("fixed is missing")?;
    let can_be_fixed = [Topic::Cycles, Topic::Instructions, Topic::ReferenceCycles, Topic::TopDown];
    if fixed.len() > can_be_fixed.len()
        || !can_be_fixed.iter().all(|t| fixed.iter().filter(|f| *f == t).count() < 2)
    {
        return Err("fixed counters stand twice".to_owned());
    }
    if let Some(topic) = fixed.iter().find(|topic| !can_be_fixed.contains(topic)) {
        return Err(format!("no fixed counter is known for {}", topic.as_str()));
    }
    let events = events(row, file)?;
    for event in &events {
        let on_fixed = fixed.contains(&event.topic());
        let some = |counters: u32| event.counters & ones(counters) != 0;
        let general = some(counters.smt_on) && some(counters.smt_off);
        if !(on_fixed || general || event.free) {
            return Err(format!("{}: no counter can count it", event.name));
        }
    }
    for event in events.iter().filter(|event| event.minus) {
        let counts = |other: &&Event| !other.minus && other.quantity == event.quantity;
        if matches!(event.topic(), Topic::Cycles | Topic::Instructions | Topic::Flops)
            || !events.iter().any(|other| counts(&other))
        {
            return Err(format!("{}: there is nothing that it can be taken off", event.name));
        }
    }
    for topic in [Topic::Cycles, Topic::Instructions] {
        if events.iter().filter(|event| event.topic() == topic).count() != 1 {
            return Err(format!("there is not one event for {}", topic.as_str()));
        }
    }
    let flops = match row.flops {
        Some(FlopsRow::Retired) => Some(Quality::Retired),
        Some(FlopsRow::Speculative) => Some(Quality::Speculative),
        Some(FlopsRow::None) | None => None,
    };
    if flops.is_some() != events.iter().any(|event| event.topic() == Topic::Flops) {
        return Err("flops is to be said where there are events for them, and only there".to_owned());
    }
    let peak = row.peak.ok_or("peak is missing")?;
    let limits = |number: f64| number.is_finite() && number > 0.0;
    if !limits(peak.instructions_per_cycle) || !peak.flops_per_cycle.is_none_or(limits) {
        return Err("peak is no number above 0".to_owned());
    }
    if flops.is_some() && peak.flops_per_cycle.is_none() {
        return Err("peak: flops_per_cycle is missing".to_owned());
    }
    let absent: Result<_, String> = row.absent.iter().map(|row| Ok((row.what, text(&row.why)?))).collect();
    Ok(Core {
        pmu: text(&row.pmu)?,
        counters_smt_on: counters.smt_on,
        counters_smt_off: counters.smt_off,
        fixed,
        peak: PlausibilityLimits {
            instructions_per_cycle: peak.instructions_per_cycle,
            flops_per_cycle: peak.flops_per_cycle.filter(|_| flops.is_some()),
        },
        flops,
        events,
        absent: absent?,
        notes: texts(&row.notes)?,
        sources: texts(&row.sources)?,
        verified: row.verified.unwrap_or(true),
    })
}

/// The events of a core: those of its sets, and its own, of which a later one with the same name replaces what was there.
fn events(row: &CoreRow, file: &File) -> Result<Vec<Event>, String> {
    let mut rows: Vec<&EventRow> = Vec::new();
    for set in &row.sets {
        rows.extend(file.sets.get(set).ok_or_else(|| format!("there is no set {set}"))?);
        // Before anything is done with it: sets can be named again and again.
        if rows.len() > MOST_EVENTS {
            return Err(format!("more than {MOST_EVENTS} events"));
        }
    }
    for event in &row.events {
        rows.retain(|known| {
            known.name != event.name || !event.remove && same_kind(known, event) == Some(false)
        });
        if !event.remove {
            rows.push(event);
        }
        if rows.len() > MOST_EVENTS {
            return Err(format!("more than {MOST_EVENTS} events"));
        }
    }
    rows.into_iter().map(|row| event(row).map_err(|why| format!("{}: {why}", row.name))).collect()
}

/// Whether two events of one name count the same thing. One event of a vendor may count two.
fn same_kind(one: &EventRow, other: &EventRow) -> Option<bool> {
    Some(Topic::of(quantity(one).ok()?) == Topic::of(quantity(other).ok()?))
}

fn event(row: &EventRow) -> Result<Event, String> {
    let plain = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    if row.name.is_empty() || row.name.len() > LONGEST || !row.name.bytes().all(plain) {
        return Err("not a name".to_owned());
    }
    if row.remove {
        return Err("remove goes with a site's file only".to_owned());
    }
    let bit = |flag: Option<bool>| flag.filter(|set| *set).map(u64::from);
    let fields = [
        ("event", row.event),
        ("umask", row.umask.filter(|umask| *umask != 0)),
        ("cmask", row.cmask),
        ("inv", bit(row.inv)),
        ("edge", bit(row.edge)),
        (OFFCORE, row.offcore_rsp),
    ];
    let fields: Vec<_> = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let encoding = match (row.hardware, row.event) {
        // The kernel has ten of them (include/uapi/linux/perf_event.h, enum perf_hw_id).
        (Some(number), None) if fields.is_empty() && number < 10 => Encoding::Hardware(number),
        (None, Some(_)) => Encoding::Fields(fields),
        _ => return Err("either event with its fields or hardware (0 to 9)".to_owned()),
    };
    let counters = match row.counters.as_deref() {
        None => u32::MAX,
        Some("fixed" | "none") => 0,
        Some(list) => {
            let list = CpuSet::parse(list.as_bytes()).map_err(|_| "counters are no list")?;
            (0..MOST_COUNTERS).filter(|at| list.contains(*at)).fold(0, |mask, at| mask | 1 << at)
        }
    };
    Ok(Event {
        name: row.name.as_str().into(),
        quantity: quantity(row)?,
        encoding,
        counters,
        pair: row.pair,
        free: row.counters.as_deref() == Some("none"),
        only_in: row.plan,
        verified: row.verified,
        note: row.note.as_deref().map(text).transpose()?,
        minus: row.minus,
        with_pmu: row.with_pmu.as_deref().map(text).transpose()?,
        without_pmu: row.without_pmu.as_deref().map(text).transpose()?,
    })
}

fn quantity(row: &EventRow) -> Result<Quantity, String> {
    let each = || row.each.filter(|each| *each > 0).ok_or_else(|| "each is missing, or 0".to_owned());
    let level = || {
        let level = row.level.ok_or_else(|| "level is missing".to_owned())?;
        Ok::<_, String>(match level {
            LevelRow::L1d => CacheLevel::L1d,
            LevelRow::L2 => CacheLevel::L2,
            LevelRow::L3 => CacheLevel::L3,
        })
    };
    Ok(match row.what.ok_or("what is missing")? {
        EventKind::Cycles => Quantity::Cycles,
        EventKind::Instructions => Quantity::Instructions,
        EventKind::ReferenceCycles => Quantity::ReferenceCycles,
        EventKind::Branches => Quantity::Branches,
        EventKind::BranchMisses => Quantity::BranchMisses,
        EventKind::CacheReferences => Quantity::CacheReferences(level()?),
        EventKind::CacheMisses => Quantity::CacheMisses(level()?),
        EventKind::FlopsOfAllTypes => Quantity::FlopsOfAllTypes,
        EventKind::MemoryLoads => Quantity::MemoryLoads { each: each()? },
        EventKind::TopDown => {
            // Wider than any core that is announced.
            let slots = row.slots.filter(|slots| (1..=32).contains(slots));
            let slots = slots.ok_or_else(|| "slots of a cycle are from 1 to 32".to_owned())?;
            Quantity::TopDown { part: slot_part(row)?, slots }
        }
        EventKind::CacheTraffic => {
            let level = level()?;
            if level == CacheLevel::L1d {
                return Err("traffic is of the outer of two caches: l2 or l3".to_owned());
            }
            let flow = match row.flow.ok_or("flow is missing")? {
                FlowRow::Load => Flow::Load,
                FlowRow::Evict => Flow::Evict,
            };
            Quantity::CacheTraffic { level, flow, each: each()? }
        }
        EventKind::Flops => {
            let precision = match row.precision.ok_or("precision is missing")? {
                PrecisionRow::Double => Precision::Double,
                PrecisionRow::Single => Precision::Single,
                PrecisionRow::Half => Precision::Half,
                PrecisionRow::Bfloat16 => Precision::Bfloat16,
                PrecisionRow::Any => Precision::Any,
            };
            let width = match row.width.ok_or("width is missing")? {
                WidthRow::Bits(bits @ (128 | 256 | 512)) => Width::Bits(bits),
                WidthRow::Bits(_) => return Err("width is 128, 256, 512, scalar, packed or any".to_owned()),
                WidthRow::Word(WidthWord::Scalar) => Width::Scalar,
                WidthRow::Word(WidthWord::Packed) => Width::Packed,
                WidthRow::Word(WidthWord::Any) => Width::Any,
            };
            Quantity::Flops { precision, width, each: each()? }
        }
    })
}

fn slot_part(row: &EventRow) -> Result<SlotPart, String> {
    Ok(match row.part.ok_or("part is missing")? {
        PartRow::All => SlotPart::All,
        PartRow::Retiring => SlotPart::Retiring,
        PartRow::Speculative => SlotPart::Speculative,
        PartRow::BadSpeculation => SlotPart::BadSpeculation,
        PartRow::Frontend => SlotPart::Frontend,
        PartRow::FrontendAndCycles => SlotPart::FrontendAndCycles,
        PartRow::Backend => SlotPart::Backend,
        PartRow::Memory => SlotPart::Memory,
        PartRow::OtherThread => SlotPart::OtherThread,
        PartRow::Flush => {
            let flush = row.flush.ok_or("flush is missing: the cycles that each takes")?;
            // Longer than any pipeline.
            if flush.frontend.max(flush.backend) > 64 {
                return Err("a flush takes at most 64 cycles".to_owned());
            }
            SlotPart::Flush { frontend: flush.frontend, backend: flush.backend }
        }
    })
}
