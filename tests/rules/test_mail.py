"""The example configuration of Alertmanager, with a real Alertmanager and the demo's mail server on loopback.

Needs alertmanager and amtool (Debian: prometheus-alertmanager). Takes some fifty seconds: times of the example are shortened.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[2] / room) for room in ("demo", "tests/e2e")]

try:
    import yaml
except ImportError:
    yaml = None

from mailserver import Mailbox  # noqa: E402
from testbed.processes import Failure, free_ports, wait_for  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[2] / "rules" / "alertmanager"
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
AMTOOL = shutil.which("amtool")
# Seconds: until a group is mailed, until a changed group is mailed again, and the timeout of the tests.
WAIT, AGAIN, LONG = 1, 2, 600
# Seconds of the simulated day.
DAY = 24
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def with_server(text, smarthost):
    return text.replace("smtp_smarthost: localhost:25", f"smtp_smarthost: {smarthost}")


def shortened(text, smarthost):
    """The example with another mail server and with seconds instead of minutes, except for repeat_interval."""
    text = re.sub(r"group_wait: \S+", f"group_wait: {WAIT}s", with_server(text, smarthost))
    return re.sub(r"group_interval: \S+", f"group_interval: {AGAIN}s", text)


def scaled(text, smarthost):
    """The example with another mail server, and all of its times in proportion: a day is DAY seconds."""
    def short(found):
        seconds = int(found[2]) * UNITS[found[3]] * DAY / 86400
        return f"{found[1]}: {max(1, round(1000 * seconds))}ms"

    return re.sub(r"(group_wait|group_interval|repeat_interval): (\d+)([smhd])", short, with_server(text, smarthost))


def alert(name, severity="warning", audience="owner", **labels):
    own = {"array_job_id": labels["jobid"]} if "jobid" in labels else {}
    labels = {"alertname": name, "severity": severity, "audience": audience, "cluster": "c1", **own, **labels}
    of = ", ".join(labels.get(key, "") for key in ("jobid", "gpu", "instance"))
    notes = {
        "summary": f"{name} summary.", "description": f"{name} of {of}", "runbook_url": f"https://runbooks.invalid/{name}",
        "dashboard_url": f"https://grafana.invalid/{labels.get('jobid', '')}",
    }
    if audience in ("owner", "support"):
        notes |= {"measured": f"{name} measured", "advice": f"{name} advice."}
    return {"labels": labels, "annotations": notes}


def staff(name, audience="hardware", severity="critical", **labels):
    return alert(name, severity, audience, **labels)


@unittest.skipUnless(AMTOOL, "rules: needs amtool (prometheus-alertmanager)")
class Configuration(unittest.TestCase):
    def test_amtool_accepts_it(self):
        done = subprocess.run([AMTOOL, "check-config", EXAMPLE / "alertmanager.example.yml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 templates", done.stdout)

    def test_the_changed_settings_exist(self):
        text = shortened((EXAMPLE / "alertmanager.example.yml").read_text(), "127.0.0.1:1")
        self.assertIn("smtp_smarthost: 127.0.0.1:1", text)
        self.assertEqual(len(re.findall(f"group_wait: {WAIT}s", text)), 6)
        self.assertEqual(len(re.findall(f"group_interval: {AGAIN}s", text)), 6)
        text = scaled((EXAMPLE / "alertmanager.example.yml").read_text(), "127.0.0.1:1")
        self.assertIn(f"group_interval: {DAY * 1000}ms", text)
        self.assertNotRegex(text, r"(?m)(_wait|_interval): \d+[smhd]$")

    def route(self, alertname, **labels):
        asked = [f"{key}={value}" for key, value in ({"alertname": alertname} | labels).items()]
        done = subprocess.run([AMTOOL, "config", "routes", "test", f"--config.file={EXAMPLE / 'alertmanager.example.yml'}", *asked], capture_output=True, text=True)
        return done.stdout.strip()

    @unittest.skipUnless(yaml, "needs python3-yaml")
    def test_each_alert_goes_to_its_audience(self):
        for name, each in yaml.safe_load((EXAMPLE.parent / "thresholds.yaml").read_text())["alerts"].items():
            wanted = "nobody" if each["severity"] == "info" else each["audience"]
            with self.subTest(name):
                self.assertEqual(self.route(name, user="alice", **{key: each[key] for key in ("audience", "severity")}), wanted)
                if wanted == "owner":
                    self.assertEqual(self.route(name, audience="owner", severity=each["severity"]), "support")
                    # As `jobledger digest` has it: a number is no name, and a comma would make two addresses.
                    for user, receiver in [("ira.k@campus.example.org", "owner"), ("u1007", "owner"), ("7@campus.example.org", "owner"),
                                           ("1007", "support"), ("a,b", "support"), ("a b", "support")]:
                        self.assertEqual(self.route(name, user=user, audience="owner", severity=each["severity"]), receiver, user)
        self.assertEqual(self.route("Other"), "monitoring")

    @unittest.skipUnless(yaml, "needs python3-yaml")
    def test_the_table_has_a_place_for_each_alert_of_jobs(self):
        alerts = yaml.safe_load((EXAMPLE.parent / "thresholds.yaml").read_text())["alerts"]
        listed = re.findall(r'"(Jobledger\w+)"', re.search(r"stringSlice\n([^}]*)}}", (EXAMPLE / "jobledger.tmpl").read_text())[1])
        self.assertEqual(sorted(listed), sorted(name for name, each in alerts.items() if "measured" in each))


@unittest.skipUnless(ALERTMANAGER, "rules: needs alertmanager (prometheus-alertmanager)")
class Alertmanager(unittest.TestCase):
    shortened = staticmethod(shortened)

    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            cls.sink = stack.enter_context(Mailbox())
            stack.callback(cls.sink.shutdown)
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            shutil.copy(EXAMPLE / "jobledger.tmpl", home)
            config = (EXAMPLE / "alertmanager.example.yml").read_text()
            (home / "alertmanager.yml").write_text(cls.shortened(config, f"127.0.0.1:{cls.sink.server_address[1]}"))
            (port,) = free_ports(1)
            cls.url = f"http://127.0.0.1:{port}"
            cls.log = stack.enter_context((home / "log").open("w+"))
            command = [
                ALERTMANAGER,
                f"--config.file={home / 'alertmanager.yml'}",
                f"--storage.path={home}",
                f"--web.listen-address={cls.url.removeprefix('http://')}",
                "--cluster.listen-address=",
            ]
            process = subprocess.Popen(command, stdout=cls.log, stderr=cls.log)
            stack.callback(process.wait, LONG)
            stack.callback(process.terminate)
            cls.until(lambda: cls.answers("/-/ready"), "Alertmanager does not start")
            cls.addClassCleanup(stack.pop_all().close)

    @classmethod
    def answers(cls, path):
        try:
            with urllib.request.urlopen(cls.url + path, timeout=LONG) as answer:
                return answer.status == 200
        except OSError:
            return False

    @classmethod
    def until(cls, true, otherwise):
        try:
            wait_for("Alertmanager", true, interval=0.05)
        except Failure as failure:
            cls.log.seek(0)
            raise AssertionError(f"{otherwise}: {failure}\n{cls.log.read()}") from failure

    def setUp(self):
        self.before = len(self.sink.mails)

    def tell(self, *alerts):
        body = json.dumps(alerts).encode()
        asked = urllib.request.Request(f"{self.url}/api/v2/alerts", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=LONG) as answer:
            self.assertEqual(answer.status, 200)

    def to(self, name):
        """Subjects and texts of the mails to somebody since the start of the test."""
        mails = [(to, mail) for to, mail in self.sink.mails[self.before :] if to == [f"{name}@cluster.example"]]
        return [(mail["Subject"], mail.get_body().get_content().replace("\r", "")) for _, mail in mails]

    def mails(self, count, wait=0.0):
        """The mails since the start of the test: this many, and no more after `wait` seconds."""
        self.until(lambda: len(self.sink.mails) - self.before >= count, f"fewer than {count} mails")
        time.sleep(wait)
        mails = self.sink.mails[self.before :]
        self.assertEqual(len(mails), count, [(to, mail["Subject"]) for to, mail in mails])
        return sorted(((*to, mail["Subject"], mail.get_body().get_content().replace("\r", "")) for to, mail in mails), key=lambda mail: mail[0])


@unittest.skipUnless(ALERTMANAGER, "rules: needs alertmanager (prometheus-alertmanager)")
class Mail(Alertmanager):
    def test_one_mail_per_person(self):
        self.tell(
            *(alert("JobledgerJobGpuIdle", jobid=jobid, user="alice", account="physics") for jobid in ("7", "8")),
            alert("JobledgerJobCpuLow", jobid="9", user="alice", account="physics"),
            alert("JobledgerJobCpuLow", jobid="10", user="bob", account="biology", partition="main"),
        )
        (to, subject, text), (to_other, subject_other, text_other) = self.mails(2, wait=AGAIN)
        self.assertEqual((to, to_other), ("alice@cluster.example", "bob@cluster.example"))
        self.assertEqual(subject, "Your jobs on c1: several things to look at")
        self.assertEqual(subject_other, "Your job 10 on c1: JobledgerJobCpuLow summary.")
        self.assertEqual(text.count("JobledgerJobGpuIdle summary."), 1)
        self.assertEqual(text.count("JobledgerJobGpuIdle advice."), 1)
        self.assertRegex(text, r"(?m)^  7 +JobledgerJobGpuIdle measured  https://grafana.invalid/7$")
        self.assertRegex(text, r"(?m)^  8 +JobledgerJobGpuIdle measured  https://grafana.invalid/8$")
        self.assertRegex(text, r"(?m)^  9 +JobledgerJobCpuLow measured  https://grafana.invalid/9$")
        self.assertIn("https://runbooks.invalid/JobledgerJobGpuIdle\n", text)
        self.assertIn("Account: physics", text)
        self.assertNotIn("Partition", text)
        self.assertIn("Partition: main", text_other)
        self.assertNotIn("JobledgerJobGpuIdle", text_other)

    def test_a_table_lists_fifty_jobs_and_counts_the_others(self):
        self.tell(*(alert("JobledgerJobCpuLow", jobid=f"{101 + at}", array_job_id="100", user="frank") for at in range(53)))
        ((to, subject, text),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("frank@cluster.example", "Your jobs on c1: JobledgerJobCpuLow summary."))
        self.assertEqual(text.count("of array 100, JobledgerJobCpuLow measured"), 50)
        self.assertIn("  and 3 more\n", text)

    def test_a_kill_is_mailed_at_once_beside_the_mail_about_waste(self):
        self.tell(alert("JobledgerJobCpuLow", jobid="60", user="gina"), alert("JobledgerJobOomKilled", jobid="61", user="gina"))
        self.mails(2, wait=AGAIN)
        self.assertEqual(sorted(subject for subject, _ in self.to("gina")), ["Your job 60 on c1: JobledgerJobCpuLow summary.", "Your job 61 on c1: JobledgerJobOomKilled summary."])

    def test_a_name_may_be_an_address_and_a_number_is_none(self):
        self.tell(*(alert("JobledgerJobCpuLow", jobid=jobid, user=user, cluster="c8") for jobid, user in (("70", "ira.k@campus.example.org"), ("71", "1007"))))
        self.assertEqual([mail[:2] for mail in self.mails(2, wait=AGAIN)], [
            ("hpc-support@cluster.example", "1 job on c8: JobledgerJobCpuLow summary."),
            ("ira.k@campus.example.org", "Your job 70 on c8: JobledgerJobCpuLow summary.")])

    def test_long_idleness_goes_to_support_in_one_mail(self):
        self.tell(*(alert("JobledgerJobGpuIdleLong", audience="support", jobid=jobid, user=user) for jobid, user in (("20", "carol"), ("21", "dave"))))
        ((to, subject, text),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("hpc-support@cluster.example", "2 jobs on c1: JobledgerJobGpuIdleLong summary."))
        self.assertRegex(text, r"(?m)^  carol +20 +JobledgerJobGpuIdleLong measured")
        self.assertRegex(text, r"(?m)^  dave +21 +JobledgerJobGpuIdleLong measured")

    def test_little_use_is_not_mailed_of_a_job_whose_gpus_are_idle(self):
        self.tell(alert("JobledgerJobGpuIdle", jobid="30", user="erin"))
        time.sleep(WAIT / 4)
        self.tell(*(alert("JobledgerJobGpuLowUse", jobid=jobid, user="erin") for jobid in ("30", "31")))
        ((_, _, text),) = self.mails(1, wait=AGAIN)
        self.assertIn("JobledgerJobGpuLowUse measured  https://grafana.invalid/31", text)
        self.assertNotIn("JobledgerJobGpuLowUse measured  https://grafana.invalid/30", text)

    def test_one_dead_gpu_is_one_mail(self):
        gpu = {"instance": "n5", "uuid": "GPU-5", "gpu": "5"}
        symptoms = [staff("JobledgerGpuXid", code="79", **gpu), staff("JobledgerGpuRecoveryNeeded", action="reset", **gpu), staff("JobledgerGpuEccUncorrected", **gpu),
                    staff("JobledgerCollectorFailing", audience="monitoring", severity="warning", instance="n5", collector="gpu")]
        self.tell(staff("JobledgerGpuLost", **gpu))
        time.sleep(WAIT / 4)
        self.tell(*symptoms, staff("JobledgerGpuXid", code="79", instance="n5", uuid="GPU-6", gpu="6"))
        ((to, subject, text),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("hpc-hardware@cluster.example", "[firing] several alerts n5 (c1)"))
        self.assertEqual(re.findall(r"Jobledger\w+ of , \d", text), ["JobledgerGpuLost of , 5", "JobledgerGpuXid of , 6"])

    def test_a_port_that_is_down_is_one_mail(self):
        port = {"instance": "n6", "device": "mlx5_0", "port": "1"}
        self.tell(staff("JobledgerInfinibandPortDown", **port))
        time.sleep(WAIT / 4)
        self.tell(staff("JobledgerInfinibandPortSlow", **port), staff("JobledgerInfinibandPortErrors", type="symbol", **port))
        ((_, subject, _),) = self.mails(1, wait=AGAIN)
        self.assertEqual(subject, "[firing] JobledgerInfinibandPortDown n6 (c1)")

    def test_nodes_of_a_rack_are_one_mail_and_staff_is_informed_of_the_end(self):
        down = [staff("JobledgerExporterDown", audience="monitoring", severity="warning", instance=f"n{at}", job="j") for at in range(10, 50)]
        self.tell(*down)
        time.sleep(WAIT / 4)
        self.tell(staff("JobledgerGpuLost", instance="n10", uuid="GPU-1", gpu="1"))
        ((to, subject, text),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("hpc-admins@cluster.example", "[firing] JobledgerExporterDown (c1)"))
        self.assertIn("* and 20 more\n", text)
        began, ended = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago)) for ago in (60, 1))
        self.tell(*(each | {"startsAt": began, "endsAt": ended} for each in down))
        self.until(lambda: len(self.to("hpc-admins")) == 2, "no mail of the end")
        self.assertEqual(self.to("hpc-admins")[1][0], "[resolved] JobledgerExporterDown (c1)")

    def test_nodes_that_were_taken_out_do_not_hide_an_exporter_that_is_down(self):
        shared = {"audience": "monitoring", "job": "j", "cluster": "c7"}
        self.tell(staff("JobledgerTargetsMissing", severity="critical", **shared), staff("JobledgerExporterDown", severity="warning", instance="n90", **shared))
        self.until(lambda: any("JobledgerExporterDown" in subject and "(c7)" in subject for subject, _ in self.to("hpc-admins")), "the exporter is hidden")

    def test_advice_is_not_mailed_and_jobs_without_a_user_go_to_support(self):
        self.tell(
            alert("JobledgerJobMemoryOverAsked", severity="info", jobid="40", user="erin"),
            staff("JobledgerGpuXidApplication", audience="support", severity="info", instance="n7", uuid="GPU-7"),
            alert("JobledgerJobCpuLow", jobid="41"),
        )
        ((to, subject, _),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("hpc-support@cluster.example", "1 job on c1: JobledgerJobCpuLow summary."))


@unittest.skipUnless(ALERTMANAGER, "rules: needs alertmanager (prometheus-alertmanager)")
class Day(Alertmanager):
    """How many mails there are in a day, of DAY seconds: all times of the example are shortened in proportion."""

    shortened = staticmethod(scaled)

    def test_a_person_has_a_mail_a_day_whatever_the_number_of_jobs(self):
        hour, began, sent = DAY / 24, time.monotonic(), {}
        # The jobs of each user that are idle, by the hour: one; 200 that start within six hours; an array of eight at a time, each for four hours.
        idle = {
            "one": lambda now: [1],
            "many": lambda now: range(1000, 1000 + min(200, 20 + int(now * 30))),
            "rolling": lambda now: range(2000 + int(now * 2), 2008 + int(now * 2)),
        }
        firing = {}

        def post():
            now = (time.monotonic() - began) / hour
            wall = time.time()
            current = {(user, jobid) for user, jobs in idle.items() for jobid in jobs(now)}
            stamp = lambda at: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f"{at % 1:.3f}"[1:] + "Z"  # noqa: E731
            for each in current - firing.keys():
                firing[each] = wall
            over = firing.keys() - current
            self.tell(*(alert("JobledgerJobGpuIdle", jobid=str(jobid), user=user) | {"startsAt": stamp(firing[user, jobid]), "endsAt": stamp(wall if (user, jobid) in over else wall + LONG)}
                        for user, jobid in firing))
            for each in over:
                del firing[each]
            for user in idle:
                for at in range(len(sent.setdefault(user, [])), len(self.to(user))):
                    sent[user].append((time.monotonic(), self.to(user)[at][1]))
            # The second day begins with a mail about what is new.
            return len(sent["many"]) == 2 and len(sent["rolling"]) == 2

        wait_for("the second day's mails", post, interval=0.3)
        self.assertEqual({user: len(mails) for user, mails in sent.items()}, {"one": 1, "many": 2, "rolling": 2})
        for user in ("many", "rolling"):
            (first, _), (second, _) = sent[user]
            self.assertGreater(second - first, 0.8 * DAY)
        # The first mail has the jobs of its time; those that became idle afterwards are in the second.
        text = sent["many"][1][1]
        self.assertEqual(len(re.findall(r"(?m)^  1\d\d\d ", text)), 50)
        self.assertIn("  and 150 more\n", text)


if __name__ == "__main__":
    unittest.main()
