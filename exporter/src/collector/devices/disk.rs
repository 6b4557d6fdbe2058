//! Traffic of the node's disks.
//!
//! `/proc/diskstats` (Documentation/admin-guide/iostats.rst; block/genhd.c `diskstats_show`): 14 columns, 18 with
//! discards (4.18), 20 with flushes (5.5). No privilege; one read, and one `fstatat` per disk to see that it is still the
//! same one. A sector is 512 bytes whatever the disk's own are. Operations and sectors are `unsigned long`; milliseconds
//! are printed as `unsigned int` and wrap after 50 days of one request, after hours of a queue that is always full.
//!
//! Only whole disks are exported: those with a directory in `/sys/block`, which partitions do not have. Loop, RAM and
//! other disks are left out until they are used.

use exposition::{Family, Profile, Section, SubjectId, Value};
use kernel_files::parse::{ParseError, fields, integer, lines};
use kernel_files::{NodeFiles, ReadError, Stat, label_text};
use readings::Range;
use serde::{Deserialize, Serialize};

use crate::collector::durable::Unreadable;
use crate::collector::node_counters::{self, NodeCounter, NodeReadings, NodeSource};
use crate::collector::summed::Summed;
use crate::collector::{BuildContext, Built, Entry, SourceError};

static READ: NodeCounter = NodeCounter::new(
    "jobledger_node_disk_read_bytes_total",
    "jobledger_job_disk_read_bytes_total",
    "jobledger_node_disk_unattributed_read_bytes_total",
)
.labels(&["device"])
.help("Bytes read from the disk; disks stacked on others (jobledger_node_disk_info) are listed beside those");
static WRITTEN: NodeCounter = NodeCounter::new(
    "jobledger_node_disk_written_bytes_total",
    "jobledger_job_disk_written_bytes_total",
    "jobledger_node_disk_unattributed_written_bytes_total",
)
.labels(&["device"])
.help(
    "Bytes written to the disk; disks stacked on others \
     (jobledger_node_disk_info) are listed beside those",
);
static OPERATIONS: NodeCounter = NodeCounter::new(
    "jobledger_node_disk_operations_total",
    "jobledger_job_disk_operations_total",
    "jobledger_node_disk_unattributed_operations_total",
)
.labels(&["device", "operation"])
.help("Operations that the disk completed: read, write, discard (kernel 4.18), flush (kernel 5.5)");
static DISCARDED: Family = Family::counter("jobledger_node_disk_discarded_bytes_total")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Bytes discarded on the disk since the node started");
static BUSY: Family = Family::counter("jobledger_node_disk_busy_seconds_total")
    .labels(&["device"])
    .help("Time in which the disk had at least one request, since this exporter started");
static QUEUE: Family = Family::counter("jobledger_node_disk_queue_seconds_total")
    .profile(Profile::Full)
    .labels(&["device"])
    .help("Time in which the disk had requests, times their number, since this exporter started");
static SPENT: Family = Family::counter("jobledger_node_disk_operation_seconds_total")
    .labels(&["device", "operation"])
    .help("Time that operations took from queueing to completion, since this exporter started");
static INFO: Family = Family::info("jobledger_node_disk_info").labels(&["device", "kind", "name"]).help(
    "Disks; kind is disk, stacked (device mapper, md: what it moves its disks \
     move too), path (one of several ways to a disk that is listed as well), \
     loop (of a file) or memory (zram, brd); name is the device mapper's",
);

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_disk",
    summary: "Bytes, operations and busy time of the node's disks, and of a job while it has the node for itself",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let counters = [&READ, &WRITTEN, &OPERATIONS].into_iter().flat_map(NodeCounter::rows);
        counters.chain([&DISCARDED, &BUSY, &QUEUE, &SPENT, &INFO]).collect()
    },
    build,
};

fn build(context: &BuildContext) -> Built {
    node_counters::build(
        context,
        NodeDisk { files: NodeFiles::new(&context.roots), disks: Vec::new(), resets: 0, complete: false },
    )
}

/// The operations in the order of the columns, and the families of their bytes.
static KINDS: [(&str, Option<&NodeCounter>); 4] =
    [("read", Some(&READ)), ("write", Some(&WRITTEN)), ("discard", None), ("flush", None)];

/// Operations of a kind. What a kernel does not print is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Completed.
    pub completed: u64,
    /// Sectors of 512 bytes; flushes have none.
    pub sectors: Option<u64>,
    /// Milliseconds, modulo 2^32.
    pub millis: u64,
}

/// A line of `/proc/diskstats`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskStats<'a> {
    /// The disk's or partition's name; `/` in it is `!` in sysfs.
    pub name: &'a [u8],
    /// Read, write, discard, flush.
    pub operations: [Option<Operations>; 4],
    /// Milliseconds with a request, modulo 2^32.
    pub busy_millis: u64,
    /// Milliseconds times requests, modulo 2^32.
    pub queue_millis: u64,
}

