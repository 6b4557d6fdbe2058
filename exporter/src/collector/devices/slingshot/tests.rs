use std::sync::Arc;
use std::time::Duration;

use exposition::{Section, encode_openmetrics};
use slurm_jobs::JobObserver;

use super::*;
use crate::collector::BuildContext;
use crate::collector::interval_reader::OccupancyObserver;
use crate::collector::testing::{Bench, Machine, built, job, snapshot_of, value};

const DEVICE: &str = "sys/class/cxi/cxi0/device";

fn set(machine: &Machine, file: &str, value: u64) {
    machine.write(&format!("{DEVICE}/telemetry/{file}"), format!("{value}@1700000000.000000042\n"));
}

/// A Cassini with its link up; every size of packet was seen as often as its place in the list.
fn cassini(machine: &Machine) {
    for (count, file) in (1..).zip(RECEIVED_SIZES.iter().chain(TRANSMITTED_SIZES)) {
        machine.write(&format!("{DEVICE}/{file}"), format!("{count}@1700000000.000000042\n"));
    }
    set(machine, "hni_sts_rx_ok_octets", 6_301_823);
    set(machine, "hni_sts_tx_ok_octets", 1_000);
    set(machine, "hni_pcs_corrected_cw", 77);
    set(machine, "hni_pcs_uncorrected_cw", 1);
    set(machine, "hni_llr_tx_replay_event", 2);
    set(machine, "atu_cache_miss_0", 5);
    for (file, content) in
        [("link", "1"), ("speed", "200000"), ("cassini_version", "1.1"), ("driver_rev", "a9a6cb1")]
    {
        machine.write(&format!("{DEVICE}/properties/{file}"), format!("{content}\n"));
    }
}

fn at(name: &str) -> String {
    format!("jobledger_node_slingshot_{name}{{device=\"cxi0\"}}")
}

#[test]
fn everything_that_a_device_reports_is_exported() {
    let machine = Machine::new();
    cassini(&machine);
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0, Ok(()));
    set(&machine, "hni_sts_rx_ok_octets", 6_302_823);
    set(&machine, "hni_sts_tx_ok_octets", 1_007);
    set(&machine, "hni_rx_ok_27", 1 + 30);
    set(&machine, "hni_rx_ok_8192_to_max", 12 + 3);
    set(&machine, "hni_tx_ok_64", 16 + 1);
    let (outcome, text) = bench.collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    for (name, wanted) in [
        ("received_bytes_total", 1000.0),
        ("unattributed_received_bytes_total", 1000.0),
        ("transmitted_bytes_total", 7.0),
        ("received_packets_total", 33.0),
        ("transmitted_packets_total", 1.0),
        ("link_up", 1.0),
        ("speed_bytes", 25e9),
    ] {
        assert_eq!(value(&text, &at(name)), Some(wanted), "{name}: {text}");
    }
    let events: Vec<_> = text.lines().filter(|line| line.contains("event=")).collect();
    assert_eq!(
        events,
        [
            "jobledger_node_slingshot_events_total{device=\"cxi0\",event=\"hni_pcs_corrected_cw\"} 77",
            "jobledger_node_slingshot_events_total{device=\"cxi0\",event=\"hni_pcs_uncorrected_cw\"} 1",
            "jobledger_node_slingshot_events_total{device=\"cxi0\",event=\"hni_llr_tx_replay_event\"} 2",
        ]
    );
    assert!(text.contains("_info{device=\"cxi0\",cassini=\"1.1\",driver=\"a9a6cb1\"} 1\n"), "{text}");
}

#[test]
fn packets_of_a_part_of_the_sizes_are_no_number() {
    let machine = Machine::new();
    cassini(&machine);
    machine.remove(&format!("{DEVICE}/telemetry/hni_rx_ok_64"));
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    let (_, text) = bench.collect(&snapshot);
    assert_eq!(value(&text, &at("received_packets_total")), None);
    assert_eq!(value(&text, &at("received_bytes_total")), Some(0.0));
    machine.remove(&format!("{DEVICE}/telemetry/hni_tx_ok_27"));
    machine.write(&format!("{DEVICE}/telemetry/hni_tx_ok_27/is_a_directory"), "");
    let (outcome, text) = bench.collect(&snapshot);
    let error = outcome.unwrap_err();
    assert!(error.reason() == "partial" && error.to_string().contains("hni_tx_ok_27"), "{error}");
    assert_eq!(value(&text, &at("transmitted_packets_total")), None);
    assert_eq!(value(&text, &at("transmitted_bytes_total")), Some(0.0));
}

