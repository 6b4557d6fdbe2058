"""Packages of other Debian suites, from the archive of the machine's apt."""

import pathlib
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


def download(package, suite, into):
    """Unpacks one package of `suite` below the directory `into`, without its dependencies."""
    work = pathlib.Path(into) / "download"
    for directory in ("state/lists/partial", "cache/archives/partial", "etc"):
        (work / directory).mkdir(parents=True)
    (work / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror()} {suite} main\n")
    (work / "state/status").touch()
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=-",
           "-o", f"Dir::State={work}/state", "-o", f"Dir::State::status={work}/state/status",
           "-o", f"Dir::Cache={work}/cache", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none",
           # sid's Release expires within hours and a mirror may be behind; signatures are still checked.
           "-o", "Acquire::Check-Valid-Until=false"]
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, check=True)
    subprocess.run([*apt, "download", package], cwd=work, stdout=subprocess.DEVNULL, check=True)
    unpack(work, into)


def download_own(package, into):
    """Unpacks one package of the machine's own suite below the directory `into`."""
    work = pathlib.Path(into) / "download"
    work.mkdir()
    subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package],
                   cwd=work, stdout=subprocess.DEVNULL, check=True)
    unpack(work, into)


def unpack(work, into):
    """Unpacks the only package in `work` and removes `work`."""
    (archive,) = work.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(archive), str(into)], check=True)
    subprocess.run(["rm", "-rf", str(work)], check=True)
