//! Signals, the log, and the clock. Rows 25, 34 and 36.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::machine::Machine;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

fn signal(exporter: &Exporter, signal: Signal) {
    kill_process(Pid::from_raw(exporter.pid().cast_signed()).unwrap(), signal).unwrap();
}

/// Row 34.
#[test]
fn a_running_scrape_is_answered_before_the_exit() {
    for ending in [Signal::TERM, Signal::INT] {
        let node = Node::with_jobs([1, 2]);
        let mut exporter = node.start(&[]);
        scrape(&exporter);
        node.0.fifo(format!("{}/memory.stat", job(2)));
        let now = thread::scope(|scope| {
            let under_way = scope.spawn(|| scrape_within(&exporter, "2.5"));
            thread::sleep(Duration::from_millis(500));
            signal(&exporter, ending);
            under_way.join().unwrap()
        });
        assert_eq!(user_seconds(&now, 1), Some(1.0));
        assert!(exporter.wait(Duration::from_secs(5)).success());
    }
}

/// Row 34: idle connections do not delay the exit.
#[test]
fn the_exit_does_not_wait_for_idle_clients() {
    let node = Node::with_jobs([1]);
    let mut exporter = node.start(&[]);
    let idle: Vec<_> = (0..10).map(|_| std::net::TcpStream::connect(exporter.address()).unwrap()).collect();
    scrape(&exporter);
    signal(&exporter, Signal::TERM);
    let status = exporter.wait(Duration::from_secs(2));
    assert!(status.success(), "{status}");
    drop(idle);
}

/// Row 34.
#[test]
fn sighup_and_sigpipe_do_not_end_the_exporter() {
    let node = Node::with_jobs([1]);
    let exporter = node.start(&[]);
    for nuisance in [Signal::HUP, Signal::PIPE, Signal::HUP] {
        signal(&exporter, nuisance);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(user_seconds(&scrape(&exporter), 1), Some(1.0));
    }
}

/// A source fails or recovers before each scrape, and a job comes and goes, which is logged each time.
fn scrapes_that_log(node: &Node, exporter: &Exporter, rounds: u32) {
    for round in 0..rounds {
        let content = if round % 2 == 0 { "torn" } else { "0.10 0.20 0.30 1/2 3\n" };
        node.0.write("proc/loadavg", content);
        node.add_job(100 + round, 1);
        let (slept, now) = quiet_time(|| scrape_within(exporter, "5"));
        assert!(slept < Duration::from_secs(2), "round {round}: {slept:?}");
        assert_eq!(success(&now, "node_load"), Some(f64::from(round % 2)), "{}", detail(&now, "node_load"));
        node.remove_job(100 + round);
    }
}

/// Row 36: what flaps is written once a minute, with what was left out.
#[test]
fn a_source_that_fails_and_recovers_again_and_again_does_not_fill_the_log() {
    let node = Node::with_jobs([1]);
    let exporter = node.start(&["--log.level=info"]);
    let begun = std::time::Instant::now();
    scrapes_that_log(&node, &exporter, 40);
    let log = exporter.log();
    let lines = log.lines().filter(|line| line.contains("node_load")).count() as u64;
    let minutes = begun.elapsed().as_secs() / 60 + 1;
    assert!(lines >= 2 && lines <= 2 * minutes, "{lines} lines in {minutes} minutes: {log}");
}

/// Row 36: a pipe without a reader, as with a supervisor that hangs.
#[test]
fn a_log_that_is_not_read_does_not_delay_scrapes() {
    let node = Node::with_jobs([1]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let exporter = Exporter::prepared(BINARY, &node.flags(&["--log.level=trace"]), |command| {
        command.stderr(Stdio::from(writer));
    });
    rustix::pipe::fcntl_setpipe_size(&reader, 8192).unwrap();
    scrapes_that_log(&node, &exporter, 100);
    let mut held = [0; 64 << 10];
    let said = reader.read(&mut held).unwrap();
    assert!(said > 2000, "the first messages are there: {said} bytes");
    scrapes_that_log(&node, &exporter, 2);
    let said = reader.read(&mut held).unwrap();
    let text = String::from_utf8_lossy(&held[..said]);
    assert!(text.contains("log messages were lost"), "{text}");
}

/// Row 36: the same for a socket, as with the journal.
#[test]
fn a_journal_that_hangs_does_not_delay_scrapes() {
    let node = Node::with_jobs([1]);
    let (_reader, writer) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&writer, 4096).unwrap();
    let exporter = Exporter::prepared(BINARY, &node.flags(&["--log.level=trace"]), |command| {
        command.stderr(Stdio::from(std::os::fd::OwnedFd::from(writer)));
    });
    scrapes_that_log(&node, &exporter, 60);
}

/// Row 36: closed, and on a full disk.
#[test]
fn the_exporter_runs_without_a_writable_log() {
    let node = Node::with_jobs([1]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for stderr in [Stdio::from(writer), Stdio::from(full)] {
        let exporter = Exporter::prepared(BINARY, &node.flags(&[]), |command| {
            command.stderr(stderr);
        });
        scrapes_that_log(&node, &exporter, 6);
    }
}

/// Row 25: the start of a job is counted from the boot, not from the clock at the scrape.
#[test]
fn start_times_follow_the_boot_time_and_do_not_change() {
    let machine = Machine::fixture("v2-big");
    let boot: f64 =
        machine.read("proc/stat").lines().find_map(|l| l.strip_prefix("btime ")?.parse().ok()).unwrap();
    let node = Node(machine);
    let exporter = node.start(&["--jobs.retention=1h"]);
    let start = |e: &_| of_job(e, "jobledger_job_start_time_seconds", 1001).unwrap();
    let first = scrape(&exporter);
    let since_boot = start(&first) - boot;
    assert!(since_boot > 0.0 && since_boot < 365.0 * 86400.0, "{since_boot}");
    let ticks = since_boot * 100.0;
    assert!((ticks - ticks.round()).abs() < 1e-3, "whole ticks: {since_boot}");
    // The clock of the machine is set: the start time of a running job does not change.
    let moved = node.0.read("proc/stat").replace("btime ", "btime 1");
    node.0.write("proc/stat", moved);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(start(&scrape(&exporter)), start(&first));
}

/// Row 25.
#[test]
fn an_end_is_not_before_its_start_and_durations_are_never_negative() {
    let node = Node::with_jobs([]);
    let exporter = node.start(&["--jobs.retention=1h"]);
    for id in 1..=20 {
        node.add_job(id, 1);
        if id % 2 == 0 {
            scrape(&exporter);
        }
        node.remove_job(id);
    }
    let now = scrape(&exporter);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let ended = jobs_in(&now, "jobledger_job_end_time_seconds");
    assert!(ended.len() >= 10, "{ended:?}");
    for id in ended {
        let at = |name| of_job(&now, name, id).unwrap();
        let (start, end) = (at("jobledger_job_start_time_seconds"), at("jobledger_job_end_time_seconds"));
        assert!(start <= end && end <= wall, "job {id}: {start} to {end}, now {wall}");
    }
    let durations: Vec<f64> =
        now.named("jobledger_exporter_collector_duration_seconds").map(|s| s.value).collect();
    assert!(durations.len() > 5 && durations.iter().all(|d| (0.0..10.0).contains(d)), "{durations:?}");
}
