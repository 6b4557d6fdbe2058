//! Lustre file systems of the node: bytes and operations of processes, and the requests behind them.
//!
//! `llite.*.stats` (what processes ask for, the page cache included), `osc.*.stats` and `mdc.*.stats` (requests to servers),
//! in `/proc/fs/lustre` up to 2.11 and in `/sys/kernel/debug/lustre` from 2.12 on (lustre/llite/lproc_llite.c,
//! lustre/ptlrpc/lproc_ptlrpc.c; Lustre manual, "Lustre parameters"). debugfs is root's alone unless it is mounted with
//! another mode. The kernel leaves out the lines of counters at 0. An admin may clear them, and they go back.
//!
//! The files of the targets, one per OST and MDT, are read by scrapes only, not when jobs come and go.

use std::collections::{BTreeMap, BTreeSet};

use exposition::{Family, Profile, Section, SubjectId, Value};
use kernel_files::parse::{ParseError, fields, integer, lines};
use kernel_files::{Buffer, Dir, NodeFiles, ReadError, label_text};
use readings::Range;
use serde::{Deserialize, Serialize};

use crate::collector::durable::Unreadable;
use crate::collector::node_counters::{self, NodeCounter, NodeReadings, NodeSource};
use crate::collector::summed::Summed;
use crate::collector::{Entry, SourceError, Tally};

static READ: NodeCounter = NodeCounter::new(
    "jobledger_node_lustre_read_bytes_total",
    "jobledger_job_lustre_read_bytes_total",
    "jobledger_node_lustre_unattributed_read_bytes_total",
)
.labels(&["filesystem"])
.help(
    "Bytes that processes read from Lustre with system calls, \
     what the page cache had included; memory maps are not in it",
);
static WRITTEN: NodeCounter = NodeCounter::new(
    "jobledger_node_lustre_written_bytes_total",
    "jobledger_job_lustre_written_bytes_total",
    "jobledger_node_lustre_unattributed_written_bytes_total",
)
.labels(&["filesystem"])
.help("Bytes that processes wrote to Lustre with system calls; memory maps are not in it");
static OPERATIONS: NodeCounter = NodeCounter::new(
    "jobledger_node_lustre_operations_total",
    "jobledger_job_lustre_operations_total",
    "jobledger_node_lustre_unattributed_operations_total",
)
.labels(&["filesystem", "operation"])
.help("Operations that processes made on Lustre files, whether or not a server was asked");
static RPC_READ: Family = Family::counter("jobledger_node_lustre_rpc_read_bytes_total")
    .profile(Profile::Full)
    .labels(&["filesystem"])
    .help("Bytes read from Lustre servers over all targets, since this exporter started");
static RPC_WRITTEN: Family = Family::counter("jobledger_node_lustre_rpc_written_bytes_total")
    .profile(Profile::Full)
    .labels(&["filesystem"])
    .help("Bytes written to Lustre servers over all targets, since this exporter started");
static RPCS: Family =
    Family::counter("jobledger_node_lustre_rpcs_total").labels(&["filesystem", "service"]).help(
        "Requests that Lustre servers answered, over all targets of the \
         service (data: OSTs, metadata: MDTs), since this exporter started",
    );
static RPC_WAIT: Family = Family::counter("jobledger_node_lustre_rpc_wait_seconds_total")
    .labels(&["filesystem", "service"])
    .help("Time that those requests waited for their answers, since this exporter started");
