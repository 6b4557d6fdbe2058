#!/usr/bin/env python3
"""Draws the workspace's crates in docs/architecture.md, from cargo's metadata.

    crates.py            writes the drawing between its marks
    crates.py --check    fails if the drawing is out of date

An arrow leads from a crate to one that it uses. Arrows that follow from others are left out, and so are crates that only tests use.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/architecture.md"
BEGIN = "<!-- crates: made by make docs -->\n"
END = "<!-- crates: end -->\n"


def metadata():
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def uses(packages):
    """{crate: its direct dependencies in the workspace}, without those that another dependency has."""
    names = {package["name"] for package in packages}
    direct = {
        package["name"]: {each["name"] for each in package["dependencies"] if each["name"] in names and each["kind"] != "dev" and not each.get("optional")}
        for package in packages
    }

    def reached(name):
        found = set(direct[name])
        for each in direct[name]:
            found |= reached(each)
        return found

    return {name: found - {far for near in found for far in reached(near)} for name, found in direct.items()}


def drawing(found):
    """The fenced drawing, and a table with each crate's own sentence; dependencies come first."""
    packages = {package["name"]: package for package in found["packages"]}
    arrows = uses(found["packages"])
    order = []
    while len(order) < len(arrows):
        # Cargo refuses circles.
        order += sorted(name for name, used in arrows.items() if name not in order and used <= set(order))
    root = Path(found["workspace_root"])
    lines = ["\n", "```mermaid\n", "graph BT\n"]
    lines += [f"  {name}\n" for name in order]
    lines += [f"  {name} --> {used}\n" for name in order for used in sorted(arrows[name])]
    lines += ["```\n", "\n", "| crate | folder | what is in it |\n", "|---|---|---|\n"]
    for name in order:
        folder = Path(packages[name]["manifest_path"]).parent.relative_to(root)
        lines.append(f"| `{name}` | `{folder}/` | {packages[name]['description'] or ''} |\n")
    return "".join([*lines, "\n"])


def drawn(page, found):
    """The page with the drawing in it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.relative_to(ROOT)}: the marks {BEGIN.strip()} and {END.strip()} are missing")
    return before + BEGIN + drawing(found) + END + after


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 64
    page = PAGE.read_text()
    now = drawn(page, metadata())
    if arguments and now != page:
        print(f"{PAGE.relative_to(ROOT)}: the drawing of the crates is not what cargo says: run `make docs`", file=sys.stderr)
        return 1
    if not arguments:
        PAGE.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
