"""The Debian packages that a test bed needs. They are installed before anything starts, by tests/tools/install-packages.sh."""

import subprocess

from . import cache
from .processes import Failure

LIST = cache.REPOSITORY / "tests/tools/packages.txt"


def of(use):
    """The packages of a use: the first word of a line of packages.txt."""
    lines = [line.split() for line in LIST.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    names = [name for first, *names in lines if first == use for name in names]
    if not names:
        raise ValueError(f"{LIST.name} has no packages for {use}")
    return names


def check(use):
    """Fails if a package of a use is missing. Installs nothing: beds run in parallel, apt does not."""
    query = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *of(use)],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    installed = {line.split()[0] for line in query.stdout.splitlines() if line.endswith(" installed")}
    missing = [name for name in of(use) if name not in installed]
    if missing:
        raise Failure(f"missing packages: {' '.join(missing)}; as root: tests/tools/install-packages.sh {use}")
