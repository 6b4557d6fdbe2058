//! NFS mounts of the node: bytes, operations, and how fast the servers answer.
//!
//! `/proc/self/mountstats` (statistics of version 1.1, kernel 2.6.17; errors 5.3) and `/proc/self/mountinfo`. No
//! mount is touched, so a hanging server does not block this. The files cover the exporter's mount namespace. They
//! are the exporter's own, so no privilege is needed. The kernel formats some 5 KB per mount, at each scrape and
//! whenever a job gets the node for itself or loses it.
//!
//! A super block is counted once: several mounts of it show the same counters, which `mountinfo` reveals by their
//! device number. Its labels are the export and the place of its first mount, while any of them exists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use durable_state::instant;
use exposition::{Family, Profile, Section, SubjectId};
use kernel_files::{NodeFiles, label_text};
use readings::Range;
use serde::{Deserialize, Serialize};

use crate::collector::durable::Unreadable;
use crate::collector::node_counters::{self, NodeCounter, NodeReadings, NodeSource};
use crate::collector::summed::Summed;
use crate::collector::{Entry, SourceError, Tally};

mod mountstats;

pub use mountstats::{
    Bytes, NfsMount, NfsTarget, OPERATIONS, Requests, parse_mountinfo, parse_mountstats, unescape,
};

static READ: NodeCounter = NodeCounter::new(
    "jobledger_node_nfs_read_bytes_total",
    "jobledger_job_nfs_read_bytes_total",
    "jobledger_node_nfs_unattributed_read_bytes_total",
)
.labels(&["export", "mountpoint"])
.help("Bytes read from NFS servers: what the page cache had is not in it, read-ahead is");
static WRITTEN: NodeCounter = NodeCounter::new(
    "jobledger_node_nfs_written_bytes_total",
    "jobledger_job_nfs_written_bytes_total",
    "jobledger_node_nfs_unattributed_written_bytes_total",
)
.labels(&["export", "mountpoint"])
.help("Bytes written to NFS servers, when they are sent");
static OPERATIONS_DONE: NodeCounter = NodeCounter::new(
    "jobledger_node_nfs_operations_total",
    "jobledger_job_nfs_operations_total",
    "jobledger_node_nfs_unattributed_operations_total",
)
.labels(&["export", "mountpoint", "operation"])
.help(
    "Requests that NFS servers answered: read, write (COMMIT included), \
     metadata (all others but those that keep up the session)",
);

static REQUESTS: Family =
    Family::counter("jobledger_node_nfs_requests_total").labels(&["export", "mountpoint", "operation"]).help(
        "Requests that the server answered since the mounting, by \
         operation; those that keep up the session are in none",
    );
static ROUND_TRIP: Family = Family::counter("jobledger_node_nfs_request_round_trip_seconds_total")
    .labels(&["export", "mountpoint", "operation"])
    .help("Time from sending a request to its answer, since the mounting");
static TIME: Family = Family::counter("jobledger_node_nfs_request_seconds_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint", "operation"])
    .help(
        "Time from a request's beginning to its end, that in the \
         queue and for repetitions included, since the mounting",
    );
static RETRANSMISSIONS: Family = Family::counter("jobledger_node_nfs_retransmissions_total")
    .labels(&["export", "mountpoint"])
    .help("Requests sent again since the mounting");
static TIMEOUTS: Family = Family::counter("jobledger_node_nfs_timeouts_total")
    .labels(&["export", "mountpoint"])
    .help("Times that a request got no answer in time since the mounting");
static ERRORS: Family =
    Family::counter("jobledger_node_nfs_request_errors_total").labels(&["export", "mountpoint"]).help(
        "Requests that ended with an error since the mounting, such \
         as files that are not there (kernel 5.3)",
    );
static SENT: Family = Family::counter("jobledger_node_nfs_sent_bytes_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint"])
    .help("Bytes of requests since the mounting, headers included");
static RECEIVED: Family = Family::counter("jobledger_node_nfs_received_bytes_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint"])
    .help("Bytes of answers since the mounting, headers included");
static ASKED: Family = Family::counter("jobledger_node_nfs_syscall_bytes_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint", "direction", "path"])
    .help(
        "Bytes that processes read and wrote with system calls since the mounting; \
         path is cached (page cache) or direct (O_DIRECT); memory maps are not in it",
    );
static EVENTS: Family = Family::counter("jobledger_node_nfs_events_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint", "event"])
    .help(
        "Events since the mounting: open, lookup, fsync, lock by \
         processes; delay: the server asked to come again later",
    );
static CONNECTS: Family = Family::counter("jobledger_node_nfs_connects_total")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint"])
    .help("Connections made, over all that the mount uses; mounts of one server may share them");
