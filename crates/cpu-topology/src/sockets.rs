//! Which CPU is on which socket.

use std::collections::{BTreeMap, BTreeSet};

use kernel_files::NodeFiles;
use kernel_files::parse::parse_integer;

use crate::CpuSet;
use crate::microarchitecture::parse_cpuinfo;

/// The sockets, as `topology/physical_package_id` counts them (Documentation/admin-guide/cputopology.rst).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    socket_of: BTreeMap<u32, u32>,
    /// Whether the energy counter is one of the whole socket even where the kernel tells of several dies in it.
    ///
    /// AMD's and Hygon's are. From Linux 6.9 on, until "perf/x86/rapl: Fix the energy-pkg event for AMD CPUs" and its
    /// like in powercap, the kernel took chiplets for dies and showed the same register once for each of them.
    pub one_counter_per_socket: bool,
}

impl Topology {
    /// Reads it for the CPUs online. Firmware that numbers no packages (-1) leaves its CPUs out.
    pub fn read(files: &mut NodeFiles) -> Self {
        const CPU: &str = "sys/devices/system/cpu";
        let online = files.read(&format!("{CPU}/online")).ok().and_then(|b| CpuSet::parse(b).ok());
        let mut socket_of = BTreeMap::new();
        for cpu in online.iter().flat_map(|cpus| cpus.iter()) {
            let file = format!("{CPU}/cpu{cpu}/topology/physical_package_id");
            let id = files.read(&file).ok().and_then(|b| parse_integer(b).ok());
            if let Some(id) = id.and_then(|id| u32::try_from(id).ok()) {
                socket_of.insert(cpu, id);
            }
        }
        let vendor = files.read_start("proc/cpuinfo").ok().and_then(|start| parse_cpuinfo(start).vendor);
        let one_counter_per_socket =
            vendor.is_some_and(|vendor| matches!(vendor.as_str(), "AuthenticAMD" | "HygonGenuine"));
        Self { socket_of, one_counter_per_socket }
    }

    /// The socket of a CPU.
    pub fn socket(&self, cpu: u32) -> Option<u32> {
        self.socket_of.get(&cpu).copied()
    }

    /// The sockets, in order.
    pub fn sockets(&self) -> Vec<u32> {
        self.socket_of.values().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }
}
