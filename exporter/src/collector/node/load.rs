//! Load averages and threads of the node.
//!
//! `/proc/loadavg` (man 5 proc), any kernel, no privilege, one read. Load counts threads that run, want to run or
//! are stuck in uninterruptible sleep: on a compute node a load above the CPUs allocated says that a job started
//! more threads than it asked for, or that a file system hangs.

use exposition::{Family, Profile, Section, SubjectId};
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static LOAD1: Family = Family::gauge("jobledger_node_load1")
    .help("Threads running, runnable or in uninterruptible sleep, damped over 1 minute");
static LOAD5: Family = Family::gauge("jobledger_node_load5")
    .help("Threads running, runnable or in uninterruptible sleep, damped over 5 minutes");
static LOAD15: Family = Family::gauge("jobledger_node_load15")
    .help("Threads running, runnable or in uninterruptible sleep, damped over 15 minutes");
static RUNNING: Family = Family::gauge("jobledger_node_threads_running")
    .profile(Profile::Full)
    .help("Threads running or runnable now, the one that reads this included");
static THREADS: Family = Family::gauge("jobledger_node_threads")
    .profile(Profile::Full)
    .help("Threads of the node, those of the kernel included");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_load",
    summary: "Load averages, running and existing threads of the node",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&LOAD1, &LOAD5, &LOAD15, &RUNNING, &THREADS],
    build: |context| Built::plain(NodeLoad { files: NodeFiles::new(&context.roots) }),
};

/// `/proc/loadavg`, but for the newest process id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadAverage {
    /// Over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Threads on a run queue.
    pub running: u64,
    /// Threads there are.
    pub threads: u64,
}

/// Parses `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`. All of it or nothing: no kernel writes a part of it.
pub fn parse_load_average(bytes: &[u8]) -> Result<LoadAverage, ParseError> {
    const BAD: ParseError = ParseError { line: 1, reason: "not 'load load load running/threads pid'" };
    let line = bytes.strip_suffix(b"\n").ok_or(ParseError::new(1, "torn line"))?;
    let mut parts = fields(line);
    let mut load = [0.0; 3];
    for slot in &mut load {
        *slot = parts.next().and_then(hundredths).ok_or(BAD)?;
    }
    let threads = parts.next().ok_or(BAD)?;
    let mut counts = threads.splitn(2, |b| *b == b'/').map(integer);
    match (counts.next(), counts.next()) {
        (Some(Some(running)), Some(Some(threads))) => Ok(LoadAverage { load, running, threads }),
        _ => Err(BAD),
    }
}

/// `12.34`, as fs/proc/loadavg.c writes it: always two digits behind the point.
fn hundredths(field: &[u8]) -> Option<f64> {
    let (whole, fraction) = field.split_at_checked(field.len().checked_sub(3)?)?;
    let fraction = integer(fraction.strip_prefix(b".")?)?;
    let all = u32::try_from(integer(whole)?.checked_mul(100)?.checked_add(fraction)?).ok()?;
    Some(f64::from(all) / 100.0)
}

/// The source.
#[derive(Debug)]
struct NodeLoad {
    files: NodeFiles,
}

impl Collector for NodeLoad {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let bytes = self.files.need("proc/loadavg", "a procfs with /proc/loadavg")?;
        let now = parse_load_average(bytes).map_err(SourceError::parsing("proc/loadavg"))?;
        for (family, load) in [&LOAD1, &LOAD5, &LOAD15].into_iter().zip(now.load) {
            out.push(family, SubjectId::NODE, &[], load);
        }
        out.push(&RUNNING, SubjectId::NODE, &[], now.running);
        out.push(&THREADS, SubjectId::NODE, &[], now.threads);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, snapshot_of};

    #[test]
    fn a_recorded_line_and_that_of_a_large_node() {
        let now = parse_load_average(b"1.71 1.27 0.74 5/107 5283\n").unwrap();
        assert_eq!(now, LoadAverage { load: [1.71, 1.27, 0.74], running: 5, threads: 107 });
        let large = parse_load_average(b"1536.07 1500.00 999.99 1537/21408 4194303\n").unwrap();
        assert_eq!(large.load, [1536.07, 1500.0, 999.99]);
    }

    #[test]
    fn malformed_and_torn_are_errors() {
        for bad in [
            &b"\n"[..],
            b"1.71 1.27 0.74\n",
            b"1.71 1.27 0.74 5 9\n",
            b"1.71 1.27 0.74 5/ 9\n",
            b"1.7 1.27 0.74 5/107 9\n",
            b"-1.71 1.27 0.74 5/107 9\n",
            b"nan inf 1e5 5/107 9\n",
            b"1.71 1.27 0.74 5/107 5283",
        ] {
            assert!(parse_load_average(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_missing_file_is_unsupported() {
        let machine = Machine::new();
        assert_eq!(
            collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).0.unwrap_err().reason(),
            "unsupported"
        );
        machine.write("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert!(text.contains("\njobledger_node_load5 0.18\n") && text.contains("_threads 80\n"), "{text}");
    }

    #[test]
    fn the_live_host_agrees_with_sysinfo() {
        let mut files = NodeFiles::new(&Default::default());
        let now = parse_load_average(files.read("proc/loadavg").unwrap()).unwrap();
        // sysinfo(2): fixed point with 16 bits behind it, and `procs` counts threads.
        let other = rustix::system::sysinfo();
        let load1 = f64::from(u32::try_from(other.loads[0]).unwrap()) / 65536.0;
        assert!((now.load[0] - load1).abs() < 1.0, "{} and {load1}", now.load[0]);
        assert!(now.threads.abs_diff(u64::from(other.procs)) < 100);
        assert!(now.running >= 1, "this test runs");
    }
}
