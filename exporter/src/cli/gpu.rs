//! Flags of the collector `gpu`, and the orders of `jobledger-exporter gpu`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use gpu_binding::GresName;

use super::{flag, one, switch};
use crate::control::{GpuOrder, Order};

/// What a site sets of the GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFlags {
    /// How often GPUs are read.
    pub period: Duration,
    /// Whether each process on a GPU is exported.
    pub processes: bool,
    /// The NVML library, where it is not found by its name.
    pub nvml_library: Option<PathBuf>,
    /// Peaks of GPUs beyond those that are built in.
    pub peaks: Option<PathBuf>,
    /// Files of a prolog in the manner of jobstats.
    pub gpustat_dir: PathBuf,
    /// Files of a prolog in the manner of dcgm-exporter.
    pub job_mapping_dir: Option<PathBuf>,
    /// The GPUs in the order of SLURM's list.
    pub gres_order: Option<Vec<GresName>>,
    /// Whether a helper keeps the capabilities that asking for device programs needs.
    pub helper: bool,
}

fn parse_period(text: &str) -> Result<Duration, String> {
    let period = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    // Drivers update their values every 20 to 1000 ms, and each reading delays the jobs' own calls.
    let accepted = Duration::from_secs(1)..=Duration::from_secs(300);
    if accepted.contains(&period) { Ok(period) } else { Err("not from 1s to 5m".to_owned()) }
}

/// A GPU by its minor or its id.
fn parse_gres_name(text: &str) -> Result<GresName, String> {
    match text.parse() {
        Ok(minor) => Ok(GresName::Minor(minor)),
        Err(_) if text.contains('-') || text.contains(':') => Ok(GresName::Id(text.into())),
        Err(_) => Err("neither a minor nor an id".to_owned()),
    }
}

pub(super) fn flags() -> Vec<Arg> {
    let path = |name, help: &'static str| {
        flag(name).value_name("PATH").value_parser(value_parser!(PathBuf)).help(help)
    };
    vec![
        flag("collector.gpu.period")
            .value_name("DURATION")
            .default_value("10s")
            .value_parser(parse_period)
            .help("How often GPUs are read, beside when jobs come and go; 1s to 5m"),
        switch("collector.gpu.processes").help("Also publish the memory and the time of each process of a job on a GPU"),
        path("collector.gpu.nvml-library", "NVIDIA's management library, where it is not found as libnvidia-ml.so.1"),
        path("collector.gpu.peaks-file", "Peaks of GPUs for estimated operations, before those that are built in (docs/gpu.md)"),
        path("collector.gpu.gpustat-dir", "Where a prolog in the manner of jobstats leaves which job has which GPU")
            .default_value("/run/gpustat"),
        path("collector.gpu.job-mapping-dir", "Where a prolog in the manner of dcgm-exporter's --hpc-job-mapping-dir does"),
        flag("collector.gpu.gres-order")
            .value_name("MINOR|UUID")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .value_parser(parse_gres_name)
            .help("The GPUs in the order of SLURM's list (SLURM_JOB_GPUS counts by it), where that is not the order of their minors; for prolog files and hints alone"),
        switch("security.no-device-helper").help(
            "Start no helper process that keeps CAP_SYS_ADMIN and CAP_NET_ADMIN to ask the kernel for jobs' device programs (cgroup v2, GPUs)",
        ),
    ]
}

pub(super) fn parse(matches: &ArgMatches) -> Result<GpuFlags, clap::Error> {
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    Ok(GpuFlags {
        period: one(matches, "collector.gpu.period")?,
        processes: matches.get_flag("collector.gpu.processes"),
        nvml_library: path("collector.gpu.nvml-library"),
        peaks: path("collector.gpu.peaks-file"),
        gpustat_dir: one(matches, "collector.gpu.gpustat-dir")?,
        job_mapping_dir: path("collector.gpu.job-mapping-dir"),
        gres_order: matches
            .get_many::<GresName>("collector.gpu.gres-order")
            .map(|names| names.cloned().collect()),
        helper: !matches.get_flag("security.no-device-helper"),
    })
}

/// Where a running exporter takes orders.
pub(super) fn socket() -> Arg {
    flag("control.socket")
        .value_name("PATH")
        .default_value("/run/jobledger/control.sock")
        .value_parser(value_parser!(PathBuf))
}

/// `jobledger-exporter gpu release|resume`.
pub(super) fn command() -> Command {
    Command::new("gpu")
        .about("Have the running exporter release the GPU drivers, so that a GPU can be reset or repartitioned, or open them again")
        .arg(Arg::new("order").required(true).value_parser(PossibleValuesParser::new(["release", "resume"])))
        .arg(socket().help("Where the running exporter takes orders"))
}

pub(super) fn order(matches: &ArgMatches) -> Result<(PathBuf, Order), clap::Error> {
    let order = match one::<String>(matches, "order")?.as_str() {
        "release" => Order::Gpus(GpuOrder::Release),
        _ => Order::Gpus(GpuOrder::Resume),
    };
    Ok((one(matches, "control.socket")?, order))
}
