//! How many CPUs and memory nodes a job may use.
//!
//! v2: `cpuset.cpus.effective`, `cpuset.mems.effective` (Documentation/admin-guide/cgroup-v2.rst, "Cpuset"; 5.0).
//! v1: `cpuset.effective_cpus`, `cpuset.effective_mems` (Documentation/admin-guide/cgroup-v1/cpusets.rst; 3.17).
//! SLURM narrows them with `ConstrainCores=yes` alone; without it v2 shows the node's CPUs and v1 has no cpuset of
//! the job. A step's are on its `user` directory. Until SLURM has written them v2 shows those of the directory above: a job's
//! CPUs are told when its binding is not waited for any longer (`slurm::binding`, which reads `cpuset.cpus` until the first
//! task is there). Needs no privilege.

use super::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use super::{CollectError, Entry, Scene};
use crate::cgroup::{Controller, Version, View};
use crate::kernel_file::Buffer;
use crate::metric::{PerCgroup, Section, per_cgroup};
use crate::parse::parse_cpu_list;
use crate::slurm::binding;

per_cgroup!(
    CPUS,
    "cpus",
    Gauge,
    None,
    [],
    "CPUs (hardware threads) that the tasks may run on: the allocated ones with ConstrainCores=yes, else all of the node; absent until SLURM has bound them or started a task",
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
    /// Whether SLURM may yet write which CPUs.
    pub awaited: bool,
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

    fn read(
        &self,
        Group { job, step, limits, .. }: &Group<'_>,
        buffer: &mut Buffer,
    ) -> Result<Places, CollectError> {
        let (cpus, mems) = match limits.version() {
            Version::V2 => ("cpuset.cpus.effective", "cpuset.mems.effective"),
            Version::V1 => ("cpuset.effective_cpus", "cpuset.effective_mems"),
        };
        // First, so that the CPUs are read after they were written.
        let awaited = binding::is_awaited(job, *step, limits, buffer);
        let awaited = awaited.map_err(CollectError::reading_group("cpuset.cpus"))?;
        let cpus = if awaited { None } else { count(limits, cpus, buffer)? };
        Ok(Places { awaited, cpus, memory_nodes: count(limits, mems, buffer)? })
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
        if readings.none_has(scene, |r| r.awaited || r.cpus.is_some()) {
            let needs = "the cpuset controller on jobs (ConstrainCores=yes in cgroup.conf)".to_owned();
            return Err(CollectError::Unsupported { needs });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Levels;
    use super::super::testing::{Bench, Machine, aged, collect, collect_many, ended, job, value};
    use super::*;
    use crate::slurm::Job;

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

    /// slurmstepd makes a job's directory some moments before it writes its CPUs: until then the node's show.
    #[test]
    fn a_job_is_not_said_to_have_the_node_before_it_is_bound() {
        let machine = Machine::new();
        let set =
            |file: &str, cpus: &str| machine.write(&format!("cgroup/job_7/{file}"), format!("{cpus}\n"));
        let young = || job(7, machine.v2("job_7"), &[("0", &[])]);
        set("cpuset.cpus", "");
        set("cpuset.cpus.effective", "0-63");
        set("cpuset.mems.effective", "0-1");
        set("step_0/user/cpuset.cpus", "");
        set("step_0/user/cpuset.cpus.effective", "0-63");
        let scene =
            |job: Job| Scene { levels: Levels { steps: true, tasks: true }, ..machine.scene(vec![job]) };
        let mut bench = Bench::new(&ENTRY, &scene(young()));
        let mut told = |job: Job| {
            let (outcome, text) = bench.collect(&scene(job));
            assert_eq!(outcome, Ok(()), "that it is not known yet is no failure");
            assert_eq!(value(&text, "jobledger_job_memory_nodes{jobid=\"7\"}"), Some(2.0));
            let step = value(&text, "jobledger_step_cpus{jobid=\"7\",step=\"0\"}");
            let task = value(&text, "jobledger_task_cpus{jobid=\"7\",step=\"0\",task=\"0\"}");
            (value(&text, "jobledger_job_cpus{jobid=\"7\"}"), step, task)
        };
        assert_eq!(told(young()), (None, None, None));
        // Nothing constrains it: it is old, or a task runs and nobody has bound it.
        let old = aged(&young(), Duration::from_secs(60));
        assert_eq!(told(old), (Some(64.0), Some(64.0), None));
        set("step_0/user/task_0/cpuset.cpus", "");
        set("step_0/user/task_0/cpuset.cpus.effective", "0-63");
        let works = job(7, machine.v2("job_7"), &[("0", &["0"])]);
        assert_eq!(told(works), (Some(64.0), Some(64.0), Some(64.0)));
        // Bound, and then its step, too.
        set("cpuset.cpus", "0-3");
        set("cpuset.cpus.effective", "0-3");
        set("step_0/user/cpuset.cpus.effective", "0-3");
        assert_eq!(told(young()), (Some(4.0), None, None));
        set("step_0/user/cpuset.cpus", "1");
        set("step_0/user/cpuset.cpus.effective", "1");
        assert_eq!(told(young()), (Some(4.0), Some(1.0), None));
    }

    /// One that went before it was bound never had the node.
    #[test]
    fn a_job_that_was_only_seen_unbound_has_no_cpus() {
        let machine = Machine::new();
        machine.write("cgroup/job_7/cpuset.cpus", "\n");
        machine.write("cgroup/job_7/cpuset.cpus.effective", "0-63\n");
        let brief = job(7, machine.v2("job_7"), &[]);
        let scenes = [machine.scene(vec![brief.clone()]), machine.scene(vec![ended(&brief)])];
        for (outcome, text) in collect_many(&ENTRY, &[&scenes[0], &scenes[1]]) {
            assert_eq!((outcome, text.contains("jobledger_job_cpus{")), (Ok(()), false));
        }
    }

    #[test]
    fn v1_just_made_waits_without_being_called_unsupported() {
        let machine = Machine::new();
        for file in ["cpuset.cpus", "cpuset.effective_cpus", "cpuset.effective_mems"] {
            machine.write(&format!("cgroup/cpuset/slurm/uid_0/job_3/{file}"), "\n");
        }
        let job = job(3, machine.v1(&[("cpuset", "slurm/uid_0/job_3")]), &[]);
        let mut bench = Bench::new(&ENTRY, &machine.scene(vec![job.clone()]));
        let mut told = |job: &Job| {
            let (outcome, text) = bench.collect(&machine.scene(vec![job.clone()]));
            (outcome.is_ok(), value(&text, "jobledger_job_cpus{jobid=\"3\"}"))
        };
        assert_eq!(told(&job), (true, None));
        machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.cpus", "2-3\n");
        machine.write("cgroup/cpuset/slurm/uid_0/job_3/cpuset.effective_cpus", "2-3\n");
        assert_eq!(told(&job), (true, Some(2.0)));
        assert_eq!(told(&aged(&job, Duration::from_secs(60))), (true, Some(2.0)));
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
