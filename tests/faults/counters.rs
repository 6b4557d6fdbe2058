//! Counters of the node that wrap, go back, vanish, fail or are denied. Rows 5, 6, 26, 27 and 28.

use std::os::unix::process::CommandExt;
use std::time::Duration;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::exposition::Exposition;
use jobledger_testkit::machine::Machine;

use crate::support::*;

const POWERCAP: &str = "sys/class/powercap";
/// That of the fixture machine.
const RANGE: u64 = 262_143_328_850;
const HCA: &str = "sys/class/infiniband/mlx5_0/ports/1";

fn node(fixture: &str) -> Node {
    Node(Machine::fixture(fixture))
}

fn rapl(node: &Node, zone: &str, microjoules: u64) {
    node.0.write(format!("{POWERCAP}/intel-rapl:{zone}/energy_uj"), format!("{microjoules}\n"));
}

/// A scrape after the minimum pause between two readings of energy.
fn scrape_later(exporter: &Exporter) -> Exposition {
    std::thread::sleep(Duration::from_millis(1100));
    scrape(exporter)
}

fn joules(now: &Exposition, domain: &str, socket: &str) -> Option<f64> {
    let labels = [("domain", domain), ("socket", socket), ("source", "powercap")];
    now.value("jobledger_node_energy_joules_total", &labels)
}

/// Checks Σ jobs + unattributed = node.
fn balanced(now: &Exposition) {
    for (domain, socket) in [("package", "0"), ("package", "1"), ("dram", "0"), ("dram", "1")] {
        let here = |name: &'static str| {
            let of = |s: &&jobledger_testkit::exposition::Sample| {
                s.label("domain") == Some(domain) && s.label("socket") == Some(socket)
            };
            now.named(name).filter(of).map(|s| s.value).sum::<f64>()
        };
        let jobs = here("jobledger_job_energy_joules_total");
        let nobody = here("jobledger_node_energy_unattributed_joules_total");
        let node = here("jobledger_node_energy_joules_total");
        assert!((jobs + nobody - node).abs() < 1e-5, "{domain} {socket}: {jobs} + {nobody} != {node}");
    }
}

fn restarts(now: &Exposition, collector: &str) -> Option<f64> {
    now.value("jobledger_exporter_counter_restarts_total", &[("collector", collector)])
}

/// Rows 26 and 27: a wrap is counted; after a decrease without a wrap nothing is guessed.
#[test]
fn energy_counters_wrap_and_restart() {
    let node = node("energy-intel-2s");
    rapl(&node, "0", RANGE - 5_000_000);
    rapl(&node, "1", RANGE / 2);
    let exporter = node.start(&["--collector.energy.idle-watts=package=100000"]);
    assert_eq!(joules(&scrape_later(&exporter), "package", "0"), Some(0.0), "earlier energy is unattributed");
    rapl(&node, "0", 7_000_000);
    // Half the range in a tenth of a second is too much power for a socket: the driver was reloaded.
    rapl(&node, "1", 3_000_000);
    rapl(&node, "0:0", 405_300_900 + 2_000_000);
    let now = scrape_later(&exporter);
    // The last value before the wrap is the range itself, so a wrap is one more.
    assert_eq!(joules(&now, "package", "0"), Some(12.000_001));
    assert_eq!((joules(&now, "package", "1"), restarts(&now, "energy")), (Some(0.0), Some(1.0)));
    assert_eq!(joules(&now, "dram", "0"), Some(2.0));
    balanced(&now);
    // Job 81 has both CPUs of socket 0, and all power is said to be idle power.
    let labels =
        [("jobid", "81"), ("domain", "package"), ("socket", "0"), ("method", "cpus_held_and_cpu_time")];
    let charged = now.value("jobledger_job_energy_joules_total", &labels).unwrap();
    assert!((charged - 12.0).abs() < 1e-3, "{charged}");
    rapl(&node, "1", 4_000_000);
    let now = scrape_later(&exporter);
    assert_eq!(joules(&now, "package", "1"), Some(1.0));
    balanced(&now);
}

/// Row 5: one zone fails, another disappears and comes back.
#[test]
fn an_energy_zone_that_fails_affects_only_itself_and_loses_nothing() {
    let node = node("energy-intel-2s");
    let exporter = node.start(&[]);
    scrape_later(&exporter);
    let file = format!("{POWERCAP}/intel-rapl:0/energy_uj");
    let before = 2_025_286_500;
    node.0.remove(&file).mkdir(&file);
    rapl(&node, "1", before + 1_000_003 + 4_000_000);
    let now = scrape_later(&exporter);
    assert_eq!((joules(&now, "package", "0"), joules(&now, "package", "1")), (None, Some(4.0)));
    assert_eq!((success(&now, "energy"), errors(&now, "energy", "partial")), (Some(0.0), Some(1.0)));
    node.0.remove(&file);
    rapl(&node, "0", before + 9_000_000);
    let now = scrape_later(&exporter);
    assert_eq!((joules(&now, "package", "0"), success(&now, "energy")), (Some(9.0), Some(1.0)));
    balanced(&now);
    // Unplugged: its counter may restart, so that interval is not counted.
    let zone = format!("{POWERCAP}/intel-rapl:1");
    node.0.rename(&zone, "unplugged");
    assert_eq!(joules(&scrape_later(&exporter), "package", "1"), None);
    node.0.rename("unplugged", &zone);
    rapl(&node, "1", before + 50_000_000);
    assert_eq!(joules(&scrape_later(&exporter), "package", "1"), Some(4.0));
    rapl(&node, "1", before + 51_000_000);
    let now = scrape_later(&exporter);
    assert_eq!(joules(&now, "package", "1"), Some(5.0));
    balanced(&now);
}

