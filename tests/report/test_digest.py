"""`jobledger digest` and `jobledger idle-gpus` beside jobs whose waste is known: their samples are in a real Prometheus, their mails go to a real server.

squeue, scancel and sacctmgr are scripts. Needs Prometheus and python3-venv; aiosmtpd comes from PyPI.
"""

import contextlib
import datetime
import http.server
import json
import re
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
def proxy_of(server, change=lambda answer: answer, is_up=lambda: True):
    """The URL of a proxy that changes the server's answers."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            if not is_up():
                self.send_error(503)
                return
            asked = urllib.request.Request(f"http://{server.address}{self.path}", self.rfile.read(int(self.headers["Content-Length"])))
            with urllib.request.urlopen(asked, timeout=120) as answer:
                body = json.dumps(change(json.load(answer))).encode()
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


def warning(server):
    """The URL of a proxy that adds a warning to the server's answers, as a Thanos of which a store is away."""
    return proxy_of(server, lambda answer: answer | {"warnings": ["a store is away"]})


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
        sacctmgr.write_text("#!/bin/sh\necho \"$*\" > $0.arguments\nprintf 'root|\\nphysics|frank,1008,alice\\nbio|gina\\nother|1008\\n'\n")
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
        self.assertEqual(ran.err.count("user 1008 has no address: [addresses] can have one\n"), 1, "the others get the table")
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
        self.assertEqual((ran.status, ran.err), (2, "jobledger: /none: there is no such file; `cp /usr/share/doc/jobledger/digest.toml.example /none` gives an example\n"))
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
SQUEUE = """
[jobs] = [argument.removeprefix("--jobs=") for argument in sys.argv if argument.startswith("--jobs=")]
assert "--noconvert" in sys.argv  # or 1024 nodes are 1K
if jobs in {fails!r}:
    sys.exit("slurm_load_jobs error: Unable to contact slurm controller")
[form] = [argument.removeprefix("--format=") for argument in sys.argv if argument.startswith("--format=")]
for number, name, user, state, start, nodes, paused in {rows!r}:
    ran = int(time.time()) - start - paused if isinstance(start, int) else 0
    hours = f"{{ran // 3600 % 24}}:{{ran // 60 % 60:02}}:{{ran % 60:02}}"
    used = f"{{ran // 86400}}-{{hours:0>8}}" if ran >= 86400 else hours
    row = {{"%A": number, "%i": name, "%u": user, "%T": state, "%S": start, "%D": nodes, "%M": used}}
    if jobs in ("", number, name.split("_")[0]):
        print(re.sub("%.", lambda found: str(row[found[0]]), form))
"""


class Slurm(unittest.TestCase):
    """Commands of SLURM and sendmail that are scripts, and what they were asked for."""

    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(cls.jobs()))

    def setUp(self):
        self.directory = self.enterContext(scratch("jobledger-idle"))
        self.history = self.directory / "history.jsonl"

    def script(self, name, code):
        script = self.directory / name
        script.write_text(f"#!{sys.executable}\nimport os, re, sys, time\nopen({str(script)!r} + '.called', 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
                          f"open({str(self.directory)!r} + '/order', 'a').write({name!r} + '\\n')\n{code}\n")
        script.chmod(0o755)

    def slurm(self, rows, status=0, fails=()):
        """What squeue answers, and how scancel ends: number, name, user, state, start, nodes, and for how many seconds it was suspended."""
        times = "assert os.environ['SLURM_TIME_FORMAT'] == '%s'\n"
        self.script("squeue", times + SQUEUE.format(rows=[(*row, 0)[:7] for row in rows], fails=fails))
        self.script("scancel", f"sys.stderr.write('scancel: error: Access denied\\nmore\\n'); sys.exit({status})" if status else "")

    def called(self, name):
        file = self.directory / f"{name}.called"
        return file.read_text().splitlines() if file.exists() else []

    def run_it(self, *arguments, port=1, more="", url=None, mail=None):
        config, file = self.directory / "jobledger.toml", self.directory / "digest.toml"
        mail = mail or f'smtp = "smtp://127.0.0.1:{port}"'
        config.write_text(f'[mail]\n{mail}\ndomain = "example.org"\n')
        file.write_text(f'history = "{self.history}"\n' + IDLE.format(directory=self.directory) + more)
        return Ran(self.program, url or f"http://{self.server.address}", f"--config={config}", "idle-gpus", f"--policies={file}", *arguments)

    def lines(self):
        return [json.loads(line) for line in self.history.read_text().splitlines()]

    def mailed(self, *jobs, start=START, ago=(60, 15)):
        """Mails about these jobs, an hour and a quarter of one ago."""
        at = lambda minutes: (datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)).isoformat()  # noqa: E731
        lines = [{"time": at(minutes), "action": "mail", "user": user, "policy": "idle_gpus", "jobs": [job], "start": start} for minutes in ago for job, user in jobs]
        with self.history.open("a") as history:
            history.write("".join(json.dumps(line) + "\n" for line in lines))


