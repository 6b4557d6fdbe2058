"""Demo nodes, recorded machines and a Prometheus over them, with this project's rules, for the length of a test.

So that a test need not wait for minutes, time is made short: nodes are scraped every two and a half seconds, their jobs come and go
five times as fast, and the rules are loaded with windows an eighth as long (their true windows are held by tests/rules).
"""

import contextlib
import re
import time

import recorded
import tools
from testbed.processes import free_ports, running, scratch, wait_for
from testbed.prometheus import Prometheus

SCRAPE_SECONDS = 2.5
SPEED = 5
# Two nodes with the same jobs, which so have two nodes each, and one with others.
SEEDS = (1, 1, 2)
SHORTER = [(r"\[2m\]", "[15s]"), (r"\[5m\]", "[20s]"), (r"offset 2m\b", "offset 15s"), (r">= 120\b", ">= 15"), (r"interval: \w+", "interval: 5s")]


def rules(into):
    """Recording rules and alerts with short windows, below the directory `into`."""
    for path in [*(tools.RULES / "recording").glob("*.yaml"), tools.RULES / "site.yaml", *(tools.RULES / "alerts").glob("*.yaml")]:
        text = path.read_text()
        for pattern, shorter in SHORTER:
            text = re.sub(pattern, shorter, text)
        (into / path.name).write_text(text)


def configuration(directory, demos, machines, server):
    """Prometheus' own: the label cluster tells demo nodes and recorded machines apart."""
    jobs = [("jobledger", demos, "", "demo")] + [("jobledger", [server], f"/{name}", "recorded") for name in machines]
    lines = [f"global: {{scrape_interval: {SCRAPE_SECONDS}s, scrape_timeout: {SCRAPE_SECONDS}s, evaluation_interval: 5s}}",
             f"rule_files: ['{directory}/rules/*.yaml']", "scrape_configs:"]
    for number, (job, addresses, path, cluster) in enumerate(jobs):
        lines += [f"- job_name: '{number}'", f"  metrics_path: {path or '/metrics'}", "  static_configs:",
                  f"  - targets: {list(addresses)}", f"    labels: {{cluster: {cluster}}}", "  relabel_configs:",
                  f"  - {{target_label: job, replacement: {job}}}"]
        if path:
            lines.append(f"  - {{target_label: instance, replacement: '{path[1:]}:9810'}}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def start(machines):
    """A Prometheus over three demo nodes and the recorded `machines` ({name: Machine}); it is up, and has little to tell yet."""
    exporter = tools.exporter()
    with contextlib.ExitStack() as held:
        directory = held.enter_context(scratch("jobledger-dashboards"))
        server = recorded.Server(machines)
        held.callback(server.close)
        *ports, own = free_ports(len(SEEDS) + 1)
        for seed, port in zip(SEEDS, ports):
            held.enter_context(running(
                [str(exporter), "--demo", f"--demo.seed={seed}", f"--demo.speed={SPEED}", f"--demo.directory={directory}", "--collector.perf", "--jobs.steps",
                 "--jobs.retention=20s", f"--web.listen-address=127.0.0.1:{port}"], directory / f"exporter-{port}.log"))
        (directory / "rules").mkdir()
        rules(directory / "rules")
        config = directory / "prometheus.yml"
        config.write_text(configuration(directory, [f"127.0.0.1:{port}" for port in ports], machines, server.address))
        prometheus = Prometheus(f"127.0.0.1:{own}")
        held.enter_context(running(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
                                    f"--web.listen-address={prometheus.address}", "--storage.tsdb.no-lockfile"], directory / "prometheus.log"))
        began = time.time()
        wait_for("Prometheus", lambda: prometheus.get("status/runtimeinfo"), 60)
        yield prometheus, began
