//! The parts of a node that energy is measured of, and how busy their CPUs were.
//!
//! `sys/devices/system/cpu/{online,cpu*/topology/physical_package_id}` (Documentation/admin-guide/cputopology.rst),
//! `sys/devices/system/node/node*/{cpulist,meminfo}`; read again when the set of online CPUs changes. `/proc/stat` tells
//! each CPU's idle time, exact on kernels that stop the tick of idle CPUs (`get_cpu_idle_time_us`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cpu_topology::CpuSet;
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer, lines};

use crate::collector::CollectError;

const ONLINE: &str = "sys/devices/system/cpu/online";
const STAT: &str = "proc/stat";
/// More than any kernel is built for (`NR_CPUS` 8192): a list beyond is not believed.
const MOST_CPUS: u64 = 65536;

/// Idle time of each CPU in `/proc/stat`, waiting for I/O included: such a CPU does nothing. Ticks of `USER_HZ`, 100 a
/// second on every architecture.
pub fn parse_cpu_idle(bytes: &[u8]) -> Result<BTreeMap<u32, u64>, ParseError> {
    let mut idle = BTreeMap::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let cpu = parts.next().and_then(|key| integer(key.strip_prefix(b"cpu")?));
        let Some(cpu) = cpu.and_then(|cpu| u32::try_from(cpu).ok()) else { continue };
        let mut ticks = parts.skip(3).take(2).map(integer);
        let (Some(rests), waits) = (ticks.next().flatten(), ticks.next().flatten()) else {
            return Err(ParseError::new(number, "no idle time"));
        };
        idle.insert(cpu, rests.saturating_add(waits.unwrap_or(0)));
    }
    Ok(idle)
}

/// The memory of a NUMA node in its `meminfo`, bytes.
pub fn parse_node_memory(bytes: &[u8]) -> Result<Option<u64>, ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        // Node 0 MemTotal:       16333192 kB
        let mut parts = fields(line).skip(2);
        if parts.next() == Some(b"MemTotal:") {
            let kib = parts.next().and_then(integer).ok_or(ParseError::new(number, "no number"))?;
            return Ok(kib.checked_mul(1024));
        }
    }
    Ok(None)
}

/// A socket, or the whole node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// CPUs online.
    pub(super) cpus: CpuSet,
    /// NUMA nodes.
    pub(super) nodes: Vec<u32>,
    /// Memory, bytes, where known.
    pub(super) memory: Option<u64>,
}

/// What the node is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Topology {
    /// By number of socket.
    pub(super) sockets: BTreeMap<u32, Part>,
    /// All of it.
    pub(super) whole: Part,
}

impl Topology {
    /// The part that a zone is of; `None` for a socket that is not there.
    pub(super) fn part(&self, socket: Option<u32>) -> Option<&Part> {
        match socket {
            Some(socket) => self.sockets.get(&socket),
            None => Some(&self.whole),
        }
    }
}

/// How long a CPU was busy, as a sum that only grows: idle time steps by 10 ms and back now and then, and what is told
/// of an interval must not be more than what really was, on the long run.
#[derive(Debug)]
struct Busy {
    since: Instant,
    idle_then: u64,
    told: Duration,
}

impl Busy {
    fn advance(&mut self, now: Instant, idle: u64) -> Duration {
        let Some(idled) = idle.checked_sub(self.idle_then) else {
            // A CPU that was offline may have lost its idle time: it begins anew.
            *self = Self { since: now, idle_then: idle, told: Duration::ZERO };
            return Duration::ZERO;
        };
        let passed = now.saturating_duration_since(self.since);
        let busy = passed.saturating_sub(Duration::from_millis(idled.saturating_mul(10))).max(self.told);
        busy.saturating_sub(std::mem::replace(&mut self.told, busy))
    }
}

/// Looks at the node.
#[derive(Debug)]
pub(super) struct Machine {
    files: NodeFiles,
    stamp: Vec<u8>,
    topology: Topology,
    busy: BTreeMap<u32, Busy>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Time each CPU was busy since the last look; CPUs that were not there then are not in it. `None` when it is not known.
    pub(super) busy: Option<BTreeMap<u32, Duration>>,
    /// Whether CPUs came or went.
    pub(super) changed: bool,
}

