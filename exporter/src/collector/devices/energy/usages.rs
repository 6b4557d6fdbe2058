//! What each job held and used of each part of the node since it was looked at last.
//!
//! v2: `cpu.stat`, `cpuset.cpus`, `memory.current`, `memory.numa_stat` (Documentation/admin-guide/cgroup-v2.rst). v1:
//! `cpuacct.usage_percpu`, `cpuset.cpus`, `memory.numa_stat` (cgroup-v1/cpuacct.rst, cpusets.rst, memory.rst). The CPUs
//! are those that SLURM wrote (`ConstrainCores=yes`), not the effective ones: without a constraint every job would hold
//! the whole node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attribution::{Busy, Use};
use cgroups::{Cgroup, Controller, Version, View};
use cpu_topology::{CpuSet, Topology};
use durable_state::instant;
use kernel_files::Buffer;
use kernel_files::parse::{ParseError, fields, integer, lines, parse_integer};
use serde::{Deserialize, Serialize};
use slurm_jobs::JobRunId;

use super::machine::BusyTimes;
use crate::collector::job::cpu::cpu_time;

/// CPU time of a job so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spent {
    /// All of it, nanoseconds.
    pub(super) total_ns: u64,
    /// v1: by CPU.
    pub(super) by_cpu: Option<Vec<u64>>,
    /// v1: the inode of the directory that counted; a directory made again counts from 0.
    pub(super) directory: Option<u64>,
}

/// Memory by NUMA node, bytes: anonymous and page cache.
pub fn parse_numa_stat(bytes: &[u8]) -> Result<BTreeMap<u32, u64>, ParseError> {
    let mut nodes = BTreeMap::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        if !matches!(parts.next(), Some(b"anon" | b"file")) {
            continue;
        }
        add_nodes(parts, 1, number, &mut nodes)?;
    }
    Ok(nodes)
}

/// The same for v1, where `hierarchical_total` is in pages.
pub fn parse_numa_stat_v1(bytes: &[u8], page: u64) -> Result<BTreeMap<u32, u64>, ParseError> {
    let mut nodes = BTreeMap::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        if parts.next().is_some_and(|key| key.starts_with(b"hierarchical_total=")) {
            add_nodes(parts, page, number, &mut nodes)?;
        }
    }
    Ok(nodes)
}

/// `N0=5 N1=6`
fn add_nodes<'l>(
    parts: impl Iterator<Item = &'l [u8]>,
    unit: u64,
    line: usize,
    nodes: &mut BTreeMap<u32, u64>,
) -> Result<(), ParseError> {
    for part in parts {
        let mut halves = part.splitn(2, |byte| *byte == b'=');
        let node = halves
            .next()
            .and_then(|key| integer(key.strip_prefix(b"N")?))
            .and_then(|n| u32::try_from(n).ok());
        let amount = halves.next().and_then(integer);
        let (Some(node), Some(amount)) = (node, amount) else {
            return Err(ParseError::new(line, "not N<node>=<number>"));
        };
        let sum = nodes.entry(node).or_insert(0_u64);
        *sum = sum.saturating_add(amount.saturating_mul(unit));
    }
    Ok(())
}

/// Nanoseconds by CPU in `cpuacct.usage_percpu`.
pub fn parse_usage_percpu(bytes: &[u8]) -> Result<Vec<u64>, ParseError> {
    fields(bytes).map(|field| integer(field).ok_or(ParseError::new(1, "not an unsigned integer"))).collect()
}

/// A job's CPU time; `None` when it cannot be read (any more).
fn read_spent(view: &View<'_>, buffer: &mut Buffer) -> Option<Spent> {
    if view.version() == Version::V1 {
        let bytes = view.read(Controller::Cpuacct, "cpuacct.usage_percpu", buffer).ok()??;
        let by_cpu = parse_usage_percpu(bytes).ok()?;
        let total_ns = by_cpu.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        let directory = view.stat(Controller::Cpuacct).map(|stat| stat.inode);
        return Some(Spent { total_ns, by_cpu: Some(by_cpu), directory });
    }
    let usec = cpu_time(view, buffer)?;
    Some(Spent { total_ns: usec.saturating_mul(1000), ..Spent::default() })
}

