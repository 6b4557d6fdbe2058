//! What the node is made of while the same CPUs are online, and how busy they were.
//!
//! `/proc/stat` has each CPU's idle time, exact on kernels that stop the tick of idle CPUs (`get_cpu_idle_time_us`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use attribution::Busy;
use cpu_topology::{CpuSet, Part, Topology, node_memory, online};
use durable_state::instant;
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer, lines};
use serde::{Deserialize, Serialize};

use crate::collector::SourceError;

const STAT: &str = "proc/stat";

/// Idle time of each CPU in `/proc/stat`, including waiting for I/O, in which a CPU does nothing. Ticks of `USER_HZ`,
/// 100 a second on every architecture.
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

/// How long a CPU was busy, as a sum that only grows. Idle time steps by 10 ms, and back now and then; over a long
/// time the sum must not exceed the real busy time.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CpuBusy {
    #[serde(with = "instant")]
    since: Instant,
    idle_then: u64,
    reported: Duration,
}

impl CpuBusy {
    fn advance(&mut self, now: Instant, idle: u64) -> Duration {
        let Some(idled) = idle.checked_sub(self.idle_then) else {
            // A CPU that was offline may have lost its idle time: it starts again.
            *self = Self { since: now, idle_then: idle, reported: Duration::ZERO };
            return Duration::ZERO;
        };
        let passed = now.saturating_duration_since(self.since);
        let busy = passed.saturating_sub(Duration::from_millis(idled.saturating_mul(10))).max(self.reported);
        busy.saturating_sub(std::mem::replace(&mut self.reported, busy))
    }
}

/// Looks at the node.
#[derive(Debug)]
pub(super) struct Machine {
    files: NodeFiles,
    topology: Topology,
    busy: BTreeMap<u32, CpuBusy>,
}

/// What is saved of it: how busy the CPUs were, while they are these.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedMachine {
    online: Vec<u32>,
    busy: BTreeMap<u32, CpuBusy>,
}

/// How long each CPU was busy.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyTimes {
    /// As the kernel counts it.
    pub(super) cpus: BTreeMap<u32, Duration>,
    /// Its part of the time for which its core was busy.
    pub(super) cores: BTreeMap<u32, Duration>,
}

impl BusyTimes {
    /// The sum over CPUs.
    pub(super) fn of(&self, cpus: &CpuSet) -> Busy {
        let sum = |times: &BTreeMap<u32, Duration>| {
            cpus.iter().filter_map(|cpu| times.get(&cpu)).map(Duration::as_nanos).sum()
        };
        Busy { cpus_ns: sum(&self.cpus), cores_ns: sum(&self.cores) }
    }
}

/// The readings so far.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Time each CPU was busy since the last look; CPUs that were not there then are not in it. `None` when it is not known.
    pub(super) busy: Option<BusyTimes>,
    /// Whether CPUs came or went.
    pub(super) changed: bool,
}

impl Machine {
    pub(super) fn new(files: NodeFiles) -> Self {
        Self { files, topology: Topology::default(), busy: BTreeMap::new() }
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The memory of a part of the node that is used now, bytes, or all of it where the kernel does not say.
    pub(super) fn memory_used(&mut self, part: Option<u32>) -> Option<u64> {
        let Part { nodes, memory, .. } = self.topology.part(part)?;
        let used: Option<u64> = nodes.iter().map(|node| node_memory(&mut self.files, node).used).sum();
        used.filter(|used| *used > 0).or(*memory)
    }

    /// What is to be saved.
    pub(super) fn save(&self) -> SavedMachine {
        SavedMachine { online: self.topology.whole.cpus.iter().collect(), busy: self.busy.clone() }
    }

    /// Takes over what an exporter before this one saw, if the same CPUs are online.
    pub(super) fn restore(&mut self, saved: SavedMachine) {
        let before: CpuSet = saved.online.into_iter().collect();
        if let Ok(Some(online)) = online(&mut self.files)
            && online == before
        {
            self.read_topology(online);
            self.busy = saved.busy;
        }
    }

    /// Looks at which CPUs there are and what they did.
    pub(super) fn look(&mut self, now: Instant) -> Result<Look, SourceError> {
        let unsupported = || SourceError::Unsupported { needs: "a sysfs with CPUs".to_owned() };
        let online = online(&mut self.files)?.ok_or_else(unsupported)?;
        let changed = online != self.topology.whole.cpus;
        if changed {
            self.read_topology(online);
        }
        let cpus = self.look_at_busy(now)?;
        let busy = (!changed).then(|| BusyTimes { cores: self.topology.core_times(&cpus), cpus });
        Ok(Look { busy, changed })
    }

    fn read_topology(&mut self, online: CpuSet) {
        self.topology = Topology::read(&mut self.files, online);
        self.topology.read_cores(&mut self.files);
    }

    fn look_at_busy(&mut self, now: Instant) -> Result<BTreeMap<u32, Duration>, SourceError> {
        let bytes = self.files.need(STAT, "a procfs with /proc/stat")?;
        let idle = parse_cpu_idle(bytes).map_err(SourceError::parsing(STAT))?;
        self.busy.retain(|cpu, _| idle.contains_key(cpu));
        let mut reported = BTreeMap::new();
        for (cpu, idle) in idle {
            match self.busy.get_mut(&cpu) {
                Some(busy) => {
                    reported.insert(cpu, busy.advance(now, idle));
                }
                None => {
                    self.busy.insert(cpu, CpuBusy { since: now, idle_then: idle, reported: Duration::ZERO });
                }
            }
        }
        Ok(reported)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::collector::testing::Machine as Laid;

    #[test]
    fn idle_time_is_that_of_each_cpu_with_its_waiting() {
        let stat = b"cpu  9 9 9 900 9 0 0 0\ncpu0 1 2 3 400 5 0 0 0\ncpu12 1 2 3 500\nintr 5 6\nctxt 7\n";
        assert_eq!(parse_cpu_idle(stat).unwrap(), BTreeMap::from([(0, 405), (12, 500)]));
        assert_eq!(parse_cpu_idle(b"cpu0 1 2 3\n"), Err(ParseError::new(1, "no idle time")));
        assert_eq!(parse_cpu_idle(b"cpu0 1 2 3 4"), Err(ParseError::new(1, "torn line")));
        assert!(parse_cpu_idle(b"").unwrap().is_empty());
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
        machine
            .write("proc/stat", "cpu0 0 0 0 100 0\ncpu1 0 0 0 100 0\ncpu2 0 0 0 100 0\ncpu3 0 0 0 100 0\n");
        machine
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
            let busy = node.look(begin + Duration::from_millis(millis)).unwrap().busy.unwrap().cpus;
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
        assert!(node.topology().whole.cpus.iter().count() >= cpus);
    }
}
