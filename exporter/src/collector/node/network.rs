//! Traffic of the node's network devices.
//!
//! `/proc/net/dev` (man 5 proc; net/core/net-procfs.c), any kernel, no privilege: one file for all devices, exact
//! 64-bit counters, those of the exporter's own network namespace. `class/net/<device>/operstate` and `speed`
//! (Documentation/ABI/testing/sysfs-class-net): one short file per device and scrape, the speed only when the state
//! changed or some minutes passed, since a driver may ask its firmware for it. RDMA passes these counters by.
//!
//! Devices that come and go with containers and virtual machines are left out: each would leave series behind, and
//! the device that the node itself sends with has counted their traffic, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use exposition::{Family, Profile, Section, SubjectId};
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer, lines, parse_integer};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static RECEIVED_BYTES: Family =
    Family::counter("jobledger_node_network_received_bytes_total").labels(&["device"]).help(
        "Bytes received by a network device, link-layer headers included; a bond, \
         bridge or VLAN counts what its members count too, and lo what it sent",
    );
static TRANSMITTED_BYTES: Family =
    Family::counter("jobledger_node_network_transmitted_bytes_total").labels(&["device"]).help(
        "Bytes sent by a network device, link-layer headers included; \
         a bond, bridge or VLAN counts what its members count too",
    );
static RECEIVED_PACKETS: Family = Family::counter("jobledger_node_network_received_packets_total")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Packets received by a network device, as its driver counts them");
static TRANSMITTED_PACKETS: Family = Family::counter("jobledger_node_network_transmitted_packets_total")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Packets sent by a network device, as its driver counts them");
static RECEIVED_ERRORS: Family = Family::counter("jobledger_node_network_received_errors_total")
    .labels(&["device"])
    .help("Packets that a network device received damaged");
static TRANSMITTED_ERRORS: Family = Family::counter("jobledger_node_network_transmitted_errors_total")
    .labels(&["device"])
    .help("Packets that a network device could not send");
static RECEIVED_DROPS: Family =
    Family::counter("jobledger_node_network_received_drops_total").labels(&["device"]).help(
        "Packets that were received whole and dropped for want of \
         room, by the device or the kernel, or for an unknown protocol",
    );
static TRANSMITTED_DROPS: Family = Family::counter("jobledger_node_network_transmitted_drops_total")
    .labels(&["device"])
    .help("Packets dropped on their way out, for want of room");
static UP: Family = Family::gauge("jobledger_node_network_up").labels(&["device"]).help(
    "Whether the device can pass packets (1) or not (0); absent \
     where the kernel does not know, as for lo",
);
static SPEED: Family =
    Family::gauge("jobledger_node_network_speed_bytes").profile(Profile::Full).labels(&["device"]).help(
        "Speed of the link in one direction, bytes per second; absent where the device has none or is down",
    );

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_network",
    summary: "Traffic, errors, state and speed of the node's network devices",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let mut rows: Vec<&'static Family> = COUNTERS.iter().map(|(_, family)| *family).collect();
        rows.extend([&UP, &SPEED]);
        rows
    },
    build: |context| {
        Built::plain(NodeNetwork { files: NodeFiles::new(&context.roots), states: HashMap::new() })
    },
};

/// The columns that are exported: number in the line, and family.
static COUNTERS: [(usize, &Family); 8] = [
    (0, &RECEIVED_BYTES),
    (8, &TRANSMITTED_BYTES),
    (1, &RECEIVED_PACKETS),
    (9, &TRANSMITTED_PACKETS),
    (2, &RECEIVED_ERRORS),
    (10, &TRANSMITTED_ERRORS),
    (3, &RECEIVED_DROPS),
    (11, &TRANSMITTED_DROPS),
];

/// First words of the names that container engines, their networks and virtual machines give their devices.
const PASSED_OVER: [&str; 12] =
    ["veth", "cali", "lxc", "tap", "vnet", "docker", "br-", "cni", "cilium", "flannel", "virbr", "podman"];

/// Most devices that are exported, by name: a node that makes more of them must not make series without bound.
const MOST: usize = 64;

/// How long a speed is believed.
const SPEED_AGE: Duration = Duration::from_secs(300);

