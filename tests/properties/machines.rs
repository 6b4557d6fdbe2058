//! The expositions of the fixture machines, by the catalogue, by promtool, and whatever the order of directories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use exposition::{Family, Kind};
use jobledger_exporter::collector::REGISTRY;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, Kind as Parsed, parse};
use jobledger_testkit::http;
use jobledger_testkit::machine::{Machine, fixture_names, fixtures_dir, parse_archive};
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::servers::check_metrics;

use crate::catalogue::{families, labels_of};

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
/// Those with the most kinds of series.
const RICHEST: [&str; 8] = [
    "v2-big",
    "v2-steps",
    "v2-limits",
    "v2-io-pids",
    "v2-two-slurmd",
    "v1-el8-joint",
    "slurm26.05-v2-extra-controllers",
    "v2-no-slurm",
];

fn flags(machine: &Machine) -> Vec<String> {
    let mut flags = machine.path_flags();
    flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
    flags.extend(REGISTRY.iter().map(|entry| format!("--collector.{}", entry.name)));
    flags.extend(["--jobs.steps", "--jobs.tasks", "--log.level=error"].map(str::to_owned));
    flags.push("--owner.labels=user,account,partition,qos".to_owned());
    flags
}

fn once(machine: &Machine) -> String {
    let output = Command::new(BINARY).args(flags(machine)).arg("--once").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn declared(exposition: &Exposition) {
    let catalogue: BTreeMap<&str, &Family> = families().into_iter().map(|(_, f)| (f.name, f)).collect();
    for exported in &exposition.families {
        let family = catalogue
            .get(exported.name.as_str())
            .unwrap_or_else(|| panic!("{} is in no catalogue", exported.name));
        assert_eq!(exported.kind == Parsed::Counter, family.kind == Kind::Counter, "{}", exported.name);
        assert_eq!(exported.help.as_deref(), Some(&*family.help_text()));
        for sample in &exported.samples {
            let labels: BTreeSet<&str> = sample
                .labels
                .iter()
                .map(|(name, _)| name.as_str())
                .filter(|name| *name != "slurm_node" || family.labels.contains(name))
                .collect();
            let wanted: BTreeSet<&str> =
                labels_of(family.level).iter().chain(family.labels).copied().collect();
            assert_eq!(labels, wanted, "{}", exported.name);
        }
    }
}

#[test]
fn every_series_of_every_machine_is_in_the_catalogue_and_no_other_is_there_twice() {
    for name in fixture_names() {
        let text = once(&Machine::fixture(&name));
        let exposition = parse(text.as_bytes(), Format::Text).unwrap_or_else(|e| panic!("{name}: {e}"));
        declared(&exposition);
    }
}

#[test]
fn promtool_finds_nothing_to_say() {
    for name in RICHEST {
        check_metrics(&once(&Machine::fixture(name))).unwrap_or_else(|said| panic!("{name}: {said}"));
    }
}

/// What is of the run and not of the machine.
pub(crate) fn of_the_run(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "jobledger_exporter_collector_duration_seconds",
        "jobledger_exporter_counting_start_time_seconds",
        "jobledger_exporter_scrapes_total",
        "jobledger_exporter_collector_errors_total",
        "jobledger_exporter_web_config_reload_time_seconds",
        "jobledger_job_allocated_cpu_seconds_total",
        "jobledger_job_alone_seconds_total",
        "jobledger_job_end_time_seconds",
        "jobledger_job_memory_allocated_byte_seconds_total",
        "jobledger_node_allocated_cpu_seconds_total",
        "jobledger_owner_allocated_cpu_seconds_total",
        "jobledger_owner_memory_allocated_byte_seconds_total",
        "jobledger_owner_unused_cpu_seconds_total",
    ];
    // The events of CPUs are those of the machine that runs the test.
    let counted = families().iter().any(|(collector, family)| *collector == "perf" && family.name == name);
    NAMES.contains(&name) || name.starts_with("process_") || name.contains("joules") || counted
}

fn of_the_machine(text: &str, root: &Path) -> String {
    let name = |line: &str| {
        let line = line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE ")).unwrap_or(line).to_owned();
        line.split(['{', ' ']).next().unwrap_or_default().to_owned()
    };
    let text = text.replace(&root.display().to_string(), "ROOT");
    text.lines().filter(|line| !of_the_run(&name(line))).map(|line| format!("{line}\n")).collect()
}

/// A generator that is the same everywhere.
fn shuffle<T>(items: &mut [T], mut state: u64) {
    for end in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(end, usize::try_from(state % (end as u64 + 1)).unwrap());
    }
}

/// A file system lists a directory in the order in which its entries were made, or in the opposite one.
#[test]
fn the_order_of_directory_entries_does_not_show() {
    for name in RICHEST {
        let archive = std::fs::read_to_string(fixtures_dir().join(name).join("machine.txt")).unwrap();
        let mut entries = parse_archive(&archive).unwrap();
        let mut texts = BTreeSet::new();
        for seed in [0, 0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03] {
            match seed {
                0 => entries.reverse(),
                _ => shuffle(&mut entries, seed),
            }
            let scratch = Scratch::new("order");
            let machine = Machine::lay_out(&entries, scratch.path());
            texts.insert(of_the_machine(&once(&machine), machine.root()));
        }
        let machine = Machine::fixture(name);
        texts.insert(of_the_machine(&once(&machine), machine.root()));
        let mut texts = texts.into_iter();
        let first = texts.next().unwrap();
        if let Some(other) = texts.next() {
            panic!("{name}:\n{}", jobledger_testkit::golden::unified_diff(&first, &other));
        }
    }
}

#[test]
fn two_scrapes_of_a_node_that_rests_differ_in_the_run_alone() {
    for name in RICHEST {
        let machine = Machine::fixture(name);
        let mut flags = flags(&machine);
        flags.push("--jobs.stale-after=1h".to_owned());
        let exporter = Exporter::start(BINARY, &flags);
        let _ = exporter.metrics();
        // Names of users are looked up beside the first scrape.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let [first, second] = [(); 2].map(|()| of_the_machine(&exporter.metrics(), machine.root()));
        assert!(first == second, "{name}:\n{}", jobledger_testkit::golden::unified_diff(&first, &second));
        let header = [("Accept", "application/openmetrics-text;version=1.0.0")];
        let answer =
            http::get(exporter.address(), "/metrics", &header, std::time::Duration::from_secs(20)).unwrap();
        parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
