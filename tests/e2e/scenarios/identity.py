"""The owner and metadata of jobs; requeued jobs and stale directories."""

import contextlib

from testbed import beds, cache
from testbed.context import equal, expect, scenario
from testbed.processes import wait_for

from .kinds import check_running, heterogeneous, second_node

_LONG = "while :; do :; done"
_SNIPPETS = {part: cache.REPOSITORY / f"slurm/{part}.d/jobledger.sh" for part in ("prolog", "epilog")}


@scenario(beds.EACH_CGROUP)
def requeue(context):
    """A requeued job has its old id and a second run: a later start time, and counters from zero."""
    bed, slurm = context.bed, context.slurm
    start = "jobledger_job_start_time_seconds"
    with context.exporter():
        jobid = slurm.submit(bed.users[0], _LONG, "--mem=100", "--requeue")
        jobs = slurm.wait_running(1)
        first = context.eventually(lambda metrics: check_running(bed, metrics, jobs))
        bed.run(f"scontrol requeue {jobid}")
        wait_for("the job to wait again", lambda: slurm.job(jobid)["JobState"] == "PENDING", 120)
        # SLURM would delay it for two minutes. It has to wait until the second after its old credential was revoked.
        bed.run(f"scontrol update jobid={jobid} StartTime=now+3")
        jobs = slurm.wait_running(1, Restarts="1", timeout=300)

        def second_run(metrics):
            check_running(bed, metrics, jobs)
            was, now = first.value(start, jobid=jobid), metrics.value(start, jobid=jobid)
            expect(now > was, f"start time {now} of the second run, {was} of the first")

        second = context.eventually(second_run)
        if bed.has_cpu_accounting:
            spent = second.total("jobledger_job_cpu_seconds_total", jobid=jobid)
            elapsed = int(bed.run("date +%s")) - slurm.started(jobid)
            expect(spent < elapsed + 5, f"{spent} CPU seconds on one CPU in {elapsed} s: is the first run among them?")


@scenario(beds.EACH_CGROUP)
def stale_directory(context):
    """An empty job directory that SLURM left behind is exported as stale and not as a job."""
    bed = context.bed
    stale = 4194000
    job, below = f"job_{stale}", "step_0/user/task_0"
    if bed.cgroup == "v1":
        job, below = f"uid_{bed.users[1].uid}/job_{stale}", "step_0"
        # On v1 SLURM itself leaves empty directories of earlier jobs.
        for scope in bed.scopes(bed.nodes[0]):
            bed.run(f"find {scope} -mindepth 1 -depth -type d -exec rmdir {{}} +; true")
    tops = [f"{scope}/{job}" for scope in bed.scopes(bed.nodes[0])]
    bed.run("\n".join(f"mkdir -p {top}/{below}" for top in tops))
    try:
        with context.exporter("--jobs.stale-after=1s"):
            context.slurm.submit(bed.users[0], "sleep 600", "--mem=100")
            jobs = context.slurm.wait_running(1)

            def check(metrics):
                check_running(bed, metrics, jobs)
                equal("stale jobs", metrics.value("jobledger_exporter_jobs", state="stale"), 1)

            context.eventually(check)
    finally:
        bed.run("\n".join(f"find {top} -depth -type d -exec rmdir {{}} +" for top in tops))


@contextlib.contextmanager
def installed_snippets(bed):
    """SLURM with our prolog and epilog, for a with block."""
    for part, path in _SNIPPETS.items():
        bed.agent.put(f"{bed.slurm_directory}/{part}.d/jobledger.sh", path.read_bytes(), 0o755)
    try:
        yield
    finally:
        bed.run(f"rm -f {bed.slurm_directory}/*.d/jobledger.sh; rm -rf /run/jobledger")


@contextlib.contextmanager
def asked_for_long(bed):
    """The prolog asks slurmctld again for ten minutes: on a machine that is busy with other virtual machines one minute may not be enough."""
    settings = "/etc/default/jobledger-slurm"
    bed.agent.put(settings, b"JOBLEDGER_ASK_AGAIN='5 15 45 60 60 60 60 60 60 60 60 60'\n", 0o644)
    try:
        yield
    finally:
        bed.run(f"rm -f {settings}")


@scenario(beds.EACH_SLURM)
def metadata(context):
    """The prolog's file is on the job's info series; the epilog moves the file."""
    bed, slurm = context.bed, context.slurm
    with installed_snippets(bed), second_node(bed), context.exporter():
        serial = slurm.submit(bed.users[0], "sleep 600", "--mem=100", "--account=physics", "--job-name=a b\"c\\d")
        leader = slurm.submit(bed.users[1], heterogeneous(bed, "sleep 600"))
        jobs = slurm.wait_running(3)

        def check(metrics):
            check_running(bed, metrics, jobs)
            info = {jobid: metrics.select("jobledger_job_info", jobid=jobid)[0][0] for jobid in jobs}
            equal("account", info[serial]["account"], "physics")
            equal("partition", info[serial]["partition"], bed.partitions[0])
            for component in set(jobs) - {serial}:
                equal(f"het_job_id of {component}", info[component]["het_job_id"], str(leader))

        context.eventually(check)
        slurm.cancel_all()
        moved = sorted(f"{jobid}.ended" for jobid in jobs)
        wait_for("the epilogs to move the files", lambda: sorted(bed.run("ls -A /run/jobledger/jobs").split()) == moved, 60)
