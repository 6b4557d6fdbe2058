"""Every query of every panel, variable and annotation has data: from the demo's nodes, or else from recorded machines.

Needs Debian's prometheus; a minute and a half. $JOBLEDGER_DEMO is jobledger-demo, if it is not to be built.
"""

import re
import shutil
import time
import unittest

import expectations
import recorded
import stack
import tools
from testbed.processes import Failure

STEPS = 12
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@unittest.skipUnless(shutil.which("prometheus"), "rules: needs prometheus")
class Queries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dashboards = tools.dashboards()
        cls.context = stack.start({name: recorded.Machine(name) for name in expectations.MACHINES})
        cls.prometheus, began, cls.pace = cls.context.__enter__()
        cls.range, cls.step = cls.pace.run_s, cls.pace.run_s / STEPS
        try:
            time.sleep(max(0, began + cls.pace.run_s - time.time()))
            cls.end = time.time()
            cls.jobs = {cluster: cls.chosen(cluster) for cluster in ("demo", "recorded")}
            cls.jobs[".*"] = cls.jobs["recorded"]
        except BaseException:
            cls.context.__exit__(None, None, None)
            raise

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    @classmethod
    def chosen(cls, cluster):
        """Jobs for the job report: the demo's by name, and all recorded ones."""
        if cluster == "recorded":
            return [sample["metric"]["jobid"] for sample in cls.ask('count by (jobid) (jobledger_job_start_time_seconds{cluster="recorded"})', instant=True)]
        found = ["999"]
        for name in expectations.DEMO_JOBS:
            expr = f'topk(1, sum by (jobid) (count_over_time(jobledger_job_info{{cluster="demo",name="{name}"}}[{cls.range}s])))'
            jobs = [sample["metric"]["jobid"] for sample in cls.ask(expr, instant=True)]
            if not jobs:
                raise Failure(f"no job {name} in {cls.range} s")
            found += jobs
        return found

    @classmethod
    def ask(cls, expr, instant):
        """The result of a query at the end, or over the range."""
        if instant:
            return cls.prometheus.get("query", query=expr, time=cls.end)["result"]
        return cls.prometheus.get("query_range", query=expr, start=cls.end - cls.range, end=cls.end, step=cls.step)["result"]

    def values(self, **given):
        """The values of variables."""
        return {"__range": f"{self.range}s", "__range_s": str(self.range), "__rate_interval": f"{self.pace.short_s}s", "__interval": f"{self.pace.scrape_ms}ms", "__interval_ms": str(self.pace.scrape_ms),
                "__from": str(int((self.end - self.range) * 1000)), "__to": str(int(self.end * 1000)), **expectations.VARIABLES, **given}

    def paced(self, expr):
        """Makes the steps of subqueries and the limit for short jobs shorter, as all times are here. A step of a minute may meet no data."""
        expr = re.sub(r":\d+m\]", f":{self.pace.rules_s}s]", expr)
        return re.sub(r"(>=|>= bool|<) 120\b", rf"\1 {self.pace.short_s}", expr) if "$jobid" in expr else expr

    def results(self, expr, instant, cluster):
        """The result of a query for a cluster; a job's query is evaluated for all jobs."""
        fixed, expr = self.values(cluster=cluster), self.paced(expr)
        if "$jobid" not in expr:
            return self.ask(tools.interpolate(expr, fixed), instant)
        return [series for job in self.jobs[cluster] for series in self.ask(tools.interpolate(expr, fixed | {"jobid": job}), instant)]

    def each(self):
        for name, dashboard in self.dashboards.items():
            for panel, target in tools.targets(dashboard):
                yield (dashboard["uid"].removeprefix("jobledger-"), panel["title"], target["refId"]), panel, target

    def test_each_query_of_a_panel_has_data(self):
        labels = {}
        unused = {key for key in expectations.NOT_OF_THE_DEMO if key[1] != "annotation"}
        for key, panel, target in self.each():
            reason = expectations.NOT_OF_THE_DEMO.get(key)
            unused.discard(key)
            cluster = "demo" if not reason else ".*" if reason == expectations.SEVERAL_CLUSTERS else "recorded"
            found = self.results(target["expr"], target.get("instant", False), cluster)
            if key in expectations.NOWHERE:
                continue
            with self.subTest(key, expr=target["expr"][:300]):
                self.assertTrue(found, f"no data{': ' + reason if reason else ''}")
                for label in LEGEND.findall(target.get("legendFormat", "")):
                    self.assertTrue(any(series["metric"].get(label) for series in found), f"{label} of the legend is in no series")
                if panel["type"] == "table":
                    self.assertFalse([series for series in found if "__name__" in series["metric"]], "rows with names of metrics are not merged")
            labels.setdefault(key[:2], (panel, set()))[1].update(label for series in found for label in series["metric"])
        self.assertFalse(unused, "listed, and not there")
        for (dashboard, title), (panel, there) in labels.items():
            columns = {field for change in panel.get("transformations", []) if change["id"] == "filterFieldsByName" for field in change["options"]["include"]["names"]}
            with self.subTest("columns", dashboard=dashboard, panel=title):
                self.assertLessEqual({column for column in columns if not column.startswith("Value")} - expectations.OFTEN_EMPTY.keys(), there)

    def test_each_variable_has_values(self):
        for name, dashboard in self.dashboards.items():
            for variable in dashboard["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                query = variable["query"]["query"]
                asked = re.fullmatch(r"query_result\((.+)\)", query)
                with self.subTest(dashboard["uid"], variable=variable["name"]):
                    if asked:
                        # A hidden variable takes a label of each result.
                        label = re.match(r"/(\w+)=", variable["regex"]).group(1)
                        found = self.results(asked.group(1), True, ".*")
                        self.assertTrue(found and all(series["metric"][label] for series in found))
                        continue
                    metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
                    found = self.prometheus.get(f"label/{label}/values", **{"match[]": tools.interpolate(metric, {"cluster": ".*", **expectations.VARIABLES})})
                    self.assertTrue(found)

    def test_each_annotation_has_something_to_mark(self):
        for name, dashboard in self.dashboards.items():
            for note in dashboard["annotations"]["list"]:
                key = (dashboard["uid"].removeprefix("jobledger-"), "annotation", note["name"])
                if key in expectations.NOWHERE:
                    continue
                with self.subTest(key):
                    self.assertTrue(self.results(note["expr"], False, "recorded" if key in expectations.NOT_OF_THE_DEMO else "demo"))

    def test_a_job_that_does_not_exist_has_no_data(self):
        report = self.dashboards["jobledger-job-report.json"]
        said = {"Verdict": "No job of this number within a month: choose one in the Jobs dashboard", "Advice: what to change": "Not seen in this time range"}
        for panel, target in tools.targets(report):
            if 'jobid="$jobid"' not in target["expr"]:
                continue
            fixed = self.values(cluster="demo", jobid="999")
            with self.subTest(panel["title"], ref=target["refId"]):
                found = self.ask(tools.interpolate(target["expr"], fixed), True)
                if panel["title"] in said and found:
                    self.assertEqual([said[panel["title"]]], [series["metric"]["what"] for series in found])
                else:
                    self.assertEqual([], found)

    def test_every_job_has_a_full_first_screen_and_rows_that_say_what_is_in_them(self):
        """Of recorded machines, whose jobs are as long as rates need. The first panel of a row that counts something has data just if there is some."""
        report = self.dashboards["jobledger-job-report.json"]
        rows = {row["title"].rpartition("$")[2]: row["panels"][0] for row in report["panels"] if row["type"] == "row" and "$" in row["title"]}
        counts = {variable["name"]: re.fullmatch(r"query_result\((.+)\)", variable["query"]["query"]).group(1) for variable in report["templating"]["list"] if variable["name"] in rows}
        self.assertEqual(rows.keys(), counts.keys())
        self.assertGreater(len(rows), 5)
        seen = set()
        for job in self.jobs["recorded"]:
            if job.startswith("90"):
                # Invented ones have what is needed for one trouble each.
                continue
            fixed = self.values(cluster="recorded", jobid=job)

            def has(panel):
                return any(self.ask(tools.interpolate(self.paced(target["expr"]), fixed), target.get("instant", False)) for target in panel["targets"])

            for panel in report["panels"]:
                if panel["type"] != "row":
                    with self.subTest(panel["title"], job=job):
                        self.assertTrue(has(panel))
            for name, panel in rows.items():
                with self.subTest(row=name, job=job):
                    there = self.ask(tools.interpolate(self.paced(counts[name]), fixed), True)[0]["metric"]["there"]
                    seen.add((name, there == "none"))
                    # Energy is a number only with all of its parts.
                    if name != "meters" or there == "none":
                        self.assertEqual(there != "none", has(panel))
        self.assertEqual({(name, none) for name in ("gpus", "io", "meters") for none in (True, False)} - seen, set())


if __name__ == "__main__":
    unittest.main()
