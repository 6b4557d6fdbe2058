//! The list of collectors: a new source is one line here.

use std::sync::Arc;

use exposition::Family;
use kernel_files::Roots;
use perf_counters::sharing::CounterOwnership;
use rustix::thread::CapabilitySet;
use slurm_jobs::JobObserver;

use crate::collector::durable::Durable;
use crate::collector::gpu_energy::GpuEnergy;
use crate::collector::interval_reader::{IntervalReader, IntervalSource};
use crate::collector::memory_moved::MemoryMoved;
use crate::collector::options::Options;
use crate::collector::{Collector, Summary};

/// What a collector may need to be built.
#[derive(Debug, Clone)]
pub struct BuildContext {
    /// Where the kernel's file systems are.
    pub roots: Arc<Roots>,
    /// User names, looked up elsewhere.
    pub users: Arc<slurm_jobs::Users>,
    /// The occupancy of the node, for counts that are split over jobs.
    pub interval_reader: Arc<IntervalReader>,
    /// What jobs were charged with of the energy of GPUs.
    pub gpu_energy: Arc<GpuEnergy>,
    /// Who counts what is moved in memory.
    pub memory_moved: Arc<MemoryMoved>,
    /// The ownership of the hardware counters.
    pub ownership: CounterOwnership,
    /// Options of the collectors.
    pub options: Options,
}

impl BuildContext {
    /// For a node without jobs, with the default options.
    pub fn new(roots: Arc<Roots>, users: Arc<slurm_jobs::Users>) -> Self {
        Self {
            roots,
            users,
            interval_reader: Arc::default(),
            gpu_energy: Arc::default(),
            memory_moved: Arc::default(),
            ownership: CounterOwnership::default(),
            options: Options::default(),
        }
    }
}

/// The parts of a collector: for scrapes, for events of jobs, for readings between scrapes, and for restarts.
pub struct Built {
    /// What runs in a scrape.
    pub collector: Box<dyn Collector>,
    /// Observer of the ends of jobs.
    pub observer: Option<Arc<dyn JobObserver>>,
    /// Read by the interval reader when jobs come and go, for as long as it is held.
    pub source: Option<Arc<dyn IntervalSource>>,
    /// What survives a restart of the exporter.
    pub durable: Option<Arc<dyn Durable>>,
    /// What is made of the samples of the others.
    pub summary: Option<Arc<dyn Summary>>,
}

impl Built {
    /// A collector that needs no word of jobs' runs.
    pub fn plain(collector: impl Collector + 'static) -> Self {
        Self { collector: Box::new(collector), observer: None, source: None, durable: None, summary: None }
    }

    /// A collector whose accounts observe jobs and survive a restart.
    pub fn with_accounts<S: JobObserver + Durable + 'static>(
        collector: impl Collector + 'static,
        accounts: Arc<S>,
    ) -> Self {
        Self { observer: Some(accounts.clone()), durable: Some(accounts), ..Self::plain(collector) }
    }
}

/// A row of the registry. Flag, help, docs and health metrics come from it.
#[derive(Debug)]
pub struct Entry {
    /// Name: `--collector.<name>`, `collect[]`, the `collector` label, the docs' heading.
    pub name: &'static str,
    /// The measurement in one line, without a full stop.
    pub summary: &'static str,
    /// Whether it runs by default.
    pub default_on: bool,
    /// The cost or need beyond reading a few files, if any.
    pub cost: Option<&'static str>,
    /// Capabilities that it cannot do without for processes of others.
    pub capabilities: CapabilitySet,
    /// Its rows of the catalogue.
    pub families: fn() -> Vec<&'static Family>,
    /// Makes it.
    pub build: fn(&BuildContext) -> Built,
}

/// Every collector, in the order of the exposition.
pub static REGISTRY: &[Entry] = &[
    super::job::info::ENTRY,
    super::job::cpu::ENTRY,
    super::job::cpuset::ENTRY,
    super::job::memory::ENTRY,
    super::job::pressure::ENTRY,
    super::job::io::ENTRY,
    super::job::network::ENTRY,
    super::job::processes::ENTRY,
    super::job::process_io::ENTRY,
    super::job::process_totals::ENTRY,
    super::job::perf::ENTRY,
    super::devices::energy::ENTRY,
    super::devices::memory_traffic::ENTRY,
    super::devices::gpu::ENTRY,
    super::owners::ENTRY,
    super::node::counters::ENTRY,
    super::node::cpu::ENTRY,
    super::node::memory::ENTRY,
    super::node::load::ENTRY,
    super::node::network::ENTRY,
    super::node::pressure::ENTRY,
    super::node::cpufreq::ENTRY,
    super::node::hardware::ENTRY,
    super::node::validation::ENTRY,
    super::devices::infiniband::ENTRY,
    super::devices::slingshot::ENTRY,
    super::devices::disk::ENTRY,
    super::devices::nfs::ENTRY,
    super::devices::lustre::ENTRY,
    super::exporter::ENTRY,
];

/// The capabilities that these collectors need, and that are kept. Hints from the environment of other users'
/// processes need the same as reading these processes' I/O.
pub fn capabilities(enabled: &[&Entry], environment_hints: bool) -> CapabilitySet {
    let looks =
        if environment_hints { crate::collector::proc_pid::CAPABILITIES } else { CapabilitySet::empty() };
    let needed = enabled.iter().fold(looks, |needed, entry| needed | entry.capabilities);
    // What CAP_PERFMON allows was CAP_SYS_ADMIN's before Linux 5.8, which does not know it.
    let unknown = rustix::thread::capability_is_in_bounding_set(CapabilitySet::PERFMON).is_err();
    if needed.contains(CapabilitySet::PERFMON) && unknown {
        needed | CapabilitySet::SYS_ADMIN
    } else {
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels that the tests run on know it.
    #[test]
    fn counters_need_perfmon_and_no_more_where_the_kernel_knows_it() {
        let entry = REGISTRY.iter().find(|entry| entry.name == "memory_traffic").unwrap();
        assert_eq!(capabilities(&[entry], false), CapabilitySet::PERFMON);
        assert_eq!(capabilities(&[], false), CapabilitySet::empty());
    }
}
