//! Which CPUs, NUMA nodes and L3 caches belong to which socket.

use std::collections::{BTreeMap, BTreeSet};

use cpu_topology::CpuSet;
use cpu_topology::Topology;
use kernel_files::NodeFiles;
use kernel_files::parse::parse_integer;

const CPU: &str = "sys/devices/system/cpu";
/// More than any kernel is built for (`NR_CPUS` 8192): a list beyond is not believed.
const MOST: usize = 65536;

/// The node's sockets, as they are while the same CPUs are online.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sockets {
    topology: Topology,
    all: BTreeSet<u32>,
    /// NUMA nodes without CPUs (HBM in flat mode, CXL) are of no socket.
    socket_of_node: BTreeMap<u32, u32>,
    socket_of_l3: BTreeMap<u32, u32>,
}

fn list(files: &mut NodeFiles, file: &str) -> Option<CpuSet> {
    files.read(file).ok().and_then(|bytes| CpuSet::parse(bytes).ok())
}

fn number(files: &mut NodeFiles, file: &str) -> Option<u32> {
    let number = files.read(file).ok().and_then(|bytes| parse_integer(bytes).ok())?;
    u32::try_from(number).ok()
}

/// The id of a CPU's L3 (`cache/index*/id`, Linux 4.11), by which resctrl names its domains.
fn l3(files: &mut NodeFiles, cpu: u32) -> Option<u32> {
    let at = |index: u32, file: &str| format!("{CPU}/cpu{cpu}/cache/index{index}/{file}");
    // The third is it nearly everywhere.
    let index = [3, 2, 4, 1, 0].into_iter().find(|index| number(files, &at(*index, "level")) == Some(3))?;
    number(files, &at(index, "id"))
}

impl Sockets {
    /// Reads all of it for the CPUs online; with the L3 caches only `with_l3`, which costs two files per CPU.
    pub fn read(files: &mut NodeFiles, with_l3: bool) -> Self {
        let topology = Topology::read(files);
        let all = topology.sockets().into_iter().collect();
        let mut sockets = Self { topology, all, ..Self::default() };
        const NODE: &str = "sys/devices/system/node";
        for node in list(files, &format!("{NODE}/online")).unwrap_or_default().iter().take(1024) {
            let first =
                list(files, &format!("{NODE}/node{node}/cpulist")).and_then(|cpus| cpus.iter().next());
            if let Some(socket) = first.and_then(|cpu| sockets.topology.socket(cpu)) {
                sockets.socket_of_node.insert(node, socket);
            }
        }
        if with_l3 {
            for cpu in list(files, &format!("{CPU}/online")).unwrap_or_default().iter().take(MOST) {
                if let (Some(id), Some(socket)) = (l3(files, cpu), sockets.topology.socket(cpu)) {
                    sockets.socket_of_l3.insert(id, socket);
                }
            }
        }
        sockets
    }

    /// What is online now, as one text: when it is another one, all of it has to be read anew.
    pub fn stamp(files: &mut NodeFiles) -> Vec<u8> {
        files.read(&format!("{CPU}/online")).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// The sockets, in order; none where the firmware numbers none.
    pub fn all(&self) -> &BTreeSet<u32> {
        &self.all
    }

    /// The socket of a CPU.
    pub fn of_cpu(&self, cpu: u32) -> Option<u32> {
        self.topology.socket(cpu)
    }

    /// The socket of an L3 cache.
    pub fn of_l3(&self, id: u32) -> Option<u32> {
        self.socket_of_l3.get(&id).copied()
    }

    /// The sockets that these CPUs and NUMA nodes are of; `None` when one of them is of no socket that is known.
    pub fn touched(&self, cpus: &CpuSet, nodes: &CpuSet) -> Option<BTreeSet<u32>> {
        if cpus.is_empty() || nodes.is_empty() {
            return None;
        }
        // CPUs that are offline run nothing.
        let of_cpus = cpus.iter().take(MOST).filter_map(|cpu| self.topology.socket(cpu));
        let mut touched: BTreeSet<u32> = of_cpus.collect();
        for node in nodes.iter().take(MOST) {
            touched.insert(*self.socket_of_node.get(&node)?);
        }
        Some(touched)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use test_machine::Machine;

    use super::super::testing;
    use super::*;

    #[test]
    fn cpus_nodes_and_caches_are_of_a_socket() {
        let machine = Machine::new();
        testing::sockets(&machine, 2, 4);
        testing::caches(&machine, 8, 2);
        // Memory without CPUs.
        machine.write("sys/devices/system/node/online", "0-2\n");
        machine.write("sys/devices/system/node/node2/cpulist", "\n");
        let sockets = Sockets::read(&mut NodeFiles::new(&Arc::new(machine.roots())), true);
        assert_eq!(sockets.all(), &BTreeSet::from([0, 1]));
        assert_eq!((sockets.of_cpu(3), sockets.of_cpu(4), sockets.of_cpu(8)), (Some(0), Some(1), None));
        assert_eq!(
            (0..5).map(|id| sockets.of_l3(id)).collect::<Vec<_>>(),
            [Some(0), Some(0), Some(1), Some(1), None]
        );
        let touched = |cpus: &str, nodes: &str| {
            sockets
                .touched(&CpuSet::parse(cpus.as_bytes()).unwrap(), &CpuSet::parse(nodes.as_bytes()).unwrap())
        };
        assert_eq!(touched("0-1", "0"), Some(BTreeSet::from([0])));
        assert_eq!(
            touched("0-1", "0-1"),
            Some(BTreeSet::from([0, 1])),
            "its memory may lie on the other socket"
        );
        assert_eq!(touched("0-1", "0,2"), None, "memory of no socket");
        assert_eq!(touched("", "0"), None, "not constrained, or not yet");
    }
}
