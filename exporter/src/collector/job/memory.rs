//! Memory of jobs: usage by kind, the limit, the peak, out-of-memory kills and page faults.
//!
//! v2 (Documentation/admin-guide/cgroup-v2.rst, "Memory"): `memory.current`, `.stat` (`kernel` from 5.18), `.max`,
//! `.high`, `.peak` (5.19), `.swap.current`, `.swap.max`, `.events`: eight short reads per job.
//! v1 (Documentation/admin-guide/cgroup-v1/memory.rst): `memory.usage_in_bytes`, `.max_usage_in_bytes`,
//! `.kmem.usage_in_bytes`, and the hierarchical fields of `memory.stat`, which have the limits and the swap too;
//! `.oom_control` and `.failcnt`, which are not hierarchical, also of each step and task.
//! `memory.stat` makes the kernel sum up its per-CPU counters: the dearest read of a scrape. No privilege.

use std::sync::atomic::{AtomicBool, Ordering};

use cgroups::memory::{
    MemoryEvents, MemoryStat, parse_memory_events, parse_memory_stat, parse_memory_stat_v1,
};
use cgroups::{Controller, Version, View};
use clocks::Boottime;
use exposition::{Family, PerCgroup, Profile, Section, Value};
use kernel_files::Buffer;
use kernel_files::parse::{Limit, parse_integer, parse_limit};
use serde::{Deserialize, Serialize};
use slurm_jobs::{Disposition, Job, JobRunId, NodeSnapshot};

use super::allocated::Allocated;
use crate::collector::durable::{Before, Unreadable};
use crate::collector::per_cgroup::{CgroupSource, Emit, Group, Readings, build};
use crate::collector::{Entry, Selected, SourceError};

static USED: PerCgroup = Family::gauge("jobledger_job_memory_used_bytes")
    .profile(Profile::Lean)
    .help("Memory charged to the cgroup, page cache and kernel memory included")
    .per_cgroup("jobledger_step_memory_used_bytes", "jobledger_task_memory_used_bytes");
static ANON: PerCgroup = Family::gauge("jobledger_job_memory_anon_bytes")
    .help("Anonymous memory (heaps, stacks); v1 counts swap cache with it")
    .per_cgroup("jobledger_step_memory_anon_bytes", "jobledger_task_memory_anon_bytes");
static FILE: PerCgroup = Family::gauge("jobledger_job_memory_file_bytes")
    .help("Page cache, tmpfs and shared memory included")
    .per_cgroup("jobledger_step_memory_file_bytes", "jobledger_task_memory_file_bytes");
static SHMEM: PerCgroup = Family::gauge("jobledger_job_memory_shmem_bytes")
    .help(
        "Memory of tmpfs, System V and shared anonymous mappings; \
         part of the page cache that cannot be dropped",
    )
    .per_cgroup("jobledger_step_memory_shmem_bytes", "jobledger_task_memory_shmem_bytes");
static FILE_MAPPED: PerCgroup = Family::gauge("jobledger_job_memory_file_mapped_bytes")
    .profile(Profile::Full)
    .help("Page cache that is mapped into processes")
    .per_cgroup("jobledger_step_memory_file_mapped_bytes", "jobledger_task_memory_file_mapped_bytes");
static KERNEL: PerCgroup = Family::gauge("jobledger_job_memory_kernel_bytes")
    .help("All kernel memory; v2 from Linux 5.18, v1 where it is accounted")
    .per_cgroup("jobledger_step_memory_kernel_bytes", "jobledger_task_memory_kernel_bytes");
static SLAB: PerCgroup = Family::gauge("jobledger_job_memory_slab_bytes")
    .profile(Profile::Full)
    .help("Kernel slab caches; v2 only")
    .per_cgroup("jobledger_step_memory_slab_bytes", "jobledger_task_memory_slab_bytes");
static LIMIT: PerCgroup = Family::gauge("jobledger_job_memory_limit_bytes")
    .profile(Profile::Lean)
    .retained()
    .help(
        "What may be used before the kernel reclaims or kills: the smaller of memory.max and \
         memory.high, v1 the limit of this cgroup or an ancestor; absent without a limit",
    )
    .per_cgroup("jobledger_step_memory_limit_bytes", "jobledger_task_memory_limit_bytes");
/// In a second.
const NANOSECONDS: u128 = 1_000_000_000;

/// Of which owners have the sum.
pub(in crate::collector) static ALLOCATED: Family =
    Family::counter("jobledger_job_memory_allocated_byte_seconds_total").profile(Profile::Lean).help(
        "Memory limit (jobledger_job_memory_limit_bytes) times the job's time on this node, from its start \
         to now or its end, in bytes times seconds; absent without a limit",
    );
