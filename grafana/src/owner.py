"""User / Account: what the jobs of a user, an account or a partition hold, use and waste, now and over a time."""

from . import board, job_tables, style
from .board import Board, href
from .jobs import ours
from .panels import Column, series, stat, table
from .queries import cluster, grams, hours, spent

SELECT = {level: f'{level}=~"${level}"' for level in ("user", "account", "partition")}


def league(board_, level, title, height):
    """What jobs of each user, account or partition spent within the time range; those that are not known have an empty name."""
    chosen = SELECT[level]

    def per(metric):
        # Servers that have the nodes of some partitions each record their own part (docs/scale.md).
        return f"sum by (cluster, {level}) ({spent('owner', metric, chosen)})"

    had, unused = per("allocated_cpu_seconds"), per("unused_cpu_seconds")
    gpus, idle = per("gpu_allocated_seconds"), per("gpu_idle_seconds")
    links = [("Dashboard", href(board.OWNER, **{level: '${__data.fields["' + level.capitalize() + '"]}'}))]
    board_.add(table(
        title, "What all jobs spent within the time range, ended ones too, in CPU-hours and GPU-hours. Waste is in CPU-hours; a GPU counts as so many CPUs "
               "as chosen above. Jobs for which it is not known are a line without a name.",
        [Column(level, level.capitalize(), links=links), Column("Value #A", "CPU-hours had", style.COUNT, 1), Column("Value #B", "of it unused", style.RATIO, 0,
                [(None, style.GOOD), (1 - style.CPU_FAIR, style.WARN), (1 - style.CPU_LOW, style.BAD)], gauge=1),
         Column("Value #C", "CPU-hours unused", style.COUNT, 1), Column("Value #D", "GPU-hours had", style.COUNT, 1),
         Column("Value #E", "of that unused", style.RATIO, 0, [(None, style.GOOD), (1 - style.GPU_FAIR, style.WARN), (1 - style.GPU_LOW, style.BAD)], gauge=1),
         Column("Value #F", "GPU-hours unused", style.COUNT, 1), Column("Value #G", "Energy", style.JOULES, 1), Column("Value #H", "Waste", style.COUNT, 1)],
        [hours(had), f"{unused} / ({had} > 0)", hours(unused), hours(gpus),
         f"{idle} / ({gpus} > 0)", hours(idle), per("total_energy_joules"),
         hours(f"{unused} + $gpu_weight * ({idle} or {unused} * 0)")],
        sort="Waste"), 24, height)


def summary(board_):
    def total(metric, by=""):
        return f"sum{by} ({spent('owner', metric, *SELECT.values())})"

    unused, had = total("unused_cpu_seconds"), total("allocated_cpu_seconds")
    idle, gpus = total("gpu_idle_seconds"), total("gpu_allocated_seconds")
    for title, description, unit, expr, steps in (
            ("Jobs running", "Jobs that run now.", style.COUNT, f"count({job_tables.RUNNING}) or vector(0)", None),
            ("CPUs held", "CPUs that they may use.", style.COUNT, f"sum({ours('jobid:jobledger_job_cpus:sum')})", None),
            ("CPU efficiency now", "Part of those that they keep busy.", style.RATIO,
             f"sum({ours('jobid:jobledger_job_cpu_seconds:rate2m')}) / (sum({ours('jobid:jobledger_job_measured_cpus:sum')}) > 0)", style.EFFICIENCY_CPU),
            ("GPUs held", "GPUs that they have.", style.COUNT, f"sum({ours('jobid:jobledger_job_gpus:sum')})", None),
            ("GPU busy now", "Part of the time in which their kernels ran.", style.RATIO,
             f"sum({ours('jobid:jobledger_job_gpu_busy_seconds:rate2m')}) / (sum({ours('jobid:jobledger_job_gpu_seen_seconds:rate2m')}) > 0)",
             style.EFFICIENCY_GPU),
            ("Power", "CPUs, memory and GPUs, as attributed to jobs.", style.WATTS, f"sum({ours('jobid:jobledger_job_total_energy_joules:rate2m')})", None),
            ("CPU-hours", "CPU time that jobs had within the time range, ended ones too.", style.COUNT, hours(had), None),
            ("of which not used", "Part of it that was not used.", style.RATIO, f"{unused} / ({had} > 0)",
             [(None, style.GOOD), (1 - style.CPU_FAIR, style.WARN), (1 - style.CPU_LOW, style.BAD)]),
            ("GPU-hours", "GPU time that jobs had within the time range, ended ones too.", style.COUNT, hours(gpus), None),
            ("of which not used", "Part of it in which no kernel ran.", style.RATIO, f"{idle} / ({gpus} > 0)",
             [(None, style.GOOD), (1 - style.GPU_FAIR, style.WARN), (1 - style.GPU_LOW, style.BAD)]),
            ("Energy", "CPUs, memory and GPUs, within the time range.", style.JOULES, total("total_energy_joules"), None),
            ("CO₂ equivalent", "That energy times the grams per kilowatt hour of rules/site.yaml.", style.GRAMS,
             f"sum({grams(total('total_energy_joules', ' by (cluster)'))})", None)):
        board_.add(stat(title, description, unit, expr, steps, decimals=0 if unit == style.RATIO else 1), 4, 3)


