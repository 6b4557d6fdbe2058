//! Which zones may be booked without counting a joule twice. Pure.

use super::{Domain, Source, Zone};

/// What a zone is to the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Disjoint from every other booked zone: may be split over jobs, and all of these may be added up.
    Booked,
    /// Within a booked zone or within the node's total, and told for itself only.
    Contained,
    /// Measures what another, better source measures as well.
    Duplicate,
    /// The one that measures the whole node.
    NodeTotal,
    /// Around booked zones without being known as the whole node.
    Wider,
}

/// The standing of each zone, in their order. Depends on the set of zones only, not on their order.
pub fn standings(zones: &[Zone]) -> Vec<Standing> {
    zones.iter().map(|zone| standing(zone, zones)).collect()
}

/// Zones that measure the same of one socket: the best of them is used. Counters go before estimates.
fn rank(zone: &Zone) -> (bool, Source) {
    (zone.estimated, zone.source)
}

/// Whether what this zone measures is measured better: by a better source, or as well socket by socket.
fn outdone(zone: &Zone, zones: &[Zone]) -> bool {
    let whole = |z: &Zone| z.socket.is_none();
    zones.iter().filter(|other| other.domain == zone.domain).any(|other| match (whole(zone), whole(other)) {
        // Of two for one socket, or of two for all of them.
        (false, false) => zone.socket == other.socket && rank(other) < rank(zone),
        (true, true) => rank(other) < rank(zone),
        // An exact one of all sockets together is better than estimates of each, and worse than anything else.
        (true, false) => other.estimated <= zone.estimated,
        (false, true) => !other.estimated && zone.estimated,
    })
}

fn standing(zone: &Zone, zones: &[Zone]) -> Standing {
    match zone.domain {
        Domain::Package | Domain::Memory if outdone(zone, zones) => Standing::Duplicate,
        Domain::Package | Domain::Memory => Standing::Booked,
        Domain::Node => {
            match zones.iter().filter(|z| z.domain == Domain::Node && rank(z) == rank(zone)).count() {
                _ if outdone(zone, zones) => Standing::Duplicate,
                1 => Standing::NodeTotal,
                // Several of one kind may be supplies, phases or racks: it is not known what their sum is.
                _ => Standing::Wider,
            }
        }
        _ if outdone(zone, zones) => Standing::Duplicate,
        Domain::Core | Domain::Uncore | Domain::SysIo | Domain::Accelerator => Standing::Contained,
        Domain::Psys | Domain::Module => Standing::Wider,
    }
}
