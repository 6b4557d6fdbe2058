//! Flags of the collector `perf`, and `jobledger-exporter perf`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cpu_topology::CpuSet;
use kernel_files::Roots;
use perf_counters::catalogue::{Class, Extent};

use super::{Invocation, counters, flag, one};
use crate::collector::job::perf::Method;

/// What a site sets of the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfFlags {
    /// How much is counted.
    pub extent: Extent,
    /// The classes of events that are counted.
    pub classes: Vec<Class>,
    /// A site's own events.
    pub events_file: Option<PathBuf>,
    /// How cgroups are counted.
    pub method: Method,
    /// Descriptors that may be open at most.
    pub most_descriptors: Option<usize>,
    /// The length of turns that the kernel is to take.
    pub mux_interval: Option<Duration>,
}

/// The kernel takes whole milliseconds. A group that waits for seconds is taken for one that somebody else keeps from counting.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let whole = interval.subsec_nanos() % 1_000_000 == 0;
    let accepted = Duration::from_millis(1)..=Duration::from_millis(500);
    if whole && accepted.contains(&interval) { Ok(interval) } else { Err("not from 1ms to 500ms".to_owned()) }
}

fn plan(arg: Arg) -> Arg {
    arg.value_name("PLAN")
        .default_value(Extent::default().as_str())
        .value_parser(PossibleValuesParser::new(Extent::ALL.map(Extent::as_str)))
}

fn extent(matches: &ArgMatches, name: &str) -> Extent {
    matches.get_one::<String>(name).and_then(|word| Extent::parse(word)).unwrap_or_default()
}

pub(super) fn flags() -> Vec<Arg> {
    vec![
        plan(flag("collector.perf.plan"))
            .help("essential: cycles, instructions, FLOPs, loads from memory and pipeline slots, as far as they fit the CPU's counters at once; full: all groups, in turns. jobledger-exporter perf shows both"),
        flag("collector.perf.groups")
            .value_name("GROUP")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .default_value("flops,memory,topdown,cache,branches,software")
            .value_parser(PossibleValuesParser::new(Class::ALL.map(Class::as_str)))
            .help("What is counted of jobs. cache and branches are in the full plan alone, where what does not fit a CPU's counters at once takes turns: that costs an interrupt every 4 ms on jobs' CPUs, and accuracy"),
        flag("collector.perf.events-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("The site's own events, before those that are built in (docs/counters.md)"),
        flag("collector.perf.method")
            .value_name("METHOD")
            .default_value(Method::default().as_str())
            .value_parser(PossibleValuesParser::new(Method::ALL.map(Method::as_str)))
            .help("How jobs are counted: cgroup by counters of each job's cgroup, which the kernel switches; bpf by counters of CPUs, which a BPF program divides by cgroup (Linux 5.11 with BTF; CAP_BPF); auto by bpf where it can"),
        flag("collector.perf.most-descriptors")
            .value_name("N")
            .value_parser(value_parser!(usize))
            .help("Descriptors of counters open at most, one per event and CPU of a job; without it enough for four jobs on every CPU"),
        flag("collector.perf.mux-interval")
            .value_name("DURATION")
            .value_parser(parse_interval)
            .help("How long turns are that groups of counters take (perf_event_mux_interval_ms of the CPUs' PMUs, for every user of perf on the node), set when the exporter starts as root; without it as the kernel has it, 4 ms by default"),
    ]
}

pub(super) fn parse_flags(matches: &ArgMatches) -> PerfFlags {
    let named: Vec<&str> = matches
        .get_many::<String>("collector.perf.groups")
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let method = matches.get_one::<String>("collector.perf.method");
    let method = Method::ALL.into_iter().find(|known| method.is_some_and(|name| name == known.as_str()));
    PerfFlags {
        extent: extent(matches, "collector.perf.plan"),
        method: method.unwrap_or_default(),
        classes: Class::ALL.into_iter().filter(|class| named.contains(&class.as_str())).collect(),
        events_file: matches.get_one::<PathBuf>("collector.perf.events-file").cloned(),
        most_descriptors: matches.get_one::<usize>("collector.perf.most-descriptors").copied(),
        mux_interval: matches.get_one::<Duration>("collector.perf.mux-interval").copied(),
    }
}

/// The machine whose plan is requested, and the form of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfRequest {
    /// Where the kernel's file systems are.
    pub roots: Roots,
    /// Not of this machine, but of this kind.
    pub microarchitecture: Option<String>,
    /// Only the names of those that are known.
    pub list: bool,
    /// Which plan.
    pub extent: Extent,
    /// As if the hardware threads of a core shared its counters or not.
    pub smt: Option<bool>,
    /// As if the kernel's watchdog had a counter or not.
    pub watchdog: Option<bool>,
    /// A site's own events.
    pub events_file: Option<PathBuf>,
    /// For tools.
    pub json: bool,
}

