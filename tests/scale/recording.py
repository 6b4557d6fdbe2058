"""Records a few simulated nodes: jobledger-demo (docs/demo.md), scraped over HTTP once a second.

Each run makes a new recording, so that it has the metrics of the exporter under test.
"""

import bisect
import contextlib
import time
import urllib.request

from exposition import Page
from testbed.processes import free_ports, running, wait_for

# Seconds between two scrapes of a recording.
STEP = 1.0
# Seconds in which every needed job is recorded for long enough on a machine with time; elsewhere it takes longer, at most MOST.
LEAST, MOST = 30, 600
# Everything, as docs/scale.md has it.
COMMON = ["--metric.profile=full", "--collector.perf", "--collector.perf.plan=full", "--log.level=error", "--scrape.min-interval=0s", "--web.scrapers=127.0.0.1"]
# Flags by kind of node. With seed 3 at half speed each kind of job runs from the start, and no needed job ends within ten
# minutes. With seed 1 at the other speed the job that is alone on the node (`lattice`) starts after about 15 s.
NODES = {
    "cpu": ["--no-collector.gpu", "--demo.seed=3", "--demo.speed=0.5"],
    "whole": ["--no-collector.gpu", "--demo.seed=1", "--demo.speed=1.12"],
    "gpu": ["--demo.seed=3", "--demo.speed=0.5"],
}


def _get(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        return answer.read().decode()


def record(demo, seconds, directory, is_complete):
    """Pages of each kind of node, {kind: [Page, ...]}, one per `STEP` seconds. Logs are written to `directory`.

    It ends after `seconds`, but not before `is_complete(pages)`.
    """
    pages, times = {kind: [] for kind in NODES}, {kind: [] for kind in NODES}
    ports = dict(zip(NODES, free_ports(len(NODES))))
    with contextlib.ExitStack() as stack:
        for kind, flags in NODES.items():
            command = [str(demo), *COMMON, *flags, f"--web.listen-address=127.0.0.1:{ports[kind]}"]
            stack.enter_context(running(command, directory / f"demo-{kind}.log"))
        for port in ports.values():
            wait_for("the simulated node", lambda: _get(port), 60)  # noqa: B023  called at once
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < MOST:
            if now >= seconds:
                if is_complete({kind: _even(times[kind], pages[kind]) for kind in NODES}):
                    break
                seconds = time.monotonic() - begun + 10
            for kind, port in ports.items():
                times[kind].append(time.monotonic() - begun)
                pages[kind].append(Page(_get(port)))
            time.sleep(max(0.0, now + STEP - (time.monotonic() - begun)))
    return {kind: _even(times[kind], pages[kind]) for kind in NODES}


def _even(times, pages):
    """The latest page at each step. A busy machine scrapes late, so pages are assigned by their time."""
    return [pages[bisect.bisect_right(times, times[0] + number * STEP) - 1]
            for number in range(int((times[-1] - times[0]) / STEP) + 1)]
