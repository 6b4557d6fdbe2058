#!/usr/bin/env python3
"""How long `jobledger` takes for large jobs and for many, beside the bare requests: the same ones, sent by as many connections, whose answers are read
and thrown away.

`make bench-report`; as arguments the names of cases. The samples are written by hand, one a minute, into a real Prometheus (Debian's). The program is
$JOBLEDGER_CLI. Prints a table; nothing fails for being slow, since machines differ. The ratio is what can be compared.

`record-own` makes cgroups of a job and traces a reading of them: it needs root, strace and a C compiler.
"""

import concurrent.futures
import contextlib
import http.client
import http.server
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

from test_spool import node, of_job  # noqa: E402
from tools import Prometheus, cpu_seconds, free_ports, program, programs, running, scratch, wait_for  # noqa: E402

GIB, MINUTE, HOUR, DAY = 1 << 30, 60, 3600, 86400
NOW = int(time.time()) // MINUTE * MINUTE
# The program's own bound.
CONNECTIONS = 4

COUNTERS = [  # Of a job on a node: name and labels, and how fast each grows.
    ("cpu_seconds_total", 'mode="user"', 30.0), ("cpu_seconds_total", 'mode="system"', 1.0), ("allocated_cpu_seconds_total", "", 64.0), ("cpu_throttled_seconds_total", "", 0.0),
    ("oom_kills_total", "", 0.0), ("page_faults_total", 'type="major"', 0.1), ("io_read_bytes_total", 'device="sda"', 1e6), ("io_written_bytes_total", 'device="sda"', 2e6),
    ("io_operations_total", 'device="sda",direction="read"', 10.0), ("io_operations_total", 'device="sda",direction="write"', 20.0),
    ("process_syscall_read_bytes_total", "", 3e6), ("process_syscall_written_bytes_total", "", 2e6), ("lustre_read_bytes_total", 'filesystem="scratch"', 5e6),
    ("lustre_written_bytes_total", 'filesystem="scratch"', 5e6), ("network_received_bytes_total", "", 1e5), ("network_transmitted_bytes_total", "", 1e5),
    ("infiniband_received_bytes_total", 'device="mlx5_0",port="1"', 1e8), ("infiniband_transmitted_bytes_total", 'device="mlx5_0",port="1"', 1e8), ("alone_seconds_total", "", 1.0),
    ("energy_joules_total", 'domain="package",socket="0"', 150.0), ("energy_joules_total", 'domain="package",socket="1"', 150.0), ("energy_joules_total", 'domain="dram",socket="0"', 20.0),
    ("energy_joules_total", 'domain="overhead"', 50.0), ("instructions_total", "", 1e10), ("cycles_total", "", 9e9), ("flops_total", 'precision="double",width="512"', 1e11),
    ("memory_traffic_bytes_total", 'kind="dram",socket="0"', 1e10), ("counted_cpu_seconds_total", "", 31.0), ("pressure_seconds_total", 'resource="cpu",kind="some"', 0.1),
    ("pressure_seconds_total", 'resource="memory",kind="some"', 0.0), ("pressure_seconds_total", 'resource="io",kind="some"', 0.02),
]
GAUGES = [("cpus", 64), ("memory_peak_bytes", 100 * GIB), ("memory_limit_bytes", 250 * GIB), ("memory_used_bytes", 90 * GIB), ("memory_anon_bytes", 70 * GIB), ("memory_shmem_bytes", GIB),
          ("processes", 65), ("threads", 130), ("time_limit_seconds", 2 * DAY)]
GPU_COUNTERS = [("gpu_allocated_seconds_total", 1.0), ("gpu_busy_seconds_total", 0.8), ("gpu_idle_seconds_total", 0.2), ("gpu_sm_active_seconds_total", 0.6), ("gpu_dram_active_seconds_total", 0.3),
                ("gpu_energy_joules_total", 300.0)]
GPU_GAUGES = [("gpu_memory_used_bytes", 30 * GIB), ("gpu_memory_peak_bytes", 31 * GIB), ("gpu_memory_limit_bytes", 80 * GIB)]


