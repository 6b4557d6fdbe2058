//! CPU time of the whole node by mode, and what else `/proc/stat` says of it.
//!
//! `/proc/stat` (Documentation/filesystems/proc.rst, 1.7), any kernel, no privilege. Ticks of `USER_HZ`, which is 100
//! on every architecture of Linux. The file is expensive for the kernel, which sums over CPUs and interrupts: it is
//! read once per scrape. There is no per-core series: a node of 256 CPUs would have 2048 of them, and a job's own
//! CPUs are in its cgroup. Guests' time is within user and nice (`account_guest_time` in kernel/sched/cputime.c adds
//! it to both), so it is not exported again: the modes add up to all time.

use exposition::{Family, Profile, Section, Value};
use kernel_files::NodeFiles;
use kernel_files::parse::{ParseError, fields, integer, lines};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static CPU_SECONDS: Family = Family::counter("jobledger_node_cpu_seconds_total").labels(&["mode"]).help(
    "CPU time of the node since boot, summed over its CPUs; the \
     modes add up to all of it, guests are within user and nice",
);
static CPUS: Family = Family::gauge("jobledger_node_cpus")
    .profile(Profile::Lean)
    .help("Logical CPUs online: hardware threads, not cores");
static BOOT_TIME: Family = Family::gauge("jobledger_node_boot_time_seconds")
    .help("When the node was booted, seconds since the epoch");
static CONTEXT_SWITCHES: Family =
    Family::counter("jobledger_node_context_switches_total").help("Context switches of the node since boot");
static FORKS: Family = Family::counter("jobledger_node_forks_total")
    .help("Processes and threads started on the node since boot");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_cpu",
    summary: "CPU time of the whole node by mode, its CPUs online, boot time, context switches and forks",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&CPU_SECONDS, &CPUS, &BOOT_TIME, &CONTEXT_SWITCHES, &FORKS],
    build: |context| {
        Built::plain(NodeCpu { files: NodeFiles::new(&context.roots), highest: Default::default() })
    },
};

/// The first columns of a `cpu` line; guest and guest_nice follow.
pub const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// `/proc/stat`, but for the counts of interrupts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcStat {
    /// Ticks of the `cpu` line in the order of [`MODES`].
    pub ticks: [Option<u64>; MODES.len()],
    /// `cpuN` lines: the CPUs online.
    pub cpus: Option<u64>,
    /// `btime`.
    pub boot_time: Option<u64>,
    /// `ctxt`.
    pub context_switches: Option<u64>,
    /// `processes`, which counts threads too.
    pub forks: Option<u64>,
}

/// Parses `/proc/stat`.
pub fn parse_proc_stat(bytes: &[u8]) -> Result<ProcStat, ParseError> {
    let mut stat = ProcStat::default();
    for line in lines(bytes) {
        let (number, line) = line?;
        let value = |field| integer(field).ok_or(ParseError::new(number, "not an unsigned integer"));
        let mut parts = fields(line);
        let Some(key) = parts.next() else { continue };
        let single = match key {
            b"cpu" => {
                for (slot, field) in stat.ticks.iter_mut().zip(parts) {
                    *slot = Some(value(field)?);
                }
                continue;
            }
            b"btime" => &mut stat.boot_time,
            b"ctxt" => &mut stat.context_switches,
            b"processes" => &mut stat.forks,
            _ => {
                if key.strip_prefix(b"cpu").and_then(integer).is_some() {
                    stat.cpus = Some(stat.cpus.unwrap_or(0) + 1);
                }
                continue;
            }
        };
        *single = Some(value(parts.next().ok_or(ParseError::new(number, "no value"))?)?);
    }
    Ok(stat)
}

/// The highest idle and iowait that were exported.
///
/// Both step back by a few ticks: they are sampled without the run queue's lock (`get_cpu_idle_time_us` in
/// kernel/time/tick-sched.c; proc.rst mentions it for iowait). A rate would take that for a restart and add the whole
/// sum since boot. So after a small step back the exported value holds. A large one is passed on: a CPU that goes
/// offline takes the idle time that no tick accounted with it.
#[derive(Debug, Default)]
struct Highest([Option<u64>; MODES.len()]);