/// A reading of one job, made when it starts and when a step of it ends. A job that comes and goes between two
/// readings of all jobs has no other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) spent: Option<Spent>,
    /// `cpuset.cpus` as it is.
    pub(super) cpuset: Option<Vec<u8>>,
}

impl Facts {
    pub(super) fn read(view: &View<'_>, buffer: &mut Buffer) -> Self {
        let spent = read_spent(view, buffer);
        // Empty where SLURM does not constrain cores, or not yet; absent without the controller.
        let cpuset = view.read(Controller::Cpuset, "cpuset.cpus", buffer).ok().flatten();
        Self { spent, cpuset: cpuset.filter(|cpus| !cpus.trim_ascii().is_empty()).map(<[u8]>::to_vec) }
    }
}

/// One job.
#[derive(Debug)]
struct JobUsage {
    cgroup: Arc<Cgroup>,
    from: Instant,
    until: Option<Instant>,
    /// The usage that is charged already, and the latest reading.
    attributed: Spent,
    spent: Spent,
    /// `cpuset.cpus` as last read, and whether that was not looked into yet.
    cpuset: Vec<u8>,
    fresh: bool,
    /// The CPUs that it holds; `None` when SLURM does not say.
    cpus: Option<CpuSet>,
    /// Memory by NUMA node; all of it under `None` on a node that has but one.
    memory: BTreeMap<Option<u32>, u64>,
    /// It was there before a restart, and was not found again yet.
    awaited: bool,
}

/// What is saved of one job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedUsage {
    #[serde(with = "instant")]
    from: Instant,
    #[serde(with = "instant::option")]
    until: Option<Instant>,
    attributed: Spent,
    spent: Spent,
    cpuset: Vec<u8>,
    memory: BTreeMap<Option<u32>, u64>,
}

/// All jobs that were there since the last look.
#[derive(Debug, Default)]
pub(super) struct JobUsages {
    runs: BTreeMap<JobRunId, JobUsage>,
}

/// Which parts of the usage are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) memory: bool,
    pub(super) page: u64,
}

impl JobUsages {
    /// A job is there. Its usage before that is not charged.
    pub(super) fn appeared(&mut self, run: JobRunId, cgroup: Arc<Cgroup>, facts: Facts, at: Instant) {
        if let Some(usage) = self.runs.get_mut(&run).filter(|usage| usage.awaited) {
            (usage.cgroup, usage.until, usage.awaited) = (cgroup, None, false);
            usage.take_in(facts);
            return;
        }
        let spent = facts.spent.unwrap_or_default();
        let usage = JobUsage {
            cgroup,
            from: at,
            until: None,
            attributed: spent.clone(),
            spent,
            cpuset: facts.cpuset.unwrap_or_default(),
            fresh: true,
            cpus: None,
            memory: BTreeMap::new(),
            awaited: false,
        };
        self.runs.insert(run, usage);
    }

    /// What is to be saved.
    pub(super) fn save(&self) -> BTreeMap<JobRunId, SavedUsage> {
        let save = |usage: &JobUsage| SavedUsage {
            from: usage.from,
            until: usage.until,
            attributed: usage.attributed.clone(),
            spent: usage.spent.clone(),
            cpuset: usage.cpuset.clone(),
            memory: usage.memory.clone(),
        };
        self.runs.iter().map(|(run, usage)| (*run, save(usage))).collect()
    }

    /// Takes over what an exporter before this one saw until a moment. A job that is not found again left then.
    pub(super) fn restore(saved: BTreeMap<JobRunId, SavedUsage>, seen: Instant) -> Self {
        let restore = |saved: SavedUsage| JobUsage {
            cgroup: Arc::new(Cgroup::gone(Version::V2)),
            from: saved.from,
            until: saved.until.or(Some(seen)),
            attributed: saved.attributed,
            spent: saved.spent,
            cpuset: saved.cpuset,
            fresh: true,
            cpus: None,
            memory: saved.memory,
            awaited: saved.until.is_none(),
        };
        Self { runs: saved.into_iter().map(|(run, saved)| (run, restore(saved))).collect() }
    }

