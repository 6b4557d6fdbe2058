"""The recording rules (rules/recording, rules/optional, rules/compat, rules/site.yaml): promtool's checks, its unit tests, and checks that promtool lacks.

Run: python3 -m unittest discover -s tests/rules
Needs promtool 2.42 or later (apt-get install prometheus).
"""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "rules"
# Files that a site loads by default, and others that stand on them.
DEFAULT = sorted((RULES / "recording").glob("*.yaml"))
RECORDING = DEFAULT + sorted((RULES / "optional").glob("*.yaml"))
COMPAT = sorted((RULES / "compat").glob("*.yaml"))
SITE = RULES / "site.yaml"
TESTS = sorted((RULES / "tests" / "recording").glob("*.yaml"))

LEVELS = "jobid_instance|jobid_gpu|jobid|ended|owner|instance"
NAME = re.compile(rf"(?:({LEVELS}):jobledger_[a-z0-9_]+:[a-z0-9_]+|jobledger:carbon_(intensity|factor):grams_per_kwh|jobledger:power_usage_effectiveness:ratio)\Z")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_:]*")
TARGET_LABELS = {"job", "instance"}


class Rule:
    def __init__(self, path, group, interval, comment, record):
        self.path, self.group, self.interval, self.comment, self.record, self.expr = path, group, interval, comment, record, ""
        self.labels = False

    def __repr__(self):
        return f"{self.path.relative_to(ROOT)}: {self.record}"


def rules_of(path):
    """The rules of a file. Anything that is not in the form of these files is an error."""
    rules, group, interval, comment, lines = [], None, None, [], iter(path.read_text().splitlines())
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if line.startswith("  - name: "):
            group, interval = text.removeprefix("- name: "), None
        elif line.startswith("    interval: "):
            interval = text.removeprefix("interval: ")
        elif line.startswith("      # "):
            comment.append(text)
        elif line.startswith("      - record: "):
            rules.append(Rule(path, group, interval, comment, text.removeprefix("- record: ")))
            comment = []
        elif line.startswith("        expr: "):
            if not text.startswith("expr: |"):
                rules[-1].expr = text.removeprefix("expr: ")
        elif line == "        labels:":
            rules[-1].labels = True
        elif line.startswith("          "):
            if not rules[-1].labels:
                rules[-1].expr += text + "\n"
        elif text and not text.startswith("#") and line not in ("groups:", "    rules:"):
            raise ValueError(f"{path}:{number}: {line}")
    return rules


def families():
    """Labels by family, `step`'s and `task`'s apart, from tests/metric_names.txt."""
    found = {}
    for line in (ROOT / "tests" / "metric_names.txt").read_text().splitlines():
        name, kind, labels = re.fullmatch(r"(\S+) (\S+) \{(.*)\}", line).groups()
        found[name] = set(filter(None, labels.split(",")))
    return found


def without_strings(expr):
    return re.sub(r'"[^"]*"', '""', expr)


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


ALL = {path: rules_of(path) for path in [*RECORDING, SITE, *COMPAT]}


