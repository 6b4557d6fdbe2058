"""What owners held and used in a time, from counters as exporters give them: `jobledger usage` over a real Prometheus.

Nodes, their jobs and their exporters are a model, so that the truth is known. Each case is a cluster of its own. Needs Prometheus.
"""

import csv
import dataclasses
import datetime
import io
import re
import time
import unittest

from tools import ROOT, Ran, Samples, program, scratch, server_of

INTERVAL = 120
BILLING = ROOT / "docs/billing.md"
RETAINED = 240
HOUR = 3600
UNTIL = int(time.time()) // INTERVAL * INTERVAL - 2 * HOUR
SINCE = UNTIL - 36 * HOUR
# Samples begin before the window.
FIRST = SINCE - 4 * HOUR
LAST = UNTIL + HOUR
# Of SLURM's cgroups, and of a node without jobs.
SYSTEM_CPUS, SYSTEM_WATTS = 0.25, 40
KWH = 3.6e6


@dataclasses.dataclass
class Job:
    user: str
    start: int
    end: int
    cpus: int = 4
    share: float = 0.75
    watts: float = 100
    gpus: int = 0
    account: str = "physics"
    partition: str = "batch"
    # What SLURM's accounting has otherwise: seconds without CPUs, and of prolog, epilog and completing.
    suspended: int = 0
    around: int = 0

    def ran(self, since, until):
        return max(0, min(until, self.end) - max(since, self.start))


class Node:
    """A node, and the times in which its counters go on: (beginning, end). Jobs that run at a beginning are counted from their start, energy is not."""

    def __init__(self, name, jobs, countings=((FIRST - 86400, LAST),), scraped=((FIRST, LAST),), energy=True, owners=True, labels="", jitter=0, interval=INTERVAL):
        self.instance, self.jobs, self.countings, self.energy, self.owners, self.labels, self.jitter = f"{name}:9810", jobs, countings, energy, owners, labels, jitter
        self.times = [at for begin, end in scraped for at in range(begin, end + 1, interval)]

    def put(self, samples, cluster):
        base = f'instance="{self.instance}",cluster="{cluster}"{self.labels}'
        for began, ends in self.countings:
            times = [at for at in self.times if began <= at < ends]
            if not times:
                continue

            def put(name, labels, times, value):
                samples.put(name, base + labels, [at + self.jitter for at in times], lambda at: round(value(at - self.jitter), 6))

            put("up", "", times, lambda at: 1)
            put("jobledger_exporter_counting_start_time_seconds", "", times, lambda at, began=began: began + 0.25)
            if not self.owners:
                continue
            known = [job for job in self.jobs if job.end > began and job.start < ends]

            def total(jobs, of, at, began=began):
                return sum(of(job, job.ran(0, at), job.ran(began, at)) for job in jobs if job.start <= at)

            put("jobledger_node_allocated_cpu_seconds_total", "", times, lambda at: total(known, lambda job, ran, seen: job.cpus * ran, at))
            put("jobledger_node_slurm_cpu_unattributed_seconds_total", "", times, lambda at, began=began: SYSTEM_CPUS * (at - began))
            put("jobledger_node_slurm_cpu_seconds_total", "", times,
                lambda at, began=began: SYSTEM_CPUS * (at - began) + total(known, lambda job, ran, seen: job.cpus * job.share * ran, at))
            if self.energy:
                put("jobledger_node_energy_unattributed_joules_total", ',domain="package",socket="0"', times, lambda at, began=began: SYSTEM_WATTS * (at - began))
            for owner in sorted({(job.user, job.account, job.partition) for job in known}):
                jobs = [job for job in known if (job.user, job.account, job.partition) == owner]
                labels = ",user=\"%s\",account=\"%s\",partition=\"%s\"" % owner
                seen = [at for at in times if at >= min(job.start for job in jobs)]

                def of(name, amount, jobs=jobs, labels=labels, seen=seen):
                    put(f"jobledger_owner_{name}_total", labels, seen, lambda at: total(jobs, amount, at))

                of("allocated_cpu_seconds", lambda job, ran, _: job.cpus * ran)
                of("cpu_seconds", lambda job, ran, _: job.cpus * job.share * ran)
                of("memory_allocated_byte_seconds", lambda job, ran, _: (job.cpus << 30) * ran)
                if any(job.gpus for job in jobs):
                    of("gpu_allocated_seconds", lambda job, ran, _: job.gpus * ran)
                    of("gpu_busy_seconds", lambda job, _, seen: job.gpus * 0.5 * seen)
                if self.energy:
                    of("charged_energy_joules", lambda job, _, seen: job.watts * seen)
                put("jobledger_owner_jobs_ended_total", labels, seen, lambda at, jobs=jobs, began=began: sum(began < job.end <= at for job in jobs))
            for job in known:
                labels = f',jobid="{1000 + self.jobs.index(job)}"'
                seen = [at for at in times if job.start <= at < job.end + RETAINED]
                put("jobledger_job_info", labels + f',user="{job.user}",account="{job.account}",partition="{job.partition}"', seen, lambda at: 1)
                put("jobledger_job_start_time_seconds", labels, seen, lambda at, job=job: job.start)
                put("jobledger_job_allocated_cpu_seconds_total", labels, seen, lambda at, job=job: job.cpus * job.ran(0, at))
                put("jobledger_job_cpu_seconds_total", labels + ',mode="user"', seen, lambda at, job=job: job.cpus * job.share * job.ran(0, at))
                if job.gpus:
                    gpu = labels + ',gpu="0",uuid="GPU-0"'
                    put("jobledger_job_gpu_allocated_seconds_total", gpu, seen, lambda at, job=job: job.gpus * job.ran(0, at))
                    put("jobledger_job_gpu_busy_seconds_total", gpu + ',method="alone"', seen, lambda at, job=job, began=began: job.gpus * 0.5 * job.ran(began, at))
                put("jobledger_job_memory_allocated_byte_seconds_total", labels, seen, lambda at, job=job: (job.cpus << 30) * job.ran(0, at))
                if self.energy:
                    put("jobledger_job_energy_joules_total", labels + ',domain="package",socket="0",method="cpu_time"', seen,
                        lambda at, job=job, began=began: job.watts * job.ran(began, at))


