//! Names of SLURM's directories (src/plugins/cgroup/v2/cgroup_v2.c, src/plugins/cgroup/v1/cgroup_v1.c) and
//! the title of its slurmstepd (setproctitle in src/slurmd/slurmstepd/slurmstepd.c).
//!
//! Every name is matched whole, at the one depth where it means something: nothing searches a path for
//! something that looks like a job.

use super::{JobId, Sluid, StepId, TaskId};

/// A job directory's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobName {
    /// `job_<id>`: v1, v2 up to 25.11, and 26.05.2 on with `CgroupJobIdPaths=yes`.
    Id(JobId),
    /// A SLUID: v2 from 26.05 on.
    Sluid(Sluid),
}

/// `[<node>_]slurmstepd.scope`: the node name when SLURM was built with `--enable-multiple-slurmd`.
pub fn v2_scope(name: &str) -> Option<Option<&str>> {
    match name.strip_suffix("slurmstepd.scope")? {
        "" => Some(None),
        prefix => prefix.strip_suffix('_').filter(|node| !node.is_empty()).map(Some),
    }
}

/// `slurm[_<node>]`, the root of a v1 hierarchy.
pub fn v1_root(name: &str) -> Option<Option<&str>> {
    match name.strip_prefix("slurm")? {
        "" => Some(None),
        suffix => suffix.strip_prefix('_').filter(|node| !node.is_empty()).map(Some),
    }
}

/// `uid_<uid>` of v1.
pub fn v1_user(name: &str) -> Option<u32> {
    u32::try_from(kernel_files::parse::integer(name.strip_prefix("uid_")?.as_bytes())?).ok()
}

/// A job directory of v1 or v2.
pub fn job(name: &str) -> Option<JobName> {
    match name.strip_prefix("job_") {
        Some(digits) => JobId::parse(digits.as_bytes()).map(JobName::Id),
        None => Sluid::parse(name.as_bytes()).map(JobName::Sluid),
    }
}

/// `step_<S>`.
pub fn step(name: &str) -> Option<StepId> {
    StepId::parse(name.strip_prefix("step_")?.as_bytes())
}

/// `task_<T>`.
pub fn task(name: &str) -> Option<TaskId> {
    TaskId::parse(name.strip_prefix("task_")?.as_bytes())
}

/// The job and step of a slurmstepd from its `cmdline`: `slurmstepd: [<job>.<step>]`, with `stepmgr` inside
/// the brackets from 24.05 on when the step manager runs there. The namespace helper of 25.11
/// (`slurmstepd: [<job>.<step>:namespace]`) names the job too.
pub fn stepd_title(cmdline: &[u8]) -> Option<(JobId, StepId)> {
    let rest = cmdline.strip_prefix(b"slurmstepd: [")?;
    let end = rest.iter().position(|b| *b == b']')?;
    let inner = rest.get(..end)?;
    let words = inner.split(|b| *b == b' ' || *b == b':').next()?;
    let dot = words.iter().position(|b| *b == b'.')?;
    let (job, step) = words.split_at(dot);
    Some((JobId::parse(job)?, StepId::parse(step.get(1..)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_with_and_without_a_node() {
        assert_eq!(v2_scope("slurmstepd.scope"), Some(None));
        assert_eq!(v2_scope("node1_slurmstepd.scope"), Some(Some("node1")));
        assert_eq!(v2_scope("gpu_node_1_slurmstepd.scope"), Some(Some("gpu_node_1")));
        for no in ["_slurmstepd.scope", "xslurmstepd.scope", "slurmstepd.scope2", "slurmd.service"] {
            assert_eq!(v2_scope(no), None, "{no}");
        }
        assert_eq!(v1_root("slurm"), Some(None));
        assert_eq!(v1_root("slurm_node1"), Some(Some("node1")));
        for no in ["slurm_", "slurmd", "xslurm"] {
            assert_eq!(v1_root(no), None, "{no}");
        }
        assert_eq!(v1_user("uid_1001"), Some(1001));
        assert_eq!(v1_user("uid_-1"), None);
    }

    #[test]
    fn only_whole_names_are_jobs() {
        assert_eq!(job("job_42"), Some(JobName::Id(JobId(42))));
        assert!(matches!(job("sDNHM7VZHTTA00"), Some(JobName::Sluid(_))));
        for no in ["job_", "job_x", "job_42 ", "xjob_42", "system", "slurmd", "job_0"] {
            assert_eq!(job(no), None, "{no}");
        }
    }

    #[test]
    fn titles_of_every_version() {
        let batch = StepId::parse(b"batch").unwrap();
        assert_eq!(stepd_title(b"slurmstepd: [123.batch]\0"), Some((JobId(123), batch)));
        assert_eq!(stepd_title(b"slurmstepd: [3.0]    "), Some((JobId(3), StepId::parse(b"0").unwrap())));
        assert_eq!(
            stepd_title(b"slurmstepd: [7.extern stepmgr]\0"),
            Some((JobId(7), StepId::parse(b"extern").unwrap()))
        );
        assert_eq!(stepd_title(b"slurmstepd: [7.0+1]").unwrap().1.component, Some(1));
        assert_eq!(stepd_title(b"slurmstepd: [7.0:namespace]").unwrap().0, JobId(7));
        for no in [
            &b"/usr/sbin/slurmstepd infinity\0"[..],
            b"slurmstepd: [7]",
            b"slurmstepd: [7.0",
            b"slurmstepd: [x.0]",
            b"sh -c slurmstepd: [7.0]",
        ] {
            assert_eq!(stepd_title(no), None, "{}", String::from_utf8_lossy(no));
        }
    }
}
