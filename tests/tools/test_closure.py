"""Rules that nothing reads, and series that no rule makes."""

import tempfile
import unittest
from pathlib import Path

import closure

GROUP = "groups:\n  - name: g\n    interval: 1m\n    rules:\n"


def rule(name, expr):
    return f"      # What {name} is for.\n      - record: {name}\n        expr: {expr}\n"


class Closure(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.root = Path(held.name)
        self.write("rules/site.yaml", GROUP + rule("jobledger:carbon_intensity:grams_per_kwh", "vector(450)"))
        self.write("rules/recording/cpu.yaml", GROUP + rule("jobid_instance:jobledger_job_cpus:sum", "sum(jobledger_job_cpus)")
                   + rule("jobid:jobledger_job_cpus:sum", "sum without (instance) (jobid_instance:jobledger_job_cpus:sum)"))
        self.write("rules/alerts/settings.yaml", GROUP + rule("jobledger:alert_setting:cpus  # a number", "vector(4)"))
        self.write("rules/alerts/jobs.yaml", GROUP + "      - alert: Many\n        expr: jobid:jobledger_job_cpus:sum > scalar(jobledger:alert_setting:cpus)\n")
        self.write("grafana/dashboards/one.json", '{"expr": "1 * jobledger:carbon_intensity:grams_per_kwh"}')

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_what_is_read_directly_or_by_a_rule_that_is_read_is_in_order(self):
        self.assertEqual(closure.findings(self.root), [])

    def test_a_rule_that_nothing_reads(self):
        self.write("rules/recording/memory.yaml", GROUP + rule("jobid:jobledger_job_memory_used_bytes:sum", "sum(jobledger_job_memory_used_bytes)")
                   + rule("jobid:jobledger_job_memory_used_bytes:max", "jobid:jobledger_job_memory_used_bytes:sum"))
        self.assertEqual(closure.findings(self.root), [f"rules/recording/memory.yaml: nothing shipped reads jobid:jobledger_job_memory_used_bytes:{kind}" for kind in ("max", "sum")])

    def test_a_comment_and_an_optional_rule_read_nothing(self):
        self.write("rules/alerts/jobs.yaml", GROUP + "      # jobid:jobledger_job_cpus:sum\n")
        self.write("rules/optional/more.yaml", GROUP + rule("jobid:jobledger_job_cpus:max", "jobid:jobledger_job_cpus:sum"))
        self.assertEqual(len(closure.findings(self.root)), 2)

    def test_series_that_no_default_rule_makes(self):
        self.write("rules/optional/more.yaml", GROUP + rule("jobid:jobledger_job_pids:sum", "sum(jobledger_job_pids)"))
        self.write("grafana/dashboards/two.json", '{"expr": "jobid:jobledger_job_pids:sum / jobledger:carbon_intensity:grams_per_kwh"}')
        self.write("rules/alerts/more.yaml", GROUP + "      - alert: Gone\n        expr: instance:jobledger_gone:rate5m > 1\n")
        self.assertEqual(closure.findings(self.root), ["grafana/dashboards/two.json: no default rule makes jobid:jobledger_job_pids:sum",
                                                       "rules/alerts/more.yaml: no default rule makes instance:jobledger_gone:rate5m"])

    def test_the_rules_of_this_tree(self):
        self.assertEqual(closure.findings(), [])


if __name__ == "__main__":
    unittest.main()