static JOBID: Family =
    Family::info("jobledger_node_lustre_jobid_info").labels(&["jobid_var", "jobid_name"]).help(
        "How this node names jobs to Lustre servers; by SLURM's job with \
         jobid_var=SLURM_JOB_ID, or nodelocal or session set by a prolog",
    );

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "lustre",
    summary: "Bytes, operations and requests of Lustre file systems, and bytes and operations of a job while it has the node for itself",
    default_on: true,
    cost: Some(
        "one file per target (OST, MDT) and scrape where Lustre is mounted; from Lustre 2.12 on needs to read debugfs",
    ),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let counters = [&READ, &WRITTEN, &OPERATIONS].into_iter().flat_map(NodeCounter::rows);
        counters.chain([&RPC_READ, &RPC_WRITTEN, &RPCS, &RPC_WAIT, &JOBID]).collect()
    },
    build: |context| {
        let source = Lustre {
            files: NodeFiles::new(&context.roots),
            buffer: Buffer::default(),
            members: BTreeMap::new(),
            identities: 0,
            filesystems: BTreeMap::new(),
            complete: BTreeMap::new(),
        };
        node_counters::build(context, source)
    },
};

/// A line of a `stats` file: `open 17 samples [regs]`, `read_bytes 4 samples [bytes] 1 4096 9000`, since 2.13 also
/// `open 17 samples [usec] 1 9 40 300`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LustreStat<'a> {
    /// The name of the operation.
    pub name: &'a [u8],
    /// How often.
    pub samples: u64,
    /// The unit of `sum`.
    pub unit: &'a [u8],
    /// Sum over the samples, where that is kept.
    pub sum: Option<u64>,
}

/// Parses a `stats` file of Lustre 2.x. Lines of another form (times, a changed header) are ignored.
pub fn parse_lustre_stats(bytes: &[u8]) -> Result<Vec<LustreStat<'_>>, ParseError> {
    let mut stats = Vec::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let (Some(name), Some(samples), Some(b"samples"), Some(unit)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let samples = integer(samples).ok_or(ParseError::new(number, "number of samples"))?;
        let unit = unit.strip_prefix(b"[").and_then(|unit| unit.strip_suffix(b"]"));
        let unit = unit.ok_or(ParseError::new(number, "no [unit]"))?;
        let sum =
            parts.nth(2).map(|sum| integer(sum).ok_or(ParseError::new(number, "not a sum"))).transpose()?;
        stats.push(LustreStat { name, samples, unit, sum });
    }
    Ok(stats)
}

/// The operations that are exported.
const OPERATION_NAMES: [&str; 13] = [
    "read", "write", "open", "close", "getattr", "setattr", "readdir", "create", "remove", "rename", "fsync",
    "lock", "xattr",
];

/// Which operation a line of `llite.*.stats` counts. What asks no server and happens at every step of a path
/// (`inode_permission`) and what the kernel does for itself (page faults, inodes) is none.
fn operation(name: &[u8]) -> Option<&'static str> {
    Some(match name {
        b"read_bytes" => "read",
        b"write_bytes" => "write",
        b"open" => "open",
        b"close" => "close",
        b"getattr" => "getattr",
        b"setattr" | b"truncate" => "setattr",
        b"readdir" => "readdir",
        b"create" | b"mknod" | b"mkdir" | b"symlink" | b"link" => "create",
        b"unlink" | b"rmdir" => "remove",
        b"rename" => "rename",
        b"fsync" => "fsync",
        b"flock" => "lock",
        b"getxattr" | b"setxattr" | b"listxattr" | b"removexattr" => "xattr",
        _ => return None,
    })
}

/// The file system that a directory's name says: `scratch-ffff8b2c` of llite, `scratch-OST0001-osc-ffff8b2c` of a target.
/// Targets as servers see each other (`scratch-OST0001-osc-MDT0000`) have no client's instance and are none.
fn filesystem<'n>(layer: &Layer, directory: &'n str) -> Option<&'n str> {
    let (target, instance) = directory.rsplit_once('-')?;
    let hex = !instance.is_empty() && instance.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match layer.target {
        "" => target,
        kind => {
            target.strip_suffix(layer.directory)?.strip_suffix('-')?.rsplit_once(kind)?.0.strip_suffix('-')?
        }
    };
    (hex && !name.is_empty()).then_some(name)
}

/// A layer of the client.
#[derive(Debug)]
struct Layer {
    directory: &'static str,
    /// How targets are called, and the `service` label.
    target: &'static str,
    service: usize,
}

