//! Values of nodes at times.

use std::collections::BTreeSet;

use prometheus_api::Sample;
use tokio::task::JoinSet;

use super::amounts::{Counter, JobsThen};
use super::{Asking, Looked, Looks, NODES_AT_ONCE, Node, Prometheus};
use crate::Failure;
use crate::series::{INFO, START};
use crate::source::labels::ALL_LABELS;
use crate::source::prometheus::selector::any_of;

/// Labels of owners.
const OWNER: &str = "user, account, partition, qos";
/// Those of what nodes have beyond them.
const PART: &str = "domain, socket, gpu, uuid";

impl Prometheus {
    /// The values at all looks.
    pub(super) async fn look_at(
        &self,
        asking: &Asking,
        looks: Looks,
        looks_at_jobs: Looks,
    ) -> Result<Looked, Failure> {
        let mut asking_values = JoinSet::new();
        for (key, nodes) in looks {
            let queries = self.queries_of_values(asking, key, &nodes);
            for query in queries {
                let client = self.client.clone();
                asking_values
                    .spawn(async move { Ok::<_, Failure>((key, client.query(&query, at(key)).await?)) });
            }
        }
        let mut asking_jobs = JoinSet::new();
        for (key, nodes) in looks_at_jobs {
            for nodes in nodes.into_iter().collect::<Vec<_>>().chunks(NODES_AT_ONCE) {
                let (client, query) = (self.client.clone(), self.query_of_jobs(asking, key, nodes));
                asking_jobs
                    .spawn(async move { Ok::<_, Failure>((key, client.query(&query, at(key)).await?)) });
            }
        }
        let mut looked = Looked::default();
        let ended = |error: tokio::task::JoinError| Failure::other(error.to_string());
        while let Some(answer) = asking_values.join_next().await {
            let ((at, back), samples) = answer.map_err(ended)??;
            for sample in samples {
                let Some(counter) = sample.labels.name().and_then(Counter::of) else { continue };
                let owner = asking.label().and_then(|label| sample.labels.get(label)).unwrap_or_default();
                let values = looked.values.entry((at, back, self.node_of(&sample.labels))).or_default();
                *values.entry((counter, owner.to_owned())).or_default() += sample.value;
            }
        }
        while let Some(answer) = asking_jobs.join_next().await {
            let ((at, back), samples) = answer.map_err(ended)??;
            for sample in samples {
                let jobs = looked.jobs.entry((at, back, self.node_of(&sample.labels))).or_default();
                note_job(jobs, asking, &sample);
            }
        }
        Ok(looked)
    }

    /// The queries of values of these nodes at a time. Those of many nodes are of all, a series each.
    fn queries_of_values(
        &self,
        asking: &Asking,
        (_, back): (i64, i64),
        nodes: &BTreeSet<Node>,
    ) -> Vec<String> {
        let owner: Vec<&str> = asking.owner.iter().map(String::as_str).collect();
        let labels: Vec<&str> =
            [self.scope.cluster_label.as_str()].into_iter().chain(asking.label()).collect();
        let kept = labels.join(", ");
        let sum = |names: &[&str], matchers: &[&str]| {
            let names = any_of("__name__", names.iter().copied());
            let matchers: Vec<&str> = matchers.iter().copied().chain([names.as_str()]).collect();
            let series = self.scope.selector(&matchers);
            format!(
                "sum by (__name__, instance, {kept}) (max by (__name__, instance, {OWNER}, {PART}, {}) (last_over_time({series}[{back}ms])))",
                self.scope.cluster_label
            )
        };
        let (of_owners, of_nodes) = asking.series();
        if nodes.len() > NODES_AT_ONCE {
            let of_owners = of_owners.iter().map(|series| sum(&[series], &owner));
            return of_owners.chain(of_nodes.iter().map(|series| sum(&[series], &[]))).collect();
        }
        let instances = any_of("instance", nodes.iter().map(|(_, instance)| instance.as_str()));
        let of_owner: Vec<&str> = owner.iter().copied().chain([instances.as_str()]).collect();
        vec![sum(&of_owners, &of_owner), sum(&of_nodes, &[&instances])]
    }

    /// The query of the jobs of these nodes at a time.
    fn query_of_jobs(&self, asking: &Asking, (_, back): (i64, i64), nodes: &[Node]) -> String {
        let counters =
            Counter::OF_OWNERS.into_iter().flat_map(|counter| counter.series_of_jobs().iter().copied());
        let names = any_of("__name__", counters.chain([START]));
        let instances = any_of("instance", nodes.iter().map(|(_, instance)| instance.as_str()));
        let owner: Vec<&str> = asking.owner.iter().map(String::as_str).chain([instances.as_str()]).collect();
        let (series, info) = (self.scope.selector(&[&names, &instances]), self.scope.selector(&owner));
        let cluster = &self.scope.cluster_label;
        format!(
            "max by ({ALL_LABELS}, {cluster}) (last_over_time({series}[{back}ms])) \
             or max by (__name__, jobid, instance, slurm_node, {OWNER}, {cluster}) (last_over_time({INFO}{info}[{back}ms]))"
        )
    }
}

fn at((at, _): (i64, i64)) -> f64 {
    at as f64 / 1000.0
}

/// Adds a series of a job to it.
fn note_job(jobs: &mut JobsThen, asking: &Asking, sample: &Sample) {
    let get = |name: &str| sample.labels.get(name).unwrap_or_default().to_owned();
    let job = jobs.entry((get("jobid"), get("slurm_node"))).or_default();
    match sample.labels.name() {
        Some(START) => job.start = sample.value,
        Some(INFO) => {
            let owner = asking.label().map(get).unwrap_or_default();
            // A series of before its owner was known may be there, too.
            job.owner = job.owner.take().filter(|known| !known.is_empty()).or(Some(owner));
        }
        name => {
            if let Some(counter) = name.and_then(Counter::of_job) {
                *job.values.entry(counter).or_default() += sample.value;
            }
        }
    }
}
