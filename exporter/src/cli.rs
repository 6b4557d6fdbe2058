//! Every flag, once: `--help`, the man page, the completions and docs/flags.md come from here, and this is the
//! only reader of the environment.

mod collectors;
mod counters;
mod energy;
mod gpu;
mod memory_traffic;
mod owners;
mod perf;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use exporter_toolkit::{ListenAddress, WebOptions};
use exposition::{Created, Profile};
pub use gpu::GpuFlags;
use kernel_files::Roots;
pub use perf::{PerfFlags, PerfRequest, ValidateRequest};
use slurm_jobs::Levels;
use slurm_jobs::table::JobLabel;

use self::collectors::Collectors;
use crate::collector::devices::energy::IdlePowerSetting;
use crate::collector::owners::OwnerOptions;
use crate::collector::{Entry, Selected};
use crate::control::Order;

/// What the process is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Serve.
    Serve,
    /// Print one exposition and exit.
    Once,
    /// Say what each collector can do here and exit.
    Check,
}

/// What `generate` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document {
    /// docs/flags.md
    Flags,
    /// docs/metrics.md
    Metrics,
    /// The man page.
    Man,
    /// Completions of a shell.
    Completion(clap_complete::Shell),
}

/// All settings of a run.
#[derive(Debug, Clone)]
pub struct Config {
    /// What to do.
    pub mode: Mode,
    /// Where the kernel's file systems are.
    pub roots: Roots,
    /// Collectors that run, in the order of the registry.
    pub enabled: Vec<&'static Entry>,
    /// Collectors that do not.
    pub disabled: Vec<&'static Entry>,
    /// How old a collection may be that a request is answered with.
    pub min_interval: Duration,
    /// How long an ended job is exported at least.
    pub retention: Duration,
    /// How long an ended job is exported at most.
    pub retention_max: Duration,
    /// How many readers are to have a job's end.
    pub readers: usize,
    /// How long a directory without a process is a job still.
    pub stale_after: Duration,
    /// Most files of jobs' cgroups that are held open between scrapes.
    pub kept_files: usize,
    /// Levels below the job.
    pub levels: Levels,
    /// Where the prolog writes.
    pub jobs_dir: PathBuf,
    /// Whether the environment of a job's processes may fill in names that nothing else knows.
    pub environment_hints: bool,
    /// Idle power that the site has set.
    pub idle_power: Vec<IdlePowerSetting>,
    /// The Redfish resource of the node, if the site names one.
    pub redfish: Option<redfish::Options>,
    /// Settings of the GPU collector.
    pub gpu: GpuFlags,
    /// Settings of the collector of hardware counters.
    pub perf: PerfFlags,
    /// LIKWID's lock, if it is watched.
    pub counters_lock: Option<PathBuf>,
    /// Results of known work, if they are read.
    pub results_file: Option<PathBuf>,
    /// Whether jobs' memory traffic is monitored by resctrl.
    pub resctrl: bool,
    /// Where orders are taken.
    pub control_socket: PathBuf,
    /// Labels on every series of a job.
    pub job_labels: Vec<JobLabel>,
    /// Which owners have counters.
    pub owners: OwnerOptions,
    /// Most samples of an exposition, 0 for no limit.
    pub max_series: usize,
    /// Which families are exported.
    pub selected: Selected,
    /// Whether OpenMetrics says since when each counter counts.
    pub created: Created,
    /// Where to listen.
    pub listen: Vec<ListenAddress>,
    /// Whether systemd hands over the sockets.
    pub systemd_socket: bool,
    /// TLS and users.
    pub web_config: Option<PathBuf>,
    /// The server's limits.
    pub web: WebOptions,
    /// Least severe message that is logged.
    pub log_level: tracing::Level,
    /// Whether messages are JSON.
    pub log_json: bool,
    /// The file that keeps the accounts for a restart.
    pub state_file: Option<PathBuf>,
    /// Whether systemd keeps descriptors for this service.
    pub stores_descriptors: bool,
    /// Whether unneeded privileges are dropped.
    pub drop_privileges: bool,
    /// The user that it becomes if it is started as root; unless set, the packages' or nobody.
    pub user: Option<String>,
    /// Whether Landlock is used.
    pub landlock: bool,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Where systemd waits for the word that it serves (sd_notify(3)).
    pub notify_socket: Option<PathBuf>,
}

impl Config {
    /// For how long a collection answers requests. A scraper that comes once in `min_interval`, a little early now and then,
    /// has a new one each time.
    pub fn fresh_for(&self) -> Duration {
        self.min_interval * 9 / 10
    }

