"""GPUs with known activity in a virtual machine: a fake of NVIDIA's library (tests/support/fake-nvml), and device nodes
without a driver."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import subprocess
import tempfile

from . import cache
from .processes import wait_for

_SOURCE = cache.REPOSITORY / "tests/support/fake-nvml/fake-nvml.c"
_DEVICE_PROGRAMS = pathlib.Path(__file__).with_name("device_programs.py")
_DIRECTORY = "/opt/testbed/nvml"
_MEMORY = 80 << 30
_RESERVED = 600 << 20
# Device nodes of a bed, 195:0 and so on.
COUNT = 4


def no_gpus(bed):
    """Why a bed has no GPUs, or None."""
    return None if bed.has_gpus else "GPUs are made in virtual machines only"


def no_device_programs(bed):
    """Why a bed's kernel has no device programs, or None."""
    return no_gpus(bed) or (None if bed.cgroup == "v2" else "v1 does not say which devices a job may open")


@functools.cache
def _library():
    """Builds the library. It works on every bed: none has an older C library than this machine."""
    with tempfile.TemporaryDirectory() as directory:
        made = pathlib.Path(directory) / "libnvidia-ml.so.1"
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(made),
                        str(_SOURCE), "-ldl", "-lpthread"], check=True)
        return made.read_bytes()


@dataclasses.dataclass
class Gpu:
    """The activity of one GPU until it is changed. Do not change `watts`: the energy is computed from it since the library
    was loaded."""

    index: int
    minor: int
    watts: int
    busy: float = 0
    memory: int = 0
    # (pid, bytes, fraction of the time that its kernels run)
    processes: tuple = ()
    # The error code with which its calls fail.
    lost: int = 0

    @property
    def uuid(self):
        return f"GPU-00000000-0000-0000-0000-{self.index:012}"

    def lines(self):
        """Its lines in the control file."""
        yield f"minor {self.minor}"
        yield f"power {self.watts * 1000}"
        yield f"util {round(self.busy * 100)} 0 0 0 0 0"
        yield f"memory {_MEMORY} {self.memory} {_RESERVED}"
        yield from (f"process {pid} {size} {round(busy * 100)} compute" for pid, size, busy in self.processes)
        if self.lost:
            yield f"lost {self.lost}"


class Gpus:
    """The GPUs of a bed. Unless `in_order`, the driver's indices differ from the minor numbers of the device nodes."""

    memory = _MEMORY

    def __init__(self, bed, in_order, directory):
        self._bed = bed
        self._directory = directory
        minors = range(COUNT) if in_order else reversed(range(COUNT))
        self.all = [Gpu(index, minor, 100 * (index + 1)) for index, minor in enumerate(minors)]
        # Functions of the library that hang.
        self.hanging = []

    @property
    def library(self):
        """Where the library is."""
        return f"{self._directory}/libnvidia-ml.so.1"

    @property
    def flags(self):
        """Flags with which the exporter finds the library and reads it every second."""
        return (f"--collector.gpu.nvml-library={self.library}", "--collector.gpu.period=1s")

    def of_minors(self, minors):
        """The GPUs that have these device nodes."""
        return [gpu for gpu in self.all if gpu.minor in minors]

    def apply(self):
        """Writes the control file."""
        lines = [f"gpus {len(self.all)}", *(f"hang {function}" for function in self.hanging)]
        lines += [f"gpu {gpu.index} {line}" for gpu in self.all for line in gpu.lines()]
        # The agent writes another file and renames it.
        self._bed.agent.put(f"{self._directory}/fake-nvml.conf", ("\n".join(lines) + "\n").encode())

    def install(self):
        """Copies the library to its directory."""
        self.apply()
        self._bed.agent.put(f"{self._directory}/libnvidia-ml.so.1", _library(), 0o755)

    def remove(self):
        self._bed.run(f"rm -f {self._directory}/libnvidia-ml.so.1 {self._directory}/fake-nvml.conf*")


@contextlib.contextmanager
def fake(bed, in_order=False, directory=_DIRECTORY, installed=True):
    """The bed's `Gpus`, for a with block."""
    gpus = Gpus(bed, in_order, directory)
    if installed:
        gpus.install()
    try:
        yield gpus
    finally:
        gpus.remove()


# SLURM's and the kernel's view


def asked_for(bed, jobid):
    """The minors of the GPUs that slurmctld gave to a job (IDX). gres.conf lists the device nodes in order."""
    listed = re.search(r"GRES=gpu\S*\(IDX:([0-9,-]+)\)", bed.run(f"scontrol -d -o show job {jobid}"))
    ranges = (part.split("-") for part in listed[1].split(",")) if listed else ()
    return {minor for ends in ranges for minor in range(int(ends[0]), int(ends[-1]) + 1)}


def tries(place):
    """Lines of a job's script that open each GPU's device node and write the results to `place`."""
    # There is no driver: open(2) gives ENXIO if the job may open the device, and EPERM if not.
    nodes = " ".join(map(str, range(COUNT)))
    return (f"for minor in {nodes}; do (: < /dev/nvidia$minor) 2>&1; done > {place}.new\n"
            f"mv {place}.new {place}\n")


def opened(bed, place):
    """The minors of the GPUs that `tries` could open."""
    output = wait_for(f"{place}", lambda: bed.run(f"cat {place} 2>/dev/null || true"), 120)
    verdicts = {int(minor): words for minor, words in re.findall(r"/dev/nvidia(\d+): (.*)", output)}
    allowed = {minor for minor, words in verdicts.items() if words == "No such device or address"}
    denied = {minor for minor, words in verdicts.items() if words == "Operation not permitted"}
    if allowed | denied != set(range(COUNT)):
        raise ValueError(f"{place}: {output!r}")
    return allowed


def device_programs(bed):
    """The programs attached to the bed's control groups: lines of directory, kind, flags and program ids."""
    script = f"{bed.inside}/device_programs.py"
    bed.agent.put(script, _DEVICE_PROGRAMS.read_bytes(), 0o755)
    return bed.run(f"python3 -B {script} {bed.cgroup_root}").splitlines()
