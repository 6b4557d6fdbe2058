"""What several dashboards show of jobs: tables of those that run and of those that ended within the time range, the most waste first.

Waste of a job is the cores that it holds and does not use, and the GPUs, each of which counts as `$gpu_weight` cores.
"""

from . import board, style
from .board import href
from .panels import Column, series, table
from .queries import CLUSTER, OWNED, cluster, hours, last, of, owners as owners_of

BY = "by (cluster, jobid)"
ON = "on (cluster, jobid)"
OWNER = f"jobid:jobledger_job_owner:info{{{OWNED}}}"

REPORT_RUNNING = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["From"].numeric}', "now"))
REPORT_ENDED = href(board.REPORT, jobid='${__data.fields["Job"]}', time=('${__data.fields["From"].numeric}', '${__data.fields["To"].numeric}'))
OWNER_LINK = href(board.OWNER, user='${__data.fields["User"]}')
ACCOUNT_LINK = href(board.OWNER, account='${__data.fields["Account"]}')

# The jobs of a table, which a hidden variable chooses once: so each column reads their series alone.
RUN, CHOSEN = 'jobid=~"$running"', 'jobid=~"$ended"'
RUNNING = f"(max {BY} ({cluster('jobid:jobledger_job_nodes:count')}) and {ON} {OWNER})"


def idle_now(*more):
    """Cores that a job holds and does not use, and GPUs, in cores."""
    cores = f"max {BY} ({cluster('jobid:jobledger_job_idle_cores:rate2m', *more)})"
    gpus = f"$gpu_weight * max {BY} ({cluster('jobid:jobledger_job_idle_gpus:rate2m', *more)})"
    return f"({cores} + {gpus} or {cores} or {gpus})"


def ended_row(recorded, *more):
    """What was recorded of each job that ended in the time range (rules/recording/ended.yaml), some samples for each."""
    return last(of(f"ended:jobledger_job_{recorded}", OWNED, *more))


def of_ended(recorded, *more):
    return f"max {BY} ({ended_row(recorded, *more)})"


def wasted(*more):
    """Core time that a job had and did not use, and GPU time, in seconds."""
    cores, gpus = of_ended("idle_core_seconds:sum", *more), of_ended("gpu_idle_seconds:sum", *more)
    return f"({cores} + $gpu_weight * {gpus} or {cores} or $gpu_weight * {gpus})"


ENDED = of_ended("end_time_seconds:max")
RAN = f"({ENDED} - {of_ended('start_time_seconds:min')})"


def weight(board_):
    board_.choice("gpu_weight", "A GPU counts as … cores", ["16", "1", "8", "32", "64", "128"], "For the order of tables by waste.")


def limit(board_):
    board_.choice("limit", "Rows", ["20", "50", "100", "200"], "Most rows of a table of jobs.")


def owners(board_):
    """Choices of user, account and partition."""
    for name in ("user", "account", "partition"):
        board_.lookup(name, name.capitalize(), f"label_values(jobid:jobledger_job_owner:info{{{CLUSTER}}}, {name})", everything=".*", multi=True)


def cpu_efficiency(*chosen):
    """Part of the cores that owners' jobs had in the last four minutes that they kept busy."""
    return f"clamp_max(sum({owners_of('cpu_seconds', *chosen)}) / (sum({owners_of('allocated_core_seconds', *chosen)}) > 0), 1)"


def gpu_efficiency(*chosen):
    busy, idle = (f"sum({owners_of(quantity, *chosen)})" for quantity in ("gpu_busy_seconds", "gpu_idle_seconds"))
    return f"{busy} / (({busy} + {idle}) > 0)"


def held_and_used(board_, *chosen):
    """What jobs had and used in each four minutes, jobs of any length."""
    for title, held, used, quantity, colour in (("CPUs held and used", "allocated_cpu_seconds", "cpu_seconds", "Used", style.BLUE),
                                                ("GPUs held and busy", "gpu_allocated_seconds", "gpu_busy_seconds", "Busy", style.GREEN)):
        board_.add(series(title, "Means of four minutes, jobs of any length. Between the lines is what nobody uses and nobody else gets.", style.NUMBER,
                          [(f"sum({owners_of(held, *chosen)}) / 240", "Held"), (f"sum({owners_of(used, *chosen)}) / 240", quantity)],
                          limits=["Held"], colours={quantity: colour}, fill=30), 8, 8)


