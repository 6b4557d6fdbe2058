"""What `jobledger report --format=jobstats-blob` writes, by reportseff and by a reader of our own.

The blob is that of a report whose numbers are known (cli/src/testing.rs); what readers should find is written down here by hand. sacct and
scontrol are scripts. Needs python3-venv; reportseff comes from PyPI.
"""

import base64
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FORMATS = ROOT / "cli/tests/formats"
JOB = "39798795"
GIB = 2**30
# By node: CPU seconds, bytes held, and per cent of the time that each GPU was busy, by the number of its device file.
NODES = {"node1": (164480, 7.9, {"0": 65.5, "1": 64.6}), "node2": (154135, 7.8, {"2": 0, "3": 67.5})}
ELAPSED = 67316

SACCT = f"""#!{sys.executable}
import os, sys
known = {{"JobID": "{JOB}", "JobIDRaw": "{JOB}", "State": "COMPLETED", "Elapsed": "18:41:56", "Timelimit": "4-00:00:00", "TotalCPU": "1-00:00:00",
         "AllocCPUS": "48", "NNodes": "2", "ReqMem": "256G", "MaxRSS": "", "NTasks": "", "Partition": "gpu", "AdminComment": os.environ["BLOB"]}}
if "--helpformat" in sys.argv:
    print(*known)
else:
    (fields,) = [argument.removeprefix("--format=") for argument in sys.argv if argument.startswith("--format=")]
    print("".join(known[field] + "^|^" for field in fields.split(",")))
"""
SCONTROL = "#!/bin/sh\necho 'PartitionName=gpu MaxTime=7-00:00:00'\n"


def blob():
    return (FORMATS / "report.jobstats.blob").read_text().removesuffix("\n")


class Blob(unittest.TestCase):
    def test_it_is_what_the_job_used(self):
        begin, content = blob().split(":")
        self.assertEqual(begin, "JS1")
        text = gzip.decompress(base64.b64decode(content, validate=True)).decode("ascii")
        found = json.loads(text)
        self.assertEqual(text, json.dumps(found, separators=(",", ":")), "compact, as Python writes it")
        self.assertEqual(list(found), ["nodes", "total_time", "gpus"])
        self.assertEqual((found["total_time"], found["gpus"], list(found["nodes"])), (ELAPSED, 4, list(NODES)))
        for name, (seconds, held, gpus) in NODES.items():
            node = found["nodes"][name]
            self.assertEqual(node, {
                "total_memory": 128 * GIB, "used_memory": round(held * GIB), "total_time": seconds, "cpus": 24,
                "gpu_total_memory": dict.fromkeys(gpus, 40 * GIB), "gpu_used_memory": dict.fromkeys(gpus, 53 * GIB // 2), "gpu_utilization": gpus,
            })
        printed = (FORMATS / "report.jobstats.json").read_text()
        self.assertEqual(printed, json.dumps(found, indent=4, sort_keys=True) + "\n", "as jobstats --json")

    def test_it_begins_as_jobstats_epilog_wants(self):
        self.assertRegex(blob(), r"^JS1:H4s[A-Za-z0-9+/]+=*$")


class Reportseff(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        asked = subprocess.run([ROOT / "grafana/environment.sh", HERE / "requirements-formats.txt"], capture_output=True, text=True, check=True)
        cls.python = asked.stdout.strip()
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.path = Path(directory.name)
        for name, script in {"sacct": SACCT, "scontrol": SCONTROL}.items():
            (cls.path / name).write_text(script)
            (cls.path / name).chmod(0o755)

    def columns(self, *arguments):
        """The words of each line."""
        done = subprocess.run(
            [self.python, "-c", "from reportseff.console import main; main()", "--no-color", *arguments, JOB], cwd=self.path,
            capture_output=True, text=True, env=os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}", "BLOB": blob()})
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return [line.split() for line in done.stdout.splitlines() if line.strip()]

    def test_it_shows_our_efficiencies(self):
        lines = self.columns("--node-and-gpu", "--format=JobID,CPUEff,MemEff,GPUEff,GPUMem")
        # The job: means over nodes. A node's GPUs: 65.05 and 33.75, of which a float is a little less or more.
        self.assertEqual(lines[1], [JOB, "9.9%", "6.1%", "49.4%", "66.2%"])
        rows = {line[0]: line[1:] for line in lines[2:]}
        self.assertEqual(list(rows), ["node1", "0", "1", "node2", "2", "3"])
        for name, (seconds, held, gpus) in NODES.items():
            cpu, memory, gpu, gpu_memory = (float(cell.rstrip("%")) for cell in rows[name])
            self.assertAlmostEqual(cpu, 100 * seconds / (24 * ELAPSED), delta=0.051)
            self.assertAlmostEqual(memory, 100 * held / 128, delta=0.051)
            self.assertAlmostEqual(gpu, sum(gpus.values()) / 2, delta=0.051)
            self.assertAlmostEqual(gpu_memory, 66.25, delta=0.051)
            for number, part in gpus.items():
                self.assertEqual(float(rows[number][0].rstrip("%")), part)


if __name__ == "__main__":
    unittest.main()