static PEAK: PerCgroup = Family::gauge("jobledger_job_memory_peak_bytes")
    .profile(Profile::Lean)
    .retained()
    .help("Highest memory_used_bytes so far; v2 from Linux 5.19")
    .per_cgroup("jobledger_step_memory_peak_bytes", "jobledger_task_memory_peak_bytes");
static SWAP_USED: PerCgroup = Family::gauge("jobledger_job_swap_used_bytes")
    .help("Swap space that the cgroup's memory is in")
    .per_cgroup("jobledger_step_swap_used_bytes", "jobledger_task_swap_used_bytes");
static SWAP_LIMIT: PerCgroup = Family::gauge("jobledger_job_swap_limit_bytes")
    .help("Swap space that may be used; absent without a limit")
    .per_cgroup("jobledger_step_swap_limit_bytes", "jobledger_task_swap_limit_bytes");
static OOM_EVENTS: PerCgroup = Family::counter("jobledger_job_oom_events_total")
    .help("Times that an allocation failed at the limit and the out-of-memory killer was considered; v2 only")
    .per_cgroup("jobledger_step_oom_events_total", "jobledger_task_oom_events_total");
static OOM_KILLS: PerCgroup = Family::counter("jobledger_job_oom_kills_total")
    .profile(Profile::Lean)
    .help(
        "Processes that the out-of-memory killer killed; on v1 at least so many \
         and absent instead of 0, since the counts of tasks that are gone are lost",
    )
    .per_cgroup("jobledger_step_oom_kills_total", "jobledger_task_oom_kills_total");
static LIMIT_HITS: PerCgroup = Family::counter("jobledger_job_memory_limit_hits_total")
    .labels(&["limit"])
    .help(
        "Times that usage ran into memory.max or memory.high; v1 has the \
         hard limit alone (max), at least so many, absent instead of 0",
    )
    .per_cgroup("jobledger_step_memory_limit_hits_total", "jobledger_task_memory_limit_hits_total");
static PAGE_FAULTS: PerCgroup = Family::counter("jobledger_job_page_faults_total")
    .labels(&["type"])
    .help("Page faults; major ones had to read from a device")
    .per_cgroup("jobledger_step_page_faults_total", "jobledger_task_page_faults_total");

/// Row of the registry.
pub(in crate::collector) const ENTRY: Entry = Entry {
    name: "memory",
    summary: "Memory and swap of jobs: used, by kind, limit, peak, out-of-memory kills, page faults",
    default_on: true,
    cost: None,
    capabilities: rustix::thread::CapabilitySet::empty(),
    families: || {
        let all = [
            &USED,
            &ANON,
            &FILE,
            &SHMEM,
            &FILE_MAPPED,
            &KERNEL,
            &SLAB,
            &LIMIT,
            &PEAK,
            &SWAP_USED,
            &SWAP_LIMIT,
            &OOM_EVENTS,
            &OOM_KILLS,
            &LIMIT_HITS,
            &PAGE_FAULTS,
        ];
        all.into_iter().flat_map(PerCgroup::rows).chain([&ALLOCATED]).collect()
    },
    build: |context| build(Memory::new(&context.options.get())),
};

/// What one cgroup yields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReading {
    used: Option<u64>,
    stat: MemoryStat,
    events: MemoryEvents,
    limit: Option<u64>,
    peak: Option<u64>,
    swap_used: Option<u64>,
    swap_limit: Option<u64>,
    /// v1, of a job: what its steps and tasks counted, by ordinals, the last of those that are gone.
    parts: Vec<((u32, Option<u32>), MemoryEvents)>,
}

fn read<'b>(
    view: &View<'_>,
    file: &'static str,
    buffer: &'b mut Buffer,
) -> Result<Option<&'b [u8]>, SourceError> {
    view.read(Controller::Memory, file, buffer).map_err(SourceError::reading(file, ""))
}

fn number(view: &View<'_>, file: &'static str, buffer: &mut Buffer) -> Result<Option<u64>, SourceError> {
    let bytes = read(view, file, buffer)?;
    bytes.map(parse_integer).transpose().map_err(SourceError::parsing(file))
}

fn limit(view: &View<'_>, file: &'static str, buffer: &mut Buffer) -> Result<Option<u64>, SourceError> {
    let bytes = read(view, file, buffer)?;
    let limit = bytes.map(parse_limit).transpose().map_err(SourceError::parsing(file))?;
    Ok(limit.and_then(Limit::value))
}

fn events(
    view: &View<'_>,
    file: &'static str,
    buffer: &mut Buffer,
) -> Result<Option<MemoryEvents>, SourceError> {
    read(view, file, buffer)?.map(parse_memory_events).transpose().map_err(SourceError::parsing(file))
}

