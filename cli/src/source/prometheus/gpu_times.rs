//! What the GPUs of running jobs did until a time: a query for all jobs of a cluster.

use std::collections::BTreeMap;

use job_report::metric::{GPU_BUSY_SECONDS, GPU_IDLE_SECONDS};

use super::Prometheus;
use super::selector::named;
use crate::Failure;

/// Busy and idle seconds of a GPU, as its counters have them at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuTimes {
    /// A kernel ran.
    pub busy: Option<f64>,
    /// None was seen to run.
    pub idle: Option<f64>,
}

/// Of the GPUs of a job, by UUID.
pub type JobGpus = BTreeMap<String, GpuTimes>;

impl Prometheus {
    /// Those that a scrape had at this time, by cluster and number of the job.
    pub async fn gpu_times(&self, at: f64) -> Result<BTreeMap<(String, u64), JobGpus>, Failure> {
        let selector = self.scope.selector(&[&named(&[&GPU_BUSY_SECONDS, &GPU_IDLE_SECONDS], &[])]);
        let mut jobs: BTreeMap<(String, u64), JobGpus> = BTreeMap::new();
        for sample in self.client.query(&self.scope.parts(&selector), at).await? {
            let get = |name: &str| sample.labels.get(name).unwrap_or_default();
            let Ok(id) = get("jobid").parse() else { continue };
            let gpus = jobs.entry((get(&self.scope.cluster_label).to_owned(), id)).or_default();
            let times = gpus.entry(get("uuid").to_owned()).or_default();
            match sample.labels.name() {
                Some(name) if name == GPU_BUSY_SECONDS.series => times.busy = Some(sample.value),
                Some(name) if name == GPU_IDLE_SECONDS.series => times.idle = Some(sample.value),
                _ => {}
            }
        }
        Ok(jobs)
    }
}
