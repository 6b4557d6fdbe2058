"""Perf counters of jobs under real SLURM. They are software events: virtual machines have no PMU."""

import contextlib

from testbed import beds
from testbed.context import equal, expect, scenario
from testbed.processes import wait_for

_LEVEL = "/proc/sys/kernel/perf_event_paranoid"
_HERE = "/tmp/counters"
# Sleeps (a context switch each), touches pages (a fault each), and writes the kernel's own counts of itself.
_WORK = f"""python3 - <<'PYTHON'
import mmap, os, resource, time
for _ in range({{sleeps}}):
    time.sleep(0.0005)
area = mmap.mmap(-1, {{pages}} * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.madvise(mmap.MADV_NOHUGEPAGE)
for page in range({{pages}}):
    area[page * mmap.PAGESIZE] = 1
used = resource.getrusage(resource.RUSAGE_SELF)
with open("{_HERE}/" + os.environ["SLURM_JOB_ID"], "w") as out:
    print(used.ru_nvcsw + used.ru_nivcsw, used.ru_minflt, file=out)
PYTHON
"""
_LONG = "while :; do sleep 0.05; done"


def _unable(bed):
    return None if bed.emulated else "tests/counters.rs tests on the host's kernel"


@contextlib.contextmanager
def _counted(context, *flags):
    """An exporter with --collector.perf, and a perf_event_paranoid that lets CAP_PERFMON count other processes (Debian's default is higher)."""
    bed = context.bed
    before = bed.run(f"cat {_LEVEL}").strip()
    bed.run(f"echo 2 > {_LEVEL}; install -d -m 1777 {_HERE}")
    try:
        with context.exporter("--collector.perf", *flags):
            yield
    finally:
        bed.slurm.cancel_all()
        bed.run(f"echo {before} > {_LEVEL}; rm -rf {_HERE}")


def _check_mode(metrics, jobid, mode, reason=None):
    modes = [(labels["mode"], labels.get("reason") or None) for labels, _ in
            metrics.select("jobledger_job_counters_info", jobid=jobid)]
    equal(f"job {jobid}: how it is counted", modes, [(mode, reason)])


@scenario(beds.EACH_KERNEL, unable=_unable)
def counters(context):
    """Two jobs on one node have the counts that the kernel reports for their processes, and nothing is opened for them: counters are divided in BPF."""
    bed, slurm = context.bed, context.slurm
    with _counted(context, "--jobs.retention=1h"):
        def of_cpus(metrics):
            equal("how", [labels["method"] for labels, _ in metrics.select("jobledger_node_counters_method_info")], ["bpf"])
            return metrics.value("jobledger_exporter_counters_descriptors")

        opened = of_cpus(context.eventually(of_cpus))
        expect(opened > 0, "no counter is open")
        # Each job also has a slurmstepd and a shell, which are counted, too.
        work = {"sleeps": (1500, 100), "pages": (200, 15000)}
        requests = [(user, _WORK.format(sleeps=sleeps, pages=pages), ("--mem=300", "-n1"))
                    for user, sleeps, pages in zip(bed.users, work["sleeps"], work["pages"], strict=True)]
        jobids = slurm.submit_all(requests)
        slurm.wait_over(jobids)
        metrics = context.eventually(lambda metrics: [
            expect(metrics.value("jobledger_job_end_time_seconds", jobid=jobid), f"job {jobid} has not ended") for jobid in jobids])
        equal("open counters", of_cpus(metrics), opened)
        for jobid in jobids:
            switches, faults = (int(word) for word in bed.run(f"cat {_HERE}/{jobid}").split())
            counted = metrics.value("jobledger_job_context_switches_total", jobid=jobid)
            expect(switches <= counted <= switches + 1200, f"job {jobid}: {counted} switches, its program has {switches}")
            counted = metrics.value("jobledger_job_cpu_page_faults_total", jobid=jobid, type="minor")
            expect(faults <= counted <= faults + 12000, f"job {jobid}: {counted} faults, its program has {faults}")
            covered = metrics.value("jobledger_job_counters_coverage_ratio", jobid=jobid)
            # slurmstepd's CPU time before the job is found may be a fifth of such a short job on a busy machine.
            expect(covered > 0.7, f"job {jobid}: {covered} of its CPU time were counted")
            equal("running ratio", metrics.value("jobledger_job_counters_running_ratio", jobid=jobid, group="software"), 1)
        (absent, _), = [found for found in metrics.select("jobledger_node_counters_absent_info")
                        if found[0]["what"] == "hardware counters"]
        expect("virtual machine" in absent["reason"], f"why there are none: {absent}")