def truth(nodes, since=SINCE, until=UNTIL, by=lambda node, job: job.user):
    """What each held and used: hours of CPUs held and used, and kWh."""
    found = {}
    for node in nodes:
        for job in node.jobs:
            ran = job.ran(since, until)
            if ran:
                sums = found.setdefault(by(node, job), [0, 0, 0])
                for at, amount in enumerate((job.cpus * ran / HOUR, job.cpus * job.share * ran / HOUR, job.watts * ran / KWH)):
                    sums[at] += amount
    return found


ALL = Job("alice", FIRST, LAST)
# Between two scrapes.
SHORT = Job("bob", SINCE + 5 * HOUR + 10, SINCE + 5 * HOUR + 70, cpus=64)
MIDDLE = Job("carol", SINCE + 6 * HOUR, UNTIL - 6 * HOUR, account="chemistry", gpus=2)
OVER = Job("dave", FIRST, SINCE - HOUR)
# Counters begin anew while jobs run, thrice: the last two in a row.
ANEW = SINCE + 20 * HOUR
BEGINNINGS = (FIRST - 86400, ANEW, ANEW + 9 * HOUR, ANEW + 9 * HOUR + 240)
COUNTINGS = tuple(zip(BEGINNINGS, (*BEGINNINGS[1:], LAST)))
FREE = SINCE + 18 * HOUR

