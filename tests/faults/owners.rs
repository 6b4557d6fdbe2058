//! What owners of jobs used, on the whole program: over restarts and crashes, beyond its limits. Row 40.

use std::collections::BTreeMap;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;

use crate::support::*;

const OWNERS: &str = "jobledger_owner_cpu_seconds_total";
const UNATTRIBUTED: &str = "jobledger_node_slurm_cpu_unattributed_seconds_total";
const TOTAL: &str = "jobledger_node_slurm_cpu_seconds_total";

/// Adds a job of an account, with CPU time that SLURM's cgroup has too.
fn add_job(node: &Node, id: u32, account: &str, seconds: u32) {
    let metadata = format!("job_id={id}\nuser=alice\naccount={account}\n");
    node.0.write(format!("run/jobledger/jobs/{id}"), metadata);
    node.add_job(id, seconds);
}

/// A node with SLURM's own cgroups, in which no time was spent.
fn node() -> Node {
    let node = Node::with_jobs([]);
    node.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(0));
    node.0.write(format!("{SCOPE}/cpu.stat"), cpu_stat(0));
    node
}

/// Microseconds of a decimal of seconds, exactly as it is written.
fn usec(seconds: &str) -> u64 {
    let (whole, fraction) = seconds.split_once('.').unwrap();
    assert!(fraction.len() <= 6, "{seconds}");
    format!("{whole}{fraction:0<6}").parse().unwrap()
}

/// By account; checks that the owners and the rest are the node.
fn by_account(now: &Exposition) -> BTreeMap<String, u64> {
    let mut accounts = BTreeMap::new();
    for sample in now.named(OWNERS) {
        *accounts.entry(sample.label("account").unwrap().to_owned()).or_default() += usec(&sample.text);
    }
    let of_node = |name: &str| usec(&now.named(name).next().unwrap().text);
    let owners: u64 = accounts.values().sum();
    assert_eq!(owners + of_node(UNATTRIBUTED), of_node(TOTAL), "{accounts:?}");
    accounts
}

fn ended(now: &Exposition, account: &str) -> Option<f64> {
    let mut of = now.named("jobledger_owner_jobs_ended_total");
    of.find(|sample| sample.label("account") == Some(account)).map(|sample| sample.value)
}

#[test]
fn totals_go_on_over_restarts_and_crashes_and_have_each_job_once() {
    let node = node();
    add_job(&node, 81, "physics", 10);
    add_job(&node, 82, "chemistry", 20);
    let state = format!("--state.file={}", node.0.path("run/state").display());
    let start = || node.start(&[&state, "--jobs.retention=1h"]);
    let mut exporter = start();
    let (mut scope, mut before) = (30, by_account(&scrape(&exporter)));
    assert_eq!((before["physics"], before["chemistry"]), (12_000_000, 24_000_000));
    for round in 1..=6_u32 {
        // Job 81 uses ten seconds, a job of five comes and goes, and two are no job's.
        node.0.write(format!("{}/cpu.stat", job(81)), cpu_stat(10 + 10 * round));
        let id = 100 + round;
        add_job(&node, id, "chemistry", 5);
        scope += 17;
        node.0.write(format!("{SCOPE}/cpu.stat"), cpu_stat(scope));
        by_account(&scrape(&exporter));
        node.remove_job(id);
        if round % 3 == 1 {
            assert_eq!(exporter.terminate(), Some(0));
        } else {
            if round % 3 == 2 {
                by_account(&scrape(&exporter));
            }
            drop(exporter);
        }
        exporter = start();
        let page = scrape(&exporter);
        let now = by_account(&page);
        assert!(before.iter().all(|(account, usec)| now[account] >= *usec), "{now:?} after {before:?}");
        let rounds = u64::from(round);
        assert_eq!(now["physics"], 12_000_000 + 12_000_000 * rounds);
        assert_eq!(now["chemistry"], 24_000_000 + 6_000_000 * rounds);
        assert_eq!(ended(&page, "chemistry"), Some(f64::from(round)));
        assert_eq!(ended(&page, "physics"), Some(0.0));
        before = now;
    }
}

fn sum(now: &Exposition) -> u64 {
    now.named(OWNERS).map(|sample| usec(&sample.text)).sum()
}

#[test]
fn jobs_that_the_series_limit_leaves_out_are_in_the_totals() {
    let node = node();
    (1..=20).for_each(|id| add_job(&node, id, "physics", 10));
    let exporter = node.start(&["--metric.max-series=400"]);
    for _ in 0..2 {
        let now = scrape(&exporter);
        let shown = now.named("jobledger_job_cpu_seconds_total").count();
        assert!(shown < 40, "{shown} samples: the limit leaves out some");
        assert_eq!(sum(&now), 20 * 12_000_000);
    }
}

#[test]
fn labels_and_the_limit_are_the_sites() {
    let node = node();
    (1..=4).for_each(|id| add_job(&node, id, &format!("a{id}"), 10));
    let start = |flags: &[&str]| -> (Exporter, Exposition) {
        let exporter = node.start(flags);
        let now = scrape(&exporter);
        (exporter, now)
    };
    let (_few, now) = start(&["--owner.labels=account,user", "--owner.limit=2"]);
    let owners: Vec<_> = now.named(OWNERS).map(|s| (s.label("account").unwrap(), usec(&s.text))).collect();
    assert_eq!(owners, [("a1", 12_000_000), ("a2", 12_000_000), ("other", 24_000_000)]);
    let (_users, now) = start(&["--owner.labels=user,partition"]);
    let labels: Vec<_> = now.named(OWNERS).map(|s| (s.label("account"), s.label("partition"))).collect();
    assert_eq!(labels, [(None, Some(""))]);
    assert_eq!(sum(&now), 48_000_000);
    for off in ["--owner.labels=none", "--no-collector.owners"] {
        let (_off, now) = start(&[off]);
        assert_eq!((now.named(OWNERS).count(), success(&now, "owners")), (0, None));
    }
    let (_on, now) = start(&[]);
    assert_eq!(success(&now, "owners"), Some(1.0));
}
