"""A second cluster in a virtual machine: a slurmctld of its own that has the bed's second node, in the same slurmdbd."""

import contextlib
import re

from .processes import wait_for
from .slurm import Slurm

_DIRECTORY = "/etc/slurm-second"
_STATE = "/var/spool/slurmctld-second"
# Node, partitions, prolog and epilog are the first cluster's: the node's prolog would write files of the same names.
_OTHERS = ("Prolog=", "Epilog=", "NodeName={first}", "PartitionName=")
_UNITS = ("slurmctld-second", "slurmd-second")


class _Inside:
    """The bed's shell, with the commands of the second cluster."""

    def __init__(self, bed):
        self._bed = bed

    def run(self, script, **options):
        return self._bed.run(f"export SLURM_CONF={_DIRECTORY}/slurm.conf\n{script}", **options)


@contextlib.contextmanager
def second(bed, name):
    """The `Slurm` of a cluster of this name, for a with block."""
    first, node = bed.nodes
    skipped = tuple(line.format(first=first) for line in _OTHERS)
    lines = [line for line in bed.agent.get("/etc/slurm/slurm.conf").decode().splitlines() if not line.startswith(skipped)]
    own = {"ClusterName": name, "SlurmctldPort": "6827", "StateSaveLocation": _STATE, "SlurmctldPidFile": "/run/slurmctld/second.pid",
           "SlurmctldLogFile": "/var/log/slurm/slurmctld-second.log"}
    # Of its own port: the first cluster asks what answers at the other.
    kept = [re.sub(r"\bPort=\d+", "Port=6829", line) for line in lines if line.partition("=")[0] not in own]
    made = [*kept, *(f"{key}={value}" for key, value in own.items()), f"PartitionName=main Nodes={node} Default=YES MaxTime=INFINITE State=UP", ""]
    bed.run(f"mkdir -p {_DIRECTORY}; cp /etc/slurm/cgroup.conf /etc/slurm/gres.conf {_DIRECTORY}; install -d -o slurm {_STATE}")
    bed.agent.put(f"{_DIRECTORY}/slurm.conf", "\n".join(made).encode())
    slurmctld, slurmd = (f"systemd-run --quiet --unit={unit} -E SLURM_CONF={_DIRECTORY}/slurm.conf" for unit in _UNITS)
    inside = _Inside(bed)
    try:
        bed.run(f"{slurmctld} -p User=slurm slurmctld -D\n{slurmd} -p Delegate=yes -p KillMode=process -p LimitMEMLOCK=infinity slurmd -D -N {node}")
        wait_for(f"{name} to be up", lambda: inside.run("sinfo -h -o %T").split() == ["idle"], 180)
        found = Slurm(inside)
        yield found
        found.cancel_all()
    finally:
        bed.run(f"systemctl stop {' '.join(reversed(_UNITS))}; systemctl reset-failed {' '.join(_UNITS)} 2>/dev/null; rm -rf {_DIRECTORY} {_STATE}")
        bed.remove_slurm_cgroup(node)
