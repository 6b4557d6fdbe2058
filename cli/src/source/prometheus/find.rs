//! Finding a job: `jobledger_job_info` has who it is, also long after it ended.

use std::collections::{BTreeMap, BTreeSet};

use job_report::Identity;
use prometheus_api::{Labels, Sample};

use super::Prometheus;
use super::selector::{matcher, range};
use crate::job_id::JobId;
use crate::text::harmless;
use crate::{Failure, Kind};

/// A job that was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) id: u64,
    pub(super) cluster: Option<String>,
    pub(super) identity: Identity,
    /// The matchers of its series.
    pub(super) selector: Vec<String>,
}

const WHO: [&str; 11] = [
    "jobid",
    "user",
    "uid",
    "account",
    "partition",
    "qos",
    "name",
    "array_job_id",
    "array_task_id",
    "het_job_id",
    "sluid",
];

impl Prometheus {
    /// The job of this name; an error if there are several.
    pub(super) async fn find(&self, id: &JobId) -> Result<Found, Failure> {
        let answer = self.client.query(&self.who(&named(id)), self.until).await?;
        match choose(id, &answer, &self.scope.cluster_label)? {
            Some(found) => Ok(found),
            None => Err(self.not_found(id).await),
        }
    }

    /// Who has these matchers, as [`identities`] reads it.
    pub(super) fn who(&self, selections: &[Vec<String>]) -> String {
        let found: Vec<String> = selections
            .iter()
            .map(|matchers| {
                let matchers: Vec<&str> = matchers.iter().map(String::as_str).collect();
                let selector = self.scope.selector(&matchers);
                format!("last_over_time(jobledger_job_info{selector}{})", range(self.window))
            })
            .collect();
        format!("group by ({}, {}) ({})", WHO.join(", "), self.scope.cluster_label, found.join(" or "))
    }

    async fn not_found(&self, id: &JobId) -> Failure {
        let days = self.window / 86_400.0;
        let kept = self
            .client
            .flags()
            .await
            .ok()
            .and_then(|flags| flags.get("storage.tsdb.retention.time").cloned());
        let kept = kept
            .filter(|time| time != "0s")
            .map(|time| format!(", and the server keeps {}", harmless(&time)))
            .unwrap_or_default();
        let cluster = self
            .scope
            .cluster
            .as_deref()
            .map(|cluster| format!(" of cluster {}", harmless(cluster)))
            .unwrap_or_default();
        Failure::new(
            Kind::NotFound,
            format!(
                "job {id}{cluster}: no node showed it in the {days:.0} days looked at{kept}: --since looks further back"
            ),
        )
    }
}

/// The matchers of a job's name; of several a job may have any.
pub(super) fn named(id: &JobId) -> Vec<Vec<String>> {
    let number = |label: &str, number: u64| matcher(label, "=", &number.to_string());
    match id {
        // An element of an array is found by its number as well as an array by its leader's.
        JobId::Number(id) => vec![vec![number("jobid", *id)], vec![number("array_job_id", *id)]],
        JobId::Element { array, task } => {
            vec![vec![number("array_job_id", *array), number("array_task_id", *task)]]
        }
        JobId::Component { leader, .. } => vec![vec![number("het_job_id", *leader)]],
        JobId::Sluid(sluid) => vec![vec![matcher("sluid", "=", sluid)]],
    }
}

/// Who the jobs are, by cluster and number. Several series can be of one job: a node knows more of it than another, or more than at its start.
pub(super) fn identities(answer: &[Sample], cluster_label: &str) -> BTreeMap<(String, u64), Identity> {
    let mut jobs: BTreeMap<(String, u64), Identity> = BTreeMap::new();
    for sample in answer {
        let Some(number) = sample.labels.get("jobid").and_then(|id| id.parse().ok()) else { continue };
        let cluster = sample.labels.get(cluster_label).unwrap_or_default().to_owned();
        let identity = identity(&sample.labels);
        let best = jobs.entry((cluster, number)).or_default();
        if identity.known() >= best.known() {
            *best = identity;
        }
    }
    jobs
}

