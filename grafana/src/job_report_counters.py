"""Job report: hardware counters and the roofline."""

from grafana_foundation_sdk.builders import common as common_builders, dashboard as builders, xychart
from grafana_foundation_sdk.models import common, xychart as models

from . import roofs, style
from .panels import Column, Query, common_parts, fixed, prop, series, table, targets, transformation
from .queries import CLUSTER, job

COUNTED = "As counted while counters were on (--collector.perf); absent while they are given to a profiler."


def bandwidth():
    return (builders.TextBoxVariable("bandwidth").label("Memory bandwidth of a node, GB/s").default_value("0")
            .description("For the roof of the roofline. 0: what the processor's vendor rates, with all channels filled."))


def counters(board_):
    board_.row("Hardware counters", collapsed=True)
    board_.add(series("Floating-point operations", "Per second, by precision. " + COUNTED, style.FLOPS,
                      (job("jobid:jobledger_job_flops:rate2m"), "{{precision}}"), stack=True), 8, 8)
    board_.add(series("Instructions per cycle", "Of each node. Above 2 is good use of a core, below 0.5 it mostly waits. " + COUNTED, style.NUMBER,
                      (job("jobid_instance:jobledger_job_instructions_per_cycle:ratio_rate2m"), "{{instance}}")), 8, 8)
    board_.add(series("Memory", "Bytes per second that cores loaded, and that memory controllers moved (--collector.memory_traffic, jobs alone on their "
                                "sockets).", style.BYTES_PER_SECOND,
                      [(job("jobid:jobledger_job_memory_load_bytes:rate2m"), "Loaded by cores"),
                       (job("jobid:jobledger_job_memory_traffic_bytes:rate2m"), "Controllers, {{kind}}")]), 8, 8)
    board_.add(series("Cache misses", "Per second, by the level that missed; what each counts differs between CPUs (docs/counters.md).", style.OPS,
                      (job("jobid:jobledger_job_cache_misses:rate2m"), "{{level}}")), 8, 8)
    board_.add(series("Operational intensity", "Floating-point operations per byte from memory: below the ridge of the roofline memory limits, above it arithmetic.",
                      style.NUMBER, [(job("jobid:jobledger_job_flops_per_memory_load_byte:ratio_rate2m"), "By loads of cores"),
                                     (job("jobid:jobledger_job_flops_per_memory_traffic_byte:ratio_rate2m"), "By controllers, {{kind}}")], low=None, log=True), 8, 8)
    board_.add(series("Counted part of the CPU time", "What counts per second are too low by.", style.RATIO,
                      (job("jobid:jobledger_job_counted_cpu_seconds_per_cpu_second:ratio_rate2m"), "Counted"), high=1), 8, 8)


# The abscissa of the roofs: intensity from 10^-3 to 10^3 as time passes through the range, so that a roof is one line.
SPAN = "10 ^ (6 * (time() - $__from / 1000) / (($__to - $__from) / 1000) - 3)"
NODES = job("jobledger_job_start_time_seconds")
# All of it as it is at the end of the time range, so that the roofs are the same at each moment of it.
JOB_NODES = f"and on (cluster, instance) last_over_time({NODES}[$__range] @ end())"
# Cycles per second and CPU while it worked for the job: the clock that the job had.
CLOCK = (f"max(max_over_time({job('jobid_instance:jobledger_job_cycles:rate2m')}[$__range] @ end())"
         f" / (max_over_time({job('jobid_instance:jobledger_job_counted_cpu_seconds:rate2m')}[$__range] @ end()) > 0))")


def _peak(column):
    per_core = roofs.by_microarchitecture(CLUSTER, column)
    return f"(max({per_core} * on (cluster, job, instance) group_left () last_over_time(jobledger_node_cores{{{CLUSTER}}}[$__range] @ end()) {JOB_NODES}) * {CLOCK})"


def _bandwidth():
    rated = f"max({roofs.by_microarchitecture(CLUSTER, 2)} * on (cluster, job, instance) group_left () last_over_time(jobledger_node_sockets{{{CLUSTER}}}[$__range] @ end()) {JOB_NODES})"
    return f"(((vector($bandwidth) > 0) or {rated}) * 1e9)"


def _roof(column):
    slope = f"({SPAN} * {_bandwidth()})"
    peak = _peak(column)
    return f"({slope} < {peak}) or {peak}"


