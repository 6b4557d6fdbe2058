"""Reports beside SLURM's accounting: a real slurmdbd, sacct and AdminComment."""

import base64
import collections
import contextlib
import gzip
import json
import subprocess

from testbed import accounting, beds, cache
from testbed.context import close, equal, expect, scenario
from testbed.processes import scratch, wait_for
from testbed.reports import Ran

from .endings import knows_times
from .kinds import second_node
from .report import SPIN, partition_of_both, started

_SCRIPTS = cache.REPOSITORY / "slurm/slurmctld"
_INSTALLED = "/usr/share/jobledger/slurmctld/jobledger-admincomment.sh"
_SERVICE = "jobledger-spool.service"
_SETTINGS = "/etc/default/jobledger-slurm"
ACCOUNT = "physics"
_SECONDS = 6
# CPU seconds of a task before it is in its cgroup, at most, on an emulated machine.
_FORKED = 0.4

_JOBS = {
    # body of the script, options
    "time limit": ("sleep 600", ["--time=1"]),
    "cancelled": ("sleep 600", ["--time=10"]),
    "requeued": ("test \"$SLURM_RESTART_COUNT\" = 1 && exit 4; sleep 600", ["--requeue", "--time=10"]),
    "steps": (f"srun bash -c '{SPIN.format(_SECONDS)}'; srun bash -c '{SPIN.format(_SECONDS)}'; {SPIN.format(2)}; sleep 40", ["--time=1-00:00:00", "--job-name=two; steps"]),
    "out of memory": ("tail /dev/zero; exit 0", ["--time=10"]),
    "exit 3": ("exit 3", ["--time=10"]),
    "array": ("exit $((SLURM_ARRAY_TASK_ID - 1))", ["--array=1-2", "--time=10"]),
}
# CPU seconds of the task on each of two nodes, and what Python needs to end.
_UNEVEN, _ENDING = (3, 9), 1
_ON_BOTH = (f"""srun python3 -c 'import os, time
while time.process_time() < {_UNEVEN}[int(os.environ["SLURM_NODEID"])]: pass'""", ["--nodes=2", "--ntasks=2", "--time=10"])
_STATES = {
    "time limit": "TIMEOUT",
    "cancelled": "CANCELLED",
    "requeued": "FAILED",
    "steps": "COMPLETED",
    "out of memory": "OUT_OF_MEMORY",
    "exit 3": "FAILED",
    "element 1": "COMPLETED",
    "element 2": "FAILED",
    "two nodes": "COMPLETED",
}
_OF_JOBS = ("jobid", "jobidraw", "state", "exitcode", "submit", "eligible", "start", "end", "elapsedraw", "timelimitraw", "nnodes", "alloccpus",
            "user", "account", "partition", "qos", "usercpu", "systemcpu", "admincomment", "jobname")
_OF_STEPS = ("jobid", "nodelist", "ntasks", "usercpu", "systemcpu", "tresusageinmax", "tresusageinmaxnode")


def no_accounting(bed):
    return None if bed.emulated else "its slurmctld has no accounting"


def seconds_of(clock):
    """Of sacct's [D-][HH:]MM:SS[.mmm]."""
    days, _, clock = clock.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return int(days or 0) * 86_400 + seconds


def _cpu_seconds(row):
    """What a step used, by sacct."""
    return seconds_of(row["usercpu"]) + seconds_of(row["systemcpu"])


def _check_job(kind, reported, row):
    """What the accounting has of a run."""
    job, ended = reported["job"], reported["job"]["ended"]
    expect(ended, f"{kind}: {row['state']} by sacct, no end in the report")
    expect(not any(node["running"] for node in job["nodes"]), f"{kind}: its cgroups are there")
    code, signal = map(int, row["exitcode"].split(":"))
    equal(f"{kind}: state", row["state"].split()[0], _STATES[kind])
    equal(f"{kind}: end", (ended["state"], ended["origin"], ended["exit_code"], ended["signal"] or 0), (_STATES[kind], "accounting", code, signal))
    equal(f"{kind}: time limit", job["time_limit"], int(row["timelimitraw"]) * 60)
    equal(f"{kind}: nodes", (job["nodes_allocated"], reported["numbers"]["cpus"]), (int(row["nnodes"]), int(row["alloccpus"])))
    who = job["identity"]
    equal(f"{kind}: who", [who[key] for key in ("user", "account", "partition", "name")],
          [row[key] for key in ("user", "account", "partition", "jobname")])
    equal(f"{kind}: account", row["account"], ACCOUNT)
    waited = int(row["start"]) - max(int(row["submit"]), int(row["eligible"]))
    equal(f"{kind}: time in the queue", job["queued_seconds"], max(waited, 0))
    # SLURM counts from the allocation, before the prolog, to the message that the job is done, after which slurmstepd removes its cgroup.
    elapsed = reported["numbers"]["elapsed_seconds"]
    expect(elapsed <= int(row["elapsedraw"]) + 20, f"{kind}: {elapsed} s, {row['elapsedraw']} s by sacct")