    /// How long a collection lasts at most. It is over before a client with the site's scrape timeout must have its answer.
    pub fn longest_collection(&self) -> Duration {
        let timeout = self.web.default_scrape_timeout;
        (timeout - self.web.timeout_offset.min(timeout / 2)) * 9 / 10
    }

    /// Whether resctrl's groups are made: by the one exporter of the node that serves.
    pub fn makes_groups(&self) -> bool {
        self.wants_groups() && self.mode == Mode::Serve
    }

    /// Whether they were made if it served.
    pub fn wants_groups(&self) -> bool {
        self.resctrl && self.enabled.iter().any(|entry| entry.name == "memory_traffic")
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// A run.
    Run(Box<Config>),
    /// A generated document.
    Generate(Document),
    /// An order to the exporter that takes them there.
    Order(PathBuf, Order),
    /// The plan of hardware counters.
    Perf(PerfRequest),
    /// What known work shows of them.
    Validate(ValidateRequest),
}

const ABOUT: &str = "Prometheus exporter for SLURM compute nodes: what each job on this node uses";

const AFTER_HELP: &str = "Every flag has an environment equivalent: JOBLEDGER_ and its name in capitals with _ for . and -, such as \
JOBLEDGER_WEB_LISTEN_ADDRESS; a flag on the command line wins.\n\n\
Without privileges everything here works on cgroup v2 but the collectors whose help says what they need. \
--check reports what this machine lacks for the user who runs it, and how to change that; a service has its own user and capabilities.";

fn flag(name: &'static str) -> Arg {
    let variable = format!("JOBLEDGER_{}", name.replace(['.', '-'], "_").to_uppercase());
    Arg::new(name).long(name).env(variable).hide_env(true)
}

fn switch(name: &'static str) -> Arg {
    flag(name).action(ArgAction::SetTrue).value_parser(BoolishValueParser::new())
}

fn duration(name: &'static str, default: &'static str) -> Arg {
    flag(name).value_name("DURATION").default_value(default).value_parser(humantime::parse_duration)
}

fn node_flags() -> Vec<Arg> {
    let path = |name, default, help| {
        flag(name).value_name("DIR").default_value(default).value_parser(value_parser!(PathBuf)).help(help)
    };
    vec![
        path("path.procfs", "/proc", "Mount point of procfs"),
        path("path.sysfs", "/sys", "Mount point of sysfs"),
        path("path.cgroupfs", "/sys/fs/cgroup", "Mount point of the cgroup file systems, v1, v2 or both"),
        path("path.dev", "/dev", "Directory of device nodes"),
        duration("scrape.min-interval", "1s")
            .help("Least time between two collections, but for a tenth; scrapes within it are answered with the same one. 0s: each scrape has what is collected after it came"),
        duration("scrape.timeout", "10s")
            .help("Scrape timeout of the site's Prometheus: a collection lasts a little less at most, whatever a client sends; also for clients that send none"),
        duration("jobs.retention", "2m").help("How long an ended job is still exported, at least until its readers have its end"),
        duration("jobs.retention-max", "1h")
            .help("How long an ended job is exported at most, while its readers are away or none is known"),
        flag("jobs.readers")
            .value_name("N")
            .default_value("1")
            .value_parser(clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))
            .help("How many different readers are to have the end of a job before it is dropped; a pair of Prometheus servers is 2. A reader is a client that logs in or is in --web.scrapers; without either, one on another host that sends Prometheus' header"),
        duration("jobs.stale-after", "60s")
            .help("How long a job directory without any process counts as a job and not as left behind"),
        flag("jobs.descriptors")
            .value_name("N")
            .default_value("4096")
            .value_parser(value_parser!(usize))
            .help("Most files of jobs' cgroups that are held open from one scrape to the next, at some 4 KiB of the kernel's memory each; a scrape costs half as much where all fit. 0 opens them for each reading"),
        switch("jobs.steps").help("Also publish jobledger_step_*: about as many series again per step as per job. Hardware counters of steps are there where counters are divided in BPF (--collector.perf.method)"),
        switch("jobs.tasks").requires("jobs.steps").help("Also publish jobledger_task_*: the same again per task"),
        path("jobs.metadata-dir", "/run/jobledger/jobs", "Where the prolog leaves what it knows of a job"),
        switch("jobs.environment-hints").help(
            "Take a job's account, partition, QOS, name and array ids from the environment of its processes where nothing else knows them; users can forge it, so never for identity. Needs CAP_SYS_PTRACE",
        ),
        flag("metric.job-labels")
            .value_name("LABEL")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(PossibleValuesParser::new(["user", "account", "partition", "qos"]))
            .help("Put these on every series of a job, for sites that do not want to join with jobledger_job_info, or whose proxy selects by user; the rules work with and without"),
        flag("metric.profile")
            .value_name("PROFILE")
            .default_value(Profile::Standard.as_str())
            .value_parser(PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)))
            .help("How much is exported: lean (accounting and reports of jobs), standard (what the rules, alerts and dashboards read), full (everything); docs/metrics.md lists them. By default a collector without a family in it does not run; one that is switched on by name has all of its families"),
        switch("metric.created").help(
            "Say in OpenMetrics since when each counter counts, in a line _created of its own. Protobuf always does. A Prometheus that does not look for them (--enable-feature=created-timestamp-zero-ingestion) stores each as a series",
        ),
        flag("metric.max-series")
            .value_name("N")
            .default_value("50000")
            .value_parser(value_parser!(usize))
            .help("Most samples of an exposition; beyond that tasks go first, then steps, then the last jobs, and it is counted. 0 for no limit"),
    ]
}

