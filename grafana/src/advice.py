"""What a job's owner could change: from totals over the job, each with the number it rests on and the threshold.

Each piece is a PromQL expression that has one series, without labels, when it applies. Where an alert has the threshold, it is the alert's.
"""

from . import style
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
CPU_RATIO = f"({CPU_USED} / ({CPU_HAD} > 0))"
# Not over the time elapsed: that is of the latest run of a requeued job, and totals are of the longest.
CPUS_USED = f"({CPU_RATIO} * {CPUS})"
SETTLED = f"count({last(job('jobid_instance:jobledger_job_settled:info'))})"
NO_GPU_WORK = f"({GPU_IDLE} >= {style.GPU_SEEN} * {GPU_HAD} and ({GPU_BUSY} or {GPU_IDLE} * 0) <= {style.GPU_IDLE_BUSY_SECONDS})"
NODE_CPUS_USED = f"avg_over_time({job('jobid_instance:jobledger_job_cpu_seconds:rate2m')}[$__range])"


def pressure(resource, kind="some"):
    """Part of the time of the job's latest run that tasks waited, on the node where it was most."""
    waited = last(job("jobledger_job_pressure_seconds_total", f'resource="{resource}"', f'kind="{kind}"'))
    return f"max({waited} / ignoring (resource, kind) ({RAN} > 0))"


# (what is wrong, what to change, measured, threshold as text)
PIECES = [
    ("The kernel killed processes of the job: out of memory",
     "Ask for more: --mem or --mem-per-cpu, at least a quarter above the limit that it hit; or fewer tasks per node",
     f"({PEAK_RATIO} or {OOM_KILLS} * 0 + 1) and ({OOM_KILLS} > 0)", "any kill"),
    ("GPUs were never used",
     "Leave out --gres, --gpus; or find out why the program does not see them (CUDA_VISIBLE_DEVICES, a build without GPU support)",
     f"0 * {NO_GPU_WORK}", "busy for a second at most, seen for nine tenths of the time"),
    ("GPUs were hardly used",
     "Ask for fewer GPUs or for a part of one (MIG, --gres=shard); feed them: more loader workers, bigger batches, data on local disks",
     f"({GPU_BUSY_RATIO} < {style.GPU_LOW}) unless {NO_GPU_WORK}", f"below {style.GPU_LOW:.0%} of the time seen"),
    ("One CPU worked, the others waited",
     "Ask for one CPU, or start the program in parallel: srun, OMP_NUM_THREADS as --cpus-per-task says",
     f"{CPU_RATIO} and ({CPUS} >= 2) and ({CPUS_USED} >= {style.SERIAL_LEAST}) and ({CPUS_USED} <= {style.SERIAL_MOST})",
     f"{style.SERIAL_LEAST:g} to {style.SERIAL_MOST:g} CPUs used of two or more"),
    ("Few of the CPUs worked",
     "Ask for fewer: -n, --cpus-per-task; or look for what they wait for (pressure, I/O, imbalance, below)",
     f"({CPU_RATIO} < {style.CPU_LOW}) unless ({CPUS_USED} >= {style.SERIAL_LEAST} and {CPUS_USED} <= {style.SERIAL_MOST}) unless ({GPU_HAD} > 0)",
     f"below {style.CPU_LOW:.0%} of the CPU time, no GPU"),
    ("A node of the job did nothing",
     "Ask for fewer nodes, or start the program on all of them: srun, not the first node's mpirun without a host list",
     f"min({NODE_CPUS_USED}) < {style.NODE_IDLE_CORES} and max({NODE_CPUS_USED}) > {style.NODE_BUSY_CORES}",
     f"{style.NODE_IDLE_CORES:g} CPUs used on one node, {style.NODE_BUSY_CORES:g} on another"),
    ("CPUs were held back by a bandwidth limit",
     "Ask for as many CPUs as the program has threads: --cpus-per-task",
     f"{THROTTLED} / ({THROTTLED} + {CPU_USED} > 0) > 0.1", "above 10% of the CPU time wanted"),
    ("Much more memory was asked for than used",
     "Ask for less: --mem, with a fifth above the peak; others can use the rest, and the job may start sooner",
     f"({PEAK_RATIO} < {style.MEMORY_OVER_ASKED}) and ({LIMIT_LEAST} >= 2^33)", f"peak below {style.MEMORY_OVER_ASKED:.0%} of 8 GiB or more"),
    ("Tasks waited for memory",
     "Ask for more: --mem; pages are being reclaimed and read again",
     f"{pressure('memory')} > 0.1", "above 10% of the job's time"),
    ("Tasks waited for storage",
     "Stage data to a local disk (TMPDIR), write less often and in bigger pieces",
     f"{pressure('io')} > 0.2", "above 20% of the job's time"),
    ("More threads were ready than there were CPUs",
     "Start as many threads as CPUs: OMP_NUM_THREADS as --cpus-per-task says; or ask for more CPUs",
     f"({pressure('cpu')} > 0.3) and ({CPU_RATIO} > 0.8)", "waited above 30% of the time at full CPUs"),
]

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
    found = [(what, change, f"({expr}) and on () ({ELAPSED} >= 120)", threshold) for what, change, expr, threshold in PIECES]
    return [label(expr, what=what, change=change, threshold=threshold) for what, change, expr, threshold in [AMBIGUOUS, *found, SHORT, UNKNOWN, CHECKED]]


def cpus_to_ask():
    """CPUs that would have been enough."""
    return f"ceil({CPUS_USED} * 1.1) and ({CPU_RATIO} < {style.CPU_FAIR})"


def memory_to_ask():
    """Memory per node, in bytes, with a fifth above the highest peak, that would have been enough, or was too little."""
    return f"max({PEAK_OR_HELD}) * 1.2 and ({PEAK_RATIO} < 0.7)"
