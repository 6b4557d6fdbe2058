#!/usr/bin/env python3
"""Brings into the chart what it shows of the rest of the tree: rules, dashboards, and the names that its schema lists.

Helm cannot read files outside of a chart, so rules/ and grafana/dashboards/ (without blanks) are copied to <chart>/files/. Two files are made
there: needs.json says which files of rules a file reads, alertmanager.json has the routes and mails of rules/alertmanager as an AlertmanagerConfig.
The names of collectors (docs/flags.md), of rule files, alerts and thresholds (rules/), and of receivers of mail are written into `$defs` of
values.schema.json, so that a name that does not exist is refused. `make chart` runs this; tests/helm fails while it was forgotten.

    helm/sync.py            # write
    helm/sync.py --check    # say what differs, and exit with 1 if something does
"""

import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "jobledger-exporter"
# Tests, runbooks and thresholds.yaml, of which the alerts are made, are for people, not for the cluster.
RULES = ("site.yaml", "*/*.yaml")
NO_RULES = ("tests", "alertmanager", "runbooks")
WIDTH = 150
# A name that a recording rule of the project gives.
RECORDED = re.compile(r"\b[A-Za-z_]\w*(?::\w+)+")


def minified(path):
    """JSON without blanks: `kubectl apply` and Argo CD put a whole ConfigMap into an annotation, which takes 256 KiB."""
    return (json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def sources(root=ROOT):
    """Content by path below files/."""
    found = {}
    for pattern in RULES:
        for path in (root / "rules").glob(pattern):
            if path.parent.name not in NO_RULES:
                found[f"rules/{path.relative_to(root / 'rules')}"] = path.read_bytes()
    for path in (root / "grafana" / "dashboards").glob("*.json"):
        found[f"dashboards/{path.name}"] = minified(path)
    found["needs.json"] = (formatted(needs(root)) + "\n").encode()
    found["alertmanager.json"] = (formatted(alertmanager(root)) + "\n").encode()
    return found


def needs(root=ROOT):
    """By file of rules, without its ending: the other files whose recorded series its expressions read."""
    groups = {}
    for pattern in RULES:
        for path in (root / "rules").glob(pattern):
            if path.parent.name not in NO_RULES:
                groups[str(path.relative_to(root / "rules"))[: -len(".yaml")]] = yaml.safe_load(path.read_text())["groups"]
    rules = {name: [rule for group in each for rule in group["rules"]] for name, each in groups.items()}
    makers = {rule["record"]: name for name, each in rules.items() for rule in each if "record" in rule}
    found = {}
    for name in sorted(rules):
        read = {makers.get(record) for rule in rules[name] for record in RECORDED.findall(str(rule["expr"]))}
        found[name] = sorted(read - {None, name})
    return {name: each for name, each in found.items() if each}


# Keys of Alertmanager's configuration that an AlertmanagerConfig spells otherwise than in camel case.
SPELLED = {"require_tls": "requireTLS"}


def camel(key):
    first, *rest = key.split("_")
    return SPELLED.get(key) or first + "".join(word.capitalize() for word in rest)


def matcher(text):
    """`severity=~"a|b"` as an object."""
    name, kind, value = re.fullmatch(r'\s*(\w+)\s*(=~|!~|!=|=)\s*(.*?)\s*', text).groups()
    return {"name": name, "matchType": kind, "value": json.loads(value) if value.startswith('"') else value}


def definitions(text):
    """Templates by name, each as its `define` to its `end`."""
    found, depth, start, name = {}, 0, 0, None
    for action in re.finditer(r"\{\{-?\s*(/\*.*?\*/|(\w+)[^{}]*?)\s*-?\}\}", text, re.S):
        word = action[2]
        if word == "define":
            start, name = action.start(), re.search(r'"([^"]+)"', action[0])[1]
        if word in ("define", "if", "range", "with", "block"):
            depth += 1
        elif word == "end":
            depth -= 1
            if not depth:
                found[name] = text[start:action.end()]
    return found


def inlined(text, templates):
    """A text after all templates that it needs: an AlertmanagerConfig has no files. Between them is nothing, since a subject has one line."""
    needed, waiting = set(), [text]
    while waiting:
        for name in re.findall(r'\{\{-?\s*template\s+"([^"]+)"', waiting.pop()):
            if name not in needed:
                needed.add(name)
                waiting.append(templates[name])
    return "".join(templates[name] for name in templates if name in needed) + text


def alertmanager(root=ROOT):
    """The example of rules/alertmanager as the `spec` of an AlertmanagerConfig (v1alpha1)."""
    folder = root / "rules" / "alertmanager"
    example = yaml.safe_load((folder / "alertmanager.example.yml").read_text())
    templates = {}
    for path in sorted(folder.glob("*.tmpl")):
        templates |= definitions(path.read_text())

    def route(given):
        made = {camel(key): value for key, value in given.items()}
        if "matchers" in made:
            made["matchers"] = [matcher(each) for each in made["matchers"]]
        if "routes" in made:
            made["routes"] = [route(each) for each in made["routes"]]
        return made

    def mail(given):
        made = {camel(key): inlined(value, templates) if isinstance(value, str) else value for key, value in given.items()}
        made["headers"] = [{"key": key, "value": inlined(value, templates)} for key, value in given.get("headers", {}).items()]
        return made

    def inhibit(given):
        return {"sourceMatch": [matcher(each) for each in given["source_matchers"]],
                "targetMatch": [matcher(each) for each in given["target_matchers"]], "equal": given["equal"]}

    def receiver(given):
        if given.keys() - {"name", "email_configs"}:
            raise SystemExit(f"rules/alertmanager: receiver {given['name']} is no mail")
        return {"name": given["name"]} | ({"emailConfigs": [mail(each) for each in given["email_configs"]]} if "email_configs" in given else {})

    return {"route": route(example["route"]), "inhibitRules": [inhibit(each) for each in example.get("inhibit_rules", [])],
            "receivers": [receiver(each) for each in example["receivers"]]}


def copies(chart=CHART):
    """The same of what is there."""
    files = chart / "files"
    return {str(path.relative_to(files)): path.read_bytes() for path in files.rglob("*") if path.is_file()}


def names(root=ROOT):
    """What the schema lists, by the name of its definition: name and schema of each."""
    rules = {path: text.decode() for path, text in sources(root).items() if path.startswith("rules/")}
    mailed = [each["name"] for each in alertmanager(root)["receivers"] if "emailConfigs" in each]
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
        "receivers": dict.fromkeys(sorted(mailed), {"type": "string", "minLength": 1}),
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
