"""A job that profiles has the hardware counters alone; other jobs are counted before and after it."""

import contextlib
import subprocess

from testbed import beds, cache
from testbed.context import equal, expect, scenario
from testbed.processes import wait_for

_FILES = {f"/etc/slurm/{part}.d/jobledger-hwperf.sh": cache.REPOSITORY / f"slurm/{part}.d/jobledger-hwperf.sh"
          for part in ("prolog", "epilog")}
_FILTER = "/etc/slurm/job_submit.lua"
_LOCK = "/var/run/likwid.lock"
_LEVEL = "/proc/sys/kernel/perf_event_paranoid"
_COUNTED = "jobledger_job_context_switches_total"
_LONG = "while :; do sleep 0.05; done"
_HERE = "/tmp/profilers"


def _unable(bed):
    if bed.name == "host-v1":
        return "the snippets write to the machine's own /run"
    if bed.cgroup != "v2":
        return "it does not depend on the version of cgroups; it runs on v2"
    return None


@contextlib.contextmanager
def _site(bed):
    """Sets up a site with hwperf, for a with block: the feature, the job_submit filter, the prolog and the epilog."""
    node, configuration = bed.nodes[0], "/etc/slurm/slurm.conf"
    before = bed.run(f"cat {_LEVEL}").strip()
    for path, source in _FILES.items():
        bed.agent.put(path, source.read_bytes(), 0o755)
    bed.agent.put(_FILTER, (cache.REPOSITORY / "slurm/job_submit.lua").read_bytes(), 0o644)
    bed.agent.put("/etc/default/jobledger-slurm", b"JOBLEDGER_EXPORTER=/opt/testbed/jobledger-exporter\n", 0o644)
    try:
        # Debian's default of 3 (its own patch) requires CAP_SYS_ADMIN to count other processes; the exporter has CAP_PERFMON.
        bed.run(f"install -d -m 755 /run/jobledger; install -d -m 1777 {_HERE}; echo 2 > {_LEVEL}\n"
                f"cp {configuration} {_HERE}/slurm.conf; echo JobSubmitPlugins=lua >> {configuration}\n"
                "systemctl restart slurmctld")
        _wait_back(bed, node)
        bed.run(f"scontrol update nodename={node} AvailableFeatures=hwperf,big ActiveFeatures=hwperf,big")
        yield
    finally:
        bed.slurm.cancel_all()
        bed.run(f"cp {_HERE}/slurm.conf {configuration}; rm -f {' '.join(_FILES)} {_FILTER} /etc/default/jobledger-slurm\n"
                "systemctl restart slurmctld")
        _wait_back(bed, node)
        bed.run(f"scontrol update nodename={node} AvailableFeatures= ActiveFeatures=; echo {before} > {_LEVEL}\n"
                f"rm -rf {_LOCK} /run/jobledger {_HERE}")


def _wait_back(bed, node):
    wait_for("slurmctld to answer", lambda: bed.agent.call("scontrol ping | grep -q UP")[0] == 0, 120)
    bed.wait_up(node)


def _refused(bed, user, command):
    """The output of a user's command, which has to be refused."""
    rc, out, err = bed.agent.call(f"cd /; {bed.slurm.as_user(user)} {command} <<'BODY'\n#!/bin/sh\ntrue\nBODY")
    expect(rc != 0, f"{command}: accepted: {out}")
    return out + err


def _counters(bed):
    """The number of counters that the exporter has open."""
    # grep -c fails if it counts 0.
    return int(bed.run("ls -l /proc/$(systemctl show -P MainPID jobledger-exporter)/fd | grep -c perf_event || true"))


def _state(bed):
    """[uid of the lock's owner, perf_event_paranoid]."""
    return bed.run(f"stat -c %u {_LOCK}; cat {_LEVEL}").split()


