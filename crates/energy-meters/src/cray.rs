//! Cray's `pm_counters`: energy as the node's controller measures it, ten times a second.
//!
//! `/sys/cray/pm_counters/{energy,cpu_energy,cpuN_energy,memory_energy,accelN_energy,freshness}`, readable by all
//! users. A line is `value unit`, on newer systems with a time stamp: `4187523 J 1595341323456789 us`. Joules without
//! fraction, since the controller started; a restart of the controller resets them. `freshness` counts the
//! controller's updates: readings with the same number are of one moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_files::parse::{ParseError, fields, integer, lines, parse_integer};
use kernel_files::{Dir, NodeFiles, Roots, SourceError};

use super::counter::{FileCounter, Skips, Words};
use super::{Domain, Meter, Range, Sample, Source, Zone};

const DIRECTORY: &str = "sys/cray/pm_counters";
const FRESHNESS: &str = "sys/cray/pm_counters/freshness";
/// An update comes every 100 ms and a round takes well under one: a second attempt is rare, a third is a defect.
const ATTEMPTS: usize = 3;
const WORDS: Words = Words { file: "pm_counters/*energy", needs: "the file of the node controller's driver" };

/// Parses `value J [timestamp us]` into microjoules.
pub fn parse_energy(bytes: &[u8]) -> Result<u64, ParseError> {
    let (number, line) = lines(bytes).next().ok_or(ParseError::new(1, "empty"))??;
    let mut words = fields(line);
    let value = words.next().and_then(integer).ok_or(ParseError::new(number, "not an unsigned integer"))?;
    match words.next() {
        Some(b"J") => value.checked_mul(1_000_000).ok_or(ParseError::new(number, "too many joules")),
        _ => Err(ParseError::new(number, "not in joules")),
    }
}

/// What a file of `pm_counters` counts, if it is one that is read.
pub fn parse_name(file: &str) -> Option<(Domain, Option<u32>)> {
    let of = match file.strip_suffix("energy")? {
        "" => return Some((Domain::Node, None)),
        of => of.strip_suffix('_')?,
    };
    let numbered = |prefix: &str| of.strip_prefix(prefix).and_then(|n| integer(n.as_bytes()));
    match of {
        "cpu" => Some((Domain::Package, None)),
        "memory" => Some((Domain::Memory, None)),
        _ => match numbered("cpu").map(u32::try_from) {
            Some(socket) => Some((Domain::Package, Some(socket.ok()?))),
            None => numbered("accel").map(|_| (Domain::Accelerator, None)),
        },
    }
}

/// The counters of the node's controller.
#[derive(Debug)]
pub(super) struct PmCounters {
    zones: Vec<Zone>,
    counters: Vec<FileCounter>,
    files: NodeFiles,
    skips: Skips,
}

impl PmCounters {
    /// `None` where there is no such directory, or nothing in it that is read.
    pub(super) fn find(roots: &Arc<Roots>) -> Option<Self> {
        let entries = Dir::open(&roots.sys("cray/pm_counters")).and_then(|dir| dir.list()).ok()?;
        let (mut zones, mut counters) = (Vec::new(), Vec::new());
        for entry in entries {
            let Some((domain, socket)) = parse_name(&entry.name) else { continue };
            counters.push(FileCounter::new(format!("{DIRECTORY}/{}", entry.name)));
            let source = Source::CrayPmCounters;
            zones.push(Zone { domain, socket, source, name: entry.name, estimated: false });
        }
        let files = NodeFiles::new(roots);
        (!zones.is_empty()).then(|| Self { zones, counters, files, skips: Skips::default() })
    }

    fn freshness(&mut self) -> Option<u64> {
        self.files.read(FRESHNESS).ok().and_then(|bytes| parse_integer(bytes).ok())
    }
}

impl Meter for PmCounters {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, _now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        let mut readings = Vec::new();
        for _ in 0..ATTEMPTS {
            readings.clear();
            let before = self.freshness();
            for (zone, counter) in self.counters.iter_mut().enumerate().filter(|(z, _)| !self.skips.has(*z)) {
                readings.push((zone, counter.read(&mut self.files, WORDS, Range::Full, parse_energy)));
            }
            if before == self.freshness() {
                readings.into_iter().for_each(|(zone, reading)| each(zone, reading));
                return;
            }
        }
        let error = ParseError::new(1, "changes faster than the counters can be read");
        for (zone, _) in readings {
            each(zone, Err(SourceError::Malformed { file: "pm_counters/freshness", error }));
        }
    }

    fn at_least_every(&self) -> Option<Duration> {
        None
    }
}
