"""How jobs end, by the files of prolog and epilog and by slurmctld."""

from testbed import beds
from testbed.context import equal, expect, scenario
from testbed.processes import wait_for

from .identity import installed_snippets

_KINDS = {
    # body of the script, options, exit code, signal, and of the steps. srun returns before slurmctld knows how the step ended.
    "success": ("exit 0", ["--time=5"], 0, None, 0, None),
    "exit 3": ("exit 3", ["--time=2-00:00:00"], 3, None, 0, None),
    "kill -9": ("kill -9 $$", ["--time=UNLIMITED"], None, 9, 0, None),
    "a step that fails": ("srun --mem=20 sh -c 'exit 5'; sleep 1; exit 0", [], 0, None, 5, None),
    "a step that is killed": ("srun --mem=20 sh -c 'kill -11 $$'; sleep 1; exit 0", [], 0, None, None, 11),
    "out of memory": ("head -c 300m /dev/zero | tail; exit 0", [], None, 125, None, None),
    "time limit": ("sleep 600", ["--time=1"], 0, None, 0, None),
    "cancelled": ("sleep 600", ["--time=10"], 0, None, 0, None),
}
_FACTS = ("exit_code", "exit_signal", "derived_exit_code", "derived_exit_signal")


def _fact(metrics, name, jobid):
    return metrics.value(f"jobledger_job_{name}", jobid=jobid)


def _state(metrics, jobid):
    states = [labels["state"] for labels, _ in metrics.select("jobledger_job_state_info", jobid=jobid, origin="derived")]
    expect(len(states) < 2, f"job {jobid}: {states}")
    return states[0] if states else None


def in_seconds(limit):
    """slurmctld's D-HH:MM:SS."""
    days, _, clock = limit.rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def knows_times(bed):
    """Whether SLURM's prolog and epilog get the time limit and the elapsed time: from 23.02 on."""
    return tuple(map(int, bed.run("scontrol --version").split()[1].split(".")[:2])) >= (23, 2)


@scenario(beds.EACH_SLURM, seconds=180)
def how_jobs_end(context):
    """Time limit, nodes and restarts of jobs are slurmctld's, and so are exit code, signal and state, as far as SLURM's epilog
    has them. A requeued run has no exit code, and the next run has its own."""
    bed, slurm = context.bed, context.slurm
    has_times = knows_times(bed)
    kinds = {kind: how for kind, how in _KINDS.items() if bed.has_memory_limits or kind != "out of memory"}
    with installed_snippets(bed), context.exporter("--jobs.retention=1h"):
        requests = [(bed.users[0], body, ["--mem=60", *options]) for body, options, *_ in kinds.values()]
        ids = dict(zip(kinds, slurm.submit_all(requests)))
        slurm.wait_running(1, JobId=str(ids["cancelled"]), timeout=300)
        context.eventually(lambda metrics: equal("restarts", _fact(metrics, "restarts", ids["cancelled"]), 0))
        metrics = bed.scrape()
        for name in _FACTS:
            equal(f"{name} of a running job", _fact(metrics, name, ids["cancelled"]), None)
        bed.run(f"scancel {ids['cancelled']}")
        jobs = slurm.wait_over(ids.values())

        def all_right(metrics):
            for kind, (_, _, *expected) in kinds.items():
                jobid = ids[kind]
                job = jobs[jobid]
                if kind == "out of memory":
                    # Versions differ in what they say of a script's own step.
                    expected[2:] = [_fact(metrics, name, jobid) for name in _FACTS[2:]]
                equal(f"{kind}: exit", [_fact(metrics, name, jobid) for name in _FACTS], expected)
                # 26.05 may schedule a job without a limit as one of a year, and shows that afterwards.
                limited = has_times and job["TimeLimit"] not in ("UNLIMITED", "365-00:00:00")
                equal(f"{kind}: time limit", _fact(metrics, "time_limit_seconds", jobid), in_seconds(job["TimeLimit"]) if limited else None)
                equal(f"{kind}: nodes", _fact(metrics, "nodes_asked", jobid), int(job["NumNodes"].split("-")[0]))
                equal(f"{kind}: restarts", _fact(metrics, "restarts", jobid), int(job["Restarts"]))
                known = job["JobState"] in ("FAILED", "OUT_OF_MEMORY") or (job["JobState"] == "TIMEOUT" and has_times)
                equal(f"{kind}: state", _state(metrics, jobid), job["JobState"] if known else None)

        context.eventually(all_right)
        states = {kind: jobs[jobid]["JobState"] for kind, jobid in ids.items()}
        equal("slurmctld's states", sorted(set(states.values())), ["CANCELLED", "COMPLETED", "FAILED", *["OUT_OF_MEMORY"] * bed.has_memory_limits, "TIMEOUT"])

        requeued = slurm.submit(bed.users[0], 'test "$SLURM_RESTART_COUNT" = 1 && exit 4; sleep 600', "--mem=60", "--requeue")
        slurm.wait_running(1, JobId=str(requeued))
        context.eventually(lambda metrics: equal("restarts", _fact(metrics, "restarts", requeued), 0))
        bed.run(f"scontrol requeue {requeued}")
        wait_for("the job to wait again", lambda: slurm.job(requeued)["JobState"] == "PENDING", 120)

        def first_run(metrics):
            expect(_fact(metrics, "end_time_seconds", requeued), "the first run has no end")
            equal("facts of the first run", [_fact(metrics, name, requeued) for name in ("restarts", *_FACTS)], [0, *[None] * 4])

        context.eventually(first_run)
        bed.run(f"scontrol update jobid={requeued} StartTime=now+3")
        slurm.wait_over([requeued])
        context.eventually(lambda metrics: equal(
            "the second run", [_fact(metrics, name, requeued) for name in ("restarts", "exit_code", "exit_signal")], [1, 4, None]))