NOT_KNOWN = ("jobledger: job 208: 1 of its 2 nodes are seen, so nobody gets a mail\n"
             "jobledger: job 209: its GPU GPU-209-0n2 is not seen any more, so nobody gets a mail\n")


class IdleGpus(Slurm):
    jobs = staticmethod(running_jobs)

    def setUp(self):
        super().setUp()
        self.slurm([("201", "201", "alice", "RUNNING", START, 1), ("202", "202", "bob", "RUNNING", START, 1), ("205", "205_3", "erin", "RUNNING", START, 1),
                    ("206", "205_4", "erin", "RUNNING", START, 1)])

    def test_jobs_are_shown_whose_gpus_were_seen_to_be_idle(self):
        ran = self.run_it()
        self.assertEqual((ran.status, ran.err), (0, NOT_KNOWN))
        rows = [line.split() for line in ran.out.splitlines()]
        self.assertEqual(rows[1:], [["201", "alice", "1", "2", ">=", "120", "0", "mail"], ["202", "bob", "1", "1", ">=", "60", "0", "mail"], ["205_3", "erin", "1", "1", ">=", "120", "0", "mail"]])
        self.assertFalse(self.history.exists())
        part = self.run_it(more="used_part = 0.5\n")
        self.assertIn("203", part.out)
        self.assertEqual(self.run_it(more='jobs = { users = ["gina"] }\n').out, "No job that runs has idle GPUs.\n")

    def test_owners_get_a_mail_and_nothing_is_cancelled_without_one(self):
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, ran.out, ran.err), (0, "", NOT_KNOWN))
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
        self.assertEqual((self.called("scancel"), len(self.lines())), ([], 4))
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            self.assertEqual((ran.status, ran.err), (0, NOT_KNOWN))
            subjects = [sink.mail()[1]["Subject"] for _ in range(3)]
        self.assertIn("Job 201 was cancelled: its GPUs did nothing", subjects)
        self.assertEqual(self.called("scancel"), ["-- 201", "-- 205_3"])
        done = [line for line in self.lines() if line["action"] == "cancel"]
        self.assertEqual([(line["jobs"], line["user"]) for line in done], [([201], "alice"), ([205], "erin")])
        self.assertEqual(sorted(line["jobs"][0] for line in self.lines() if line["action"] == "farewell"), [201, 205])
        self.assertEqual(done[0]["why"], "job 201 of alice: GPU-201-0, GPU-201-1 did nothing for 120 minutes on n1, after 2 mails")
        # And not a second time.
        self.run_it("--send", "--only=alice")
        self.assertEqual(len(self.called("scancel")), 2)

    def test_a_job_is_not_cancelled_that_the_controller_does_not_confirm(self):
        for row in [("201", "201", "bob", "RUNNING", START, 1), ("201", "201", "alice", "COMPLETING", START, 1), ("201", "201", "alice", "RUNNING", START + 90, 1),
                    ("201", "201", "alice", "RUNNING", "Unknown", 1), ("20", "201", "alice", "RUNNING", START, 1), ("201", "201", "alice", "RUNNING", START, 2), ()]:
            self.history.unlink(missing_ok=True)
            self.mailed((201, "alice"))
            self.slurm([row] if row else [])
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

    def test_jobs_are_cancelled_before_mails_are_sent_and_these_have_a_limit(self):
        self.mailed((201, "alice"))
        self.script("sendmail", "time.sleep(600)")
        ran = self.run_it("--send", mail=f'sendmail = "{self.directory}/sendmail"\ntimeout_seconds = 2')
        self.assertEqual((ran.status, self.called("scancel")), (7, ["-- 201"]))
        order = (self.directory / "order").read_text().split()
        self.assertEqual(order[-2:], ["scancel", "sendmail"], "after one that takes too long no other is tried")
        self.assertTrue(ran.err.endswith("/sendmail: no answer in 2 s\njobledger: 3 of 3 mails were not sent\n"), ran.err)

    def test_the_mail_about_the_end_is_due_until_it_was_handed_over(self):
        self.mailed((201, "alice"))
        self.script("sendmail", "sys.stdin.read(); sys.exit('it is full')")
        ran = self.run_it("--send", "--only=alice", mail=f'sendmail = "{self.directory}/sendmail"')
        self.assertEqual((ran.status, self.called("scancel")), (7, ["-- 201"]))
        self.assertTrue(ran.err.endswith("/sendmail: it is full\njobledger: 1 of 1 mails were not sent\n"), ran.err)
        self.assertEqual([line["action"] for line in self.lines()], ["mail", "mail", "cancel", "cancelled"])
        with Sink("plain") as sink:
            self.assertEqual(self.run_it("--send", "--only=bob", port=sink.port).status, 0)
            self.assertEqual(sink.mail()[0]["to"], ["bob@example.org"])
            for _ in range(2):
                ran = self.run_it("--send", "--only=alice", port=sink.port)
                self.assertEqual((ran.status, ran.err), (0, ""))
            taken, mail = sink.mail()
            self.assertEqual((taken["to"], mail["Subject"]), (["alice@example.org"], "Job 201 was cancelled: its GPUs did nothing"))
        self.assertEqual(([line["action"] for line in self.lines()][-1], len(self.called("scancel"))), ("farewell", 1))

    def test_what_was_seen_is_asked_for_again_before_a_job_is_cancelled(self):
        self.mailed((201, "alice"))
        with proxy_of(self.server, is_up=lambda: not self.called("squeue")) as url:
            ran = self.run_it("--send", "--only=alice", url=url)
        self.assertEqual((ran.status, self.called("scancel"), len(self.lines())), (7, [], 2))
        self.assertIn("503", ran.err)

        def works(answer):
            """The job's GPUs were used in the last minute, once squeue was asked for the first time."""
            for series in answer["data"]["result"]:
                if self.called("squeue") and series["metric"].get("__name__") == "jobledger_job_gpu_busy_seconds_total" and "values" in series:
                    series["values"][-1][1] = str(float(series["values"][-1][1]) + 30)
            return answer

        (self.directory / "squeue.called").unlink()
        with proxy_of(self.server, works) as url:
            ran = self.run_it("--send", "--only=alice", url=url)
        self.assertEqual((ran.status, self.called("scancel"), len(self.lines())), (7, [], 2))
        self.assertEqual(ran.err, "jobledger: job 201: its GPUs worked again, so it is not cancelled\njobledger: 1 job was not cancelled\n")


