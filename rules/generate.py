#!/usr/bin/env python3
"""Writes what thresholds.yaml (its head lists it) and xids.yaml are the source of. --check lists what would change, and writes nothing.

Needs PyYAML (Debian: python3-yaml).
"""

import argparse
import os
import re
import sys
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

RULES = Path(__file__).resolve().parent
ROOT = RULES.parent
RUNBOOKS = "https://example.org/jobledger/runbooks"
GRAFANA = "https://grafana.example.org/d"
CLUSTER = "var-cluster={{ $labels.cluster }}"
DASHBOARDS = {
    "job": f"{GRAFANA}/jobledger-job-report?{CLUSTER}&var-jobid={{{{ $labels.jobid }}}}",
    "owner": f"{GRAFANA}/jobledger-owner?{CLUSTER}&var-user={{{{ $labels.user }}}}",
    "gpu": f"{GRAFANA}/jobledger-gpu?{CLUSTER}&var-instance={{{{ $labels.instance }}}}",
    "node": f"{GRAFANA}/jobledger-node?{CLUSTER}&var-instance={{{{ $labels.instance }}}}",
    "exporter": f"{GRAFANA}/jobledger-exporter?{CLUSTER}",
}


# Texts may show recorded numbers of the alert's job; one that is not there is left out.
JOB = """{{ $job := printf "{cluster='%s',job='%s',jobid='%s'}" $labels.cluster $labels.job $labels.jobid }}"""


def asked(name):
    return f'{{{{ with print "jobledger:alert_job:{name}" $job | query }}}}'


def value(form):
    return f'{{{{ . | first | value | printf "{form}" }}}}'


def shown(name, form):
    return f"{asked(name)}{value(form)}{{{{ end }}}}"


USED, HELD = shown("cores_used", "%.3g"), shown("cores_held", "%.3g")
# What texts in thresholds.yaml may say in short. CPUs that work may stage data, or do what the GPU should.
SHORT = {
    "{{ GPUs }}": "{{ $value }} GPU{{ if ne $value 1.0 }}s{{ end }}",
    "{{ idle GPU-hours }}": shown("idle_gpu_hours", "%.1f") + " idle GPU-hours",
    "{{ cores used }}": USED,
    "{{ cores held }}": HELD,
    "{{ cores busy }}": f"{asked('cores_used')}, {value('%.3g')} of {HELD} cores busy{{{{ end }}}}",
    "{{ what the CPUs do }}": f"{asked('cores_used')} Meanwhile {value('%.3g')} of {HELD} cores are busy.{{{{ end }}}}{asked('cpus_work')} If the job stages data, "
                              "ask for the GPU later; if it computes, it does so without the GPU.{{ end }}",
}


def quoted(text):
    return "'" + text.replace("'", "''") + "'" if re.search(r"[{}:#'\"]", text) else text


def expanded(text):
    for short, long in SHORT.items():
        text = text.replace(short, long)
    return JOB + text if "$job" in text else text


def flat(source):
    """All settings by name."""
    return {name: each["value"] for group in source["settings"].values() for name, each in group.items()}


def settings(source):
    """The groups of settings.yaml that hold numbers. The first goes on with the group of the jobs that are left out; Mimir takes 20 rules of one."""
    lines = []
    for group, named in source["settings"].items():
        if lines:
            lines.append(f"\n  - name: jobledger-alert-settings-{re.sub(r'[^a-z]+', '-', group.lower())}\n    rules:")
            lines.append(f"      # {group}.")
        else:
            lines.append(f"\n      # {group}.")
        for name, each in named.items():
            lines.append(f"      # {each['is']}")
            lines.append(f"      - record: jobledger:alert_setting:{name}")
            lines.append(f"        expr: vector({each['value']})")
    return "\n".join(lines) + "\n"


def missing(source):
    """Asks for each setting."""
    asked = [f"            absent(jobledger:alert_setting:{name})\n          or\n" for name in flat(source)]
    return "".join(asked) + "            (count(jobledger_job_start_time_seconds) and on () absent(jobledger:alert_job:all))\n"


def notes(source, name):
    """Labels and annotations of an alert."""
    own = source["alerts"][name]
    lines = [f"        labels:\n          audience: {own['audience']}\n          severity: {own['severity']}\n        annotations:\n"]
    texts = {"summary": own["summary"], "description": expanded(own["description"])}
    if "measured" in own:
        texts["measured"] = expanded(own["measured"])
        texts["advice"] = source["advice"].get(own["advice"], {"change": own["advice"]})["change"]
    texts["dashboard_url"] = DASHBOARDS[own["dashboard"]]
    texts["runbook_url"] = f"{RUNBOOKS}/{name}.md"
    lines += [f"          {key}: {quoted(text)}\n" for key, text in texts.items()]
    return "".join(lines)


def codes(xids, *classes):
    return "|".join(str(code) for each in xids["xids"] if each["alert"] in classes for code in each["codes"])


