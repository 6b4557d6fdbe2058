//! The interface of collectors, and the collectors. One file per source.

pub mod checkout;
pub mod devices;
pub mod durable;
mod error;
pub mod exporter;
pub mod interval_reader;
pub mod job;
pub mod node;
pub mod node_counters;
pub mod options;
pub mod per_cgroup;
pub mod proc_pid;
mod registry;
mod summed;
#[cfg(test)]
pub(crate) mod testing;

pub use error::CollectError;
use exposition::Section;
pub use kernel_files::{SourceError, Tally};
pub use registry::{BuildContext, Built, Entry, REGISTRY, capabilities};
use slurm_jobs::NodeSnapshot;

/// Microseconds as the base unit.
fn seconds(usec: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
    let usec = usec as f64;
    usec / 1e6
}

/// A source of metrics. Runs on the collecting thread, in a scrape.
pub trait Collector: Send {
    /// Reads the present values and pushes them. What is pushed before an error is served.
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError>;
}
