//! The real binary on every fixture machine: its exposition, byte for byte.
//!
//! `JOBLEDGER_BLESS=1` rewrites the expectations; the diff is the review.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the exporter's policy; tests start processes, wait, and fail by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use jobledger_testkit::golden;
use jobledger_testkit::machine::Machine;

/// Families whose values belong to the run and not to the machine.
const OF_THE_RUN: &[&str] = &[
    "jobledger_exporter_collector_duration_seconds",
    "jobledger_job_end_time_seconds",
    "jobledger_exporter_build_info",
    "jobledger_exporter_counting_start_time_seconds",
    "jobledger_gpu_reading_",
    "process_",
];

/// Families of which only the series belong to the machine: they count since the start of the run.
const COUNTED_IN_THE_RUN: &[&str] = &[
    "jobledger_gpu_busy_seconds_total",
    "jobledger_gpu_dram_active_seconds_total",
    "jobledger_gpu_observed_seconds_total",
    "jobledger_gpu_unattributed_busy_seconds_total",
    "jobledger_gpu_unattributed_dram_active_seconds_total",
    "jobledger_gpu_unallocated_seconds_total",
    "jobledger_job_gpu_allocated_seconds_total",
    "jobledger_job_gpu_busy_seconds_total",
    "jobledger_job_gpu_dram_active_seconds_total",
    "jobledger_job_gpu_idle_seconds_total",
    "jobledger_job_gpu_utilization_ratio",
    "jobledger_job_alone_seconds_total",
    "jobledger_job_allocated_cpu_seconds_total",
    "jobledger_job_energy_joules_total",
    "jobledger_job_memory_allocated_byte_seconds_total",
    "jobledger_owner_allocated_cpu_seconds_total",
    "jobledger_owner_energy_joules_total",
    "jobledger_owner_charged_energy_joules_total",
    "jobledger_owner_gpu_",
    "jobledger_owner_memory_allocated_byte_seconds_total",
    "jobledger_owner_unused_cpu_seconds_total",
    "jobledger_node_allocated_cpu_seconds_total",
    "jobledger_node_energy_joules_total",
    "jobledger_node_energy_unattributed_joules_total",
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// What `--once` prints for a machine, without what belongs to the run.
fn exposition(machine: &Machine, flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_jobledger-exporter"))
        .args(machine.path_flags())
        .arg(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()))
        .args(["--once", "--jobs.stale-after=0s", "--log.level=error"])
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = machine.root().display().to_string();
    let text = String::from_utf8(output.stdout).unwrap().replace(&root, "ROOT");
    let of_the_run = |line: &str| {
        let name = line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE ")).unwrap_or(line);
        OF_THE_RUN.iter().any(|prefix| name.starts_with(prefix))
    };
    let without_value = |line: &str| match line.rsplit_once(' ') {
        Some((series, _)) if COUNTED_IN_THE_RUN.iter().any(|name| series.starts_with(name)) => {
            format!("{series} COUNTED\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().filter(|line| !of_the_run(line)).map(without_value).collect()
}

#[test]
fn every_machine_gives_its_exposition() {
    let mut machines: Vec<String> = std::fs::read_dir(fixtures())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("machine.txt").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    machines.sort();
    assert!(machines.len() >= 25, "{machines:?}");
    let mut failures = Vec::new();
    for name in &machines {
        let machine = Machine::fixture(name);
        let expected = fixtures().join(name).join("expected.prom");
        let compared = || {
            let text = exposition(&machine, &["--metric.profile=full", "--jobs.steps", "--jobs.tasks"]);
            std::panic::catch_unwind(|| golden::assert_golden(&expected, &text))
        };
        // Energy is attributed from the second reading on: that of the scrape, if the `ledger` thread read before. On a busy machine
        // the order may be different, and the job has no energy yet.
        if let Err(difference) = compared().or_else(|_| compared()).or_else(|_| compared()) {
            let shown = difference.downcast_ref::<String>().cloned().unwrap_or_default();
            failures.push(format!("{name}:\n{shown}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
