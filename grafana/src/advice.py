"""What a job's owner could change: from totals over the job, each with the number it rests on and the threshold.

Each piece is a PromQL expression that has one series, without labels, when it applies. Texts and thresholds are those of the alerts and their
mails: rules/thresholds.yaml, by which thresholds.py is written.
"""

from . import thresholds as limits
from .queries import ELAPSED, RAN, STARTED, job, label, last, most, total

CPU_USED = total("jobid_instance:jobledger_job_cpu_seconds:sum")
CPU_HAD = total("jobid_instance:jobledger_job_allocated_cpu_seconds:sum")
CPUS = f"sum({last(job('jobid_instance:jobledger_job_cpus:sum'))})"
GPU_HAD = total("jobid_instance:jobledger_job_gpu_allocated_seconds:sum")
GPU_BUSY = total("jobid_instance:jobledger_job_gpu_busy_seconds:sum")
GPU_IDLE = total("jobid_instance:jobledger_job_gpu_idle_seconds:sum")
PEAK = most(job("jobid_instance:jobledger_job_memory_peak_bytes:sum"))
HELD = most(job("jobid_instance:jobledger_job_memory_held_bytes:sum"))
LIMIT = last(job("jobid_instance:jobledger_job_memory_limit_bytes:sum"))
LIMIT_LEAST = f"min({LIMIT})"
PEAK_OR_HELD = f"({PEAK} or {HELD})"
PEAK_RATIO = f"max({PEAK_OR_HELD} / ({LIMIT} > 0))"
OOM_KILLS = f"sum({most(job('jobledger_job_oom_kills_total'))})"
THROTTLED = f"sum({most(job('jobledger_job_cpu_throttled_seconds_total'))})"
GPU_BUSY_RATIO = f"(({GPU_BUSY} or {GPU_IDLE} * 0) / (({GPU_BUSY} or {GPU_IDLE} * 0) + {GPU_IDLE} > 0))"
# By cores: SLURM gives whole ones, and a thread per core uses all of them. Before cores are recorded, CPUs.
CORES = f"(sum({last(job('jobid_instance:jobledger_job_cores:sum'))}) or {CPUS})"
CPU_RATIO = f"clamp_max({CPU_USED} / ({CPU_HAD} * {CORES} / {CPUS} > 0), 1)"
# Not over the time elapsed: that is of the latest run of a requeued job, and totals are of the longest.
CORES_USED = f"({CPU_RATIO} * {CORES})"
SETTLED = f"count({last(job('jobid_instance:jobledger_job_settled:info'))})"
NO_GPU_WORK = f"({GPU_IDLE} >= {limits.GPU_SEEN} * {GPU_HAD} and ({GPU_BUSY} or {GPU_IDLE} * 0) <= {limits.GPU_IDLE_BUSY_RATIO} * {GPU_IDLE})"
NODE_CPUS_USED = f"avg_over_time({job('jobid_instance:jobledger_job_cpu_seconds:rate2m')}[$__range])"


def pressure(resource, kind="some"):
    """Part of the time of the job's latest run that tasks waited, on the node where it was most."""
    waited = last(job("jobledger_job_pressure_seconds_total", f'resource="{resource}"', f'kind="{kind}"'))
    return f"max({waited} / ignoring (resource, kind) ({RAN} > 0))"


SERIAL = f"({CORES_USED} >= {limits.CPU_SERIAL_LEAST_CORES} and {CORES_USED} <= {limits.CPU_SERIAL_MOST_CORES} and {CORES} >= {limits.CPU_SERIAL_LEAST_HELD})"

# What is measured, by the name of the advice. Where there is none the advice does not apply.
PIECES = {
    "oom_killed": f"({PEAK_RATIO} or {OOM_KILLS} * 0 + 1) and ({OOM_KILLS} > 0)",
    "gpu_never_used": f"0 * {NO_GPU_WORK}",
    "gpu_low_use": f"({GPU_BUSY_RATIO} < {limits.GPU_LOW_USE_RATIO}) unless {NO_GPU_WORK}",
    "serial": f"{CPU_RATIO} and {SERIAL}",
    "cpu_low": f"({CPU_RATIO} < {limits.CPU_LOW_RATIO}) unless {SERIAL} unless ({GPU_HAD} > 0)",
    "node_idle": f"min({NODE_CPUS_USED}) < {limits.NODE_IDLE_CORES} and max({NODE_CPUS_USED}) > {limits.NODE_BUSY_CORES}",
    "cpu_throttled": f"{THROTTLED} / ({THROTTLED} + {CPU_USED} > 0) > {limits.CPU_THROTTLED}",
    "memory_over_asked": f"({PEAK_RATIO} < {limits.MEMORY_OVER_ASKED_RATIO}) and ({LIMIT_LEAST} >= {limits.MEMORY_OVER_ASKED_LEAST_BYTES})",
    "waited_memory": f"{pressure('memory')} > {limits.WAITED_MEMORY}",
    "waited_io": f"{pressure('io')} > {limits.WAITED_IO}",
    "waited_cpu": f"({pressure('cpu')} > {limits.WAITED_CPU}) and ({CPU_RATIO} > {limits.WAITED_CPU_USE})",
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


def cpus_to_ask():
    """Cores that would have been enough."""
    return f"ceil({CORES_USED} * 1.1) and ({CPU_RATIO} < {limits.CPU_FAIR})"


def memory_to_ask():
    """Memory per node, in bytes, with a fifth above the highest peak, that would have been enough, or was too little."""
    return f"max({PEAK_OR_HELD}) * 1.2 and ({PEAK_RATIO} < {limits.MEMORY_FAIR})"
