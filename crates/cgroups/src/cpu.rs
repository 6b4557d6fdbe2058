//! CPU time of a cgroup.
//!
//! v2: `cpu.stat` (Documentation/admin-guide/cgroup-v2.rst; `usage_usec` without the cpu controller since 4.15).
//! v1: `cpuacct.usage`, exact, split by `cpuacct.stat`, sampled (Documentation/admin-guide/cgroup-v1/cpuacct.rst); `cpu.stat` for throttling.

use kernel_files::parse::{ParseError, flat_keyed, parse_integer};
use kernel_files::{Buffer, SourceError};
use serde::{Deserialize, Serialize};

use crate::{Controller, Version, View};

/// `cpu.stat` of v2, and what of it v1 has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStat {
    /// All CPU time, microseconds.
    pub usage_usec: Option<u64>,
    /// User mode, microseconds.
    pub user_usec: Option<u64>,
    /// Kernel mode, microseconds.
    pub system_usec: Option<u64>,
    /// Throttled time, microseconds.
    pub throttled_usec: Option<u64>,
}

impl CpuStat {
    /// Takes the exact sum and splits it as the sampled modes are to each other: what the kernel does itself on v2 and
    /// for processes (kernel/sched/cputime.c, `cputime_adjust`). Ticks alone miss most of what sleeps often.
    pub fn scale_to(&mut self, usage_usec: u64) {
        let (user, system) = (self.user_usec.unwrap_or(0), self.system_usec.unwrap_or(0));
        let sampled = u128::from(user) + u128::from(system);
        let system = u128::from(usage_usec) * u128::from(system) / sampled.max(1);
        let system = u64::try_from(system).unwrap_or(usage_usec).min(usage_usec);
        *self = Self {
            usage_usec: Some(usage_usec),
            user_usec: Some(usage_usec - system),
            system_usec: Some(system),
            throttled_usec: self.throttled_usec,
        };
    }

    /// Keeps both modes from falling when their ratio changes, as `cputime_adjust` does.
    pub fn keep_from_falling(&mut self, last: &Self) {
        let (Some(usage), Some(system)) = (self.usage_usec, self.system_usec) else { return };
        let system = system.max(last.system_usec.unwrap_or(0)).min(usage);
        let user = (usage - system).max(last.user_usec.unwrap_or(0)).min(usage);
        self.user_usec = Some(user);
        self.system_usec = Some(usage - user);
    }
}

/// Parses `cpu.stat` of v2, or of v1, where `throttled_time` is in nanoseconds.
pub fn parse_cpu_stat(bytes: &[u8]) -> Result<CpuStat, ParseError> {
    let mut stat = CpuStat::default();
    flat_keyed(bytes, |key, value| match key {
        b"usage_usec" => stat.usage_usec = Some(value),
        b"user_usec" => stat.user_usec = Some(value),
        b"system_usec" => stat.system_usec = Some(value),
        b"throttled_usec" => stat.throttled_usec = Some(value),
        b"throttled_time" => stat.throttled_usec = Some(value / 1000),
        _ => {}
    })?;
    Ok(stat)
}

/// Parses `cpuacct.stat`: user and system in ticks of `USER_HZ`, 100 on every architecture Linux has.
pub fn parse_cpuacct_stat(bytes: &[u8]) -> Result<CpuStat, ParseError> {
    const USEC_PER_TICK: u64 = 10_000;
    let mut stat = CpuStat::default();
    flat_keyed(bytes, |key, ticks| match key {
        b"user" => stat.user_usec = ticks.checked_mul(USEC_PER_TICK),
        b"system" => stat.system_usec = ticks.checked_mul(USEC_PER_TICK),
        _ => {}
    })?;
    Ok(stat)
}

