"""Ten nodes, a real Prometheus, all rules: the cluster of tests/scale is consistent, and rules record what its nodes export.

Run: python3 -m unittest discover -s tests/scale
Needs Prometheus and promtool (apt-get install prometheus) and jobledger-demo; builds it if need be. Takes about a minute.
"""

import contextlib
import datetime
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import bed  # noqa: E402
from backfill import Backfill, windows  # noqa: E402
from cluster import DAY, RETENTION, Cluster, is_complete, recorded  # noqa: E402
from exposition import Page, labels_of, name_of  # noqa: E402
from recording import LEAST, record  # noqa: E402
from rule_costs import rule_costs  # noqa: E402
from serve import serving  # noqa: E402
from testbed.built import program  # noqa: E402
from testbed.processes import scratch, wait_for  # noqa: E402

NODES = 10
# Seconds between scrapes, and between evaluations of each group.
SCRAPE, EVALUATE = 10, 2
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")


def total(samples, name, jobid):
    """The sum over a family's series of one job."""
    return sum(float(value) for series, value in samples.items() if name_of(series) == name and labels_of(series).get("jobid") == jobid)


@unittest.skipUnless(PROMETHEUS and PROMTOOL, "rules: needs prometheus and promtool (apt-get install prometheus)")
class Scale(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            cls.work = stack.enter_context(scratch("jobledger-scale-test"))
            tracks = recorded(record(program("jobledger-demo"), LEAST, cls.work, is_complete))
            cls.began = time.time()
            cls.cluster = Cluster(NODES, tracks, cls.began - 7 * DAY)
            (cls.work / "data").mkdir()
            Backfill(cls.cluster, cls.began, SCRAPE, 330).write(PROMTOOL, cls.work / "data")
            rules = bed.copy_rules(bed.RULES, cls.work / "rules", EVALUATE)
            address, _ = stack.enter_context(serving(cls.cluster))
            server = bed.prometheus(PROMETHEUS, cls.work, address, rules, SCRAPE, EVALUATE)
            cls.prometheus, _ = stack.enter_context(server)
            cls.addClassCleanup(stack.pop_all().close)

    def rules(self):
        return [rule for group in self.prometheus.get("rules")["groups"] for rule in group["rules"]]

    def settled(self):
        """Waits until all nodes were scraped and each rule was evaluated some times after that, so that rules which depend on rules are done."""
        wait_for("a scrape of all nodes", lambda: self.prometheus.value("sum(up)") == NODES, 60)
        last = time.time() + 4 * EVALUATE
        wait_for("evaluations of all rules", lambda: all(_seconds(rule["lastEvaluation"]) > last for rule in self.rules()), 60)

    def job(self):
        """The id and the nodes of a job on several nodes, which neither starts nor ends soon."""
        for jobid, nodes in self.cluster.spanning(time.time()).items():
            if jobid in self.cluster.spanning(time.time() - 300) and jobid in self.cluster.spanning(time.time() + 300):
                return str(jobid), nodes
        raise AssertionError("no job on several nodes")

    def test_pages_pass_promtool(self):
        for node in (0, NODES // 2 + 1, NODES - 1):
            text = self.cluster.page(node, self.began)
            done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr))

    def test_counters_of_nodes_and_jobs_never_go_back(self):
        for node in (0, NODES // 2 + 1, NODES - 1):
            before = None
            for at in range(0, 3600, 120):
                page = Page(self.cluster.page(node, self.began + at))
                counters = {series: float(value) for series, value in page.samples.items()
                            if self.cluster.families[name_of(series)]["TYPE"] == "counter"}
                for series, value in counters.items():
                    self.assertGreaterEqual(value, 0, series)
                    if before is not None:
                        self.assertGreaterEqual(value, before.get(series, 0), series)
                before = counters
            self.assertGreater(len(before), 100)

    def test_a_job_is_exported_as_running_then_as_ended_then_not_at_all(self):
        slot = next(slot for slot in self.cluster.slots if len(slot.nodes) == 1)
        generation, _, end = next(slot.jobs(self.began))
        jobid, node = str(self.cluster.jobid(slot, generation)), slot.nodes[0]
        seen = []
        for at in (end - 1, end + 1, end + RETENTION + 1):
            page = Page(self.cluster.page(node, at))
            of = [name_of(series) for series in page.samples if labels_of(series).get("jobid") == jobid]
            seen.append(("jobledger_job_cpu_seconds_total" in of, "jobledger_job_cpus" in of, "jobledger_job_end_time_seconds" in of))
        self.assertEqual([(True, True, False), (True, False, True), (False, False, False)], seen)

    def test_every_rule_is_evaluated_without_error(self):
        self.settled()
        self.assertEqual([], [(rule["name"], rule.get("lastError")) for rule in self.rules() if rule["health"] != "ok"])
        own = bed.own_metrics(self.prometheus)
        failures = [value for series, value in own.items() if series.startswith("prometheus_rule_evaluation_failures_total")]
        self.assertEqual(0, sum(failures))
        self.assertGreater(len(failures), 20)

    def test_a_job_on_several_nodes_is_recorded_as_its_nodes_export_it(self):
        self.settled()
        jobid, nodes = self.job()
        self.assertGreater(len(nodes), 1)

        def recorded_value(name):
            (sample,) = self.prometheus.get("query", query=f'{name}{{jobid="{jobid}"}}')["result"]
            self.assertEqual({"__name__", "cluster", "job", "jobid"}, set(sample["metric"]))
            return float(sample["value"][1])

        def told(name, at):
            return sum(total(Page(self.cluster.page(node, at)).samples, name, jobid) for node in nodes)

        now = time.time()
        self.assertEqual(len(nodes), recorded_value("jobid:jobledger_job_nodes:count"))
        for name in ("cpus", "memory_limit_bytes"):
            self.assertEqual(told(f"jobledger_job_{name}", now), recorded_value(f"jobid:jobledger_job_{name}:sum"))
        # A recorded value is at most a scrape interval and an evaluation interval old.
        spent = self.prometheus.value(f'sum(jobledger_job_cpu_seconds_total{{jobid="{jobid}"}})')
        self.assertGreaterEqual(spent, told("jobledger_job_cpu_seconds_total", now - 2 * SCRAPE))
        self.assertLessEqual(spent, told("jobledger_job_cpu_seconds_total", time.time()))
        # The rate over two minutes against the usage in the two minutes before the last scrape, or an earlier one.
        rate = self.prometheus.value(f'sum(jobid_instance:jobledger_job_cpu_seconds:rate2m{{jobid="{jobid}"}})')
        truth = (told("jobledger_job_cpu_seconds_total", now - SCRAPE) - told("jobledger_job_cpu_seconds_total", now - SCRAPE - 120)) / 120
        self.assertGreater(truth, 0)
        self.assertAlmostEqual(1, rate / truth, delta=0.1)

    def test_rules_of_each_kind_of_node_and_level_have_results(self):
        self.settled()
        recorded_names = {sample["metric"]["__name__"] for sample in
                          self.prometheus.get("query", query='count by (__name__) ({__name__=~".+:.+"})')["result"]}
        for name in ("jobid:jobledger_job_gpu_busy_seconds_per_seen_second:ratio_rate2m", "jobid:jobledger_job_idle_cores:rate2m",
                     "jobid:jobledger_job_total_energy_joules:rate2m", "instance:jobledger_node_cpu_busy_seconds_per_cpu:ratio_rate5m",
                     "instance:jobledger_used_cores:rate4m", "owner:jobledger_owner_cpu_seconds:increase4m", "jobledger:alert_job:cpu"):
            self.assertIn(name, recorded_names)


class Past(unittest.TestCase):
    def test_windows_of_rules_are_found(self):
        found = windows(bed.RULES)
        self.assertEqual(DAY, found["jobledger_owner_gpu_idle_seconds_total"])
        self.assertEqual(14_400, found["jobledger_job_start_time_seconds"])
        self.assertEqual(780, found["jobledger_job_end_time_seconds"])


@unittest.skipUnless(PROMETHEUS, "rules: needs prometheus (apt-get install prometheus)")
class Together(unittest.TestCase):
    def test_all_groups_start_at_the_same_moment_of_their_interval(self):
        rule = "  - name: {0}\n    interval: {1}s\n    rules:\n      - record: of:{0}\n        expr: time()\n"
        with scratch("jobledger-together") as work:
            (work / "rules").mkdir()
            for number in range(6):
                of_two = [f"first_{number}", f"second_{number}"]
                (work / "rules" / f"{number}.yaml").write_text("groups:\n" + "".join(map(rule.format, of_two, (10, 20))))
            bed.start_together(PROMETHEUS, work / "rules", 60)
            with bed.prometheus(PROMETHEUS, work, "127.0.0.1:9", work / "rules", SCRAPE) as (server, _):
                stamps = "prometheus_rule_group_last_evaluation_timestamp_seconds{"

                def begun():
                    own = bed.own_metrics(server)
                    found = {series: value for series, value in own.items() if series.startswith(stamps) and value > 0}
                    return found if len(found) == 12 else None

                for series, value in wait_for("all groups to begin", begun, 60).items():
                    # Half a second by name, and some tolerance for a slow machine.
                    self.assertLess(value % (10 if "first" in series else 20), 2.5, series)


@unittest.skipUnless(PROMETHEUS, "rules: needs prometheus (apt-get install prometheus)")
class RuleCosts(unittest.TestCase):
    def test_each_rule_has_a_row_and_one_that_does_more_costs_more(self):
        with scratch("jobledger-scale-test") as work:
            rules = work / "rules"
            rules.mkdir()
            dear = "sum(sum_over_time(vector(1)[1d:1s]))"
            (rules / "two.yaml").write_text(f"groups: [{{name: one, interval: 1m, rules: [{{record: 'a:b', expr: 'vector(1)'}}, {{record: 'a:c', expr: '{dear}'}}]}}]\n")
            with bed.prometheus(PROMETHEUS, work, None, rules) as (server, process):
                first, second = rule_costs(server, process, work / "prometheus.yml", 0.1)
        self.assertEqual((first["rule"], second["rule"], first["interval"]), ("a:c", "a:b", 60))
        self.assertAlmostEqual(first["cores"], first["seconds"] / 60, places=4)
        self.assertGreater(first["seconds"], second["seconds"])


def _seconds(stamp):
    """Prometheus' timestamp in seconds; long ago for its zero time."""
    return 0.0 if stamp.startswith("0001") else datetime.datetime.fromisoformat(stamp).timestamp()


if __name__ == "__main__":
    unittest.main()
