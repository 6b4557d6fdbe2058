"""What the alerts make of histories.py, by promtool (Debian: prometheus), also with users and accounts on every series of a job."""

import copy
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

from histories import CPU_LOW, HISTORIES, NODE_IDLE, STILL
from needed import only

RULES = Path(__file__).resolve().parents[2] / "rules"
PROMTOOL = shutil.which("promtool")
# Groups are evaluated in this order: what others read comes first. Without group_eval_order promtool takes any order.
FILES = [RULES / "alerts" / f"{name}.yaml" for name in ("settings", "shared", "jobs-gpu", "jobs-cpu", "jobs-memory", "nodes", "exporter")]


def rules_for(names):
    groups = only([group for path in FILES for group in yaml.safe_load(path.read_text())["groups"]], names, texts=False)
    missing = names - {rule.get("alert") for group in groups for rule in group["rules"]}
    if missing:
        raise ValueError(f"no rules: {missing}")
    return {"groups": groups}


def test_file(rules, order, series, checks):
    asked = []
    for minute, alert, count, *more in checks:
        selected = ",".join([f'alertname="{alert}"', 'alertstate="firing"', *more])
        asked.append({"expr": f"count(ALERTS{{{selected}}}) or vector(0)", "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": count}]})
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "group_eval_order": order, "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]}


def with_job_labels(series):
    """What --metric.job-labels=user,account makes of it: both on every series of a job, where the node knows them."""
    found = copy.deepcopy(series)
    known = {}
    for each in series:
        if each["series"].startswith("jobledger_job_info"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', each["series"]))
            known.setdefault((labels["instance"], labels["jobid"]), {key: labels[key] for key in ("user", "account") if key in labels})
    for each in found:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', each["series"]))
        own = known.get((labels["instance"], labels.get("jobid")), {})
        if own and not each["series"].startswith("jobledger_job_info"):
            each["series"] = each["series"][:-1] + "".join(f',{key}="{value}"' for key, value in own.items()) + "}"
    return found


def by_replicas(series):
    """What two servers with a label `replica` write into one store."""
    return [each | {"series": each["series"][:-1] + f',replica="{replica}"}}'} for replica in "ab" for each in series]


def least_with_all_results(histories):
    """The shortest of these histories in which each alert fires, and is silent, if it does in any: what a label breaks is an expression."""
    kept, seen = {}, set()
    for name, (series, checks) in sorted(histories.items(), key=lambda each: max(check[0] for check in each[1][1])):
        results = {(alert, count > 0) for _, alert, count, *_ in checks}
        if results - seen:
            kept[name] = (series, checks)
            seen |= results
    return kept


@unittest.skipUnless(yaml and PROMTOOL, "rules: needs promtool (prometheus) and python3-yaml")
class Histories(unittest.TestCase):
    def check_all(self, histories):
        with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(os.cpu_count()) as pool:
            def run(numbered):
                at, (series, checks) = numbered
                rules, path = Path(home) / f"{at}-rules.yaml", Path(home) / f"{at}.yaml"
                needed = rules_for({check[1] for check in checks})
                order = [group["name"] for group in needed["groups"]]
                rules.write_text(yaml.safe_dump(needed, width=1000))
                path.write_text(yaml.safe_dump(test_file(rules, order, series, checks), width=1000))
                done = subprocess.run([PROMTOOL, "test", "rules", path], capture_output=True, text=True)
                return done.returncode, done.stdout + done.stderr

            for name, (code, says) in zip(histories, pool.map(run, enumerate(histories.values()))):
                with self.subTest(name):
                    self.assertEqual(code, 0, says)

    def test_alerts_are_as_wanted(self):
        self.check_all(HISTORIES)

    def test_alerts_are_the_same_with_labels_of_the_owner_on_every_series(self):
        histories = {name: (with_job_labels(series), checks) for name, (series, checks) in HISTORIES.items()}
        changed = {name: each for name, each in histories.items() if each[0] != HISTORIES[name][0]}
        self.assertGreater(len(changed), 30)
        self.check_all(least_with_all_results(changed))

    def test_alerts_of_cpus_are_the_same_over_two_replicas(self):
        of_cpus = {name: (by_replicas(series), checks) for name, (series, checks) in HISTORIES.items() if {check[1] for check in checks} <= {CPU_LOW, NODE_IDLE, STILL}}
        self.assertGreater(len(of_cpus), 5)
        self.check_all(of_cpus)


if __name__ == "__main__":
    unittest.main()