class Form(unittest.TestCase):
    """The form of a rule."""

    def each(self, paths=None):
        return [rule for path in paths or ALL for rule in ALL[path]]

    def test_there_are_rules_and_not_too_many(self):
        self.assertGreater(sum(map(len, ALL.values())), 200)
        # Mimir's ruler takes 20 of a group by default.
        for path, rules in ALL.items():
            for group in {rule.group for rule in rules}:
                with self.subTest(path=path, group=group):
                    self.assertLessEqual(len([rule for rule in rules if rule.group == group]), 20)

    def test_each_rule_has_an_expression_and_a_comment(self):
        for rule in self.each():
            with self.subTest(rule=rule):
                self.assertTrue(rule.expr.strip())
                self.assertTrue(rule.comment, "no comment")

    def test_names_have_level_metric_and_operations(self):
        for rule in self.each([*RECORDING, SITE]):
            with self.subTest(rule=rule):
                self.assertRegex(rule.record, NAME)

    def test_names_are_unique(self):
        # jobstats' and treydock's exporters have names in common: a site loads one of the two
        ours = [rule.record for path in [*RECORDING, SITE] for rule in ALL[path]]
        for path in COMPAT:
            names = ours + [rule.record for rule in ALL[path]]
            self.assertEqual(sorted(set(names)), sorted(names), path)
        groups = [group for path in ALL for group in {rule.group for rule in ALL[path]}]
        self.assertEqual(sorted(set(groups)), sorted(groups))

    def test_intervals_are_set_and_shorter_than_the_lookback(self):
        # The lookback is five minutes in Prometheus and in vmalert's queries. With an interval of five minutes there would be
        # gaps, and on VictoriaMetrics rules that depend on others of their group would never find them.
        for rule in self.each():
            with self.subTest(rule=rule):
                self.assertIsNotNone(rule.interval, "no interval")
                number, unit = re.fullmatch(r"(\d+)([sm])", rule.interval).groups()
                self.assertLess(int(number) * {"s": 1, "m": 60}[unit], 300)

    def test_windows_hold_four_scrapes_of_thirty_seconds(self):
        for rule in self.each():
            with self.subTest(rule=rule):
                # A last value takes one scrape.
                windows = {"4m"} if rule.group == "jobledger-owners" else {"2m", "5m"}
                for window in re.findall(r"\[(\w+)[\]:]", re.sub(r"last_over_time\([^()]*\[\w+\]\)", "", rule.expr)):
                    self.assertIn(window, windows)
                self.assertNotRegex(rule.expr, r"offset (?!30s\b|270s\b)" if rule.group == "jobledger-owners" else r"offset (?!2m\b)")
                for window in re.findall(r"(?:rate|increase)(\d+m)\Z", rule.record):
                    self.assertFalse({f"[{other}]" for other in {"2m", "4m", "5m"} - {window} if f"[{other}]" in rule.expr})

    def test_rows_of_ended_jobs_have_what_was_exported_some_minutes_ago(self):
        # They are evaluated every four minutes, and a job is exported for two minutes after its end.
        rows = [rule for rule in self.each() if rule.record.startswith("ended:")]
        self.assertGreater(len(rows), 15)
        for rule in rows:
            with self.subTest(rule=rule):
                self.assertNotRegex(re.sub(r"last_over_time\([^()]*\[\w+\]\)", "", rule.expr), r"(?<![\w:])jobledger_job_")
                # An end is recorded up to four minutes after it was scraped first, and a group may be evaluated a minute after another.
                for minutes in re.findall(r"last_over_time\(jobledger_job_[^()]*\[(\d+)m\]\)", rule.expr):
                    self.assertGreaterEqual(int(minutes), 6)

    def test_ratios_divide_values_of_one_moment(self):
        # Groups are evaluated at different moments.
        groups = {rule.record: rule.group for rule in self.each([*RECORDING, SITE])}
        exceptions = {
            # it only selects the nodes of both sums
            "jobid:jobledger_job_counted_cpu_seconds_per_cpu_second:ratio_rate2m": {"jobledger-cpu"},
        }
        for rule in self.each(RECORDING):
            if ":ratio" in rule.record or ":max_ratio" in rule.record:
                with self.subTest(rule=rule):
                    # One that ends with info only selects.
                    used = {groups[name] for name in WORD.findall(without_strings(rule.expr)) if name in groups and not name.endswith(":info")}
                    self.assertEqual(used - {rule.group}, exceptions.get(rule.record, set()))

    def test_no_total_is_extrapolated_and_no_mean_of_ratios_is_used(self):
        for rule in self.each():
            with self.subTest(rule=rule):
                for function in ("increase(", "irate(", "delta(", "avg(", "avg without", "avg by", "avg_over_time("):
                    self.assertNotIn(function, rule.expr)
                self.assertNotRegex(rule.expr, r"\bby \(", "without, so that a site's own labels are kept")


class Names(unittest.TestCase):
    """The exporter has each metric and each label that is used."""

    def setUp(self):
        self.families = families()

    def test_metrics_are_the_exporters_or_recorded(self):
        recorded = {rule.record for path in [*RECORDING, SITE] for rule in ALL[path]}
        for path, rules in ALL.items():
            here = recorded | {rule.record for rule in rules}
            for rule in rules:
                for word in WORD.findall(without_strings(rule.expr)):
                    with self.subTest(rule=rule, word=word):
                        if ":" in word:
                            self.assertIn(word, here)
                        elif word.startswith(("jobledger", "process_", "cgroup_", "DCGM_", "nvidia_")):
                            self.assertIn(word, self.families)

    def test_matchers_are_labels_of_their_metric(self):
        for rules in ALL.values():
            for rule in rules:
                for metric, matchers in re.findall(r"(jobledger_\w+)\{([^}]*)\}", rule.expr):
                    for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
                        with self.subTest(rule=rule, label=label):
                            self.assertIn(label, self.families[metric])

    def test_labels_of_clauses_exist(self):
        known = TARGET_LABELS | {"slurm_node"} | set().union(*self.families.values())
        for rules in ALL.values():
            made = known | {label for rule in rules for label in re.findall(r'label_replace|"(\w+)", "[^"]*\$1', rule.expr)}
            made |= {label for rule in rules for label in re.findall(r'(?:^|label_replace\([\w()\[\]]+, )"(\w+)", "', rule.expr, re.MULTILINE)}
            for rule in rules:
                for labels in re.findall(r"\b(?:without|ignoring|on|group_left|group_right) \(([^()]*)\)", without_strings(rule.expr)):
                    for label in filter(None, re.split(r",\s*", labels)):
                        with self.subTest(rule=rule, label=label):
                            self.assertIn(label, made)

    def test_joins_ignore_every_label_of_the_joined_series(self):
        # With a later label that it does not ignore, a join would silently match nothing.
        for metric in ("jobledger_job_info", "jobledger_job_gpu_info", "jobledger_gpu_info", "jobledger_node_disk_info", "jobledger_node_energy_zone_info"):
            kept = {"jobid", "gpu", "uuid", "device", "domain", "socket", "source"} if metric != "jobledger_job_gpu_info" else {"jobid", "gpu", "uuid"}
            own = self.families[metric] - kept
            for rules in ALL.values():
                for rule in rules:
                    if re.search(rf"\b{metric}\b", rule.expr):
                        lists = [set(re.split(r",\s*", labels)) for labels in re.findall(r"(?:without|ignoring) \(([^()]*)\)", rule.expr)]
                        with self.subTest(rule=rule, metric=metric):
                            self.assertTrue(own <= set().union(*lists), own - set().union(*lists))


