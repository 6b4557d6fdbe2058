//! Very many jobs, very few descriptors, and very many scrapes. Rows 17, 18 and 31.

use std::collections::BTreeSet;
use std::fs::hard_link;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::*;

/// Adds jobs with two steps each. Their files are one file with many names: it is their number that is tested.
pub(crate) fn add_many(node: &Node, ids: std::ops::Range<u32>) {
    for (name, content) in [
        ("cgroup.procs", ""),
        ("cgroup.events", "populated 1\n"),
        ("cpu.stat", "usage_usec 3\nuser_usec 2000000\n"),
    ] {
        node.0.write(format!("template/{name}"), content);
    }
    for id in ids {
        for group in ["", "/step_0/user", "/step_batch/user"] {
            let dir = format!("{}{group}", job(id));
            node.0.mkdir(&dir);
            for name in ["cgroup.events", "cgroup.procs", "cpu.stat"] {
                let (from, to) =
                    (node.0.path(format!("template/{name}")), node.0.path(format!("{dir}/{name}")));
                hard_link(from, to).unwrap();
            }
        }
        for step in ["step_0", "step_batch"] {
            let to = node.0.path(format!("{}/{step}/cpu.stat", job(id)));
            hard_link(node.0.path("template/cpu.stat"), to).unwrap();
        }
    }
}

const UNLIMITED: &str = "--metric.max-series=0";
/// Without the node's own series, which do not grow.
const COLLECTORS: [&str; 5] = [
    "--collector.disable-defaults",
    "--collector.job",
    "--collector.cpu",
    "--collector.exporter",
    "--log.level=warn",
];

fn cost(exporter: &Exporter, action: impl FnOnce()) -> f64 {
    let before = exporter.cpu_seconds();
    action();
    exporter.cpu_seconds() - before
}

/// Row 18.
#[test]
fn the_cost_of_a_scrape_grows_with_the_jobs_and_not_with_their_square() {
    let mut costs = Vec::new();
    for jobs in [2_500, 10_000] {
        let node = Node::with_jobs([]);
        add_many(&node, 1..jobs + 1);
        let exporter = node.start(&[&COLLECTORS[..], &[UNLIMITED, "--jobs.steps"]].concat());
        let now = scrape_within(&exporter, "60");
        assert_eq!(jobs_in(&now, "jobledger_job_cpu_seconds_total").len(), jobs as usize);
        assert_eq!(now.named("jobledger_step_cpu_seconds_total").count(), 2 * jobs as usize);
        let scraping = cost(&exporter, || {
            for _ in 0..3 {
                scrape_within(&exporter, "60");
            }
        });
        // All of them end at once, the most expensive moment.
        let ending = cost(&exporter, || {
            node.0.rename(SCOPE, "gone").remove("gone");
            let now = scrape_within(&exporter, "60");
            assert_eq!(jobs_in(&now, "jobledger_job_end_time_seconds").len(), jobs.min(8192) as usize);
        });
        let resident = now.value("process_resident_memory_bytes", &[]).unwrap();
        println!("{jobs} jobs: 3 scrapes {scraping:.2} s, their end {ending:.2} s, {:.0} MB", resident / 1e6);
        costs.push((scraping, ending));
    }
    let [(few, few_end), (many, many_end)] = costs[..] else { panic!() };
    // Four times the jobs; quadratic cost would be sixteen times.
    assert!(many < 8.0 * few + 0.2, "{few} s, then {many} s");
    assert!(many_end < 8.0 * few_end + 0.3, "{few_end} s, then {many_end} s");
}

/// Row 18: over the limit, the finest level goes first, then the last jobs, and always the same.
#[test]
fn over_the_limit_of_series_the_first_jobs_are_kept_and_the_others_are_counted() {
    let node = Node::with_jobs([]);
    add_many(&node, 1..2001);
    let exported = |now: &Exposition| jobs_in(now, "jobledger_job_cpu_seconds_total");
    let dropped = |now: &Exposition, collector, reason| {
        let labels = [("collector", collector), ("reason", reason)];
        now.value("jobledger_exporter_series_dropped_total", &labels)
    };

    let exporter = node.start(&[&COLLECTORS[..], &["--metric.max-series=9000", "--jobs.steps"]].concat());
    let now = scrape(&exporter);
    assert_eq!(exported(&now).len(), 2000, "no job is lost for steps");
    assert_eq!(now.named("jobledger_step_cpu_seconds_total").count(), 0);
    assert_eq!(dropped(&now, "cpu", "steps"), Some(4000.0));
    assert_eq!(dropped(&now, "cpu", "jobs"), None);

    let exporter = node.start(&[&COLLECTORS[..], &["--metric.max-series=1000"]].concat());
    let first = scrape(&exporter);
    let own = |now: &Exposition| now.samples().filter(|s| s.name.starts_with("jobledger_exporter_c")).count();
    assert!(first.samples().count() - own(&first) <= 1100, "{}", first.samples().count());
    let kept = exported(&first);
    assert!(kept.len() > 50, "{}", kept.len());
    let lowest: BTreeSet<u32> = (1..=u32::try_from(kept.len()).unwrap()).collect();
    assert_eq!(kept, lowest);
    let left_out = 2000 - kept.len();
    assert_eq!(dropped(&first, "cpu", "jobs"), Some(left_out as f64));
    let second = scrape(&exporter);
    assert_eq!(exported(&second), kept);
    assert_eq!(dropped(&second, "cpu", "jobs"), Some(2.0 * left_out as f64));
}

