#!/usr/bin/env python3
"""Brings into the chart what it shows of the rest of the tree: rules, dashboards, and the names that its schema lists.

Helm cannot read files outside of a chart, so rules/ and grafana/dashboards/ (without blanks) are copied to <chart>/files/, and the names of
collectors (docs/flags.md), of rule files, alerts and thresholds (rules/) are written into `$defs` of values.schema.json,
so that a name that does not exist is refused. `make chart` runs this; tests/helm fails while it was forgotten.

    helm/sync.py            # write
    helm/sync.py --check    # say what differs, and exit with 1 if something does
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "jobledger-exporter"
# Tests, runbooks and the Alertmanager's example are for people, not for the cluster.
RULES = ("site.yaml", "recording/*.yaml", "alerts/*.yaml", "compat/*.yaml")
WIDTH = 150


def minified(path):
    """JSON without blanks: `kubectl apply` and Argo CD put a whole ConfigMap into an annotation, which takes 256 KiB."""
    return (json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def sources(root=ROOT):
    """Content by path below files/."""
    found = {}
    for pattern in RULES:
        for path in (root / "rules").glob(pattern):
            found[f"rules/{path.relative_to(root / 'rules')}"] = path.read_bytes()
    for path in (root / "grafana" / "dashboards").glob("*.json"):
        found[f"dashboards/{path.name}"] = minified(path)
    return found


def copies(chart=CHART):
    """The same of what is there."""
    files = chart / "files"
    return {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()}


def names(root=ROOT):
    """What the schema lists, by the name of its definition: name and schema of each."""
    rules = {path: text.decode() for path, text in sources(root).items() if path.startswith("rules/")}
    text = "\n".join(rules.values())
    flags = (root / "docs" / "flags.md").read_text()
    # Collectors are the flags whose meaning ends with whether they are on.
    collectors = re.findall(r"^\| `--collector\.([a-z_]+)` .*\(default: (?:enabled|disabled)\)", flags, re.M)
    return {
        "collectors": dict.fromkeys(collectors, {"type": "boolean"}),
        "ruleFiles": {path[len("rules/"):-len(".yaml")]: {"type": "boolean"} for path in sorted(rules)},
        "alerts": {name: {"$ref": "#/$defs/alert"} for name in sorted(re.findall(r"- alert: (\w+)$", text, re.M))},
        "settings": {
            name: {"type": "number"} for name in sorted(re.findall(r"- record: jobledger:alert_setting:(\w+)", text))
        },
    }


def formatted(value, indent=0):
    """JSON that puts on a line what fits there."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {formatted(each, indent + 2)}" for key, each in value.items()]
    else:
        parts = [formatted(each, indent + 2) for each in value]
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{opening}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * indent}{closing}"


def schema(root=ROOT, chart=CHART):
    """values.schema.json with the names as they are now."""
    value = json.loads((chart / "values.schema.json").read_text())
    for name, properties in names(root).items():
        value["$defs"][name]["properties"] = properties
    return formatted(value) + "\n"


def differences(root=ROOT, chart=CHART):
    """What sync() would change, a line each."""
    wanted, there = sources(root), copies(chart)
    found = [f"files/{path} is missing" for path in sorted(wanted.keys() - there.keys())]
    found += [f"files/{path} is in the chart alone" for path in sorted(there.keys() - wanted.keys())]
    found += [f"files/{path} differs" for path in sorted(wanted) if there.get(path, wanted[path]) != wanted[path]]
    if (chart / "values.schema.json").read_text() != schema(root, chart):
        found.append("values.schema.json lacks names or its form")
    return found


def sync(root=ROOT, chart=CHART):
    """Writes what differs."""
    wanted = sources(root)
    for path in copies(chart).keys() - wanted.keys():
        (chart / "files" / path).unlink()
    for path, content in wanted.items():
        target = chart / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (chart / "values.schema.json").write_text(schema(root, chart))


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if not arguments:
        sync()
        return 0
    found = differences()
    for line in found:
        print(f"{line}: run `make chart`")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
