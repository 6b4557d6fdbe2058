"""PromQL of one job: its totals over the time range, its rates, and what it holds now.

All of it comes from the job's own series, which have the label `user` where the exporter puts it on them (--metric.job-labels),
so a label proxy can select a user's. What a node is (its cores) is also recorded by job and node.
"""

from . import style, thresholds
from .queries import CLUSTER, job, last, most, rate

# Labels that --metric.job-labels may put on every series of a job. A user's name may be known later than the job: such a series then
# continues under other labels, and both together are one.
LABELS = "user, account, partition, qos"
BY_NODE = "by (cluster, job, instance, jobid)"
BY_GPU = "by (cluster, job, instance, jobid, gpu, uuid)"
ON_GPU = "on (cluster, job, instance, jobid, gpu, uuid)"
ON_NODE = "on (cluster, job, instance, jobid)"
ON_TARGET = "on (cluster, job, instance)"
# Of a job with more nodes than this a panel by node shows the idlest ones.
FEW_NODES = 40


def known(expr):
    """The series without the labels of --metric.job-labels."""
    return f"max without ({LABELS}) ({expr})"


def counted(counter, by=None, *more):
    """The exact total of a counter over the time range: its highest value."""
    return f"sum {by} ({known(most(job(counter, *more)))})" if by else f"sum({known(most(job(counter, *more)))})"


def by_node(counter, *more):
    return counted(counter, BY_NODE, *more)


def by_gpu(counter, *more):
    return counted(counter, BY_GPU, *more)


RUNNING = job("jobledger_job_start_time_seconds")
NOT_ENDED = f"unless on (cluster, job, instance, slurm_node, jobid) {job('jobledger_job_end_time_seconds')}"


def running(metric, *more):
    """The rate of a counter while the job runs: an ended job is exported a while longer, and does nothing."""
    return f"({rate(job(metric, *more))} {NOT_ENDED})"


def running_by(by, metric, *more):
    return f"sum by ({by}) ({running(metric, *more)})"


# Start, end, and when it was last in a scrape, on each node. The end of an earlier run is no end.
# How long it was seen follows from the CPU time that it held: to ask for the time of each sample would cost more than all else of a page.
STARTED = known(last(RUNNING))
ENDED = f"({known(last(job('jobledger_job_end_time_seconds')))} >= {STARTED})"
SEEN = f"({STARTED} + {known(last(job('jobledger_job_allocated_cpu_seconds_total')))} / ({known(last(job('jobledger_job_cpus')))} > 0))"
RAN = f"(({ENDED} or {SEEN}) - {STARTED})"
ELAPSED = f"max({RAN})"

# Cores that the CPUs of a job are, on each node: with SMT a CPU is half of a core, and where SLURM gives whole cores a program with a thread on
# each of them uses all that it has. A job that was too short for the rules has none recorded.
CPUS = f"sum {BY_NODE} ({known(last(job('jobledger_job_cpus')))})"
# What nodes are is asked once, not at every step: of all nodes of a site that would be most of a page's cost.
_SHARE = f"max by (cluster, job, instance) (jobledger_node_cores{{{CLUSTER}}} @ end()) / max by (cluster, job, instance) (jobledger_node_cpus{{{CLUSTER}}} @ end() > 0)"
CORES = (f"(sum {BY_NODE} ({known(last(job('jobid_instance:jobledger_job_cores:sum')))})"
         f" or {CPUS} * {ON_TARGET} group_left () ({_SHARE}))")
CPUS_NOW = f"sum {BY_NODE} ({job('jobledger_job_cpus')} {NOT_ENDED})"
CORES_NOW = (f"(sum {BY_NODE} ({job('jobid_instance:jobledger_job_cores:sum')} and {ON_NODE} {CPUS_NOW})"
             f" or {CPUS_NOW} * {ON_TARGET} group_left () ({_SHARE}))")

CPU_USED = counted("jobledger_job_cpu_seconds_total")
CPU_HAD = counted("jobledger_job_allocated_cpu_seconds_total")
CORE_SECONDS = f"({by_node('jobledger_job_allocated_cpu_seconds_total')} * {ON_NODE} ({CORES} / ({CPUS} > 0)))"
CPU_USE = f"clamp_max(sum({by_node('jobledger_job_cpu_seconds_total')} and {ON_NODE} {CORE_SECONDS}) / (sum({CORE_SECONDS}) > 0), 1)"
CPU_USE_BY_NODE = f"clamp_max({by_node('jobledger_job_cpu_seconds_total')} / {ON_NODE} ({CORE_SECONDS} > 0), 1)"
CPU_USE_NOW = f"clamp_max({running_by('cluster, job, instance, jobid', 'jobledger_job_cpu_seconds_total')} / {ON_NODE} ({CORES_NOW} > 0), 1)"


