//! `jobledger-exporter perf --validate` and `--peaks`, as an administrator runs them.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes and fail by panicking"
)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use counter_validation::Results;
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::wait::eventually;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");

fn perf(arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("perf").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether this machine has a PMU of its cores.
fn has_pmu() -> bool {
    let devices = std::fs::read_dir("/sys/bus/event_source/devices").unwrap();
    devices.flatten().any(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv")
    })
}

#[test]
fn without_a_pmu_it_says_so_at_once_and_writes_nothing_and_with_one_it_compares() {
    if jobledger_testkit::skip_without_root("counting others") {
        return;
    }
    let scratch = Scratch::new("no-pmu");
    let file = scratch.path().join("counters.json");
    let output = format!("--output={}", file.display());
    let output = perf(&["--validate", "--although-busy", "--time=20ms", "--format=json", &output]);
    if has_pmu() {
        let results = Results::parse(&output.stdout).unwrap();
        assert!(results.verdict.is_some() && results.rows.len() > 20, "{}", text(&output.stderr));
        return;
    }
    assert_eq!(output.status.code(), Some(69), "{}", text(&output.stderr));
    let why = text(&output.stderr);
    assert!(why.starts_with("no hardware counters here, nothing is compared; hardware counters: "), "{why}");
    assert!(output.stdout.is_empty() && !file.exists());
}

#[test]
fn counters_of_another_user_and_busy_cpus_are_left_alone() {
    let scratch = Scratch::new("busy");
    let lock = scratch.path().join("likwid.lock");
    std::fs::create_dir(&lock).unwrap();
    let locked = perf(&["--validate", "--output=", &format!("--counters.lock-file={}", lock.display())]);
    let expected = if has_pmu() { 75 } else { 69 };
    assert_eq!(locked.status.code(), Some(expected), "{}", text(&locked.stderr));

    let mut work: Vec<_> = (0..std::thread::available_parallelism().unwrap().get())
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
        .collect();
    let busy = perf(&["--peaks", "--output=", "--time=1ms"]);
    for process in &mut work {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(busy.status.code(), Some(75), "{}", text(&busy.stderr));
    assert!(text(&busy.stderr).contains("is busy ("), "{}", text(&busy.stderr));
}

#[test]
fn what_was_measured_is_left_for_the_exporter_which_exports_it() {
    if jobledger_testkit::skip_without_root("a file of root's") {
        return;
    }
    let scratch = Scratch::new("peaks");
    let file = scratch.path().join("new/counters.json");
    let output = format!("--output={}", file.display());
    let measured = perf(&["--peaks", "--time=5ms", "--although-busy", "--format=json", &output]);
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    assert_eq!(measured.stdout, std::fs::read(&file).unwrap());
    let results = Results::parse(&measured.stdout).unwrap();
    assert_eq!((results.verdict, results.rows.len()), (None, 0), "nothing was compared");
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!text(&measured.stdout).contains(&format!("\"{}\"", hostname.trim())), "no names of hosts");
    let bandwidth = results.peaks.unwrap().memory_bytes_per_second.unwrap();

    let read = |file: &Path| {
        let flags = [
            format!("--counters.results-file={}", file.display()),
            "--security.no-drop".to_owned(),
            format!("--path.cgroupfs={}", scratch.path().display()),
        ];
        let exporter = Exporter::start(BINARY, &flags);
        eventually("a page", || exporter.metrics().contains("jobledger_node_info"));
        exporter.metrics()
    };
    let page = read(&file);
    let sample = |page: &str, name: &str| {
        page.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<f64>().ok())
    };
    assert_eq!(sample(&page, "jobledger_node_measured_memory_bandwidth_bytes"), Some(bandwidth));
    let flops = "jobledger_node_measured_flops_per_second{precision=\"double\",width=\"scalar\"}";
    assert!(sample(&page, flops).unwrap() > 1e6, "{page}");
    assert!(!page.contains("jobledger_node_counters_validated_info{"), "it was not compared");

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!read(&file).contains("jobledger_node_measured"), "anybody may have written it");
}

#[test]
fn what_cannot_be_left_is_shown_and_an_error() {
    let scratch = Scratch::new("nowhere");
    let output = format!("--output={}", scratch.path().join("no/such/counters.json").display());
    let measured = perf(&["--peaks", "--time=1ms", "--although-busy", &output]);
    assert_eq!(measured.status.code(), Some(1));
    assert!(text(&measured.stdout).contains("FLOP/s double, scalar"), "{}", text(&measured.stdout));
    let why = text(&measured.stderr);
    assert!(why.starts_with("the results are not left: ") && why.contains("No such file"), "{why}");
}

#[test]
fn a_signal_ends_it_between_two_loops() {
    let arguments = ["perf", "--peaks", "--time=1m", "--although-busy", "--output="];
    let mut running = Command::new(BINARY).args(arguments).spawn().unwrap();
    let threads = format!("/proc/{}/task", running.id());
    // Those that measure, beside the first and the one that waits for signals.
    eventually("it measures", || std::fs::read_dir(&threads).unwrap().count() > 2);
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut status = None;
    eventually("it ends", || {
        status = running.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(1));
}
