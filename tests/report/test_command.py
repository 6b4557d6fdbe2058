"""What `jobledger` answers to how people start it: help, files, terminals, and what is not there. Needs Prometheus."""

import contextlib
import http.server
import json
import os
import pathlib
import pty
import re
import subprocess
import tempfile
import threading
import unittest

from jobs import GIB, HOUR, MINUTE, NOW, Jobs
from tools import Ran, program, server_of


def jobs():
    jobs = Jobs()
    jobs.add(1, "alice", NOW - 3 * HOUR, NOW - HOUR, cpus=8, used=2, name="a job with a long name " * 2, gpus=(NOW - 2 * HOUR,))
    jobs.add(2, "alice", NOW - 3 * HOUR, NOW - HOUR, name="two")
    for task in range(2):
        jobs.add(10 + task, "alice", NOW - 30 * MINUTE, NOW - 10 * MINUTE * (1 + task), array=f"10_{task}", used=0.5 * (1 + task))
    return jobs.samples


class Exporter(http.server.BaseHTTPRequestHandler):
    """Refuses as an exporter does."""

    def do_POST(self):
        self.send_response(405)
        self.send_header("Content-Length", "17")
        self.end_headers()
        self.wfile.write(b"only GET and HEAD")

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def exporter():
    with http.server.HTTPServer(("127.0.0.1", 0), Exporter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        server = cls.enterClassContext(server_of(jobs()))
        cls.url = f"http://{server.address}"
        cls.directory = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def run_it(self, *arguments, status=0, url=None, **environment):
        ran = Ran(self.program, url or self.url, *arguments, **environment)
        self.assertEqual(ran.status, status, ran.err)
        return ran

    def config(self, text):
        path = self.directory / "jobledger.toml"
        path.write_text(text)
        return f"--config={path}"

    def test_help_is_a_command_and_has_examples(self):
        for arguments in (("help", "report"), ("report", "--help")):
            self.assertIn("jobledger report 123 -o job.html", self.run_it(*arguments).out)
        self.assertIn("\nExamples:\n", self.run_it("--help").out)

    def test_no_line_of_a_report_is_longer_than_asked_for(self):
        for width in (60, 71, 80, 120):
            for command in (("report", "1"), ("array", "10")):
                lines = self.run_it(*command, f"--width={width}", "--no-sacct").out.splitlines()
                self.assertLessEqual(max(map(len, lines)), width, lines)

    def test_the_width_is_the_terminals(self):
        for columns, widest in ((64, 64), (100, 100), (300, 120), (20, 60)):
            ours, theirs = pty.openpty()
            subprocess.run(["stty", "cols", str(columns)], stdin=theirs, check=True)
            child = subprocess.Popen([self.program, f"--url={self.url}", "--no-sacct", "--color=never", "report", "1"], stdin=theirs, stdout=theirs,
                                     stderr=subprocess.DEVNULL, env={"HOME": "/nonexistent", "LANG": "C.UTF-8"})
            os.close(theirs)
            page = b""
            with contextlib.suppress(OSError):
                while read := os.read(ours, 1 << 16):
                    page += read
            os.close(ours)
            self.assertEqual(child.wait(), 0)
            lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", page.decode()).splitlines()
            self.assertLessEqual(max(map(len, lines)), widest)
            self.assertGreater(max(map(len, lines)), widest - 12)

    def test_a_locale_without_utf_8_gets_ascii(self):
        page = lambda *arguments, **environment: self.run_it("report", "1", "--no-sacct", *arguments, **environment).out  # noqa: E731
        for environment in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX", "LANG": "C.UTF-8"}, {"LANG": "de_DE.ISO-8859-1"}):
            self.assertTrue(page(**environment).isascii(), environment)
            self.assertFalse(page("--ascii=never", **environment).isascii())
        for environment in ({}, {"LANG": "C.UTF-8"}, {"LC_CTYPE": "en_US.utf8", "LANG": "C"}):
            self.assertFalse(page(**environment).isascii(), environment)
            self.assertTrue(page("--ascii", **environment).isascii())
        mail = self.run_it("mail", "--dry-run", "--wait=0", "-s", "Slurm Job_id=1 Name=x Ended", "alice", LC_ALL="C").out
        self.assertIn("\u2588", mail)

    def test_the_ending_of_a_file_is_one_that_is_known(self):
        for name in ("r.xyz", "r.html.gz", "r.csv"):
            path = self.directory / name
            ran = self.run_it("report", "1", "-o", path, status=2)
            self.assertEqual(ran.err, f"jobledger: {path}: the name has to end in .txt, .json, .md, .html or .pdf, or --format says the format\n")
            self.assertFalse(path.exists())
        self.run_it("report", "1", "--no-sacct", "--format=text", "-o", self.directory / "r.xyz")
        self.run_it("report", "1", "--no-sacct", "-o", self.directory / "report")
        for command in (("report", "1", "-o", "/nonexistent/r.html"), ("export", "1", "-o", "/nonexistent/r.csv")):
            self.assertEqual(self.run_it(*command, "--no-sacct", status=1).err, f"jobledger: {command[3]}: there is no directory /nonexistent\n")

    def test_metrics_have_the_names_of_columns(self):
        path = self.directory / "job.csv"
        self.run_it("export", "1", "--no-sacct", "-o", path, "--metrics=cpu_seconds_per_second,memory_limit_bytes")
        columns = path.read_text().splitlines()[0].split(",")
        self.assertEqual(columns[-2:], ["cpu_seconds_per_second", "memory_limit_bytes"])
        ran = self.run_it("export", "1", "-o", path, "--metrics=cpu_secnds_per_second", status=2)
        self.assertRegex(ran.err, r"^jobledger: --metrics=cpu_secnds_per_second: there is no such metric; is it cpu_seconds_per_second( or \w+)*\?\n$")
        self.assertLess(len(self.run_it("export", "1", "-o", path, "--metrics=foo", status=2).err), 120)

    def test_clustercockpit_names_its_options(self):
        err = self.run_it("export", "1", "--no-sacct", "-o", self.directory / "archive", "--layout=clustercockpit", "--cluster=", status=1).err
        self.assertRegex(err, "--cluster names it|--subcluster and --exclusive say .* --force")

    def test_scripts_get_raw_numbers(self):
        columns = "job,start,elapsed,cpus,cpu,memory,peak,gpu,energy"
        head, row, _ = self.run_it("list", "1", "2", "--format=parsable", f"--columns={columns}").out.splitlines()
        cells = dict(zip(head.split("|"), row.split("|")))
        self.assertEqual((cells["job"], cells["elapsed"], cells["cpus"], cells["cpu"], cells["energy"]), ("1", "7200", "8", "0.25", str(150 * 7200 + 250 * 7200)))
        self.assertEqual((cells["memory"], cells["peak"]), (str(31 / 32), str(31 * GIB)))
        self.assertAlmostEqual(float(cells["gpu"]), 0.5, places=2)
        self.assertRegex(cells["start"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$")
        compared = [line.split("|") for line in self.run_it("compare", "1", "2", "--format=parsable").out.splitlines()]
        self.assertEqual(dict(zip(compared[0], compared[1]))["cpu"], "0.25")

    def test_a_small_array_has_no_histogram(self):
        lines = self.run_it("array", "10").out.splitlines()
        self.assertEqual(lines[0].split(" seen")[0], "Array 10: 2 elements")
        self.assertEqual(lines[2].split(), ["min", "median", "max"])
        self.assertEqual(lines[3].split(), ["Time", "00:10:00", "00:15:00", "00:20:00"])
        self.assertEqual(lines[4].split(), "CPU 25 % 38 % 50 %".split())
        self.assertEqual([line for line in lines if line != line.rstrip()], [])

    def test_mails_and_digests_say_what_is_not_there(self):
        subject = "Slurm Job_id=1 Name=x Began"
        settings = self.config('[mail]\nsendmail = "/nonexistent/sendmail"\n')
        self.assertEqual(self.run_it("mail", settings, "-s", subject, "alice", status=1).err,
                         "jobledger: /nonexistent/sendmail is not there: mail.smtp names a server, mail.sendmail another program\n")
        self.assertIn("names a job: SLURM's subjects are like", self.run_it("mail", settings, "-s", "hello", "alice", status=2).err)
        self.run_it("mail", "--dry-run", "-s", "hello", "alice", SLURM_JOB_ID="1")
        none = self.directory / "none.toml"
        self.assertEqual(self.run_it("digest", f"--policies={none}", status=2).err,
                         f"jobledger: {none}: there is no such file; `cp /usr/share/doc/jobledger/digest.toml.example {none}` gives an example\n")
        policies = self.directory / "digest.toml"
        policies.write_text('history = "/nonexistent/history.jsonl"\n[[policy]]\nname = "x"\nadvice = "gpu_never_used"\nmeasure = "gpu_hours_never_used"\n'
                            'jobs = { run_minutes = ">= 30" }\nowner = { wasted = ">= 100" }\n')
        self.assertEqual(self.run_it("digest", "--send", f"--policies={policies}", status=1).err,
                         "jobledger: /nonexistent/history.jsonl: its directory is not there: the service makes it, or `history` in the policies names another file\n")
        self.assertEqual(self.run_it("digest", "--dry-run", f"--policies={policies}").out, "There is no mail to send.\n")

    def test_an_exporter_is_no_prometheus(self):
        with exporter() as url:
            for command in (("report", "1"), ("list", "--user=all"), ("check",)):
                self.assertRegex(self.run_it(*command, url=url, status=2).err, r"^jobledger: 127.0.0.1:\d+ is an exporter, no Prometheus: --url is that of ")

    def test_a_broken_sacct_is_named_once(self):
        sacct = self.directory / "sacct"
        sacct.write_text("#!/bin/sh\necho 'sacct: error: no database' >&2\nexit 1\n")
        sacct.chmod(0o755)
        settings = self.config(f'[slurm]\nsacct = "{sacct}"\n')
        ran = self.run_it("report", "1", "2", settings)
        self.assertEqual(ran.err, f'jobledger: {sacct}: no database. With --no-sacct, or slurm.sacct = "never", it is not asked.\n')
        self.assertNotIn("no database", ran.out)
        self.assertEqual(" ".join(ran.out.split()).count("SLURM's accounting does not answer"), 2)
        document = self.run_it("report", "1", settings, "--format=json").json()
        self.assertNotIn("no database", json.dumps(document))
        self.assertIn(f"no  sacct answers, for state, time limit and waiting time ({sacct}: no database)\n", self.run_it("check", settings).out)
        self.assertIn('no  sacct is asked (--no-sacct, or slurm.sacct = "never")\n', self.run_it("check", "--no-sacct").out)
        sacct.write_text("#!/bin/sh\n")
        self.assertIn("yes sacct answers\n", self.run_it("check", settings).out)

    def test_check_names_what_is_there(self):
        settings = self.config("")
        self.assertIn(f"yes configuration {self.directory}/jobledger.toml\n", self.run_it("check", settings).out)
        self.assertIn("no  configuration /nonexistent/.config/jobledger/jobledger.toml (", self.run_it("check").out)

    def test_check_counts_targets_that_are_down(self):
        samples = Jobs().samples
        times = range(NOW - HOUR, NOW + HOUR, MINUTE)
        for at, instance in enumerate(("n1", "n2", "n3", "n4", "n5", "db")):
            labels = f'job="{"db" if instance == "db" else "x"}",instance="{instance}"'
            samples.put("up", labels, times, 1 if at == 0 else 0)
            if at == 0:
                samples.put("jobledger_exporter_build_info", labels, times, 1)
        with server_of(samples) as server:
            out = self.run_it("check", "--no-sacct", url=f"http://{server.address}").out
        self.assertIn("yes 1 node with the exporter\n", out)
        self.assertRegex(out, r"\nno  all targets are up, but for 4 \(down: n\d, n\d, n\d, ...; the server's page of targets says why\)\n")


if __name__ == "__main__":
    unittest.main()
