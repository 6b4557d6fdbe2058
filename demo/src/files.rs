//! The files of a cgroup in the kernel's formats (Documentation/admin-guide/cgroup-v2.rst).

use std::fmt::Write;

use cpu_topology::CpuSet;

use super::counters::{Bandwidth, Counters, Memory, Places, RESOURCES, Stall};
use super::group::{Group, Published};
use super::layout::{DISKS, socket_of};

const CONTROLLERS: &str = "cpuset cpu io memory pids\n";

/// A list as in `cpuset.cpus`: `0-3,8`.
pub(super) fn cpu_list(cpus: &[u32]) -> String {
    cpus.iter().copied().collect::<CpuSet>().to_string()
}

/// A PSI file.
pub(super) fn pressure([some, full]: [Stall; 2]) -> String {
    let line = |name: &str, stall: Stall| {
        let [ten, sixty, three_hundred] = stall.averages;
        let total = stall.total;
        format!("{name} avg10={ten:.2} avg60={sixty:.2} avg300={three_hundred:.2} total={total}\n")
    };
    line("some", some) + &line("full", full)
}

/// `cgroup.events`. Both forms have the same length: the file is changed in place.
pub(super) fn events(populated: bool) -> String {
    format!("populated {}\nfrozen 0\n", u8::from(populated))
}

fn limit(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max\n".to_owned(), |limit| format!("{limit}\n"))
}

/// Name and content of the files that never change. `cpus` are those that the group may use.
pub(super) fn fixed(group: &Group, cpus: &[u32]) -> Vec<(&'static str, String)> {
    let leaf = group.children.is_empty() && !group.processes.is_empty();
    let on = |socket| cpus.iter().any(|cpu| socket_of(*cpu) == socket);
    let mems = match (on(0), on(1)) {
        (true, true) => "0-1\n",
        (false, true) => "1\n",
        _ => "0\n",
    };
    let mut files = vec![
        ("cgroup.controllers", CONTROLLERS.to_owned()),
        ("cgroup.subtree_control", if leaf { String::new() } else { CONTROLLERS.to_owned() }),
        ("cpuset.cpus.effective", cpu_list(cpus) + "\n"),
        ("cpuset.mems.effective", mems.to_owned()),
    ];
    if group.name.is_empty() {
        return files;
    }
    let own = group.limits.cpus.as_ref();
    let line = |text: &str| format!("{text}\n");
    files.extend([
        ("cgroup.type", line("domain")),
        ("cgroup.freeze", line("0")),
        ("cgroup.events", events(group.totals.populated())),
        ("cpu.max", format!("{} 100000\n", limit(group.bandwidth.quota).trim_end())),
        ("cpu.weight", line("100")),
        ("cpuset.cpus", line(&own.map(|cpus| cpu_list(cpus)).unwrap_or_default())),
        ("cpuset.mems", line(if own.is_some() { mems.trim_end() } else { "" })),
        ("memory.max", limit(group.limits.memory)),
        ("memory.high", line("max")),
        ("memory.low", line("0")),
        ("memory.min", line("0")),
        ("memory.oom.group", line("0")),
        ("memory.swap.max", line("max")),
        ("memory.swap.current", line("0")),
        ("memory.swap.events", "high 0\nmax 0\nfail 0\n".to_owned()),
        ("pids.max", line("max")),
    ]);
    files
}

/// Name and content of the files that differ from `before`.
pub(super) fn changing(group: &Group, before: Option<&Published>) -> Vec<(&'static str, String)> {
    let root = group.name.is_empty();
    let now = group.now();
    let changed = |differs: fn(&Published, &Published) -> bool| before.is_none_or(|was| differs(was, &now));
    let mut files = Vec::new();
    let Published { totals, bandwidth, pressure: stalls, .. } = now;
    if changed(|a, b| a.members_version != b.members_version) {
        files.push(("cgroup.procs", ids(group, |_| 1)));
        files.push(("cgroup.threads", ids(group, |threads| threads)));
    }
    if changed(|a, b| cpu(a) != cpu(b)) {
        files.push(("cpu.stat", cpu_stat(&totals.counters, (!root).then_some(&bandwidth))));
    }
    if changed(|a, b| a.totals.memory != b.totals.memory || faults(a) != faults(b)) {
        files.push(("memory.stat", memory_stat(&totals.memory, &totals.counters)));
    }
    if changed(|a, b| a.totals.places != b.totals.places) {
        files.push(("memory.numa_stat", numa_stat(totals.places)));
    }
    if changed(|a, b| a.totals.counters.io != b.totals.counters.io) {
        files.push(("io.stat", io_stat(&totals.counters)));
    }
    if changed(|a, b| a.totals.descendants != b.totals.descendants) {
        let text = format!("nr_descendants {}\nnr_dying_descendants 0\n", totals.descendants);
        files.push(("cgroup.stat", text));
    }
    const PRESSURES: [&str; 3] = ["cpu.pressure", "io.pressure", "memory.pressure"];
    for ((file, at), stalls) in PRESSURES.into_iter().zip(0..RESOURCES.len()).zip(stalls) {
        if before.is_none_or(|was| was.pressure.get(at) != Some(&stalls)) {
            files.push((file, pressure(stalls)));
        }
    }
    if root {
        return files;
    }
    let mut value = |name, of: fn(&Published) -> u64| {
        if before.is_none_or(|was| of(was) != of(&now)) {
            files.push((name, format!("{}\n", of(&now))));
        }
    };
    value("memory.current", |p| p.totals.memory.current());
    value("memory.peak", |p| p.totals.peak);
    value("pids.current", |p| p.totals.memory.threads);
    value("pids.peak", |p| p.totals.threads_peak);
    let ooms = |p: &Published| {
        let Counters { limit_hits, ooms, oom_kills, .. } = p.totals.counters;
        [limit_hits, ooms, oom_kills]
    };
    if before.is_none_or(|was| ooms(was) != ooms(&now)) {
        let [max, oom, oom_kill] = ooms(&now);
        let text = format!(
            "low 0\nhigh 0\nmax {max}\noom {oom}\noom_kill {oom_kill}\noom_group_kill 0\nsock_throttled 0\n"
        );
        files.push(("memory.events", text));
    }
    files
}

