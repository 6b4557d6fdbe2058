"""The scripts that slurmctld starts: its MailProg and its EpilogSlurmctld, and that of the service. jobledger is a script that writes what it was
given."""

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
from test_snippets import ROOT, Snippets, as_slurm  # noqa: E402

MAIL, STORE, SERVICE = (ROOT / f"slurm/slurmctld/jobledger-{name}.sh" for name in ("mail", "admincomment", "spool"))
SUBJECT = "Slurm Job_id=42 Name=$(touch /tmp/x) `x` 'y' Ended, Run time 00:00:10, COMPLETED, ExitCode 0"


class Slurmctld(Snippets):
    def setUp(self):
        super().setUp()
        self.command("logger", f'cat >>{self.scratch}/log; echo over "$@" >>{self.scratch}/log')
        self.record("")

    def record(self, then):
        """An argument in a line."""
        self.command("jobledger", f'printf "%s\\n" "$@" >>{self.scratch}/jobledger\n{then}')

    def given(self, name):
        """What was written, once."""
        path = self.scratch / name
        if not path.exists():
            return None
        lines = path.read_text().splitlines()
        path.unlink()
        return lines

    def start(self, *command, **environment):
        """It has ended, and so has all that it started: SLURM kills its process group."""
        settings = {"JOBLEDGER_SETTINGS": str(self.settings)} | environment
        ran = as_slurm([os.fsencode(part) for part in command], env=settings, text=True, timeout=600)
        self.assertEqual((ran.stdout, ran.stderr if ran.returncode == 0 else ""), ("", ""))
        return ran

    def test_a_mail_is_left_to_the_spool(self):
        self.record("echo it failed >&2; echo out; exit 1")
        for recipient in ("alice@example.org", "--config=/home/eve/evil.toml", "-h", "a b; touch x"):
            ran = self.start(MAIL, "-s", SUBJECT, recipient)
            # SLURM would log it for each mail.
            self.assertEqual(ran.returncode, 0)
            self.assertEqual(self.given("jobledger"), ["mail", "--spool", f"--subject={SUBJECT}", "--", recipient])
            self.assertEqual(self.given("log"), ["it failed", "over -t jobledger-mail"])

    def test_anything_but_slurms_arguments_is_refused(self):
        for arguments in ([], ["-s", "x"], ["--dry-run", "x", "alice"], ["-s", "x", "alice", "bob"]):
            ran = self.start(MAIL, *arguments)
            self.assertEqual((ran.returncode, ran.stderr.split(":")[0]), (64, "usage"))
        self.assertIsNone(self.given("jobledger"))

    def test_what_a_job_used_is_left_to_the_spool(self):
        self.record('echo "of $SLURM_JOB_ID in $SLURM_CLUSTER_NAME" >&2; exit 1')
        self.assertEqual(self.start(STORE, SLURM_JOB_ID="42", SLURM_CLUSTER_NAME="alpha").returncode, 0)
        self.assertEqual(self.given("jobledger"), ["admin-comment", "--spool"])
        self.assertEqual(self.given("log"), ["of 42 in alpha", "over -t jobledger-admincomment"])

    def test_nothing_is_left_in_the_background(self):
        """A process that were left would hold the pipes, or write after the script's end."""
        self.record("sleep 0.3; echo late >&2")
        for command in ([MAIL, "-s", SUBJECT, "alice"], [STORE]):
            self.start(*command, SLURM_JOB_ID="42")
            self.assertEqual(self.given("log")[0], "late", "the script waits for what it started")
            self.assertNotRegex(command[0].read_text(), r"(?m)setsid|nohup|[^>&]&\s*$")

    def test_the_service_has_the_settings_of_the_scripts(self):
        self.write_settings("export JOBLEDGER_URL=http://x")
        self.record('echo "$JOBLEDGER_URL" >>' + f"{self.scratch}/jobledger; exit 3")
        self.assertEqual(self.start(SERVICE).returncode, 3)
        self.assertEqual(self.given("jobledger"), ["spool", "http://x"])


# The base class's own tests are not this module's.
del Snippets
