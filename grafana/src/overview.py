"""Overview: whether the fleet is well, which nodes are not, how full it is, and what is not measured and why. The page that an admin opens first."""

from . import board, style
from .board import Board, href
from .node import COLLECTOR_STATE
from .panels import Column, Query, rows_of_labels, series, stat, table
from .queries import cluster, label, rate

NODES = 30
BY = "by (cluster, job, instance)"
ON = "on (cluster, job, instance)"
# Targets that are exporters, also those that are down now.
OURS = f"and {ON} last_over_time({cluster('jobledger_exporter_build_info')}[$__range])"
FIRING = 'alertstate="firing"'
# What is about a job is its owner's, who has the alert by mail.
OF_MACHINES = 'alertname=~"Jobledger.*",alertname!~"JobledgerJob.*"'


def worst(metric, *more):
    """Of the nodes of the table, which a hidden variable chooses: once for all of its columns."""
    return cluster(metric, 'instance=~"$worst"', *more)


def up(of):
    return f"max {BY} ({of('up')} {OURS})"


def failing(of):
    return f"count {BY} ({COLLECTOR_STATE.format(success=of('jobledger_exporter_collector_success'), available=of('jobledger_exporter_collector_available'))} == 0)"


def gpus_down(of):
    return f"count {BY} ({of('jobledger_gpu_up')} == 0)"


def gpus_to_repair(of):
    return (f"count {BY} (count by (cluster, job, instance, uuid) ({of('jobledger_gpu_remapped_rows_failed')} == 1 or {of('jobledger_gpu_remapped_rows_pending')} == 1"
            f" or {of('jobledger_gpu_retired_pages_pending')} == 1 or max by (cluster, job, instance, uuid) ({of('jobledger_gpu_recovery_action', 'action!=' + chr(34) + 'none' + chr(34))}) == 1))")


def ports_down(of):
    return f"count {BY} ({of('jobledger_node_infiniband_state')} < 4)"


def left_behind(of):
    return f"count {BY} ({of('jobledger_node_stale_job_info')})"


def unattributed(of, window="$__rate_interval"):
    nobodys, all_ = (f"sum {BY} (rate({of(counter)}[{window}]))" for counter in ("jobledger_node_slurm_cpu_unattributed_seconds_total", "jobledger_node_slurm_cpu_seconds_total"))
    return f"clamp_max({nobodys} / ({all_} > 0), 1)"


def memory(of):
    return f"max {BY} (1 - {of('jobledger_node_memory_available_bytes')} / ({of('jobledger_node_memory_total_bytes')} > 0))"


def booted(of):
    return f"time() - max {BY} ({of('jobledger_node_boot_time_seconds')})"


UP, FAILING, GPU_DOWN, GPU_REPAIR, PORTS_DOWN, UNATTRIBUTED = (of(cluster) for of in (up, failing, gpus_down, gpus_to_repair, ports_down, unattributed))
CPUS = f"sum({cluster('jobledger_node_cpus')})"
RUNNING = f"sum({cluster('jobledger_exporter_jobs', 'state=' + chr(34) + 'running' + chr(34))})"


def zero(expr):
    """A count that is 0 while there are exporters."""
    return f"{expr} or count({UP}) * 0"