def running(board_, height=11):
    board_.worst("running", f"topk($limit, ({idle_now()} or {RUNNING} * 0) and {ON} {RUNNING})", "jobid", "The jobs of the table of running jobs: those with the most waste.")
    owner = of("jobid:jobledger_job_owner:info", OWNED, RUN)
    theirs = f"and {ON} {owner}"

    def shown(metric):
        return f"max {BY} ({cluster(metric, RUN)}) {theirs}"

    board_.add(table(
        "Running jobs, the most waste first",
        "What each job holds and does not use now. Waste is in cores. CPU used is of its cores, GPU used of its GPUs, Memory is what it holds of its limit on the node where that is most. Jobs "
        "younger than two minutes have no rates yet. Power is there if all of it is known. A job's number leads to its report, over its time.",
        [Column("jobid", "Job", links=[("Job report", REPORT_RUNNING)]), Column("name", "Name", width=110), Column("user", "User", links=[("User dashboard", OWNER_LINK)]),
         Column("account", "Account", links=[("Account dashboard", ACCOUNT_LINK)]), Column("partition", "Partition"),
         Column("Value #B", "Waste", style.COUNT, 1, style.WASTED), Column("Value #C", "Running for", style.SECONDS),
         Column("Value #D", "Nodes", style.COUNT, 0), Column("Value #E", "Cores", style.COUNT, 0),
         Column("Value #F", "CPU used", style.RATIO, 0, style.EFFICIENCY_CPU), Column("Value #G", "Cores idle", style.COUNT, 1),
         Column("Value #H", "GPUs", style.COUNT, 0), Column("Value #I", "GPU used", style.RATIO, 0, style.EFFICIENCY_GPU),
         Column("Value #J", "GPUs idle", style.COUNT, 1), Column("Value #K", "Memory", style.RATIO, 0, style.NEAR_LIMIT),
         Column("Value #L", "Power", style.WATTS, 1), Column("Value #M", "From", style.NONE, 0, hide=True)],
        [f"max by (cluster, jobid, user, account, partition) ({owner})",
         f"{idle_now(RUN)} {theirs}", shown("jobid:jobledger_job_elapsed_seconds:max"), shown("jobid:jobledger_job_nodes:count"), shown("jobid:jobledger_job_cores:sum"),
         shown("jobid:jobledger_job_cpu_seconds_per_core:ratio_rate2m"), shown("jobid:jobledger_job_idle_cores:rate2m"),
         shown("jobid:jobledger_job_gpus:sum"), shown("jobid:jobledger_job_gpu_busy_seconds_per_seen_second:ratio_rate2m"),
         shown("jobid:jobledger_job_idle_gpus:rate2m"), shown("jobid:jobledger_job_memory_held_bytes_per_limit_byte:max_ratio"),
         shown("jobid:jobledger_job_total_energy_joules:rate2m"),
         f"(floor(max {BY} ({cluster('jobledger_job_start_time_seconds', RUN)})) - 60) * 1000 {theirs}",
         f"max by (cluster, jobid, name) ({cluster('jobledger_job_info', RUN)}) {theirs}"],
        sort="Waste"), 24, height)


def ended(board_, height=11):
    board_.worst("ended", f"topk($limit, {wasted()} or {ENDED} * 0)", "jobid", "The jobs of the table of ended jobs: those with the most waste.")
    used, busy, started, end = (of_ended(recorded, CHOSEN) for recorded in ("cpu_seconds:sum", "gpu_busy_seconds:sum", "start_time_seconds:min", "end_time_seconds:max"))
    unused_cores, unused_gpus = of_ended("idle_core_seconds:sum", CHOSEN), of_ended("gpu_idle_seconds:sum", CHOSEN)

    def shown(recorded):
        return of_ended(recorded, CHOSEN)

    board_.add(table(
        "Jobs that ended in this time range, the most waste first",
        "Exact totals over each job, also of those that were too short for rates. CPU-h and GPU-h are CPUs and GPUs that it had times time, CPU used is of its cores, CPU idle and GPU idle are core-hours and GPU-hours, Memory is the peak of its "
        "limit and Peak its bytes, on the node where that is most; Limit is of all nodes. Waste is in core-hours. A job's number leads to its report, over its time. What a job did before "
        "the time range is in its totals. Of a requeued job it is the latest run.",
        [Column("jobid", "Job", links=[("Job report", REPORT_ENDED)]), Column("name", "Name", width=110), Column("user", "User", links=[("User dashboard", OWNER_LINK)]),
         Column("account", "Account", links=[("Account dashboard", ACCOUNT_LINK)]), Column("partition", "Partition"),
         Column("Value #B", "Ended", style.MILLISECONDS_DATE, width=165), Column("Value #C", "Ran for", style.SECONDS), Column("Value #D", "Nodes", style.COUNT, 0),
         Column("Value #E", "CPU-h", style.COUNT, 2), Column("Value #F", "CPU used", style.RATIO, 0, style.EFFICIENCY_CPU),
         Column("Value #G", "CPU idle", style.COUNT, 2), Column("Value #H", "GPU-h", style.COUNT, 2),
         Column("Value #I", "GPU used", style.RATIO, 0, style.EFFICIENCY_GPU), Column("Value #J", "GPU idle", style.COUNT, 2),
         Column("Value #K", "Memory", style.RATIO, 0, style.NEAR_LIMIT), Column("Value #L", "Peak", style.BYTES, 1), Column("Value #M", "Limit", style.BYTES, 1),
         Column("Value #N", "OOM", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #O", "Energy", style.JOULES, 1),
         Column("Value #P", "Waste", style.COUNT, 2), Column("Value #Q", "From", style.NONE, 0, hide=True),
         Column("Value #R", "To", style.NONE, 0, hide=True)],
        [f"max by (cluster, jobid, user, account, partition) ({ended_row('owner:info', CHOSEN)})",
         f"{end} * 1000", f"{end} - {started}", shown("nodes:count"), hours(shown("allocated_cpu_seconds:sum")),
         f"{used} / (({used} + {unused_cores}) > 0)", hours(unused_cores),
         hours(shown("gpu_allocated_seconds:sum")), f"{busy} / (({busy} + {unused_gpus}) > 0)", hours(unused_gpus),
         shown("memory_peak_bytes_per_limit_byte:max_ratio"), shown("memory_peak_bytes:max"), shown("memory_limit_bytes:sum"), shown("oom_kills:sum"),
         shown("total_energy_joules:sum"), hours(wasted(CHOSEN)), f"(floor({started}) - 60) * 1000",
         f"(ceil({end}) + 120) * 1000",
         f"max by (cluster, jobid, name) ({last(cluster('ended:jobledger_job_name:info', CHOSEN))})"],
        sort="Waste"), 24, height)
