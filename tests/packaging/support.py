"""Shared by the tests of packages: paths, and a parser of units."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SERVICE = "jobledger-exporter.service"
UNIT = PACKAGING / "systemd" / SERVICE
DROP_INS = sorted((PACKAGING / "systemd" / "drop-ins").glob("*.conf"))
# The packaged binaries: `make test-packages` builds them.
EXPORTER = Path(os.environ.get("JOBLEDGER_EXPORTER", ROOT / "target/tested/jobledger-exporter"))
CLI = Path(os.environ.get("JOBLEDGER_CLI", ROOT / "target/tested/jobledger"))


def settings(path):
    """(key, value) of a unit's lines, in order."""
    lines = path.read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"[A-Za-z]+=", line)]


def values(path, key):
    """The words of all lines with a key."""
    return [word for name, value in settings(path) if name == key for word in value.split()]


def environment(path):
    """The environment that a unit or drop-in sets."""
    return dict(word.split("=", 1) for word in values(path, "Environment"))


def flags():
    """Environment variable -> flag, from docs/flags.md."""
    rows = re.findall(r"^\| `(--[^`]+)` \|.*?\| `(JOBLEDGER_\w+)` \|", (ROOT / "docs/flags.md").read_text(), re.MULTILINE)
    return {variable: flag for flag, variable in rows}