@scenario(beds.ONCE, unable=_unable)
def counters_cpus(context):
    """With counters of each cgroup a job is counted on its own CPUs. CPUs that it gets later are counted from then on, and no count is lost."""
    bed, slurm = context.bed, context.slurm
    with _counted(context, "--collector.perf.method=cgroup"):
        jobid = slurm.submit(bed.users[0], _LONG, "--mem=100", "-n1")
        slurm.wait_running(1)

        def open_on(cpus):
            def check(metrics):
                _check_mode(metrics, jobid, "cgroup")
                equal("open counters", metrics.value("jobledger_exporter_counters_descriptors"), 4 * cpus)
            return context.eventually(check)

        # Each step's slurmstepd writes the job's cpuset again before its first task and would undo an earlier change.
        task = f"{bed.scopes(bed.nodes[0])[0]}/job_{jobid}/step_batch/user/task_0/cgroup.procs"
        context.eventually(lambda _: expect(bed.run(f"cat {task} 2>/dev/null || true").strip(), "the batch step has no task"))
        before = open_on(1).value("jobledger_job_context_switches_total", jobid=jobid)
        # From the top down, as SLURM does.
        groups = f"$(find {bed.scopes(bed.nodes[0])[0]}/job_{jobid} -type d 2>/dev/null)"
        bed.run(f"for group in {groups}; do echo 0-3 > $group/cpuset.cpus || true; done")
        after = open_on(4).value("jobledger_job_context_switches_total", jobid=jobid)
        expect(after >= before, f"{after} switches after {before}")
        bed.run(f"for pid in $(cat $(find {bed.scopes(bed.nodes[0])[0]}/job_{jobid}/step_batch/user -name cgroup.procs)); "
                # The sleeps end soon; the shell that starts them is moved.
                "do taskset -pc 3 $pid || true; done")

        def goes_on(metrics):
            now = metrics.value("jobledger_job_context_switches_total", jobid=jobid)
            expect(now > after + 50, f"{now} switches, {after} when it moved")
            expect(metrics.value("jobledger_job_counters_coverage_ratio", jobid=jobid) > 0.8, "not covered")

        context.eventually(goes_on)


@scenario(beds.V1, unable=lambda bed: _unable(bed) or (None if bed.cgroup == "v1" else "v2 has a cgroup for perf of each job"))
def counters_of_cpus(context):
    """v1, where counters are not divided: jobs with exclusive CPUs are counted on these CPUs. A job that shares a CPU is not counted, with the reason."""
    bed, slurm = context.bed, context.slurm
    with _counted(context, "--collector.perf.method=cgroup"):
        jobids = [slurm.submit(user, _LONG, "--mem=100", "-n1") for user in bed.users]
        slurm.wait_running(2)

        def each_by_its_cpus(metrics):
            for jobid in jobids:
                _check_mode(metrics, jobid, "cpus")
                expect(metrics.value("jobledger_job_context_switches_total", jobid=jobid) > 20, f"job {jobid}: nothing counted")
                equal("its CPU time", metrics.select("jobledger_job_counted_cpu_seconds_total", jobid=jobid), [])
            equal("open counters", metrics.value("jobledger_exporter_counters_descriptors"), 8)

        context.eventually(each_by_its_cpus)
        third = slurm.submit(bed.users[0], _LONG, "--mem=100", "-n1")
        slurm.wait_running(3)
        # It gets the first job's CPUs as well, as with SLURM's OverSubscribe.
        cpus = ",".join(str(cpu) for cpu in sorted(slurm.cpus(jobids[0]) | slurm.cpus(third)))
        root = "/sys/fs/cgroup/cpuset"
        bed.run(f"for group in $(find {root} -type d -path '*job_{third}*'); do echo {cpus} > $group/cpuset.cpus; done")

        def the_first_shares(metrics):
            for jobid in (jobids[0], third):
                _check_mode(metrics, jobid, "none", "shared_cpus")
            _check_mode(metrics, jobids[1], "cpus")

        context.eventually(the_first_shares)
        bed.run(f"scancel {third}")
        context.eventually(each_by_its_cpus)
        slurm.cancel_all()
        wait_for("nothing to be open", lambda: bed.scrape().value("jobledger_exporter_counters_descriptors") == 0, 60)
