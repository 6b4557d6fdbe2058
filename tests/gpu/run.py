#!/usr/bin/env python3
"""Runs known work on an NVIDIA GPU beside the exporter, and compares: what was done, what was counted.

Needs root, an NVIDIA GPU that nobody else uses, a C compiler, and Python with cupy, torch and nvidia-ml-py. It makes control
groups of jobs that are not there, in a directory of its own, and changes nothing of the GPU. Everything that NVML was asked and
answered is written to OUT/nvml.log, all pages of the exporter to OUT/pages.jsonl, the comparison to OUT/phases.json.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Two readings of a second each, and one that is under way.
SETTLE = 2.3


def note(*words):
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


BEGAN = time.time()


class Worker:
    """A process with the GPU, which does what it is ordered."""

    def __init__(self, name, environment=None):
        self.name = name
        command = [sys.executable, str(HERE / "loads.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})

    def wait(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process is gone"}

    def order(self, load, **rest):
        self.process.stdin.write(json.dumps({"load": load, **rest}) + "\n")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Jobs:
    """Control groups as slurmstepd makes them, and what the prolog writes of each job."""

    def __init__(self, home):
        self.home = home
        self.cgroups = pathlib.Path("/sys/fs/cgroup")
        if not (self.cgroups / "cgroup.procs").exists():
            self.cgroups = home / "cgroup"
            self.cgroups.mkdir()
            subprocess.run(["mount", "-t", "cgroup2", "none", self.cgroups], check=True)
        self.scope = self.cgroups / "system.slice" / "slurmstepd.scope"
        self.made = []
        settings = home / "settings"
        settings.write_text(f"JOBLEDGER_DIR={home}/run\nJOBLEDGER_ASK_CONTROLLER=never\n")
        self.prolog = {"JOBLEDGER_SETTINGS": str(settings)}

    def start(self, job, worker):
        group = self.scope / f"job_{job}" / "step_0" / "user" / "task_0"
        group.mkdir(parents=True)
        self.made.append(group)
        given = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "1001", "SLURM_JOB_USER": f"user{job}", "SLURM_JOB_GPUS": "0"}
        subprocess.run(["sh", ROOT / "slurm/prolog.d/jobledger.sh"], env={**self.prolog, **given}, check=True)
        (group / "cgroup.procs").write_text(str(worker.process.pid))

    def end(self):
        for group in self.made:
            while group != self.scope:
                try:
                    group.rmdir()
                except OSError as error:
                    note("left", group, error)
                    break
                group = group.parent
        self.made = []


class Exporter:
    """One on a port of its own."""

    def __init__(self, binary, port, jobs, home, log, *more, period="1s", library=None, record=None, keep=True):
        command = [binary, f"--web.listen-address=127.0.0.1:{port}", f"--collector.gpu.period={period}", f"--path.cgroupfs={jobs.cgroups}",
                   f"--jobs.metadata-dir={home}/run/jobs", f"--control.socket={home}/control-{port}.sock", "--collector.gpu.processes", *more]
        if keep:
            command.append("--security.no-drop")
        if library:
            command.append(f"--collector.gpu.nvml-library={library}")
        environment = {**os.environ, **({"NVML_RECORD": record} if record else {})}
        self.log = open(log, "wb")
        self.url = f"http://127.0.0.1:{port}/metrics"
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log, env=environment)

    def page(self):
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            return answer.read().decode()

    def ready(self):
        for _ in range(100):
            try:
                if "jobledger_gpu_up" in self.page():
                    return True
            except OSError:
                pass
            time.sleep(0.2)
        return False

    def cpu(self):
        """Of each thread, seconds of CPU time."""
        found = {}
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                text = (task / "stat").read_text()
                run = (task / "schedstat").read_text().split()[0] if (task / "schedstat").exists() else "0"
            except OSError:
                continue
            name = text[text.index("(") + 1:text.rindex(")")]
            fields = text[text.rindex(")") + 2:].split()
            found[name] = found.get(name, 0) + (int(run) / 1e9 or (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()


def series(page):
    found = {}
    for line in page.splitlines():
        if match := re.match(r"(jobledger_(?:job_)?gpu\w*\{[^}]*\}) (\S+)", line):
            found[match[1]] = float(match[2])
    return found


def grown(before, after):
    """Counters that grew, without their GPU's names."""
    found = {}
    for name, value in after.items():
        if "_total{" in name and value != before.get(name, 0):
            short = re.sub(r'(gpu|uuid)="[^"]*",?', "", name).replace(",}", "}").removeprefix("jobledger_")
            found[short] = round(value - before.get(name, 0), 6)
    return found