#[test]
fn a_link_that_is_down_has_no_speed() {
    let machine = Machine::new();
    cassini(&machine);
    machine.write(&format!("{DEVICE}/properties/link"), "0\n");
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let (outcome, text) = Bench::new(&ENTRY, &snapshot).collect(&snapshot);
    assert_eq!(outcome, Ok(()));
    assert_eq!((value(&text, &at("link_up")), value(&text, &at("speed_bytes"))), (Some(0.0), None));
}

#[test]
fn devices_come_and_go() {
    let machine = Machine::new();
    let snapshot = snapshot_of(machine.roots(), Vec::new());
    let mut bench = Bench::new(&ENTRY, &snapshot);
    assert_eq!(bench.collect(&snapshot).0.unwrap_err().to_string(), format!("unsupported: needs {NEEDS}"));
    cassini(&machine);
    drop(bench.collect(&snapshot));
    set(&machine, "hni_sts_tx_ok_octets", 1_010);
    assert_eq!(value(&bench.collect(&snapshot).1, &at("transmitted_bytes_total")), Some(10.0));
    std::fs::rename(machine.path.join("sys/class/cxi/cxi0"), machine.path.join("gone")).unwrap();
    assert_eq!(bench.collect(&snapshot).0.unwrap_err().reason(), "unsupported");
    cassini(&machine);
    set(&machine, "hni_sts_tx_ok_octets", 5_000);
    assert_eq!(value(&bench.collect(&snapshot).1, &at("transmitted_bytes_total")), Some(10.0), "another one");
}

#[test]
fn a_job_that_has_the_node_for_itself_is_charged() {
    jobledger_testkit::in_time(|| {
        let machine = Machine::new();
        cassini(&machine);
        let users = Arc::new(slurm_jobs::Users::start(Box::new(|_| None)).unwrap());
        let context = BuildContext::new(Arc::new(machine.roots()), users);
        let mut built = built(&ENTRY, &context);
        machine.write("cgroup/job_1/cgroup.procs", "");
        let one = job(1, machine.v2("job_1"), &[]);
        let mut collect = |jobs: &[slurm_jobs::Job]| {
            let mut section = Section::default();
            built.collector.collect(&snapshot_of(machine.roots(), jobs.to_vec()), &mut section).unwrap();
            let mut text = String::new();
            encode_openmetrics(&[Arc::new(section)], &mut text).unwrap();
            text
        };
        let occupancy = OccupancyObserver(context.interval_reader.clone());
        occupancy.initial_scan_done();
        collect(&[]);
        occupancy.job_started(&one);
        std::thread::sleep(Duration::from_millis(120));
        set(&machine, "hni_sts_rx_ok_octets", 6_301_823 + 500);
        let text = collect(&[one]);
        let of_job = "jobledger_job_slingshot_received_bytes_total{jobid=\"1\",device=\"cxi0\"}";
        assert_eq!(value(&text, of_job), Some(500.0), "{text}");
        assert_eq!(value(&text, &at("received_bytes_total")), Some(500.0), "{text}");
        assert_eq!(value(&text, &at("unattributed_received_bytes_total")), Some(0.0), "{text}");
    });
}

#[test]
fn telemetry_is_a_value_and_its_time() {
    assert_eq!(parse_telemetry(b"6301823@1690000000.123456789\n"), Ok(6_301_823));
    assert_eq!(parse_telemetry(b"18446744073709551615@0.000000000\n"), Ok(u64::MAX));
    for bad in [&b""[..], b"\n", b"5\n", b"@5\n", b"-5@1.0\n", b"x@1.0\n"] {
        assert!(parse_telemetry(bad).is_err(), "{}", String::from_utf8_lossy(bad));
    }
}
