"""What has the same name and is not the same: nodes and jobs of two clusters, components of a heterogeneous job, series of a job on a node.

The samples are those that exporters give, written by hand. Needs Prometheus.
"""

import unittest

from jobs import DAY, GIB, HOUR, MINUTE, NOW, Jobs
from tools import Ran, program, server_of

ENDED = NOW - 12 * HOUR
GRAMS = 400


def clusters():
    """Two clusters whose nodes have the same names, as targets label them: CO2 is of no cluster."""
    a = Jobs(cluster="a")
    b = Jobs(a.samples, cluster="b", cpus=64, cores=32, gpus=(("D", False),))
    for jobs, first in ((a, 401), (b, 402)):
        jobs.add(first, "alice", ENDED, ENDED + HOUR)
        jobs.add(first + 100, "alice", NOW - HOUR, None)
        jobs.add(409, "alice", ENDED, ENDED + HOUR, array="407_1")
    # What rules record of jobs that ended.
    times = range(ENDED + HOUR, ENDED + 2 * HOUR, MINUTE)
    for cluster, user, idle in (("a", "alice", 2), ("b", "bob", 1)):
        labels = f'jobid="409",cluster="{cluster}",user="{user}"'
        for name, value in (("idle_core_seconds:sum", idle * HOUR), ("start_time_seconds:min", ENDED), ("end_time_seconds:max", ENDED + HOUR)):
            a.samples.put(f"ended:jobledger_job_{name}", labels, times, value)
    a.samples.put("jobledger:carbon_factor:grams_per_kwh", 'region="x"', range(NOW - DAY, NOW + HOUR, MINUTE), GRAMS)
    return a.samples


class Clusters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(clusters()))

    def run_it(self, *arguments, status=0):
        ran = Ran(self.program, f"http://{self.server.address}", *arguments, "--no-sacct")
        self.assertEqual(ran.status, status, ran.err)
        return ran

    def test_nodes_are_those_of_the_jobs_cluster(self):
        hardware = {"401": {"cpus": 8, "cores": 8, "memory_bytes": 128 * GIB, "gpus": 4}, "402": {"cpus": 64, "cores": 32, "memory_bytes": 512 * GIB, "gpus": 1}}
        for number, expected in hardware.items():
            for cluster in ((), ("--cluster=a" if number == "401" else "--cluster=b",)):
                with self.subTest(number, cluster=cluster):
                    found = self.run_it("report", number, "--format=json", *cluster).json()
                    self.assertEqual(found["job"]["nodes"][0]["hardware"], expected)
                    # 150 W for an hour.
                    self.assertAlmostEqual(found["numbers"]["carbon_grams"], 0.15 * GRAMS)
        cores = {row["job"]: row["numbers"]["cores"] for row in self.run_it("list", "--format=json", "--user=alice").json()}
        self.assertEqual({job: cores[job] for job in (401, 402, 501, 502)}, {401: 2, 402: 1, 501: 2, 502: 1})

    def test_a_table_of_running_jobs_has_the_cores_of_each_cluster(self):
        head, _, _, *rows = self.run_it("top", "--once").out.splitlines()
        self.assertIn("0 of 3 cores idle", head)
        self.assertEqual({row.split()[0] for row in rows}, {"501", "502"})

    def test_jobs_of_the_same_number_are_two(self):
        head, *rows = [line.split("|") for line in self.run_it("waste", "--format=parsable").out.splitlines()]
        self.assertEqual(head[:4], ["job", "cluster", "user", "account"])
        self.assertEqual([row[:3] + row[5:6] for row in rows], [["409", "a", "alice", "2"], ["409", "b", "bob", "1"]])
        found = self.run_it("waste", "--format=json").json()
        self.assertEqual([(waste["name"], waste["cluster"], waste["jobs"]) for waste in found], [("409", "a", 1), ("409", "b", 1)])
        self.assertEqual(self.run_it("waste", "--format=parsable", "--cluster=a").out.split("|")[:2], ["job", "user"])

    def test_an_array_of_two_clusters_has_to_be_narrowed(self):
        self.assertEqual(self.run_it("array", "407", status=2).err, "jobledger: array 407 is of several clusters: --cluster with one of a, b\n")
        self.assertIn("Array 407: 1 element seen", self.run_it("array", "407", "--cluster=b").out)


def parts():
    jobs = Jobs()
    ago = lambda minutes: NOW - minutes * MINUTE  # noqa: E731
    # It runs on one of its two nodes; what the other one retains has a limit and no memory that is held.
    jobs.add(501, "alice", ago(60), None, nodes=2)
    jobs.add(501, "alice", ago(60), ago(8), nodes=2, node="n2")
    for name, value in (("start_time_seconds", ago(60)), ("end_time_seconds", ago(8)), ("memory_limit_bytes", 32 * GIB)):
        jobs.samples.put(f"jobledger_job_{name}", 'jobid="501",instance="n2:9810"', range(ago(2), NOW + HOUR, MINUTE), value)
    # With --metric.job-labels the name of the user is on all series, and it was not known at first. Two servers scraped the node, both half of the time.
    begin, end = ago(300), ago(200)
    for job, user, first, last in ((502, "", begin, ago(250)), (502, "alice", ago(250), end), (503, "alice", begin, ago(250))):
        for replica in ("1", "2"):
            labels = f'jobid="{job}",instance="n1:9810",replica="{replica}",user="{user}"'
            times = range(first + 15, last, MINUTE)
            jobs.samples.put("jobledger_job_info", labels, times, 1)
            jobs.samples.put("jobledger_job_start_time_seconds", labels, times, begin)
            jobs.samples.put("jobledger_job_end_time_seconds", labels, range(end + 5, end + 2 * MINUTE, MINUTE), end)
    # The first component was never scraped.
    for number in (701, 702):
        jobs.add(number, "alice", begin, end, leader=700)
    jobs.samples.put("up", 'instance="n1:9810"', range(begin, end, MINUTE), 1)
    return jobs.samples


class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(parts()))

    def test_memory_is_that_of_nodes_on_which_a_job_runs(self):
        ran = Ran(self.program, f"http://{self.server.address}", "top", "--once")
        (row,) = [line for line in ran.out.splitlines() if line.startswith("501 ")]
        # 23.25 of 32 GiB.
        self.assertIn(" 73 % ", row)

    def test_a_component_is_not_another_one(self):
        run_it = lambda *arguments: Ran(self.program, f"http://{self.server.address}", *arguments, "--no-sacct")  # noqa: E731
        self.assertEqual([run_it("report", f"700+{at}", "--format=json").json()["job"]["id"] for at in (1, 2)], [701, 702])
        self.assertEqual((run_it("report", "700+0").status, run_it("report", "700+3").status), (3, 3))
        self.assertEqual([row["job"] for row in run_it("compare", "700+2", "700+1", "--format=json").json()], [702, 701])
        self.assertEqual([row["job"] for row in run_it("list", "700+1", "--format=json").json()], [701])

    def test_all_series_of_a_node_are_counted(self):
        for number, coverage in (("502", 1), ("503", 0.5)):
            ran = Ran(self.program, f"http://{self.server.address}", "report", number, "--format=json", "--no-sacct")
            self.assertAlmostEqual(ran.json()["job"]["nodes"][0]["coverage"], coverage, delta=0.02)


if __name__ == "__main__":
    unittest.main()
