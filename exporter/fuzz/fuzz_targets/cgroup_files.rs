//! Files of cgroups, each held against the plainest way to read its fields.

use cgroups::cpu::{parse_cpu_stat, parse_cpuacct_stat};
use cgroups::memory::{parse_memory_events, parse_memory_stat, parse_memory_stat_v1};
use jobledger_exporter::collector::devices::energy::{parse_numa_stat, parse_numa_stat_v1, parse_usage_percpu};
use io_accounting::parse_io_stat;
use jobledger_exporter::collector::job::processes::count_ids;
use jobledger_exporter_fuzz::{agrees, last_value, prefixes_are_read, whole_lines};

pub fn fuzz(bytes: &[u8]) {
    prefixes_are_read(bytes, parse_numa_stat);
    if let (Ok(one), Ok(many)) = (parse_numa_stat_v1(bytes, 1), parse_numa_stat_v1(bytes, 4096)) {
        assert!(one.keys().eq(many.keys()), "the same nodes whatever a page is");
    }
    if let Ok(nanoseconds) = parse_usage_percpu(bytes) {
        let printed: Vec<String> = nanoseconds.iter().map(u64::to_string).collect();
        assert_eq!(parse_usage_percpu(printed.join(" ").as_bytes()), Ok(nanoseconds));
    }
    if let Ok(s) = parse_cpu_stat(bytes) {
        let fields = [("usage_usec", s.usage_usec), ("user_usec", s.user_usec), ("system_usec", s.system_usec)];
        agrees(bytes, &s, &fields);
    }
    if let Ok(s) = parse_cpuacct_stat(bytes) {
        let ticks = |key| last_value(bytes, key).and_then(|ticks| ticks.checked_mul(10_000));
        assert_eq!((s.user_usec, s.system_usec), (ticks("user"), ticks("system")));
    }
    if let Ok(s) = parse_memory_stat(bytes) {
        let fields = [
            ("anon", s.anon),
            ("file", s.file),
            ("shmem", s.shmem),
            ("file_mapped", s.file_mapped),
            ("kernel", s.kernel),
            ("slab", s.slab),
            ("pgfault", s.pgfault),
            ("pgmajfault", s.pgmajfault),
        ];
        agrees(bytes, &s, &fields);
    }
    if let Ok(s) = parse_memory_stat_v1(bytes) {
        let fields = [
            ("total_rss", s.anon),
            ("total_cache", s.file),
            ("total_swap", s.swap),
            ("hierarchical_memory_limit", s.limit),
            ("hierarchical_memsw_limit", s.memsw_limit),
        ];
        agrees(bytes, &s, &fields);
    }
    if let Ok(e) = parse_memory_events(bytes) {
        agrees(bytes, &e, &[("high", e.high), ("max", e.max), ("oom", e.oom), ("oom_kill", e.oom_kill)]);
    }
    prefixes_are_read(bytes, parse_cpu_stat);
    prefixes_are_read(bytes, parse_memory_stat);

    let (devices, error) = parse_io_stat(bytes);
    for prefix in whole_lines(bytes) {
        let (before, error_before) = parse_io_stat(prefix);
        assert!(devices.len() >= before.len(), "what comes later takes nothing away");
        assert!(error.is_some() || error_before.is_none());
    }
    assert!(count_ids(bytes) <= bytes.len() as u64);
}
