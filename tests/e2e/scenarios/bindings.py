"""Which job has which GPU: slurmctld's answer, the devices that the job's processes can open, and the exporter's metrics."""

import time

from testbed import beds
from testbed import gpus as testbed
from testbed.context import equal, expect, scenario
from testbed.processes import wait_for

from .identity import installed_snippets
from .kinds import second_node

_HERE = "/tmp/gpus"
_JOBS_GPUS = "jobledger_job_gpus"
_JOBS_GPU = "jobledger_job_gpu_info"


def bound(metrics, jobid):
    """(source, {(gpu, uuid, minor)}) of a job's GPUs; None while they are unknown."""
    counts = metrics.select(_JOBS_GPUS, jobid=jobid)
    has = metrics.select(_JOBS_GPU, jobid=jobid)
    if not counts:
        equal(f"job {jobid}: GPUs while they are unknown", has, [])
        return None
    (labels, count), = counts
    equal(f"job {jobid}: how many GPUs", count, len(has))
    for gpu, _ in has:
        equal(f"job {jobid}: source of a GPU", gpu["source"], labels["source"])
    return labels["source"], {(int(gpu["gpu"]), gpu["uuid"], int(gpu["minor"])) for gpu, _ in has}


def names(gpus):
    """{(gpu, uuid, minor)} of GPUs of the bed."""
    return {(gpu.index, gpu.uuid, gpu.minor) for gpu in gpus}


@scenario(beds.NEWEST, unable=testbed.no_device_programs, seconds=230)
def gpu_binding(context):
    """Each job is exported with the GPUs that slurmctld gave it and that its processes can open, from start to end."""
    bed, slurm = context.bed, context.slurm
    first, second = bed.users
    bed.run(f"rm -rf {_HERE}; install -d -m 1777 {_HERE}")
    body = testbed.tries(f"{_HERE}/$SLURM_JOB_ID") + f"date +%s.%N > {_HERE}/$SLURM_JOB_ID.began\n"
    steps = f"""until test -e {_HERE}/go; do sleep 0.2; done
srun --overlap -n1 --gres=gpu:1 bash {_HERE}/step &
until test -e {_HERE}/more; do sleep 0.2; done
for step in 1 2 3 4; do srun --overlap -n1 --gres=gpu:1 true; done
touch {_HERE}/done
sleep 600
"""
    bed.agent.put(f"{_HERE}/step", f"{testbed.tries(f'{_HERE}/step.out')}sleep 600\n".encode(), 0o755)
    with testbed.fake(bed) as gpus:
        with context.exporter(*gpus.flags):
            jobs = {}
            delays, at_first = [], {}
            for user, body_of, options in (
                    (first, body + steps, ("-n1", "--gres=gpu:2")),
                    (second, body + "sleep 600", ("-n1", "--gres=gpu:1")),
                    (second, body + "sleep 600", ("-n1",))):
                jobid = slurm.submit(user, body_of, "--mem=100", *options)
                at_first[jobid], delay = _until_known(context, jobid)
                delays.append(delay)
                jobs[jobid] = options
            slurm.wait_running(len(jobs))
            wanted = {}
            for jobid, options in jobs.items():
                minors = testbed.asked_for(bed, jobid)
                count = int(options[-1][-1]) if "gres" in options[-1] else 0
                equal(f"job {jobid}: GPUs of {options}", len(minors), count)
                equal(f"job {jobid}: what its processes can open", testbed.opened(bed, f"{_HERE}/{jobid}"), minors)
                wanted[jobid] = ("device_program", names(gpus.of_minors(minors)))
                equal(f"job {jobid}: GPUs when they were first known", at_first[jobid], wanted[jobid])

            def check(metrics):
                for jobid, of_job in wanted.items():
                    equal(f"job {jobid}", bound(metrics, jobid), of_job)

            context.eventually(check)
            attached = testbed.device_programs(bed)
            _check_steps(context, next(iter(jobs)), wanted, check)
            print(f"note {bed.name} gpu_binding: GPUs known {', '.join(delays)}", flush=True)
        # The short steps have ended; the running step has programs of its own.
        before = testbed.device_programs(bed)
        expect(len(before) > len(attached), f"a step of one GPU has no program: {before}")
        # Ended jobs remain until the last has ended.
        with context.exporter(*gpus.flags, "--jobs.retention=1h"):
            context.eventually(check)
            time.sleep(3)
            check(bed.scrape())
            equal("attached programs while the exporter queries them", testbed.device_programs(bed), before)
            slurm.cancel_all()
            context.eventually(lambda metrics: equal("jobs with GPUs", metrics.select(_JOBS_GPUS), []))
            # An ended job is exported with its GPUs.
            after = bed.scrape()
            for jobid, (_, units) in wanted.items():
                equal(f"job {jobid} after its end", len(after.select(_JOBS_GPU, jobid=jobid)), len(units))


def _until_known(context, jobid):
    """Scrapes until the GPUs of a new job are known; returns them, and a text with the delay."""
    bed, seen = context.bed, []

    def look():
        metrics = bed.scrape()
        if jobid in metrics.running():
            seen.append(time.monotonic())
        return bound(metrics, jobid)

    known = wait_for(f"the GPUs of job {jobid} to be known", look, interval=0)
    clock = float(bed.run("date +%s.%N"))
    began = float(wait_for("the job to begin", lambda: bed.run(f"cat {_HERE}/{jobid}.began || true"), 60))
    return known, (f"{1000 * (seen[-1] - seen[0]):.0f} ms after the job was first exported, {1000 * (clock - began):+.0f} ms "
                   "from the first command of its script")


