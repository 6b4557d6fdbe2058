"""Runs that are no plain ones beside slurmdbd: suspended, requeued, with pauses between steps, of numbers that come again, of two clusters.

What SLURM 22.05 and 24.11 do:

- A suspended job keeps its control groups; those named `user` of its steps are frozen, the job's own is not. Nothing of the exporter says that it is
  suspended: its CPU time stands still, and what it holds goes on. squeue's state is SUSPENDED, and its %M has the time before, as has sacct's
  ElapsedRaw. sacct's Suspended grows meanwhile, as [D-]HH:MM:SS; at the end ElapsedRaw is End - Start - Suspended.
- After a requeue sacct --duplicates has a row for each run. The next run's Submit is the time of the requeue. The first run's state is REQUEUED, and
  with 24.11 its Eligible is after its End.
- A number is free again as soon as slurmctld forgot its job. Without --duplicates sacct has the newest alone. Restarts and SLUID are fields of 24.11,
  not of 22.05, which refuses them. FirstJobId=900 and MaxJobId=901 leave one number.
- Without --clusters sacct has the cluster of slurm.conf. Of a cluster that slurmdbd does not know it has no rows, and its exit status is 0. squeue fails.
  Without slurmdbd sacct and everything with --clusters fail, also for the own cluster.
- An allocation without a shell has its control group all the time if there is PrologFlags=Contain. Without it the group is there while a step runs: the
  exporter has an end after each step, the next one begins with a new start and counts from zero, and restarts are 0 in all.
"""

import contextlib
import datetime
import re
import time

from testbed import accounting, beds, cluster
from testbed.context import close, equal, expect, scenario
from testbed.processes import scratch, wait_for
from testbed.reports import Ran

from .accounting import ACCOUNT, check_steps, no_accounting, seconds_of
from .identity import asked_for_long, installed_snippets

# Uses so many seconds of CPU time.
_USE = "python3 -c 'import time\nwhile time.process_time() < {}: pass'"
_FIELDS = ("jobid", "state", "exitcode", "start", "end", "elapsedraw", "suspended", "timelimitraw", "nnodes", "alloccpus", "user", "account", "usercpu", "systemcpu", "ntasks")
# The exporter sees a job from its first control group, after the prolog, to the removal of the last one: seconds later on an emulated machine.
_LATE = 40
# Seconds by which a run may differ that SLURM and the exporter saw alike: clocks, and SLURM's whole seconds.
_CLOCKS = 6
# Seconds for which jobs are suspended: more than a run may seem to be longer.
_SUSPENDED = 75
# CPU seconds of a task before it is in its cgroup, at most, on a machine with several busy jobs.
_FORKED = 1.5
_MAIL = '[mail]\ndomain = "example.org"\n'
_OF_ENDED = """[[policy]]
name = "cores-idle"
says = "Cores were idle."
change = "Ask for fewer."
measure = "core_hours"
jobs = { cpu_use = "< 30 %" }
owner = { jobs = ">= 1" }
"""
# What may make a total inexact.
_REASONS = {"end_not_seen", "nodes_not_seen", "scrapes_missing", "counter_reset", "more_nodes_than_allocated", "held_less_than_elapsed", "cpus_changed",
            "accounting_disagrees", "suspended_unknown", "start_not_seen"}


class _Cli:
    """The program on this machine, beside slurmdbd."""

    def __init__(self, context, server, database, *options):
        self._program, self._url, self._environment, self._options = context.options.cli, f"http://{server.address}", database.environment, options

    def run(self, *arguments):
        ran = Ran(self._program, self._url, *self._options, *arguments, **self._environment)
        equal(f"{' '.join(arguments)}: status and errors", (ran.status, ran.err), (0, ""))
        return ran

    def json(self, *arguments):
        return self.run(*arguments, "--format=json").json()


