"""All beds by name."""

from . import host, vm

# Those with the most to do first.
STANDARD = {
    "vm-22.05-v2": lambda: vm.boot("vm-22.05-v2", "bookworm", "v2"),
    "vm-24.11-v2": lambda: vm.boot("vm-24.11-v2", "trixie", "v2"),
    "vm-22.05-v1": lambda: vm.boot("vm-22.05-v1", "bookworm", "v1"),
    "host-v1": lambda: host.start("host-v1"),
}
# What moves with Debian's unstable suite, and is therefore run only when asked for by name.
MOVING = {
    "vm-26.05-v2": lambda: vm.boot("vm-26.05-v2", "sid", "v2"),
}
ALL = STANDARD | MOVING
# They use this machine's own cgroups: one at a time.
ALONE = {"host-v1"}

# Where a scenario runs if neither it nor a bed is named (run.py --each runs it on every bed that can).
# What depends on SLURM's version, on its plugin for cgroups, or on its prologs: the oldest with v1, the newest with v2.
EACH_SLURM = ("host-v1", "vm-24.11-v2")
# What depends on the version of cgroups alone. host-v1 is the fast one of v1.
EACH_CGROUP = ("vm-22.05-v2", "host-v1")
# The same with v1's controllers of CPU time and memory, which host-v1 lacks.
EACH_CONTROLLER = ("vm-22.05-v2", "vm-22.05-v1")
# What depends on neither: devices, the package.
ONCE = ("vm-22.05-v2",)
# What is the same in all supported versions of SLURM, but would first change in a new one.
NEWEST = ("vm-24.11-v2",)
V1 = ("vm-22.05-v1",)
# What depends on the kernel: Debian 12's with each version of cgroups, and Debian 13's.
EACH_KERNEL = (*EACH_CONTROLLER, *NEWEST)