def job_on_node(number, node, start, end, now, gpus, user="alice"):
    """The lines of a job on a node. It is exported for five minutes after its end."""
    labels = f'jobid="{number}",instance="n{node:04}:9810",job="jobledger"'
    times = [at for at in range(start + MINUTE, min(end + 300, now), MINUTE)]
    noise = (number * 7919 + node * 104729) % 1000 / 1000
    out = []

    def put(name, more, value):
        more = f",{more}" if more else ""
        out.extend(f"jobledger_job_{name}{{{labels}{more}}} {value(at)} {at}\n" for at in times)

    def constant(value):
        return lambda at: value

    put("info", f'user="{user}",uid="1000",account="physics",partition="gpu",qos="normal",name="bench"', constant(1))
    put("start_time_seconds", "", constant(start))
    if end < now:
        out.extend(f"jobledger_job_end_time_seconds{{{labels}}} {end} {at}\n" for at in times if at >= end)
    for name, more, rate in COUNTERS:
        put(name, more, lambda at, rate=rate * (0.5 + noise): round(rate * (min(at, end) - start), 3))
    for name, value in GAUGES:
        put(name, "", constant(value))
    put("gpus", "", constant(gpus))
    for gpu in range(gpus):
        of = f'gpu="{gpu}",uuid="GPU-{node:04}-{gpu}"'
        put("gpu_info", of + f',model="A100",minor="{gpu}",profile="",shared="false"', constant(1))
        for name, rate in GPU_COUNTERS:
            put(name, of, lambda at, rate=rate: round(rate * (min(at, end) - start), 3))
        for name, value in GPU_GAUGES:
            put(name, of, constant(value))
    for name, value in (("cpus", 64), ("cores", 64), ("memory_total_bytes", 256 * GIB)):
        out.extend(f'jobledger_node_{name}{{instance="n{node:04}:9810",job="jobledger"}} {value} {at}\n' for at in times[::60])
    out.extend(f'up{{instance="n{node:04}:9810",job="jobledger"}} 1 {at}\n' for at in times)
    return out


def nodes_of_a_job(count, gpus):
    """Files of a job of a day on so many nodes."""
    return [[(7, node, NOW - DAY - HOUR, NOW - HOUR, NOW, gpus)] for node in range(count)]


def jobs_of_a_week(count):
    """Files of jobs of half an hour, spread over a week and 500 nodes, and a hundred users; they ended."""
    first, files = NOW - 7 * DAY + HOUR, []
    for at in range(count):
        start = first + at * (7 * DAY - 3 * HOUR) // count // MINUTE * MINUTE
        files.append((1000 + at, at % 500, start, start + 1800, NOW, at % 4, f"user{at % 100:02}"))
    return [files[at:at + 50] for at in range(0, count, 50)]


ROWS = [("start_time_seconds:min", 0), ("end_time_seconds:max", 1800), ("nodes:count", 1), ("allocated_cpu_seconds:sum", 64 * 1800), ("cpu_seconds:sum", 31 * 1800),
        ("idle_core_seconds:sum", 33 * 1800), ("memory_peak_bytes:max", 100 * GIB), ("memory_limit_bytes:sum", 250 * GIB)]


def block(work):
    """Makes blocks of a file's jobs."""
    promtool, directory, at, jobs = work
    path = pathlib.Path(directory) / f"{at}.om"
    with path.open("w") as file:
        for job in jobs:
            file.writelines(job_on_node(*job))
            if len(job) > 6:
                number, _, start, end, *_ = job
                labels = f'jobid="{number}",user="{job[6]}",account="physics",partition="gpu"'
                for name, value in ROWS:
                    value = value + start if "time" in name and "_seconds:m" in name else value
                    file.writelines(f"ended:jobledger_job_{name}{{{labels}}} {value} {row}\n" for row in range(end + 30, end + 330, MINUTE))
        file.write("# EOF\n")
    subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h", path, pathlib.Path(directory) / "data" / str(at)], check=True, capture_output=True)
    path.unlink()


