//! Whether events can be counted in the same moments: a counter for each, as the kernel assigns them
//! (arch/x86/events/core.c `x86_schedule_events`, drivers/perf/arm_pmu.c).

use crate::catalogue::{Core, Event, Topic, ones};

/// Registers of a core for offcore requests (MSR_OFFCORE_RSP_0 and _1): at most this many different ones at a time.
const OFFCORE_REGISTERS: usize = 2;

/// The counters of a hardware thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Programmable counters.
    pub general: u32,
    /// The topics with a fixed counter.
    pub fixed: Vec<Topic>,
    /// Whether the kernel's watchdog counts cycles all the time.
    pub watchdog: bool,
}

impl Counters {
    /// Those of a core. How many are general-purpose ones the CPU itself may say; else it is what the table has.
    pub fn of(core: &Core, general: Option<u32>, smt: bool, watchdog: bool) -> Self {
        let listed = if smt { core.counters_smt_on } else { core.counters_smt_off };
        Self { general: general.unwrap_or(listed), fixed: core.fixed.clone(), watchdog }
    }

    /// Which counters can count an event: the general ones from bit 0, then the fixed ones. None for one that takes none.
    pub fn able(&self, event: &Event) -> u32 {
        if event.free {
            return 0;
        }
        let general = event.counters & ones(self.general);
        general | if event.pair { 0 } else { self.fixed_for(event.topic()) }
    }

    fn fixed_for(&self, topic: Topic) -> u32 {
        let at = self.fixed.iter().position(|fixed| *fixed == topic).and_then(|at| u32::try_from(at).ok());
        at.and_then(|at| 1_u32.checked_shl(self.general + at)).unwrap_or(0)
    }

    /// Whether all of these can be counted at once, beside the watchdog.
    pub fn fit<'e>(&self, events: impl IntoIterator<Item = &'e Event>) -> bool {
        let (mut singles, mut pairs, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for event in events.into_iter().filter(|event| !event.free) {
            if event.pair {
                pairs.push(self.able(event))
            } else {
                singles.push(self.able(event))
            }
            requests.extend(event.offcore());
        }
        if self.watchdog {
            singles.push(ones(self.general) | self.fixed_for(Topic::Cycles));
        }
        requests.sort_unstable();
        requests.dedup();
        let all = self.general as usize + self.fixed.len();
        requests.len() <= OFFCORE_REGISTERS
            && singles.len() + 2 * pairs.len() <= all
            && self.place(&pairs, 0, &singles)
    }

    /// Tries every place for those that take two counters; an assignment of the others is then found without trying.
    fn place(&self, pairs: &[u32], taken: u32, singles: &[u32]) -> bool {
        let Some((able, others)) = pairs.split_first() else {
            return assign(singles, taken, self.general + 4);
        };
        (0..self.general.saturating_sub(1)).step_by(2).any(|even| {
            let both = 0b11_u32.checked_shl(even).unwrap_or(0);
            able & both == both && taken & both == 0 && self.place(others, taken | both, singles)
        })
    }
}

/// Whether each of these can have a counter of its own: augmenting paths (Kuhn).
fn assign(singles: &[u32], taken: u32, counters: u32) -> bool {
    let mut owner: Vec<Option<usize>> = vec![None; counters as usize];
    (0..singles.len()).all(|event| augment(event, singles, taken, &mut owner, &mut 0))
}

fn augment(event: usize, singles: &[u32], taken: u32, owner: &mut [Option<usize>], seen: &mut u32) -> bool {
    let able = singles.get(event).copied().unwrap_or(0) & !taken;
    for at in 0..owner.len() {
        let bit = 1_u32.checked_shl(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0);
        if able & bit == 0 || *seen & bit != 0 {
            continue;
        }
        *seen |= bit;
        let free = match owner.get(at).copied().flatten() {
            None => true,
            Some(other) => augment(other, singles, taken, owner, seen),
        };
        if free {
            if let Some(slot) = owner.get_mut(at) {
                *slot = Some(event);
            }
            return true;
        }
    }
    false
}
