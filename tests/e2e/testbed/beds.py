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
