//! Which zones may be attributed without counting a joule twice. Pure.

use super::{Domain, Source, Zone};

/// What a zone is to the attribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZoneRole {
    /// Disjoint from every other attributed zone: may be split over jobs, and all of these may be added up.
    Attributed,
    /// Within an attributed zone, within the node's total, or within what the GPU collectors measure; exported alone.
    /// Accelerators have this role: the GPU collectors know which job has which of them.
    Contained,
    /// Measures what another, better source measures as well.
    Duplicate,
    /// The one that measures the whole node.
    NodeTotal,
    /// Around attributed zones, and not known to be the whole node.
    Wider,
    /// Was attributed, and is not read any more: it is gone, or another source measures it better. Given to no zone that there is.
    Retired,
}

impl ZoneRole {
    /// The `role` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Attributed => "booked",
            Self::Contained => "contained",
            Self::Duplicate => "duplicate",
            Self::NodeTotal => "node_total",
            Self::Wider => "wider",
            Self::Retired => "retired",
        }
    }
}

/// The standing of each zone, in their order. Depends on the set of zones only, not on their order, and on whether the sockets
/// are APUs that the GPU collectors measure.
///
/// Of several sources for one domain and socket the best is used: counters before estimates, then in the order of
/// [`Source`]. A source of all sockets together stands back behind one of each, unless only that one counts.
pub fn roles(zones: &[Zone], apus: bool) -> Vec<ZoneRole> {
    let memory_inside = zones.iter().any(|zone| is_grace_socket(zone) && !outdone(zone, zones));
    zones.iter().map(|zone| role(zone, zones, (memory_inside, apus))).collect()
}

/// Grace's sockets are measured with their memory, and are the only ones that hwmon estimates.
fn is_grace_socket(zone: &Zone) -> bool {
    zone.domain == Domain::Package && zone.source == Source::Hwmon && zone.estimated
}

/// Least is best.
fn rank(zone: &Zone) -> (bool, Source) {
    (zone.estimated, zone.source)
}

/// Whether what this zone measures is measured better.
fn outdone(zone: &Zone, zones: &[Zone]) -> bool {
    zones.iter().filter(|other| other.domain == zone.domain).any(|other| match (zone.socket, other.socket) {
        (Some(socket), Some(another)) => socket == another && rank(other) < rank(zone),
        (None, None) => rank(other) < rank(zone),
        (None, Some(_)) => zone.estimated || !other.estimated,
        (Some(_), None) => zone.estimated && !other.estimated,
    })
}

fn role(zone: &Zone, zones: &[Zone], (memory_inside, apus): (bool, bool)) -> ZoneRole {
    if outdone(zone, zones) {
        return ZoneRole::Duplicate;
    }
    match zone.domain {
        inside if apus && inside.within().contains(&Domain::Apu) => ZoneRole::Contained,
        Domain::Memory if memory_inside => ZoneRole::Contained,
        Domain::Package | Domain::Memory | Domain::Overhead => ZoneRole::Attributed,
        inside if inside.within().contains(&Domain::Package) => ZoneRole::Contained,
        Domain::Accelerator => ZoneRole::Contained,
        // Several of one source may be supplies, phases or parts: the meaning of their sum is not known.
        Domain::Node => {
            let alike = zones.iter().filter(|z| z.domain == Domain::Node && rank(z) == rank(zone));
            if alike.count() == 1 { ZoneRole::NodeTotal } else { ZoneRole::Wider }
        }
        _ => ZoneRole::Wider,
    }
}

#[cfg(test)]
mod tests {
    use super::ZoneRole::{Attributed, Contained, Duplicate, NodeTotal, Wider};
    use super::*;

    fn zone(domain: Domain, socket: impl Into<Option<u32>>, source: Source, estimated: bool) -> Zone {
        Zone { domain, socket: socket.into(), source, name: String::new(), estimated }
    }

