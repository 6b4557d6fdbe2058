"""Recordings of `jobledger record`: from an exporter's page that is made here, read by promtool, and reports of them beside those of a Prometheus that
has the same samples.

Needs Debian's prometheus.
"""

import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import unittest

from tools import Ran, program, programs, scratch, server_of_files, wait_for

GIB = 1 << 30


class Page:
    """What an exporter shows of job 7 and of another's, from its own beginning; a test changes it."""

    def __init__(self):
        self.began, self.more, self.job = time.time() - 120, "", True

    def text(self):
        ran = time.time() - self.began
        own = f'''jobledger_job_info{{jobid="7",user="alice",uid="1001",account="physics",partition="main",name="a \\"b\\" \\\\c"}} 1
jobledger_job_start_time_seconds{{jobid="7"}} {self.began:.3f}
jobledger_job_cpus{{jobid="7"}} 4
jobledger_job_allocated_cpu_seconds_total{{jobid="7"}} {4 * ran:.3f}
jobledger_job_cpu_seconds_total{{jobid="7",mode="user"}} {2.5 * ran:.3f}
jobledger_job_cpu_seconds_total{{jobid="7",mode="system"}} {0.5 * ran:.3f}
jobledger_step_cpu_seconds_total{{jobid="7",step="batch",mode="user"}} {0.5 * ran:.3f}
jobledger_step_cpu_seconds_total{{jobid="7",step="0",mode="user"}} {2 * ran:.3f}
jobledger_step_cpu_seconds_total{{jobid="7",step="0",mode="system"}} {0.5 * ran:.3f}
jobledger_step_memory_peak_bytes{{jobid="7",step="0"}} {2 * GIB}
jobledger_task_cpu_seconds_total{{jobid="7",step="0",task="1",mode="user"}} {2 * ran:.3f}
jobledger_job_memory_anon_bytes{{jobid="7"}} {2 * GIB}
jobledger_job_memory_shmem_bytes{{jobid="7"}} {GIB}
jobledger_job_memory_limit_bytes{{jobid="7"}} {8 * GIB}
jobledger_job_memory_peak_bytes{{jobid="7"}} {3 * GIB}
jobledger_job_gpus{{jobid="7"}} 1
jobledger_job_gpu_info{{jobid="7",gpu="0",uuid="GPU-a",model="H100",minor="0"}} 1
jobledger_job_gpu_allocated_seconds_total{{jobid="7",gpu="0",uuid="GPU-a"}} {ran:.3f}
jobledger_job_gpu_busy_seconds_total{{jobid="7",gpu="0",uuid="GPU-a"}} {0.25 * ran:.3f}
''' if self.job else ""
        return own + f'''jobledger_job_info{{jobid="8",user="bob",uid="1002",name="secret"}} 1
jobledger_job_start_time_seconds{{jobid="8"}} {self.began:.3f}
jobledger_gpu_temperature_celsius{{gpu="0",uuid="GPU-a",sensor="gpu"}} 61
jobledger_gpu_temperature_celsius{{gpu="1",uuid="GPU-b",sensor="gpu"}} 62
jobledger_gpu_info{{gpu="0",uuid="GPU-a"}} 1
jobledger_gpu_info{{gpu="1",uuid="GPU-b"}} 1
jobledger_node_cpus 64
jobledger_node_cores 32
jobledger_node_memory_total_bytes {256 * GIB}
jobledger_node_load1 1.5
{self.more}'''


