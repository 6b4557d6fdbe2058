//! Clock frequency of the node's CPUs: the lowest, the mean and the highest over those online.
//!
//! `sys/devices/system/cpu/cpu*/cpufreq/{scaling_cur_freq,cpuinfo_min_freq,cpuinfo_max_freq}` in kHz
//! (Documentation/admin-guide/pm/cpufreq.rst), else the `cpu MHz` lines of `/proc/cpuinfo`, which only x86 has. No
//! privilege. What the kernel calls current is measured on x86 with APERF/MPERF, and the governor's last request on
//! others; of an idle CPU, and in most virtual machines, it is a nominal value.
//!
//! Off by default because of its cost for others. Before Linux 5.19 each read interrupts the CPU in question. When
//! the last one is longer ago than a second, it also sleeps 10 ms and interrupts it again (`arch_freq_get_on_cpu` in
//! arch/x86/kernel/cpu/aperfmperf.c): over a second of waiting on 128 CPUs, and 256 interrupts in the users' codes.
//! There `/proc/cpuinfo` is read instead: `arch_freq_prepare_all` interrupts every CPU too but sleeps once. From 5.19
//! on the numbers come from the CPU's own last tick and disturb no code; one open per CPU remains.

use cpu_topology::{CpuSet, online};
use exposition::{Family, Section, SubjectId};
use kernel_files::parse::{colon_keyed, integer};
use kernel_files::{NodeFiles, ReadError};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static FREQUENCY: Family = Family::gauge("jobledger_node_cpu_frequency_hertz").labels(&["stat"]).help(
    "Clock frequency that the kernel reports: lowest, mean and \
     highest of the CPUs online; nominal for idle ones",
);
static LIMIT: Family = Family::gauge("jobledger_node_cpu_frequency_limit_hertz")
    .labels(&["stat"])
    .help("What the hardware can do: the lowest minimum and the highest maximum of the CPUs online");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_cpufreq",
    summary: "Clock frequency of the node's CPUs",
    default_on: false,
    cost: Some(
        "One file per CPU; before Linux 5.19 every scrape interrupts each CPU twice, which codes feel",
    ),
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&FREQUENCY, &LIMIT],
    build: |context| {
        Built::plain(NodeCpufreq {
            files: NodeFiles::new(&context.roots),
            online: CpuSet::default(),
            source: Source::None,
            limits: Spread::default(),
        })
    },
};

const CPUINFO: &str = "proc/cpuinfo";
const CUR: &str = "scaling_cur_freq";
const NEEDS: &str = "a cpufreq driver, or 'cpu MHz' in /proc/cpuinfo (x86)";

/// Lowest, sum and highest of some frequencies in kHz.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Spread {
    low: Option<u64>,
    high: Option<u64>,
    sum: u64,
    count: u64,
}

impl Spread {
    fn add(&mut self, khz: u64) {
        self.low = Some(self.low.map_or(khz, |low| low.min(khz)));
        self.high = self.high.max(Some(khz));
        self.sum += khz;
        self.count += 1;
    }

    #[expect(clippy::cast_precision_loss, reason = "2^53 kHz are no frequency")]
    fn mean_hertz(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64 * 1e3)
    }
}

/// Where the frequencies are read.
#[derive(Debug)]
enum Source {
    None,
    /// A file per CPU.
    Files(Vec<String>),
    Cpuinfo,
}

/// The source.
#[derive(Debug)]
struct NodeCpufreq {
    files: NodeFiles,
    /// The CPUs that were online when the rest was found.
    online: CpuSet,
    source: Source,
    limits: Spread,
}

/// Parses the `cpu MHz` lines of `/proc/cpuinfo`; the kernel writes kHz with a point in it (`%u.%03u`).
fn parse_cpu_mhz(bytes: &[u8], spread: &mut Spread) {
    colon_keyed(bytes, |key, value| {
        if key == b"cpu MHz"
            && let Some(point) = value.iter().position(|b| *b == b'.')
        {
            let (mhz, fraction) = value.split_at(point);
            let khz = integer(mhz).zip(fraction.get(1..4).and_then(integer));
            if let Some(khz) = khz.and_then(|(mhz, khz)| mhz.checked_mul(1000)?.checked_add(khz)) {
                spread.add(khz);
            }
        }
    });
}

