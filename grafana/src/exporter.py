"""Exporter health: whether the numbers can be trusted, and what the exporter costs."""

from . import board, node as node_board, style
from .board import Board, href
from .panels import BAND_COLOURS, Column, Query, bands, series, stat, states, table
from .queries import CLUSTER, of, rate

ONE = f'{CLUSTER},job=~"$job",instance=~"$instance"'
# Of a whole site a panel shows the worst targets, which a hidden variable chooses, and how all of them are distributed.
ROWS, LINES = 40, 5
WORST = f'{ONE},instance=~"$worst"'
# Steps of panels over all collectors of all nodes: at every scrape they would cost many CPU seconds.
COLLECTORS_STEP, STEP = "30m", "5m"


def own(metric, *more):
    return of(metric, ONE, *more)


def worst(metric, *more):
    return of(metric, WORST, *more)


def unattributed(selected):
    """Part of SLURM's CPU time that is no job's, of each node."""
    return (f"clamp_max({rate(selected('jobledger_node_slurm_cpu_unattributed_seconds_total'))} / ({rate(selected('jobledger_node_slurm_cpu_seconds_total'))} > 0), 1)")


def lines(of_all, of_the_worst):
    return bands(of_all, f"topk({LINES}, {of_the_worst})", "{{instance}}", STEP)


BY = "by (cluster, job, instance)"


def state(selected):
    return node_board.COLLECTOR_STATE.format(success=selected("jobledger_exporter_collector_success"), available=selected("jobledger_exporter_collector_available"))


def chosen(most):
    """The targets that are down, then those with collectors that fail, then the slowest ones."""
    none = f"max {BY} ({own('up')}) * 0"
    signs = ((10000, f"max {BY} ({own('up')}) == bool 0"), (100, f"count {BY} ({state(own)} == 0)"), (100, f"sum {BY} ({own('jobledger_exporter_series_dropped_total')}) > bool 0"),
             (1, f"max {BY} ({own('scrape_duration_seconds')})"))
    return f"topk({most}, ({' + '.join(f'{weight:g} * ({sign} or {none})' for weight, sign in signs)}) and on (cluster, job, instance) last_over_time({own('jobledger_exporter_build_info')}[$__range]))"


def summary(board_):
    for title, description, unit, expr, steps in (
            ("Exporters up", "Targets whose last scrape succeeded.", style.COUNT, f"sum({own('up')})", None),
            ("Exporters down", "Targets whose last scrape failed.", style.COUNT, f"count({own('up')} == 0) or count({own('up')}) * 0", style.NONE_IS_GOOD),
            ("Nodes with failures", "Nodes on which a collector that should yield does not, or not all.", style.COUNT,
             f"count(count {BY} ({state(own)} == 0)) or count({own('up')}) * 0", style.NONE_IS_GOOD),
            ("Stuck collectors", "Collectors that hang in the kernel since an earlier scrape.", style.COUNT, f"sum({own('jobledger_exporter_stuck_collectors')})", style.NONE_IS_GOOD),
            ("Longest scrape", "Time that the slowest target's last scrape took.", style.SECONDS, f"max({own('scrape_duration_seconds')})",
             [(None, style.GOOD), (1, style.WARN), (style.SCRAPE_SLOW_SECONDS, style.BAD)]),
            ("Samples", "Of all exporters, per scrape.", style.COUNT, f"sum({own('scrape_samples_scraped')})", None),
            ("Samples dropped", "Left out by --metric.max-series, since the exporters started.", style.COUNT, f"sum({own('jobledger_exporter_series_dropped_total')}) or count({own('up')}) * 0",
             style.NONE_IS_GOOD),
            ("CPU time not attributed", "Part of SLURM's CPU time that is no job's, on the node where it is most.", style.RATIO,
             f"max({unattributed(own)})", style.RESIDUALS),
            ("Jobs seen", "Runs of jobs seen since the exporters started.", style.COUNT, f"sum({own('jobledger_exporter_job_runs_total')})", None),
            ("Jobs lost", "Jobs that ended before their id was known, and ended ones given up before a scrape.", style.COUNT,
             f"sum({own('jobledger_exporter_unresolved_jobs_lost_total')}) + sum({own('jobledger_exporter_retained_jobs_dropped_total')})", style.NONE_IS_GOOD),
            ("CPU of an exporter", "Mean over exporters; 10 ms is one CPU for a hundredth of the time.", style.SECONDS, f"avg({rate(own('process_cpu_seconds_total'))})", None),
            ("Memory of an exporter", "Resident, the largest.", style.BYTES, f"max({own('process_resident_memory_bytes')})", None)):
        board_.add(stat(title, description, unit, expr, steps), 4, 3)


