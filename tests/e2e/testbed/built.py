"""Programs of the workspace in the dev profile, as `cargo test` of the whole workspace builds them.

A package alone gets other features of what it depends on, and all of that is built once more.
"""

import functools
import os
import pathlib
import subprocess

from . import cache

# The Makefile has the same (TESTED).
TESTED = ("--workspace", "--locked", "--features", "jobledger/testing")
_VARIABLES = {"jobledger": "JOBLEDGER_CLI", "jobledger-demo": "JOBLEDGER_DEMO", "jobledger-exporter": "JOBLEDGER_EXPORTER"}


@functools.cache
def _directory():
    """The directory of the programs, which are built if they are not."""
    subprocess.run([os.environ.get("CARGO", "cargo"), "test", "--quiet", *TESTED, "--no-run"], cwd=cache.REPOSITORY, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or cache.REPOSITORY / "target").resolve() / "debug"


def program(name):
    """The path of a program: what its environment variable says, if it is set."""
    named = os.environ.get(_VARIABLES[name])
    return pathlib.Path(named).resolve() if named else _directory() / name


def example(name):
    """The path of an example."""
    return _directory() / "examples" / name
