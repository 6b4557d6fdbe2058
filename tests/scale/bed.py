"""A Prometheus that scrapes a cluster and evaluates the rules of this repository, for a with block."""

import contextlib
import pathlib
import re
import subprocess
import urllib.request

import phases
from testbed import packages
from testbed.processes import running, free_ports, wait_for
from testbed.prometheus import Prometheus

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = [*sorted((ROOT / "rules/recording").glob("*.yaml")), ROOT / "rules/site.yaml", *sorted((ROOT / "rules/alerts").glob("*.yaml"))]
# jobstats.yaml and treydock.yaml use the same names: a site loads one of them.
COMPAT = [ROOT / "rules/compat/dcgm.yaml", ROOT / "rules/compat/jobstats.yaml"]

SCRAPE = """
global:
  scrape_interval: {scrape}s
  scrape_timeout: {scrape}s
scrape_configs:
- job_name: jobledger
  http_sd_configs:
  - url: http://{address}/targets
"""


def copy_rules(paths, into, interval=None):
    """Copies rule files to one directory under unique names; sets the interval of all groups (seconds) if given."""
    into.mkdir()
    for path in paths:
        text = path.read_text()
        if interval is not None:
            text = re.sub(r"^    interval: \S+$", f"    interval: {interval}s", text, flags=re.MULTILINE)
        (into / f"{path.parent.name}-{path.name}").write_text(text)
    return into


def version(program):
    """A Prometheus' version."""
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).split()[2]


def start_together(program, rules, evaluation):
    """Renames the rule files of a directory so that this Prometheus starts all groups at once. `evaluation` is the default interval."""
    packages.check("rules")
    files = {path.name: groups(path.read_text(), evaluation) for path in rules.iterdir()}
    for name, other in phases.names(rules, files, version(program)).items():
        (rules / name).rename(rules / other)


def groups(text, evaluation):
    """The groups of a rule file, {name: interval in seconds}."""
    found = re.findall(r"^  - name: (\S+)\n(?:    interval: (\d+)([sm])\n)?", text, re.MULTILINE)
    return {name: int(number) * {"s": 1, "m": 60}[unit] if number else evaluation for name, number, unit in found}


@contextlib.contextmanager
def prometheus(program, directory, address, rules, scrape=30, evaluation=60, follower=None):
    """(HTTP API, process) of a server with its data in `directory`/data that scrapes the cluster at `address`; without one it only answers.

    All samples are also sent to `follower`, a remote-write URL, if given.
    """
    config = directory / "prometheus.yml"
    text = SCRAPE.format(scrape=scrape, address=address) if address else f"global:\n  scrape_interval: {scrape}s\n"
    text = text.replace("global:\n", f"global:\n  evaluation_interval: {evaluation}s\n") + (f'rule_files: ["{rules}/*.yaml"]\n' if rules else "")
    config.write_text(text + (f"remote_write:\n- url: {follower}\n" if follower else ""))
    (port,) = free_ports(1)
    server = Prometheus(f"127.0.0.1:{port}")
    command = [str(program), f"--config.file={config}", f"--storage.tsdb.path={directory}/data", "--log.level=warn",
               f"--web.listen-address={server.address}", "--web.enable-admin-api", "--storage.tsdb.retention.time=30d"]
    with running(command, directory / "prometheus.log") as process:
        def ready():
            if process.poll() is not None:
                raise SystemExit((directory / "prometheus.log").read_text()[-3000:])
            return urllib.request.urlopen(f"http://{server.address}/-/ready", timeout=5).status == 200
        wait_for("Prometheus to be ready", ready, 120)
        yield server, process


def own_metrics(server):
    """A server's own metrics: {series: value}."""
    with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=300) as answer:
        lines = answer.read().decode().splitlines()
    return {series: float(value) for series, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}