fn process_flags() -> Vec<Arg> {
    vec![
        switch("once").conflicts_with("check").help("Print one exposition and exit"),
        switch("check")
            .help("Say of each collector whether it works here for who asks, why not, and what would change it, and exit"),
        flag("log.level")
            .value_name("LEVEL")
            .default_value("info")
            .value_parser(PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"]))
            .help("Least severe message that is logged"),
        flag("log.format")
            .value_name("FORMAT")
            .default_value("text")
            .value_parser(PossibleValuesParser::new(["text", "json"]))
            .help("Format of the log on standard error"),
        gpu::socket().help("Where orders of `jobledger-exporter gpu` and `counters` are taken, from root and the exporter's own user, if its directory is there"),
        flag("state.file").value_name("FILE").value_parser(value_parser!(PathBuf)).help(
            "Keep the accounts of jobs for a restart in this file of a temporary file system, unless systemd keeps them (FileDescriptorStoreMax=); in no other place",
        ),
        // systemd sets it where the service has a descriptor store (systemd.exec(5), since 254).
        Arg::new("state.descriptors").long("state.descriptors").env("FDSTORE").hide(true).hide_env(true),
        switch("security.no-drop").help("Keep the privileges that it was started with"),
        flag("security.user").value_name("USER").help(
            "Started as root, become this user: NAME, UID or UID:GID of /etc/passwd; without it jobledger, else nobody. Files that are read later must be readable for it; root remains root",
        ),
        switch("security.no-landlock").help("Do without Landlock, which lets the process write nowhere"),
        switch("security.no-seccomp").help("Do without the filter of system calls"),
    ]
}

/// The flags of a run, for this binary and others that run the same collectors.
pub fn run_command(name: &'static str) -> Command {
    let heading =
        |flags: Vec<Arg>, heading: &'static str| flags.into_iter().map(move |f| f.help_heading(heading));
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .args(heading(process_flags(), "Process"))
        .args(heading(web::flags(), "Web"))
        .args(heading(node_flags(), "Node and jobs"))
        .args(heading(collectors::flags(), "Collectors (--no-collector.<name> switches one off)"))
}

/// The command line's grammar.
pub fn command() -> Command {
    let documents = ["flags", "metrics", "man", "bash", "zsh", "fish", "elvish"];
    run_command("jobledger-exporter")
        .subcommand(gpu::command())
        .subcommand(perf::command())
        .subcommand(counters::command())
        .subcommand(
            Command::new("generate")
                .about("Write a document that is made from the program itself to standard output")
                .arg(Arg::new("document").required(true).value_parser(PossibleValuesParser::new(documents))),
        )
}

fn one<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Result<T, clap::Error> {
    let missing = || {
        clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, format!("--{name} has no value\n"))
    };
    matches.get_one::<T>(name).cloned().ok_or_else(missing)
}

/// A path that is set to something.
fn set_path(matches: &ArgMatches, name: &str) -> Result<Option<PathBuf>, clap::Error> {
    Ok(Some(one::<PathBuf>(matches, name)?).filter(|path| !path.as_os_str().is_empty()))
}

fn document(name: &str) -> Document {
    match name {
        "flags" => Document::Flags,
        "metrics" => Document::Metrics,
        "man" => Document::Man,
        "zsh" => Document::Completion(clap_complete::Shell::Zsh),
        "fish" => Document::Completion(clap_complete::Shell::Fish),
        "elvish" => Document::Completion(clap_complete::Shell::Elvish),
        _ => Document::Completion(clap_complete::Shell::Bash),
    }
}