def _flops(range_function=None):
    per_cpu = job("jobid_instance:jobledger_job_flops_per_counted_cpu_second:ratio_rate2m")
    cpus = job("jobid_instance:jobledger_job_cpu_seconds:rate2m")
    return f"{per_cpu} * {cpus}" if range_function is None else f"{range_function}(({per_cpu} * {cpus})[$__range:30s])"


INTENSITY = job("jobid_instance:jobledger_job_flops_per_memory_load_byte:ratio_rate2m")


def roofline(board_):
    board_.row("Roofline", collapsed=True)
    panel = common_parts(xychart.Panel(), "Roofline", "Each point is a minute on the node where the job did most: its operations per second over its operational intensity "
                    "(operations per byte loaded from memory). The roofs are what the strongest node of the job can do at the clock that the job had: below "
                    "the slope memory limits, below the flat part arithmetic; the lower flat roof is without vector instructions. Needs --collector.perf.", style.FLOPS)
    panel = targets(panel, [
        Query(f"{SPAN} * (vector(1) and on () {_peak(0)})", "x", ref="X", interval="30s"),
        Query(_roof(0), "Vectors and fused multiply-add", ref="V", interval="30s"), Query(_roof(1), "Without vectors", ref="S", interval="30s"),
        Query(f"max({INTENSITY})", "i", ref="I", interval="30s"), Query(f"max({_flops()})", "Job, a minute each", ref="J", interval="30s")])
    for one in (transformation("joinByField", {"byField": "Time", "mode": "outer"}),):
        panel = panel.with_transformation(one)
    names = {"V": "Vectors and fused multiply-add", "S": "Without vectors", "J": "Job, a minute each"}
    panel = panel.mapping(models.SeriesMapping.MANUAL).series([
        _line(names["V"], "x", names["V"]), _line(names["S"], "x", names["S"]), _line(names["J"], "i", names["J"])])
    log = {"type": "log", "log": 10}
    panel = panel.scale_distribution(common_builders.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    panel = panel.axis_label("Floating-point operations per second").show(models.XYShowMode.POINTS).point_size(
        xychart.XychartFieldConfigPointSize().fixed(6))
    for name in ("x", "i"):
        panel = panel.override_by_name(name, [prop("unit", style.NUMBER), prop("custom.axisLabel", "Operations per byte"), prop("custom.scaleDistribution", log)])
    for name, colour in ((names["V"], style.ORANGE), (names["S"], style.GREY)):
        panel = panel.override_by_name(name, [fixed(colour), prop("custom.show", "lines"), prop("custom.lineWidth", 2)])
    panel = panel.override_by_name(names["J"], [fixed(style.BLUE)])
    panel = panel.legend(common_builders.VizLegendOptions().show_legend(True).display_mode(common.LegendDisplayMode.LIST)
                         .placement(common.LegendPlacement.BOTTOM).calcs([]))
    panel = panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.SINGLE).sort(common.SortOrder.NONE))
    board_.add(panel, 14, 13)
    clock = job("jobid_instance:jobledger_job_cycles:rate2m") + " / (" + job("jobid_instance:jobledger_job_counted_cpu_seconds:rate2m") + " > 0)"
    board_.add(table(
        "Nodes on the roofline", "Of each node over the time range: operations per second scaled up to all of its CPU time, operational intensity, both at "
                                 "their highest, and the clock and instructions per cycle (IPC) that CPUs had while they worked for the job.",
        [Column("instance", "Node"), Column("Value #A", "FLOP/s", style.FLOPS, 2), Column("Value #B", "FLOP/byte", style.COUNT, 3),
         Column("Value #C", "Clock", style.HERTZ, 2), Column("Value #D", "IPC", style.COUNT, 2)],
        [f"max by (instance) ({_flops('max_over_time')})", f"max by (instance) (max_over_time({INTENSITY}[$__range]))",
         f"max by (instance) (max_over_time(({clock})[$__range:30s]))",
         f"max by (instance) (max_over_time({job('jobid_instance:jobledger_job_instructions_per_cycle:ratio_rate2m')}[$__range]))"],
        sort="FLOP/s"), 10, 13)


def _line(name, x, y):
    matcher = _matcher
    return (xychart.XYSeriesConfig().name(xychart.XychartXYSeriesConfigName().fixed(name))
            .x(xychart.XychartXYSeriesConfigX().matcher(matcher(x)))
            .y(xychart.XychartXYSeriesConfigY().matcher(matcher(y))))


def _matcher(name):
    return xychart.MatcherConfig().id("byName").options(name)
