"""What the exporter tells of a few simulated nodes: jobledger-demo (docs/demo.md), scraped over HTTP once a second.

A recording is made anew for each run, so that it has the metrics of the exporter under test.
"""

import bisect
import contextlib
import time
import urllib.request

from exposition import Page
from testbed.processes import free_ports, running, wait_for

# Seconds between two scrapes of a recording.
STEP = 1.0
# Least seconds in which every job that is needed is seen long enough.
LEAST = 30
COMMON = ["--collector.perf", "--log.level=error"]
# Nodes by kind. Seed 3 at half speed has one of each kind of job from its first moment on, and none of those that are needed ends
# within ten minutes. With the other speed the job that has the node for itself (`lattice`) begins some 15 s after the start.
NODES = {
    "cpu": ["--no-collector.gpu", "--demo.seed=3", "--demo.speed=0.5"],
    "whole": ["--no-collector.gpu", "--demo.seed=1", "--demo.speed=1.12"],
    "gpu": ["--demo.seed=3", "--demo.speed=0.5"],
}


def _get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        return answer.read().decode()


def record(demo, seconds, directory):
    """Pages of each kind of node, {kind: [Page, ...]}, one per `STEP` seconds; `directory` takes logs."""
    pages, times = {kind: [] for kind in NODES}, {kind: [] for kind in NODES}
    ports = dict(zip(NODES, free_ports(len(NODES))))
    with contextlib.ExitStack() as stack:
        for kind, flags in NODES.items():
            command = [str(demo), *COMMON, *flags, f"--web.listen-address=127.0.0.1:{ports[kind]}"]
            stack.enter_context(running(command, directory / f"demo-{kind}.log"))
        for port in ports.values():
            wait_for("the simulated node", lambda: _get(port), 60)  # noqa: B023  called at once
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < seconds:
            for kind, port in ports.items():
                times[kind].append(time.monotonic() - begun)
                pages[kind].append(Page(_get(port)))
            time.sleep(max(0.0, now + STEP - (time.monotonic() - begun)))
    return {kind: _even(times[kind], pages[kind]) for kind in NODES}


def _even(times, pages):
    """The page that was there at each step: a busy machine scrapes late, and what was spent meanwhile took that long."""
    return [pages[bisect.bisect_right(times, times[0] + number * STEP) - 1]
            for number in range(int((times[-1] - times[0]) / STEP) + 1)]