def alerts(source, xids, text):
    """A file of alerts with the labels and annotations of the source."""
    parts = re.split(r"(?m)^(?=      - (?:alert|record): |      # |  - name: )", text)
    for at, part in enumerate(parts):
        found = re.match(r"      - alert: (\w+)\n", part)
        if not found:
            continue
        name = found[1]
        head = re.split(r"(?m)^        labels:\n", part)[0]
        if name == "JobledgerAlertSettingsMissing":
            head = re.sub(r"(?s)(expr: \|2-\n).*?(?=        for:)", lambda match: match[1] + missing(source), head)
        if name.startswith("JobledgerGpuXid"):
            ours = {"JobledgerGpuXid": ("=~", codes(xids, "critical")), "JobledgerGpuXidApplication": ("=~", codes(xids, "application")),
                    "JobledgerGpuXidWarning": ("!~", codes(xids, "critical", "application"))}[name]
            head = re.sub(r'code(=~|!~)"[^"]*"', f'code{ours[0]}"{ours[1]}"', head)
        parts[at] = head + notes(source, name)
    return "".join(parts)


def python(source):
    """grafana/src/thresholds.py: the dashboards' environment has no YAML."""
    values = flat(source) | source["report"]
    lines = ['"""Thresholds and texts of advice. Written by rules/generate.py from rules/thresholds.yaml: change them there, `make thresholds`."""\n']
    lines += [f"{name.upper()} = {value}" for name, value in values.items()]
    lines.append("\n# By name: what is wrong, what to change, the threshold.\nADVICE = {")
    for name, each in source["advice"].items():
        if each.get("tool"):
            continue
        lines.append(f'    "{name}": (')
        lines += [f'        "{text}",' for text in (each["what"], each["change"], each["when"].format(**values))]
        lines.append("    ),")
    return "\n".join(lines) + "\n}\n"


def table(source):
    lines = ["| setting | value | is |", "|---|---|---|"]
    for named in source["settings"].values():
        lines += [f"| `{name}` | {each['value']} | {each['is']} |" for name, each in named.items()]
    return "\n".join(lines) + "\n"


def audiences(source):
    """Names by audience and severity."""
    lines = ["| audience | severity | alerts |", "|---|---|---|"]
    for audience in ("owner", "support", "hardware", "monitoring"):
        for severity in ("critical", "warning", "info"):
            names = [name for name, each in source["alerts"].items() if (each["audience"], each["severity"]) == (audience, severity)]
            if names:
                links = [f"[{name.removeprefix('Jobledger')}](runbooks/{name}.md)" for name in names]
                lines.append(f"| `{audience}` | {severity} | {', '.join(links)} |")
    return "\n".join(lines) + "\n"


def catalogue(xids):
    lines = ["| Xid | NVIDIA's name | at once | then | alert |", "|---|---|---|---|---|"]
    alert = {"critical": "JobledgerGpuXid", "warning": "JobledgerGpuXidWarning", "application": "JobledgerGpuXidApplication"}
    for each in xids["xids"]:
        lines.append(f"| {', '.join(map(str, each['codes']))} | {each['name']} | {each['at_once']} | {each['then']} | {alert[each['alert']]} |")
    return "\n".join(lines) + "\n"


def between(text, mark, made):
    """A page with what is between two marks replaced."""
    begin, end = f"<!-- {mark}: made by make thresholds -->\n", f"<!-- {mark}: end -->"
    if begin not in text or end not in text:
        raise SystemExit(f"the marks of {mark} are gone")
    return text[: text.index(begin) + len(begin)] + "\n" + made + "\n" + text[text.index(end) :]


def generated():
    """Text by path."""
    source = yaml.safe_load((RULES / "thresholds.yaml").read_text())
    xids = yaml.safe_load((RULES / "xids.yaml").read_text())
    made = {}
    for path in (RULES / "alerts").glob("*.yaml"):
        text = path.read_text()
        if path.name == "settings.yaml":
            head = text.partition("\n      # GPUs of jobs.\n")[0].rstrip("\n")
            made[path] = head + "\n" + settings(source)
        else:
            made[path] = alerts(source, xids, text)
    page = RULES / "ALERTS.md"
    made[page] = between(between(page.read_text(), "thresholds", table(source)), "audiences", audiences(source))
    page = RULES / "runbooks" / "JobledgerGpuXid.md"
    made[page] = between(page.read_text(), "xids", catalogue(xids))
    made[ROOT / "grafana" / "src" / "thresholds.py"] = python(source)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with what is there, and fail if it differs")
    options = parser.parse_args()
    if not yaml:
        print("rules/generate.py: nothing was looked at, since python3-yaml is missing", file=sys.stderr)
        # `make lint` needs no package; CI has all of them.
        return 0 if options.check and not os.environ.get("CI") else 1
    differing = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in differing.items():
        if options.check:
            print(f"{path.relative_to(ROOT)} is not what rules/generate.py makes: run `make thresholds`", file=sys.stderr)
        else:
            path.write_text(text)
    return 1 if options.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
