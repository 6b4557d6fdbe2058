#!/usr/bin/env python3
"""A Prometheus over the past of an invented job, for the picture of its report: six hours of training on four nodes, with a straggler and an I/O stall.

Runs a command with shoot.mjs' options for it (address, job, times), or without a command prints them and serves until it is interrupted.
"""

import argparse
import math
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "scale"), str(ROOT / "tests" / "e2e")]

import bed  # noqa: E402
import dashboards  # noqa: E402
from testbed import prometheus as servers  # noqa: E402
from testbed.processes import exit_on_signals, scratch  # noqa: E402

STEP, HOUR, GIB = 30, 3600, 2**30
JOBID, NODES, GPUS, CPUS = "48151623", 4, 4, 32
RAN, STAGING = 6 * HOUR, 8 * 60
# From two hours on the GPUs of one node are slower, and the others wait for them; after four hours the file system stalls.
STRAGGLER, SLOWER_FROM = 2, 2 * HOUR
STALL = (4 * HOUR + 10 * 60, 4 * HOUR + 32 * 60)


def ripple(node, at, part=0.02):
    """Some variation, the same each time."""
    return part * math.sin(at / (97 + 13 * node) + node) + part / 2 * math.sin(at / 31 + 2 * node)


def state(node, at):
    """(GPU busy, SM active, CPUs used, waiting for storage) of a node at a time of the job."""
    if at < STAGING:
        return 0.0, 0.0, 3 + ripple(node, at, 0.5), 0.45 + ripple(node, at)
    if STALL[0] <= at < STALL[1]:
        return 0.02, 0.01, 1.2 + ripple(node, at, 0.3), 0.85 + ripple(node, at)
    if at >= SLOWER_FROM and node != STRAGGLER:
        return 0.71 + ripple(node, at), 0.55 + ripple(node, at), 20 + ripple(node, at, 1), 0.02
    return 0.96 + ripple(node, at, 0.01), 0.74 + ripple(node, at), 25 + ripple(node, at, 1), 0.02


