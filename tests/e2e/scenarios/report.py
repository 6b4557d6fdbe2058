"""Reports of `jobledger` on the host, from a Prometheus that scrapes the bed."""

import contextlib
import re

from testbed import beds
from testbed.context import close, equal, expect, scenario
from testbed.processes import wait_for
from testbed.reports import Ran

from .endings import in_seconds, knows_times
from .identity import asked_for_long, installed_snippets
from .kinds import second_node

SPIN = "end=$((SECONDS + {})); while ((SECONDS < end)); do :; done"
# What the job itself sees at its end: the kernel's count of the CPU time in its cgroup, and the time.
_SAID = "/tmp/jobledger-report-$SLURM_JOB_ID"
BEGIN = f"echo start $EPOCHREALTIME > {_SAID}"
END = """while IFS=: read -r _ controllers path; do
  v1=/sys/fs/cgroup/cpu,cpuacct${path%/step_*}/cpuacct.usage v2=/sys/fs/cgroup${path%/step_*}/cpu.stat
  if [ "$controllers" = cpu,cpuacct ] && read -r count < $v1; then echo cpu $((count / 1000)) >> SAID; fi
  if [ -z "$controllers" ] && [ -r $v2 ] && read -r _ count < $v2; then echo cpu $count >> SAID; fi
done < /proc/self/cgroup
echo end $EPOCHREALTIME >> SAID""".replace("SAID", _SAID)
# Elements of the array end once it is there.
_GO = "/tmp/jobledger-report-go"
# slurm.conf of the beds has it. It keeps what slurmctld gave it: the arguments, and the variables of the job.
_MAIL_PROGRAM = "/etc/slurm/mail"
_MAILS = "/tmp/jobledger-mails"
_KEEPS_MAILS = f"""#!/bin/bash
file=$(mktemp {_MAILS}/XXXXXXXX)
{{ printf '%s\\0' "$@"; env -0 | grep -z ^SLURM_JOB_; }} > $file
mv $file $file.mail
"""
_MAIL = ["--mail-type=BEGIN,END,FAIL", "--mail-user=alice@example.org"]
_HELD = 200 << 20
_SECONDS = 20

_JOBS = {
    # body of the script, options
    "time limit": ("sleep 600", ["--mem=60", "--time=1"]),
    "cancelled": ("sleep 600", ["--mem=60", "--time=10"]),
    "requeued": ("test \"$SLURM_RESTART_COUNT\" = 1 && exit 4; sleep 600", ["--mem=60", "--requeue"]),
    "busy": (f"{BEGIN}\n{SPIN.format(_SECONDS)}\n{END}", ["--mem=80", "--time=2-00:00:00"]),
    "memory": (f"{BEGIN}\npython3 -c 'import time; held = b\"x\" * {_HELD}; time.sleep(15)'\n{END}", ["--mem=300", "--cpus-per-task=2"]),
    "out of memory": ("tail /dev/zero; exit 0", ["--mem=60"]),
    "exit 3": ("exit 3", ["--mem=60", *_MAIL]),
    "array": (f"while [ ! -e {_GO} ]; do sleep 1; done; exit $((SLURM_ARRAY_TASK_ID - 1))", ["--mem=60", "--array=1-2", *_MAIL]),
    "two nodes": (f"srun bash -c '{SPIN.format(4)}'", ["--mem=70", "--nodes=2", "--ntasks=2"]),
}


@contextlib.contextmanager
def partition_of_both(bed):
    """The partition that has both nodes for a with block."""
    name = bed.partitions[1]
    bed.run(f"scontrol update PartitionName={name} Nodes={','.join(bed.nodes)}")
    try:
        yield name
    finally:
        bed.slurm.cancel_all()
        bed.run(f"scontrol update PartitionName={name} Nodes={bed.nodes[1]}")


@contextlib.contextmanager
def _kept_mails(bed):
    """slurmctld's mails are kept for a with block."""
    bed.run(f"mkdir -m 1777 {_MAILS}")
    bed.agent.put(_MAIL_PROGRAM, _KEEPS_MAILS.encode(), 0o755)
    try:
        yield
    finally:
        bed.run(f"rm -rf {_MAIL_PROGRAM} {_MAILS}")


def _mails(bed):
    """The mails so far: [(arguments, variables)]."""
    names = bed.run(f"find {_MAILS} -name '*.mail'").split()
    found = []
    for name in names:
        *parts, _ = bed.agent.get(name).decode().split("\0")
        found.append((parts[:3], dict(part.split("=", 1) for part in parts[3:])))
    return found