static INFO: Family = Family::info("jobledger_node_nfs_info")
    .profile(Profile::Full)
    .labels(&["export", "mountpoint", "version", "transport", "security"])
    .help("NFS file systems that are mounted; a label is empty when the kernel does not say");
static MOUNTED: Family = Family::gauge("jobledger_node_nfs_filesystems")
    .profile(Profile::Full)
    .help("NFS file systems that are mounted, in however many places");
static BESIDE: Family = Family::gauge("jobledger_node_nfs_filesystems_summed").help(
    "Those of them that have no series of their own, since 64 others were \
     there before, and are summed under the export `other`",
);

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "nfs",
    summary: "Bytes, operations and latencies of NFS mounts, and bytes and operations of a job while it has the node for itself",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let counters = [&READ, &WRITTEN, &OPERATIONS_DONE].into_iter().flat_map(NodeCounter::rows);
        counters.chain(OF_MOUNT).collect()
    },
    build: |context| {
        let source = Nfs {
            stats: NodeFiles::new(&context.roots),
            info: NodeFiles::new(&context.roots),
            held: BTreeMap::new(),
            named: Vec::new(),
            identities: 0,
            beside: Default::default(),
            summed: false,
            complete: false,
        };
        node_counters::build(context, source)
    },
};

static OF_MOUNT: [&Family; 14] = [
    &REQUESTS,
    &ROUND_TRIP,
    &TIME,
    &RETRANSMISSIONS,
    &TIMEOUTS,
    &ERRORS,
    &SENT,
    &RECEIVED,
    &ASKED,
    &EVENTS,
    &CONNECTS,
    &INFO,
    &MOUNTED,
    &BESIDE,
];

/// Events that are exported, by their place in `events:` (include/linux/nfs_iostat.h).
const EVENT_NAMES: [(usize, &str); 5] =
    [(4, "open"), (5, "lookup"), (15, "fsync"), (16, "lock"), (24, "delay")];

/// File systems with series of their own, over the run of the exporter: a node with automounted homes of thousands of
/// users would have as many.
const MOST_NAMED: usize = 64;

/// Of this much, some 1 300 NFS 4 mounts, the statistics are read.
const CAP: usize = 8 << 20;

/// Root's for a process that dumps no core (fs/proc/base.c, `task_dump_owner`).
pub(crate) const STATS: &str = "proc/self/mountstats";
const MOUNTS: &str = "proc/self/mountinfo";

/// What is charged: bytes read and written, then operations.
type Attributed = [Option<u64>; 5];

/// The ledger's counters of a mount.
fn attributed(mount: &NfsMount<'_>) -> Attributed {
    let mut operations = [0_u64; 3];
    for (requests, name) in mount.requests.iter().flatten().zip(OPERATIONS) {
        let [read, write, metadata] = &mut operations;
        let class = match name {
            "read" => read,
            "write" | "commit" => write,
            _ => metadata,
        };
        *class = class.saturating_add(requests.requests);
    }
    let counted = |count| mount.requests.is_some().then_some(count);
    let [read, write, metadata] = operations.map(counted);
    [mount.bytes.map(|b| b.read_server), mount.bytes.map(|b| b.written_server), read, write, metadata]
}

fn charge(attributed: &Attributed, export: &str, mountpoint: &str, out: &mut NodeReadings<'_>) {
    let [read, written, operations @ ..] = attributed;
    let place = [("export", export), ("mountpoint", mountpoint)];
    for (family, bytes) in [(&READ, read), (&WRITTEN, written)] {
        if let Some(bytes) = bytes {
            out.counter(family, &place, *bytes, Range::Full);
        }
    }
    for (name, count) in ["read", "write", "metadata"].into_iter().zip(operations) {
        if let Some(count) = count {
            let [export, mountpoint] = place;
            out.counter(&OPERATIONS_DONE, &[export, mountpoint, ("operation", name)], *count, Range::Full);
        }
    }
}

/// A super block that is mounted.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Held {
    /// When it was mounted, in the kernel's whole seconds.
    #[serde(with = "instant::option")]
    born: Option<Instant>,
    identity: u64,
    /// Its place in `named`; none: it is summed with others.
    name: Option<usize>,
}

/// The source.
#[derive(Debug)]
struct Nfs {
    stats: NodeFiles,
    info: NodeFiles,
    /// By device number.
    held: BTreeMap<u64, Held>,
    /// Export and mount point of those that have, or had, series of their own.
    named: Vec<(String, String)>,
    identities: u64,
    /// Sums over those without a name, and whether there ever was one.
    beside: [Summed; 5],
    summed: bool,
    /// Whether the latest reading missed nothing.
    complete: bool,
}

