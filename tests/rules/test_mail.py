"""The example configuration of Alertmanager, with a real Alertmanager and the demo's mail server on loopback.

Needs alertmanager and amtool (Debian: prometheus-alertmanager). Takes some twenty seconds: times of the example are shortened.
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

from mailserver import Mailbox  # noqa: E402
from testbed.processes import Failure, free_ports, wait_for  # noqa: E402

EXAMPLE = Path(__file__).resolve().parents[2] / "rules" / "alertmanager"
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
AMTOOL = shutil.which("amtool")
# Seconds: until a group is mailed, until a changed group is mailed again, and the timeout of the tests.
WAIT, AGAIN, LONG = 1, 2, 600


def shortened(text, smarthost):
    """The example with another mail server and with seconds instead of minutes, except for repeat_interval."""
    text = text.replace("smtp_smarthost: localhost:25", f"smtp_smarthost: {smarthost}")
    text = re.sub(r"group_wait: \S+", f"group_wait: {WAIT}s", text)
    return re.sub(r"group_interval: \S+", f"group_interval: {AGAIN}s", text)


def alert(name, severity="warning", **labels):
    own = {"array_job_id": labels["jobid"]} if "jobid" in labels else {}
    labels = {"alertname": name, "severity": severity, "cluster": "c1", **own, **labels}
    of = ", ".join(labels.get(key, "") for key in ("jobid", "gpu", "instance"))
    notes = {"summary": f"{name} summary.", "description": f"{name} of {of}", "runbook_url": f"https://runbooks.invalid/{name}"}
    return {"labels": labels, "annotations": notes}


@unittest.skipUnless(AMTOOL, "rules: needs amtool (prometheus-alertmanager)")
class Configuration(unittest.TestCase):
    def test_amtool_accepts_it(self):
        done = subprocess.run([AMTOOL, "check-config", EXAMPLE / "alertmanager.example.yml"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 templates", done.stdout)

    def test_the_changed_settings_exist(self):
        text = shortened((EXAMPLE / "alertmanager.example.yml").read_text(), "127.0.0.1:1")
        self.assertIn("smtp_smarthost: 127.0.0.1:1", text)
        self.assertEqual(len(re.findall(f"group_wait: {WAIT}s", text)), 2)
        self.assertEqual(len(re.findall(f"group_interval: {AGAIN}s", text)), 2)


@unittest.skipUnless(ALERTMANAGER, "rules: needs alertmanager (prometheus-alertmanager)")
class Mail(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with contextlib.ExitStack() as stack:
            cls.sink = stack.enter_context(Mailbox())
            stack.callback(cls.sink.shutdown)
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            shutil.copy(EXAMPLE / "jobledger.tmpl", home)
            config = (EXAMPLE / "alertmanager.example.yml").read_text()
            port = cls.sink.server_address[1]
            (home / "alertmanager.yml").write_text(shortened(config, f"127.0.0.1:{port}"))
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

    def mails(self, count, wait=0.0):
        """The mails since the start of the test: this many, and no more after `wait` seconds."""
        self.until(lambda: len(self.sink.mails) - self.before >= count, f"fewer than {count} mails")
        time.sleep(wait)
        mails = self.sink.mails[self.before :]
        self.assertEqual(len(mails), count, [(to, mail["Subject"]) for to, mail in mails])
        return sorted(((*to, mail["Subject"], mail.get_body().get_content()) for to, mail in mails), key=lambda mail: mail[0])

    def test_one_mail_per_job_and_to_its_owner(self):
        two = [
            alert("JobledgerJobGpuIdle", jobid="7", user="alice", account="physics", instance="n1", gpu=gpu, uuid=f"GPU-{gpu}")
            for gpu in "01"
        ]
        other = alert("JobledgerJobCpuLow", jobid="8", user="bob", account="biology", partition="main")
        self.tell(*two, other)
        (to, subject, text), (to_other, _, text_other) = self.mails(2, wait=AGAIN)
        self.assertEqual((to, to_other), ("alice@cluster.example", "bob@cluster.example"))
        self.assertEqual(subject, "Your job 7 on c1: JobledgerJobGpuIdle summary.")
        self.assertIn("JobledgerJobGpuIdle of 7, 0, n1", text)
        self.assertIn("JobledgerJobGpuIdle of 7, 1, n1", text)
        self.assertIn("https://runbooks.invalid/JobledgerJobGpuIdle\n", text.replace("\r", ""))
        self.assertIn("Account: physics", text)
        self.assertNotIn("Partition", text)
        self.assertNotIn("JobledgerJobCpuLow", text)
        self.assertIn("JobledgerJobCpuLow of 8", text_other)
        self.assertIn("Partition: main", text_other)
        # Prometheus sends firing alerts repeatedly.
        for _ in range(3):
            self.tell(*two, other)
            time.sleep(AGAIN / 2)
        self.mails(2, wait=AGAIN)
        # A new alert of the job is mailed together with the firing ones.
        self.tell(alert("JobledgerJobOomKilled", jobid="7", user="alice", instance="n1"))
        to, subject, text = self.mails(3)[1]
        self.assertEqual((to, subject), ("alice@cluster.example", "Your job 7 on c1: several things to look at"))
        self.assertIn("JobledgerJobOomKilled of 7", text)

    def test_one_mail_for_an_array_that_lists_some_and_counts_the_others(self):
        self.tell(*(alert("JobledgerJobCpuLow", jobid=f"{101 + at}", array_job_id="100", user="frank") for at in range(23)))
        ((to, subject, text),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("frank@cluster.example", "Your jobs of array 100 on c1: JobledgerJobCpuLow summary."))
        self.assertEqual(text.count("JobledgerJobCpuLow of "), 20)
        self.assertIn("* and 3 more\n", text.replace("\r", ""))

    def test_a_warning_is_inhibited_only_by_the_critical_alert_of_its_gpu(self):
        job = {"jobid": "20", "user": "carol", "instance": "n2"}
        long = alert("JobledgerJobGpuIdleLong", severity="critical", gpu="0", uuid="GPU-0", **job)
        self.tell(long)
        time.sleep(WAIT / 4)
        self.tell(*(alert("JobledgerJobGpuIdle", gpu=gpu, uuid=f"GPU-{gpu}", **job) for gpu in "01"))
        (to, _, text), (to_admins, subject, text_admins) = self.mails(2, wait=AGAIN)
        self.assertEqual((to, to_admins), ("carol@cluster.example", "hpc-admins@cluster.example"))
        self.assertIn("JobledgerJobGpuIdleLong of 20, 0", text)
        self.assertIn("JobledgerJobGpuIdle of 20, 1", text)
        self.assertNotIn("JobledgerJobGpuIdle of 20, 0", text)
        self.assertEqual(subject, "[firing] job 20 n2 (c1)")
        self.assertNotIn("JobledgerJobGpuIdle of", text_admins)

    def test_alerts_of_jobs_on_an_unreachable_node_are_inhibited(self):
        down = alert("JobledgerExporterDown", severity="critical", instance="n3")
        self.tell(down)
        time.sleep(WAIT / 4)
        jobs = [
            alert("JobledgerJobMemoryNearLimit", jobid=jobid, user="dave", instance=instance)
            for jobid, instance in (("30", "n3"), ("31", "n4"))
        ]
        self.tell(*jobs)
        (to, _, text), (to_admins, subject, _) = self.mails(2, wait=AGAIN)
        self.assertEqual((to, to_admins), ("dave@cluster.example", "hpc-admins@cluster.example"))
        self.assertIn("of 31, , n4", text)
        self.assertEqual(subject, "[firing] JobledgerExporterDown n3 (c1)")
        # The admins get a mail when it is resolved; the owner of a job does not.
        began, ended = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago)) for ago in (60, 1))
        self.tell(*(each | {"startsAt": began, "endsAt": ended} for each in (*jobs, down)))
        mails = self.mails(3, wait=AGAIN)
        self.assertEqual(mails[2][:2], ("hpc-admins@cluster.example", "[resolved] JobledgerExporterDown n3 (c1)"))

    def test_advice_is_not_mailed_and_alerts_of_a_job_without_a_user_go_to_the_admins(self):
        self.tell(
            alert("JobledgerJobMemoryOverAsked", severity="info", jobid="40", user="erin"),
            alert("JobledgerJobCpuLow", jobid="41"),
        )
        ((to, subject, _),) = self.mails(1, wait=AGAIN)
        self.assertEqual((to, subject), ("hpc-admins@cluster.example", "[firing] JobledgerJobCpuLow (c1)"))


if __name__ == "__main__":
    unittest.main()