class Tested(unittest.TestCase):
    """promtool's tests have every rule."""

    def test_each_rule_has_a_test_that_expects_a_value_of_it(self):
        expected = set()
        for path in TESTS:
            for block in path.read_text().split("      - expr: ")[1:]:
                expr = block.split("\n", 1)[0].strip("'")
                if "exp_samples:" in block:
                    kind = path.name if path.name.startswith("compat-") else ""
                    expected.add((kind, expr))
        for path, rules in ALL.items():
            kind = f"compat-{path.name}" if path in COMPAT else ""
            for rule in rules:
                with self.subTest(rule=rule):
                    self.assertTrue((kind, rule.record) in expected)

    def test_each_file_of_rules_is_tested(self):
        names = {path.name for path in TESTS}
        for path in COMPAT:
            self.assertIn(f"compat-{path.name}", names)


def with_job_labels(text):
    """A test of rules as it is with --metric.job-labels=user,account: all series of a job have these labels, and what is recorded of jobs keeps them."""
    parsed = yaml.safe_load(text)
    for test in parsed["tests"]:
        owners = {}
        for given in test["input_series"]:
            if match := re.match(r'jobledger_job_info\{.*jobid="(\d+)".*user="(\w*)",account="(\w*)"', given["series"]):
                # Where nodes differ, a node with the prolog's file: the label must be the same on all nodes of a job.
                owners[match[1]] = max(owners.get(match[1], ("", "")), (match[3], match[2]))
        for given in test["input_series"]:
            if match := re.match(r'jobledger_job_(?!info\b)\w+\{.*jobid="(\d+)"', given["series"]):
                account, user = owners.get(match[1], ("physics", "alice"))
                given["series"] = given["series"][:-1] + f',user="{user}",account="{account}"}}'
        for check in test["promql_expr_test"]:
            if not re.search(r"\b(?:owner|ended):|job_owner:info", check["expr"]):
                check["expr"] = f"max without (user, account) ({check['expr']})"
                for sample in check.get("exp_samples", []):
                    sample["labels"] = re.sub(r"^[\w:]+(?=\{)|,?\b(?:user|account)=\"\w*\"", "", sample["labels"])
    return yaml.safe_dump(parsed, width=10_000)


@unittest.skipUnless(shutil.which("promtool"), "rules: needs promtool (apt-get install prometheus)")
class Promtool(unittest.TestCase):
    def test_promtool_accepts_the_rules(self):
        result = promtool("check", "rules", *ALL)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)
        self.assertNotIn("duplicate", result.stdout + result.stderr)

    def test_the_tests_pass(self):
        result = promtool("test", "rules", *TESTS)
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)

    def test_the_tests_pass_with_labels_on_all_series_of_a_job(self):
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory) / "tests" / "recording"
            shutil.copytree(RULES, directory, ignore=shutil.ignore_patterns("tests"), dirs_exist_ok=True)
            folder.mkdir(parents=True)
            shutil.copy(RULES / "tests" / "site.yaml", folder.parent)
            for path in TESTS:
                # Peers' names have their peers' labels.
                if not path.name.startswith("compat-"):
                    (folder / path.name).write_text(with_job_labels(path.read_text()))
            self.assertRegex((folder / "cpu.yaml").read_text(), r'jobledger_job_cpus\{.*user="alice",account="physics"')
            result = promtool("test", "rules", *sorted(folder.glob("*.yaml")))
        self.assertEqual(0, result.returncode, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
