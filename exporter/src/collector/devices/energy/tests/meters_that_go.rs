//! Meters that go and others that take over, as when CPUs come and go: nothing that was counted is lost.

use energy_meters::ZoneRole;

use super::*;
use crate::collector::testing::restore;

/// What a page has of the package of socket 0: of job 7, unattributed, and as powercap and its memory-mapped registers
/// measured it; rounded to a hundredth of a joule.
fn of_package(text: &str) -> [Option<f64>; 4] {
    let job = text.contains("{jobid=\"7\",domain=\"package\",socket=\"0\"");
    [
        job.then(|| jobs_part(text, 7, "package", "0")),
        unattributed(text, "package", "0"),
        node_total(text, "package", "0"),
        total_of(text, "package", "0", "powercap_mmio"),
    ]
    .map(|joules| joules.map(|joules| (joules * 100.0).round() / 100.0))
}

/// What the page says of the package of socket 0 by a source.
fn is(text: &str, source: &str, role: ZoneRole) -> bool {
    let labels = format!("domain=\"package\",socket=\"0\",source=\"{source}\"");
    text.contains(&format!("zone_info{{{labels},standing=\"{}\"", role.as_str()))
}

const BOTH: &str = "0-3\n";

impl Node {
    /// Socket 0 by memory-mapped registers, too. Job 7 holds half of it, and no idle power is known.
    fn with_both() -> Self {
        let mut node = Self::new(&[]);
        node.spends_mmio(0);
        let dir = format!("{POWERCAP}/intel-rapl-mmio:0");
        node.machine.write(&format!("{dir}/name"), "package-0\n");
        node.machine.write(&format!("{dir}/max_energy_range_uj"), format!("{RANGE}\n"));
        node.built = built(&ENTRY, &node.context);
        node.appears(0).appears(1);
        drop(node.collect());
        node
    }

    fn spends_mmio(&self, microjoules: u64) {
        self.machine.write(&format!("{POWERCAP}/intel-rapl-mmio:0/energy_uj"), format!("{microjoules}\n"));
    }

    /// Meters are looked for again when the CPUs that are online are others.
    fn with_cpus(&mut self, online: &str) -> (Result<(), SourceError>, String) {
        self.machine.write("sys/devices/system/cpu/online", online);
        self.collect()
    }

    fn later(&mut self) -> (Result<(), SourceError>, String) {
        std::thread::sleep(Duration::from_millis(20));
        self.collect()
    }

    fn hides_socket_0(&self) {
        self.machine
            .remove(&format!("{POWERCAP}/intel-rapl:0"))
            .remove(&format!("{POWERCAP}/intel-rapl:0:0"));
    }

    fn loses_socket_0(&mut self) -> (Result<(), SourceError>, String) {
        self.hides_socket_0();
        self.with_cpus("0-2\n")
    }

    /// What its counters have by now is written later.
    fn finds_socket_0(&self) {
        for (zone, name) in [("0", "package-0"), ("0:0", "dram")] {
            let dir = format!("{POWERCAP}/intel-rapl:{zone}");
            self.machine.write(&format!("{dir}/name"), format!("{name}\n"));
            self.machine.write(&format!("{dir}/max_energy_range_uj"), format!("{RANGE}\n"));
            self.machine.write(&format!("{dir}/energy_uj"), "0\n");
        }
    }

    fn restart(&mut self) {
        let after = built(&ENTRY, &self.context);
        let runs = self.jobs.each_ref().map(|job| job.run);
        restore(&**self.built.durable.as_ref().unwrap(), &**after.durable.as_ref().unwrap(), &runs);
        self.built = after;
        self.appears(0).appears(1);
    }
}

