"""The Debian packages the beds need on the machine that runs them."""

import os
import pathlib
import shutil
import subprocess

from .processes import Failure

SLURM = ["slurm-wlm", "slurm-wlm-basic-plugins", "munge", "libpmi2-0"]
MACHINE = ["qemu-system-x86", "mmdebstrap", "kmod", "cpio", "busybox-static", "e2fsprogs", "util-linux"]
# What builds modules for the kernel of Debian 12.
KERNEL_MODULES = ["gcc-12", "make", "libelf1"]
PROMETHEUS = ["prometheus"]
# What makes the exporter's own package (packaging/build.sh).
PACKAGING = ["debhelper", "dpkg-dev"]

_POLICY = pathlib.Path("/usr/sbin/policy-rc.d")


def missing(names):
    """The packages of `names` that are not installed."""
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    installed = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def ensure(names):
    """Installs what is missing of `names`, without starting any daemon."""
    wanted = missing(names)
    if not wanted:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure("needs: apt-get install --no-install-recommends " + " ".join(wanted))
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *wanted]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with _no_daemons():
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
            # Stale lists, or a qemu of backports that wants its own kind.
            subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL, check=True)
            command[2:2] = _backports_where_present()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    still = missing(names)
    if still:
        raise Failure("not installed although apt-get succeeded: " + " ".join(still))


def _backports_where_present():
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "qemu-utils"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    return ["-t", "bookworm-backports"] if "~bpo12" in version else []


class _no_daemons:
    """Debian's own way to keep maintainer scripts from starting services."""

    def __enter__(self):
        self.mine = not _POLICY.exists()
        if self.mine:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)

    def __exit__(self, *_):
        if self.mine:
            _POLICY.unlink(missing_ok=True)