/// What known work is to show of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidateRequest {
    /// Where the kernel's file systems are.
    pub roots: Roots,
    /// Whether counts are compared with known work.
    pub compares: bool,
    /// The CPUs that loops run on, if a site names some.
    pub cpus: Option<CpuSet>,
    /// How long each loop runs.
    pub time: Duration,
    /// Where the results are left for the exporter, if anywhere.
    pub output: Option<PathBuf>,
    /// Whether it runs beside other work.
    pub although_busy: bool,
    /// LIKWID's lock, if it is respected.
    pub lock: Option<PathBuf>,
    /// A site's own events.
    pub events_file: Option<PathBuf>,
    /// For tools.
    pub json: bool,
}

/// Where results are left, and where the exporter looks for them.
pub(super) const RESULTS: &str = "/var/lib/jobledger/counters.json";

const AFTER_HELP: &str = "With --validate or --peaks the exit status is 0 where all that was compared is within its limits, 1 where something is off or never \
ran or the command failed, 64 for a wrong command line, 69 where there is no PMU, and 75 where the CPUs are busy or the counters are another user's.";

fn parse_cpus(list: &str) -> Result<CpuSet, String> {
    let cpus = CpuSet::parse(list.as_bytes()).map_err(|error| error.to_string())?;
    if cpus.is_empty() { Err("no CPU".to_owned()) } else { Ok(cpus) }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let accepted = Duration::from_millis(1)..=Duration::from_secs(60);
    if accepted.contains(&time) { Ok(time) } else { Err("not from 1ms to 1m".to_owned()) }
}

/// An absolute path of a file, or nothing.
fn parse_results(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() || path.is_absolute() && path.file_name().is_some() {
        Ok(path)
    } else {
        Err("not the absolute path of a file".to_owned())
    }
}

/// The file that the exporter reads at its start.
pub(super) fn results_file() -> Arg {
    flag("counters.results-file")
        .value_name("FILE")
        .default_value(RESULTS)
        .value_parser(parse_results)
        .help("Results of `jobledger-exporter perf --validate` that are exported; root's file alone, and only of this processor, microcode and kernel. Empty: none are read")
}

/// Flags of known work.
fn of_known_work() -> Vec<Arg> {
    let plain = |name: &'static str| Arg::new(name).long(name);
    let with_work = |arg: Arg| arg.requires("work");
    vec![
        plain("validate")
            .action(ArgAction::SetTrue)
            .group("work")
            .help("Run loops of known work, count them as a job is counted, and compare; then as --peaks. Needs root"),
        plain("peaks").action(ArgAction::SetTrue).group("work").conflicts_with("validate").help(
            "Measure what all CPUs together do at most: bytes from and to memory, floating-point operations. Needs no PMU",
        ),
        with_work(plain("cpus").value_name("LIST").value_parser(parse_cpus).help(
            "Where loops run, as the kernel writes lists; unless set, the last CPU of each kind of core, and for peaks all CPUs",
        )),
        with_work(plain("time").value_name("DURATION").value_parser(parse_time).help(
            "How long each loop runs, 1ms to 1m; unless set 250ms. Counters that take turns need many turns of 4ms",
        )),
        with_work(plain("output").value_name("FILE").value_parser(parse_results).help(format!(
            "Where the results are left, for root, which the exporter reads at its start; unless set {RESULTS}. Empty: nowhere"
        ))),
        with_work(plain("although-busy").action(ArgAction::SetTrue).help("Run also where other work is on these CPUs")),
    ]
}

