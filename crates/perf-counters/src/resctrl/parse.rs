//! The formats of resctrl's files.

use kernel_files::parse::{ParseError, fields, integer, lines};

/// What a file of `mon_data` says (fs/resctrl/ctrlmondata.c, `rdtgroup_mondata_show`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// This many bytes.
    Bytes(u64),
    /// The hardware does not know it now: it had begun to follow another group with this counter.
    Unavailable,
    /// No counter is assigned to the group (`mbm_event` mode).
    Unassigned,
    /// The hardware reported an error.
    Error,
}

impl Value {
    /// The bytes, where it says any.
    pub fn bytes(self) -> Option<u64> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// Parses a file of `mon_data`: a number, or one of three words.
pub fn parse_value(bytes: &[u8]) -> Result<Value, ParseError> {
    match bytes.trim_ascii() {
        b"Unavailable" => Ok(Value::Unavailable),
        b"Unassigned" => Ok(Value::Unassigned),
        b"Error" => Ok(Value::Error),
        number => {
            integer(number).map(Value::Bytes).ok_or(ParseError::new(1, "neither a number nor a known word"))
        }
    }
}

/// The L3 domain of a directory of `mon_data`: `mon_L3_07`. Directories below it with sub-NUMA clustering
/// (`mon_sub_L3_01`) are parts of it; other resources' directories are not.
pub fn parse_domain(name: &str) -> Option<u32> {
    u32::try_from(integer(name.strip_prefix("mon_L3_")?.as_bytes())?).ok()
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
}

/// Parses `info/L3_MON/mon_features`, an event per line.
pub fn parse_features(bytes: &[u8]) -> Result<Features, ParseError> {
    let mut features = Features::default();
    for line in lines(bytes) {
        match line?.1 {
            b"llc_occupancy" => features.occupancy = true,
            b"mbm_total_bytes" => features.total = true,
            b"mbm_local_bytes" => features.local = true,
            _ => {}
        }
    }
    Ok(features)
}

/// Parses `info/L3_MON/mbm_assign_mode`: the word in brackets, `[mbm_event]`.
pub fn parse_assign_mode(bytes: &[u8]) -> Option<&str> {
    let chosen = fields(bytes).find_map(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"))?;
    std::str::from_utf8(chosen).ok().filter(|mode| !mode.is_empty())
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
    fn a_value_is_bytes_or_why_there_are_none() {
        assert_eq!(parse_value(b"31234000\n"), Ok(Value::Bytes(31_234_000)));
        assert_eq!(parse_value(b"18446744073709551615\n"), Ok(Value::Bytes(u64::MAX)));
        assert_eq!(parse_value(b"Unavailable\n"), Ok(Value::Unavailable));
        assert_eq!(parse_value(b"Unassigned\n"), Ok(Value::Unassigned));
        assert_eq!(parse_value(b"Error\n").map(Value::bytes), Ok(None));
        for bad in ["", "\n", "-1\n", "1 2\n", "unavailable\n", "18446744073709551616\n"] {
            assert!(parse_value(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn domains_are_those_of_the_l3_and_not_what_is_below() {
        assert_eq!(parse_domain("mon_L3_00"), Some(0));
        assert_eq!(parse_domain("mon_L3_127"), Some(127));
        for other in ["mon_sub_L3_01", "mon_L3_", "mon_L3_0x", "mon_PERF_PKG_00", "mon_MB_00", "L3_00"] {
            assert_eq!(parse_domain(other), None, "{other}");
        }
    }

    #[test]
    fn features_and_modes() {
        let all = b"llc_occupancy\nmbm_total_bytes\nmbm_total_bytes_config\nmbm_local_bytes\n";
        assert_eq!(parse_features(all), Ok(Features { occupancy: true, total: true, local: true }));
        assert_eq!(
            parse_features(b"llc_occupancy\n"),
            Ok(Features { occupancy: true, ..Features::default() })
        );
        assert!(parse_features(b"mbm_total").is_err(), "torn");
        assert_eq!(parse_assign_mode(b"[mbm_event]\ndefault\n"), Some("mbm_event"));
        assert_eq!(parse_assign_mode(b"mbm_event\n[default]\n"), Some("default"));
        assert_eq!(parse_assign_mode(b"default\n"), None);
        assert_eq!(parse_assign_mode(b"[]\n"), None);
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
