//! NVIDIA's GPUs, through the library of their driver (NVML), which is loaded when it is first needed. An exporter on a node
//! without it never notices.
//!
//! A sample reads each GPU's fields in one call (`fields`), then what has no field (`whole`), its activity
//! (`activity`, Hopper and later) and its parts (`parts`). What hardly ever changes is read once a minute. Needs
//! `/dev/nvidiactl` and the GPUs' nodes; activity, and the parts' processes, may need CAP_SYS_ADMIN. Not in a static
//! exporter (musl), which can load no library.

#[cfg_attr(target_env = "musl", allow(dead_code, reason = "nothing is read of NVIDIA's GPUs there"))]
mod capabilities;

#[cfg(not(target_env = "musl"))]
mod activity;
#[cfg(not(target_env = "musl"))]
mod ask;
#[cfg(not(target_env = "musl"))]
mod busy;
#[cfg(not(target_env = "musl"))]
mod counts;
#[cfg(not(target_env = "musl"))]
mod error;
#[cfg(not(target_env = "musl"))]
mod fields;
#[cfg(not(target_env = "musl"))]
mod gpu;
#[cfg(not(target_env = "musl"))]
mod parts;
#[cfg(not(target_env = "musl"))]
mod processes;
#[cfg(not(target_env = "musl"))]
mod raw;
#[cfg(not(target_env = "musl"))]
mod session;
#[cfg(not(target_env = "musl"))]
mod state;
#[cfg(not(target_env = "musl"))]
mod whole;
#[cfg(not(target_env = "musl"))]
mod xids;

#[cfg(test)]
#[cfg(not(target_env = "musl"))]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use capabilities::{MigMinor, parse_capability, parse_character_major, parse_mig_minors};
use kernel_files::{Dir, Roots, SourceError};

use super::peaks::Peaks;
use super::{Backend, Sample, Vendor, Wanted, pci};

/// What an admin may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// The library instead of `libnvidia-ml.so.1` on the linker's search path.
    pub library: Option<PathBuf>,
    /// What estimates of operations are made of.
    pub peaks: Peaks,
    /// How often GPUs and parts that came, went or changed are looked for, and read what hardly ever changes.
    pub look_every: Duration,
    /// How long the driver is left alone after it could not be opened; doubled each time, up to a minute.
    pub first_pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            library: None,
            peaks: Peaks::built_in(),
            look_every: Duration::from_secs(60),
            // Less than a period, so that the next sample is the first attempt.
            first_pause: Duration::from_secs(5),
        }
    }
}

/// Device nodes that the driver's library opens for writing, though it only reads; `/dev` itself where there is a
/// card whose driver is not loaded yet.
pub fn devices(roots: &Roots) -> Vec<PathBuf> {
    let is_asked = |name: &str| {
        let minor = name.strip_prefix("nvidia").unwrap_or_default();
        ["nvidiactl", "nvidia-caps"].contains(&name) || minor.parse::<u32>().is_ok()
    };
    let listed = Dir::open(&roots.dev("")).and_then(|dir| dir.list()).unwrap_or_default();
    let nodes: Vec<_> =
        listed.iter().filter(|entry| is_asked(&entry.name)).map(|entry| roots.dev(&entry.name)).collect();
    if nodes.is_empty() && pci::has_card(roots, &[pci::NVIDIA]) { vec![roots.dev("")] } else { nodes }
}

/// Reads NVIDIA's GPUs.
#[derive(Debug)]
pub struct NvmlBackend {
    roots: Arc<Roots>,
    options: Arc<Options>,
    #[cfg(not(target_env = "musl"))]
    state: state::State,
}

impl NvmlBackend {
    /// The driver is not opened yet.
    pub fn new(roots: Arc<Roots>, options: impl Into<Arc<Options>>) -> Self {
        Self {
            roots,
            options: options.into(),
            #[cfg(not(target_env = "musl"))]
            state: state::State::default(),
        }
    }
}

impl Backend for NvmlBackend {
    fn vendor(&self) -> Vendor {
        Vendor::Nvidia
    }

    fn is_present(&self) -> bool {
        let has =
            |directory: PathBuf, name: &str| Dir::open(&directory).is_ok_and(|directory| directory.has(name));
        self.options.library.is_some()
            || has(self.roots.dev(""), "nvidiactl")
            || has(self.roots.proc(""), "driver/nvidia/version")
    }

    #[cfg(not(target_env = "musl"))]
    fn sample(&mut self, wanted: Wanted) -> Result<Sample, SourceError> {
        self.state.sample(&self.options, &self.roots, wanted)
    }

    #[cfg(target_env = "musl")]
    fn sample(&mut self, _wanted: Wanted) -> Result<Sample, SourceError> {
        let needs =
            "an exporter that is linked with glibc: a static one cannot load NVIDIA's library".to_owned();
        Err(SourceError::Unsupported { needs })
    }

    #[cfg(not(target_env = "musl"))]
    fn release(&mut self) {
        self.state.release();
    }

    #[cfg(target_env = "musl")]
    fn release(&mut self) {}
}
