//! What SLURM can give to a job.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The vendor of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Vendor {
    /// NVIDIA, read through NVML.
    Nvidia,
    /// AMD, read through the amdgpu driver's files.
    Amd,
    /// Intel, read through the i915 and xe drivers' files.
    Intel,
}

impl Vendor {
    /// The `vendor` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
        }
    }
}

/// A character device as the device cgroup knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNode {
    /// The driver's number.
    pub major: u32,
    /// Which device of the driver.
    pub minor: u32,
}

/// A whole GPU, or a part of one that is divided. Its names are kept apart: SLURM's GRES index, NVML's index, the minor
/// and the CUDA ordinal are four different numbers (gres_gpu.c sorts by file and link, NVML by PCI address).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// The vendor.
    pub vendor: Vendor,
    /// Unique and lasting, the key: NVIDIA's `GPU-…` or `MIG-…`, AMD's and Intel's unique id, else the PCI address.
    pub uuid: Arc<str>,
    /// Position among the vendor's GPUs as its tools count them; a part has its GPU's. For display only.
    pub index: Option<u32>,
    /// Minor of `/dev/nvidia<minor>` or `/dev/dri/renderD<minor>`; a part has its GPU's.
    pub minor: Option<u32>,
    /// PCI address, `0000:65:00.0`; a part has its GPU's.
    pub pci: Option<Arc<str>>,
    /// Product name.
    pub model: Arc<str>,
    /// A process that may open all of these has the unit. Empty where the device cgroup does not control it.
    pub nodes: Vec<DeviceNode>,
    /// Which part of which GPU it is.
    pub part: Option<Part>,
    /// Whether it is divided: then its parts are given to jobs, and no job has the whole.
    pub divided: bool,
}

/// A part of a GPU (an NVIDIA MIG device: a compute instance of a GPU instance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// `uuid` of the GPU.
    pub parent: Arc<str>,
    /// Number of the GPU instance.
    pub gpu_instance: u32,
    /// Number of the compute instance in it.
    pub compute_instance: u32,
    /// Profile, `1g.10gb`.
    pub profile: Arc<str>,
    /// Its share of the GPU's compute slices, as (slices, slices of the whole GPU), for measurements of the whole
    /// GPU.
    pub slices: Option<(u32, u32)>,
}
