//! The job that this process is in, on its node: from the node's exporter, else from the job's own cgroup.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel_files::Roots;
use nix::unistd::{Uid, User};
use prometheus_api::{Client, Error, Options};
use rustix::process::getuid;
use rustix::thread::sched_getaffinity;

use super::surroundings::{Environment, now, warn};
use crate::arguments::{Common, OfNode};
use crate::own_job::{OwnJob, place};
use crate::recording::{Batch, Selection};
use crate::{Failure, config};

/// Where the exporter listens if nothing else is said.
const EXPORTER: &str = "http://127.0.0.1:9810/metrics";
/// An exporter answers within a second; a node that is out of memory needs longer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Where a job's samples come from, and which they are.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) selection: Selection,
    from: From,
}

#[derive(Debug)]
enum From {
    Exporter { client: Client, url: String },
    Own(Box<OwnJob>),
}

/// What is shown beyond the job itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct More {
    /// All of the node.
    pub(super) whole_node: bool,
    /// The job's GPUs and the node's energy, where no exporter runs. What they did is known from the second time on.
    pub(super) own_devices: bool,
}

impl Node {
    pub(super) async fn new(
        options: &OfNode,
        more: More,
        common: &Common,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let job = match options.job {
            Some(job) => job.to_string(),
            None => this_job(environment)?,
        };
        let number = place::number(&job)
            .ok_or_else(|| Failure::usage(format!("{job}: this is no number of a job")))?;
        let selection = Selection {
            job: number.to_string(),
            node: environment.node.clone(),
            whole_node: more.whole_node,
        };
        let config::Record { exporter, http_config_file, nvml_library } =
            config::load(common.config.as_deref(), environment.user_config.as_deref())?.record;
        let own = || own(&job, environment, more.own_devices, nvml_library);
        // That page has no other job.
        let all = Selection { whole_node: true, ..selection.clone() };
        if options.own_cgroup {
            return Ok(Self { selection: all, from: own()? });
        }
        let chosen = options.exporter.clone().or(exporter);
        let url = chosen.clone().unwrap_or_else(|| EXPORTER.to_owned());
        let asking = Options {
            url: url.clone(),
            http_config_file,
            proxies: environment.proxies.clone(),
            timeout: TIMEOUT,
            ..Options::default()
        };
        let client = Client::new(&asking).map_err(|error| match error {
            Error::Url(why) => Failure::usage(format!("--exporter={url}: {why}")),
            error => error.into(),
        })?;
        if chosen.is_none()
            && matches!(client.exposition().await, Err(Error::Unreachable { .. }))
            && let Ok(from) = own()
        {
            warn(
                "no exporter answers: the job's own cgroup is read, which has neither its energy nor its network nor counters",
            );
            return Ok(Self { selection: all, from });
        }
        Ok(Self { selection, from: From::Exporter { client, url } })
    }

    /// What is shown of the job now.
    pub(super) async fn batch(&mut self) -> Result<Batch, Failure> {
        let time = now();
        let page = match &mut self.from {
            From::Exporter { client, .. } => client.exposition().await?,
            From::Own(job) => {
                let page = job.page(time)?;
                job.take_problems().iter().for_each(|problem| warn(problem));
                page
            }
        };
        Ok(self.selection.of(&page, time))
    }

    /// Whether a driver of its GPUs does not answer.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(&self.from, From::Own(job) if job.is_stuck())
    }

    /// That nothing is shown of it.
    pub(super) fn shows_nothing(&self) -> String {
        let from = match &self.from {
            From::Exporter { url, .. } => url,
            From::Own(_) => "its cgroup",
        };
        format!("{from} does not show job {}", self.selection.job)
    }
}

fn own(
    job: &str,
    environment: &Environment,
    devices: bool,
    library: Option<PathBuf>,
) -> Result<From, Failure> {
    let uid = getuid().as_raw();
    let mut identity = environment.identity.clone();
    identity.push(("uid", uid.to_string()));
    identity.extend(User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| ("user", user.name)));
    let cpus =
        sched_getaffinity(None).map_err(|error| Failure::other(format!("CPUs of this process: {error}")))?;
    let cpus = usize::try_from(cpus.count()).unwrap_or(usize::MAX);
    let roots = Arc::new(Roots::default());
    let own = OwnJob::find(job, identity, cpus, &roots)?;
    let own = if devices { own.with_devices(&roots, environment.visible_gpus.clone(), library) } else { own };
    Ok(From::Own(Box::new(own)))
}

/// The job of this process, as its batch system names it. A process of a heterogeneous job has the number of the first component in its
/// environment, and is in the cgroup of its own.
fn this_job(environment: &Environment) -> Result<String, Failure> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    place::slurm_job(&cgroups)
        .map(|job| job.to_string())
        .or_else(|| environment.job_id.clone())
        .or_else(|| environment.other_job.clone())
        .ok_or_else(|| Failure::usage("which job? --job=NUMBER, or run it inside a job"))
}
