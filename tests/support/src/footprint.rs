//! The resources of a running process, from /proc.

use std::fs;
use std::path::{Path, PathBuf};

fn proc(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

fn field(status: &str, key: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Resident memory, KiB.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn rss_kib(pid: u32) -> u64 {
    field(&fs::read_to_string(proc(pid).join("status")).expect("a running process"), "VmRSS")
}

/// Highest resident memory, KiB.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn peak_rss_kib(pid: u32) -> u64 {
    field(&fs::read_to_string(proc(pid).join("status")).expect("a running process"), "VmHWM")
}

fn of_threads(pid: u32, file: &str) -> impl Iterator<Item = String> {
    let threads = fs::read_dir(proc(pid).join("task")).expect("a running process").flatten();
    let file = file.to_owned();
    threads.filter_map(move |thread| fs::read_to_string(thread.path().join(&file)).ok())
}

/// How often its threads were given a CPU: voluntary and involuntary context switches.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn switches(pid: u32) -> u64 {
    let both = |status: String| {
        field(&status, "voluntary_ctxt_switches") + field(&status, "nonvoluntary_ctxt_switches")
    };
    of_threads(pid, "status").map(both).sum()
}

/// CPU time of its threads that run, nanoseconds (`schedstat`, Documentation/scheduler/sched-stats.rst). That of a
/// thread that ended is not in it.
///
/// # Panics
/// If the process is gone.
#[must_use]
pub fn cpu_ns(pid: u32) -> u64 {
    of_threads(pid, "schedstat").filter_map(|s| s.split(' ').next()?.parse::<u64>().ok()).sum()
}
