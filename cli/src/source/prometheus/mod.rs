//! Reports from Prometheus, or a server with its API.
//!
//! Queries of a report: one that finds the job, two that measure it at its end, four over its time; of a page two more for its steps. All read
//! the exporter's own series, so no recording rule is needed.

mod ended;
mod find;
mod gpu_times;
mod list;
mod measure;
mod never_ran;
mod over_time;
mod running;
pub use over_time::{OF_PAGES, OF_REPORTS};
mod selector;

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
pub use gpu_times::{GpuTimes, JobGpus};
pub use list::Selection;
pub use running::RunningJob;
pub use selector::Scope;

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

/// How many runs of a job are looked for.
const MOST_RUNS: usize = 100;

impl Source for Prometheus {
    async fn report(&self, wanted: &Wanted<'_>) -> Result<Report, Failure> {
        let who = match self.find(wanted.id).await {
            Err(unknown) if unknown.kind == Kind::NotFound => match self
                .find_by_number(wanted.id, unknown)
                .await
            {
                Ok(who) => who,
                Err(unknown) => {
                    return Err(never_ran::reason(self.sacct.as_ref(), wanted.id, self.until, unknown).await);
                }
            },
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
        let mut notes = Vec::new();
        let mut measured = self.measure(&selector, self.until, self.window, wanted.curves).await?.measured();
        let (mut at, mut earlier) = (self.until, Vec::new());
        loop {
            let parts = measured.runs();
            let last = parts.last().ok_or_else(|| not_measured(wanted.id))?;
            let start = last.start;
            if wanted.run == WhichRun::Last || earlier.len() >= MOST_RUNS {
                measured.keep(&last.nodes);
                break;
            }
            // Of a run before, a node has the series that the later run continued: its values are those before that began.
            let mut this = measured.clone();
            this.keep(&last.nodes);
            earlier.push((at, this));
            let window = start - 1.0 - (self.until - self.window);
            if window <= 0.0 {
                break;
            }
            at = start - 1.0;
            let before = self.measure(&selector, at, window, wanted.curves).await?.measured();
            if before.nodes.is_empty() {
                break;
            }
            measured = before;
        }
        let (mut run, mut count) = (measured.runs_seen, measured.runs_seen);
        if let WhichRun::Number(_) = wanted.run {
            earlier.reverse();
            count = earlier.len();
            (run, (at, measured)) = pick_run(wanted, earlier)?;
        }
        let (over_time, accounting) = tokio::join!(
            self.over_time(&selector, &mut measured, wanted, at),
            self.accounting(who.id, &who.identity)
        );
        over_time?;
        if count > 1 && wanted.run == WhichRun::Last {
            notes.push(format!(
                "The job was requeued: this is its last of {count} runs or more; --run=1 shows the first."
            ));
        }
        let mut job = measured.into_job(who, (run, count));
        match accounting {
            Ok(records) => accounting::fill(&mut job, records),
            Err(note) => notes.push(note),
        }
        Ok(Report::new(job, &self.thresholds, notes))
    }

    /// An element of an array or a component, by the number that SLURM's accounting has of it: without the prolog's file no node knows the name.
    async fn find_by_number(&self, id: &JobId, unknown: Failure) -> Result<Who, Failure> {
        let (Some(sacct), JobId::Element { .. } | JobId::Component { .. }) = (&self.sacct, id) else {
            return Err(unknown);
        };
        let Ok(records) = sacct.records(&id.to_string()).await else { return Err(unknown) };
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

    async fn accounting(&self, id: u64, who: &Identity) -> Result<Vec<Record>, String> {
        match &self.sacct {
            Some(sacct) => sacct.records(&shown(id, who)).await,
            None => Ok(Vec::new()),
        }
    }
}

fn not_measured(id: &JobId) -> Failure {
    Failure::new(Kind::NotFound, format!("job {id}: the server knows who it is, and nothing of what it used"))
}

#[cfg(test)]
mod tests;
