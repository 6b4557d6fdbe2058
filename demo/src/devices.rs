//! The files of the simulated disks, network interfaces, InfiniBand port and RAPL zones, in the formats of their drivers.

use std::fmt::Write;

use super::counters::{Counters, Moved};
use super::layout::DISKS;
use super::nfs;
use super::process::Io;

/// Bytes per microsecond of a disk, and microseconds per read and per write, in the order of `DISKS`.
const SPEEDS: [(u64, u64, u64); 2] = [(2_500, 120, 450), (220, 2_000, 3_000)];

/// `/proc/diskstats` (Documentation/admin-guide/iostats.rst).
pub(super) fn disks(counters: &Counters) -> String {
    let mut text = String::new();
    for (((number, name), io), speed) in DISKS.iter().zip(counters.io).zip(SPEEDS) {
        let (major, minor) = number.split_once(':').unwrap_or_default();
        let Io { read_bytes, written_bytes, reads, writes } = io;
        let (bytes_per_usec, read_usec, write_usec) = speed;
        // Milliseconds are printed as 32 bits.
        let millis = |usec: u64| usec / 1000 % (1 << 32);
        let [reading, writing] = [reads * read_usec, writes * write_usec];
        let _ = writeln!(
            text,
            "{major:>4} {minor:>7} {name} {reads} 0 {} {} {writes} 0 {} {} 0 {} {} 0 0 0 0 0 0",
            read_bytes / 512,
            millis(reading),
            written_bytes / 512,
            millis(writing),
            millis((read_bytes + written_bytes) / bytes_per_usec),
            millis(reading + writing),
        );
    }
    text
}

