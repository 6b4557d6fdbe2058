"""Mails of `jobledger`, as SLURM's MailProg starts it, to a real server (aiosmtpd) and to a sendmail that is a script.

Needs python3-venv and openssl; aiosmtpd comes from PyPI. live_report.py has the reports in them.
"""

import pathlib
import socket
import subprocess
import unittest

from mails import Sink, body, parsed
from tools import Ran, program, scratch

# mail_job_info, src/slurmctld/agent.c
ENDED = "Slurm Job_id=7 Name=train Ended, Run time 00:01:00, COMPLETED, ExitCode 0"
BEGAN = "Slurm Job_id=7 Name=train Began, Queued time 00:00:01"
# No server listens there.
NOWHERE = "http://127.0.0.1:1"


class Mails(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.directory = cls.enterClassContext(scratch("jobledger-mail"))

    def run_it(self, settings, *arguments, **environment):
        config = self.directory / "jobledger.toml"
        config.write_text(f"[server]\nurl = \"{NOWHERE}\"\n[mail]\n{settings}")
        return Ran(self.program, None, f"--config={config}", "mail", *arguments, **environment)

    def sent(self, ran):
        self.assertEqual((ran.status, ran.out), (0, ""), ran.err)

    def test_a_server_gets_slurms_mail(self):
        with Sink("plain") as sink:
            settings = f'smtp = "smtp://127.0.0.1:{sink.port}"\nfrom = "Jobs <slurm@example.org>"\ndomain = "users.example.org"\n'
            self.sent(self.run_it(settings, "-s", BEGAN, "alice, bob@example.org"))
            taken, mail = sink.mail()
            self.assertEqual((taken["from"], taken["to"]), ("slurm@example.org", ["alice@users.example.org", "bob@example.org"]))
            self.assertEqual((mail["Subject"], mail["From"], mail["Auto-Submitted"]), (BEGAN, "Jobs <slurm@example.org>", "auto-generated"))
            self.assertRegex(mail["Message-ID"], f"^<[0-9a-f]+[.][0-9a-f]+@{socket.gethostname()}>$")
            self.assertEqual(taken["hello"], socket.gethostname())
            self.assertEqual(mail["To"], "alice@users.example.org, bob@example.org")
            self.assertEqual(body(mail), f"{BEGAN}\n")

    def test_a_mail_is_sent_without_a_report(self):
        with Sink("plain") as sink:
            settings = f'smtp = "smtp://127.0.0.1:{sink.port}"\n'
            ran = self.run_it(settings, "-s", ENDED, "alice", "--wait=0")
            self.sent(ran)
            self.assertIn("Connection refused", ran.err)
            _, mail = sink.mail()
            self.assertTrue(body(mail).startswith(f"{ENDED}\n\nThere is no report: "), body(mail))
            # The same without a Prometheus.
            config = self.directory / "none.toml"
            config.write_text(f"[mail]\n{settings}")
            self.sent(Ran(self.program, None, f"--config={config}", "mail", "-s", ENDED, "alice"))
            self.assertIn("There is no report: no server is configured", body(sink.mail()[1]))

    def test_a_hostile_name_of_a_job_changes_no_header(self):
        with Sink("plain") as sink:
            settings = f'smtp = "smtp://127.0.0.1:{sink.port}"\n'
            name = "x\r\nBcc: eve@example.org\r\n\r\n<script>alert(1)</script> \u202egr\u00fc\u00df \U0001f600 " + "long " * 300
            self.sent(self.run_it(settings, "-s", f"Slurm Job_id=7 Name={name} Began, Queued time 00:00:01", "alice"))
            taken, mail = sink.mail()
            self.assertEqual((taken["to"], mail["Bcc"]), (["alice@localhost"], None))
            self.assertIn("gr\u00fc\u00df \U0001f600", mail["Subject"])
            for text in (mail["Subject"], body(mail), body(mail, "html")):
                self.assertNotIn("\u202e", text)
            self.assertIn("&lt;script&gt;", body(mail, "html"))
            self.assertNotIn("<script", body(mail, "html"))
            self.assertTrue(all(len(line) <= 998 for line in taken["text"].splitlines()), "RFC 5322, 2.1.1")

    def certificate(self, name):
        files = [self.directory / f"{name}.{ending}" for ending in ("pem", "key")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=mail",
                        "-addext", f"subjectAltName=DNS:{name}", "-addext", "basicConstraints=critical,CA:FALSE", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
        return files

    def test_a_server_with_tls_gets_a_password(self):
        certificate, key = self.certificate("localhost")
        secret = self.directory / "password"
        secret.write_text("secret word\n")
        with Sink("tls", certificate, key) as sink:
            settings = f'smtp = "smtps://localhost:{sink.port}"\nsmtp_user = "slurm"\nsmtp_password_file = "{secret}"\n'
            self.sent(self.run_it(settings, "-s", BEGAN, "alice", SSL_CERT_FILE=str(certificate)))
            self.assertEqual(body(sink.mail()[1]), f"{BEGAN}\n")
            ran = self.run_it(settings, "-s", BEGAN, "alice")
            self.assertEqual(ran.status, 1)
            self.assertIn("certificate", ran.err.lower())
            secret.write_text("another\n")
            ran = self.run_it(settings, "-s", BEGAN, "alice", SSL_CERT_FILE=str(certificate))
            self.assertEqual(ran.status, 1)
            self.assertIn("535", ran.err)
            self.assertNotIn("another", ran.err)

    def test_a_password_is_neither_in_the_configuration_nor_sent_in_the_clear(self):
        secret = self.directory / "password"
        secret.write_text("secret word\n")
        login = f'smtp_user = "slurm"\nsmtp_password_file = "{secret}"\n'
        for url, more, word in [
            ("smtps://slurm:word@localhost", "", "smtp_password_file"), ("smtp://localhost:25", login, "TLS alone"),
            ("smtp://localhost?tls=opportunistic", login, "TLS alone"), ("localhost", "", "smtps://HOST"),
            ("smtps://localhost", 'smtp_user = "slurm"', "go together"), ("smtps://localhost", login.replace("password\"", "none\""), "none: No such file"),
        ]:
            ran = self.run_it(f'smtp = "{url}"\n{more}', "-s", BEGAN, "alice")
            self.assertEqual((ran.status, ran.err.count("\n")), (2, 1), ran.err)
            self.assertIn(word, ran.err)

    def test_what_is_refused_is_an_error_of_one_line(self):
        with Sink("plain") as sink:
            ran = self.run_it(f'smtp = "smtp://127.0.0.1:{sink.port}"\n', "-s", BEGAN, "refused")
            self.assertEqual((ran.status, ran.err.count("\n")), (1, 1), ran.err)
            self.assertIn("no such user", ran.err)
        for recipient in ("", "alice@", "a b", '"a b"@example.org', "alice@example.org\nBcc: eve@example.org"):
            ran = self.run_it("", "-s", BEGAN, recipient)
            self.assertEqual((ran.status, ran.err.count("\n")), (2, 1), ran.err)

    def test_a_wrong_recipient_costs_the_others_nothing(self):
        with Sink("plain") as sink:
            ran = self.run_it(f'smtp = "smtp://127.0.0.1:{sink.port}"\n', "-s", BEGAN, "refused, a b, alice, bob@example.org")
            self.sent(ran)
            self.assertIn("\"a b\" is no address of a mail", ran.err)
            self.assertIn("refused@localhost: the mail's server: permanent error (550): no such user\n", ran.err)
            self.assertEqual([sink.mail()[0]["to"] for _ in range(2)], [["alice@localhost"], ["bob@example.org"]])

    def test_what_takes_too_long_is_ended(self):
        program = self.directory / "slow"
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for settings in (f'sendmail = "{program}"\n', f'smtp = "smtp://127.0.0.1:{silent.getsockname()[1]}"\n'):
                ran = self.run_it(f"{settings}timeout_seconds = 1\n", "-s", BEGAN, "alice, bob")
                self.assertEqual((ran.status, ran.err.count("\n")), (1, 1), ran.err)
                self.assertRegex(ran.err, "no answer in 1 s|timed out|Resource temporarily unavailable")

    def test_long_names_and_many_recipients_fit_into_lines(self):
        with Sink("plain") as sink:
            subject = f"Slurm Job_id=7 Name={'x' * 3000} Began, Queued time 00:00:01"
            users = [f"user{at}@example.org" for at in range(90)]
            self.sent(self.run_it(f'smtp = "smtp://127.0.0.1:{sink.port}"\n', "-s", subject, ", ".join(users)))
            taken, mail = sink.mail()
            self.assertEqual((taken["to"], mail["To"]), (users, ", ".join(users)))
            self.assertEqual(mail["Subject"], f"Slurm Job_id=7 Name={'x' * 58}… Began, Queued time 00:00:01")
            self.assertEqual(body(mail), f"{subject}\n", "the text has all of it")
            head = taken["text"].replace("\r\n", "\n").partition("\n\n")[0].splitlines()
            self.assertEqual([line for line in head if len(line) > 78 and not line.startswith((" boundary", "Content-Type"))], [])

    def test_sendmail_gets_the_mail_if_no_server_is_configured(self):
        program, got = self.directory / "sendmail", self.directory / "got"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {got}.arguments\ncat > {got}\n')
        program.chmod(0o755)
        self.sent(self.run_it(f'sendmail = "{program}"\n', "-s", BEGAN, "--", "-oQ/tmp/queue"))
        *options, sender, end, recipient = pathlib.Path(f"{got}.arguments").read_text().splitlines()
        self.assertEqual((options, end, recipient), (["-i", "-f"], "--", "-oQ/tmp/queue@localhost"))
        self.assertRegex(sender, "^root@|^[a-z]+@")
        self.assertEqual(parsed(got.read_text())["Subject"], BEGAN)
        program.write_text("#!/bin/sh\ncat >/dev/null\necho it is full >&2\nexit 75\n")
        ran = self.run_it(f'sendmail = "{program}"\n', "-s", BEGAN, "alice")
        self.assertEqual(ran.status, 1)
        self.assertIn("it is full", ran.err)

    def test_a_dry_run_shows_the_mail(self):
        ran = self.run_it("", "-s", BEGAN, "alice", "--dry-run")
        self.assertEqual(ran.status, 0, ran.err)
        self.assertEqual(ran.out, f"To: alice@localhost\nSubject: {BEGAN}\n\n{BEGAN}\n\n")


if __name__ == "__main__":
    unittest.main()
