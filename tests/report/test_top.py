"""`jobledger top` over jobs whose numbers are known, on a terminal.

Needs Prometheus and python3-venv; pyte comes from PyPI.
"""

import json
import os
import subprocess
import time
import unittest

from jobs import GIB, HOUR, MINUTE, NOW, Jobs
from tools import ROOT, Ran, Samples, program, server_of


# Tests of other files may take long before these: what is looked at is some seconds after the samples were made.
UNTIL = time.strftime("--until=%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + 5))


def jobs():
    jobs = Jobs()
    ago = lambda minutes: NOW - minutes * MINUTE  # noqa: E731
    jobs.add(301, "alice", ago(180), None, gpus=(ago(130), ago(130)), name="two idle GPUs", peak=16)
    jobs.add(302, "bob", ago(90), None, cpus=8, used=2, name="two of eight cores", account="bio")
    jobs.add(303, "carol", ago(60), None, gpus=(NOW + HOUR,), name="busy", used=1.5)
    jobs.add(304, "dave", ago(50), ago(2), name="ended")
    jobs.add(305, "erin", ago(40), None, array="305_3", used=0)
    return jobs.samples


class Edges:
    """Jobs on nodes with two CPUs a core, of which each keeps 93 % busy and draws 150 W a node, and 250 W a GPU."""

    def __init__(self):
        self.samples = Samples()

    def node(self, name, times, counting=NOW - 30 * HOUR):
        for metric, value in (("node_cpus", 8), ("node_cores", 4), ("exporter_counting_start_time_seconds", counting)):
            self.samples.put(f"jobledger_{metric}", f'instance="{name}"', times, value)

    def job(self, number, node, times, ran, *, start, energy=None, gpus=0):
        """`ran` gives its seconds at a time by the node's clock, `energy` those for which its energy was counted."""
        labels, energy = f'jobid="{number}",instance="{node}"', energy or ran
        put = lambda metric, value, more="": self.samples.put(f"jobledger_job_{metric}", labels + more, times, value)  # noqa: E731
        put("info", 1, f',user="alice",name="job{number}"')
        put("start_time_seconds", start)
        put("cpus", 4)
        put("gpus", gpus)
        put("memory_limit_bytes", 8 * GIB)
        put("memory_anon_bytes", GIB)
        put("memory_shmem_bytes", GIB)
        put("allocated_cpu_seconds_total", lambda at: 4 * ran(at))
        put("cpu_seconds_total", lambda at: 1.86 * ran(at), ',mode="user"')
        put("energy_joules_total", lambda at: 150 * energy(at), ',domain="package"')
        for index in range(gpus):
            gpu = f',gpu="{index}",uuid="GPU-{number}-{index}"'
            put("gpu_busy_seconds_total", lambda at: 0.25 * energy(at), gpu + ',method="alone"')
            put("gpu_idle_seconds_total", lambda at: 0.75 * energy(at), gpu)
            put("gpu_energy_joules_total", lambda at: 250 * energy(at), gpu)


def edges():
    edges = Edges()
    every = lambda since, step=15: range(since + 4, NOW + HOUR, step)  # noqa: E731
    since = lambda start: lambda at: at - start  # noqa: E731
    young, old = NOW - 54, NOW - 3 * HOUR
    # Young, its node is scraped every 15 s; with GPUs.
    edges.node("n1", every(old))
    edges.job(1, "n1", every(young), since(young), start=young)
    edges.job(2, "n1", every(young), since(young), start=young, gpus=2)
    # Old.
    edges.job(3, "n1", every(old), since(old), start=old, gpus=1)
    # Seen once, as nodes that are scraped each minute show it.
    edges.node("n2", [NOW - 15])
    edges.job(4, "n2", [NOW - 15], since(NOW - 40), start=NOW - 40)
    # Seen when it had begun, or by a server whose clock is behind: its power is not known.
    edges.job(5, "n2", [NOW - 15], since(NOW - 18), start=NOW - 18)
    edges.job(6, "n2", [NOW - 15], lambda at: 25, start=NOW + 30)
    # Old, and the exporter was started a minute ago without what it had counted: CPU time is the kernel's and goes on.
    edges.node("n3", every(old), counting=NOW - 60)
    edges.job(7, "n3", every(old), since(old), start=old, gpus=1, energy=lambda at: at - old if at < NOW - 60 else at - NOW + 60)
    # The same of a young one that nobody scraped before.
    edges.job(8, "n3", every(NOW - 60), since(NOW - 200), start=NOW - 200, gpus=1, energy=since(NOW - 60))
    # Old, of a server that scrapes since a minute.
    edges.node("n4", every(NOW - 60))
    edges.job(9, "n4", every(NOW - 60), since(old), start=old, gpus=1)
    # On two nodes: one started later; one was seen once and its start is long ago, so that what it does now is unknown.
    edges.node("n5", every(old))
    edges.job(10, "n4", every(NOW - 60), since(old), start=old)
    edges.job(10, "n5", every(young), since(young), start=young)
    edges.job(11, "n5", every(old), since(old), start=old)
    edges.job(11, "n2", [NOW - 15], since(old), start=old)
    return edges.samples


class Young(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = cls.enterClassContext(server_of(edges()))
        ran = Ran(program(), f"http://{server.address}", "top", "--once", "--sort=job", UNTIL)
        if (ran.status, ran.err) != (0, ""):
            raise AssertionError(ran)
        cls.head, _, _, *rows = ran.out.splitlines()
        cls.rows = {int(row.split()[0]): [cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows}

    def test_a_job_has_what_it_used_since_its_start_or_lately(self):
        use = lambda number: (self.rows[number][-5], self.rows[number][-2], self.rows[number][-1])  # noqa: E731
        self.assertEqual(sorted(self.rows), list(range(1, 12)))
        for number in (1, 4, 10):
            self.assertEqual(use(number), ("93 %", "-", "300 W" if number == 10 else "150 W"), number)
        for number in (2, 3, 7, 8, 9):
            self.assertEqual(use(number), ("93 %", "25 %", "650 W" if number == 2 else "400 W"), number)

    def test_what_is_not_known_is_absent(self):
        use = lambda number: (self.rows[number][-5], self.rows[number][-1])  # noqa: E731
        for number in (5, 6):
            self.assertEqual(use(number), ("93 %", "-"), number)
        self.assertEqual(use(11), ("-", "-"))

    def test_the_head_says_what_its_sums_lack(self):
        # 13 nodes with two cores each, one job on two of them is not known; a job with two GPUs and four with one, three quarters idle.
        self.assertEqual(self.head, "11 jobs: 4.5 of 6 GPUs idle, 1.54 of 26 cores idle, 4 not known, 26 GiB held, 2.85 kW of 8 jobs")


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(jobs()))
        cls.url = f"http://{cls.server.address}"

    def once(self, *arguments):
        ran = Ran(self.program, self.url, "top", "--once", UNTIL, *arguments)
        self.assertEqual((ran.status, ran.err), (0, ""))
        head, _, heads, *rows = ran.out.splitlines()
        self.assertEqual(heads.split(), ["JOB", "USER", "NAME", "TIME", "NODES", "CORES", "CPU", "MEMORY", "GPUS", "GPU", "POWER"])
        return head, {row.split()[0]: row for row in rows}

    def test_the_table_has_what_jobs_do_now(self):
        head, rows = self.once()
        self.assertEqual(list(rows), ["301", "302", "305_3", "303"])
        # 8 + 2 + 2 + 2 cores, of which 2 + 2 + 1.5 work; 12 GiB held by the first one, 23.2 by the others; 150 W each, and 250 a GPU.
        self.assertEqual(head, "4 jobs: 2 of 3 GPUs idle, 8.5 of 14 cores idle, 81.8 GiB held, 1.35 kW")
        cells = lambda job: [cell.strip() for cell in rows[job].split("  ") if cell.strip()]  # noqa: E731
        self.assertEqual(cells("301")[4:], ["1", "2", "100 %", "38 %", "2", "0 %", "650 W"])
        self.assertEqual(cells("302")[4:], ["1", "8", "25 %", "73 %", "0", "-", "150 W"])
        self.assertEqual(cells("303")[4:], ["1", "2", "75 %", "73 %", "1", "100 %", "400 W"])
        self.assertRegex(cells("302")[3], r"^01:30:[0-5]\d$|^01:3[1-9]:\d\d$")

    def test_jobs_are_chosen_and_sorted(self):
        self.assertEqual(list(self.once("--user=bob")[1]), ["302"])
        self.assertEqual(list(self.once("--account=bio")[1]), ["302"])
        self.assertEqual(list(self.once("--sort=time")[1]), ["301", "302", "303", "305_3"])
        self.assertEqual(self.once("--user=nobody")[0], "0 jobs: 0 of 0 cores idle, 0 B held")

    def test_without_a_terminal_it_says_what_to_do(self):
        ran = Ran(self.program, self.url, "top")
        self.assertEqual((ran.status, ran.err), (2, "jobledger: this is no terminal: --once prints the table once\n"))

    def steps(self, *steps, url=None):
        """The screens after steps, and the exit status."""
        python = subprocess.run([ROOT / "grafana/environment.sh", ROOT / "tests/report/requirements-terminal.txt"], capture_output=True, text=True, check=True)
        command = [python.stdout.strip(), ROOT / "tests/report/terminal.py", self.program, "top", f"--url={url or self.url}", "--no-sacct", "--tz=UTC"]
        ran = subprocess.run(command, input="".join(json.dumps(step) + "\n" for step in steps), capture_output=True, text=True, timeout=600,
                             env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"})
        return [json.loads(line) for line in ran.stdout.splitlines()], ran.returncode

    def test_a_terminal_shows_jobs_and_their_reports(self):
        press = lambda keys, until: {"keys": keys, "until": until}  # noqa: E731
        (first, sorted_by_job, report, back, ended), status = self.steps(
            press("", r"\n305_3 .*\n303 "), press("j", r"\n303 .*\n305_3 "), press("\x1b[B\r", "CPUs used"), press(" ", "POWER"), press("q", None))
        self.assertEqual(status, 0)
        self.assertRegex(first[0], r"^\d\d:\d\d:\d\d  4 jobs: 2 of 3 GPUs idle")
        self.assertEqual([row.split()[0] for row in first[2:6]], ["301", "302", "305_3", "303"])
        self.assertEqual([row.split()[0] for row in sorted_by_job[2:6]], ["301", "302", "303", "305_3"])
        self.assertTrue(any("Job 302" in row for row in report), report)
        self.assertTrue(back[1].startswith("JOB"), back)
        # The terminal is as it was before.
        self.assertFalse(any("JOB" in row for row in ended), ended)

    def test_a_server_that_does_not_answer_is_an_error_of_one_line(self):
        (screen,), status = self.steps({"keys": "", "until": "refused"}, url="http://127.0.0.1:1")
        self.assertEqual(status, 1)
        self.assertIn("Connection refused", " ".join(screen))


if __name__ == "__main__":
    unittest.main()
