//! The memory of the simulated machine: `meminfo` of procfs and of each NUMA node.

use std::fmt::Write;

use super::counters::Places;
use super::group::Group;

/// 256 GiB less what firmware and kernel reserve.
const MEMORY_KIB: u64 = 263_764_000;
/// Memory of the kernel itself.
const KERNEL_KIB: u64 = 900_000;

/// `/proc/meminfo`.
pub(super) fn memory_info(root: &Group) -> String {
    let memory = root.totals.memory;
    let [anon, file, shmem, mapped, current, stack, tables, reclaimable, unreclaimable] = [
        memory.anon,
        memory.file,
        memory.shmem,
        memory.mapped,
        memory.current(),
        memory.kernel_stack(),
        memory.page_tables,
        memory.slab_reclaimable(),
        memory.slab_unreclaimable(),
    ]
    .map(|bytes| bytes / 1024);
    let kernel = KERNEL_KIB;
    let free = MEMORY_KIB.saturating_sub(current + kernel);
    let rows = [
        ("MemTotal", MEMORY_KIB),
        ("MemFree", free),
        ("MemAvailable", free + (file - shmem) * 9 / 10),
        ("Buffers", 0),
        ("Cached", file),
        ("SwapCached", 0),
        ("Active", anon / 8 + (file - shmem) / 2),
        ("Inactive", anon - anon / 8 + shmem + (file - shmem) / 2),
        ("Unevictable", 0),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", 1_024),
        ("Writeback", 0),
        ("AnonPages", anon),
        ("Mapped", mapped),
        ("Shmem", shmem),
        ("KReclaimable", reclaimable + kernel / 3),
        ("Slab", reclaimable + unreclaimable + kernel / 2),
        ("SReclaimable", reclaimable + kernel / 3),
        ("SUnreclaim", unreclaimable + kernel / 2 - kernel / 3),
        ("KernelStack", stack + 9_600),
        ("PageTables", tables),
        ("CommitLimit", MEMORY_KIB / 2),
        ("Committed_AS", anon * 3 / 2),
        ("AnonHugePages", anon / 2 / 2048 * 2048),
        ("Hugepagesize", 2048),
        ("Hugetlb", 0),
    ];
    let mut text = String::new();
    for (key, kib) in rows {
        let _ = writeln!(text, "{:<15} {kib:>8} kB", format!("{key}:"));
    }
    text
}

/// `meminfo` of a NUMA node (drivers/base/node.c). Each node has half of the machine's memory and of the kernel's.
pub(super) fn node_memory_info(root: &Group, node: usize) -> String {
    let totals = &root.totals;
    let places: Places = totals.places;
    let [anon, file] = places.get(node).copied().unwrap_or_default().map(|bytes| bytes / 1024);
    let total = MEMORY_KIB / 2;
    let used = anon + file + (totals.memory.kernel() / 1024 + KERNEL_KIB) / 2;
    let rows = [
        ("MemTotal", total),
        ("MemFree", total.saturating_sub(used)),
        ("MemUsed", used.min(total)),
        ("FilePages", file),
        ("AnonPages", anon),
    ];
    let mut text = String::new();
    for (key, kib) in rows {
        let _ = writeln!(text, "Node {node} {:<15} {kib:>8} kB", format!("{key}:"));
    }
    text
}
