//! Who a job is: the labels of `jobledger_job_info`.

use std::collections::{BTreeMap, BTreeSet};

use job_report::Identity;
use prometheus_api::{Labels, Sample};

use crate::Failure;
use crate::job_id::JobId;
use crate::text::harmless;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Who {
    pub(super) id: u64,
    /// As the label has it.
    pub(super) cluster: Option<String>,
    pub(super) identity: Identity,
    /// So many users had jobs of this number. Of several, the identity is that of one.
    pub(super) owners: usize,
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
pub(super) fn choose(id: &JobId, answer: &[Sample], cluster_label: &str) -> Result<Option<Who>, Failure> {
    let mut jobs = identities(answer, cluster_label);
    // The job of this very number goes before elements of an array that have it as their leader, if it is no array itself.
    if let JobId::Number(number) = id
        && jobs.iter().any(|((_, id), who)| id == number && who.array_job_id.is_empty())
    {
        jobs.retain(|(_, id), _| id == number);
    }
    let clusters: BTreeSet<&str> = jobs.keys().map(|(cluster, _)| cluster.as_str()).collect();
    if clusters.len() > 1 {
        return Err(several_clusters(&format!("job {id}"), clusters));
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
    Ok(jobs.into_iter().next().map(|((cluster, id), identity)| Who {
        id,
        owners: owners(answer, cluster_label).get(&(cluster.clone(), id)).copied().unwrap_or(1),
        cluster: (!cluster.is_empty()).then_some(cluster),
        identity,
    }))
}

/// A user: its number, or where that is not known its name.
pub(super) fn owner(labels: &Labels) -> Option<&str> {
    ["uid", "user"].into_iter().filter_map(|label| labels.get(label)).find(|text| !text.is_empty())
}

/// How many users had jobs of a number, by cluster and number.
pub(super) fn owners(answer: &[Sample], cluster_label: &str) -> BTreeMap<(String, u64), usize> {
    let mut users: BTreeMap<(String, u64), BTreeSet<&str>> = BTreeMap::new();
    for sample in answer {
        let get = |label| sample.labels.get(label).unwrap_or_default();
        if let Ok(number) = get("jobid").parse() {
            let users = users.entry((get(cluster_label).to_owned(), number)).or_default();
            users.extend(owner(&sample.labels));
        }
    }
    users.into_iter().map(|(key, users)| (key, users.len())).collect()
}

/// Why a job or an array has to be narrowed.
pub(crate) fn several_clusters<'a>(what: &str, clusters: impl IntoIterator<Item = &'a str>) -> Failure {
    let list = clusters.into_iter().map(harmless).collect::<Vec<_>>().join(", ");
    Failure::usage(format!("{what} is of several clusters: --cluster with one of {list}"))
}

pub(super) fn identity(labels: &Labels) -> Identity {
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
        Ok(found.map(|who| (who.id, who.identity.user)))
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
    fn clusters_differ() {
        let answer =
            [sample(&[("jobid", "7"), ("cluster", "a")]), sample(&[("jobid", "7"), ("cluster", "b")])];
        assert!(chosen("7", &answer).unwrap_err().ends_with("--cluster with one of a, b"));
    }
}
