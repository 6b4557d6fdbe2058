//! `io.stat` of a control group (Documentation/admin-guide/cgroup-v2.rst, "IO"; discards from 4.18).

use kernel_files::parse::{ParseError, integer, nested_keyed};
use serde::{Deserialize, Serialize};

/// A block device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Device {
    fn parse(text: &[u8]) -> Option<Self> {
        let at = text.iter().position(|b| *b == b':')?;
        let (major, minor) = text.split_at(at);
        let number = |digits: &[u8]| u32::try_from(integer(digits)?).ok();
        Some(Self { major: number(major)?, minor: number(minor.get(1..)?)? })
    }
}

/// A device's line of `io.stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Bytes read.
    pub rbytes: Option<u64>,
    /// Bytes written.
    pub wbytes: Option<u64>,
    /// Bytes discarded.
    pub dbytes: Option<u64>,
    /// Reads.
    pub rios: Option<u64>,
    /// Writes.
    pub wios: Option<u64>,
    /// Discards.
    pub dios: Option<u64>,
}

/// Parses `io.stat`: the devices of the complete lines, and the error of the first other line. The kernel cuts the
/// file at the end of a page.
pub fn parse_io_stat(bytes: &[u8]) -> (Vec<(Device, IoCounters)>, Option<ParseError>) {
    let mut devices: Vec<(Device, IoCounters)> = Vec::new();
    let mut bad = None;
    let torn = nested_keyed(bytes, |key, name, value| {
        let Some(device) = Device::parse(key) else {
            bad.get_or_insert(ParseError::new(devices.len() + 1, "no device number"));
            return;
        };
        if devices.last().is_none_or(|(last, _)| *last != device) {
            devices.push((device, IoCounters::default()));
        }
        let Some((_, counters)) = devices.last_mut() else { return };
        match name {
            b"rbytes" => counters.rbytes = Some(value),
            b"wbytes" => counters.wbytes = Some(value),
            b"dbytes" => counters.dbytes = Some(value),
            b"rios" => counters.rios = Some(value),
            b"wios" => counters.wios = Some(value),
            b"dios" => counters.dios = Some(value),
            _ => {}
        }
    });
    (devices, bad.or(torn.err()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SLURM 22.05's scope on 6.1.
    const STAT: &str = "254:0 rbytes=462848 wbytes=25296896 rios=11 wios=53 dbytes=4096 dios=1\n8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n";

    #[test]
    fn complete_lines_are_used_and_a_torn_one_is_reported() {
        let (devices, error) = parse_io_stat(STAT.as_bytes());
        assert_eq!((devices.len(), error), (2, None));
        assert_eq!(devices[0].0, Device { major: 254, minor: 0 });
        assert_eq!((devices[0].1.wbytes, devices[1].1.dios), (Some(25_296_896), Some(6)));
        let (devices, error) = parse_io_stat(STAT.as_bytes().split_at(STAT.len() - 20).0);
        assert_eq!((devices.len(), error), (1, Some(ParseError::new(2, "torn line"))));
        assert_eq!(parse_io_stat(b""), (Vec::new(), None));
    }

    #[test]
    fn absent_is_none_not_zero_and_nonsense_is_no_device() {
        let (devices, error) = parse_io_stat(b"8:0 rbytes=1 cost.vrate=100.00 use_delay=0\n");
        assert_eq!(error, None);
        assert_eq!((devices[0].1.rbytes, devices[0].1.dbytes), (Some(1), None), "4.17 has no discards");
        for bad in [&b"sda rbytes=1\n"[..], b"8:x rbytes=1\n", b"8 rbytes=1\n", b"8:99999999999 rbytes=1\n"] {
            assert_eq!(parse_io_stat(bad), (Vec::new(), Some(ParseError::new(1, "no device number"))));
        }
    }
}