def nodes(board_):
    board_.row("Exporters with the most trouble")
    link = href(board.NODE, instance='${__data.fields["Node"]}')
    board_.add(table(
        "Exporters", f"The {ROWS} of the targets chosen above that are down, whose collectors fail, or that are slowest. Failing: collectors that should yield and do not. Not attributed: part of SLURM's CPU time that is attributed to no job.",
        [Column("instance", "Node", links=[("Node dashboard", link)], width=150), Column("job", "Scrape job"), Column("version", "Version"), Column("architecture", "Machine"), Column("libc", "libc"),
         Column("Value #B", "State", texts={0: ("down", style.RED), 1: ("up", style.BLUE)}), Column("Value #C", "Scrapes ok", style.RATIO, 1, style.COVERAGE),
         Column("Value #D", "Scrape takes", style.SECONDS, None, [(None, style.GOOD), (1, style.WARN), (style.SCRAPE_SLOW_SECONDS, style.BAD)]),
         Column("Value #E", "Samples", style.COUNT, 0), Column("Value #F", "Failing", style.COUNT, 0, style.NONE_IS_GOOD),
         Column("Value #G", "Jobs", style.COUNT, 0), Column("Value #H", "Not attributed", style.RATIO, 2, style.RESIDUALS),
         Column("Value #I", "CPU", style.RATIO, 2), Column("Value #J", "Memory", style.BYTES, 1), Column("Value #K", "Running for", style.SECONDS)],
        [f"max by (cluster, job, instance, version, architecture, libc) (last_over_time({worst('jobledger_exporter_build_info')}[$__range]))",
         f"max {BY} ({worst('up')})", f"avg {BY} (avg_over_time({worst('up')}[$__range]))", f"max {BY} ({worst('scrape_duration_seconds')})", f"max {BY} ({worst('scrape_samples_scraped')})",
         f"count {BY} ({state(worst)} == 0) or max {BY} ({worst('up')}) * 0", f"sum {BY} ({worst('jobledger_exporter_jobs', 'state=' + chr(34) + 'running' + chr(34))})",
         f"max {BY} ({unattributed(worst)})",
         f"max {BY} ({rate(worst('process_cpu_seconds_total'))})", f"max {BY} ({worst('process_resident_memory_bytes')})", f"time() - max {BY} ({worst('process_start_time_seconds')})"],
        sort="Scrape takes"), 24, 9)


def collectors(board_):
    board_.row("Collectors")
    board_.add(states("Collectors, the worst node each", "«Failed» is trouble; «not on this node» is not: the hardware, the kernel or the permission is missing.",
                      [Query(f"min by (collector) ({state(own)})", "{{collector}}", interval=COLLECTORS_STEP)], node_board.COLLECTOR_TEXTS, show_value=False), 12, 12)
    board_.add(table("Why collectors yield nothing or less", "In the exporters' own words, and on how many nodes.",
                     [Column("collector", "Collector", width=150), Column("reason", "Reason", width=120), Column("detail", "Detail"), Column("Value #A", "Nodes", style.COUNT, 0, width=80)],
                     f"count by (collector, reason, detail) ({own('jobledger_exporter_collector_status_info')})", sort="Nodes"), 12, 12)
    board_.add(series("Time of collectors", "The slowest node of each.", style.SECONDS, Query(f"max by (collector) ({own('jobledger_exporter_collector_duration_seconds')})", "{{collector}}", interval=COLLECTORS_STEP),
                      calcs=("max",), legend_right=True), 12, 9)
    board_.add(series("Failures", "Scrapes in which a collector yielded nothing or less than it should, per second, by reason.", style.OPS,
                      Query(f"sum by (collector, reason) ({rate(own('jobledger_exporter_collector_errors_total'))}) > 0", "{{collector}}: {{reason}}", interval=COLLECTORS_STEP), legend_right=True, nothing="None in this time range"), 12, 9)


