//! InfiniBand, RoCE and Omni-Path: what the node's ports moved, and the part of it that jobs moved.
//!
//! `class/infiniband/<device>/ports/<n>` (Documentation/ABI/stable/sysfs-class-infiniband), any kernel, no privilege:
//! `counters`, where the kernel asks the port's performance management, `counters_ext` of older drivers and
//! `hw_counters`, the driver's own. [`port`] says from which of them a number comes.
//!
//! Bytes, packets and waiting are a job's while it has the node for itself. Errors are the node's: they are the link's or
//! a peer's, and a job that suffers from them did not cause them. `hw_counters` are the node's, too: they are too many for
//! series per job.
//!
//! Costs a question to the device for each file of `counters`: five per port when a job gets the node for itself or
//! loses it, two dozen at a scrape. `hw_counters` are renewed by the kernel once per `lifespan` (10 ms), however often
//! they are read; that setting is left as it is.

pub mod port;
mod survey;

use exposition::{Family, Profile, SubjectId};
use kernel_files::{Buffer, Dir, ReadError, Roots};
use port::{ERRORS, EVENTS, Link, Port, parse_rate};
use survey::Device;

use crate::collector::node_counters::{self, NodeCounter, NodeReadings, NodeSource};
use crate::collector::{BuildContext, Built, Entry, SourceError, Tally};

static RECEIVED: NodeCounter = NodeCounter::new(
    "jobledger_node_infiniband_received_bytes_total",
    "jobledger_job_infiniband_received_bytes_total",
    "jobledger_node_infiniband_unattributed_received_bytes_total",
)
.labels(&["device", "port"])
.help("Bytes of packets that the port received, user and kernel alike");
static TRANSMITTED: NodeCounter = NodeCounter::new(
    "jobledger_node_infiniband_transmitted_bytes_total",
    "jobledger_job_infiniband_transmitted_bytes_total",
    "jobledger_node_infiniband_unattributed_transmitted_bytes_total",
)
.labels(&["device", "port"])
.help("Bytes of packets that the port sent, user and kernel alike");
static RECEIVED_PACKETS: NodeCounter = NodeCounter::new(
    "jobledger_node_infiniband_received_packets_total",
    "jobledger_job_infiniband_received_packets_total",
    "jobledger_node_infiniband_unattributed_received_packets_total",
)
.profile(Profile::Full)
.labels(&["device", "port"])
.help("Packets that the port received");
static TRANSMITTED_PACKETS: NodeCounter = NodeCounter::new(
    "jobledger_node_infiniband_transmitted_packets_total",
    "jobledger_job_infiniband_transmitted_packets_total",
    "jobledger_node_infiniband_unattributed_transmitted_packets_total",
)
.profile(Profile::Full)
.labels(&["device", "port"])
.help("Packets that the port sent");
static WAIT: NodeCounter = NodeCounter::new(
    "jobledger_node_infiniband_transmit_wait_ticks_total",
    "jobledger_job_infiniband_transmit_wait_ticks_total",
    "jobledger_node_infiniband_unattributed_transmit_wait_ticks_total",
)
.profile(Profile::Full)
.labels(&["device", "port"])
.help("Ticks of the device in which the port had data to send and could not");

static UNICAST: Family = Family::counter("jobledger_node_infiniband_unicast_packets_total")
    .profile(Profile::Full)
    .labels(&["device", "port", "direction"])
    .help(
        "Packets to one receiver, since the port's counters began; \
         absent while 0, which drivers say that do not count them",
    );
static MULTICAST: Family = Family::counter("jobledger_node_infiniband_multicast_packets_total")
    .profile(Profile::Full)
    .labels(&["device", "port", "direction"])
    .help(
        "Packets to several receivers, since the port's counters began; \
         absent while 0, which drivers say that do not count them",
    );