CASES = {
    "plain": [Node("n1", [ALL, SHORT, OVER]), Node("n2", [MIDDLE, Job("alice", SINCE - HOUR, SINCE + 2 * HOUR)])],
    # Of the same names, with others' jobs.
    "other": [Node("n1", [Job("alice", FIRST, LAST, cpus=1)])],
    # Prometheus was away for six hours, an exporter was restarted with its state in this time.
    "away": [Node("n1", [ALL, MIDDLE], scraped=((FIRST, SINCE + 7 * HOUR), (SINCE + 13 * HOUR, LAST)))],
    "anew": [Node("n1", [ALL, MIDDLE, SHORT, Job("erin", ANEW + 9 * HOUR - 600, ANEW + 10 * HOUR)], countings=COUNTINGS)],
    "replicas": [Node("n1", [ALL, MIDDLE, SHORT], labels=',replica="a"'), Node("n1", [ALL, MIDDLE, SHORT], labels=',replica="b"', jitter=7)],
    "renamed": [Node("n1", [ALL, MIDDLE], scraped=((FIRST, SINCE + 12 * HOUR),)), Node("n1.site", [ALL, MIDDLE], scraped=((SINCE + 12 * HOUR + INTERVAL, LAST),))],
    # It began to count in the window, too.
    "young": [Node("n1", [MIDDLE], countings=((SINCE + HOUR, LAST),), scraped=((SINCE + HOUR, SINCE + 12 * HOUR),)),
              Node("n1.site", [MIDDLE], countings=((SINCE + HOUR, LAST),), scraped=((SINCE + 12 * HOUR + INTERVAL, LAST),))],
    # Both ends of the window are in a gap.
    "gaps": [Node("n1", [ALL, MIDDLE], scraped=((FIRST, SINCE - HOUR), (SINCE + HOUR, UNTIL - HOUR), (UNTIL + INTERVAL, LAST)))],
    "late": [Node("n1", [ALL, MIDDLE], scraped=((SINCE + 10 * HOUR, LAST),)), Node("n2", [Job("alice", SINCE + 11 * HOUR, LAST)], countings=((SINCE + 10 * HOUR, LAST),))],
    "new": [Node("n1", [ALL, MIDDLE], countings=((SINCE + 10 * HOUR, LAST),))],
    "dark": [Node("n1", [ALL], energy=False), Node("n2", [ALL, MIDDLE]), Node("n3", [], owners=False)],
    "gone": [Node("n1", [ALL]), Node("n2", [ALL], scraped=((FIRST, SINCE + 4 * HOUR),)), Node("n3", [SHORT], scraped=((SINCE + 5 * HOUR - 600, SINCE + 6 * HOUR),), countings=((SINCE + 5 * HOUR - 660, LAST),))],
    "hostile": [Node("n1", [Job("=cmd()", FIRST, LAST), Job("a,b", FIRST, LAST, cpus=2)])],
    "factor": [Node("n1", [ALL])],
    "varies": [Node("n1", [ALL])],
}


# The month of docs/billing.md. An upgrade on the twelfth day lost the exporters' state while jobs ran.
MONTH, DAY = 31 * 86400, 86400
BEGAN = UNTIL - MONTH
UPGRADE = ((BEGAN - 9 * DAY, BEGAN + 12 * DAY + 400), (BEGAN + 12 * DAY + 460, LAST))
SERIES = [Job("frank", BEGAN + 16 * DAY + at * HOUR + 7, BEGAN + 16 * DAY + at * HOUR + 67, cpus=16, account="biology", around=4) for at in range(60)]


def days(first, hours):
    """The time of a job: from a day of the month on."""
    return BEGAN + first * DAY, BEGAN + first * DAY + hours * HOUR


