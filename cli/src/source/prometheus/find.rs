//! Finding a job: `jobledger_job_info` has who it is, also long after it ended.

use super::Prometheus;
use super::selector::{matcher, range};
use crate::job_id::{JobId, component};
use crate::source::identity::{Who, choose};
use crate::text::harmless;
use crate::{Failure, Kind};

pub(super) const WHO: [&str; 11] = [
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
    pub(super) async fn find(&self, id: &JobId) -> Result<Who, Failure> {
        let answer = self.client.query(&self.who(&named(id)), self.until).await?;
        match choose(id, &answer, &self.scope.cluster_label)? {
            Some(who) => Ok(who),
            None => Err(self.not_found(id).await),
        }
    }

    /// Who has these matchers, as `identities` reads it.
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
        JobId::Component { leader, offset } => {
            vec![vec![number("het_job_id", *leader), number("jobid", component(*leader, *offset))]]
        }
        JobId::Sluid(sluid) => vec![vec![matcher("sluid", "=", sluid)]],
    }
}

/// The matchers of a job's series; the cluster may be none.
pub(super) fn series_of(id: u64, cluster: &str, cluster_label: &str) -> Vec<String> {
    let mut selector = vec![matcher("jobid", "=", &id.to_string())];
    selector.extend((!cluster.is_empty()).then(|| matcher(cluster_label, "=", cluster)));
    selector
}