def use(busy, idle):
    """Busy of what was seen; without a counter of busy time nothing was busy while something was idle."""
    return f"(({busy} or {idle} * 0) / (({busy} or {idle} * 0) + {idle} > 0))"


GPU_HAD = counted("jobledger_job_gpu_allocated_seconds_total")
# Of GPUs that it does not share: the others may use them while it does not.
_OWN = f"unless {ON_GPU} {last(job('jobledger_job_gpu_info', 'shared=' + chr(34) + 'true' + chr(34)))}"
GPU_BUSY = f"sum({by_gpu('jobledger_job_gpu_busy_seconds_total')} {_OWN})"
GPU_IDLE = f"sum({by_gpu('jobledger_job_gpu_idle_seconds_total')} {_OWN})"
GPU_USE = use(GPU_BUSY, GPU_IDLE)
GPU_USE_BY_GPU = use(f"({by_gpu('jobledger_job_gpu_busy_seconds_total')} {_OWN})", f"({by_gpu('jobledger_job_gpu_idle_seconds_total')} {_OWN})")


def gpu_part(counter, *more):
    """What a counter of GPU time is of the time that the job had these GPUs."""
    part = by_gpu(counter, *more)
    had = f"({by_gpu('jobledger_job_gpu_allocated_seconds_total')} and on (cluster, job, instance, jobid, uuid) {part})"
    return f"clamp_max(sum({part}) / (sum({had}) > 0), 1)"


SM_ACTIVE = gpu_part("jobledger_job_gpu_sm_active_seconds_total")


def gpu_now(counter, *more):
    """The same at each moment, the mean over the job's GPUs."""
    part = f"sum {BY_GPU} ({running(counter, *more)})"
    return f"clamp_max(sum({part}) / (sum(sum {BY_GPU} ({running('jobledger_job_gpu_allocated_seconds_total')}) and on (cluster, job, instance, jobid, uuid) {part}) > 0), 1)"


BUSY_BY_GPU = f"sum {BY_GPU} ({running('jobledger_job_gpu_busy_seconds_total')})"
IDLE_BY_GPU = f"sum {BY_GPU} ({running('jobledger_job_gpu_idle_seconds_total')})"
GPU_USE_NOW = use(BUSY_BY_GPU, IDLE_BY_GPU)


def with_profile(per_gpu):
    """With the profile of a part of a divided GPU, whose number is that of its GPU."""
    return (f"{per_gpu} * {ON_GPU} group_left (profile)"
            f" max by (cluster, job, instance, jobid, gpu, uuid, profile) (last_over_time({job('jobledger_job_gpu_info')}[$__range] @ end()))")


GPU_USE_MEAN_NOW = use(f"sum({BUSY_BY_GPU})", f"sum({IDLE_BY_GPU})")

# Memory: what is charged at most, or where the kernel does not count that, the most that was held in a scrape.
PEAK = f"sum {BY_NODE} ({known(most(job('jobledger_job_memory_peak_bytes')))})"
HELD = f"({job('jobledger_job_memory_anon_bytes')} + {job('jobledger_job_memory_shmem_bytes')})"
HELD_MOST = f"sum {BY_NODE} ({known(f'max_over_time({HELD}[$__range:])')})"
PEAK_OR_HELD = f"({PEAK} or {HELD_MOST})"
LIMIT = f"sum {BY_NODE} ({known(last(job('jobledger_job_memory_limit_bytes')))})"
MEMORY_USE_BY_NODE = f"({PEAK_OR_HELD} / {ON_NODE} ({LIMIT} > 0))"
MEMORY_USE = f"max({MEMORY_USE_BY_NODE})"
# Of nodes that others can use, too: nobody else can have the memory of one of which the job had all CPUs.
_WHOLE = f"({CPUS} >= on (cluster, job, instance) group_left () max by (cluster, job, instance) (jobledger_node_cpus{{{CLUSTER}}} @ end()))"
SHARED_MEMORY_USE = f"max({MEMORY_USE_BY_NODE} unless {ON_NODE} {_WHOLE})"
OOM_KILLS = counted("jobledger_job_oom_kills_total")

# Parts of the pipeline's slots. Nothing is shown of memory where one of the job's CPUs does not count what waits for it.
SLOTS = counted("jobledger_job_pipeline_slots_total")
BACKEND_SLOTS = f"({counted('jobledger_job_pipeline_slots_total', None, 'category=~' + chr(34) + 'backend.*' + chr(34))} / ({SLOTS} > 0))"
MEMORY_SLOTS = (f"({counted('jobledger_job_pipeline_slots_total', None, 'category=' + chr(34) + 'backend_memory' + chr(34))} / ({SLOTS} > 0) "
                f"unless ({counted('jobledger_job_pipeline_slots_total', None, 'category=' + chr(34) + 'backend' + chr(34))} > 0))")