MONTHS_NODES = [
    Node("n1", [Job("alice", BEGAN - 2 * DAY, LAST, cpus=32, watts=250), Job("bob", *days(3, 100), cpus=16, watts=120, suspended=10 * HOUR),
                Job("carol", *days(10, 48), cpus=16, watts=120, account="chemistry"), *SERIES], countings=UPGRADE, scraped=((BEGAN - HOUR, LAST),), interval=300),
    Node("n2", [Job("dave", *days(5, 240), cpus=32, watts=1400, gpus=4, account="chemistry"), Job("erin", *days(20, 60), cpus=8, watts=400, gpus=1, account="chemistry")],
         countings=UPGRADE, scraped=((BEGAN - HOUR, LAST),), interval=300),
]
# A node that is not scraped, and a reservation for physics in which nothing ran.
NOT_SCRAPED, RESERVED = Job("frank", *days(2, 24), cpus=64, account="biology"), {"physics": 32 * 10}


def sreport(account):
    """The CPU hours that SLURM has of an account in the month."""
    jobs = [job for node in MONTHS_NODES for job in node.jobs] + [NOT_SCRAPED]
    held = [job.cpus * (job.ran(BEGAN, UNTIL) - job.suspended + job.around) / HOUR for job in jobs if job.account == account]
    return sum(held) + RESERVED.get(account, 0)


def moment(at):
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def all_samples():
    samples = Samples()
    for cluster, nodes in CASES.items():
        for node in nodes:
            node.put(samples, cluster)
    # One exporter crashed, and went on with what it had saved two hours before; what jobs used in between was counted again.
    times = range(FIRST, LAST + 1, INTERVAL)
    for name, value in (("jobledger_exporter_counting_start_time_seconds", lambda at: FIRST - 7), ("jobledger_node_allocated_cpu_seconds_total", lambda at: 2 * (at - FIRST))):
        samples.put(name, 'instance="n1:9810",cluster="crashed"', times, value)
    samples.put("jobledger_owner_allocated_cpu_seconds_total", 'instance="n1:9810",cluster="crashed",user="alice"', times,
                lambda at: 2 * (at - FIRST - (2 * HOUR if 0 <= at - SINCE - 9 * HOUR < INTERVAL else 0)))
    # The site asks for other labels: what owners had is now of an owner without a user.
    for labels, span in ((',user="alice"', range(FIRST, SINCE + 9 * HOUR, INTERVAL)), (',account="physics"', range(SINCE + 9 * HOUR, LAST + 1, INTERVAL))):
        samples.put("jobledger_owner_allocated_cpu_seconds_total", f'instance="n1:9810",cluster="labels"{labels}', span, lambda at: 3 * (at - FIRST))
    samples.put("jobledger_exporter_counting_start_time_seconds", 'instance="n1:9810",cluster="labels"', times, FIRST - 9)
    samples.put("jobledger_node_allocated_cpu_seconds_total", 'instance="n1:9810",cluster="labels"', times, lambda at: 3 * (at - FIRST))
    samples.put("jobledger:carbon_factor:grams_per_kwh", 'cluster="factor"', times, 400)
    samples.put("jobledger:carbon_factor:grams_per_kwh", 'cluster="varies"', times, lambda at: 400 if at < UNTIL - HOUR else 300)
    return samples


