#!/usr/bin/env python3
"""Finds default recording rules that nothing shipped reads, and recorded series that something shipped reads and no default rule makes.

Default rules are rules/recording and rules/site.yaml. Readers are the dashboards, the alerts, and default rules that are read themselves.
What is in rules/optional and rules/compat is for a site's own panels: it reads nothing here, and nothing here may read it.

    tests/tools/closure.py    # a line for each, and exit with 1 if there is one
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERIES = re.compile(r"\b(?:[a-z_]+:jobledger_[a-z0-9_]+|jobledger:[a-z0-9_]+):[a-z0-9_]+\b")
RULE = re.compile(r"^ *- (?:record|alert): ", re.M)


def rules_of(path):
    """The rules of a file: name, and the text of the rule without comments."""
    text = re.sub(r"^ *#.*\n", "", path.read_text(), flags=re.M)
    for block in RULE.split(text)[1:]:
        name, _, body = block.partition("\n")
        # A group that follows is none of this rule's.
        yield name.split()[0], re.split(r"^  - name: ", body, flags=re.M)[0]


def findings(root=ROOT):
    rules = root / "rules"
    recorded, read_by_rule, readers = {}, {}, {}
    for path in [rules / "site.yaml", *sorted((rules / "recording").glob("*.yaml"))]:
        for name, body in rules_of(path):
            recorded[name] = path
            read_by_rule[name] = set(SERIES.findall(body))
    alerts = {}
    for path in sorted((rules / "alerts").glob("*.yaml")):
        for name, body in rules_of(path):
            alerts[name] = path
            for series in SERIES.findall(body):
                readers.setdefault(series, path)
    for path in sorted((root / "grafana" / "dashboards").glob("*.json")):
        for series in SERIES.findall(path.read_text()):
            readers.setdefault(series, path)
    reached, todo = set(), [series for series in readers if series in recorded]
    while todo:
        series = todo.pop()
        if series not in reached:
            reached.add(series)
            todo += [name for name in read_by_rule[series] if name in recorded]
    found = [f"{recorded[name].relative_to(root)}: nothing shipped reads {name}" for name in recorded if name not in reached]
    for name, body in read_by_rule.items():
        for series in body:
            readers.setdefault(series, recorded[name])
    found += [f"{path.relative_to(root)}: no default rule makes {series}" for series, path in readers.items() if series not in recorded and series not in alerts]
    return sorted(found)


def main():
    found = findings()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