/// Row 18: whole jobs are left out, never one mode of one.
#[test]
fn the_limit_of_series_cuts_between_jobs() {
    let node = Node::with_jobs(1..=40);
    let mut seen = BTreeSet::new();
    for limit in [150, 211, 333, 400] {
        let exporter = node.start(&[&format!("--metric.max-series={limit}")]);
        let now = scrape(&exporter);
        for id in jobs_in(&now, "jobledger_job_cpu_seconds_total") {
            let modes = now.named("jobledger_job_cpu_seconds_total");
            let modes = modes.filter(|s| s.label("jobid") == Some(&id.to_string())).count();
            assert_eq!(modes, 2, "limit {limit}, job {id}");
        }
        seen.insert(jobs_in(&now, "jobledger_job_cpu_seconds_total").len());
    }
    assert!(seen.len() > 2, "{seen:?}");
}

/// Row 18: a job that runs one `srun` after the other.
#[test]
fn of_very_many_steps_the_latest_are_exported() {
    let node = Node::with_jobs([7]);
    let exporter = node.start(&["--jobs.steps", "--log.level=warn"]);
    let run = |steps: std::ops::Range<u32>| {
        for step in steps {
            let dir = format!("{}/step_{step}", job(7));
            node.0.mkdir(format!("{dir}/user")).write(format!("{dir}/cpu.stat"), cpu_stat(1));
            node.0.write(format!("{dir}/user/cgroup.events"), "populated 1\n");
            if step % 50 == 0 {
                scrape(&exporter);
            }
            node.0.remove(dir);
        }
        scrape(&exporter)
    };
    let memory = |now: &Exposition| now.value("process_resident_memory_bytes", &[]).unwrap();
    let before = memory(&run(1..2000));
    let now = run(2000..5000);
    let steps: BTreeSet<u32> = now
        .named("jobledger_step_cpu_seconds_total")
        .filter_map(|s| s.label("step").unwrap().parse().ok())
        .collect();
    assert!(steps.contains(&0), "the one that runs");
    assert!(steps.contains(&4950) && !steps.contains(&1000), "{steps:?}");
    assert!(memory(&now) - before < 4e6, "{before} bytes, then {}", memory(&now));
    assert_eq!(user_seconds(&now, 7), Some(7.0));
}

/// Has the shell start the command, with a limit of open files.
fn limit_at_start(command: &mut Command, most: u64) {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -n {most} && exec \"$0\" \"$@\"")).arg(command.get_program());
    limited.args(command.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    *command = limited;
}

fn limit_descriptors(exporter: &Exporter, most: u64) {
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Pid::from_raw(exporter.pid().cast_signed()), Resource::Nofile, limit).unwrap();
}