def _runs(database, job, of=None):
    """What sacct has of each run of a number, in order: [(its row, those of its steps)]."""
    found = []
    for row in database.sacct(job, *_FIELDS, cluster=of):
        if "." in row["jobid"]:
            found[-1][1].append(row)
        else:
            found.append((row, []))
    return sorted(found, key=lambda run: int(run[0]["start"]))


def _check_quality(what, reported):
    """Exact is what no reason speaks against."""
    quality = reported["quality"]
    reasons = {reason["reason"] for reason in quality["reasons"]}
    equal(f"{what}: exact with {reasons}", quality["exact"], not reasons and not quality["unchecked"])
    expect(reasons <= _REASONS and all(reason["says"] for reason in quality["reasons"]), f"{what}: {quality}")
    return reasons


def _check_run(what, reported, row, steps):
    """A run is what sacct has of it: whose, how it ended, how long it ran and was suspended, and what its tasks used."""
    job, numbers, ended = reported["job"], reported["numbers"], reported["job"]["ended"]
    expect(ended, f"{what}: {row['state']} by sacct, no end in the report")
    code, signal = map(int, row["exitcode"].split(":"))
    equal(f"{what}: end", (ended["state"], ended["exit_code"], ended["signal"] or 0), (row["state"].split()[0], code, signal))
    equal(f"{what}: who", (job["identity"]["user"], job["identity"]["account"]), (row["user"], row["account"]))
    equal(f"{what}: time limit", job["time_limit"], int(row["timelimitraw"]) * 60)
    equal(f"{what}: nodes and CPUs", (job["nodes_allocated"], len(job["nodes"]), numbers["cpus"]), (int(row["nnodes"]),) * 2 + (int(row["alloccpus"]),))
    close(f"{what}: start", job["start"], int(row["start"]), _LATE)
    close(f"{what}: suspended", job["suspended_seconds"], seconds_of(row["suspended"]), 0)
    elapsed = int(row["elapsedraw"])
    close(f"{what}: elapsed", numbers["elapsed_seconds"], elapsed, _CLOCKS)
    check_steps(what, reported, steps, _FORKED)
    reasons = _check_quality(what, reported)
    used = sum(node["values"]["cpu_seconds"] for node in job["nodes"])
    least, most = (min(used / max(elapsed + late, 1) / numbers["cpus"], 1) for late in (_LATE, -_LATE))
    expect(numbers["cpu_efficiency"] <= 1 and ("held_less_than_elapsed" in reasons or least <= numbers["cpu_efficiency"] <= most),
           f"{what}: CPU efficiency {numbers['cpu_efficiency']}, {used} s used in {elapsed} s, {reasons}")


def _clock(text):
    """Of seff's [D-]HH:MM:SS."""
    return seconds_of(re.match(r"[\d:-]+", text)[0])


def _check_seff(what, seff, reported, row):
    """The words of seff, with the elapsed time that SLURM counts."""
    lines = dict(line.split(": ", 1) for line in seff.splitlines() if ": " in line)
    close(f"{what}: seff's wall-clock time", _clock(lines["Job Wall-clock time"]), reported["numbers"]["elapsed_seconds"], 1)
    close(f"{what}: seff's efficiency", float(lines["CPU Efficiency"].split("%")[0]), 100 * reported["numbers"]["cpu_efficiency"], 0.01)
    expect(row["state"].split()[0] in lines["State"], f"{what}: {lines['State']} in seff")


def _used(server, job):
    """CPU seconds of a job so far."""
    return server.value(f'sum(jobledger_job_cpu_seconds_total{{jobid="{job}"}})')


def _allocated(bed, user):
    """The number of an allocation without a shell."""
    said = bed.run(f"cd /; {bed.slurm.as_user(user)} salloc --no-shell --ntasks=1 --mem=60 --time=10 2>&1")
    return int(re.search(r"Granted job allocation (\d+)", said)[1])


def _step(bed, user, job, seconds):
    """A step of an allocation that uses so many seconds of CPU time."""
    bed.run(f"cd /; {bed.slurm.as_user(user)} srun --jobid={job} --ntasks=1 --mem=50 {_USE.format(seconds)}")


