//! The job that a process is in.

/// SLURM's number in the path of a process's cgroups, as `/proc/self/cgroup` has it: `/slurm/uid_1000/job_7/step_0` on v1,
/// `/system.slice/slurmstepd.scope/job_7/step_0/user/task_0` on v2. 26.05 has an SLUID there, and no number.
pub fn job_of_cgroups(text: &str) -> Option<u64> {
    text.lines()
        .filter(|line| line.contains("slurm"))
        .flat_map(|line| line.split('/'))
        .filter_map(|part| part.strip_prefix("job_")?.parse().ok())
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_in_the_path() {
        let v1 =
            "5:cpuset:/slurm_n1/uid_1000/job_7/step_0\n1:name=systemd:/system.slice/slurmd.service\n0::/\n";
        assert_eq!(job_of_cgroups(v1), Some(7));
        assert_eq!(
            job_of_cgroups("0::/system.slice/n1_slurmstepd.scope/job_12/step_batch/user/task_0\n"),
            Some(12)
        );
        for none in [
            "",
            "0::/user.slice/job_3\n",
            "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0\n",
            "0::/slurm/job_x\n",
        ] {
            assert_eq!(job_of_cgroups(none), None, "{none}");
        }
    }
}
