"""Job report: hardware counters and the roofline."""

from grafana_foundation_sdk.builders import common as common_builders, dashboard as builders, xychart
from grafana_foundation_sdk.models import common, xychart as models

from . import roofs, style
from .job_numbers import CORES_NOW, FEW, FEW_NODES, ON_TARGET, by_node, running, running_by
from .panels import Column, Query, common_parts, fixed, prop, series, stat, table, targets, transformation
from .queries import CLUSTER, job, last

CORES_METRIC, SOCKETS_METRIC = "jobledger_node_cores", "jobledger_node_sockets"

COUNTED = "As counted while counters were on (--collector.perf); absent while they are given to a profiler."
NOT_COUNTED = "Hardware counters are off on the job's nodes (--collector.perf), or were given to a profiler"


def bandwidth():
    return (builders.TextBoxVariable("bandwidth").label("Memory bandwidth of a socket, GB/s").default_value("0")
            .description("For the roof of the roofline. 0: what was measured on the node (jobledger-exporter perf --validate), else what the processor's vendor rates, with all channels filled."))


# While counters are given away they stand still, which is not 0.
GIVEN_AWAY = f"unless on (cluster, job, instance, jobid) max by (cluster, job, instance, jobid) ({job('jobledger_job_counters_yielded')}) == 1"
BY_NODE = "cluster, job, instance, jobid"


def counted(name, by=BY_NODE):
    """Per second, as it was counted; by node, or by `by` of it."""
    return f"sum by ({by}) ({running(f'jobledger_job_{name}_total')} {GIVEN_AWAY})"


ON_NODE = f"on ({BY_NODE})"
SCALAR, ANY_WIDTH = 'width="scalar"', 'width="any"'
SECONDS = counted("counted_cpu_seconds")
FLOPS = counted("flops")
# Controllers count all that moves, where they can be charged to the job; else there are the loads of its cores.
TRAFFIC = f"sum by ({BY_NODE}) ({running('jobledger_job_memory_traffic_bytes_total')} > 0 {GIVEN_AWAY})"
LOADS = counted("memory_load_bytes")


def counters(board_):
    board_.variable(bandwidth())
    board_.count("counted", f"count(count by (cluster, instance) ({last(job('jobledger_job_counted_cpu_seconds_total'))}))")
    board_.row("Hardware counters and roofline, nodes: $counted", collapsed=True)
    board_.add(series("Floating-point operations", "Per second, by precision. " + COUNTED, style.FLOPS,
                      (counted("flops", "precision"), "{{precision}}"), stack=True, nothing=NOT_COUNTED), 8, 8)
    ipc = f"{counted('instructions')} / ({counted('cycles')} > 0)"
    board_.add(series("Instructions per cycle", "Of the job's nodes. Above 2 is good use of a core, below 0.5 it mostly waits. " + COUNTED, style.NUMBER,
                      [(f"max({ipc})", "Highest"), (f"avg({ipc})", "Mean"), (f"min({ipc})", "Lowest")], nothing=NOT_COUNTED), 8, 8)
    board_.add(series("Memory", "Bytes per second that cores loaded, and that memory controllers moved (--collector.memory_traffic).", style.BYTES_PER_SECOND,
                      [(f"sum({LOADS})", "Loaded by cores"),
                       (f"sum by (kind) ({running('jobledger_job_memory_traffic_bytes_total')} > 0 {GIVEN_AWAY})", "Controllers, {{kind}}")], nothing=NOT_COUNTED), 8, 8)
    board_.add(series("Cache misses", "Per second, by the level that missed; what each counts differs between CPUs (docs/counters.md).", style.OPS,
                      (counted("cache_misses", "level"), "{{level}}"), nothing=NOT_COUNTED), 8, 8)
    board_.add(series("Operational intensity", "Floating-point operations per byte from memory: below the ridge of the roofline memory limits, above it arithmetic.",
                      style.NUMBER, [(f"sum({FLOPS}) / (sum({LOADS} and on ({BY_NODE}) {FLOPS}) > 0)", "By loads of cores"),
                                     (f"sum({FLOPS} and on ({BY_NODE}) {TRAFFIC}) / (sum({TRAFFIC} and on ({BY_NODE}) {FLOPS}) > 0)", "By controllers")], low=None, log=True, nothing=NOT_COUNTED), 8, 8)
    board_.add(series("Counted part of the CPU time", "What counts per second are too low by.", style.RATIO,
                      (f"clamp_max(sum({SECONDS}) / (sum({running('jobledger_job_cpu_seconds_total')}) > 0), 1)", "Counted"), high=1, nothing=NOT_COUNTED), 8, 8)
    idle = counted("cpus_idle_seconds")
    worked = f"(max by ({BY_NODE}) ({job('jobledger_job_cpus')}) - {ON_NODE} {idle})"
    busiest = f"{counted('busiest_cpu_instructions')} * {ON_NODE} {worked} / {ON_NODE} ({counted('instructions')} > 0)"
    board_.add(series("Imbalance inside nodes", "Instructions of the busiest CPU over the mean of the job's CPUs of a node that worked: 1 where all of them do the same. " + COUNTED,
                      style.NUMBER, [(f"max({busiest})", "Highest"), (f"avg({busiest})", "Mean")], nothing=NOT_COUNTED), 8, 8)
    board_.add(series("CPUs that do nothing", "CPUs that the job has and that ran it for less than a hundredth of the time, of all nodes. " + COUNTED, style.NUMBER,
                      (f"sum({idle})", "Idle"), nothing=NOT_COUNTED), 8, 8)
    vectors = f"sum by ({BY_NODE}) ({running('jobledger_job_flops_total', SCALAR)} {GIVEN_AWAY}) unless {ON_NODE} {running('jobledger_job_flops_total', ANY_WIDTH)} > 0"
    board_.add(series("Operations in vectors", "Part of the floating-point operations, on nodes whose CPUs count vectors apart: on others there is none. " + COUNTED, style.RATIO,
                      (f"1 - sum({vectors}) / (sum({FLOPS} and {ON_NODE} ({vectors})) > 0)", "In vectors"), high=1, nothing=NOT_COUNTED), 8, 8)
    slots = counted("pipeline_slots", "category")
    board_.add(series("Pipeline slots", "What became of the places for operations in each cycle: done (retiring), given up, or empty for want of instructions (frontend), of data or units "
                      "(backend), or because the other hardware thread had the cycle. Some CPUs divide the back end into memory and core. " + COUNTED, style.RATIO,
                      (f"{slots} / on () group_left () (sum({slots}) > 0)", "{{category}}"), high=1, stack=True, nothing=NOT_COUNTED), 24, 8)
    roofline(board_)