/// Whether a kernel release is before 5.19. EL9's 5.14 counts as what its number says: to take it for the older
/// behaviour costs less than the other error.
fn interrupts_to_ask(release: &[u8]) -> bool {
    let mut numbers = release.split(|b| !b.is_ascii_digit()).map(integer);
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    version.is_some_and(|version| version < (5, 19))
}

impl NodeCpufreq {
    /// A frequency file in kHz. `None` when this CPU has none, went offline (EBUSY), or its driver does not know
    /// (`<unknown>`, and 0 from some firmware).
    fn khz(files: &mut NodeFiles, file: &str) -> Result<Option<u64>, SourceError> {
        const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
        match files.read(file) {
            Ok(bytes) => Ok(integer(bytes.trim_ascii()).filter(|khz| *khz > 0)),
            Err(ReadError::Gone | ReadError::Unsupported | ReadError::Io(EBUSY)) => Ok(None),
            Err(error) => Err(SourceError::reading(CUR, NEEDS)(error)),
        }
    }

    fn survey(&mut self, cpus: &CpuSet) -> Result<(), SourceError> {
        let of = |cpu: u32, file: &str| format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}");
        self.limits = Spread::default();
        for cpu in cpus.iter() {
            for file in ["cpuinfo_min_freq", "cpuinfo_max_freq"] {
                if let Some(khz) = Self::khz(&mut self.files, &of(cpu, file))? {
                    self.limits.add(khz);
                }
            }
        }
        self.source = Source::Files(cpus.iter().map(|cpu| of(cpu, CUR)).collect());
        let slow = self.files.read("proc/sys/kernel/osrelease").is_ok_and(interrupts_to_ask);
        if slow || self.limits.count == 0 {
            let mut frequencies = Spread::default();
            if let Ok(start) = self.files.read_start(CPUINFO) {
                parse_cpu_mhz(start, &mut frequencies);
            }
            if frequencies.count > 0 {
                self.source = Source::Cpuinfo;
            }
        }
        Ok(())
    }
}