class Usage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(scratch("jobledger-usage"))
        (cls.directory / "open.toml").write_text('[slurm]\nsacct = "never"\n')
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(all_samples(), "global: {}\n", "--storage.tsdb.retention.time=10d"))

    def ran(self, *arguments, since=SINCE, until=UNTIL):
        return Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/open.toml", "usage", f"--since={moment(since)}", f"--until={moment(until)}", *arguments)

    def document(self, cluster, *arguments, **times):
        ran = self.ran("--format=json", f"--cluster={cluster}", *arguments, **times)
        self.assertEqual(ran.status, 0, ran.err)
        return ran.json()

    def assert_is(self, document, wanted):
        """The CPU hours held and used and kWh of each, and of all."""
        found = {row["name"]: [row["cpu_hours_held"], row["cpu_hours_used"], row["energy_kwh"]] for row in document["rows"]}
        self.assertEqual(sorted(found), sorted(wanted), document)
        for name, numbers in wanted.items():
            for got, number in zip(found[name], numbers):
                self.assertAlmostEqual(got, number, places=4, msg=f"{name}: {document}")
        self.assertAlmostEqual(document["total"]["cpu_hours_held"], sum(numbers[0] for numbers in wanted.values()), places=4)

    def test_an_owner_that_appears_between_scrapes_counts_whole(self):
        document = self.document("plain")
        self.assert_is(document, truth(CASES["plain"]))
        (bob,) = [row for row in document["rows"] if row["name"] == "bob"]
        self.assertEqual((bob["job_ends"], bob["cluster"], bob["gpu_hours_held"]), (1, "plain", None))
        (carol,) = [row for row in document["rows"] if row["name"] == "carol"]
        self.assertAlmostEqual(carol["gpu_hours_held"], 2 * MIDDLE.ran(SINCE, UNTIL) / HOUR)
        self.assertAlmostEqual(carol["gpu_hours_busy"], MIDDLE.ran(SINCE, UNTIL) / HOUR)
        self.assertAlmostEqual(carol["memory_gib_hours_held"], carol["cpu_hours_held"])
        self.assertEqual((document["since"], document["until"], document["notes"]), (moment(SINCE).replace("Z", "+00:00"), moment(UNTIL).replace("Z", "+00:00"), []))

    def test_rows_are_of_accounts_partitions_and_users(self):
        self.assert_is(self.document("plain", "--by=account"), truth(CASES["plain"], by=lambda node, job: job.account))
        self.assert_is(self.document("plain", "--by=partition"), truth(CASES["plain"], by=lambda node, job: job.partition))
        self.assert_is(self.document("plain", "--by=account", "--user=alice"), {"physics": truth(CASES["plain"])["alice"]})

    def test_nodes_balance_with_their_own_counters(self):
        document = self.document("plain", "--by=node")
        self.assert_is(document, truth(CASES["plain"], by=lambda node, job: node.instance.partition(":")[0]))
        for row in document["rows"]:
            def grew(name, row=row):
                at = lambda when: float(self.server.get("query", query=f'{name}{{cluster="plain",instance="{row["name"]}:9810"}}', time=when)["result"][0]["value"][1])  # noqa: E731
                return (at(UNTIL) - at(SINCE)) / HOUR
            self.assertAlmostEqual(row["cpu_hours_used"] + row["cpu_hours_unattributed"], grew("jobledger_node_slurm_cpu_seconds_total"), places=5)
            self.assertAlmostEqual(row["cpu_hours_held"], grew("jobledger_node_allocated_cpu_seconds_total"), places=5)
            self.assertAlmostEqual(row["energy_kwh_unattributed"], SYSTEM_WATTS * 36 / 1000, places=5)
        # What is of nobody is not an account's.
        self.assertEqual({row["cpu_hours_unattributed"] for row in self.document("plain", "--by=node", "--account=physics")["rows"]}, {None})

    def test_a_restart_with_state_loses_nothing(self):
        self.assert_is(self.document("away"), truth(CASES["away"]))
        (alice,) = self.document("crashed")["rows"]
        self.assertAlmostEqual(alice["cpu_hours_held"], 2 * 36)

    def test_a_restart_without_state_counts_nothing_twice(self):
        document = self.document("anew")
        held = {row["name"]: (row["cpu_hours_held"], row["cpu_hours_used"]) for row in document["rows"]}
        for name, (wanted, used, _) in truth(CASES["anew"]).items():
            self.assertAlmostEqual(held[name][0], wanted, places=4, msg=name)
            self.assertAlmostEqual(held[name][1], used, places=4, msg=name)
        (carol,) = [row for row in document["rows"] if row["name"] == "carol"]
        self.assertAlmostEqual(carol["gpu_hours_held"], MIDDLE.gpus * MIDDLE.ran(SINCE, UNTIL) / HOUR, places=4)
        self.assertAlmostEqual(carol["memory_gib_hours_held"], carol["cpu_hours_held"], places=4)
        # So it is for one of them.
        (one,) = self.document("anew", "--by=account", "--user=alice")["rows"]
        self.assertAlmostEqual(one["cpu_hours_held"], held["alice"][0], places=4)
        # Energy is counted by the exporter alone: what is missing is from the last scrape to the restart, of each.
        (alice,) = [row for row in document["rows"] if row["name"] == "alice"]
        self.assertAlmostEqual(alice["energy_kwh"], truth(CASES["anew"])["alice"][2] - 3 * INTERVAL * ALL.watts / KWH, places=5)
        self.assertIn("1 node began to count anew, 3 times in all: ", document["notes"][0])

    def test_a_target_that_is_scraped_twice_counts_once(self):
        self.assert_is(self.document("replicas"), truth(CASES["replicas"][:1]))

    def test_a_node_of_another_name_goes_on(self):
        document = self.document("renamed")
        self.assert_is(document, truth(CASES["renamed"][:1]))
        self.assertFalse([note for note in document["notes"] if "counted before" in note], document["notes"])
        self.assert_is(self.document("young"), truth(CASES["young"][:1]))

    def test_windows_whose_ends_are_in_a_gap_add_up(self):
        # The value at an end is that of the last scrape before it.
        self.assert_is(self.document("gaps"), truth(CASES["gaps"], SINCE - HOUR, UNTIL - HOUR))
        middle = SINCE + 18 * HOUR
        halves = [self.document("gaps", until=middle), self.document("gaps", since=middle)]
        whole = {name: [sum(parts) for parts in zip(*(truth(CASES["gaps"], *ends)[name] for ends in ((SINCE - HOUR, middle), (middle, UNTIL - HOUR))))] for name in ("alice", "carol")}
        for name, numbers in whole.items():
            self.assertAlmostEqual(sum(row["cpu_hours_held"] for half in halves for row in half["rows"] if row["name"] == name), numbers[0], places=4)

    def test_what_a_new_node_counted_before_is_left_out(self):
        document = self.document("late")
        seen = SINCE + 10 * HOUR
        self.assert_is(document, truth(CASES["late"], seen, UNTIL))
        self.assertIn("1 node counted before the first scrape: what was counted until then is left out", document["notes"])
        self.assertIn("2 nodes were first scraped after --since", document["notes"])

    def test_jobs_of_a_new_node_have_what_is_of_the_window(self):
        document = self.document("new")
        wanted = truth(CASES["new"])
        for numbers in wanted.values():
            numbers[2] = 0.1 * (UNTIL - SINCE - 10 * HOUR) / HOUR
        wanted["carol"][2] = 0.1 * (MIDDLE.end - SINCE - 10 * HOUR) / HOUR
        self.assert_is(document, wanted)
        self.assertIn("1 node is new and had jobs that began before --since: the part of their CPU time that was used until then is an estimate", document["notes"])

    def test_nodes_that_are_gone_count_until_then(self):
        document = self.document("gone", "--by=node")
        held = {row["name"]: row["cpu_hours_held"] for row in document["rows"]}
        self.assertAlmostEqual(held["n2"], 4 * 4, places=4)
        self.assertAlmostEqual(held["n3"], 64 * 60 / HOUR, places=4)
        self.assertIn("2 nodes were last scraped before --until", document["notes"])

    def test_what_is_not_counted_is_said_and_not_0(self):
        document = self.document("dark", "--by=node")
        rows = {row["name"]: row for row in document["rows"]}
        self.assertEqual((rows["n1"]["energy_kwh"], rows["n1"]["energy_kwh_unattributed"]), (None, None))
        self.assertAlmostEqual(rows["n1"]["cpu_hours_held_without_energy"], 4 * 36, places=4)
        self.assertEqual(rows["n2"]["cpu_hours_held_without_energy"], 0)
        self.assertNotIn("n3", rows)
        self.assertIn("1 node has no counters of energy, for 36.0 node-hours", document["notes"])
        self.assertTrue([note for note in document["notes"] if note.startswith("1 node has no counters of owners, for 36.0 node-hours")], document["notes"])
        self.assertIsNone(document["total"]["co2_kg"])

    def test_owners_of_other_labels_are_not_known(self):
        document = self.document("labels")
        self.assertEqual([row["name"] for row in document["rows"]], [""])
        self.assertAlmostEqual(document["total"]["cpu_hours_held"], 3 * 36)
        self.assertTrue([note for note in document["notes"] if "--owner.labels" in note], document["notes"])

    def test_co2_is_there_where_the_site_sets_a_factor(self):
        document = self.document("factor")
        self.assertAlmostEqual(document["total"]["co2_kg"], document["total"]["energy_kwh"] * 0.4)
        document = self.document("varies")
        self.assertIsNone(document["total"]["co2_kg"])
        self.assertIn("CO2 is left out", document["notes"][0])

    def test_clusters_are_apart(self):
        ran = self.ran("--by=node")
        self.assertEqual(ran.status, 0, ran.err)
        head, *lines = ran.out.splitlines()
        self.assertEqual(head.split()[:2], ["NODE", "CLUSTER"])
        self.assertIn(["n1", "plain"], [line.split()[:2] for line in lines])
        self.assertIn(["n1", "other"], [line.split()[:2] for line in lines])
        self.assertEqual([line.split()[0] for line in lines if line[0] != "-" and not line.startswith("  ")][-1], "total")

    def test_csv_runs_nothing(self):
        ran = self.ran("--format=csv", "--cluster=hostile")
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        self.assertEqual([(row["cluster"], row["user"]) for row in rows], [("hostile", "'=cmd()"), ("hostile", "a,b")])
        self.assertAlmostEqual(float(rows[0]["cpu_hours_held"]), 4 * 36, places=4)
        self.assertEqual(rows[0]["gpu_hours_held"], "")

    def test_a_server_that_keeps_less_refuses(self):
        ran = self.ran(since=UNTIL - 12 * 86400)
        self.assertEqual((ran.status, ran.out), (3, ""))
        self.assertIn("the server keeps 10 days, and --since is 12 days ago", ran.err)
        # It has no sample of that time.
        ran = self.ran(since=FIRST - 4 * 86400)
        self.assertEqual((ran.status, ran.out), (3, ""))
        self.assertRegex(ran.err, r"the oldest sample of the server is 1\.\d days old, and --since is 5\.\d days ago")

    def test_the_month_of_the_documentation(self):
        samples, text = Samples(), BILLING.read_text()
        for node in MONTHS_NODES:
            node.put(samples, "site")
        with server_of(samples, "global: {}\n", "--storage.tsdb.retention.time=60d", blocks=["--max-block-duration=480h"]) as server:
            ran = Ran(self.program, f"http://{server.address}", f"--config={self.directory}/open.toml", "usage", "--by=account", f"--since={moment(BEGAN)}", f"--until={moment(UNTIL)}")
        self.assertEqual(ran.status, 0, ran.err)
        self.assertIn(f"```text\n{ran.out}```", text)
        held = {name: numbers[0] for name, numbers in truth(MONTHS_NODES, BEGAN, UNTIL, lambda node, job: job.account).items()}
        rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)
        self.assertEqual(sorted(rows), sorted((name, f"{hours:.0f}", f"{sreport(name):.0f}") for name, hours in held.items()))

    def test_an_owner_that_held_nothing_is_an_error(self):
        ran = self.ran("--cluster=plain", "--user=nobody")
        self.assertEqual((ran.status, ran.out), (3, ""))
        self.assertIn("no owner held anything in that time", ran.err)


if __name__ == "__main__":
    unittest.main()
