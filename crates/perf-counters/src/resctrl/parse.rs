//! The formats of resctrl's files.

use kernel_files::parse::{ParseError, decimal, integer, lines};
use serde::{Deserialize, Serialize};

/// Why a file of `mon_data` gives no number (fs/resctrl/ctrlmondata.c, `rdtgroup_mondata_show`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unread {
    /// The hardware does not know it now: it follows another group with this counter, or has not followed this one yet.
    Unavailable,
    /// No counter is assigned to the group (`mbm_event` mode).
    Unassigned,
    /// The hardware reported an error.
    Error,
    /// The file could not be read, or says something else.
    Failed,
}

impl Unread {
    /// The `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Unassigned => "unassigned",
            Self::Error => "error",
            Self::Failed => "failed",
        }
    }
}

/// Parses a file of `mon_data` with `number` for what is no word.
fn value(bytes: &[u8], number: impl FnOnce(&[u8]) -> Option<u64>) -> Result<u64, Unread> {
    match bytes.trim_ascii() {
        b"Unavailable" => Err(Unread::Unavailable),
        b"Unassigned" => Err(Unread::Unassigned),
        b"Error" => Err(Unread::Error),
        other => number(other).ok_or(Unread::Failed),
    }
}

/// Parses a count: an integer, or one of three words.
pub fn parse_value(bytes: &[u8]) -> Result<u64, Unread> {
    value(bytes, integer)
}

/// Parses a count with decimals (`core_energy`, `activity`), in millionths and rounded down. The kernel prints six decimals for the 18
/// bits behind the point that the hardware has (fs/resctrl/ctrlmondata.c, `print_event_value`).
pub fn parse_millionths(bytes: &[u8]) -> Result<u64, Unread> {
    let plain = |number: &[u8]| number.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.'));
    value(bytes, |number| decimal(number).filter(|_| plain(number))?.scaled(1, 6))
}

/// The L3 domain of a directory of `mon_data`: `mon_L3_07`. Directories below it with sub-NUMA clustering
/// (`mon_sub_L3_01`) are parts of it; other resources' directories are not.
pub fn parse_domain(name: &str) -> Option<u32> {
    u32::try_from(integer(name.strip_prefix("mon_L3_")?.as_bytes())?).ok()
}

/// The package of a directory of `mon_data` with Intel's telemetry: `mon_PERF_PKG_01`.
pub fn parse_package(name: &str) -> Option<u32> {
    u32::try_from(integer(name.strip_prefix("mon_PERF_PKG_")?.as_bytes())?).ok()
}

/// What can be monitored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// `llc_occupancy`.
    pub occupancy: bool,
    /// `mbm_total_bytes`.
    pub total: bool,
    /// `mbm_local_bytes`.
    pub local: bool,
    /// `core_energy`.
    pub core_energy: bool,
    /// `activity`.
    pub activity: bool,
}

/// Parses `info/L3_MON/mon_features` or `info/PERF_PKG_MON/mon_features`, an event per line.
pub fn parse_features(bytes: &[u8]) -> Result<Features, ParseError> {
    let mut features = Features::default();
    for line in lines(bytes) {
        match line?.1 {
            b"llc_occupancy" => features.occupancy = true,
            b"mbm_total_bytes" => features.total = true,
            b"mbm_local_bytes" => features.local = true,
            b"core_energy" => features.core_energy = true,
            b"activity" => features.activity = true,
            _ => {}
        }
    }
    Ok(features)
}

/// The groups that a task is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskGroups<'a> {
    /// Name of its control group; empty for the root.
    pub control: &'a str,
    /// Name of its monitoring group below that; empty where it is in none.
    pub monitor: &'a str,
}