/// poll(2) refuses to wait for more descriptors than a process may have open (fs/select.c, `do_sys_poll`).
#[test]
fn a_lasting_failure_of_poll_is_logged_once_and_does_not_spin() {
    let node = Node::with_jobs([1]);
    // As root, whose limits the test may change.
    let exporter = node.start(&["--security.user=root"]);
    scrape(&exporter);
    let pid = Pid::from_raw(exporter.pid().cast_signed());
    // The exporter inherits the hard limit.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(pid, Resource::Nofile, Rlimit { current: Some(1), maximum }).unwrap();
    // The event wakes the thread that waits.
    node.add_job(2, 2);
    let until = Instant::now() + Duration::from_secs(60);
    while !exporter.log().contains("poll") {
        assert!(Instant::now() < until, "poll(2) does not fail");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(exporter.log().matches("poll").count(), 1);
    prlimit(pid, Resource::Nofile, before).unwrap();
    while user_seconds(&scrape(&exporter), 2) != Some(2.0) {
        assert!(Instant::now() < until, "job 2 is not found");
    }
}

/// Row 17: scrapes go on, followed jobs are exact, and jobs that are not followed are counted.
#[test]
fn without_descriptors_scrapes_go_on_and_jobs_that_are_not_followed_are_counted() {
    let node = Node::with_jobs(1..=5);
    let exporter = node.start(&["--security.user=root"]);
    scrape(&exporter);
    limit_descriptors(&exporter, 96);
    for id in 6..=300 {
        node.add_job(id, id);
    }
    for _ in 0..5 {
        let now = scrape(&exporter);
        for id in 1..=5 {
            assert_eq!(user_seconds(&now, id), Some(f64::from(id)));
        }
        let exported = jobs_in(&now, "jobledger_job_cpu_seconds_total").len();
        assert!((6..90).contains(&exported), "{exported}");
        let state = |state| now.value("jobledger_exporter_jobs", &[("state", state)]).unwrap();
        assert_eq!([state("running"), state("unfollowed")], [exported as f64, 300.0 - exported as f64]);
        assert_eq!(success(&now, "job"), Some(0.0));
        assert!(detail(&now, "job").contains("open files"), "{}", detail(&now, "job"));
        assert!(now.value("process_open_fds", &[]).unwrap() <= 96.0);
    }
    assert_eq!(exporter.log().matches("open files").count(), 1, "{}", exporter.log());
    for id in 6..=290 {
        node.remove_job(id);
    }
    let followed = |e: &Exposition| {
        let unfollowed = e.value("jobledger_exporter_jobs", &[("state", "unfollowed")]);
        user_seconds(e, 300) == Some(300.0) && unfollowed == Some(0.0)
    };
    eventually(&exporter, "all are followed as soon as there is room", followed);
}

/// Row 17: few descriptors, and clients that want all of them.
#[test]
fn connections_leave_descriptors_for_jobs_and_jobs_leave_some_for_connections() {
    let node = Node::with_jobs(1..=200);
    let flags = node.flags(&["--web.scrapers="]);
    let exporter = Exporter::prepared(BINARY, &flags, |command| limit_at_start(command, 256));
    let half: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(exporter.address()).unwrap();
            // The exporter may have closed it already.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
            stream
        })
        .collect();
    for _ in 0..5 {
        let now = scrape(&exporter);
        let jobs = jobs_in(&now, "jobledger_job_cpu_seconds_total").len();
        assert!(jobs >= 5, "{jobs} jobs: {}", exporter.log());
        assert_eq!(success(&now, "node_cpu"), Some(1.0), "{}", exporter.log());
        let evicted = now.value("jobledger_exporter_web_evicted_total", &[("reason", "half_open")]);
        assert!(evicted.unwrap() >= 200.0, "{evicted:?}");
    }
    drop(half);
}

/// Row 17: it would run and never accept a scrape.
#[test]
fn with_too_few_descriptors_it_does_not_start() {
    let node = Node::with_jobs([]);
    let mut command = Command::new(jobledger_testkit::tools::for_everybody(Path::new(BINARY)));
    command.arg("--web.listen-address=127.0.0.1:0").args(node.flags(&[]));
    limit_at_start(&mut command, 20);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("only 20 files may be open; serving takes 256"), "{said}");
}

/// Row 17: a service is started with 1024 descriptors and may have many more.
#[test]
fn the_limit_of_descriptors_is_raised_to_the_hard_limit() {
    let node = Node::with_jobs([]);
    let exporter = node.start(&[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", exporter.pid())).unwrap();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

/// Row 31.
#[test]
fn memory_threads_and_descriptors_do_not_grow_with_scrapes_and_jobs() {
    let node = Node::with_jobs(1..=10);
    let exporter = node.start(&["--jobs.retention=10ms", "--jobs.steps", "--jobs.tasks"]);
    let churn = |from: u32, rounds: u32| {
        for id in from..from + rounds {
            node.add_job(id, 1);
            scrape(&exporter);
            node.remove_job(id);
            scrape(&exporter);
        }
    };
    let measure = || {
        std::thread::sleep(Duration::from_millis(50));
        scrape(&exporter);
        let now = scrape(&exporter);
        ["process_resident_memory_bytes", "process_open_fds", "process_threads"]
            .map(|n| now.value(n, &[]).unwrap())
    };
    churn(100, 150);
    let [memory, fds, threads] = measure();
    churn(1000, 300);
    let [memory_then, fds_then, threads_then] = measure();
    assert!(memory_then - memory < 3e6, "{memory} bytes, then {memory_then}");
    assert!((fds_then - fds).abs() <= 2.0, "{fds} descriptors, then {fds_then}");
    assert_eq!(threads_then, threads);
}
