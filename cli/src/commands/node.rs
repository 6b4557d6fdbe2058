//! The exporter of the node on which this process runs, and the job that it is in.

use std::path::Path;
use std::time::Duration;

use prometheus_api::{Client, Options};

use super::surroundings::{Environment, now};
use crate::arguments::{Common, OfNode};
use crate::recording::{Batch, Selection, job_of_cgroups};
use crate::{Failure, config};

/// Where the exporter listens if nothing else is said.
const EXPORTER: &str = "http://127.0.0.1:9810/metrics";
/// An exporter answers within a second; a node that is out of memory needs longer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An exporter, and what of its page is of a job.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) selection: Selection,
    pub(super) url: String,
    client: Client,
}

impl Node {
    pub(super) fn new(
        options: &OfNode,
        whole_node: bool,
        common: &Common,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let config::Record { exporter, http_config_file } =
            config::load(common.config.as_deref(), environment.user_config.as_deref())?.record;
        let url = options.exporter.clone().or(exporter).unwrap_or_else(|| EXPORTER.to_owned());
        let asking = Options {
            url: url.clone(),
            http_config_file,
            proxies: environment.proxies.clone(),
            timeout: TIMEOUT,
            ..Options::default()
        };
        let job = match options.job {
            Some(job) => job,
            None => this_job(environment)?,
        };
        let selection = Selection { job: job.to_string(), node: environment.node.clone(), whole_node };
        Ok(Self { selection, url, client: Client::new(&asking)? })
    }

    /// What the exporter shows of the job now.
    pub(super) async fn batch(&self) -> Result<Batch, Failure> {
        let time = now();
        Ok(self.selection.of(&self.client.exposition().await?, time))
    }
}

/// The job of this process. A process of a heterogeneous job has the number of the first component in its environment, and is in the cgroup
/// of its own.
fn this_job(environment: &Environment) -> Result<u64, Failure> {
    let cgroups = std::fs::read_to_string(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let by_name = || environment.job_id.as_deref()?.parse().ok();
    job_of_cgroups(&cgroups)
        .or_else(by_name)
        .ok_or_else(|| Failure::usage("which job? --job=NUMBER, or run it inside a job of SLURM"))
}