const FILES: Layer = Layer { directory: "llite", target: "", service: 0 };
const TARGETS: [Layer; 2] = [
    Layer { directory: "osc", target: "OST", service: 0 },
    Layer { directory: "mdc", target: "MDT", service: 1 },
];
const SERVICES: [&str; 2] = ["data", "metadata"];

/// Where the layers are, by version.
const PLACES: [&str; 2] = [DEBUGFS, "proc/fs/lustre"];
/// debugfs itself is root's, and what is below it is not.
pub(crate) const DEBUGFS: &str = "sys/kernel/debug/lustre";

/// One file system, over all its mounts and targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct FileSystem {
    #[serde(skip)]
    there: bool,
    read: Summed,
    written: Summed,
    operations: [Summed; OPERATION_NAMES.len()],
    rpc_read: Summed,
    rpc_written: Summed,
    rpcs: [Summed; SERVICES.len()],
    rpc_wait: [Summed; SERVICES.len()],
}

impl FileSystem {
    fn add_files(&mut self, stats: &[LustreStat<'_>], member: Member) -> u64 {
        let of = |name: &[u8]| stats.iter().find(|s| s.name == name).and_then(|s| s.sum).unwrap_or(0);
        let mut counts = [0_u64; OPERATION_NAMES.len()];
        for stat in stats {
            let at =
                operation(stat.name).and_then(|name| OPERATION_NAMES.iter().position(|known| *known == name));
            if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                *count = count.saturating_add(stat.samples);
            }
        }
        let bytes = [(&mut self.read, of(b"read_bytes")), (&mut self.written, of(b"write_bytes"))];
        let back = bytes.into_iter().chain(self.operations.iter_mut().zip(counts));
        back.map(|(sum, count)| u64::from(sum.add(member.identity, count, Range::Full, member.from_zero)))
            .sum()
    }

    fn add_target(&mut self, stats: &[LustreStat<'_>], member: Member, service: usize) -> u64 {
        let stat = |name: &[u8]| stats.iter().find(|s| s.name == name);
        let sum = |name: &[u8]| stat(name).and_then(|s| s.sum).unwrap_or(0);
        let bytes = [(&mut self.rpc_read, sum(b"read_bytes")), (&mut self.rpc_written, sum(b"write_bytes"))];
        let requests =
            self.rpcs.get_mut(service).map(|sum| (sum, stat(b"req_waittime").map_or(0, |s| s.samples)));
        let waits = self.rpc_wait.get_mut(service).map(|wait| (wait, sum(b"req_waittime")));
        let back = bytes.into_iter().chain(requests).chain(waits);
        back.map(|(sum, count)| u64::from(sum.add(member.identity, count, Range::Full, member.from_zero)))
            .sum()
    }

    fn sums(&mut self) -> impl Iterator<Item = &mut Summed> {
        let bytes = [&mut self.read, &mut self.written, &mut self.rpc_read, &mut self.rpc_written];
        bytes.into_iter().chain(&mut self.operations).chain(&mut self.rpcs).chain(&mut self.rpc_wait)
    }

    fn charge(&self, name: &str, out: &mut NodeReadings<'_>) {
        // Of the sum, not of a mount: it never falls, and history is not in it.
        out.device_from_zero(0);
        let filesystem = ("filesystem", name);
        out.counter(&READ, &[filesystem], self.read.total(), Range::Full);
        out.counter(&WRITTEN, &[filesystem], self.written.total(), Range::Full);
        for (sum, operation) in self.operations.iter().zip(OPERATION_NAMES) {
            out.counter(&OPERATIONS, &[filesystem, ("operation", operation)], sum.total(), Range::Full);
        }
    }

    fn emit(&self, name: &str, to: SubjectId, section: &mut Section) {
        let filesystem = ("filesystem", name);
        section.push(&RPC_READ, to, &[filesystem], self.rpc_read.total());
        section.push(&RPC_WRITTEN, to, &[filesystem], self.rpc_written.total());
        for ((service, rpcs), wait) in SERVICES.into_iter().zip(&self.rpcs).zip(&self.rpc_wait) {
            let labels = [filesystem, ("service", service)];
            section.push(&RPCS, to, &labels, rpcs.total());
            section.push(&RPC_WAIT, to, &labels, Value::micro(wait.total()));
        }
    }
}

/// A mount or target, in a reading.
#[derive(Debug, Clone, Copy)]
struct Member {
    identity: u64,
    from_zero: bool,
}

/// The same between readings.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    inode: u64,
    identity: u64,
    /// Whether the latest reading of its layer found it.
    #[serde(skip)]
    there: bool,
}

