"""What the tests of `jobledger` share."""

import contextlib
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e")]

from testbed import built  # noqa: E402
from testbed.built import example  # noqa: E402, F401
from testbed.processes import cpu_seconds, free_ports, running, scratch, wait_for  # noqa: E402, F401
from testbed.prometheus import Prometheus, programs  # noqa: E402
from testbed.reports import Ran  # noqa: E402, F401

RULES = ROOT / "rules"


def program():
    """The path of jobledger."""
    return built.program("jobledger")


@contextlib.contextmanager
def demo_nodes(*flags, rules=True):
    """A Prometheus over two demo nodes: itself, and the addresses of the nodes."""
    with contextlib.ExitStack() as held:
        directory = held.enter_context(scratch("jobledger-report"))
        *ports, own = free_ports(3)
        nodes = [f"127.0.0.1:{port}" for port in ports]
        for seed, node in enumerate(nodes, 1):
            command = [str(built.program("jobledger-demo")), "--collector.perf", "--collector.perf.plan=full", f"--demo.seed={seed}", "--web.scrapers=127.0.0.1", f"--web.listen-address={node}", *flags]
            held.enter_context(running(command, directory / f"demo-{seed}.log"))
        # Rows of ended jobs soon: four minutes are long for a test.
        (directory / "ended.yaml").write_text((RULES / "recording/ended.yaml").read_text().replace("interval: 4m", "interval: 30s"))
        recording = [path for path in (RULES / "recording").glob("*.yaml") if path.name != "ended.yaml"]
        files = [str(path) for path in [*recording, directory / "ended.yaml", ROOT / "demo/site.yaml"]] if rules else []
        config = directory / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 15s}}\nrule_files: {files}\nscrape_configs:\n"
                          f"- job_name: jobledger\n  static_configs: [{{targets: {nodes}}}]\n")
        prometheus = Prometheus(f"127.0.0.1:{own}")
        held.enter_context(running([str(programs(os.environ.get("JOBLEDGER_PROMETHEUS", "2"))[0]), f"--config.file={config}",
                                    f"--storage.tsdb.path={directory}/data", f"--web.listen-address={prometheus.address}"], directory / "prometheus.log"))
        yield prometheus, nodes


class Samples:
    """Samples as an exporter gives them, written by hand: OpenMetrics wants those of a series in a row."""

    def __init__(self):
        self.families = {}

    def put(self, name, labels, times, value):
        """A series' samples; the value may be a function of the time."""
        series = self.families.setdefault(name, {}).setdefault(labels, [])
        series += [(value(at) if callable(value) else value, at) for at in times]

    def lines(self):
        for name, series in self.families.items():
            counter = name.endswith("_total")
            yield f"# TYPE {name.removesuffix('_total')} {'counter' if counter else 'gauge'}"
            yield from (f"{name}{{{labels}}} {value} {at}" for labels, points in series.items() for value, at in points)
        yield "# EOF\n"


@contextlib.contextmanager
def server_of(samples, config="global: {}\n", *flags, blocks=()):
    """A Prometheus that has these samples, and scrapes nothing."""
    with scratch("jobledger-samples") as directory:
        (directory / "samples").write_text("\n".join(samples.lines()))
        with server_of_files(directory / "samples", config=config, flags=flags, blocks=blocks) as server:
            yield server


@contextlib.contextmanager
def server_of_files(*files, config="global: {}\n", flags=(), blocks=()):
    """A Prometheus that has the samples of files of OpenMetrics, as promtool reads them, and scrapes nothing."""
    binary, promtool = programs(os.environ.get("JOBLEDGER_PROMETHEUS", "2"))
    with scratch("jobledger-blocks") as directory:
        for file in files:
            subprocess.run([promtool, "tsdb", "create-blocks-from", *blocks, "openmetrics", file, directory / "data"], check=True, capture_output=True)
        (directory / "config").write_text(config)
        (port,) = free_ports(1)
        server = Prometheus(f"127.0.0.1:{port}")
        with running([str(binary), f"--config.file={directory}/config", f"--storage.tsdb.path={directory}/data", f"--web.listen-address={server.address}", *flags],
                     directory / "log"):

            def answers():
                with contextlib.suppress(OSError):
                    return server.get("status/runtimeinfo")

            wait_for("Prometheus", answers)
            yield server


def curves_of(document):
    """The values of each curve of a report as JSON: {(metric, index of the node, index of the GPU or None): values}."""
    found, nodes = {}, document["job"]["nodes"]
    for name, metric in document["curves"]["metrics"].items():
        for series in metric["series"]:
            (node,) = [at for at, node in enumerate(nodes) if node["name"] == series["node"]]
            gpu = series["gpu"] and next(at for at, gpu in enumerate(nodes[node]["gpus"]) if series["gpu"] in (gpu["index"], gpu["uuid"]))
            found[name.removesuffix("_per_second"), node, gpu] = series["values"]
    return found
