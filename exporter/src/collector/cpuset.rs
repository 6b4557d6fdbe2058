//! How many CPUs and memory nodes a job may use.
//!
//! v2: `cpuset.cpus.effective`, `cpuset.mems.effective` (Documentation/admin-guide/cgroup-v2.rst, "Cpuset"; 5.0).
//! v1: `cpuset.effective_cpus`, `cpuset.effective_mems` (Documentation/admin-guide/cgroup-v1/cpusets.rst; 3.17).
//! SLURM narrows them with `ConstrainCores=yes` alone; without it v2 shows the node's CPUs and v1 has no cpuset of
//! the job. A step's are on its `user` directory. Needs no privilege.

use super::per_cgroup::{CgroupSource, Emit, Readings, build};
use super::{CollectError, Entry, Scene};
use crate::cgroup::{Controller, Version, View};
use crate::kernel_file::Buffer;
use crate::metric::{PerCgroup, Section, per_cgroup};
use crate::parse::parse_cpu_list;

per_cgroup!(
    CPUS,
    "cpus",
    Gauge,
    None,
    [],
    "CPUs (hardware threads) that the tasks may run on: the allocated ones with ConstrainCores=yes, else all of the node",
    "0.1.0"
);
per_cgroup!(
    MEMORY_NODES,
    "memory_nodes",
    Gauge,
    None,
    [],
    "NUMA memory nodes that the tasks may allocate from",
    "0.1.0"
);

/// Row of the registry.
pub(super) const ENTRY: Entry = Entry {
    name: "cpuset",
    summary: "CPUs and memory nodes that jobs may use",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || [&CPUS, &MEMORY_NODES].into_iter().flat_map(PerCgroup::rows).collect(),
    build: |_| build(Cpuset),
};

/// What the two lists hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Places {
    /// Number of CPUs; a set that is still empty (v1, just made) is none.
    pub cpus: Option<u64>,
    /// Number of memory nodes.
    pub memory_nodes: Option<u64>,
}

fn count(view: &View<'_>, file: &'static str, buffer: &mut Buffer) -> Result<Option<u64>, CollectError> {
    let bytes = view.read(Controller::Cpuset, file, buffer).map_err(CollectError::reading_group(file))?;
    let list = bytes.map(parse_cpu_list).transpose().map_err(CollectError::parsing(file))?;
    Ok(list.map(|list| list.len()).filter(|len| *len > 0))
}

/// The source.
#[derive(Debug)]
pub struct Cpuset;

impl CgroupSource for Cpuset {
    type Reading = Places;

    const OUTLIVES: bool = false;

    fn read(&self, _view: &View<'_>, limits: &View<'_>, buffer: &mut Buffer) -> Result<Places, CollectError> {
        let (cpus, mems) = match limits.version() {
            Version::V2 => ("cpuset.cpus.effective", "cpuset.mems.effective"),
            Version::V1 => ("cpuset.effective_cpus", "cpuset.effective_mems"),
        };
        Ok(Places { cpus: count(limits, cpus, buffer)?, memory_nodes: count(limits, mems, buffer)? })
    }

    fn emit(&self, reading: &Places, out: &mut Emit<'_>) {
        out.push(&CPUS, &[], reading.cpus);
        out.push(&MEMORY_NODES, &[], reading.memory_nodes);
    }

    fn finish(
        &self,
        scene: &Scene,
        readings: &mut Readings<Places>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), CollectError> {
        if readings.none_has(scene, |r| r.cpus.is_some()) {
            let needs = "the cpuset controller on jobs (ConstrainCores=yes in cgroup.conf)".to_owned();
            return Err(CollectError::Unsupported { needs });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Levels;
    use super::super::testing::{Machine, collect, collect_many, ended, job, value};
    use super::*;

    #[test]
    fn v2_counts_the_effective_sets_and_a_steps_are_on_its_user_directory() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cpuset.cpus.effective", "0-3,8\n");
        machine.write("cgroup/job_7/cpuset.mems.effective", "0-1\n");
        machine.write("cgroup/job_7/step_0/cpuset.cpus.effective", "0-3,8\n");
        machine.write("cgroup/job_7/step_0/user/cpuset.cpus.effective", "0-1\n");
        machine.write("cgroup/job_7/step_0/user/task_0/cpuset.cpus.effective", "1\n");
        let mut scene = machine.scene(vec![job(7, machine.v2("job_7"), &[("0", &["0"])])]);
        scene.levels = Levels { steps: true, tasks: true };
        let (outcome, text) = collect(&ENTRY, &scene);
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"7\"}"), Some(5.0));
        assert_eq!(value(&text, "jobledger_job_memory_nodes{jobid=\"7\"}"), Some(2.0));
        assert_eq!(value(&text, "jobledger_step_cpus{jobid=\"7\",step=\"0\"}"), Some(2.0));
        assert_eq!(value(&text, "jobledger_task_cpus{jobid=\"7\",step=\"0\",task=\"0\"}"), Some(1.0));
    }

    #[test]
    fn v1_counts_the_cpuset_hierarchy_and_an_empty_set_is_none_not_zero() {
        let machine = Machine::new();
        let at = |job: u32| format!("slurm/uid_0/job_{job}");
        machine.write("cgroup/cpuset/slurm/uid_0/job_2/cpuset.effective_cpus", "0\n");
        machine.write("cgroup/cpuset/slurm/uid_0/job_2/cpuset.effective_mems", "0\n");
        machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.effective_cpus", "\n");
        let jobs = [2, 3].map(|id| job(id, machine.v1(&[("cpuset", &at(id))]), &[]));
        let (outcome, text) = collect(&ENTRY, &machine.scene(jobs.to_vec()));
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"2\"}"), Some(1.0));
        assert_eq!(value(&text, "jobledger_job_cpus{jobid=\"3\"}"), None);
    }

    #[test]
    fn no_cpuset_anywhere_is_unsupported_and_no_job_is_no_complaint() {
        let machine = Machine::new();
        machine.write("cgroup/freezer/slurm/uid_0/job_2/cgroup.procs", "");
        let only_freezer = job(2, machine.v1(&[("freezer", "slurm/uid_0/job_2")]), &[]);
        let outcomes =
            collect_many(&ENTRY, &[&machine.scene(vec![only_freezer]), &machine.scene(Vec::new())]);
        assert!(matches!(outcomes[0].0, Err(CollectError::Unsupported { .. })));
        assert!(!outcomes[0].1.contains("jobledger_job_cpus{"));
        assert_eq!(outcomes[1].0, Ok(()));
    }

    #[test]
    fn a_malformed_set_costs_its_job_alone_and_an_ended_job_has_no_cpus() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cpuset.cpus.effective", "0-3\n");
        machine.write("cgroup/job_8/cpuset.cpus.effective", "3-0\n");
        let (good, bad) = (job(7, machine.v2("job_7"), &[]), job(8, machine.v2("job_8"), &[]));
        let scenes = [machine.scene(vec![good.clone(), bad]), machine.scene(vec![ended(&good)])];
        let told = collect_many(&ENTRY, &[&scenes[0], &scenes[1]]);
        assert!(matches!(&told[0].0, Err(CollectError::Partial { ok: 1, failed: 1, .. })), "{:?}", told[0].0);
        assert_eq!(value(&told[0].1, "jobledger_job_cpus{jobid=\"7\"}"), Some(4.0));
        assert!(!told[1].1.contains("jobledger_job_cpus{"));
    }
}