/// v1 counts both where they happen and not above, and the places go away: 0 says nothing, more says "at least".
fn events_v1(view: &View<'_>, with_hits: bool, buffer: &mut Buffer) -> Result<MemoryEvents, SourceError> {
    let kills = events(view, "memory.oom_control", buffer)?.and_then(|e| e.oom_kill);
    let hits = if with_hits { number(view, "memory.failcnt", buffer)? } else { None };
    let some = |count: Option<u64>| count.filter(|count| *count > 0);
    Ok(MemoryEvents { oom_kill: some(kills), max: some(hits), ..Default::default() })
}

fn read_v1(view: &View<'_>, buffer: &mut Buffer) -> Result<MemoryReading, SourceError> {
    const STAT: &str = "memory.stat";
    let Some(used) = number(view, "memory.usage_in_bytes", buffer)? else { return Ok(Default::default()) };
    let stat = read(view, STAT, buffer)?.map(parse_memory_stat_v1).transpose();
    let mut stat = stat.map_err(SourceError::parsing(STAT))?.unwrap_or_default();
    // Without accounting (cgroup.memory=nokmem) the file says 0, which no cgroup with a process can have.
    stat.kernel = number(view, "memory.kmem.usage_in_bytes", buffer)?.filter(|bytes| *bytes > 0);
    let as_limit = |bytes: Option<u64>| bytes.map(Limit::from_v1_bytes).and_then(Limit::value);
    let limit = as_limit(stat.limit);
    Ok(MemoryReading {
        used: Some(used),
        events: events_v1(view, true, buffer)?,
        limit,
        peak: number(view, "memory.max_usage_in_bytes", buffer)?,
        swap_used: stat.swap,
        swap_limit: as_limit(stat.memsw_limit).zip(limit).map(|(both, memory)| both.saturating_sub(memory)),
        stat,
        parts: Vec::new(),
    })
}

/// The source.
#[derive(Debug, Default)]
pub struct Memory {
    allocated: Allocated,
    /// This kernel has no `memory.peak`.
    lacks_peak: AtomicBool,
    /// This kernel does not account swap.
    lacks_swap: AtomicBool,
    /// Nobody is shown what only these files of v2 say, so they are not read.
    leaves_out: LeftOut,
}

/// Files of v2.
#[derive(Debug, Default)]
struct LeftOut {
    stat: bool,
    swap: bool,
}

/// Reads a file that this kernel may not have; once a live cgroup lacked it, it is not asked for again.
fn number_unless(
    lacks: &AtomicBool,
    view: &View<'_>,
    file: &'static str,
    buffer: &mut Buffer,
) -> Result<Option<u64>, SourceError> {
    if lacks.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let value = number(view, file, buffer)?;
    if value.is_none() && !view.is_gone() {
        lacks.store(true, Ordering::Relaxed);
    }
    Ok(value)
}

impl Memory {
    fn new(selected: &Selected) -> Self {
        let unwanted =
            |families: &[&PerCgroup]| !selected.wants(ENTRY.name, families.iter().map(|family| &family.job));
        let leaves_out = LeftOut {
            stat: unwanted(&[&ANON, &FILE, &SHMEM, &FILE_MAPPED, &KERNEL, &SLAB, &PAGE_FAULTS]),
            swap: unwanted(&[&SWAP_USED, &SWAP_LIMIT]),
        };
        Self { leaves_out, ..Self::default() }
    }

    fn read_v2(
        &self,
        view: &View<'_>,
        limits: &View<'_>,
        buffer: &mut Buffer,
    ) -> Result<MemoryReading, SourceError> {
        const STAT: &str = "memory.stat";
        let Some(used) = number(view, "memory.current", buffer)? else { return Ok(Default::default()) };
        let LeftOut { stat: no_stat, swap: no_swap } = self.leaves_out;
        let stat = if no_stat { None } else { read(view, STAT, buffer)? };
        let stat = stat.map(parse_memory_stat).transpose();
        let swap_used = match no_swap {
            true => None,
            false => number_unless(&self.lacks_swap, view, "memory.swap.current", buffer)?,
        };
        let (max, high) = (limit(limits, "memory.max", buffer)?, limit(limits, "memory.high", buffer)?);
        Ok(MemoryReading {
            used: Some(used),
            stat: stat.map_err(SourceError::parsing(STAT))?.unwrap_or_default(),
            events: events(view, "memory.events", buffer)?.unwrap_or_default(),
            // SLURM writes the request into high, and AllowedRAMSpace percent of it into max.
            limit: [max, high].into_iter().flatten().min(),
            peak: number_unless(&self.lacks_peak, view, "memory.peak", buffer)?,
            swap_used,
            swap_limit: swap_used.map(|_| limit(limits, "memory.swap.max", buffer)).transpose()?.flatten(),
            parts: Vec::new(),
        })
    }
}

