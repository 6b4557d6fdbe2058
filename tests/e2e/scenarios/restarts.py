"""The exporter and slurmd start and stop independently of each other."""

from testbed.context import close, equal, expect, scenario

from .kinds import check_running

_LONG = "while :; do :; done"


@scenario()
def late_slurmd(context):
    """An exporter that starts before slurmd sees the jobs once slurmd runs."""
    bed, slurm = context.bed, context.slurm
    node = bed.nodes[0]
    bed.stop_slurmd(node)
    bed.remove_slurm_cgroup(node)
    try:
        with context.exporter():
            check_running(bed, bed.scrape(), {})
            bed.start_slurmd(node)
            bed.wait_up(node)
            slurm.submit(bed.users[0], _LONG, "--mem=100")
            jobs = slurm.wait_running(1)
            context.eventually(lambda metrics: check_running(bed, metrics, jobs))
    finally:
        bed.start_slurmd(node)
        bed.wait_up(node)


@scenario()
def slurmd_restart(context):
    """A restart of slurmd does not affect running jobs: same start time, no counter goes back. New jobs are found."""
    bed, slurm = context.bed, context.slurm
    with context.exporter():
        jobid = slurm.submit(bed.users[0], _LONG, "--mem=100")
        jobs = slurm.wait_running(1)
        before = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
        bed.stop_slurmd(bed.nodes[0])
        down = bed.scrape()
        bed.start_slurmd(bed.nodes[0])
        slurm.submit(bed.users[1], _LONG, "--mem=100")
        jobs = slurm.wait_running(2)
        after = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
        start = "jobledger_job_start_time_seconds"
        equal("start time while slurmd is down", down.value(start, jobid=jobid), before.value(start, jobid=jobid))
        equal("start time after the restart", after.value(start, jobid=jobid), before.value(start, jobid=jobid))
        if bed.has_cpu_accounting:
            spent = [metrics.total("jobledger_job_cpu_seconds_total", jobid=jobid) for metrics in (before, down, after)]
            expect(spent == sorted(spent) and spent[2] > spent[0], f"CPU seconds over the restart: {spent}")


@scenario()
def exporter_restart(context):
    """A restarted exporter finds the running jobs with their complete counters."""
    bed, slurm = context.bed, context.slurm
    with context.exporter():
        jobid = slurm.submit(bed.users[0], _LONG, "--mem=100")
        jobs = slurm.wait_running(1)
        before = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
    with context.exporter():
        after = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
        start = "jobledger_job_start_time_seconds"
        # The first exporter saw the cgroup's creation, the second one only has the start of slurmstepd: on a busy emulated
        # machine seconds later. Processes' start times are known to a second, as the boot time is.
        close("start time", after.value(start, jobid=jobid), before.value(start, jobid=jobid), 10)
        if bed.has_cpu_accounting:
            spent = [metrics.total("jobledger_job_cpu_seconds_total", jobid=jobid) for metrics in (before, after)]
            expect(spent[1] >= spent[0], f"CPU seconds over the restart: {spent}")
