//! Flags of the collector `perf`, and `jobledger-exporter perf`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kernel_files::Roots;
use perf_counters::catalogue::Class;

use super::{flag, one};

/// What a site sets of the counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfFlags {
    /// The classes of events that are counted.
    pub classes: Vec<Class>,
    /// A site's own events.
    pub events_file: Option<PathBuf>,
    /// Descriptors that may be open at most.
    pub most_descriptors: Option<usize>,
}

pub(super) fn flags() -> Vec<Arg> {
    vec![
        flag("collector.perf.groups")
            .value_name("GROUP")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .default_value("flops,memory,cache,branches,software")
            .value_parser(PossibleValuesParser::new(Class::ALL.map(Class::as_str)))
            .help("What is counted of jobs. What does not fit a CPU's counters at once takes turns, which costs an interrupt every 4 ms on jobs' CPUs and accuracy: jobledger-exporter perf shows the plan"),
        flag("collector.perf.events-file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("The site's own events, before those that are built in (docs/counters.md)"),
        flag("collector.perf.most-descriptors")
            .value_name("N")
            .value_parser(value_parser!(usize))
            .help("Descriptors of counters open at most, one per event and CPU of a job; without it enough for four jobs on every CPU"),
    ]
}

pub(super) fn parse_flags(matches: &ArgMatches) -> PerfFlags {
    let named: Vec<&str> = matches
        .get_many::<String>("collector.perf.groups")
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    PerfFlags {
        classes: Class::ALL.into_iter().filter(|class| named.contains(&class.as_str())).collect(),
        events_file: matches.get_one::<PathBuf>("collector.perf.events-file").cloned(),
        most_descriptors: matches.get_one::<usize>("collector.perf.most-descriptors").copied(),
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
    /// As if the hardware threads of a core shared its counters or not.
    pub smt: Option<bool>,
    /// As if the kernel's watchdog had a counter or not.
    pub watchdog: Option<bool>,
    /// A site's own events.
    pub events_file: Option<PathBuf>,
    /// For tools.
    pub json: bool,
}

pub(super) fn command() -> Command {
    let path = |name, default, help| {
        flag(name).value_name("DIR").default_value(default).value_parser(value_parser!(PathBuf)).help(help)
    };
    let choice = |name, values: [&'static str; 2]| {
        Arg::new(name).long(name).value_name("STATE").value_parser(PossibleValuesParser::new(values))
    };
    Command::new("perf")
        .about("Print which hardware events are counted on this machine, or on one of another kind, in which groups, and what is not and why")
        .arg(
            Arg::new("microarchitecture")
                .long("microarchitecture")
                .value_name("NAME")
                .help("As on a machine of this kind, with SMT and the watchdog on unless said otherwise"),
        )
        .arg(Arg::new("list").long("list").action(ArgAction::SetTrue).help("The names of what is in the catalogue"))
        .arg(choice("smt", ["on", "off"]).help("As if the firmware had SMT on or off"))
        .arg(choice("nmi-watchdog", ["on", "off"]).help("As if kernel.nmi_watchdog were 1 or 0"))
        .arg(
            Arg::new("events-file")
                .long("events-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The site's own events (docs/counters.md)"),
        )
        .arg(choice("format", ["text", "json"]).value_name("FORMAT").default_value("text").help("For people or for tools"))
        .arg(path("path.procfs", "/proc", "Mount point of procfs"))
        .arg(path("path.sysfs", "/sys", "Mount point of sysfs"))
}

pub(super) fn parse(matches: &ArgMatches) -> Result<PerfRequest, clap::Error> {
    let state = |name| matches.get_one::<String>(name).map(|state| state == "on");
    let roots = Roots::new(
        one::<PathBuf>(matches, "path.procfs")?,
        one::<PathBuf>(matches, "path.sysfs")?,
        "/sys/fs/cgroup",
        "/dev",
    );
    Ok(PerfRequest {
        roots,
        microarchitecture: matches.get_one::<String>("microarchitecture").cloned(),
        list: matches.get_flag("list"),
        smt: state("smt"),
        watchdog: state("nmi-watchdog"),
        events_file: matches.get_one::<PathBuf>("events-file").cloned(),
        json: one::<String>(matches, "format")? == "json",
    })
}