/// What is saved. The kernel keeps its counters while no exporter runs, and a mount's directory its inode.
#[derive(Debug, Serialize, Deserialize)]
struct SavedLustre {
    members: Vec<(String, String, Known)>,
    identities: u64,
    filesystems: BTreeMap<String, FileSystem>,
    complete: Vec<(String, bool)>,
}

/// The directory of a layer.
fn layer_directory(name: &str) -> Option<&'static str> {
    std::iter::once(&FILES).chain(&TARGETS).map(|layer| layer.directory).find(|known| *known == name)
}

/// The source.
#[derive(Debug)]
struct Lustre {
    files: NodeFiles,
    buffer: Buffer,
    /// Mounts and targets by layer and name.
    members: BTreeMap<(&'static str, String), Known>,
    identities: u64,
    filesystems: BTreeMap<String, FileSystem>,
    /// Whether the latest reading of a layer was complete, so that a mount that is new at the next one was made
    /// since.
    complete: BTreeMap<&'static str, bool>,
}

fn failed(error: ReadError) -> SourceError {
    SourceError::reading("lustre stats", "a Lustre client's statistics")(error)
}

impl NodeSource for Lustre {
    fn read(&mut self, out: &mut NodeReadings<'_>) -> Result<(), SourceError> {
        let mut tally = Tally::default();
        for filesystem in self.filesystems.values_mut() {
            filesystem.there = false;
        }
        let found = self.read_layer(&FILES, out, &mut tally);
        let missed = self.complete.get(FILES.directory) == Some(&false);
        match out.section_of_scrape() {
            Some(_) if found > 0 => {
                for layer in &TARGETS {
                    self.read_layer(layer, out, &mut tally);
                }
            }
            // Targets without a mount are none.
            Some(_) if !missed => self.complete.extend(TARGETS.map(|layer| (layer.directory, true))),
            _ => {}
        }
        let identities: BTreeSet<_> = self.members.values().map(|known| known.identity).collect();
        for (name, filesystem) in &mut self.filesystems {
            filesystem.sums().for_each(|sum| sum.keep(|member| identities.contains(&member)));
            if filesystem.there {
                filesystem.charge(name, out);
                if let Some((section, since_start)) = out.section_of_sums() {
                    filesystem.emit(name, since_start, section);
                }
            }
        }
        if let Some(section) = out.section_of_scrape().filter(|_| found > 0 || missed) {
            self.emit_jobid(section);
        }
        match (found, tally.result()) {
            (0, Ok(())) => Err(SourceError::Unsupported { needs: "a mounted Lustre file system".to_owned() }),
            (_, outcome) => outcome,
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        let members = self.members.iter();
        Some(durable_state::encode(&SavedLustre {
            members: members
                .map(|((layer, name), known)| ((*layer).to_owned(), name.clone(), known.clone()))
                .collect(),
            identities: self.identities,
            filesystems: self.filesystems.clone(),
            complete: self.complete.iter().map(|(layer, whole)| ((*layer).to_owned(), *whole)).collect(),
        }))
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), Unreadable> {
        let SavedLustre { members, identities, filesystems, complete } = durable_state::decode(saved)?;
        let members = members.into_iter();
        self.members = members
            .filter_map(|(layer, name, known)| Some(((layer_directory(&layer)?, name), known)))
            .collect();
        let complete = complete.into_iter();
        self.complete =
            complete.filter_map(|(layer, whole)| Some((layer_directory(&layer)?, whole))).collect();
        (self.identities, self.filesystems) = (identities, filesystems);
        Ok(())
    }
}

impl Lustre {
    /// Reads the mounts or targets of a layer and returns their number. A denial is only reported where there is a
    /// Lustre client, since debugfs is denied everywhere.
    fn read_layer(&mut self, layer: &Layer, out: &mut NodeReadings<'_>, tally: &mut Tally) -> usize {
        for (_, known) in self.members.iter_mut().filter(|((of, _), _)| *of == layer.directory) {
            known.there = false;
        }
        let (mut found, mut failures, mut denied) = (0, 0, None);
        for place in PLACES {
            let directory = self.files.open(&format!("{place}/{}", layer.directory));
            let (dir, entries) = match directory.and_then(|dir| Ok((dir.list()?, dir))) {
                Ok((entries, dir)) => (dir, entries),
                Err(ReadError::Gone) => continue,
                Err(error) => {
                    denied = Some(error);
                    continue;
                }
            };
            for entry in entries {
                let Some(filesystem) = filesystem(layer, &entry.name) else { continue };
                let filesystem = label_text(filesystem.as_bytes());
                let key = (layer.directory, entry.name);
                if self.members.get(&key).is_some_and(|known| known.there) {
                    continue;
                }
                match self.read_member(&dir, layer, filesystem, key) {
                    // Unmounted meanwhile, or it is the other place that has its statistics.
                    Err(SourceError::Unsupported { .. }) => {}
                    outcome => {
                        found += 1;
                        failures += usize::from(outcome.is_err());
                        out.note_restarts(tally.note(outcome).unwrap_or(0));
                    }
                }
            }
        }
        if let Some(error) = denied.filter(|_| found == 0 && self.files.stat_of("sys/fs/lustre").is_ok()) {
            failures += 1;
            tally.note::<()>(Err(failed(error)));
        }
        if failures == 0 {
            self.members.retain(|(of, _), known| *of != layer.directory || known.there);
        }
        self.complete.insert(layer.directory, failures == 0);
        found
    }