@contextlib.contextmanager
def exporter(page):
    """Serves a page; gives its URL."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = page.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


class Recordings(unittest.TestCase):
    def setUp(self):
        self.program, self.page = program(), Page()
        self.directory = self.enterContext(scratch("jobledger-record"))
        self.url = self.enterContext(exporter(self.page))
        self.file = self.directory / "jobledger-7-n1.om"

    def run_it(self, *arguments, url=None, **environment):
        return Ran(self.program, url, *map(str, arguments), **environment)

    def record(self, *arguments, node="n1", job=7, output=None, **environment):
        """A recording that runs, in the directory."""
        output = output or f"{self.directory}/jobledger-%j-%N.om"
        command = [self.program, "record", "-i1", f"--exporter={self.url}", f"--job={job}", f"--output={output}", *map(str, arguments)]
        clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SLURMD_NODENAME": node} | environment
        return subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def batches(self, file=None):
        file = file or self.file
        return file.read_text().count("jobledger_job_start_time_seconds{") if file.exists() else 0

    def promtool(self, file):
        with scratch("jobledger-blocks") as blocks:
            _, promtool = programs("2")
            return subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", file, blocks], capture_output=True, text=True)

    def report(self, *files, arguments=()):
        ran = self.run_it("report", "--format=json", "--recording", *files, *arguments)
        self.assertIn(ran.status, (0, 4), ran.err)
        return ran.json()

    def test_a_command_is_recorded_and_keeps_its_exit_status_and_its_output(self):
        process = self.record("--", "sh", "-c", f"echo out; until [ $(grep -c job_start_time {self.file}) -ge 4 ]; do sleep 0.1; done; exit 9")
        out, err = process.communicate(timeout=300)
        self.assertEqual((process.returncode, out, err), (9, "out\n", ""))
        text = self.file.read_text()
        self.assertTrue(text.endswith("\n# EOF\n") and text.count("# EOF") == 1)
        self.assertEqual([word for word in ("bob", "secret", "load1", 'jobid="8"') if word in text], [])
        # Read at whole seconds.
        times = sorted({float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")})
        self.assertGreaterEqual(len(times), 4)
        self.assertLess(max(at % 1 for at in times[1:-1]), 0.9, times)
        done = self.promtool(self.file)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_report_of_it_is_that_of_a_server_with_the_same_samples(self):
        files = []
        for node in ("n1", "n2"):
            process = self.record(node=node)
            files.append(self.directory / f"jobledger-7-{node}.om")
            wait_for("a recording", lambda file=files[-1]: self.batches(file) >= 6)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=300)
            self.assertEqual((process.returncode, out, err), (0, "", ""))
        offline = self.report(*files)
        job = offline["job"]
        self.assertEqual((job["id"], job["identity"]["user"], job["identity"]["name"]), (7, "alice", 'a "b" \\c'))
        self.assertEqual([node["name"] for node in job["nodes"]], ["n1", "n2"])
        for node in job["nodes"]:
            values = node["values"]
            ran = values["cpu_allocated_seconds"] / 4
            self.assertAlmostEqual(values["cpu_seconds"], 3 * ran, places=1)
            self.assertEqual((node["memory_held_bytes"], values["memory_peak_bytes"]), (3 * GIB, 3 * GIB))
            self.assertEqual(node["hardware"], {"cpus": 64, "cores": 32, "memory_bytes": 256 * GIB, "gpus": 2})
            (gpu,) = node["gpus"]
            self.assertAlmostEqual(gpu["values"]["gpu_busy_seconds"], 0.25 * ran, places=1)
            self.assertEqual((gpu["uuid"], gpu["model"]), ("GPU-a", "H100"))
            parts = [(part["step"], part["task"], round(part["values"]["cpu_seconds"] / ran, 1)) for part in node["parts"]]
            self.assertEqual(parts, [("batch", None, 0.5), ("0", None, 2.5), ("0", "1", 2)])
            self.assertEqual(node["parts"][1]["values"]["memory_peak_bytes"], 2 * GIB)
        with server_of_files(*files) as server:
            url = f"http://{server.address}"
            online = self.run_it("report", "7", "--format=json", "--no-sacct", url=url).json()
            out = self.directory / "tasks.csv"
            ran = self.run_it("export", "7", "--by=task", "--step=15", "--metrics=cpu_seconds", "--output", out, "--no-sacct", url=url)
            self.assertIn(ran.status, (0, 4), ran.err)
            # The series names no job.
            for sources in (["7", "--no-sacct"], ["--recording", *files]):
                hot = self.directory / "temperature.csv"
                ran = self.run_it("export", "--by=gpu", "--step=15", "--metrics=gpu_temp*", "--output", hot, *sources, url=url)
                self.assertIn(ran.status, (0, 4), ran.err)
                heads, *rows = [line.split(",") for line in hot.read_text().splitlines()]
                self.assertEqual(heads, ["time", "node", "gpu", "gpu_temperature_celsius"])
                self.assertEqual({tuple(row[1:]) for row in rows if row[3]}, {("n1", "0", "61"), ("n2", "0", "61")}, sources)
        heads, *rows = [line.split(",") for line in out.read_text().splitlines()]
        self.assertEqual(heads, ["time", "node", "step", "task", "cpu_seconds_per_second"])
        self.assertEqual({tuple(row[1:4]) for row in rows}, {("n1", "0", "1"), ("n2", "0", "1")})
        # It was there at the first reading, so it began with the job.
        self.assertAlmostEqual(float(rows[0][4]), 2, places=1)
        # A server knows how often it scrapes. It is asked for what was held, and for curves, at times that are 15 seconds apart at least.
        for document in (offline, online):
            for key in ("curves", "quality", "advice"):
                del document[key]
            for node in document["job"]["nodes"]:
                del node["coverage"], node["memory_held_bytes"]
            del document["numbers"]["memory_held_bytes"], document["numbers"]["memory_held_use"]
        self.assertEqual(offline["job"]["nodes"], online["job"]["nodes"])
        self.assertEqual(offline["numbers"], online["numbers"])

    def test_an_export_of_what_is_not_known_is_an_error_and_no_file(self):
        process = self.record()
        wait_for("a recording", lambda: self.batches() >= 2)
        process.terminate()
        process.communicate(timeout=300)
        text = self.file.read_text()
        self.file.write_text("".join(line for line in text.splitlines(True) if "jobledger_task_" not in line))
        out = self.directory / "tasks.csv"
        ran = self.run_it("export", "--recording", self.file, "--by=task", "--output", out)
        self.assertEqual((ran.status, out.exists()), (1, False))
        self.assertIn("nothing is known of the job's tasks: the exporter publishes them with --jobs.tasks\n", ran.err)

    def test_curves_are_those_that_were_recorded(self):
        process = self.record()
        wait_for("a recording", lambda: self.batches() >= 8)
        process.terminate()
        process.communicate(timeout=300)
        out = self.directory / "job.csv"
        ran = self.run_it("export", "--recording", self.file, "--output", out)
        self.assertIn(ran.status, (0, 4), ran.err)
        rows = [line.split(",") for line in out.read_text().splitlines()]
        at = {name: rows[0].index(name) for name in ("cpu_seconds_per_second", "gpus") if name in rows[0]}
        seen = [float(row[at["cpu_seconds_per_second"]]) for row in rows[1:] if row[at["cpu_seconds_per_second"]]]
        self.assertGreaterEqual(len(seen), 6)
        for value in seen[1:-1]:
            self.assertAlmostEqual(value, 3, delta=0.2)

    def test_a_kill_loses_nothing_and_the_next_recorder_goes_on(self):
        for least in (3, 6):
            process = self.record()
            wait_for("a recording", lambda least=least: self.batches() >= least)
            process.kill()
            process.communicate(timeout=300)
            self.assertEqual(self.promtool(self.file).returncode, 0)
        kept = self.batches()
        # The machine died while a line was written.
        with open(self.file, "r+") as file:
            text = file.read()
            file.seek(0)
            file.write(text.removesuffix("# EOF\n") + 'jobledger_job_cpus{jobid="7",inst')
        self.assertEqual(len(self.report(self.file)["job"]["nodes"]), 1)
        process = self.record("--", "true")
        self.assertEqual((process.communicate(timeout=300), process.returncode), (("", ""), 0))
        self.assertGreater(self.batches(), kept)
        self.assertEqual(self.promtool(self.file).returncode, 0)

    def test_a_command_runs_whatever_becomes_of_its_recording(self):
        self.url = "http://127.0.0.1:1/metrics"
        process = self.record("--", "sh", "-c", "echo ran; sleep 2; exit 3")
        out, err = process.communicate(timeout=300)
        self.assertEqual((process.returncode, out), (3, "ran\n"))
        self.assertEqual(err.count("127.0.0.1:1"), 2, err)
        self.assertIn("nothing was recorded", err)
        process = self.record("--", "sh", "-c", "exit 4", output="/nonexistent/x.om")
        _, err = process.communicate(timeout=300)
        self.assertEqual((process.returncode, err), (4, "jobledger: /nonexistent/x.om: No such file or directory (os error 2)\n"))
        process = self.record("--", "no-such-command")
        _, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 127)
        self.assertTrue(err.endswith("\njobledger: no-such-command: No such file or directory (os error 2)\n"), err)
        process = self.record("--", "sh", "-c", "kill -TERM $$")
        self.assertEqual((process.wait(timeout=300), process.communicate()[1].count("nothing was recorded")), (128 + 15, 1))

    def test_a_full_disk_and_a_limit_of_sizes_cost_the_command_nothing(self):
        batch = len(re.sub("(?m)^.*\\b(bob|secret|load1)\\b.*\n", "", self.page.text()))
        small, full = self.directory / "small", "No space left on device (os error 28)"
        small.mkdir()
        limits = {
            f"mount -t tmpfs -o size={-(-5 * batch // 4096) * 4096} tmpfs {small} && ": full,
            f"ulimit -f {5 * batch // 1024} && ": "File too large (os error 27)",
        }
        for limit, why in limits.items():
            kept, file = self.directory / "kept.om", small / "jobledger-7-n1.om"
            record = f"{self.program} record -i1 --exporter={self.url} --job=7 --output={file} -- sh -c 'sleep 12; exit 6'"
            ran = subprocess.run(["unshare", "--mount", "bash", "-c", f"{limit} {record}; status=$?; cp {file} {kept}; exit $status"],
                                 env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SLURMD_NODENAME": "n1"}, capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stderr), (6, f"jobledger: {file}: {why}\n"))
            self.assertGreaterEqual(self.batches(kept), 2)
            self.assertEqual(self.promtool(kept).returncode, 0)
            file.unlink(missing_ok=True)

    def test_a_signal_to_both_is_the_commands_to_answer(self):
        process = self.record("--", "sh", "-c", f"trap 'exit 5' TERM; touch {self.directory}/ready; while :; do sleep 0.1; done")
        wait_for("the command", lambda: (self.directory / "ready").exists())
        process.send_signal(signal.SIGTERM)
        time.sleep(1.5)
        self.assertIsNone(process.poll())
        (child,) = map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(child, signal.SIGTERM)
        self.assertEqual(process.wait(timeout=300), 5)
        process.communicate()

    def test_it_ends_with_the_job(self):
        process = self.record()
        wait_for("a recording", lambda: self.batches() >= 2)
        self.page.more = f'jobledger_job_end_time_seconds{{jobid="7"}} {time.time():.3f}\njobledger_job_state_info{{jobid="7",state="COMPLETED"}} 1\n'
        out, err = process.communicate(timeout=300)
        self.assertEqual((process.returncode, out, err), (0, "", ""))
        job = self.report(self.file)["job"]
        self.assertEqual((job["state"], job["ended"]["state"]), ("ended", "COMPLETED"))
        # Of a node that does not show it any more.
        self.page.job, self.page.more = False, ""
        process = self.record()
        _, err = process.communicate(timeout=300)
        self.assertEqual((process.returncode, err), (3, f"jobledger: nothing was recorded: {self.url} does not show job 7\n"))

    def test_which_job_and_which_file(self):
        self.assertEqual(self.run_it("record", f"--exporter={self.url}").err, "jobledger: which job? --job=NUMBER, or run it inside a job\n")
        for job in (7, 8):
            process = self.record("--", "true", job=job, output=self.directory / "two.om")
            self.assertEqual((process.communicate(timeout=300), process.returncode), (("", ""), 0))
        ran = self.run_it("report", "--recording", self.directory / "two.om")
        self.assertEqual((ran.status, ran.err), (2, "jobledger: which job? There are 7, 8\n"))
        self.assertEqual(self.run_it("report", "9", "--recording", self.directory / "two.om").err, "jobledger: job 9 is not in these recordings\n")
        self.assertIn("Job 8  secret", self.run_it("report", "8", "--recording", self.directory / "two.om").out)
        self.file.write_text("something else\n")
        process = self.record()
        self.assertEqual((process.communicate(timeout=300)[1], process.returncode), (f"jobledger: {self.file}: this is no recording: -o names another file\n", 2))
        self.assertEqual(self.file.read_text(), "something else\n")
        ran = self.run_it("report", "--recording", self.file)
        self.assertEqual((ran.status, ran.err), (3, f"jobledger: {self.file}: no job is recorded there\n"))
        ran = self.run_it("snapshot", "--exporter=ftp://localhost", "--job=7")
        self.assertEqual((ran.status, ran.err), (2, "jobledger: --exporter=ftp://localhost: it begins with neither https:// nor http://\n"))
        ran = self.run_it("report", "--recording", "/nonexistent")
        self.assertEqual((ran.status, ran.err), (1, "jobledger: /nonexistent: No such file or directory (os error 2)\n"))

    def test_a_snapshot_is_a_line_of_json(self):
        ran = self.run_it("snapshot", f"--exporter={self.url}", SLURM_JOB_ID="7", SLURMD_NODENAME="n1")
        self.assertEqual((ran.status, ran.err, ran.out.count("\n")), (0, "", 1))
        job = json.loads(ran.out)["job"]
        self.assertEqual((job["id"], job["state"], [node["name"] for node in job["nodes"]]), (7, "running", ["n1"]))
        self.assertAlmostEqual(job["nodes"][0]["values"]["cpu_seconds"], 3 * (time.time() - self.page.began), delta=30)
        ran = self.run_it("snapshot", f"--exporter={self.url}", "--job=9")
        self.assertEqual((ran.status, ran.err), (3, f"jobledger: {self.url} does not show job 9\n"))


if __name__ == "__main__":
    unittest.main()
