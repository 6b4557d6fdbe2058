"""The recipe of grafana/README.md for users: prom-label-proxy between Grafana and Prometheus shows alice her own jobs, on every panel of the job report.

Needs Debian's prometheus, and Go for the proxy; two minutes. $JOBLEDGER_DEMO is jobledger-demo, if it is not to be built.
"""

import collections
import json
import math
import re
import shutil
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import stack
import tools
from testbed.processes import free_ports, running, scratch, wait_for

PROXY = "github.com/prometheus-community/prom-label-proxy@v0.11.1"
HEADER = "X-Grafana-User"
STEPS = 12
# What is the node's own has no user: the row that says that it is for staff, the roofs, and errors of GPUs.
FOR_STAFF_ROW = "For staff"
FOR_STAFF = {("Roofline", "X"), ("Roofline", "V"), ("Roofline", "S"), ("Bytes are", "A"), ("Nodes on the roofline", "F"), ("Xid", None)}
# These say that there is no such job.
SAID = {"Verdict": "No job of this number within a month: choose one in the Jobs dashboard", "Advice: what to change": "Not seen in this time range"}


def keyed(found):
    """The last value of each series, by its labels; NaN, of a piece of advice, as 0."""
    values = {json.dumps(series["metric"], sort_keys=True): float((series.get("values") or [series.get("value")])[-1][1]) for series in found}
    return {labels: value if value == value else 0.0 for labels, value in values.items()}


@unittest.skipUnless(shutil.which("prometheus"), "rules: needs prometheus")
class Proxy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = subprocess.run([tools.ROOT / "tests" / "tools" / "go-tools.sh", PROXY], capture_output=True, text=True, check=True).stdout.strip()
        started = stack.start({}, ["--metric.job-labels=user,account"])
        cls.prometheus, began, cls.pace = started.__enter__()
        cls.addClassCleanup(started.__exit__, None, None, None)
        (port,) = free_ports(1)
        cls.address = f"127.0.0.1:{port}"
        directory = cls.enterClassContext(scratch("jobledger-proxy"))
        cls.enterClassContext(running([program, f"-header-name={HEADER}", "-label=user", "-enable-label-apis", f"-upstream=http://{cls.prometheus.address}", f"-insecure-listen-address={cls.address}"],
                                      directory / "proxy.log"))
        time.sleep(max(0, began + cls.pace.run_s - time.time()))
        cls.end, cls.range = time.time(), cls.pace.run_s
        wait_for("the proxy", lambda: cls.ask("vector(1)", True, "alice") is not None, 30)
        # Of each the job that was seen most. Each demo node counts jobs by itself: a number may be of several users.
        seen = cls.ask(f"sort_desc(sum by (jobid, user) (count_over_time(jobledger_job_info{{user!=''}}[{cls.range}s])))", True)
        users = collections.Counter(series["metric"]["jobid"] for series in seen)
        of = {}
        for series in seen:
            if users[series["metric"]["jobid"]] == 1:
                of.setdefault(series["metric"]["user"], series["metric"]["jobid"])
        cls.mine, cls.others = of.pop("alice"), of
        cls.report = tools.dashboards()["jobledger-job-report.json"]

    @classmethod
    def ask(cls, expr, instant, user=None):
        """The result of a query, by the proxy if it is a user's."""
        parameters = {"query": expr, "time": cls.end} if instant else {"query": expr, "start": cls.end - cls.range, "end": cls.end, "step": cls.range / STEPS}
        address, headers = (cls.address, {HEADER: user}) if user else (cls.prometheus.address, {})
        request = urllib.request.Request(f"http://{address}/api/v1/query{'' if instant else '_range'}", urllib.parse.urlencode(parameters).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                raise AssertionError(f"{error.read().decode()}: {expr}") from error
            return None

    def queries(self, job):
        """(row, panel, letter, query, whether of one moment) of the report of a job: panels, hidden variables, annotations."""
        fixed = {"__range": f"{self.range}s", "__range_s": str(self.range), "__rate_interval": f"{self.pace.short_s}s", "__interval": f"{self.pace.scrape_ms}ms", "bandwidth": "0", "cluster": ".*",
                 "__from": str(int((self.end - self.range) * 1000)), "__to": str(int(self.end * 1000)), "jobid": job}
        row = ""
        for panel in self.report["panels"]:
            row = panel["title"] if panel["type"] == "row" else row
            for one in panel.get("panels", [panel] if panel["type"] != "row" else []):
                for target in one["targets"]:
                    yield row, one["title"], target["refId"], tools.interpolate(target["expr"], fixed), target.get("instant", False)
        for variable in self.report["templating"]["list"]:
            if variable["type"] == "query" and variable["name"] != "cluster":
                yield "", variable["name"], None, tools.interpolate(re.fullmatch(r"query_result\((.*)\)", variable["query"]["query"]).group(1), fixed), True
        for note in self.report["annotations"]["list"]:
            yield "", note["name"], None, tools.interpolate(note["expr"], fixed), False

    def test_alice_sees_all_of_her_own_job(self):
        compared = 0
        for row, panel, letter, expr, instant in self.queries(self.mine):
            if FOR_STAFF_ROW in row or (panel, letter) in FOR_STAFF:
                continue
            with self.subTest(panel, letter=letter):
                given, hers = self.ask(expr, instant), self.ask(expr, instant, "alice")
                compared += bool(given)
                # Sums are added up in another order; and the job's cores are recorded a moment after its first scrape, so a curve by cores may begin later.
                self.assertEqual(keyed(given).keys(), keyed(hers).keys())
                for labels, value in keyed(given).items():
                    self.assertTrue(math.isclose(value, keyed(hers)[labels], rel_tol=1e-6), (value, keyed(hers)[labels]))
        self.assertGreater(compared, 60)

    def test_alice_sees_nothing_of_the_jobs_of_others(self):
        self.assertGreater(len(self.others), 2)
        for user, job in self.others.items():
            for row, panel, letter, expr, instant in self.queries(job):
                with self.subTest(panel, letter=letter, user=user):
                    found = self.ask(expr, instant, "alice")
                    if panel in SAID and found:
                        self.assertEqual([SAID[panel]], [series["metric"].get("what") for series in found])
                    elif letter is None and panel not in ("Start", "End", "Out of memory", "Xid", "Alerts"):
                        self.assertEqual([{"there": "none"}], [series["metric"] for series in found])
                    else:
                        self.assertEqual([], found)

    def test_without_a_number_alice_has_her_newest_jobs(self):
        (expr,) = [expr for _, panel, letter, expr, _ in self.queries("") if (panel, letter) == ("Job", "A")]
        self.assertEqual({"alice"}, {series["metric"]["user"] for series in self.ask(expr, True, "alice")})
        self.assertGreater(len({series["metric"]["user"] for series in self.ask(expr, True)}), 1)

    def test_nobody_is_refused(self):
        request = urllib.request.Request(f"http://{self.address}/api/v1/query?query=up")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        self.assertIn(refused.exception.code, (400, 403))


if __name__ == "__main__":
    unittest.main()