    fn read_member(
        &mut self,
        dir: &Dir,
        layer: &Layer,
        filesystem: String,
        key: (&'static str, String),
    ) -> Result<u64, SourceError> {
        let inode = dir.stat_of(&key.1).map_err(failed)?.inode;
        let bytes = dir.read_list(&format!("{}/stats", key.1), &mut self.buffer).map_err(failed)?;
        let stats = parse_lustre_stats(bytes).map_err(SourceError::parsing("lustre stats"))?;
        let known = self.members.get_mut(&key).filter(|known| known.inode == inode);
        let member = match known {
            Some(known) => {
                known.there = true;
                Member { identity: known.identity, from_zero: false }
            }
            None => {
                self.identities += 1;
                self.members.insert(key, Known { inode, identity: self.identities, there: true });
                let from_zero = self.complete.get(layer.directory).copied().unwrap_or(false);
                Member { identity: self.identities, from_zero }
            }
        };
        let sums = self.filesystems.entry(filesystem).or_default();
        Ok(match layer.target {
            "" => {
                sums.there = true;
                sums.add_files(&stats, member)
            }
            _ => sums.add_target(&stats, member, layer.service),
        })
    }

    fn emit_jobid(&mut self, section: &mut Section) {
        let mut read = |name: &str| {
            ["sys/fs/lustre", "proc/fs/lustre"].iter().find_map(|place| {
                self.files.read(&format!("{place}/{name}")).ok().map(|text| label_text(text.trim_ascii()))
            })
        };
        if let Some(jobid_var) = read("jobid_var") {
            let jobid_name = read("jobid_name").unwrap_or_default();
            let labels = [("jobid_var", &*jobid_var), ("jobid_name", &*jobid_name)];
            section.push(&JOBID, SubjectId::NODE, &labels, 1);
        }
    }
}

#[cfg(test)]
mod tests;
