//! What a job used: the last values of its counters, which the exporter shows for a while after its end.

use std::collections::{BTreeMap, BTreeSet};

use job_report::metric::{self, Kind};
use job_report::{Metric, Seen, runs};
use prometheus_api::Sample;

use super::over_time::RETAINED;
use super::selector::{any_of, named, range};
use super::{Prometheus, of};
use crate::Failure;
use crate::series::{END, GPU_INFO, GPUS, INFO, START};
use crate::source::measured::{self, Measured, exporter};

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

/// What is looked at: runs that started before one that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Before {
    /// The last time that is looked at, seconds since the epoch.
    pub(super) at: f64,
    /// Seconds before that.
    pub(super) window: f64,
    /// Nodes on which a job started then or later are of a later run.
    pub(super) start: f64,
}

impl Before {
    fn without_later(self, mut answer: Vec<Sample>) -> Vec<Sample> {
        let is_later = |sample: &&Sample| sample.labels.name() == Some(START) && sample.value >= self.start;
        let later: BTreeSet<_> =
            answer.iter().filter(is_later).map(|sample| exporter(&sample.labels)).collect();
        answer.retain(|sample| !later.contains(&exporter(&sample.labels)));
        answer
    }
}

impl Prometheus {
    /// A selector of jobs' series.
    pub(super) fn selected(&self, selector: &[String]) -> String {
        self.scope.selector(&selector.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// All that is known at last.
    pub(super) fn at_last(&self) -> Before {
        Before { at: self.until, window: self.window, start: f64::INFINITY }
    }

    /// The last runs of jobs before a time, and what is left of earlier ones. `more` are metrics that are not in reports.
    pub(super) async fn measure(
        &self,
        selector: &[String],
        before: Before,
        more: &[&'static Metric],
    ) -> Result<Answers, Failure> {
        let Before { at, window, .. } = before;
        let is_asked_for = |metric: &Metric| metric.is_usual() || more.contains(&metric);
        let of_jobs = |more: &str| {
            let more = Some(more).filter(|more| !more.is_empty());
            let matchers: Vec<&str> = selector.iter().map(String::as_str).chain(more).collect();
            self.scope.selector(&matchers)
        };
        let (range_all, cluster) = (range(window), &self.scope.cluster_label);
        let (start, end) = (of(START, &of_jobs("")), of(END, &of_jobs("")));
        // When they started and ended; what runs now; and without a name: how often the start changed on a node, where it did. `or` does not look
        // at names, so that the first and the last have a label of their own.
        // VictoriaMetrics counts the first sample as a change, too: how often a label that never changes did is taken off.
        let on = format!("(jobid, instance, slurm_node, {cluster})");
        let changes = |series: &str| format!("max by {on} (changes({series}{range_all}))");
        let times = of_jobs(&any_of("__name__", [START, END, GPUS]));
        let answer = format!(
            "label_replace(last_over_time({times}{range_all}), \"of\", \"$1\", \"__name__\", \"(.+)\") \
             or {start} unless on {on} {end} \
             or label_replace({} - on {on} {} > 0, \"of_node\", \"changes\", \"\", \"\")",
            changes(&start),
            changes(&of(INFO, &of_jobs("")))
        );
        let answer = before.without_later(self.client.query(&answer, at).await?);
        let (mut values, mut others): (Vec<_>, Vec<_>) =
            answer.into_iter().partition(|sample| sample.labels.get("of").is_some());
        let Some((from, until)) = last_samples(&values, &others, cluster, at) else {
            return Ok(Answers { values, others });
        };
        let from = from.max(at - window);
        let totals: Vec<&'static Metric> =
            metric::ALL.iter().copied().filter(|m| m.kind != Kind::Gauge && is_asked_for(m)).collect();
        let last = |selector: String| format!("last_over_time({selector}{})", range(until - from));
        // GPUs have labels that totals do not have.
        let totals = self.scope.parts(&last(of_jobs(&named(&totals, &[]))));
        let answer = format!("{totals} or {}", last(of(GPU_INFO, &of_jobs(""))));
        let (gpus, totals): (Vec<_>, Vec<_>) = (self.client.query(&answer, until).await?)
            .into_iter()
            .partition(|sample| sample.labels.name() == Some(GPU_INFO));
        values.extend(totals);
        others.extend(gpus);
        Ok(Answers { values, others })
    }
}

/// Samples are looked for so many seconds around a start and an end: clocks of nodes and of the server differ less, since munge refuses credentials that
/// are five minutes old, and SLURM with it.
const AROUND: f64 = 600.0;

/// Runs of a job begin so many seconds apart at least: SLURM holds a requeued job for `cred_expire`, two minutes if nothing is set.
pub const APART: f64 = 60.0;

/// A job on a node.
struct OnNode {
    seen: Seen,
    /// It runs there now.
    runs: bool,
    /// It started there more than once.
    restarted: bool,
}

fn is_restart(sample: &Sample) -> bool {
    sample.labels.name().is_none() && sample.value > 0.0
}

/// Between which times each job was last seen on each node, by when it started and ended there: a server reads no more than it has to. Where it
/// did not end, that may have been at any time since its start. Of a job whose start changed on a node, what is before its last run is left out: that
/// node has series of an earlier one. It still has them for a while after the start of the last run, as that is exported only once readers have
/// the end of the earlier one. A gauge or a GPU that only the earlier run had is then among the last samples.
fn last_samples(times: &[Sample], others: &[Sample], cluster_label: &str, at: f64) -> Option<(f64, f64)> {
    let get = |sample: &'_ Sample, name: &str| sample.labels.get(name).unwrap_or_default().to_owned();
    let job = |sample: &Sample| [cluster_label, "jobid"].map(|name| get(sample, name));
    // By job, and by instance and SLURM's name of the node.
    let mut jobs: BTreeMap<[String; 2], BTreeMap<(String, String), OnNode>> = BTreeMap::new();
    for sample in times {
        let nodes = jobs.entry(job(sample)).or_default();
        let seen = Seen { start: f64::NEG_INFINITY, until: f64::NEG_INFINITY };
        let unseen = OnNode { seen, runs: false, restarted: false };
        let OnNode { seen, .. } = nodes.entry(exporter(&sample.labels)).or_insert(unseen);
        match sample.labels.name() {
            Some(START) => seen.start = seen.start.max(sample.value),
            Some(END) => seen.until = seen.until.max(sample.value),
            _ => {}
        }
    }
    for sample in others {
        let node = jobs.get_mut(&job(sample)).and_then(|nodes| nodes.get_mut(&exporter(&sample.labels)));
        match (node, sample.labels.name()) {
            (Some(node), _) if is_restart(sample) => node.restarted = true,
            (Some(node), Some(_)) => node.runs = true,
            _ => {}
        }
    }
    let (mut from, mut until) = (f64::INFINITY, None::<f64>);
    for nodes in jobs.into_values() {
        let nodes: Vec<OnNode> =
            nodes.into_values().filter(|node| node.seen.start.max(node.seen.until).is_finite()).collect();
        let is_requeued = nodes.iter().any(|node| node.restarted);
        let last =
            if is_requeued { last_run(&nodes, at) } else { nodes.iter().map(|node| node.seen).collect() };
        for Seen { start, until: end } in last {
            let least = if is_requeued && start < at { start } else { f64::NEG_INFINITY };
            from = from.min((start.max(end).min(at) - AROUND).max(least));
            let seen = if end >= start { (end + RETAINED).min(at) } else { at };
            until = until.into_iter().chain([seen]).reduce(f64::max);
        }
    }
    until.filter(|until| from.is_finite() && *until > from).map(|until| (from, until))
}

/// The nodes of the last run. A node without an end may have run until now. If it does not run, and started before the earlier run of a node that
/// started anew was over, it was lost in that run.
fn last_run(nodes: &[OnNode], at: f64) -> Vec<Seen> {
    let over =
        |Seen { start, until }: Seen| if until.is_finite() && until < start { until } else { start - APART };
    let restarted = nodes.iter().filter(|node| node.restarted);
    let earlier_over = restarted.map(|node| over(node.seen)).fold(f64::NEG_INFINITY, f64::max);
    let seen = |OnNode { seen, runs, .. }: &OnNode| {
        let was_lost = !runs && seen.start < earlier_over;
        let until = match seen.until >= seen.start {
            true => seen.until,
            false if was_lost => seen.start,
            false => at,
        };
        Seen { until, ..*seen }
    };
    let last = runs(&nodes.iter().map(seen).collect::<Vec<_>>()).pop();
    last.iter().flat_map(|run| &run.nodes).filter_map(|at| Some(nodes.get(*at)?.seen)).collect()
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
        let of = |nodes: &[(&str, f64, Option<f64>)]| last_samples(&times(nodes), &[], "cluster", 1e6);
        let ended = of(&[("a", 1e5, Some(2e5)), ("b", 1e5, Some(2.1e5))]);
        assert_eq!(ended, Some((2e5 - AROUND, 2.1e5 + RETAINED)));
        // One runs, or went without an end; one started anew.
        assert_eq!(of(&[("a", 1e5, Some(2e5)), ("b", 1e5, None)]), Some((1e5 - AROUND, 1e6)));
        assert_eq!(of(&[("a", 3e5, Some(2e5))]), Some((3e5 - AROUND, 1e6)));
        // The node's clock goes ahead.
        assert_eq!(of(&[("a", 1e5, Some(1e6 + 50.0))]), Some((1e6 - AROUND, 1e6)));
        assert_eq!(of(&[("a", f64::NAN, None)]), None);
        assert_eq!(last_samples(&[], &[], "cluster", 1e6), None);
    }

    fn requeued(nodes: &[(&str, f64, Option<f64>)], restarted: &str, runs: &[&str]) -> Option<(f64, f64)> {
        let on = |node: &str| Sample {
            labels: [("jobid", "7"), ("instance", node)].into_iter().collect(),
            value: 1.0,
            time: 0.0,
        };
        let nodes_now =
            nodes.iter().filter(|(node, ..)| runs.contains(node)).map(|node| (node.0, node.1, None));
        let mut others = times(&nodes_now.collect::<Vec<_>>());
        others.push(on(restarted));
        last_samples(&times(nodes), &others, "cluster", 1e6)
    }

    #[test]
    fn what_is_before_the_last_run_is_left_out() {
        let of = |nodes: &[(&str, f64, Option<f64>)], restarted| requeued(nodes, restarted, &[]);
        assert_eq!(of(&[("a", 1e6 - 100.0, None)], "a"), Some((1e6 - 100.0, 1e6)));
        let none = of(&[("a", 1e6 - 100.0, None)], "another job's");
        assert_eq!(none, Some((1e6 - 100.0 - AROUND, 1e6)));
        assert_eq!(of(&[("a", 1e5, Some(1e5 + 300.0))], "a"), Some((1e5, 1e5 + 300.0 + RETAINED)));
        assert_eq!(of(&[("a", 1e5, Some(2e5))], "a"), Some((2e5 - AROUND, 2e5 + RETAINED)));
        // Its first run was on other nodes, too.
        let nodes = [("a", 8e5, Some(9e5)), ("b", 9e5 + 60.0, Some(8e5)), ("c", 9e5 + 61.0, None)];
        assert_eq!(of(&nodes, "b"), Some((9e5 + 60.0, 1e6)));
        // The node's clock goes ahead.
        assert_eq!(of(&[("a", 1e6 + 50.0, None)], "a"), Some((1e6 - AROUND, 1e6)));
    }

    #[test]
    fn a_lost_node_is_of_the_run_in_which_it_was_lost() {
        // Of the first run; the second one runs, or has ended.
        let mut nodes = [("a", 8e5, None), ("b", 9e5, Some(8.5e5)), ("c", 9e5, None)];
        assert_eq!(requeued(&nodes, "b", &["b", "c"]), Some((9e5, 1e6)));
        (nodes[1].2, nodes[2].2) = (Some(9e5 + 500.0), Some(9e5 + 500.0));
        assert_eq!(requeued(&nodes, "b", &[]), Some((9e5, 9e5 + 500.0 + RETAINED)));
        // Of the last one.
        let nodes = [("a", 9e5 - 2.0, None), ("b", 9e5, Some(8.5e5))];
        assert_eq!(requeued(&nodes, "b", &["b"]), Some((9e5 - 2.0, 1e6)));
        // The first step on the other node came late.
        let nodes = [("a", 8.6e5, None), ("b", 9e5, Some(8.5e5))];
        assert_eq!(requeued(&nodes, "b", &["b"]), Some((8.6e5, 1e6)));
        // It is not lost: the first step on another node came late, and is over.
        let nodes = [("a", 8e5, None), ("b", 9e5, Some(9e5 + 500.0))];
        assert_eq!(requeued(&nodes, "b", &["a"]), Some((8e5, 1e6)));
    }
}