/// `/proc/net/dev`: `eth0` has NFS traffic with its headers, `lo` that of local services.
pub(super) fn network(counters: &Counters, now: u64) -> String {
    /// Bytes of a packet's Ethernet, IP and TCP headers, and of its data.
    const HEADERS: u64 = 66;
    const DATA: u64 = 1448;
    let mut text = String::from(
        "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    );
    let own = Moved { received: now / 500, sent: now / 500 };
    let mut eth = nfs::moved(counters);
    eth += counters.network;
    for (name, moved) in [("lo", own), ("eth0", eth)] {
        let [(received, packets), (sent, packets_sent)] =
            [moved.received, moved.sent].map(|bytes| (bytes + bytes / DATA * HEADERS, bytes / DATA));
        let _ =
            writeln!(text, "{name:>6}: {received} {packets} 0 0 0 0 0 0 {sent} {packets_sent} 0 0 0 0 0 0");
    }
    text
}

const HCA: &str = "sys/devices/pci0000:3b/0000:3b:00.0/infiniband/mlx5_0";
/// Bytes of a packet, on average: some are full (4096), many are acknowledgements.
const PACKET: u64 = 2048;

/// The counters of a port (Documentation/ABI/stable/sysfs-class-infiniband): data in words of 4 bytes.
pub(super) fn infiniband(counters: &Counters, now: u64) -> Vec<(String, String)> {
    let Moved { received, sent } = counters.fabric;
    // One multicast packet every ten seconds.
    let multicast = now / 10_000_000;
    let [received_packets, sent_packets] = [received, sent].map(|bytes| bytes / PACKET);
    let rows = [
        ("port_rcv_data", received / 4),
        ("port_xmit_data", sent / 4),
        ("port_rcv_packets", received_packets + multicast),
        ("port_xmit_packets", sent_packets + multicast / 8),
        ("unicast_rcv_packets", received_packets),
        ("unicast_xmit_packets", sent_packets),
        ("multicast_rcv_packets", multicast),
        ("multicast_xmit_packets", multicast / 8),
        // A 32-bit counter that saturates.
        ("port_xmit_wait", (sent / 1_000_000).min(u64::from(u32::MAX))),
    ];
    rows.into_iter()
        .map(|(file, value)| (format!("{HCA}/ports/1/counters/{file}"), format!("{value}\n")))
        .collect()
}

const RAPL: &str = "sys/devices/virtual/powercap/intel-rapl";
/// 2^32 units of 61 µJ.
const RANGE: u64 = 262_143_328_850;

/// A controller that counts the energy of the whole node (Documentation/hwmon/ibmaem.rst).
const CONTROLLER: &str = "sys/class/hwmon/hwmon0";

/// `energy_uj` of each package and of its memory (Documentation/power/powercap/powercap.rst), and the controller's count.
pub(super) fn energy(packages: [u64; 2], memories: [u64; 2], node: u64) -> Vec<(String, String)> {
    let mut files = vec![(format!("{CONTROLLER}/energy1_input"), format!("{node}\n"))];
    for ((socket, package), memory) in (0..).zip(packages).zip(memories) {
        let zone = package_zone(socket);
        files.push((format!("{zone}/energy_uj"), format!("{}\n", package % (RANGE + 1))));
        files
            .push((format!("{zone}/intel-rapl:{socket}:0/energy_uj"), format!("{}\n", memory % (RANGE + 1))));
    }
    files
}

fn package_zone(socket: u32) -> String {
    format!("{RAPL}/intel-rapl:{socket}")
}

/// Path and content of the files that never change.
pub(super) fn fixed_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut add = |path: String, content: &str| files.push((path, format!("{content}\n")));
    for (number, name) in DISKS {
        add(format!("sys/block/{name}/dev"), number);
        add(format!("sys/block/{name}/hidden"), "0");
        add(format!("sys/block/{name}/queue/rotational"), if name == "sda" { "1" } else { "0" });
    }
    add("sys/class/net/eth0/operstate".to_owned(), "up");
    add("sys/class/net/eth0/speed".to_owned(), "25000");
    add("sys/devices/pci0000:3b/0000:3b:00.0/vendor".to_owned(), "0x15b3");
    for (file, content) in [
        ("board_id", "MT_0000000223"),
        ("fw_ver", "20.40.1000"),
        ("hca_type", "MT4123"),
        ("node_type", "1: CA"),
        ("ports/1/cap_mask", "0x00010000"),
        ("ports/1/lid", "0x2a"),
        ("ports/1/link_layer", "InfiniBand"),
        ("ports/1/phys_state", "5: LinkUp"),
        ("ports/1/rate", "200 Gb/sec (4X HDR)"),
        ("ports/1/sm_lid", "0x1"),
        ("ports/1/state", "4: ACTIVE"),
        ("ports/1/hw_counters/lifespan", "10"),
    ] {
        add(format!("{HCA}/{file}"), content);
    }
    for (file, errors) in [
        ("VL15_dropped", "0"),
        ("excessive_buffer_overrun_errors", "0"),
        ("link_downed", "1"),
        ("link_error_recovery", "0"),
        ("local_link_integrity_errors", "0"),
        ("port_rcv_constraint_errors", "0"),
        ("port_rcv_errors", "0"),
        ("port_rcv_remote_physical_errors", "0"),
        ("port_rcv_switch_relay_errors", "0"),
        ("port_xmit_constraint_errors", "0"),
        ("port_xmit_discards", "0"),
        ("symbol_error", "3"),
    ] {
        add(format!("{HCA}/ports/1/counters/{file}"), errors);
    }
    for file in ["duplicate_request", "local_ack_timeout_err", "out_of_sequence", "packet_seq_err"] {
        add(format!("{HCA}/ports/1/hw_counters/{file}"), "0");
    }
    add(format!("{CONTROLLER}/name"), "aem1");
    add(format!("{RAPL}/enabled"), "1");
    for socket in 0..2 {
        let zone = package_zone(socket);
        for (zone, name) in [
            (zone.clone(), format!("package-{socket}")),
            (format!("{zone}/intel-rapl:{socket}:0"), "dram".to_owned()),
        ] {
            add(format!("{zone}/name"), &name);
            add(format!("{zone}/enabled"), "1");
            add(format!("{zone}/max_energy_range_uj"), &RANGE.to_string());
        }
    }
    files
}

/// Symbolic links: path and target.
pub(super) fn links() -> Vec<(String, String)> {
    let mut links: Vec<(String, String)> = DISKS
        .iter()
        .map(|(number, name)| (format!("sys/dev/block/{number}"), format!("../../block/{name}")))
        .collect();
    let mut add = |link: String, target: String| links.push((link, target));
    add("sys/class/infiniband/mlx5_0".to_owned(), format!("../../{}", HCA.trim_start_matches("sys/")));
    add(format!("{HCA}/device"), "../../../0000:3b:00.0".to_owned());
    add(
        "sys/devices/pci0000:3b/0000:3b:00.0/driver".to_owned(),
        "../../../bus/pci/drivers/mlx5_core".to_owned(),
    );
    let rapl = format!("../../{}", RAPL.trim_start_matches("sys/"));
    add("sys/class/powercap/intel-rapl".to_owned(), rapl.clone());
    for socket in 0..2 {
        let zone = format!("intel-rapl:{socket}");
        add(format!("sys/class/powercap/{zone}"), format!("{rapl}/{zone}"));
        add(format!("sys/class/powercap/{zone}:0"), format!("{rapl}/{zone}/{zone}:0"));
    }
    links
}
