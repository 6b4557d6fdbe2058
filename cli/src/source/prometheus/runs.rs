//! The runs of a number: each as it was measured before the next one, with its owner.

use std::collections::{BTreeMap, BTreeSet};

use job_report::{CLOCKS, Identity, Job, Metric};
use prometheus_api::{Labels, Sample};

use super::find::WHO;
use super::measure::{Answers, Before};
use super::over_time::RETAINED;
use super::selector::range;
use super::{Prometheus, of};
use crate::Failure;
use crate::series::{INFO, START};
use crate::source::accounting::{Record, record_of};
use crate::source::identity::{Who, identity, owner};
use crate::source::measured::{Measured, exporter};

/// How many runs of a number are looked for.
const MOST_RUNS: usize = 100;
/// Seconds before the end of a run in which its owner is looked for, where a node had jobs of several owners with its number.
const LATELY: f64 = 900.0;

/// A run of a number.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// It was measured then: before what is exported of the next run.
    pub(super) at: f64,
    /// What is exported of the run before is before this time.
    pub(super) from: f64,
    pub(super) measured: Measured,
    pub(super) who: Who,
    /// How often it was requeued before, where SLURM's prolog said it.
    restarts: Option<f64>,
}

impl Found {
    /// Of several runs of a number, with the accounting's records.
    fn job(&self) -> Job {
        self.measured.clone().into_job(self.who.clone(), (1, 1))
    }

    fn start(&self) -> f64 {
        self.measured.nodes.iter().map(|node| node.start).fold(f64::INFINITY, f64::min)
    }
}

impl Prometheus {
    /// All runs of a number, the earliest first, of which `first` is what was answered at last. The scope is the number's cluster.
    pub(super) async fn runs_of(
        &self,
        selector: &[String],
        who: &Who,
        first: Answers,
        more: &[&'static Metric],
    ) -> Result<Vec<Found>, Failure> {
        let mut found: Vec<Found> = Vec::new();
        let earliest = self.until - self.window;
        let (mut at, mut answers) = (self.until, first);
        loop {
            let mut measured = answers.measured();
            measured.end_by(at);
            // What had a sample lately when the next run began does not run any more.
            if !found.is_empty() {
                measured.nodes.iter_mut().for_each(|node| node.running = false);
            }
            let restarted = measured.runs_seen > 1;
            let Some(last) = measured.runs().pop() else { break };
            measured.keep(&last.nodes);
            // A clock that is ahead shows a run twice.
            if found.last().is_some_and(|next| (next.start() - last.start).abs() < CLOCKS) {
                break;
            }
            found.push(Found { at, from: last.start - CLOCKS, measured, who: who.clone(), restarts: None });
            if !restarted || found.len() >= MOST_RUNS {
                break;
            }
            at = self.last_of_earlier(selector, last.start).await?;
            if let Some(this) = found.last_mut() {
                this.from = at;
            }
            if at <= earliest {
                break;
            }
            let before = Before { at, window: at - earliest, start: last.start - CLOCKS };
            answers = self.measure(selector, before, more).await?;
        }
        found.reverse();
        if found.len() > 1 || who.owners > 1 {
            for run in &mut found {
                self.identify(selector, run).await?;
            }
        }
        let parts: Vec<bool> =
            found.iter().zip(found.iter().skip(1)).map(|(before, run)| may_be_a_part(before, run)).collect();
        for (at, is_part) in parts.into_iter().enumerate().filter(|(_, is_part)| *is_part) {
            for run in found.iter_mut().skip(at).take(2) {
                run.measured.evidence.may_be_a_part = is_part;
            }
        }
        Ok(found)
    }

    /// When the run before one that started then was exported for the last time: the exporter shows it until readers have its end.
    async fn last_of_earlier(&self, selector: &[String], start: f64) -> Result<f64, Failure> {
        let until = (start + RETAINED).min(self.until);
        let starts = of(START, &self.selected(selector));
        let series = self.client.query_samples(&starts, (until - start + CLOCKS).max(1.0), until).await?;
        // A node that only the earlier run had shows it as long as it is retained.
        let last = |points: &[(f64, f64)]| {
            let is_later = points.iter().any(|(_, value)| *value >= start - CLOCKS);
            points.iter().rfind(|(_, value)| is_later && *value < start - CLOCKS).map(|(time, _)| *time)
        };
        let shown = series.iter().filter_map(|series| last(&series.points)).fold(f64::NEG_INFINITY, f64::max);
        // Prometheus has milliseconds.
        Ok((start - CLOCKS).max(shown + 0.001))
    }

    /// Whose a run was, by what its nodes said while it ran, and how often it was requeued before.
    async fn identify(&self, selector: &[String], run: &mut Found) -> Result<(), Failure> {
        let cluster = &self.scope.cluster_label;
        let within = range((run.at - run.from).max(CLOCKS));
        let all = self.selected(selector);
        let query = format!(
            "group by ({}, {cluster}, instance, slurm_node) (last_over_time({INFO}{all}{within})) \
             or last_over_time(jobledger_job_restarts{all}{within})",
            WHO.join(", ")
        );
        let answer = self.client.query(&query, run.at).await?;
        let mut infos: Vec<Labels> = Vec::new();
        for Sample { labels, value, .. } in answer {
            if run.measured.position(&labels).is_none() {
                continue;
            }
            match labels.name() {
                Some(_) => run.restarts = run.restarts.into_iter().chain([value]).reduce(f64::max),
                None => infos.push(labels),
            }
        }
        if owners(infos.iter()).len() > 1 {
            let end = run.measured.nodes.iter().map(|node| node.seen_until).fold(run.start(), f64::max);
            let until = (end + CLOCKS).min(run.at).max(run.from + 1.0);
            let lately = (until - run.from).clamp(1.0, LATELY);
            let samples = self.client.query_samples(&of(INFO, &all), lately, until).await?;
            let mut last: BTreeMap<(String, String), (f64, Labels)> = BTreeMap::new();
            for series in samples.into_iter().filter(|series| run.measured.position(&series.labels).is_some())
            {
                let Some((time, _)) = series.points.last().copied() else { continue };
                let place = last.entry(exporter(&series.labels)).or_insert((time, series.labels.clone()));
                if time > place.0 {
                    *place = (time, series.labels);
                }
            }
            if !last.is_empty() {
                infos = last.into_values().map(|(_, labels)| labels).collect();
            }
        }
        let best = infos.iter().map(identity).max_by_key(Identity::known);
        if let Some(identity) = best {
            run.who.identity = identity;
        }
        Ok(())
    }
}

/// Users, by their numbers, or where these are not known by their names.
fn owners<'a>(infos: impl Iterator<Item = &'a Labels>) -> BTreeSet<&'a str> {
    infos.filter_map(owner).collect()
}

