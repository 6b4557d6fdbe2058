"""How the runs of a requeued job ended: what the program reads from a real Prometheus and from sacct is of the run that is asked for.

The samples are those that the exporter gives, written by hand. sacct is a script. Needs Prometheus.
"""

import sys
import time
import unittest

from tools import Ran, Samples, program, scratch, server_of

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
    ["77", "", "", "alice", "physics", "gpu", "normal", str(RUNS[0][0] - 60), str(RUNS[0][0] - 50), str(RUNS[0][0]), str(RUNS[0][1]), str(RUNS[0][1] - RUNS[0][0]), "00:00:00", "REQUEUED", "1:0", "60", "1", "x"],
    ["77", "", "", "alice", "physics", "gpu", "normal", str(RUNS[1][0] - 200), str(RUNS[1][0] - 80), str(RUNS[1][0]), str(RUNS[1][1]), str(RUNS[1][1] - RUNS[1][0]), "00:00:00", "CANCELLED by 1000", "0:15", "180", "1", "x"],
]}:
    print("".join(field + delimiter for field in row))
"""


def samples():
    samples = Samples()
    for start, end, code, state, limit in RUNS:
        after = range(end + 5, end + RETAINED, INTERVAL)
        times = [*range(start + 15, end, INTERVAL), *after]

        def put(name, labels, times, value):
            samples.put(name, JOB + labels, times, value)

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
    # One more got another GPU of the node, and one another node.
    for job, again in ((78, ("n1", "b")), (79, ("n2", "b"))):
        for (node, gpu), (start, end), watts in ((("n1", "a"), (BEGIN, BEGIN + 1200), 400), (again, (BEGIN + 1500, BEGIN + 1800), 300)):
            after = range(end + 5, end + RETAINED, INTERVAL)
            times = [*range(start + 15, end, INTERVAL), *after]

            def put(name, labels, times, value, of=f'jobid="{job}",instance="{node}:9810"'):
                samples.put(name, of + labels, times, value)

            def ran(at, start=start, end=end):
                return min(at, end) - start

            put("jobledger_job_info", ',user="alice"', times, 1)
            put("jobledger_job_start_time_seconds", "", times, start)
            put("jobledger_job_end_time_seconds", "", after, end)
            put("jobledger_job_cpus", "", times, CPUS)
            put("jobledger_job_gpus", "", times, 1)
            put("jobledger_job_allocated_cpu_seconds_total", "", times, lambda at, ran=ran: CPUS * ran(at))
            put("jobledger_job_gpu_info", f',gpu="{gpu}",uuid="GPU-{gpu}",model="H100",minor="0",shared="false"', times, 1)
            for name, value in (("allocated_seconds", 1), ("busy_seconds", 0.9 if gpu == "b" else 0), ("idle_seconds", 0.1 if gpu == "b" else 1), ("energy_joules", watts)):
                put(f"jobledger_job_gpu_{name}_total", f',gpu="{gpu}",uuid="GPU-{gpu}"', times, lambda at, value=value, ran=ran: value * ran(at))
    return samples


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = cls.enterClassContext(scratch("jobledger-runs"))
        sacct = cls.directory / "sacct"
        sacct.write_text(SACCT)
        sacct.chmod(0o755)
        (cls.directory / "asked.toml").write_text(f'[slurm]\nsacct = "{sacct}"\n')
        (cls.directory / "not-asked.toml").write_text('[slurm]\nsacct = "never"\n')
        cls.program = program()
        cls.server = cls.enterClassContext(server_of(samples()))

    def document(self, config, *arguments, number="77"):
        ran = Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/{config}.toml", "report", "--format=json", number, *arguments)
        self.assertEqual(ran.status, 0, ran.err)
        return ran.json()

    def job(self, *arguments, **more):
        return self.document(*arguments, **more)["job"]

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

    def test_a_list_has_what_was_said_of_each_run(self):
        ran = Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/not-asked.toml", "list", "77", "--format=parsable", "--columns=job,state,time")
        # Twenty minutes of an hour, and 25 of two; that it failed was said of the first.
        self.assertEqual((ran.status, ran.out, ran.err), (0, f"job|state|time\n77|FAILED|{1 / 3}\n77|ended|{1500 / 7200}\n", ""))

    def test_gpus_are_those_of_their_run(self):
        held = lambda job: [(node["name"], gpu["uuid"], gpu["model"], gpu["values"]["gpu_energy_joules"]) for node in job["nodes"] for gpu in node["gpus"]]  # noqa: E731
        for number, node in (("78", "n1"), ("79", "n2")):
            with self.subTest(number):
                document = self.document("not-asked", number=number)
                last, curves = document["job"], document["curves"]["metrics"]
                self.assertEqual([series["gpu"] for name, metric in curves.items() if name.startswith("gpu_") for series in metric["series"]], ["b"] * 3)
                self.assertEqual(held(last), [(node, "GPU-b", "H100", 300 * 300)])
                self.assertEqual((last["run"], last["runs"]), (2, 2))
                self.assertEqual(held(self.job("not-asked", "--run=1", number=number)), [("n1", "GPU-a", "H100", 400 * 1200)])
                ran = Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/not-asked.toml", "list", number, "--format=parsable", "--columns=gpus,gpu,advice")
                self.assertEqual((ran.status, ran.out.splitlines()[1:], ran.err), (0, ["1|0|", "1|0.9|"], ""))
                ran = Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/not-asked.toml", "report", number)
                self.assertIn("The job was requeued: this is the last of its 2 runs", " ".join(ran.out.split()))


if __name__ == "__main__":
    unittest.main()
