//! `--metric.profile`: what each profile has, that sums are whole in each, and that nothing shipped lacks a family.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use exposition::{Family, Level, Profile};
use jobledger_exporter::collector::REGISTRY;
use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, Sample, parse};
use jobledger_testkit::machine::Machine;

use crate::catalogue::families;
use crate::machines::of_the_run;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const RECORDED: [&str; 5] = [
    "slurm22.05-v1-jobs",
    "slurm22.05-v2-jobs",
    "slurm24.11-v2-jobs",
    "slurm26.05-v2-jobs",
    "slurm26.05-v2-extra-controllers",
];

/// Whether the family is one that the profile is about: a collector that is off by default has all of its own once it is on.
fn is_of_default(collector: &str) -> bool {
    REGISTRY.iter().all(|entry| entry.name != collector || entry.default_on)
}

fn by_default() -> BTreeMap<&'static str, &'static Family> {
    let all = families().into_iter().filter(|(collector, _)| is_of_default(collector));
    all.map(|(_, family)| (family.name, family)).collect()
}

/// The total of the node and the part of jobs that an unattributed part belongs to, by their names. CO2 is of owners alone.
fn sum_of(unattributed: &str) -> [String; 2] {
    let total = unattributed.replacen("_unattributed", "", 1);
    let of = total.trim_start_matches("jobledger_").trim_start_matches("node_").trim_start_matches("slurm_");
    let whose = if of.starts_with("co2_") { "owner" } else { "job" };
    let job = format!("jobledger_{whose}_{of}");
    [total, job]
}

fn sums() -> Vec<[&'static Family; 3]> {
    let all: BTreeMap<&str, &'static Family> = families().into_iter().map(|(_, f)| (f.name, f)).collect();
    let named = |name: &str| *all.get(name).unwrap_or_else(|| panic!("there is no {name}"));
    let rests = all.values().filter(|family| family.name.contains("_unattributed_"));
    rests
        .map(|rest| {
            let [total, job] = sum_of(rest.name);
            [named(&total), named(&job), *rest]
        })
        .collect()
}

#[test]
fn a_sum_is_in_a_profile_as_a_whole_or_not_at_all() {
    let sums = sums();
    assert!(sums.len() > 30, "{}", sums.len());
    for [total, job, rest] in sums {
        assert!(
            total.profile == job.profile && job.profile == rest.profile,
            "{}: parts of one sum are in different profiles",
            total.name
        );
    }
    // What a job had of a GPU is what it used, and what it did not use.
    let all = by_default();
    for part in ["allocated", "idle", "busy"] {
        let name = format!("jobledger_job_gpu_{part}_seconds_total");
        assert_eq!(all[&*name].profile, Profile::Lean, "{name}");
    }
}

