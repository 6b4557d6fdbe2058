//! What a site sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpu_binding::{DeviceAccessSlot, GresName};
use gpu_devices::{Backend, Vendor, amd, intel, nvml};
use kernel_files::Roots;

use super::ControlCell;

/// Makes a vendor's backend; asked for more than once, also only to see whether its driver is there.
pub type MakeBackend = Arc<dyn Fn(&Arc<Roots>) -> Box<dyn Backend> + Send + Sync>;

/// The backends of all vendors.
pub fn backends(nvml: nvml::Options) -> Vec<(Vendor, MakeBackend)> {
    // Where there is no driver it is looked for at every scrape.
    let nvml = Arc::new(nvml);
    vec![
        (
            Vendor::Nvidia,
            Arc::new(move |roots| Box::new(nvml::NvmlBackend::new(roots.clone(), nvml.clone()))),
        ),
        (Vendor::Amd, Arc::new(|roots| Box::new(amd::Amd::new(roots)))),
        (Vendor::Intel, Arc::new(|roots| Box::new(intel::Intel::new(roots)))),
    ]
}

/// Settings of the collector `gpu`.
#[derive(Clone)]
pub struct GpuOptions {
    /// How often GPUs are read.
    pub period: Duration,
    /// Whether each process on a GPU is exported.
    pub processes: bool,
    /// Princeton's files.
    pub gpustat_dir: Option<PathBuf>,
    /// dcgm-exporter's files.
    pub job_mapping_dir: Option<PathBuf>,
    /// Whether the environment of processes is used where no other source knows.
    pub environment_hints: bool,
    /// The GPUs in the order of SLURM's list, where an admin gives it.
    pub gres_order: Option<Vec<GresName>>,
    /// What reads them, by vendor.
    pub backends: Vec<(Vendor, MakeBackend)>,
    /// The source of a job's device constraint.
    pub access_source: DeviceAccessSlot,
    /// Where the collector leaves the control that releases drivers.
    pub control: ControlCell,
}

impl std::fmt::Debug for GpuOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuOptions").field("period", &self.period).finish_non_exhaustive()
    }
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(10),
            processes: false,
            gpustat_dir: None,
            job_mapping_dir: None,
            environment_hints: false,
            gres_order: None,
            backends: Vec::new(),
            access_source: DeviceAccessSlot::default(),
            control: ControlCell::default(),
        }
    }
}