static DISCARDS: Family = Family::counter("jobledger_node_infiniband_transmit_discarded_packets_total")
    .profile(Profile::Full)
    .labels(&["device", "port"])
    .help(
        "Packets that the port could not send and dropped, since its \
         counters began; absent when the counter is at its end",
    );
static ERRORS_TOTAL: Family =
    Family::counter("jobledger_node_infiniband_errors_total").labels(&["device", "port", "type"]).help(
        "Errors of the port and its link, since the port's counters \
         began; absent when a counter is at its end",
    );
static EVENTS_TOTAL: Family = Family::counter("jobledger_node_infiniband_hw_events_total")
    .profile(Profile::Full)
    .labels(&["device", "port", "event"])
    .help(
        "Congestion, retransmissions and errors as the driver counts \
         them and names them (hw_counters), since it was loaded",
    );
static STATE: Family = Family::gauge("jobledger_node_infiniband_state")
    .labels(&["device", "port"])
    .help("State of the port: 1 down, 2 initializing, 3 armed, 4 active, 5 active and deferred");
static PHYSICAL_STATE: Family =
    Family::gauge("jobledger_node_infiniband_physical_state").labels(&["device", "port"]).help(
        "State of the cable's end: 1 sleeps, 2 polls, 3 disabled, 4 \
         trains, 5 link up, 6 recovers from errors, 7 is tested",
    );
static SPEED: Family = Family::gauge("jobledger_node_infiniband_speed_bytes")
    .labels(&["device", "port"])
    .help("Bytes per second that the link of an active port is rated for");
static INFO: Family = Family::info("jobledger_node_infiniband_info")
    .profile(Profile::Full)
    .labels(&["device", "port", "link_layer", "driver", "board", "firmware"])
    .help("What the port is; a label is empty when it is not known");

/// The counters that jobs are charged with.
static CHARGED: [&NodeCounter; 5] = [&RECEIVED, &TRANSMITTED, &RECEIVED_PACKETS, &TRANSMITTED_PACKETS, &WAIT];

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "infiniband",
    summary: "Traffic, errors and links of InfiniBand, RoCE and Omni-Path ports, split over jobs",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let mut rows: Vec<&'static Family> = CHARGED.iter().flat_map(|counter| counter.rows()).collect();
        rows.extend([&UNICAST, &MULTICAST, &DISCARDS, &ERRORS_TOTAL, &EVENTS_TOTAL]);
        rows.extend([&STATE, &PHYSICAL_STATE, &SPEED, &INFO]);
        rows
    },
    build,
};

fn build(context: &BuildContext) -> Built {
    node_counters::build(context, Infiniband::new(&context.roots))
}

const CLASS: &str = "/sys/class/infiniband";
const NEEDS: &str = "an InfiniBand, RoCE or Omni-Path device";

/// The source.
struct Infiniband {
    roots: std::sync::Arc<Roots>,
    devices: Vec<Device>,
    buffer: Buffer,
}

impl Infiniband {
    fn new(roots: &std::sync::Arc<Roots>) -> Self {
        Self { roots: roots.clone(), devices: Vec::new(), buffer: Buffer::default() }
    }

    /// Lists the devices and looks into those that are new. The times of a sysfs directory do not show a change in it
    /// (fs/kernfs/inode.c keeps them only where somebody set one), so it is listed each time: four system calls, and
    /// one per device for its identity.
    fn find(&mut self) -> Result<(), SourceError> {
        let failed = |error| SourceError::reading(CLASS, NEEDS)(error);
        let mut known = std::mem::take(&mut self.devices);
        let class = Dir::open(&self.roots.sys("class/infiniband")).map_err(failed)?;
        for entry in class.list().map_err(failed)? {
            // A device without ports is going.
            let Ok(ports) = class.stat_of(&format!("{}/ports", entry.name)) else { continue };
            let same = |device: &Device| device.name == entry.name && device.identity == ports.inode;
            let device = match known.iter().position(same) {
                Some(at) => known.swap_remove(at),
                None => Device::survey(&class, entry.name, ports.inode, &mut self.buffer),
            };
            self.devices.push(device);
        }
        if self.devices.is_empty() { Err(failed(ReadError::Gone)) } else { Ok(()) }
    }
}