pub(super) fn job_label(name: &str) -> JobLabel {
    match name {
        "account" => JobLabel::Account,
        "partition" => JobLabel::Partition,
        "qos" => JobLabel::Qos,
        _ => JobLabel::User,
    }
}

fn profile(name: &str) -> Profile {
    Profile::ALL.into_iter().find(|profile| profile.as_str() == name).unwrap_or(Profile::Standard)
}

/// Parses a command line (the program's name first) and the environment.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Invocation, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    if let Some(("generate", generate)) = matches.subcommand() {
        return Ok(Invocation::Generate(document(&one::<String>(generate, "document")?)));
    }
    if let Some(("gpu", order)) = matches.subcommand() {
        let (socket, order) = gpu::order(order)?;
        return Ok(Invocation::Order(socket, order));
    }
    if let Some(("perf", request)) = matches.subcommand() {
        return perf::parse(request);
    }
    if let Some(("counters", order)) = matches.subcommand() {
        let (socket, order) = counters::order(order)?;
        return Ok(Invocation::Order(socket, order));
    }
    Ok(Invocation::Run(Box::new(config(&matches)?)))
}

/// The settings of a run, from the flags of [`run_command`].
pub fn config(matches: &ArgMatches) -> Result<Config, clap::Error> {
    let on = |name: &str| matches.get_flag(name);
    let owners = owners::parse(matches)?;
    let profile = profile(&one::<String>(matches, "metric.profile")?);
    let Collectors { enabled, disabled, selected } = collectors::parse(matches, owners.is_some(), profile);
    let path = |name| one::<PathBuf>(matches, name);
    let mode = match (on("once"), on("check")) {
        (true, _) => Mode::Once,
        (_, true) => Mode::Check,
        _ => Mode::Serve,
    };
    Ok(Config {
        mode,
        roots: Roots::new(
            path("path.procfs")?,
            path("path.sysfs")?,
            path("path.cgroupfs")?,
            path("path.dev")?,
        ),
        enabled,
        disabled,
        min_interval: one(matches, "scrape.min-interval")?,
        retention: one(matches, "jobs.retention")?,
        kept_files: one(matches, "jobs.descriptors")?,
        retention_max: one(matches, "jobs.retention-max")?,
        readers: one(matches, "jobs.readers")?,
        stale_after: one(matches, "jobs.stale-after")?,
        levels: Levels { steps: on("jobs.steps"), tasks: on("jobs.tasks") },
        jobs_dir: path("jobs.metadata-dir")?,
        environment_hints: on("jobs.environment-hints"),
        idle_power: energy::idle_power(matches),
        redfish: energy::redfish(matches)?,
        gpu: gpu::parse(matches)?,
        perf: perf::parse_flags(matches),
        counters_lock: counters::parse(matches)?,
        results_file: set_path(matches, "counters.results-file")?,
        resctrl: memory_traffic::parse(matches),
        control_socket: path("control.socket")?,
        job_labels: matches
            .get_many::<String>("metric.job-labels")
            .into_iter()
            .flatten()
            .map(|name| job_label(name))
            .collect(),
        owners: owners.unwrap_or_default(),
        max_series: one(matches, "metric.max-series")?,
        selected,
        created: if on("metric.created") { Created::Written } else { Created::LeftOut },
        listen: matches
            .get_many::<ListenAddress>("web.listen-address")
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        systemd_socket: on("web.systemd-socket"),
        web_config: matches.get_one::<PathBuf>("web.config.file").cloned(),
        web: web::parse(matches)?,
        log_level: one::<String>(matches, "log.level")?.parse().unwrap_or(tracing::Level::INFO),
        log_json: one::<String>(matches, "log.format")? == "json",
        state_file: matches.get_one::<PathBuf>("state.file").cloned(),
        stores_descriptors: matches
            .get_one::<String>("state.descriptors")
            .and_then(|most| most.parse::<u32>().ok())
            .is_some_and(|most| most > 0),
        drop_privileges: !on("security.no-drop"),
        user: matches.get_one::<String>("security.user").cloned(),
        landlock: !on("security.no-landlock"),
        seccomp: !on("security.no-seccomp"),
        notify_socket: notify_socket(),
    })
}

/// systemd's own variable, which is no flag.
#[expect(clippy::disallowed_methods, reason = "this file is the only reader of the environment")]
fn notify_socket() -> Option<PathBuf> {
    std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from)
}

#[cfg(test)]
mod tests;
