//! What the kernel is asked for, for every event of every microarchitecture, and what each count is taken for.

use std::fmt::Write;
use std::path::Path;

use jobledger_testkit::golden;
use perf_counters::catalogue::{Catalogue, Encoding};
use perf_counters::planner::Machine;
use perf_events::Attr;

#[test]
fn encodings_are_as_committed() {
    let catalogue = Catalogue::built_in();
    let mut text = "# Every event of the catalogue: PMU, name, type, config, config1, what its counts are taken for.\n\
                    # Rewritten by JOBLEDGER_BLESS=1 cargo test --test perf; each change is to be looked up at the vendor's.\n"
        .to_owned();
    let mut before: Option<(String, &str)> = None;
    for name in catalogue.names() {
        let machine = Machine::assumed(&catalogue, name, true, false).unwrap();
        let mut rows = String::new();
        for (core, pmu) in catalogue.cores(name).unwrap().iter().zip(&machine.pmus) {
            for event in &core.events {
                let attr = match &event.encoding {
                    Encoding::Fields(fields) => pmu.encode(fields.iter().copied()).unwrap(),
                    Encoding::Hardware(number) => Attr::new(Attr::HARDWARE, *number),
                };
                assert_eq!(attr.config2, 0);
                let Attr { kind, config, config1, .. } = attr;
                writeln!(
                    rows,
                    "{} {} {kind} {config:#x} {config1:#x} {:?}",
                    pmu.name, event.name, event.quantity
                )
                .unwrap();
            }
        }
        // Those that are the same differ in nothing.
        match &before {
            Some((same, of)) if *same == rows => writeln!(text, "\n{name}: as {of}").unwrap(),
            _ => {
                write!(text, "\n{name}\n{rows}").unwrap();
                before = Some((rows, name));
            }
        }
    }
    golden::assert_golden(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pmu/encodings.txt"),
        &text,
    );
}
