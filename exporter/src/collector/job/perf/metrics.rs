//! The samples of the counters.

use std::collections::BTreeMap;

use exposition::{Decimal, Family, Level, PerCgroup, Section, SubjectId};
use perf_counters::Quantity;
use perf_counters::counting::{Counted, Counting, Mode};
use perf_counters::tally::Tally;
use slurm_jobs::{Job, JobRunId, NodeSnapshot};

use super::accounts::{Part, PerfAccounts};

static CYCLES: PerCgroup = Family::counter("jobledger_job_cycles_total")
    .help(
        "Cycles in which CPUs worked for it, at the frequency they ran at, in \
         user mode and in the kernel; estimated where counters take turns",
    )
    .per_cgroup("jobledger_step_cycles_total", "jobledger_task_cycles_total");
static REFERENCE: Family = Family::counter("jobledger_job_reference_cycles_total")
    .help("Cycles of a clock of fixed frequency in which the job's CPUs worked for it");
static INSTRUCTIONS: PerCgroup = Family::counter("jobledger_job_instructions_total")
    .help("Instructions that CPUs retired for it, in user mode and in the kernel")
    .per_cgroup("jobledger_step_instructions_total", "jobledger_task_instructions_total");
static BRANCHES: Family =
    Family::counter("jobledger_job_branches_total").help("Branch instructions that were retired for the job");
static BRANCH_MISSES: Family = Family::counter("jobledger_job_branch_misses_total")
    .help("Branches of the job that the CPU foresaw wrongly");
static CACHE_REFERENCES: Family =
    Family::counter("jobledger_job_cache_references_total").labels(&["level"]).help(
        "Accesses of the job to a cache, as its level's event counts \
         them: docs/counters.md says for each CPU what is in it",
    );
static CACHE_MISSES: Family = Family::counter("jobledger_job_cache_misses_total").labels(&["level"]).help(
    "Accesses of the job that a cache could not serve, as its level's \
     event counts them: docs/counters.md says for each CPU what is in it",
);
static FLOPS: PerCgroup = Family::counter("jobledger_job_flops_total")
    .labels(&["precision", "width"])
    .help(
        "Floating-point operations, a fused multiply-add being two; absent on \
         CPUs that cannot count them, docs/counters.md says how good they are",
    )
    .per_cgroup("jobledger_step_flops_total", "jobledger_task_flops_total");
static FLOPS_OF_ALL_TYPES: Family = Family::counter("jobledger_job_flops_all_types_total").help(
    "Floating-point operations of the job by one event for all types, on CPUs whose types are an event each \
     (Zen 5): the sum of jobledger_job_flops_total should be the same, or one of the two is wrong",
);
static CACHE_TRAFFIC: Family =
    Family::counter("jobledger_job_cache_traffic_bytes_total").labels(&["level", "direction"]).help(
        "Bytes of lines between a cache and the next one nearer to the core: \
         l2 between L2 and L1d, l3 between L3 and L2; load is towards the core",
    );
static MEMORY_LOADS: PerCgroup = Family::counter("jobledger_job_memory_load_bytes_total")
    .help(
        "Bytes that came into the caches of cores from memory for it, as far as the \
         cores' own events see them: docs/counters.md says what is missing",
    )
    .per_cgroup("jobledger_step_memory_load_bytes_total", "jobledger_task_memory_load_bytes_total");
static SLOTS: PerCgroup = Family::counter("jobledger_job_pipeline_slots_total")
    .labels(&["category"])
    .help(
        "Places for operations in its cycles, by what became of them: retiring did work, bad_speculation was given \
         up, frontend waited for instructions, backend for data or units, other_thread was the sibling's",
    )
    .per_cgroup("jobledger_step_pipeline_slots_total", "jobledger_task_pipeline_slots_total");
static SWITCHES: Family = Family::counter("jobledger_job_context_switches_total")
    .help("Switches from one of the job's threads to another thread, its own or not");
static MIGRATIONS: Family =
    Family::counter("jobledger_job_cpu_migrations_total").help("Moves of the job's threads to another CPU");
