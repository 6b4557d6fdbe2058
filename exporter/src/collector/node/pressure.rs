//! Pressure stall times of the node.
//!
//! `/proc/pressure/{cpu,memory,io,irq}` (Documentation/accounting/psi.rst), Linux 4.20 with CONFIG_PSI, backported
//! to EL8; `irq` 6.1 with CONFIG_IRQ_TIME_ACCOUNTING. EL8 and EL9 build it in but leave it off until `psi=1`. No
//! privilege, four reads. The averages in the files are left to the query language.

use exposition::{Family, Section, Value};
use kernel_files::parse::parse_pressure;
use kernel_files::{NodeFiles, ReadError};
use slurm_jobs::NodeSnapshot;

use crate::collector::node::cpu::boot_time;
use crate::collector::{Built, Collector, Entry, SourceError, Tally};

static PRESSURE: Family = Family::counter("jobledger_node_pressure_seconds_total")
    .labels(&["resource", "kind"])
    .help("Time in which some or all non-idle tasks of the node waited for a resource");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_pressure",
    summary: "Pressure stall times of the node",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&PRESSURE],
    build: |context| Built::plain(NodePressure { files: NodeFiles::new(&context.roots), boot_time: None }),
};

const RESOURCES: [(&str, &str); 4] = [
    ("cpu", "proc/pressure/cpu"),
    ("memory", "proc/pressure/memory"),
    ("io", "proc/pressure/io"),
    ("irq", "proc/pressure/irq"),
];

const NEEDS: &str = "Linux 4.20 with CONFIG_PSI; if the kernel has it, boot with psi=1";

/// The source.
#[derive(Debug)]
struct NodePressure {
    files: NodeFiles,
    /// Since when the kernel counts, once that was read: `/proc/stat` is not cheap.
    boot_time: Option<f64>,
}

impl Collector for NodePressure {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        let mut missing = 0;
        self.boot_time = self.boot_time.or_else(|| boot_time(&mut self.files));
        let since_boot = out.node_since(self.boot_time);
        for (resource, file) in RESOURCES {
            // EOPNOTSUPP is how a kernel answers that has PSI but not switched on (psi_show in kernel/sched/psi.c).
            let read = match self.files.read(file) {
                Err(ReadError::Gone | ReadError::Unsupported) => {
                    missing += 1;
                    continue;
                }
                read => read.map_err(SourceError::reading(file, NEEDS)),
            };
            let parsed = read.and_then(|b| parse_pressure(b).map_err(SourceError::parsing(file)));
            let Some(pressure) = tally.note(parsed) else { continue };
            // "full" of the CPU means nothing for the whole system and is a constant 0 since 5.13 (psi.rst).
            let full = pressure.full.filter(|_| resource != "cpu");
            for (kind, line) in [("some", pressure.some), ("full", full)] {
                if let Some(line) = line {
                    let labels = [("resource", resource), ("kind", kind)];
                    out.push(&PRESSURE, since_boot, &labels, Value::micro(line.total_usec));
                }
            }
        }
        if missing == RESOURCES.len() {
            return Err(SourceError::Unsupported { needs: NEEDS.to_owned() });
        }
        tally.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, snapshot_of};

    fn file(some: u64, full: Option<u64>) -> String {
        let line = |kind, total| format!("{kind} avg10=0.00 avg60=0.05 avg300=0.01 total={total}\n");
        line("some", some) + &full.map(|full| line("full", full)).unwrap_or_default()
    }

    #[test]
    fn a_current_kernel_has_irq_and_a_cpu_line_that_means_nothing() {
        let machine = Machine::new();
        machine.write("proc/pressure/cpu", file(112_458_918, Some(0)));
        machine.write("proc/pressure/memory", file(1_500_000, Some(500_000)));
        machine.write("proc/pressure/io", file(13_354_282, Some(11_359_506)));
        machine.write("proc/pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=7000000\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        let samples: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "jobledger_node_pressure_seconds_total{resource=\"cpu\",kind=\"some\"} 112.458918",
                "jobledger_node_pressure_seconds_total{resource=\"memory\",kind=\"some\"} 1.5",
                "jobledger_node_pressure_seconds_total{resource=\"memory\",kind=\"full\"} 0.5",
                "jobledger_node_pressure_seconds_total{resource=\"io\",kind=\"some\"} 13.354282",
                "jobledger_node_pressure_seconds_total{resource=\"io\",kind=\"full\"} 11.359506",
                "jobledger_node_pressure_seconds_total{resource=\"irq\",kind=\"full\"} 7.0",
            ]
        );
    }

    #[test]
    fn a_kernel_before_5_13_has_no_full_of_cpu_and_none_before_6_1_has_irq() {
        let machine = Machine::new();
        machine.write("proc/pressure/cpu", file(1_000_000, None));
        machine.write("proc/pressure/memory", file(0, Some(0)));
        machine.write("proc/pressure/io", file(0, Some(0)));
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert!(!text.contains("irq") && !text.contains("resource=\"cpu\",kind=\"full\""), "{text}");
        assert!(
            text.contains("resource=\"memory\",kind=\"some\"} 0.0\n"),
            "a measured zero is exported: {text}"
        );
    }

    #[test]
    fn without_psi_it_is_unsupported_with_the_fix() {
        let machine = Machine::new();
        let (outcome, _) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "unsupported: needs Linux 4.20 with CONFIG_PSI; if the kernel has it, boot with psi=1"
        );
    }

    #[test]
    fn one_malformed_file_costs_only_its_resource() {
        let machine = Machine::new();
        machine.write("proc/pressure/cpu", file(1_000_000, None));
        machine.write("proc/pressure/io", "some avg10=0.00\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(
            outcome.unwrap_err().to_string(),
            "partial: 1 of 2 failed, first malformed: proc/pressure/io: line 1: no total"
        );
        assert!(text.contains("resource=\"cpu\"") && !text.contains("resource=\"io\""), "{text}");
    }

    #[test]
    fn the_live_host_waited_no_longer_than_it_is_up() {
        let mut files = NodeFiles::new(&Default::default());
        let Ok(bytes) = files.read("proc/pressure/cpu") else {
            jobledger_testkit::skip("psi", "this kernel has no PSI; boot with psi=1");
            return;
        };
        let waited = parse_pressure(bytes).unwrap().some.unwrap().total_usec / 1_000_000;
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec.unsigned_abs();
        assert!(waited <= uptime + 1, "{waited} of {uptime} s");
    }
}
