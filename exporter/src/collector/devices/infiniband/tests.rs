use std::sync::Arc;
use std::time::Duration;

use exposition::{Section, encode_openmetrics};
use slurm_jobs::{JobObserver, Users};

use super::*;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::testing::{Bench, Machine, built, job, snapshot_of, value};
use crate::collector::{BuildContext, Built};

const CLASS: &str = "sys/class/infiniband";

/// The files of a port below its directory, one `name content` per line.
fn port(machine: &Machine, device: &str, number: u32, files: &str) {
    for line in files.lines() {
        let (file, content) = line.trim().split_once(' ').unwrap();
        machine.write(&format!("{CLASS}/{device}/ports/{number}/{file}"), format!("{content}\n"));
    }
}

fn set(machine: &Machine, device: &str, file: &str, content: impl std::fmt::Display) {
    machine.write(&format!("{CLASS}/{device}/ports/1/{file}"), format!("{content}\n"));
}

fn driver(machine: &Machine, device: &str, name: &str) {
    machine.write(&format!("{CLASS}/{device}/device/vendor"), "0x15b3\n");
    let link = machine.path.join(format!("{CLASS}/{device}/device/driver"));
    std::os::unix::fs::symlink(format!("../../../../bus/pci/drivers/{name}"), link).unwrap();
}

const LINK: &str = "state 4: ACTIVE\nphys_state 5: LinkUp\nrate 200 Gb/sec (4X HDR)\nlink_layer InfiniBand";

/// A ConnectX port: extended counters, as recorded, with hw_counters of mlx5.
const MLX5: &str = "counters/port_rcv_data 5130875000
    counters/port_xmit_data 10262250000
    counters/port_rcv_packets 20524000
    counters/port_xmit_packets 41050000
    counters/port_xmit_wait 41050
    counters/port_xmit_discards 7
    counters/unicast_rcv_packets 20523000
    counters/unicast_xmit_packets 41009949
    counters/multicast_rcv_packets 1000
    counters/multicast_xmit_packets 0
    counters/symbol_error 3
    counters/link_error_recovery 0
    counters/link_downed 1
    counters/port_rcv_errors 2
    counters/port_rcv_remote_physical_errors 0
    counters/port_rcv_switch_relay_errors 0
    counters/port_rcv_constraint_errors 0
    counters/port_xmit_constraint_errors 0
    counters/local_link_integrity_errors 0
    counters/excessive_buffer_overrun_errors 0
    counters/VL15_dropped 4
    hw_counters/lifespan 10
    hw_counters/np_cnp_sent 12884
    hw_counters/np_ecn_marked_roce_packets 441882
    hw_counters/rp_cnp_handled 12701
    hw_counters/out_of_sequence 41
    hw_counters/rx_read_requests 99
    hw_counters/roce_adp_retrans 17";

fn mlx5(machine: &Machine, device: &str) {
    port(machine, device, 1, MLX5);
    port(machine, device, 1, LINK);
    machine.write(&format!("{CLASS}/{device}/fw_ver"), "20.40.1000\n");
    machine.write(&format!("{CLASS}/{device}/board_id"), "MT_0000000223\n");
    driver(machine, device, "mlx5_core");
}

/// The samples of a scrape, in their order, without what the families share.
fn samples(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("jobledger_node_infiniband_")).collect()
}

fn at(name: &str) -> String {
    format!("jobledger_node_infiniband_{name}{{device=\"mlx5_0\",port=\"1\"}}")
}

