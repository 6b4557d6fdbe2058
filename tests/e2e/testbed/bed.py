"""What every bed has: a shell, SLURM, and an exporter."""

import dataclasses

from . import exposition
from .processes import Failure, wait_for
from .slurm import Slurm


@dataclasses.dataclass(frozen=True)
class User:
    """A user who submits jobs."""

    name: str
    uid: int


class Bed:
    """One machine with SLURM.

    A subclass says what is there (users, nodes, partitions, cpus, cgroup_root, inside: a directory for the harness's
    files, slurm_directory: that of prolog.d and epilog.d, log_files, has_gpus, has_memory_limits, has_cpu_accounting, has_devices) and how daemons are run on it
    (start_slurmd, stop_slurmd, remove_slurm_cgroup, start_exporter, stop_exporter, exporter_log).
    """

    # Whether it runs on an emulated, slow processor.
    emulated = False

    def __init__(self, name, cgroup, agent, directory):
        self.name = name
        self.cgroup = cgroup
        self.agent = agent
        self.directory = directory
        self.slurm = Slurm(self)
        self.exporter = None

    def run(self, script, **options):
        """The output of a shell script run as root in the bed."""
        return self.agent.run(script, **options)

    def wait_up(self, node, timeout=180):
        """Waits until SLURM would start a job on `node`, if there is room."""
        wait_for(f"{self.name}: {node} to be up", lambda: self.run(f"sinfo -h -n {node} -o %T", timeout=60).split()[0]
                 in ("idle", "mixed", "allocated"), timeout)

    def scrape(self):
        """The exporter's metrics now."""
        if self.exporter is None:
            raise Failure("no exporter is running")
        return exposition.fetch(self.exporter)

    def scope_cpu_seconds(self, node):
        """CPU seconds of SLURM's cgroup on `node`: all jobs and slurmstepds."""
        if self.cgroup == "v2":
            stat = self.run(f"cat {self.scopes(node)[0]}/cpu.stat")
            return int(stat.split("usage_usec ")[1].split()[0]) / 1e6
        return int(self.run(f"cat {self.cgroup_root}/cpu,cpuacct/slurm_{node}/cpuacct.usage")) / 1e9

    def slurm_own_cpu_seconds(self, node):
        """CPU seconds in no job's cgroup: slurmstepd before it creates the job's cgroup and after it removed it. v2 only."""
        stat = self.run(f"cat {self.scopes(node)[0]}/system/cpu.stat") if self.cgroup == "v2" else "usage_usec 0"
        return int(stat.split("usage_usec ")[1].split()[0]) / 1e6

    def scopes(self, node):
        """SLURM's own directories of `node`: one on v2, one in each hierarchy on v1."""
        if self.cgroup == "v2":
            return [f"{self.cgroup_root}/system.slice/{node}_slurmstepd.scope"]
        # `cpu` and `cpuacct` may be links to `cpu,cpuacct`.
        return self.run(f"find {self.cgroup_root} -mindepth 2 -maxdepth 2 -name slurm_{node}").split()

    def console(self):
        """The end of the virtual machine's console; empty on the host."""
        return ""

    def logs(self):
        """(name, text) of the logs that may explain a failure."""
        for path in self.log_files:
            rc, text, _ = self.agent.call(f"tail -n 400 {path}")
            if rc == 0:
                yield path.rsplit("/", 1)[-1], text
        yield "exporter.log", self.exporter_log()