/// A line of `/proc/net/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name, lossy UTF-8.
    pub name: String,
    /// Its columns: 8 of receiving, 8 of sending.
    pub columns: [Option<u64>; 16],
}

/// Parses `/proc/net/dev`: the devices of the complete lines, and the error of the first other line. Lines without a
/// colon are headings (two of them on every kernel).
pub fn parse_net_dev(bytes: &[u8]) -> (Vec<Device>, Option<ParseError>) {
    let mut devices: Vec<Device> = Vec::new();
    let mut bad = None;
    for line in lines(bytes) {
        let device = line.and_then(|(number, line)| parse_device(number, line));
        match device {
            // A device that was renamed while the file was read may be there twice.
            Ok(Some(device)) if devices.iter().all(|other| other.name != device.name) => devices.push(device),
            Ok(_) => {}
            Err(error) => {
                bad.get_or_insert(error);
            }
        }
    }
    (devices, bad)
}

fn parse_device(number: usize, line: &[u8]) -> Result<Option<Device>, ParseError> {
    // No name has a colon (net/core/dev.c, dev_valid_name); old kernels put no blank after it.
    let Some(at) = line.iter().position(|byte| *byte == b':') else { return Ok(None) };
    let (name, rest) = line.split_at(at);
    let name = name.trim_ascii();
    if name.is_empty() {
        return Err(ParseError::new(number, "no name"));
    }
    let mut device = Device { name: String::from_utf8_lossy(name).into_owned(), columns: [None; 16] };
    for (column, field) in device.columns.iter_mut().zip(fields(rest.get(1..).unwrap_or_default())) {
        *column = Some(integer(field).ok_or(ParseError::new(number, "not an unsigned integer"))?);
    }
    Ok(Some(device))
}

/// Parses `operstate` (RFC 2863, include/uapi/linux/if.h): whether the device is up, where the kernel knows.
pub fn parse_operstate(bytes: &[u8]) -> Option<bool> {
    match bytes.trim_ascii() {
        b"up" => Some(true),
        b"down" | b"lowerlayerdown" | b"notpresent" | b"dormant" | b"testing" => Some(false),
        _ => None,
    }
}

/// Parses `speed`, megabits per second, into bytes per second. Drivers that know no speed write -1.
pub fn parse_speed(bytes: &[u8]) -> Option<u64> {
    let megabits = parse_integer(bytes).ok().filter(|speed| (1..u64::from(u32::MAX)).contains(speed))?;
    megabits.checked_mul(1_000_000 / 8)
}

/// What sysfs said of a device.
#[derive(Debug, Clone, Copy)]
struct State {
    up: Option<bool>,
    speed: Option<u64>,
    asked: Instant,
}

/// The source.
#[derive(Debug)]
struct NodeNetwork {
    files: NodeFiles,
    states: HashMap<String, State>,
}

impl NodeNetwork {
    fn state(&mut self, name: &str) -> State {
        let operstate = self.files.read(&format!("sys/class/net/{name}/operstate"));
        let up = operstate.ok().and_then(parse_operstate);
        if let Some(known) = self.states.get(name)
            && known.up == up
            && known.asked.elapsed() < SPEED_AGE
        {
            return *known;
        }
        // A device that is down answers EINVAL. Its earlier speed is no speed of now.
        let speed = if up == Some(false) {
            None
        } else {
            self.files.read(&format!("sys/class/net/{name}/speed")).ok().and_then(parse_speed)
        };
        State { up, speed, asked: Instant::now() }
    }
}

