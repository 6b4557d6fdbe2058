"""User / Account: what the jobs of a user, an account or a partition hold, use and waste, now and over a time."""

from . import board, job_tables, style
from .board import Board, href
from .jobs import ours
from .panels import Column, Query, series, stat, table
from .queries import grams, hours, owners, spent

SELECT = {level: f'{level}=~"${level}"' for level in ("user", "account", "partition")}
UNUSED_CPU = [(None, style.GOOD), (1 - style.CPU_FAIR, style.WARN), (1 - style.CPU_LOW, style.BAD)]
UNUSED_GPU = [(None, style.GOOD), (1 - style.GPU_FAIR, style.WARN), (1 - style.GPU_LOW, style.BAD)]
PARTITIONS = "Needs partition in --owner.labels, where it is by default."


def idle(cores, used):
    """Core time that was not used. A core whose hardware threads both work counts once."""
    return f"clamp_min({cores} - {used}, 0)"


def per_second(quantity, *more, by=""):
    """The mean of the last four minutes, of all jobs chosen."""
    return f"(sum{by} ({owners(quantity, *more)}) / 240)"


def league(board_, level, title, height):
    """What jobs of each user, account or partition spent within the time range; those that are not known have an empty name."""
    chosen = SELECT[level]

    def per(quantity):
        # Servers that have the nodes of some partitions each record their own part (docs/scale.md).
        return f"sum by (cluster, {level}) ({spent(quantity, chosen)})"

    had, unused = per("allocated_core_seconds"), idle(per("allocated_core_seconds"), per("cpu_seconds"))
    gpus, idle_gpus = per("gpu_allocated_seconds"), per("gpu_idle_seconds")
    links = [("Dashboard", href(board.OWNER, **{level: '${__data.fields["' + level.capitalize() + '"]}'}))]
    more = f" {PARTITIONS}" if level == "partition" else ""
    board_.add(table(
        title, "What all jobs spent within the time range, ended ones too, in CPU-hours, core-hours and GPU-hours. Waste is in core-hours; a GPU counts as so many cores "
               f"as chosen above. Jobs for which it is not known are a line without a name.{more}",
        [Column(level, level.capitalize(), links=links), Column("Value #A", "CPU-hours had", style.COUNT, 1),
         Column("Value #B", "Cores unused", style.RATIO, 0, UNUSED_CPU, gauge=1),
         Column("Value #C", "Core-hours unused", style.COUNT, 1), Column("Value #D", "GPU-hours had", style.COUNT, 1),
         Column("Value #E", "GPUs unused", style.RATIO, 0, UNUSED_GPU, gauge=1),
         Column("Value #F", "GPU-hours unused", style.COUNT, 1), Column("Value #G", "Energy", style.JOULES, 1), Column("Value #H", "Waste", style.COUNT, 1)],
        [hours(per("allocated_cpu_seconds")), f"{unused} / ({had} > 0)", hours(unused), hours(gpus),
         f"clamp_max({idle_gpus} / ({gpus} > 0), 1)", hours(idle_gpus), per("energy_joules"),
         hours(f"{unused} + $gpu_weight * ({idle_gpus} or {unused} * 0)")],
        sort="Waste"), 24, height)


def summary(board_):
    chosen = SELECT.values()

    def total(quantity, by=""):
        return f"sum{by} ({spent(quantity, *chosen)})"

    had, unused = total("allocated_core_seconds"), idle(total("allocated_core_seconds"), total("cpu_seconds"))
    idle_gpus, gpus = total("gpu_idle_seconds"), total("gpu_allocated_seconds")
    for title, description, unit, expr, steps in (
            ("Jobs running", "Jobs that run now.", style.COUNT, f"count({job_tables.RUNNING}) or vector(0)", None),
            ("CPUs held", "CPUs that they may use.", style.COUNT, f"sum({ours('jobid:jobledger_job_cpus:sum')})", None),
            ("CPU efficiency now", "Part of the cores that jobs had in the last four minutes that they kept busy.", style.RATIO,
             job_tables.cpu_efficiency(*chosen), style.EFFICIENCY_CPU),
            ("GPUs held", "GPUs that they have.", style.COUNT, f"sum({ours('jobid:jobledger_job_gpus:sum')})", None),
            ("GPU busy now", "Part of the last four minutes in which kernels ran on the GPUs that jobs had.", style.RATIO,
             job_tables.gpu_efficiency(*chosen), style.EFFICIENCY_GPU),
            ("Power", "CPUs, memory, GPUs and overhead, as charged to jobs, as far as nodes have meters.", style.WATTS, per_second("energy_joules", *chosen), None),
            ("CPU-hours", "CPU time that jobs had within the time range, ended ones too.", style.COUNT, hours(total("allocated_cpu_seconds")), None),
            ("Cores not used", "Part of the core time that was not used.", style.RATIO, f"{unused} / ({had} > 0)", UNUSED_CPU),
            ("GPU-hours", "GPU time that jobs had within the time range, ended ones too.", style.COUNT, hours(gpus), None),
            ("GPUs not used", "Part of it in which no kernel ran.", style.RATIO, f"clamp_max({idle_gpus} / ({gpus} > 0), 1)", UNUSED_GPU),
            ("Energy", "CPUs, memory, GPUs and overhead, within the time range.", style.JOULES, total("energy_joules"), None),
            ("CO₂ equivalent", "That energy times the grams per kilowatt hour and the PUE of rules/site.yaml.", style.GRAMS,
             f"sum({grams(total('energy_joules', ' by (cluster)'))})", None)):
        board_.add(stat(title, description, unit, expr, steps, decimals=0 if unit == style.RATIO else 1), 4, 3)


def course(board_):
    board_.row("Course")
    chosen = SELECT.values()
    job_tables.held_and_used(board_, *chosen)
    board_.add(series("Memory used and limits", "Running jobs.", style.BYTES,
                      [Query(f"sum({ours(f'jobid:jobledger_job_memory_{what}_bytes:sum')})", title, interval="15m") for what, title in (("limit", "Limits"), ("used", "Used"))],
                      limits=["Limits"], colours={"Used": style.PINK}, fill=30), 8, 8)
    board_.add(series("Power by user", "As charged to jobs.", style.WATTS, (per_second("energy_joules", *chosen, by=" by (user)"), "{{user}}"), stack=True), 12, 8)
    board_.add(series("CPUs used by account", "Means of four minutes, jobs of any length.", style.NUMBER,
                      (per_second("cpu_seconds", *chosen, by=" by (account)"), "{{account}}"), stack=True), 12, 8)


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
