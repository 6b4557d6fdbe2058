//! Names of directories and files, and lines in them.

use super::*;

#[test]
fn as_kernels_write_them_and_not() {
    let directory = |text: &str| parse_powercap_directory(text).map(|d| (d.source.as_str(), d.zone, d.part));
    for (text, expected) in [
        ("intel-rapl:0", Some(("powercap", 0, None))),
        ("intel-rapl:12:3", Some(("powercap", 12, Some(3)))),
        ("intel-rapl-mmio:0:1", Some(("powercap_mmio", 0, Some(1)))),
        ("intel-rapl", None),
        ("intel-rapl:", None),
        ("intel-rapl:0:", None),
        ("intel-rapl:0:0:0", None),
        ("intel-rapl:-1", None),
        ("dtpm:0", None),
    ] {
        assert_eq!(directory(text), expected, "{text}");
    }
    for (text, expected) in [
        ("package-0\n", Some((Domain::Package, Some(0), None))),
        ("package-1-die-3", Some((Domain::Package, Some(1), Some(3)))),
        ("core\n", Some((Domain::Core, None, None))),
        ("uncore", Some((Domain::Uncore, None, None))),
        ("dram", Some((Domain::Memory, None, None))),
        ("psys", Some((Domain::Psys, None, None))),
        ("package-", None),
        ("package-x", None),
        ("package-0-die-", None),
        ("gpu", None),
        ("", None),
    ] {
        assert_eq!(parse_powercap_zone_name(text.as_bytes()), expected, "{text}");
    }
    for (text, expected) in [
        ("4187523 J 1595341323456789 us\n", Some(4_187_523_000_000)),
        ("0 J\n", Some(0)),
        ("105 W\n", None),
        ("105\n", None),
        ("105 J", None),
        ("", None),
        ("-1 J\n", None),
        ("18446744073709551615 J\n", None),
    ] {
        assert_eq!(parse_pm_counter(text.as_bytes()).ok(), expected, "{text}");
    }
    for (text, expected) in [
        ("energy", Some((Domain::Node, None))),
        ("cpu_energy", Some((Domain::Package, None))),
        ("cpu1_energy", Some((Domain::Package, Some(1)))),
        ("memory_energy", Some((Domain::Memory, None))),
        ("accel3_energy", Some((Domain::Accelerator, None))),
        ("accel_energy", None),
        ("nic_energy", None),
        ("xenergy", None),
        ("power", None),
    ] {
        assert_eq!(parse_pm_counter_name(text), expected, "{text}");
    }
    for (text, expected) in [
        ("Grace Power Socket 0\n", OemInfo::Socket(Domain::Package, 0)),
        ("CPU Power Socket 3\n", OemInfo::Socket(Domain::Core, 3)),
        ("SysIO Power Socket 1", OemInfo::Socket(Domain::SysIo, 1)),
        ("Module Power Socket 1", OemInfo::Socket(Domain::Module, 1)),
        ("GPU Power Socket 0", OemInfo::Unknown),
        ("Grace Power Socket x", OemInfo::Unknown),
        ("\n", OemInfo::Other),
        ("Dell Inc.\n", OemInfo::Other),
    ] {
        assert_eq!(parse_oem_info(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(parse_amd_energy_label(b"Esocket1\n"), Some(1));
    assert_eq!(parse_amd_energy_label(b"Ecore001\n"), None);
    assert_eq!(parse_hwmon_sensor("power1_average"), Some(("power", 1, "_average")));
    assert_eq!(parse_hwmon_sensor("energy12_label"), Some(("energy", 12, "_label")));
    for bad in ["power", "power_cap", "temp1_input", "powerx1", "power1é".trim_end_matches('1')] {
        assert!(parse_hwmon_sensor(bad).is_none_or(|(_, _, attribute)| !attribute.starts_with('_')), "{bad}");
    }
}