/// What is saved. The kernel keeps its counters while no exporter runs; a super block is known again by its device number and when
/// it was mounted.
#[derive(Debug, Serialize, Deserialize)]
struct SavedNfs {
    held: BTreeMap<u64, Held>,
    named: Vec<(String, String)>,
    identities: u64,
    beside: [Summed; 5],
    summed: bool,
    complete: bool,
}

impl NodeSource for Nfs {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        let needs = "a kernel with mount statistics (/proc/self/mountstats)";
        let mut tally = Tally::default();
        let complete = std::mem::take(&mut self.complete);
        // The mounts after their statistics: each of them is then in the list, but those unmounted meanwhile.
        let (stats, whole) = self.stats.read_long(STATS, CAP).map_err(SourceError::reading(STATS, needs))?;
        let mut mounts = parse_mountstats(stats).map_err(SourceError::parsing(STATS))?;
        if mounts.is_empty() && whole {
            self.held.clear();
            self.beside.iter_mut().for_each(|sum| sum.keep(|_| false));
            self.complete = true;
            return Err(SourceError::Unsupported { needs: "a mounted NFS file system".to_owned() });
        }
        if !whole {
            mounts.pop();
            let needs = format!(
                "fewer NFS mounts: {STATS} is longer than {CAP} bytes, and the mounts behind are left out"
            );
            tally.note::<()>(Err(SourceError::Unsupported { needs }));
        }
        let (info, _) = self.info.read_long(MOUNTS, CAP).map_err(SourceError::reading(MOUNTS, needs))?;
        let targets = parse_mountinfo(info).map_err(SourceError::parsing(MOUNTS))?;
        let super_blocks = super_blocks(&mounts, &targets);
        let Self { held, named, identities, beside, summed, .. } = self;
        let now = out.now();
        let born = |mount: &NfsMount<'_>| now.checked_sub(Duration::from_secs(mount.age?));
        let there: BTreeMap<u64, _> =
            super_blocks.iter().map(|(device, mount)| (*device, born(mount))).collect();
        held.retain(|device, held| there.get(device).is_some_and(|born| same(held, *born)));
        for (device, mount) in &super_blocks {
            if !mount.known {
                let needs = "NFS statistics of version 1.x".to_owned();
                tally.note::<()>(Err(SourceError::Unsupported { needs }));
                continue;
            }
            tally.note(Ok(()));
            let new = !held.contains_key(device);
            if new {
                *identities += 1;
                let name = name(mount, held, named);
                held.insert(*device, Held { born: None, identity: *identities, name });
            }
            let Some(held) = held.get_mut(device) else { continue };
            held.born = born(mount);
            // It was not there when all was read last and is no older than that.
            let age = mount.age.map(Duration::from_secs);
            let from_zero =
                new && complete && out.before().zip(age).is_some_and(|(before, age)| age <= now - before);
            let attributed = attributed(mount);
            match held.name.and_then(|at| named.get(at)) {
                Some((export, mountpoint)) => {
                    if from_zero {
                        out.device_from_zero(held.identity)
                    } else {
                        out.device(held.identity)
                    }
                    charge(&attributed, export, mountpoint, out);
                    if let Some(section) = out.section_of_scrape() {
                        emit(mount, export, mountpoint, section);
                    }
                }
                None => {
                    for (sum, count) in beside.iter_mut().zip(attributed) {
                        let back =
                            count.is_some_and(|count| sum.add(held.identity, count, Range::Full, from_zero));
                        out.note_restarts(u64::from(back));
                    }
                }
            }
        }
        let unnamed = |held: &&Held| held.name.is_none();
        let members: BTreeSet<u64> = held.values().filter(unnamed).map(|held| held.identity).collect();
        beside.iter_mut().for_each(|sum| sum.keep(|member| members.contains(&member)));
        *summed |= !members.is_empty();
        if *summed {
            out.device_from_zero(0);
            let [read, written, operations @ ..] = &*beside;
            let [reads, writes, metadata] = operations;
            charge(&[read, written, reads, writes, metadata].map(|sum| Some(sum.total())), "other", "", out);
        }
        if let Some(section) = out.section_of_scrape() {
            section.push(&MOUNTED, SubjectId::NODE, &[], super_blocks.len() as u64);
            section.push(&BESIDE, SubjectId::NODE, &[], members.len() as u64);
        }
        let outcome = tally.result();
        self.complete = outcome.is_ok();
        outcome
    }

    fn save(&self) -> Option<Vec<u8>> {
        let (held, named, beside) = (self.held.clone(), self.named.clone(), self.beside.clone());
        let Self { identities, summed, complete, .. } = *self;
        Some(durable_state::encode(&SavedNfs { held, named, identities, beside, summed, complete }))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), Unreadable> {
        let SavedNfs { held, named, identities, beside, summed, complete } = durable_state::decode(saved)?;
        (self.held, self.named, self.identities) = (held, named, identities);
        (self.beside, self.summed, self.complete) = (beside, summed, complete);
        Ok(())
    }
}