#[test]
fn what_a_meter_counted_that_went_stays_in_all_sums() {
    let mut node = Node::with_both();
    node.spends("0", 1_000_000_000).spends("0:0", 70_000_000);
    let (_, text) = node.later();
    assert_eq!(of_package(&text), [Some(500.0), Some(500.0), Some(1000.0), None]);
    let (outcome, text) = node.loses_socket_0();
    assert_eq!(outcome, Ok(()));
    assert_eq!(of_package(&text), [Some(500.0), Some(500.0), Some(1000.0), Some(0.0)], "{text}");
    assert!(is(&text, "powercap", ZoneRole::Retired) && is(&text, "powercap_mmio", ZoneRole::Attributed));
    assert_eq!(node_total(&text, "dram", "0"), Some(70.0), "nothing measures it now: {text}");
    assert_eq!(unattributed(&text, "dram", "0"), Some(70.0), "{text}");
    node.spends_mmio(200_000_000);
    let (outcome, text) = node.later();
    assert_eq!((outcome, of_package(&text)), (Ok(()), [Some(600.0), Some(600.0), Some(1000.0), Some(200.0)]));
    // What is missing of one meter is missing of the sum.
    node.machine.write(&format!("{POWERCAP}/intel-rapl-mmio:0/energy_uj"), "nonsense\n");
    let (_, text) = node.collect();
    assert_eq!(of_package(&text), [None; 4], "{text}");
    let seven = ended(&node.jobs[0]);
    let (_, text) = node.collect_these(std::slice::from_ref(&seven));
    assert_eq!(of_package(&text)[0], Some(600.0), "{text}");
    node.spends_mmio(200_000_000);
    let (_, text) = node.collect();
    assert_eq!(of_package(&text), [Some(600.0), Some(600.0), Some(1000.0), Some(200.0)], "{text}");
}

#[test]
fn what_a_meter_counted_that_went_outlives_a_restart() {
    let mut node = Node::with_both();
    node.spends("0", 1_000_000_000).spends("0:0", 70_000_000);
    drop(node.later());
    node.restart();
    drop(node.loses_socket_0());
    for joules in [200, 400] {
        node.spends_mmio(joules * 1_000_000);
        drop(node.later());
        node.restart();
        let (outcome, text) = node.collect();
        assert_eq!(outcome, Ok(()));
        let half = Some(500.0 + joules as f64 / 2.0);
        assert_eq!(of_package(&text), [half, half, Some(1000.0), Some(joules as f64)], "{text}");
        assert!(is(&text, "powercap", ZoneRole::Retired), "{text}");
        assert_eq!(unattributed(&text, "dram", "0"), Some(70.0), "{text}");
    }
}

#[test]
fn a_meter_that_comes_back_goes_on_and_the_one_in_its_place_is_retired() {
    let mut node = Node::with_both();
    node.spends("0", 1_000_000_000);
    drop(node.later());
    drop(node.loses_socket_0());
    node.spends_mmio(200_000_000);
    drop(node.later());
    node.finds_socket_0();
    // What it counted meanwhile the other one counted, too.
    node.spends("0", 2_000_000_000).spends("0:0", 9_000_000);
    let (outcome, text) = node.with_cpus(BOTH);
    assert_eq!(outcome, Ok(()));
    assert_eq!(of_package(&text), [Some(600.0), Some(600.0), Some(1000.0), Some(200.0)], "{text}");
    assert!(is(&text, "powercap", ZoneRole::Attributed) && is(&text, "powercap_mmio", ZoneRole::Retired));
    node.spends("0", 2_100_000_000);
    node.spends_mmio(900_000_000);
    let (outcome, text) = node.later();
    assert_eq!(outcome, Ok(()));
    assert_eq!(of_package(&text), [Some(650.0), Some(650.0), Some(1100.0), Some(200.0)], "{text}");
}

#[test]
fn a_meter_that_is_found_late_after_a_restart_does_not_count_what_another_counted_meanwhile() {
    let mut node = Node::with_both();
    node.spends("0", 1_000_000_000);
    drop(node.later());
    node.hides_socket_0();
    node.restart();
    node.spends_mmio(200_000_000);
    drop(node.collect());
    node.spends_mmio(300_000_000);
    let (_, text) = node.later();
    assert_eq!(of_package(&text), [Some(550.0), Some(550.0), Some(1000.0), Some(100.0)], "{text}");
    node.finds_socket_0();
    node.spends("0", 2_000_000_000);
    let (outcome, text) = node.with_cpus("0-2\n");
    assert_eq!(outcome, Ok(()));
    assert_eq!(of_package(&text), [Some(550.0), Some(550.0), Some(1000.0), Some(100.0)], "{text}");
    assert!(is(&text, "powercap", ZoneRole::Attributed), "{text}");
}
