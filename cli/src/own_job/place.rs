//! Which job a process is in: by its cgroups, and by the environment that its batch system gives it.

/// SLURM's number in the path of a process's cgroups, as `/proc/self/cgroup` has it: `/slurm/uid_1000/job_7/step_0` on v1,
/// `/system.slice/slurmstepd.scope/job_7/step_0/user/task_0` on v2. 26.05 has an SLUID there, and no number.
pub fn slurm_job(cgroups: &str) -> Option<u64> {
    cgroups
        .lines()
        .filter(|line| line.contains("slurm"))
        .flat_map(|line| line.split('/'))
        .find_map(|part| part.strip_prefix("job_")?.parse().ok())
}

/// The number of a job as PBS and OAR name it: `1234`, `1234.server`, `1234[5].server`.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    name.get(..digits)?.parse().ok()
}

/// The path of the job's own cgroup, of the path of one of its processes: up to the directory whose name has the job's name in it, such as
/// `job_7`, PBS' `1234.server` (or with the brackets of an array escaped), OAR's `alice_1234`. A number within a word is none: containers'
/// directories are named by hexadecimal digits.
pub fn of_job<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let number = number(name)?.to_string();
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        let before = |at: usize| part.get(..at).unwrap_or_default();
        let after = |at: usize| part.get(at + number.len()..).unwrap_or_default();
        let is_whole = |at: usize| {
            !before(at).ends_with(|c: char| c.is_ascii_alphanumeric())
                && !after(at).starts_with(|c: char| c.is_ascii_alphanumeric())
        };
        if part.match_indices(&number).any(|(at, _)| is_whole(at)) {
            return path.get(..end);
        }
        end += 1;
    }
    None
}

/// Labels of `jobledger_job_info`, by the variables of SLURM, PBS and OAR.
pub fn identity(get: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    [
        ("name", ["SLURM_JOB_NAME", "PBS_JOBNAME", "OAR_JOB_NAME"].as_slice()),
        ("account", &["SLURM_JOB_ACCOUNT", "PBS_ACCOUNT", "OAR_PROJECT_NAME"]),
        ("partition", &["SLURM_JOB_PARTITION", "PBS_QUEUE"]),
        ("qos", &["SLURM_JOB_QOS"]),
        ("array_job_id", &["SLURM_ARRAY_JOB_ID", "OAR_ARRAY_ID"]),
        ("array_task_id", &["SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX", "OAR_ARRAY_INDEX"]),
    ]
    .into_iter()
    .filter_map(|(label, names)| Some((label, names.iter().find_map(|name| get(name))?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurms_number_is_in_the_path() {
        let v1 =
            "5:cpuset:/slurm_n1/uid_1000/job_7/step_0\n1:name=systemd:/system.slice/slurmd.service\n0::/\n";
        assert_eq!(slurm_job(v1), Some(7));
        assert_eq!(
            slurm_job("0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0\n"),
            Some(12)
        );
        for none in [
            "",
            "0::/user.slice/job_3\n",
            "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n",
            "0::/slurm/job_x\n",
        ] {
            assert_eq!(slurm_job(none), None, "{none}");
        }
    }

    #[test]
    fn names_have_numbers() {
        let names = ["1234", "1234.server", "1234[5].server", "[]", "", "99999999999999999999"];
        assert_eq!(names.map(number), [Some(1234), Some(1234), Some(1234), None, None, None]);
    }

    #[test]
    fn the_jobs_cgroup_is_that_with_its_name() {
        for (path, name, expected) in [
            ("/slurm/uid_7/job_17/step_0/task_7", "17", Some("/slurm/uid_7/job_17")),
            (
                "/pbs_jobs.service/jobid/1234.server/x",
                "1234.server",
                Some("/pbs_jobs.service/jobid/1234.server"),
            ),
            ("/oar/alice_1234", "1234", Some("/oar/alice_1234")),
            ("/oar/alice2_12345/1234", "1234", Some("/oar/alice2_12345/1234")),
            ("/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0", "5000", None),
            ("/docker/0db7f3/job_7/step_0", "7", Some("/docker/0db7f3/job_7")),
            ("/docker/0db7f3", "7", None),
            (
                "/pbspro.service/jobid/1234\\x5b5\\x5d.server",
                "1234[5].server",
                Some("/pbspro.service/jobid/1234\\x5b5\\x5d.server"),
            ),
            ("/", "7", None),
            ("/x", "none", None),
        ] {
            assert_eq!(of_job(path, name), expected, "{path}");
        }
    }

    #[test]
    fn variables_become_labels() {
        let get = |name: &str| match name {
            "PBS_JOBNAME" => Some("sweep".to_owned()),
            "PBS_QUEUE" => Some("gpu".to_owned()),
            _ => None,
        };
        assert_eq!(identity(get), [("name", "sweep".to_owned()), ("partition", "gpu".to_owned())]);
        assert_eq!(identity(|_| None), []);
    }
}