/// Each super block once, with the statistics of the mount that is listed first. A mount that is not in `targets` is
/// outside the exporter's root, or was unmounted meanwhile.
fn super_blocks<'m>(mounts: &'m [NfsMount<'m>], targets: &[NfsTarget<'_>]) -> Vec<(u64, &'m NfsMount<'m>)> {
    let mut devices: BTreeMap<(&[u8], &[u8]), VecDeque<u64>> = BTreeMap::new();
    for target in targets {
        devices.entry((target.export, target.mountpoint)).or_default().push_back(target.device);
    }
    let mut found = BTreeSet::new();
    let mut super_blocks = Vec::new();
    for mount in mounts {
        let device = devices.get_mut(&(mount.export, mount.mountpoint)).and_then(VecDeque::pop_front);
        if let Some(device) = device.filter(|device| found.insert(*device)) {
            super_blocks.push((device, mount));
        }
    }
    super_blocks
}

/// Whether it is the super block that was there before: device numbers are given again.
fn same(held: &Held, born: Option<Instant>) -> bool {
    /// The kernel shows whole seconds.
    const ROUNDING: Duration = Duration::from_secs(2);
    match (held.born, born) {
        (Some(before), Some(now)) => before.max(now) - before.min(now) <= ROUNDING,
        _ => true,
    }
}

/// The name for a super block, unless another is mounted that has it, or there are too many.
fn name(
    mount: &NfsMount<'_>,
    held: &BTreeMap<u64, Held>,
    named: &mut Vec<(String, String)>,
) -> Option<usize> {
    let text = |path| label_text(&unescape(path));
    let name = (text(mount.export), text(mount.mountpoint));
    match named.iter().position(|known| *known == name) {
        Some(at) => held.values().all(|held| held.name != Some(at)).then_some(at),
        None if named.len() < MOST_NAMED => {
            named.push(name);
            Some(named.len() - 1)
        }
        None => None,
    }
}

/// The samples of the node alone.
fn emit(mount: &NfsMount<'_>, export: &str, mountpoint: &str, section: &mut Section) {
    let (export, mountpoint) = (("export", export), ("mountpoint", mountpoint));
    let text = |field: Option<&[u8]>| label_text(field.unwrap_or_default());
    let (version, transport, security) = (text(mount.version), text(mount.transport), text(mount.security));
    let info =
        [export, mountpoint, ("version", &*version), ("transport", &*transport), ("security", &*security)];
    section.push(&INFO, SubjectId::NODE, &info, 1);
    let mut push = |family, labels: &[(&'static str, &str)], value: exposition::Value| {
        let labels: Vec<_> = [export, mountpoint].into_iter().chain(labels.iter().copied()).collect();
        section.push(family, SubjectId::NODE, &labels, value);
    };
    if let Some(requests) = &mount.requests {
        for (requests, name) in requests.iter().zip(OPERATIONS).filter(|(requests, _)| requests.requests > 0)
        {
            let operation = [("operation", name)];
            push(&REQUESTS, &operation, requests.requests.into());
            push(&ROUND_TRIP, &operation, exposition::Value::parts(requests.round_trip_millis, 1000));
            push(&TIME, &operation, exposition::Value::parts(requests.millis, 1000));
        }
        let sum = |of: fn(&Requests) -> u64| requests.iter().map(of).fold(0, u64::saturating_add);
        push(&RETRANSMISSIONS, &[], sum(|r| r.transmissions.saturating_sub(r.requests)).into());
        push(&TIMEOUTS, &[], sum(|r| r.timeouts).into());
        push(&SENT, &[], sum(|r| r.sent_bytes).into());
        push(&RECEIVED, &[], sum(|r| r.received_bytes).into());
        if requests.iter().any(|requests| requests.errors.is_some()) {
            push(&ERRORS, &[], sum(|r| r.errors.unwrap_or(0)).into());
        }
    }
    if let Some(bytes) = mount.bytes {
        for (direction, path, count) in [
            ("read", "cached", bytes.read),
            ("read", "direct", bytes.read_direct),
            ("written", "cached", bytes.written),
            ("written", "direct", bytes.written_direct),
        ] {
            push(&ASKED, &[("direction", direction), ("path", path)], count.into());
        }
    }
    for (at, event) in EVENT_NAMES {
        if let Some(count) = mount.events.get(at) {
            push(&EVENTS, &[("event", event)], (*count).into());
        }
    }
    if let Some(connects) = mount.connects {
        push(&CONNECTS, &[], connects.into());
    }
}

#[cfg(test)]
mod tests;
