//! Many jobs at once, without curves.

use std::collections::BTreeMap;

use job_report::{Job, Run};
use prometheus_api::Sample;
use tokio::task::JoinSet;

use super::Prometheus;
use super::find;
use super::measure::{Answers, by_job};
use super::selector::{any_of, matcher, range};
use crate::Failure;
use crate::job_id::JobId;
use crate::source::identity::{Who, identities};
use crate::source::measured::Measured;

/// Which jobs are listed. What is not set does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this user.
    pub user: Option<String>,
    /// Of this account.
    pub account: Option<String>,
    /// In this partition.
    pub partition: Option<String>,
    /// Elements of this array.
    pub array: Option<u64>,
    /// One of these.
    pub ids: Vec<JobId>,
}

/// Jobs of one query: their numbers are in its selector.
const AT_ONCE: usize = 100;

impl Prometheus {
    /// The last run of each job that was seen in the window, by its start; of those alone whose cluster's label and number are wanted.
    pub async fn list(
        &self,
        selection: &Selection,
        is_wanted: impl Fn(&(String, u64)) -> bool,
    ) -> Result<Vec<Job>, Failure> {
        let who = self.client.query(&self.who(&selection.matchers()), self.until).await?;
        let mut jobs = identities(&who, &self.scope.cluster_label);
        jobs.retain(|key, _| is_wanted(key));
        let numbers: Vec<String> = jobs.keys().map(|(_, id)| id.to_string()).collect();
        let mut asking = JoinSet::new();
        for numbers in numbers.chunks(AT_ONCE) {
            let selector = [any_of("jobid", numbers.iter().map(String::as_str))];
            let this = self.clone();
            let endings = format!("last_over_time({}{})", this.endings(&selector), range(this.window));
            asking.spawn(async move {
                tokio::try_join!(this.measure(&selector, this.until, this.window, &[]), async {
                    Ok(this.client.query(&endings, this.until).await?)
                })
            });
        }
        let (mut found, mut requeued) = (Vec::new(), JoinSet::new());
        while let Some(answers) = asking.join_next().await {
            let (answers, endings) = answers.map_err(|error| Failure::other(error.to_string()))??;
            let mut endings = by_job(endings, &self.scope.cluster_label);
            for (key, answers) in answers.by_job(&self.scope.cluster_label) {
                let Some(identity) = jobs.get(&key) else { continue };
                let (cluster, id) = key.clone();
                let who = Who {
                    id,
                    cluster: Some(cluster).filter(|name| !name.is_empty()),
                    identity: identity.clone(),
                };
                let mut measured = answers.measured();
                if measured.runs_seen > 1 {
                    let this = self.clone();
                    requeued
                        .spawn(async move { this.last_run(&key, &answers).await.map(|last| (last, who)) });
                } else {
                    measured.add_others(&endings.remove(&key).unwrap_or_default());
                    found.push((measured, who));
                }
            }
        }
        while let Some(last) = requeued.join_next().await {
            found.push(last.map_err(|error| Failure::other(error.to_string()))??);
        }
        found.retain(|(measured, _)| !measured.nodes.is_empty());
        let mut exporters: Vec<_> =
            found.iter().flat_map(|(measured, _)| measured.exporters.iter().cloned()).collect();
        exporters.sort();
        exporters.dedup();
        let facts = match exporters.is_empty() {
            true => Vec::new(),
            false => self.client.query(&self.hardware(&exporters, range(self.window)), self.until).await?,
        };
        let mut of_clusters: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        for fact in facts {
            let cluster = fact.labels.get(&self.scope.cluster_label).unwrap_or_default().to_owned();
            of_clusters.entry(cluster).or_default().push(fact);
        }
        let mut jobs: Vec<Job> = found
            .into_iter()
            .map(|(mut measured, who)| {
                add_facts(&mut measured, &of_clusters, who.cluster.as_deref());
                let runs = measured.runs_seen;
                measured.into_job(who, (runs, runs))
            })
            .collect();
        jobs.sort_by(|a, b| a.start().total_cmp(&b.start()).then(a.id.cmp(&b.id)));
        Ok(jobs)
    }
}

