//! What a real Prometheus makes of the counters of owners, for jobs of one second that come and go between two scrapes.
//!
//! The node is ordinary files. Prometheus 2.42 is Debian 12's.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::path::Path;
use std::time::Duration;

use jobledger_testkit::crowd::Crowd;
use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Format, parse};
use jobledger_testkit::servers::Prometheus;
use jobledger_testkit::short_jobs::{SECONDS, ShortJobs};

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const CPU: &str = "jobledger_owner_cpu_seconds_total";

/// A job of a second.
fn short_job(node: &mut ShortJobs, account: &str) {
    node.run(account, Duration::from_millis(950));
}

/// A value of an account, in jobs' worth.
fn jobs_of(server: &Prometheus, query: &str, account: &str) -> f64 {
    let found = server.query(query);
    let of = found.iter().find(|element| element.labels.get("account").is_some_and(|name| name == account));
    of.map_or(0.0, |element| element.value / SECONDS)
}

/// The query of docs/billing.md for a month of all accounts, of CPU time.
fn documented() -> String {
    let page = include_str!("../docs/billing.md");
    let begin =
        page.find("sum by (account) (\n  increase(jobledger_owner_").expect("the query in docs/billing.md");
    let query = page[begin..].split("```").next().unwrap();
    query.replace("jobledger_owner_allocated_cpu_seconds_total", CPU).replace("/ 3600", "")
}

#[test]
fn jobs_of_a_second_are_in_what_accounts_used() {
    // Counters of owners do not need the retention.
    let mut node = ShortJobs::start(BINARY, &["--jobs.retention=0s"]);
    let server = node.scraped_by(Path::new("prometheus"), &[], "");
    // Each account has a series before what is measured.
    let accounts = ["physics", "chemistry"];
    accounts.iter().for_each(|account| short_job(&mut node, account));
    let last = |account: &str| jobs_of(&server, &format!("sum by (account) ({CPU})"), account);
    eventually("both accounts", || accounts.iter().all(|account| last(account) == 1.0));
    for account in ["physics", "physics", "chemistry", "physics", "chemistry"] {
        short_job(&mut node, account);
    }
    eventually("all jobs", || last("physics") == 4.0 && last("chemistry") == 3.0);
    // `increase()` would extrapolate; the last value less the first one is exact.
    let grown = format!("sum by (account) (max_over_time({CPU}[10m]) - min_over_time({CPU}[10m]))");
    // A collection while a job runs may have made the series before the job used anything.
    for (account, all) in [("physics", 4.0), ("chemistry", 3.0)] {
        let found = jobs_of(&server, &grown, account);
        let first = jobs_of(&server, &format!("sum by (account) (min_over_time({CPU}[10m]))"), account);
        assert!((found + first - all).abs() < 1e-9, "{account}: {found} after {first} of {all}");
        assert!(first == 0.0 || first == 1.0, "{account}: {first}");
    }
    let ended = server.query("sum(jobledger_owner_jobs_ended_total)")[0].value;
    assert_eq!(ended, 7.0);
    // The documented query has what was used before the second sample too. It extrapolates by some scrapes.
    let query = documented();
    for (account, all) in [("physics", 4.0), ("chemistry", 3.0)] {
        let found = jobs_of(&server, &query, account);
        assert!((all - 1e-9..all * 2.0).contains(&found), "{account}: {found} of {all} by\n{query}");
    }
}

/// What the series limit leaves out of a page is in what owners used.
#[test]
fn owners_have_what_jobs_used_whose_series_are_left_out() {
    const JOBS: u32 = 40;
    let mut crowd = Crowd::recorded();
    crowd.grow_to(JOBS);
    let seconds = |limit: &str| {
        let mut flags = crowd.flags();
        flags.extend(["--log.level=error".to_owned(), format!("--metric.max-series={limit}")]);
        let page = Exporter::start(BINARY, &flags).metrics();
        let page = parse(page.as_bytes(), Format::Text).unwrap_or_else(|e| panic!("{e}"));
        let shown = page.named("jobledger_job_cpu_seconds_total").count();
        let owners: f64 = page.named(CPU).map(|sample| sample.value).sum();
        let jobs: f64 = page.named("jobledger_job_cpu_seconds_total").map(|sample| sample.value).sum();
        (shown, owners, jobs)
    };
    let (all, owners, jobs) = seconds("0");
    assert!(
        all >= usize::try_from(JOBS).unwrap() && (owners - jobs).abs() < 1e-6 && jobs > 0.0,
        "{owners} of {jobs}"
    );
    let (some, limited, _) = seconds("700");
    assert!(some < all, "{some} of {all}");
    assert_eq!(limited, owners);
}
