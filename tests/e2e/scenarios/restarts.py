"""The exporter and slurmd start and stop independently of each other."""

import time

from testbed import beds
from testbed.context import close, equal, expect, scenario

from .kinds import check_running

_LONG = "while :; do :; done"


@scenario(beds.EACH_CGROUP)
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


@scenario(beds.EACH_CGROUP)
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


@scenario(beds.EACH_CGROUP)
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


_COUNTED = ("jobledger_node_energy_joules_total", "jobledger_node_energy_unattributed_joules_total",
            "jobledger_node_slurm_cpu_seconds_total", "jobledger_node_disk_operations_total")


@scenario(beds.EACH_CGROUP)
def exporter_state(context):
    """With a state, nothing falls over a restart and a kill, and a job that ended and was in no scrape is in the next one."""
    bed, slurm = context.bed, context.slurm
    flags = (f"--state.file={bed.state_file}", "--jobs.retention=1h")
    bed.run(f"rm -f {bed.state_file}")
    with context.exporter(*flags):
        jobid = slurm.submit(bed.users[0], _LONG, "--mem=100")
        jobs = slurm.wait_running(1)
        before = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
        equal("the first state", before.value("jobledger_exporter_state_info", storage="file", outcome="empty"), 1)
        for kill in (False, True):
            ended = slurm.submit(bed.users[1], "sleep 1", "--mem=100")
            slurm.wait_over([ended])
            began = time.monotonic()
            context.restart(*flags, kill=kill)
            after = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
            what = "after a kill" if kill else "after a restart"
            equal(f"the state {what}", after.value("jobledger_exporter_state_info", storage="file", outcome="restored"), 1)
            expect(after.value("jobledger_job_end_time_seconds", jobid=ended) is not None, f"job {ended} is lost {what}")
            start = "jobledger_job_start_time_seconds"
            equal(f"start time {what}", after.value(start, jobid=jobid), before.value(start, jobid=jobid))
            counting = "jobledger_exporter_counting_start_time_seconds"
            equal(f"start of counting {what}", after.value(counting), before.value(counting))
            unobserved = after.value("jobledger_exporter_unobserved_seconds_total")
            expect(0 < unobserved < time.monotonic() - began + 300, f"{unobserved} s unobserved {what}")
            for name in _COUNTED:
                expect(after.total(name) >= before.total(name), f"{name} fell {what}: {before.total(name)}, {after.total(name)}")
            for name in ("jobledger_job_allocated_cpu_seconds_total", "jobledger_job_energy_joules_total"):
                had, has = before.total(name, jobid=jobid), after.total(name, jobid=jobid)
                expect(has >= had, f"{name} of the job fell {what}: {had}, {has}")
            before = after