/// The one that is meant.
fn choose(id: &JobId, answer: &[Sample], cluster_label: &str) -> Result<Option<Found>, Failure> {
    let mut jobs = identities(answer, cluster_label);
    // The job of this very number goes before elements of an array that have it as their leader, if it is no array itself.
    if let JobId::Number(number) = id
        && jobs.iter().any(|((_, id), who)| id == number && who.array_job_id.is_empty())
    {
        jobs.retain(|(_, id), _| id == number);
    }
    if let JobId::Component { offset, .. } = id {
        // SLURM gives components numbers in a row (job_mgr.c, _job_create of each).
        let least = jobs.keys().map(|(_, id)| *id).min().unwrap_or(0);
        jobs.retain(|(_, id), _| *id == least + offset);
    }
    let clusters: BTreeSet<&str> = jobs.keys().map(|(cluster, _)| cluster.as_str()).collect();
    if clusters.len() > 1 {
        let list = clusters.iter().map(|cluster| harmless(cluster)).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("job {id} is of several clusters: --cluster with one of {list}")));
    }
    if jobs.len() > 1 {
        let first = jobs
            .values()
            .next()
            .map(|who| format!("{}_{}", who.array_job_id, who.array_task_id))
            .unwrap_or_default();
        return Err(Failure::usage(format!(
            "{id} is an array, of which {} elements were seen: choose one, such as {first}; `jobledger list --array {id}` shows all",
            jobs.len()
        )));
    }
    Ok(jobs.into_iter().next().map(|((cluster, id), identity)| {
        let mut selector = vec![matcher("jobid", "=", &id.to_string())];
        let cluster = (!cluster.is_empty()).then_some(cluster);
        selector.extend(cluster.as_deref().map(|cluster| matcher(cluster_label, "=", cluster)));
        Found { id, cluster: cluster.as_deref().map(harmless), identity, selector }
    }))
}

fn identity(labels: &Labels) -> Identity {
    let get = |name: &str| harmless(labels.get(name).unwrap_or_default());
    Identity {
        user: get("user"),
        uid: get("uid"),
        account: get("account"),
        partition: get("partition"),
        qos: get("qos"),
        name: get("name"),
        array_job_id: get("array_job_id"),
        array_task_id: get("array_task_id"),
        het_job_id: get("het_job_id"),
        sluid: get("sluid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(labels: &[(&str, &str)]) -> Sample {
        Sample { labels: labels.iter().copied().collect(), value: 1.0, time: 0.0 }
    }

    fn chosen(id: &str, answer: &[Sample]) -> Result<Option<(u64, String)>, String> {
        let found = choose(&id.parse().unwrap(), answer, "cluster").map_err(|failure| failure.to_string())?;
        Ok(found.map(|found| (found.id, found.identity.user)))
    }

    #[test]
    fn of_two_nodes_the_one_that_knows_more_counts() {
        let answer = [
            sample(&[("jobid", "7"), ("uid", "1000")]),
            sample(&[("jobid", "7"), ("user", "alice"), ("account", "physics")]),
            sample(&[("jobid", "7"), ("user", "1000")]),
        ];
        assert_eq!(chosen("7", &answer), Ok(Some((7, "alice".to_owned()))));
        assert_eq!(chosen("7", &[]), Ok(None));
    }

    #[test]
    fn an_array_has_to_be_narrowed() {
        let element = |id, task, user| {
            sample(&[("jobid", id), ("array_job_id", "9"), ("array_task_id", task), ("user", user)])
        };
        let answer = [element("7", "1", "a"), element("9", "2", "b")];
        let error = chosen("9", &answer).unwrap_err();
        assert!(error.contains("2 elements were seen: choose one, such as 9_1"), "{error}");
        assert_eq!(chosen("9_1", &answer[..1]), Ok(Some((7, "a".to_owned()))));
    }

    #[test]
    fn clusters_and_components_differ() {
        let answer =
            [sample(&[("jobid", "7"), ("cluster", "a")]), sample(&[("jobid", "7"), ("cluster", "b")])];
        assert!(chosen("7", &answer).unwrap_err().ends_with("--cluster with one of a, b"));
        let answer = [sample(&[("jobid", "7"), ("user", "a")]), sample(&[("jobid", "8"), ("user", "b")])];
        assert_eq!(chosen("7+1", &answer), Ok(Some((8, "b".to_owned()))));
    }
}