    /// More directories of it are there, or fewer.
    pub(super) fn reopened(&mut self, run: JobRunId, cgroup: &Arc<Cgroup>) {
        if let Some(usage) = self.runs.get_mut(&run).filter(|usage| !Arc::ptr_eq(&usage.cgroup, cgroup)) {
            usage.cgroup = cgroup.clone();
        }
    }

    /// It was read on another occasion.
    pub(super) fn facts(&mut self, run: JobRunId, facts: Facts) {
        if let Some(usage) = self.runs.get_mut(&run) {
            usage.take_in(facts);
        }
    }

    /// It is not there any more.
    pub(super) fn left(&mut self, run: JobRunId, at: Instant) {
        if let Some(usage) = self.runs.get_mut(&run) {
            usage.until.get_or_insert(at);
        }
    }

    /// It is not retained any more.
    pub(super) fn forget(&mut self, run: JobRunId) {
        self.runs.remove(&run);
    }

    /// CPUs came or went: each job's share of them has to be read again.
    pub(super) fn topology_changed(&mut self) {
        self.runs.values_mut().for_each(|usage| usage.fresh = true);
    }

    /// Whether a job is known.
    pub(super) fn has(&self, run: JobRunId) -> bool {
        self.runs.contains_key(&run)
    }

    /// Reads the wanted usage of every present job.
    pub(super) fn read(&mut self, wanted: Wanted, topology: &Topology, buffer: &mut Buffer) {
        for usage in self.runs.values_mut() {
            if usage.until.is_none() {
                usage.read(wanted, topology, buffer);
            }
            usage.look_into_cpuset(topology);
        }
    }

    /// What each job had of a part between two looks.
    pub(super) fn uses(
        &self,
        (from, to): (Instant, Instant),
        (part, topology): (Option<u32>, &Topology),
        busy: Option<&BusyTimes>,
    ) -> BTreeMap<JobRunId, Use> {
        let Some(cpus) = topology.part(part).map(|part| &part.cpus) else { return BTreeMap::new() };
        let one = |(run, usage): (&JobRunId, &JobUsage)| {
            let present =
                usage.until.unwrap_or(to).min(to).saturating_duration_since(usage.from.max(from)).as_nanos();
            let held = usage.cpus.as_ref().map_or(0, |held| held.and(cpus).len());
            let used = Use {
                held_cpu_ns: present * u128::from(held),
                used_core_ns: usage.used(part, cpus, busy),
                held_byte_ns: present * u128::from(usage.memory_of(part, topology)),
            };
            (*run, used)
        };
        self.runs.iter().map(one).filter(|(_, used)| *used != Use::default()).collect()
    }

    /// The latest reading is charged now; jobs that left are dropped.
    pub(super) fn attributed(&mut self) {
        self.runs.retain(|_, usage| usage.until.is_none());
        for usage in self.runs.values_mut() {
            usage.attributed = usage.spent.clone();
        }
    }
}

impl JobUsage {
    /// CPU time older than the latest changes nothing.
    fn take_in(&mut self, facts: Facts) {
        if let Some(spent) = facts.spent {
            let anew = self.spent.directory.is_some() && spent.directory != self.spent.directory;
            if anew {
                self.attributed = Spent::default();
            }
            if anew || spent.total_ns >= self.spent.total_ns {
                self.spent = spent;
            }
        }
        if let Some(cpuset) = facts.cpuset.filter(|cpuset| *cpuset != self.cpuset) {
            self.cpuset = cpuset;
            self.fresh = true;
        }
    }

    fn look_into_cpuset(&mut self, topology: &Topology) {
        if std::mem::take(&mut self.fresh) {
            let set = CpuSet::parse(&self.cpuset).ok().filter(|set| !set.is_empty());
            self.cpus = set.map(|set| set.and(&topology.whole.cpus));
        }
    }