/// Parses `/proc/PID/cpu_resctrl_groups` (Linux 5.6): `res:group` and `mon:group`; the root is `res:/`. `None` where resctrl
/// is not mounted, when both are empty.
pub fn parse_task_groups(bytes: &[u8]) -> Result<Option<TaskGroups<'_>>, ParseError> {
    let (mut control, mut monitor) = (None, None);
    for line in lines(bytes) {
        let (number, line) = line?;
        let line = std::str::from_utf8(line).map_err(|_| ParseError::new(number, "not UTF-8"))?;
        match line.split_once(':') {
            Some(("res", name)) => control = Some(name),
            Some(("mon", name)) => monitor = Some(name),
            Some(_) => {}
            None => return Err(ParseError::new(number, "not 'kind:group'")),
        }
    }
    let limits = |name: &str| !name.contains('/') && name != "." && name != "..";
    match (control, monitor) {
        (Some(""), _) => Ok(None),
        (Some(control), Some(monitor)) => {
            let control = if control == "/" { "" } else { control };
            if limits(control) && limits(monitor) {
                Ok(Some(TaskGroups { control, monitor }))
            } else {
                Err(ParseError::new(1, "a group's name with a slash"))
            }
        }
        _ => Err(ParseError::new(1, "no group")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_number_or_why_there_is_none() {
        assert_eq!(parse_value(b"31234000\n"), Ok(31_234_000));
        assert_eq!(parse_value(b"18446744073709551615\n"), Ok(u64::MAX));
        assert_eq!(parse_value(b"Unavailable\n"), Err(Unread::Unavailable));
        assert_eq!(parse_value(b"Unassigned\n"), Err(Unread::Unassigned));
        assert_eq!(parse_value(b"Error\n"), Err(Unread::Error));
        for bad in ["", "\n", "-1\n", "1 2\n", "unavailable\n", "18446744073709551616\n", "1.5\n"] {
            assert_eq!(parse_value(bad.as_bytes()), Err(Unread::Failed), "{bad}");
        }
    }

    #[test]
    fn decimals_are_millionths() {
        assert_eq!(parse_millionths(b"0.022030\n"), Ok(22_030));
        assert_eq!(parse_millionths(b"94499439.510380\n"), Ok(94_499_439_510_380));
        assert_eq!(parse_millionths(b"7.0\n"), Ok(7_000_000));
        assert_eq!(parse_millionths(b"7\n"), Ok(7_000_000));
        assert_eq!(parse_millionths(b"0.1234569\n"), Ok(123_456), "rounded down");
        assert_eq!(parse_millionths(b"Unavailable\n"), Err(Unread::Unavailable));
        for bad in ["", "\n", ".", "1.2.3\n", "-0.5\n", "1e3\n", "18446744073709.551616\n"] {
            assert_eq!(parse_millionths(bad.as_bytes()), Err(Unread::Failed), "{bad}");
        }
    }

    #[test]
    fn domains_are_those_of_the_l3_and_not_what_is_below() {
        assert_eq!(parse_domain("mon_L3_00"), Some(0));
        assert_eq!(parse_domain("mon_L3_127"), Some(127));
        for other in ["mon_sub_L3_01", "mon_L3_", "mon_L3_0x", "mon_PERF_PKG_00", "mon_MB_00", "L3_00"] {
            assert_eq!(parse_domain(other), None, "{other}");
        }
        assert_eq!(parse_package("mon_PERF_PKG_00"), Some(0));
        assert_eq!(parse_package("mon_PERF_PKG_11"), Some(11));
        for other in ["mon_L3_00", "mon_PERF_PKG_", "mon_PERF_PKG_-1", "PERF_PKG_00"] {
            assert_eq!(parse_package(other), None, "{other}");
        }
    }

    #[test]
    fn features_are_events_of_the_kernels_list() {
        let all = b"llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\nmbm_local_bytes\n";
        let l3 = Features { occupancy: true, total: true, local: true, ..Features::default() };
        assert_eq!(parse_features(all), Ok(l3));
        assert_eq!(
            parse_features(b"llc_occupancy\n"),
            Ok(Features { occupancy: true, ..Features::default() })
        );
        // Of Linux 7.0 on Clearwater Forest.
        let telemetry = b"core_energy\nactivity\nstalls_llc_hit\nc1_res\nunhalted_core_cycles\nstalls_llc_miss\nc6_res\nunhalted_ref_cycles\nuops_retired\n";
        let features = Features { core_energy: true, activity: true, ..Features::default() };
        assert_eq!(parse_features(telemetry), Ok(features));
        assert!(parse_features(b"mbm_total").is_err(), "torn");
    }

    #[test]
    fn a_tasks_groups() {
        let groups = |text: &'static str| parse_task_groups(text.as_bytes());
        let of = |control, monitor| Ok(Some(TaskGroups { control, monitor }));
        assert_eq!(groups("res:/\nmon:\n"), of("", ""));
        assert_eq!(groups("res:/\nmon:mon0\n"), of("", "mon0"));
        assert_eq!(groups("res:group0\nmon:mon1\n"), of("group0", "mon1"));
        assert_eq!(groups("res:\nmon:\n"), Ok(None), "not mounted");
        for bad in
            ["res:a/b\nmon:\n", "res:..\nmon:\n", "res:a\nmon:../b\n", "mon:a\n", "res\n", "res:a\nmon:b"]
        {
            assert!(groups(bad).is_err(), "{bad}");
        }
    }
}