impl NodeSource for Infiniband {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        // A device that is plugged in while jobs come and go is found by the next scrape.
        if out.section_of_scrape().is_some() || self.devices.is_empty() {
            self.find()?;
        }
        let mut tally = Tally::default();
        for device in &self.devices {
            for port in &device.ports {
                let at = [("device", device.name.as_str()), ("port", port.number.as_str())];
                out.device(port.identity);
                for one in port.charged(&mut tally, &mut self.buffer) {
                    out.aged_counter(one.counter, &at, one.amount, one.range, one.age);
                }
            }
        }
        if out.section_of_scrape().is_some() {
            for device in &self.devices {
                device.emit(out, &mut tally, &mut self.buffer);
            }
        }
        tally.result()
    }

    /// A device's identity is its inode in sysfs, and holds as long as it is there.
    fn save(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }
}

impl Device {
    /// Everything that is the node's alone.
    fn emit(&self, out: &mut NodeReadings<'_>, tally: &mut Tally, buffer: &mut Buffer) {
        let Some(section) = out.section_of_scrape() else { return };
        for port in &self.ports {
            let at = [("device", self.name.as_str()), ("port", port.number.as_str())];
            let [device, number] = at;
            for (family, direction, file) in &port.casts {
                if !section.wants(family) {
                    continue;
                }
                // mlx4 on Ethernet, hfi1 and others answer 0 for what they do not count.
                if let Some(packets) = port.counter(file, tally, buffer).filter(|packets| *packets > 0) {
                    section.push(
                        family,
                        SubjectId::NODE,
                        &[device, number, ("direction", *direction)],
                        packets,
                    );
                }
            }
            for (kind, bits, file) in ERRORS {
                if kind.is_empty() && !section.wants(&DISCARDS) {
                    continue;
                }
                let Some(errors) = port.short_counter(file, *bits, tally, buffer) else { continue };
                match *kind {
                    "" => section.push(&DISCARDS, SubjectId::NODE, &at, errors),
                    kind => section.push(
                        &ERRORS_TOTAL,
                        SubjectId::NODE,
                        &[device, number, ("type", kind)],
                        errors,
                    ),
                }
            }
            let events: &[&'static str] = if section.wants(&EVENTS_TOTAL) { EVENTS } else { &[] };
            for file in events {
                if let Some(events) = port.counter(file, tally, buffer) {
                    let event = file.rsplit('/').next().unwrap_or_default();
                    section.push(&EVENTS_TOTAL, SubjectId::NODE, &[device, number, ("event", event)], events);
                }
            }
            let link = port.link(tally, buffer);
            if let Some(state) = link.state {
                section.push(&STATE, SubjectId::NODE, &at, state);
            }
            if let Some(state) = link.physical_state {
                section.push(&PHYSICAL_STATE, SubjectId::NODE, &at, state);
            }
            if let Some(speed) = link.speed {
                section.push(&SPEED, SubjectId::NODE, &at, speed);
            }
            let labels = [
                device,
                number,
                ("link_layer", port.link_layer.as_str()),
                ("driver", &self.driver),
                ("board", &self.board),
                ("firmware", &self.firmware),
            ];
            section.push(&INFO, SubjectId::NODE, &labels, 1);
        }
    }
}

impl Port {
    /// State and speed of the link. The rate of a port that is not active is that of its slowest mode.
    fn link(&self, tally: &mut Tally, buffer: &mut Buffer) -> Link {
        let state = self.state("state", tally, buffer);
        let active = matches!(state, Some(4 | 5));
        Link {
            state,
            physical_state: self.state("phys_state", tally, buffer),
            speed: if active { self.parsed("rate", parse_rate, tally, buffer) } else { None },
        }
    }
}

#[cfg(test)]
mod tests;
