use super::*;
use crate::{CacheLevel, Flow, Precision, Width};

fn site(text: &str) -> Result<Catalogue, String> {
    Catalogue::with_site_bytes(text.as_bytes())
}

/// A site's row for Zen 4.
fn zen4(rest: &str) -> Result<Catalogue, String> {
    site(&format!("microarchitectures: [{{names: [Zen 4], cores: [{{pmu: cpu, {rest}}}]}}]"))
}

fn core(catalogue: &Catalogue, name: &str) -> Core {
    catalogue.cores(name).unwrap()[0].clone()
}

fn named<'c>(core: &'c Core, name: &str) -> Vec<&'c Event> {
    core.events.iter().filter(|event| &*event.name == name).collect()
}

#[test]
fn every_microarchitecture_that_has_a_name_has_a_row_and_no_other() {
    let table = Catalogue::built_in();
    let mut known: Vec<String> = Microarchitectures::built_in().names().map(str::to_owned).collect();
    known.sort();
    assert_eq!(table.names().collect::<Vec<_>>(), known);
    for name in &known {
        for core in table.cores(name).unwrap() {
            assert!(!core.sources.is_empty(), "{name}");
            // Said once: by an event or by the reason why there is none.
            for topic in Topic::EXPECTED {
                let counted = core.events.iter().any(|event| event.topic() == topic);
                let listed = core.absent.iter().filter(|(absent, _)| *absent == topic).count();
                assert_eq!(listed, usize::from(!counted), "{name}, {}: {}", core.pmu, topic.as_str());
            }
        }
    }
}

/// A peak below what one instruction of every pipe gives would drop true counts.
#[test]
fn peaks_are_no_smaller_than_the_notes_on_the_cores_say() {
    let table = Catalogue::built_in();
    for (name, flops) in [
        ("Sandy Bridge-EP", 16.0),
        ("Broadwell-EP", 32.0),
        ("Skylake-SP", 64.0),
        ("Sapphire Rapids", 128.0),
        ("Zen 3", 48.0),
        ("Zen 5", 96.0),
        ("Neoverse V2", 64.0),
        ("A64FX", 128.0),
    ] {
        assert!(core(&table, name).peak.flops_per_cycle >= Some(flops), "{name}");
    }
    for name in table.names() {
        for core in table.cores(name).unwrap() {
            assert!((8.0..=24.0).contains(&core.peak.instructions_per_cycle), "{name}");
        }
    }
}

/// What the vendor's name says of an event that counts FLOPs. The oracles hold that a name has its code (tests/pmu_oracle).
fn listed(name: &str) -> (Precision, Width) {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let precision = match () {
        () if has(&["DOUBLE", "_DP_", "FP64", ".dp"]) => Precision::Double,
        () if has(&["SINGLE", "_SP_", "FP32", ".sp"]) => Precision::Single,
        () if has(&["HALF", "_HP_"]) => Precision::Half,
        () if has(&[".bf"]) => Precision::Bfloat16,
        () => Precision::Any,
    };
    let width = match () {
        () if has(&["SCALAR", "_scalar"]) => Width::Scalar,
        // Sandy Bridge's SSE, without a number.
        () if has(&["128B_", "SSE_PACKED"]) => Width::Bits(128),
        () if has(&["256B_", "SIMD_FP_256"]) => Width::Bits(256),
        () if has(&["512B_"]) => Width::Bits(512),
        () if has(&["_packed"]) => Width::Packed,
        () => Width::Any,
    };
    (precision, width)
}

/// An instruction does as many operations as numbers fit its vector; one that does two of them is counted twice by the CPU.
#[test]
fn what_a_count_of_flops_is_worth_follows_from_its_width_and_its_precision() {
    let table = Catalogue::built_in();
    let mut seen = 0;
    for name in table.names() {
        for core in table.cores(name).unwrap() {
            for event in &core.events {
                let Quantity::Flops { precision, width, each } = event.quantity else { continue };
                if event.only_in.is_some() {
                    continue;
                }
                seen += 1;
                let bits = |precision| match precision {
                    Precision::Double => 64,
                    Precision::Single => 32,
                    Precision::Half | Precision::Bfloat16 => 16,
                    Precision::Any => panic!("{name}, {}: a vector of numbers of no size", event.name),
                };
                let expected = match width {
                    // Vectors of SVE: the CPU counts operations for each 128 bits (ARM DDI 0487, FP_SCALE_OPS_SPEC).
                    Width::Bits(width) if event.name.contains("_SCALE_OPS_") => u32::from(width) / 128,
                    Width::Bits(width) => u32::from(width) / bits(precision),
                    // A multiplication of complex numbers adds to two of four (Intel's list).
                    Width::Scalar if &*event.name == "FP_ARITH_INST_RETIRED2.COMPLEX_SCALAR_HALF" => 2,
                    // Counted by themselves.
                    Width::Scalar | Width::Packed | Width::Any => 1,
                };
                assert_eq!(each, expected, "{name}, {}", event.name);
                let (precision_of, width_of) = listed(&event.name);
                assert_eq!(precision, precision_of, "{name}, {}", event.name);
                // How long SVE's vectors are is the core's, not the event's.
                if !event.name.contains("_SCALE_OPS_") {
                    assert_eq!(width, width_of, "{name}, {}", event.name);
                }
            }
        }
    }
    assert!(seen > 150, "{seen}");
}

