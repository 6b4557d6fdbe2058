//! Files that cannot be read, or have wrong content. Rows 5-9 and 33.

use std::os::unix::process::CommandExt;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::machine::Machine;

use crate::support::*;

/// Row 5: an errno that is neither "gone" nor "denied".
#[test]
fn an_io_error_affects_only_its_samples_and_is_counted() {
    let node = Node::with_jobs([1, 2, 3]);
    let file = format!("{}/cpu.stat", job(2));
    node.0.remove(&file).mkdir(&file);
    node.0.remove("proc/loadavg").mkdir("proc/loadavg");
    let exporter = node.start(&[]);
    let now = scrape(&exporter);
    assert_eq!(jobs_in(&now, "jobledger_job_cpu_seconds_total"), [1, 3].into());
    assert_eq!(jobs_in(&now, "jobledger_job_memory_used_bytes"), [1, 2, 3].into(), "siblings are kept");
    assert_eq!((success(&now, "cpu"), errors(&now, "cpu", "partial")), (Some(0.0), Some(1.0)));
    assert!(detail(&now, "cpu").starts_with("failed: cpu.stat: "), "{}", detail(&now, "cpu"));
    assert_eq!(errors(&now, "node_load", "io"), Some(1.0), "{}", detail(&now, "node_load"));
}

/// Rows 5 and 6: an old value is not exported again if the file cannot be read now.
#[test]
fn a_failed_reading_is_absent_and_not_stale() {
    let node = Node::with_jobs([1, 2]);
    let exporter = node.start(&["--jobs.steps"]);
    assert_eq!(user_seconds(&scrape(&exporter), 2), Some(2.0));
    for dir in [job(2), format!("{}/step_0", job(2))] {
        node.0.remove(format!("{dir}/cpu.stat")).mkdir(format!("{dir}/cpu.stat"));
    }
    let now = scrape(&exporter);
    assert_eq!(jobs_in(&now, "jobledger_job_cpu_seconds_total"), [1].into());
    assert_eq!(jobs_in(&now, "jobledger_step_cpu_seconds_total"), [1].into());
    node.0.remove(format!("{}/cpu.stat", job(2))).write(format!("{}/cpu.stat", job(2)), cpu_stat(3));
    assert_eq!(user_seconds(&scrape(&exporter), 2), Some(3.0), "and it is back when it can be read");
}

/// Row 6.
#[test]
fn a_denied_file_is_logged_once_with_its_fix_and_is_no_zero() {
    if skip_without_root() {
        return;
    }
    let node = Node::with_jobs([1, 2]);
    for id in [1, 2] {
        node.0.chmod(format!("{}/cpu.stat", job(id)), 0o000);
    }
    node.0.chmod("proc/meminfo", 0o000);
    let exporter = Exporter::prepared(BINARY, &node.flags(&[]), |command| {
        command.uid(NOBODY).gid(NOBODY);
    });
    for round in 1..=5 {
        let now = scrape(&exporter);
        for (collector, file) in [("cpu", "cpu.stat"), ("node_memory", "proc/meminfo")] {
            assert_eq!(success(&now, collector), Some(0.0));
            let available = [("collector", collector)];
            assert_eq!(now.value("jobledger_exporter_collector_available", &available), Some(0.0));
            assert_eq!(errors(&now, collector, "denied"), Some(f64::from(round)));
            let status = detail(&now, collector);
            let fix = status.strip_prefix(&format!("{file}; ")).unwrap_or_else(|| panic!("{status}"));
            assert!(fix.len() > 20, "{status}");
        }
        assert!(jobs_in(&now, "jobledger_job_cpu_seconds_total").is_empty());
        assert!(now.family("jobledger_node_memory_total_bytes").is_none());
        assert_eq!(jobs_in(&now, "jobledger_job_memory_used_bytes"), [1, 2].into());
    }
    let log = exporter.log();
    assert_eq!(log.matches("WARN denied: ").count(), 2, "one line for each, not one per scrape:\n{log}");
}

