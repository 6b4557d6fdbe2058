"""Cluster efficiency and waste league: how much of the cluster is held, how much of that is used, and who holds what nobody uses."""

from . import board, job_tables, owner, style
from .board import Board, href
from .panels import Column, heatmap, series, stat, table
from .queries import cluster, hours, last, spent

UNUSED = [(None, style.GOOD), (1 - style.CPU_FAIR, style.WARN), (1 - style.CPU_LOW, style.BAD)]
UNUSED_GPU = [(None, style.GOOD), (1 - style.GPU_FAIR, style.WARN), (1 - style.GPU_LOW, style.BAD)]
HELD = [(None, style.WARN), (0.5, style.GOOD)]


def total(recorded, *more):
    return f"sum({cluster(recorded, *more)})"


def of_partitions(recorded):
    return f"sum by (partition) ({cluster(f'partition:jobledger_job_{recorded}')})"


def summary(board_):
    unused, had, idle, gpus = (f"sum({spent('owner', metric)})" for metric in (
        "unused_cpu_seconds", "allocated_cpu_seconds", "gpu_idle_seconds", "gpu_allocated_seconds"))
    for title, description, unit, expr, steps in (
            ("Nodes", "Nodes whose exporter answers.", style.COUNT, f"count({cluster('jobledger_node_cpus')})", None),
            ("CPUs", "Hardware threads of these nodes.", style.COUNT, total("jobledger_node_cpus"), None),
            ("CPUs held by jobs", "Part of the CPUs that jobs may use. Above 100 % jobs share CPUs, or SLURM does not constrain them.", style.RATIO,
             f"{total('instance:jobledger_job_cpus:sum')} / {total('jobledger_node_cpus')}", HELD),
            ("CPUs busy", "Part of the CPUs that work, whoever for.", style.RATIO,
             f"{total('instance:jobledger_node_cpu_busy_seconds:rate5m')} / {total('jobledger_node_cpus')}", None),
            ("CPU efficiency of jobs", "Part of the CPUs held that jobs keep busy.", style.RATIO,
             f"{total('jobid:jobledger_job_cpu_seconds:rate2m')} / ({total('jobid:jobledger_job_measured_cpus:sum')} > 0)", style.EFFICIENCY_CPU),
            ("CPUs idle in jobs", "CPUs that jobs hold and do not use.", style.COUNT, total("jobid:jobledger_job_idle_cpus:rate2m"), None),
            ("GPUs", "GPUs, and parts of divided ones.", style.COUNT, total("instance:jobledger_gpus:count"), None),
            ("GPUs held by jobs", "Part of the GPUs' time in which a job had them.", style.RATIO,
             f"1 - {total('instance:jobledger_gpu_unallocated_seconds:rate5m')} / ({total('instance:jobledger_gpu_observed_seconds:rate5m')} > 0)", HELD),
            ("GPU busy in jobs", "Part of the time, of what was seen, in which jobs' GPUs worked.", style.RATIO,
             f"{total('jobid:jobledger_job_gpu_busy_seconds:rate2m')} / ({total('jobid:jobledger_job_gpu_seen_seconds:rate2m')} > 0)", style.EFFICIENCY_GPU),
            ("GPUs idle in jobs", "GPUs that jobs have and do not use, without shared ones.", style.COUNT, total("jobid:jobledger_job_idle_gpus:rate2m"), None),
            ("CPU time unused", "Part of the CPU time that jobs had within the time range and did not use.", style.RATIO, f"{unused} / ({had} > 0)", UNUSED),
            ("GPU time unused", "Part of the GPU time that jobs had within the time range and did not use.", style.RATIO, f"{idle} / ({gpus} > 0)", UNUSED_GPU)):
        board_.add(stat(title, description, unit, expr, steps, decimals=0 if unit == style.RATIO else 1), 4, 3)


def not_held(all_, held):
    """What there is now and no job has now: rates over minutes beside those of jobs would add up to more than there is."""
    return f"clamp_min({total(all_)} - ({total(held)} or {total(all_)} * 0), 0)"


