//! Hardware and software counters of jobs, by perf_event_open(2) on their cgroups.
//!
//! Opened when a job starts, on the CPUs of its cpuset alone. Read at every scrape, and a last time when the job is
//! gone: the kernel keeps the counts of a removed cgroup while a descriptor is open. `jobledger-exporter perf` and
//! docs/counters.md list what is counted on which CPU. Needs CAP_PERFMON (Linux 5.8) or `kernel.perf_event_paranoid`
//! below 1.

mod accounts;
mod divided;
mod exclusive;
mod metrics;
mod options;
mod worker;

use std::sync::Arc;

use exposition::Section;
use perf_counters::sharing::CounterUser;
use rustix::thread::CapabilitySet;
use slurm_jobs::NodeSnapshot;

pub use self::options::{Method, PerfOptions};
use self::worker::Shared;
use crate::collector::{Built, Collector, Entry, SourceError};

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "perf",
    summary: "FLOPs, cycles, instructions, branches, cache traffic and context switches of jobs, from the CPUs' counters",
    default_on: false,
    cost: Some(
        "1 to 2 us more per switch between cgroups on jobs' CPUs, an interrupt of each of them per group and scrape; needs CAP_PERFMON",
    ),
    capabilities: CapabilitySet::PERFMON,
    families: metrics::families,
    build: |context| {
        let shared = Shared::new(context);
        let counter_user: Arc<dyn CounterUser> = shared.clone();
        context.ownership.take_part(&counter_user);
        Built::with_accounts(Perf(shared.clone()), shared)
    },
};

struct Perf(Arc<Shared>);

impl Collector for Perf {
    fn collect(&mut self, snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let mut accounts = self.0.caught_up();
        let outcome = accounts.scrape(snapshot);
        metrics::emit(&accounts, snapshot, out);
        outcome
    }
}

#[cfg(test)]
mod tests;
