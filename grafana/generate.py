#!/usr/bin/env python3
"""Writes grafana/dashboards/*.json; with --check lists what would change, and writes nothing.

Needs the packages of requirements.txt: `make dashboards` makes an environment with them.
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from src import energy, exporter, gpu, job_report, jobs, node, overview, owner, waste  # noqa: E402

DASHBOARDS = HERE / "dashboards"
MODULES = [overview, jobs, job_report, owner, waste, node, gpu, energy, exporter]


def generated():
    """File name and text of every dashboard."""
    boards = [module.build() for module in MODULES]
    return {f"{board.uid}.json": board.json() for board in boards}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there, and fail if it differs")
    options = parser.parse_args()
    texts = generated()
    there = {path.name: path.read_text() for path in DASHBOARDS.glob("*.json")}
    if options.check:
        differing = sorted(name for name in texts.keys() | there.keys() if texts.get(name) != there.get(name))
        for name in differing:
            print(f"grafana/dashboards/{name} is not what grafana/generate.py makes: run `make dashboards`", file=sys.stderr)
        return 1 if differing else 0
    DASHBOARDS.mkdir(exist_ok=True)
    for name in there.keys() - texts.keys():
        (DASHBOARDS / name).unlink()
    for name, text in texts.items():
        (DASHBOARDS / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
