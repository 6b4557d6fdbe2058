//! What is opened while the process has its privileges.

use std::path::Path;
use std::sync::Arc;

use energy_meters::BmcAccess;
use exporter_toolkit::WebConfigHandle;
use gpu_binding::{DeviceAccessSlot, helper};
use gpu_devices::nvml;
use kernel_files::Roots;
use perf_counters::planner::{Machine, draft, plan};
use perf_counters::resctrl;
use perf_counters::resctrl::helper::HelperSlot;
use privileges::{TakenOnce, User};

use super::{Failure, KeptState};
use crate::cli::Config;
use crate::collector::devices::energy::Meters;
use crate::collector::devices::gpu::{GpuOptions, backends};
use crate::collector::job::perf::PerfOptions;
use crate::collector::node::validation::ValidationOptions;

/// What was opened with the privileges that are dropped by now.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The meters of energy.
    pub meters: Meters,
    /// How they are looked for again and read.
    pub reading: energy_meters::Options,
    /// What reads GPUs, and what asks the kernel which jobs have them.
    pub gpus: GpuOptions,
    /// What the CPUs' counters count, and what opens them.
    pub perf: PerfOptions,
    /// What known work showed of this node.
    pub results: ValidationOptions,
    /// Where the accounts are kept for a restart.
    pub state: TakenOnce<KeptState>,
    /// What changes the groups of resctrl.
    pub resctrl: HelperSlot,
    /// Whether groups could be made, with or without that.
    pub groups: bool,
    /// Who has logged in, where there is a server.
    pub logins: Option<WebConfigHandle>,
}

impl Opened {
    /// Opens what this machine has of it; helpers become `user` where that is one.
    pub fn of_machine(config: &Config, user: Option<&User>) -> Result<Self, Failure> {
        let nvml = nvml_options(config)?;
        let perf = perf_options(config)?;
        let reading = reading(config, user)?;
        let meters = energy_meters(config, &reading);
        let access_source = device_access(config, user);
        Ok(Self {
            meters,
            reading,
            gpus: GpuOptions { access_source, backends: backends(nvml), ..GpuOptions::default() },
            perf,
            results: results(config),
            state: TakenOnce::new(KeptState::open(config)),
            resctrl: resctrl_helper(config, user),
            groups: is_root(user) || resctrl::helper::may_start(),
            logins: None,
        })
    }
}

fn is_on(config: &Config, collector: &str) -> bool {
    config.enabled.iter().any(|entry| entry.name == collector)
}

fn nvml_options(config: &Config) -> Result<nvml::Options, Failure> {
    let library = config.gpu.nvml_library.clone();
    let peaks = super::peaks(config.gpu.peaks.as_deref()).map_err(Failure::usage)?;
    Ok(nvml::Options { library, peaks, ..Default::default() })
}

/// How energy meters are read. The files that the Redfish service needs are read here: they may be root's. Who asks the BMC becomes
/// `user` where that is one.
fn reading(config: &Config, user: Option<&User>) -> Result<energy_meters::Options, Failure> {
    let named = config.redfish.as_ref().filter(|_| is_on(config, "energy"));
    let redfish = named.map(redfish::Service::open).transpose().map_err(Failure::usage)?;
    let bmc = BmcAccess::starting(Path::new("/proc/self/exe"), user.cloned());
    Ok(energy_meters::Options { redfish, bmc, ..Default::default() })
}

/// The energy meters below the roots, where the collector is on. They remain open when the privileges are dropped.
pub fn energy_meters(config: &Config, reading: &energy_meters::Options) -> Meters {
    if is_on(config, "energy") {
        Meters::new(energy_meters::discover(&Arc::new(config.roots.clone()), reading))
    } else {
        Meters::default()
    }
}

/// What the counters of the CPUs below the roots are to count, where the collector is on: the table of events is large.
pub fn perf_options(config: &Config) -> Result<PerfOptions, Failure> {
    if !is_on(config, "perf") {
        return Ok(PerfOptions::default());
    }
    let catalogue = super::catalogue(config.perf.events_file.as_deref()).map_err(Failure::usage)?;
    let machine = Machine::read(&Arc::new(config.roots.clone()));
    if let Some(interval) = config.perf.mux_interval {
        set_turns(&machine, &config.roots, u64::try_from(interval.as_millis()).unwrap_or(u64::MAX));
    }
    let plan = Arc::new(plan(&machine, &catalogue, config.perf.extent, &config.perf.classes));
    Ok(PerfOptions { plan: Some(plan), ..PerfOptions::default() })
}

/// Whether the exporter is root, and remains it.
fn is_root(user: Option<&User>) -> bool {
    rustix::process::geteuid().is_root() && user.is_none()
}

/// Results of known work that hold for this node, where there are some.
fn results(config: &Config) -> ValidationOptions {
    let file = config.results_file.as_deref().filter(|_| is_on(config, "node_validation"));
    ValidationOptions {
        results: file.and_then(|file| super::results::of_this_node(file, &config.roots)).map(Arc::new),
    }
}

/// The kernel keeps what is set here until it is booted anew.
fn set_turns(machine: &Machine, roots: &Roots, ms: u64) {
    for pmu in machine.pmus.iter().filter(|pmu| pmu.turn_ms != Some(ms)) {
        match pmu.set_turn(roots, ms) {
            Ok(()) => {
                tracing::info!(
                    pmu = pmu.name,
                    ms,
                    before = pmu.turn_ms,
                    "set the interval at which the kernel rotates groups of counters"
                )
            }
            Err(error) => {
                tracing::warn!(%error, pmu = pmu.name, "the interval at which the kernel rotates groups of counters is unchanged: only root may set it");
            }
        }
    }
}

/// What an administrator may want to change where groups of counters take turns; `None` where nothing does.
pub(super) fn advice_on_turns(config: &Config) -> Option<String> {
    if !is_on(config, "perf") {
        return None;
    }
    let catalogue = super::catalogue(config.perf.events_file.as_deref()).ok()?;
    let machine = Machine::read(&Arc::new(config.roots.clone()));
    let draft = draft(&machine, &catalogue, config.perf.extent, &config.perf.classes);
    super::plan::on_turns(&machine, &draft)
}

/// What changes the groups of resctrl, where the exporter makes any and is not root itself.
fn resctrl_helper(config: &Config, user: Option<&User>) -> HelperSlot {
    if !config.makes_groups() || is_root(user) || !resctrl::helper::may_start() {
        return HelperSlot::default();
    }
    match resctrl::helper::start(config.roots.sys("fs/resctrl")) {
        Ok(helper) => {
            tracing::info!(pid = helper.pid(), landlock = helper.landlock(), "started the resctrl helper");
            HelperSlot::new(helper)
        }
        Err(error) => {
            tracing::warn!(%error, "jobs cannot be put into groups of resctrl");
            HelperSlot::default()
        }
    }
}

/// What asks the kernel which GPUs jobs may open, where the configuration wants it.
fn device_access(config: &Config, user: Option<&User>) -> DeviceAccessSlot {
    if !config.gpu.helper || !is_on(config, "gpu") {
        return DeviceAccessSlot::default();
    }
    match helper::start_where_it_matters(&config.roots, user) {
        Ok(helper) => {
            tracing::info!(pid = helper.pid(), landlock = helper.landlock(), "started the device helper");
            DeviceAccessSlot::new(Ok(Box::new(helper)))
        }
        Err(why) => DeviceAccessSlot::new(Err(why)),
    }
}
