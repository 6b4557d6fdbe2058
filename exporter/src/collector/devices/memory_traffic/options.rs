//! What a site sets, and the way to leave nothing behind.

use std::sync::{Arc, OnceLock};

use perf_counters::resctrl::helper::HelperSlot;

/// Settings of the collector `memory_traffic`.
#[derive(Debug, Clone, Default)]
pub struct TrafficOptions {
    /// Whether jobs are monitored by resctrl.
    pub resctrl: bool,
    /// With `--check` and resctrl asked for: whether groups could be made. None is.
    pub checked: Option<bool>,
    /// What changes groups where the exporter itself may not.
    pub helper: HelperSlot,
    /// Runs when the exporter ends.
    pub end: End,
}

/// Removes what the collector made in the kernel. Its clones are the same.
#[derive(Clone, Default)]
pub struct End(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("End")
    }
}

impl End {
    pub(super) fn set(&self, end: Box<dyn Fn() + Send + Sync>) {
        let _ = self.0.set(end);
    }

    /// Does it; nothing where the collector does not run.
    pub fn run(&self) {
        if let Some(end) = self.0.get() {
            end();
        }
    }
}
