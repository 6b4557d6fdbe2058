//! What SLURM's prolog and epilog said of a run, and the state that follows from it. The accounting knows more, and goes before it.

use std::collections::BTreeSet;

use job_report::{Ended, Job, Origin, State};
use prometheus_api::Sample;

use crate::text::harmless;

const TIME_LIMIT: &str = "jobledger_job_time_limit_seconds";
pub(super) const NODES: &str = "jobledger_job_nodes_asked";
const RESTARTS: &str = "jobledger_job_restarts";
const EXIT_CODE: &str = "jobledger_job_exit_code";
const EXIT_SIGNAL: &str = "jobledger_job_exit_signal";
const STATE: &str = "jobledger_job_state_info";

/// The series that are read.
pub(super) const SERIES: [&str; 6] = [TIME_LIMIT, NODES, RESTARTS, EXIT_CODE, EXIT_SIGNAL, STATE];

/// What they said.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    time_limit: Option<f64>,
    nodes: Option<f64>,
    restarts: Option<f64>,
    exit_code: Option<f64>,
    signal: Option<f64>,
    states: BTreeSet<String>,
}

impl Facts {
    /// Adds one of a node; whether it is one.
    pub(super) fn add(&mut self, sample: &Sample) -> bool {
        let slot = match sample.labels.name() {
            Some(TIME_LIMIT) => &mut self.time_limit,
            Some(NODES) => &mut self.nodes,
            Some(RESTARTS) => &mut self.restarts,
            Some(EXIT_CODE) => &mut self.exit_code,
            Some(EXIT_SIGNAL) => &mut self.signal,
            Some(STATE) => {
                self.states.extend(sample.labels.get("state").map(harmless));
                return true;
            }
            _ => return false,
        };
        // All nodes have the same, but one whose prolog did not run.
        *slot = Some(slot.map_or(sample.value, |value| value.max(sample.value)));
        true
    }

    pub(super) fn fill(self, job: &mut Job) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers of 32 bits"
        )]
        let whole = |value: f64| value as u64;
        job.time_limit = self.time_limit;
        job.nodes_allocated = self.nodes.map(whole);
        job.restarts = self.restarts.map(whole);
        let mut states = self.states.into_iter();
        // Where nodes do not agree, nothing is known.
        if let (Some(state), None, State::Ended) = (states.next(), states.next(), job.state()) {
            let (exit_code, signal) = (self.exit_code.map(whole), self.signal.map(whole));
            job.ended = Some(Ended { state, origin: Origin::Derived, exit_code, signal });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::sample;
    use super::*;
    use crate::testing;

    fn filled(samples: &[Sample]) -> Job {
        let mut job = Job { ended: None, ..testing::job() };
        let mut facts = Facts::default();
        assert!(samples.iter().all(|sample| facts.add(sample)));
        facts.fill(&mut job);
        job
    }

    fn fact(name: &str, value: f64) -> Sample {
        sample(&[("__name__", name)], value)
    }

    fn state(state: &str) -> Sample {
        sample(&[("__name__", STATE), ("state", state)], 1.0)
    }

    #[test]
    fn a_state_that_nodes_agree_on_is_derived() {
        let facts = [
            fact(TIME_LIMIT, 3600.0),
            fact(NODES, 3.0),
            fact(EXIT_SIGNAL, 9.0),
            state("FAILED"),
            state("FAILED"),
        ];
        let job = filled(&facts);
        let ended = job.ended.unwrap();
        assert_eq!((ended.state.as_str(), ended.origin), ("FAILED", Origin::Derived));
        assert_eq!((ended.exit_code, ended.signal), (None, Some(9)));
        assert_eq!((job.time_limit, job.nodes_allocated), (Some(3600.0), Some(3)));
        assert_eq!(filled(&[state("FAILED"), state("TIMEOUT")]).ended, None);
        assert_eq!(filled(&[fact(EXIT_CODE, 0.0)]).ended, None);
    }

    #[test]
    fn a_job_that_runs_has_no_state_yet() {
        let mut job = Job { ended: None, ..testing::job() };
        job.nodes.iter_mut().for_each(|node| node.running = true);
        let mut facts = Facts::default();
        facts.add(&state("FAILED"));
        facts.fill(&mut job);
        assert_eq!(job.ended, None);
        assert!(!Facts::default().add(&fact("jobledger_node_cpus", 1.0)));
    }
}