@scenario(beds.ONCE, unable=_unable, seconds=250)
def handover(context):
    """A hwperf job needs whole nodes. While it runs the counters are released to it; afterwards the exporter counts again."""
    bed, slurm = context.bed, context.slurm
    first, second = bed.users
    has = subprocess.run([context.binary, "--help"], capture_output=True, text=True, check=True).stdout
    expect("--collector.perf" in has, "this exporter has no --collector.perf")
    with _site(bed), context.exporter("--collector.perf"):
        for options in ("--constraint=hwperf", "--constraint='hwperf&big'", "--constraint='[big|hwperf]'",
                        "--constraint=hwperf --exclusive=user", "--prefer=hwperf --exclusive"):
            output = _refused(bed, first, f"sbatch --mem=100 {options}")
            expect("hwperf" in output and "--exclusive" in output, f"{options}: {output}")
            expect("nvalid feature" in output, f"{options}: {output}")

        # Before it, another job is counted.
        plain = slurm.submit(second, _LONG, "--mem=100")
        slurm.wait_running(1)

        def counted(metrics, jobid):
            equal("yielded", metrics.value("jobledger_node_counters_yielded"), 0)
            equal(f"job {jobid}: yielded", metrics.value("jobledger_job_counters_yielded", jobid=jobid), 0)
            expect(metrics.total(_COUNTED, jobid=jobid) > 0, f"job {jobid} is not counted")

        context.eventually(lambda metrics: counted(metrics, plain))
        expect(_counters(bed) > 0, "no counter is open")
        output = _refused(bed, second, f"scontrol update jobid={plain} features=hwperf")
        expect("hwperf" in output or "nvalid feature" in output, output)

        # The job that profiles waits for its node, and has the counters at its first command.
        profiles = slurm.submit(first, f"stat -c %u {_LOCK} > {_HERE}/seen; cat {_LEVEL} >> {_HERE}/seen\n{_LONG}",
                                "--mem=100", "--constraint=hwperf&big", "--exclusive")
        bed.run(f"scancel {plain}")
        slurm.wait_running(1, JobId=str(profiles))
        wait_for("its script to look", lambda: len(bed.run(f"cat {_HERE}/seen").split()) == 2, 60)
        equal("what its first command saw", bed.run(f"cat {_HERE}/seen").split(), [str(first.uid), "0"])
        equal("the lock and the level", _state(bed), [str(first.uid), "0"])
        equal("open counters", _counters(bed), 0)

        def handed_over(metrics):
            equal("yielded", metrics.value("jobledger_node_counters_yielded"), 1)
            equal("why", metrics.value("jobledger_node_counters_yield_reason_info", reason="lock"), 1)
            equal("its gauge", metrics.value("jobledger_job_counters_yielded", jobid=profiles), 1)
            equal("its counters", metrics.select(_COUNTED, jobid=profiles), [])

        context.eventually(handed_over)
        expect(bed.run("/opt/testbed/jobledger-exporter counters status").startswith("yielded since "), "status")
        # An exporter that starts now opens none either.
        context.restart("--collector.perf")
        context.eventually(handed_over)
        equal("open counters of a new exporter", _counters(bed), 0)

        # After it, the next job is counted.
        bed.run(f"scancel {profiles}")
        wait_for("the lock and the level to be restored", lambda: _state(bed) == ["0", "2"], 120)
        after = slurm.submit(second, _LONG, "--mem=100")
        slurm.wait_running(1, JobId=str(after))
        context.eventually(lambda metrics: counted(metrics, after))
        expect(_counters(bed) > 0, "no counter is open")
        slurm.cancel_all()

        # If an epilog did not run, the next prolog restores the lock and the level.
        bed.run(f"mv /etc/slurm/epilog.d/jobledger-hwperf.sh {_HERE}/epilog")
        profiles = slurm.submit(first, _LONG, "--mem=100", "--constraint=hwperf", "--exclusive")
        slurm.wait_running(1, JobId=str(profiles))
        wait_for("the counters to be its own", lambda: _state(bed) == [str(first.uid), "0"], 60)
        slurm.cancel_all()
        equal("what was left", _state(bed), [str(first.uid), "0"])
        after = slurm.submit(second, _LONG, "--mem=100")
        slurm.wait_running(1, JobId=str(after))
        wait_for("the lock and the level to be restored", lambda: _state(bed) == ["0", "2"], 60)
        context.eventually(lambda metrics: counted(metrics, after))