def _pause(server, seconds):
    """So long as the exporter sees it: until the scrapes of so many seconds were made."""
    since = time.time()
    wait_for("a pause between steps", lambda: server.value("min(timestamp(up))") > since + seconds)


def _suspend(context, server, ids):
    """Two jobs are suspended, one is requeued, and one has two steps with a pause between. Returns the allocation with the steps."""
    bed, slurm, user = context.bed, context.slurm, context.bed.users[0]
    for kind in ("suspended", "requeued"):
        wait_for(f"the job that is {kind} to work", lambda kind=kind: _used(server, ids[kind]) > 5)
    bed.run(f"scontrol suspend {ids['suspended']},{ids['waits']}; scontrol requeue {ids['requeued']}")
    wait_for("the job to wait again", lambda: slurm.job(ids["requeued"])["JobState"] == "PENDING", 180)
    bed.run(f"scontrol update jobid={ids['requeued']} StartTime=now+1")
    allocation = _allocated(bed, user)
    _step(bed, user, allocation, 4)
    _pause(server, 15)
    _step(bed, user, allocation, 3)
    bed.run(f"scancel {allocation}")
    return allocation


# Numbers of jobs that are no other numbers of a mail.
_LONG_NUMBERS = "FirstJobId=70001"
# The job that is suspended works until this is there.
_GO = "/tmp/jobledger-runs-go"
_JOBS = {
    # body of the script, options
    "suspended": (f"while [ ! -e {_GO} ]; do :; done", []),
    "waits": ("sleep 600", []),
    "idle": ("sleep 600", []),
    "requeued": (f'if [ "$SLURM_RESTART_COUNT" = 1 ]; then {_USE.format(4)}; else {_USE.format(5)}; sleep 600; fi', ["--requeue"]),
}


@scenario(beds.NEWEST, unable=no_accounting, by_name=True, seconds=230)
def interrupted_runs(context):
    """Jobs that are suspended and resumed, requeued, and allocations with pauses between steps are what slurmdbd has of them, in reports, seff, lists,
    waste and digests."""
    bed, slurm = context.bed, context.slurm
    user = bed.users[0]
    with contextlib.ExitStack() as held:
        for part in (installed_snippets(bed), asked_for_long(bed), context.exporter("--jobs.steps", "--jobs.tasks", "--jobs.retention=1h")):
            held.enter_context(part)
        server = held.enter_context(context.prometheus(interval=5, rules=True))
        held.callback(bed.run, f"rm -f {_GO}")
        database = held.enter_context(accounting.start(bed, {ACCOUNT: [user.name]}, _LONG_NUMBERS))
        ids = dict(zip(_JOBS, slurm.submit_all([(user, body, ["--mem=60", "--time=10", *options]) for body, options in _JOBS.values()])))
        slurm.wait_running(len(_JOBS))
        ids["pauses"] = _suspend(context, server, ids)

        def suspended():
            rows = [database.sacct(ids[kind], "state", "suspended")[0] for kind in ("suspended", "waits")]
            equal("states by sacct", [row["state"] for row in rows], ["SUSPENDED"] * 2)
            return all(seconds_of(row["suspended"]) >= _SUSPENDED for row in rows)

        wait_for("jobs to be suspended for a while", suspended, interval=2)
        bed.run(f"scontrol resume {ids['suspended']},{ids['waits']}; touch {_GO}")
        slurm.wait_over([ids["suspended"], ids["requeued"]])
        bed.run(f"scancel {ids['waits']} {ids['idle']}")
        slurm.wait_over(ids.values())
        _check_interrupted(_Cli(context, server, database), database, ids, user)


def _shown(job, of):
    """What a list and a report have of a run."""
    return job, of["numbers"]["elapsed_seconds"], of["numbers"]["cpu_efficiency"]


