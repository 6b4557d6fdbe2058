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

use std::thread::sleep;
use std::time::Duration;

use jobledger_testkit::eventually;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::machine::Machine;
use jobledger_testkit::servers::Prometheus;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
const CPU: &str = "jobledger_owner_cpu_seconds_total";
/// What each job uses.
const SECONDS: f64 = 42.25;
const USEC: u64 = 42_250_000;

struct Node {
    machine: Machine,
    exporter: Exporter,
    spent: u64,
    last_id: u32,
}

fn stat(usec: u64) -> String {
    format!("usage_usec {usec}\nuser_usec {usec}\nsystem_usec 0\n")
}

impl Node {
    fn new() -> Self {
        let machine = Machine::empty();
        machine.write("cgroup/cgroup.controllers", "cpu\n").write("cgroup/cgroup.procs", "");
        machine.write("proc/stat", "cpu 1 1 1 1\nbtime 1700000000\n").mkdir(format!("{SCOPE}/system"));
        machine.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), stat(0));
        machine.write("run/jobledger/jobs/.keep", "");
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        // The log says when a job is followed. Counters of owners do not need the retention.
        flags.extend(["--log.level=debug", "--jobs.retention=0s"].map(str::to_owned));
        let exporter = Exporter::start(BINARY, &flags);
        Self { machine, exporter, spent: 0, last_id: 100 }
    }

    /// A job of an account comes, uses its time, and goes after a second.
    fn short_job(&mut self, account: &str) {
        self.last_id += 1;
        let id = self.last_id;
        let metadata = format!("job_id={id}\nuser=alice\naccount={account}\n");
        self.machine.write(format!("run/jobledger/jobs/{id}"), metadata);
        let job = format!("{SCOPE}/job_{id}");
        let user = format!("{job}/step_0/user");
        self.machine.write(format!("{user}/cgroup.events"), "populated 1\n");
        self.machine.write(format!("{job}/cgroup.procs"), "").write(format!("{job}/cpu.stat"), stat(0));
        self.machine.write(format!("{job}/cgroup.events"), "populated 1\n");
        let followed = format!("job_{id}\"");
        eventually("the job is followed", || self.exporter.log().contains(&followed));
        sleep(Duration::from_millis(900));
        self.spent += USEC;
        self.machine.write(format!("{job}/cpu.stat"), stat(USEC));
        self.machine.write(format!("{SCOPE}/cpu.stat"), stat(self.spent));
        self.machine.write(format!("{user}/cgroup.events"), "populated 0\n");
        sleep(Duration::from_millis(100));
        self.machine.remove(&job);
    }
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
    let mut node = Node::new();
    let config = format!(
        "global: {{scrape_interval: 3s, scrape_timeout: 3s}}\n\
         scrape_configs: [{{job_name: nodes, static_configs: [{{targets: ['{}']}}]}}]\n",
        node.exporter.address()
    );
    let server = Prometheus::start(&config, &[]);
    server.wait_for("up == 1", |r| r.len() == 1);
    // Each account has a series before what is measured.
    let accounts = ["physics", "chemistry"];
    accounts.iter().for_each(|account| node.short_job(account));
    let last = |account: &str| jobs_of(&server, &format!("sum by (account) ({CPU})"), account);
    eventually("both accounts", || accounts.iter().all(|account| last(account) == 1.0));
    for account in ["physics", "physics", "chemistry", "physics", "chemistry"] {
        node.short_job(account);
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
