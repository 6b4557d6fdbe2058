"""What a user sees of a command that takes long, and what Ctrl-C leaves. A terminal is that of pyte (PyPI)."""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import unittest
import urllib.parse

from tools import Samples, program, scratch

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHO = {"jobid": "7", "user": "alice"}
# By a part of the query.
ANSWERS = {
    '"of", "$1"': [{"metric": {"__name__": "jobledger_job_start_time_seconds", "of": "x", "jobid": "7", "instance": "n1"}, "value": [0, str(time.time() - 1e6)]}],
    "group by": [{"metric": WHO, "value": [0, "1"]}],
    "_total": [{"metric": {"__name__": "jobledger_job_cpus", "jobid": "7", "instance": "n1"}, "value": [0, "4"]}],
}


class Slow(http.server.BaseHTTPRequestHandler):
    """A server that takes two seconds for each answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        query = self.rfile.read(int(self.headers["Content-Length"])).decode()
        query = urllib.parse.unquote_plus(query)
        time.sleep(2)
        found = next((answer for part, answer in ANSWERS.items() if part in query), []) if self.path.endswith("/query") else []
        kind = "vector" if self.path.endswith("/query") else "matrix"
        body = json.dumps({"status": "success", "data": {"resultType": kind, "result": found}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(OSError):  # Whoever asked is gone.
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Patience(unittest.TestCase):
    def setUp(self):
        self.program = program()
        self.directory = self.enterContext(scratch("jobledger-patience"))
        server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        self.report = ["report", "7", f"--url=http://127.0.0.1:{server.server_port}", "--no-sacct", "--tz=UTC"]

    def test_a_terminal_shows_how_far_it_is_and_then_the_report_alone(self):
        python = subprocess.run([ROOT / "grafana/environment.sh", ROOT / "tests/report/requirements-terminal.txt"], capture_output=True, text=True, check=True)
        steps = [{"keys": "", "until": r"the server is asked: [1-9]\d* answers, "}, {"keys": "", "until": None}]
        ran = subprocess.run([python.stdout.strip(), ROOT / "tests/report/terminal.py", self.program, *self.report], input="".join(json.dumps(step) + "\n" for step in steps),
                             capture_output=True, text=True, timeout=600, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"})
        during, after = [json.loads(line) for line in ran.stdout.splitlines()]
        self.assertRegex(during[0], r"^the server is asked: \d+ answers, \d+ kB, \d+ s$")
        # The end of the job was not seen.
        self.assertEqual(ran.returncode, 4, after)
        self.assertFalse(any("the server is asked" in row for row in after), after)
        self.assertRegex(after[0], r"^Job 7 ")

    def test_a_file_and_a_pipe_show_nothing(self):
        done = subprocess.run([self.program, *self.report], capture_output=True, text=True, timeout=600, env={"HOME": "/nonexistent"})
        self.assertEqual((done.returncode, done.stderr), (4, "jobledger: a part of the job was not seen: the report says which\n"))

    def interrupted(self, arguments, when):
        """The exit status and the errors of a command that gets a SIGINT at its moment; None if it ended before that."""
        process = subprocess.Popen([self.program, *arguments], cwd=self.directory, stderr=subprocess.PIPE, text=True, env={"HOME": "/nonexistent"})
        while not when():
            if process.poll() is not None:
                process.communicate()
                return None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        return process.returncode, err

    def test_while_it_waits_ctrl_c_ends_it(self):
        begun = time.monotonic()
        ended = self.interrupted([*self.report, "-o", "report.html"], lambda: time.monotonic() - begun > 1)
        self.assertEqual(ended, (130, "jobledger: interrupted\n"))
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_while_it_writes_ctrl_c_leaves_a_whole_file(self):
        samples, begin = Samples(), int(time.time()) - 20_000
        for name, value in (("info", 1), ("start_time_seconds", begin), ("cpus", 4)):
            samples.put(f"jobledger_job_{name}", 'jobid="7",instance="n1"', range(begin + 1, begin + 15_000), value)
        for name in ("allocated_cpu_seconds_total", "cpu_seconds_total", "page_faults_total"):
            samples.put(f"jobledger_job_{name}", 'jobid="7",instance="n1",mode="user",type="major"', range(begin + 1, begin + 15_000), lambda at: at - begin)
        with scratch("jobledger-recording") as elsewhere:
            (elsewhere / "job.om").write_text("\n".join(samples.lines()))
            export = ["export", "--recording", str(elsewhere / "job.om"), "--layout=long", "--step=1", "-o", "job.csv"]
            writes = lambda: any(name.startswith(".jobledger-") for name in os.listdir(self.directory))  # noqa: E731
            # This test may get its turn too late.
            ended = next(filter(None, (self.interrupted(export, writes) for _ in range(10))))
        self.assertIn(ended[0], (0, 4), ended)
        self.assertEqual([path.name for path in self.directory.iterdir()], ["job.csv"])
        last = (self.directory / "job.csv").read_text().splitlines()[-1]
        self.assertRegex(last, r"^[^,]+,n1,page_faults_major_per_second,count_per_second,[^,]+$")


if __name__ == "__main__":
    unittest.main()