def _check_mails(bed, reports, ids):
    """slurmctld starts its MailProg as jobledger expects it, and the mail at the end of a job has the report, that of an array its page."""
    exit_3, array = ids["exit 3"], ids["array"]
    ends = ["Failed", "Ended"]
    mails = _mails(bed)
    of_job = [mail for mail in mails if f"Job_id={exit_3} " in mail[0][1]]
    of_array = [mail for mail in mails if f"Array Summary Job_id={array}_* " in mail[0][1]]
    ended = [mail for mail in of_job + of_array if mail[1]["SLURM_JOB_MAIL_TYPE"] in ends]
    equal("mails of a job and an array", ({mail[1]["SLURM_JOB_MAIL_TYPE"] for mail in of_job} >= {"Began"}, len(ended) >= 2), (True, True))
    for arguments, variables in ended:
        equal("arguments of the MailProg", (arguments[0], arguments[2]), ("-s", "alice@example.org"))
        page = reports.mail(arguments, variables)
        is_array = "Array Summary" in arguments[1]
        expected = reports.array(array) if is_array else reports.run(str(exit_3)).out
        equal(f"the mail {arguments[1]!r}", page, f"{arguments[1]}\n\n{expected}")
    began = next(mail for mail in of_job if mail[1]["SLURM_JOB_MAIL_TYPE"] == "Began")
    equal("the mail of a job that begins", reports.mail(*began), f"{began[0][1]}\n")


class _Reports:
    """What jobledger says of jobs, by the names that a user has for them."""

    def __init__(self, context, server):
        self._program, self._url = context.options.cli, f"http://{server.address}"

    def run(self, *arguments):
        # The host's sacct would be of another cluster.
        return Ran(self._program, self._url, "report", "--no-sacct", *arguments)

    def mail(self, arguments, variables):
        """The text of the mail, if slurmctld starts it so."""
        ran = Ran(self._program, self._url, "mail", "--no-sacct", "--wait=0", "--dry-run", *arguments, **variables)
        equal(f"mail {arguments}: status and errors", (ran.status, ran.err), (0, ""))
        _, text = ran.out.split("\n\n", 1)
        return text.removesuffix("\n")

    def array(self, number):
        ran = Ran(self._program, self._url, "array", "--no-sacct", str(number))
        equal(f"array {number}: status and errors", (ran.status, ran.err), (0, ""))
        return ran.out

    def json(self, job, *arguments):
        ran = self.run(job, "--format=json", *arguments)
        equal(f"job {job}: status and errors", (ran.status, ran.err), (0, ""))
        return ran.json()

    def check_page(self, job):
        """It fits on a terminal."""
        ran = self.run(job)
        equal(f"job {job}: status and errors", (ran.status, ran.err), (0, ""))
        lines = ran.out.splitlines()
        expect(len(lines) <= 50 and max(map(len, lines)) <= 80, f"job {job}: {len(lines)} lines\n{ran.out}")


def said_by(bed, jobid):
    """What the job wrote: {"start": seconds, "end": seconds, "cpu": seconds}."""
    pairs = dict(line.split() for line in bed.run(f"cat /tmp/jobledger-report-{jobid}; rm /tmp/jobledger-report-{jobid}").splitlines())
    return {"start": float(pairs["start"]), "end": float(pairs["end"]), "cpu": int(pairs["cpu"]) / 1e6}


def _check_common(kind, reported, job, has_times):
    """What slurmctld has of every job."""
    (user,) = re.match(r"(\w+)\(", job["UserId"]).groups()
    who, numbers = reported["job"]["identity"], reported["numbers"]
    equal(f"{kind}: who", (reported["job"]["id"], who["user"], who["partition"]), (int(job["JobId"]), user, job["Partition"]))
    limit = in_seconds(job["TimeLimit"]) if has_times and job["TimeLimit"] not in ("UNLIMITED", "365-00:00:00") else None
    equal(f"{kind}: time limit", reported["job"]["time_limit"], limit)
    nodes = int(job["NumNodes"])
    equal(f"{kind}: nodes", (reported["job"]["nodes_allocated"], len(reported["job"]["nodes"])), (nodes, nodes))
    equal(f"{kind}: CPUs", numbers["cpus"], int(job["NumCPUs"]))
    equal(f"{kind}: memory limit", numbers["memory_limit_bytes"], int(job["MinMemoryNode"].removesuffix("M")) << 20)


def _check_used(kind, reported, said):
    """No less than the job saw itself. More are slurmstepd, the shell's start, and what came after: seconds on an emulated machine."""
    used, elapsed = reported["job"]["nodes"][0]["values"]["cpu_seconds"], reported["numbers"]["elapsed_seconds"]
    expect(said["cpu"] <= used <= said["cpu"] + 20, f"{kind}: {used} CPU seconds, the job itself counted {said['cpu']}")
    expect(elapsed >= said["end"] - said["start"], f"{kind}: {elapsed} s, its script took {said['end'] - said['start']}")


def _check_elapsed(kind, reported, job):
    """SLURM counts from the allocation, before the prolog, to the end of the epilog's wait: it is no shorter. Its time is in whole seconds.
    A job that slurmctld ends has ended for it when it says so; the job's processes end up to KillWait (30 s) later, and slurmd takes its time."""
    elapsed, slurms = reported["numbers"]["elapsed_seconds"], in_seconds(job["RunTime"])
    expect(elapsed <= slurms + (60 if kind in ("time limit", "cancelled") else 2), f"{kind}: {elapsed} s, {slurms} s by slurmctld")


