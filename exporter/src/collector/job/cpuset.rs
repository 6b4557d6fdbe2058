//! How many CPUs and memory nodes a job may use, and the CPU time that it had by that.
//!
//! v2: `cpuset.cpus.effective`, `cpuset.mems.effective` (Documentation/admin-guide/cgroup-v2.rst, "Cpuset"; 5.0). v1:
//! `cpuset.effective_cpus`, `cpuset.effective_mems` (Documentation/admin-guide/cgroup-v1/cpusets.rst; 3.17). SLURM
//! narrows them with `ConstrainCores=yes` alone. Without it v2 shows the node's CPUs, and v1 has no cpuset of the
//! job. A step's are on its `user` directory. Until SLURM has written them, v2 shows those of the directory above. So
//! a job's CPUs are exported when its binding is not waited for any longer (`slurm::binding`, which reads
//! `cpuset.cpus` until the first task is there). Needs no privilege.
//!
//! Allocated CPU time comes from the same readings, for jobs of any length. One is made as soon as there is a task
//! (on v1: as soon as SLURM writes the CPUs), and if neither was seen, when a step of the job ends.

use cgroups::{Controller, Version, View};
use clocks::Boottime;
use cpu_topology::CpuSet;
use exposition::{Family, PerCgroup, Profile, Section, Value};
use kernel_files::Buffer;
use serde::{Deserialize, Serialize};
use slurm_jobs::{Disposition, Job, JobRunId, NodeSnapshot, binding};

use super::allocated::Allocated;
use crate::collector::durable::{Before, Unreadable};
use crate::collector::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use crate::collector::{Entry, Selected, SourceError};

static CPUS: PerCgroup = Family::gauge("jobledger_job_cpus")
    .profile(Profile::Lean)
    .help(
        "CPUs (hardware threads) that the tasks may run on: the allocated ones with \
         ConstrainCores=yes, else all of the node; absent until SLURM has bound them or started a task",
    )
    .per_cgroup("jobledger_step_cpus", "jobledger_task_cpus");
static MEMORY_NODES: PerCgroup = Family::gauge("jobledger_job_memory_nodes")
    .profile(Profile::Full)
    .help("NUMA memory nodes that the tasks may allocate from")
    .per_cgroup("jobledger_step_memory_nodes", "jobledger_task_memory_nodes");
/// Of which owners have the sum, as of [`super::cpu::CPU_SECONDS`].
pub(in crate::collector) static ALLOCATED: Family =
    Family::counter("jobledger_job_allocated_cpu_seconds_total").profile(Profile::Lean).help(
        "CPUs that the job may use (jobledger_job_cpus) times its time on this node, from its start \
     to now or its end: what it had, beside what it used (jobledger_job_cpu_seconds_total)",
    );

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "cpuset",
    summary: "CPUs and memory nodes that jobs may use",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || [&CPUS, &MEMORY_NODES].into_iter().flat_map(PerCgroup::rows).chain([&ALLOCATED]).collect(),
    build: |context| {
        let selected: Selected = context.options.get();
        let leaves_out_nodes = !selected.wants(ENTRY.name, [&MEMORY_NODES.job]);
        build(Cpuset { leaves_out_nodes, ..Cpuset::default() })
    },
};

/// What the two lists hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Whether SLURM may yet write which CPUs.
    pub awaited: bool,
    /// Number of CPUs; a set that is still empty (v1, just made) is none.
    pub cpus: Option<u64>,
    /// Number of memory nodes.
    pub memory_nodes: Option<u64>,
}

fn count(view: &View<'_>, file: &'static str, buffer: &mut Buffer) -> Result<Option<u64>, SourceError> {
    let bytes = view.read(Controller::Cpuset, file, buffer).map_err(SourceError::reading(file, ""))?;
    let list = bytes.map(CpuSet::parse).transpose().map_err(SourceError::parsing(file))?;
    Ok(list.map(|list| list.len()).filter(|len| *len > 0))
}

/// The source.
#[derive(Debug, Default)]
pub struct Cpuset {
    allocated: Allocated,
    /// Nobody is shown the memory nodes, so they are not read.
    leaves_out_nodes: bool,
}

impl CgroupSource for Cpuset {
    type Reading = Places;

    const OUTLIVES: bool = false;

    /// A job without known CPUs: the first scrape with it may be the last.
    fn wants(&self, job: &Job) -> bool {
        !self.allocated.knows(job.run)
    }

    fn read(
        &self,
        Group { job, step, limits, .. }: &Group<'_>,
        buffer: &mut Buffer,
    ) -> Result<Places, SourceError> {
        let (cpus, mems) = match limits.version() {
            Version::V2 => ("cpuset.cpus.effective", "cpuset.mems.effective"),
            Version::V1 => ("cpuset.effective_cpus", "cpuset.effective_mems"),
        };
        // First, so that the CPUs are read after they were written.
        let awaited = binding::is_awaited(job, *step, limits, buffer);
        let awaited = awaited.map_err(SourceError::reading("cpuset.cpus", ""))?;
        let cpus = if awaited { None } else { count(limits, cpus, buffer)? };
        let memory_nodes = if self.leaves_out_nodes { None } else { count(limits, mems, buffer)? };
        Ok(Places { awaited, cpus, memory_nodes })
    }

    fn complete(
        &self,
        job: &Job,
        _last: Option<&Places>,
        fresh: &mut Places,
        _buffer: &mut Buffer,
    ) -> Result<(), SourceError> {
        self.allocated.read(job, fresh.cpus, Boottime::now());
        Ok(())
    }

    fn emit(&self, reading: &Places, out: &mut Emit<'_>) {
        out.push(&CPUS, &[], reading.cpus);
        out.push(&MEMORY_NODES, &[], reading.memory_nodes);
        let allocated = out.job().and_then(|job| self.allocated.nanoseconds(job));
        out.push_one(&ALLOCATED, &[], allocated.map(|nanoseconds| Value::of_parts(nanoseconds, 9)));
    }

    fn finish(
        &self,
        snapshot: &NodeSnapshot,
        readings: &mut Readings<Places>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), SourceError> {
        if readings.none_has(snapshot, |r| r.awaited || r.cpus.is_some()) {
            let needs = "the cpuset controller on jobs (ConstrainCores=yes in cgroup.conf)".to_owned();
            return Err(SourceError::Unsupported { needs });
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.allocated.save()
    }

    fn restore(&self, saved: &[u8], before: &Before) -> Result<(), Unreadable> {
        self.allocated.restore(saved, before)
    }

    fn forget(&self, run: JobRunId, _last: Option<&Places>, _disposition: Disposition) {
        self.allocated.forget(run);
    }
}

#[cfg(test)]
mod tests;