def trust(board_):
    board_.row("Trust")
    board_.add(series("CPU time not attributed", "Part of the CPU time in SLURM's cgroups that is no job's: high where jobs are not followed.", style.RATIO,
                      lines(unattributed(own), unattributed(worst)), colours=BAND_COLOURS, calcs=(),
                      steps=[(None, "transparent"), (style.RESIDUAL, style.RED)]), 8, 8)
    board_.add(series("Jobs by state", "Running, retained after their end, unresolved (id not known yet), unfollowed (too few descriptors), stale (left behind by SLURM).", style.NUMBER,
                      Query(f"sum by (state) ({own('jobledger_exporter_jobs')})", "{{state}}", interval=STEP)), 8, 8)
    board_.add(series("Things lost", "Since the exporters started. All should be 0.", style.NUMBER,
                      [Query(f"sum({own(f'jobledger_exporter_{what}')})", title, interval=STEP) for what, title in (
                          ("unresolved_jobs_lost_total", "Jobs of unknown id"), ("retained_jobs_dropped_total", "Ended jobs given up"), ("inotify_overflows_total", "inotify overflows"),
                          ("inotify_watch_failures_total", "inotify watches refused"), ("bad_values_total", "Values that were no number"),
                          ("counter_restarts_total", "Counters that went back"), ("series_dropped_total", "Samples dropped"),
                          ("counters_intervals_dropped_total", "Counter intervals not believed"))], calcs=()), 8, 8)
    board_.add(series("Hardware counters given away", "Nodes whose counters are somebody else's now.", style.NUMBER,
                      [Query(f"sum({own('jobledger_node_counters_yielded')})", "Nodes", interval=STEP)]), 8, 7)
    board_.add(series("Age of GPU readings", "How long ago the vendor's GPUs were read, on the node where it is longest.", style.SECONDS,
                      Query(f"max by (vendor) ({own('jobledger_gpu_reading_age_seconds')})", "{{vendor}}", interval=STEP), nothing="No node has GPUs"), 8, 7)
    board_.add(series("Counter descriptors", "Descriptors of hardware counters open, and how many there may be, on the node nearest to its limit.", style.NUMBER,
                      [Query(f"max({own('jobledger_exporter_counters_descriptors')})", "Open", interval=STEP), Query(f"min({own('jobledger_exporter_counters_descriptors_limit')})", "Limit", interval=STEP)], limits=["Limit"],
                      nothing="Hardware counters are off (--collector.perf)"), 8, 7)


def cost(board_):
    board_.row("What it costs", collapsed=True)
    board_.add(series("Scrape", "As Prometheus measures it.", style.SECONDS, lines(own("scrape_duration_seconds"), worst("scrape_duration_seconds")), colours=BAND_COLOURS, calcs=()), 8, 8)
    board_.add(series("CPU", "Part of one CPU that each exporter uses.", style.RATIO, lines(rate(own("process_cpu_seconds_total")), rate(worst("process_cpu_seconds_total"))), colours=BAND_COLOURS, calcs=()), 8, 8)
    board_.add(series("Memory", "Resident.", style.BYTES, lines(own("process_resident_memory_bytes"), worst("process_resident_memory_bytes")), colours=BAND_COLOURS, calcs=()), 8, 8)
    board_.add(series("Samples", "Per scrape.", style.NUMBER, lines(own("scrape_samples_scraped"), worst("scrape_samples_scraped")), colours=BAND_COLOURS, calcs=()), 8, 8)
    board_.add(series("Descriptors", "Open, of those that there may be, on the node where it is most.", style.RATIO,
                      (f"max({own('process_open_fds')} / {own('process_max_fds')})", "Open of limit"), high=1), 8, 8)
    board_.add(series("Threads", "Of each exporter.", style.NUMBER, lines(own("process_threads"), worst("process_threads")), colours=BAND_COLOURS, calcs=()), 8, 8)


def build():
    board_ = Board(board.EXPORTER, "Jobledger / Exporter health", "Whether the numbers can be trusted, and what the exporter costs.", since="now-3h")
    board_.lookup("job", "Job", f"label_values(jobledger_exporter_build_info{{{CLUSTER}}}, job)", everything=".+", multi=True, description="The scrape job, not SLURM's.")
    board_.lookup("instance", "Instance", f'label_values(jobledger_exporter_build_info{{{CLUSTER},job=~"$job"}}, instance)', everything=".+", multi=True)
    board_.worst("worst", chosen(ROWS), "instance", "The targets of the table.")
    board_.alerts("JobledgerExporter.*|JobledgerCollector.*|JobledgerScrape.*|JobledgerSeries.*|JobledgerAlert.*")
    summary(board_)
    nodes(board_)
    collectors(board_)
    trust(board_)
    cost(board_)
    return board_