fn cpu(p: &Published) -> ([u64; 2], Bandwidth) {
    ([p.totals.counters.user, p.totals.counters.system], p.bandwidth)
}

fn faults(p: &Published) -> [u64; 2] {
    [p.totals.counters.page_faults, p.totals.counters.major_faults]
}

fn ids(group: &Group, each: fn(u64) -> u64) -> String {
    let mut text = String::new();
    for process in &group.processes {
        for id in process.pid..process.pid + each(process.threads) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{id}");
        }
    }
    text
}

fn cpu_stat(counters: &Counters, bandwidth: Option<&Bandwidth>) -> String {
    let Counters { user, system, .. } = counters;
    let mut text = format!("usage_usec {}\nuser_usec {user}\nsystem_usec {system}\n", user + system);
    if let Some(Bandwidth { periods, throttled, throttled_usec, .. }) = bandwidth {
        let _ = write!(
            text,
            "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {throttled_usec}\nnr_bursts 0\nburst_usec 0\n"
        );
    }
    text
}

fn io_stat(counters: &Counters) -> String {
    let mut text = String::new();
    for ((number, _), io) in DISKS.iter().zip(counters.io).filter(|(_, io)| io.reads + io.writes > 0) {
        let _ = writeln!(
            text,
            "{number} rbytes={} wbytes={} rios={} wios={} dbytes=0 dios=0",
            io.read_bytes, io.written_bytes, io.reads, io.writes
        );
    }
    text
}

/// The kernel's other fields are left out: the simulation does not know their NUMA nodes.
fn numa_stat([near, far]: Places) -> String {
    let mut text = String::new();
    for ((key, near), far) in ["anon", "file"].into_iter().zip(near).zip(far) {
        let _ = writeln!(text, "{key} N0={near} N1={far}");
    }
    text
}

fn memory_stat(memory: &Memory, counters: &Counters) -> String {
    let Memory { anon, file, shmem, mapped, page_tables, .. } = *memory;
    let cache = file - shmem;
    // tmpfs pages are on the lists of anonymous memory.
    let swappable = anon + shmem;
    let slab = memory.slab_reclaimable() + memory.slab_unreclaimable();
    let rows = [
        ("anon", anon),
        ("file", file),
        ("kernel", memory.kernel()),
        ("kernel_stack", memory.kernel_stack()),
        ("pagetables", page_tables),
        ("sec_pagetables", 0),
        ("percpu", memory.per_cpu()),
        ("sock", 0),
        ("vmalloc", 0),
        ("shmem", shmem),
        ("zswap", 0),
        ("zswapped", 0),
        ("file_mapped", mapped),
        ("file_dirty", 0),
        ("file_writeback", 0),
        ("swapcached", 0),
        ("anon_thp", anon / 2 / (2 << 20) * (2 << 20)),
        ("file_thp", 0),
        ("shmem_thp", 0),
        ("inactive_anon", swappable - swappable / 8192 * 4096),
        ("active_anon", swappable / 8192 * 4096),
        ("inactive_file", cache - cache / 8192 * 4096),
        ("active_file", cache / 8192 * 4096),
        ("unevictable", 0),
        ("slab_reclaimable", memory.slab_reclaimable()),
        ("slab_unreclaimable", memory.slab_unreclaimable()),
        ("slab", slab),
        ("workingset_refault_anon", 0),
        ("workingset_refault_file", 0),
        ("pgscan", 0),
        ("pgsteal", 0),
        ("pgfault", counters.page_faults),
        ("pgmajfault", counters.major_faults),
        ("thp_fault_alloc", 0),
        ("thp_collapse_alloc", 0),
    ];
    let mut text = String::new();
    for (key, value) in rows {
        let _ = writeln!(text, "{key} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_length() {
        assert_eq!(events(true), "populated 1\nfrozen 0\n");
        assert_eq!(events(true).len(), events(false).len());
    }
}
