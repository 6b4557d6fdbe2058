"""`jobledger digest` and `jobledger idle-gpus` beside jobs whose waste is known: their samples are in a real Prometheus, their mails go to a real server.

squeue, scancel and sacctmgr are scripts. Needs Prometheus and python3-venv; aiosmtpd comes from PyPI.
"""

import contextlib
import datetime
import http.server
import json
import sys
import threading
import unittest
import urllib.request

from jobs import DAY, HOUR, MINUTE, NOW, Jobs
from mails import Sink, body
from tools import Ran, program, scratch, server_of

NAME = 'x\\r\\nBcc: eve@example.org <script>alert(1)</script>'
ENDED = NOW - 2 * DAY


@contextlib.contextmanager
def warning(server):
    """The URL of a proxy that adds a warning to the server's answers, as a Thanos of which a store is away."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = urllib.request.Request(f"http://{server.address}{self.path}", self.rfile.read(int(self.headers["Content-Length"])))
            with urllib.request.urlopen(asked, timeout=120) as answer:
                body = json.dumps(json.load(answer) | {"warnings": ["a store is away"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()


def digest_jobs():
    jobs = Jobs()
    hours = lambda hours: ENDED + hours * HOUR  # noqa: E731
    # Three of four never used for two hours, and two of two for three: 12 of 14 GPU-hours.
    jobs.add(101, "alice", ENDED, hours(2), gpus=(0, 0, 0, hours(2)), name=NAME)
    jobs.add(102, "alice", ENDED, hours(3), gpus=(0, 0))
    # 2 hours of 64 GiB, of which 4 were used: 120 of 128 GiB-hours.
    jobs.add(103, "bob", ENDED, hours(2), limit=64, peak=4, account="bio")
    jobs.add(104, "carol", ENDED, hours(2), gpus=(hours(2),))
    jobs.add(105, "dave", ENDED, ENDED + 10 * MINUTE, gpus=(0,))
    # One of its two nodes was not seen.
    jobs.add(106, "erin", ENDED, hours(2), gpus=(0,), nodes=2)
    jobs.add(107, "1007", ENDED, hours(2), gpus=(0, 0))
    jobs.add(108, "", ENDED, hours(2), gpus=(0,))
    jobs.add(109, "refused", ENDED, hours(4), gpus=(0,), account="bio")
    # Not two addresses.
    jobs.add(110, "mallory,eve", ENDED, hours(4), gpus=(0,))
    return jobs.samples


POLICIES = """
[mails]
workdays = {days}
most = {most}
[addresses]
alice = "alice@elsewhere.example.org"
[summary]
staff = ["hpc@example.org"]
[summary.coordinators]
bio = ["prof@example.org"]
[[policy]]
name = "gpus"
advice = "gpu_never_used"
measure = "gpu_hours_never_used"
jobs = {{ run_minutes = ">= 30", gpus_never_used = ">= 1" }}
owner = {{ wasted = ">= 4" }}
columns = ["run_minutes", "gpus", "gpus_never_used", "node_gpus_held"]
staff = {{ wasted = "> 0" }}
[[policy]]
name = "memory"
advice = "memory_over_asked"
measure = "memory_gib_hours"
jobs = {{ run_minutes = ">= 30" }}
owner = {{ use = "<= 35 %" }}
"""
ALWAYS = '["mon", "tue", "wed", "thu", "fri", "sat", "sun"]'


class Digests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(digest_jobs()))

    def setUp(self):
        self.directory = self.enterContext(scratch("jobledger-digest"))
        self.history = self.directory / "history.jsonl"

    def run_it(self, *arguments, port=1, days=ALWAYS, most=200, policies=POLICIES, url=None):
        config, file = self.directory / "jobledger.toml", self.directory / "digest.toml"
        config.write_text(f'[mail]\nsmtp = "smtp://127.0.0.1:{port}"\ndomain = "example.org"\nfrom = "Jobs <hpc@example.org>"\n')
        file.write_text(f'history = "{self.history}"\n' + policies.format(days=days, most=most))
        return Ran(self.program, url or f"http://{self.server.address}", f"--config={config}", "digest", f"--policies={file}", *arguments)

    def lines(self):
        return [json.loads(line) for line in self.history.read_text().splitlines()] if self.history.exists() else []

    def test_without_an_option_the_staffs_table_is_shown(self):
        ran = self.run_it()
        self.assertEqual((ran.status, ran.err), (0, ""))
        self.assertIn("10 jobs were looked at. Not judged: 1 not wholly seen, 1 of unknown users.\n", ran.out)
        rows = [line.split() for line in ran.out.splitlines()]
        self.assertIn(["alice", "2", "14", "12", "14", "%", "54", "%", "now"], rows)
        self.assertIn(["1007", "1", "4", "4", "0", "%", "15", "%", "now"], rows)
        self.assertIn(["bob", "1", "128", "120", "6.2", "%", "19", "%", "now"], rows)
        self.assertFalse({"carol", "dave", "erin"} & {row[0] for row in rows if row}, ran.out)
        self.assertFalse(self.history.exists())

    def test_a_dry_run_shows_the_mails_and_sends_none(self):
        ran = self.run_it("--dry-run", "--only=alice")
        self.assertEqual((ran.status, ran.err), (0, ""))
        self.assertTrue(ran.out.startswith("To: alice@elsewhere.example.org\nSubject: Your jobs: 12 GPU-hours were not used\n\nHello alice,\n"), ran.out)
        self.assertEqual((ran.out.count("\nTo: "), self.lines()), (0, []))
        ran = self.run_it("--dry-run")
        self.assertEqual(ran.status, 7, "the user without a name")
        self.assertEqual(ran.out.count("To: "), 5)

    def test_coordinators_of_slurm_get_the_tables_of_accounts_that_the_file_does_not_name(self):
        sacctmgr = self.directory / "sacctmgr"
        policies = POLICIES.replace("[summary]\n", f'[summary]\ncoordinators_of_slurm = true\nsacctmgr = "{sacctmgr}"\n')
        sacctmgr.write_text("#!/bin/sh\necho \"$*\" > $0.arguments\nprintf 'root|\\nphysics|frank,alice\\nbio|gina\\nother|1008\\n'\n")
        sacctmgr.chmod(0o755)
        ran = self.run_it("--dry-run", policies=policies)
        self.assertEqual(ran.status, 7, "the user without a name")
        tables = [part.split("\n")[:2] for part in ("\n" + ran.out).split("\nTo: ") if "Subject: What jobs" in part]
        self.assertEqual(tables, [
            ["hpc@example.org", "Subject: What jobs had and did not use"],
            ["prof@example.org", "Subject: What jobs of account bio had and did not use"],
            ["frank@example.org, alice@elsewhere.example.org", "Subject: What jobs of account physics had and did not use"]])
        self.assertEqual((self.directory / "sacctmgr.arguments").read_text(),
                         "--readonly --noheader --parsable2 show account withcoord format=account,coordinators\n")
        sacctmgr.write_text("#!/bin/sh\necho 'sacctmgr: error: no connection' >&2\nexit 1\n")
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port, policies=policies)
        self.assertEqual((ran.status, ran.out, self.lines()), (1, "", []), "nothing is sent")
        self.assertIn("/sacctmgr: no connection\n", ran.err)

    def test_each_user_gets_one_mail_and_staff_the_tables(self):
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, ran.out), (7, ""))
            self.assertIn("user 1007 has no address", ran.err)
            self.assertIn("no such user", ran.err)
            self.assertIn("3 of 7 mails were not sent", ran.err)
            mails = {}
            for _ in range(4):
                taken, mail = sink.mail()
                (to,) = taken["to"]
                mails[to] = mail
        self.assertEqual(set(mails), {"alice@elsewhere.example.org", "bob@example.org", "hpc@example.org", "prof@example.org"})
        alice = body(mails["alice@elsewhere.example.org"])
        self.assertEqual(mails["alice@elsewhere.example.org"]["Subject"], "Your jobs: 12 GPU-hours were not used")
        # Who wasted most is first: three GPUs for two hours, as two for three, and then the smaller number.
        rows = [line.split() for line in alice.splitlines() if line.startswith(("  101 ", "  102 "))]
        self.assertEqual([(row[0], row[-6:]) for row in rows],
                         [("101", ["02:00:00", "4", "3", "100", "%", "6"]), ("102", ["03:00:00", "2", "2", "50", "%", "6"])])
        self.assertIn(f"12 of 14 GPU-hours were not used, the same as {12 / 168:.2f} GPUs all of this time.", alice)
        self.assertIn("#SBATCH --gpus=1\n", alice)
        self.assertNotIn("103", alice, "nothing of others")
        self.assertIsNone(mails["alice@elsewhere.example.org"]["Bcc"])
        html = body(mails["alice@elsewhere.example.org"], "html")
        self.assertNotIn("<script", html)
        bob = body(mails["bob@example.org"])
        self.assertIn("120 of 128 GiB-hours of memory", bob)
        self.assertIn("  103: #SBATCH --mem=5G\n", bob)
        self.assertIn("alice", body(mails["hpc@example.org"]))
        prof = body(mails["prof@example.org"])
        self.assertTrue("bob" in prof and "refused" in prof and "alice" not in prof, prof)
        self.assertEqual([(line["user"], line["policy"], line["jobs"], line["action"]) for line in self.lines()],
                         [("alice", "gpus", [101, 102], "mail"), ("bob", "memory", [103], "mail")])

    def test_nobody_gets_the_same_mail_again_within_the_time(self):
        with Sink("plain") as sink:
            self.run_it("--send", port=sink.port)
            first = {sink.mail()[0]["to"][0] for _ in range(4)}
            self.run_it("--send", port=sink.port)
            again = {sink.mail()[0]["to"][0] for _ in range(2)}
        self.assertLess(again, first)
        self.assertEqual(again, {"hpc@example.org", "prof@example.org"})
        self.assertRegex(self.run_it().out, r"alice .* 1, last 0(\.\d+)? d ago")
        # A week later: the mail was sent eight days ago.
        lines = self.lines()
        for line in lines:
            line["time"] = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=8)).isoformat()
        self.history.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertRegex(self.run_it().out, r"alice .* now, 1 before")

    def test_nothing_is_sent_on_other_days_or_if_it_is_too_much(self):
        ran = self.run_it("--send", days="[]")
        self.assertEqual((ran.status, ran.out, self.lines()), (0, "Today no mails are sent: it is no workday.\n", []))
        ran = self.run_it("--send", most=3)
        self.assertEqual((ran.status, self.lines()), (2, []))
        self.assertIn("5 users would get a mail, more than mails.most = 3: nothing is sent", ran.err)

    def test_nothing_is_sent_where_the_server_warns_of_its_answers(self):
        with warning(self.server) as url:
            ran = self.run_it("--send", url=url)
            self.assertEqual((ran.status, ran.out, self.lines()), (1, "", []))
            self.assertTrue(ran.err.endswith("jobledger: the server warns of its answers, of which a part may be missing: nothing is sent or cancelled\n"), ran.err)
            self.assertIn("jobledger: a store is away\n", self.run_it(url=url).err)

    def test_what_is_wrong_is_an_error_of_one_line(self):
        for text, word in [
            (POLICIES + "min_run_time = 30\n", "line 26: unknown field `min_run_time`"), ("", "there is no policy"), ("[[policy]", "line 2"),
            ('[mails]\nholidays = "/none"\n' + POLICIES[POLICIES.index("[[policy]]"):], "/none: No such file"),
            ('[mails]\nsubject = "{{{{ nothing }}}}"\n' + POLICIES[POLICIES.index("[[policy]]"):], "the template of the subject: undefined value"),
        ]:
            ran = self.run_it("--dry-run", policies=text)
            self.assertEqual((ran.status, ran.err.count("\n")), (2, 1), ran.err)
            self.assertIn(word, ran.err)
        ran = Ran(self.program, f"http://{self.server.address}", "digest", "--policies=/none")
        self.assertEqual((ran.status, ran.err), (2, "jobledger: /none: No such file or directory (os error 2)\n"))
        self.history.write_text("{}\n")
        ran = self.run_it("--send")
        self.assertEqual(ran.status, 1)
        self.assertIn("history.jsonl: line 1: missing field", ran.err)


def running_jobs():
    jobs = Jobs()
    ago = lambda minutes: NOW - minutes * MINUTE  # noqa: E731
    jobs.add(201, "alice", ago(180), None, gpus=(ago(130), ago(130)))
    jobs.add(202, "bob", ago(180), None, gpus=(ago(70),))
    # One of its GPUs works.
    jobs.add(203, "carol", ago(180), None, gpus=(ago(130), NOW + HOUR))
    # Half of the time nothing was scraped.
    jobs.add(204, "dave", ago(180), None, gpus=(ago(150),), gap=(ago(110), ago(20)))
    jobs.add(205, "erin", ago(180), None, gpus=(ago(130),), array="205_3")
    # It began half an hour ago.
    jobs.add(206, "frank", ago(30), None, gpus=(0,))
    jobs.add(207, "gina", ago(180), None)
    # One of its two nodes is not seen.
    jobs.add(208, "hugo", ago(180), None, gpus=(ago(130),), nodes=2)
    # Nobody said of how many nodes it is. The one that worked is not scraped any more.
    jobs.add(209, "ivan", ago(180), None, gpus=(ago(130),), nodes=None)
    jobs.add(209, "ivan", ago(180), None, gpus=(NOW + HOUR,), nodes=None, node="n2", gap=(ago(90), NOW + 2 * HOUR))
    return jobs.samples


IDLE = """
[idle_gpus]
warn_minutes = [60, 105]
cancel_minutes = 120
squeue = "{directory}/squeue"
scancel = "{directory}/scancel"
"""
START = NOW - 180 * MINUTE


class IdleGpus(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(running_jobs()))

    def setUp(self):
        self.directory = self.enterContext(scratch("jobledger-idle"))
        self.history = self.directory / "history.jsonl"
        self.slurm([("201", "201", "alice", "RUNNING", START, 1), ("205", "205_3", "erin", "RUNNING", START, 1), ("206", "205_4", "erin", "RUNNING", START, 1)])

    def slurm(self, rows, status=0):
        """What squeue answers, and how scancel ends. Both write down how they were started."""
        for name, code in [("squeue", f"assert '--noconvert' in sys.argv  # or 1024 nodes are 1K\nprint({chr(10).join('|'.join(map(str, row)) for row in rows)!r})"),
                           ("scancel", f"sys.stderr.write('scancel: error: Access denied\\nmore\\n'); sys.exit({status})" if status else "")]:
            script = self.directory / name
            script.write_text(f"#!{sys.executable}\nimport os, sys\nopen({str(script)!r} + '.called', 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
                              f"assert os.environ['SLURM_TIME_FORMAT'] == '%s'\n{code}\n")
            script.chmod(0o755)

    def called(self, name):
        file = self.directory / f"{name}.called"
        return file.read_text().splitlines() if file.exists() else []

    def run_it(self, *arguments, port=1, more="", url=None):
        config, file = self.directory / "jobledger.toml", self.directory / "digest.toml"
        config.write_text(f'[mail]\nsmtp = "smtp://127.0.0.1:{port}"\ndomain = "example.org"\n')
        file.write_text(f'history = "{self.history}"\n' + IDLE.format(directory=self.directory) + more)
        return Ran(self.program, url or f"http://{self.server.address}", f"--config={config}", "idle-gpus", f"--policies={file}", *arguments)

    def lines(self):
        return [json.loads(line) for line in self.history.read_text().splitlines()]

    def mailed(self, *jobs):
        """Two mails, an hour and a quarter of one ago, about these jobs."""
        at = lambda minutes: (datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)).isoformat()  # noqa: E731
        lines = [{"time": at(minutes), "action": "mail", "user": user, "policy": "idle_gpus", "jobs": [job], "start": START} for minutes in (60, 15) for job, user in jobs]
        self.history.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def test_jobs_are_shown_whose_gpus_were_seen_to_be_idle(self):
        ran = self.run_it()
        self.assertEqual((ran.status, ran.err), (0, ""))
        rows = [line.split() for line in ran.out.splitlines()]
        self.assertEqual(rows[1:], [["201", "alice", "1", "2", ">=", "120", "0", "mail"], ["202", "bob", "1", "1", ">=", "60", "0", "mail"], ["205_3", "erin", "1", "1", ">=", "120", "0", "mail"]])
        self.assertFalse(self.history.exists())
        part = self.run_it(more="used_part = 0.5\n")
        self.assertIn("203", part.out)
        self.assertEqual(self.run_it(more='jobs = { users = ["gina"] }\n').out, "No job that runs has idle GPUs.\n")

    def test_owners_get_a_mail_and_nothing_is_cancelled_without_one(self):
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, ran.out, ran.err), (0, "", ""))
            mails = [sink.mail() for _ in range(3)]
            self.assertEqual([taken["to"] for taken, _ in mails], [["alice@example.org"], ["bob@example.org"], ["erin@example.org"]])
            self.assertEqual(mails[0][1]["Subject"], "Job 201: for 120 minutes its 2 GPUs do nothing")
            self.assertIn("\n  scancel 205_3\n", body(mails[2][1]))
            self.assertIn("it is cancelled once this is so for 120 minutes", body(mails[0][1]))
            # The second one is for later.
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, len(self.lines()), self.called("scancel")), (0, 3, []))

    def test_a_job_is_cancelled_after_all_mails(self):
        self.mailed((201, "alice"), (205, "erin"))
        ran = self.run_it("--dry-run")
        self.assertEqual(ran.status, 0, ran.err)
        self.assertIn("would cancel: job 205_3 of erin: GPU-205-0 did nothing for 120 minutes on n1, after 2 mails\n", ran.out)
        self.assertEqual((self.called("squeue"), self.called("scancel"), len(self.lines())), ([], [], 4))
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, ran.err), (0, ""))
            subjects = [sink.mail()[1]["Subject"] for _ in range(3)]
        self.assertIn("Job 201 was cancelled: its GPUs did nothing", subjects)
        self.assertEqual(self.called("scancel"), ["-- 201", "-- 205_3"])
        done = [line for line in self.lines() if line["action"] == "cancel"]
        self.assertEqual([(line["jobs"], line["user"]) for line in done], [([201], "alice"), ([205], "erin")])
        self.assertEqual(done[0]["why"], "job 201 of alice: GPU-201-0, GPU-201-1 did nothing for 120 minutes on n1, after 2 mails")
        # And not a second time.
        self.run_it("--send", "--only=alice")
        self.assertEqual(len(self.called("scancel")), 2)

    def test_a_job_is_not_cancelled_that_the_controller_does_not_confirm(self):
        for row in [("201", "201", "bob", "RUNNING", START, 1), ("201", "201", "alice", "COMPLETING", START, 1), ("201", "201", "alice", "RUNNING", START + 90, 1),
                    ("201", "201", "alice", "RUNNING", "Unknown", 1), ("20", "201", "alice", "RUNNING", START, 1), ("201", "201", "alice", "RUNNING", START, 2), ()]:
            self.mailed((201, "alice"))
            self.slurm([row])
            ran = self.run_it("--send", "--only=alice")
            self.assertEqual((ran.status, self.called("scancel")), (7, []), row)
            self.assertIn("squeue does not show that this run of it still runs on 1 node, so it is not cancelled\n", ran.err)
            self.assertEqual([line["action"] for line in self.lines()], ["mail", "mail"])

    def test_what_slurm_refuses_is_written_down_and_not_tried_again(self):
        self.mailed((201, "alice"))
        self.slurm([("201", "201", "alice", "RUNNING", START, 1)], status=1)
        ran = self.run_it("--send", "--only=alice")
        self.assertEqual(ran.status, 7)
        self.assertIn("/scancel: Access denied\n", ran.err)
        self.assertEqual([line["action"] for line in self.lines()], ["mail", "mail", "cancel", "cancel_failed"])
        self.run_it("--send", "--only=alice")
        self.assertEqual(len(self.called("scancel")), 1)

    def test_jobs_that_a_site_spares_are_not_cancelled(self):
        self.mailed((201, "alice"))
        # Nobody said a time limit: the exception might be of the job.
        for spared in ('partitions = ["gpu"]', 'gpus = ">= 1", limit_minutes = "<= 480"'):
            ran = self.run_it("--send", "--only=alice", more=f"never_cancel = [{{ {spared} }}]\n")
            self.assertEqual((ran.status, self.called("squeue"), self.called("scancel")), (0, [], []), spared)

    def test_nothing_is_done_where_the_server_warns_of_its_answers(self):
        self.mailed((201, "alice"))
        with warning(self.server) as url:
            ran = self.run_it("--send", "--only=alice", url=url)
            self.assertEqual((ran.status, self.called("squeue"), len(self.lines())), (1, [], 2))
            self.assertIn("jobledger: a store is away\n", ran.err)
            self.assertTrue(ran.err.endswith("jobledger: the server warns of its answers, of which a part may be missing: nothing is sent or cancelled\n"), ran.err)
            self.assertIn("would cancel: job 201 of alice", self.run_it("--dry-run", url=url).out)

    def test_nothing_is_done_about_another_time(self):
        self.mailed((201, "alice"))
        ran = self.run_it("--send", "--until=10m")
        self.assertEqual((ran.status, ran.err, self.called("squeue")), (2, "jobledger: --send is about what jobs do now: leave out --until\n", []))


if __name__ == "__main__":
    unittest.main()