def health(board_):
    worst = [(None, style.GOOD), (1, style.BAD)]
    warn = [(None, style.GOOD), (1, style.WARN)]
    for title, description, unit, expr, steps in (
            ("Nodes up", "Exporters whose last scrape succeeded, of those that were scraped within the time range.", style.COUNT, f"sum({UP})", None),
            ("Nodes down", "Exporters whose last scrape failed.", style.COUNT, zero(f"count({UP} == 0)"), worst),
            ("Alerts of machines", "Firing now; those about jobs are their owners'.", style.COUNT, zero(f"count(count by (cluster, alertname, instance) ({cluster('ALERTS', OF_MACHINES, FIRING)}))"), warn),
            ("Nodes with failures", "Nodes on which a collector that should yield does not, or not all.", style.COUNT, zero(f"count({FAILING})"), warn),
            ("GPUs lost", "They cannot be read: lost, want a reset, or do not answer.", style.COUNT, zero(f"sum({GPU_DOWN})"), worst),
            ("GPUs to be repaired", "Rows of memory are to be replaced or cannot be, or the driver asks for a reset, a reboot or a drain.", style.COUNT, zero(f"sum({GPU_REPAIR})"), warn),
            ("Ports down", "InfiniBand, RoCE and Omni-Path ports that are not active.", style.COUNT, zero(f"sum({PORTS_DOWN})"), warn),
            ("Jobs running", "Runs of jobs on nodes: a job on several nodes counts on each.", style.COUNT, RUNNING, None),
            ("CPUs held", "Part of the CPUs of all nodes that jobs may use.", style.RATIO, f"clamp_max(sum({cluster('jobledger_job_cpus')}) / ({CPUS} > 0), 1)", None),
            ("GPUs held", "Part of the GPUs' time in which a job had them.", style.RATIO,
             f"clamp_min(1 - sum({rate(cluster('jobledger_gpu_unallocated_seconds_total'))}) / (sum({rate(cluster('jobledger_gpu_observed_seconds_total'))}) > 0), 0)", None),
            ("CPU time not attributed", "Part of SLURM's CPU time that is no job's, on the node where it is most.", style.RATIO, f"max({UNATTRIBUTED})", style.RESIDUALS),
            ("Slowest scrape", "Time that the slowest target's last scrape took.", style.SECONDS, f"max({cluster('scrape_duration_seconds')} {OURS})",
             [(None, style.GOOD), (1, style.WARN), (style.SCRAPE_SLOW_SECONDS, style.BAD)])):
        board_.add(stat(title, description, unit, expr, steps, decimals=0 if unit == style.RATIO else None, nothing="None" if "GPUs held" in title else None), 4, 3)


def chosen():
    """The nodes with the most trouble, then those with the fullest memory."""
    targets = f"max {BY} ({cluster('up')})"
    none = f"{targets} * 0"
    # A variable does not know $__rate_interval.
    signs = ((10000, f"{targets} == bool 0"), (1000, GPU_DOWN), (300, GPU_REPAIR), (300, PORTS_DOWN), (100, FAILING), (30, left_behind(cluster)), (30, f"{unattributed(cluster, '5m')} > bool {style.RESIDUAL}"),
             (1, memory(cluster)))
    return f"topk({NODES}, ({' + '.join(f'{weight:g} * ({sign} or {none})' for weight, sign in signs)}) {OURS})"