    #[test]
    fn every_kind_of_machine() {
        use Domain::{Accelerator, Core, Memory, Module, Node, Package, Psys, SysIo, Uncore};
        use Source::{CrayPmCounters, Hsmp, Hwmon, Ipmi, PerfRapl, Powercap, PowercapMmio, Redfish};
        type Row = (Domain, Option<u32>, Source, bool, ZoneRole);
        let machines: &[(&str, &[Row])] = &[
            (
                "Intel, two sockets with memory, perf and powercap",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Package, Some(1), PerfRapl, false, Attributed),
                    (Memory, Some(0), PerfRapl, false, Attributed),
                    (Memory, Some(1), PerfRapl, false, Attributed),
                    (Core, Some(0), PerfRapl, false, Contained),
                    (Package, Some(0), Powercap, false, Duplicate),
                    (Package, Some(1), Powercap, false, Duplicate),
                    (Core, Some(0), Powercap, false, Duplicate),
                    (Memory, Some(0), Powercap, false, Duplicate),
                ],
            ),
            (
                "Intel with psys, mmio and dies, no perf",
                &[
                    (Package, Some(0), Powercap, false, Attributed),
                    (Package, Some(0), Powercap, false, Attributed), // the other die: a part, not a duplicate
                    (Package, Some(0), PowercapMmio, false, Duplicate),
                    (Uncore, Some(0), Powercap, false, Contained),
                    (Psys, None, Powercap, false, Wider),
                ],
            ),
            (
                "perf shows psys per socket, powercap once",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Psys, Some(0), PerfRapl, false, Wider),
                    (Psys, None, Powercap, false, Duplicate),
                ],
            ),
            (
                "one socket is read through perf, one through powercap alone",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Package, Some(0), Powercap, false, Duplicate),
                    (Package, Some(1), Powercap, false, Attributed),
                ],
            ),
            (
                "AMD",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Package, Some(1), PerfRapl, false, Attributed),
                ],
            ),
            (
                "AMD through HSMP only",
                &[(Package, Some(0), Hsmp, true, Attributed), (Package, Some(1), Hsmp, true, Attributed)],
            ),
            (
                "a counter of amd_energy goes before HSMP's power, HSMP's counter before that of amd_energy",
                &[
                    (Package, Some(0), Hwmon, false, Attributed),
                    (Package, Some(0), Hsmp, true, Duplicate),
                    (Package, Some(1), Hwmon, false, Duplicate),
                    (Package, Some(1), Hsmp, false, Attributed),
                ],
            ),
            (
                "Grace Hopper",
                &[
                    (Module, Some(0), Hwmon, true, Wider),
                    (Package, Some(0), Hwmon, true, Attributed),
                    (Core, Some(0), Hwmon, true, Contained),
                    (SysIo, Some(0), Hwmon, true, Contained),
                ],
            ),
            (
                "Cray with AMD and four accelerators",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Package, None, CrayPmCounters, false, Duplicate),
                    (Memory, None, CrayPmCounters, false, Attributed),
                    (Node, None, CrayPmCounters, false, NodeTotal),
                    (Accelerator, None, CrayPmCounters, false, Contained),
                    (Accelerator, None, CrayPmCounters, false, Contained),
                ],
            ),
            (
                "Cray with Intel and RAPL denied",
                &[
                    (Package, None, CrayPmCounters, false, Attributed),
                    (Memory, None, CrayPmCounters, false, Attributed),
                    (Node, None, CrayPmCounters, false, NodeTotal),
                ],
            ),
            (
                "Cray with Grace: its counter of all sockets goes before estimates of each",
                &[
                    (Package, None, CrayPmCounters, false, Attributed),
                    (Memory, None, CrayPmCounters, false, Attributed),
                    (Package, Some(0), Hwmon, true, Duplicate),
                    (Package, Some(1), Hwmon, true, Duplicate),
                    (Module, Some(0), Hwmon, true, Wider),
                ],
            ),
            (
                "Grace beside a meter of memory: its sockets have theirs in them",
                &[
                    (Package, Some(0), Hwmon, true, Attributed),
                    (Memory, None, CrayPmCounters, false, Contained),
                ],
            ),
            (
                "a server whose controller knows the node's power",
                &[
                    (Package, Some(0), PerfRapl, false, Attributed),
                    (Memory, Some(0), PerfRapl, false, Attributed),
                    (Node, None, Hwmon, true, NodeTotal),
                ],
            ),
            (
                "a counter of the node goes before its power",
                &[(Node, None, CrayPmCounters, false, NodeTotal), (Node, None, Hwmon, true, Duplicate)],
            ),
            (
                "the power of one BMC by ACPI and by IPMI",
                &[(Node, None, Ipmi, true, Duplicate), (Node, None, Hwmon, true, NodeTotal)],
            ),
            (
                "a BMC's counter of energy goes before its power by ACPI",
                &[(Node, None, Ipmi, false, NodeTotal), (Node, None, Hwmon, true, Duplicate)],
            ),
            (
                "the power that the site has named goes before what was found",
                &[
                    (Node, None, Redfish, true, NodeTotal),
                    (Node, None, Ipmi, true, Duplicate),
                    (Node, None, Hwmon, true, Duplicate),
                ],
            ),
            (
                "but not before a counter",
                &[(Node, None, Redfish, true, Duplicate), (Node, None, Ipmi, false, NodeTotal)],
            ),
            (
                "two power meters, of who knows what",
                &[(Node, None, Hwmon, true, Wider), (Node, None, Hwmon, true, Wider)],
            ),
            ("no meter", &[]),
        ];
        for (machine, rows) in machines {
            let zones: Vec<_> = rows.iter().map(|(d, s, o, e, _)| zone(*d, *s, *o, *e)).collect();
            let expected: Vec<_> = rows.iter().map(|row| row.4).collect();
            assert_eq!(roles(&zones, false), expected, "{machine}");
            let backwards: Vec<_> = zones.iter().rev().cloned().collect();
            let mut found = roles(&backwards, false);
            found.reverse();
            assert_eq!(found, expected, "{machine}, backwards");
            let sources = |socket| {
                let of = |(z, s): &(&Zone, &ZoneRole)| {
                    z.domain == Package && **s == Attributed && z.socket == socket
                };
                zones
                    .iter()
                    .zip(&expected)
                    .filter(of)
                    .map(|(z, _)| z.source)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            for zone in &zones {
                assert!(sources(zone.socket).len() <= 1, "{machine}: one source for each socket");
            }
            assert!(
                sources(None).is_empty() || sources(Some(0)).is_empty(),
                "{machine}: all or each, not both"
            );
        }
    }

    #[test]
    fn what_is_within_an_apu_that_the_gpu_collectors_measure_is_not_counted_once_more() {
        use Domain::{Accelerator, Core, Memory, Node, Package};
        use Source::{CrayPmCounters, Hsmp, PerfRapl};
        for (zones, apart, once) in [
            (
                [
                    zone(Package, 0, PerfRapl, false),
                    zone(Core, 0, PerfRapl, false),
                    zone(Memory, None, CrayPmCounters, false),
                    zone(Accelerator, None, CrayPmCounters, false),
                    zone(Node, None, CrayPmCounters, false),
                ],
                [Attributed, Contained, Attributed, Contained, NodeTotal],
                [Contained, Contained, Contained, Contained, NodeTotal],
            ),
            (
                [
                    zone(Package, 0, Hsmp, true),
                    zone(Package, 1, Hsmp, true),
                    zone(Package, None, CrayPmCounters, false),
                    zone(Domain::Psys, None, PerfRapl, false),
                    zone(Node, None, CrayPmCounters, false),
                ],
                [Duplicate, Duplicate, Attributed, Wider, NodeTotal],
                [Duplicate, Duplicate, Contained, Wider, NodeTotal],
            ),
        ] {
            assert_eq!((roles(&zones, false), roles(&zones, true)), (apart.to_vec(), once.to_vec()));
        }
    }
}