impl Collector for NodeNetwork {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        const FILE: &str = "proc/net/dev";
        let bytes = self.files.need_lines(FILE, "a kernel with networking: /proc/net/dev")?;
        let (mut devices, bad) = parse_net_dev(bytes);
        devices.retain(|device| !PASSED_OVER.iter().any(|prefix| device.name.starts_with(prefix)));
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        let surplus = devices.len().saturating_sub(MOST);
        devices.truncate(MOST);
        let mut states = HashMap::new();
        for device in &devices {
            let label = [("device", device.name.as_str())];
            for (column, family) in &COUNTERS {
                if let Some(count) = device.columns.get(*column).copied().flatten() {
                    out.push(family, SubjectId::NODE, &label, count);
                }
            }
            let state = self.state(&device.name);
            if let Some(up) = state.up {
                out.push(&UP, SubjectId::NODE, &label, u64::from(up));
            }
            if let Some(speed) = state.speed {
                out.push(&SPEED, SubjectId::NODE, &label, speed);
            }
            states.insert(device.name.clone(), state);
        }
        self.states = states;
        let first = match bad {
            Some(error) => SourceError::Malformed { file: FILE, error },
            None if surplus > 0 => {
                SourceError::Unsupported { needs: format!("no more than {MOST} network devices") }
            }
            None => return Ok(()),
        };
        let failed = surplus + usize::from(bad.is_some());
        Err(SourceError::Partial { ok: devices.len(), failed, first: Box::new(first) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Bench, Machine, collect, snapshot_of, value};

    /// Linux 6.18, and a device in the form of 2.6, where the number follows the name at once.
    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
lo: 3723253736 1101511    0    0    0     0          0         0 3723253736 1101511    0    0    0     0       0          0\n  \
eth0: 1982171915   50149    1    2    3     4          5         6  2455302   28866    7    8    9    10      11         12\n  \
ib0:18446744073709551615 1 0 0 0 0 0 0 5 6 0 0 0 0 0 0\n\
veth12ab: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";

    #[test]
    fn every_column_is_where_the_heading_says() {
        let (devices, bad) = parse_net_dev(DEV.as_bytes());
        assert_eq!((devices.len(), bad), (4, None));
        let columns: Vec<u64> = devices[1].columns.iter().map(|column| column.unwrap()).collect();
        assert_eq!(devices[1].name, "eth0");
        assert_eq!(
            columns,
            [1_982_171_915, 50_149, 1, 2, 3, 4, 5, 6, 2_455_302, 28_866, 7, 8, 9, 10, 11, 12]
        );
        assert_eq!((&*devices[2].name, devices[2].columns[0]), ("ib0", Some(u64::MAX)));
    }

    #[test]
    fn complete_lines_are_used_absent_is_none_and_the_first_bad_one_is_reported() {
        let torn = DEV.split_at(DEV.len() - 4).0;
        let (devices, bad) = parse_net_dev(torn.as_bytes());
        assert_eq!((devices.len(), bad), (3, Some(ParseError::new(6, "torn line"))));
        let (devices, bad) = parse_net_dev(b"eth0: 1 x 3\neth1: 5 6\n: 7\neth1: 8 9\nno device\n");
        assert_eq!(bad, Some(ParseError::new(1, "not an unsigned integer")));
        assert_eq!((devices.len(), &*devices[0].name), (1, "eth1"), "once");
        assert_eq!((devices[0].columns[1], devices[0].columns[2]), (Some(6), None));
        assert_eq!(parse_net_dev(b""), (Vec::new(), None));
        assert_eq!(parse_net_dev(b"e: 18446744073709551616\n").0, Vec::new(), "no overflow");
    }

    #[test]
    fn states_and_speeds() {
        assert_eq!(parse_operstate(b"up\n"), Some(true));
        for down in ["down", "lowerlayerdown", "notpresent", "dormant", "testing"] {
            assert_eq!(parse_operstate(down.as_bytes()), Some(false));
        }
        assert_eq!((parse_operstate(b"unknown\n"), parse_operstate(b"")), (None, None));
        assert_eq!(parse_speed(b"100000\n"), Some(12_500_000_000), "100 Gbit/s");
        assert_eq!(parse_speed(b"10\n"), Some(1_250_000));
        for none in [&b"-1\n"[..], b"0\n", b"4294967295\n", b"", b"fast\n"] {
            assert_eq!(parse_speed(none), None, "{}", String::from_utf8_lossy(none));
        }
    }

    #[test]
    fn devices_of_containers_are_left_out_and_the_state_of_the_others_is_exported() {
        let machine = Machine::new();
        machine.write("proc/net/dev", DEV);
        machine.write("sys/class/net/eth0/operstate", "up\n").write("sys/class/net/eth0/speed", "25000\n");
        machine.write("sys/class/net/lo/operstate", "unknown\n");
        machine.write("sys/class/net/ib0/operstate", "down\n").write("sys/class/net/ib0/speed", "200000\n");
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let mut bench = Bench::new(&ENTRY, &snapshot);
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        let of = |text: &str, name: &str, device: &str| {
            value(text, &format!("jobledger_node_network_{name}{{device=\"{device}\"}}"))
        };
        assert_eq!(of(&text, "received_bytes_total", "lo"), Some(3_723_253_736.0));
        assert_eq!(of(&text, "received_bytes_total", "eth0"), Some(1_982_171_915.0));
        assert_eq!(of(&text, "transmitted_packets_total", "eth0"), Some(28_866.0));
        assert_eq!(of(&text, "received_errors_total", "eth0"), Some(1.0));
        assert_eq!(of(&text, "received_drops_total", "eth0"), Some(2.0));
        assert_eq!(of(&text, "transmitted_errors_total", "eth0"), Some(7.0));
        assert_eq!(of(&text, "transmitted_drops_total", "eth0"), Some(8.0));
        assert_eq!(
            (of(&text, "up", "eth0"), of(&text, "up", "ib0"), of(&text, "up", "lo")),
            (Some(1.0), Some(0.0), None)
        );
        assert_eq!(of(&text, "speed_bytes", "eth0"), Some(3_125_000_000.0));
        assert_eq!(of(&text, "speed_bytes", "ib0"), None, "what is down has no speed");
        assert!(!text.contains("veth"), "{text}");

        // A link that comes up is asked for its speed at once; a device that goes takes its series with it.
        machine.write("sys/class/net/ib0/operstate", "up\n").write("sys/class/net/eth0/speed", "1\n");
        let (_, text) = bench.collect(&snapshot);
        assert_eq!(of(&text, "speed_bytes", "ib0"), Some(25_000_000_000.0));
        assert_eq!(of(&text, "speed_bytes", "eth0"), Some(3_125_000_000.0), "not asked at every scrape");
        machine.write("proc/net/dev", DEV.replace("eth0", "eth1"));
        let (_, text) = bench.collect(&snapshot);
        assert_eq!(of(&text, "received_bytes_total", "eth0"), None);
        assert_eq!(of(&text, "received_bytes_total", "eth1"), Some(1_982_171_915.0));
    }

    #[test]
    fn more_devices_than_are_exported_are_reported_and_a_missing_file_is_unsupported() {
        let machine = Machine::new();
        assert_eq!(
            collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).0.unwrap_err().reason(),
            "unsupported"
        );
        let many: String = (0..100).map(|n| format!("eth{n:03}: 1 2\n")).collect();
        machine.write("proc/net/dev", many);
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert!(matches!(outcome, Err(SourceError::Partial { ok: 64, failed: 36, .. })), "{outcome:?}");
        assert_eq!(text.matches("received_packets_total{").count(), 64);
        machine.write("proc/net/dev", "eth0: 5 6\neth1: x\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert!(matches!(outcome, Err(SourceError::Partial { ok: 1, failed: 1, .. })), "{outcome:?}");
        assert_eq!(value(&text, "jobledger_node_network_received_bytes_total{device=\"eth0\"}"), Some(5.0));
    }

    /// More than a page of lines is read to its end, and the counters are those that sysfs has.
    #[test]
    fn the_live_host_agrees_with_sysfs() {
        let mut files = NodeFiles::new(&Default::default());
        let (devices, bad) = parse_net_dev(files.read_lines("proc/net/dev").unwrap());
        assert_eq!(bad, None);
        let listed = std::fs::read_dir("/sys/class/net").unwrap().flatten();
        let listed = listed.filter(|entry| entry.path().join("operstate").exists()).count();
        assert_eq!(devices.len(), listed);
        let later = |name: &str, file: &str| -> u64 {
            let path = format!("/sys/class/net/{name}/statistics/{file}");
            std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        for device in devices {
            for (column, file) in
                [(0, "rx_bytes"), (8, "tx_bytes"), (1, "rx_packets"), (9, "tx_packets"), (2, "rx_errors")]
            {
                let (before, later) = (device.columns[column].unwrap(), later(&device.name, file));
                assert!(
                    before <= later && later - before < 1 << 30,
                    "{} {file}: {before}, {later}",
                    device.name
                );
            }
        }
    }
}
