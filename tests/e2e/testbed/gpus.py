"""GPUs of known activity in a virtual machine: NVIDIA's library as tests/support/fake-nvml makes it, beside device nodes
that have nothing behind them."""

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
    """Why a bed has no GPUs."""
    return None if bed.has_gpus else "GPUs are made in virtual machines only"


def no_device_programs(bed):
    """Why nothing can be asked of a bed's kernel."""
    return no_gpus(bed) or (None if bed.cgroup == "v2" else "v1 does not say which devices a job may open")


@functools.cache
def _library():
    """The library. This machine's C library is not newer than that of any bed."""
    with tempfile.TemporaryDirectory() as directory:
        made = pathlib.Path(directory) / "libnvidia-ml.so.1"
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(made),
                        str(_SOURCE), "-ldl", "-lpthread"], check=True)
        return made.read_bytes()


@dataclasses.dataclass
class Gpu:
    """What one GPU does until it is said otherwise. `watts` is to stay what it is: the energy follows it since the
    library was loaded."""

    index: int
    minor: int
    watts: int
    busy: float = 0
    memory: int = 0
    # (pid, bytes, part of the time in which its kernels run)
    processes: tuple = ()
    # A code of the driver's with which it fails.
    lost: int = 0

    @property
    def uuid(self):
        return f"GPU-00000000-0000-0000-0000-{self.index:012}"

    def lines(self):
        """For the control file."""
        yield f"minor {self.minor}"
        yield f"power {self.watts * 1000}"
        yield f"util {round(self.busy * 100)} 0 0 0 0 0"
        yield f"memory {_MEMORY} {self.memory} {_RESERVED}"
        yield from (f"process {pid} {size} {round(busy * 100)} compute" for pid, size, busy in self.processes)
        if self.lost:
            yield f"lost {self.lost}"


class Gpus:
    """A bed's GPUs, whose driver numbers them in another order than their device nodes unless `in_order`."""

    memory = _MEMORY

    def __init__(self, bed, in_order, directory):
        self._bed = bed
        self._directory = directory
        minors = range(COUNT) if in_order else reversed(range(COUNT))
        self.all = [Gpu(index, minor, 100 * (index + 1)) for index, minor in enumerate(minors)]
        # Functions of the library that do not return.
        self.hanging = []

    @property
    def flags(self):
        """With which the exporter finds them, and reads them every second."""
        return (f"--collector.gpu.nvml-library={self._directory}/libnvidia-ml.so.1", "--collector.gpu.period=1s")

    def of_minors(self, minors):
        """The GPUs that have these device nodes."""
        return [gpu for gpu in self.all if gpu.minor in minors]

    def apply(self):
        """Makes it so."""
        lines = [f"gpus {len(self.all)}", *(f"hang {function}" for function in self.hanging)]
        lines += [f"gpu {gpu.index} {line}" for gpu in self.all for line in gpu.lines()]
        # The agent writes another file and renames it.
        self._bed.agent.put(f"{self._directory}/fake-nvml.conf", ("\n".join(lines) + "\n").encode())

    def install(self):
        """The library, where the exporter's flags or, in a directory of the linker's, its own search find it."""
        self.apply()
        self._bed.agent.put(f"{self._directory}/libnvidia-ml.so.1", _library(), 0o755)

    def remove(self):
        self._bed.run(f"rm -f {self._directory}/libnvidia-ml.so.1 {self._directory}/fake-nvml.conf*")


@contextlib.contextmanager
def fake(bed, in_order=False, directory=_DIRECTORY, installed=True):
    """The bed's `Gpus`, gone with the block."""
    gpus = Gpus(bed, in_order, directory)
    if installed:
        gpus.install()
    try:
        yield gpus
    finally:
        gpus.remove()


# What SLURM and the kernel say


def asked_for(bed, jobid):
    """The minors of the GPUs that slurmctld says it gave to a job: gres.conf lists the nodes in their order."""
    listed = re.search(r"GRES=gpu\S*\(IDX:([0-9,-]+)\)", bed.run(f"scontrol -d -o show job {jobid}"))
    ranges = (part.split("-") for part in listed[1].split(",")) if listed else ()
    return {minor for ends in ranges for minor in range(int(ends[0]), int(ends[-1]) + 1)}


def tries(place):
    """Lines of a job's script that write to `place` what the kernel says when its own processes open each GPU's node."""
    # There is no driver: ENXIO is what the device constraint lets through, EPERM what it does not.
    nodes = " ".join(map(str, range(COUNT)))
    return (f"for minor in {nodes}; do (: < /dev/nvidia$minor) 2>&1; done > {place}.new\n"
            f"mv {place}.new {place}\n")


def opened(bed, place):
    """The minors of the GPUs that could be opened where `tries` was run."""
    told = wait_for(f"{place}", lambda: bed.run(f"cat {place} 2>/dev/null || true"), 120)
    verdicts = {int(minor): words for minor, words in re.findall(r"/dev/nvidia(\d+): (.*)", told)}
    allowed = {minor for minor, words in verdicts.items() if words == "No such device or address"}
    denied = {minor for minor, words in verdicts.items() if words == "Operation not permitted"}
    if allowed | denied != set(range(COUNT)):
        raise ValueError(f"{place}: {told!r}")
    return allowed


def device_programs(bed):
    """What is attached to the bed's control groups: lines of directory, kind, flags and ids of programs."""
    script = f"{bed.inside}/device_programs.py"
    bed.agent.put(script, _DEVICE_PROGRAMS.read_bytes(), 0o755)
    return bed.run(f"python3 -B {script} {bed.cgroup_root}").splitlines()
