//! Which way cgroups are counted on this node.

use std::fs::File;
use std::sync::Arc;

use cgroups::{Cgroup, Controller, Version};
use cpu_topology::{CpuSet, possible};
use kernel_files::{Buffer, Dir, NodeFiles, ReadError, Roots};
use perf_cgroups::{Divided, Hierarchy, SharedGroup, Unavailable};
use perf_counters::Plan;
use perf_counters::sharing::CounterOwnership;
use perf_events::{OpenError, parse_unified_perf};
use rustix::io::Errno;
use slurm_jobs::scope::hierarchies;

use super::options::{Method, PerfOptions};
use crate::collector::SourceError;

/// Where the kernel describes its own types, in some 6 MiB.
const TYPES_IN: &str = "sys/kernel/btf";
const MOST_OF_TYPES: usize = 64 << 20;

/// The way, and why it is not the other one.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// Counters of CPUs that are divided; `None` where cgroups have their own.
    pub(super) divided: Option<Arc<Divided>>,
    /// Why they are not divided although they might be.
    pub(super) reason: Option<Arc<str>>,
    /// Whether cgroups of v2 have perf events.
    unified: bool,
}

impl Way {
    /// Finds out which way it is, for SLURM's cgroups of this version: opens the counters of all CPUs where they are to be divided.
    pub(super) fn find(
        options: &PerfOptions,
        version: Option<Version>,
        plan: &Plan,
        online: &CpuSet,
        files: &mut NodeFiles,
        ownership: &CounterOwnership,
    ) -> Result<Self, SourceError> {
        let unified = files.read_lines("proc/cgroups").map_or(true, parse_unified_perf);
        if !options.may_divide() {
            return Ok(Self { unified, ..Self::default() });
        }
        match hierarchy(version, files)
            .and_then(|hierarchy| divide(hierarchy, plan, options.levels.steps, online, files, ownership))
        {
            Ok(divided) => {
                tracing::info!(
                    descriptors = divided.descriptors(),
                    "counters of CPUs are divided by cgroup in BPF"
                );
                Ok(Self { divided: Some(Arc::new(divided)), reason: None, unified })
            }
            Err(error) if options.method == Method::Bpf => Err(error),
            Err(error) => {
                let reason = error.to_string();
                tracing::info!(reason, "counters are opened for each cgroup");
                Ok(Self { divided: None, reason: Some(reason.into()), unified })
            }
        }
    }

    /// The `method` label.
    pub(super) fn as_str(&self) -> &'static str {
        if self.divided.is_some() { "bpf" } else { "cgroup" }
    }

    /// The hierarchy whose cgroups are divided.
    pub(super) fn divides(version: Version) -> Controller {
        match version {
            Version::V1 => Controller::Freezer,
            Version::V2 => Controller::PerfEvent,
        }
    }

    /// The directory by which a job is counted; `None` where its CPUs alone can be. SLURM makes none for perf events on v1, and one in
    /// the freezer always.
    pub(super) fn directory(&self, cgroup: &Cgroup) -> Option<Result<File, ReadError>> {
        let open = |controller| cgroup.dir(controller).map(|dir| dir.readable().map(File::from));
        let version = cgroup.version();
        let divided =
            |divided: &Arc<Divided>| open(Self::divides(version))?.ok().filter(|dir| divided.has(dir));
        match self.divided.as_ref().and_then(divided) {
            Some(directory) => Some(Ok(directory)),
            None if version == Version::V1 || self.unified => open(Controller::PerfEvent),
            None => None,
        }
    }
}

/// The version of cgroups that SLURM takes for itself, where nothing of it is there yet: v1 where a controller of v1 is mounted
/// (src/interfaces/cgroup.c, `autodetect_cgroup_version`).
pub(super) fn mounted(roots: &Roots) -> Option<Version> {
    let root = Dir::open(&roots.cgroup("")).ok()?;
    let versions: Vec<Version> = hierarchies(&root).ok()?.iter().map(|found| found.version).collect();
    versions.iter().find(|version| **version == Version::V1).or(versions.first()).copied()
}

