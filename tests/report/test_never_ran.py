"""Jobs that no node saw because they never ran: the report and SLURM's mail say so, and the mail does not wait for them.

sacct is a script. Needs Prometheus.
"""

import sys
import time
import unittest

from mails import body, parsed
from tools import Ran, Samples, program, scratch, server_of

NOW = int(time.time())


def row(number, start, end, state):
    return [str(number), "", "", "alice", "physics", "main", "normal", str(NOW - 4000), str(NOW - 4000), start, end, "0", "00:00:00", state, "0:0", "60", "1", "x"]


# Releases of SLURM differ in the start of a job that was cancelled while it waited.
ROWS = [
    row(36, "None", str(NOW - 400), "CANCELLED by 1001"),
    row(37, "Unknown", "Unknown", "PENDING"),
    row(38, str(NOW - 400), str(NOW - 400), "CANCELLED by 1001"),
    row(39, str(NOW - 3900), str(NOW - 300), "COMPLETED"),
]
SACCT = f"""#!{sys.executable}
import sys
get = lambda name: next(argument.removeprefix(name) for argument in sys.argv if argument.startswith(name))
for row in {ROWS}:
    if row[0] == get("--jobs="):
        print("".join(field + get("--delimiter=") for field in row))
"""
CANCELLED = "Slurm Job_id=36 Name=x Failed, Run time 00:00:00, CANCELLED, ExitCode 0"


class NeverRan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(scratch("jobledger-never-ran"))
        sacct = cls.directory / "sacct"
        sacct.write_text(SACCT)
        sacct.chmod(0o755)
        for name, command in (("asked", sacct), ("not-asked", "never")):
            (cls.directory / f"{name}.toml").write_text(f'[mail]\nfrom = "slurm@example.org"\n[slurm]\nsacct = "{command}"\n')
        cls.program = program()
        samples = Samples()
        samples.put("up", 'job="jobledger",instance="n1:9810"', range(NOW - 600, NOW, 60), 1)
        cls.server = cls.enterClassContext(server_of(samples))

    def run_it(self, config, *arguments):
        return Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/{config}.toml", *arguments)

    def test_the_report_says_so(self):
        for number, says in ((36, "it never ran: CANCELLED after it had waited for 01:00:00"), (37, "it has not run yet: PENDING, and has waited for 01:"),
                             (38, "it never ran: CANCELLED after")):
            ran = self.run_it("asked", "report", str(number))
            self.assertEqual((ran.status, ran.out), (8, ""))
            self.assertIn(f"job {number}: {says}", ran.err)
        # One that ran, and one of which nobody knows.
        for config, number in (("asked", 39), ("asked", 40), ("not-asked", 36)):
            ran = self.run_it(config, "report", str(number))
            self.assertEqual(ran.status, 3, ran.err)
            self.assertIn("no node showed it", ran.err)

    def test_the_mail_says_so_at_once(self):
        for config, says in (("asked", "job 36: it never ran: CANCELLED"), ("not-asked", "job 36 was cancelled before it ran, or in its first second")):
            begun = time.monotonic()
            ran = self.run_it(config, "mail", "--dry-run", "--wait=120", "-s", CANCELLED, "alice@example.org")
            self.assertLess(time.monotonic() - begun, 60)
            text = body(parsed(ran.out))
            self.assertIn(f"There is no report: {says}", text)
            self.assertNotIn("--since", text)


if __name__ == "__main__":
    unittest.main()
