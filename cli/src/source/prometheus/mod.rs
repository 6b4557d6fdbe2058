//! Reports from Prometheus, or a server with its API.
//!
//! Queries of a report: one that finds the job, two that measure it at its end, four over its time; of a page two more for its steps. All read
//! the exporter's own series, so no recording rule is needed.

mod changes;
mod ended;
mod ends;
mod find;
mod gpu_times;
mod list;
mod measure;
mod over_time;
mod running;
mod runs;
pub use over_time::{OF_PAGES, OF_REPORTS};
mod selector;
mod usage;

use std::collections::BTreeSet;

use job_report::{Identity, Report, Thresholds};
use prometheus_api::Client;

use super::accounting::{self, Record, Sacct};
use super::identity::Who;
use super::{Source, Wanted, WhichRun, pick_run};
use crate::job_id::{JobId, shown};
use crate::{Failure, Kind};
use selector::matcher;

pub use ended::EndedJob;
pub use ends::{Ends, Seen};
pub use gpu_times::{GpuCurves, GpuTimes, JobGpus};
pub use list::Selection;
pub use measure::APART;
pub use running::RunningJob;
pub use selector::Scope;
pub use usage::{Counter, Of, Usage, Used};

/// A server.
#[derive(Debug, Clone)]
pub struct Prometheus {
    /// Its client.
    pub client: Client,
    /// Which jobs are looked at.
    pub scope: Scope,
    /// Where a job is looked for: seconds before `until`.
    pub window: f64,
    /// The last time that is looked at, seconds since the epoch.
    pub until: f64,
    /// Of advice.
    pub thresholds: Thresholds,
    /// What SLURM is asked with, if it is.
    pub sacct: Option<Sacct>,
}

impl Source for Prometheus {
    async fn report(&self, wanted: &Wanted<'_>) -> Result<Report, Failure> {
        let who = match self.find(wanted.id).await {
            Err(unknown) if unknown.kind == Kind::NotFound => self.find_by_number(wanted.id, unknown).await?,
            found => found?,
        };
        // Nodes of another cluster may have the same names.
        let cluster = who.cluster.clone().or_else(|| self.scope.cluster.clone());
        let of_cluster = Self { scope: Scope { cluster, ..self.scope.clone() }, ..self.clone() };
        of_cluster.report_of(who, wanted).await
    }
}

impl Prometheus {
    /// The report of a job of the scope's cluster.
    async fn report_of(&self, who: Who, wanted: &Wanted<'_>) -> Result<Report, Failure> {
        let selector = [matcher("jobid", "=", &who.id.to_string())];
        let (first, accounting) = tokio::join!(
            self.measure(&selector, self.at_last(), wanted.curves),
            self.accounting(who.id, &who.identity)
        );
        let (records, mut notes) = match accounting {
            Some(records) => (records, Vec::new()),
            None => (Vec::new(), vec![accounting::NOT_KNOWN.to_owned()]),
        };
        let found = self.runs_of(&selector, &who, first?, wanted.curves).await?;
        let runs = runs::of_last_job(runs::joined(found, &records), &records);
        let count = runs.last().map(|(number, _)| *number).ok_or_else(|| not_measured(wanted.id))?;
        let (run, mut found) = pick_run(wanted, runs)?;
        self.over_time(&selector, &mut found, wanted).await?;
        if count > 1 && wanted.run == WhichRun::Last {
            notes.push(format!(
                "The job was requeued: this is the last of its {count} runs; --run=1 shows the first."
            ));
        }
        let mut job = found.measured.into_job(found.who, (run, count));
        accounting::fill(&mut job, &records);
        Ok(Report::new(job, &self.thresholds, notes))
    }

    /// An element of an array or a component, by the number that SLURM's accounting has of it: without the prolog's file no node knows the name.
    async fn find_by_number(&self, id: &JobId, unknown: Failure) -> Result<Who, Failure> {
        let (Some(sacct), JobId::Element { .. } | JobId::Component { .. }) = (&self.sacct, id) else {
            return Err(unknown);
        };
        let Some(records) = sacct.records(&id.to_string(), self.scope.cluster.as_deref()).await else {
            return Err(unknown);
        };
        let numbers: BTreeSet<u64> = records.iter().map(|record| record.id).collect();
        let Some(number) = numbers.first().filter(|_| numbers.len() == 1) else { return Err(unknown) };
        let mut who = self.find(&JobId::Number(*number)).await.map_err(|_| unknown)?;
        match id {
            JobId::Element { array, task } => {
                who.identity.array_job_id = array.to_string();
                who.identity.array_task_id = task.to_string();
            }
            JobId::Component { leader, .. } => who.identity.het_job_id = leader.to_string(),
            JobId::Number(_) | JobId::Sluid(_) => {}
        }
        Ok(who)
    }

    async fn accounting(&self, id: u64, who: &Identity) -> Option<Vec<Record>> {
        match &self.sacct {
            Some(sacct) => sacct.records(&shown(id, who), self.scope.cluster.as_deref()).await,
            None => Some(Vec::new()),
        }
    }
}

fn of(name: &str, selector: &str) -> String {
    format!("{name}{selector}")
}

fn not_measured(id: &JobId) -> Failure {
    Failure::new(Kind::NotFound, format!("job {id}: the server knows who it is, and nothing of what it used"))
}

#[cfg(test)]
mod tests;
