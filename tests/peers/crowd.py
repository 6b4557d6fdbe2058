"""Jobs in real control groups, and the floors: the mode `beside` of the benchmark scrape_cost, whose input is a pipe."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess

from testbed.processes import Failure, die_with_parent

PROJECT = pathlib.Path(__file__).resolve().parents[2]
# Seconds: to build a release on a busy machine, and to make hundreds of jobs.
BUILD, ORDER = 3600, 600


class Crowd:
    """What the benchmark said at its start is in `exporter` (path), `cgroupfs` (path) and `flags`."""

    def __init__(self, process):
        self._process = process
        first = self._answer(BUILD)
        self.exporter, self.cgroupfs, self.flags = first["exporter"], first["cgroupfs"], first["flags"]

    def order(self, text):
        """Gives an order: the answer to it."""
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._answer(ORDER)

    def _answer(self, seconds):
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else ""
        if not line.endswith("\n"):
            raise Failure(f"the benchmark did not answer within {seconds} s" if not ready else "the benchmark has ended; its log is above")
        return json.loads(line)


@contextlib.contextmanager
def crowd(version, profile, flags):
    """Control groups of v1 or v2 for a with block; they go with the benchmark, which ends with its input."""
    harness = os.getpid()
    command = [os.environ.get("CARGO", "cargo"), "bench", "--quiet", "--locked", "--profile", profile, "--package", "jobledger-exporter",
               "--bench", "scrape_cost", "--", "beside", version, *flags]
    process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: die_with_parent(harness, signal.SIGKILL))
    try:
        yield Crowd(process)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def hierarchies(mountinfo, controllers):
    """Where this host has the memory controller, which every exporter reads: `v1`, `v2` or neither. `controllers` are v2's."""
    mounts = [line.partition(" - ")[2].split() for line in mountinfo.splitlines()]
    v1 = any(mount[0] == "cgroup" and "memory" in mount[2].split(",") for mount in mounts if len(mount) == 3)
    v2 = any(mount and mount[0] == "cgroup2" for mount in mounts) and "memory" in controllers.split()
    return [version for version, there in (("v1", v1), ("v2", v2)) if there]


def of_this_host():
    mountinfo = pathlib.Path("/proc/self/mountinfo").read_text()
    mounts = [line.split()[4] for line in mountinfo.splitlines() if " - cgroup2 " in line]
    controllers = pathlib.Path(mounts[0], "cgroup.controllers").read_text() if mounts else ""
    return hierarchies(mountinfo, controllers)