static FAULTS: Family = Family::counter("jobledger_job_cpu_page_faults_total").labels(&["type"]).help(
    "Page faults that the job's threads took, minor or major; \
     what memory.stat counts is jobledger_job_page_faults_total",
);
static BUSIEST_INSTRUCTIONS: Family = Family::counter("jobledger_job_busiest_cpu_instructions_total").help(
    "Instructions of the job's CPU that retired the most, found anew in each interval of 5 s or \
     more; times the job's CPUs over all instructions it is the imbalance inside the node",
);
static BUSIEST_FLOPS: Family = Family::counter("jobledger_job_busiest_cpu_flops_total").help(
    "Floating-point operations of the job's CPU that did the most, found anew in each interval \
     of 5 s or more",
);
static IDLE: Family = Family::counter("jobledger_job_cpus_idle_seconds_total").help(
    "Time of the job's CPUs that ran it for less than a hundredth of an interval of 5 s or more: \
     its rate is the number of CPUs that it has and does not use",
);
static COUNTED: PerCgroup = Family::counter("jobledger_job_counted_cpu_seconds_total")
    .help("CPU time in which its counters were on: what the other counts are to be divided by")
    .per_cgroup("jobledger_step_counted_cpu_seconds_total", "jobledger_task_counted_cpu_seconds_total");
static COVERAGE: Family = Family::gauge("jobledger_job_counters_coverage_ratio").retained().help(
    "Part of the job's CPU time in which its counters were on, since it began; \
     less than 1 where they came late, were yielded or were not believed",
);
static RUNNING: Family =
    Family::gauge("jobledger_job_counters_running_ratio").labels(&["group"]).retained().help(
        "Part of the time in which a group of counters was to count that it did; below 1 it took \
         turns, and the rest is estimated, or was left out for a while, and that is missing",
    );
static INFO: PerCgroup = Family::info("jobledger_job_counters_info")
    .labels(&["mode", "reason"])
    .help(
        "How it is counted: mode cgroup is exact, cpus is everybody on CPUs that are the job's alone, none is not \
         at all; reason says what is lacking; a step or a task has it only where it is not counted",
    )
    .per_cgroup("jobledger_step_counters_info", "jobledger_task_counters_info");
static NODE_INFO: Family =
    Family::info("jobledger_node_counters_info").labels(&["microarchitecture", "flops"]).help(
        "The CPUs whose counters are read, and what is known of their \
         floating-point counts: retired, speculative, or none",
    );
static NODE_ABSENT: Family = Family::info("jobledger_node_counters_absent_info")
    .labels(&["what", "reason"])
    .help("What is not counted on this machine, and why");
static NODE_METHOD: Family =
    Family::info("jobledger_node_counters_method_info").labels(&["method", "reason"]).help(
        "How jobs are counted: cgroup by counters of each cgroup, bpf by counters of CPUs that a \
         program divides by cgroup; reason says why not bpf where it was to be tried",
    );
static DESCRIPTORS: Family =
    Family::gauge("jobledger_exporter_counters_descriptors").help("Descriptors of open counters");
static MOST_DESCRIPTORS: Family = Family::gauge("jobledger_exporter_counters_descriptors_limit")
    .help("Descriptors of counters that may be open at once; beyond it groups of jobs are left out");
static REJECTED: Family =
    Family::counter("jobledger_exporter_counters_intervals_dropped_total").labels(&["reason"]).help(
        "Intervals of a group of counters on one CPU that were not believed and \
         are in no count: more than a core can do, or a count that went back",
    );

static PER_CGROUP: [&PerCgroup; 7] = [&CYCLES, &INSTRUCTIONS, &FLOPS, &MEMORY_LOADS, &SLOTS, &COUNTED, &INFO];

pub(super) fn families() -> Vec<&'static Family> {
    let others = [
        &REFERENCE,
        &BRANCHES,
        &BRANCH_MISSES,
        &CACHE_REFERENCES,
        &CACHE_MISSES,
        &FLOPS_OF_ALL_TYPES,
        &CACHE_TRAFFIC,
        &SWITCHES,
        &MIGRATIONS,
        &FAULTS,
        &BUSIEST_INSTRUCTIONS,
        &BUSIEST_FLOPS,
        &IDLE,
        &COVERAGE,
        &RUNNING,
        &NODE_INFO,
        &NODE_ABSENT,
        &NODE_METHOD,
        &DESCRIPTORS,
        &MOST_DESCRIPTORS,
        &REJECTED,
    ];
    PER_CGROUP.into_iter().flat_map(PerCgroup::rows).chain(others).collect()
}

type Labels = Vec<(&'static str, &'static str)>;

