"""Packages of other Debian suites, from the archive of the machine's apt."""

import pathlib
import re
import shutil
import subprocess

from .processes import Failure

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def mirror():
    """The URL of this machine's main archive."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(LABEL)", "Created-By: Packages"],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in targets.splitlines():
        address, release, label = (line + " ").split(" ", 2)
        if label.strip() == "Debian" and "-" not in release:
            return address
    raise Failure("apt knows no Debian archive (apt-get update may be due)")


class Archive:
    """Packages of a suite of the machine's archive, for an architecture; what apt knows of it is below the directory `work`."""

    def __init__(self, suite, work, architecture=None):
        self._work = pathlib.Path(work)
        for directory in ("state/lists/partial", "cache/archives/partial", "etc"):
            (self._work / directory).mkdir(parents=True)
        (self._work / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror()} {suite} main\n")
        (self._work / "state/status").touch()
        named = (f"Dir::Etc::sourcelist={self._work}/sources.list", "Dir::Etc::sourceparts=-", f"Dir::State={self._work}/state",
                 f"Dir::State::status={self._work}/state/status", f"Dir::Cache={self._work}/cache", "APT::Sandbox::User=root",
                 "Acquire::Languages=none",
                 # sid's Release expires within hours and a mirror may be behind; signatures are still checked.
                 "Acquire::Check-Valid-Until=false",
                 *([f"APT::Architecture={architecture}", f"APT::Architectures={architecture}"] if architecture else []))
        self._options = [word for option in named for word in ("-o", option)]
        subprocess.run(["apt-get", "-q", *self._options, "update"], stdout=subprocess.DEVNULL, check=True)

    def depends(self, package, pattern):
        """The dependencies of a package whose names match."""
        return depends(package, pattern, self._options)

    def unpack(self, package, into):
        """Unpacks one package below the directory `into`, without its dependencies."""
        subprocess.run(["apt-get", "-q", *self._options, "download", package], cwd=self._work, stdout=subprocess.DEVNULL, check=True)
        _unpack_only(self._work, into)


def depends(package, pattern, options=()):
    """The dependencies of a package of the machine's own suite whose names match."""
    lines = subprocess.run(["apt-cache", *options, "depends", package], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = re.findall(rf"Depends: ({pattern})$", lines, re.MULTILINE)
    if not names:
        raise Failure(f"apt knows no {package} (apt-get update may be due)")
    return names


def download(package, suite, into, architecture=None):
    """Unpacks one package of `suite` below the directory `into`, without its dependencies."""
    work = pathlib.Path(into) / "download"
    Archive(suite, work, architecture).unpack(package, into)
    shutil.rmtree(work)


def download_own(package, into):
    """Unpacks one package of the machine's own suite below the directory `into`."""
    work = pathlib.Path(into) / "download"
    work.mkdir()
    subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package],
                   cwd=work, stdout=subprocess.DEVNULL, check=True)
    _unpack_only(work, into)
    work.rmdir()


def _unpack_only(work, into):
    """Unpacks the only package in `work` and removes it."""
    (archive,) = work.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(archive), str(into)], check=True)
    archive.unlink()