impl Prometheus {
    /// The last run of a job that had several, by what was answered of it together with other jobs.
    async fn last_run(&self, (cluster, id): &(String, u64), answers: &Answers) -> Result<Measured, Failure> {
        let selector = find::series_of(*id, cluster, &self.scope.cluster_label);
        let measured = answers.measured();
        let Some(Run { start, until, .. }) = measured.runs().pop() else { return Ok(measured) };
        // What was said before may be of an earlier run.
        let endings = self.endings_of_run(&selector, (start, until), self.until);
        let again = async {
            match answers.has_restarts() {
                true => Ok(self.measure(&selector, self.until, self.window, &[]).await?.measured()),
                false => Ok(measured),
            }
        };
        let (mut measured, said) = tokio::try_join!(again, async {
            Ok::<_, Failure>(self.client.query(&endings, self.until).await?)
        })?;
        let nodes = measured.runs().pop().map(|last| last.nodes).unwrap_or_default();
        measured.keep(&nodes);
        measured.add_others(&said);
        Ok(measured)
    }
}

/// Adds facts, by their cluster. Nodes of two clusters may have the same names, and what is of the site may be of no cluster. A job without a
/// cluster has the factors of all, as in its report.
fn add_facts(measured: &mut Measured, of_clusters: &BTreeMap<String, Vec<Sample>>, cluster: Option<&str>) {
    for (name, facts) in of_clusters {
        if name.is_empty() || cluster == Some(name) {
            measured.add_others(facts);
        } else if cluster.is_none() {
            let is_factor = |fact: &&Sample| fact.labels.get("instance").is_none();
            measured.add_others(&facts.iter().filter(is_factor).cloned().collect::<Vec<_>>());
        }
    }
}

impl Selection {
    /// Whose they are.
    pub(super) fn owner(&self) -> Vec<String> {
        let text =
            |label: &str, value: &Option<String>| value.as_deref().map(|value| matcher(label, "=", value));
        let parts =
            [text("user", &self.user), text("account", &self.account), text("partition", &self.partition)];
        parts.into_iter().flatten().collect()
    }

    /// Of each of the jobs that were named, or of all.
    pub(super) fn matchers(&self) -> Vec<Vec<String>> {
        let mut common = self.owner();
        common.extend(self.array.map(|array| matcher("array_job_id", "=", &array.to_string())));
        if self.ids.is_empty() {
            return vec![common];
        }
        let with = |mut matchers: Vec<String>| {
            matchers.extend(common.iter().cloned());
            matchers
        };
        self.ids.iter().flat_map(find::named).map(with).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::START;
    use crate::source::measured::{measured, sample};

    #[test]
    fn jobs_have_the_hardware_of_their_cluster_and_without_one_all_factors() {
        let facts = |cluster: Option<&str>| {
            let of_node = |cpus| sample(&[("__name__", "jobledger_node_cpus"), ("instance", "n1")], cpus);
            let of_clusters = BTreeMap::from([
                (String::new(), vec![of_node(4.0)]),
                ("x".to_owned(), vec![of_node(8.0), sample(&[("cluster", "x")], 360.0)]),
            ]);
            let mut job = measured(&[sample(&[("__name__", START), ("instance", "n1")], 1.0)], &[]);
            add_facts(&mut job, &of_clusters, cluster);
            (job.nodes[0].hardware.cpus, job.grams_per_joule.map(|grams| grams * 3.6e6))
        };
        assert_eq!(facts(Some("x")), (Some(8.0), Some(360.0)));
        assert_eq!(facts(Some("y")), (Some(4.0), None));
        assert_eq!(facts(None), (Some(4.0), Some(360.0)));
    }
}
