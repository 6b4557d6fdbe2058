//! What a site sets.

use std::sync::Arc;

use perf_counters::Plan;
use perf_events::{Kernel, Open};

/// Settings of the collector `perf`.
#[derive(Clone)]
pub struct PerfOptions {
    /// What is counted; `None` without a plan.
    pub plan: Option<Arc<Plan>>,
    /// Opens the counters.
    pub open: Arc<dyn Open>,
    /// Descriptors that may be open at most; `None` for what this node needs when no CPU is counted for more than four jobs.
    pub most_descriptors: Option<usize>,
}

impl std::fmt::Debug for PerfOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { plan, most_descriptors, .. } = self;
        f.debug_struct("PerfOptions")
            .field("plan", plan)
            .field("most_descriptors", most_descriptors)
            .finish_non_exhaustive()
    }
}

impl Default for PerfOptions {
    fn default() -> Self {
        Self { plan: None, open: Arc::new(Kernel), most_descriptors: None }
    }
}
