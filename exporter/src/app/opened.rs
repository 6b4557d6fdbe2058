//! What is opened while the process has its privileges, and dropping them.

use std::sync::Arc;

use gpu_binding::{DeviceAccessSlot, helper};
use gpu_devices::nvml;
use perf_counters::planner::{Machine, plan};
use privileges::TakenOnce;

use super::{Failure, KeptState};
use crate::cli::Config;
use crate::collector;
use crate::collector::devices::energy::Meters;
use crate::collector::devices::gpu::{GpuOptions, backends};
use crate::collector::job::perf::PerfOptions;

/// What was opened with the privileges that are dropped by now.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The meters of energy.
    pub meters: Meters,
    /// What reads GPUs, and what asks the kernel which jobs have them.
    pub gpus: GpuOptions,
    /// What the CPUs' counters count, and what opens them.
    pub perf: PerfOptions,
    /// Where the accounts are kept for a restart.
    pub state: TakenOnce<KeptState>,
}

impl Opened {
    /// Opens what this machine has of it.
    pub fn of_machine(config: &Config) -> Result<Self, Failure> {
        let nvml = nvml_options(config)?;
        let perf = perf_options(config)?;
        let meters = energy_meters(config);
        let access_source = device_access(config);
        Ok(Self {
            meters,
            gpus: GpuOptions { access_source, backends: backends(nvml), ..GpuOptions::default() },
            perf,
            state: TakenOnce::new(KeptState::open(config)),
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

/// The energy meters below the roots, where the collector is on. They remain open when the privileges are dropped.
pub fn energy_meters(config: &Config) -> Meters {
    if is_on(config, "energy") {
        Meters::new(energy_meters::discover(&Arc::new(config.roots.clone())))
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
    let plan = Arc::new(plan(&machine, &catalogue, &config.perf.classes));
    Ok(PerfOptions { plan: Some(plan), ..PerfOptions::default() })
}

/// What asks the kernel which GPUs jobs may open, where the configuration wants it.
fn device_access(config: &Config) -> DeviceAccessSlot {
    if !config.gpu.helper || !is_on(config, "gpu") {
        return DeviceAccessSlot::default();
    }
    match helper::start_where_it_matters(&config.roots) {
        Ok(helper) => {
            tracing::info!(pid = helper.pid(), landlock = helper.landlock, "started the device helper");
            DeviceAccessSlot::new(Ok(Box::new(helper)))
        }
        Err(why) => DeviceAccessSlot::new(Err(why)),
    }
}

/// Drops the capabilities that no enabled collector needs, unless the configuration keeps them.
pub fn drop_privileges(config: &Config) {
    if !config.drop_privileges {
        return;
    }
    let needed = collector::capabilities(&config.enabled, config.environment_hints);
    match privileges::drop_capabilities(needed) {
        Ok(dropped) if dropped.changed => tracing::info!(kept = ?dropped.kept, "gave up capabilities"),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "could not give up capabilities"),
    }
    // Landlock keeps a process from looking into others too, whatever its capabilities (security/landlock/task.c).
    let looks_into_others = needed.contains(rustix::thread::CapabilitySet::SYS_PTRACE);
    if config.landlock && looks_into_others {
        tracing::info!(
            "doing without Landlock, which would forbid what was turned on: looking into processes"
        );
    } else if config.landlock {
        let reads_gpus = is_on(config, "gpu");
        let devices = if reads_gpus { nvml::devices(&config.roots) } else { Vec::new() };
        let trees = if config.makes_groups() { vec![config.roots.sys("fs/resctrl")] } else { Vec::new() };
        match privileges::forbid_writing(&devices, &trees) {
            Ok(true) => {}
            Ok(false) => tracing::info!("this kernel has no Landlock: writing is not forbidden by it"),
            Err(error) => tracing::warn!(%error, "could not forbid writing"),
        }
    }
}
