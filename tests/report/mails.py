"""A real server that takes mails (aiosmtpd, from PyPI), and what tests read of them."""

import email
import email.policy
import json
import pathlib
import subprocess

from tools import ROOT

HERE = pathlib.Path(__file__).resolve().parent


class Sink:
    """A server that takes mails."""

    def __init__(self, *arguments):
        python = subprocess.run([ROOT / "grafana/environment.sh", HERE / "requirements-mail.txt"], capture_output=True, text=True, check=True)
        command = [python.stdout.strip(), HERE / "mail_sink.py", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.communicate()

    def mail(self):
        """The next one."""
        mail = json.loads(self._process.stdout.readline())
        return mail, parsed(mail["text"])


def parsed(text):
    return email.message_from_string(text, policy=email.policy.default)


def body(mail, kind="plain"):
    return mail.get_body((kind,)).get_content().replace("\r\n", "\n")
