"""Runs of the program `jobledger`."""

import json
import os
import subprocess


class Ran:
    """A run of jobledger: its exit status and what it wrote."""

    def __init__(self, path, url, *arguments, **environment):
        clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TZ": "UTC"} | ({"JOBLEDGER_URL": url} if url else {}) | environment
        done = subprocess.run([str(path), *arguments], env=clean, capture_output=True, timeout=300)
        self.status, self.out, self.err = done.returncode, done.stdout.decode(), done.stderr.decode()

    def json(self):
        return json.loads(self.out)