/// The directory of a job is gone at once, as the kernel removes it.
fn remove(machine: &Machine, id: u32) {
    let gone = format!("gone/job_{id}");
    machine.rename(format!("cgroup/system.slice/node1_slurmstepd.scope/job_{id}"), &gone);
    machine.remove(format!("{gone}/cgroup.procs"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names in the files of these directories and with these endings.
fn names_in(directories: &[&str], endings: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for directory in directories {
        for entry in std::fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            // Made from the catalogue itself.
            let is_list = path.ends_with("docs/metrics.md");
            if is_list || !endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
            names.extend(words.filter(|word| word.contains('_')).map(str::to_owned));
        }
    }
    names
}

/// What rules, alerts and dashboards read: those for other exporters' dashboards, too.
fn read_by_what_is_shipped() -> BTreeSet<String> {
    names_in(
        &["rules", "rules/recording", "rules/optional", "rules/alerts", "rules/compat", "grafana/dashboards"],
        &[".yaml", ".json"],
    )
}

#[test]
fn rules_alerts_and_dashboards_find_all_that_they_read_in_the_standard_profile() {
    let read = read_by_what_is_shipped();
    assert!(
        read.contains("jobledger_job_cpu_seconds_total") && read.contains("jobledger_job_page_faults_total")
    );
    let missing: Vec<&str> = by_default()
        .values()
        .filter(|family| read.contains(family.name) && family.profile > Profile::Standard)
        .map(|family| family.name)
        .collect();
    assert!(missing.is_empty(), "read, and in no profile but full: {missing:?}");
}

#[test]
fn alerts_of_the_exporter_and_what_keeps_alerts_of_jobs_from_erring_are_in_the_lean_profile() {
    // The alerts of hardware are silent (docs/install.md).
    let of_hardware =
        |name: &&str| ["jobledger_gpu_", "jobledger_node_infiniband_"].iter().any(|of| name.starts_with(of));
    let read = names_in(&["rules/alerts"], &["exporter.yaml", "shared.yaml"]);
    assert!(read.contains("jobledger_job_end_time_seconds"));
    let missing: Vec<&str> = by_default()
        .values()
        .filter(|family| read.contains(family.name) && family.profile > Profile::Lean)
        .map(|family| family.name)
        .filter(|name| !of_hardware(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// So a new family is in `full` alone until something reads it.
#[test]
fn the_standard_profile_has_only_what_something_reads() {
    // Those of a process are there with a flag of their own alone (--collector.gpu.processes).
    const ON_REQUEST: [&str; 2] =
        ["jobledger_job_gpu_process_busy_seconds_total", "jobledger_job_gpu_process_memory_bytes"];
    let mut read = read_by_what_is_shipped();
    read.extend(names_in(&["docs", "rules", "rules/runbooks", "grafana"], &[".md"]));
    let whole: BTreeSet<&str> = sums()
        .iter()
        .filter(|sum| sum.iter().any(|family| read.contains(family.name)))
        .flat_map(|sum| sum.iter().map(|family| family.name))
        .collect();
    let unread: Vec<&str> = by_default()
        .values()
        .filter(|f| f.profile == Profile::Standard && matches!(f.level, Level::Node | Level::Job))
        .map(|family| family.name)
        .filter(|name| !read.contains(*name) && !whole.contains(name) && !ON_REQUEST.contains(name))
        .collect();
    assert!(
        unread.is_empty(),
        "no rule, alert, dashboard or document reads {unread:?}: .profile(Profile::Full)"
    );
}

fn once(machine: &Machine, profile: Profile, more: &[&str]) -> Exposition {
    let output = Command::new(BINARY)
        .args(machine.path_flags())
        .arg(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()))
        .arg(format!("--metric.profile={}", profile.as_str()))
        .args(["--once", "--jobs.stale-after=0s", "--log.level=error"])
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout, Format::Text).unwrap()
}

/// How many series each job has; all of a machine have as many.
fn series_of_a_job(exposition: &Exposition) -> usize {
    let mut of: BTreeMap<&str, usize> = BTreeMap::new();
    for sample in exposition.samples().filter(|sample| sample.name.starts_with("jobledger_job_")) {
        *of.entry(sample.label("jobid").unwrap()).or_default() += 1;
    }
    let counts: BTreeSet<usize> = of.into_values().collect();
    assert_eq!(counts.len(), 1, "{counts:?}");
    counts.into_iter().next().unwrap()
}

#[test]
fn a_job_has_as_many_series_in_each_profile_as_the_document_says() {
    let document = std::fs::read_to_string(root().join("docs/performance.md")).unwrap();
    let mut missing = Vec::new();
    for name in RECORDED.into_iter().chain(["v1-el8-joint"]) {
        let machine = Machine::fixture(name);
        let [lean, standard, full] =
            Profile::ALL.map(|profile| series_of_a_job(&once(&machine, profile, &[])));
        let row = format!("| `{name}` | {lean} | {standard} | {full} |");
        if !document.lines().any(|line| line.starts_with(&row)) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/performance.md lacks:\n{}", missing.join("\n"));
}

/// A family with its sample's labels, and the value where it is not of the run.
type Series = (String, Vec<(String, String)>);

fn series(exposition: &Exposition) -> BTreeMap<Series, Option<String>> {
    let value = |sample: &Sample| {
        let of_the_run = of_the_run(&sample.name) || sample.name.contains("gpu_");
        (!of_the_run).then(|| sample.text.clone())
    };
    // Energy is there from the second reading on, whose order with the collection a busy machine may change.
    let compared = exposition.samples().filter(|sample| !sample.name.contains("joules"));
    compared.map(|sample| ((sample.name.clone(), sample.labels.clone()), value(sample))).collect()
}

/// An exact value, in thousand millionths.
fn nano(sample: &Sample) -> u128 {
    let (whole, fraction) = sample.text.split_once('.').unwrap_or((&sample.text, ""));
    format!("{whole}{fraction:0<9}").parse().unwrap_or_else(|_| panic!("{sample:?}"))
}

/// Adds up the family's samples by these labels.
fn totals(exposition: &Exposition, family: &Family, by: &[&str]) -> BTreeMap<Vec<String>, u128> {
    let mut totals = BTreeMap::new();
    for sample in exposition.named(family.name) {
        let key = by.iter().map(|label| sample.label(label).unwrap().to_owned()).collect::<Vec<_>>();
        *totals.entry(key).or_insert(0) += nano(sample);
    }
    totals
}

/// Checks every sum of a page, and says how many there are with something in them.
fn balance(exposition: &Exposition) -> usize {
    let mut found = 0;
    // Energy overlaps, and another series says which part is attributed: its sums are in the test below.
    for [total, job, rest] in sums().into_iter().filter(|[total, ..]| !total.name.contains("_energy_")) {
        let (jobs, rests) = (totals(exposition, job, rest.labels), totals(exposition, rest, rest.labels));
        let wholes = totals(exposition, total, rest.labels);
        assert_eq!(
            wholes.keys().collect::<Vec<_>>(),
            rests.keys().collect::<Vec<_>>(),
            "{}: the total and the rest of each",
            total.name
        );
        assert!(jobs.keys().all(|key| rests.contains_key(key)), "{}", job.name);
        for (key, whole) in wholes {
            let parts = jobs.get(&key).unwrap_or(&0) + rests[&key];
            // The kernel rounds a cgroup's CPU time and the modes of it down to microseconds, each for itself.
            let modes = exposition.named(job.name).filter(|sample| sample.label("mode") == Some("user"));
            let rounded = 1000 * u128::try_from(modes.count()).unwrap();
            assert!(parts <= whole && whole - parts <= rounded, "{} {key:?}: {parts} of {whole}", total.name);
            found += usize::from(whole > 0);
        }
    }
    found
}

#[test]
fn a_profile_has_its_families_of_the_full_page_with_the_same_values_and_all_sums_are_exact() {
    // A user's name may be found after the first collection has charged the number.
    const PAGE: &[&str] = &["--jobs.steps", "--jobs.tasks", "--owner.labels=account"];
    let catalogue: BTreeMap<&str, &Family> = families().into_iter().map(|(_, f)| (f.name, f)).collect();
    let others = [
        "v1-el8-joint",
        "gpu-mi300",
        "v2-steps",
        "energy-intel-2s",
        "v2-infiniband",
        "v2-nfs",
        "v1-lustre2.12",
    ];
    for name in RECORDED.into_iter().chain(others) {
        let machine = Machine::fixture(name);
        let page = |profile| once(&machine, profile, PAGE);
        let full = series(&page(Profile::Full));
        let mut sizes = Vec::new();
        for profile in Profile::ALL {
            let exposition = page(profile);
            let found = series(&exposition);
            // A collector that does not run has no health.
            let runs: BTreeSet<&str> = exposition
                .named("jobledger_exporter_collector_success")
                .filter_map(|sample| sample.label("collector"))
                .collect();
            let is_of_it = |(name, labels): &Series| {
                let collector = labels.iter().find(|(label, _)| label == "collector");
                catalogue[&**name].profile <= profile
                    && collector.is_none_or(|(_, collector)| runs.contains(&**collector))
            };
            let wanted: BTreeMap<_, _> = full
                .iter()
                .filter(|(series, _)| is_of_it(series))
                .map(|(s, v)| (s.clone(), v.clone()))
                .collect();
            let differ: Vec<_> = wanted
                .iter()
                .filter(|(series, value)| found.get(series) != Some(value))
                .map(|(series, _)| series)
                .chain(found.keys().filter(|series| !wanted.contains_key(series)))
                .collect();
            assert!(differ.is_empty(), "{name}, {}: {differ:?}", profile.as_str());
            let balanced = balance(&exposition);
            assert!(balanced > 0 || name.contains("v1") || name.contains("energy"), "{name}: {balanced}");
            sizes.push(found.len());
        }
        assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{name}: {sizes:?}");
    }
}

#[test]
fn a_collector_that_is_asked_for_by_name_has_all_of_its_families_in_each_profile() {
    let machine = Machine::fixture("slurm26.05-v2-jobs");
    let count = |flags: &[&str], name: &str| once(&machine, Profile::Lean, flags).named(name).count();
    for name in ["jobledger_job_pressure_seconds_total", "jobledger_job_memory_slab_bytes"] {
        assert_eq!(count(&[], name), 0, "{name}");
    }
    assert_eq!(count(&["--collector.pressure"], "jobledger_job_pressure_seconds_total"), 18);
    assert_eq!(count(&["--collector.memory"], "jobledger_job_memory_slab_bytes"), 3);
}

/// A file that cannot be parsed is an error of its collector, if it is read.
#[test]
fn files_of_which_nothing_is_exported_are_not_read() {
    let (yes, no) = (Some(1.0), Some(0.0));
    let success = |exposition: &Exposition, collector: &str| {
        exposition.value("jobledger_exporter_collector_success", &[("collector", collector)])
    };
    let check = |name: &str, files: &[String], collector: &str, wanted: [Option<f64>; 3]| {
        let machine = Machine::fixture(name);
        for file in files {
            machine.write(file, "nonsense\n");
        }
        let found = Profile::ALL.map(|profile| success(&once(&machine, profile, &[]), collector));
        assert_eq!(found, wanted, "{files:?}");
    };
    let job = "cgroup/system.slice/node1_slurmstepd.scope/job_3";
    let of_job = |file: &str| format!("{job}/{file}");
    check("slurm22.05-v2-jobs", &[of_job("cpuset.mems.effective")], "cpuset", [yes, yes, no]);
    let memory = ["memory.stat", "memory.swap.current", "memory.swap.max"].map(of_job);
    check("slurm22.05-v2-jobs", &memory, "memory", [yes, no, no]);
    check("slurm22.05-v2-jobs", &[of_job("memory.peak")], "memory", [no, no, no]);
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    check(
        "v2-infiniband",
        &[format!("{port}/hw_counters/out_of_buffer"), format!("{port}/counters/multicast_rcv_packets")],
        "infiniband",
        [None, yes, no],
    );
}

#[test]
fn the_limit_of_series_counts_what_the_profile_has() {
    let machine = Machine::fixture("slurm26.05-v2-jobs");
    let dropped = |profile, most: usize| {
        let flag = format!("--metric.max-series={most}");
        once(&machine, profile, &[&flag]).named("jobledger_exporter_series_dropped_total").count()
    };
    let lean = once(&machine, Profile::Lean, &[]).samples().count();
    assert_eq!(dropped(Profile::Lean, lean), 0);
    assert!(dropped(Profile::Standard, lean) > 0);
}

#[test]
fn energy_is_split_without_rest_in_each_profile() {
    const ZONES: [&str; 4] = ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:1:0"];
    let catalogue: BTreeMap<&str, &Family> = families().into_iter().map(|(_, f)| (f.name, f)).collect();
    for profile in Profile::ALL {
        let machine = Machine::fixture("energy-intel-2s");
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        flags.push(format!("--metric.profile={}", profile.as_str()));
        flags.extend(
            ["--jobs.stale-after=1h", "--log.level=error", "--scrape.min-interval=0s"].map(str::to_owned),
        );
        let exporter = Exporter::start(BINARY, &flags);
        let mut page = None;
        eventually("each zone has energy of a job", || {
            for zone in ZONES {
                let file = format!("sys/class/powercap/{zone}/energy_uj");
                let spent: u64 = machine.read(&file).trim().parse().unwrap();
                machine.write(&file, format!("{}\n", spent + 1_234_567));
            }
            let now = parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
            let of = |name: &str| totals(&now, catalogue[name], &["domain", "socket"]);
            let jobs = of("jobledger_job_energy_joules_total");
            let there = jobs.len() == ZONES.len() && jobs.values().all(|nano| *nano > 0);
            page = there.then(|| {
                (
                    jobs,
                    of("jobledger_node_energy_unattributed_joules_total"),
                    of("jobledger_node_energy_joules_total"),
                )
            });
            there
        });
        let (jobs, rests, wholes) = page.unwrap();
        assert_eq!(wholes.len(), ZONES.len());
        for (zone, whole) in wholes {
            assert_eq!(jobs[&zone] + rests[&zone], whole, "{zone:?} in {}", profile.as_str());
        }
    }
}

/// A job that ends is retained with its counters, its owner has them, and the sums are right.
#[test]
fn an_ended_job_and_its_owner_are_right_in_each_profile() {
    const CPU: &str = "jobledger_job_cpu_seconds_total";
    for profile in Profile::ALL {
        let machine = Machine::fixture("slurm22.05-v2-jobs");
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        flags.push(format!("--metric.profile={}", profile.as_str()));
        flags.extend(["--jobs.stale-after=1h", "--log.level=error"].map(str::to_owned));
        let exporter = Exporter::start(BINARY, &flags);
        let scrape = || parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
        let used = |now: &Exposition| -> u128 {
            now.named(CPU).filter(|sample| sample.label("jobid") == Some("3")).map(nano).sum()
        };
        eventually("the job is read", || used(&scrape()) > 0);
        let before = used(&scrape());
        remove(&machine, 3);
        eventually("the job's end is exported", || {
            scrape().named("jobledger_job_end_time_seconds").count() == 1
        });
        let now = scrape();
        // The time that only the sum over the node shows may be charged at the end.
        assert!(used(&now) >= before, "{}", profile.as_str());
        assert_eq!(now.value("jobledger_job_memory_used_bytes", &[("jobid", "3")]), None, "a gauge ended");
        assert!(now.value("jobledger_job_memory_peak_bytes", &[("jobid", "3")]).is_some());
        assert!(balance(&now) > 0);
        let sum = |name: &str| -> u128 { now.named(name).map(nano).sum() };
        for (owners, jobs) in [
            ("jobledger_owner_cpu_seconds_total", CPU),
            ("jobledger_owner_allocated_cpu_seconds_total", "jobledger_job_allocated_cpu_seconds_total"),
            (
                "jobledger_owner_memory_allocated_byte_seconds_total",
                "jobledger_job_memory_allocated_byte_seconds_total",
            ),
        ] {
            assert!(sum(jobs) > 0 && sum(owners) == sum(jobs), "{owners} in {}", profile.as_str());
        }
        assert_eq!(sum("jobledger_owner_jobs_ended_total"), 1_000_000_000);
    }
}

/// An ended job has its numbers from the accounts alone.
#[test]
fn accounts_survive_a_restart_with_another_profile() {
    let machine = Machine::fixture("slurm22.05-v2-jobs");
    let start = |profile: Profile| {
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        flags.push(format!("--state.file={}", machine.path("run/state").display()));
        flags.push(format!("--metric.profile={}", profile.as_str()));
        flags.extend(
            ["--jobs.stale-after=1h", "--log.level=error", "--owner.labels=account"].map(str::to_owned),
        );
        Exporter::start(BINARY, &flags)
    };
    let scrape = |exporter: &Exporter| parse(exporter.metrics().as_bytes(), Format::Text).unwrap();
    let numbers = |now: &Exposition| {
        let of_the_ended = |name: &str| -> u128 {
            now.named(name).filter(|sample| sample.label("jobid") == Some("3")).map(nano).sum()
        };
        let of_all = |name: &str| -> u128 { now.named(name).map(nano).sum() };
        [
            of_the_ended("jobledger_job_cpu_seconds_total"),
            of_the_ended("jobledger_job_allocated_cpu_seconds_total"),
            of_the_ended("jobledger_job_memory_peak_bytes"),
            of_the_ended("jobledger_job_end_time_seconds"),
            of_all("jobledger_owner_cpu_seconds_total"),
            of_all("jobledger_owner_jobs_ended_total"),
            of_all("jobledger_node_slurm_cpu_seconds_total"),
        ]
    };
    let first = start(Profile::Full);
    eventually("all of the job is read", || numbers(&scrape(&first))[..3].iter().all(|number| *number > 0));
    remove(&machine, 3);
    eventually("the job's end is exported", || {
        scrape(&first).named("jobledger_job_end_time_seconds").count() == 1
    });
    let before = numbers(&scrape(&first));
    assert!(before.iter().all(|number| *number > 0), "{before:?}");
    assert_eq!(first.terminate(), Some(0));
    for profile in [Profile::Lean, Profile::Standard, Profile::Lean, Profile::Full] {
        let next = start(profile);
        let now = scrape(&next);
        assert_eq!(numbers(&now), before, "{}", profile.as_str());
        assert!(balance(&now) > 0);
        assert_eq!(next.terminate(), Some(0));
    }
}
