"""The exporter's Debian package: built on the host, installed in a bed for a with block."""

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path

from . import cache, packages
from .exposition import SCRAPED
from .processes import wait_for

NAME = "jobledger-exporter"
UNIT = f"{NAME}.service"
SHARE = "/usr/share/jobledger"
SETTINGS = f"/etc/default/{NAME}"
DROP_INS = f"/etc/systemd/system/{UNIT}.d"
_FILE = f"/opt/testbed/{NAME}.deb"
_LATER = f"/opt/testbed/{NAME}-later.deb"
_APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Options::=--force-confold"


def no_package(bed):
    """Why the package cannot be installed on a bed, or None."""
    return None if bed.emulated else "packages are installed in virtual machines only"


class Installed:
    """The package in a bed, and its service."""

    def __init__(self, bed):
        self._bed = bed

    def install(self):
        """Installs it."""
        return self._bed.run(f"{_APT} install {_FILE} 2>&1", timeout=600)

    def upgrade(self):
        """Installs a later version of it, which has the same files."""
        return self._bed.run(f"{_APT} install {_LATER} 2>&1", timeout=600)

    def version(self):
        """The installed version."""
        return self._bed.run(f"dpkg-query -W -f '${{Version}}' {NAME}").strip()

    def remove(self, purge=False):
        """Removes it; returns the output."""
        return self._bed.run(f"{_APT} {'purge' if purge else 'remove'} {NAME} 2>&1", timeout=600)

    def files(self):
        """Its files, and directories that belong to no other package."""
        listed = self._bed.run(f"dpkg -L {NAME}").split()
        return [path for path in listed if "jobledger" in path]

    def property(self, name):
        """A property of the service (systemctl show)."""
        return self._bed.run(f"systemctl show -p {name} --value {UNIT}").strip()

    def capabilities(self):
        """The running exporter's capability sets as numbers: permitted, effective, bounding, ambient."""
        status = self._bed.run(f"cat /proc/{self.property('MainPID')}/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Cap"))
        return {name: int(fields[f"Cap{name}"], 16) for name in ("Prm", "Eff", "Bnd", "Amb")}

    def restart(self):
        """Restarts the service and waits for it."""
        self._bed.run(f"systemctl daemon-reload; systemctl reset-failed {UNIT} 2>/dev/null; systemctl restart {UNIT}",
                      timeout=180)
        wait_for("the service to answer", lambda: self._bed.scrape().samples, 60)

    @contextlib.contextmanager
    def linked(self, *names, flags=()):
        """Runs the service with these drop-ins and flags, for a with block."""
        links = "; ".join(f"ln -s {SHARE}/systemd/{name}.conf {DROP_INS}/" for name in names)
        self._bed.run(f"mkdir -p {DROP_INS}; {links or ':'}; echo 'ARGS=\"{' '.join((*SCRAPED, *flags))}\"' > {SETTINGS}")
        self.restart()
        try:
            yield
        finally:
            self._bed.run(f"rm -rf {DROP_INS}; echo > {SETTINGS}; systemctl daemon-reload")

    def log(self):
        """The journal of the service."""
        return self._bed.run(f"journalctl -q -u {UNIT} -o cat --no-pager || true")


def _later(deb, directory):
    """The same package with a later version."""
    tree, later = Path(directory, "later"), Path(directory, "later.deb")
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    lines = control.read_text().splitlines()
    control.write_text("".join(f"{line}+later\n" if line.startswith("Version: ") else f"{line}\n" for line in lines))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, later], stdout=subprocess.DEVNULL, check=True)
    return later


@contextlib.contextmanager
def installed(context):
    """Installs a package of the binary under test, for a with block. That of `jobledger` is made of it, too, and not installed."""
    bed = context.bed
    packages.check("packages")
    with tempfile.TemporaryDirectory() as directory:
        # xz is slow on an emulated machine.
        subprocess.run([cache.REPOSITORY / "packaging/build.sh", "--binary", context.binary, "--cli", context.binary, "--only", "deb",
                        "--output", directory], env=os.environ | {"DPKG_DEB_COMPRESSOR_TYPE": "gzip"},
                       stdout=subprocess.DEVNULL, check=True)
        (deb,) = Path(directory).glob(f"{NAME}_*.deb")
        bed.agent.put(_FILE, deb.read_bytes())
        bed.agent.put(_LATER, _later(deb, directory).read_bytes())
    package = Installed(bed)
    try:
        package.install()
        bed.exporter = bed.exporter_address
        wait_for("the service to answer", lambda: bed.scrape().samples, 60)
        yield package
    finally:
        bed.exporter = None
        bed.agent.call(f"{_APT} purge {NAME}; rm -f {_FILE} {_LATER}", timeout=600)