# The abscissa of the roofs: intensity from 10^-3 to 10^3 as time passes through the range, so that a roof is one line.
SPAN = "10 ^ (6 * (time() - $__from / 1000) / (($__to - $__from) / 1000) - 3)"


def at_end(expr):
    """As it is over the whole time range, so that the roofs are the same at each moment of it."""
    return f"max_over_time(({expr})[$__range:1m] @ end())"


# Cycles per second and CPU while it worked for the job: the clock that the job had.
CLOCK = at_end(f"{counted('cycles')} / ({SECONDS} > 0)")


def _of_nodes(expr):
    """What is so of a node, for the job on it."""
    return f"{ON_TARGET} group_left () max by (cluster, job, instance) ({expr})"


def _node(metric, more=""):
    return f"last_over_time({metric}{{{CLUSTER}{more}}}[5m] @ end())"


def _measured(metric, of, more=""):
    """A peak of the whole node, as it was measured there (docs/counters.md), by core or socket."""
    by = "max by (cluster, job, instance)"
    return _of_nodes(f"{by} ({_node(metric, more)}) / {by} ({_node(of)} > 0)")


# The job's roofs are those of its part of the node: its cores, and the controllers of the sockets that these cores are on, which are
# those that its energy was measured on, or as many as its cores need at least.
CORES_HELD = at_end(CORES_NOW)
SOCKETS_NEEDED = f"ceil({CORES_HELD} * {_of_nodes(f'{_node(SOCKETS_METRIC)} / ({_node(CORES_METRIC)} > 0)')})"
SOCKETS_MEASURED = (f"count by ({BY_NODE}) (sum by ({BY_NODE}, socket) (max_over_time({job('jobledger_job_energy_joules_total', 'socket!=' + chr(34) * 2)}[$__range] @ end())) > 0)")
SOCKETS = f"({SOCKETS_MEASURED} or {SOCKETS_NEEDED})"


# What was measured is preferred to what the tables of roofs.py have.
MEASURED_WIDTHS = (',precision="double"', ',precision="double",width="scalar"')


def _peak(column):
    measured = _measured("jobledger_node_measured_flops_per_second", CORES_METRIC, MEASURED_WIDTHS[column])
    rated = f"{CORES_HELD} * {_of_nodes(roofs.by_microarchitecture(CLUSTER, column))} * {ON_NODE} {CLOCK}"
    return f"(max({CORES_HELD} * {measured}) or max({rated}))"


def _bandwidth():
    rated = _of_nodes(roofs.by_microarchitecture(CLUSTER, 2))
    measured = _measured("jobledger_node_measured_memory_bandwidth_bytes", SOCKETS_METRIC)
    return f"((max({SOCKETS}) * $bandwidth > 0 or max({SOCKETS} * {measured}) / 1e9 or max({SOCKETS} * {rated})) * 1e9)"