    fn read(&mut self, wanted: Wanted, topology: &Topology, buffer: &mut Buffer) {
        let cgroup = self.cgroup.clone();
        let view = cgroup.view();
        self.take_in(Facts::read(&view, buffer));
        if wanted.memory {
            self.read_memory(&view, wanted.page, topology, buffer);
        }
    }

    fn read_memory(&mut self, view: &View<'_>, page: u64, topology: &Topology, buffer: &mut Buffer) {
        let v1 = view.version() == Version::V1;
        if topology.sockets.len() <= 1 {
            let file = if v1 { "memory.usage_in_bytes" } else { "memory.current" };
            if let Ok(Some(bytes)) = view.read(Controller::Memory, file, buffer)
                && let Ok(bytes) = parse_integer(bytes)
            {
                self.memory = BTreeMap::from([(None, bytes)]);
            }
            return;
        }
        let Ok(Some(bytes)) = view.read(Controller::Memory, "memory.numa_stat", buffer) else { return };
        let nodes = if v1 { parse_numa_stat_v1(bytes, page) } else { parse_numa_stat(bytes) };
        if let Ok(nodes) = nodes {
            self.memory = nodes.into_iter().map(|(node, bytes)| (Some(node), bytes)).collect();
        }
    }

    fn memory_of(&self, part: Option<u32>, topology: &Topology) -> u64 {
        let nodes = topology.part(part).map(|part| &part.nodes);
        let there =
            |node: &Option<u32>| node.is_none_or(|node| nodes.is_some_and(|nodes| nodes.contains(node)));
        self.memory
            .iter()
            .filter(|(node, _)| there(node))
            .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Time for which it kept cores of a part busy since it was last taken into account, nanoseconds: its CPU time there, and of it
    /// what its CPUs' time was of that of their cores.
    fn used(&self, part: Option<u32>, cpus: &CpuSet, busy: Option<&BusyTimes>) -> u128 {
        let used = self.cpu_time(part, cpus, busy);
        let there = self.cpus.as_ref().map_or_else(|| cpus.clone(), |held| held.and(cpus));
        let Busy { cpus_ns, cores_ns } = busy.map(|busy| busy.of(&there)).unwrap_or_default();
        (used * cores_ns).checked_div(cpus_ns).unwrap_or(used)
    }

    /// CPU time on a part since it was last taken into account, nanoseconds.
    ///
    /// v2 counts it over all CPUs. A job with CPUs on one socket used all of it there. For a job that spans sockets
    /// it is split by how busy its CPUs were.
    fn cpu_time(&self, part: Option<u32>, cpus: &CpuSet, busy: Option<&BusyTimes>) -> u128 {
        if let Some(now) = &self.spent.by_cpu {
            let before = self.attributed.by_cpu.as_deref().unwrap_or_default();
            return sum_of(cpus, now).saturating_sub(sum_of(cpus, before));
        }
        let gained = u128::from(self.spent.total_ns.saturating_sub(self.attributed.total_ns));
        if part.is_none() {
            return gained;
        }
        let busy_of = |mask: &CpuSet| busy.map_or(0, |busy| busy.of(mask).cpus_ns);
        // Without a constraint it may have run anywhere.
        let Some(held) = &self.cpus else {
            let all: u128 = busy.iter().flat_map(|busy| busy.cpus.values()).map(Duration::as_nanos).sum();
            return (gained * busy_of(cpus)).checked_div(all).unwrap_or(0);
        };
        let here = held.and(cpus);
        let (part, all) = match busy_of(held) {
            0 => (u128::from(here.len()), u128::from(held.len())),
            all => (busy_of(&here), all),
        };
        (gained * part).checked_div(all).unwrap_or(0)
    }
}

fn sum_of(cpus: &CpuSet, by_cpu: &[u64]) -> u128 {
    let of = |cpu: u32| usize::try_from(cpu).ok().and_then(|cpu| by_cpu.get(cpu)).copied();
    cpus.iter().filter_map(of).map(u128::from).sum()
}

#[cfg(test)]
mod tests;
