"""Tables of jobs that several dashboards show: those that run, and those that ended within the time range, the most waste first.

Waste of a job is the CPUs that it holds and does not use, and the GPUs, each of which counts as `$gpu_weight` CPUs.
"""

from . import board, style
from .board import href
from .panels import Column, table
from .queries import CLUSTER, OWNED, cluster, hours, last, most

BY = "by (cluster, jobid)"
ON = "on (cluster, jobid)"
OWNER = f"jobid:jobledger_job_owner:info{{{OWNED}}}"
OWNER_OF_RANGE = last(OWNER)

REPORT_RUNNING = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["From"].numeric}', "now"))
REPORT_ENDED = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["From"].numeric}', '${__data.fields["To"].numeric}'))
OWNER_LINK = href(board.OWNER, user='${__data.fields["User"]}')
ACCOUNT_LINK = href(board.OWNER, account='${__data.fields["Account"]}')

WASTE = (f"(max {BY} ({cluster('jobid:jobledger_job_idle_cpus:rate2m')}) + $gpu_weight * max {BY} ({cluster('jobid:jobledger_job_idle_gpus:rate2m')})"
         f" or max {BY} ({cluster('jobid:jobledger_job_idle_cpus:rate2m')}) or $gpu_weight * max {BY} ({cluster('jobid:jobledger_job_idle_gpus:rate2m')}))")
RUNNING = f"(max {BY} ({cluster('jobid:jobledger_job_nodes:count')}) and {ON} {OWNER})"

STARTED = f"max {BY} ({last(cluster('jobledger_job_start_time_seconds'))})"
ENDED = f"(max {BY} ({last(cluster('jobledger_job_end_time_seconds'))}) >= {ON} {STARTED} and {ON} {OWNER_OF_RANGE})"


def total(recorded):
    return f"sum {BY} ({most(cluster(recorded))})"


UNUSED_CPU = total("jobid_instance:jobledger_job_unused_cpu_seconds:sum")
UNUSED_GPU = total("jobid_instance:jobledger_job_gpu_idle_seconds:sum")
WASTED = f"({UNUSED_CPU} + $gpu_weight * {UNUSED_GPU} or {UNUSED_CPU} or $gpu_weight * {UNUSED_GPU})"


def weight(board_):
    board_.choice("gpu_weight", "A GPU counts as … CPUs", ["16", "1", "8", "32", "64", "128"], "For the order of tables by waste.")


def limit(board_):
    board_.choice("limit", "Rows", ["20", "50", "100", "200"], "Most rows of a table of jobs.")


def owners(board_):
    """Choices of user, account and partition."""
    for name in ("user", "account", "partition"):
        board_.lookup(name, name.capitalize(), f"label_values(jobid:jobledger_job_owner:info{{{CLUSTER}}}, {name})", everything=".*", multi=True)


def running(board_, height=11):
    chosen = f"and {ON} topk($limit, ({WASTE} or {RUNNING} * 0) and {ON} {RUNNING})"

    def shown(metric):
        return f"max {BY} ({cluster(metric)}) {chosen}"

    board_.add(table(
        "Running jobs, the most waste first",
        "What each job holds and does not use now. Waste is in CPUs. CPU and GPU used are parts of those held, Memory is what it holds of its limit on the node where that is most. Jobs younger than two "
        "minutes have no rates yet. A job's number leads to its report, over its time.",
        [Column("jobid", "Job", links=[("Job report", REPORT_RUNNING)]), Column("name", "Name", width=110), Column("user", "User", links=[("User dashboard", OWNER_LINK)]),
         Column("account", "Account", links=[("Account dashboard", ACCOUNT_LINK)]), Column("partition", "Partition"),
         Column("Value #B", "Waste", style.COUNT, 1, style.WASTED), Column("Value #C", "Running for", style.SECONDS),
         Column("Value #D", "Nodes", style.COUNT, 0), Column("Value #E", "CPUs", style.COUNT, 0),
         Column("Value #F", "CPU used", style.RATIO, 0, style.EFFICIENCY_CPU), Column("Value #G", "CPUs idle", style.COUNT, 1),
         Column("Value #H", "GPUs", style.COUNT, 0), Column("Value #I", "GPU used", style.RATIO, 0, style.EFFICIENCY_GPU),
         Column("Value #J", "GPUs idle", style.COUNT, 1), Column("Value #K", "Memory", style.RATIO, 0, style.NEAR_LIMIT),
         Column("Value #L", "Power", style.WATTS, 1), Column("Value #M", "From", style.NONE, 0, hide=True)],
        [f"max by (cluster, jobid, user, account, partition) ({OWNER}) {chosen}",
         f"{WASTE} {chosen}", shown("jobid:jobledger_job_elapsed_seconds:max"), shown("jobid:jobledger_job_nodes:count"), shown("jobid:jobledger_job_cpus:sum"),
         shown("jobid:jobledger_job_cpu_seconds_per_cpu:ratio_rate2m"), shown("jobid:jobledger_job_idle_cpus:rate2m"),
         shown("jobid:jobledger_job_gpus:sum"), shown("jobid:jobledger_job_gpu_busy_seconds_per_seen_second:ratio_rate2m"),
         shown("jobid:jobledger_job_idle_gpus:rate2m"), shown("jobid:jobledger_job_memory_held_bytes_per_limit_byte:max_ratio"),
         shown("jobid:jobledger_job_total_energy_joules:rate2m"),
         f"(floor(max {BY} ({cluster('jobledger_job_start_time_seconds')})) - 60) * 1000 {chosen}",
         f"max by (cluster, jobid, name) ({cluster('jobledger_job_info')}) {chosen}"],
        sort="Waste"), 24, height)