#[test]
fn everything_that_a_port_reports_is_exported() {
    let machine = Machine::new();
    mlx5(&machine, "mlx5_0");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    set(&machine, "mlx5_0", "counters/port_rcv_data", 5_130_875_000_u64 + 250);
    set(&machine, "mlx5_0", "counters/port_xmit_data", 10_262_250_000_u64 + 1000);
    set(&machine, "mlx5_0", "counters/port_rcv_packets", 20_524_000 + 3);
    set(&machine, "mlx5_0", "counters/port_xmit_packets", 41_050_000 + 5);
    set(&machine, "mlx5_0", "counters/port_xmit_wait", 41_050 + 11);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    let mut section_of_scrape = samples(&text);
    section_of_scrape.sort_unstable();
    let port = "device=\"mlx5_0\",port=\"1\"";
    let mut wanted: Vec<String> = [
        ("received_bytes_total", "", "1000"),
        ("unattributed_received_bytes_total", "", "1000"),
        ("transmitted_bytes_total", "", "4000"),
        ("unattributed_transmitted_bytes_total", "", "4000"),
        ("received_packets_total", "", "3"),
        ("unattributed_received_packets_total", "", "3"),
        ("transmitted_packets_total", "", "5"),
        ("unattributed_transmitted_packets_total", "", "5"),
        ("transmit_wait_ticks_total", "", "11"),
        ("unattributed_transmit_wait_ticks_total", "", "11"),
        ("unicast_packets_total", ",direction=\"received\"", "20523000"),
        ("unicast_packets_total", ",direction=\"transmitted\"", "41009949"),
        ("multicast_packets_total", ",direction=\"received\"", "1000"),
        ("transmit_discarded_packets_total", "", "7"),
        ("errors_total", ",type=\"symbol\"", "3"),
        ("errors_total", ",type=\"link_error_recovery\"", "0"),
        ("errors_total", ",type=\"link_downed\"", "1"),
        ("errors_total", ",type=\"receive\"", "2"),
        ("errors_total", ",type=\"receive_remote_physical\"", "0"),
        ("errors_total", ",type=\"receive_switch_relay\"", "0"),
        ("errors_total", ",type=\"receive_constraint\"", "0"),
        ("errors_total", ",type=\"transmit_constraint\"", "0"),
        ("errors_total", ",type=\"local_link_integrity\"", "0"),
        ("errors_total", ",type=\"excessive_buffer_overrun\"", "0"),
        ("errors_total", ",type=\"vl15_dropped\"", "4"),
        ("hw_events_total", ",event=\"np_cnp_sent\"", "12884"),
        ("hw_events_total", ",event=\"np_ecn_marked_roce_packets\"", "441882"),
        ("hw_events_total", ",event=\"rp_cnp_handled\"", "12701"),
        ("hw_events_total", ",event=\"out_of_sequence\"", "41"),
        ("hw_events_total", ",event=\"roce_adp_retrans\"", "17"),
        ("state", "", "4"),
        ("physical_state", "", "5"),
        ("speed_bytes", "", "25000000000"),
        (
            "info",
            ",link_layer=\"InfiniBand\",driver=\"mlx5_core\",board=\"MT_0000000223\",firmware=\"20.40.1000\"",
            "1",
        ),
    ]
    .iter()
    .map(|(name, labels, value)| format!("{name}{{{port}{labels}}} {value}"))
    .collect();
    wanted.sort_unstable();
    assert_eq!(section_of_scrape, wanted);
}

#[test]
fn omni_path_counts_flits_and_what_it_does_not_count_is_absent() {
    let machine = Machine::new();
    // Called by another name, as udev's rules may; the driver is what it is.
    mlx5(&machine, "opap1");
    machine.remove(&format!("{CLASS}/opap1/device/driver"));
    driver(&machine, "opap1", "hfi1");
    port(&machine, "opap1", 1, "counters/unicast_rcv_packets 0\ncounters/unicast_xmit_packets 0");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    set(&machine, "opap1", "counters/port_rcv_data", 5_130_875_000_u64 + 250);
    let text = bench.collect(&snapshot).1;
    let port = "{device=\"opap1\",port=\"1\"}";
    assert_eq!(value(&text, &format!("jobledger_node_infiniband_received_bytes_total{port}")), Some(2000.0));
    for absent in [
        "wait_ticks_total{",
        "type=\"symbol\"",
        "type=\"vl15_dropped\"",
        "unicast_packets_total{device=\"opap1\",port=\"1\",direction=\"t",
    ] {
        assert!(!text.lines().any(|l| !l.starts_with('#') && l.contains(absent)), "{absent}: {text}");
    }
    assert!(text.contains("type=\"link_downed\"") && text.contains("driver=\"hfi1\""), "{text}");
}

#[test]
fn a_name_identifies_omni_path_where_the_driver_is_not_known() {
    let machine = Machine::new();
    port(&machine, "hfi1_0", 1, "counters/port_rcv_data 0");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    set(&machine, "hfi1_0", "counters/port_rcv_data", 1);
    let name = "jobledger_node_infiniband_received_bytes_total{device=\"hfi1_0\",port=\"1\"}";
    assert_eq!(value(&bench.collect(&snapshot).1, name), Some(8.0));
}

/// A port without extended counters.
const OLD: &str = "counters/port_rcv_data 4294967200
    counters/port_xmit_data 4294967200
    counters/port_rcv_packets 100
    counters/port_xmit_packets 100";

