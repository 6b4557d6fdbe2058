//! The catalogue is the contract: names, kinds, units, labels and help of every family of every collector.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use exposition::{Family, Kind, Level};
use jobledger_exporter::collector::REGISTRY;
use jobledger_exporter::scrape::health_families;
use jobledger_testkit::golden;

/// Every family, with the collector that has it.
pub(crate) fn families() -> Vec<(&'static str, &'static Family)> {
    let of_collectors =
        REGISTRY.iter().flat_map(|entry| (entry.families)().into_iter().map(|f| (entry.name, f)));
    of_collectors.chain(health_families().into_iter().map(|f| ("health", f))).collect()
}

/// Labels that every series of a level has.
pub(crate) fn labels_of(level: Level) -> &'static [&'static str] {
    match level {
        Level::Exporter | Level::Node => &[],
        Level::Job => &["jobid"],
        Level::Step => &["jobid", "step"],
        Level::Task => &["jobid", "step", "task"],
    }
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split('_')
}

/// Calls the check for every family and shows all that fail.
fn all(check: impl Fn(&Family) -> Result<(), String>) {
    let failures: Vec<String> = families()
        .into_iter()
        .filter_map(|(_, family)| check(family).err().map(|why| format!("{}: {why}", family.name)))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn ensure(holds: bool, why: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

#[test]
fn names_begin_with_what_they_are_of() {
    all(|f| {
        let prefixes: &[&str] = match f.level {
            Level::Exporter => &["jobledger_exporter_", "process_"],
            Level::Node => &["jobledger_node_", "jobledger_gpu_", "jobledger_owner_"],
            Level::Job => &["jobledger_job_"],
            Level::Step => &["jobledger_step_"],
            Level::Task => &["jobledger_task_"],
        };
        ensure(prefixes.iter().any(|prefix| f.name.starts_with(prefix)), "the prefix is another level's")
    });
}

#[test]
fn names_are_plain_and_free_of_words_that_have_no_place_in_them() {
    // Units that are not base units, and what the labels or the target say already.
    const FORBIDDEN: [&str; 31] = [
        "percent",
        "percentage",
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "ms",
        "us",
        "ns",
        "usec",
        "nsec",
        "minutes",
        "hours",
        "days",
        "kilobytes",
        "megabytes",
        "gigabytes",
        "kb",
        "mb",
        "gb",
        "kib",
        "mib",
        "gib",
        "kbytes",
        "bits",
        "mhz",
        "ghz",
        "khz",
        "hostname",
        "host",
        "instance",
        "amount",
    ];
    all(|f| {
        let plain = f.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        ensure(plain, "lower case letters, digits and _ only")?;
        ensure(words(f.name).all(|word| !word.is_empty()), "an empty word")?;
        ensure(f.name.starts_with(|c: char| c.is_ascii_lowercase()), "it begins with a letter")?;
        // What is spent is a counter of joules; watts are what a meter shows, or a setting.
        ensure(!f.name.ends_with("_watts") || f.kind == Kind::Gauge, "power that is no gauge")?;
        match words(f.name).find(|word| FORBIDDEN.contains(word)) {
            Some(word) => Err(format!("the word {word}")),
            None => Ok(()),
        }
    });
}

#[test]
fn endings_say_the_kind() {
    const RESERVED: [&str; 6] = ["_total", "_info", "_count", "_sum", "_bucket", "_created"];
    all(|f| {
        let ending = RESERVED.iter().find(|ending| f.name.ends_with(**ending));
        let wanted = match f.kind {
            Kind::Counter => Some(&"_total"),
            Kind::Info => Some(&"_info"),
            Kind::Gauge => None,
        };
        ensure(ending == wanted, "a counter ends in _total, an info in _info, a gauge in neither")?;
        ensure(!RESERVED.iter().any(|ending| f.base_name().ends_with(ending)), "two endings")
    });
}

#[test]
fn units_are_the_last_word_and_every_unit_in_a_name_is_declared() {
    const UNITS: [&str; 10] =
        ["seconds", "bytes", "ratio", "hertz", "joules", "celsius", "volts", "amperes", "meters", "grams"];
    all(|f| {
        let last = words(f.base_name()).last().unwrap_or_default();
        match f.unit {
            Some(unit) => ensure(last == unit.as_str(), "it does not end in its unit")?,
            None => ensure(!UNITS.contains(&last), "it ends in a unit that is not declared")?,
        }
        ensure(!words(f.stem()).any(|word| UNITS.contains(&word)), "a unit in the middle")?;
        ensure(f.kind != Kind::Info || f.unit.is_none(), "an info with a unit")
    });
}

#[test]
fn labels_are_valid_declared_once_and_repeat_nothing() {
    // The names of the node are on one series, which others join.
    const OF_THE_NODE: (&str, [&str; 2]) = ("jobledger_node_info", ["hostname", "slurm_node"]);
    // The target's, Prometheus' own, and those of the level.
    const FORBIDDEN: [&str; 14] = [
        "job",
        "instance",
        "hostname",
        "host",
        "node",
        "nodename",
        "cluster",
        "exported_job",
        "le",
        "quantile",
        "slurm_node",
        "name_",
        "value",
        "type_",
    ];
    all(|f| {
        let mut seen: BTreeSet<&str> = labels_of(f.level).iter().copied().collect();
        for label in f.labels {
            let plain = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            ensure(plain && label.starts_with(|c: char| c.is_ascii_lowercase()), label)?;
            let names_the_node = f.name == OF_THE_NODE.0 && OF_THE_NODE.1.contains(label);
            ensure(names_the_node || !FORBIDDEN.contains(label), label)?;
            ensure(seen.insert(label), &format!("{label} twice"))?;
        }
        Ok(())
    });
}

#[test]
fn help_is_one_line_of_words_without_a_full_stop() {
    all(|f| {
        let help = f.help_text();
        ensure(!help.is_empty() && help.trim() == help, "empty or with blanks around it")?;
        ensure(!help.contains(['\n', '\r', '\t', '\\', '"']), "a character that needs an escape")?;
        ensure(!help.contains("  "), "two blanks")?;
        ensure(!help.ends_with(['.', '!', ',', ';', ':']), "it ends like a sentence")?;
        ensure(help.starts_with(|c: char| !c.is_lowercase()), "it begins with a small letter")?;
        ensure(help.len() <= 240, "longer than a line of a table should be")
    });
}

#[test]
fn every_family_is_there_once() {
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (collector, family) in families() {
        // `x_total` and a gauge `x` would be one family in OpenMetrics.
        by_name.entry(family.base_name()).or_default().push(collector);
    }
    by_name.retain(|_, collectors| collectors.len() > 1);
    assert!(by_name.is_empty(), "{by_name:?}");
}

#[test]
fn steps_and_tasks_have_the_same_families_alike() {
    let of = |level, prefix: &str| -> BTreeMap<String, String> {
        let rows = families().into_iter().filter(|(_, f)| f.level == level).map(|(_, f)| {
            let shape = (f.kind, f.unit.map(|u| u.as_str()), f.labels, f.outlives_job, f.profile);
            (f.name.strip_prefix(prefix).unwrap().to_owned(), format!("{shape:?}"))
        });
        rows.collect()
    };
    let (jobs, steps, tasks) = (
        of(Level::Job, "jobledger_job_"),
        of(Level::Step, "jobledger_step_"),
        of(Level::Task, "jobledger_task_"),
    );
    assert!(!tasks.is_empty());
    for (name, shape) in &tasks {
        assert_eq!(steps.get(name), Some(shape), "{name}");
    }
    // The kernel's table of packets knows jobs and steps.
    let steps_alone = steps.keys().filter(|name| !tasks.contains_key(*name));
    assert!(
        steps_alone.clone().all(|name| name.starts_with("network_")),
        "{:?}",
        steps_alone.collect::<Vec<_>>()
    );
    for (name, shape) in &steps {
        assert_eq!(jobs.get(name), Some(shape), "{name}");
    }
}

#[test]
fn collectors_have_names_summaries_and_families() {
    let mut names = BTreeSet::new();
    for entry in REGISTRY {
        assert!(
            entry.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
            "{}",
            entry.name
        );
        assert!(names.insert(entry.name), "{} twice", entry.name);
        assert!(!entry.summary.is_empty() && !entry.summary.ends_with('.'), "{}", entry.name);
        assert!(!(entry.families)().is_empty(), "{}", entry.name);
    }
}

/// The names are a public contract: a change here is a line in CHANGELOG.md.
#[test]
fn the_list_of_names_is_the_committed_one() {
    let mut rows: Vec<String> = Vec::new();
    for (_, f) in families() {
        let kind = match f.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let mut labels: Vec<&str> = labels_of(f.level).iter().chain(f.labels).copied().collect();
        labels.sort_unstable();
        rows.push(format!("{} {kind} {{{}}}", f.name, labels.join(",")));
    }
    rows.sort();
    let mut text = String::new();
    for row in rows {
        let _ = writeln!(text, "{row}");
    }
    golden::assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/metric_names.txt"), &text);
}

/// The sources that are not tests, without comments.
fn sources(dir: &Path, out: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "testing", "benches", "fuzz", "target"].contains(&stem) {
            continue;
        }
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let is_code = |line: &&str| !line.trim_start().starts_with("//");
            out.push((path, code.lines().filter(is_code).collect::<Vec<_>>().join("\n")));
        }
    }
}