def _check_seff(seff, reported, row, of_job):
    """The words and formulas of seff, from sacct's numbers. It has no CPU time of slurmstepd."""
    lines = dict(line.split(": ", 1) for line in seff.splitlines())
    equal("seff: job, state", (lines["Job ID"], lines["State"]), (row["jobid"], "COMPLETED (exit code 0)"))
    equal("seff: cores", lines["Cores"], row["alloccpus"])
    (node,) = reported["job"]["nodes"]
    used, held = node["values"]["cpu_seconds"], node["values"]["cpu_allocated_seconds"]
    printed = float(lines["CPU Efficiency"].split("%")[0])
    close("seff: efficiency", printed, 100 * used / held, 0.011)
    of_tasks, elapsed = _tasks(reported)[node["name"]].total(), int(row["elapsedraw"])
    close("CPU seconds, and of the job's cgroup", used, of_job, 0.01)
    expect(of_tasks < used, f"{used} CPU seconds, {of_tasks} of tasks")
    close("CPU time held, and by sacct", held, elapsed * int(row["alloccpus"]), 20 * int(row["alloccpus"]))


def _job(server, jobid):
    """CPU seconds of the job, user and system."""
    return server.value(f'sum(max_over_time(jobledger_job_cpu_seconds_total{{jobid="{jobid}"}}[1h]))')


def _tasks(reported):
    """CPU seconds of tasks on each node by step: {node: {step: seconds}}."""
    found = {}
    for node in reported["job"]["nodes"]:
        found[node["name"]] = collections.Counter()
        for part in node["parts"]:
            if part["task"] is not None:
                found[node["name"]][part["step"]] += part["values"]["cpu_seconds"]
    return found


def check_steps(kind, reported, rows, forked=_FORKED):
    """Tasks used what sacct says of their steps, less `forked` CPU seconds of each task."""
    tasks = sum(_tasks(reported).values(), collections.Counter())
    by_step = {row["jobid"].partition(".")[2]: row for row in rows if "." in row["jobid"]}
    # Where there is one: sacct counts a part of slurmstepd in it, and it has no task after 24.11.
    by_step.pop("extern", None)
    equal(f"{kind}: steps", set(tasks) - {"extern"}, set(by_step))
    for step, row in by_step.items():
        used, by_sacct = tasks[step], _cpu_seconds(row)
        accuracy = 0.01 * by_sacct + 0.05
        # sacct has what slurmstepd gets from wait3(2) (mgr.c): from the fork on, before the task enters its cgroup.
        expect(-accuracy <= by_sacct - used <= forked * int(row["ntasks"]) + accuracy, f"{kind}, step {step}: {used} CPU seconds of tasks, {by_sacct} by sacct")


def _check_two_nodes(reported, rows, of_job, has_most):
    """Each node has what its task used, and the report their sum."""
    nodes, tasks = reported["job"]["nodes"], _tasks(reported)
    (step,) = [row for row in rows if row["jobid"].endswith(".0")]
    equal("two nodes", ([node["name"] for node in nodes], rows[0]["nodelist"], step["ntasks"]), (["node1", "node2"], "node[1-2]", "2"))
    for name, known in zip(tasks, _UNEVEN):
        used = tasks[name]["0"]
        expect(known - _FORKED <= used <= known + _ENDING, f"{name}: {used} CPU seconds, its task used {known}")
    # 22.05 has the other node and its time there. The sums are right.
    if has_most:
        most, where = (dict(each.split("=") for each in step[field].split(","))["cpu"] for field in ("tresusageinmax", "tresusageinmaxnode"))
        equal("two nodes: which used more, by sacct", where, "node2")
        # In whole seconds.
        close("two nodes: the most, and by sacct", tasks["node2"]["0"], seconds_of(most), 1 + _FORKED)
    used, held = (sum(node["values"][value] for node in nodes) for value in ("cpu_seconds", "cpu_allocated_seconds"))
    close("two nodes: CPU seconds, and of the job's cgroups", used, of_job, 0.01)
    close("two nodes: CPU efficiency", reported["numbers"]["cpu_efficiency"], used / held, 1e-6)


def keeps_case(bed):
    """Whether sacctmgr stores AdminComment as it is given: from 23.02 on."""
    return knows_times(bed)


