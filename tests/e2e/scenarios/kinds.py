"""Every kind of job that SLURM can start, as the node's exporter exports it."""

import contextlib
import re

from testbed import beds
from testbed import gpus as testbed_gpus
from testbed.context import close, equal, expect, scenario

_LONG = "sleep 600"
_TABLE = "jobledger_exporter_jobs"


def check_running(bed, metrics, jobs):
    """The jobs in `metrics` are exactly `jobs` (slurmctld's), with the same owner, CPUs and memory limit."""
    equal("job ids", sorted(metrics.running()), sorted(jobs))
    equal("running jobs", metrics.value(_TABLE, state="running"), len(jobs))
    for jobid, job in jobs.items():
        user, uid = re.fullmatch(r"(\S+)\((\d+)\)", job["UserId"]).groups()
        (info, value), = metrics.select("jobledger_job_info", jobid=jobid)
        equal(f"job {jobid}: info", value, 1)
        equal(f"job {jobid}: owner", (info["uid"], info.get("user")), (uid, user))
        equal(f"job {jobid}: cpus", metrics.value("jobledger_job_cpus", jobid=jobid), int(job["NumCPUs"]))
        if bed.has_memory_limits:
            megabytes = int(job["MinMemoryNode"].removesuffix("M"))
            equal(f"job {jobid}: memory limit", metrics.value("jobledger_job_memory_limit_bytes", jobid=jobid),
                  megabytes << 20)
            expect(metrics.value("jobledger_job_memory_used_bytes", jobid=jobid), f"job {jobid}: uses no memory")
        if bed.has_cpu_accounting:
            spent = metrics.select("jobledger_job_cpu_seconds_total", jobid=jobid)
            expect(sum(value for _, value in spent) > 0, f"job {jobid}: no CPU time: {spent}")


def check_started(context, metrics, jobid):
    """The start time is slurmctld's, within the time that SLURM takes to launch."""
    started = metrics.value("jobledger_job_start_time_seconds", jobid=jobid)
    close(f"job {jobid}: start time", started, context.slurm.started(jobid) + 30, 32)


@scenario(beds.EACH_SLURM)
def jobs_of_every_kind(context):
    """Serial, array, several steps, and srun without a batch script: ids, owners, CPUs, limits."""
    bed, slurm = context.bed, context.slurm
    first, second = bed.users
    kinds = {
        "serial": lambda: slurm.submit(first, _LONG, "--mem=100", "-n1"),
        "two CPUs": lambda: slurm.submit(second, _LONG, "--mem=120", "-c2"),
        "array": lambda: slurm.submit(second, _LONG, "--mem=90", "--array=3-4"),
        "several steps": lambda: slurm.submit(
            first, f"srun --overlap -n1 {_LONG} &\nsrun --overlap -n2 {_LONG} &\nwait", "--mem=200", "-n2"),
        "srun": lambda: bed.run(f"cd /; {slurm.as_user(second)} nohup srun -n1 --mem=60 {_LONG} >/dev/null 2>&1 &"),
    }
    with context.exporter():
        # The last job of another scenario may still be ending.
        context.eventually(lambda metrics: check_running(bed, metrics, {}))
        for kind, submit in kinds.items():
            submit()
            jobs = slurm.wait_running(2 if kind == "array" else 1)
            metrics = context.eventually(lambda metrics, jobs=jobs: check_running(bed, metrics, jobs))
            for jobid in jobs:
                check_started(context, metrics, jobid)
            slurm.cancel_all()
            ended = context.eventually(lambda metrics: equal("running jobs", metrics.value(_TABLE, state="running"), 0))
            for jobid in jobs:
                expect(ended.value("jobledger_job_end_time_seconds", jobid=jobid), f"job {jobid} ({kind}): no end time")
                equal(f"job {jobid} ({kind}): gauges after the end",
                      ended.select("jobledger_job_memory_used_bytes", jobid=jobid), [])


@scenario(beds.EACH_CGROUP)
def two_slurmd(context):
    """Two slurmd on one host: each job is exported with its node; a heterogeneous job has a component on each."""
    bed, slurm = context.bed, context.slurm
    with second_node(bed), context.exporter():
        second = slurm.submit(bed.users[1], _LONG, "--mem=100", f"--partition={bed.partitions[1]}")
        leader = slurm.submit(bed.users[0], heterogeneous(bed, f"srun --het-group=0,1 {_LONG}"))
        jobs = slurm.wait_running(3)
        nodes = {jobid: bed.nodes[jobid != leader] for jobid in jobs}
        equal("SLURM's nodes", {jobid: job["NodeList"] for jobid, job in jobs.items()}, nodes)
        equal("components", [job["HetJobId"] for jobid, job in jobs.items() if jobid != second], [str(leader)] * 2)

        def check(metrics):
            check_running(bed, metrics, jobs)
            for jobid, node in nodes.items():
                (labels, _), = metrics.select("jobledger_job_cpus", jobid=jobid)
                equal(f"job {jobid}: slurm_node", labels.get("slurm_node"), node)

        context.eventually(check)
        slurm.cancel_all()
        context.eventually(lambda metrics: equal("running jobs", metrics.value(_TABLE, state="running"), 0))


def heterogeneous(bed, body):
    """A batch script with a component on each of the two nodes: SLURM places no two on the same node."""
    first, second = bed.partitions
    return (f"#SBATCH -n1 --mem=80 --partition={first}\n#SBATCH hetjob\n"
            f"#SBATCH -n1 --mem=70 --partition={second}\n{body}")


class second_node:
    """Runs the bed's second slurmd for a with block."""

    def __init__(self, bed):
        self._bed = bed

    def __enter__(self):
        self._bed.start_slurmd(self._bed.nodes[1])
        self._bed.wait_up(self._bed.nodes[1])

    def __exit__(self, *_):
        self._bed.slurm.cancel_all()
        self._bed.stop_slurmd(self._bed.nodes[1])
        self._bed.remove_slurm_cgroup(self._bed.nodes[1])


@scenario(beds.EACH_CGROUP)
def promtool(context):
    """promtool check metrics accepts the exposition with jobs, steps, tasks and GPUs."""
    bed, slurm = context.bed, context.slurm
    with contextlib.ExitStack() as held:
        flags, gpu = (), ()
        if bed.has_gpus:
            gpus = held.enter_context(testbed_gpus.fake(bed))
            flags, gpu = (*gpus.flags, "--collector.gpu.processes"), ("--gres=gpu:1",)
        held.enter_context(context.exporter("--jobs.steps", "--jobs.tasks", *flags))
        equal("promtool, without jobs", context.lint(), "")
        slurm.submit(bed.users[0], f"srun -n1 {_LONG}", "--mem=100", "-n1", *gpu)
        slurm.submit(bed.users[1], _LONG, "--mem=100", "-n1")
        slurm.wait_running(2)

        def complete(metrics):
            equal("running jobs", metrics.value(_TABLE, state="running"), 2)
            equal("GPUs", len(metrics.select("jobledger_gpu_up")), testbed_gpus.COUNT if bed.has_gpus else 0)

        context.eventually(complete)
        equal("promtool", context.lint(), "")
