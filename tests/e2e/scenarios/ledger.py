"""CPU time: jobs + unattributed = what the kernel counted."""

import time

from testbed import beds
from testbed.context import close, equal, expect, scenario

_NODE = "jobledger_node_slurm_cpu_seconds_total"
_RESIDUAL = "jobledger_node_slurm_cpu_unattributed_seconds_total"
_END = "jobledger_job_end_time_seconds"
_JOBS = "jobledger_job_cpu_seconds_total"
# The exporter adds microseconds; the exposition rounds them.
_ROUNDING = 0.001


def no_cpu_accounting(bed):
    """Why CPU time cannot be checked on a bed, or None."""
    return None if bed.has_cpu_accounting else "SLURM counts no CPU time by cgroup here"


def check_balance(metrics):
    """Jobs + residual = node."""
    close("jobs + residual", metrics.total(_JOBS) + metrics.value(_RESIDUAL), metrics.value(_NODE), _ROUNDING)
    expect(metrics.value(_RESIDUAL) >= 0, f"a negative residual: {metrics.value(_RESIDUAL)}")


def check_gain(what, gained, before, after, kernel):
    """The exporter's gain is within the bounds of the kernel's values read around its two scrapes.

    `before` and `after` are the readings around the first and second scrape.
    """
    least, most = after[0] - before[1], after[1] - before[0]
    expect(least - _ROUNDING <= gained <= most + _ROUNDING,
           f"{what}: {gained:.6f} s, while {kernel} gained {least:.6f} to {most:.6f} s")


def read_around(bed, read):
    """`read()` with the kernel's CPU time of SLURM's scope just before and just after it."""
    before = bed.scope_cpu_seconds(bed.nodes[0])
    value = read()
    return value, (before, bed.scope_cpu_seconds(bed.nodes[0]))


@scenario(beds.EACH_CONTROLLER, unable=no_cpu_accounting)
def balance(context):
    """Jobs + residual = node = the kernel's sum, at every scrape while jobs start, run and end."""
    bed, slurm = context.bed, context.slurm
    busy = "timeout {} sh -c 'while :; do :; done'"
    bodies = [busy.format(4), f"srun {busy.format(2)}\nsrun {busy.format(1)}", "true", "srun -n1 true", busy.format(9),
              f"srun --overlap {busy.format(3)} &\nsrun --overlap {busy.format(5)} &\nwait"]
    with context.exporter():
        start, around_start = read_around(bed, bed.scrape)
        check_balance(start)
        jobids = slurm.submit_all([(bed.users[i % 2], body, ("--mem=100", "-n1")) for i, body in enumerate(bodies)])
        deadline = time.monotonic() + 600
        while bed.run("squeue -h -o %i").split():
            expect(time.monotonic() < deadline, "the jobs do not end")
            metrics, around = read_around(bed, bed.scrape)
            check_balance(metrics)
            gained = metrics.value(_NODE) - start.value(_NODE)
            check_gain("node", gained, around_start, around, "the scope's cpu.stat")
        context.eventually(lambda metrics: equal(
            "ended jobs", {int(labels["jobid"]) for labels, _ in metrics.select(_END)} & set(jobids), set(jobids)))
        metrics, around = read_around(bed, bed.scrape)
        check_balance(metrics)
        gained = metrics.total(_JOBS) + metrics.value(_RESIDUAL) - start.total(_JOBS) - start.value(_RESIDUAL)
        check_gain("jobs + residual", gained, around_start, around, "the scope's cpu.stat")
        for jobid, seconds in ((jobids[0], 3), (jobids[4], 7)):
            spent = metrics.total(_JOBS, jobid=jobid)
            expect(spent > seconds / 4, f"job {jobid} was busy for more than {seconds} s and is charged with {spent} s")
