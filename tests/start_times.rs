//! Since when counters count, and what a real Prometheus makes of that for a job that lived between two
//! scrapes: 2.42 sees it only in the last value, 3 with created-timestamp-zero-ingestion sees it grow from 0.
//!
//! The node is ordinary files. Prometheus 2.42 is Debian 12's; `make prometheus-3` has the other tests run.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, Kind, Sample, parse};
use jobledger_testkit::http;
use jobledger_testkit::machine::Machine;
use jobledger_testkit::servers::Prometheus;
use jobledger_testkit::short_jobs::{FIRST_ID, SECONDS, ShortJobs};
use jobledger_testkit::wait::QUIET;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
/// Jobs that may see a scrape, on a machine that is slow.
const ATTEMPTS: u32 = 20;

/// Prometheus' option that stores 0 at the start of a counter.
const ZERO_INGESTION: &str = "--enable-feature=created-timestamp-zero-ingestion";

/// A node whose jobs remain exported for a while.
fn node(flags: &[&str]) -> ShortJobs {
    let all: Vec<&str> = std::iter::once("--jobs.retention=10m").chain(flags.iter().copied()).collect();
    ShortJobs::start(BINARY, &all)
}

/// A job between two scrapes of all of these. Its id.
fn job_between_scrapes(node: &mut ShortJobs, servers: &[&Prometheus]) -> u32 {
    let scraped = |server: &Prometheus| server.query("timestamp(up)")[0].value;
    let all = || -> Vec<f64> { servers.iter().map(|server| scraped(server)).collect() };
    for _ in 0..ATTEMPTS {
        let first = scraped(servers[0]);
        eventually("a scrape", || scraped(servers[0]) > first);
        let before = all();
        let id = node.run("", Duration::ZERO);
        if all() == before {
            return id;
        }
    }
    panic!("{ATTEMPTS} jobs saw a scrape: this machine is too busy");
}

/// The counter of a job, in all modes, once it was scraped twice.
fn counter(server: &Prometheus, id: u32) -> String {
    let counter = format!("jobledger_job_cpu_seconds_total{{jobid=\"{id}\"}}");
    server.wait_for(&format!("min(count_over_time({counter}[10m])) >= 2"), |r| !r.is_empty());
    counter
}

fn one(server: &Prometheus, query: &str) -> f64 {
    let found = server.query(query);
    assert_eq!(found.len(), 1, "{query}");
    found[0].value
}

/// The query of docs/queries.md for what users used.
fn documented() -> &'static str {
    let page = include_str!("../docs/queries.md");
    let query = page.find("sum by (user) (sum by (instance, jobid) (increase(").and_then(|at| page.get(at..));
    query.and_then(|query| query.split("\n\n").next()).expect("the query in docs/queries.md")
}

/// `increase()` up to the last sample, so that nothing is extrapolated behind it.
fn increase(server: &Prometheus, counter: &str) -> f64 {
    let last = one(server, &format!("max(timestamp({counter}))"));
    one(server, &format!("sum(increase({counter}[10m] @ {last:.3}))"))
}

fn is_near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() < 1e-6 * wanted
}

/// Families of which `_created` lines became series.
fn created_series(server: &Prometheus) -> usize {
    server.query("count by (__name__) ({__name__=~\".+_created\"})").len()
}

/// Families of counters whose start nobody knows: the hardware's and the drivers' own, and those of devices and mounts
/// that may be younger than the boot. And the total that begins with what running jobs had spent.
const UNKNOWN: &[&str] = &[
    "jobledger_gpu_ecc_errors",
    "jobledger_gpu_pcie_replays",
    "jobledger_gpu_throttle_seconds",
    "jobledger_gpu_xid_errors",
    "jobledger_node_disk_discarded_bytes",
    "jobledger_node_infiniband_",
    "jobledger_node_network_",
    "jobledger_node_nfs_",
    "jobledger_node_slingshot_",
    "jobledger_node_slurm_cpu_seconds",
];

/// Machines that have every kind of source.
const MACHINES: [&str; 11] = [
    "energy-intel-2s",
    "gpu-intel-xe",
    "gpu-mi300",
    "slurm22.05-v1-jobs",
    "slurm24.11-v2-jobs",
    "v1-lustre2.12",
    "v2-infiniband",
    "v2-io-pids",
    "v2-lustre2.15",
    "v2-nfs",
    "v2-slingshot",
];

