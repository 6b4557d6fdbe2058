//! What an independent library reads from a group, to hold the exporter's own reader against.
//!
//! The library is cgroups-rs. It turns every failure into 0, so a 0 from here proves nothing.

use std::path::Path;

use cgroups_rs::cpu::CpuController;
use cgroups_rs::cpuacct::CpuAcctController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;

/// CPU time in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in cpu.stat")]
pub struct Cpu {
    pub usage_usec: u64,
    pub user_usec: u64,
    pub system_usec: u64,
}

/// What is read from one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// `cpu.stat`; v1: `cpuacct.usage*`.
    pub cpu: Cpu,
    /// `memory.current`; v1: `memory.usage_in_bytes`.
    pub memory_used: u64,
    /// `memory.peak`; v1: `memory.max_usage_in_bytes`.
    pub memory_peak: u64,
    /// `None`: no limit (v1: the kernel's number for it).
    pub memory_limit: Option<u64>,
    /// Anonymous memory; v1: `total_rss`.
    pub anon: u64,
    /// `pids.current`.
    pub pids: u64,
}

/// Reads a v2 group.
#[must_use]
pub fn v2(group: &Path) -> Reading {
    let stat = CpuController::new(group.to_path_buf(), true).cpu().stat;
    let key = |key: &str| {
        let line = stat.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|v| v.parse().ok()).unwrap_or_default()
    };
    let mut reading = Reading {
        cpu: Cpu {
            usage_usec: key("usage_usec"),
            user_usec: key("user_usec"),
            system_usec: key("system_usec"),
        },
        pids: PidController::new(group.to_path_buf(), true).get_pid_current().unwrap_or_default(),
        ..Reading::default()
    };
    // Without the controller the library panics.
    if group.join("memory.high").exists() {
        let memory = MemController::new(group.to_path_buf(), true).memory_stat();
        reading.memory_used = memory.usage_in_bytes;
        reading.memory_peak = memory.max_usage_in_bytes;
        reading.memory_limit = u64::try_from(memory.limit_in_bytes).ok();
        reading.anon = memory.stat.raw.get("anon").copied().unwrap_or_default();
    }
    reading
}

/// Reads a v1 group from the directories it has in its hierarchies.
#[must_use]
pub fn v1(cpuacct: &Path, memory: Option<&Path>, pids: Option<&Path>) -> Reading {
    let acct = CpuAcctController::new(cpuacct.to_path_buf()).cpuacct();
    let mut reading = Reading {
        cpu: Cpu {
            usage_usec: acct.usage / 1000,
            user_usec: acct.usage_user / 1000,
            system_usec: acct.usage_sys / 1000,
        },
        ..Reading::default()
    };
    if let Some(dir) = memory {
        let memory = MemController::new(dir.to_path_buf(), false).memory_stat();
        reading.memory_used = memory.usage_in_bytes;
        reading.memory_peak = memory.max_usage_in_bytes;
        let unlimited = i64::MAX / 4096 * 4096;
        reading.memory_limit =
            u64::try_from(memory.limit_in_bytes).ok().filter(|_| memory.limit_in_bytes < unlimited);
        reading.anon = memory.stat.total_rss;
    }
    if let Some(dir) = pids {
        let controller = PidController::new(dir.to_path_buf(), false);
        reading.pids = controller.get_pid_current().unwrap_or_default();
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn reads_v2_fixtures() {
        let machine = Machine::fixture("v2-io-pids");
        let job = machine.path("cgroup/system.slice/node1_slurmstepd.scope/job_81");
        let reading = v2(&job);
        assert_eq!(reading.memory_limit, Some(2048 << 20));
        assert_eq!(reading.pids, 15);
        assert!(reading.cpu.usage_usec >= 40_000_000 && reading.anon >= 90 << 20, "{reading:?}");
    }

    #[test]
    fn reads_v1_fixtures() {
        let machine = Machine::fixture("v1-el8-joint");
        let at = |c: &str| machine.path(format!("cgroup/{c}/slurm/uid_1001/job_501"));
        let reading = v1(&at("cpuacct"), Some(&at("memory")), None);
        assert_eq!(reading.memory_limit, Some(2048 << 20));
        assert!(reading.cpu.usage_usec >= 150_000_000 && reading.anon >= 256 << 20, "{reading:?}");
        let root = v1(&machine.path("cgroup/cpuacct"), Some(&machine.path("cgroup/memory")), None);
        assert_eq!(root.memory_limit, None);
    }
}