fn read_v1(view: &View<'_>, buffer: &mut Buffer) -> Result<CpuStat, SourceError> {
    let number = |file: &'static str, buffer: &mut Buffer| -> Result<Option<u64>, SourceError> {
        let bytes = view.read(Controller::Cpuacct, file, buffer).map_err(SourceError::reading(file, ""))?;
        bytes.map(parse_integer).transpose().map_err(SourceError::parsing(file))
    };
    let mut stat = CpuStat::default();
    let file = "cpuacct.stat";
    if let Some(bytes) =
        view.read(Controller::Cpuacct, file, buffer).map_err(SourceError::reading(file, ""))?
    {
        stat = parse_cpuacct_stat(bytes).map_err(SourceError::parsing(file))?;
        let both = stat.user_usec.zip(stat.system_usec);
        stat.usage_usec = both.map(|(user, system)| user.saturating_add(system));
    }
    if let Some(usage) = number("cpuacct.usage", buffer)? {
        stat.scale_to(usage / 1000);
    }
    if let Some(bytes) =
        view.read(Controller::Cpu, "cpu.stat", buffer).map_err(SourceError::reading("cpu.stat", ""))?
    {
        stat.throttled_usec = parse_cpu_stat(bytes).map_err(SourceError::parsing("cpu.stat"))?.throttled_usec;
    }
    Ok(stat)
}

/// Reads it, of either version. On v1 a mode may fall while the sum grows.
pub fn read(view: &View<'_>, buffer: &mut Buffer) -> Result<CpuStat, SourceError> {
    if view.version() == Version::V1 {
        return read_v1(view, buffer);
    }
    let bytes =
        view.read(Controller::Cpu, "cpu.stat", buffer).map_err(SourceError::reading("cpu.stat", ""))?;
    bytes.map_or(Ok(CpuStat::default()), |b| parse_cpu_stat(b).map_err(SourceError::parsing("cpu.stat")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_v2_file_gives_all_modes_and_absent_is_none_not_zero() {
        let stat = parse_cpu_stat(
            b"usage_usec 11521676\nuser_usec 7496320\nsystem_usec 4025355\nnr_periods 0\nthrottled_usec 5\n",
        )
        .unwrap();
        assert_eq!(stat.usage_usec, Some(11_521_676));
        assert_eq!(stat.throttled_usec, Some(5));
        let base = parse_cpu_stat(b"usage_usec 1\nuser_usec 1\nsystem_usec 0\n").unwrap();
        assert_eq!(base.throttled_usec, None);
    }

    #[test]
    fn v1_units_become_microseconds() {
        let stat = parse_cpu_stat(b"nr_periods 4\nnr_throttled 1\nthrottled_time 2500000\n").unwrap();
        assert_eq!(stat.throttled_usec, Some(2500));
        let stat = parse_cpuacct_stat(b"user 150\nsystem 7\n").unwrap();
        assert_eq!((stat.user_usec, stat.system_usec), (Some(1_500_000), Some(70_000)));
    }

    #[test]
    fn v1_has_the_exact_sum_and_no_mode_ever_falls() {
        let mut stat = parse_cpuacct_stat(b"user 30\nsystem 10\n").unwrap();
        stat.scale_to(8_000_000);
        assert_eq!((stat.user_usec, stat.system_usec), (Some(6_000_000), Some(2_000_000)));
        let mut idle = parse_cpuacct_stat(b"user 0\nsystem 0\n").unwrap();
        idle.scale_to(1234);
        assert_eq!((idle.user_usec, idle.system_usec), (Some(1234), Some(0)));
        // Ticks came in for the user alone: the ratio gives less system time than was exported.
        let mut next = parse_cpuacct_stat(b"user 90\nsystem 10\n").unwrap();
        next.scale_to(8_500_000);
        assert!(next.system_usec < stat.system_usec);
        next.keep_from_falling(&stat);
        assert_eq!((next.user_usec, next.system_usec), (Some(6_500_000), Some(2_000_000)));
        assert_eq!(next.usage_usec, Some(8_500_000));
    }

    #[test]
    fn malformed_is_an_error_and_no_number() {
        assert!(parse_cpu_stat(b"usage_usec x\n").is_err());
        assert!(parse_cpu_stat(b"usage_usec 1").is_err());
    }
}
