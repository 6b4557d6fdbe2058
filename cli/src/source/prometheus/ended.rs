//! Rows of jobs that ended, as rules/recording/ended.yaml records them: cheap for all jobs of a cluster.

use std::collections::BTreeMap;

use super::selector::{any_of, range};
use super::{Prometheus, Selection};
use crate::text::harmless;
use crate::{Failure, Kind};

/// What is recorded of a job that ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndedJob {
    /// SLURM's number.
    pub id: u64,
    /// The label of its cluster as the server has it, if it has one.
    pub cluster: String,
    /// Whose it was. An empty string is not known.
    pub user: String,
    /// That of the job.
    pub account: String,
    /// That of the job.
    pub partition: String,
    /// Start on the first node, seconds since the epoch.
    pub start: Option<f64>,
    /// End on the last node.
    pub end: Option<f64>,
    /// Nodes.
    pub nodes: Option<f64>,
    /// CPU time held.
    pub cpu_allocated_seconds: Option<f64>,
    /// CPU time used.
    pub cpu_seconds: Option<f64>,
    /// Core time that it held and did not use.
    pub idle_core_seconds: Option<f64>,
    /// GPU time held.
    pub gpu_allocated_seconds: Option<f64>,
    /// GPU time that it held and did not use, of GPUs that it had alone.
    pub gpu_idle_seconds: Option<f64>,
    /// The highest peak of a node.
    pub memory_peak_bytes: Option<f64>,
    /// What it might use on all nodes.
    pub memory_limit_bytes: Option<f64>,
}

impl EndedJob {
    /// The number that a rule records; `None` for another rule's.
    fn slot(&mut self, name: &str) -> Option<&mut Option<f64>> {
        Some(match name {
            "ended:jobledger_job_start_time_seconds:min" => &mut self.start,
            "ended:jobledger_job_end_time_seconds:max" => &mut self.end,
            "ended:jobledger_job_nodes:count" => &mut self.nodes,
            "ended:jobledger_job_allocated_cpu_seconds:sum" => &mut self.cpu_allocated_seconds,
            "ended:jobledger_job_cpu_seconds:sum" => &mut self.cpu_seconds,
            "ended:jobledger_job_idle_core_seconds:sum" => &mut self.idle_core_seconds,
            "ended:jobledger_job_gpu_allocated_seconds:sum" => &mut self.gpu_allocated_seconds,
            "ended:jobledger_job_gpu_idle_seconds:sum" => &mut self.gpu_idle_seconds,
            "ended:jobledger_job_memory_peak_bytes:max" => &mut self.memory_peak_bytes,
            "ended:jobledger_job_memory_limit_bytes:sum" => &mut self.memory_limit_bytes,
            _ => return None,
        })
    }

    /// Byte seconds that it might have used, above the highest peak of its nodes: what no node of it ever needed.
    pub fn memory_unused_byte_seconds(&self) -> Option<f64> {
        let (limit, peak, nodes) = (self.memory_limit_bytes?, self.memory_peak_bytes?, self.nodes?);
        Some((limit - peak * nodes).max(0.0) * (self.end? - self.start?).max(0.0))
    }
}

/// The rules whose rows are read.
const RULES: [&str; 10] = [
    "ended:jobledger_job_start_time_seconds:min",
    "ended:jobledger_job_end_time_seconds:max",
    "ended:jobledger_job_nodes:count",
    "ended:jobledger_job_allocated_cpu_seconds:sum",
    "ended:jobledger_job_cpu_seconds:sum",
    "ended:jobledger_job_idle_core_seconds:sum",
    "ended:jobledger_job_gpu_allocated_seconds:sum",
    "ended:jobledger_job_gpu_idle_seconds:sum",
    "ended:jobledger_job_memory_peak_bytes:max",
    "ended:jobledger_job_memory_limit_bytes:sum",
];

impl Prometheus {
    /// The jobs that ended in the window, by number.
    pub async fn ended(&self, selection: &Selection) -> Result<Vec<EndedJob>, Failure> {
        let names = any_of("__name__", RULES);
        let owner = selection.owner();
        let matchers: Vec<&str> =
            std::iter::once(names.as_str()).chain(owner.iter().map(String::as_str)).collect();
        let rows = format!("last_over_time({}{})", self.scope.selector(&matchers), range(self.window));
        let answer = self.client.query(&rows, self.until).await?;
        if answer.is_empty() {
            self.needs_rules().await?;
        }
        // The row of a job may have begun before its owner was known: what is known goes before.
        let mut jobs: BTreeMap<(String, u64), EndedJob> = BTreeMap::new();
        for sample in &answer {
            let get = |name| sample.labels.get(name).unwrap_or_default();
            let (Ok(id), Some(name)) = (get("jobid").parse(), sample.labels.name()) else { continue };
            let cluster = get(&self.scope.cluster_label).to_owned();
            let job = jobs.entry((cluster.clone(), id)).or_default();
            (job.id, job.cluster) = (id, cluster);
            for (known, label) in
                [(&mut job.user, "user"), (&mut job.account, "account"), (&mut job.partition, "partition")]
            {
                if known.is_empty() {
                    *known = harmless(get(label));
                }
            }
            if let Some(slot) = job.slot(name) {
                *slot = Some(slot.map_or(sample.value, |known| known.max(sample.value)));
            }
        }
        Ok(jobs.into_values().collect())
    }

    /// An error where the rules are not loaded. A server that does not say which it has may have them.
    async fn needs_rules(&self) -> Result<(), Failure> {
        match self.client.recording_rules().await {
            Ok(rules) if !rules.iter().any(|rule| rule.starts_with("ended:jobledger_")) => {
                let says = "the server records no rows of ended jobs: it needs rules/recording/ended.yaml and what that needs";
                Err(Failure::new(Kind::Other, says))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_number() {
        let mut job = EndedJob::default();
        assert!(RULES.iter().all(|rule| job.slot(rule).is_some()));
        assert!(job.slot("ended:jobledger_job_name:info").is_none());
        let rules = include_str!("../../../../rules/recording/ended.yaml");
        assert!(RULES.iter().all(|rule| rules.contains(&format!("record: {rule}\n"))));
    }

    #[test]
    fn memory_that_no_node_needed_is_unused() {
        let job = EndedJob {
            start: Some(100.0),
            end: Some(110.0),
            nodes: Some(2.0),
            memory_peak_bytes: Some(3.0),
            memory_limit_bytes: Some(16.0),
            ..EndedJob::default()
        };
        assert_eq!(job.memory_unused_byte_seconds(), Some(100.0));
        assert_eq!(EndedJob { end: None, ..job.clone() }.memory_unused_byte_seconds(), None);
        assert_eq!(EndedJob { memory_peak_bytes: Some(9.0), ..job }.memory_unused_byte_seconds(), Some(0.0));
    }
}
