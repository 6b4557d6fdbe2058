#!/usr/bin/env python3
"""Finds names for rule files with which Prometheus starts all groups at the same moment, the worst case.

A hash of a group's name and its file's path determines when it starts in its interval (Prometheus, rules/manager.go and
rules/group.go, `EvalTimestamp`; model/labels/labels.go and labels_stringlabels.go, `Hash`). So another file name moves the start.
Runs with Debian's Python and python3-xxhash: reads {"directory", "files": {name: {group: seconds}}, "version"} and writes
{name: new name}.
"""

import itertools
import json
import subprocess
import sys

# Seconds after the start of the interval within which all groups start.
WITHIN = 0.5
PYTHON = "/usr/bin/python3"


def names(directory, files, version):
    """{name: new name} of rule files in `directory` for a Prometheus of this version. `files` is {name: {group: interval in seconds}}."""
    given = json.dumps({"directory": str(directory), "files": files, "version": version})
    done = subprocess.run([PYTHON, __file__], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _encoded(path, group, version):
    """The labels of a group in the form that is hashed."""
    labels = [part.encode() for part in ("file", path, "name", group)]
    if version.startswith("2."):
        return b"".join(part + b"\xff" for part in labels)
    return b"".join(bytes([len(part)]) + part for part in labels)


def _another(directory, name, groups, version):
    from xxhash import xxh64_intdigest
    for number in itertools.count():
        other = f"{name.removesuffix('.yaml')}-{number}.yaml"
        if all(xxh64_intdigest(_encoded(f"{directory}/{other}", group, version)) % int(seconds * 1e9) < WITHIN * 1e9
               for group, seconds in groups.items()):
            return other


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump({name: _another(asked["directory"], name, groups, asked["version"]) for name, groups in asked["files"].items()}, sys.stdout)
