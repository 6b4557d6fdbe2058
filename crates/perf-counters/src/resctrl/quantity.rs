//! What groups count, and where the kernel shows it.

use serde::{Deserialize, Serialize};

use super::parse::{Features, Unread, parse_domain, parse_millionths, parse_package, parse_value};

/// What a group counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Quantity {
    /// Bytes past the L3 caches, by L3 domain.
    Bytes,
    /// Energy of the cores in microjoules, by package (Intel's Application Energy Telemetry).
    CoreEnergy,
    /// Work of the cores whatever their clock, in microfarads, by package (the same).
    Activity,
}

impl Quantity {
    /// What Intel's telemetry has.
    pub const TELEMETRY: [Self; 2] = [Self::CoreEnergy, Self::Activity];

    /// Whether this machine has it.
    pub(super) fn is_in(self, features: Features) -> bool {
        match self {
            Self::Bytes => features.total,
            Self::CoreEnergy => features.core_energy,
            Self::Activity => features.activity,
        }
    }

    /// The L3 domain or package of a directory of `mon_data`.
    pub(super) fn place(self, directory: &str) -> Option<u32> {
        match self {
            Self::Bytes => parse_domain(directory),
            Self::CoreEnergy | Self::Activity => parse_package(directory),
        }
    }

    /// The kernel's name of the event.
    pub fn event(self) -> &'static str {
        match self {
            Self::Bytes => "mbm_total_bytes",
            Self::CoreEnergy => "core_energy",
            Self::Activity => "activity",
        }
    }

    /// The file of a group.
    pub(super) fn file(self, place: u32) -> String {
        let resource = if self == Self::Bytes { "L3" } else { "PERF_PKG" };
        format!("mon_data/mon_{resource}_{place:02}/{}", self.event())
    }

    pub(super) fn parse(self, bytes: &[u8]) -> Result<u64, Unread> {
        match self {
            Self::Bytes => parse_value(bytes),
            Self::CoreEnergy | Self::Activity => parse_millionths(bytes),
        }
    }

    /// Whether a group that is made counts from 0. The kernel begins anew for bytes alone; telemetry goes on from what the RMID
    /// counted for others before (fs/resctrl/rdtgroup.c, `mon_add_all_files`).
    pub(super) fn begins_at_zero(self) -> bool {
        self == Self::Bytes
    }
}