@contextlib.contextmanager
def _installed(context, server):
    """The program, the epilog and the service that does its work on slurmctld's machine, for a with block."""
    bed = context.bed
    with scratch("jobledger-stripped") as directory:
        subprocess.run(["strip", "-o", directory / "jobledger", context.options.cli], check=True)
        bed.agent.put("/usr/bin/jobledger", (directory / "jobledger").read_bytes(), 0o755)
    directory = _INSTALLED.rpartition("/")[0]
    for name in ("admincomment", "spool"):
        bed.agent.put(f"{directory}/jobledger-{name}.sh", (_SCRIPTS / f"jobledger-{name}.sh").read_bytes(), 0o755)
    address, port = bed.forward("prometheus", int(server.address.rpartition(":")[2]))
    bed.agent.put(_SETTINGS, f"export JOBLEDGER_URL=http://{address}:{port}\n".encode())
    # slurmctld's own, if slurm.conf names none.
    user = bed.run("sed -n 's/^SlurmUser=//p' /etc/slurm/slurm.conf").strip() or "root"
    unit = (cache.REPOSITORY / "packaging/systemd/spool" / _SERVICE).read_text().replace("User=slurm\n", f"User={user}\n")
    bed.agent.put(f"/run/systemd/system/{_SERVICE}", unit.encode())
    bed.run(f"systemctl daemon-reload && systemctl start {_SERVICE}")
    try:
        yield
    finally:
        bed.run(f"systemctl stop {_SERVICE}; rm -rf /run/systemd/system/{_SERVICE} /var/lib/jobledger-spool /usr/bin/jobledger {directory} {_SETTINGS}; systemctl daemon-reload")


@scenario(beds.NEWEST, unable=no_accounting, seconds=220)
def accounts(context):
    """Reports have what sacct has of jobs that ended in every way, tasks used what sacct says, and AdminComment has each job's summary."""
    bed, slurm = context.bed, context.slurm
    with context.exporter("--jobs.steps", "--jobs.tasks"), context.prometheus(interval=5) as server, _installed(context, server), accounting.start(
            bed, {ACCOUNT: [bed.users[0].name]}, f"EpilogSlurmctld={_INSTALLED}") as database, second_node(bed), partition_of_both(bed) as partition:
        body, options = _ON_BOTH
        ids = started(context, server, _JOBS | {"two nodes": (body, [*options, f"--partition={partition}"])}, "--mem=60")
        slurm.wait_over(ids.values())
        names = {kind: str(jobid) for kind, jobid in ids.items() if kind != "array"}
        names |= {f"element {task}": f"{ids['array']}_{task}" for task in (1, 2)}
        _check_all(context, server, database, names)


def _check_coordinators(database, user):
    """What `jobledger digest` asks for (cli/src/digest/coordinators.rs) is answered as it reads it."""
    answer = database.command("sacctmgr", "--readonly", "--noheader", "--parsable2", "show", "account", "withcoord", "format=account,coordinators")
    equal("coordinators", sorted(answer.splitlines()), [f"{ACCOUNT}|{user}", "root|"])


def _check_all(context, server, database, names):
    def report(name, *arguments):
        ran = Ran(context.options.cli, f"http://{server.address}", "report", name, *arguments, **database.environment)
        equal(f"job {name}: status and errors", (ran.status, ran.err), (0, ""))
        return ran

    def row(name):
        """That of the last run."""
        jobs = [row for row in database.sacct(name, *_OF_JOBS) if row["jobid"] == name]
        expect(jobs, f"sacct has no job {name}")
        return max(jobs, key=lambda job: int(job["start"]))

    def all_right():
        for kind, name in names.items():
            _check_job(kind, report(name, "--format=json").json(), row(name))
        return True

    wait_for("the reports to be right", all_right, interval=2)

    reports, rows = {}, {}
    for kind in ("steps", "two nodes"):
        reports[kind], rows[kind] = report(names[kind], "--format=json").json(), database.sacct(names[kind], *_OF_STEPS)
        check_steps(kind, reports[kind], rows[kind])
    steps, two_nodes = names["steps"], names["two nodes"]
    _check_seff(report(steps, "--format=seff").out, reports["steps"], row(steps), _job(server, steps))
    _check_two_nodes(reports["two nodes"], rows["two nodes"], _job(server, two_nodes), knows_times(context.bed))

    _check_coordinators(database, context.bed.users[0].name)
    log = "journalctl --no-pager --output=cat -t jobledger-admincomment"
    if not keeps_case(context.bed):
        says = f"jobledger: AdminComment needs SLURM 23.02, this is {context.bed.run('sacctmgr --version').strip()}"

        def refused():
            equal("refusals that are logged", context.bed.run(log).splitlines(), [says] * (len(names) + 1))
            return True

        wait_for("the refusals to be logged", refused, interval=2)
        equal("AdminComment", {row(name)["admincomment"] for name in names.values()}, {""})
        return

    def stored():
        for kind, name in names.items():
            blob = row(name)["admincomment"]
            expect(blob.startswith("JS1:"), f"{kind}: AdminComment {blob[:80]!r}\n{context.bed.run(f'{log}; journalctl --no-pager --output=cat -u {_SERVICE}')}")
        return True

    wait_for("the summaries to be stored", stored, interval=2)
    content = row(steps)["admincomment"].removeprefix("JS1:")
    equal("the summary", json.loads(gzip.decompress(base64.b64decode(content))), report(steps, "--format=jobstats-json").json())