#[test]
fn a_counter_of_32_bits_is_absent_once_it_is_at_its_end_and_the_others_are_exported() {
    let machine = Machine::new();
    port(&machine, "mlx5_0", 1, OLD);
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    set(&machine, "mlx5_0", "counters/port_rcv_data", u32::MAX);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, &at("received_bytes_total")), Some(95.0 * 4.0), "{text}");
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(value(&text, &at("received_bytes_total")), None, "{text}");
    assert_eq!(value(&text, &at("unattributed_received_bytes_total")), None, "{text}");
    assert_eq!(value(&text, &at("transmitted_bytes_total")), Some(0.0), "{text}");
    let error = outcome.unwrap_err();
    assert_eq!(error.reason(), "partial");
    assert!(error.to_string().contains("more than 32 bits"), "{error}");
    // Somebody resets it.
    set(&machine, "mlx5_0", "counters/port_rcv_data", 0);
    drop(bench.collect(&snapshot));
    set(&machine, "mlx5_0", "counters/port_rcv_data", 5);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, &at("received_bytes_total")), Some(100.0 * 4.0), "{text}");
}

#[test]
fn a_port_with_64_bits_may_stand_at_the_end_of_32() {
    for extended in ["counters/multicast_rcv_packets 0", "counters/unicast_rcv_packets 0"] {
        let machine = Machine::new();
        port(&machine, "mlx5_0", 1, OLD);
        port(&machine, "mlx5_0", 1, extended);
        set(&machine, "mlx5_0", "counters/port_rcv_data", u32::MAX);
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let mut bench = Bench::new(&ENTRY, &snapshot);
        drop(bench.collect(&snapshot));
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!((outcome, value(&text, &at("received_bytes_total"))), (Ok(()), Some(0.0)), "{text}");
    }
}

#[test]
fn a_port_with_64_bits_that_does_not_say_so_is_known_by_its_numbers() {
    let machine = Machine::new();
    port(&machine, "mlx5_0", 1, OLD);
    set(&machine, "mlx5_0", "counters/port_rcv_data", 1_u64 << 40);
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!((outcome, value(&text, &at("received_bytes_total"))), (Ok(()), Some(0.0)), "{text}");
}

#[test]
fn extended_counters_of_old_drivers_are_taken_instead_of_short_ones() {
    let machine = Machine::new();
    port(&machine, "mlx5_0", 1, OLD);
    port(
        &machine,
        "mlx5_0",
        1,
        "counters/port_rcv_data 4294967295
        counters_ext/port_rcv_data_64 9000000000
        counters_ext/port_xmit_data_64 9000000000
        counters_ext/port_rcv_packets_64 100
        counters_ext/port_xmit_packets_64 100
        counters_ext/port_unicast_rcv_packets 60",
    );
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    set(&machine, "mlx5_0", "counters_ext/port_rcv_data_64", 9_000_000_100_u64);
    set(&machine, "mlx5_0", "counters_ext/port_xmit_packets_64", 107);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, &at("received_bytes_total")), Some(400.0), "{text}");
    assert_eq!(value(&text, &at("transmitted_packets_total")), Some(7.0), "{text}");
    assert!(text.contains("unicast_packets_total{device=\"mlx5_0\",port=\"1\",direction=\"received\"} 60"));
}

#[test]
fn an_error_counter_at_its_end_is_absent_with_the_reason() {
    let machine = Machine::new();
    mlx5(&machine, "mlx5_0");
    set(&machine, "mlx5_0", "counters/link_downed", 255);
    set(&machine, "mlx5_0", "counters/symbol_error", 65_536);
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let (outcome, text) = Bench::new(&ENTRY, &snapshot).collect(&snapshot);
    assert!(!text.contains("type=\"link_downed\""), "{text}");
    assert!(text.contains("type=\"symbol\"} 65536\n"), "beyond the width that the kernel knows: {text}");
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("a reset of counters/link_downed"), "{error}");
}

/// bnxt_re before it answered performance management.
const BNXT: &str = "hw_counters/lifespan 10
    hw_counters/active_qps 12
    hw_counters/rx_bytes 1000
    hw_counters/tx_bytes 2000
    hw_counters/rx_pkts 10
    hw_counters/tx_pkts 20
    hw_counters/tx_cnp_pkts 5
    hw_counters/oos_drop_count 6
    link_layer Ethernet
    state 4: ACTIVE
    phys_state 5: LinkUp
    rate 100 Gb/sec (4X EDR)";

