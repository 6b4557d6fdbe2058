"""Whose a run is, how long it was, and what of it was not seen: numbers that come again, clusters, clocks, pauses by SLURM, counters that begin anew.

The samples are those that exporters give, written by hand. sacct is a script. Needs Prometheus.
"""

import sys
import unittest

from jobs import DAY, HOUR, MINUTE, NOW, Jobs
from tools import Ran, program, scratch, server_of

BEGIN = NOW - 10 * HOUR
PAUSE = 4 * HOUR


def row(number, start, end, state="COMPLETED", **more):
    known = {"cluster": "a", "uid": 1000, "user": "alice", "account": "physics", "partition": "gpu", "qos": "normal", "submit": start - 60, "eligible": start - 60, "exitcode": "0:0", "timelimitraw": 480,
             "nnodes": 1, "elapsedraw": end - start, "suspended": "00:00:00", "jobname": "x"}
    return known | {"jobidraw": str(number), "start": start, "end": end, "state": state} | more


# The sacct of cluster a, which knows the other one if it is asked for it.
ROWS = [
    row(2, BEGIN, BEGIN + 8 * HOUR, "TIMEOUT"),
    row(2, BEGIN + 3 * HOUR, BEGIN + 5 * HOUR, cluster="b", timelimitraw=150),
    row(4, BEGIN, BEGIN + 50 * MINUTE + PAUSE, elapsedraw=50 * 60, suspended="04:00:00", timelimitraw=60),
    row(7, BEGIN, BEGIN + 6 * HOUR),
    row(8, BEGIN, BEGIN + 2 * HOUR, elapsedraw=HOUR, suspended="01:00:00", user="carol", uid=1002),
]
SACCT = f"""#!{sys.executable}
import sys
get = lambda name: next((each.split("=", 1)[1] for each in sys.argv if each.startswith(name + "=")), None)
for row in {ROWS!r}:
    if row["jobidraw"] in get("--jobs").split(",") and row["cluster"] == (get("--clusters") or "a"):
        print("".join(str(row.get(field, "")) + get("--delimiter") for field in get("--format").split(",")))
"""


def jobs():
    jobs = Jobs()
    # Zoe's number is adam's some days later.
    jobs.add(1, "zoe", NOW - 60 * HOUR, NOW - 40 * HOUR, gpus=(NOW,))
    jobs.add(1, "adam", NOW - 30 * HOUR, NOW - 10 * HOUR, gpus=(0,), node="n2", name="")
    for cluster, node, start, end in (("a", "n1", BEGIN, BEGIN + 8 * HOUR), ("b", "n2", BEGIN + 3 * HOUR, BEGIN + 5 * HOUR)):
        Jobs(jobs.samples, cluster=cluster).add(2, "alice", start, end, node=node)
    # Two seconds on nodes whose clocks are three apart.
    for node, ahead in (("n1", 0), ("n2", 3)):
        jobs.add(3, "alice", BEGIN + ahead, BEGIN + ahead + 2, node=node, nodes=2)
    # Half an hour, four hours of nothing, and 20 minutes.
    jobs.add(4, "alice", BEGIN, BEGIN + 50 * MINUTE + PAUSE, used=0)
    series = jobs.samples.families["jobledger_job_cpu_seconds_total"]
    (labels,) = [labels for labels in series if 'jobid="4"' in labels]
    series[labels] = [(2 * (min(at - BEGIN, 30 * MINUTE) + max(0, min(at, BEGIN + 50 * MINUTE + PAUSE) - BEGIN - 30 * MINUTE - PAUSE)), at) for _, at in series[labels]]
    # Rows of both runs of a requeued job.
    for start, end, idle in ((BEGIN, BEGIN + HOUR, 7.9 * HOUR), (BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, 0.1 * HOUR)):
        for name, value in (("idle_core_seconds:sum", idle), ("start_time_seconds:min", start), ("end_time_seconds:max", end)):
            jobs.samples.put(f"ended:jobledger_job_{name}", 'jobid="5",user="bob"', range(end + MINUTE, end + 10 * MINUTE, MINUTE), value)
    # The row of a job with four cores, of two hours of which it was suspended for one.
    for name, value in (("idle_core_seconds:sum", 5 * HOUR), ("cpu_seconds:sum", 3 * HOUR), ("allocated_cpu_seconds:sum", 8 * HOUR), ("start_time_seconds:min", BEGIN), ("end_time_seconds:max", BEGIN + 2 * HOUR)):
        jobs.samples.put(f"ended:jobledger_job_{name}", 'jobid="8",user="carol",cluster="a"', range(BEGIN + 121 * MINUTE, BEGIN + 130 * MINUTE, MINUTE), value)
    # A GPU was busy for four of six hours; then the exporter began its counters anew.
    anew = BEGIN + 4 * HOUR
    jobs.add(6, "alice", BEGIN, BEGIN + 6 * HOUR, gpus=(anew,))
    for name, series in jobs.samples.families.items():
        if "_gpu_" in name and name.endswith("_total"):
            for labels, points in series.items():
                if 'jobid="6"' in labels:
                    base = max(value for value, at in points if at <= anew)
                    series[labels] = [(value if at <= anew else value - base, at) for value, at in points]
    # Lost after four of six hours.
    jobs.add(7, "alice", BEGIN, BEGIN + 6 * HOUR)
    for series in jobs.samples.families.values():
        for labels in [labels for labels in series if 'jobid="7"' in labels]:
            series[labels] = [(value, at) for value, at in series[labels] if at <= BEGIN + 4 * HOUR]
    jobs.samples.put("up", 'instance="n1:9810",job="jobledger"', range(BEGIN - HOUR, NOW, MINUTE), 1)
    return jobs.samples