def course(board_):
    board_.row("Where the CPUs and GPUs are")
    board_.add(series("CPUs", "Used by jobs, held and idle, held by nobody: all CPUs of the cluster. What is used beside jobs (system, login) is within the last two.",
                      style.NUMBER, [(total("jobid:jobledger_job_cpu_seconds:rate2m"), "Used by jobs"), (total("jobid:jobledger_job_idle_cpus:rate2m"), "Held and idle"),
                                     (not_held("jobledger_node_cpus", "instance:jobledger_job_cpus:sum"), "Not held")],
                      stack=True, colours={"Used by jobs": style.BLUE, "Held and idle": style.ORANGE, "Not held": style.GREY}), 12, 9)
    board_.add(series("GPUs", "Busy for jobs, held and idle, had by no job.", style.NUMBER,
                      [(total("jobid:jobledger_job_gpu_busy_seconds:rate2m"), "Busy for jobs"), (total("jobid:jobledger_job_gpu_idle_seconds:rate2m"), "Held and idle"),
                       (not_held("instance:jobledger_gpus:count", "jobid:jobledger_job_gpus:sum"), "Not held")],
                      stack=True, colours={"Busy for jobs": style.GREEN, "Held and idle": style.ORANGE, "Not held": style.GREY}), 12, 9)
    board_.add(series("CPUs idle in jobs by partition", "Partitions are known from the prolog's file.", style.NUMBER,
                      (of_partitions("idle_cpus:rate2m"), "{{partition}}"), stack=True), 8, 8)
    board_.add(series("GPUs idle in jobs by partition", "Without shared GPUs.", style.NUMBER,
                      (of_partitions("idle_gpus:rate2m"), "{{partition}}"), stack=True), 8, 8)
    board_.add(series("Efficiency by partition", "CPUs, and GPUs of those that have some: sums divided.", style.RATIO,
                      [(f"{of_partitions('cpu_seconds:rate2m')} / ({of_partitions('measured_cpus:sum')} > 0)", "CPU {{partition}}"),
                       (f"{of_partitions('gpu_busy_seconds:rate2m')} / ({of_partitions('gpu_seen_seconds:rate2m')} > 0)", "GPU {{partition}}")], high=1), 8, 8)


def worst_jobs(board_):
    by = "by (cluster, jobid)"
    unused, idle = (f"sum {by} ({spent('jobid', metric)})" for metric in ("unused_cpu_seconds", "gpu_idle_seconds"))
    waste = f"{unused} + $gpu_weight * ({idle} or {unused} * 0)"
    chosen = f"and on (cluster, jobid) topk($limit, {waste})"
    link = href(board.REPORT, jobid='${__data.fields["Job"]}')

    def shown(metric):
        return f"sum {by} ({spent('jobid', metric)}) {chosen}"

    def time(metric):
        return hours(f"sum {by} ({spent('jobid', metric)})") + f" {chosen}"

    board_.add(table(
        "Jobs of this time range, the most waste first", "Running and ended ones; what each had and did not use within the time range, in CPU-hours and GPU-hours; waste is in CPU-hours. Its "
        "number leads to its report of this time.",
        [Column("jobid", "Job", links=[("Job report", link)]), Column("user", "User", links=[("User dashboard", job_tables.OWNER_LINK)]),
         Column("account", "Account"), Column("partition", "Partition"), Column("Value #B", "CPU-h had", style.COUNT, 2),
         Column("Value #C", "CPU-h unused", style.COUNT, 2), Column("Value #D", "GPU-h had", style.COUNT, 2), Column("Value #E", "GPU-h unused", style.COUNT, 2),
         Column("Value #F", "Energy", style.JOULES, 1), Column("Value #G", "Waste", style.COUNT, 2)],
        [f"max by (cluster, jobid, user, account, partition) ({last(cluster('jobid:jobledger_job_owner:info'))}) {chosen}",
         time("allocated_cpu_seconds"), time("unused_cpu_seconds"),
         time("gpu_allocated_seconds"), time("gpu_idle_seconds"),
         shown("total_energy_joules"), f"{hours(waste)} {chosen}"],
        sort="Waste"), 24, 11)


def nodes(board_):
    board_.row("Nodes")
    board_.add(heatmap("CPUs busy by node", "Each node a row: the part of its CPUs that is busy.", style.RATIO,
                       (cluster("instance:jobledger_node_cpu_busy_seconds_per_cpu:ratio_rate5m"), "{{instance}}")), 12, 10)
    board_.add(heatmap("GPUs busy by node", "Each node with GPUs a row: the part of the time in which they worked.", style.RATIO,
                       (cluster("instance:jobledger_gpu_busy_seconds_per_observed_second:ratio_rate5m"), "{{instance}}")), 12, 10)


def build():
    board_ = Board(board.WASTE, "Jobledger / Cluster efficiency and waste", "How much of the cluster is held, how much of that is used, and who holds what nobody uses.",
                   since="now-24h", refresh="5m")
    job_tables.owners(board_)
    job_tables.weight(board_)
    job_tables.limit(board_)
    summary(board_)
    course(board_)
    board_.row("League of this time range")
    owner.league(board_, "user", "Users", 9)
    owner.league(board_, "account", "Accounts", 8)
    owner.league(board_, "partition", "Partitions", 8)
    worst_jobs(board_)
    nodes(board_)
    return board_