impl Collector for NodeCpufreq {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let unsupported = || SourceError::Unsupported { needs: NEEDS.to_owned() };
        let online = online(&mut self.files)?.ok_or_else(unsupported)?;
        if online != self.online || matches!(self.source, Source::None) {
            self.survey(&online)?;
            self.online = online;
        }
        let mut now = Spread::default();
        match &self.source {
            Source::None => {}
            Source::Files(paths) => {
                for file in paths {
                    if let Some(khz) = Self::khz(&mut self.files, file)? {
                        now.add(khz);
                    }
                }
            }
            Source::Cpuinfo => parse_cpu_mhz(self.files.need(CPUINFO, NEEDS)?, &mut now),
        }
        let mut push = |family, stat, khz: Option<u64>| {
            if let Some(khz) = khz {
                out.push(family, SubjectId::NODE, &[("stat", stat)], khz.saturating_mul(1000));
            }
        };
        push(&FREQUENCY, "min", now.low);
        push(&FREQUENCY, "max", now.high);
        push(&LIMIT, "min", self.limits.low);
        push(&LIMIT, "max", self.limits.high);
        match now.mean_hertz() {
            Some(mean) => out.push(&FREQUENCY, SubjectId::NODE, &[("stat", "mean")], mean),
            None => return Err(unsupported()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::{Machine, collect, snapshot_of};

    const CPU: &str = "sys/devices/system/cpu";

    fn machine(release: &str, current: &[&str]) -> Machine {
        let machine = Machine::new();
        machine.write("proc/sys/kernel/osrelease", format!("{release}\n"));
        machine.write(&format!("{CPU}/online"), format!("0-{}\n", current.len() - 1));
        for (cpu, current) in current.iter().enumerate() {
            let at = format!("{CPU}/cpu{cpu}/cpufreq");
            machine.write(&format!("{at}/scaling_cur_freq"), format!("{current}\n"));
            machine.write(&format!("{at}/cpuinfo_min_freq"), "800000\n");
            machine.write(&format!("{at}/cpuinfo_max_freq"), "3800000\n");
        }
        machine
    }

    fn samples(text: &str) -> Vec<&str> {
        text.lines().filter(|l| !l.starts_with('#')).collect()
    }

    #[test]
    fn lowest_mean_and_highest_are_in_hertz() {
        let machine = machine("6.8.0-45-generic", &["800000", "2400000", "<unknown>", "3700000"]);
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            samples(&text),
            [
                "jobledger_node_cpu_frequency_hertz{stat=\"min\"} 800000000",
                "jobledger_node_cpu_frequency_hertz{stat=\"max\"} 3700000000",
                "jobledger_node_cpu_frequency_hertz{stat=\"mean\"} 2300000000.0",
                "jobledger_node_cpu_frequency_limit_hertz{stat=\"min\"} 800000000",
                "jobledger_node_cpu_frequency_limit_hertz{stat=\"max\"} 3800000000",
            ]
        );
    }

    #[test]
    fn a_kernel_that_would_interrupt_twice_is_asked_through_cpuinfo() {
        let cpuinfo = "processor\t: 0\ncpu MHz\t\t: 2596.134\n\nprocessor\t: 1\ncpu MHz\t\t: 1200.000\n\n";
        let machine = machine("4.18.0-553.el8_10.x86_64", &["1", "2"]);
        machine.write("proc/cpuinfo", cpuinfo);
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
        assert!(text.contains("{stat=\"min\"} 1200000000\n") && text.contains("{stat=\"max\"} 2596134000\n"));
        assert!(text.contains("{stat=\"mean\"} 1898067000.0\n"), "{text}");
        machine.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
        assert!(
            collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1.contains("{stat=\"max\"} 2000\n")
        );
        for (release, slow) in [
            ("4.18.0-553.el8_10.x86_64", true),
            ("5.14.0-427.13.1.el9_4.x86_64", true),
            ("5.18.19", true),
            ("5.19.0", false),
            ("6.18.44-fc-v669", false),
            ("10.2", false),
            ("", false),
        ] {
            assert_eq!(interrupts_to_ask(release.as_bytes()), slow, "{release}");
        }
    }

    #[test]
    fn a_virtual_machine_without_cpufreq_has_a_frequency_and_no_limits() {
        let machine = Machine::new();
        machine.write(&format!("{CPU}/online"), "0\n").write("proc/cpuinfo", "cpu MHz\t\t: 2000.000\n");
        let text = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new())).1;
        assert_eq!(samples(&text).len(), 3, "{text}");
        assert!(!text.contains("limit"), "absent is none, not zero: {text}");
    }

    #[test]
    fn nothing_at_all_is_unsupported() {
        let machine = Machine::new();
        machine.write(&format!("{CPU}/online"), "0\n").write("proc/cpuinfo", "CPU part\t: 0xd4f\n");
        let (outcome, text) = collect(&ENTRY, &snapshot_of(machine.roots(), Vec::new()));
        assert_eq!(outcome.unwrap_err().reason(), "unsupported");
        assert_eq!(text, "# EOF\n");
        let mut none = Spread::default();
        parse_cpu_mhz(
            b"cpu MHz\t: x\ncpu MHz\t: 12\ncpu MHz\t: 1.2\ncpu MHz\t: -1.000\ncpu MHz\t:\n",
            &mut none,
        );
        assert_eq!(none, Spread::default());
    }

    #[test]
    fn the_live_host_runs_at_a_frequency_that_processors_have() {
        let machine = Machine::new();
        let mut snapshot = snapshot_of(machine.roots(), Vec::new());
        snapshot.roots = std::sync::Arc::default();
        let (outcome, text) = collect(&ENTRY, &snapshot);
        if outcome.as_ref().is_err_and(|e| e.reason() == "unsupported") {
            jobledger_testkit::skip("cpufreq", "this host shows no CPU frequency");
            return;
        }
        assert_eq!(outcome, Ok(()));
        for line in samples(&text) {
            let hertz: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!((1e8..1e10).contains(&hertz), "{line}");
        }
    }
}
