"""The scripts that slurmctld starts: its MailProg and its EpilogSlurmctld. jobledger and sacctmgr are scripts that write what they were given."""

import os
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1] / "e2e")]
from test_snippets import ROOT, Snippets, as_slurm  # noqa: E402
from testbed.processes import wait_for  # noqa: E402

MAIL = ROOT / "slurm/slurmctld/jobledger-mail.sh"
STORE = ROOT / "slurm/slurmctld/jobledger-admincomment.sh"
SUBJECT = "Slurm Job_id=42 Name=$(touch /tmp/x) `x` 'y' Ended, Run time 00:00:10, COMPLETED, ExitCode 0"


class Slurmctld(Snippets):
    def setUp(self):
        super().setUp()
        self.slow_setsid()
        (self.bin / "sh").symlink_to(shutil.which("sh"))
        self.command("logger", f'cat >>{self.scratch}/log; echo over "$@" >>{self.scratch}/log')
        # An argument in a line.
        self.record("jobledger", "echo JS1:Short")
        self.slurm("24.11.5")

    def record(self, name, then):
        self.command(name, f'printf "%s\\n" "$@" >>{self.scratch}/{name}\n{then}')

    def slurm(self, version, package="slurm"):
        self.command("sacctmgr", f'[ "$1" != --version ] || {{ echo {package} {version}; exit 0; }}\nprintf "%s\\n" "$@" >>{self.scratch}/sacctmgr')

    def given(self, name):
        path = self.scratch / name
        return path.read_text().splitlines() if path.exists() else None

    def log(self):
        """What was logged, once the background has ended."""
        def logged():
            return self.given("log") if any(line.startswith("over ") for line in self.given("log") or []) else None
        return wait_for("the end in the background", logged, interval=0.02)

    def start(self, *command, **environment):
        """Without a terminal and with pipes that the background must not hold open."""
        settings = {"JOBLEDGER_SETTINGS": str(self.settings)} | environment
        return as_slurm([os.fsencode(part) for part in command], env=settings, text=True, timeout=600)

    def test_a_mail_is_sent_in_the_background(self):
        gate = self.scratch / "gate"
        self.record("jobledger", f"while [ ! -e {gate} ]; do sleep 0.02; done\necho it failed >&2; exit 1")
        for recipient in ("alice@example.org", "--config=/home/eve/evil.toml", "-h", "a b; touch x"):
            ran = self.start(MAIL, "-s", SUBJECT, recipient)
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""), "it has ended, and its mail waits")
            gate.write_text("")
            self.assertEqual(self.log(), ["it failed", "over -t jobledger-mail"])
            self.assertEqual(self.given("jobledger"), ["mail", f"--subject={SUBJECT}", "--", recipient])
            for name in ("gate", "jobledger", "log"):
                (self.scratch / name).unlink()

    def test_anything_but_slurms_arguments_is_refused(self):
        for arguments in ([], ["-s", "x"], ["--dry-run", "x", "alice"], ["-s", "x", "alice", "bob"]):
            ran = self.start(MAIL, *arguments)
            self.assertEqual((ran.returncode, ran.stderr.split(":")[0]), (64, "usage"))
        self.assertIsNone(self.given("jobledger"))

    def stored(self, **environment):
        for name in ("jobledger", "sacctmgr", "log"):
            (self.scratch / name).unlink(missing_ok=True)
        ran = self.start(STORE, **environment)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))
        return self.log()[:-1], self.given("jobledger"), self.given("sacctmgr")

    def test_nothing_is_stored_where_sacctmgr_makes_it_lower_case(self):
        # Debian's programs have the package's name.
        for package, version in (("slurm", "20.11.9"), ("slurm", "21.08.8-2"), ("slurm", "22.05.8"), ("slurm-wlm", "22.05.8")):
            self.slurm(version, package)
            found = self.stored(SLURM_JOB_ID="42", SLURM_CLUSTER_NAME="alpha")
            self.assertEqual(found, ([f"AdminComment needs SLURM 23.02, this is {package} {version}"], None, None))
        for package, version in (("slurm", "23.02.0"), ("slurm", "26.05.1"), ("slurm-wlm", "24.11.5")):
            self.slurm(version, package)
            self.assertEqual(self.stored(SLURM_JOB_ID="42")[2][-1], "AdminComment=JS1:Short")

    def test_what_a_job_used_is_stored(self):
        asked = ["report", "--format=jobstats-blob", "--wait=180"]
        store = ["--quiet", "--immediate", "update", "job", "where"]
        for blob in ("JS1:Short", "JS1:None", "JS1:H4sIAAAA+/="):
            # 4: of a part of the job.
            self.record("jobledger", f"echo '{blob}'; exit 4")
            found = self.stored(SLURM_JOB_ID="42", SLURM_CLUSTER_NAME="alpha")
            self.assertEqual(found, ([], [*asked, "42"], [*store, "jobid=42", "cluster=alpha", "set", f"AdminComment={blob}"]))
        _, asked_for, given = self.stored(SLURM_JOB_ID="41", SLURM_ARRAY_JOB_ID="42", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual((asked_for[-1], given[5]), ("41", "jobid=41"))
        _, asked_for, given = self.stored(SLURM_JOB_ID="42", SLURM_ARRAY_JOB_ID="42", SLURM_ARRAY_TASK_ID="4")
        self.assertEqual((asked_for[-1], given[5]), ("42_4", "jobid=42_4"), "42 alone is the array")

    def test_nothing_else_is_stored(self):
        for then in ("exit 3", "echo Job 42", "echo JS1:x", "echo 'jobledger: no server' >&2; exit 2"):
            self.record("jobledger", then)
            log, _, given = self.stored(SLURM_JOB_ID="42")
            self.assertEqual((log[-1], given), ("job 42: nothing to store", None))
        log, asked, _ = self.stored(SLURM_JOB_ID="4;2")
        self.assertEqual((log, asked), (["SLURM_JOB_ID is no number"], None))


# The base class's own tests are not this module's.
del Snippets