impl Machine {
    pub(super) fn new(files: NodeFiles) -> Self {
        Self { files, stamp: Vec::new(), topology: Topology::default(), busy: BTreeMap::new() }
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Looks at which CPUs there are and what they did.
    pub(super) fn look(&mut self, now: Instant) -> Result<Look, CollectError> {
        let online = self.files.need(ONLINE, "a sysfs with CPUs")?;
        let changed = self.stamp != online;
        if changed {
            self.stamp = online.to_vec();
            let cpus = CpuSet::parse(&self.stamp).map_err(CollectError::parsing(ONLINE))?;
            self.topology = self.find(&cpus)?;
        }
        let busy = self.look_at_busy(now)?;
        Ok(Look { busy: (!changed).then_some(busy), changed })
    }

    fn look_at_busy(&mut self, now: Instant) -> Result<BTreeMap<u32, Duration>, CollectError> {
        let bytes = self.files.need(STAT, "a procfs with /proc/stat")?;
        let idle = parse_cpu_idle(bytes).map_err(CollectError::parsing(STAT))?;
        self.busy.retain(|cpu, _| idle.contains_key(cpu));
        let mut told = BTreeMap::new();
        for (cpu, idle) in idle {
            match self.busy.get_mut(&cpu) {
                Some(busy) => {
                    told.insert(cpu, busy.advance(now, idle));
                }
                None => {
                    self.busy.insert(cpu, Busy { since: now, idle_then: idle, told: Duration::ZERO });
                }
            }
        }
        Ok(told)
    }

    fn find(&mut self, online: &CpuSet) -> Result<Topology, CollectError> {
        let mut topology = Topology::default();
        if online.len() > MOST_CPUS {
            return Ok(topology);
        }
        // ARM firmware may not say: then sockets are not known, the node is.
        let sockets = cpu_topology::Topology::read(&mut self.files);
        topology.whole.cpus = online.clone();
        for socket in sockets.sockets() {
            let cpus = online.iter().filter(|cpu| sockets.socket(*cpu) == Some(socket)).collect();
            topology.sockets.insert(socket, Part { cpus, ..Part::default() });
        }
        const NODES: &str = "sys/devices/system/node/online";
        let nodes =
            self.files.read(NODES).ok().and_then(|bytes| CpuSet::parse(bytes).ok()).unwrap_or_default();
        for node in nodes.iter().take(1024) {
            let list = self.files.read(&format!("sys/devices/system/node/node{node}/cpulist"));
            let first =
                list.ok().and_then(|bytes| CpuSet::parse(bytes).ok()).and_then(|cpus| cpus.iter().next());
            let memory = self.files.read(&format!("sys/devices/system/node/node{node}/meminfo"));
            let memory = memory.ok().and_then(|bytes| parse_node_memory(bytes).ok().flatten());
            let socket =
                topology.sockets.values_mut().find(|part| first.is_some_and(|cpu| part.cpus.contains(cpu)));
            for part in socket.into_iter().chain([&mut topology.whole]) {
                part.nodes.push(node);
                part.memory =
                    Some(part.memory.unwrap_or(0).saturating_add(memory.unwrap_or(0))).filter(|sum| *sum > 0);
            }
        }
        Ok(topology)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::testing::Machine as Laid;
    use super::*;

    #[test]
    fn idle_time_is_that_of_each_cpu_with_its_waiting() {
        let stat = b"cpu  9 9 9 900 9 0 0 0\ncpu0 1 2 3 400 5 0 0 0\ncpu12 1 2 3 500\nintr 5 6\nctxt 7\n";
        assert_eq!(parse_cpu_idle(stat).unwrap(), BTreeMap::from([(0, 405), (12, 500)]));
        assert_eq!(parse_cpu_idle(b"cpu0 1 2 3\n"), Err(ParseError::new(1, "no idle time")));
        assert_eq!(parse_cpu_idle(b"cpu0 1 2 3 4"), Err(ParseError::new(1, "torn line")));
        assert!(parse_cpu_idle(b"").unwrap().is_empty());
    }

    #[test]
    fn a_nodes_memory_is_in_kibibytes() {
        let meminfo = b"\nNode 1 MemTotal:       16 kB\nNode 1 MemFree:  3 kB\n";
        assert_eq!(parse_node_memory(meminfo).unwrap(), Some(16384));
        assert_eq!(parse_node_memory(b"Node 1 MemFree: 3 kB\n").unwrap(), None);
        assert_eq!(parse_node_memory(b"Node 1 MemTotal: x kB\n"), Err(ParseError::new(1, "no number")));
    }

    fn laid_out() -> Laid {
        let machine = Laid::new();
        machine.write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            let socket = cpu / 2;
            machine.write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"),
                format!("{socket}\n"),
            );
        }
        machine.write("sys/devices/system/node/online", "0-1\n");
        for node in 0..2 {
            machine.write(
                &format!("sys/devices/system/node/node{node}/cpulist"),
                format!("{}-{}\n", node * 2, node * 2 + 1),
            );
            machine.write(
                &format!("sys/devices/system/node/node{node}/meminfo"),
                format!("Node {node} MemTotal: {} kB\n", 4 + node),
            );
        }
        machine
            .write("proc/stat", "cpu0 0 0 0 100 0\ncpu1 0 0 0 100 0\ncpu2 0 0 0 100 0\ncpu3 0 0 0 100 0\n");
        machine
    }

