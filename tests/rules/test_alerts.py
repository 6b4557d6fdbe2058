"""The alerts: their form, their runbooks, that their series exist, and their results for given samples (promtool).

Needs promtool (Debian: prometheus) and PyYAML (python3-yaml).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import yaml
except ImportError:
    yaml = None

from histories import HISTORIES
from needed import only

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"
sys.path.append(str(RULES))
ALERTS = sorted((RULES / "alerts").glob("*.yaml"))
TESTS = sorted((RULES / "tests" / "alerts").glob("*.yaml"))
PROMTOOL = shutil.which("promtool")
# Labels of the scrape, and of jobs on a host with several slurmd (docs/metrics.md).
TARGET = {"cluster", "job", "instance"}
SYNTHETIC = {"up": set(), "scrape_duration_seconds": set()}
SECTIONS = ["Meaning", "Impact", "What to do", "Silence"]
SERIES = re.compile(r"\b(jobledger_\w+|jobledger:[\w:]+|process_\w+|up|scrape_\w+)\b(?:\{([^}]*)\})?")


def families():
    """Labels by family, from tests/metric_names.txt."""
    found = {}
    for line in (ROOT / "tests" / "metric_names.txt").read_text().splitlines():
        name, _, labels = line.split(" ", 2)
        found[name] = set(filter(None, labels.strip("{}").split(",")))
        if "jobid" in found[name]:
            found[name].add("slurm_node")
    return found | SYNTHETIC


def without_strings_and_comments(expr):
    return re.sub(r"#.*", "", re.sub(r'"[^"]*"', '""', expr))


@unittest.skipUnless(yaml, "rules: needs python3-yaml")
class Alerts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        groups = [group for path in ALERTS for group in yaml.safe_load(path.read_text())["groups"]]
        cls.groups = [group["name"] for group in groups]
        cls.rules = [rule for group in groups for rule in group["rules"]]
        cls.alerts = [rule for rule in cls.rules if "alert" in rule]
        cls.records = [rule["record"] for rule in cls.rules if "record" in rule]
        cls.files = {path.name: yaml.safe_load(path.read_text()) for path in TESTS}
        cls.tests = [test for file in cls.files.values() for test in file["tests"]]
        cls.families = families()

    def test_names_are_unique_and_ours(self):
        names = [rule["alert"] for rule in self.alerts]
        for each in (names, self.records, self.groups):
            self.assertEqual(len(each), len(set(each)))
        for name in names:
            self.assertRegex(name, r"^Jobledger[A-Z][A-Za-z]+$")

    def test_labels_and_annotations_have_their_form(self):
        for rule in self.alerts:
            with self.subTest(rule["alert"]):
                self.assertEqual(set(rule["labels"]), {"audience", "severity"})
                self.assertIn(rule["labels"]["audience"], {"owner", "support", "hardware", "monitoring"})
                self.assertIn(rule["labels"]["severity"], {"critical", "warning", "info"})
                notes = rule["annotations"]
                of_jobs = {"measured", "advice"} if rule["alert"].startswith(("JobledgerJob", "JobledgerOwner")) else set()
                self.assertEqual(set(notes), {"summary", "description", "dashboard_url", "runbook_url"} | of_jobs)
                self.assertRegex(notes["summary"], r"^[A-Z][^{}]*\.$")
                self.assertTrue(notes["description"].removesuffix("{{ end }}").endswith((".", ").")))
                self.assertTrue(notes["runbook_url"].endswith(f"/{rule['alert']}.md"))
                dashboard = re.search(r"/d/([\w-]+)", notes["dashboard_url"])[1]
                self.assertTrue((ROOT / "grafana" / "dashboards" / f"{dashboard}.json").exists())
                if rule["alert"].startswith("JobledgerJob"):
                    self.assertIn("{{ $labels.jobid }} of {{ $labels.user }}", notes["description"])
                # What is mailed does not end and begin again with one failed scrape.
                if rule["labels"]["severity"] != "info":
                    self.assertIn("keep_firing_for", rule)

    def test_what_a_job_had_at_its_end_is_looked_at_before_it_is_gone(self):
        # --jobs.retention is two minutes, and an evaluation may be late.
        found = {}
        for path in (RULES / "alerts/shared.yaml", RULES / "alerts/jobs-memory.yaml", RULES / "recording/jobs.yaml", RULES / "recording/energy.yaml"):
            for group in yaml.safe_load(path.read_text())["groups"]:
                found |= {rule.get("record") or rule["alert"]: group["interval"] for rule in group["rules"]}
        for name in ("jobledger:alert_job:owner", "jobledger:alert_job:oom_kills", "jobledger:alert_job:first_oom_kills", "JobledgerJobOomKilled", "JobledgerJobMemoryOverAsked",
                     "jobid:jobledger_job_owner:info", "jobid_instance:jobledger_job_total_energy_joules:sum"):
            number, unit = re.fullmatch(r"(\d+)([sm])", found[name]).groups()
            self.assertLess(int(number) * {"s": 1, "m": 60}[unit], 110, name)

    def test_an_owner_is_not_paged(self):
        for rule in self.alerts:
            if rule["labels"]["audience"] in ("owner", "support"):
                self.assertNotEqual(rule["labels"]["severity"], "critical", rule["alert"])

    def test_each_alert_has_a_runbook_and_each_runbook_an_alert(self):
        pages = {path.stem: path.read_text() for path in (RULES / "runbooks").glob("*.md")}
        self.assertEqual(set(pages), {rule["alert"] for rule in self.alerts})
        for name, text in pages.items():
            with self.subTest(name):
                self.assertTrue(text.startswith(f"# {name}\n"))
                parts = re.split(r"^## (.*)\n", text, flags=re.M)
                self.assertEqual(parts[1::2], SECTIONS)
                self.assertTrue(all(part.strip() for part in parts[2::2]))

    def test_each_alert_is_tested_firing_and_silent(self):
        fired, silent = set(), set()
        for check in (check for test in self.tests for check in test["alert_rule_test"]):
            (fired if check.get("exp_alerts") else silent).add(check["alertname"])
        for _, checks in HISTORIES.values():
            silent |= {alert for _, alert, count, *_ in checks if count == 0}
        names = {rule["alert"] for rule in self.alerts}
        self.assertEqual((fired, silent), (names, names))

    def test_groups_are_evaluated_in_the_order_in_which_they_need_each_other(self):
        # promtool takes any order for those that are not named. Without shared.yaml nothing needs another.
        for name, file in self.files.items():
            if "../../alerts/shared.yaml" not in file["rule_files"]:
                continue
            used = [group["name"] for path in file["rule_files"] for group in yaml.safe_load((RULES / "tests/alerts" / path).read_text())["groups"]]
            self.assertLessEqual(set(used), {*file["group_eval_order"], "jobledger-alerts-owners"}, name)

    def test_alerts_of_jobs_have_the_owner(self):
        wanted = {"jobid", "array_job_id", "user", "account", "partition", "audience", "severity", "cluster"}
        whole = {}
        for check in (check for test in self.tests for check in test["alert_rule_test"]):
            for alert in check.get("exp_alerts", []):
                whole.setdefault(check["alertname"], set()).update(alert["exp_labels"])
                self.assertLessEqual({"summary", "description", "dashboard_url", "runbook_url"}, set(alert["exp_annotations"]))
        for name, labels in whole.items():
            if name.startswith("JobledgerJob"):
                self.assertLessEqual(wanted, labels, name)

    def test_every_series_and_label_exists(self):
        known = TARGET.union(*self.families.values())
        for rule in self.rules:
            expr = without_strings_and_comments(rule["expr"])
            with self.subTest(rule.get("alert") or rule["record"]):
                for name, selected in SERIES.findall(expr):
                    if name.startswith("jobledger:"):
                        self.assertIn(name, self.records)
                        continue
                    self.assertIn(name, self.families)
                    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected))
                    self.assertLessEqual(labels, self.families[name] | TARGET)
                for labels in re.findall(r"\b(?:on|by|without|ignoring|group_left|group_right) ?\(([^)]*)\)", expr):
                    self.assertLessEqual(set(re.findall(r"\w+", labels)), known)
                text = " ".join(rule.get("annotations", {}).values())
                self.assertLessEqual(set(re.findall(r"\$labels\.(\w+)", text)), known)

    def test_samples_in_tests_are_like_the_exporters(self):
        of_histories = [{"name": name, "input_series": series} for name, (series, _) in HISTORIES.items()]
        for test in self.tests + of_histories:
            for series in test["input_series"]:
                if 'job="other"' in series["series"]:
                    continue
                if series["series"].startswith("jobledger:"):
                    self.assertIn(series["series"].partition("{")[0], self.records)
                    continue
                name, labels = re.fullmatch(r"(\w+)\{(.*)\}", series["series"]).groups()
                labels = set(re.findall(r'(\w+)="', labels))
                with self.subTest(test["name"], series=name):
                    self.assertLessEqual(labels, self.families[name] | TARGET)

    def test_all_settings_are_asked_for(self):
        (rule,) = [rule for rule in self.alerts if rule["alert"] == "JobledgerAlertSettingsMissing"]
        settings = {name for name in self.records if name.startswith("jobledger:alert_setting:")}
        self.assertEqual(set(re.findall(r"absent\((jobledger:alert_setting:\w+)\)", rule["expr"])), settings)

    def test_settings_are_used_and_documented(self):
        page = (RULES / "ALERTS.md").read_text()
        exprs = " ".join(text for rule in self.rules for text in (rule["expr"], *rule.get("annotations", {}).values()))
        settings = [name for name in self.records if name.startswith("jobledger:alert_setting:")]
        self.assertGreater(len(settings), 10)
        for name in settings:
            self.assertIn(f"scalar({name})", exprs)
            self.assertIn(f"| `{name.rsplit(':', 1)[1]}` |", page)
        for name in set(self.records) - set(settings):
            self.assertGreater(len(re.findall(rf"{name}\b", exprs)), 0, name)


@unittest.skipUnless(yaml, "rules: needs python3-yaml")
class Sources(unittest.TestCase):
    """thresholds.yaml and xids.yaml, and what is written from them."""

    def setUp(self):
        import generate

        self.generate = generate
        self.source = yaml.safe_load((RULES / "thresholds.yaml").read_text())
        self.xids = yaml.safe_load((RULES / "xids.yaml").read_text())["xids"]

    def test_files_are_as_generated(self):
        for path, text in self.generate.generated().items():
            with self.subTest(path.name):
                self.assertEqual(path.read_text(), text, "run make thresholds")

    def test_a_change_of_the_source_reaches_all(self):
        source = yaml.safe_load((RULES / "thresholds.yaml").read_text())
        source["settings"]["CPUs of jobs"]["cpu_low_ratio"]["value"] = 0.3
        source["alerts"]["JobledgerJobCpuLow"] |= {"summary": "Changed.", "audience": "support"}
        source["advice"]["cpu_low"]["change"] = "Another advice"
        self.assertIn("jobledger:alert_setting:cpu_low_ratio\n        expr: vector(0.3)", self.generate.settings(source))
        self.assertIn("CPU_LOW_RATIO = 0.3", self.generate.python(source))
        self.assertIn('"less than 30% of the core time used, no GPU"', self.generate.python(source))
        text = self.generate.alerts(source, {"xids": self.xids}, (RULES / "alerts" / "jobs-cpu.yaml").read_text())
        (rule,) = [rule for rule in yaml.safe_load(text)["groups"][0]["rules"] if rule["alert"] == "JobledgerJobCpuLow"]
        self.assertEqual((rule["annotations"]["summary"], rule["annotations"]["advice"], rule["labels"]["audience"]), ("Changed.", "Another advice", "support"))

    def test_all_is_used(self):
        names = {rule["alert"] for path in ALERTS for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"] if "alert" in rule}
        self.assertEqual(set(self.source["alerts"]), names)
        text = (ROOT / "grafana" / "src" / "advice.py").read_text()
        on_dashboards = {name for name, each in self.source["advice"].items() if not each.get("tool")}
        self.assertEqual(on_dashboards, set(re.findall(r'^    "(\w+)": ', text, re.M)))

    def test_xids_by_the_catalogues_buckets(self):
        codes = [code for each in self.xids for code in each["codes"]]
        self.assertEqual(len(codes), len(set(codes)))
        for each in self.xids:
            with self.subTest(each["name"]):
                if each["at_once"].startswith(("RESET_", "RESTART_BM", "RESTART_VM")):
                    self.assertEqual(each["alert"], "critical")
                if each["alert"] == "critical":
                    self.assertRegex(each["at_once"], "^(RESET_GPU|RESTART_BM|RESTART_VM|WORKFLOW_XID_48|WORKFLOW_NVLINK_ERR)$")
                if each["alert"] == "application":
                    self.assertRegex(each["at_once"], "^(RESTART_APP|IGNORE|WORKFLOW_XID_45)$")
        nodes = (RULES / "alerts" / "nodes.yaml").read_text()
        critical = re.search(r'code=~"([^"]+)"', nodes)[1].split("|")
        self.assertTrue({"48", "79", "95", "119"} <= set(critical) and not {"13", "31", "63", "94"} & set(critical))


@unittest.skipUnless(PROMTOOL, "rules: needs promtool (prometheus)")
class Promtool(unittest.TestCase):
    def run_it(self, *args):
        done = subprocess.run([PROMTOOL, *args], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_rules_are_well_formed(self):
        code, says = self.run_it("check", "rules", *ALERTS)
        self.assertEqual(code, 0, says)

    def test_alerts_fire_only_when_they_should(self):
        with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(os.cpu_count()) as pool:
            def run(numbered):
                at, (path, test) = numbered
                whole = yaml.safe_load(path.read_text())
                groups = [group for file in whole["rule_files"] for group in yaml.safe_load((path.parent / file).read_text())["groups"]]
                groups = only(groups, {check["alertname"] for check in test["alert_rule_test"]})
                names = {group["name"] for group in groups}
                rules, alone = Path(home) / f"{at}-rules.yaml", Path(home) / f"{at}.yaml"
                order = [name for name in whole.get("group_eval_order", []) if name in names]
                rules.write_text(yaml.safe_dump({"groups": groups}, width=10_000))
                alone.write_text(yaml.safe_dump(whole | {"rule_files": [str(rules)], "group_eval_order": order, "tests": [test]}, width=10_000))
                return self.run_it("test", "rules", alone)

            tests = [(path, test) for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]
            for (path, test), (code, says) in zip(tests, pool.map(run, enumerate(tests))):
                with self.subTest(path.name, test=test["name"]):
                    self.assertEqual(code, 0, says)


if __name__ == "__main__":
    unittest.main()
