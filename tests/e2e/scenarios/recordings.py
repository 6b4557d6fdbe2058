"""`jobledger record` within jobs of real SLURM."""

import contextlib
import subprocess
import time

from testbed import beds
from testbed import gpus as testbed
from testbed.context import equal, expect, scenario
from testbed.processes import scratch
from testbed.reports import Ran

from .ledger import no_cpu_accounting
from .report import BEGIN, END, SPIN, said_by

_HERE = "/tmp/jobledger-recordings"
_SECONDS = 8
_HELD = 30 << 20
_WRITTEN = 8 << 20
_FILE = f'"{_HERE}/" + os.environ["SLURM_JOB_ID"]'
_WORK = f"python3 -c 'import os, time; held = b\"x\" * {_HELD}; open({_FILE}, \"wb\").write(held[:{_WRITTEN}]); end = time.monotonic() + {_SECONDS}\nwhile time.monotonic() < end: pass'"


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
    if kind != "exporter":
        written = node["values"]["syscall_written_bytes"]
        expect(_WRITTEN <= written <= _WRITTEN + (1 << 20), f"{kind}: wrote {written} bytes, not {_WRITTEN}")
    held = node["memory_held_bytes"]
    expect(held is not None and held >= _HELD, f"{kind}: held {held} bytes of {_HELD}")
    series = reported["curves"]["metrics"]["cpu_seconds_per_second"]["series"][0]["values"]
    seen = [value for value in series if value is not None]
    expect(len(seen) >= 3 and max(seen) <= 4.2, f"{kind}: curve {series}")


@contextlib.contextmanager
def _program(context):
    """The program on the bed, with a directory for recordings."""
    bed = context.bed
    program = f"{bed.inside}/jobledger"
    with scratch("jobledger-recorded") as directory:
        subprocess.run(["strip", "-o", directory / "jobledger", context.options.cli], check=True)
        bed.agent.put(program, (directory / "jobledger").read_bytes(), 0o755)
        bed.run(f"install -d -m 1777 {_HERE}")
        try:
            yield program, directory
        finally:
            bed.run(f"rm -rf {program} {_HERE}")


@scenario(beds.EACH_CONTROLLER, unable=no_cpu_accounting, seconds=90)
def record(context):
    """A job's recording of itself, from the exporter and from its own cgroup, has what the job saw in its cgroup and what slurmctld has."""
    bed, slurm = context.bed, context.slurm
    with _program(context) as (program, directory):
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


@scenario(beds.ONCE, unable=testbed.no_device_programs)
def record_gpus(context):
    """Without an exporter a job records the GPUs that SLURM's device cgroup lets it open, and no other."""
    bed, slurm = context.bed, context.slurm
    with _program(context) as (program, directory), testbed.fake(bed) as gpus:
        for gpu in gpus.all:
            gpu.busy = 0.2 * (gpu.index + 1)
        gpus.apply()
        bed.agent.put(f"{_HERE}/jobledger.toml", f'[record]\nnvml_library = "{gpus.library}"\n'.encode())
        body = f"{program} --config {_HERE}/jobledger.toml record -i 1 --own-cgroup -o {_HERE}/%j.om -- sleep {_SECONDS}"
        jobids = slurm.submit_all([(user, body, ("--mem=100", "-n1", *more))
                                   for user, more in zip(bed.users, (("--gres=gpu:2",), ("--gres=gpu:1",), ()), strict=False)])
        slurm.wait_running(len(jobids))
        has = {jobid: gpus.of_minors(testbed.asked_for(bed, jobid)) for jobid in jobids}
        slurm.wait_over(jobids)
        equal("GPUs of the jobs", sorted(map(len, has.values())), [0, 1, 2][-len(jobids):])
        for jobid, own in has.items():
            path = directory / f"{jobid}.om"
            path.write_bytes(bed.agent.get(f"{_HERE}/{jobid}.om"))
            ran = Ran(context.options.cli, None, "report", "--format=json", "--recording", str(path))
            expect(ran.status in (0, 4), f"{jobid}: {ran.status}: {ran.err}")
            (node,) = ran.json()["job"]["nodes"]
            equal(f"job {jobid}: its GPUs", sorted(gpu["uuid"] for gpu in node["gpus"]), sorted(gpu.uuid for gpu in own))
            for gpu in own:
                (values,) = (each["values"] for each in node["gpus"] if each["uuid"] == gpu.uuid)
                held = values["gpu_allocated_seconds"]
                expect(_SECONDS - 3 <= held <= _SECONDS + 60, f"{jobid}: held {gpu.uuid} for {held} s")
                expect(abs(values["gpu_energy_joules"] - gpu.watts * held) <= gpu.watts * 0.5, f"{jobid}: {values['gpu_energy_joules']} J in {held} s of {gpu.watts} W")
                # The samples of activity are a sixth of a second apart.
                expect(abs(values["gpu_busy_seconds"] - gpu.busy * held) <= 1, f"{jobid}: busy for {values['gpu_busy_seconds']} s of {held}, {gpu.busy} of it wanted")
        gpus.hanging = ["nvmlDeviceGetTemperature", "exit"]
        gpus.apply()
        try:
            began = time.monotonic()
            (jobid,) = slurm.submit_all([(bed.users[0], body.replace(f"sleep {_SECONDS}", "bash -c 'exit 3'"), ("--mem=100", "-n1", "--gres=gpu:1"))])
            slurm.wait_over([jobid])
            equal("exit code beside a driver that hangs", slurm.job(jobid)["ExitCode"], "3:0")
            expect(time.monotonic() - began < 120, f"the job took {time.monotonic() - began} s beside a driver that hangs")
        finally:
            gpus.hanging = []
            gpus.apply()