impl Highest {
    const HELD_TICKS_PER_CPU: u64 = 300;

    fn steady(&mut self, ticks: [Option<u64>; MODES.len()], cpus: u64) -> [Option<u64>; MODES.len()] {
        let small = Self::HELD_TICKS_PER_CPU * cpus;
        for ((mode, highest), now) in MODES.iter().zip(&mut self.0).zip(ticks) {
            let back = matches!(*mode, "idle" | "iowait") && *highest > now;
            let held = highest.zip(now).is_some_and(|(highest, now)| back && highest - now <= small);
            if !held {
                *highest = now;
            }
        }
        self.0
    }
}

const TICKS_PER_SECOND: u64 = 100;

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
fn from_epoch(seconds: u64) -> f64 {
    seconds as f64
}

/// When the node was booted, seconds since the epoch: the start of what the kernel counts since then.
pub(in crate::collector) fn boot_time(files: &mut NodeFiles) -> Option<f64> {
    parse_proc_stat(files.read("proc/stat").ok()?).ok()?.boot_time.map(from_epoch)
}

/// The source.
#[derive(Debug)]
struct NodeCpu {
    files: NodeFiles,
    highest: Highest,
}

impl Collector for NodeCpu {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let bytes = self.files.need("proc/stat", "a procfs with /proc/stat")?;
        let stat = parse_proc_stat(bytes).map_err(SourceError::parsing("proc/stat"))?;
        let since_boot = out.node_since(stat.boot_time.map(from_epoch));
        let ticks = self.highest.steady(stat.ticks, stat.cpus.unwrap_or(1));
        for (mode, ticks) in MODES.iter().zip(ticks) {
            if let Some(ticks) = ticks {
                out.push(&CPU_SECONDS, since_boot, &[("mode", mode)], Value::parts(ticks, TICKS_PER_SECOND));
            }
        }
        for (family, value) in [
            (&CPUS, stat.cpus),
            (&BOOT_TIME, stat.boot_time),
            (&CONTEXT_SWITCHES, stat.context_switches),
            (&FORKS, stat.forks),
        ] {
            if let Some(value) = value {
                out.push(family, since_boot, &[], value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, collect_many, snapshot_of};

    // Recorded: Linux 6.18, two CPUs; its intr line cut.
    const LINUX_6_18: &[u8] = b"cpu  52001 0 22720 276409 1550 0 248 50 7 0\n\
        cpu0 26914 0 8227 141060 197 0 23 23 7 0\n\
        cpu1 25087 0 14493 135349 1352 0 225 26 0 0\n\
        intr 1031904 0 0 354 179 0 41 1 245109 0\nctxt 2613469\nbtime 1795164917\nprocesses 37741\n\
        procs_running 5\nprocs_blocked 0\nsoftirq 640503 0 56277 4 27678 245106 0 170 128654 0 182614\n";

    #[test]
    fn modes_are_the_first_eight_columns_and_guests_are_not_counted_twice() {
        let stat = parse_proc_stat(LINUX_6_18).unwrap();
        assert_eq!(stat.ticks, [52001, 0, 22720, 276_409, 1550, 0, 248, 50].map(Some));
        assert_eq!((stat.cpus, stat.boot_time), (Some(2), Some(1_795_164_917)));
        assert_eq!((stat.context_switches, stat.forks), (Some(2_613_469), Some(37741)));
    }

    #[test]
    fn absent_is_none_not_zero() {
        let stat = parse_proc_stat(b"cpu  1 2 3 4\n").unwrap();
        assert_eq!(stat.ticks, [Some(1), Some(2), Some(3), Some(4), None, None, None, None]);
        assert_eq!((stat.cpus, stat.boot_time, stat.forks), (None, None, None));
        assert_eq!(parse_proc_stat(b"").unwrap(), ProcStat::default());
    }

    #[test]
    fn holes_in_the_numbering_of_cpus_and_thousands_of_interrupts_are_fine() {
        // A POWER or x86 node with CPUs taken offline, on a kernel that lists every interrupt (4.18).
        let intr =
            format!("cpu  8 0 8 8 0 0 0 0 0 0\ncpu0 4 0 4 4\ncpu8 4 0 4 4\nintr 9{}\n", " 0".repeat(70_000));
        let stat = parse_proc_stat(intr.as_bytes()).unwrap();
        assert_eq!(stat.cpus, Some(2));
    }

    #[test]
    fn malformed_and_torn_are_errors_and_no_numbers() {
        assert_eq!(parse_proc_stat(b"cpu  1 x\n"), Err(ParseError::new(1, "not an unsigned integer")));
        assert_eq!(parse_proc_stat(b"cpu 1\nbtime\n"), Err(ParseError::new(2, "no value")));
        assert_eq!(parse_proc_stat(b"ctxt 12"), Err(ParseError::new(1, "torn line")));
    }

    #[test]
    fn idle_time_that_wobbles_is_held_and_a_large_step_back_is_passed_on() {
        let machine = Machine::new();
        let snapshot = snapshot_of(machine.roots(), Vec::new());
        let mut highest = Highest::default();
        let idle = |highest: &mut Highest, idle| {
            highest.steady([Some(5), None, None, Some(idle), None, None, None, None], 1)
        };
        assert_eq!(idle(&mut highest, 10_000)[3], Some(10_000));
        assert_eq!(idle(&mut highest, 9_990)[3], Some(10_000), "held");
        assert_eq!(idle(&mut highest, 10_001)[3], Some(10_001));
        assert_eq!(idle(&mut highest, 5_000)[3], Some(5_000), "a CPU went offline");
        assert_eq!(highest.steady([None; 8], 1), [None; 8], "absent is not held");
        let user = |highest: &mut Highest, user| {
            highest.steady([Some(user), None, None, None, None, None, None, None], 1)[0]
        };
        assert_eq!(
            (user(&mut highest, 7), user(&mut highest, 6)),
            (Some(7), Some(6)),
            "only what is known to wobble"
        );
        machine.write("proc/stat", "cpu  1 0 0 1000\n");
        let first = collect_many(&ENTRY, &[&snapshot]).pop().unwrap();
        assert!(first.1.contains("jobledger_node_cpu_seconds_total{mode=\"idle\"} 10.0\n"), "{}", first.1);
        assert!(!first.1.contains("steal"), "{}", first.1);
    }

    #[test]
    fn a_missing_file_is_unsupported_and_a_broken_one_malformed() {
        let machine = Machine::new();
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome.unwrap_err().to_string(), "unsupported: needs a procfs with /proc/stat");
        assert_eq!(text, "# EOF\n");
        machine.write("proc/stat", "cpu  1 0 0 -1\n");
        assert_eq!(
            collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).0.unwrap_err().reason(),
            "malformed"
        );
    }

    #[test]
    fn the_live_host_agrees_with_the_c_library_and_the_clocks() {
        let mut files = NodeFiles::new(&Default::default());
        let stat = parse_proc_stat(files.read("proc/stat").unwrap()).unwrap();
        let online = std::process::Command::new("getconf").arg("_NPROCESSORS_ONLN").output().unwrap();
        assert_eq!(stat.cpus.unwrap().to_string(), String::from_utf8(online.stdout).unwrap().trim());
        let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec.unsigned_abs();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec.unsigned_abs();
        assert!((now - uptime).abs_diff(stat.boot_time.unwrap()) <= 2);
        let all: u64 = stat.ticks.iter().flatten().sum();
        let expected = uptime * 100 * stat.cpus.unwrap();
        assert!(all > expected / 2 && all < expected * 3 / 2, "{all} ticks in {expected}");
    }
}
