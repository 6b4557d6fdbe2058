//! How much memory is several times the caches of a CPU.

use cpu_topology::CpuSet;
use kernel_files::NodeFiles;
use kernel_files::parse::{colon_keyed, integer};

const MIB: u64 = 1 << 20;
/// Where sysfs shows no caches: more than those of such machines.
const UNKNOWN_CACHE: u64 = 64 * MIB;
/// What is in the caches already is a small part of so much more.
const TIMES: u64 = 4;

/// A CPU's largest cache in bytes, and how many CPUs share it.
fn last_cache(files: &mut NodeFiles, cpu: u32) -> Option<(u64, u64)> {
    let mut largest = None;
    // Documentation/ABI/testing/sysfs-devices-system-cpu; no CPU has more than five.
    for index in 0..8 {
        let at = |file: &str| format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{file}");
        let size = files.read(&at("size")).ok().and_then(parse_size);
        let sharing = files.read(&at("shared_cpu_list")).ok().and_then(|list| CpuSet::parse(list).ok());
        if let Some(size) = size {
            largest = largest.max(Some((size, sharing.map_or(1, |cpus| cpus.len().max(1)))));
        }
    }
    largest
}

/// `32768K`, and since no kernel writes it otherwise, nothing else.
fn parse_size(bytes: &[u8]) -> Option<u64> {
    integer(bytes.trim_ascii().strip_suffix(b"K")?)?.checked_mul(1024)
}

/// `MemAvailable` of `/proc/meminfo`, bytes.
fn available(files: &mut NodeFiles) -> Option<u64> {
    let mut available = None;
    colon_keyed(files.read_lines("proc/meminfo").ok()?, |key, value| {
        if key == b"MemAvailable" {
            available = value.strip_suffix(b" kB").and_then(integer).and_then(|kib| kib.checked_mul(1024));
        }
    });
    available
}

/// Memory for a loop on one CPU that runs alone: several times its largest cache, at most a quarter of what is available.
pub(crate) fn for_one(files: &mut NodeFiles, cpu: u32) -> usize {
    let cache = last_cache(files, cpu).map_or(UNKNOWN_CACHE, |(size, _)| size);
    limited(files, cache.saturating_mul(TIMES).max(64 * MIB), 1)
}

/// The same for each of these CPUs, which run at once: its part of the cache counts.
pub(crate) fn for_each(files: &mut NodeFiles, cpus: &CpuSet) -> usize {
    let part = |cpu| last_cache(files, cpu).map_or(UNKNOWN_CACHE, |(size, sharing)| size / sharing);
    let most = cpus.iter().map(part).max().unwrap_or(UNKNOWN_CACHE);
    limited(files, most.saturating_mul(TIMES).max(16 * MIB), cpus.len())
}

fn limited(files: &mut NodeFiles, wanted: u64, of: u64) -> usize {
    let most = available(files).unwrap_or(u64::MAX) / 4 / of.max(1);
    usize::try_from(wanted.min(most)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn arrays_are_four_times_the_last_cache_and_fit_the_memory() {
        let machine = test_machine::Machine::new();
        let cache = |index: u32, file: &str| format!("sys/devices/system/cpu/cpu2/cache/index{index}/{file}");
        machine.write(&cache(0, "size"), "32K\n").write(&cache(3, "size"), "98304K\n");
        machine.write(&cache(3, "shared_cpu_list"), "0-15\n");
        machine.write("proc/meminfo", "MemTotal: 99 kB\nMemAvailable:   67108864 kB\n");
        let mut files = NodeFiles::new(&Arc::new(machine.roots()));
        assert_eq!(for_one(&mut files, 2), 384 << 20);
        let cpus: CpuSet = [2].into_iter().collect();
        assert_eq!(for_each(&mut files, &cpus), 24 << 20, "a sixteenth of it");
        assert_eq!(for_one(&mut files, 3), 256 << 20, "caches that are not shown are thought large");
        machine.write("proc/meminfo", "MemAvailable:   524288 kB\n");
        assert_eq!(for_one(&mut files, 2), 128 << 20);
        assert_eq!(parse_size(b"1M\n"), None);
    }
}
