//! A file that does not answer: a FIFO in its place, whose open waits for a writer as a hung driver or NFS server would.
//! Rows 14 (nothing but the files of the collectors is ever touched), 15 and 16, and row 10 for sources other than GPUs.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::http;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

const FILE: &str = "memory.stat";

fn threads(exporter: &Exporter) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", exporter.pid())).unwrap().count()
}

/// Puts a FIFO in the place of a job's file.
fn hang(node: &Node, id: u32) {
    node.0.fifo(format!("{}/{FILE}", job(id)));
}

/// Puts the file back, and releases readers of the FIFO.
fn release(node: &Node, id: u32) {
    let file = format!("{}/{FILE}", job(id));
    node.0.rename(&file, "released");
    node.0.write(&file, "anon 4000\nfile 96000\n");
    let mut writer = std::fs::OpenOptions::new().write(true).open(node.0.path("released")).unwrap();
    writer.write_all(b"anon 1\n").unwrap();
}

fn all_but_memory_is_there(now: &jobledger_testkit::exposition::Exposition) {
    for id in [1, 2, 3] {
        assert_eq!(user_seconds(now, id), Some(f64::from(id)));
        assert_eq!(of_job(now, "jobledger_job_cpus", id), Some(2.0));
    }
    assert!(now.family("jobledger_node_memory_total_bytes").is_some(), "collectors behind it are not late");
    assert!(now.family("jobledger_job_memory_used_bytes").is_none(), "what is late is absent");
    assert_eq!(success(now, "memory"), Some(0.0));
    assert_eq!(now.value("jobledger_exporter_stuck_collectors", &[]), Some(1.0));
}

/// Rows 15 and 14: every other file is read, and nothing outside the roots is opened.
#[test]
fn a_scrape_answers_by_its_deadline_with_complete_collectors() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&[]);
    scrape(&exporter);
    hang(&node, 2);
    let begun = Instant::now();
    let (slept, now) = quiet_time(|| scrape_within(&exporter, "2.5"));
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(slept < Duration::from_millis(2500), "{slept:?}");
    all_but_memory_is_there(&now);
    assert_eq!(errors(&now, "memory", "timeout"), Some(1.0));
    assert!(detail(&now, "memory").starts_with("late"), "{}", detail(&now, "memory"));
}

/// Row 10 for a source other than a GPU: no pile-up, recovery, and an exit that does not wait.
#[test]
fn only_one_thread_hangs_until_the_file_answers() {
    let node = Node::with_jobs([1, 2, 3]);
    let mut exporter = node.start(&[]);
    scrape(&exporter);
    let before = threads(&exporter);
    hang(&node, 2);
    scrape_within(&exporter, "1");
    for _ in 0..20 {
        let (slept, now) = quiet_time(|| scrape_within(&exporter, "5"));
        assert!(slept < Duration::from_secs(2), "{slept:?}");
        all_but_memory_is_there(&now);
    }
    assert!(threads(&exporter) <= before + 1, "{} threads, {before} before", threads(&exporter));
    assert_eq!(exporter.log().matches("late").count(), 1, "{}", exporter.log());

    release(&node, 2);
    let now = eventually(&exporter, "recovery", |e| success(e, "memory") == Some(1.0));
    assert_eq!(of_job(&now, "jobledger_job_memory_anon_bytes", 2), Some(4000.0));
    assert_eq!(now.value("jobledger_exporter_stuck_collectors", &[]), Some(0.0));
    assert!(threads(&exporter) <= before, "{} threads, {before} before", threads(&exporter));

    hang(&node, 3);
    scrape_within(&exporter, "1");
    kill_process(Pid::from_raw(exporter.pid().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(exporter.wait(Duration::from_secs(6)).success());
}

/// Row 16.
#[test]
fn scrapes_at_the_same_time_share_one_collection() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&["--web.max-requests=64"]);
    let before = scrape(&exporter).value("jobledger_exporter_scrapes_total", &[]).unwrap();
    hang(&node, 2);
    thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(|| scrape_within(&exporter, "3"))).collect();
        for one in all {
            all_but_memory_is_there(&one.join().unwrap());
        }
    });
    release(&node, 2);
    let after = scrape(&exporter).value("jobledger_exporter_scrapes_total", &[]).unwrap();
    assert!(after - before <= 3.0, "{} collections for 50 requests", after - before - 1.0);
}

/// Row 16.
#[test]
fn scrapes_beyond_the_limit_wait_until_their_deadline() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&["--web.max-requests=2"]);
    hang(&node, 2);
    let ask = |patience: &'static str| {
        let headers = [("X-Prometheus-Scrape-Timeout-Seconds", patience)];
        http::get(exporter.address(), "/metrics", &headers, QUIET).unwrap()
    };
    let answers: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = ["6", "6"]
            .into_iter()
            .chain(["1"; 8])
            .map(|patience| scope.spawn(move || ask(patience)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    release(&node, 2);
    let refused: Vec<_> = answers.iter().filter(|a| a.status == 503).collect();
    assert!(answers.iter().all(|a| matches!(a.status, 200 | 503)));
    // Those with little patience that have a place at the start make room for others.
    assert!(answers.iter().filter(|a| a.status == 200).count() >= 2);
    assert!(refused.len() >= 4, "{}", refused.len());
    assert!(refused.iter().all(|a| a.header("retry-after").is_some()));
}
