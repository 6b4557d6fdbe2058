//! What became of the pipeline's slots, from the readings of one group. Pure.
//!
//! The vendors name the same four categories and count different things for them: the kernel's `topdown-*` of Intel's PERF_METRICS
//! (arch/x86/events/intel/core.c, `icl_update_topdown_event`; intel/perfmon, `tma_*`), empty slots by their cause on E-cores
//! (intel/perfmon) and on Zen 4 and 5 (AMD's PPR, "Guidance for Pipeline Utilization Analysis Statistics"), and on ARM (ARM's telemetry
//! solution, in tools/perf/pmu-events/arch/arm64). One rule has all of them: what is counted is a part of the slots, and bad
//! speculation, where no event counts it, is what remains. So the categories are disjoint, never below 0, and add up to the slots.

use crate::{Event, Quantity, SlotCategory, SlotPart};

/// The readings of a group, slots or cycles of one interval.
#[derive(Debug, Clone, Copy, Default)]
struct Readings {
    /// Slots of a cycle.
    width: u64,
    cycles: Option<u64>,
    all: Option<u64>,
    retiring: Option<u64>,
    speculative: Option<u64>,
    bad_speculation: Option<u64>,
    frontend: Option<u64>,
    /// Whether that has one more for each cycle.
    with_cycles: bool,
    backend: Option<u64>,
    memory: Option<u64>,
    other_thread: Option<u64>,
    /// Slots of flushes that are among the front end's and the back end's.
    flushed: [u64; 2],
}

impl Readings {
    fn of<'e>(events: impl Iterator<Item = (&'e Event, u64)>) -> Self {
        let mut readings = Self::default();
        for (event, count) in events {
            let Quantity::TopDown { part, slots } = event.quantity else {
                if event.quantity == Quantity::Cycles {
                    readings.cycles = Some(count);
                }
                continue;
            };
            readings.width = u64::from(slots);
            let reading = match part {
                SlotPart::All => &mut readings.all,
                SlotPart::Retiring => &mut readings.retiring,
                SlotPart::Speculative => &mut readings.speculative,
                SlotPart::BadSpeculation => &mut readings.bad_speculation,
                SlotPart::Frontend => &mut readings.frontend,
                SlotPart::FrontendAndCycles => {
                    readings.with_cycles = true;
                    &mut readings.frontend
                }
                SlotPart::Backend => &mut readings.backend,
                SlotPart::Memory => &mut readings.memory,
                SlotPart::OtherThread => &mut readings.other_thread,
                SlotPart::Flush { frontend, backend } => {
                    let lost = |cycles: u32| count.saturating_mul(u64::from(cycles) * u64::from(slots));
                    readings.flushed = [lost(frontend), lost(backend)];
                    continue;
                }
            };
            *reading = Some(count);
        }
        readings
    }

    /// The categories and their slots; none where a reading is missing without which there are none.
    fn categories(&self) -> Option<Vec<(SlotCategory, u64)>> {
        let slots = self.all.or_else(|| Some(self.cycles?.saturating_mul(self.width)))?;
        let (mut frontend, backend, retired) = (self.frontend?, self.backend?, self.retiring?);
        if self.with_cycles {
            frontend = frontend.saturating_sub(self.cycles?);
        }
        let other_thread = self.other_thread.unwrap_or(0);
        let used = slots.saturating_sub(frontend.saturating_add(backend).saturating_add(other_thread));
        // Of operations that were sent the part that retired, of the slots that had one.
        let retiring = match self.speculative {
            Some(sent) => part(used, retired.min(sent), sent),
            None => retired,
        };
        let [in_frontend, in_backend] = self.flushed;
        let (frontend, backend) = (frontend.saturating_sub(in_frontend), backend.saturating_sub(in_backend));
        let counted = [retiring, frontend, backend, other_thread];
        let sum = counted.iter().fold(self.bad_speculation.unwrap_or(0), |sum, one| sum.saturating_add(*one));
        // Counts of different events differ a little: they share what there is. Where all categories are counted they share all of it.
        let whole = if self.bad_speculation.is_some() { sum } else { sum.max(slots) };
        let [retiring, frontend, backend, other_thread] = counted.map(|one| part(slots, one, whole));
        let rest = slots.saturating_sub(retiring + frontend + backend + other_thread);
        let mut categories = vec![
            (SlotCategory::Retiring, retiring),
            (SlotCategory::BadSpeculation, rest),
            (SlotCategory::Frontend, frontend),
        ];
        match self.memory {
            Some(memory) => {
                let memory = part(slots, memory, whole).min(backend);
                categories.push((SlotCategory::BackendMemory, memory));
                categories.push((SlotCategory::BackendCore, backend - memory));
            }
            None => categories.push((SlotCategory::Backend, backend)),
        }
        if self.other_thread.is_some() {
            categories.push((SlotCategory::OtherThread, other_thread));
        }
        Some(categories)
    }
}

/// `all * part / whole`, rounded down: parts of a whole never add up to more than it.
fn part(all: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(all) * u128::from(part);
    u64::try_from(product / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

/// The slots of each category, from the counts of a group's events. Nothing for a group that has none.
pub fn categories(events: &[Event], counts: &[u64]) -> Vec<(SlotCategory, u64)> {
    if !events.iter().any(is_reading) {
        return Vec::new();
    }
    Readings::of(events.iter().zip(counts.iter().copied())).categories().unwrap_or_default()
}

/// Whether an event is a reading for the categories.
pub fn is_reading(event: &Event) -> bool {
    matches!(event.quantity, Quantity::TopDown { .. })
}

/// The categories that a group's events give, in the order of [`categories`].
pub fn categories_of(events: &[Event]) -> impl Iterator<Item = SlotCategory> {
    categories(events, &vec![0; events.len()]).into_iter().map(|(category, _)| category)
}

#[cfg(test)]
mod tests;