impl CgroupSource for Memory {
    type Reading = MemoryReading;

    fn read(
        &self,
        Group { view, limits, .. }: &Group<'_>,
        buffer: &mut Buffer,
    ) -> Result<MemoryReading, SourceError> {
        match view.version() {
            Version::V1 => read_v1(view, buffer),
            Version::V2 => self.read_v2(view, limits, buffer),
        }
    }

    fn complete(
        &self,
        job: &Job,
        last: Option<&MemoryReading>,
        fresh: &mut MemoryReading,
        buffer: &mut Buffer,
    ) -> Result<(), SourceError> {
        self.allocated.read(job, fresh.limit, Boottime::now());
        if job.cgroup.version() == Version::V2 || fresh.used.is_none() {
            return Ok(());
        }
        fresh.parts = last.map(|last| last.parts.clone()).unwrap_or_default();
        let mut note = |part: (u32, Option<u32>), events: MemoryEvents| {
            if events != MemoryEvents::default() {
                match fresh.parts.iter_mut().find(|(p, _)| *p == part) {
                    Some((_, known)) => *known = events,
                    None => fresh.parts.push((part, events)),
                }
            }
        };
        for step in job.steps.iter().filter(|step| step.ended.is_none()) {
            let Some(view) = step.view(job) else { continue };
            note((step.ordinal, None), events_v1(&view, true, buffer)?);
            // SLURM sets no limit on tasks, so none is hit there.
            for (task, view) in step.tasks.iter().filter_map(|t| Some((t, step.task_view(job, t)?))) {
                note((step.ordinal, Some(task.ordinal)), events_v1(&view, false, buffer)?);
            }
        }
        let sum = |count: fn(&MemoryEvents) -> Option<u64>| {
            let parts = fresh.parts.iter().map(|(_, events)| events);
            parts.chain([&fresh.events]).filter_map(count).reduce(u64::saturating_add)
        };
        let (oom_kill, max) = (sum(|e| e.oom_kill), sum(|e| e.max));
        fresh.events = MemoryEvents { oom_kill, max, ..fresh.events };
        Ok(())
    }

    fn emit(&self, r: &MemoryReading, out: &mut Emit<'_>) {
        out.push(&USED, &[], r.used);
        out.push(&ANON, &[], r.stat.anon);
        out.push(&FILE, &[], r.stat.file);
        out.push(&SHMEM, &[], r.stat.shmem);
        out.push(&FILE_MAPPED, &[], r.stat.file_mapped);
        out.push(&KERNEL, &[], r.stat.kernel);
        out.push(&SLAB, &[], r.stat.slab);
        out.push(&LIMIT, &[], r.limit);
        let allocated = out.job().and_then(|job| self.allocated.nanoseconds(job));
        let byte_seconds = allocated.map(|nanoseconds| Value::of_parts(nanoseconds / NANOSECONDS, 0));
        out.push_one(&ALLOCATED, &[], byte_seconds);
        out.push(&PEAK, &[], r.peak);
        out.push(&SWAP_USED, &[], r.swap_used);
        out.push(&SWAP_LIMIT, &[], r.swap_limit);
        out.push(&OOM_EVENTS, &[], r.events.oom);
        out.push(&OOM_KILLS, &[], r.events.oom_kill);
        out.push(&LIMIT_HITS, &[("limit", "max")], r.events.max);
        out.push(&LIMIT_HITS, &[("limit", "high")], r.events.high);
        let minor = r.stat.pgfault.zip(r.stat.pgmajfault).map(|(all, major)| all.saturating_sub(major));
        out.push(&PAGE_FAULTS, &[("type", "minor")], minor);
        out.push(&PAGE_FAULTS, &[("type", "major")], r.stat.pgmajfault);
    }

    fn finish(
        &self,
        snapshot: &NodeSnapshot,
        readings: &mut Readings<MemoryReading>,
        _buffer: &mut Buffer,
        _out: &mut Section,
    ) -> Result<(), SourceError> {
        if readings.none_has(snapshot, |r| r.used.is_some()) {
            let needs =
                "the memory controller on jobs (ConstrainRAMSpace=yes or jobacct_gather/cgroup)".to_owned();
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

    fn forget(&self, run: JobRunId, _last: Option<&MemoryReading>, _disposition: Disposition) {
        self.allocated.forget(run);
    }
}

#[cfg(test)]
mod tests;