def _check_interrupted(cli, database, ids, user):
    runs = {kind: _runs(database, job) for kind, job in ids.items()}
    equal("runs by sacct", {kind: len(found) for kind, found in runs.items()}, {kind: 1 + (kind == "requeued") for kind in ids})
    reports = {}

    def all_right():
        for kind, job in ids.items():
            for number, (row, steps) in enumerate(runs[kind], 1):
                which = (str(job), f"--run={number}")
                reported = reports[kind, number] = cli.json("report", *which)
                equal(f"{kind}: runs", (reported["job"]["run"], reported["job"]["runs"]), (number, len(runs[kind])))
                _check_run(f"{kind}, run {number}", reported, row, steps)
                _check_seff(f"{kind}, run {number}", cli.run("report", *which, "--format=seff").out, reported, row)
        return True

    wait_for("the reports to be right", all_right, interval=2)
    listed = [_shown(row["job"], row) for row in cli.json("list", f"--user={user.name}")]
    for kind, job in ids.items():
        last = _shown(job, reports[kind, len(runs[kind])])
        expect(last in listed, f"{kind}: {last} is not in the list {listed}")
    wait_for("waste to be right", lambda: _check_waste(cli, [run for found in runs.values() for run in found], user) or True, interval=2)
    _check_digest(cli, reports, ids, user)


def _check_waste(cli, runs, user, *options):
    """A user's runs held what sacct says: each may be seen late, and those without control groups between steps held what their steps did."""
    (waste,) = [found for found in cli.json("waste", "--by=user", *options) if found["name"] == user.name]
    equal(f"{user.name}: runs in waste", waste["jobs"], len(runs))
    least = most = 0
    for row, steps in runs:
        whole, cpus = int(row["elapsedraw"]), int(row["alloccpus"])
        always = any(step["jobid"].endswith((".batch", ".extern")) for step in steps)
        least += cpus * (whole if always else sum(int(step["elapsedraw"]) for step in steps)) - _LATE
        most += cpus * whole + _LATE
    held, used = waste["held_cpu_hours"] * 3600, waste["used_cpu_hours"] * 3600
    expect(least <= held <= most and used <= held, f"{user.name}: {used} of {held} CPU seconds used by waste, {least} to {most} held by sacct")


def _check_digest(cli, reports, ids, user):
    """Of what is exact a digest has the idle ones: a job that worked whenever it was not suspended is none of them."""
    with scratch("jobledger-digest") as directory:
        (directory / "digest.toml").write_text(f'history = "{directory}/history"\n{_OF_ENDED}')
        (directory / "jobledger.toml").write_text(_MAIL)
        mail = cli.run("digest", f"--config={directory}/jobledger.toml", f"--policies={directory}/digest.toml", "--dry-run", f"--only={user.name}").out
    idle = {run: reported for run, reported in reports.items() if reported["numbers"]["cpu_efficiency"] < 0.3}
    expect(("idle", 1) in idle and ("suspended", 1) not in idle, f"idle are {list(idle)}")
    equal("jobs in the digest", {kind for kind, job in ids.items() if re.search(rf"\b{job}\b", mail)},
          {kind for (kind, _), reported in idle.items() if reported["quality"]["exact"]})


# One number for all jobs of a cluster. It is free again two seconds after its job.
_NUMBER = 900
_ONE_NUMBER = (f"FirstJobId={_NUMBER}", f"MaxJobId={_NUMBER + 1}", "MinJobAge=2", "PrologFlags=Alloc")
# Clusters as Prometheus names them, and as SLURM does.
_CLUSTERS = {"first": "test", "second": "other"}
_RELABEL = [{"source_labels": ["slurm_node"], "regex": "node2", "target_label": "cluster", "replacement": "second"}]


@contextlib.contextmanager
def _reads_its_settings(bed):
    """slurmd reads slurm.conf again, now and after a with block."""
    def again():
        bed.stop_slurmd(bed.nodes[0])
        bed.start_slurmd(bed.nodes[0])
        bed.wait_up(bed.nodes[0])

    again()
    try:
        yield
    finally:
        again()


