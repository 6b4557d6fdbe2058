//! A site's events: whatever parses gives plans that hold together.

use std::sync::LazyLock;

use perf_counters::catalogue::{Catalogue, Class, Extent};
use perf_counters::planner::{Machine, draft};

static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(Catalogue::built_in);

pub fn fuzz(bytes: &[u8]) {
    let Ok(catalogue) = Catalogue::with_site_bytes(bytes) else { return };
    for name in catalogue.names().filter(|name| catalogue.cores(name) != BUILT_IN.cores(name)) {
        for (smt, watchdog, extent) in
            [(false, false, Extent::Full), (true, true, Extent::Full), (true, true, Extent::Essential)]
        {
            let machine = Machine::assumed(&catalogue, name, smt, watchdog).expect("it has the name");
            let draft = draft(&machine, &catalogue, extent, &Class::ALL);
            for group in draft.cores.iter().flat_map(|core| core.groups.iter().map(move |group| (core, group))) {
                let (core, group) = group;
                assert!(!group.events.is_empty());
                assert!(core.counters.fit(group.events.iter().map(|chosen| &chosen.event)), "{group:?}");
                for (at, chosen) in group.events.iter().enumerate() {
                    assert!(group.events.iter().skip(at + 1).all(|other| other.attr != chosen.attr), "{group:?}");
                }
            }
            assert!(draft.plan().events() <= 64 * 16);
        }
    }
}