pub(super) fn command() -> Command {
    let path = |name, default, help| {
        flag(name).value_name("DIR").default_value(default).value_parser(value_parser!(PathBuf)).help(help)
    };
    let choice = |name, values: [&'static str; 2]| {
        Arg::new(name).long(name).value_name("STATE").value_parser(PossibleValuesParser::new(values))
    };
    Command::new("perf")
        .about("Print which hardware events are counted on this machine, or on one of another kind, in which groups, and what is not and why; with --validate, whether they count right")
        .arg(
            Arg::new("microarchitecture")
                .long("microarchitecture")
                .value_name("NAME")
                .help("As on a machine of this kind, with SMT and the watchdog on unless said otherwise"),
        )
        .arg(Arg::new("list").long("list").action(ArgAction::SetTrue).help("The names of what is in the catalogue"))
        .arg(plan(Arg::new("plan").long("plan")).help("Which plan, as --collector.perf.plan names them"))
        .arg(choice("smt", ["on", "off"]).help("As if the firmware had SMT on or off"))
        .arg(choice("nmi-watchdog", ["on", "off"]).help("As if kernel.nmi_watchdog were 1 or 0"))
        .arg(
            Arg::new("events-file")
                .long("events-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The site's own events (docs/counters.md)"),
        )
        .args(of_known_work())
        .arg(counters::lock_file())
        .after_help(AFTER_HELP)
        .group(clap::ArgGroup::new("assumed").args(["microarchitecture", "list", "smt", "nmi-watchdog"]).multiple(true).conflicts_with("work"))
        .arg(choice("format", ["text", "json"]).value_name("FORMAT").default_value("text").help("For people or for tools"))
        .arg(path("path.procfs", "/proc", "Mount point of procfs"))
        .arg(path("path.sysfs", "/sys", "Mount point of sysfs"))
        .arg(path("path.cgroupfs", "/sys/fs/cgroup", "Mount point of the cgroup file systems"))
}

pub(super) fn parse(matches: &ArgMatches) -> Result<Invocation, clap::Error> {
    let state = |name| matches.get_one::<String>(name).map(|state| state == "on");
    let roots = Roots::new(
        one::<PathBuf>(matches, "path.procfs")?,
        one::<PathBuf>(matches, "path.sysfs")?,
        one::<PathBuf>(matches, "path.cgroupfs")?,
        "/dev",
    );
    let (compares, peaks) = (matches.get_flag("validate"), matches.get_flag("peaks"));
    let json = one::<String>(matches, "format")? == "json";
    let events_file = matches.get_one::<PathBuf>("events-file").cloned();
    if compares || peaks {
        let output = matches.get_one::<PathBuf>("output").cloned().unwrap_or_else(|| PathBuf::from(RESULTS));
        return Ok(Invocation::Validate(ValidateRequest {
            roots,
            compares,
            cpus: matches.get_one::<CpuSet>("cpus").cloned(),
            time: matches.get_one::<Duration>("time").copied().unwrap_or(Duration::from_millis(250)),
            output: Some(output).filter(|output| !output.as_os_str().is_empty()),
            although_busy: matches.get_flag("although-busy"),
            lock: counters::parse(matches)?,
            events_file,
            json,
        }));
    }
    Ok(Invocation::Perf(PerfRequest {
        roots,
        microarchitecture: matches.get_one::<String>("microarchitecture").cloned(),
        list: matches.get_flag("list"),
        extent: extent(matches, "plan"),
        smt: state("smt"),
        watchdog: state("nmi-watchdog"),
        events_file,
        json,
    }))
}
