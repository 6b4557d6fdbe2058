//! HPE Slingshot (Cassini): what the node's ports moved, and the part of it that jobs moved.
//!
//! `class/cxi/<device>/device/telemetry` and `properties` of HPE's driver (shs-cxi-driver, cass_telem.c and cass_sysfs.c),
//! no privilege. A telemetry file is `value@seconds`: the counter as it stands in the hardware when the file is read, and
//! that moment. Packets are counted by their size only, so they are the sum of twelve files.
//!
//! The width of a counter is not known. One that falls counts as restarted, which charges nothing.

use std::sync::Arc;

use exposition::{Family, Profile, SubjectId};
use kernel_files::parse::{ParseError, integer, parse_integer};
use kernel_files::{Buffer, Dir, ReadError, Roots, label_text};
use readings::Range;

use crate::collector::node_counters::{self, NodeCounter, NodeReadings, NodeSource};
use crate::collector::{Entry, SourceError, Tally};

static RECEIVED: NodeCounter = NodeCounter::new(
    "jobledger_node_slingshot_received_bytes_total",
    "jobledger_job_slingshot_received_bytes_total",
    "jobledger_node_slingshot_unattributed_received_bytes_total",
)
.labels(&["device"])
.help("Bytes of good packets that the port received, user and kernel alike");
static TRANSMITTED: NodeCounter = NodeCounter::new(
    "jobledger_node_slingshot_transmitted_bytes_total",
    "jobledger_job_slingshot_transmitted_bytes_total",
    "jobledger_node_slingshot_unattributed_transmitted_bytes_total",
)
.labels(&["device"])
.help("Bytes of good packets that the port sent, user and kernel alike");
static RECEIVED_PACKETS: NodeCounter = NodeCounter::new(
    "jobledger_node_slingshot_received_packets_total",
    "jobledger_job_slingshot_received_packets_total",
    "jobledger_node_slingshot_unattributed_received_packets_total",
)
.profile(Profile::Full)
.labels(&["device"])
.help("Good packets that the port received");
static TRANSMITTED_PACKETS: NodeCounter = NodeCounter::new(
    "jobledger_node_slingshot_transmitted_packets_total",
    "jobledger_job_slingshot_transmitted_packets_total",
    "jobledger_node_slingshot_unattributed_transmitted_packets_total",
)
.profile(Profile::Full)
.labels(&["device"])
.help("Good packets that the port sent");
static EVENTS_TOTAL: Family = Family::counter("jobledger_node_slingshot_events_total")
    .profile(Profile::Full)
    .labels(&["device", "event"])
    .help("Errors, replays and retries as the hardware names them (telemetry), since the driver was loaded");
static LINK_UP: Family =
    Family::gauge("jobledger_node_slingshot_link_up").labels(&["device"]).help("Whether the link works");
static SPEED: Family = Family::gauge("jobledger_node_slingshot_speed_bytes")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Bytes per second that a link that works is rated for");
static INFO: Family = Family::info("jobledger_node_slingshot_info")
    .profile(Profile::Full)
    .labels(&["device", "cassini", "driver"])
    .help("What the device is; a label is empty when it is not known");