def server_over(stack_directory, files):
    """Fills a Prometheus. Its blocks are made in groups, each by a promtool of its own."""
    binary, promtool = programs("2")
    (stack_directory / "data").mkdir()
    groups = 32
    parts = [[job for file in files[at::groups] for job in file] for at in range(groups)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(block, [(promtool, str(stack_directory), at, jobs) for at, jobs in enumerate(parts) if jobs], chunksize=1)
    tsdb = stack_directory / "tsdb"
    tsdb.mkdir()
    for made in (stack_directory / "data").iterdir():
        for each in made.iterdir():
            each.rename(tsdb / each.name)
    (stack_directory / "config").write_text("global: {}\n")
    (port,) = free_ports(1)
    server = Prometheus(f"127.0.0.1:{port}")
    process = running([str(binary), f"--config.file={stack_directory}/config", f"--storage.tsdb.path={tsdb}", f"--web.listen-address={server.address}",
                       "--storage.tsdb.allow-overlapping-blocks", "--storage.tsdb.retention.time=60d"], stack_directory / "log")
    return server, process


class Tap(http.server.BaseHTTPRequestHandler):
    """Passes requests on, and keeps them."""

    protocol_version = "HTTP/1.1"
    asked, target = [], ""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.pass_on("POST", body)

    def do_GET(self):
        self.pass_on("GET", None)

    def pass_on(self, method, body):
        Tap.asked.append((method, self.path, body, {name: self.headers[name] for name in ("Content-Type", "Accept-Encoding") if name in self.headers}))
        status, headers, answer = bare(Tap.asked[-1])
        self.send_response(status)
        for name in ("Content-Type", "Content-Encoding"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def bare(asked):
    """Sends a request; its status, headers and answer."""
    method, path, body, headers = asked
    connection = http.client.HTTPConnection(Tap.target, timeout=300)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    result = answer.status, answer.headers, answer.read()
    connection.close()
    return result


def timed(command, environment):
    """Seconds, most memory in MiB, and the end of what it said."""
    begun = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command}: {process.returncode}: {said}")
    return time.monotonic() - begun, usage.ru_maxrss / 1024


def measure(cli, address, name, arguments):
    """A row of the table."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TZ": "UTC"}
    command = [str(cli), *arguments, "--no-sacct", "--timeout=300"]
    Tap.asked, Tap.target = [], address
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tap) as tap:
        threading.Thread(target=tap.serve_forever, daemon=True).start()
        timed([*command, f"--url=http://127.0.0.1:{tap.server_address[1]}"], environment)
        tap.shutdown()
    asked, ours, theirs, memory = list(Tap.asked), [], [], 0
    for _ in range(3):
        seconds, memory = timed([*command, f"--url=http://{address}"], environment)
        ours.append(seconds)
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            size = sum(len(answer[2]) for answer in pool.map(bare, asked))
        theirs.append(time.monotonic() - begun)
    ours, theirs = min(ours), min(theirs)
    print(f"{name:34} {len(asked):4} requests {size / 1e6:8.2f} MB   {ours:7.3f} s   bare {theirs:7.3f} s   ratio {ours / theirs:5.2f}   {memory:5.0f} MiB", flush=True)


CASES = {
    "1 node": (lambda: nodes_of_a_job(1, 4), [("report", ["report", "7"])]),
    "64 nodes": (lambda: nodes_of_a_job(64, 4), [
        ("report", ["report", "7"]), ("report --format=html", ["report", "7", "-o", "OUT.html"]), ("report --format=pdf", ["report", "7", "-o", "OUT.pdf"]),
        ("export .parquet", ["export", "7", "-o", "OUT.parquet"]), ("export .parquet --by=gpu", ["export", "7", "-o", "OUT.parquet", "--by=gpu"]),
        ("export .csv", ["export", "7", "-o", "OUT.csv"]), ("export .h5", ["export", "7", "-o", "OUT.h5"])]),
    "1000 nodes": (lambda: nodes_of_a_job(1000, 0), [("report", ["report", "7"])]),
    "a week of 10,000 jobs": (lambda: jobs_of_a_week(10_000), [
        ("waste --by=user", ["waste", "--by=user", "--since=7d"]), ("list --user=user07", ["list", "--user=user07", "--since=7d"]),
        ("list --user=all", ["list", "--user=all", "--since=7d"]), ("digest", ["digest", "--policies=POLICIES", "--since=7d"]), ("top --once", ["top", "--once"])]),
}


RECORDED, JOB, READINGS = ROOT / "tests/fixtures/v2-big/expected.prom", "1001", 30


class Exporter(http.server.BaseHTTPRequestHandler):
    """A page of a recorded machine."""

    page = RECORDED.read_bytes()

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_):
        pass


def record(cli):
    """A row: what a reading of an exporter costs the job that is recorded."""
    with scratch("jobledger-bench") as directory, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        file = directory / "job.om"
        command = [str(cli), "record", "-i1", f"--job={JOB}", f"--exporter=http://127.0.0.1:{server.server_address[1]}/metrics", f"--output={file}", "--", "sleep", str(READINGS)]
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        server.shutdown()
        text = file.read_text()
        readings = text.count("jobledger_job_start_time_seconds{")
        spent, size = usage.ru_utime + usage.ru_stime, len(text) / readings
        print(f"record, {len(Exporter.page) / 1000:.0f} kB of the exporter: {spent / readings * 1000:.1f} ms of CPU time, {text.count(chr(10)) // readings} samples and {size / 1000:.0f} kB "
              f"a reading; {usage.ru_maxrss / 1024:.0f} MiB", flush=True)


CGROUP, NUMBER = "jobledger-bench/job_7001234", 7001234
# Where SLURM has the processes of a task, below its job.
TASK = {"v1": "step_0/task_0", "v2": "step_0/user/task_0"}
FLOOR = pathlib.Path(__file__).with_name("floor.c")


def hierarchies(version):
    """Where the cgroups of a version are mounted, those of v1 that a job has at SLURM."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    if version == "v2":
        return [pathlib.Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"][:1]
    wanted = {"cpu", "cpuacct", "cpuset", "freezer", "memory"}
    return [pathlib.Path(mount[1]) for mount in mounts if mount[2] == "cgroup" and wanted & set(mount[3].split(","))]


@contextlib.contextmanager
def job_of_processes(version, count):
    """The cgroups of a job with so many processes, which sleep; gives what a further process has to write its number to."""
    made, lists, processes = [], [], []
    try:
        for mount in hierarchies(version):
            directory = mount
            for part in [*CGROUP.split("/"), *TASK[version].split("/")]:
                directory /= part
                directory.mkdir()
                made.append(directory)
                # A new cpuset is empty.
                for file in ("cpuset.cpus", "cpuset.mems") if version == "v1" and (directory / "cpuset.cpus").exists() else ():
                    (directory / file).write_text((directory.parent / file).read_text())
            lists.append(directory / "cgroup.procs")
        for _ in range(count):
            processes.append(subprocess.Popen(["sleep", "infinity"]))
            for each in lists:
                each.write_text(str(processes[-1].pid))
        yield lists
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for directory in reversed(made):
            directory.rmdir()


def files_of_a_reading(process, directory):
    """What one reading of a recorder opens, lists, or reads where it is open: lines for the floor."""
    trace = directory / "trace"
    strace = subprocess.Popen(["strace", "-f", "-y", "-qq", "-s0", "-e", "trace=openat,pread64", f"-p{process.pid}", "-o", trace])
    time.sleep(3)
    strace.terminate()
    strace.wait()
    found = set()
    for line in trace.read_text().splitlines():
        if held := re.search(r"pread64\(\d+<(/.*)/(.*?)>", line):
            found.add(f"held {held[1]} {held[2]}\n")
        elif opened := re.search(r'openat\(\d+<(.*?)>, "(.*?)", (\S+?)\) = \d', line):
            if "O_PATH" not in opened[3]:
                found.add(f"{'list' if 'O_DIRECTORY' in opened[3] else 'read'} {opened[1]} {opened[2]}\n")
    return sorted(found)


def record_own(cli, version, count):
    """A row: what a reading of a job's own cgroup costs, beside the bare calls, once a second and in turn."""
    with scratch("jobledger-bench") as directory, job_of_processes(version, count) as lists:
        subprocess.run(["cc", "-O2", "-w", "-o", directory / "floor", FLOOR], check=True)
        process = subprocess.Popen(["sh", "-c", f"for list in {' '.join(map(str, lists))}; do echo $$ > $list; done; exec \"$@\"", "sh", str(cli), "record", "-i1", "--own-cgroup",
                                    f"--job={NUMBER}", f"--output={directory}/job.om"])
        wait_for("a recording", lambda: (directory / "job.om").exists())
        files = files_of_a_reading(process, directory)
        (directory / "files").write_text("".join(files))
        with (directory / "files").open() as lines:
            floor = subprocess.Popen([directory / "floor", str(READINGS)], stdin=lines, stdout=subprocess.PIPE, text=True)
        ours, before = [], None
        while floor.poll() is None:
            time.sleep(1 - (time.time() + 0.25) % 1)
            now = cpu_seconds(process)
            ours += [] if before is None else [(now - before) * 1e6]
            before = now
        theirs = [float(line) for line in floor.stdout]
        process.terminate()
        process.wait()
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print(f"record, own cgroup of {version}, {count:3} processes {len(files):4} files   {ours:7.0f} us of CPU time   bare {theirs:7.0f} us   ratio {ours / theirs:5.2f}", flush=True)


def questions(server):
    """How many queries Prometheus answered, by its own count."""
    with urllib.request.urlopen(f"http://{server.address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('prometheus_http_requests_total{') and 'handler="/api/v1/query' in line)


def of_the_spool(worker):
    """Processes of the worker and its resident kB."""
    children = pathlib.Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{worker.pid}/status").read_text())
    return len(children), int(kilobytes)


def spool(cli, count):
    """So many jobs end at once, each with a mail: first while no end was scraped, then until all mails are handed over."""
    with node() as (shown, server), scratch("jobledger-bench") as directory:
        (directory / "sendmail").write_text("#!/bin/sh\nexec cat >/dev/null\n")
        (directory / "sendmail").chmod(0o755)
        config = directory / "jobledger.toml"
        config.write_text(f'[server]\nurl = "http://{server.address}"\n[slurm]\nsacct = "never"\n[mail]\nsendmail = "{directory}/sendmail"\n[spool]\ndirectory = "{directory}/spool"\n')
        start, jobs = time.time() - 100, range(1000, 1000 + count)
        shown.page = "".join(line for job in jobs for line in of_job(job, start))
        wait_for("the jobs to be scraped", lambda: server.query(f"count(jobledger_job_cpus) == {count}"))
        with running([str(cli), f"--config={config}", "spool"], directory / "log", env={"HOME": "/nonexistent"}) as worker:
            wait_for("the worker", lambda: (directory / "spool/lock").exists())
            time.sleep(1)

            took, subject = [], "Slurm Job_id={} Name=x Ended, Run time 00:01:40"
            for job in jobs[:100]:
                begun = time.monotonic()
                subprocess.run([cli, f"--config={config}", "mail", "--spool", f"--subject={subject.format(job)}", "--", "alice"], check=True)
                took.append(time.monotonic() - begun)
            print(f"spool: a mail is put in {statistics.median(took) * 1000:.0f} ms, at most {max(took) * 1000:.0f} ms", flush=True)
            # The others as it writes them: with a process for each the first would have waited long enough.
            now = time.time()
            for job in jobs[100:]:
                task = {"mail": {"subject": subject.format(job), "recipient": "alice", "mail_type": None, "job_id": None}}
                (directory / f"spool/{now + job / 1e6:.9f}-1").write_text(json.dumps({"time": now, "task": task}))
            asked, begun = questions(server), time.monotonic()
            time.sleep(30)
            rate, (processes, kilobytes) = (questions(server) - asked) / (time.monotonic() - begun), of_the_spool(worker)
            rest = lambda: sum(1 for path in (directory / "spool").iterdir() if path.name[0].isdigit())  # noqa: E731
            print(f"spool: {rest()} wait: {1 + processes} processes, {kilobytes / 1000:.0f} MB, {rate:.1f} queries a second", flush=True)
            end = time.time()
            shown.page = "".join(line for job in jobs for line in of_job(job, start, end))
            begun, asked, most = time.monotonic(), questions(server), (0, 0)
            while rest():
                most = tuple(map(max, most, of_the_spool(worker)))
                time.sleep(1)
            seconds = time.monotonic() - begun
            print(f"spool: all handed over in {seconds:.0f} s, {count / seconds:.1f} a second; at most {1 + most[0]} processes and {most[1] / 1000:.0f} MB, "
                  f"{(questions(server) - asked) / seconds:.0f} queries a second", flush=True)
            sys.stdout.write((directory / "log").read_text()[:2000])


def main():
    cli, chosen = program(), sys.argv[1:] or [*CASES, "record", "record-own", "spool"]
    begun = time.monotonic()
    for _ in range(20):
        subprocess.run([str(cli), "--version"], stdout=subprocess.DEVNULL, check=True)
    print(f"start: {(time.monotonic() - begun) / 20 * 1000:.1f} ms; {cli.stat().st_size / (1 << 20):.2f} MiB", flush=True)
    for case in chosen:
        if case == "record":
            record(cli)
            continue
        if case == "spool":
            spool(cli, 10_000)
            continue
        if case == "record-own":
            for version, count in itertools.product(filter(hierarchies, ["v2", "v1"]), [1, 64]):
                record_own(cli, version, count)
            continue
        files, commands = CASES[case]
        with scratch("jobledger-bench") as directory:
            server, process = server_over(directory, files())
            with process:
                wait_for("Prometheus", lambda: is_up(server))
                for name, arguments in commands:
                    named = [word.replace("OUT", f"{directory}/out").replace("POLICIES", str(ROOT / "packaging/digest.toml.example")) for word in arguments]
                    measure(cli, server.address, f"{case}: {name}", named)
                    for made in directory.glob("out.*"):
                        print(f"{'':34} {made.suffix} {made.stat().st_size / 1e6:.2f} MB")
                        made.unlink()


def is_up(server):
    try:
        return server.get("status/runtimeinfo")
    except OSError:
        return None


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main()
