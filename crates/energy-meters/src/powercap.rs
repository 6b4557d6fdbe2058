//! RAPL through powercap.
//!
//! `/sys/class/powercap/intel-rapl{,-mmio}:N[:M]/{name,energy_uj,max_energy_range_uj}`
//! (Documentation/power/powercap/powercap.rst); Intel since 3.13, AMD since 5.11, under Intel's name. `energy_uj` is
//! root's (0400) since 5.10 and in older kernels with the fix (CVE-2020-8694, PLATYPUS: fine readings of energy give
//! away what other users compute). A reading costs one interrupt of a CPU of the socket.
//!
//! The counter is a 32-bit register in units of 61 or 15 µJ. It wraps at 262 kJ or 65 kJ, which is two minutes at 500
//! W. The kernel does not extend it, so it has to be read more often than that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_topology::Topology;
use kernel_files::parse::{integer, parse_integer};
use kernel_files::{Dir, NodeFiles, ReadError, Roots, SourceError};

use super::counter::{FileCounter, Skips, Words};
use super::{Domain, Meter, Range, Sample, Source, Zone};

const CLASS: &str = "sys/class/powercap";
const WORDS: Words = Words { file: "powercap energy_uj", needs: "the zone in /sys/class/powercap" };
/// A register in units of 15 µJ and a socket of 1 kW wrap after 65 s.
pub(super) const EVERY: Duration = Duration::from_secs(60);

/// Which zone a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Directory {
    /// Its control type.
    pub source: Source,
    /// Number of the zone.
    pub zone: u32,
    /// Number of the part below it (`intel-rapl:0:1`).
    pub part: Option<u32>,
}

/// Parses the name of a directory of the class: `intel-rapl:0`, `intel-rapl-mmio:0:1`.
pub fn parse_directory(name: &str) -> Option<Directory> {
    let (kind, numbers) = name.split_once(':')?;
    let source = match kind {
        "intel-rapl" => Source::Powercap,
        "intel-rapl-mmio" => Source::PowercapMmio,
        _ => return None,
    };
    let number = |text: &str| integer(text.as_bytes()).and_then(|n| u32::try_from(n).ok());
    let (zone, part) = match numbers.split_once(':') {
        None => (number(numbers)?, None),
        Some((zone, part)) => (number(zone)?, Some(number(part)?)),
    };
    Some(Directory { source, zone, part })
}

/// What a zone's `name` says: its domain, and for a package its socket (and die).
pub fn parse_zone_name(name: &[u8]) -> Option<(Domain, Option<u32>, Option<u32>)> {
    let number = |text: &str| integer(text.as_bytes()).and_then(|n| u32::try_from(n).ok());
    let name = std::str::from_utf8(name.trim_ascii()).ok()?;
    let domain = match name {
        "core" => Domain::Core,
        "uncore" => Domain::Uncore,
        "dram" => Domain::Memory,
        "psys" => Domain::Psys,
        _ => {
            let package = name.strip_prefix("package-")?;
            return match package.split_once("-die-") {
                None => Some((Domain::Package, Some(number(package)?), None)),
                Some((socket, die)) => Some((Domain::Package, Some(number(socket)?), Some(number(die)?))),
            };
        }
    };
    Some((domain, None, None))
}

/// The counters of all zones, whatever they measure.
pub(super) fn guarded_files(roots: &Roots) -> Vec<String> {
    let entries = Dir::open(&roots.sys("class/powercap")).and_then(|dir| dir.list()).unwrap_or_default();
    let zones = entries.iter().filter(|entry| parse_directory(&entry.name).is_some());
    zones.map(|zone| format!("class/powercap/{}/energy_uj", zone.name)).collect()
}

/// The zones of one control type.
#[derive(Debug)]
pub(super) struct Powercap {
    zones: Vec<Zone>,
    counters: Vec<(FileCounter, Option<Range>)>,
    files: NodeFiles,
    skips: Skips,
}

