"""How the runs of a requeued job ended: what the program reads from a real Prometheus and from sacct is of the run that is asked for.

The samples are those that the exporter gives, written by hand. sacct is a script. Needs Prometheus.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/e2e"))

from testbed.processes import free_ports, running, scratch, wait_for  # noqa: E402
from testbed.prometheus import Prometheus, programs  # noqa: E402

JOB = 'jobid="77",instance="n1:9810"'
BEGIN = int(time.time()) // 60 * 60 - 7200
# Start, end, exit code, state that follows from it, time limit. The second one ended with code 0, which decides nothing.
RUNS = [(BEGIN, BEGIN + 1200, 1, "FAILED", 3600), (BEGIN + 1500, BEGIN + 3000, 0, None, 7200)]
CPUS = 4
INTERVAL, RETAINED = 30, 120

SACCT = f"""#!{sys.executable}
import sys
(delimiter,) = [argument.removeprefix("--delimiter=") for argument in sys.argv if argument.startswith("--delimiter=")]
for row in {[
    ["77", "alice", "physics", "gpu", "normal", str(RUNS[0][0] - 60), str(RUNS[0][0] - 50), str(RUNS[0][0]), str(RUNS[0][1]), "REQUEUED", "1:0", "60", "1", "x"],
    ["77", "alice", "physics", "gpu", "normal", str(RUNS[1][0] - 200), str(RUNS[1][0] - 80), str(RUNS[1][0]), str(RUNS[1][1]), "CANCELLED by 1000", "0:15", "180", "1", "x"],
]}:
    print("".join(field + delimiter for field in row))
"""


def samples():
    """In OpenMetrics: each series' samples in a row."""
    families = {}

    def put(name, labels, times, value):
        series = families.setdefault(name, {}).setdefault(f"{JOB}{labels}", [])
        series += [(value(at) if callable(value) else value, at) for at in times]

    for start, end, code, state, limit in RUNS:
        after = range(end + 5, end + RETAINED, INTERVAL)
        times = [*range(start + 15, end, INTERVAL), *after]
        put("jobledger_job_info", ',user="alice"', times, 1)
        put("jobledger_job_start_time_seconds", "", times, start)
        put("jobledger_job_end_time_seconds", "", after, end)
        put("jobledger_job_cpus", "", times, CPUS)
        put("jobledger_job_time_limit_seconds", "", times, limit)
        put("jobledger_job_nodes_asked", "", times, 1)
        put("jobledger_job_exit_code", "", after, code)
        put("jobledger_job_allocated_cpu_seconds_total", "", times, lambda at: CPUS * (min(at, end) - start))
        put("jobledger_job_cpu_seconds_total", ',mode="user"', times, lambda at: CPUS / 2 * (min(at, end) - start))
        if state:
            put("jobledger_job_state_info", f',state="{state}",origin="derived"', after, 1)
    for name, series in families.items():
        counter = name.endswith("_total")
        yield f"# TYPE {name.removesuffix('_total')} {'counter' if counter else 'gauge'}"
        yield from (f"{name}{{{labels}}} {value} {at}" for labels, points in series.items() for value, at in points)
    yield "# EOF\n"


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        binary, promtool = programs(os.environ.get("JOBLEDGER_PROMETHEUS", "2"))
        cls.directory = cls.enterClassContext(scratch("jobledger-runs"))
        (cls.directory / "samples").write_text("\n".join(samples()))
        (cls.directory / "config").write_text("global: {}\n")
        subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", cls.directory / "samples", cls.directory / "data"],
                       check=True, capture_output=True)
        sacct = cls.directory / "sacct"
        sacct.write_text(SACCT)
        sacct.chmod(0o755)
        (cls.directory / "asked.toml").write_text(f'[slurm]\nsacct = "{sacct}"\n')
        (cls.directory / "not-asked.toml").write_text('[slurm]\nsacct = "never"\n')
        (port,) = free_ports(1)
        cls.server = Prometheus(f"127.0.0.1:{port}")
        cls.enterClassContext(running([str(binary), f"--config.file={cls.directory}/config", f"--storage.tsdb.path={cls.directory}/data",
                                       f"--web.listen-address={cls.server.address}"], cls.directory / "log"))

        def answers():
            with contextlib.suppress(OSError):
                return cls.server.get("status/runtimeinfo")

        wait_for("Prometheus", answers)

    def job(self, config, *arguments):
        done = subprocess.run([os.environ.get("CARGO", "cargo"), "run", "--quiet", "--locked", "-p", "jobledger", "--", f"--config={self.directory}/{config}.toml",
                               f"--url=http://{self.server.address}", "report", "--format=json", "77", *arguments], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["job"]

    def test_what_the_epilog_said_is_of_its_run(self):
        first = self.job("not-asked", "--run=1")
        self.assertEqual(first["ended"], {"state": "FAILED", "origin": "derived", "exit_code": 1, "signal": None})
        self.assertEqual((first["time_limit"], first["nodes_allocated"], first["nodes"][0]["end"]), (3600, 1, RUNS[0][1]))
        for last in (self.job("not-asked", "--run=2"), self.job("not-asked")):
            self.assertEqual((last["ended"], last["time_limit"], last["nodes"][0]["end"]), (None, 7200, RUNS[1][1]))

    def test_the_accounting_goes_before_it(self):
        first = self.job("asked", "--run=1")
        self.assertEqual(first["ended"], {"state": "REQUEUED", "origin": "accounting", "exit_code": 1, "signal": None})
        self.assertEqual((first["time_limit"], first["queued_seconds"]), (3600, 50))
        last = self.job("asked")
        self.assertEqual(last["ended"], {"state": "CANCELLED", "origin": "accounting", "exit_code": 0, "signal": 15})
        self.assertEqual((last["time_limit"], last["queued_seconds"], last["identity"]["account"]), (10800, 80, "physics"))


if __name__ == "__main__":
    unittest.main()