/// The umask of an event's code, and the rest of it.
fn code(event: &Event) -> (u64, Vec<(&'static str, u64)>) {
    let Encoding::Fields(fields) = &event.encoding else { panic!("{}", event.name) };
    let (umask, rest): (Vec<_>, Vec<_>) = fields.iter().copied().partition(|(field, _)| *field == "umask");
    (umask.first().map_or(0, |(_, umask)| *umask), rest)
}

/// One event with the bits of several counts what they would have counted, each as much as the others: Intel's units of FLOPs, and
/// AMD's kinds of operations.
#[test]
fn what_stands_in_for_flops_counts_all_of_them_by_what_they_are_worth() {
    let table = Catalogue::built_in();
    let mut seen = 0;
    for name in table.names() {
        for core in table.cores(name).unwrap() {
            let flops = |event: &&Event| event.topic() == Topic::Flops;
            let (stand_ins, full): (Vec<_>, Vec<_>) =
                core.events.iter().filter(flops).partition(|event| event.only_in.is_some());
            // Fujitsu's events of all precisions are others than those of each; Zen 5's types are no bits.
            if stand_ins.is_empty() || ["A64FX", "Zen 5"].contains(&name) {
                continue;
            }
            for event in &full {
                // What half precision is worth is in no event of the others.
                if matches!(event.quantity, Quantity::Flops { precision: Precision::Half, .. }) {
                    continue;
                }
                let (umask, rest) = code(event);
                let by: Vec<_> = stand_ins
                    .iter()
                    .filter(|stand_in| code(stand_in).1 == rest && code(stand_in).0 & umask == umask)
                    .collect();
                assert_eq!(by.len(), 1, "{name}, {}: counted once", event.name);
                assert_eq!(by[0].quantity.each(), event.quantity.each(), "{name}, {}", event.name);
                let scalar =
                    |event: &Event| matches!(event.quantity, Quantity::Flops { width: Width::Scalar, .. });
                assert_eq!(scalar(by[0]), scalar(event), "{name}, {}", event.name);
            }
            let counted = |events: &[&Event]| {
                let mut bits: Vec<_> = events.iter().map(|event| code(event)).collect();
                bits.sort_by(|one, other| one.1.cmp(&other.1));
                bits.iter().fold(std::collections::BTreeMap::new(), |mut sum, (umask, rest)| {
                    *sum.entry(rest.clone()).or_insert(0) |= umask;
                    sum
                })
            };
            let without_half: Vec<_> = full
                .into_iter()
                .filter(|e| !matches!(e.quantity, Quantity::Flops { precision: Precision::Half, .. }))
                .collect();
            assert_eq!(counted(&stand_ins), counted(&without_half), "{name}: nothing more and nothing less");
            for stand_in in stand_ins {
                let any = matches!(stand_in.quantity, Quantity::Flops { precision: Precision::Any, .. });
                assert!(
                    any,
                    "{name}, {}: a part of the FLOPs with a precision looks like all of it",
                    stand_in.name
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

/// Lines are of 64 bytes but on A64FX.
#[test]
fn what_a_count_of_traffic_is_worth_is_a_line() {
    let table = Catalogue::built_in();
    for name in table.names() {
        let line = if name == "A64FX" { 256 } else { 64 };
        for event in table.cores(name).unwrap().iter().flat_map(|core| &core.events) {
            if let Quantity::CacheTraffic { each, .. } | Quantity::MemoryLoads { each } = event.quantity {
                assert_eq!(each, line, "{name}, {}", event.name);
            }
        }
    }
}

/// Reads for stores are a third of a triad's reads. The notes say whether they are counted, and CPUs of one kind
/// count alike.
#[test]
fn notes_say_what_the_requests_of_memory_loads_leave_out() {
    // Request types (Intel's SDM, volume 3B, MSR_OFFCORE_RSP): for ownership by demand; prefetches into L3 alone.
    const OWNERSHIP: u64 = 0x2;
    const L3_ALONE: u64 = 0x380;
    let table = Catalogue::built_in();
    let mut seen = 0;
    for name in table.names() {
        let core = core(&table, name);
        let requests: Vec<u64> = core.events.iter().filter_map(Event::offcore).collect();
        if requests.is_empty() {
            continue;
        }
        let request = requests.iter().fold(0, |all, one| all | one);
        let note = core.notes.iter().find(|note| note.starts_with("Memory loads")).expect(name);
        let (stores, l3) = (request & OWNERSHIP != 0, request & L3_ALONE != 0);
        assert!(
            l3 || !stores || name.starts_with("Granite Rapids"),
            "{name} leaves out a part that has an event"
        );
        let listed = match (stores, l3) {
            (true, true) => "those for stores and what was prefetched into L1, L2 or L3 alone among them",
            (true, false) => {
                "what is prefetched into L3 alone is not, since Intel's list has no event for it on this core"
            }
            (false, _) => "what was prefetched, and what is read for stores, is not among them",
        };
        assert!(note.ends_with(listed), "{name}, {request:#x}: {note}");
        seen += 1;
    }
    assert!(seen >= 14, "{seen}");
    let request = |name| core(&table, name).events.iter().find_map(Event::offcore).unwrap();
    // Cascade Lake's list has prefetches of instructions besides.
    assert_eq!(request("Skylake-SP"), request("Cascade Lake-SP") & !0x240);
}

/// A line that comes from memory comes into L1d: one that counts the first and not the second shows more traffic far from the
/// core than near to it. AMD's umask says from where, a bit for each source.
#[test]
fn traffic_into_l1d_is_of_all_sources() {
    let table = Catalogue::built_in();
    let umask = |event: &Event| match &event.encoding {
        Encoding::Fields(fields) if fields.contains(&("event", 0x44)) => {
            fields.iter().find(|(field, _)| *field == "umask").map(|(_, value)| *value)
        }
        _ => None,
    };
    let mut seen = Vec::new();
    for name in table.names().filter(|name| name.starts_with("Zen")) {
        let core = core(&table, name);
        let of = |topic| core.events.iter().filter(move |event| event.topic() == topic);
        for event in of(Topic::L2Load) {
            assert_eq!((of(Topic::L2Load).count(), umask(event)), (1, Some(0xff)), "{name}: {}", event.name);
            assert!(core.notes.iter().any(|note| note.starts_with("Lines into L1d are all that came there")));
            seen.push(name.to_owned());
        }
    }
    assert_eq!(seen, ["Zen 3", "Zen 4", "Zen 4 MI300", "Zen 5", "Zen 6"]);
}

/// A streaming job is one whose lines prefetchers bring: L1d has them from L2 then, and not from memory.
#[test]
fn loads_from_memory_have_what_amds_prefetchers_fetch_and_no_line_twice() {
    let table = Catalogue::built_in();
    let codes = |name: &str| -> Vec<(u64, u64)> {
        let core = core(&table, name);
        let loads = core.events.iter().filter(|event| event.topic() == Topic::MemoryLoads);
        let code = |event: &Event| match &event.encoding {
            Encoding::Fields(fields) => (fields[0].1, fields[1].1),
            Encoding::Hardware(_) => panic!("{}", event.name),
        };
        loads.map(code).collect()
    };
    // L1d's fills by demand, by programs' prefetches and by its own from near and far memory; of L2's prefetches those of L2 itself.
    assert_eq!(codes("Zen 2"), [(0x43, 0x48), (0x59, 0x48), (0x5a, 0x48), (0x72, 0x1f)]);
    for name in ["Zen 3", "Zen 4", "Zen 4 MI300"] {
        assert_eq!(codes(name), [(0x44, 0x48), (0x72, 0x1f)], "{name}");
    }
    // Every fill of L2, whoever asked for it.
    assert_eq!(codes("Zen 5"), [(0x165, 0x48)]);
}

/// L1's prefetches that miss L2 are misses of L2 as well: on Zen 5 AMD's own sum has them once (perf's all_l2_cache_misses_pti), and
/// one event counts all fills.
#[test]
fn lines_into_zen_5s_l2_are_one_event() {
    let core = core(&Catalogue::built_in(), "Zen 5");
    let loads: Vec<_> = core.events.iter().filter(|event| event.topic() == Topic::L3Load).collect();
    assert_eq!(loads.len(), 1);
    assert_eq!(loads[0].encoding, Encoding::Fields(vec![("event", 0x165), ("umask", 0xde)]));
    let requests = core.events.iter().find(|event| event.topic() == Topic::CacheReferences).unwrap();
    assert_eq!(requests.encoding, Encoding::Fields(vec![("event", 0x60), ("umask", 0xf7)]));
}

#[test]
fn a_sites_file_goes_over_what_is_built_in_by_names() {
    assert_eq!(site(""), Ok(Catalogue::built_in()));
    let before = core(&Catalogue::built_in(), "Zen 4");
    let catalogue = zen4("events: [{name: ex_ret_brn, event: 0x1c2, what: branches, note: mine}, {name: new, event: 1, what: cache_traffic, level: l3, flow: evict, each: 64}]").unwrap();
    let after = core(&catalogue, "Zen 4");
    assert_eq!(after.events.len(), before.events.len() + 1);
    let branches = named(&after, "ex_ret_brn");
    assert_eq!(branches[0].encoding, Encoding::Fields(vec![("event", 0x1c2)]));
    assert_eq!((branches.len(), branches[0].note.as_deref()), (1, Some("mine")));
    assert_eq!(
        named(&after, "new")[0].quantity,
        Quantity::CacheTraffic { level: CacheLevel::L3, flow: Flow::Evict, each: 64 }
    );
    assert_eq!((after.peak, &after.notes), (before.peak, &before.notes), "what is left out keeps its value");
    assert_eq!(catalogue.cores("Zen 3"), Catalogue::built_in().cores("Zen 3"));
    // One name that counts two things: the other one is kept.
    let miss = "l2_cache_req_stat.ic_dc_miss_in_l2";
    let other =
        zen4(&format!("events: [{{name: {miss}, event: 0x64, umask: 8, what: cache_misses, level: l2}}]"));
    assert_eq!(named(&core(&other.unwrap(), "Zen 4"), miss).len(), 2);
    let removed = zen4(&format!("events: [{{name: {miss}, remove: true}}]"));
    assert!(named(&core(&removed.unwrap(), "Zen 4"), miss).is_empty());
    let changed = zen4(
        "counters: {smt_on: 3, smt_off: 4}, peak: {instructions_per_cycle: 5, flops_per_cycle: 6}, absent: [{what: l3_misses, why: mine}]",
    );
    let changed = core(&changed.unwrap(), "Zen 4");
    assert_eq!((changed.counters_smt_on, changed.peak.flops_per_cycle), (3, Some(6.0)));
    assert_eq!(&*changed.why_absent(Topic::L3Misses), "mine");
    assert_eq!(&*changed.why_absent(Topic::L1dMisses), "no event is known for it on this core");
    let without = zen4(
        "flops: none, events: [{name: fp_ret_sse_avx_ops.all, remove: true}, {name: fp_ret_sse_avx_ops.bfloat_mac, remove: true}, {name: fp_ret_sse_avx_ops.all+bfloat_mac, remove: true}]",
    );
    let without = core(&without.unwrap(), "Zen 4");
    assert_eq!((without.flops, without.peak.flops_per_cycle), (None, None));
}

#[test]
fn widths_and_precisions_are_read() {
    let event = |text: &str| {
        let catalogue =
            zen4(&format!("events: [{{name: a, event: 1, what: flops, each: 2, {text}}}]")).unwrap();
        named(&core(&catalogue, "Zen 4"), "a")[0].quantity
    };
    for (text, precision, width) in [
        ("precision: double, width: scalar", Precision::Double, Width::Scalar),
        ("precision: single, width: 128", Precision::Single, Width::Bits(128)),
        ("precision: half, width: 512", Precision::Half, Width::Bits(512)),
        ("precision: bfloat16, width: packed", Precision::Bfloat16, Width::Packed),
        ("precision: any, width: any", Precision::Any, Width::Any),
    ] {
        assert_eq!(event(text), Quantity::Flops { precision, width, each: 2 });
    }
}

#[test]
fn what_is_not_complete_or_not_sound_is_refused_with_the_reason() {
    for (bad, why) in [
        ("counters: {smt_on: 0, smt_off: 1}", "counters are from 1"),
        ("counters: {smt_on: 1, smt_off: 17}", "counters are from 1"),
        ("fixed: [branches]", "no fixed counter is known for branches"),
        ("fixed: [cycles, cycles]", "stand twice"),
        ("flops: none", "flops is to be said"),
        ("peak: {instructions_per_cycle: 0}", "peak is no number above 0"),
        ("peak: {instructions_per_cycle: .inf}", "peak is no number above 0"),
        ("peak: {instructions_per_cycle: 4}", "flops_per_cycle is missing"),
        ("sets: [nothing]", "there is no set nothing"),
        ("notes: ['']", "a text is empty"),
        ("notes: [\"a\\nb\"]", "control characters"),
        ("events: [{name: ex_ret_instr, remove: true}]", "not one event for instructions"),
        ("events: [{name: a, event: 1, what: cycles}]", "not one event for cycles"),
        ("events: [{name: a, what: branches}]", "a: either event"),
        ("events: [{name: a, event: 1, hardware: 1, what: branches}]", "a: either event"),
        ("events: [{name: a, hardware: 10, what: branches}]", "a: either event"),
        ("events: [{name: a, umask: 1, hardware: 1, what: branches}]", "a: either event"),
        ("events: [{name: a, event: 1}]", "a: what is missing"),
        ("events: [{name: 'a b', event: 1, what: branches}]", "not a name"),
        ("events: [{name: a, event: 1, what: cache_misses}]", "level is missing"),
        ("events: [{name: a, event: 1, what: cache_traffic, level: l3, each: 64}]", "flow is missing"),
        (
            "events: [{name: a, event: 1, what: cache_traffic, level: l1d, flow: load, each: 64}]",
            "outer of two caches",
        ),
        ("events: [{name: a, event: 1, what: memory_loads, each: 0}]", "each is missing, or 0"),
        ("events: [{name: a, event: 1, what: flops, precision: half, width: 100, each: 1}]", "width is 128"),
        ("events: [{name: a, event: 1, what: flops, width: any, each: 1}]", "precision is missing"),
        ("events: [{name: a, event: 1, what: branches, counters: '6-7'}]", "no counter can count it"),
        ("events: [{name: a, event: 1, what: branches, counters: fixed}]", "no counter can count it"),
        ("events: [{name: a, event: 1, what: branches, counters: some}]", "counters are no list"),
        ("events: [{name: a, event: 1, what: top_down, slots: 6}]", "part is missing"),
        (
            "events: [{name: a, event: 1, what: top_down, part: retiring}]",
            "slots of a cycle are from 1 to 32",
        ),
        ("events: [{name: a, event: 1, what: top_down, part: retiring, slots: 33}]", "slots of a cycle are"),
        ("events: [{name: a, event: 1, what: top_down, part: flush, slots: 6}]", "flush is missing"),
        (
            "events: [{name: a, event: 1, what: top_down, part: flush, slots: 6, flush: {frontend: 65, backend: 0}}]",
            "at most 64 cycles",
        ),
        ("events: [{name: a, event: 1, what: branches, plan: some}]", "plan"),
        ("events: [{name: a, event: 1, what: branches, mask: 1}]", "mask"),
        (
            "events: [{name: a, event: 1, what: cache_misses, level: l1d, minus: true}]",
            "nothing that it can be taken off",
        ),
        (
            "events: [{name: a, event: 1, what: flops, precision: any, width: any, each: 1, minus: true}]",
            "nothing that it can",
        ),
        ("event: []", "event"),
    ] {
        let error = zen4(bad).expect_err(bad);
        assert!(error.contains(why), "{bad}: {error}");
    }
    for (bad, why) in [
        ("- a", "invalid type"),
        ("\u{0}", "control"),
        ("microarchitectures: [{names: [Itanium], cores: []}]", "Itanium is no microarchitecture"),
        ("microarchitectures: [{names: [Zen 4, Zen 4], cores: []}]", "Zen 4 stands in two rows"),
        (
            "microarchitectures: [{names: [Zen 4], cores: [{pmu: other}]}]",
            "Zen 4, other: counters are missing",
        ),
        ("sets: {intel_l3: []}", "the set intel_l3 is one of the program's own"),
    ] {
        let error = site(bad).expect_err(bad);
        assert!(error.contains(why), "{bad}: {error}");
    }
    let many: String = (0..70).map(|n| format!("{{name: e{n}, event: {n}, what: branches}},")).collect();
    assert!(zen4(&format!("events: [{many}]")).unwrap_err().contains("more than 64 events"));
}

#[test]
fn a_sites_notes_are_added() {
    let notes = site("microarchitectures: [{names: [Zen 4], cores: [{pmu: cpu, notes: [mine]}]}]").unwrap();
    assert_eq!(core(&notes, "Zen 4").notes.last().map(|note| &**note), Some("mine"));
}
