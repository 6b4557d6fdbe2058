//! What becomes of the slots of ARM's cores, by the group that the full plan counts. tests/pmu_oracle has the vendors' formulas say the
//! same of the same counts.

use std::fmt::Write;
use std::path::Path;

use perf_counters::catalogue::{ARMV8, Catalogue, Class, Extent};
use perf_counters::planner::{Machine, draft};
use perf_counters::top_down::{categories, is_reading};
use perf_counters::{Event, Quantity};

use jobledger_testkit::golden;

/// Counts of one interval in which a core of 5, 8 or 10 slots sent more than it retired, and waited for both ends.
const COUNTS: [(&str, u64); 9] = [
    ("CPU_CYCLES", 1_000_000_000),
    ("CPU_SLOT", 8_000_000_000),
    ("OP_RETIRED", 1_800_000_000),
    ("OP_SPEC", 2_200_000_000),
    ("STALL_SLOT_FRONTEND", 1_400_000_000),
    ("STALL_SLOT_FRONTEND_WITHOUT_MISPRED", 1_300_000_000),
    ("STALL_SLOT_BACKEND", 1_200_000_000),
    ("BR_MIS_PRED", 20_000_000),
    ("STALL_FRONTEND_FLUSH", 20_000_000),
];

#[test]
fn arms_cores_have_the_slots_that_are_recorded() {
    let catalogue = Catalogue::built_in();
    let mut text = String::from(
        "# Of ARM's cores: slots of a cycle, counts of one interval, and the slots of each category.\n\
         # Rewritten by JOBLEDGER_BLESS=1 cargo test --test perf; tests/pmu_oracle has the vendors' formulas say the same.\n",
    );
    for name in catalogue.names() {
        let arm = catalogue.cores(name).unwrap().iter().all(|core| &*core.pmu == ARMV8);
        let machine = Machine::assumed(&catalogue, name, false, false).unwrap();
        let plan = draft(&machine, &catalogue, Extent::Full, &Class::ALL).plan();
        let Some(group) = plan.groups.iter().find(|group| arm && group.events.iter().any(is_reading)) else {
            continue;
        };
        let wanted = |event: &&Event| is_reading(event) || event.quantity == Quantity::Cycles;
        let events: Vec<Event> = group.events.iter().filter(wanted).cloned().collect();
        let count = |event: &Event| COUNTS.iter().find(|(name, _)| *name == &*event.name).unwrap().1;
        let counts: Vec<u64> = events.iter().map(count).collect();
        let slots = events.iter().find_map(|event| match event.quantity {
            Quantity::TopDown { slots, .. } => Some(slots),
            _ => None,
        });
        write!(text, "\n{name}\nslots {}\n", slots.unwrap()).unwrap();
        for (event, count) in events.iter().zip(&counts) {
            writeln!(text, "event {} {count}", event.name).unwrap();
        }
        for (category, slots) in categories(&events, &counts) {
            writeln!(text, "category {} {slots}", category.as_str()).unwrap();
        }
    }
    golden::assert_golden(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pmu/arm_slots.txt"),
        &text,
    );
}
