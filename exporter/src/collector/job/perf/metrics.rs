//! The samples of the counters.

use std::collections::BTreeMap;

use exposition::{Decimal, Family, Section, SubjectId};
use perf_counters::Quantity;
use perf_counters::counting::{Counted, Mode};
use slurm_jobs::{Job, NodeSnapshot};

use super::accounts::PerfAccounts;

static CYCLES: Family = Family::counter("jobledger_job_cycles_total").help(
    "Cycles in which the job's CPUs worked for it, at the frequency they ran \
     at, in user mode and in the kernel; estimated where counters take turns",
);
static REFERENCE: Family = Family::counter("jobledger_job_reference_cycles_total")
    .help("Cycles of a clock of fixed frequency in which the job's CPUs worked for it");
static INSTRUCTIONS: Family = Family::counter("jobledger_job_instructions_total")
    .help("Instructions that the job's CPUs retired for it, in user mode and in the kernel");
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
static FLOPS: Family = Family::counter("jobledger_job_flops_total").labels(&["precision", "width"]).help(
    "Floating-point operations of the job, a fused multiply-add being two; absent \
     on CPUs that cannot count them, docs/counters.md says how good they are",
);
static CACHE_TRAFFIC: Family =
    Family::counter("jobledger_job_cache_traffic_bytes_total").labels(&["level", "direction"]).help(
        "Bytes of lines between a cache and the next one nearer to the core: \
         l2 between L2 and L1d, l3 between L3 and L2; load is towards the core",
    );
static MEMORY_LOADS: Family = Family::counter("jobledger_job_memory_load_bytes_total").help(
    "Bytes that came into the caches of the job's cores from memory, as far \
     as the cores' own events see them: docs/counters.md says what is missing",
);
static SWITCHES: Family = Family::counter("jobledger_job_context_switches_total")
    .help("Switches from one of the job's threads to another thread, its own or not");
static MIGRATIONS: Family =
    Family::counter("jobledger_job_cpu_migrations_total").help("Moves of the job's threads to another CPU");
static FAULTS: Family = Family::counter("jobledger_job_cpu_page_faults_total").labels(&["type"]).help(
    "Page faults that the job's threads took, minor or major; \
     what memory.stat counts is jobledger_job_page_faults_total",
);
static COUNTED: Family = Family::counter("jobledger_job_counted_cpu_seconds_total")
    .help("CPU time of the job in which its counters were on: what the other counts are to be divided by");
static COVERAGE: Family = Family::gauge("jobledger_job_counters_coverage_ratio").retained().help(
    "Part of the job's CPU time in which its counters were on, since it began; \
     less than 1 where they came late, were yielded or were not believed",
);
static RUNNING: Family =
    Family::gauge("jobledger_job_counters_running_ratio").labels(&["group"]).retained().help(
        "Part of the time in which a group of counters was to count that it did; below 1 it took \
         turns, and the rest is estimated, or was left out for a while, and that is missing",
    );
static INFO: Family = Family::info("jobledger_job_counters_info").labels(&["mode", "reason"]).help(
    "How the job is counted: mode cgroup is exact, cpus is everybody on CPUs \
     that are the job's alone, none is not at all; reason says what is lacking",
);
static NODE_INFO: Family =
    Family::info("jobledger_node_counters_info").labels(&["microarchitecture", "flops"]).help(
        "The CPUs whose counters are read, and what is known of their \
         floating-point counts: retired, speculative, or none",
    );
static NODE_ABSENT: Family = Family::info("jobledger_node_counters_absent_info")
    .labels(&["what", "reason"])
    .help("What is not counted on this machine, and why");
static DESCRIPTORS: Family =
    Family::gauge("jobledger_exporter_counters_descriptors").help("Descriptors of open counters");
static MOST_DESCRIPTORS: Family = Family::gauge("jobledger_exporter_counters_descriptors_limit")
    .help("Descriptors of counters that may be open at once; beyond it groups of jobs are left out");
static REJECTED: Family =
    Family::counter("jobledger_exporter_counters_intervals_dropped_total").labels(&["reason"]).help(
        "Intervals of a group of counters on one CPU that were not believed and \
         are in no count: more than a core can do, or a count that went back",
    );