fn with_starts(exporter: &Exporter) -> Exposition {
    let headers = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let answer = http::get(exporter.address(), "/metrics", &headers, QUIET).unwrap();
    parse(&answer.body, Format::OpenMetrics).unwrap_or_else(|e| panic!("{e}"))
}

/// Families with their starts: (name without suffix, labels, start).
fn starts(exposition: &Exposition) -> Vec<(String, &Sample, Option<f64>)> {
    let counters = exposition.families.iter().filter(|family| family.kind == Kind::Counter);
    counters
        .flat_map(|family| {
            let named = |suffix: &str| format!("{}{suffix}", family.name);
            let (total, created) = (named("_total"), named("_created"));
            family.samples.iter().filter(move |s| s.name == total).map(move |sample| {
                let start = family.samples.iter().find(|s| s.name == created && s.labels == sample.labels);
                (family.name.clone(), sample, start.map(|s| s.value))
            })
        })
        .collect()
}

#[test]
fn every_counter_has_a_start_but_those_that_nobody_knows() {
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    for name in MACHINES {
        let machine = Machine::fixture(name);
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        flags.extend(
            ["--metric.created", "--owner.co2-grams-per-kwh=380", "--log.level=error"].map(str::to_owned),
        );
        let exporter = Exporter::start(BINARY, &flags);
        let exposition = with_starts(&exporter);
        let own = exposition.value("process_start_time_seconds", &[]).unwrap();
        let boot = exposition.value("jobledger_node_boot_time_seconds", &[]);
        for (family, sample, start) in starts(&exposition) {
            let Some(start) = start else {
                without.insert(family);
                continue;
            };
            with.insert(family.clone());
            let jobid = sample.label("jobid");
            let job =
                jobid.and_then(|id| exposition.value("jobledger_job_start_time_seconds", &[("jobid", id)]));
            let account = (own - 0.1..own + 600.0).contains(&start);
            let known = job == Some(start) || account || boot == Some(start);
            assert!(
                known,
                "{name}: {family} {:?} since {start}; job {job:?}, exporter {own}, boot {boot:?}",
                sample.labels
            );
        }
    }
    for name in ["job_cpu", "job_alone", "node_cpu", "node_disk_busy", "gpu_observed", "node_lustre_rpc_wait"]
    {
        let family = format!("jobledger_{name}_seconds");
        assert!(with.contains(&family) && !without.contains(&family), "{family} in {with:?}");
    }
    let unexpected: Vec<_> =
        without.iter().filter(|family| !UNKNOWN.iter().any(|known| family.starts_with(known))).collect();
    assert!(unexpected.is_empty(), "without a start: {unexpected:?}");
}

#[test]
fn prometheus_2_has_the_last_value_of_a_short_job_and_no_increase() {
    let mut node = node(&[]);
    let server = node.scraped_by(Path::new("prometheus"), &[], "");
    let id = job_between_scrapes(&mut node, &[&server]);
    let counter = counter(&server, id);
    assert_eq!(increase(&server, &counter), 0.0, "this is what it loses");
    let last = one(&server, &format!("sum(max_over_time({counter}[10m]))"));
    assert!(is_near(last, SECONDS), "{last}");
    assert_eq!(created_series(&server), 0, "nobody pays for starts that he did not ask for");
}

#[test]
fn prometheus_2_takes_starts_on_request_and_stores_each_as_a_series() {
    let mut node = node(&["--metric.created"]);
    let server = node.scraped_by(Path::new("prometheus"), &[], "");
    let id = job_between_scrapes(&mut node, &[&server]);
    let counter = counter(&server, id);
    assert_eq!(increase(&server, &counter), 0.0, "they do not help it");
    assert!(created_series(&server) > 10);
    let began = one(&server, &format!("max(jobledger_job_cpu_seconds_created{{jobid=\"{id}\"}})"));
    let start = one(&server, &format!("jobledger_job_start_time_seconds{{jobid=\"{id}\"}}"));
    assert_eq!(began, start);
}

