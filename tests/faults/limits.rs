//! Little memory and little of a CPU, as by `MemoryMax=` and `CPUQuota=`. Row 31.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jobledger_testkit::cgroups::{OwnedGroup, cgroup2_mount, v1_mount};
use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::scratch::Scratch;

use crate::scale::add_many;
use crate::support::*;

/// An eighth of the service's own limit.
const MEMORY: &str = "67108864";

/// Groups with these limits, where the machine has the controllers. An address space that is limited is left beside.
fn groups() -> Vec<OwnedGroup> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut groups = Vec::new();
    let mut limit = |mount: Option<PathBuf>, settings: &[(&str, &str)]| {
        let Some(mount) = mount else { return };
        let group = OwnedGroup::below(&mount, "limited");
        let file = |name: &str| group.path().join(name);
        if settings.iter().all(|(name, _)| file(name).exists()) {
            settings.iter().for_each(|(name, value)| std::fs::write(file(name), value).unwrap());
            groups.push(group);
        }
    };
    limit(v1_mount("memory"), &[("memory.limit_in_bytes", MEMORY)]);
    limit(v1_mount("cpu"), &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")]);
    limit(cgroup2_mount(), &[("memory.max", MEMORY), ("cpu.max", "20000 100000")]);
    groups
}

/// How often the CPU's quota held the exporter up; none where there is no such controller.
fn throttled(groups: &[OwnedGroup]) -> Option<u64> {
    let stat = groups.iter().find_map(|group| std::fs::read_to_string(group.path().join("cpu.stat")).ok())?;
    stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok())
}

#[test]
fn with_little_memory_and_a_part_of_a_cpu_scrapes_are_complete() {
    let scratch = Scratch::new("limited");
    let program = scratch.path().join("exporter");
    let groups = groups();
    let enter: String =
        groups.iter().map(|group| format!("echo $$ >{}/cgroup.procs && ", group.path().display())).collect();
    let enter = if groups.is_empty() { "ulimit -v 1000000 && ".to_owned() } else { enter };
    let binary = jobledger_testkit::tools::for_everybody(Path::new(BINARY));
    std::fs::write(&program, format!("#!/bin/sh\n{enter}exec {} \"$@\"\n", binary.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let node = Node::with_jobs([]);
    add_many(&node, 1..201);
    let exporter =
        Exporter::start(program.to_str().unwrap(), &node.flags(&["--jobs.steps", "--scrape.timeout=60s"]));
    let complete = || {
        let now = scrape_within(&exporter, "60");
        assert_eq!(jobs_in(&now, "jobledger_job_cpu_seconds_total").len(), 200);
        assert_eq!((success(&now, "job"), success(&now, "cpu")), (Some(1.0), Some(1.0)));
    };
    for _ in 0..10 {
        complete();
    }
    if throttled(&groups).is_some() {
        jobledger_testkit::eventually("a time beyond the quota", || {
            complete();
            throttled(&groups) > Some(0)
        });
    }
    let log = exporter.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    assert_eq!(exporter.terminate(), Some(0));
}
