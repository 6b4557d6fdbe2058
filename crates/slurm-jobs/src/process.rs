//! From a process to its job: by the directories of its cgroup, which its user cannot change.

use cgroups::{Cgroup, Controller, Version};
use kernel_files::parse::{ParseError, lines};
use kernel_files::{Dir, Roots, SourceError};

use super::scope::{Hierarchy, hierarchies};

/// Where `/proc/PID/ns/pid` of the host's processes leads: the first PID namespace (include/linux/proc_ns.h,
/// `PROC_PID_INIT_INO`).
pub const PIDS_OF_THE_HOST: &str = "pid:[4026531836]";

/// A directory: its file system and inode.
pub type Place = (u64, u64);

/// Parses `/proc/PID/cgroup` (cgroups(7)), `id:controllers:path` each line; calls `f` with controllers, none on v2, and path.
pub fn parse_cgroups<'a>(bytes: &'a [u8], mut f: impl FnMut(&'a str, &'a str)) -> Result<(), ParseError> {
    for line in lines(bytes) {
        let (number, line) = line?;
        // A name that is no UTF-8 is none of SLURM's.
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next(), parts.next()) {
            (Some(controllers), Some(path)) => f(controllers, path),
            _ => return Err(ParseError::new(number, "not 'id:controllers:path'")),
        }
    }
    Ok(())
}

/// The directories of a job's cgroup.
pub fn places(cgroup: &Cgroup) -> Vec<Place> {
    let stats = cgroup.dirs().filter_map(|dir| dir.stat().ok());
    stats.map(|stat| (stat.device, stat.inode)).collect()
}

/// A process is outside of this process's cgroup namespace: its cgroup is not known (cgroup_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside;

impl From<Outside> for SourceError {
    fn from(_: Outside) -> Self {
        Self::Unsupported { needs: "the host's cgroup namespace".to_owned() }
    }
}

/// The mounted hierarchies, in which processes are looked for.
#[derive(Debug)]
pub struct Groups {
    root: Option<Dir>,
    hierarchies: Vec<Hierarchy>,
}

impl Groups {
    /// The hierarchies as they are mounted now; none where they cannot be listed.
    pub fn open(roots: &Roots) -> Self {
        let root = Dir::open(&roots.cgroup("")).ok();
        let hierarchies = root.as_ref().and_then(|root| hierarchies(root).ok()).unwrap_or_default();
        Self { root, hierarchies }
    }

    /// Walks the path of a process's cgroup from the root, and returns `known`'s answer for the first directory that
    /// it knows. `cgroup` is the content of `/proc/PID/cgroup`.
    pub fn find<T>(&self, cgroup: &[u8], known: impl Fn(Place) -> Option<T>) -> Result<Option<T>, Outside> {
        let Some(root) = self.root.as_ref() else { return Ok(None) };
        let (mut found, mut outside) = (None, false);
        let look = |controllers: &str, path: &str| {
            // The kernel writes it of such processes alone: a name in a path is never `..`.
            outside |= path.split('/').any(|part| part == "..");
            if found.is_some() || outside {
                return;
            }
            let of_line = |hierarchy: &&Hierarchy| match hierarchy.version {
                Version::V2 => controllers.is_empty(),
                Version::V1 => controllers
                    .split(',')
                    .filter_map(Controller::from_v1_name)
                    .any(|controller| hierarchy.controllers.contains(&controller)),
            };
            let Some(hierarchy) = self.hierarchies.iter().find(of_line) else { return };
            let mut at = hierarchy.mount.clone();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                if !at.is_empty() {
                    at.push('/');
                }
                at.push_str(part);
                let Ok(stat) = root.stat_of(&at) else { return };
                found = known((stat.device, stat.inode));
                if found.is_some() {
                    return;
                }
            }
        };
        if parse_cgroups(cgroup, look).is_err() {
            return Ok(None);
        }
        if found.is_none() && outside { Err(Outside) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use test_machine::Machine;

    use super::*;

    #[test]
    fn lines_are_as_the_kernel_writes_them() {
        let mut lines = Vec::new();
        let text = b"12:cpu,cpuacct:/slurm/uid_1/job_2\n1:name=systemd:/\n0::/system.slice/a:b (deleted)\n";
        parse_cgroups(text, |controllers, path| lines.push((controllers, path))).unwrap();
        let wanted = [
            ("cpu,cpuacct", "/slurm/uid_1/job_2"),
            ("name=systemd", "/"),
            ("", "/system.slice/a:b (deleted)"),
        ];
        assert_eq!(lines, wanted);
        for bad in [&b"0::/torn"[..], b"0:\n", b"\n"] {
            assert!(parse_cgroups(bad, |_, _| ()).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_process_is_in_the_first_known_directory_on_its_way() {
        let machine = Machine::new();
        machine.write("cgroup/cgroup.controllers", "cpu\n");
        machine.write("cgroup/slurmstepd.scope/job_1/step_0/user/task_0/cgroup.procs", "");
        let job = places(&machine.v2("slurmstepd.scope/job_1"));
        let task = places(&machine.v2("slurmstepd.scope/job_1/step_0/user/task_0"));
        let known = |place| match place {
            place if job.contains(&place) => Some("job"),
            place if task.contains(&place) => Some("task"),
            _ => None,
        };
        let groups = Groups::open(&machine.roots());
        let path = "/slurmstepd.scope/job_1/step_0/user/task_0";
        for (text, expected) in [
            (format!("0::{path}\n"), Some("job")),
            (format!("5:freezer:/x\n0::{path}\n"), Some("job")),
            ("0::/slurmstepd.scope\n".to_owned(), None),
            ("0::/slurmstepd.scope/job_2\n".to_owned(), None),
            (format!("0::{path}"), None),
            (format!("3:cpu:{path}\n"), None),
        ] {
            assert_eq!(groups.find(text.as_bytes(), known), Ok(expected), "{text}");
        }
        let outside = b"0::/../slurmstepd.scope/job_1\n";
        assert_eq!(groups.find(outside, known), Err(Outside));
    }
}
