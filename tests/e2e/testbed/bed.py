"""What every bed offers: a shell, SLURM, and an exporter beside it."""

import dataclasses

from . import exposition
from .processes import Failure, wait_for
from .slurm import Slurm


@dataclasses.dataclass(frozen=True)
class User:
    """Somebody who submits jobs."""

    name: str
    uid: int


class Bed:
    """One machine with SLURM. Subclasses say how daemons and the exporter are started on it."""

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

    def wait_idle(self, node, timeout=180):
        """Waits until SLURM would start a job on `node`."""
        wait_for(f"{self.name}: {node} to be idle",
                 lambda: self.run(f"sinfo -h -n {node} -o %T", timeout=60).split() == ["idle"], timeout)

    def scrape(self):
        """The exporter's metrics now."""
        if self.exporter is None:
            raise Failure("no exporter is running")
        return exposition.fetch(self.exporter)

    def logs(self):
        """(name, text) of everything that may explain a failure."""
        for path in self.log_files:
            rc, text, _ = self.agent.call(f"tail -n 400 {path}")
            if rc == 0:
                yield path.rsplit("/", 1)[-1], text
        yield "exporter.log", self.exporter_log()
