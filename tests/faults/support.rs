//! A node that a test can break, and the exporter on it.

use std::collections::BTreeSet;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::{Exposition, Format, parse};
use jobledger_testkit::http;
use jobledger_testkit::machine::Machine;
pub(crate) use jobledger_testkit::wait::{LONGEST, QUIET, quiet_time, until};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
pub(crate) const SCOPE: &str = "cgroup/system.slice/slurmstepd.scope";
/// An unprivileged user.
pub(crate) const NOBODY: u32 = 65534;

/// A cgroup v2 node with the jobs that a test gives it.
pub(crate) struct Node(pub(crate) Machine);

/// Directory of a job.
pub(crate) fn job(id: u32) -> String {
    format!("{SCOPE}/job_{id}")
}

/// `cpu.stat` with `seconds` in user mode and a fifth of that in the kernel.
pub(crate) fn cpu_stat(user: u32) -> String {
    let (user, system) = (u64::from(user) * 1_000_000, u64::from(user) * 200_000);
    format!("usage_usec {}\nuser_usec {user}\nsystem_usec {system}\n", user + system)
}

impl Node {
    pub(crate) fn with_jobs(ids: impl IntoIterator<Item = u32>) -> Self {
        let node = Self(Machine::fixture("v2-idle"));
        for id in ids {
            node.add_job(id, id);
        }
        node
    }

    /// Adds a job with a step and a task that used some seconds. It appears at once with all its files.
    pub(crate) fn add_job(&self, id: u32, seconds: u32) {
        let raw = format!("made/job_{id}");
        let groups = ["", "/step_0", "/step_0/slurm", "/step_0/user", "/step_0/user/task_0"];
        for group in groups {
            let at = |file: &str| format!("{raw}{group}/{file}");
            self.0.write(at("cgroup.events"), "populated 1\nfrozen 0\n");
            self.0.write(at("cgroup.procs"), "").write(at("cpu.stat"), cpu_stat(seconds));
            self.0.write(at("memory.current"), "4096000\n").write(at("memory.peak"), "8192000\n");
            self.0.write(at("memory.max"), "max\n").write(at("memory.high"), "1048576000\n");
            self.0.write(at("memory.stat"), "anon 4000\nfile 96000\nshmem 0\npgfault 7\npgmajfault 2\n");
            self.0.write(at("memory.events"), "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n");
            self.0.write(at("cpuset.cpus.effective"), "0-1\n").write(at("cpuset.mems.effective"), "0\n");
        }
        self.0.rename(raw, job(id));
    }

    /// Removes a job as the kernel does: at once, also for readers that have it open.
    pub(crate) fn remove_job(&self, id: u32) {
        let gone = format!("gone/job_{id}");
        self.0.rename(job(id), &gone);
        self.0.remove(format!("{gone}/cgroup.procs"));
        self.0.remove(gone);
    }

    pub(crate) fn flags(&self, more: &[&str]) -> Vec<String> {
        let mut flags = self.0.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", self.0.jobs_dir().display()));
        flags.push("--jobs.stale-after=1h".to_owned());
        flags.push("--metric.profile=full".to_owned());
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    pub(crate) fn start(&self, flags: &[&str]) -> Exporter {
        Exporter::start(BINARY, &self.flags(flags))
    }
}

/// A scrape in OpenMetrics, which has to be valid despite any fault.
pub(crate) fn scrape(exporter: &Exporter) -> Exposition {
    scrape_within(exporter, "10")
}

/// The same with Prometheus' timeout header.
pub(crate) fn scrape_within(exporter: &Exporter, seconds: &str) -> Exposition {
    let headers = [
        ("Accept", "application/openmetrics-text;version=1.0.0"),
        ("X-Prometheus-Scrape-Timeout-Seconds", seconds),
    ];
    let answer = http::get(exporter.address(), "/metrics", &headers, QUIET).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let exposition = parse(&answer.body, Format::OpenMetrics)
        .unwrap_or_else(|e| panic!("{e}: {:?}", answer.text().lines().nth(e.line.saturating_sub(1))));
    assert!(exposition.samples().all(|s| s.timestamp.is_none()), "samples have no timestamps");
    exposition
}

pub(crate) fn user_seconds(exposition: &Exposition, id: u32) -> Option<f64> {
    let labels = [("jobid", &*id.to_string()), ("mode", "user")];
    exposition.value("jobledger_job_cpu_seconds_total", &labels)
}

pub(crate) fn of_job(exposition: &Exposition, name: &str, id: u32) -> Option<f64> {
    exposition.value(name, &[("jobid", &id.to_string())])
}

pub(crate) fn success(exposition: &Exposition, collector: &str) -> Option<f64> {
    exposition.value("jobledger_exporter_collector_success", &[("collector", collector)])
}

pub(crate) fn errors(exposition: &Exposition, collector: &str, reason: &str) -> Option<f64> {
    let labels = [("collector", collector), ("reason", reason)];
    exposition.value("jobledger_exporter_collector_errors_total", &labels)
}

/// What the exporter says of a collector that does not yield all it should.
pub(crate) fn detail(exposition: &Exposition, collector: &str) -> String {
    let status = exposition.named("jobledger_exporter_collector_status_info");
    let mut matching = status.filter(|s| s.label("collector") == Some(collector));
    matching.next().and_then(|s| s.label("detail")).unwrap_or_default().to_owned()
}

/// The job ids of a family.
pub(crate) fn jobs_in(exposition: &Exposition, family: &str) -> BTreeSet<u32> {
    exposition.named(family).map(|s| s.label("jobid").unwrap().parse().unwrap()).collect()
}

/// Waits until a scrape satisfies a condition.
pub(crate) fn eventually(
    exporter: &Exporter,
    what: &str,
    fulfilled: impl Fn(&Exposition) -> bool,
) -> Exposition {
    until(what, || {
        let exposition = scrape(exporter);
        if fulfilled(&exposition) { Ok(exposition) } else { Err(String::new()) }
    })
}

/// Whether owners and modes of files restrict the exporter under test.
pub(crate) fn skip_without_root() -> bool {
    jobledger_testkit::skip_without_root("starting the exporter as somebody else")
}
