//! What the GPUs of running jobs did until a time: a query for all jobs of a cluster, and one for the curves of a job.

use std::collections::BTreeMap;

use job_report::Metric;
use job_report::metric::{GPU_ALLOCATED_SECONDS, GPU_BUSY_SECONDS, GPU_IDLE_SECONDS};
use prometheus_api::{Labels, Range};

use super::Prometheus;
use super::find::series_of;
use super::selector::{named, range};
use crate::Failure;

/// Seconds of a GPU, as its counters have them at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuTimes {
    /// The job had it.
    pub held: Option<f64>,
    /// A kernel ran.
    pub busy: Option<f64>,
    /// None was seen to run.
    pub idle: Option<f64>,
}

/// Of the GPUs of a job, by UUID.
pub type JobGpus = BTreeMap<String, GpuTimes>;

/// Counters of a job's GPUs over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuCurves {
    /// Seconds since the epoch, the earliest first.
    pub times: Vec<f64>,
    /// A value for each of the times, by UUID. What has no sample of the last minutes is not known.
    pub gpus: BTreeMap<String, Vec<GpuTimes>>,
}

const ASKED: [&Metric; 3] = [&GPU_ALLOCATED_SECONDS, &GPU_BUSY_SECONDS, &GPU_IDLE_SECONDS];
/// Seconds between two times, if it is not for too long.
const STEP: f64 = 60.0;
/// Of one answer: half a day of a minute each.
const MOST_STEPS: f64 = 720.0;
/// An older sample says nothing about a time. A missing scrape is no gap where there is one a minute.
const RECENT: f64 = 120.0;

impl GpuTimes {
    fn set(&mut self, labels: &Labels, value: f64) {
        let place = match labels.name() {
            Some(name) if name == GPU_ALLOCATED_SECONDS.series => &mut self.held,
            Some(name) if name == GPU_BUSY_SECONDS.series => &mut self.busy,
            Some(name) if name == GPU_IDLE_SECONDS.series => &mut self.idle,
            _ => return,
        };
        *place = Some(value);
    }
}

impl Prometheus {
    /// Those that a scrape had at this time, by cluster and number of the job.
    pub async fn gpu_times(&self, at: f64) -> Result<BTreeMap<(String, u64), JobGpus>, Failure> {
        let selector = self.scope.selector(&[&named(&ASKED, &[])]);
        let mut jobs: BTreeMap<(String, u64), JobGpus> = BTreeMap::new();
        for sample in self.client.query(&self.scope.parts(&selector), at).await? {
            let get = |name: &str| sample.labels.get(name).unwrap_or_default();
            let Ok(id) = get("jobid").parse() else { continue };
            let gpus = jobs.entry((get(&self.scope.cluster_label).to_owned(), id)).or_default();
            gpus.entry(get("uuid").to_owned()).or_default().set(&sample.labels, sample.value);
        }
        Ok(jobs)
    }

    /// Those of a job, from one time to another.
    pub async fn gpu_curves(
        &self,
        (cluster, id): (&str, u64),
        from: f64,
        until: f64,
    ) -> Result<GpuCurves, Failure> {
        let step = ((until - from) / MOST_STEPS).max(STEP).ceil();
        let steps = ((until - from) / step).ceil().max(1.0);
        let start = until - steps * step;
        let matchers = series_of(id, cluster, &self.scope.cluster_label);
        let named = named(&ASKED, &[]);
        let matchers: Vec<&str> = matchers.iter().map(String::as_str).chain([named.as_str()]).collect();
        let series = self.scope.selector(&matchers);
        let recent = self.scope.parts(&format!("last_over_time({series}{})", range(RECENT)));
        // Prometheus has milliseconds: the last time is not to be lost by one.
        let asked = Range { start, end: until + 0.5 * step, step };
        let mut times = Vec::new();
        let mut at = 0.0;
        while at <= steps {
            times.push(start + at * step);
            at += 1.0;
        }
        let mut curves = GpuCurves { times, gpus: BTreeMap::new() };
        for series in self.client.query_range(&recent, asked).await? {
            let uuid = series.labels.get("uuid").unwrap_or_default().to_owned();
            let none = || vec![GpuTimes::default(); curves.times.len()];
            let of_gpu = curves.gpus.entry(uuid).or_insert_with(none);
            let mut points = series.points.iter().peekable();
            for (time, place) in curves.times.iter().zip(of_gpu) {
                while let Some((_, value)) = points.next_if(|(at, _)| *at < time + 0.5 * step) {
                    place.set(&series.labels, *value);
                }
            }
        }
        Ok(curves)
    }
}
