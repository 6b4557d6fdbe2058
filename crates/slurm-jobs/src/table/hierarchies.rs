//! The hierarchies of v1: a job has a directory in each, made and removed one after the other.

use cgroups::Version;

use super::Table;
use crate::SlurmCgroup;

impl Table {
    /// v1: whether a job is followed in every hierarchy of its root. slurmstepd makes its directories one after the other,
    /// and each is reported.
    pub(super) fn follows_all_of(&self, scope: &SlurmCgroup, dir: &str) -> bool {
        if scope.cgroup.version() == Version::V2 {
            return false;
        }
        let run = self.by_dir.get(&(scope.inode, dir.to_owned()));
        run.and_then(|run| self.runs.get(run)).is_some_and(|tracked| {
            let known = &tracked.job.cgroup;
            !tracked.has_ended()
                && known.dirs().count() == scope.cgroup.dirs().count()
                && known.dirs().all(|dir| dir.has("cgroup.procs"))
        })
    }
}