def _roof(column):
    slope = f"({SPAN} * {_bandwidth()})"
    peak = _peak(column)
    return f"({slope} < {peak}) or {peak}"


# Scaled up to all of its CPU time, where counters took turns.
FLOPS_OF_ALL = f"({FLOPS} / {ON_NODE} ({SECONDS} > 0) * {ON_NODE} {running_by(BY_NODE, 'jobledger_job_cpu_seconds_total')})"
BYTES = f"({TRAFFIC} or {LOADS} > 0)"
INTENSITY = f"({FLOPS} / {ON_NODE} {BYTES})"
WHOSE_BYTES = [(1, "All that memory controllers moved", style.BLUE), (2, "Loads of cores, with what they prefetched", style.BLUE),
               (3, "Loads of cores without prefetches: points are too far right", style.ORANGE)]


def _whose_bytes():
    info = f'max by (cluster, job, instance, microarchitecture) (last_over_time(jobledger_node_info{{{CLUSTER}}}[5m] @ end()))'
    without = f'({info} and on (cluster, job, instance) jobledger_node_info{{{CLUSTER},microarchitecture=~"{"|".join(roofs.WITHOUT_PREFETCHES)}"}})'
    traffic = last(job("jobledger_job_memory_traffic_bytes_total"))
    loads = last(job("jobledger_job_memory_load_bytes_total"))
    return f"max(({loads} ^ 0 * 3 and {ON_TARGET} {without}) or {loads} ^ 0 * 2) unless on () count({traffic} > 0) or count({traffic} > 0) ^ 0"


def roofline(board_):
    panel = common_parts(xychart.Panel(), "Roofline", "Each point is a minute on the node where the job did most: its operations per second over its operational intensity (operations per byte of memory, by "
                    "what «Bytes are» says). The roofs are what its part of the strongest node can do: its cores at the clock that they had, and the memory controllers of its sockets; below "
                    "the slope memory limits, below the flat part arithmetic; the lower flat roof is without vector instructions. Where jobledger-exporter perf --validate or --peaks measured the node, they are as measured. Roofs are of the node's own series, which a label proxy hides.", style.FLOPS,
                    nothing=NOT_COUNTED)
    panel = targets(panel, [
        Query(f"{SPAN} * (vector(1) and on () {_peak(0)})", "x", ref="X", interval="1m"),
        Query(_roof(0), "Vectors and fused multiply-add", ref="V", interval="1m"), Query(_roof(1), "Without vectors", ref="S", interval="1m"),
        Query(f"max({INTENSITY} and {ON_NODE} topk(1, {FLOPS_OF_ALL}))", "i", ref="I", interval="1m"), Query(f"max({FLOPS_OF_ALL})", "Job, a minute each", ref="J", interval="1m")])
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
    board_.add(table(
        "Nodes on the roofline", "Of each node over the time range: operations per second scaled up to all of its CPU time, operational intensity, both at their highest, its cores and sockets, and the clock and "
                                 f"instructions per cycle (IPC) that CPUs had while they worked for the job. Of more than {FEW_NODES} nodes those that used their CPUs least.",
        [Column("instance", "Node"), Column("Value #A", "FLOP/s", style.FLOPS, 2), Column("Value #B", "FLOP/byte", style.COUNT, 3),
         Column("Value #C", "Clock", style.HERTZ, 2), Column("Value #D", "IPC", style.COUNT, 2), Column("Value #E", "Cores", style.COUNT, 0), Column("Value #F", "Sockets", style.COUNT, 0)],
        [f"max by (cluster, instance) ({expr}) {FEW}" for expr in (
            at_end(FLOPS_OF_ALL), at_end(INTENSITY), CLOCK, f"{by_node('jobledger_job_instructions_total')} / ({by_node('jobledger_job_cycles_total')} > 0)", CORES_HELD, SOCKETS)],
        sort="FLOP/s", nothing=NOT_COUNTED), 10, 10)
    board_.add(stat("Bytes are", "What the operational intensity is over. Where controllers cannot be charged to the job they are its cores' loads; on E-cores and Granite Rapids not all that was prefetched is among those, "
                    "so the true points are further left.", style.NONE, _whose_bytes(), texts={value: (text, colour) for value, text, colour in WHOSE_BYTES}, nothing=NOT_COUNTED), 10, 3)


def _line(name, x, y):
    matcher = _matcher
    return (xychart.XYSeriesConfig().name(xychart.XychartXYSeriesConfigName().fixed(name))
            .x(xychart.XychartXYSeriesConfigX().matcher(matcher(x)))
            .y(xychart.XychartXYSeriesConfigY().matcher(matcher(y))))


def _matcher(name):
    return xychart.MatcherConfig().id("byName").options(name)