class Run:
    """All phases."""

    def __init__(self, out, exporter):
        self.out, self.exporter, self.phases = out, exporter, []
        self.pages = open(out / "pages.jsonl", "w")
        self.over = False
        self.scraper = threading.Thread(target=self.scrape, daemon=True)
        self.scraper.start()

    def scrape(self):
        while not self.over:
            try:
                found = series(self.exporter.page())
                self.pages.write(json.dumps([round(time.time(), 3), {k: v for k, v in found.items() if "{" in k}]) + "\n")
            except OSError:
                pass
            time.sleep(2)

    def phase(self, name, *orders, between=None):
        """Orders are (worker, load, arguments)."""
        time.sleep(SETTLE)
        before, began = series(self.exporter.page()), time.time()
        for worker, load, arguments in orders:
            worker.order(load, **arguments)
        more = between() if between else None
        done = {f"{worker.name}": worker.wait() for worker, *_ in orders}
        time.sleep(SETTLE)
        after = series(self.exporter.page())
        found = {"phase": name, "began": began, "ended": time.time(), "done": done, "counted": grown(before, after), "more": more}
        self.phases.append(found)
        (self.out / "phases.json").write_text(json.dumps(self.phases, indent=1))
        note(name, json.dumps(done), json.dumps(more)[:2000] if more else "")
        shown = {k: v for k, v in found["counted"].items() if re.search(r"busy|energy|flop|pipe|dram|pcie|sm_active|xid", k) and "unattributed" not in k}
        for key, value in shown.items():
            print("        ", key, value)
        return found


def asked(user_command, *parts):
    done = subprocess.run([*user_command, sys.executable, str(HERE / "sweep.py"), *parts], capture_output=True, text=True, timeout=120)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stdout + done.stderr)[-1500:]}


def find_library():
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    match = re.search(r"libnvidia-ml\.so\.1 .*=> (\S+)", listed)
    if match:
        return match[1]
    for folder in ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        if pathlib.Path(folder, "libnvidia-ml.so.1").exists():
            return f"{folder}/libnvidia-ml.so.1"
    return "libnvidia-ml.so.1"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exporter", type=pathlib.Path, default=ROOT / "target/release/jobledger-exporter")
    parser.add_argument("--library", default=None, help="NVIDIA's library (default: where the linker finds it)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the length of each phase")
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    home = pathlib.Path(tempfile.mkdtemp(prefix="jobledger-gpu-"))
    home.chmod(0o755)
    (home / "run").mkdir(mode=0o755)
    library = options.library or find_library()
    note("library", library, "kernel", os.uname().release, "cgroup", os.path.exists("/sys/fs/cgroup/cgroup.procs"))
    recorder = home / "libnvidia-ml.so.1"
    source = ROOT / "tests/support/fake-nvml/recorded-nvml.c"
    subprocess.run([shutil.which("cc") or "gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", recorder, source, "-ldl", "-lpthread"], check=True)
    jobs = Jobs(home)
    long = lambda seconds: round(seconds * options.scale, 2)
    workers = []

    def worker(name, environment=None):
        found = Worker(name, environment)
        workers.append(found)
        return found

    exporters = []
    try:
        first, second = worker("first"), worker("second")
        note("workers", first.wait(), second.wait())
        first.order("matmul", seconds=0.1, kind="bf16")
        first.order("latency", seconds=long(6))
        note("warm", first.wait())
        alone = first.wait()
        note("latency without the exporter", json.dumps(alone))
        exporter = Exporter(options.exporter, 9861, jobs, home, options.out / "nvml.log", library=recorder, record=library)
        exporters.append(exporter)
        if not exporter.ready():
            note("the exporter is not ready", (options.out / "nvml.log").read_text(errors="replace")[-3000:])
            return 1
        jobs.start(1, first)
        time.sleep(3)
        run = Run(options.out, exporter)
        cpu = exporter.cpu()
        run.phase("idle", between=lambda: time.sleep(long(5)))
        run.phase("latency", (first, "latency", {"seconds": long(6)}))
        for kind in ("bf16", "tf32", "fp64", "int8", "fp8"):
            run.phase(f"matmul {kind}", (first, "matmul", {"seconds": long(6), "kind": kind}))
        for kernel in ("fma_fp64", "fma_fp32", "fma_fp16", "fma_bf16", "mad_int32"):
            run.phase(kernel, (first, kernel, {"seconds": long(6)}))
        run.phase("vector and tensor in turns", (first, "turns", {"seconds": long(6)}))
        for direction in ("d2d", "h2d", "d2h"):
            run.phase(f"copy {direction}", (first, "copy", {"seconds": long(6), "direction": direction}))
        run.phase("half of the time, by 0.25 s", (first, "duty", {"seconds": long(8), "on": 0.25, "off": 0.25}))
        run.phase("a fifth of the time, by 0.02 s", (first, "duty", {"seconds": long(10), "on": 0.02, "off": 0.08}))
        run.phase("memory", (first, "hold", {"bytes": 5 << 30}))
        run.phase("released and opened again", (first, "fma_fp32", {"seconds": long(6)}), between=lambda: release(exporter, home, long))
        jobs.start(2, second)
        slow = Exporter(options.exporter, 9863, jobs, home, options.out / "slow.log", period="10s", library=options.library)
        exporters.append(slow)
        slow.ready()
        time.sleep(long(11))
        slowly = [(time.time(), series(slow.page()))]
        run.phase("two at once", (first, "fma_fp32", {"seconds": long(10)}), (second, "fma_fp32", {"seconds": long(10)}))
        run.phase("a tenth beside one third", (first, "duty", {"seconds": long(12), "on": 0.1, "off": 0.9}), (second, "duty", {"seconds": long(12), "on": 0.1, "off": 0.2}))
        run.phase("one fifth beside all the time", (first, "duty", {"seconds": long(26), "on": 0.1, "off": 0.4}), (second, "fma_fp32", {"seconds": long(26)}))
        time.sleep(long(11))
        slowly.append((time.time(), series(slow.page())))
        note("read every ten seconds", round(slowly[1][0] - slowly[0][0], 1), json.dumps({k: v for k, v in grown(slowly[0][1], slowly[1][1]).items() if "busy" in k or "energy" in k}))
        note("CPU seconds of its threads", json.dumps(slow.cpu()))
        slow.stop()
        note("CPU seconds of threads", json.dumps({name: round(value - cpu.get(name, 0), 4) for name, value in exporter.cpu().items()}), "in", round(time.time() - run.phases[0]["began"], 1))
        plain = Exporter(options.exporter, 9862, jobs, home, options.out / "plain.log", keep=False, library=options.library)
        exporters.append(plain)
        note("as an ordinary user:", plain.ready())
        result = run.phase("matmul bf16 with two readers", (first, "matmul", {"seconds": long(6), "kind": "bf16"}))
        (options.out / "plain.txt").write_text(plain.page())
        unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        sweeps = {"idle": asked([], "calls", "fields", "activity")}
        def during():
            time.sleep(1)
            return {"root": asked([], "calls", "fields", "activity"), "nobody": asked(unprivileged, "activity", "calls")}
        sweeps["busy"] = run.phase("everything that can be asked", (first, "matmul", {"seconds": long(14), "kind": "bf16"}), between=during)["more"]
        (options.out / "sweeps.json").write_text(json.dumps(sweeps, indent=1))
        for each in (first, second):
            each.stop()
        jobs.end()
        broken = worker("broken")
        broken.wait()
        run.phase("a write where nothing is", (broken, "fault", {}))
        broken.stop()
        shared(run, jobs, worker, home, long)
        run.over = True
        return 0
    finally:
        for each in workers:
            if each.process.poll() is None:
                each.process.kill()
        for each in exporters:
            each.stop()
        time.sleep(0.5)
        jobs.end()
        if jobs.cgroups == home / "cgroup":
            subprocess.run(["umount", jobs.cgroups], check=False)
        for name in ("nvml.log", "pages.jsonl"):
            if (options.out / name).exists():
                subprocess.run(["gzip", "-9f", options.out / name], check=False)