/// The series that a quantity belongs to at a level. Several may be one: operations of both kinds of cores of a hybrid CPU.
fn series(quantity: Quantity, level: Level) -> Option<(&'static Family, Labels)> {
    let each = |family: &'static PerCgroup| Some(family.at(level));
    let of_jobs = |family: &'static Family| (level == Level::Job).then_some(family);
    let (family, labels) = match quantity {
        Quantity::Cycles => (each(&CYCLES), vec![]),
        Quantity::ReferenceCycles => (of_jobs(&REFERENCE), vec![]),
        Quantity::Instructions => (each(&INSTRUCTIONS), vec![]),
        Quantity::Branches => (of_jobs(&BRANCHES), vec![]),
        Quantity::BranchMisses => (of_jobs(&BRANCH_MISSES), vec![]),
        Quantity::CacheReferences(cache) => (of_jobs(&CACHE_REFERENCES), vec![("level", cache.as_str())]),
        Quantity::CacheMisses(cache) => (of_jobs(&CACHE_MISSES), vec![("level", cache.as_str())]),
        Quantity::Flops { precision, width, .. } => {
            (each(&FLOPS), vec![("precision", precision.as_str()), ("width", width.as_str())])
        }
        Quantity::FlopsOfAllTypes => (of_jobs(&FLOPS_OF_ALL_TYPES), vec![]),
        Quantity::CacheTraffic { level: cache, flow, .. } => {
            (of_jobs(&CACHE_TRAFFIC), vec![("level", cache.as_str()), ("direction", flow.as_str())])
        }
        Quantity::MemoryLoads { .. } => (each(&MEMORY_LOADS), vec![]),
        Quantity::PipelineSlots(category) => (each(&SLOTS), vec![("category", category.as_str())]),
        Quantity::ContextSwitches => (of_jobs(&SWITCHES), vec![]),
        Quantity::Migrations => (of_jobs(&MIGRATIONS), vec![]),
        Quantity::MinorFaults => (of_jobs(&FAULTS), vec![("type", "minor")]),
        Quantity::MajorFaults => (of_jobs(&FAULTS), vec![("type", "major")]),
        // Only what is made of it is published.
        Quantity::TopDown { .. } => (None, vec![]),
    };
    family.map(|family| (family, labels))
}

/// Decimal places of nanoseconds and microseconds in seconds.
const NANO: u32 = 9;
const MICRO: u32 = 6;

/// Emits which groups are counted, and of which jobs. While another owner has the counters, running jobs have no
/// samples: a gap.
pub(super) fn emit(accounts: &PerfAccounts, snapshot: &NodeSnapshot, out: &mut Section) {
    let Some(counting) = &accounts.counting else { return };
    let plan = counting.plan();
    let microarchitecture = plan.microarchitecture.as_deref().unwrap_or("unknown");
    let flops = plan.flops.as_deref().unwrap_or("none");
    let labels = [("microarchitecture", microarchitecture), ("flops", flops)];
    out.push(&NODE_INFO, SubjectId::NODE, &labels, 1_u64);
    for absent in &plan.absent {
        out.push(&NODE_ABSENT, SubjectId::NODE, &[("what", &*absent.what), ("reason", &*absent.why)], 1_u64);
    }
    let (used, limit) = accounts.descriptors();
    out.push(&DESCRIPTORS, SubjectId::NODE, &[], used as u64);
    if let Some(limit) = limit {
        out.push(&MOST_DESCRIPTORS, SubjectId::NODE, &[], limit as u64);
    }
    if snapshot.levels.steps && !counting.follows() {
        let why =
            accounts.way.reason.as_deref().unwrap_or("counters of steps take --collector.perf.method=bpf");
        out.push(&NODE_ABSENT, SubjectId::NODE, &[("what", "steps"), ("reason", why)], 1_u64);
    }
    let way = &accounts.way;
    let labels = [("method", way.as_str()), ("reason", way.reason.as_deref().unwrap_or(""))];
    out.push(&NODE_METHOD, SubjectId::NODE, &labels, 1_u64);
    let since_start = out.node_since(Some(snapshot.following_since));
    for (reject_reason, times) in accounts.rejected() {
        out.push(&REJECTED, since_start, &[("reason", reject_reason.as_str())], times);
    }
    for job in snapshot.jobs.iter().filter(|job| !(job.is_running() && accounts.is_yielded())) {
        emit_job(accounts, job, snapshot, out);
        if snapshot.levels.steps && counting.follows() {
            emit_steps(accounts, job, snapshot, out);
        }
    }
}

fn emit_steps(accounts: &PerfAccounts, job: &Job, snapshot: &NodeSnapshot, out: &mut Section) {
    for step in job.exported_steps() {
        let name = step.id.to_string();
        let own = [("step", name.as_str())];
        let subject =
            out.subject_since(job.labels().chain(own), job.part_followed_from(step.began, snapshot));
        emit_part(accounts, (job.run, (step.ordinal, None)), (subject, Level::Step), out);
        for task in step.tasks.iter().filter(|_| snapshot.levels.tasks) {
            let task_name = task.id.to_string();
            let own = [("step", name.as_str()), ("task", task_name.as_str())];
            let began = job.part_followed_from(task.began, snapshot);
            let subject = out.subject_since(job.labels().chain(own), began);
            let part = (step.ordinal, Some(task.ordinal));
            emit_part(accounts, (job.run, part), (subject, Level::Task), out);
        }
    }
}

