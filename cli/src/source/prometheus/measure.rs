//! What a job used: the last values of its counters, which the exporter shows for a while after its end.

use std::collections::BTreeMap;

use job_report::Metric;
use job_report::metric::{self, Kind};
use prometheus_api::Sample;

use super::Prometheus;
use super::over_time::RETAINED;
use super::selector::{any_of, named, range};
use crate::Failure;
use crate::series::{END, GPU_INFO, GPUS, INFO, START};
use crate::source::measured::{self, Measured};

/// What was answered of some jobs.
#[derive(Debug, Default)]
pub(super) struct Answers {
    values: Vec<Sample>,
    others: Vec<Sample>,
}

/// Samples of each job, by cluster and number.
pub(super) fn by_job(samples: Vec<Sample>, cluster_label: &str) -> BTreeMap<(String, u64), Vec<Sample>> {
    let mut jobs: BTreeMap<(String, u64), Vec<Sample>> = BTreeMap::new();
    for sample in samples {
        if let Some(id) = sample.labels.get("jobid").and_then(|id| id.parse().ok()) {
            let cluster = sample.labels.get(cluster_label).unwrap_or_default().to_owned();
            jobs.entry((cluster, id)).or_default().push(sample);
        }
    }
    jobs
}

impl Answers {
    /// Those of each job, by cluster and number.
    pub(super) fn by_job(self, cluster_label: &str) -> BTreeMap<(String, u64), Answers> {
        let mut others = by_job(self.others, cluster_label);
        let of_job = |(key, values)| {
            let others = others.remove(&key).unwrap_or_default();
            (key, Answers { values, others })
        };
        by_job(self.values, cluster_label).into_iter().map(of_job).collect()
    }

    /// Puts those of a job together.
    pub(super) fn measured(&self) -> Measured {
        measured::measured(&self.values, &self.others)
    }
}

impl Prometheus {
    /// The last runs of jobs before a time, and what is left of earlier ones. `more` are metrics that are not in reports.
    pub(super) async fn measure(
        &self,
        selector: &[String],
        at: f64,
        window: f64,
        more: &[&'static Metric],
    ) -> Result<Answers, Failure> {
        let is_asked_for = |metric: &Metric| metric.is_usual() || more.contains(&metric);
        let of_jobs = |more: &str| {
            let more = Some(more).filter(|more| !more.is_empty());
            let matchers: Vec<&str> = selector.iter().map(String::as_str).chain(more).collect();
            self.scope.selector(&matchers)
        };
        let (range_all, cluster) = (range(window), &self.scope.cluster_label);
        let (start, end, info) = (of(START, &of_jobs("")), of(END, &of_jobs("")), of(GPU_INFO, &of_jobs("")));
        // When they started and ended; what runs now; the GPUs; and without a name: how often the start changed on a node. `or` does not look
        // at names, so that the first have a label of their own.
        // VictoriaMetrics counts the first sample as a change, too: how often a label that never changes did is taken off.
        let on = format!("(jobid, instance, slurm_node, {cluster})");
        let changes = |series: &str| format!("max by {on} (changes({series}{range_all}))");
        let times = of_jobs(&any_of("__name__", [START, END, GPUS]));
        let answer = format!(
            "label_replace(last_over_time({times}{range_all}), \"of\", \"$1\", \"__name__\", \"(.+)\") \
             or {start} unless on {on} {end} or last_over_time({info}{range_all}) \
             or max by (jobid, {cluster}) ({} - on {on} {})",
            changes(&start),
            changes(&of(INFO, &of_jobs("")))
        );
        let answer = self.client.query(&answer, at).await?;
        let (mut values, others): (Vec<_>, Vec<_>) =
            answer.into_iter().partition(|sample| sample.labels.get("of").is_some());
        let Some((from, until)) = last_samples(&values, at) else {
            return Ok(Answers { values, others });
        };
        let from = from.max(at - window);
        let totals: Vec<&'static Metric> =
            metric::ALL.iter().copied().filter(|m| m.kind != Kind::Gauge && is_asked_for(m)).collect();
        let last = format!("last_over_time({}{})", of_jobs(&named(&totals, &[])), range(until - from));
        values.extend(self.client.query(&self.scope.parts(&last), until).await?);
        Ok(Answers { values, others })
    }
}

/// Clocks of nodes differ less than this: munge refuses credentials that are five minutes old, and SLURM with it.
const CLOCKS: f64 = 600.0;

/// Between which times each job was last seen on each node, by when it started and ended there: a server reads no more than it has to. Where it
/// did not end, that may have been at any time since its start.
fn last_samples(times: &[Sample], at: f64) -> Option<(f64, f64)> {
    // By job, instance and SLURM's name of the node.
    let mut nodes: BTreeMap<[&str; 3], (f64, f64)> = BTreeMap::new();
    for sample in times {
        let node =
            ["jobid", "instance", "slurm_node"].map(|name| sample.labels.get(name).unwrap_or_default());
        let (start, end) = nodes.entry(node).or_insert((f64::NEG_INFINITY, f64::NEG_INFINITY));
        match sample.labels.name() {
            Some(START) => *start = start.max(sample.value),
            Some(END) => *end = end.max(sample.value),
            _ => {}
        }
    }
    let (mut from, mut until) = (at - CLOCKS, None::<f64>);
    for (start, end) in nodes.into_values().filter(|(start, end)| start.is_finite() || end.is_finite()) {
        let ended = end >= start;
        from = from.min(start.max(end) - CLOCKS);
        let seen = if ended { (end + RETAINED).min(at) } else { at };
        until = until.into_iter().chain([seen]).reduce(f64::max);
    }
    until.filter(|until| from.is_finite() && *until > from).map(|until| (from, until))
}

fn of(name: &str, selector: &str) -> String {
    format!("{name}{selector}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(nodes: &[(&str, f64, Option<f64>)]) -> Vec<Sample> {
        let sample = |name: &str, node: &str, value: f64| Sample {
            labels: [("__name__", name), ("jobid", "7"), ("instance", node)].into_iter().collect(),
            value,
            time: 0.0,
        };
        let of_node = |(node, start, end): &(&str, f64, Option<f64>)| {
            let end = end.map(|end| sample(END, node, end));
            [sample(START, node, *start), sample(GPUS, node, 1.0)].into_iter().chain(end).collect::<Vec<_>>()
        };
        nodes.iter().flat_map(of_node).collect()
    }

    #[test]
    fn the_last_samples_are_looked_for_where_they_can_be() {
        let of = |nodes: &[(&str, f64, Option<f64>)]| last_samples(&times(nodes), 1e6);
        let ended = of(&[("a", 1e5, Some(2e5)), ("b", 1e5, Some(2.1e5))]);
        assert_eq!(ended, Some((2e5 - CLOCKS, 2.1e5 + RETAINED)));
        // One runs, or went without an end; one started anew.
        assert_eq!(of(&[("a", 1e5, Some(2e5)), ("b", 1e5, None)]), Some((1e5 - CLOCKS, 1e6)));
        assert_eq!(of(&[("a", 3e5, Some(2e5))]), Some((3e5 - CLOCKS, 1e6)));
        // The node's clock goes ahead.
        assert_eq!(of(&[("a", 1e5, Some(1e6 + 50.0))]), Some((1e6 - CLOCKS, 1e6)));
        assert_eq!(of(&[("a", f64::NAN, None)]), None);
        assert_eq!(last_samples(&[], 1e6), None);
    }
}
