//! A file that does not answer: a FIFO in its place, whose open waits for a writer as a hung driver or NFS server would.
//! Rows 14 (nothing but the files of the collectors is ever touched), 15 and 16, and row 10 for sources other than GPUs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;
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

fn all_but_memory_is_there(now: &Exposition) {
    the_others_are_there(now);
    assert_eq!(success(now, "memory"), Some(0.0));
    assert_eq!(now.value("jobledger_exporter_stuck_collectors", &[]), Some(1.0));
}

fn the_others_are_there(now: &Exposition) {
    for id in [1, 2, 3] {
        assert_eq!(user_seconds(now, id), Some(f64::from(id)));
        assert_eq!(of_job(now, "jobledger_job_cpus", id), Some(2.0));
    }
    assert!(now.family("jobledger_node_memory_total_bytes").is_some(), "collectors behind it are not late");
    assert!(now.family("jobledger_job_memory_used_bytes").is_none(), "what is late is absent");
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
    the_others_are_there(&now);
    assert_eq!(
        success(&now, "memory"),
        Some(1.0),
        "the collection goes on, and this client's patience says nothing"
    );
    // The exporter's own limit, whoever waits.
    let now = scrape(&exporter);
    all_but_memory_is_there(&now);
    assert!(errors(&now, "memory", "timeout") >= Some(1.0));
    assert!(detail(&now, "memory").starts_with("late"), "{}", detail(&now, "memory"));
}

/// Row 16: two scrapers with different timeouts, and a file that answers between their deadlines.
#[test]
fn a_scraper_with_a_short_timeout_costs_another_one_nothing() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&["--scrape.min-interval=1m"]);
    hang(&node, 2);
    let (short, long) = thread::scope(|scope| {
        let long = scope.spawn(|| scrape_within(&exporter, "300"));
        let short = scrape_within(&exporter, "4");
        release(&node, 2);
        (short, long.join().unwrap())
    });
    the_others_are_there(&short);
    for id in [1, 2, 3] {
        assert_eq!(user_seconds(&long, id), Some(f64::from(id)));
        assert!(of_job(&long, "jobledger_job_memory_used_bytes", id).is_some(), "of job {id}");
    }
    assert_eq!(success(&long, "memory"), Some(1.0));
    assert_eq!(errors(&long, "memory", "timeout"), None);
}

/// Rows 16 and 36: clients that ask for an answer at once, with and without a selection, for as long as somebody else scrapes.
#[test]
fn clients_that_ask_for_the_impossible_cost_another_one_nothing() {
    let node = Node::with_jobs([1, 2, 3]);
    for collector in ["", "?exclude[]=job", "?collect[]=memory"] {
        let exporter = node.start(&["--log.level=info"]);
        let first = scrape(&exporter);
        let failed = failures(&first);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for seconds in ["0.001", "1e-300", "NaN", "0.001"] {
                let (exporter, over) = (&exporter, &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let headers = [("X-Prometheus-Scrape-Timeout-Seconds", seconds)];
                        let path = format!("/metrics{collector}");
                        http::get(exporter.address(), &path, &headers, QUIET).unwrap();
                    }
                });
            }
            for _ in 0..10 {
                let now = scrape_within(&exporter, "300");
                for id in [1, 2, 3] {
                    assert_eq!(user_seconds(&now, id), Some(f64::from(id)));
                }
                assert_eq!(failures(&now), failed, "{collector}");
            }
            over.store(true, Ordering::Relaxed);
        });
        // One line for each unsupported collector, and none for a client.
        assert!(exporter.log().lines().count() < 20, "{}", exporter.log());
        assert!(!exporter.log().contains("late"), "{}", exporter.log());
    }
}

/// The collectors that did not yield all they should.
fn failures(now: &Exposition) -> Vec<String> {
    let all = now.named("jobledger_exporter_collector_success");
    all.filter(|s| s.value != 1.0).map(|s| s.label("collector").unwrap().to_owned()).collect()
}

/// Row 10 for a source other than a GPU: no pile-up, recovery, and an exit that does not wait.
#[test]
fn only_one_thread_hangs_until_the_file_answers() {
    let node = Node::with_jobs([1, 2, 3]);
    let mut exporter = node.start(&[]);
    scrape(&exporter);
    let before = threads(&exporter);
    hang(&node, 2);
    // At the end of the collection it is late.
    all_but_memory_is_there(&scrape(&exporter));
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
    let exporter = node.start(&["--web.max-requests=64", "--scrape.min-interval=1m"]);
    hang(&node, 2);
    thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(|| scrape(&exporter))).collect();
        for one in all {
            let now = one.join().unwrap();
            all_but_memory_is_there(&now);
            assert_eq!(now.value("jobledger_exporter_scrapes_total", &[]), Some(1.0));
        }
    });
    release(&node, 2);
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
    let all_ask = || -> Vec<_> {
        thread::scope(|scope| {
            let all: Vec<_> = ["6", "6"]
                .into_iter()
                .chain(["1"; 8])
                .map(|patience| scope.spawn(move || ask(patience)))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    // On a busy machine they do not come at the same time, and all find a place.
    jobledger_testkit::eventually("some find no place", || {
        let answers = all_ask();
        let refused: Vec<_> = answers.iter().filter(|a| a.status == 503).collect();
        assert!(answers.iter().all(|a| matches!(a.status, 200 | 503)));
        // Those with little patience that have a place at the start make room for others.
        assert!(answers.iter().filter(|a| a.status == 200).count() >= 2);
        assert!(refused.iter().all(|a| a.header("retry-after").is_some()));
        refused.len() >= 4
    });
    release(&node, 2);
}
