"""Demo nodes, recorded machines and a Prometheus over them, with this project's rules, for a test.

So that a test need not wait for minutes, time is made short: nodes are scraped every two and a half seconds, their jobs come and go
six times as fast, and the rules are loaded with windows an eighth as long (their true windows are held by tests/rules). On a machine
that is busy with other things all of it is slower.
"""

import contextlib
import os
import re
import subprocess
import sys
import time

import expectations
import recorded
import tools
from testbed.built import program
from testbed.processes import free_ports, running, scratch, wait_for
from testbed.prometheus import Prometheus

# Two nodes with the same jobs, so these have two nodes each, and one with other jobs.
SEEDS = (1, 1, 2)
SPIN = "import time\nwhile time.process_time() < 0.4: pass"


class Pace:
    """Durations, relative to the scrape interval.

    There are two. Either has the demo's lattice, for which a node is emptied, in the time that is looked at and not at its end: at six times
    the usual speed it runs until 20 s after the start, at 2.7 times until 70 s. A window of the slower one is longer than a lattice of the faster one.
    """

    def __init__(self, slow):
        self.slow = slow
        times = 2.5 if slow else 1
        self.speed = 2.7 if slow else 6
        self.scrape_ms = round(2500 * times)
        self.rules_s = round(5 * times)
        self.short_s, self.long_s = round(15 * times), round(20 * times)
        self.run_s = round(64 * times)

    @classmethod
    def of_this_machine(cls):
        """Slower if computing takes five times as long as expected, because the machine is busy."""
        began = time.monotonic()
        for process in [subprocess.Popen([sys.executable, "-S", "-c", SPIN]) for _ in range(os.cpu_count() or 1)]:
            process.wait()
        return cls(time.monotonic() - began > 2)

    def shorten(self, text):
        """A file of rules with short windows."""
        # What rules ask as of 30 seconds ago, when no scrape is under way, and four minutes before that.
        over = round(self.scrape_ms / 1000)
        for pattern, shorter in ((r"offset 30s\b", f"offset {over}s"), (r"offset 270s\b", f"offset {over + self.short_s}s"),
                                 (r"/ 240\b", f"/ {self.short_s}"), (r"\[[24]m\]", f"[{self.short_s}s]"), (r"\[5m\]", f"[{self.long_s}s]"), (r"offset 2m\b", f"offset {self.short_s}s"),
                                 (r">= 120\b", f">= {self.short_s}"), (r"interval: \w+", f"interval: {self.rules_s}s"),
                                 # Which alert fires at once depends on the pace.
                                 (r" for: \w+", f" for: {self.short_s}s")):
            text = re.sub(pattern, shorter, text)
        return text


def configuration(directory, demos, machines, server, pace):
    """Prometheus' configuration. The label cluster distinguishes demo nodes and recorded machines."""
    jobs = [("jobledger", demos, "", "demo")] + [("jobledger", [server], f"/{name}", "recorded") for name in machines]
    jobs.append(("jobledger", [server], f"/{expectations.TWICE}", "other"))
    lines = [f"global: {{scrape_interval: {pace.scrape_ms}ms, scrape_timeout: {pace.scrape_ms}ms, evaluation_interval: {pace.rules_s}s}}",
             f"rule_files: ['{directory}/rules/*.yaml']", "scrape_configs:"]
    for number, (job, addresses, path, cluster) in enumerate(jobs):
        lines += [f"- job_name: '{number}'", f"  metrics_path: {path or '/metrics'}", "  static_configs:",
                  f"  - targets: {list(addresses)}", f"    labels: {{cluster: {cluster}}}", "  relabel_configs:",
                  f"  - {{target_label: job, replacement: {job}}}"]
        if path:
            lines.append(f"  - {{target_label: instance, replacement: '{path[1:]}:9810'}}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def start(machines, flags=()):
    """A Prometheus over three demo nodes, with these `flags` more, and the recorded `machines` ({name: Machine}); it is ready, but has
    little data before `pace.run_s`."""
    demo, pace = program("jobledger-demo"), Pace.of_this_machine()
    if pace.slow:
        print(f"the machine is busy: this takes {pace.run_s} s", file=sys.stderr)
    with contextlib.ExitStack() as held:
        directory = held.enter_context(scratch("jobledger-dashboards"))
        server = recorded.Server(machines)
        held.callback(server.close)
        *ports, own = free_ports(len(SEEDS) + 1)
        for seed, port in zip(SEEDS, ports):
            held.enter_context(running(
                [str(demo), f"--demo.seed={seed}", f"--demo.speed={pace.speed}", "--collector.perf", "--collector.perf.plan=full", "--jobs.steps",
                 f"--jobs.retention={pace.long_s}s", "--scrape.min-interval=0s", "--web.scrapers=127.0.0.1", f"--web.listen-address=127.0.0.1:{port}", *flags], directory / f"demo-{port}.log"))
        (directory / "rules").mkdir()
        for path in [*(tools.RULES / "recording").glob("*.yaml"), tools.ROOT / "demo/site.yaml", *(tools.RULES / "alerts").glob("*.yaml")]:
            (directory / "rules" / path.name).write_text(pace.shorten(path.read_text()))
        config = directory / "prometheus.yml"
        config.write_text(configuration(directory, [f"127.0.0.1:{port}" for port in ports], machines, server.address, pace))
        prometheus = Prometheus(f"127.0.0.1:{own}")
        process = held.enter_context(running(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
                                    f"--web.listen-address={prometheus.address}"], directory / "prometheus.log"))
        began = time.time()

        def answers():
            if process.poll() is not None:
                raise RuntimeError(f"Prometheus ended: {(directory / 'prometheus.log').read_text()[-2000:]}")
            return prometheus.get("status/runtimeinfo")

        wait_for("Prometheus", answers, 60)
        yield prometheus, began, pace