def _check_steps(context, jobid, wanted, check):
    """A step with fewer GPUs takes none from its job, and steps that start and end do not change the metrics."""
    bed = context.bed
    bed.run(f"touch {_HERE}/go")
    of_step = testbed.opened(bed, f"{_HERE}/step.out")
    minors = {minor for _, _, minor in wanted[jobid][1]}
    expect(len(of_step) == 1 and of_step < minors, f"the step of one GPU can open {of_step} of {minors}")
    check(bed.scrape())
    bed.run(f"touch {_HERE}/more")
    scrapes = 0
    while bed.agent.call(f"test -e {_HERE}/done")[0] != 0:
        check(bed.scrape())
        scrapes += 1
        expect(scrapes < 400, "the steps do not end")
    expect(scrapes > 3, f"only {scrapes} scrapes while steps started and ended")


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def gpu_two_slurmd(context):
    """With two slurmd on one host that both have all GPUs, each job has the GPUs of its own device program."""
    bed, slurm = context.bed, context.slurm
    bed.run(f"rm -rf {_HERE}; install -d -m 1777 {_HERE}")
    body = testbed.tries(f"{_HERE}/$SLURM_JOB_ID") + "sleep 600"
    with second_node(bed), testbed.fake(bed) as gpus, context.exporter(*gpus.flags):
        jobids = slurm.submit_all([(user, body, ("--mem=100", "-n1", f"--partition={partition}", f"--gres=gpu:{count}"))
                                   for user, partition, count in zip(bed.users, bed.partitions, (1, 2), strict=True)])
        slurm.wait_running(len(jobids))
        minors = {jobid: testbed.asked_for(bed, jobid) for jobid in jobids}
        both = set.intersection(*minors.values())
        expect(both, f"no GPU that both have: {minors}")

        def check(metrics):
            for jobid, of_job in minors.items():
                equal(f"job {jobid}", bound(metrics, jobid), ("device_program", names(gpus.of_minors(of_job))))
                shared = {int(gpu["minor"]): gpu["shared"] for gpu, _ in metrics.select(_JOBS_GPU, jobid=jobid)}
                equal(f"job {jobid}: shared", shared, {minor: str(minor in both).lower() for minor in of_job})
            (node, _), = metrics.select(_JOBS_GPUS, jobid=jobids[1])
            equal(f"job {jobids[1]}: node", node["slurm_node"], bed.nodes[1])

        for jobid, of_job in minors.items():
            equal(f"job {jobid}: what its processes can open", testbed.opened(bed, f"{_HERE}/{jobid}"), of_job)
        context.eventually(check)


# Without device programs


def _has_device_programs(bed):
    if testbed.no_gpus(bed) or bed.cgroup == "v1":
        return testbed.no_gpus(bed)
    return "v2 has device programs"


@scenario(beds.V1, unable=_has_device_programs)
def gpu_files(context):
    """v1: the GPUs are unknown from devices.list alone; the files of the prolog and of gpustat name them."""
    bed, slurm = context.bed, context.slurm
    gpustat = "/run/gpustat-test"
    bed.run(f"rm -rf {_HERE}; install -d -m 1777 {_HERE}; install -d -m 755 {gpustat}")
    body = testbed.tries(f"{_HERE}/$SLURM_JOB_ID") + "sleep 600"

    def submit():
        jobids = slurm.submit_all([(bed.users[0], body, ("--mem=100", "-n1", "--gres=gpu:2")),
                                   (bed.users[1], body, ("--mem=100", "-n1", "--gres=gpu:1")),
                                   (bed.users[1], body, ("--mem=100", "-n1"))])
        slurm.wait_running(len(jobids))
        minors = {jobid: testbed.asked_for(bed, jobid) for jobid in jobids}
        for jobid, of_job in minors.items():
            equal(f"job {jobid}: what its processes can open", testbed.opened(bed, f"{_HERE}/{jobid}"), of_job)
        return minors

    def check(metrics, minors, source, gpus):
        equal("jobs", metrics.running(), set(minors))
        for jobid, of_job in minors.items():
            # The prolog writes nothing about GPUs for a job without any.
            wanted = (source, names(gpus.of_minors(of_job))) if of_job and source else None
            equal(f"job {jobid}", bound(metrics, jobid), wanted)

    with testbed.fake(bed, in_order=True) as gpus:
        flags = (*gpus.flags, f"--collector.gpu.gpustat-dir={gpustat}")
        with context.exporter(*flags):
            minors = submit()
            context.eventually(lambda metrics: check(metrics, minors, None, gpus))
            time.sleep(3)
            check(bed.scrape(), minors, None, gpus)
            for jobid, of_job in minors.items():
                uid = slurm.job(jobid)["UserId"].partition("(")[2].rstrip(")")
                bed.run("\n".join(f"echo {jobid} {uid} > {gpustat}/{minor}" for minor in of_job) or "true")
            context.eventually(lambda metrics: check(metrics, minors, "gpustat", gpus))
            slurm.cancel_all()
        bed.run(f"rm -rf {gpustat}")
        with installed_snippets(bed), context.exporter(*flags):
            minors = submit()
            context.eventually(lambda metrics: check(metrics, minors, "prolog", gpus))
            slurm.cancel_all()
            context.eventually(lambda metrics: equal("jobs with GPUs", metrics.select(_JOBS_GPUS), []))
            metrics = bed.scrape()
            for jobid, of_job in minors.items():
                for gpu in gpus.of_minors(of_job):
                    spent = metrics.value("jobledger_job_gpu_allocated_seconds_total", jobid=jobid, uuid=gpu.uuid)
                    expect(spent, f"job {jobid}: had {gpu.uuid} for {spent} s")
