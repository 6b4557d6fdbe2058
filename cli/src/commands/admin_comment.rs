//! `jobledger admin-comment`: what a job used, in SLURM's accounting, as jobstats stores it there.

use std::ffi::OsStr;
use std::time::Duration;

use super::surroundings::{Environment, Surroundings, warn};
use super::{block_on, mail, patience, report, with};
use crate::arguments::{self, Common};
use crate::formats::jobstats;
use crate::job_id::JobId;
use crate::spool::Task;
use crate::{Failure, slurm_command};

const SACCTMGR: &str = "sacctmgr";

pub(super) fn run(
    options: &arguments::AdminComment,
    common: &Common,
    environment: &Environment,
) -> Result<(), Failure> {
    let id = match &options.job {
        Some(id) => id.clone(),
        None => own(environment)?,
    };
    block_on(patience::interrupted(check_version()))?;
    if options.spool {
        // Of a job that slurmctld names it is there.
        let number = environment.job_id.as_deref().and_then(|id| id.parse().ok());
        let number = number.ok_or_else(|| Failure::usage("--spool needs $SLURM_JOB_ID"))?;
        let task = Task::AdminComment { job: id.to_string(), number, cluster: environment.cluster.clone() };
        let nothing = |failure: Failure| Failure {
            says: format!("job {id}: nothing is stored: {}", failure.says),
            ..failure
        };
        return mail::put(task, common, environment).map_err(nothing);
    }
    with(&Surroundings::new(common, environment, "30d")?, |here| Box::pin(store(id, options.wait, here)))
}

/// The job that slurmctld starts its epilog for. SLURM gives the array's number to its last element, too; the number without an index is that of the
/// whole array.
fn own(environment: &Environment) -> Result<JobId, Failure> {
    let label =
        |name| environment.identity.iter().find(|(label, _)| *label == name).map(|(_, value)| value.parse());
    let job = environment.job_id.as_deref().and_then(|id| id.parse::<u32>().ok());
    let job = u64::from(job.ok_or_else(|| Failure::usage("which job? $SLURM_JOB_ID has no number"))?);
    Ok(match (label("array_job_id"), label("array_task_id")) {
        (Some(Ok(array)), Some(Ok(task))) if array == job => JobId::Element { array, task },
        _ => JobId::Number(job),
    })
}

/// Before 23.02 sacctmgr stores the field in lower case (SLURM's release notes), and nothing could read it.
async fn check_version() -> Result<(), Failure> {
    let version = ask(&["--version"]).await?;
    let version = version.trim();
    // "slurm 22.05.8", or with the name of Debian's package "slurm-wlm 22.05.8".
    let year = version.split_once(' ').and_then(|(_, number)| number.split('.').next()?.parse::<u32>().ok());
    if year.is_some_and(|year| year < 23) {
        return Err(Failure::usage(format!("AdminComment needs SLURM 23.02, this is {version}")));
    }
    Ok(())
}

/// A report of a part of the job is stored, too.
async fn store(id: JobId, wait: u32, here: &Surroundings) -> Result<(), Failure> {
    let report = here.report_after(Duration::from_secs(wait.into()), &report::wanted(&id)).await?;
    let blob = jobstats::blob(&report).map_err(|error| Failure::other(error.to_string()))?;
    blob.remark.into_iter().for_each(warn);
    let (job, comment) = (format!("jobid={id}"), format!("AdminComment={}", blob.text));
    let cluster = here.environment.cluster.as_ref().map(|name| format!("cluster={name}"));
    let mut update = vec!["--quiet", "--immediate", "update", "job", "where", &job];
    update.extend(cluster.as_deref());
    update.extend(["set", &comment]);
    ask(&update).await.map(drop)
}

async fn ask(arguments: &[&str]) -> Result<String, Failure> {
    let asking = slurm_command::ask(OsStr::new(SACCTMGR), arguments, slurm_command::PATIENCE);
    asking.await.map_err(|error| Failure::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_element_of_an_array_is_not_the_array() {
        let of = |job: Option<&str>, array: &[(&'static str, &str)]| {
            let identity = array.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
            own(&Environment { job_id: job.map(str::to_owned), identity, ..Environment::default() })
        };
        assert_eq!(of(Some("42"), &[]), Ok(JobId::Number(42)));
        let element = [("array_job_id", "42"), ("array_task_id", "4")];
        assert_eq!(of(Some("42"), &element), Ok(JobId::Element { array: 42, task: 4 }));
        assert_eq!(of(Some("41"), &element), Ok(JobId::Number(41)));
        for none in [None, Some(""), Some("4;2"), Some("42_4")] {
            assert!(of(none, &[]).is_err());
        }
    }
}
