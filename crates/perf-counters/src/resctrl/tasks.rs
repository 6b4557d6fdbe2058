//! The threads of a job, by its cgroup, in all steps and tasks. slurmstepd is among them, so that its children start
//! in the job's group.

use std::collections::BTreeSet;

use cgroups::{Cgroup, Controller, Version};
use kernel_files::processes::parse_pids;
use kernel_files::{Buffer, Dir, ReadError};

/// SLURM's cgroups are four levels deep (job, step, user, task); users' own may be deeper where delegated.
const DEEPEST: u32 = 12;

/// Every thread below a job's cgroup, the ids as the reader's PID namespace has them.
pub(super) fn threads(cgroup: &Cgroup) -> Result<BTreeSet<u32>, ReadError> {
    let (file, dir) = match cgroup.version() {
        Version::V2 => ("cgroup.threads", cgroup.dirs().next()),
        Version::V1 => ("tasks", cgroup.dir(Controller::Freezer).or_else(|| cgroup.dirs().next())),
    };
    let mut threads = BTreeSet::new();
    let mut buffer = Buffer::default();
    match dir.map(|dir| walk(dir, file, DEEPEST, &mut threads, &mut buffer)) {
        None | Some(Ok(()) | Err(ReadError::Gone)) => Ok(threads),
        Some(Err(error)) => Err(error),
    }
}

fn walk(
    dir: &Dir,
    file: &str,
    deeper: u32,
    threads: &mut BTreeSet<u32>,
    buffer: &mut Buffer,
) -> Result<(), ReadError> {
    match dir.read_list(file, buffer) {
        // A torn list ends where it is torn; the next look has the rest. 0 is a thread of another PID namespace.
        Ok(bytes) => {
            let _ = parse_pids(bytes, |thread| {
                threads.insert(thread);
            });
            threads.remove(&0);
        }
        Err(ReadError::Gone | ReadError::Unsupported) => {}
        Err(error) => return Err(error),
    }
    if deeper > 0 {
        for entry in dir.directories()? {
            match dir.open_dir(&entry.name).and_then(|below| walk(&below, file, deeper - 1, threads, buffer))
            {
                Ok(()) | Err(ReadError::Gone) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;

    #[test]
    fn all_threads_of_all_cgroups_below_are_the_jobs() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cgroup.threads", "");
        machine.write("cgroup/job_7/step_0/slurm/cgroup.threads", "10\n11\n");
        machine.write("cgroup/job_7/step_0/user/task_0/cgroup.threads", "20\n");
        machine.write("cgroup/job_7/step_0/user/task_1/mine/cgroup.threads", "21\n22\n");
        assert_eq!(threads(&machine.v2("job_7")), Ok(BTreeSet::from([10, 11, 20, 21, 22])));
        machine.write("cgroup/cpuset/job_7/tasks", "1\n");
        machine.write("cgroup/freezer/job_7/tasks", "10\n");
        machine.write("cgroup/freezer/job_7/step_0/tasks", "20\n0\n");
        let v1 = machine.v1(&[("cpuset", "job_7"), ("freezer", "job_7")]);
        assert_eq!(threads(&v1), Ok(BTreeSet::from([10, 20])));
        assert_eq!(threads(&v1.closed()), Ok(BTreeSet::new()));
    }
}