/// The hierarchy that is divided, and how this kernel finds the cgroup of a task in it.
fn hierarchy(version: Option<Version>, files: &mut NodeFiles) -> Result<Hierarchy, SourceError> {
    const NEEDS: &str =
        "a kernel that describes its types (CONFIG_DEBUG_INFO_BTF) to divide counters by cgroup";
    // All of it is read, once: the buffer of the other files is not to grow for it.
    let mut buffer = Buffer::default();
    let directory = files.open(TYPES_IN);
    let types = directory.and_then(|dir| Ok(dir.read_long("vmlinux", &mut buffer, MOST_OF_TYPES)?.0));
    let types = types.map_err(SourceError::reading("sys/kernel/btf/vmlinux", NEEDS))?;
    let found = match version {
        Some(Version::V1) => Hierarchy::v1(types, "freezer"),
        _ => Hierarchy::unified(types),
    };
    found.map_err(|error| SourceError::Unsupported { needs: format!("{NEEDS}: {error}") })
}

fn divide(
    hierarchy: Hierarchy,
    plan: &Plan,
    follows: bool,
    online: &CpuSet,
    files: &mut NodeFiles,
    ownership: &CounterOwnership,
) -> Result<Divided, SourceError> {
    let shared =
        |group: &perf_counters::Group| SharedGroup { events: group.attrs(), cpus: group.cpus.clone() };
    let last = |cpus: &CpuSet| cpus.iter().max();
    let last = possible(files).ok().flatten().as_ref().and_then(last).max(last(online));
    let cpus = last.map_or(0, |last| last + 1);
    let groups = plan.groups.iter().map(shared).collect();
    let divided = Divided::new(hierarchy, groups, cpus, follows).and_then(|divided| {
        divided.prepare(online.iter(), || ownership.is_yielded())?;
        Ok(divided)
    });
    divided.map_err(|error| refused(&error))
}

fn refused(error: &Unavailable) -> SourceError {
    let denied = match error {
        Unavailable::Bpf(error) => error.errno == Errno::PERM,
        Unavailable::Events(error) => *error == OpenError::Denied,
        Unavailable::Types(_) | Unavailable::NoCgroup | Unavailable::TooLarge => false,
    };
    if denied {
        return SourceError::Denied { what: format!("perf counters' BPF: {error}") };
    }
    SourceError::Unsupported { needs: format!("Linux 5.11 to divide counters by cgroup ({error})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::testing::Machine;

    #[test]
    fn what_is_missing_is_named() {
        let bpf = |errno| Unavailable::Bpf(bpf::BpfError { what: "loading a program", errno, why: None });
        let denied = refused(&bpf(Errno::PERM)).to_string();
        assert!(denied.starts_with("denied: perf counters' BPF: loading a program"), "{denied}");
        let old = refused(&bpf(Errno::INVAL)).to_string();
        assert!(old.contains("Linux 5.11"), "{old}");
    }

    #[test]
    fn the_version_is_slurms_choice_where_nothing_of_slurm_is_there() {
        let machine = Machine::new();
        let mounted = || mounted(&machine.roots());
        assert_eq!(mounted(), None);
        machine.write("cgroup/unified/cgroup.controllers", "");
        assert_eq!(mounted(), Some(Version::V2));
        machine.write("cgroup/freezer/cgroup.procs", "");
        assert_eq!(mounted(), Some(Version::V1), "hybrid");
        machine.write("cgroup/cgroup.controllers", "cpu memory\n");
        assert_eq!(mounted(), Some(Version::V2));
    }

    #[test]
    fn the_kernel_has_to_describe_its_types() {
        let machine = Machine::new();
        let mut files = NodeFiles::new(&Arc::new(machine.roots()));
        let mut why = || hierarchy(Some(Version::V2), &mut files).unwrap_err().to_string();
        assert!(why().contains("CONFIG_DEBUG_INFO_BTF"), "{}", why());
        machine.write("sys/kernel/btf/vmlinux", "no types\n");
        assert!(why().contains("another format"), "{}", why());
    }
}