def release(exporter, home, long):
    """The order to close the driver, and to open it again: which of its device nodes are open after each."""
    socket = f"--control.socket={home}/control-9861.sock"

    def nodes():
        links = [os.readlink(path) for path in pathlib.Path(f"/proc/{exporter.process.pid}/fd").iterdir()]
        return sorted({link for link in links if "nvidia" in link and link.startswith("/dev")})

    found = {"before": nodes()}
    for order in ("release", "resume"):
        time.sleep(long(2))
        began = time.time()
        done = subprocess.run([exporter.process.args[0], "gpu", order, socket], capture_output=True, text=True, timeout=30)
        took = time.time() - began
        time.sleep(1.5)
        found[order] = {"status": done.returncode, "said": done.stdout + done.stderr, "took": round(took, 3), "open": nodes()}
    return found


def shared(run, jobs, worker, home, long):
    """Two clients of an MPS server, where that is installed."""
    daemon = shutil.which("nvidia-cuda-mps-control") or next((str(path) for path in pathlib.Path("/usr/local/nvidia").rglob("nvidia-cuda-mps-control")), None)
    if not daemon:
        note("no MPS here")
        return
    for name in ("mps", "mps-log"):
        (home / name).mkdir()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": f"{home}/mps", "CUDA_MPS_LOG_DIRECTORY": f"{home}/mps-log"}
    started = subprocess.run([daemon, "-d"], env={**os.environ, **environment}, capture_output=True, text=True, timeout=20)
    note("MPS", started.returncode, started.stdout, started.stderr)
    try:
        third, fourth = worker("third", environment), worker("fourth", environment)
        for each in (third, fourth):
            note("MPS client", each.wait())
        jobs.start(3, third)
        jobs.start(4, fourth)
        time.sleep(2)
        run.phase("MPS: two at once", (third, "fma_fp32", {"seconds": long(10)}), (fourth, "fma_fp32", {"seconds": long(10)}))
        run.phase("MPS: a tenth beside one third", (third, "duty", {"seconds": long(12), "on": 0.1, "off": 0.9}), (fourth, "duty", {"seconds": long(12), "on": 0.1, "off": 0.2}))
        for each in (third, fourth):
            each.stop()
    finally:
        subprocess.run([daemon], input="quit\n", env={**os.environ, **environment}, text=True, timeout=20, check=False)


if __name__ == "__main__":
    sys.exit(main())