/// Parses `/proc/diskstats`. Columns beyond those that are known are ignored.
pub fn parse_diskstats(bytes: &[u8]) -> Result<Vec<DiskStats<'_>>, ParseError> {
    lines(bytes).map(|line| line.and_then(|(number, line)| parse_line(number, line))).collect()
}

fn parse_line(number: usize, line: &[u8]) -> Result<DiskStats<'_>, ParseError> {
    let mut parts = fields(line).skip(2);
    let name = parts.next().ok_or(ParseError::new(number, "no device name"))?;
    let mut numbers = Vec::with_capacity(17);
    for part in parts {
        numbers.push(integer(part).ok_or(ParseError::new(number, "not an unsigned integer"))?);
    }
    let [reads, _, read, read_ms, writes, _, written, write_ms, _, busy_millis, queue_millis, more @ ..] =
        numbers.as_slice()
    else {
        return Err(ParseError::new(number, "fewer than 14 columns"));
    };
    let operations = |completed: &u64, sectors: Option<&u64>, millis: &u64| Operations {
        completed: *completed,
        sectors: sectors.copied(),
        millis: *millis,
    };
    let (discard, flush) = match more {
        [discards, _, discarded, ms, rest @ ..] => (
            Some(operations(discards, Some(discarded), ms)),
            match rest {
                [flushes, ms, ..] => Some(operations(flushes, None, ms)),
                _ => None,
            },
        ),
        _ => (None, None),
    };
    Ok(DiskStats {
        name,
        operations: [
            Some(operations(reads, Some(read), read_ms)),
            Some(operations(writes, Some(written), write_ms)),
            discard,
            flush,
        ],
        busy_millis: *busy_millis,
        queue_millis: *queue_millis,
    })
}

/// What is saved of a disk.
#[derive(Debug, Serialize, Deserialize)]
struct SavedDisk {
    name: String,
    inode: u64,
    identity: u64,
    completed: [u64; 4],
    used: bool,
    busy: Summed,
    queue: Summed,
    spent: [Summed; 4],
}

/// What is saved of all of them.
#[derive(Debug, Serialize, Deserialize)]
struct SavedDisks {
    disks: Vec<SavedDisk>,
    resets: u64,
    complete: bool,
}

/// What a disk is.
#[derive(Debug)]
struct Disk {
    name: String,
    /// Inode of its entry in `/sys/block`: another when it is unplugged and plugged in.
    inode: u64,
    kind: &'static str,
    mapper_name: String,
    /// Which disk of this name, and which run of its counters (zram is reset by hand).
    identity: u64,
    completed: [u64; 4],
    used: bool,
    busy: Summed,
    queue: Summed,
    spent: [Summed; 4],
}

impl Disk {
    fn new(name: String, inode: u64, files: &mut NodeFiles) -> Self {
        let kind = kind(&name, files);
        let mapper_name = files.read(&format!("sys/block/{name}/dm/name"));
        let mapper_name = mapper_name.map(|name| label_text(name.trim_ascii())).unwrap_or_default();
        Self {
            name,
            inode,
            kind,
            mapper_name,
            identity: 0,
            completed: [0; 4],
            used: false,
            busy: Summed::default(),
            queue: Summed::default(),
            spent: Default::default(),
        }
    }

    fn save(&self) -> SavedDisk {
        SavedDisk {
            name: self.name.clone(),
            inode: self.inode,
            identity: self.identity,
            completed: self.completed,
            used: self.used,
            busy: self.busy.clone(),
            queue: self.queue.clone(),
            spent: self.spent.clone(),
        }
    }

    fn restored(saved: SavedDisk, files: &mut NodeFiles) -> Self {
        let SavedDisk { name, inode, identity, completed, used, busy, queue, spent } = saved;
        Self { identity, completed, used, busy, queue, spent, ..Self::new(name, inode, files) }
    }

    fn begin(&mut self, identity: u64) {
        self.identity = identity;
        [&mut self.busy, &mut self.queue]
            .into_iter()
            .chain(&mut self.spent)
            .for_each(|sum| sum.keep(|_| false));
    }

    /// Whether the counters restarted since the last reading.
    fn restarted(&mut self, stats: &DiskStats<'_>) -> bool {
        let now = stats.operations.map(|operations| operations.map_or(0, |o| o.completed));
        let before = std::mem::replace(&mut self.completed, now);
        now.iter().zip(before).any(|(now, before)| *now < before)
    }
}

fn kind(name: &str, files: &mut NodeFiles) -> &'static str {
    let begins = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    if begins("loop") {
        return "loop";
    }
    if begins("ram") || begins("zram") {
        return "memory";
    }
    if files.read(&format!("sys/block/{name}/hidden")).is_ok_and(|hidden| hidden.trim_ascii() == b"1") {
        return "path";
    }
    let slaves = files.open(&format!("sys/block/{name}/slaves")).and_then(|dir| dir.list());
    if begins("dm-") || begins("md") || slaves.is_ok_and(|slaves| !slaves.is_empty()) {
        "stacked"
    } else {
        "disk"
    }
}

