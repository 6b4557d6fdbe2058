//! What known work showed of this node's counters, and what the node did at most: results that `jobledger-exporter perf --validate`
//! left. They are read at the start, and cost a scrape nothing.

use std::sync::Arc;

use counter_validation::Results;
use exposition::{Family, Profile, Section, SubjectId};
use slurm_jobs::NodeSnapshot;

use crate::collector::{Built, Collector, Entry, SourceError};

static VALIDATED: Family = Family::info("jobledger_node_counters_validated_info")
    .profile(Profile::Full)
    .labels(&["date", "verdict"])
    .help(
        "When the counters of this node were last compared with known work, and the worst verdict: pass, never_ran \
         (a group that had no counters), off. Absent where it was not done on this processor, microcode and kernel",
    );
static BANDWIDTH: Family = Family::gauge("jobledger_node_measured_memory_bandwidth_bytes").help(
    "Bytes per second from and to memory that all CPUs together moved at most, as measured by jobledger-exporter perf",
);
static FLOPS: Family = Family::gauge("jobledger_node_measured_flops_per_second")
    .labels(&["precision", "width"])
    .help(
        "Floating-point operations per second that all CPUs together did at most with instructions of this width, \
         measured by jobledger-exporter perf",
    );

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "node_validation",
    summary: "What known work showed of the node's counters, and what the node can do at most (jobledger-exporter perf --validate)",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || vec![&VALIDATED, &BANDWIDTH, &FLOPS],
    build: |context| Built::plain(Validation(context.options.get::<ValidationOptions>().results)),
};

/// What there is to export.
#[derive(Debug, Clone, Default)]
pub struct ValidationOptions {
    /// Results that hold for this node.
    pub results: Option<Arc<Results>>,
}

struct Validation(Option<Arc<Results>>);

impl Collector for Validation {
    fn collect(&mut self, _snapshot: &NodeSnapshot, out: &mut Section) -> Result<(), SourceError> {
        let Some(results) = &self.0 else { return Ok(()) };
        if let Some(verdict) = results.verdict {
            let labels = [("date", results.date.as_str()), ("verdict", verdict.as_str())];
            out.push(&VALIDATED, SubjectId::NODE, &labels, 1);
        }
        let Some(peaks) = &results.peaks else { return Ok(()) };
        if let Some(bytes) = peaks.memory_bytes_per_second {
            out.push(&BANDWIDTH, SubjectId::NODE, &[], bytes);
        }
        for peak in &peaks.flops {
            let labels = [("precision", peak.precision.as_str()), ("width", peak.width.as_str())];
            out.push(&FLOPS, SubjectId::NODE, &labels, peak.per_second);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use counter_validation::results::FlopsPeak;
    use counter_validation::{Facts, Peaks, Verdict};
    use slurm_jobs::Users;

    use super::*;
    use crate::collector::BuildContext;
    use crate::collector::testing::{Bench, Machine, snapshot_of};

    fn exported(results: Option<Results>) -> Vec<String> {
        let snapshot = snapshot_of(Machine::new().roots(), Vec::new());
        let users = Arc::new(Users::start(Box::new(|_| None)).unwrap());
        let mut context = BuildContext::new(snapshot.roots.clone(), users);
        context.options.set(ValidationOptions { results: results.map(Arc::new) });
        let (outcome, text) = Bench::with_context(&ENTRY, &context).collect(&snapshot);
        assert_eq!(outcome, Ok(()));
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn results_of_this_node_are_exported_and_without_any_there_is_nothing() {
        let peak = |precision: &str, width: &str, per_second| FlopsPeak {
            precision: precision.into(),
            width: width.into(),
            per_second,
        };
        let flops = vec![peak("double", "512", 3.5e12), peak("single", "scalar", 1e11)];
        let results = Results {
            format: 1,
            exporter: "0.1.0".into(),
            date: "2026-11-27".into(),
            node: Facts::default(),
            verdict: Some(Verdict::NeverRan),
            counted_as: None,
            rows: Vec::new(),
            absent: Vec::new(),
            peaks: Some(Peaks { memory_bytes_per_second: Some(2.5e11), flops }),
        };
        assert_eq!(
            exported(Some(results.clone())),
            [
                "jobledger_node_counters_validated_info{date=\"2026-11-27\",verdict=\"never_ran\"} 1",
                "jobledger_node_measured_memory_bandwidth_bytes 250000000000.0",
                "jobledger_node_measured_flops_per_second{precision=\"double\",width=\"512\"} 3500000000000.0",
                "jobledger_node_measured_flops_per_second{precision=\"single\",width=\"scalar\"} 100000000000.0",
            ]
        );
        assert_eq!(exported(Some(Results { verdict: None, peaks: None, ..results })), [""; 0]);
        assert_eq!(exported(None), [""; 0]);
    }
}