# Of floating-point operations the part in vectors, on nodes whose CPUs count vectors apart.
_UNTOLD = f"({by_node('jobledger_job_flops_total', 'width=' + chr(34) + 'any' + chr(34))} > 0)"
_SCALAR = f"({by_node('jobledger_job_flops_total', 'width=' + chr(34) + 'scalar' + chr(34))} unless {_UNTOLD})"
IN_VECTORS = f"(1 - sum({_SCALAR}) / (sum({by_node('jobledger_job_flops_total')} and {_SCALAR}) > 0))"
FLOPS_PER_CYCLE = f"({counted('jobledger_job_flops_total')} / ({counted('jobledger_job_cycles_total')} > 0))"

# CPUs that worked on average, by node: those held, without the ones that did nothing while they were counted.
_COVERED = f"clamp_max({by_node('jobledger_job_counted_cpu_seconds_total')} / {ON_NODE} ({by_node('jobledger_job_cpu_seconds_total')} > 0), 1)"
_IDLE = f"clamp_max({by_node('jobledger_job_cpus_idle_seconds_total')} / {ON_NODE} ({by_node('jobledger_job_allocated_cpu_seconds_total')} * {ON_NODE} {_COVERED} > 0), 1)"
CPUS_WORKED = f"({CPUS} * {ON_NODE} (1 - {_IDLE}))"
CORES_IDLE = f"sum(clamp_min({CORES} - {ON_NODE} {CPUS_WORKED}, 0))"
CPUS_ALIKE = (f"min(clamp_max({by_node('jobledger_job_instructions_total')} / {ON_NODE} "
              f"({by_node('jobledger_job_busiest_cpu_instructions_total')} * {ON_NODE} {CPUS_WORKED} > 0), 1))")


def waited(resource, kind="some"):
    """Part of the time of the job's latest run that tasks waited, on each node. The counter is of the run that was seen last."""
    stalled = known(last(job("jobledger_job_pressure_seconds_total", f'resource="{resource}"', f'kind="{kind}"')))
    return f"clamp_max({stalled} / ignoring (resource, kind) ({RAN} > 0), 1)"


def waiting_now(resource):
    return f"clamp_max(max({running('jobledger_job_pressure_seconds_total', f'resource={chr(34)}{resource}{chr(34)}', 'kind=' + chr(34) + 'some' + chr(34))}), 1)"


# All that the meters of its CPUs and GPUs measured: of a job with GPUs it is known only with theirs.
GPUS = f"count(count {BY_GPU} ({last(job('jobledger_job_gpu_info'))}))"
ENERGY_CPU, ENERGY_GPU = counted("jobledger_job_energy_joules_total"), counted("jobledger_job_gpu_energy_joules_total")
ENERGY = f"({ENERGY_CPU} + {ENERGY_GPU} or {ENERGY_CPU} unless on () {GPUS})"

# Nodes that a panel by node shows.
_USED, _HAD = (by_node(counter).replace("[$__range]", "[$__range] @ end()") for counter in ("jobledger_job_cpu_seconds_total", "jobledger_job_allocated_cpu_seconds_total"))
FEW = f"and on (cluster, instance) bottomk({FEW_NODES}, {_USED} / ({_HAD} > 0) or {_HAD} * 0)"

CORES_HELD = f"sum({CORES})"
# Not over the time elapsed: that is of the latest run of a requeued job, and totals are of the longest.
CORES_USED = f"({CPU_USE} * {CORES_HELD})"
# What would have been enough: a tenth more cores than were used on average, a fifth more memory than the highest peak of a node.
CORES_TO_ASK = f"(ceil({CORES_USED} * 1.1) and {CPU_USE} < {style.CPU_FAIR} unless {GPUS})"
MEMORY_TO_ASK = f"(max({PEAK_OR_HELD}) * 1.2 and {MEMORY_USE} < {thresholds.MEMORY_FAIR})"
# Nodes with different limits (--mem-per-cpu) need different amounts.
ALIKE_LIMITS = f"max({LIMIT}) == min({LIMIT})"

# A job's number is looked up in a month before and after the time range: its series are few, however long that is.
ANY_TIME = "[60d] offset -30d"


def ever(expr):
    """The last value at any time, also outside the time range."""
    return f"last_over_time({expr}{ANY_TIME})"