def states():
    """A job for each thing that can be with it; all have GPUs that do nothing for two hours and more, as far as that is known."""
    jobs, ago = Jobs(), lambda minutes: NOW - minutes * MINUTE
    idle = {"start": ago(300), "end": None, "gpus": (ago(200), ago(200))}
    for number in (301, 302, 303, 304, 307, 310, 311):
        jobs.add(number, f"u{number}", **idle)
    jobs.add(305, "u305", **idle, anew=ago(62))
    jobs.add(306, "u306", **idle, gap=(ago(70), ago(40)))
    jobs.add(308, "", **idle)
    # Older than two minutes.
    jobs.add(309, "u309", **idle, gap=(NOW - 150, NOW + 2 * HOUR))
    jobs.add(312, "u312", **idle | {"gpus": (ago(130), ago(200))})
    return jobs.samples


class States(Slurm):
    jobs = staticmethod(states)

    def test_one_of_all_states_ends_in_a_cancellation(self):
        start, user = NOW - 300 * MINUTE, lambda number: "root" if number == 308 else f"u{number}"
        for number in range(301, 313):
            # Another run's, and before it worked again.
            run, ago = {307: (start - DAY, (60, 15)), 312: (start, (200, 155))}.get(number, (start, (60, 15)))
            self.mailed((number, "" if number == 308 else user(number)), start=run, ago=ago)
        rows = {number: (str(number), str(number), user(number), "RUNNING", start, 1) for number in range(301, 313)}
        rows[302] = (*rows[302][:3], "SUSPENDED", start, 1, HOUR)
        rows[303] = (*rows[303], HOUR)
        rows[304] = (*rows[304][:4], NOW - 10 * MINUTE, 1)
        del rows[311]
        self.slurm(list(rows.values()), fails=("310",))
        with Sink("plain") as sink:
            ran = self.run_it("--send", port=sink.port)
            mails = sorted((taken["to"][0], mail["Subject"]) for taken, mail in (sink.mail() for _ in range(3)))
        self.assertEqual(self.called("scancel"), ["-- 301"])
        self.assertEqual(mails, [
            ("u301@example.org", "Job 301 was cancelled: its GPUs did nothing"),
            ("u307@example.org", "Job 307: for 120 minutes its 2 GPUs do nothing"),
            ("u312@example.org", "Job 312: for 120 minutes its 2 GPUs do nothing")])
        said = dict(re.findall(r"jobledger: job (\d+): (.*), so it is not cancelled\n", ran.err))
        self.assertEqual(set(said) - {"309"}, {"302", "303", "304", "305", "306", "308", "310", "311"}, ran.err)
        for number, why in [("302", "squeue says that it is suspended"), ("303", "of the 30. minutes since its start: it was suspended"),
                            ("304", "squeue does not show that this run of it still runs on 1 node"), ("305", "counters of n1 began anew 6. minutes ago"),
                            ("306", "n1 was not seen for some time before [34]. minutes ago"), ("308", "nobody says whose it is"),
                            ("310", "/squeue: .*Unable to contact slurm controller"), ("311", "squeue does not show")]:
            self.assertRegex(said[number], why)
        self.assertEqual(ran.status, 7)
        self.assertTrue(ran.err.endswith("jobledger: 5 jobs were not cancelled\n"), ran.err)


if __name__ == "__main__":
    unittest.main()