/// How many series there are of each name, but for what Prometheus adds.
fn series(server: &Prometheus) -> Vec<(String, u64)> {
    let found = server.query("count by (__name__) ({__name__=~\"jobledger_.+|process_.+\"})");
    let mut series: Vec<_> =
        found.into_iter().map(|element| (element.labels["__name__"].clone(), element.value as u64)).collect();
    series.sort();
    series
}

#[test]
fn prometheus_2_reads_the_same_by_protobuf_as_by_openmetrics() {
    let mut node = node(&[]);
    let program = Path::new("prometheus");
    let text = node.scraped_by(program, &[], "");
    let protobuf = node.scraped_by(program, &["--enable-feature=native-histograms"], "");
    let id = job_between_scrapes(&mut node, &[&text, &protobuf]);
    for server in [&text, &protobuf] {
        let counter = counter(server, id);
        let last = one(server, &format!("sum(max_over_time({counter}[10m]))"));
        assert!(is_near(last, SECONDS), "{last}");
    }
    let names = series(&text);
    assert!(names.len() > 20, "{names:?}");
    eventually("the same series", || series(&text) == series(&protobuf));
    // Only OpenMetrics has a type for infos; so it was protobuf.
    let kind = |server: &Prometheus, name: &str| {
        server.api("/api/v1/metadata")[name][0]["type"].as_str().map(str::to_owned)
    };
    assert_eq!(kind(&protobuf, "jobledger_job_info").as_deref(), Some("gauge"));
    assert_eq!(kind(&text, "jobledger_job_info"), None);
    assert_eq!(kind(&text, "jobledger_job").as_deref(), Some("info"));
}

/// Its program, `make prometheus-3`.
fn prometheus_3() -> PathBuf {
    PathBuf::from(std::env::var_os("JOBLEDGER_PROMETHEUS_3").expect("make prometheus-3"))
}

#[test]
#[ignore = "Prometheus 3 is Debian sid's, which moves: make prometheus-3"]
fn prometheus_3_sees_a_short_job_grow_from_0_by_protobuf() {
    let mut node = node(&[]);
    let program = prometheus_3();
    let protobuf = "scrape_protocols: [PrometheusProto], ";
    let server = node.scraped_by(&program, &[ZERO_INGESTION], "");
    let plain = node.scraped_by(&program, &[], protobuf);
    let id = job_between_scrapes(&mut node, &[&server, &plain]);
    let counter = counter(&server, id);
    let increase_found = increase(&server, &counter);
    assert!(is_near(increase_found, SECONDS), "{increase_found}");
    let start = one(&server, &format!("jobledger_job_start_time_seconds{{jobid=\"{id}\"}}"));
    let at_start = one(&server, &format!("sum({counter} @ {:.3})", start + 0.002));
    assert_eq!(at_start, 0.0, "the counter began when the job did");
    assert_eq!(created_series(&server), 0);
    let all = f64::from(node.last_id() - FIRST_ID) * SECONDS;
    let [of_users] = server.query(documented()).try_into().expect("one user");
    assert_eq!(of_users.labels["user"], "alice");
    let of_users = of_users.value;
    // Beyond the last value it extrapolates by up to a scrape's interval.
    assert!((SECONDS..all * 2.0).contains(&of_users), "{of_users} of {all}");
    // Without the feature protobuf is as text.
    let counter = self::counter(&plain, id);
    assert_eq!(increase(&plain, &counter), 0.0);
    assert_eq!(created_series(&plain), 0);
}

#[test]
#[ignore = "Prometheus 3 is Debian sid's, which moves: make prometheus-3"]
fn prometheus_3_takes_starts_from_openmetrics_only_with_its_feature() {
    let mut node = node(&["--metric.created"]);
    let program = prometheus_3();
    let openmetrics = "scrape_protocols: [OpenMetricsText1.0.0], ";
    let server = node.scraped_by(&program, &[ZERO_INGESTION], openmetrics);
    let plain = node.scraped_by(&program, &[], "");
    let id = job_between_scrapes(&mut node, &[&server, &plain]);
    let counter = counter(&server, id);
    let increase_found = increase(&server, &counter);
    assert!(is_near(increase_found, SECONDS), "{increase_found}");
    assert_eq!(created_series(&server), 0, "the lines are the counters' starts");
    let _ = self::counter(&plain, id);
    assert!(created_series(&plain) > 10, "without the feature they are series");
}
