"""What a process costs: CPU time and resident memory."""

import contextlib
import os
import pathlib
import re
import time

# CPUCLOCK_SCHED of include/linux/posix-timers.h: a clock of all threads of a process, those that ended too, in nanoseconds.
_SCHED = 2


def cpu_seconds(pid):
    """CPU time of a process and of its children, those that ended too (to a tick of 10 ms)."""
    total = time.clock_gettime(~pid << 3 | _SCHED) + _reaped(pid)
    for child in children(pid):
        # It may have ended since.
        with contextlib.suppress(OSError):
            total += cpu_seconds(child)
    return total


def children(pid):
    found = []
    for thread in pathlib.Path("/proc", str(pid), "task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found


def _reaped(pid):
    """`cutime` and `cstime` (proc(5)): of children that were waited for."""
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def memory_mib(status):
    """`VmRSS` of /proc/PID/status, MiB."""
    return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)[1]) / 1024


def resident_mib(pid):
    return memory_mib(pathlib.Path("/proc", str(pid), "status").read_text())
