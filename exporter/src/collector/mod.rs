//! The interface of collectors, and the collectors. One file per source.

pub mod checkout;
pub mod devices;
pub mod durable;
mod error;
pub mod exporter;
pub mod gpu_energy;
pub mod interval_reader;
pub mod job;
pub mod memory_moved;
pub mod node;
pub mod node_counters;
pub mod options;
pub mod owners;
pub mod per_cgroup;
pub mod proc_pid;
mod profile;
mod registry;
mod summed;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

pub use error::CollectError;
use exposition::Section;
pub use kernel_files::{SourceError, Tally};
pub use profile::Selected;
pub use registry::{BuildContext, Built, Entry, REGISTRY, capabilities};
use slurm_jobs::NodeSnapshot;

/// A source of metrics. Runs on the collecting thread, in a scrape.
pub trait Collector: Send {
    /// Reads the present values and pushes them. What is pushed before an error is served.
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError>;
}

/// Makes samples of the samples of all collectors, at the end of each collection and before the limit leaves any out. What the
/// profile lacks is in none: a summary reads families of the smallest profile that has its own.
pub trait Summary: Send + Sync {
    /// Takes in the samples of the collectors that are done, before the accounts are saved. What is taken in twice counts
    /// once.
    fn take_in(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)]);

    /// The same at the end of the collection, and pushes what comes of it.
    fn summarize(&self, snapshot: &NodeSnapshot, sections: &[(usize, Arc<Section>)], out: &mut Section);
}
