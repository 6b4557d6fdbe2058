//! Cgroups that appear, disappear, are created again, or exist twice. Rows 1-4, 20, 27, 29 and 32.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use jobledger_testkit::machine::Machine;
use jobledger_testkit::stop::Stop;

use crate::support::*;

const CPU: &str = "jobledger_job_cpu_seconds_total";
const START: &str = "jobledger_job_start_time_seconds";

/// Rows 1 and 2: between the listing and the opening, and between two files.
#[test]
fn jobs_that_vanish_during_a_reading_do_not_affect_others() {
    let steady = [1, 2, 3, 4, 5];
    let node = Node::with_jobs(steady);
    let exporter = node.start(&["--jobs.retention=1s"]);
    let before = scrape(&exporter);
    let stop = AtomicBool::new(false);
    let came = thread::scope(|scope| {
        let stopping = Stop::when_dropped(&stop);
        let churn = scope.spawn(|| {
            let mut came = 0;
            while !Stop::is_set(&stop) {
                let id = 1000 + came;
                node.add_job(id, 9);
                thread::sleep(Duration::from_millis(u64::from(came % 4)));
                node.remove_job(id);
                came += 1;
            }
            came
        });
        for _ in 0..60 {
            let now = scrape(&exporter);
            for id in steady {
                for name in ["jobledger_job_memory_used_bytes", "jobledger_job_cpus", START] {
                    assert_eq!(of_job(&now, name, id), of_job(&before, name, id), "{name} of {id}");
                }
                assert_eq!(user_seconds(&now, id), Some(f64::from(id)));
            }
            for sample in now.named(CPU).filter(|s| s.label("mode") == Some("user")) {
                let id: u32 = sample.label("jobid").unwrap().parse().unwrap();
                assert!(id < 1000 || sample.value == 9.0, "{sample:?}");
            }
            for collector in ["job", "cpu", "memory", "cpuset"] {
                assert_eq!(success(&now, collector), Some(1.0), "{}", detail(&now, collector));
            }
        }
        drop(stopping);
        churn.join().unwrap()
    });
    assert!(came > 50, "{came} jobs");
    let log = exporter.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

/// Row 3.
#[test]
fn a_job_whose_files_are_empty_or_missing_has_no_samples_instead_of_zeros() {
    let node = Node::with_jobs([1, 2]);
    node.0.write(format!("{}/cpu.stat", job(2)), "").write(format!("{}/cpuset.cpus.effective", job(2)), "");
    for file in ["memory.current", "memory.stat", "memory.peak", "memory.events", "memory.max"] {
        node.0.remove(format!("{}/{file}", job(2)));
    }
    let exporter = node.start(&[]);
    let now = scrape(&exporter);
    let exported: BTreeSet<&str> =
        now.samples().filter(|s| s.label("jobid") == Some("2")).map(|s| &*s.name).collect();
    let counted = ["jobledger_job_processes", "jobledger_job_threads", "jobledger_job_alone_seconds_total"];
    let known = [START, "jobledger_job_info", "jobledger_job_memory_nodes"];
    assert_eq!(exported, known.into_iter().chain(counted).collect());
    assert_eq!(user_seconds(&now, 1), Some(1.0));
    for collector in ["cpu", "memory", "cpuset"] {
        assert_eq!(success(&now, collector), Some(1.0), "{}", detail(&now, collector));
    }
}

/// Row 4: noticed by the walk (a directory replaced between two scrapes) and by kernel events.
#[test]
fn a_job_directory_created_again_is_a_new_run_with_a_new_start() {
    for in_place in [false, true] {
        let node = Node::with_jobs([]);
        node.add_job(7, 1000);
        let exporter = node.start(&["--jobs.retention=100ms"]);
        let first = scrape(&exporter);
        let mut seen = vec![(of_job(&first, START, 7).unwrap(), user_seconds(&first, 7).unwrap())];
        for run in 1..4 {
            thread::sleep(Duration::from_millis(50));
            if in_place {
                node.0.remove(job(7));
            } else {
                node.remove_job(7);
            }
            node.add_job(7, 100 - run);
            let exported =
                eventually(&exporter, "the new run", |e| user_seconds(e, 7) == Some(f64::from(100 - run)));
            seen.push((of_job(&exported, START, 7).unwrap(), user_seconds(&exported, 7).unwrap()));
        }
        let starts: BTreeSet<u64> = seen.iter().map(|(start, _)| start.to_bits()).collect();
        assert_eq!(starts.len(), 4, "{seen:?}");
        let now = scrape(&exporter);
        assert_eq!(now.named(START).count(), 1, "one run at a time");
        assert_eq!(now.value("jobledger_exporter_job_runs_total", &[]), Some(4.0));
    }
}

/// Row 4: at any moment a counter goes back only if the start time changes.
#[test]
fn no_counter_of_a_run_ever_goes_back() {
    let node = Node::with_jobs([]);
    let exporter = node.start(&["--jobs.retention=10ms"]);
    let mut last: BTreeMap<u64, f64> = BTreeMap::new();
    for run in 0..6 {
        node.add_job(7, 50 - run);
        for spent in 0..3 {
            node.0.write(format!("{}/cpu.stat", job(7)), cpu_stat(50 - run + spent));
            let now = scrape(&exporter);
            if let (Some(start), Some(user)) = (of_job(&now, START, 7), user_seconds(&now, 7)) {
                let before = last.insert(start.to_bits(), user);
                assert!(before.is_none_or(|b| b <= user), "{before:?} then {user} since {start}");
            }
        }
        node.remove_job(7);
    }
    assert!(last.len() >= 3, "{last:?}");
}

/// Row 20.
#[test]
fn the_same_job_id_under_two_slurmd_has_two_series() {
    for (machine, id) in [("v2-two-slurmd", 77), ("v1-two-slurmd", 533)] {
        let node = Node(Machine::fixture(machine));
        let exporter = node.start(&["--jobs.steps", "--jobs.tasks"]);
        let now = scrape(&exporter);
        let mut nodes: Vec<&str> = now
            .named("jobledger_job_memory_used_bytes")
            .filter(|s| s.label("jobid") == Some(&id.to_string()))
            .map(|s| s.label("slurm_node").unwrap())
            .collect();
        nodes.sort_unstable();
        assert_eq!(nodes, ["node1", "node2"], "{machine}");
    }
}

/// Row 20: ended jobs keep their distinguishing label when one slurmd of two is stopped.
#[test]
fn jobs_keep_their_slurmd_label_when_one_of_two_slurmd_ends() {
    let node = Node(Machine::fixture("v2-two-slurmd"));
    let exporter = node.start(&["--jobs.retention=1h"]);
    scrape(&exporter);
    node.0.remove("cgroup/system.slice/node2_slurmstepd.scope");
    for _ in 0..3 {
        let now = scrape(&exporter);
        assert_eq!(now.named(START).filter(|s| s.label("slurm_node") == Some("node2")).count(), 2);
        assert_eq!(now.named(START).filter(|s| s.label("slurm_node") == Some("node1")).count(), 1);
    }
}

/// Row 20: two spellings of the pending step, and two directories that lead to one job.
#[test]
fn two_directories_with_one_key_are_one_series() {
    let node = Node::with_jobs([7]);
    node.0.copy_tree(format!("{}/step_0", job(7)), format!("{}/step_TBD", job(7)));
    node.0.copy_tree(format!("{}/step_0", job(7)), format!("{}/step_TDB", job(7)));
    node.0.copy_tree(job(7), format!("{SCOPE}/sDNHM7VZHTTA00"));
    node.0.write("run/jobledger/jobs/7", "job_id=7\nsluid=sDNHM7VZHTTA00\n");
    let exporter = node.start(&["--jobs.steps", "--jobs.tasks"]);
    // The strict parser of `scrape` refuses duplicates.
    let now = scrape(&exporter);
    let pending = [("jobid", "7"), ("step", "TBD"), ("mode", "user")];
    assert_eq!(now.value("jobledger_step_cpu_seconds_total", &pending), Some(7.0));
    assert_eq!(user_seconds(&now, 7), Some(7.0));
}

/// Row 27.
#[test]
fn a_counter_that_goes_back_is_exported_unchanged() {
    let node = Node::with_jobs([7]);
    node.0.write(format!("{SCOPE}/system/cpu.stat"), cpu_stat(50));
    node.0.write(format!("{SCOPE}/cpu.stat"), cpu_stat(1000));
    let exporter = node.start(&[]);
    assert_eq!(user_seconds(&scrape(&exporter), 7), Some(7.0));
    for (file, seconds) in [("job_7", 3), ("system", 1), (".", 2)] {
        node.0.write(format!("{SCOPE}/{file}/cpu.stat"), cpu_stat(seconds));
        let now = scrape(&exporter);
        assert_eq!(user_seconds(&now, 7), Some(3.0));
        assert_eq!(success(&now, "cpu"), Some(1.0), "{}", detail(&now, "cpu"));
        let total = now.value("jobledger_node_slurm_cpu_seconds_total", &[]).unwrap();
        assert!(total < 2000.0, "{total}");
    }
}

/// Row 29.
#[test]
fn offline_cpus_are_absent_at_the_next_scrape() {
    let node = Node::with_jobs([7]);
    let exporter = node.start(&[]);
    let now = scrape(&exporter);
    assert_eq!(of_job(&now, "jobledger_job_cpus", 7), Some(2.0));
    let online = now.value("jobledger_node_cpus", &[]).unwrap();
    node.0.write(format!("{}/cpuset.cpus.effective", job(7)), "1\n");
    let stat: String = node
        .0
        .read("proc/stat")
        .lines()
        .filter(|l| !l.starts_with("cpu1 "))
        .map(|l| format!("{l}\n"))
        .collect();
    node.0.write("proc/stat", stat);
    let now = scrape(&exporter);
    assert_eq!(of_job(&now, "jobledger_job_cpus", 7), Some(1.0));
    let left = now.value("jobledger_node_cpus", &[]).unwrap();
    assert_eq!(left, online - 1.0);
    node.0.write(format!("{}/cpuset.cpus.effective", job(7)), "\n");
    assert_eq!(of_job(&scrape(&exporter), "jobledger_job_cpus", 7), None, "an empty set is absent, not 0");
}

/// Row 32.
#[test]
fn slurm_may_be_absent_start_restart_and_stop() {
    let node = Node(Machine::fixture("v2-no-slurm"));
    let exporter = node.start(&["--jobs.retention=1ms"]);
    let now = scrape(&exporter);
    assert!(detail(&now, "job").starts_with("needs a running slurmd"), "{}", detail(&now, "job"));
    assert_eq!(now.value("jobledger_exporter_collector_available", &[("collector", "job")]), Some(0.0));
    assert!(now.family("jobledger_node_memory_total_bytes").is_some(), "the node is exported without SLURM");

    let appear = |seconds| {
        node.0.mkdir(SCOPE);
        node.0.write(format!("{SCOPE}/cgroup.procs"), "").write(format!("{SCOPE}/cpu.stat"), cpu_stat(0));
        node.add_job(7, seconds);
    };
    appear(7);
    eventually(&exporter, "the job of a slurmd that was started later", |e| user_seconds(e, 7) == Some(7.0));
    // slurmd restarts: the daemon's group is removed and created again, the jobs continue.
    for _ in 0..2 {
        node.0.write(format!("{SCOPE}/system/cgroup.procs"), "");
        let now = scrape(&exporter);
        assert_eq!(user_seconds(&now, 7), Some(7.0));
        node.0.remove(format!("{SCOPE}/system"));
    }
    assert_eq!(scrape(&exporter).value("jobledger_exporter_job_runs_total", &[]), Some(1.0));
    node.0.remove(SCOPE);
    eventually(&exporter, "the end of all", |e| {
        jobs_in(e, START).is_empty() && success(e, "job") == Some(0.0)
    });
    appear(3);
    eventually(&exporter, "the job of the new scope", |e| user_seconds(e, 7) == Some(3.0));
}

/// Row 32: the other layouts.
#[test]
fn every_layout_of_slurms_groups_is_found() {
    for (machine, id) in [
        ("v1-el8-joint", 501),
        ("v1-split-hybrid", 511),
        ("hybrid-v2-jobs", 71),
        ("v2-slice-hpc", 52),
        ("v2-kubepods", 41),
        ("v2-sluid", 123),
    ] {
        let node = Node(Machine::fixture(machine));
        let exporter = node.start(&[]);
        let now = scrape(&exporter);
        assert!(user_seconds(&now, id).is_some_and(|s| s > 0.0), "{machine}");
    }
}
