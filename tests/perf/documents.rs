//! The tables of docs/counters.md are what the catalogue says.

use std::fmt::Write;
use std::path::Path;

use jobledger_testkit::golden;
use perf_counters::catalogue::{Catalogue, Class, Core, Event, Extent, Topic};
use perf_counters::planner::{Draft, draft};
use perf_counters::{Precision, Quantity};

use crate::plans::usual;

const BEGIN: &str = "<!-- Made from crates/perf-counters/data/pmu_events.yaml by JOBLEDGER_BLESS=1 cargo test --test perf. -->\n";
const END: &str = "<!-- End of what is made. -->\n";

/// Kinds of cores, each with the names of all microarchitectures that have it.
fn kinds(catalogue: &Catalogue) -> Vec<(String, Core)> {
    let mut kinds: Vec<(Vec<String>, Core)> = Vec::new();
    for name in catalogue.names() {
        let cores = catalogue.cores(name).unwrap();
        for core in cores {
            let shown = if cores.len() > 1 { format!("{name} ({})", core.pmu) } else { name.to_owned() };
            match kinds.iter_mut().find(|(_, known)| known == core) {
                Some((names, _)) => names.push(shown),
                None => kinds.push((vec![shown], core.clone())),
            }
        }
    }
    kinds.into_iter().map(|(names, core)| (names.join(", "), core)).collect()
}

fn events(core: &Core, topics: &[Topic]) -> String {
    let found = core.events.iter().filter(|event| topics.contains(&event.topic()));
    let name = |event: &Event| {
        let with = event.with_pmu.as_ref().map(|pmu| format!(" instead with {pmu}")).unwrap_or_default();
        let minus = match (event.minus, &event.with_pmu) {
            (true, _) => "-",
            (false, Some(_)) => "or ",
            (false, None) => "",
        };
        format!("{minus}`{}`{with}", event.name)
    };
    let names: Vec<String> = found.map(name).collect();
    if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(" + ").replace("+ -", "- ").replace("+ or", "or")
    }
}

fn flops(core: &Core) -> String {
    let Some(quality) = core.flops else { return "-".to_owned() };
    let mut precisions = Vec::new();
    for event in &core.events {
        // What stands in for all of them in the essential plan has no precision.
        if event.only_in == Some(Extent::Essential) {
            continue;
        }
        if let Quantity::Flops { precision, .. } = event.quantity {
            let word = if precision == Precision::Any { "all as one" } else { precision.as_str() };
            if !precisions.contains(&word) {
                precisions.push(word);
            }
        }
    }
    format!("{}: {}", quality.as_str(), precisions.join(", "))
}

fn misses(core: &Core) -> String {
    let levels = [(Topic::L3Misses, "L3"), (Topic::L2Misses, "L2"), (Topic::L1dMisses, "L1d")];
    let found: Vec<&str> = levels
        .iter()
        .filter(|(topic, _)| core.events.iter().any(|event| event.topic() == *topic))
        .map(|(_, level)| *level)
        .collect();
    if found.is_empty() { "-".to_owned() } else { found.join(", ") }
}

/// What of FLOPs, loads from memory and slots is in the essential plan, and in how many groups both plans are.
fn plans(catalogue: &Catalogue) -> String {
    let topics = [(Topic::Flops, "FLOPs"), (Topic::MemoryLoads, "loads"), (Topic::TopDown, "slots")];
    let groups = |draft: &Draft| {
        let counts: Vec<String> = draft.cores.iter().map(|core| core.groups.len().to_string()).collect();
        counts.join(" and ")
    };
    let mut rows: Vec<(Vec<&str>, [String; 4])> = Vec::new();
    for name in catalogue.names() {
        let machine = usual(name, catalogue);
        let [essential, full] = Extent::ALL.map(|extent| draft(&machine, catalogue, extent, &Class::ALL));
        let counted = |draft: &Draft, topic| {
            let mut events = draft.cores.iter().flat_map(|core| &core.groups).flat_map(|group| &group.events);
            events.any(|chosen| chosen.event.topic() == topic)
        };
        let of = |wanted: &dyn Fn(Topic) -> bool| {
            let words = topics.iter().filter(|(topic, _)| wanted(*topic)).map(|(_, word)| *word);
            let words: Vec<&str> = words.collect();
            if words.is_empty() { "-".to_owned() } else { words.join(", ") }
        };
        let row = [
            of(&|topic| counted(&essential, topic)),
            of(&|topic| counted(&full, topic) && !counted(&essential, topic)),
            groups(&essential),
            groups(&full),
        ];
        match rows.iter_mut().find(|(_, known)| *known == row) {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], row)),
        }
    }
    let mut page = "\n| microarchitecture | essential: beside cycles and instructions | in the full plan alone | essential: groups | full: groups |\n|---|---|---|---:|---:|\n".to_owned();
    for (names, row) in rows {
        writeln!(page, "| {} | {} |", names.join(", "), row.join(" | ")).unwrap();
    }
    page
}

fn tables(catalogue: &Catalogue) -> String {
    let kinds = kinds(catalogue);
    let mut page =
        "\n| microarchitecture | FLOPs | misses of | loads from memory |\n|---|---|---|---|\n".to_owned();
    for (names, core) in &kinds {
        writeln!(
            page,
            "| {names} | {} | {} | {} |",
            flops(core),
            misses(core),
            events(core, &[Topic::MemoryLoads])
        )
        .unwrap();
    }
    page += "\n| microarchitecture | L3 to L2 | L2 to L3 | L2 to L1d | L1d to L2 |\n|---|---|---|---|---|\n";
    for (names, core) in &kinds {
        let of = |topic| events(core, &[topic]);
        let (in2, out2, in1, out1) =
            (of(Topic::L3Load), of(Topic::L3Evict), of(Topic::L2Load), of(Topic::L2Evict));
        if (in2.as_str(), out2.as_str(), in1.as_str(), out1.as_str()) != ("-", "-", "-", "-") {
            writeln!(page, "| {names} | {in2} | {out2} | {in1} | {out1} |").unwrap();
        }
    }
    page += &plans(catalogue);
    page += "\nWhat who reads the numbers must know:\n\n";
    for (names, core) in &kinds {
        let mut notes: Vec<String> = core.notes.iter().map(ToString::to_string).collect();
        notes.extend(
            core.absent
                .iter()
                .filter(|(what, _)| *what == Topic::Flops)
                .map(|(_, why)| format!("No FLOPs: {why}")),
        );
        if !core.verified {
            notes.push("Codes stand on one source that is not the vendor's, or on memory".to_owned());
        }
        if !notes.is_empty() {
            writeln!(page, "- **{names}**: {}.", notes.join(". ")).unwrap();
        }
    }
    page + "\n"
}

#[test]
fn the_document_says_what_the_catalogue_does() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/counters.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the beginning is marked");
    let (_, after) = rest.split_once(END).expect("the end is marked");
    golden::assert_golden(&file, &format!("{before}{BEGIN}{}{END}{after}", tables(&Catalogue::built_in())));
}

/// The example of a site's file is one.
#[test]
fn the_example_in_the_document_is_taken() {
    let text = include_str!("../../docs/counters.md");
    let example: String = text
        .lines()
        .skip_while(|line| *line != "microarchitectures:")
        .take_while(|line| *line != "```")
        .map(|line| format!("{line}\n"))
        .collect();
    let site = Catalogue::with_site_bytes(example.as_bytes()).unwrap();
    let changed = |name: &&str| site.cores(name) != Catalogue::built_in().cores(name);
    assert_eq!(site.names().filter(changed).collect::<Vec<_>>(), ["Skylake-SP"]);
}
