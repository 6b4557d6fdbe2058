//! Many jobs at once, without curves.

use job_report::Job;
use tokio::task::JoinSet;

use super::Prometheus;
use super::find::{self, Found, identities};
use super::selector::{any_of, matcher, range};
use crate::Failure;
use crate::job_id::JobId;
use crate::text::harmless;

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
    /// The last run of each job that was seen in the window, by its start.
    pub async fn list(&self, selection: &Selection) -> Result<Vec<Job>, Failure> {
        let who = self.client.query(&self.who(&selection.matchers()), self.until).await?;
        let jobs = identities(&who, &self.scope.cluster_label);
        let numbers: Vec<String> = jobs.keys().map(|(_, id)| id.to_string()).collect();
        let mut asking = JoinSet::new();
        for numbers in numbers.chunks(AT_ONCE) {
            let selector = [any_of("jobid", numbers.iter().map(String::as_str))];
            let this = self.clone();
            asking.spawn(async move { this.measure(&selector, this.until, this.window).await });
        }
        let mut found = Vec::new();
        while let Some(answers) = asking.join_next().await {
            let answers = answers.map_err(|error| Failure::other(error.to_string()))??;
            for (key, answers) in answers.by_job(&self.scope.cluster_label) {
                let Some(identity) = jobs.get(&key) else { continue };
                let mut measured = answers.measured();
                let Some(last) = measured.runs().pop() else { continue };
                measured.keep(&last.nodes);
                let (cluster, id) = key;
                let cluster = (!cluster.is_empty()).then(|| harmless(&cluster));
                found.push((
                    measured,
                    Found { id, cluster, identity: identity.clone(), selector: Vec::new() },
                ));
            }
        }
        let mut exporters: Vec<_> =
            found.iter().flat_map(|(measured, _)| measured.exporters.iter().cloned()).collect();
        exporters.sort();
        exporters.dedup();
        let facts = match exporters.is_empty() {
            true => Vec::new(),
            false => self.client.query(&self.hardware(&exporters, range(self.window)), self.until).await?,
        };
        let mut jobs: Vec<Job> = found
            .into_iter()
            .map(|(mut measured, found)| {
                measured.add_others(&facts);
                let runs = measured.runs_seen.max(1);
                measured.into_job(found, (runs, runs))
            })
            .collect();
        jobs.sort_by(|a, b| a.start().total_cmp(&b.start()).then(a.id.cmp(&b.id)));
        Ok(jobs)
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
    fn matchers(&self) -> Vec<Vec<String>> {
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
