//! What a site sets.

use std::sync::Arc;

use perf_counters::Plan;
use perf_events::{Kernel, Open};
use slurm_jobs::Levels;

/// How cgroups are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// In BPF where this kernel can and lets this process, else by events of cgroups.
    #[default]
    Auto,
    /// By events of each cgroup, which the kernel switches.
    Cgroup,
    /// By events of CPUs, which a BPF program divides.
    Bpf,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Cgroup, Self::Bpf];

    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cgroup => "cgroup",
            Self::Bpf => "bpf",
        }
    }

    /// Whether BPF programs may be loaded.
    pub fn may_use_bpf(self) -> bool {
        self != Self::Cgroup
    }
}

/// Settings of the collector `perf`.
#[derive(Clone)]
pub struct PerfOptions {
    /// What is counted; `None` without a plan.
    pub plan: Option<Arc<Plan>>,
    /// Opens the counters.
    pub open: Arc<dyn Open>,
    /// How cgroups are counted.
    pub method: Method,
    /// Whether steps and tasks are counted, where that takes no counters of their own.
    pub levels: Levels,
    /// Descriptors that may be open at most; `None` for what this node needs when no CPU is counted for more than four jobs.
    pub most_descriptors: Option<usize>,
}

impl PerfOptions {
    /// Whether counters may be divided in BPF: the kernel's own.
    pub(super) fn may_divide(&self) -> bool {
        self.method.may_use_bpf() && self.open.is_kernel()
    }

    /// Whether steps may have counters.
    pub(super) fn may_follow_steps(&self) -> bool {
        self.levels.steps && (self.may_divide() || self.open.follows())
    }
}

impl std::fmt::Debug for PerfOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { plan, method, levels, most_descriptors, .. } = self;
        f.debug_struct("PerfOptions")
            .field("plan", plan)
            .field("method", method)
            .field("levels", levels)
            .field("most_descriptors", most_descriptors)
            .finish_non_exhaustive()
    }
}

impl Default for PerfOptions {
    fn default() -> Self {
        Self {
            plan: None,
            open: Arc::new(Kernel),
            method: Method::default(),
            levels: Levels::default(),
            most_descriptors: None,
        }
    }
}