/// A search for a metric's whole name ends at its row.
#[test]
fn every_name_is_written_out_in_one_source_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    sources(&root.join("exporter/src"), &mut files);
    sources(&root.join("crates"), &mut files);
    // What reads metrics has a test of its own that they are in docs/metrics.md.
    files.retain(|(path, _)| !path.components().any(|part| part.as_os_str() == "job-report"));
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for literal in files.iter().flat_map(|(_, code)| code.split('"')) {
        *rows.entry(literal).or_default() += 1;
    }
    let names: BTreeSet<&str> = families().into_iter().map(|(_, family)| family.name).collect();
    for name in &names {
        assert_eq!(rows.get(name), Some(&1), "{name} is written out once");
    }
    for (path, code) in &files {
        for row in code.split("Family::").skip(1) {
            let Some((_, name)) =
                row.split_once("(\"").filter(|(kind, _)| kind.chars().all(char::is_alphabetic))
            else {
                continue;
            };
            let name = name.split('"').next().unwrap();
            assert!(names.contains(name), "{}: {name} is in no collector's list", path.display());
        }
    }
}

/// A total, the parts of it that jobs have, and the rest.
#[test]
fn what_is_unattributed_has_its_total() {
    let all: BTreeMap<&str, &Family> = families().into_iter().map(|(_, f)| (f.name, f)).collect();
    for part in all.values().filter(|f| f.name.contains("_unattributed_")) {
        let total = part.name.replace("_unattributed", "");
        let total = all.get(&*total).unwrap_or_else(|| panic!("{}: no {total}", part.name));
        assert!(part.labels.iter().all(|label| total.labels.contains(label)), "{}", part.name);
    }
}
