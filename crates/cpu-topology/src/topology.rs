//! Which CPUs are online, which sockets, cores, caches and NUMA nodes they belong to, and where the memory is.
//!
//! `sys/devices/system/cpu` (Documentation/admin-guide/cputopology.rst), `sys/devices/system/node`. All of it holds
//! while the same CPUs are [`online`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kernel_files::parse::{ParseError, fields, integer, lines, parse_integer};
use kernel_files::{NodeFiles, ReadError, SourceError};

use crate::CpuSet;
use crate::microarchitecture::parse_cpuinfo;

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";
const SIBLINGS: &str = "thread_siblings_list";

/// Reads a set. `None` where the kernel has no such file.
fn set(files: &mut NodeFiles, file: &str, name: &'static str) -> Result<Option<CpuSet>, SourceError> {
    // More than any kernel is built for (`NR_CPUS` 8192).
    const MOST: u64 = 65536;
    let set = match files.read(file) {
        Err(ReadError::Gone | ReadError::Unsupported) => return Ok(None),
        read => read.map_err(SourceError::reading(name, ""))?,
    };
    let set = CpuSet::parse(set).map_err(SourceError::parsing(name))?;
    let error = ParseError { line: 1, reason: "more CPUs than any kernel has" };
    if set.len() > MOST { Err(SourceError::Malformed { file: name, error }) } else { Ok(Some(set)) }
}

fn number(files: &mut NodeFiles, file: &str) -> Option<u32> {
    let number = files.read(file).ok().and_then(|bytes| parse_integer(bytes).ok())?;
    u32::try_from(number).ok()
}

/// The CPUs online. When this is another set than before, CPUs came or went, and the topology has to be read again.
pub fn online(files: &mut NodeFiles) -> Result<Option<CpuSet>, SourceError> {
    const ONLINE: &str = "sys/devices/system/cpu/online";
    set(files, ONLINE, ONLINE)
}

/// The CPUs that there may ever be: those online, and those that can be plugged in.
pub fn possible(files: &mut NodeFiles) -> Result<Option<CpuSet>, SourceError> {
    const POSSIBLE: &str = "sys/devices/system/cpu/possible";
    set(files, POSSIBLE, POSSIBLE)
}

/// The NUMA nodes online.
pub fn numa_nodes(files: &mut NodeFiles) -> Result<Option<CpuSet>, SourceError> {
    const ONLINE: &str = "sys/devices/system/node/online";
    set(files, ONLINE, ONLINE)
}

/// How many CPU packages these CPUs are on. `None` when a CPU does not say.
pub fn count_packages(files: &mut NodeFiles, cpus: &CpuSet) -> Result<Option<u64>, SourceError> {
    count_groups(files, cpus, "core_siblings_list")
}

/// How many physical cores these CPUs are threads of. `None` when a CPU does not say.
pub fn count_cores(files: &mut NodeFiles, cpus: &CpuSet) -> Result<Option<u64>, SourceError> {
    count_groups(files, cpus, SIBLINGS)
}

/// How many of the CPUs are the first of their group, which is how many groups there are. The files list online CPUs
/// only, and unlike core and package numbers their content is the same for every architecture: numbers repeat between
/// dies and are -1 or arbitrary on some ARM firmware.
fn count_groups(
    files: &mut NodeFiles,
    cpus: &CpuSet,
    name: &'static str,
) -> Result<Option<u64>, SourceError> {
    let mut groups = 0;
    for cpu in cpus.iter() {
        let Some(siblings) = set(files, &format!("{CPU}/cpu{cpu}/topology/{name}"), name)? else {
            return Ok(None);
        };
        groups += u64::from(siblings.iter().next() == Some(cpu));
    }
    Ok((groups > 0).then_some(groups))
}

/// The memory of a NUMA node, bytes (Documentation/ABI/stable/sysfs-devices-node).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// What is installed and the kernel has.
    pub total: Option<u64>,
    /// What is not free; page cache is used.
    pub used: Option<u64>,
}

/// Parses a NUMA node's `meminfo`.
pub fn parse_node_memory(bytes: &[u8]) -> Result<NodeMemory, ParseError> {
    let mut memory = NodeMemory::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        // Node 0 MemTotal:       16333192 kB
        let mut parts = fields(line).skip(2);
        let field = match parts.next() {
            Some(b"MemTotal:") => &mut memory.total,
            Some(b"MemUsed:") => &mut memory.used,
            _ => continue,
        };
        let kib = parts.next().and_then(integer).ok_or(ParseError::new(number, "no number"))?;
        *field = kib.checked_mul(1024);
    }
    Ok(memory)
}

