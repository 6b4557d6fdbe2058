"""A Prometheus server on the loopback address, for a test."""

import contextlib
import datetime
import json
import pathlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request

from . import cache, debian, packages
from .processes import Failure, free_ports, running, scratch, wait_for

_RULES = cache.REPOSITORY / "rules/recording"


def programs(version):
    """The paths of prometheus and promtool, `version` "2" (Debian's stable) or "3" (Debian's newest)."""
    if version == "2":
        packages.check("servers")
        return pathlib.Path("/usr/bin/prometheus"), pathlib.Path("/usr/bin/promtool")

    def unpack(into):
        for package in ("prometheus", "promtool"):
            debian.download(package, "sid", into)

    built = cache.built("prometheus-3", cache.key(version), unpack)
    return built / "usr/bin/prometheus", built / "usr/bin/promtool"


class Prometheus:
    """The HTTP API of a running server."""

    def __init__(self, address):
        self.address = address

    def get(self, path, **parameters):
        """The `data` of a response of the API."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=300) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failure(f"{url}: {error.code} {error.read().decode(errors='replace')}") from error

    def query(self, expression):
        """The current vector of an expression: [(labels, value)]."""
        data = self.get("query", query=expression)
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def value(self, expression):
        """The value of an expression with exactly one result."""
        result = self.query(expression)
        if len(result) != 1:
            raise Failure(f"{len(result)} results of {expression}")
        return result[0][1]

    def wait_scraped(self, since=None, timeout=120):
        """Waits for a successful scrape of every target that began after `since` (now, if not given)."""
        since = time.time() if since is None else since

        def scraped():
            targets = self.get("targets", state="active")["activeTargets"]
            bad = [target["lastError"] for target in targets if target["lastError"]]
            if bad:
                raise Failure(bad[0])
            return targets and all(_seconds(target["lastScrape"]) > since for target in targets)

        wait_for("a scrape", scraped, timeout)


@contextlib.contextmanager
def start(target, interval, version="2", labels=None, relabel=(), rules=False):
    """A server that scrapes `target` (host:port) every `interval` seconds. The target may have labels, and its samples be relabelled. With `rules`
    the recording rules are evaluated as often as samples come."""
    binary, _ = programs(version)
    with scratch("jobledger-prometheus") as directory:
        config = directory / "prometheus.yml"
        # JSON is YAML.
        scraped = {"job_name": "jobledger", "static_configs": [{"targets": [target], "labels": labels or {}}], "metric_relabel_configs": list(relabel)}
        every = f"{interval}s"
        files = _often(directory, every) if rules else []
        config.write_text(json.dumps({"global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
                                      "rule_files": files, "scrape_configs": [scraped]}))
        (port,) = free_ports(1)
        server = Prometheus(f"127.0.0.1:{port}")
        command = [str(binary), f"--config.file={config}", f"--storage.tsdb.path={directory}/data",
                   f"--web.listen-address={server.address}"]
        with running(command, directory / "log"):
            wait_for("Prometheus to be ready", lambda: urllib.request.urlopen(
                f"http://{server.address}/-/ready", timeout=5).status == 200, 60)
            yield server


def _often(directory, interval):
    """Copies of the recording rules with this interval: their paths."""
    made = []
    for path in _RULES.glob("*.yaml"):
        made.append(str(directory / path.name))
        (directory / path.name).write_text(re.sub(r"interval: \S+", f"interval: {interval}", path.read_text()))
    return made


def _seconds(stamp):
    return datetime.datetime.fromisoformat(stamp).timestamp()