#[test]
fn roce_without_performance_management_has_the_drivers_own_bytes() {
    for old_kernel in [false, true] {
        let machine = Machine::new();
        port(&machine, "mlx5_0", 1, BNXT);
        if old_kernel {
            for name in ["port_rcv_data", "port_xmit_data", "port_rcv_packets", "symbol_error"] {
                set(&machine, "mlx5_0", &format!("counters/{name}"), "N/A (no PMA)");
            }
        }
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let mut bench = Bench::new(&ENTRY, &snapshot);
        assert_eq!(bench.collect(&snapshot).0, Ok(()));
        set(&machine, "mlx5_0", "hw_counters/rx_bytes", 1300);
        set(&machine, "mlx5_0", "hw_counters/tx_pkts", 21);
        let (outcome, text) = bench.collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, &at("received_bytes_total")), Some(300.0), "{text}");
        assert_eq!(value(&text, &at("transmitted_bytes_total")), Some(0.0), "{text}");
        assert_eq!(value(&text, &at("transmitted_packets_total")), Some(1.0), "{text}");
        assert_eq!(value(&text, &at("speed_bytes")), Some(12.5e9), "{text}");
        assert!(!text.contains("active_qps") && !text.contains("type=\"symbol\""), "{text}");
        assert!(
            text.contains("event=\"tx_cnp_pkts\"} 5\n") && text.contains("event=\"oos_drop_count\"} 6\n")
        );
    }
}

#[test]
fn rxe_has_packets_and_no_bytes() {
    let machine = Machine::new();
    port(
        &machine,
        "mlx5_0",
        1,
        "link_layer Ethernet\nphys_state 5: LinkUp\nrate 2.5 Gb/sec (1X SDR)\nstate 4: ACTIVE\nhw_counters/lifespan 12
        hw_counters/ack_deferred 0\nhw_counters/rcvd_pkts 0\nhw_counters/sent_pkts 0\nhw_counters/link_downed 0
        hw_counters/rdma_recvs 0\nhw_counters/rdma_sends 0\nhw_counters/duplicate_request 0",
    );
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    drop(bench.collect(&snapshot));
    set(&machine, "mlx5_0", "hw_counters/rcvd_pkts", 9);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, &at("received_packets_total")), Some(9.0), "{text}");
    assert_eq!(value(&text, &at("speed_bytes")), Some(312_500_000.0), "{text}");
    assert!(!text.contains("_received_bytes"), "{text}");
    assert!(text.contains("driver=\"\",board=\"\",firmware=\"\""), "{text}");
}

#[test]
fn of_two_ports_the_one_that_is_down_has_no_speed_and_its_counters() {
    let machine = Machine::new();
    mlx5(&machine, "mlx4_0");
    port(&machine, "mlx4_0", 2, MLX5);
    port(&machine, "mlx4_0", 2, "state 1: DOWN\nphys_state 2: Polling\nrate 10 Gb/sec (4X SDR)");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let (outcome, text) = Bench::new(&ENTRY, &snapshot).collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    for (name, of_1, of_2) in [
        ("state", Some(4.0), Some(1.0)),
        ("physical_state", Some(5.0), Some(2.0)),
        ("speed_bytes", Some(25e9), None),
        ("received_bytes_total", Some(0.0), Some(0.0)),
    ] {
        let of = |port| format!("jobledger_node_infiniband_{name}{{device=\"mlx4_0\",port=\"{port}\"}}");
        assert_eq!((value(&text, &of(1)), value(&text, &of(2))), (of_1, of_2), "{name}: {text}");
    }
}

#[test]
fn a_file_that_fails_costs_its_own_number() {
    let machine = Machine::new();
    mlx5(&machine, "mlx5_0");
    mlx5(&machine, "mlx5_1");
    for file in ["counters/port_rcv_data", "counters/symbol_error", "rate"] {
        machine.remove(&format!("{CLASS}/mlx5_0/ports/1/{file}"));
        machine.write(&format!("{CLASS}/mlx5_0/ports/1/{file}/is_a_directory"), "");
    }
    set(&machine, "mlx5_0", "counters/link_downed", "-1");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let (outcome, text) = Bench::new(&ENTRY, &snapshot).collect(&snapshot);
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("counters/port_rcv_data"), "{error}");
    assert!(matches!(error, SourceError::Partial { failed: 4, .. }), "{error}");
    assert_eq!(value(&text, &at("received_bytes_total")), None);
    assert_eq!(value(&text, &at("transmitted_bytes_total")), Some(0.0), "{text}");
    assert_eq!(value(&text, &at("speed_bytes")), None);
    assert!(text.contains("mlx5_0\",port=\"1\",type=\"receive\"}") && text.contains("mlx5_1"), "{text}");
}