impl Powercap {
    /// The zones of both control types, and what may not be read.
    pub(super) fn find(roots: &Arc<Roots>, topology: &Topology) -> (Vec<Self>, Vec<SourceError>) {
        let Ok(entries) = Dir::open(&roots.sys("class/powercap")).and_then(|dir| dir.list()) else {
            return (Vec::new(), Vec::new());
        };
        let mut found = Vec::new();
        let mut refused = Vec::new();
        for source in [Source::Powercap, Source::PowercapMmio] {
            let mut names: Vec<_> = entries
                .iter()
                .filter_map(|entry| Some((parse_directory(&entry.name)?, entry.name.as_str())))
                .filter(|(directory, _)| directory.source == source)
                .collect();
            // Every zone before its parts, in the order of their numbers.
            names.sort_unstable();
            let mut meter = Self {
                zones: Vec::new(),
                counters: Vec::new(),
                files: NodeFiles::new(roots),
                skips: Skips::default(),
            };
            let mut denied = None;
            meter.survey(source, &names, topology, &mut denied);
            refused.extend(denied);
            if !meter.zones.is_empty() {
                found.push(meter);
            }
        }
        (found, refused)
    }

    fn survey(
        &mut self,
        source: Source,
        names: &[(Directory, &str)],
        topology: &Topology,
        denied: &mut Option<SourceError>,
    ) {
        // The zone that parts belong to: its number, and its socket unless it is not to be read.
        let mut parent: Option<(u32, Option<u32>)> = None;
        let mut sockets = BTreeSet::new();
        for (Directory { zone: number, part, .. }, directory) in names {
            let at = |file: &str| format!("{CLASS}/{directory}/{file}");
            let Ok(raw) = self.files.read(&at("name")) else { continue };
            let name = String::from_utf8_lossy(raw.trim_ascii()).into_owned();
            let Some((domain, socket, die)) = parse_zone_name(raw) else { continue };
            let socket = if part.is_some() {
                match parent.filter(|(of, _)| of == number) {
                    Some((_, socket)) => socket,
                    None => continue,
                }
            } else {
                // The same register once more: see `Topology::one_counter_per_socket`.
                if die.is_some() && topology.one_counter_per_socket && !sockets.insert(socket) {
                    parent = None;
                    continue;
                }
                parent = Some((*number, socket));
                socket
            };
            let path = at("energy_uj");
            match self.files.read(&path) {
                Err(ReadError::Denied) => {
                    denied.get_or_insert(WORDS.error(ReadError::Denied));
                }
                Err(ReadError::Gone) => {}
                // What fails now may work later: it counts as a zone, and each reading reports its error.
                _ => {
                    self.counters.push((FileCounter::new(path), None));
                    self.zones.push(Zone { domain, socket, source, name, estimated: false });
                }
            }
        }
    }
}

/// The values go from 0 to `max_energy_range_uj`. The register's own modulus is up to one unit (61 µJ) more, which is
/// lost per wrap; without the file a fall is no energy.
fn range(files: &mut NodeFiles, energy: &str) -> Range {
    let path = energy.replace("/energy_uj", "/max_energy_range_uj");
    let most = files.read(&path).ok().and_then(|bytes| parse_integer(bytes).ok());
    match most.and_then(|most| most.checked_add(1)) {
        Some(at) if at > 1 => Range::Wraps { at },
        _ => Range::Full,
    }
}

impl Meter for Powercap {
    fn zones(&self) -> &[Zone] {
        &self.zones
    }

    fn skip(&mut self, zone: usize) {
        self.skips.add(zone);
    }

    fn read(&mut self, _now: Instant, each: &mut dyn FnMut(usize, Result<Sample, SourceError>)) {
        for (zone, (counter, known)) in
            self.counters.iter_mut().enumerate().filter(|(z, _)| !self.skips.has(*z))
        {
            let of = *known.get_or_insert_with(|| range(&mut self.files, &counter.path));
            let reading = counter.read(&mut self.files, WORDS, of, parse_integer);
            if reading.is_err() {
                // A zone that comes back may be another one.
                *known = None;
            }
            each(zone, reading);
        }
    }

    fn at_least_every(&self) -> Option<Duration> {
        (!self.skips.all(self.zones.len())).then_some(EVERY)
    }
}
