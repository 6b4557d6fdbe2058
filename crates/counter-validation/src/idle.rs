//! Whether CPUs are idle: work of others beside a loop is noise in its counts.

use std::collections::BTreeMap;
use std::time::Duration;

use cpu_topology::{CpuSet, Topology};
use kernel_files::parse::{ParseError, fields, integer, lines};
use kernel_files::{NodeFiles, ReadError};
use rustix::event::poll;

/// A CPU that is busy for a larger part is not idle.
const BUSY: f64 = 0.05;
/// For how long it is looked.
const LOOK: Duration = Duration::from_millis(500);

/// Ticks of a CPU: without work, and all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks {
    /// `idle` and `iowait`.
    pub idle: u64,
    /// All of them; `guest` is in `user`.
    pub all: u64,
}

/// Parses the CPUs of `/proc/stat` (Documentation/filesystems/proc.rst, 1.7).
pub fn parse_ticks(bytes: &[u8]) -> Result<BTreeMap<u32, Ticks>, ParseError> {
    let mut cpus = BTreeMap::new();
    for line in lines(bytes) {
        let (number, line) = line?;
        let mut parts = fields(line);
        let cpu = parts.next().and_then(|key| integer(key.strip_prefix(b"cpu")?));
        let Some(cpu) = cpu.and_then(|cpu| u32::try_from(cpu).ok()) else { continue };
        let mut ticks = Ticks::default();
        for (at, field) in parts.take(8).enumerate() {
            let value = integer(field).ok_or(ParseError::new(number, "not an unsigned integer"))?;
            ticks.all = ticks.all.saturating_add(value);
            if at == 3 || at == 4 {
                ticks.idle = ticks.idle.saturating_add(value);
            }
        }
        cpus.insert(cpu, ticks);
    }
    Ok(cpus)
}

/// CPUs of which more than a little was busy between two readings, and which part.
pub fn busy(before: &BTreeMap<u32, Ticks>, after: &BTreeMap<u32, Ticks>, cpus: &CpuSet) -> Vec<(u32, f64)> {
    let part = |cpu: u32| {
        let (before, after) = (before.get(&cpu)?, after.get(&cpu)?);
        let all = crate::known::float(after.all.saturating_sub(before.all));
        let idle = crate::known::float(after.idle.saturating_sub(before.idle));
        (all > 0.0).then(|| (cpu, (1.0 - idle / all).max(0.0)))
    };
    cpus.iter().filter_map(part).filter(|(_, part)| *part > BUSY).collect()
}

/// Those of these CPUs, and of the other threads of their cores, that are busy now. Looks for half a second.
pub fn look(files: &mut NodeFiles, cpus: &CpuSet) -> Result<Vec<(u32, f64)>, ReadError> {
    let mut topology = Topology::current(files);
    topology.read_cores(files);
    let core = |cpu: u32| topology.cores.get(&cpu).copied().unwrap_or(cpu);
    let same_cores: CpuSet =
        topology.whole.cpus.iter().filter(|cpu| cpus.iter().any(|ours| core(ours) == core(*cpu))).collect();
    let mut read = || files.read_lines("proc/stat").map(|bytes| parse_ticks(bytes).unwrap_or_default());
    let before = read()?;
    pause(LOOK);
    Ok(busy(&before, &read()?, &same_cores))
}

/// Waits.
pub(crate) fn pause(time: Duration) {
    if let Ok(time) = time.try_into() {
        // A signal ends it early, which is as good.
        let _ = poll(&mut [], Some(&time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(text: &str) -> BTreeMap<u32, Ticks> {
        parse_ticks(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_cpu_with_work_is_named_and_what_guests_use_counts_once() {
        let before =
            ticks("cpu  9 9 9 9\ncpu0 100 0 100 800 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nctxt 5\n");
        assert_eq!(before.len(), 2);
        let after = ticks("cpu0 120 0 100 818 12 0 0 0 20 0\ncpu1 0 0 1 49 0 0 0 0 0 0\n");
        let cpus = CpuSet::parse(b"0-3").unwrap();
        assert_eq!(busy(&before, &after, &cpus), [(0, 0.4)]);
        assert_eq!(busy(&after, &after, &cpus), [], "nothing is known");
        assert!(parse_ticks(b"cpu0 x\n").is_err());
    }

    #[test]
    fn a_cpu_of_this_host_is_busy_when_this_test_makes_it_so() {
        let mut files = NodeFiles::new(&std::sync::Arc::default());
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ends = stop.clone();
        let work = std::thread::spawn(move || while !ends.load(std::sync::atomic::Ordering::Relaxed) {});
        let online = cpu_topology::online(&mut files).unwrap().unwrap();
        let found = look(&mut files, &online).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        work.join().unwrap();
        assert!(!found.is_empty());
    }
}