#[test]
fn devices_come_and_go_and_one_that_comes_back_counts_from_its_own_beginning() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome.unwrap_err().to_string(), format!("unsupported: needs {NEEDS}"));
    assert!(samples(&text).is_empty());
    machine.write(&format!("{CLASS}/x"), "");
    assert_eq!(bench.collect(&snapshot).0.unwrap_err().reason(), "unsupported", "a class without devices");
    mlx5(&machine, "mlx5_0");
    drop(bench.collect(&snapshot));
    set(&machine, "mlx5_0", "counters/port_rcv_data", 5_130_875_010_u64);
    assert_eq!(value(&bench.collect(&snapshot).1, &at("received_bytes_total")), Some(40.0));
    let class = machine.path.join(CLASS);
    std::fs::rename(class.join("mlx5_0"), machine.path.join("gone")).unwrap();
    assert_eq!(bench.collect(&snapshot).0.unwrap_err().reason(), "unsupported");
    mlx5(&machine, "mlx5_0");
    set(&machine, "mlx5_0", "counters/port_rcv_data", 6_000_000_000_u64);
    mlx5(&machine, "mlx5_1");
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!(value(&text, &at("received_bytes_total")), Some(40.0), "another one: {text}");
    assert!(text.contains("mlx5_1"), "{text}");
    set(&machine, "mlx5_0", "counters/port_rcv_data", 6_000_000_001_u64);
    assert_eq!(value(&bench.collect(&snapshot).1, &at("received_bytes_total")), Some(44.0));
}

/// The collector on a node where jobs come and go.
struct Node {
    machine: Machine,
    built: Built,
    occupancy: OccupancyObserver,
}

impl Node {
    fn new() -> Self {
        let machine = Machine::new();
        let users = Users::start(Box::new(|_| None)).unwrap();
        let context = BuildContext::new(Arc::new(machine.roots()), Arc::new(users));
        let built = built(&ENTRY, &context);
        let occupancy = OccupancyObserver(context.interval_reader.clone());
        occupancy.initial_scan_done();
        Self { machine, built, occupancy }
    }

    fn job(&self, id: u32) -> slurm_jobs::Job {
        self.machine.write(&format!("cgroup/job_{id}/cgroup.procs"), "");
        job(id, self.machine.v2(&format!("job_{id}")), &[])
    }

    fn collect(&mut self, jobs: &[slurm_jobs::Job]) -> String {
        let mut section = Section::default();
        let _ = self.built.collector.collect(&snapshot_of(self.machine.roots(), jobs.to_vec()), &mut section);
        let mut text = String::new();
        encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
        text
    }
}

const JOB: &str = "jobledger_job_infiniband_received_bytes_total{jobid=\"1\",device=\"mlx5_0\",port=\"1\"}";

#[test]
fn a_job_that_has_the_node_for_itself_is_charged_and_the_sums_balance() {
    jobledger_testkit::in_time(|| {
        let mut node = Node::new();
        mlx5(&node.machine, "mlx5_0");
        drop(node.collect(&[]));
        let one = node.job(1);
        node.occupancy.job_started(&one);
        std::thread::sleep(Duration::from_millis(120));
        set(&node.machine, "mlx5_0", "counters/port_rcv_data", 5_130_875_100_u64);
        let two = node.job(2);
        node.occupancy.job_started(&two);
        std::thread::sleep(Duration::from_millis(120));
        set(&node.machine, "mlx5_0", "counters/port_rcv_data", 5_130_875_107_u64);
        let text = node.collect(&[one, two]);
        assert_eq!(value(&text, JOB), Some(400.0), "{text}");
        assert_eq!(value(&text, &at("received_bytes_total")), Some(428.0), "{text}");
        assert_eq!(value(&text, &at("unattributed_received_bytes_total")), Some(28.0), "{text}");
        assert!(!text.contains("jobid=\"2\""), "{text}");
    });
}

#[test]
fn what_may_be_from_before_a_job_had_the_node_is_unattributed() {
    jobledger_testkit::in_time(|| {
        for (lifespan, charged) in [(10, Some(5.0)), (10_000, None)] {
            let mut node = Node::new();
            port(&node.machine, "mlx5_0", 1, BNXT);
            set(&node.machine, "mlx5_0", "hw_counters/lifespan", lifespan);
            drop(node.collect(&[]));
            let one = node.job(1);
            node.occupancy.job_started(&one);
            std::thread::sleep(Duration::from_millis(120));
            // With a long lifespan the kernel may show only now what came in before the job.
            set(&node.machine, "mlx5_0", "hw_counters/rx_bytes", 1005);
            let text = node.collect(&[one]);
            assert_eq!(value(&text, JOB), charged, "{lifespan}: {text}");
            assert_eq!(value(&text, &at("received_bytes_total")), Some(5.0), "{text}");
        }
    });
}