const RECEIVED_FILES: &[&str] = &["telemetry/hni_sts_rx_ok_octets"];
const TRANSMITTED_FILES: &[&str] = &["telemetry/hni_sts_tx_ok_octets"];
const RECEIVED_SIZES: &[&str] = &[
    "telemetry/hni_rx_ok_27",
    "telemetry/hni_rx_ok_35",
    "telemetry/hni_rx_ok_36_to_63",
    "telemetry/hni_rx_ok_64",
    "telemetry/hni_rx_ok_65_to_127",
    "telemetry/hni_rx_ok_128_to_255",
    "telemetry/hni_rx_ok_256_to_511",
    "telemetry/hni_rx_ok_512_to_1023",
    "telemetry/hni_rx_ok_1024_to_2047",
    "telemetry/hni_rx_ok_2048_to_4095",
    "telemetry/hni_rx_ok_4096_to_8191",
    "telemetry/hni_rx_ok_8192_to_max",
];
const TRANSMITTED_SIZES: &[&str] = &[
    "telemetry/hni_tx_ok_27",
    "telemetry/hni_tx_ok_35",
    "telemetry/hni_tx_ok_36_to_63",
    "telemetry/hni_tx_ok_64",
    "telemetry/hni_tx_ok_65_to_127",
    "telemetry/hni_tx_ok_128_to_255",
    "telemetry/hni_tx_ok_256_to_511",
    "telemetry/hni_tx_ok_512_to_1023",
    "telemetry/hni_tx_ok_1024_to_2047",
    "telemetry/hni_tx_ok_2048_to_4095",
    "telemetry/hni_tx_ok_4096_to_8191",
    "telemetry/hni_tx_ok_8192_to_max",
];

/// The counters that jobs are charged with: sums of these files.
static CHARGED: [(&NodeCounter, &[&str]); 4] = [
    (&RECEIVED, RECEIVED_FILES),
    (&TRANSMITTED, TRANSMITTED_FILES),
    (&RECEIVED_PACKETS, RECEIVED_SIZES),
    (&TRANSMITTED_PACKETS, TRANSMITTED_SIZES),
];

/// Of some thousand counters those that say that the link or the transport is in trouble.
const EVENTS: &[&str] = &[
    "telemetry/hni_pcs_corrected_cw",
    "telemetry/hni_pcs_uncorrected_cw",
    "telemetry/hni_llr_tx_replay_event",
    "telemetry/hni_llr_rx_replay_event",
    "telemetry/pct_sct_timeouts",
    "telemetry/pct_spt_timeouts",
    "telemetry/pct_retry_srb_requests",
    "telemetry/pct_trs_rsp_nack_drops",
];

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "slingshot",
    summary: "Traffic, errors and links of HPE Slingshot devices, split over jobs",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let mut rows: Vec<&'static Family> = CHARGED.iter().flat_map(|(counter, _)| counter.rows()).collect();
        rows.extend([&EVENTS_TOTAL, &LINK_UP, &SPEED, &INFO]);
        rows
    },
    build: |context| {
        let source =
            Slingshot { roots: context.roots.clone(), devices: Vec::new(), buffer: Buffer::default() };
        node_counters::build(context, source)
    },
};

const CLASS: &str = "/sys/class/cxi";
const NEEDS: &str = "an HPE Slingshot device with its driver";

/// Parses a telemetry file: `6301823@1690000000.123456789`.
pub fn parse_telemetry(bytes: &[u8]) -> Result<u64, ParseError> {
    let mut parts = bytes.trim_ascii().splitn(2, |byte| *byte == b'@');
    let (value, time) = (parts.next().and_then(integer), parts.next());
    value.filter(|_| time.is_some()).ok_or(ParseError::new(1, "not 'value@time'"))
}

/// One device; everything of it is below its PCI device's directory, which is held open.
struct Device {
    name: String,
    identity: u64,
    dir: Dir,
    info: [String; 2],
}

impl Device {
    fn survey(class: &Dir, name: String, identity: u64, buffer: &mut Buffer) -> Result<Self, ReadError> {
        let dir = class.open_link(&format!("{name}/device"))?;
        let mut text = |file| {
            let read = dir.read_record(file, buffer);
            read.map(|bytes| label_text(bytes.trim_ascii())).unwrap_or_default()
        };
        let info = [text("properties/cassini_version"), text("properties/driver_rev")];
        Ok(Self { name, identity, dir, info })
    }

    fn read(
        &self,
        file: &'static str,
        parse: fn(&[u8]) -> Result<u64, ParseError>,
        buffer: &mut Buffer,
    ) -> Result<Option<u64>, SourceError> {
        match self.dir.read_record(file, buffer) {
            Ok(bytes) => parse(bytes).map(Some).map_err(SourceError::parsing(file)),
            Err(ReadError::Gone | ReadError::Unsupported) => Ok(None),
            Err(error) => Err(SourceError::reading(file, "")(error)),
        }
    }