/// The memory of a NUMA node, as it is now; nothing where that cannot be read.
pub fn node_memory(files: &mut NodeFiles, node: u32) -> NodeMemory {
    let memory = files.read(&format!("{NODE}/node{node}/meminfo"));
    memory.ok().and_then(|bytes| parse_node_memory(bytes).ok()).unwrap_or_default()
}

/// A socket, or the whole node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// CPUs online.
    pub cpus: CpuSet,
    /// NUMA nodes.
    pub nodes: CpuSet,
    /// Memory, bytes, where known.
    pub memory: Option<u64>,
}

/// What the node is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// By `topology/physical_package_id`. Firmware that numbers no packages (-1) leaves its CPUs out. NUMA nodes
    /// without CPUs (HBM in flat mode, CXL) belong to no socket.
    pub sockets: BTreeMap<u32, Part>,
    /// All of it.
    pub whole: Part,
    /// The first thread of each CPU's core, once [`read_cores`](Self::read_cores) was called. A CPU that is not in it is a core of
    /// its own.
    pub cores: BTreeMap<u32, u32>,
    /// Whether the energy counter is one of the whole socket even where the kernel reports several dies in it.
    ///
    /// AMD's and Hygon's are. From Linux 6.9 on, until "perf/x86/rapl: Fix the energy-pkg event for AMD CPUs" and its
    /// like in powercap, the kernel took chiplets for dies and showed the same register once for each of them.
    pub one_counter_per_socket: bool,
}

impl Topology {
    /// Reads it for the CPUs that are online now, none where that cannot be read.
    pub fn current(files: &mut NodeFiles) -> Self {
        let online = online(files).ok().flatten().unwrap_or_default();
        Self::read(files, online)
    }

    /// Reads it for the CPUs [`online`]. What a file does not say is not known; the rest is.
    pub fn read(files: &mut NodeFiles, online: CpuSet) -> Self {
        let mut cpus_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in online.iter() {
            if let Some(socket) = number(files, &format!("{CPU}/cpu{cpu}/topology/physical_package_id")) {
                cpus_of.entry(socket).or_default().push(cpu);
            }
        }
        let part = |cpus: Vec<u32>| Part { cpus: cpus.into_iter().collect(), ..Part::default() };
        let mut sockets: BTreeMap<u32, Part> =
            cpus_of.into_iter().map(|(socket, cpus)| (socket, part(cpus))).collect();
        let mut whole = Part { cpus: online, ..Part::default() };
        for node in numa_nodes(files).ok().flatten().unwrap_or_default().iter().take(1024) {
            let cpus = set(files, &format!("{NODE}/node{node}/cpulist"), "cpulist");
            let first = cpus.ok().flatten().and_then(|cpus| cpus.iter().next());
            let memory = node_memory(files, node).total;
            let socket = sockets.values_mut().find(|part| first.is_some_and(|cpu| part.cpus.contains(cpu)));
            for part in socket.into_iter().chain([&mut whole]) {
                part.nodes.push(node, node);
                part.memory =
                    Some(part.memory.unwrap_or(0).saturating_add(memory.unwrap_or(0))).filter(|sum| *sum > 0);
            }
        }
        let vendor = files.read_start("proc/cpuinfo").ok().and_then(|start| parse_cpuinfo(start).vendor);
        let one_counter_per_socket =
            vendor.is_some_and(|vendor| matches!(vendor.as_str(), "AuthenticAMD" | "HygonGenuine"));
        Self { sockets, whole, cores: BTreeMap::new(), one_counter_per_socket }
    }

    /// A socket, or for `None` the whole node; `None` for a socket that is not there.
    pub fn part(&self, socket: Option<u32>) -> Option<&Part> {
        match socket {
            Some(socket) => self.sockets.get(&socket),
            None => Some(&self.whole),
        }
    }

    /// The socket of a CPU.
    pub fn socket(&self, cpu: u32) -> Option<u32> {
        self.sockets.iter().find(|(_, part)| part.cpus.contains(cpu)).map(|(socket, _)| *socket)
    }

