"""SLURM on this machine itself, in its cgroup v1 hierarchies.

All daemons live in a process namespace of their own, below an agent like the one of the virtual machines: when
that ends, however it ends, so do slurmd, every slurmstepd and every job. They have a /run of their own, where SLURM's prolog writes.
"""

import contextlib
import glob
import os
import pathlib
import shutil
import signal
import socket

from . import cache, packages
from .agent import Agent
from .bed import Bed, User
from .exposition import SCRAPED
from .processes import Failure, free_ports, running, scratch, spawn, stop, wait_for

_HERE = pathlib.Path(__file__).parent
_CONFIG = _HERE / "host_config"
_AGENT = _HERE / "guest/opt/testbed/agent.py"
_NEEDED = ("freezer", "cpuset", "devices")


class HostBed(Bed):
    """SLURM on the machine that runs the tests; the exporter runs outside its process namespace."""

    users = (User("nobody", 65534), User("daemon", 1))
    nodes = ("jl1", "jl2")
    partitions = ("main", "second")
    cgroup_root = "/sys/fs/cgroup"
    has_gpus = False
    has_memory_limits = False
    has_cpu_accounting = False
    has_devices = False

    def __init__(self, name, agent, directory, cpus):
        super().__init__(name, "v1", agent, directory)
        self.cpus = cpus
        self.inside = self.slurm_directory = str(directory)
        self.log_files = tuple(f"{directory}/log/{log}.log" for log in ("slurmctld", "slurmd-jl1", "slurmd-jl2"))
        self._exporter_process = None

    def start_daemon(self, name, command):
        """Starts a daemon in the foreground, in the bed's process namespace."""
        self.run(f"cd {self.directory}; {command} >> log/{name}.out 2>&1 & echo $! > {self.directory}/{name}.started")

    def start_slurmd(self, node):
        self.start_daemon(f"slurmd-{node}", f"slurmd -D -N {node}")

    def stop_slurmd(self, node):
        self.run(f"pid=$(cat {self.directory}/slurmd-{node}.started); kill $pid; "
                 "for i in $(seq 300); do kill -0 $pid 2>/dev/null || exit 0; sleep 0.1; done; exit 1")

    def remove_slurm_cgroup(self, node):
        self.run(f"for top in /sys/fs/cgroup/*/slurm_{node}; do find $top -depth -type d -exec rmdir {{}} +; done")

    def start_exporter(self, binary, flags=()):
        (port,) = free_ports(1)
        self._exporter_process = spawn([str(binary), f"--web.listen-address=127.0.0.1:{port}",
                                        f"--jobs.metadata-dir={self.directory}/run/jobledger/jobs", *SCRAPED, *flags],
                                       self.directory / "log/exporter.log")
        return f"127.0.0.1:{port}"

    def stop_exporter(self):
        if self._exporter_process:
            stop(self._exporter_process)
            self._exporter_process = None

    def kill_exporter(self):
        if self._exporter_process:
            stop(self._exporter_process, signal.SIGKILL)
            self._exporter_process = None

    @property
    def state_file(self):
        """Where an exporter may keep its accounts for the next one."""
        return f"{self.directory}/exporter-state"

    def exporter_log(self):
        path = self.directory / "log/exporter.log"
        return path.read_text(errors="replace") if path.exists() else ""


@contextlib.contextmanager
def start(name):
    """SLURM on this machine with one idle node, for a with block."""
    packages.check("slurm")
    lacking = [controller for controller in _NEEDED if not os.path.isdir(f"/sys/fs/cgroup/{controller}")]
    if lacking:
        raise Failure(f"{name}: no cgroup v1 hierarchy of {', '.join(lacking)} on this machine")
    if glob.glob("/sys/fs/cgroup/*/jobledger-test-*"):
        print(f"note {name}: other tests have control groups here, and the exporter will see them", flush=True)
    tops = [f"slurm_{node}" for node in HostBed.nodes]
    with cache.locked(pathlib.Path("/run/lock/jobledger-host-slurm")), \
            scratch(f"jobledger-{name}", tops) as directory:
        cpus = min(4, os.cpu_count())
        _configure(directory, cpus)
        # bash as the namespace's first process reaps what slurmd leaves behind.
        command = ["unshare", "--pid", "--mount", "--propagation", "private", "--fork", "--kill-child",
                   "--mount-proc", "bash", "-c",
                   f"mount --bind {directory}/run /run && {{ python3 -B {_AGENT} {directory}/agent & wait; }}"]
        environment = os.environ | {"SLURM_CONF": f"{directory}/slurm.conf"}
        # unshare ignores SIGTERM, and its child dies with it.
        with running(command, directory / "log/agent.log", signal.SIGKILL, env=environment):
            bed = HostBed(name, Agent(f"{directory}/agent"), directory, cpus)
            try:
                wait_for("the agent", lambda: bed.agent.call("true")[0] == 0, 60)
                munge = f"{directory}/munge"
                bed.start_daemon("munged", f"munged -F --force --key-file={munge}/key --socket={munge}/socket "
                                 f"--pid-file={munge}/pid --log-file={munge}/log --seed-file={munge}/seed")
                wait_for("munged", lambda: bed.agent.call(f"munge -n -S {munge}/socket")[0] == 0, 60)
                bed.start_daemon("slurmctld", "slurmctld -D -c -i")
                bed.start_slurmd(bed.nodes[0])
                bed.wait_up(bed.nodes[0])
                yield bed
            finally:
                bed.stop_exporter()


def _configure(directory, cpus):
    for name in ("log", "run", "state", "munge", "spool-jl1", "spool-jl2"):
        (directory / name).mkdir(mode=0o755)
    key = directory / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    for part in ("prolog.d", "epilog.d"):
        shutil.copytree(_HERE / "guest/etc/slurm" / part, directory / part)
    shutil.copy(_CONFIG / "cgroup.conf", directory)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    ctl, first, second = free_ports(3)
    values = {"scratch": directory, "host": socket.gethostname().split(".")[0], "cpus": cpus,
              "memory": min(4000, pages // 2 >> 20), "port_ctl": ctl, "port_jl1": first, "port_jl2": second}
    (directory / "slurm.conf").write_text((_CONFIG / "slurm.conf").read_text().format(**values))
