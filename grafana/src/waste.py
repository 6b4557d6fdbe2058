"""Cluster efficiency and waste league: how much of the cluster is held, how much of that is used, and who holds what nobody uses."""

from . import board, job_tables, owner, style
from .board import Board, href
from .panels import Column, series, stat, table
from .queries import cluster, spent

HELD = [(None, style.WARN), (0.5, style.GOOD)]
QUANTILES = ((1, "Highest"), (0.75, "Upper quarter"), (0.5, "Median"), (0.25, "Lower quarter"), (0, "Lowest"))


def total(recorded):
    return f"sum({cluster(recorded)})"


def band(name, what):
    """Cores or GPUs of a band (rules/recording/owners.yaml)."""
    return total(f"instance:jobledger_{name}_{what}:rate4m")


def used(what):
    """Part of what jobs had that they used."""
    return f"{band('used', what)} / (({band('used', what)} + {band('idle', what)}) > 0)"


def summary(board_):
    cores, gpus = total("instance:jobledger_node_cores:sum"), total("instance:jobledger_gpus:count")
    had, spent_cpu, had_gpus, idle_gpus = (f"sum({spent(quantity)})" for quantity in (
        "allocated_core_seconds", "cpu_seconds", "gpu_allocated_seconds", "gpu_idle_seconds"))
    busy = f"sum({cluster('instance:jobledger_node_cpu_busy_seconds_per_cpu:ratio_rate5m')} * {cluster('jobledger_node_cpus')})"
    for title, description, unit, expr, steps in (
            ("Nodes", "Nodes whose exporter answers.", style.COUNT, f"count({cluster('jobledger_node_cpus')})", None),
            ("Cores", "Cores of these nodes. A core may have several CPUs: hardware threads.", style.COUNT, cores, None),
            ("Cores held by jobs", "Part of the cores that jobs have, those of young jobs too. Without ConstrainCores=yes a job has all of its node.", style.RATIO,
             f"1 - {band('unallocated', 'cores')} / ({cores} > 0)", HELD),
            ("CPUs busy", "Part of the CPUs that work, whoever for.", style.RATIO, f"{busy} / {total('jobledger_node_cpus')}", None),
            ("CPU efficiency of jobs", "Part of the cores that jobs had in the last four minutes that they kept busy.", style.RATIO, used("cores"), style.EFFICIENCY_CPU),
            ("Cores idle in jobs", "Cores that jobs had and did not use.", style.COUNT, band("idle", "cores"), None),
            ("GPUs", "GPUs, and parts of divided ones.", style.COUNT, gpus, None),
            ("GPUs held by jobs", "Part of the GPUs that jobs have, those of young jobs too.", style.RATIO, f"1 - {band('unallocated', 'gpus')} / ({gpus} > 0)", HELD),
            ("GPU busy in jobs", "Part of the time, of what was seen, in which jobs' GPUs worked.", style.RATIO, used("gpus"), style.EFFICIENCY_GPU),
            ("GPUs idle in jobs", "GPUs that jobs had and did not use.", style.COUNT, band("idle", "gpus"), None),
            ("Core time unused", "Part of the core time that jobs had within the time range and did not use.", style.RATIO,
             f"{owner.idle(had, spent_cpu)} / ({had} > 0)", owner.UNUSED_CPU),
            ("GPU time unused", "Part of the GPU time that jobs had within the time range and did not use.", style.RATIO,
             f"clamp_max({idle_gpus} / ({had_gpus} > 0), 1)", owner.UNUSED_GPU)):
        board_.add(stat(title, description, unit, expr, steps, decimals=0 if unit == style.RATIO else 1), 4, 3)


def course(board_):
    board_.row("Where the cores and GPUs are")
    board_.add(series("Where the cores are", "Means of the last four minutes, jobs of any length; together all cores of the cluster. Jobs that are too young to judge have not had their cores for "
                      "four minutes. What is used beside jobs (system, login) is within the others.", style.NUMBER,
                      [(band("used", "cores"), "Used by jobs"), (band("idle", "cores"), "Held and idle"), (band("young", "cores"), "Too young to judge"),
                       (band("unallocated", "cores"), "Not held")],
                      stack=True, colours={"Used by jobs": style.BLUE, "Held and idle": style.ORANGE, "Too young to judge": style.PINK, "Not held": style.GREY}), 12, 9)
    board_.add(series("Where the GPUs are", "Means of the last four minutes; together all GPUs of the cluster, parts of divided ones instead of those. Not known are those of jobs that are too young, "
                      "those that could not be read, and those whose driver does not report it.", style.NUMBER,
                      [(band("used", "gpus"), "Busy for jobs"), (band("idle", "gpus"), "Held and idle"), (band("unknown", "gpus"), "Not known"),
                       (band("unallocated", "gpus"), "Not held")],
                      stack=True, colours={"Busy for jobs": style.GREEN, "Held and idle": style.ORANGE, "Not known": style.PINK, "Not held": style.GREY}), 12, 9)
    by = " by (partition)"
    cores, cpu, idle, busy = (owner.per_second(quantity, by=by) for quantity in ("allocated_core_seconds", "cpu_seconds", "gpu_idle_seconds", "gpu_busy_seconds"))
    board_.add(series("Cores idle in jobs by partition", owner.PARTITIONS, style.NUMBER, (owner.idle(cores, cpu), "{{partition}}"), stack=True), 8, 8)
    board_.add(series("GPUs idle in jobs by partition", owner.PARTITIONS, style.NUMBER, (idle, "{{partition}}"), stack=True), 8, 8)
    board_.add(series("Efficiency by partition", f"Cores, and GPUs of those that have some: sums divided. {owner.PARTITIONS}", style.RATIO,
                      [(f"clamp_max({cpu} / ({cores} > 0), 1)", "CPU {{partition}}"), (f"{busy} / (({busy} + {idle}) > 0)", "GPU {{partition}}")], high=1), 8, 8)


def nodes(board_):
    board_.row("Nodes")
    for title, what, recorded in (("CPUs busy, over nodes", "CPUs", "node_cpu_busy_seconds_per_cpu:ratio_rate5m"),
                                  ("GPUs busy, over nodes", "GPUs", "gpu_busy_seconds_per_observed_second:ratio_rate5m")):
        board_.add(series(title, f"The part of a node's {what} that is busy: a quarter of the nodes is between two lines.", style.RATIO,
                          [(f"quantile({quantile}, {cluster(f'instance:jobledger_{recorded}')})", name) for quantile, name in QUANTILES], high=1), 8, 10)
    rank = cluster("instance:jobledger_idle_cores:rate4m")
    chosen = f"and on (cluster, instance) topk($limit, {rank})"
    board_.add(table(
        "Nodes whose jobs leave the most cores idle", "Means of the last four minutes.",
        [Column("instance", "Node", links=[("Node dashboard", href(board.NODE, instance='${__data.fields["Node"]}'))]),
         Column("Value #A", "Cores idle", style.COUNT, 1), Column("Value #B", "Cores used", style.COUNT, 1), Column("Value #C", "Cores", style.COUNT, 0)],
        [f"max by (cluster, instance) ({cluster(f'instance:jobledger_{recorded}')}) {chosen}" for recorded in (
            "idle_cores:rate4m", "used_cores:rate4m", "node_cores:sum")], sort="Cores idle"), 8, 10)


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
    nodes(board_)
    board_.row("Jobs that ended", collapsed=True)
    job_tables.ended(board_, 12)
    return board_
