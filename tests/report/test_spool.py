"""`jobledger spool`: mails and AdminComments of slurmctld's host, with a real Prometheus. sendmail and sacctmgr are scripts that keep what they get."""

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
import urllib.request

from mails import body, parsed
from tools import Prometheus, Ran, Samples, free_ports, program, programs, running, scratch, server_of, wait_for

ENDED = "Slurm Job_id={} Name=train Ended, Run time 00:01:40, COMPLETED, ExitCode 0"
ARRAY = "Slurm Array Summary Job_id={}_* ({}) Name=train Ended, COMPLETED, ExitCode [0-0]"
BEGAN = "Slurm Job_id={} Name=train Began, Queued time 00:00:01"
SENDMAIL = """#!/bin/sh
if [ -e {0}/refuses ]; then cat >/dev/null; echo it is full >&2; exit 75; fi
cat >{0}/.$$
mv {0}/.$$ {0}/$$.mail
"""
SACCTMGR = """#!/bin/sh
if [ "$1" = --version ]; then echo slurm 24.11.5; exit 0; fi
printf '%s\\n' "$@" >{0}/.$$
mv {0}/.$$ {0}/$$.comment
"""


def of_job(number, start, end=None, **labels):
    """What a node shows of a job, as a page."""
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    yield f'jobledger_job_info{{jobid="{number}",user="alice",uid="1000"{more}}} 1\n'
    series = {"start_time_seconds": start, "cpus": 2, "allocated_cpu_seconds_total": 200, "memory_used_bytes": 1 << 30, "memory_peak_bytes": 1 << 30, "memory_limit_bytes": 2 << 30,
              "cpu_seconds_total": 90}
    for name, value in (series | ({"end_time_seconds": end} if end else {})).items():
        yield f'jobledger_job_{name}{{jobid="{number}"}} {value}\n'


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.server.page.encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def node():
    """A node whose page a test writes, and a Prometheus that scrapes it each second: (node, server)."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as shown, scratch("jobledger-node") as directory:
        shown.page = ""
        threading.Thread(target=shown.serve_forever, daemon=True).start()
        (port,) = free_ports(1)
        config = f"global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: jobledger\n  static_configs: [{{targets: ['127.0.0.1:{shown.server_port}']}}]\n"
        (directory / "config").write_text(config)
        server = Prometheus(f"127.0.0.1:{port}")
        command = [str(programs(os.environ.get("JOBLEDGER_PROMETHEUS", "2"))[0]), f"--config.file={directory}/config", f"--storage.tsdb.path={directory}/data", f"--web.listen-address={server.address}"]
        with running(command, directory / "log"):
            yield shown, server
        shown.shutdown()


class Spool(unittest.TestCase):
    def setUp(self):
        self.program = program()
        self.directory = self.enterContext(scratch("jobledger-spool"))
        self.out, self.entries, self.bin = (self.directory / name for name in ("out", "spool", "bin"))
        self.out.mkdir()
        self.bin.mkdir()
        for name, script in (("sendmail", SENDMAIL), ("sacctmgr", SACCTMGR)):
            (self.bin / name).write_text(script.format(self.out))
            (self.bin / name).chmod(0o755)
        self.log = self.directory / "log"

    def configure(self, server="127.0.0.1:1", more=""):
        self.config = self.directory / "jobledger.toml"
        self.config.write_text(f'[server]\nurl = "http://{server}"\n[slurm]\nsacct = "never"\n[mail]\nsendmail = "{self.bin}/sendmail"\n'
                               f'[spool]\ndirectory = "{self.entries}"\n{more}')

    @contextlib.contextmanager
    def worker(self):
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": "/nonexistent"}
        with running([str(self.program), f"--config={self.config}", "--tz=UTC", "spool"], self.log, env=environment) as process:
            # It has the directory once a second lock is refused.
            wait_for("the worker", lambda: subprocess.run(["flock", "--nonblock", "--shared", self.entries / "lock", "true"]).returncode if self.entries.exists() else None, interval=0.05)
            yield process

    def run_it(self, *arguments, **environment):
        ran = Ran(self.program, None, f"--config={self.config}", *arguments, PATH=f"{self.bin}:/usr/bin:/bin", **environment)
        return ran

    def mail(self, subject, recipient="alice", **environment):
        ran = self.run_it("mail", "--spool", "-s", subject, "--", recipient, **environment)
        self.assertEqual((ran.status, ran.out), (0, ""), ran.err)
        return ran.err

    def comment(self, job, **environment):
        return self.run_it("admin-comment", "--spool", SLURM_JOB_ID=str(job), **environment)

    def waiting(self):
        return sorted(path.name for path in self.entries.iterdir() if path.name[0].isdigit())

    def put(self, time, **task):
        """An entry as it was written at a time."""
        name = f"{time:.9f}-1"
        (self.entries / name).write_text(json.dumps({"time": time, "task": task}))
        return name

    def put_mail(self, time, subject):
        return self.put(time, mail={"subject": subject, "recipient": "alice", "mail_type": None, "job_id": None})

    def mails(self, count=1):
        """The mails that were sent, by their subjects, once there are so many and nothing waits."""
        def sent():
            found = list(self.out.glob("*.mail"))
            return found if len(found) >= count and not self.waiting() else None
        found = [parsed(path.read_text()) for path in wait_for("the mails", sent, interval=0.1)]
        self.assertEqual(len(found), count)
        return {mail["Subject"]: body(mail) for mail in found}

    def comments(self):
        return sorted(path.read_text().splitlines() for path in self.out.glob("*.comment"))

    def test_a_mail_waits_until_the_end_of_its_job_was_scraped(self):
        with node() as (shown, server):
            self.configure(server.address)
            start, array = time.time() - 100, {"array_job_id": 20, "array_task_id": 1}
            before = [*of_job(7, start), *of_job(8, start), *of_job(21, start, **array)]
            shown.page = "".join(before)
            wait_for("the jobs to be scraped", lambda: server.query("count(jobledger_job_cpus) == 3"))
            with self.worker():
                subjects = [ENDED.format(7), ENDED.format(8), ARRAY.format(20, 21), BEGAN.format(7)]
                for subject in subjects:
                    self.assertEqual(self.mail(subject), "")
                self.assertEqual(self.comment(8, SLURM_CLUSTER_NAME="alpha").status, 0)
                wait_for("the mail of the beginning", lambda: len(self.waiting()) == 4)
                end = time.time()
                shown.page = "".join([*of_job(7, start, end), *of_job(8, start), *of_job(21, start, **array)])
                wait_for("the first end", lambda: len(self.waiting()) == 3)
                self.assertEqual(len(list(self.out.glob("*.mail"))), 2)
                shown.page = "".join([*of_job(7, start, end), *of_job(8, start, end), *of_job(21, start, end, **array)])
                mails = self.mails(4)
            self.assertEqual(set(mails), set(subjects))
            self.assertEqual(mails[BEGAN.format(7)], f"{BEGAN.format(7)}\n")
            for job in (7, 8):
                self.assertIn(f"Job {job}", mails[ENDED.format(job)])
                self.assertIn("00:01:4", mails[ENDED.format(job)], "its time, and not that until it was seen last")
            self.assertIn("Array 20", mails[ARRAY.format(20, 21)])
            (comment,) = self.comments()
            self.assertEqual(comment[:-1], ["--quiet", "--immediate", "update", "job", "where", "jobid=8", "cluster=alpha", "set"])
            self.assertRegex(comment[-1], "^AdminComment=JS1:H4s")
            self.assertEqual(self.log.read_text(), "")

    def test_one_question_is_for_many_jobs(self):
        with node() as (shown, server):
            self.configure(server.address)
            jobs = range(1000, 1400)
            start = time.time() - 100
            shown.page = "".join(line for job in jobs for line in of_job(job, start))
            wait_for("the jobs to be scraped", lambda: server.query(f"count(jobledger_job_cpus) == {len(jobs)}"))
            with self.worker() as process:
                now = time.time()
                asked = self.questions(server)
                for job in jobs:
                    self.put_mail(now + job / 1e6, ENDED.format(job))
                begun = time.monotonic()
                while time.monotonic() < begun + 12:
                    self.assertLessEqual(len(list(pathlib.Path(f"/proc/{process.pid}/task").iterdir())), 4)
                    self.assertEqual(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(), "", "nothing is begun before an end")
                    time.sleep(0.2)
                self.assertEqual(len(self.waiting()), len(jobs))
                # One each five seconds.
                self.assertIn(self.questions(server) - asked, (1, 2, 3))

    def questions(self, server):
        """How many queries Prometheus answered, by its own count."""
        with urllib.request.urlopen(f"http://{server.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        counts = [line.split()[-1] for line in lines if line.startswith('prometheus_http_requests_total{') and 'handler="/api/v1/query"' in line]
        return sum(map(float, counts))

    def test_without_a_worker_and_beyond_the_most_a_mail_is_sent_at_once(self):
        self.configure()
        self.assertIn("No such file", self.mail(ENDED.format(7)))
        self.entries.mkdir(mode=0o700)
        self.assertIn("`jobledger spool` does not run", self.mail(ENDED.format(8)))
        self.assertIn("does not run", self.mail(BEGAN.format(7)))
        ran = self.comment(7)
        self.assertEqual(ran.status, 1)
        self.assertIn("job 7: nothing is stored: ", ran.err)
        mails = self.mails(3)
        self.assertIn("There is no report: ", mails[ENDED.format(8)])
        self.assertEqual(mails[BEGAN.format(7)], f"{BEGAN.format(7)}\n")
        self.configure(more="most = 2\n")
        with self.worker():
            for job in (9, 10, 11):
                said = self.mail(ENDED.format(job))
            self.assertIn("2 mails and comments wait already", said)
            self.assertEqual(len(self.waiting()), 2)
            self.assertEqual(len(list(self.out.glob("*.mail"))), 4)
            self.assertEqual(self.comment(12).status, 1)
            self.assertEqual(len(self.waiting()), 2)

    def test_a_directory_of_others_is_not_used(self):
        self.configure()
        self.entries.mkdir()
        self.entries.chmod(0o770)
        self.assertIn("in which this user alone writes", self.mail(ENDED.format(7)))
        self.mails()
        ran = self.run_it("spool")
        self.assertEqual(ran.status, 1)
        self.assertIn("in which this user alone writes", ran.err)

    def test_what_waits_is_done_after_a_crash(self):
        with node() as (shown, server):
            self.configure(server.address)
            start = time.time() - 100
            shown.page = "".join(of_job(7, start))
            wait_for("the job to be scraped", lambda: server.query("jobledger_job_cpus"))
            with self.worker() as process:
                self.mail(ENDED.format(7))
                process.send_signal(signal.SIGKILL)
                process.wait()
            self.assertEqual(len(self.waiting()), 1)
            self.assertIn("does not run", self.mail(ENDED.format(8)), "its lock has gone with it")
            shown.page = "".join(of_job(7, start, time.time()))
            with self.worker() as process:
                self.assertIn("00:01:4", self.mails(2)[ENDED.format(7)])
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(60), 0)

    def test_a_mail_that_is_not_taken_is_kept(self):
        self.configure()
        (self.out / "refuses").touch()
        with self.worker():
            self.mail(BEGAN.format(7))
            wait_for("it to fail", lambda: "it is full" in self.log.read_text())
            # It would be removed with the process that failed.
            time.sleep(1)
            self.assertEqual(len(self.waiting()), 1)
        (self.out / "refuses").unlink()
        with self.worker():
            self.mails()

    def test_the_run_that_ended_is_reported_and_no_later_one(self):
        now = int(time.time())
        samples, first, second = Samples(), (now - 700, now - 400), now - 250
        for name, value in {"info": 1, "cpus": 2}.items():
            samples.put(f"jobledger_job_{name}", 'jobid="7",instance="n1"', range(first[0] + 5, now, 5), value)
        starts = lambda at: second if at > second else first[0]  # noqa: E731
        samples.put("jobledger_job_start_time_seconds", 'jobid="7",instance="n1"', range(first[0] + 5, now, 5), starts)
        samples.put("jobledger_job_end_time_seconds", 'jobid="7",instance="n1"', range(first[1], second, 5), first[1])
        samples.put("jobledger_job_cpu_seconds_total", 'jobid="7",instance="n1",mode="user"', range(first[0] + 5, now, 5), lambda at: at - starts(at))
        with server_of(samples) as server:
            self.configure(server.address)
            with self.worker():
                # One after the service did not run for a while, and one that waits.
                subjects = [f"{ENDED.format(7)}, {number}" for number in range(2)]
                self.put_mail(first[1] + 1, subjects[0])
                self.put_mail(now - 330, subjects[1])
                self.put(now - 398, admin_comment={"job": "7", "number": 7, "cluster": None})
                mails = self.mails(2)
                for subject in subjects:
                    self.assertIn("00:05:0", mails[subject])
                    self.assertNotIn("requeued", mails[subject])
                self.assertEqual(self.comments(), [], "it would be the later run's")
            report = Ran(self.program, f"http://{server.address}", "report", "--no-sacct", "7")
            self.assertIn("requeued", report.out, "and the last run is another one")

    def test_a_comment_is_not_given_to_a_later_run(self):
        with node() as (shown, server):
            self.configure(server.address)
            now = time.time()
            shown.page = "".join(of_job(7, now - 10))
            wait_for("the job to be scraped", lambda: server.query("jobledger_job_cpus"))
            with self.worker():
                self.put(now - 90, admin_comment={"job": "7", "number": 7, "cluster": None})
                wait_for("it to be given up", lambda: "the AdminComment of job 7 is given up: a later run" in self.log.read_text())
                self.assertEqual((self.waiting(), self.comments()), ([], []))

    def test_only_entries_are_done(self):
        self.configure()
        self.entries.mkdir(mode=0o700)
        elsewhere = self.directory / "elsewhere"
        elsewhere.write_text(json.dumps({"time": 1, "task": {"mail": {"subject": "Began", "recipient": "eve", "mail_type": None, "job_id": None}}}))
        (self.entries / "1-1").symlink_to(elsewhere)
        for name, text in {"2-1": "", "3-1": "{}", "4-1": '{"time": 1, "task": {"run": "id"}}', "5-1": " " * 9000}.items():
            (self.entries / name).write_text(text)
        os.mkfifo(self.entries / "6-1")
        for name in (".jobledger-x", "name"):
            (self.entries / name).write_text(elsewhere.read_text())
        (self.entries / "7-1").write_text('{"time": 1e300, "task": {"mail": {"subject": "Ended", "recipient": "--dry-run", "mail_type": null, "job_id": "x"}}}')
        hostile = "Slurm Job_id=7 Name=x\r\nBcc: eve@example.org\r\n\r\n\u202e --help $(id) Began, Queued time 00:00:01"
        with self.worker():
            self.mail(hostile, "-oQ/tmp/queue")
            mails = self.mails(2)
            self.assertEqual([parsed(path.read_text())["Bcc"] for path in self.out.glob("*.mail")], [None, None])
            self.assertTrue(any("Ended" in subject for subject in mails), mails)
        removed = [line.split(": ")[1] for line in self.log.read_text().splitlines() if "it is removed" in line]
        self.assertEqual(sorted(removed), [f"{number}-1" for number in range(1, 7)])
        self.assertEqual(sorted(path.name for path in self.entries.iterdir()), [".jobledger-x", "lock", "name"])
        self.assertTrue(elsewhere.exists())

    def test_a_name_that_is_no_utf_8_is_a_mail(self):
        self.configure()
        subject = BEGAN.format(7).encode().replace(b"train", b"gr\xfc\xdf")
        command = [str(self.program), f"--config={self.config}", "mail", "--spool", b"--subject=" + subject, "--", "alice"]
        ran = subprocess.run(command, env={"HOME": "/nonexistent"}, capture_output=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(len(list(self.out.glob("*.mail"))), 1)

    def test_a_second_worker_waits_for_the_first(self):
        self.configure()
        with self.worker() as first, running([str(self.program), f"--config={self.config}", "spool"], self.log, env={"HOME": "/nonexistent"}) as second:
            first.send_signal(signal.SIGTERM)
            first.wait(60)
            wait_for("the other one", lambda: not self.mail(BEGAN.format(7)))
            self.assertIsNone(second.poll())


if __name__ == "__main__":
    unittest.main()