def nodes(board_):
    board_.row("What to look at")
    link = href(board.NODE, instance='${__data.fields["Node"]}')
    board_.add(table(
        "Nodes with the most trouble", f"The {NODES} nodes that are down, have GPUs that are lost or to be repaired, ports that are down, collectors that fail or jobs left behind; then those with the fullest memory. «GPUs lost» "
        "cannot be read; «Repair» want a reset or a replacement; «Left behind» are job directories that SLURM did not remove.",
        [Column("instance", "Node", links=[("Node dashboard", link)], width=170), Column("Value #A", "Exporter", texts={0: ("down", style.RED), 1: ("up", style.BLUE)}),
         Column("Value #B", "GPUs lost", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #C", "Repair", style.COUNT, 0, [(None, style.GOOD), (1, style.WARN)]),
         Column("Value #D", "Ports down", style.COUNT, 0, style.NONE_IS_GOOD), Column("Value #E", "Failing", style.COUNT, 0, style.NONE_IS_GOOD),
         Column("Value #F", "Left behind", style.COUNT, 0, [(None, style.GOOD), (1, style.WARN)]), Column("Value #G", "Not attributed", style.RATIO, 1, style.RESIDUALS),
         Column("Value #H", "Memory used", style.RATIO, 0, style.NEAR_LIMIT), Column("Value #I", "Up for", style.SECONDS)],
        [of(worst) for of in (up, gpus_down, gpus_to_repair, ports_down, failing, left_behind, unattributed, memory, booted)], sort="Exporter", descending=False), 14, 13)
    board_.add(table(
        "Alerts that fire", "Of machines and exporters, and on how many nodes. Those about jobs are their owners' and are counted in one line.",
        [Column("alertname", "Alert"), Column("severity", "Severity", width=90), Column("Value #A", "Nodes", style.COUNT, 0, width=80)],
        f"sort_desc(topk(30, count by (alertname, severity) ({cluster('ALERTS', OF_MACHINES, FIRING)}))) or "
        + label(f"count(count by (cluster, jobid) ({cluster('ALERTS', 'alertname=~' + chr(34) + 'JobledgerJob.*' + chr(34), FIRING)}))", alertname="jobs with an alert for their owners"),
        sort="Nodes", nothing="None"), 10, 13)


def not_measured(board_):
    board_.row("What is not measured, and why")
    board_.add(table(
        "Collectors that yield nothing or less", "In the exporters' own words, and on how many nodes. «unsupported» and «denied» are a node without the hardware, the kernel or the permission; jobledger-exporter --check says what would change it.",
        [Column("collector", "Collector", width=150), Column("reason", "Reason", width=120), Column("detail", "Detail"), Column("Value #A", "Nodes", style.COUNT, 0, width=80)],
        f"topk(50, count by (collector, reason, detail) ({cluster('jobledger_exporter_collector_status_info')}))", sort="Nodes"), 14, 10)
    nodes_ = f"count({cluster('jobledger_node_cpus')})"

    def share(expr):
        return f"(count({expr}) or {nodes_} * 0) / ({nodes_} > 0)"

    board_.add(rows_of_labels(
        "What nodes measure", "Part of the nodes that answer. Energy and GPU time can be charged to jobs only where they are measured; a job without an account is one whose node has no file of SLURM's prolog.",
        [Column("what", "What"), Column("Value", "Nodes with it", style.RATIO, 0, width=120)],
        [label(expr, what=what) for what, expr in (
            ("CPU time of jobs", share(f"count {BY} ({cluster('jobledger_node_slurm_cpu_seconds_total')})")),
            ("Energy of CPUs and memory", share(f"count {BY} ({cluster('jobledger_node_energy_joules_total')})")),
            ("GPUs", share(f"count {BY} ({cluster('jobledger_gpu_info')})")),
            ("Hardware counters (--collector.perf)", share(f"count {BY} ({cluster('jobledger_node_counters_info')})")),
            ("Memory traffic (--collector.memory_traffic)", share(f"count {BY} ({cluster('jobledger_node_memory_traffic_info')})")),
            ("Pressure (cgroup v2, psi=1)", share(f"count {BY} ({cluster('jobledger_node_pressure_seconds_total')})")),
            ("InfiniBand, RoCE or Omni-Path", share(f"count {BY} ({cluster('jobledger_node_infiniband_state')})")),
            ("Jobs' accounts and partitions, of running jobs",
             f"count({cluster('jobledger_job_info', 'account!=' + chr(34) * 2)}) / (count({cluster('jobledger_job_info')}) > 0)"))]), 10, 10)


def course(board_):
    board_.row("Course")
    board_.add(series("Nodes", "Exporters that answer, and that do not.", style.NUMBER,
                      [Query(f"sum({cluster('up')} {OURS.replace('[$__range]', '[$__range] @ end()')})", "Up", interval="5m"),
                       Query(f"count({cluster('up')} == 0 {OURS.replace('[$__range]', '[$__range] @ end()')})", "Down", interval="5m"),
                       ], colours={"Up": style.BLUE, "Down": style.RED}, calcs=("lastNotNull",)), 8, 8)
    board_.add(series("CPUs", "CPUs of all nodes, and those that jobs may use.", style.NUMBER,
                      [Query(f"sum({cluster('jobledger_job_cpus')})", "Held by jobs", interval="5m"), Query(CPUS, "There are", interval="5m")], limits=["There are"], colours={"Held by jobs": style.BLUE}, fill=30, calcs=("lastNotNull",)), 8, 8)
    board_.add(series("Alerts that fire", "Of machines and exporters, by name.", style.NUMBER,
                      Query(f"count by (alertname) ({cluster('ALERTS', OF_MACHINES, FIRING)})", "{{alertname}}", interval="1m"), calcs=("lastNotNull",), nothing="None in this time range"), 8, 8)


def build():
    board_ = Board(board.OVERVIEW, "Jobledger / Overview", "Whether the fleet is well, which nodes are not, and what is not measured and why.", since="now-3h")
    board_.annotation("Reboots", f"topk(20, {cluster('jobledger_node_boot_time_seconds')} * 1000 > $__from)", style.GREY, "{{instance}} was booted", value_is_time=True)
    board_.worst("worst", chosen(), "instance", "The nodes of the table.")
    board_.alerts("Jobledger.*", 'alertname!~"JobledgerJob.*"')
    health(board_)
    nodes(board_)
    not_measured(board_)
    course(board_)
    return board_