/// Puts together what the accounting says is one run: an allocation without `PrologFlags=Contain` has no cgroup between its steps, and each step
/// begins as a run.
pub(super) fn joined(runs: Vec<Found>, records: &[Record]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let record = |run: &Found| record_of(&run.job(), records).and_then(|record| record.start);
    for mut run in runs {
        match found.pop() {
            Some(before) if record(&run).is_some() && record(&before) == record(&run) => {
                run.from = before.from;
                run.measured.join(before.measured);
                found.push(run);
            }
            before => {
                found.extend(before);
                found.push(run);
            }
        }
    }
    found
}

/// The runs of the last job among those of its number, with their places among its runs from 1: another owner has another job, and so has who was
/// not requeued before.
pub(super) fn of_last_job(runs: Vec<Found>, records: &[Record]) -> Vec<(usize, Found)> {
    let mut jobs = jobs(runs, records);
    jobs.pop().unwrap_or_default()
}

/// All jobs of a number, the earliest first.
pub(super) fn jobs(runs: Vec<Found>, records: &[Record]) -> Vec<Vec<(usize, Found)>> {
    let mut jobs: Vec<Vec<(usize, Found)>> = Vec::new();
    for run in runs {
        let number = |before: usize| run.restarts.map_or(before, whole) + 1;
        match jobs.last_mut() {
            Some(job) if job.last().is_some_and(|(_, before)| follows(&run, before, records)) => {
                let before = job.last().map_or(0, |(number, _)| *number);
                job.push((number(before).max(before + 1), run));
            }
            _ => jobs.push(vec![(number(0), run)]),
        }
    }
    jobs
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn whole(restarts: f64) -> usize {
    restarts as usize
}

/// Whether only SLURM's accounting can say if two runs are parts of one: SLURM's prolog says how often a job was requeued before.
fn may_be_a_part(before: &Found, run: &Found) -> bool {
    before.who.identity.may_be_user(&run.who.identity)
        && before.restarts.zip(run.restarts).is_none_or(|(one, other)| one == other)
}

/// Whether a run is of the same job as the one before of its number.
fn follows(run: &Found, before: &Found, records: &[Record]) -> bool {
    if !before.who.identity.may_be_user(&run.who.identity) {
        return false;
    }
    match (record_of(&before.job(), records), run.restarts) {
        (Some(record), _) => record.is_followed(),
        (None, Some(restarts)) => restarts > 0.0,
        (None, None) => true,
    }
}