/// Row 7.
#[test]
fn unknown_lines_are_skipped_and_malformed_ones_affect_only_their_job() {
    let node = Node::with_jobs([1, 2, 3]);
    let exporter = node.start(&[]);
    let huge = u64::MAX;
    for (content, wanted, fine) in [
        (
            "future_key 5\nusage_usec 12\nuser_usec 4000000\nsystem_usec 6\nnr_bursts 1\n".to_owned(),
            Some(4.0),
            true,
        ),
        ("user_usec 5000000\n".to_owned(), Some(5.0), true),
        ("usage_usec 1\n".to_owned(), None, true),
        (format!("usage_usec {huge}\nuser_usec {huge}\nsystem_usec {huge}\n"), Some(huge as f64 / 1e6), true),
        (format!("usage_usec {huge}0\nuser_usec 1\n"), None, false),
        ("usage_usec max\n".to_owned(), None, false),
        ("usage_usec -1\n".to_owned(), None, false),
        ("usage_usec\n".to_owned(), None, false),
        ("\n\n\n".to_owned(), None, false),
        ("\0\0\0".to_owned(), None, false),
        ("usage_usec 1\nuser_usec 1".to_owned(), None, false),
    ] {
        // Each for a job that was never read before, so that no earlier value exists.
        node.remove_job(2);
        node.add_job(2, 2);
        node.0.write(format!("{}/cpu.stat", job(2)), &content);
        let now = eventually(&exporter, &content, |e| {
            e.named("jobledger_job_end_time_seconds").next().is_none()
                && (success(e, "cpu") == Some(1.0)) == fine
                && user_seconds(e, 2) == wanted
        });
        assert_eq!((user_seconds(&now, 1), user_seconds(&now, 3)), (Some(1.0), Some(3.0)), "{content:?}");
        if !fine {
            let status = detail(&now, "cpu");
            assert!(status.contains("cpu.stat: line "), "{content:?}: {status}");
        }
        assert_eq!(jobs_in(&now, "jobledger_job_memory_used_bytes"), [1, 2, 3].into(), "{content:?}");
    }
    assert_eq!(errors(&scrape(&exporter), "cpu", "panic"), None);
}

/// Row 8: the kernel cuts `io.stat` at the end of a page.
#[test]
fn complete_lines_of_a_truncated_file_are_exported_and_the_truncation_is_counted() {
    let node = Node(Machine::fixture("v2-io-pids"));
    let file = "cgroup/system.slice/node1_slurmstepd.scope/job_81/io.stat";
    node.0.write(file, "8:0 rbytes=4096 wbytes=512 rios=3 wios=1 dbytes=0 dios=0\n8:16 rbytes=99 wby");
    let exporter = node.start(&["--collector.io"]);
    let now = scrape(&exporter);
    let read: Vec<f64> = now.named("jobledger_job_io_read_bytes_total").map(|s| s.value).collect();
    assert_eq!(read, [4096.0], "no half number");
    assert_eq!(success(&now, "io"), Some(0.0));
    assert_eq!(errors(&now, "io", "partial").or(errors(&now, "io", "malformed")), Some(1.0));
    assert!(detail(&now, "io").contains("io.stat: line 2: torn line"), "{}", detail(&now, "io"));
    assert!(of_job(&now, "jobledger_job_memory_used_bytes", 81).is_some(), "siblings are kept");
}

/// Row 9.
#[test]
fn an_endless_file_is_refused_with_bounded_memory() {
    let node = Node::with_jobs([1, 2]);
    let file = std::fs::File::create(node.0.path(format!("{}/cpu.stat", job(2)))).unwrap();
    file.set_len(1 << 30).unwrap();
    let exporter = node.start(&[]);
    let now = scrape(&exporter);
    assert_eq!(jobs_in(&now, "jobledger_job_cpu_seconds_total"), [1].into());
    assert!(detail(&now, "cpu").contains("larger than"), "{}", detail(&now, "cpu"));
    let resident = now.value("process_resident_memory_bytes", &[]).unwrap();
    assert!(resident < 64e6, "{resident}");
}

/// Row 33: `/proc` hides the processes of other users.
#[test]
fn with_hidepid_the_cgroups_are_exported() {
    let machine = Machine::fixture("v2-big");
    for entry in std::fs::read_dir(machine.path("proc")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.bytes().all(|b| b.is_ascii_digit()) {
            machine.remove(format!("proc/{name}"));
        }
    }
    let node = Node(machine);
    let exporter = node.start(&[]);
    let now = scrape(&exporter);
    assert!(user_seconds(&now, 1001).is_some_and(|s| s > 0.0));
    assert!(of_job(&now, "jobledger_job_memory_used_bytes", 1001).is_some());
    let info = now.named("jobledger_job_info").find(|s| s.label("jobid") == Some("1001")).unwrap();
    assert_eq!(info.label("uid"), Some(""), "not known is empty");
    for collector in ["cpu", "memory", "cpuset", "job"] {
        assert_eq!(success(&now, collector), Some(1.0), "{}", detail(&now, collector));
    }
}