def _forgotten(slurm, job):
    """Waits until slurmctld knows nothing of a job."""
    wait_for("slurmctld to forget a job", lambda: job not in slurm.jobs(), 300, interval=1)


@scenario(beds.ONCE, unable=no_accounting, by_name=True, seconds=230)
def numbers_again(context):
    """One number is a job of a user, of another one, then an allocation whose steps have pauses without any control group, and in a second cluster a job
    at the same time: reports, seff, lists and waste keep all apart, each as slurmdbd has it."""
    bed, slurm = context.bed, context.slurm
    alice, bob = bed.users
    with contextlib.ExitStack() as held:
        held.enter_context(context.exporter("--jobs.steps", "--jobs.tasks", "--jobs.retention=1h"))
        server = held.enter_context(context.prometheus(interval=3, rules=True, labels={"cluster": "first"}, relabel=_RELABEL))
        database = held.enter_context(accounting.start(bed, {ACCOUNT: [alice.name, bob.name]}, *_ONE_NUMBER, clusters=("other",)))
        held.enter_context(_reads_its_settings(bed))
        others = held.enter_context(cluster.second(bed, "other"))
        for who, seconds in ((alice, 5), (bob, 8)):
            equal("a job's number", slurm.submit(who, _USE.format(seconds), "--mem=60", "--time=10"), _NUMBER)
            _forgotten(slurm, _NUMBER)
        equal("the allocation's number", _allocated(bed, alice), _NUMBER)
        equal("a number in the other cluster", others.submit(bob, _USE.format(10), "--mem=60", "--time=10"), _NUMBER)
        _step(bed, alice, _NUMBER, 4)
        _pause(server, 12)
        _step(bed, alice, _NUMBER, 6)
        bed.run(f"scancel {_NUMBER}")
        _forgotten(slurm, _NUMBER)
        _forgotten(others, _NUMBER)
        with scratch("jobledger-clusters") as directory:
            config = directory / "jobledger.toml"
            config.write_text(f"[slurm]\nclusters = {{ first = \"test\", second = \"other\" }}\n")
            _check_numbers(_Cli(context, server, database, f"--config={config}"), database, (alice, bob))


def _moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def _check_numbers(cli, database, users):
    runs = {of: _runs(database, _NUMBER, of=name) for of, name in _CLUSTERS.items()}
    alice, bob = (user.name for user in users)
    equal("owners by sacct", {of: [row["user"] for row, _ in found] for of, found in runs.items()}, {"first": [alice, bob, alice], "second": [bob]})

    def all_right():
        for of, found in runs.items():
            for at, (row, steps) in enumerate(found):
                # The next job of the number is later.
                until = [f"--until={_moment(int(later['start']) - 1)}" for later, _ in found[at + 1:at + 2]]
                what, which = f"{of}, job {at + 1}", (str(_NUMBER), f"--cluster={of}", *until)
                reported = cli.json("report", *which)
                equal(f"{what}: runs", (reported["job"]["cluster"], reported["job"]["run"], reported["job"]["runs"]), (of, 1, 1))
                _check_run(what, reported, row, steps)
                _check_seff(what, cli.run("report", *which, "--format=seff").out, reported, row)
        return True

    wait_for("the reports to be right", all_right, interval=2)
    for of, found in runs.items():
        for user in users:
            theirs = [run for run in found if run[0]["user"] == user.name]
            if theirs:
                wait_for("waste to be right", lambda theirs=theirs, user=user, of=of: _check_waste(cli, theirs, user, f"--cluster={of}") or True, interval=2)
            listed = cli.json("list", f"--user={user.name}", f"--cluster={of}") if theirs else []
            equal(f"{of}: {user.name}'s runs in a list", [row["identity"]["user"] for row in listed], [user.name] * len(theirs))