class RunsApart(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(scratch("jobledger-runs-apart"))
        (cls.directory / "sacct").write_text(SACCT)
        (cls.directory / "sacct").chmod(0o755)
        (cls.directory / "c.toml").write_text(f'[slurm]\nsacct = "{cls.directory}/sacct"\nclusters = {{ a = "a", b = "b" }}\n')
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(jobs()))

    def run_it(self, *arguments):
        ran = Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/c.toml", *arguments)
        self.assertIn(ran.status, (0, 4), ran.err)
        return ran

    def report(self, number, *arguments):
        return self.run_it("report", number, "--format=json", *arguments).json()

    def reasons(self, document):
        return [each["reason"] for each in document["quality"]["reasons"]]

    def test_a_number_that_comes_again_is_another_job(self):
        job = self.report("1")["job"]
        self.assertEqual((job["identity"]["user"], job["run"], job["runs"], [node["name"] for node in job["nodes"]]), ("adam", 1, 1, ["n2"]))

    def test_accounting_is_that_of_the_jobs_cluster(self):
        for cluster, state, limit in (("a", "TIMEOUT", 8 * HOUR), ("b", "COMPLETED", 150 * MINUTE)):
            job = self.report("2", f"--cluster={cluster}")["job"]
            self.assertEqual((job["ended"]["state"], job["time_limit"]), (state, limit))

    def test_clocks_make_no_run(self):
        job = self.report("3")["job"]
        self.assertEqual((job["runs"], len(job["nodes"])), (1, 2))

    def test_suspended_time_is_neither_elapsed_nor_idle(self):
        found = self.report("4")
        self.assertAlmostEqual(found["numbers"]["time_use"], 50 / 60, delta=0.01)
        self.assertAlmostEqual(found["numbers"]["cpu_efficiency"], 1, delta=0.01)
        self.assertEqual((found["job"]["suspended_seconds"], [each["piece"] for each in found["advice"] if each["piece"] == "cpu_low"]), (PAUSE, []))
        self.assertIn("Job Wall-clock time: 00:50:00", self.run_it("report", "4", "--format=seff").out)

    def test_waste_has_all_runs(self):
        (bob,) = [row for row in self.run_it("waste", "--by=user", "--format=json").json() if row["name"] == "bob"]
        self.assertAlmostEqual(bob["idle_core_hours"], 8)

    def test_waste_leaves_out_suspended_time(self):
        (carol,) = [row for row in self.run_it("waste", "--by=user", "--format=json").json() if row["name"] == "carol"]
        self.assertEqual((carol["idle_core_hours"], carol["used_cpu_hours"], carol["held_cpu_hours"]), (1, 3, 4))

    def test_a_counter_that_began_anew_is_no_total(self):
        found = self.report("6")
        self.assertFalse(found["quality"]["exact"])
        self.assertIn("counter_reset", self.reasons(found))
        self.assertNotIn("gpu_never_used", [each["piece"] for each in found["advice"]])
        self.assertNotIn("totals exact", " ".join(self.run_it("report", "6").out.split()))

    def test_an_end_that_was_not_seen_is_slurms(self):
        found = self.report("7")
        self.assertEqual((found["numbers"]["elapsed_seconds"], self.reasons(found)[0]), (6 * HOUR, "end_not_seen"))
        self.assertLess(found["quality"]["coverage"], 0.7)
        self.assertNotIn("totals exact", " ".join(self.run_it("report", "7").out.split()))
        self.assertIn("Run Time: 06:00:00", " ".join(self.run_it("report", "7", "--format=jobstats").out.split()))


if __name__ == "__main__":
    unittest.main()
