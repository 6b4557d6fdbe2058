"""What a job's owner could change: from totals over the job, each with the number it rests on and the threshold.

Each piece is a PromQL expression that has one series, without labels, when it applies. Texts and thresholds are those of the alerts and their
mails: rules/thresholds.yaml, by which thresholds.py is written.
"""

from . import thresholds as limits
from .job_numbers import (BACKEND_SLOTS, CORES_HELD, CORES_IDLE, CORES_USED, CPU_USE, CPU_USE_BY_NODE, CPU_USED, CPUS_ALIKE, ELAPSED, FLOPS_PER_CYCLE, GPU_BUSY, GPU_HAD, GPU_IDLE, GPU_USE, GPU_USE_BY_GPU,
                          IN_VECTORS, LIMIT, MEMORY_SLOTS, MEMORY_USE, OOM_KILLS, SHARED_MEMORY_USE, STARTED, counted, waited, waiting_now)
from .queries import job, label

THROTTLED = counted("jobledger_job_cpu_throttled_seconds_total")
NO_GPU_WORK = f"({GPU_IDLE} >= {limits.GPU_SEEN} * {GPU_HAD} and ({GPU_BUSY} or {GPU_IDLE} * 0) <= {limits.GPU_IDLE_BUSY_RATIO} * {GPU_IDLE})"
NODE_CPUS_USED = f"avg_over_time({job('jobid_instance:jobledger_job_cpu_seconds:rate2m')}[$__range])"
NODE_IDLE = f"(min({NODE_CPUS_USED}) < {limits.NODE_IDLE_CORES} and max({NODE_CPUS_USED}) > {limits.NODE_BUSY_CORES})"


def pressure(resource):
    """Part of the time of the job's latest run that tasks waited, on the node where it was most."""
    return f"max({waited(resource)})"


def uneven(parts):
    """What the mean of a job's GPUs or nodes does less than the busiest. It is POP's 1 - load balance (pop-coe.eu)."""
    return f"(1 - avg({parts}) / (max({parts}) > 0) and (count({parts}) > 1))"


# Minutes in which a task waited for storage for most of the time. It is looked at every five minutes.
STALLED = f"(sum_over_time(({waiting_now('io')} > bool {limits.STALL_WAITING})[$__range:5m]) * 5 >= {limits.STALL_MINUTES})"

SERIAL = f"({CORES_USED} >= {limits.CPU_SERIAL_LEAST_CORES} and {CORES_USED} <= {limits.CPU_SERIAL_MOST_CORES} and {CORES_HELD} >= {limits.CPU_SERIAL_LEAST_HELD})"

# What is measured, by the name of the advice. Where there is none the advice does not apply.
PIECES = {
    "oom_killed": f"({MEMORY_USE} or {OOM_KILLS} * 0 + 1) and ({OOM_KILLS} > 0)",
    "gpu_never_used": f"0 * {NO_GPU_WORK}",
    "gpu_low_use": f"({GPU_USE} < {limits.GPU_LOW_USE_RATIO}) unless {NO_GPU_WORK}",
    "gpu_uneven": f"({uneven(GPU_USE_BY_GPU)} > {limits.GPU_UNEVEN}) unless ({GPU_USE} < {limits.GPU_LOW_USE_RATIO})",
    "serial": f"{CPU_USE} and {SERIAL}",
    "cpu_low": f"({CPU_USE} < {limits.CPU_LOW_RATIO}) unless {SERIAL} unless ({GPU_HAD} > 0)",
    "node_idle": NODE_IDLE,
    "nodes_uneven": f"({uneven(CPU_USE_BY_NODE)} > {limits.NODES_UNEVEN}) unless ({CPU_USE} < {limits.CPU_LOW_RATIO}) unless ({GPU_HAD} > 0) unless {NODE_IDLE}",
    "cpu_throttled": f"{THROTTLED} / ({THROTTLED} + {CPU_USED} > 0) > {limits.CPU_THROTTLED}",
    "memory_over_asked": f"({SHARED_MEMORY_USE} < {limits.MEMORY_OVER_ASKED_RATIO}) and (min({LIMIT}) >= {limits.MEMORY_OVER_ASKED_LEAST_BYTES})",
    "waited_memory": f"{pressure('memory')} > {limits.WAITED_MEMORY}",
    "waited_io": f"{pressure('io')} > {limits.WAITED_IO}",
    "stalled_io": f"clamp_max({STALLED} * 60 / {ELAPSED}, 1) unless ({pressure('io')} > {limits.WAITED_IO})",
    "waited_cpu": f"({pressure('cpu')} > {limits.WAITED_CPU}) and ({CPU_USE} > {limits.WAITED_CPU_USE})",
    "slots_memory": f"{MEMORY_SLOTS} > {limits.SLOTS_MEMORY}",
    "slots_backend": f"({BACKEND_SLOTS} > {limits.SLOTS_BACKEND}) unless {MEMORY_SLOTS}",
    "vectors_low": f"({IN_VECTORS} < {limits.VECTORS_LOW}) and ({FLOPS_PER_CYCLE} >= {limits.VECTORS_LEAST_FLOPS})",
    "cpus_idle": f"({CORES_IDLE} / {CORES_HELD} > {limits.CPUS_IDLE}) unless ({CPU_USE} < {limits.CPU_LOW_RATIO}) unless {SERIAL} unless ({GPU_HAD} > 0) unless {NODE_IDLE}",
    "imbalance": f"(1 - {CPUS_ALIKE} > {limits.IMBALANCE}) unless ({CPU_USE} < {limits.CPU_LOW_RATIO}) unless ({GPU_HAD} > 0)",
}

# Job numbers are those of a cluster: as long as none is chosen, one number can be jobs of several.
SEVERAL = f"(count(count by (cluster) ({STARTED})) > 1)"
AMBIGUOUS = ("Jobs of several clusters have this number", "Choose one: Cluster, above. Every number of this page is of all of them",
             f"{SEVERAL} * NaN", "more than one")
SHORT = ("Too short to be sampled", "Nothing: totals are exact, rates and advice need two minutes",
         f"({ELAPSED} < 120) * NaN", "shorter than two minutes")
UNKNOWN = ("Not seen in this time range", "Choose the job in the Jobs dashboard, whose links carry its time, or widen the time range",
           f"vector(NaN) unless count({STARTED})", "")
CHECKED = ("Nothing (else) to change", "What is not listed was looked at, and is within its threshold or is not known for this job", f"({ELAPSED} >= 120) * NaN", "")


def rows():
    """A query for each piece of advice, with its texts as labels, then those that say why there is none."""
    found = []
    for name, expr in PIECES.items():
        what, change, threshold = limits.ADVICE[name]
        found.append((what, change, f"({expr}) and on () ({ELAPSED} >= 120)", threshold))
    return [label(expr, what=what, change=change, threshold=threshold) for what, change, expr, threshold in [AMBIGUOUS, *found, SHORT, UNKNOWN, CHECKED]]