    /// The sockets that these CPUs and NUMA nodes belong to. `None` when a set is empty, or a NUMA node of no socket is in it.
    /// CPUs that are offline run nothing.
    pub fn sockets_of(&self, cpus: &CpuSet, nodes: &CpuSet) -> Option<BTreeSet<u32>> {
        let known = |node| self.sockets.values().any(|part| part.nodes.contains(node));
        if cpus.is_empty() || nodes.is_empty() || !nodes.iter().all(known) {
            return None;
        }
        let there = |part: &Part| part.cpus.intersects(cpus) || part.nodes.intersects(nodes);
        Some(self.sockets.iter().filter(|(_, part)| there(part)).map(|(socket, _)| *socket).collect())
    }

    /// Reads which CPUs are threads of one core. One file per CPU.
    pub fn read_cores(&mut self, files: &mut NodeFiles) {
        let mut first = |cpu: u32| {
            let siblings = set(files, &format!("{CPU}/cpu{cpu}/topology/{SIBLINGS}"), SIBLINGS);
            Some((cpu, siblings.ok().flatten()?.iter().next()?))
        };
        self.cores = self.whole.cpus.iter().filter_map(&mut first).collect();
    }

    /// The time for which the cores of these CPUs were busy, divided over their threads: what both did at once counts once.
    pub fn core_times(&self, busy: &BTreeMap<u32, Duration>) -> BTreeMap<u32, Duration> {
        let core = |cpu: &u32| self.cores.get(cpu).copied().unwrap_or(*cpu);
        let mut cores: BTreeMap<u32, (Duration, Duration)> = BTreeMap::new();
        for (cpu, busy) in busy {
            let (most, sum) = cores.entry(core(cpu)).or_default();
            (*most, *sum) = ((*most).max(*busy), *sum + *busy);
        }
        let share = |(cpu, busy): (&u32, &Duration)| {
            let (most, sum) = cores.get(&core(cpu)).copied().unwrap_or((*busy, *busy));
            let nanos = (busy.as_nanos() * most.as_nanos()).checked_div(sum.as_nanos()).unwrap_or(0);
            (*cpu, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
        };
        busy.iter().map(share).collect()
    }

    /// The socket of each L3 cache by the cache's id (`cache/index*/id`, Linux 4.11), by which resctrl names its domains.
    /// Reads two files per CPU.
    pub fn read_l3_caches(&self, files: &mut NodeFiles) -> BTreeMap<u32, u32> {
        let mut l3 = |cpu: u32| {
            let at = |index: u32, file: &str| format!("{CPU}/cpu{cpu}/cache/index{index}/{file}");
            // The third is it nearly everywhere.
            let mut indices = [3, 2, 4, 1, 0].into_iter();
            let index = indices.find(|index| number(files, &at(*index, "level")) == Some(3))?;
            Some((number(files, &at(index, "id"))?, self.socket(cpu)?))
        };
        self.whole.cpus.iter().filter_map(&mut l3).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use test_machine::Machine;

    use super::*;

    /// Two sockets of two CPUs, a NUMA node each and an L3 cache for each CPU. The third NUMA node has memory alone.
    fn machine() -> (Machine, NodeFiles) {
        let machine = Machine::new();
        machine.write(&format!("{CPU}/online"), "0-3\n").write(&format!("{NODE}/online"), "0-2\n");
        for cpu in 0..4 {
            let at = |file: &str| format!("{CPU}/cpu{cpu}/{file}");
            machine.write(&at("topology/physical_package_id"), format!("{}\n", cpu / 2));
            machine.write(&at("cache/index3/level"), "3\n").write(&at("cache/index3/id"), format!("{cpu}\n"));
        }
        for (node, cpus) in ["0-1\n", "2-3\n", "\n"].into_iter().enumerate() {
            let at = |file: &str| format!("{NODE}/node{node}/{file}");
            machine.write(&at("cpulist"), cpus);
            machine.write(&at("meminfo"), format!("Node {node} MemTotal: {} kB\n", 4 + node));
        }
        let files = NodeFiles::new(&Arc::new(machine.roots()));
        (machine, files)
    }

    fn cpus(list: &str) -> CpuSet {
        CpuSet::parse(list.as_bytes()).unwrap()
    }

    #[test]
    fn sockets_have_their_cpus_their_memory_and_their_caches() {
        let (_machine, mut files) = machine();
        let topology = Topology::current(&mut files);
        let part =
            |list, nodes, kib: u64| Part { cpus: cpus(list), nodes: cpus(nodes), memory: Some(kib * 1024) };
        assert_eq!(topology.part(Some(0)), Some(&part("0-1", "0", 4)));
        assert_eq!(topology.part(Some(1)), Some(&part("2-3", "1", 5)));
        assert_eq!(topology.part(Some(2)), None);
        assert_eq!(topology.part(None), Some(&part("0-3", "0-2", 15)));
        assert_eq!((topology.socket(1), topology.socket(2), topology.socket(4)), (Some(0), Some(1), None));
        assert_eq!(topology.read_l3_caches(&mut files), BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)]));
    }

    #[test]
    fn what_two_threads_of_a_core_do_at_once_counts_once() {
        let (machine, mut files) = machine();
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            machine.write(&format!("{CPU}/cpu{cpu}/topology/{SIBLINGS}"), format!("{siblings}\n"));
        }
        let mut topology = Topology::current(&mut files);
        let times = |list: [u64; 4]| (0..).zip(list.map(Duration::from_millis)).collect::<BTreeMap<u32, _>>();
        assert_eq!(
            topology.core_times(&times([9, 4, 9, 0])),
            times([9, 4, 9, 0]),
            "nothing is known of cores"
        );
        topology.read_cores(&mut files);
        assert_eq!(topology.core_times(&times([100, 40, 100, 0])), times([50, 40, 50, 0]));
        // The core was busy for 90: a third of it is the one's, two thirds are the other's.
        assert_eq!(topology.core_times(&times([45, 0, 90, 0])), times([30, 0, 60, 0]));
        assert_eq!(topology.core_times(&times([0; 4])), times([0; 4]));
    }

    #[test]
    fn a_job_is_on_the_sockets_of_its_cpus_and_of_its_memory() {
        let (_machine, mut files) = machine();
        let topology = Topology::current(&mut files);
        let of = |list, nodes| topology.sockets_of(&cpus(list), &cpus(nodes));
        assert_eq!(of("0-1", "0"), Some(BTreeSet::from([0])));
        assert_eq!(of("0-1", "0-1"), Some(BTreeSet::from([0, 1])), "its memory may lie on the other socket");
        assert_eq!(of("9", "1"), Some(BTreeSet::from([1])), "its CPU is offline");
        assert_eq!(of("0-1", "0,2"), None, "memory of no socket");
        assert_eq!(of("", "0"), None, "not constrained, or not yet");
    }

    #[test]
    fn firmware_that_knows_no_sockets_leaves_the_node() {
        let (machine, mut files) = machine();
        for cpu in 0..4 {
            machine.write(&format!("{CPU}/cpu{cpu}/topology/physical_package_id"), "-1\n");
        }
        let topology = Topology::current(&mut files);
        assert!(topology.sockets.is_empty());
        assert_eq!((topology.whole.cpus.len(), topology.whole.nodes.len()), (4, 3));
    }

    #[test]
    fn absent_is_none_and_what_no_kernel_writes_is_refused() {
        let (machine, mut files) = machine();
        machine.write(&format!("{CPU}/online"), "0-4294967295\n");
        assert_eq!(online(&mut files).unwrap_err().reason(), "malformed");
        assert_eq!(count_cores(&mut files, &cpus("0-3")), Ok(None));
        assert_eq!(online(&mut NodeFiles::new(&Arc::new(Machine::new().roots()))), Ok(None));
    }

    #[test]
    fn only_amds_energy_counter_is_one_per_socket() {
        for (vendor, one) in [("AuthenticAMD", true), ("HygonGenuine", true), ("GenuineIntel", false)] {
            let (machine, mut files) = machine();
            machine.write("proc/cpuinfo", format!("processor\t: 0\nvendor_id\t: {vendor}\n\n"));
            assert_eq!(Topology::current(&mut files).one_counter_per_socket, one, "{vendor}");
        }
    }

    #[test]
    fn a_nodes_memory_is_in_kibibytes() {
        let meminfo = b"\nNode 1 MemTotal:       16 kB\nNode 1 MemFree:  3 kB\nNode 1 MemUsed: 13 kB\n";
        let memory = NodeMemory { total: Some(16384), used: Some(13312) };
        assert_eq!(parse_node_memory(meminfo).unwrap(), memory);
        assert_eq!(parse_node_memory(b"Node 1 MemFree: 3 kB\n").unwrap(), NodeMemory::default());
        assert_eq!(parse_node_memory(b"Node 1 MemTotal: x kB\n"), Err(ParseError::new(1, "no number")));
    }
}
