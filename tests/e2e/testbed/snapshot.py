#!/usr/bin/python3
"""snapshot.py CGROUP_ROOT SCOPE... > TAR: the files of a node and of SLURM's jobs, read once.

The cgroup files of SCOPE and of the directories above it, /proc of the processes in SCOPE, and the node-wide files
below /proc and /sys that an exporter may read. Names in the archive are those of a fixture machine: cgroup/, proc/,
sys/, run/.
"""

import glob
import io
import os
import stat
import sys
import tarfile

_PROCESS = "cgroup cmdline comm environ io limits schedstat stat statm status".split()
_NODE = """cgroups cpuinfo diskstats loadavg meminfo mounts stat uptime version pressure/cpu pressure/io
    pressure/memory net/dev self/cgroup self/mountinfo self/mounts self/mountstats sys/kernel/hostname
    sys/kernel/osrelease sys/kernel/ostype sys/kernel/perf_event_paranoid""".split()
_SYS = ("/sys/devices/system/cpu/*", "/sys/devices/system/cpu/cpu[0-9]*/topology/*", "/sys/devices/system/node/*",
        "/sys/devices/system/node/node*/*", "/sys/devices/virtual/dmi/id/product_name",
        "/sys/devices/virtual/dmi/id/sys_vendor")
# Directories of links to devices.
_DEVICES = ["/sys/block"] + [f"/sys/class/{name}" for name in "hwmon infiniband infiniband_verbs net powercap".split()]
# Directories of a device without counters.
_DULL = {"gid_attrs", "gids", "mq", "power", "queue", "queues"}
# Files with side effects or blocking reads.
_NEVER = {"cgroup.kill", "memory.reclaim", "memory.force_empty", "cgroup.event_control", "memory.pressure_level"}


class Snapshot:
    """A tar archive of files whose size is unknown before they are read."""

    def __init__(self, output):
        self._tar = tarfile.open(fileobj=output, mode="w|")
        self._done = set()

    def add(self, path, name):
        """Adds a file, directory or link, unless it cannot be read."""
        if name in self._done:
            return
        try:
            about = os.lstat(path)
            entry = tarfile.TarInfo(name)
            entry.mode, entry.uid, entry.gid = stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid
            content = None
            if stat.S_ISLNK(about.st_mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
            elif stat.S_ISDIR(about.st_mode):
                entry.type = tarfile.DIRTYPE
            else:
                with open(path, "rb") as source:
                    content = source.read()
                entry.size = len(content)
        except OSError:
            return
        self._done.add(name)
        self._tar.addfile(entry, None if content is None else io.BytesIO(content))

    def close(self):
        """Writes the archive's end."""
        self._tar.close()


def cgroup_files(snapshot, root, directory):
    """Adds one cgroup's files; returns its pids."""
    name = "cgroup" + directory.removeprefix(root)
    snapshot.add(directory, name)
    pids = []
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        readable = entry.is_file(follow_symlinks=False) and entry.stat().st_mode & 0o444
        if entry.is_symlink() or (readable and entry.name not in _NEVER):
            snapshot.add(entry.path, f"{name}/{entry.name}")
        if entry.name == "cgroup.procs":
            with open(entry.path, encoding="ascii") as procs:
                pids = procs.read().split()
    return pids


def device_files(snapshot, top):
    """Adds the links in `top`, and the files of the devices that they point to."""
    if not os.path.isdir(top):
        return
    snapshot.add(top, top[1:])
    for link in sorted(glob.glob(f"{top}/*")):
        snapshot.add(link, link[1:])
        for directory, below, names in os.walk(os.path.realpath(link)):
            below[:] = sorted(set(below) - _DULL)
            snapshot.add(directory, directory[1:])
            for name in sorted(names + below):
                path = f"{directory}/{name}"
                if os.path.islink(path) or os.path.isfile(path):
                    snapshot.add(path, path[1:])


def main():
    root, *scopes = sys.argv[1:]
    snapshot = Snapshot(sys.stdout.buffer)
    pids = set()
    for scope in scopes:
        above = scope
        while above != root:
            above = os.path.dirname(above)
            cgroup_files(snapshot, root, above)
        for directory, below, _ in os.walk(scope):
            below.sort()
            pids.update(cgroup_files(snapshot, root, directory))
    for pid in sorted(pids, key=int):
        snapshot.add(f"/proc/{pid}", f"proc/{pid}")
        for name in _PROCESS:
            snapshot.add(f"/proc/{pid}/{name}", f"proc/{pid}/{name}")
    for name in _NODE:
        snapshot.add(f"/proc/{name}", f"proc/{name}")
    for pattern in _SYS:
        for path in sorted(glob.glob(pattern)):
            if os.path.isfile(path):
                snapshot.add(path, path[1:])
    for top in _DEVICES:
        device_files(snapshot, top)
    for path in sorted(glob.glob("/run/jobledger/jobs/*")):
        snapshot.add(path, path[1:])
    snapshot.close()


main()
