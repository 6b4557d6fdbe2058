"""`jobledger record` within jobs of real SLURM."""

import subprocess

from testbed import beds
from testbed.context import equal, expect, scenario
from testbed.processes import scratch
from testbed.reports import Ran

from .ledger import no_cpu_accounting
from .report import BEGIN, END, SPIN, said_by

_HERE = "/tmp/jobledger-recordings"
_SECONDS = 8
_HELD = 30 << 20
_WORK = f"python3 -c 'held = b\"x\" * {_HELD}; import time; end = time.monotonic() + {_SECONDS}\nwhile time.monotonic() < end: pass'"


def _body(program, option):
    """A job that records a command of it and ends as that ends."""
    return f"""{BEGIN}
cat > {_HERE}/$SLURM_JOB_ID.sh <<'X'
{_WORK}
exit 3
X
{program} record -i 1 {option} -o {_HERE}/%j-%N.om -- bash {_HERE}/$SLURM_JOB_ID.sh
status=$?
{SPIN.format(1)}
{END}
exit $status"""


def _check(context, kind, jobid, directory):
    bed, user = context.bed, context.bed.users[0]
    job, said = context.slurm.job(jobid), said_by(bed, jobid)
    equal(f"{kind}: exit code", job["ExitCode"], "3:0")
    path = directory / f"{jobid}.om"
    path.write_bytes(bed.agent.get(f"{_HERE}/{jobid}-{bed.nodes[0]}.om"))
    ran = Ran(context.options.cli, None, "report", "--format=json", "--recording", str(path))
    expect(ran.status in (0, 4), f"{kind}: {ran.status}: {ran.err}")
    reported = ran.json()
    equal(f"{kind}: who", (reported["job"]["id"], reported["job"]["identity"]["user"]), (jobid, user.name))
    (node,) = reported["job"]["nodes"]
    equal(f"{kind}: node", node["name"], bed.nodes[0])
    equal(f"{kind}: CPUs", reported["numbers"]["cpus"], int(job["NumCPUs"]))
    equal(f"{kind}: memory limit", reported["numbers"]["memory_limit_bytes"], int(job["MinMemoryNode"].removesuffix("M")) << 20)
    used, ran_for = node["values"]["cpu_seconds"], node["values"]["cpu_allocated_seconds"] / reported["numbers"]["cpus"]
    # The job counted again after the recording's end, and went on meanwhile.
    expect(said["cpu"] / 2 <= used <= said["cpu"], f"{kind}: {used} CPU seconds, the job itself counted {said['cpu']} later")
    expect(_SECONDS <= ran_for <= said["end"] - node["start"], f"{kind}: held its CPUs for {ran_for} s")
    expect(said["start"] - 60 <= node["start"] <= said["start"], f"{kind}: started at {node['start']}, its script at {said['start']}")
    held = node["memory_held_bytes"]
    expect(held is not None and held >= _HELD, f"{kind}: held {held} bytes of {_HELD}")
    series = reported["curves"]["metrics"]["cpu_seconds_per_second"]["series"][0]["values"]
    seen = [value for value in series if value is not None]
    expect(len(seen) >= 3 and max(seen) <= 4.2, f"{kind}: curve {series}")


@scenario(beds.EACH_CONTROLLER, unable=no_cpu_accounting, seconds=90)
def record(context):
    """A job's recording of itself, from the exporter and from its own cgroup, has what the job saw in its cgroup and what slurmctld has."""
    bed, slurm = context.bed, context.slurm
    program = f"{bed.inside}/jobledger"
    with scratch("jobledger-recorded") as directory:
        subprocess.run(["strip", "-o", directory / "jobledger", context.options.cli], check=True)
        bed.agent.put(program, (directory / "jobledger").read_bytes(), 0o755)
        bed.run(f"install -d -m 1777 {_HERE}")
        try:
            for kind, option in (("exporter", ""), ("cgroup", "--own-cgroup"), ("no exporter", "")):
                request = (bed.users[0], _body(program, option), ("--mem=100", "-n1"))
                if kind == "exporter":
                    with context.exporter():
                        (jobid,) = slurm.submit_all([request])
                        slurm.wait_over([jobid])
                else:
                    (jobid,) = slurm.submit_all([request])
                    slurm.wait_over([jobid])
                _check(context, kind, jobid, directory)
        finally:
            bed.run(f"rm -rf {program} {_HERE}")