    #[test]
    fn sockets_have_their_cpus_and_their_memory() {
        let machine = laid_out();
        let mut node = Machine::new(NodeFiles::new(&Arc::new(machine.roots())));
        assert!(node.look(Instant::now()).unwrap().changed);
        let part = |cpus: &[u32], nodes: &[u32], kib: u64| Part {
            cpus: cpus.iter().copied().collect(),
            nodes: nodes.to_vec(),
            memory: Some(kib * 1024),
        };
        let topology = node.topology();
        assert_eq!(topology.part(Some(0)), Some(&part(&[0, 1], &[0], 4)));
        assert_eq!(topology.part(Some(1)), Some(&part(&[2, 3], &[1], 5)));
        assert_eq!(topology.part(Some(2)), None);
        assert_eq!(topology.part(None), Some(&part(&[0, 1, 2, 3], &[0, 1], 9)));
    }

    #[test]
    fn firmware_that_knows_no_sockets_leaves_the_node() {
        let machine = laid_out();
        for cpu in 0..4 {
            machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "-1\n");
        }
        let mut node = Machine::new(NodeFiles::new(&Arc::new(machine.roots())));
        node.look(Instant::now()).unwrap();
        assert!(node.topology().sockets.is_empty());
        assert_eq!(node.topology().whole.cpus.len(), 4);
    }

    #[test]
    fn busy_is_what_is_not_idle_and_the_sum_is_right_though_idle_time_wobbles() {
        let machine = laid_out();
        let mut node = Machine::new(NodeFiles::new(&Arc::new(machine.roots())));
        let begin = Instant::now();
        node.look(begin).unwrap();
        let mut at = |millis: u64, idle: [u64; 4]| {
            let lines: String =
                idle.iter().enumerate().map(|(cpu, idle)| format!("cpu{cpu} 0 0 0 {idle} 0\n")).collect();
            machine.write("proc/stat", lines);
            let busy = node.look(begin + Duration::from_millis(millis)).unwrap().busy.unwrap();
            busy.values().map(Duration::as_millis).collect::<Vec<_>>()
        };
        assert_eq!(at(1000, [100, 150, 200, 201]), [1000, 500, 0, 0]);
        // CPU 3 was a tick ahead, CPU 1's idle time stepped back by one.
        assert_eq!(at(2000, [100, 149, 300, 300]), [1000, 1010, 0, 0]);
        assert_eq!(at(3000, [100, 149, 400, 300]), [1000, 1000, 0, 1000]);
        assert_eq!(at(4000, [5, 249, 500, 400]), [0, 0, 0, 0], "CPU 0 begins anew");
        assert_eq!(at(5000, [5, 349, 600, 500]), [1000, 0, 0, 0]);
    }

    #[test]
    fn cpus_that_come_and_go_are_seen() {
        let machine = laid_out();
        let mut node = Machine::new(NodeFiles::new(&Arc::new(machine.roots())));
        node.look(Instant::now()).unwrap();
        machine.write("sys/devices/system/cpu/online", "0-2\n");
        machine.write("proc/stat", "cpu0 0 0 0 100\ncpu1 0 0 0 100\ncpu2 0 0 0 100\n");
        let look = node.look(Instant::now()).unwrap();
        assert!(look.changed && look.busy.is_none());
        assert_eq!(node.topology().sockets[&1].cpus.iter().collect::<Vec<_>>(), [2]);
        assert!(!node.look(Instant::now()).unwrap().changed);
    }

    #[test]
    fn the_live_host_is_described() {
        let mut node = Machine::new(NodeFiles::new(&Default::default()));
        node.look(Instant::now()).unwrap();
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert!(node.topology().whole.cpus.len() as usize >= cpus);
    }
}
