//! What a job used: the last values of its counters, which the exporter shows for a while after its end.

use std::collections::BTreeMap;

use job_report::Metric;
use job_report::metric::{self, Kind};
use prometheus_api::Sample;

use super::Prometheus;
use super::selector::{named, range};
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
        let totals: Vec<&'static Metric> =
            metric::ALL.iter().copied().filter(|m| m.kind != Kind::Gauge && is_asked_for(m)).collect();
        let (range, cluster) = (range(window), &self.scope.cluster_label);
        let wanted = of_jobs(&named(&totals, &[START, END, GPUS]));
        let values = self.scope.parts(&format!("last_over_time({wanted}{range})"));
        let (start, end, info) = (of(START, &of_jobs("")), of(END, &of_jobs("")), of(GPU_INFO, &of_jobs("")));
        // What runs now; the GPUs; and without a name: how often the start changed on a node.
        // VictoriaMetrics counts the first sample as a change, too: how often a label that never changes did is taken off.
        let on = format!("(jobid, instance, slurm_node, {cluster})");
        let changes = |series: &str| format!("max by {on} (changes({series}{range}))");
        let others = format!(
            "{start} unless on {on} {end} or last_over_time({info}{range}) \
             or max by (jobid, {cluster}) ({} - on {on} {})",
            changes(&start),
            changes(&of(INFO, &of_jobs("")))
        );
        let (values, others) =
            tokio::try_join!(self.client.query(&values, at), self.client.query(&others, at))?;
        Ok(Answers { values, others })
    }
}

fn of(name: &str, selector: &str) -> String {
    format!("{name}{selector}")
}