    /// The sum of all of these; a part of it would look like a counter that went back.
    fn sum(&self, files: &[&'static str], buffer: &mut Buffer) -> Result<Option<u64>, SourceError> {
        let mut sum = 0_u64;
        for file in files {
            let Some(value) = self.read(file, parse_telemetry, buffer)? else { return Ok(None) };
            sum = sum.wrapping_add(value);
        }
        Ok(Some(sum))
    }

    fn emit(&self, out: &mut NodeReadings<'_>, tally: &mut Tally, buffer: &mut Buffer) {
        let Some(section) = out.section_of_scrape() else { return };
        let at = ("device", self.name.as_str());
        let events: &[&'static str] = if section.wants(&EVENTS_TOTAL) { EVENTS } else { &[] };
        for file in events {
            if let Some(events) = tally.note(self.read(file, parse_telemetry, buffer)).flatten() {
                let event = file.rsplit('/').next().unwrap_or_default();
                section.push(&EVENTS_TOTAL, SubjectId::NODE, &[at, ("event", event)], events);
            }
        }
        let up = tally.note(self.read("properties/link", parse_integer, buffer)).flatten();
        if let Some(up) = up {
            section.push(&LINK_UP, SubjectId::NODE, &[at], u64::from(up > 0));
        }
        // Mbit/s, 0 when it is not known.
        if up.is_some_and(|up| up > 0)
            && let Some(speed) = tally.note(self.read("properties/speed", parse_integer, buffer)).flatten()
            && let Some(speed) = speed.checked_mul(1_000_000 / 8).filter(|speed| *speed > 0)
        {
            section.push(&SPEED, SubjectId::NODE, &[at], speed);
        }
        let [cassini, driver] = &self.info;
        section.push(&INFO, SubjectId::NODE, &[at, ("cassini", cassini), ("driver", driver)], 1);
    }
}

/// The source.
struct Slingshot {
    roots: Arc<Roots>,
    devices: Vec<Device>,
    buffer: Buffer,
}

impl Slingshot {
    /// Lists the devices and opens those that are new.
    fn find(&mut self) -> Result<(), SourceError> {
        let failed = |error| SourceError::reading(CLASS, NEEDS)(error);
        let mut known = std::mem::take(&mut self.devices);
        let class = Dir::open(&self.roots.sys("class/cxi")).map_err(failed)?;
        for entry in class.list().map_err(failed)? {
            let Ok(telemetry) = class.stat_of(&format!("{}/device/telemetry", entry.name)) else { continue };
            let same = |device: &Device| device.name == entry.name && device.identity == telemetry.inode;
            let device = match known.iter().position(same) {
                Some(at) => Ok(known.swap_remove(at)),
                None => Device::survey(&class, entry.name, telemetry.inode, &mut self.buffer),
            };
            // It went meanwhile.
            self.devices.extend(device);
        }
        if self.devices.is_empty() { Err(failed(ReadError::Gone)) } else { Ok(()) }
    }
}

impl NodeSource for Slingshot {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        // A device that is plugged in while jobs come and go is found by the next scrape.
        if out.section_of_scrape().is_some() || self.devices.is_empty() {
            self.find()?;
        }
        let mut tally = Tally::default();
        for device in &self.devices {
            out.device(device.identity);
            for (counter, files) in &CHARGED {
                if let Some(raw) = tally.note(device.sum(files, &mut self.buffer)).flatten() {
                    out.counter(counter, &[("device", &device.name)], raw, Range::Full);
                }
            }
            device.emit(out, &mut tally, &mut self.buffer);
        }
        tally.result()
    }

    /// A device's identity is its inode in sysfs, and holds as long as it is there.
    fn save(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }
}

#[cfg(test)]
mod tests;