pub(super) fn families() -> Vec<&'static Family> {
    vec![
        &CYCLES,
        &REFERENCE,
        &INSTRUCTIONS,
        &BRANCHES,
        &BRANCH_MISSES,
        &CACHE_REFERENCES,
        &CACHE_MISSES,
        &FLOPS,
        &CACHE_TRAFFIC,
        &MEMORY_LOADS,
        &SWITCHES,
        &MIGRATIONS,
        &FAULTS,
        &COUNTED,
        &COVERAGE,
        &RUNNING,
        &INFO,
        &NODE_INFO,
        &NODE_ABSENT,
        &DESCRIPTORS,
        &MOST_DESCRIPTORS,
        &REJECTED,
    ]
}

type Labels = Vec<(&'static str, &'static str)>;

/// The series that a quantity belongs to. Several may be one: operations of both kinds of cores of a hybrid CPU.
fn series(quantity: Quantity) -> (&'static Family, Labels) {
    match quantity {
        Quantity::Cycles => (&CYCLES, vec![]),
        Quantity::ReferenceCycles => (&REFERENCE, vec![]),
        Quantity::Instructions => (&INSTRUCTIONS, vec![]),
        Quantity::Branches => (&BRANCHES, vec![]),
        Quantity::BranchMisses => (&BRANCH_MISSES, vec![]),
        Quantity::CacheReferences(level) => (&CACHE_REFERENCES, vec![("level", level.as_str())]),
        Quantity::CacheMisses(level) => (&CACHE_MISSES, vec![("level", level.as_str())]),
        Quantity::Flops { precision, width, .. } => {
            (&FLOPS, vec![("precision", precision.as_str()), ("width", width.as_str())])
        }
        Quantity::CacheTraffic { level, flow, .. } => {
            (&CACHE_TRAFFIC, vec![("level", level.as_str()), ("direction", flow.as_str())])
        }
        Quantity::MemoryLoads { .. } => (&MEMORY_LOADS, vec![]),
        Quantity::ContextSwitches => (&SWITCHES, vec![]),
        Quantity::Migrations => (&MIGRATIONS, vec![]),
        Quantity::MinorFaults => (&FAULTS, vec![("type", "minor")]),
        Quantity::MajorFaults => (&FAULTS, vec![("type", "major")]),
    }
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
    let (used, limit) = counting.descriptors();
    out.push(&DESCRIPTORS, SubjectId::NODE, &[], used as u64);
    out.push(&MOST_DESCRIPTORS, SubjectId::NODE, &[], limit as u64);
    let since_start = out.node_since(Some(snapshot.following_since));
    for (reject_reason, times) in accounts.rejected() {
        out.push(&REJECTED, since_start, &[("reason", reject_reason.as_str())], times);
    }
    for job in snapshot.jobs.iter().filter(|job| !(job.is_running() && accounts.is_yielded())) {
        emit_job(accounts, job, snapshot, out);
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
        out.push(&INFO, subject, &[("mode", mode), ("reason", reason)], 1_u64);
    }
    let (Some(counting), Some((tally, of_cgroup, cpu_usec))) = (&accounts.counting, counts) else { return };
    let mut sums: BTreeMap<(&'static str, Labels), (&'static Family, u64)> = BTreeMap::new();
    for (quantity, count) in tally.quantities(counting.layout()) {
        let (family, labels) = series(quantity);
        let sum = &mut sums.entry((family.name, labels)).or_insert((family, 0)).1;
        *sum = sum.saturating_add(count);
    }
    for ((_, labels), (family, sum)) in &sums {
        out.push(family, subject, labels, *sum);
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
        out.push(&COUNTED, subject, &[], covered);
        if let Some(used) = cpu_usec.filter(|used| *used > 0) {
            // Both were not read in the very same moment.
            let used = Decimal::new(used, MICRO);
            out.push(&COVERAGE, subject, &[], (covered.to_f64() / used.to_f64()).min(1.0));
        }
    }
}