def samples(begin, now):
    """{series: [(time, value), ...]} of all nodes."""
    found = {}
    for node in range(NODES):
        target = f'instance="gpu{node + 1:02}:9810",job="jobledger"'
        job = f'{target},jobid="{JOBID}"'
        totals = {}

        def put(name, labels, at, value):
            found.setdefault(f"{name}{{{labels}}}", []).append((at, value))

        def grow(name, labels, at, amount):
            key = f"{name}{{{labels}}}"
            totals[key] = totals.get(key, 0.0) + amount
            put(name, labels, at, totals[key])

        for at in range(int(begin) + 1 + 7 * node, int(now), STEP):
            put("up", target, at, 1)
            put("jobledger_exporter_build_info", f'{target},version="0.1.0"', at, 1)
            put("jobledger_node_info", f'{target},microarchitecture="Emerald Rapids"', at, 1)
            for name, value in (("cores", 64), ("cpus", 64), ("sockets", 2)):
                put(f"jobledger_node_{name}", target, at, value)
            put("jobledger_gpu_driver_state", f'{target},vendor="nvidia",state="running"', at, 1)
            age = at - begin
            busy, active, cpus, waiting = state(node, age)
            step = 0 if age < STEP else STEP
            put("jobledger_job_start_time_seconds", job, at, begin)
            put("jobledger_job_info", f'{job},user="alice",account="ml-lab",partition="gpu",qos="normal",name="llm-pretrain",uid="4001"', at, 1)
            put("jobledger_job_cpus", job, at, CPUS)
            put("jobledger_job_gpus", f'{job},source="prolog"', at, GPUS)
            grow("jobledger_job_allocated_cpu_seconds_total", job, at, CPUS * step)
            grow("jobledger_job_cpu_seconds_total", f'{job},mode="user"', at, 0.93 * cpus * step)
            grow("jobledger_job_cpu_seconds_total", f'{job},mode="system"', at, 0.07 * cpus * step)
            for resource, part in (("io", waiting), ("memory", 0.001), ("cpu", 0.03)):
                grow("jobledger_job_pressure_seconds_total", f'{job},resource="{resource}",kind="some"', at, part * step)
            held = (60 + 90 * min(1, age / (0.4 * HOUR)) + 4 * ripple(node, at, 1)) * GIB
            cache = (20 + 70 * min(1, age / HOUR)) * GIB
            for name, value in (("anon", held * 0.9), ("shmem", held * 0.1), ("file", cache), ("kernel", 2 * GIB), ("used", held + cache), ("peak", 246 * GIB), ("limit", 300 * GIB)):
                put(f"jobledger_job_memory_{name}_bytes", job, at, value)
            grow("jobledger_job_oom_kills_total", job, at, 0)
            grow("jobledger_job_cpu_throttled_seconds_total", job, at, 0)
            put("jobledger_job_processes", job, at, GPUS + 17)
            put("jobledger_job_threads", job, at, 96)
            grow("jobledger_job_io_read_bytes_total", f'{job},device="nvme0n1"', at, (2.2e9 if age < STAGING else 4e7 if waiting > 0.5 else 3.1e8) * step)
            grow("jobledger_job_io_written_bytes_total", f'{job},device="nvme0n1"', at, 2e7 * step)
            for socket in (0, 1):
                grow("jobledger_job_energy_joules_total", f'{job},domain="package",socket="{socket}",method="cpus_held_and_cpu_time"', at, (60 + 5 * cpus) * step)
            for gpu in range(GPUS):
                of = f'{job},gpu="{gpu}",uuid="GPU-{node}{gpu}"'
                put("jobledger_job_gpu_info", f'{of},model="NVIDIA H100 80GB HBM3",source="prolog",profile="",shared="false"', at, 1)
                grow("jobledger_job_gpu_allocated_seconds_total", of, at, step)
                grow("jobledger_job_gpu_busy_seconds_total", of, at, busy * step)
                grow("jobledger_job_gpu_idle_seconds_total", of, at, (1 - busy) * step)
                for name, part in (("sm_active", active), ("sm_occupancy", active * 0.5), ("dram_active", active * 0.6)):
                    grow(f"jobledger_job_gpu_{name}_seconds_total", of, at, part * step)
                grow("jobledger_job_gpu_energy_joules_total", f'{of},method="board"', at, (90 + 560 * busy) * step)
                for name, value in (("used", 71), ("peak", 74), ("limit", 80)):
                    put(f"jobledger_job_gpu_memory_{name}_bytes", of, at, value * GIB)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs=argparse.REMAINDER, help="node shoot.mjs --dashboard jobledger-job-report ...")
    command = parser.parse_args().command
    exit_on_signals()
    program, promtool = servers.programs("2")
    # It runs on: the page is as somebody sees it at the end of a day.
    now = int(time.time())
    begin = now - RAN
    with scratch("jobledger-training") as work:
        (work / "data").mkdir()
        file = work / "past.om"
        by_name = {}
        for series, values in samples(begin, now).items():
            by_name.setdefault(series.partition("{")[0], []).append((series, values))
        with file.open("w") as lines:
            for one in by_name.values():
                for series, values in one:
                    lines.writelines(f"{series} {value!r} {at}\n" for at, value in values)
            lines.write("# EOF\n")
        subprocess.run([promtool, "tsdb", "create-blocks-from", "openmetrics", file, work / "data"], stdout=subprocess.DEVNULL, check=True)
        dashboards.write_recorded(program, promtool, work, [path for path in bed.RULES if "alerts" not in path.parts], begin, now)
        with bed.prometheus(program, work, None, None) as (server, process):
            options = [f"--prometheus=http://{server.address}", f"--var=jobid={JOBID}", f"--from={(begin - 60) * 1000}", f"--to={now * 1000}", f"--scrape-interval={STEP}s"]
            if command:
                return subprocess.run([*command, *options], check=False).returncode
            print(*options, flush=True)
            process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
