//! Many jobs at once, without curves.

use std::collections::{BTreeMap, BTreeSet};

use job_report::{Identity, Job};
use prometheus_api::Sample;
use tokio::task::JoinSet;

use super::measure::by_job;
use super::runs;
use super::selector::{any_of, matcher, range};
use super::{Prometheus, find};
use crate::Failure;
use crate::job_id::JobId;
use crate::source::accounting::{self, Record};
use crate::source::identity::{Who, identities, owners};
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
/// Of more jobs SLURM's accounting is not asked: a question of it takes as long as all others together.
const MOST_ACCOUNTED: usize = 5000;

impl Prometheus {
    /// The runs of each job that was seen in the window, by their starts; of those alone whose cluster's label and number are wanted.
    pub async fn list(
        &self,
        selection: &Selection,
        is_wanted: impl Fn(&(String, u64)) -> bool,
    ) -> Result<Vec<Job>, Failure> {
        let who = self.client.query(&self.who(&selection.matchers()), self.until).await?;
        let (mut jobs, owners) =
            (identities(&who, &self.scope.cluster_label), owners(&who, &self.scope.cluster_label));
        jobs.retain(|key, _| is_wanted(key));
        let numbers: Vec<String> = jobs.keys().map(|(_, id)| id.to_string()).collect();
        let mut asking = JoinSet::new();
        for numbers in numbers.chunks(AT_ONCE) {
            let selector = [any_of("jobid", numbers.iter().map(String::as_str))];
            let this = self.clone();
            let endings = format!("last_over_time({}{})", this.endings(&selector), range(this.window));
            asking.spawn(async move {
                tokio::try_join!(this.measure(&selector, this.at_last(), &[]), async {
                    Ok(this.client.query(&endings, this.until).await?)
                })
            });
        }
        let (mut found, mut several) = (Vec::new(), JoinSet::new());
        while let Some(answers) = asking.join_next().await {
            let (answers, endings) = answers.map_err(|error| Failure::other(error.to_string()))??;
            let mut endings = by_job(endings, &self.scope.cluster_label);
            for (key, answers) in answers.by_job(&self.scope.cluster_label) {
                let Some(identity) = jobs.get(&key) else { continue };
                let owners = owners.get(&key).copied().unwrap_or(1);
                let cluster = Some(key.0.clone()).filter(|name| !name.is_empty());
                let who = Who { id: key.1, cluster, identity: identity.clone(), owners };
                let mut measured = answers.measured();
                measured.end_by(self.until);
                if measured.runs_seen > 1 || owners > 1 {
                    let this = self.clone();
                    let selection = selection.clone();
                    several.spawn(async move { this.several(&key, who, &selection).await });
                } else {
                    measured.add_others(&endings.remove(&key).unwrap_or_default());
                    found.push((measured, who, (1, 1)));
                }
            }
        }
        while let Some(runs) = several.join_next().await {
            found.extend(runs.map_err(|error| Failure::other(error.to_string()))??);
        }
        found.retain(|(measured, ..)| !measured.nodes.is_empty());
        let mut exporters: Vec<_> =
            found.iter().flat_map(|(measured, ..)| measured.exporters.iter().cloned()).collect();
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
            .map(|(mut measured, who, runs)| {
                add_facts(&mut measured, &of_clusters, who.cluster.as_deref());
                measured.into_job(who, runs)
            })
            .collect();
        self.account(&mut jobs).await;
        jobs.sort_by(|a, b| a.start().total_cmp(&b.start()).then(a.id.cmp(&b.id)));
        Ok(jobs)
    }

    /// The runs of a number that had several, with their places among those of their job; of the selected owner alone.
    async fn several(
        &self,
        (cluster, id): &(String, u64),
        who: Who,
        selection: &Selection,
    ) -> Result<Vec<(Measured, Who, (usize, usize))>, Failure> {
        let selector = find::series_of(*id, cluster, &self.scope.cluster_label);
        // Asked for together with other jobs, it has values of earlier runs.
        let first = self.measure(&selector, self.at_last(), &[]).await?;
        let runs = self.runs_of(&selector, &who, first, &[]).await?;
        let records = match &self.sacct {
            Some(sacct) => {
                sacct.for_lists().records(&id.to_string(), who.cluster.as_deref()).await.unwrap_or_default()
            }
            None => Vec::new(),
        };
        let mut found = Vec::new();
        for job in runs::jobs(runs::joined(runs, &records), &records) {
            let count = job.last().map_or(0, |(number, _)| *number);
            for (number, run) in job.into_iter().filter(|(_, run)| selection.is_of(&run.who)) {
                let mut measured = run.measured;
                let seen = measured.nodes.iter().fold((f64::INFINITY, 0.0f64), |(start, until), node| {
                    (start.min(node.start), until.max(node.seen_until))
                });
                // What was said before may be of an earlier run.
                let endings = self.endings_of_run(&selector, seen, run.at);
                measured.add_others(&self.client.query(&endings, run.at).await?);
                found.push((measured, run.who, (number, count)));
            }
        }
        Ok(found)
    }

    /// Adds what SLURM's accounting has of jobs.
    async fn account(&self, jobs: &mut [Job]) {
        let records = self.records_of(jobs.iter().map(|job| (job.cluster.clone(), job.id)).collect()).await;
        for job in jobs {
            if let Some(records) = records.get(&job.cluster) {
                accounting::fill(job, records);
            }
        }
    }

    /// What SLURM's accounting has of numbers, by cluster, if they are not too many. Lists do without it where it cannot be asked.
    pub(super) async fn records_of(
        &self,
        numbers: BTreeSet<(Option<String>, u64)>,
    ) -> BTreeMap<Option<String>, Vec<Record>> {
        let mut found: BTreeMap<Option<String>, Vec<Record>> = BTreeMap::new();
        let Some(sacct) = self.sacct.as_ref().filter(|_| numbers.len() <= MOST_ACCOUNTED) else {
            return found;
        };
        let sacct = sacct.for_lists();
        let mut clusters: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for (cluster, number) in numbers {
            clusters.entry(cluster).or_default().push(number.to_string());
        }
        for (cluster, numbers) in clusters {
            for numbers in numbers.chunks(AT_ONCE) {
                let Some(records) = sacct.records(&numbers.join(","), cluster.as_deref()).await else {
                    return found;
                };
                found.entry(cluster.clone()).or_default().extend(records);
            }
        }
        found
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

    /// Whether a run is of the selected owner.
    fn is_of(&self, who: &Who) -> bool {
        let is =
            |wanted: &Option<String>, known: &str| wanted.as_deref().is_none_or(|wanted| wanted == known);
        let Identity { user, account, partition, .. } = &who.identity;
        is(&self.user, user) && is(&self.account, account) && is(&self.partition, partition)
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