def _ended(reported):
    ended = reported["job"]["ended"]
    return ended and (ended["state"], ended["origin"], ended["exit_code"], ended["signal"])


def _advice(reported):
    return {advice["piece"] for advice in reported["advice"]}


def _elements(context, server, array):
    """The elements of an array by their index, once the exporter knows them: a busy slurmctld answers the prolog late. They end then."""
    def known():
        found = {job["ArrayTaskId"]: jobid for jobid, job in context.slurm.jobs().items() if job.get("ArrayJobId") == str(array)}
        # Before they start several are one, such as 1-2.
        series = server.query(f'group by (array_task_id) (jobledger_job_info{{array_job_id="{array}"}})')
        return found if set(found) == {"1", "2"} == {labels["array_task_id"] for labels, _ in series} else None

    elements = wait_for("the array's elements to be known", known, interval=1)
    context.bed.run(f"touch {_GO}")
    return elements


def started(context, server, jobs, *more):
    """Submits jobs: {kind: (body, options)}; returns {kind: id}. Those that are called "cancelled" and "requeued" are, once they were scraped."""
    bed, slurm, user = context.bed, context.slurm, context.bed.users[0]
    ids = dict(zip(jobs, slurm.submit_all([(user, body, [*more, *options]) for body, options in jobs.values()])))
    for kind in ("cancelled", "requeued"):
        slurm.wait_running(1, JobId=str(ids[kind]))
    seen = f'count(jobledger_job_cpus{{jobid=~"{ids["cancelled"]}|{ids["requeued"]}"}}) == 2'
    wait_for("both to be scraped", lambda: server.query(seen))
    bed.run(f"scancel {ids['cancelled']}; scontrol requeue {ids['requeued']}")
    wait_for("the job to wait again", lambda: slurm.job(ids["requeued"])["JobState"] == "PENDING", 120)
    bed.run(f"scontrol update jobid={ids['requeued']} StartTime=now+3")
    return ids


def _unable(bed):
    return None if bed.emulated else "the prolog's settings would be the machine's own"


@scenario(beds.NEWEST, unable=_unable, seconds=170)
def report(context):
    """Reports of jobs that ended in every way have what slurmctld and the jobs' own cgroups have."""
    bed, slurm = context.bed, context.slurm
    has_times = knows_times(bed)
    bed.run(f"rm -f {_GO}")
    with installed_snippets(bed), asked_for_long(bed), second_node(bed), partition_of_both(bed) as partition, _kept_mails(bed), context.exporter(), \
            context.prometheus(interval=5) as server:
        ids = started(context, server, _JOBS, f"--partition={partition}")
        elements = _elements(context, server, ids["array"])
        jobs = slurm.wait_over({*ids.values(), *elements.values()})
        said = {kind: said_by(bed, ids[kind]) for kind in ("busy", "memory")}
        reports = _Reports(context, server)
        names = {kind: str(jobid) for kind, jobid in ids.items() if kind != "array"}
        names |= {f"element {task}": f"{ids['array']}_{task}" for task in elements}

        def all_right():
            found = {kind: reports.json(name) for kind, name in names.items()}
            for kind, reported in found.items():
                _check_common(kind, reported, jobs[reported["job"]["id"]], has_times)
                _check_elapsed(kind, reported, jobs[reported["job"]["id"]])
            equal("ends", {kind: _ended(reported) for kind, reported in found.items()}, {
                "time limit": ("TIMEOUT", "derived", 0, None) if has_times else None,
                "cancelled": None,
                "requeued": ("FAILED", "derived", 4, None),
                "busy": None,
                "memory": None,
                "out of memory": ("OUT_OF_MEMORY", "derived", None, 125),
                "exit 3": ("FAILED", "derived", 3, None),
                "element 1": None,
                "element 2": ("FAILED", "derived", 1, None),
                "two nodes": None,
            })
            for kind, itself in said.items():
                _check_used(kind, found[kind], itself)
            expect("oom_killed" in _advice(found["out of memory"]), f"advice after a kill: {_advice(found['out of memory'])}")
            equal("advice at the time limit", "timed_out" in _advice(found["time limit"]), has_times)
            first = reports.json(names["requeued"], "--run=1")
            equal("the first run", (first["job"]["run"], first["job"]["runs"], _ended(first)), (1, 2, None))
            expect(first["job"]["until"] < found["requeued"]["job"]["start"], "the second run is after the first")
            peak = found["memory"]["numbers"]["memory_peak_bytes"]
            expect(_HELD <= peak < _HELD + (20 << 20), f"a job that held {_HELD} bytes has a peak of {peak}")
            return True

        wait_for("the reports to be right", all_right, interval=2)
        for name in names.values():
            reports.check_page(name)
        wait_for("the mails to be right", lambda: _check_mails(bed, reports, ids) or True, interval=2)