/// Row 6: only root can read RAPL on an ordinary system.
#[test]
fn denied_energy_is_reported_with_its_fix_and_is_no_zero() {
    if skip_without_root() {
        return;
    }
    let node = node("energy-intel-2s");
    let exporter = Exporter::prepared(BINARY, &node.flags(&[]), |command| {
        command.uid(NOBODY).gid(NOBODY);
    });
    for _ in 0..3 {
        let now = scrape(&exporter);
        assert!(now.family("jobledger_node_energy_joules_total").is_none());
        assert_eq!(success(&now, "energy"), Some(0.0));
        let status = detail(&now, "energy");
        assert!(status.contains("CAP_PERFMON"), "{status}");
    }
    assert_eq!(exporter.log().matches("WARN denied: ").count(), 1, "{}", exporter.log());
}

/// Rows 5, 26 and 27, of a port.
#[test]
fn a_port_that_vanishes_comes_back_and_goes_back() {
    let node = node("v2-infiniband");
    let exporter = node.start(&[]);
    let bytes = |now: &Exposition| {
        let labels = [("device", "mlx5_0"), ("port", "1")];
        now.value("jobledger_node_infiniband_received_bytes_total", &labels)
    };
    let set = |words: u64| {
        node.0.write(format!("{HCA}/counters/port_rcv_data"), format!("{words}\n"));
    };
    set(9_000_000_000_000);
    scrape(&exporter);
    set(9_000_000_000_100);
    let first = bytes(&scrape(&exporter)).unwrap();
    set(9_000_000_000_350);
    assert_eq!(bytes(&scrape(&exporter)), Some(first + 1000.0), "words of four bytes");
    // Reset by hand.
    set(10);
    let now = scrape(&exporter);
    assert_eq!((bytes(&now), restarts(&now, "infiniband")), (Some(first + 1000.0), Some(1.0)));
    set(15);
    assert_eq!(bytes(&scrape(&exporter)), Some(first + 1020.0));
    // Not a number.
    node.0.write(format!("{HCA}/counters/port_rcv_data"), "many\n");
    let now = scrape(&exporter);
    assert_eq!((bytes(&now), success(&now, "infiniband")), (None, Some(0.0)));
    assert!(
        now.value(
            "jobledger_node_infiniband_transmitted_bytes_total",
            &[("device", "mlx5_0"), ("port", "1")]
        )
        .is_some()
    );
    set(15);
    let devices = "sys/class/infiniband/mlx5_0";
    node.0.rename(devices, "unplugged");
    let now = scrape(&exporter);
    assert_eq!((bytes(&now), success(&now, "infiniband")), (None, Some(1.0)), "others are there");
    node.0.rename("unplugged", devices);
    assert!(bytes(&scrape(&exporter)).is_some());
}

/// Row 30: attribution depends on the jobs on the node, also between two scrapes.
#[test]
fn a_job_that_starts_between_two_scrapes_has_the_counters_read() {
    jobledger_testkit::in_time(|| {
        let node = node("v2-infiniband");
        let exporter = node.start(&["--jobs.retention=1h"]);
        // The fixture's job is alone on the node.
        eventually(&exporter, "the job is there", |now| {
            !jobs_in(now, "jobledger_job_alone_seconds_total").is_empty()
        });
        let set = |words: u64| {
            node.0.write(format!("{HCA}/counters/port_rcv_data"), format!("{words}\n"));
        };
        let of = |now: &Exposition, name: &str, job: Option<&str>| {
            let mut labels = vec![("device", "mlx5_0"), ("port", "1")];
            labels.extend(job.map(|id| ("jobid", id)));
            now.value(name, &labels)
        };
        set(2_000_000_000_000);
        let first = scrape(&exporter);
        std::thread::sleep(Duration::from_millis(100));
        set(2_000_000_000_025);
        node.add_job(10, 10);
        // No metric has the time of the reading, and the second job's bytes must come after it.
        std::thread::sleep(Duration::from_millis(500));
        set(2_000_000_000_125);
        let now = scrape(&exporter);
        let gained = |name: &str, job: Option<&str>| {
            of(&now, name, job).unwrap_or(0.0) - of(&first, name, job).unwrap_or(0.0)
        };
        assert_eq!(gained("jobledger_job_infiniband_received_bytes_total", Some("601")), 100.0);
        assert_eq!(gained("jobledger_node_infiniband_unattributed_received_bytes_total", None), 400.0);
        assert_eq!(gained("jobledger_node_infiniband_received_bytes_total", None), 500.0);
        assert_eq!(
            of(&now, "jobledger_job_infiniband_received_bytes_total", Some("10")),
            None,
            "never alone"
        );
    });
}

/// Row 10, of a counter: a read that hangs blocks its collector and one thread, also if jobs start and end meanwhile.
#[test]
fn a_port_that_hangs_affects_only_its_collector_and_one_thread() {
    let node = node("v2-infiniband");
    let exporter = node.start(&[]);
    scrape(&exporter);
    let file = format!("{HCA}/counters/port_rcv_data");
    node.0.remove(&file).fifo(&file);
    let (slept, now) = quiet_time(|| {
        for id in 10..20 {
            node.add_job(id, 1);
            node.remove_job(id);
        }
        scrape_within(&exporter, "3")
    });
    assert!(slept < Duration::from_secs(10), "{slept:?}");
    assert_eq!(success(&now, "infiniband"), Some(0.0));
    assert_eq!(success(&now, "cpu"), Some(1.0));
    let threads = || std::fs::read_dir(format!("/proc/{}/task", exporter.pid())).unwrap().count();
    let most = threads();
    for id in 20..40 {
        node.add_job(id, 1);
        node.remove_job(id);
        scrape_within(&exporter, "3");
    }
    assert!(threads() <= most + 2, "{} threads after {most}", threads());
}
