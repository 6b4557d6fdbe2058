//! The hierarchies of v1: a job has a directory in each, made and removed one after the other.

use std::collections::HashMap;

use cgroups::Version;
use kernel_files::ReadError;

use super::Table;
use crate::SlurmCgroup;
use crate::names;
use crate::scope::join;

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

/// Lists the hierarchy that comes first: the one that counts CPU time, where there is one.
pub(super) fn list_first(scope: &SlurmCgroup, there: &mut HashMap<String, u64>) -> Result<(), ReadError> {
    let Some(dir) = scope.cgroup.dirs().next() else { return Ok(()) };
    let mut users = Vec::new();
    dir.for_each(|name, _, _| {
        let name = std::str::from_utf8(name).ok().filter(|name| names::v1_user(name).is_some());
        users.extend(name.map(str::to_owned));
    })?;
    for user in users {
        dir.for_each_below(&user, |name, inode, _| {
            let name = std::str::from_utf8(name).ok().filter(|name| names::job(name).is_some());
            there.extend(name.map(|name| (join(&user, name), inode)));
        })?;
    }
    Ok(())
}