const FILE: &str = "proc/diskstats";
/// Milliseconds wrap at this value.
const MILLIS: Range = Range::Wraps { at: 1 << 32 };

/// The source.
#[derive(Debug)]
struct NodeDisk {
    files: NodeFiles,
    disks: Vec<Disk>,
    /// How many identities were given.
    resets: u64,
    /// Whether the latest reading missed no disk.
    complete: bool,
}

impl NodeSource for NodeDisk {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        let needs = "a kernel with block devices (/proc/diskstats)";
        let bytes = self.files.read_list(FILE).map_err(SourceError::reading(FILE, needs))?.to_vec();
        let stats = parse_diskstats(&bytes).map_err(SourceError::parsing(FILE))?;
        let mut section_of_scrape = 0;
        let mut denied = None;
        let mut before: Vec<_> = std::mem::take(&mut self.disks);
        let complete = std::mem::take(&mut self.complete);
        for stats in &stats {
            let name = label_text(stats.name).replace('/', "!");
            let known = before.iter().position(|disk| disk.name == name).map(|at| before.swap_remove(at));
            let inode = match self.files.stat_of(&format!("sys/block/{name}")) {
                Ok(Stat { inode, .. }) => inode,
                Err(ReadError::Gone) => continue,
                Err(error) => {
                    self.disks.extend(known);
                    denied = Some(SourceError::reading("sys/block", "")(error));
                    continue;
                }
            };
            let same = known.as_ref().is_some_and(|disk| disk.inode == inode);
            let mut disk = match known {
                Some(disk) if same => disk,
                _ => Disk::new(name, inode, &mut self.files),
            };
            let restarted = disk.restarted(stats);
            if !same || restarted {
                self.resets += 1;
                disk.begin(self.resets);
            }
            // One that was not there, or was not used, when all was read last began at 0 since then.
            let from_zero = complete && (!same || !disk.used);
            disk.used |= disk.completed != [0; 4];
            if disk.used {
                section_of_scrape += 1;
                disk.emit(stats, from_zero, out);
            }
            self.disks.push(disk);
        }
        self.complete = denied.is_none();
        match denied {
            Some(error) => Err(error),
            None if section_of_scrape == 0 => {
                Err(SourceError::Unsupported { needs: "a disk that was ever used".to_owned() })
            }
            None => Ok(()),
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        let disks = self.disks.iter().map(Disk::save).collect();
        Some(durable_state::encode(&SavedDisks { disks, resets: self.resets, complete: self.complete }))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), Unreadable> {
        let SavedDisks { disks, resets, complete } = durable_state::decode(saved)?;
        self.disks = disks.into_iter().map(|disk| Disk::restored(disk, &mut self.files)).collect();
        (self.resets, self.complete) = (resets, complete);
        Ok(())
    }
}

impl Disk {
    fn emit(&mut self, stats: &DiskStats<'_>, from_zero: bool, out: &mut NodeReadings<'_>) {
        if from_zero {
            out.device_from_zero(self.identity);
        } else {
            out.device(self.identity);
        }
        let device = ("device", &*self.name);
        self.busy.add(self.identity, stats.busy_millis, MILLIS, from_zero);
        self.queue.add(self.identity, stats.queue_millis, MILLIS, from_zero);
        for ((operations, (name, bytes)), spent) in stats.operations.iter().zip(KINDS).zip(&mut self.spent) {
            let Some(operations) = operations else { continue };
            let labels = [device, ("operation", name)];
            out.counter(&OPERATIONS, &labels, operations.completed, Range::Full);
            spent.add(self.identity, operations.millis, MILLIS, from_zero);
            if let (Some(bytes), Some(sectors)) = (bytes, operations.sectors) {
                out.counter(bytes, &[device], sectors.saturating_mul(512), Range::Full);
            }
        }
        if let Some((section, since_start)) = out.section_of_sums() {
            self.push(stats, since_start, section);
        }
    }

    /// The samples of the node alone.
    fn push(&self, stats: &DiskStats<'_>, since_start: SubjectId, section: &mut Section) {
        let device = ("device", &*self.name);
        let info = [device, ("kind", self.kind), ("name", &*self.mapper_name)];
        section.push(&INFO, SubjectId::NODE, &info, 1);
        let seconds = |family: &'static Family,
                       labels: &[(&'static str, &str)],
                       millis: &Summed,
                       section: &mut Section| {
            section.push(family, since_start, labels, Value::parts(millis.total(), 1000));
        };
        seconds(&BUSY, &[device], &self.busy, section);
        seconds(&QUEUE, &[device], &self.queue, section);
        for ((operations, (name, _)), spent) in stats.operations.iter().zip(KINDS).zip(&self.spent) {
            if operations.is_some() {
                seconds(&SPENT, &[device, ("operation", name)], spent, section);
            }
        }
        if let Some(Operations { sectors: Some(sectors), .. }) = stats.operations[2] {
            section.push(&DISCARDED, SubjectId::NODE, &[device], sectors.saturating_mul(512));
        }
    }
}

#[cfg(test)]
mod tests;
