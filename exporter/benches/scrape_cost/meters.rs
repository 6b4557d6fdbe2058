//! What each meter of energy costs the binary in service, all its threads: CPU time and wake-ups from one scrape to the next, beside
//! the same without a meter. All exporters run side by side.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::thread::sleep;
use std::time::Duration;

use jobledger_testkit::exporter::Exporter;
use jobledger_testkit::footprint::{cpu_ns, switches};
use jobledger_testkit::machine::Machine;
use jobledger_testkit::scratch::Scratch;
use jobledger_testkit::service::{Authority, Reply, Service};

use crate::stats::row;

const BINARY: &str = env!("CARGO_BIN_EXE_jobledger-exporter");
/// As Prometheus scrapes.
const PERIOD: Duration = Duration::from_secs(15);
const SCRAPES: u32 = 12;
const RESOURCE: &str =
    r##"{"@odata.type": "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics", "PowerWatts": {"Reading": 374.5}}"##;

/// A machine with a meter, and an exporter on it.
struct Metered {
    what: &'static str,
    exporter: Exporter,
    cpu_ns: u64,
    switches: u64,
    _machine: Machine,
}

impl Metered {
    fn start(what: &'static str, machine: Machine, more: &[String]) -> Self {
        let mut flags = machine.path_flags();
        flags.push(format!("--jobs.metadata-dir={}", machine.jobs_dir().display()));
        let own = ["--collector.disable-defaults", "--collector.energy", "--log.level=error"];
        flags.extend(own.map(str::to_owned));
        flags.extend_from_slice(more);
        let exporter = Exporter::start(BINARY, &flags);
        Self { what, exporter, cpu_ns: 0, switches: 0, _machine: machine }
    }

    fn begin(&mut self) {
        (self.cpu_ns, self.switches) = (cpu_ns(self.exporter.pid()), switches(self.exporter.pid()));
    }

    /// CPU time since the beginning, microseconds, and wake-ups; of each scrape.
    fn of_a_scrape(&self) -> [f64; 2] {
        let pid = self.exporter.pid();
        let cpu = cpu_ns(pid).saturating_sub(self.cpu_ns) as f64 / 1e3;
        let switches = switches(pid).saturating_sub(self.switches) as f64;
        [cpu, switches].map(|sum| sum / f64::from(SCRAPES))
    }
}

/// One socket, measured by powercap.
fn socket() -> Machine {
    Machine::fixture("energy-amd")
}

pub(crate) fn each() {
    let (dir, authority) = (Scratch::new("redfish"), Authority::default());
    let service = Service::start(Some(authority.issue_until(2060)), |_| Reply::json(RESOURCE));
    let (ca, credentials) = (dir.path().join("ca.pem"), dir.path().join("credentials"));
    write(&ca, authority.pem()).unwrap();
    write(&credentials, "monitor:secret\n").unwrap();
    set_permissions(&credentials, Permissions::from_mode(0o600)).unwrap();
    let redfish = [
        format!(
            "--collector.energy.redfish-url=https://{}/redfish/v1/Chassis/1/EnvironmentMetrics",
            service.address
        ),
        format!("--collector.energy.redfish-ca={}", ca.display()),
        format!("--collector.energy.redfish-credentials={}", credentials.display()),
    ];
    let (none, acpi) = (socket(), socket());
    none.remove("sys/class/powercap");
    acpi.write("sys/class/hwmon/hwmon9/name", "power_meter\n");
    acpi.write("sys/class/hwmon/hwmon9/power1_average", "374500000\n");
    let gpu = ["--collector.gpu".to_owned()];
    let mut all = [
        Metered::start("no meter", none, &[]),
        Metered::start("powercap, 1 socket", socket(), &[]),
        Metered::start("powercap, 2 sockets with DRAM", Machine::fixture("energy-intel-2s"), &[]),
        Metered::start("Grace, 4 sensors of power", Machine::fixture("energy-grace"), &[]),
        Metered::start("Cray, 4 counters", Machine::fixture("energy-cray"), &[]),
        Metered::start("powercap, 1 socket, and ACPI's power of the node", acpi, &[]),
        Metered::start("powercap, 1 socket, and Redfish", socket(), &redfish),
        Metered::start(
            "powercap, Cray and 2 MI300A with their GPUs",
            Machine::fixture("energy-mi300a"),
            &gpu,
        ),
    ];
    let scrape = |all: &[Metered]| {
        for metered in all {
            sleep(Duration::from_millis(100));
            assert!(metered.exporter.metrics().contains("jobledger_exporter_collector_success"));
        }
    };
    // The first scrapes find the meters.
    for _ in 0..2 {
        scrape(&all);
        sleep(PERIOD);
    }
    all.iter_mut().for_each(Metered::begin);
    for _ in 0..SCRAPES {
        scrape(&all);
        sleep(PERIOD);
    }
    println!("\n## Meters of energy, the binary in service, a scrape each 15 s\n");
    row(&["meter", "CPU time of a scrape, µs", "beyond no meter", "wake-ups of a scrape", "beyond no meter"]);
    row(&["---", "---:", "---:", "---:", "---:"]);
    let costs: Vec<_> = all.iter().map(|metered| (metered.what, metered.of_a_scrape())).collect();
    for (what, [cpu, switches]) in &costs {
        let [bare_cpu, bare_switches] = costs[0].1;
        row(&[
            (*what).to_owned(),
            format!("{cpu:.0}"),
            format!("{:.0}", cpu - bare_cpu),
            format!("{switches:.1}"),
            format!("{:.1}", switches - bare_switches),
        ]);
    }
}