def ended(board_, height=11):
    chosen = f"and {ON} topk($limit, ({WASTED} or {ENDED} * 0) and {ON} {ENDED})"
    used, had = total("jobid_instance:jobledger_job_cpu_seconds:sum"), total("jobid_instance:jobledger_job_allocated_cpu_seconds:sum")
    busy, gpus = total("jobid_instance:jobledger_job_gpu_busy_seconds:sum"), total("jobid_instance:jobledger_job_gpu_allocated_seconds:sum")
    peak, limit = most(cluster("jobid_instance:jobledger_job_memory_peak_bytes:sum")), last(cluster("jobid_instance:jobledger_job_memory_limit_bytes:sum"))
    board_.add(table(
        "Jobs that ended in this time range, the most waste first",
        "Exact totals over each job, also of those that were too short for rates (Sampled). Had is CPUs and GPUs times time, in CPU-hours and GPU-hours, used the part of it that was used, Memory "
        "the peak of its limit on the node where that is most. Waste is in CPU-hours. A job's number leads to its report, over its time. What a job did before "
        "the time range is in its totals; a job that began before this Prometheus or its rules has less.",
        [Column("jobid", "Job", links=[("Job report", REPORT_ENDED)]), Column("name", "Name", width=110), Column("user", "User", links=[("User dashboard", OWNER_LINK)]),
         Column("account", "Account", links=[("Account dashboard", ACCOUNT_LINK)]), Column("partition", "Partition"),
         Column("Value #B", "Ended", style.MILLISECONDS_DATE, width=165), Column("Value #C", "Ran for", style.SECONDS),
         Column("Value #D", "CPU-h had", style.COUNT, 2), Column("Value #E", "CPU used", style.RATIO, 0, style.EFFICIENCY_CPU),
         Column("Value #F", "CPU-h idle", style.COUNT, 2), Column("Value #G", "GPU-h had", style.COUNT, 2),
         Column("Value #H", "GPU used", style.RATIO, 0, style.EFFICIENCY_GPU), Column("Value #I", "GPU-h idle", style.COUNT, 2),
         Column("Value #J", "Memory", style.RATIO, 0, style.NEAR_LIMIT), Column("Value #K", "OOM kills", style.COUNT, 0, style.NONE_IS_GOOD),
         Column("Value #L", "Energy", style.JOULES, 1), Column("Value #M", "Sampled", texts={0: ("too short", style.ORANGE), 1: ("yes", style.BLUE)}),
         Column("Value #N", "Waste", style.COUNT, 2), Column("Value #O", "From", style.NONE, 0, hide=True),
         Column("Value #P", "To", style.NONE, 0, hide=True)],
        [f"max by (cluster, jobid, user, account, partition) ({OWNER_OF_RANGE}) {chosen}",
         f"{ENDED} * 1000 {chosen}", f"({ENDED} - {STARTED}) {chosen}", f"{hours(had)} {chosen}", f"{used} / ({had} > 0) {chosen}", f"{hours(UNUSED_CPU)} {chosen}",
         f"{hours(gpus)} {chosen}", f"{busy} / ({busy} + {UNUSED_GPU} > 0) {chosen}", f"{hours(UNUSED_GPU)} {chosen}", f"max {BY} ({peak} / ({limit} > 0)) {chosen}",
         f"sum {BY} ({most(cluster('jobledger_job_oom_kills_total'))}) {chosen}", f"{total('jobid_instance:jobledger_job_total_energy_joules:sum')} {chosen}",
         f"(({ENDED} - {STARTED}) >= bool 120) {chosen}", f"{hours(WASTED)} {chosen}", f"(floor({STARTED}) - 60) * 1000 {chosen}",
         f"(ceil({ENDED}) + 120) * 1000 {chosen}", f"max by (cluster, jobid, name) ({last(cluster('jobledger_job_info'))}) {chosen}"],
        sort="Waste"), 24, height)
