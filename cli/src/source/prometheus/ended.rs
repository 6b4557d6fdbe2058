//! Rows of jobs that ended, as rules/recording/ended.yaml records them: cheap for all jobs of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use job_report::{CLOCKS, Identity};
use prometheus_api::Labels;

use super::selector::{any_of, range};
use super::{Prometheus, Selection, of};
use crate::source::accounting::record_of_run;
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
    /// Seconds in which it was suspended, where SLURM's accounting knows them. Times held and idle leave them out.
    pub suspended_seconds: f64,
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

    /// Leaves out seconds in which it was suspended: they are neither held nor idle.
    fn leave_out(&mut self, suspended: f64) {
        let ran = self.end.zip(self.start).map(|(end, start)| end - start).filter(|ran| *ran > 0.0);
        let part = ran.map_or(0.0, |ran| (suspended / ran).clamp(0.0, 1.0));
        // It used nothing meanwhile, so all that it held then was idle.
        let cores = self.idle_core_seconds.zip(self.cpu_seconds).map(|(idle, used)| idle + used);
        let (cpus, gpus) = (self.cpu_allocated_seconds, self.gpu_allocated_seconds);
        for (value, held) in [
            (&mut self.idle_core_seconds, cores),
            (&mut self.gpu_idle_seconds, gpus),
            (&mut self.cpu_allocated_seconds, cpus),
            (&mut self.gpu_allocated_seconds, gpus),
        ] {
            *value = value.zip(held).map(|(value, held)| (value - part * held).max(0.0)).or(*value);
        }
        self.suspended_seconds = suspended;
    }

    /// Byte seconds that it might have used, above the highest peak of its nodes: what no node of it ever needed.
    pub fn memory_unused_byte_seconds(&self) -> Option<f64> {
        let (limit, peak, nodes) = (self.memory_limit_bytes?, self.memory_peak_bytes?, self.nodes?);
        Some((limit - peak * nodes).max(0.0) * (self.end? - self.start? - self.suspended_seconds).max(0.0))
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

/// Rows of numbers that had several runs, of one query.
const AT_ONCE: usize = 100;
/// Rows of a run begin at the same time, but for the clocks of its nodes.
const SAME: f64 = CLOCKS;

/// Rows by cluster, number and labels, each as it was at a time.
#[derive(Default)]
struct Rows(BTreeMap<(String, u64, Labels), BTreeMap<i64, EndedJob>>);

impl Rows {
    #[allow(clippy::cast_possible_truncation, reason = "milliseconds since the epoch")]
    fn add(&mut self, labels: &Labels, cluster_label: &str, (time, value): (f64, f64)) {
        let get = |name| labels.get(name).unwrap_or_default();
        let (Ok(id), Some(name)) = (get("jobid").parse(), labels.name()) else { return };
        let others = labels.iter().filter(|(label, _)| *label != "__name__").collect();
        let key = (get(cluster_label).to_owned(), id, others);
        let row = self.0.entry(key).or_default().entry((time * 1000.0) as i64).or_default();
        (row.id, row.cluster) = (id, get(cluster_label).to_owned());
        (row.user, row.account) = (harmless(get("user")), harmless(get("account")));
        row.partition = harmless(get("partition"));
        if let Some(slot) = row.slot(name) {
            *slot = Some(slot.map_or(value, |known| known.max(value)));
        }
    }

    /// A row for each run: what was recorded of it last. It may have begun before its owner was known: what is known goes other.
    fn runs(self) -> Vec<EndedJob> {
        let mut runs: Vec<EndedJob> = Vec::new();
        for row in self.0.into_values().flat_map(BTreeMap::into_values) {
            let is_number = |run: &&mut EndedJob| run.id == row.id && run.cluster == row.cluster;
            let is_same = |run: &&mut EndedJob| {
                let both = run.start.zip(row.start);
                both.is_none_or(|(one, other)| (one - other).abs() < SAME)
                    && (run.user == row.user || run.user.is_empty() || row.user.is_empty())
            };
            match runs.iter_mut().rev().take_while(is_number).find(is_same) {
                Some(run) => run.add(row),
                None => runs.push(row),
            }
        }
        runs
    }
}

impl EndedJob {
    /// Adds another row of the same run: of its numbers the greatest was recorded last.
    fn add(&mut self, other: EndedJob) {
        for (known, label) in [
            (&mut self.user, other.user),
            (&mut self.account, other.account),
            (&mut self.partition, other.partition),
        ] {
            if known.is_empty() {
                *known = label;
            }
        }
        for (known, value) in [
            (&mut self.start, other.start),
            (&mut self.end, other.end),
            (&mut self.nodes, other.nodes),
            (&mut self.cpu_allocated_seconds, other.cpu_allocated_seconds),
            (&mut self.cpu_seconds, other.cpu_seconds),
            (&mut self.idle_core_seconds, other.idle_core_seconds),
            (&mut self.gpu_allocated_seconds, other.gpu_allocated_seconds),
            (&mut self.gpu_idle_seconds, other.gpu_idle_seconds),
            (&mut self.memory_peak_bytes, other.memory_peak_bytes),
            (&mut self.memory_limit_bytes, other.memory_limit_bytes),
        ] {
            *known = known.iter().copied().chain(value).reduce(f64::max);
        }
    }
}

impl Prometheus {
    /// The runs that ended in the window. A number has several where its job was requeued, or where it came again.
    pub async fn ended(&self, selection: &Selection) -> Result<Vec<EndedJob>, Failure> {
        let names = any_of("__name__", RULES);
        let owner = selection.owner();
        let selector = |more: &[&str]| {
            let matchers: Vec<&str> = more.iter().copied().chain(owner.iter().map(String::as_str)).collect();
            self.scope.selector(&matchers)
        };
        let (window, label) = (range(self.window), &self.scope.cluster_label);
        let starts = of(RULES[0], &selector(&[]));
        let rows = format!("last_over_time({}{window})", selector(&[&names]));
        let several = format!("max_over_time({starts}{window}) - min_over_time({starts}{window}) > {SAME}");
        let (answer, several) =
            tokio::try_join!(self.client.query(&rows, self.until), self.client.query(&several, self.until))?;
        if answer.is_empty() {
            self.needs_rules().await?;
        }
        let number = |labels: &Labels| labels.get("jobid").unwrap_or_default().to_owned();
        let several: BTreeSet<String> = several.iter().map(|sample| number(&sample.labels)).collect();
        let mut rows = Rows::default();
        for sample in answer.iter().filter(|sample| !several.contains(&number(&sample.labels))) {
            rows.add(&sample.labels, label, (self.until, sample.value));
        }
        let several: Vec<&str> = several.iter().map(String::as_str).collect();
        for numbers in several.chunks(AT_ONCE) {
            let all = selector(&[&names, &any_of("jobid", numbers.iter().copied())]);
            for series in self.client.query_samples(&all, self.window, self.until).await? {
                for point in &series.points {
                    rows.add(&series.labels, label, *point);
                }
            }
        }
        let mut runs = rows.runs();
        self.leave_out_suspended(&mut runs).await;
        Ok(runs)
    }

    /// Suspended time is neither held nor idle, where SLURM's accounting knows it and they are not too many to ask for.
    async fn leave_out_suspended(&self, runs: &mut [EndedJob]) {
        let numbers =
            runs.iter().map(|run| (Some(run.cluster.clone()).filter(|name| !name.is_empty()), run.id));
        let records = self.records_of(numbers.collect()).await;
        for run in runs {
            let cluster = Some(run.cluster.clone()).filter(|name| !name.is_empty());
            let who =
                Identity { user: run.user.clone(), partition: run.partition.clone(), ..Identity::default() };
            let of_cluster = records.get(&cluster).map(Vec::as_slice).unwrap_or_default();
            let record = run.start.and_then(|start| record_of_run((run.id, &who, start), of_cluster));
            let suspended = record.and_then(|record| record.suspended).filter(|seconds| *seconds > 0.0);
            suspended.into_iter().for_each(|suspended| run.leave_out(suspended));
        }
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
    fn suspended_time_is_neither_held_nor_idle() {
        let mut job = EndedJob {
            start: Some(0.0),
            end: Some(100.0),
            cpu_allocated_seconds: Some(800.0),
            cpu_seconds: Some(80.0),
            idle_core_seconds: Some(320.0),
            gpu_allocated_seconds: Some(200.0),
            gpu_idle_seconds: Some(170.0),
            ..EndedJob::default()
        };
        job.leave_out(75.0);
        assert_eq!((job.cpu_allocated_seconds, job.idle_core_seconds), (Some(200.0), Some(20.0)));
        assert_eq!((job.gpu_allocated_seconds, job.gpu_idle_seconds), (Some(50.0), Some(20.0)));
        assert_eq!((job.cpu_seconds, job.memory_unused_byte_seconds()), (Some(80.0), None));
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
