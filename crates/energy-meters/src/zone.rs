//! Zones: the domain that is measured, and the source that measures it.

use serde::{Deserialize, Serialize};

/// What a zone measures. What contains what is in [`Domain::within`].
///
/// `Package` and `Memory` are disjoint where both exist. On machines without a `Memory` zone the memory is either
/// within `Package` (Grace, whose LPDDR belongs to the socket) or not measured at all (AMD).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Domain {
    /// A CPU socket with all that is on it: cores, caches, memory controller, links.
    Package,
    /// The cores of a socket (RAPL's power plane 0, Grace's CPU rail). Within `Package`.
    Core,
    /// What RAPL's power plane 1 feeds: the graphics of desktop processors. Within `Package`.
    Uncore,
    /// Grace's rail of the system-on-chip outside the cores. Within `Package`.
    SysIo,
    /// Memory modules of a socket, or of the node. Beside `Package`.
    Memory,
    /// What the mainboard's power delivery of the platform measures (RAPL's psys). Around `Package` and `Memory`, and
    /// maybe more; not what the power supplies draw.
    Psys,
    /// A module of CPU, memory and GPU with the losses of its regulators (Grace Hopper). Around all of these.
    Module,
    /// An accelerator, as the node's controller measures it.
    Accelerator,
    /// The whole node.
    Node,
    /// What the node takes beyond its measured parts. No zone measures it.
    Overhead,
    /// A socket with CPU cores, GPU and their memory in one package (MI300A), as amdgpu counts it. No zone measures it.
    Apu,
}

impl Domain {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Package,
        Self::Core,
        Self::Uncore,
        Self::SysIo,
        Self::Memory,
        Self::Psys,
        Self::Module,
        Self::Accelerator,
        Self::Node,
        Self::Overhead,
        Self::Apu,
    ];

    /// The domains around this one, where a node has them. What two domains have in common is counted once: a domain and one
    /// within it are never added up.
    ///
    /// That an APU counts its CPU cores and memory is amdgpu's table of its firmware, whose socket has those of CCDs, XCDs,
    /// AIDs and HBM beside it (smu_v13_0_6_pmfw.h, `SocketEnergyAcc`).
    pub fn within(self) -> &'static [Self] {
        match self {
            Self::Core | Self::Uncore | Self::SysIo => {
                &[Self::Package, Self::Apu, Self::Psys, Self::Module, Self::Node]
            }
            Self::Package | Self::Memory => &[Self::Apu, Self::Psys, Self::Module, Self::Node],
            Self::Accelerator => &[Self::Apu, Self::Module, Self::Node],
            Self::Apu | Self::Psys | Self::Module | Self::Overhead => &[Self::Node],
            Self::Node => &[],
        }
    }

    /// The `domain` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Core => "core",
            Self::Uncore => "uncore",
            Self::SysIo => "sysio",
            Self::Memory => "dram",
            Self::Psys => "psys",
            Self::Module => "module",
            Self::Accelerator => "accelerator",
            Self::Node => "node",
            Self::Overhead => "overhead",
            Self::Apu => "apu",
        }
    }
}

/// The source, best first where several measure the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Source {
    /// RAPL through the kernel's `power` PMU.
    PerfRapl,
    /// RAPL through powercap, model-specific registers or TPMI.
    Powercap,
    /// RAPL through powercap, memory-mapped registers of the same counters.
    PowercapMmio,
    /// AMD's management port, `/dev/hsmp`.
    Hsmp,
    /// Files of Cray's node controller.
    CrayPmCounters,
    /// A resource of a Redfish service. Before what is found without being asked for: the site has named it.
    Redfish,
    /// A sensor under hwmon.
    Hwmon,
    /// The BMC over IPMI. Behind hwmon, whose ACPI power meter is the same BMC's mostly: there the firmware says that its
    /// power is the node's, all users may read it, and the BMC is asked once and not twice.
    Ipmi,
}

impl Source {
    /// The `source` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerfRapl => "perf",
            Self::Powercap => "powercap",
            Self::PowercapMmio => "powercap_mmio",
            Self::Hsmp => "hsmp",
            Self::CrayPmCounters => "cray_pm_counters",
            Self::Redfish => "redfish",
            Self::Hwmon => "hwmon",
            Self::Ipmi => "ipmi",
        }
    }
}

/// One thing that is measured by one source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Zone {
    /// The measured domain.
    pub domain: Domain,
    /// The socket it belongs to, a `physical_package_id`; `None` for a zone that is not of one socket. Two zones of
    /// one socket, domain and source are parts (dies), to be added up.
    pub socket: Option<u32>,
    /// The source.
    pub source: Source,
    /// As the kernel or the firmware calls it: `package-0`, `energy-pkg`, `accel0_energy`.
    pub name: String,
    /// Whether there is no counter but only momentary power, from which this exporter adds up the energy.
    pub estimated: bool,
}

impl Zone {
    /// Whether its counter counts on while no process reads it: perf's begins when it is opened, and an estimate is added up
    /// by who reads.
    pub fn counts_by_itself(&self) -> bool {
        !self.estimated && self.source != Source::PerfRapl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_around_a_domain_is_around_those_within_it_and_nothing_is_within_itself() {
        for domain in Domain::ALL {
            assert!(!domain.within().contains(&domain), "{domain:?}");
            for around in domain.within() {
                assert!(around.within().iter().all(|outer| domain.within().contains(outer)), "{domain:?}");
            }
            assert!(domain == Domain::Node || domain.within().contains(&Domain::Node), "{domain:?}");
        }
    }

    #[test]
    fn labels_are_distinct_words() {
        let mut names: Vec<_> = Domain::ALL.iter().map(|d| d.as_str()).collect();
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase())));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Domain::ALL.len());
    }
}
