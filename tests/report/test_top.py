"""`jobledger top` over jobs whose numbers are known, on a terminal.

Needs Prometheus and python3-venv; pyte comes from PyPI.
"""

import json
import os
import subprocess
import unittest

from jobs import HOUR, MINUTE, NOW, Jobs
from tools import ROOT, Ran, program, server_of


def jobs():
    jobs = Jobs()
    ago = lambda minutes: NOW - minutes * MINUTE  # noqa: E731
    jobs.add(301, "alice", ago(180), None, gpus=(ago(130), ago(130)), name="two idle GPUs", peak=16)
    jobs.add(302, "bob", ago(90), None, cpus=8, used=2, name="two of eight cores", account="bio")
    jobs.add(303, "carol", ago(60), None, gpus=(NOW + HOUR,), name="busy", used=1.5)
    jobs.add(304, "dave", ago(50), ago(2), name="ended")
    jobs.add(305, "erin", ago(40), None, array="305_3", used=0)
    return jobs.samples


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(jobs()))
        cls.url = f"http://{cls.server.address}"

    def once(self, *arguments):
        ran = Ran(self.program, self.url, "top", "--once", *arguments)
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