def course(board_):
    board_.row("Course")
    board_.add(series("CPUs held and used", "All jobs chosen.", style.NUMBER,
                      [(f"sum({ours('jobid:jobledger_job_cpus:sum')})", "Held"), (f"sum({ours('jobid:jobledger_job_cpu_seconds:rate2m')})", "Used")],
                      limits=["Held"], colours={"Used": style.BLUE}, fill=30), 8, 8)
    board_.add(series("GPUs held and busy", "All jobs chosen.", style.NUMBER,
                      [(f"sum({ours('jobid:jobledger_job_gpus:sum')})", "Held"), (f"sum({ours('jobid:jobledger_job_gpu_busy_seconds:rate2m')})", "Busy")],
                      limits=["Held"], colours={"Busy": style.GREEN}, fill=30), 8, 8)
    board_.add(series("Memory used and limits", "All jobs chosen.", style.BYTES,
                      [(f"sum({ours('jobid:jobledger_job_memory_limit_bytes:sum')})", "Limits"),
                       (f"sum({ours('jobid:jobledger_job_memory_used_bytes:sum')})", "Used")],
                      limits=["Limits"], colours={"Used": style.PINK}, fill=30), 8, 8)
    board_.add(series("Power by user", "Running jobs.", style.WATTS, (f"sum by (user) ({cluster('user:jobledger_job_total_energy_joules:rate2m', SELECT['user'])})", "{{user}}"),
                      stack=True), 8, 8)
    board_.add(series("CPUs used by account", "Running jobs.", style.NUMBER, (f"sum by (account) ({cluster('account:jobledger_job_cpu_seconds:rate2m', SELECT['account'])})", "{{account}}"),
                      stack=True), 8, 8)
    board_.add(series("Floating-point operations by user", "As counted (--collector.perf).", style.FLOPS,
                      (f"sum by (user) ({cluster('user:jobledger_job_flops:sum_rate2m', SELECT['user'])})", "{{user}}"), stack=True), 8, 8)


def build():
    board_ = Board(board.OWNER, "Jobledger / User and account", "What the jobs of users, accounts and partitions hold, use and do not use.", since="now-24h", refresh="5m")
    job_tables.owners(board_)
    job_tables.weight(board_)
    job_tables.limit(board_)
    summary(board_)
    board_.row("Users and accounts in this time range")
    league(board_, "user", "Users", 8)
    league(board_, "account", "Accounts", 8)
    board_.row("Running jobs")
    job_tables.running(board_, 10)
    course(board_)
    board_.row("Ended jobs", collapsed=True)
    job_tables.ended(board_, 12)
    return board_
