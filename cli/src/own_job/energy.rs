//! What measures the node's energy, as far as this user may read it: Cray's node controller, power meters under hwmon, and RAPL where a site
//! lets its users. It is the whole node's: which part of it is the job's is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use energy_meters::{Discovery, Sample, Zone, ZoneRole, discover_files, roles};
use gpu_devices::Backend;
use gpu_devices::amd::Amd;
use kernel_files::Roots;

use super::Page;

/// A controller averages its power over a second or more, and asking it is not free.
const SLOW_PERIOD: Duration = Duration::from_secs(10);

/// The meters, and what they counted since the first reading.
pub(super) struct NodeEnergy {
    found: Discovery,
    /// By meter and zone: the last reading, and microjoules.
    counted: BTreeMap<(usize, usize), (Instant, Sample, u64)>,
    /// Whether the GPUs count whole sockets.
    apus: bool,
}

impl std::fmt::Debug for NodeEnergy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeEnergy").field("zones", &self.found.zones()).finish_non_exhaustive()
    }
}

/// Labels of a zone: domain, socket, source. Dies of a socket have the same.
fn labels(zone: &Zone) -> (&'static str, String, &'static str) {
    let socket = zone.socket.map(|socket| socket.to_string()).unwrap_or_default();
    (zone.domain.as_str(), socket, zone.source.as_str())
}

impl NodeEnergy {
    pub(super) fn new(roots: &Arc<Roots>) -> Self {
        let apus = Amd::new(roots).counts_sockets();
        Self { found: discover_files(roots, SLOW_PERIOD), counted: BTreeMap::new(), apus }
    }

    pub(super) fn write(&mut self, now: Instant, page: &mut Page) {
        for (at, meter) in self.found.meters.iter_mut().enumerate() {
            // Further ones follow those that are known.
            meter.has_other_zones();
            meter.read(now, &mut |zone, read| {
                let Ok(sample) = read else { return };
                let (last_read, last, total) = self.counted.entry((at, zone)).or_insert((now, sample, 0));
                let gain = sample.gain_since(last, now.saturating_duration_since(*last_read));
                *total = total.saturating_add(gain.unwrap_or(0));
                (*last_read, *last) = (now, sample);
            });
        }
        let mut totals: BTreeMap<_, (u64, bool, ZoneRole)> = BTreeMap::new();
        let roles = roles(&self.found.zones(), self.apus);
        let places = self.found.meters.iter().enumerate();
        let zones = places
            .flat_map(|(at, meter)| meter.zones().iter().enumerate().map(move |(zone, of)| ((at, zone), of)));
        for ((place, zone), role) in zones.zip(roles) {
            if let Some((.., counted)) = self.counted.get(&place) {
                let (total, ..) = totals.entry(labels(zone)).or_insert((0, zone.estimated, role));
                *total = total.saturating_add(*counted);
            }
        }
        for ((domain, socket, source), (total, estimated, role)) in totals {
            let labels = format!("domain=\"{domain}\",socket=\"{socket}\",source=\"{source}\"");
            let joules = format_args!("{}.{:06}", total / 1_000_000, total % 1_000_000);
            page.plain("jobledger_node_energy_joules_total", &labels, joules);
            let standing = role.as_str();
            let labels = format!("{labels},standing=\"{standing}\",estimated=\"{estimated}\"");
            page.plain("jobledger_node_energy_zone_info", &labels, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;

    #[test]
    fn what_all_users_may_read_is_counted_from_the_first_reading_on() {
        let machine = Machine::new();
        for (file, content) in [("energy", "5000 J\n"), ("cpu_energy", "3000 J\n"), ("power", "400 W\n")] {
            machine.write(&format!("sys/cray/pm_counters/{file}"), content);
        }
        machine.write("sys/class/hwmon/hwmon0/name", "amd_energy\n");
        machine.write("sys/class/hwmon/hwmon0/energy1_label", "Esocket0\n");
        machine.write("sys/class/hwmon/hwmon0/energy1_input", "7000000\n");
        let (mut energy, begin) = (NodeEnergy::new(&Arc::new(machine.roots())), Instant::now());
        let mut page = |seconds| {
            let mut page = Page { text: String::new(), job: String::new() };
            energy.write(begin + Duration::from_secs(seconds), &mut page);
            page.text
        };
        let of = |domain: &str, socket: &str, source: &str, joules: &str| {
            format!(
                "jobledger_node_energy_joules_total{{domain=\"{domain}\",socket=\"{socket}\",source=\"{source}\"}} {joules}\n"
            )
        };
        let first = page(0);
        assert!(first.contains(&of("node", "", "cray_pm_counters", "0.000000")), "{first}");
        machine.write("sys/cray/pm_counters/energy", "6000 J\n");
        machine.write("sys/class/hwmon/hwmon0/energy1_input", "8500000\n");
        let second = page(10);
        for expected in [
            of("node", "", "cray_pm_counters", "1000.000000"),
            of("package", "", "cray_pm_counters", "0.000000"),
            of("package", "0", "hwmon", "1.500000"),
            "jobledger_node_energy_zone_info{domain=\"node\",socket=\"\",source=\"cray_pm_counters\",standing=\"node_total\",estimated=\"false\"} 1\n".to_owned(),
        ] {
            assert!(second.contains(&expected), "{expected}{second}");
        }
        // The controller was started again: what it counted in between is not known.
        machine.write("sys/cray/pm_counters/energy", "10 J\n");
        assert!(page(20).contains(&of("node", "", "cray_pm_counters", "1000.000000")));
    }

    #[test]
    fn a_node_without_meters_has_no_energy() {
        let mut page = Page { text: String::new(), job: String::new() };
        NodeEnergy::new(&Arc::new(Machine::new().roots())).write(Instant::now(), &mut page);
        assert_eq!(page.text, "");
    }
}
