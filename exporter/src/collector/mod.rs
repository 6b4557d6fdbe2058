//! What a collector is, which ones there are, and what they are shown. One file per source.

pub mod attendance;
pub mod counters;
pub mod cpu;
pub mod cpuset;
pub mod energy;
pub mod exporter;
pub mod gpu;
pub mod infiniband;
pub mod io;
pub mod job;
pub mod lustre;
pub mod memory;
pub mod memory_traffic;
pub mod network;
pub mod nfs;
pub mod node_counters;
pub mod node_cpu;
pub mod node_cpufreq;
pub mod node_disk;
pub mod node_hardware;
pub mod node_load;
pub mod node_memory;
pub mod node_network;
pub mod node_pressure;
pub mod per_cgroup;
pub mod perf;
pub mod pressure;
pub mod proc_pid;
pub mod processes;
pub mod procio;
pub mod procsum;
mod registry;
pub mod slingshot;
pub mod slot;
mod summed;
#[cfg(test)]
pub(crate) mod testing;

use exposition::Section;
pub use kernel_files::{CollectError, Tally};
pub use registry::{BuildContext, Built, Entry, Meters, REGISTRY, capabilities};
use slurm_jobs::Scene;

/// Microseconds as the base unit.
fn seconds(usec: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
    let usec = usec as f64;
    usec / 1e6
}

/// A source of metrics. Runs on the collecting thread, in a scrape.
pub trait Collector: Send {
    /// Reads what there is now and pushes it. What was pushed before an error is served.
    fn collect(&mut self, scene: &Scene, out: &mut Section) -> Result<(), CollectError>;
}