fn emit_part(
    accounts: &PerfAccounts,
    (run, part): (JobRunId, Part),
    (subject, level): (SubjectId, Level),
    out: &mut Section,
) {
    match (&accounts.counting, accounts.part(run, part)) {
        (Some(counting), Some(Ok(tally))) => {
            emit_counts(counting, &tally, (subject, level), out);
            out.push(COUNTED.at(level), subject, &[], Decimal::new(tally.covered(), NANO));
        }
        (_, Some(Err(not_counted))) => {
            let labels = [("mode", "none"), ("reason", not_counted.as_str())];
            out.push(INFO.at(level), subject, &labels, 1_u64);
        }
        _ => {}
    }
}

/// Emits the counts of a cgroup.
fn emit_counts(counting: &Counting, tally: &Tally, (subject, level): (SubjectId, Level), out: &mut Section) {
    let mut sums: BTreeMap<(&'static str, Labels), (&'static Family, u64)> = BTreeMap::new();
    for (quantity, count) in tally.quantities(counting.layout()) {
        let Some((family, labels)) = series(quantity, level) else { continue };
        let sum = &mut sums.entry((family.name, labels)).or_insert((family, 0)).1;
        *sum = sum.saturating_add(count);
    }
    for ((_, labels), (family, sum)) in &sums {
        out.push(family, subject, labels, *sum);
    }
}

fn emit_job(accounts: &PerfAccounts, job: &Job, snapshot: &NodeSnapshot, out: &mut Section) {
    let (run, counts) = (accounts.runs.get(&job.run), accounts.counts(job.run));
    if run.is_none() && counts.is_none() {
        return;
    }
    let subject = out.subject_since(job.labels(), job.followed_from(snapshot));
    if let Some(run) = run.filter(|_| job.is_running()) {
        let mode = run.counted.as_ref().map(Counted::mode);
        let reason = accounts.not_counted(job.run).map_or("", |not_counted| not_counted.as_str());
        let mode = mode.filter(|_| run.not_counted.is_none()).map_or("none", Mode::as_str);
        out.push(&INFO.job, subject, &[("mode", mode), ("reason", reason)], 1_u64);
    }
    let (Some(counting), Some((tally, of_cgroup, cpu_usec))) = (&accounts.counting, counts) else { return };
    emit_counts(counting, &tally, (subject, Level::Job), out);
    let has =
        |of: fn(&Quantity) -> bool| tally.quantities(counting.layout()).any(|(quantity, _)| of(&quantity));
    if has(|quantity| *quantity == Quantity::Instructions) {
        out.push(&BUSIEST_INSTRUCTIONS, subject, &[], tally.imbalance.busiest_instructions);
    }
    if has(|quantity| matches!(quantity, Quantity::Flops { .. })) {
        out.push(&BUSIEST_FLOPS, subject, &[], tally.imbalance.busiest_flops);
    }
    if of_cgroup {
        out.push(&IDLE, subject, &[], Decimal::new(tally.imbalance.idle, NANO));
    }
    let plan = counting.plan();
    // Kinds of cores have groups of one name each: the job's is one series.
    let mut times_of: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let groups = plan.groups.iter().zip(tally.groups());
    for (group, times) in groups.filter(|(_, times)| times.opened) {
        let (enabled, running) = times_of.entry(&*group.name).or_default();
        *enabled = enabled.saturating_add(times.enabled);
        *running = running.saturating_add(times.running);
    }
    for (group, (enabled, running)) in times_of.into_iter().filter(|(_, (enabled, _))| *enabled > 0) {
        let ratio = Decimal::new(running, NANO).to_f64() / Decimal::new(enabled, NANO).to_f64();
        out.push(&RUNNING, subject, &[("group", group)], ratio);
    }
    // Counts of all processes on its CPUs include idle time.
    if of_cgroup {
        let covered = Decimal::new(tally.covered(), NANO);
        out.push(&COUNTED.job, subject, &[], covered);
        if let Some(used) = cpu_usec.filter(|used| *used > 0) {
            // Both were not read in the very same moment.
            let used = Decimal::new(used, MICRO);
            out.push(&COVERAGE, subject, &[], (covered.to_f64() / used.to_f64()).min(1.0));
        }
    }
}
