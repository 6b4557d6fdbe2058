"""The examples of agents/: each agent scrapes an exporter with its file, and a Prometheus that it sends to has the series with the rules' labels.

Agents are Debian stable's: Prometheus 2.42 in agent mode, and vmagent, which is unpacked and not installed. JOBLEDGER_AGENTS=sid takes Debian
sid's, which move (make agents-elsewhere). Needs the exporter (cargo build -p jobledger-exporter, or JOBLEDGER_EXPORTER).
"""

import http.server
import json
import os
import re
import sys
import tempfile
import threading
import unittest
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/e2e"))

from testbed import cache, debian  # noqa: E402
from testbed import prometheus as servers  # noqa: E402
from testbed.processes import connects, free_ports, running, wait_for  # noqa: E402

AGENTS = ROOT / "agents"
NEW = os.environ.get("JOBLEDGER_AGENTS") == "sid"
PROTOBUF = "application/vnd.google.protobuf"
NODE = "localhost"


def exporter():
    named = os.environ.get("JOBLEDGER_EXPORTER")
    found = [Path(named)] if named else [path for path in (ROOT / f"target/{kind}/jobledger-exporter" for kind in ("debug", "release")) if path.exists()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def vmagent():
    def unpack(into):
        debian.download("victoria-metrics", "sid", into) if NEW else debian.download_own("victoria-metrics", into)
    name = "victoria-metrics-sid" if NEW else "victoria-metrics-own"
    return cache.built(name, cache.key(name.rpartition("-")[2]), unpack) / "usr/bin/vmagent"


class Front(http.server.BaseHTTPRequestHandler):
    """Hands requests on to the exporter and keeps (agent, format of the answer)."""

    def do_GET(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.exporter}{self.path}", headers=dict(self.headers))
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
            self.server.seen.append((self.headers["User-Agent"], answer.headers["Content-Type"]))
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Encoding"):
                if answer.headers[name]:
                    self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@unittest.skipUnless(exporter(), "exporter: cargo build -p jobledger-exporter")
class Agents(unittest.TestCase):
    def setUp(self):
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        own, store = free_ports(2)
        # Loopback alone; the front below is its reader.
        command = [str(exporter()), f"--web.listen-address=127.0.0.1:{own}", "--web.scrapers=127.0.0.1/32"]
        stack.enter_context(running(command, self.directory / "exporter.log"))
        front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
        front.exporter, front.seen = own, []
        threading.Thread(target=front.serve_forever, daemon=True).start()
        stack.callback(front.server_close)
        stack.callback(front.shutdown)
        self.front = front
        (self.directory / "nodes.json").write_text(json.dumps([{"targets": [f"{NODE}:{front.server_port}"], "labels": {"cluster": "alpha"}}]))
        (self.directory / "store.yml").write_text("{}\n")
        program, _ = servers.programs("3" if NEW else "2")
        stack.enter_context(running(
            [str(program), f"--config.file={self.directory}/store.yml", f"--storage.tsdb.path={self.directory}/store", "--web.enable-remote-write-receiver",
             f"--web.listen-address=127.0.0.1:{store}"], self.directory / "store.log"))
        for port in (own, store):
            wait_for(f"port {port}", lambda port=port: connects(port))
        self.store = servers.Prometheus(f"127.0.0.1:{store}")
        self.write = f"http://127.0.0.1:{store}/api/v1/write"

    def configured(self, name, change=lambda config: None):
        """The example with this test's targets, address and a shorter interval."""
        config = yaml.safe_load((AGENTS / name).read_text())
        self.assertEqual(config["scrape_configs"][0]["file_sd_configs"][0]["files"], ["/etc/prometheus/jobledger-nodes.json"])
        config["scrape_configs"][0]["file_sd_configs"][0]["files"] = [str(self.directory / "nodes.json")]
        config["global"] |= {"scrape_interval": "2s", "scrape_timeout": "2s"}
        for remote in config.get("remote_write", []):
            remote["url"] = self.write
        change(config)
        path = self.directory / name
        path.write_text(yaml.safe_dump(config))
        return path

    def arrives(self, command):
        """The format in which the agent was answered, once its series are in the store."""
        (port,) = free_ports(1)
        flag = "-httpListenAddr" if "vmagent" in str(command[0]) else "--web.listen-address"
        log = self.directory / "agent.log"
        self.stack.enter_context(running([*map(str, command), f"{flag}=127.0.0.1:{port}"], log))
        query = 'jobledger_exporter_build_info{job="jobledger"}'
        try:
            (labels, value) = wait_for("the agent's series", lambda: self.store.query(query))[0]
        except Exception:
            print(log.read_text()[-3000:], file=sys.stderr)
            raise
        self.assertEqual(value, 1)
        self.assertEqual({name: labels.get(name) for name in ("job", "instance", "cluster")}, {"job": "jobledger", "instance": NODE, "cluster": "alpha"})
        # Of a node's series, no label but instance is the node's own.
        for labels, _ in self.store.query('{__name__=~"jobledger_node_(cpus|memory_total_bytes)", job="jobledger"}'):
            self.assertEqual(labels.keys() - {"__name__"}, {"job", "instance", "cluster"})
        # The agent sends it after the series of the page.
        (_, up), = wait_for("up", lambda: self.store.query('up{job="jobledger"}'))
        self.assertEqual(up, 1)
        formats = {kind.partition(";")[0] for _, kind in self.front.seen}
        self.assertEqual(len(formats), 1, self.front.seen)
        return formats.pop()

    def test_prometheus(self):
        program, _ = servers.programs("3" if NEW else "2")
        command = [program, f"--storage.agent.path={self.directory}/agent"]
        if NEW:
            command += ["--agent", f"--config.file={self.configured('prometheus-agent.yml')}"]
        else:
            # As the file and the README say for 2.42.
            said = (AGENTS / "prometheus-agent.yml").read_text()
            features = re.search(r"--enable-feature=(agent,\S+[a-z])", said)[1]
            self.assertIn(f"`--enable-feature={features}`", (AGENTS / "README.md").read_text())
            path = self.configured("prometheus-agent.yml", lambda config: config["scrape_configs"][0].pop("scrape_protocols"))
            command += [f"--enable-feature={features}", f"--config.file={path}"]
        self.assertEqual(self.arrives(command), PROTOBUF)

    def test_vmagent(self):
        path = self.configured("vmagent.yml")
        command = [vmagent(), f"-promscrape.config={path}", f"-remoteWrite.tmpDataPath={self.directory}/agent", f"-remoteWrite.url={self.write}",
                   "-remoteWrite.flushInterval=1s"]
        self.assertEqual(self.arrives(command), "text/plain")


class Alloy(unittest.TestCase):
    """No Alloy is there to read it, so it is compared with Prometheus' file."""

    def test_it_says_what_prometheus_file_says(self):
        text = re.sub(r"//[^\n\"]*\n", "\n", (AGENTS / "alloy.alloy").read_text())
        config = yaml.safe_load((AGENTS / "prometheus-agent.yml").read_text())
        (scrape,) = config["scrape_configs"]
        settings = {name: json.loads(value) for name, value in re.findall(r"^ +(\w+) += (\"[^\n]*|\[\"[^\n]*|\d+)$", text, re.M)}
        (relabel,) = scrape["relabel_configs"]
        self.assertEqual(settings, {
            "files": scrape["file_sd_configs"][0]["files"], **relabel, "job_name": scrape["job_name"], **config["global"],
            "scrape_protocols": scrape["scrape_protocols"], "sample_limit": scrape["sample_limit"], "url": config["remote_write"][0]["url"],
        })

    def test_every_reference_is_to_a_component_of_the_file(self):
        text = (AGENTS / "alloy.alloy").read_text()
        self.assertEqual(text.count("{") - text.count('[{"'), text.count("}") - text.count('"}}]'))
        exports = {"discovery.file": "targets", "discovery.relabel": "output", "prometheus.remote_write": "receiver"}
        made = {f"{kind}.{label}.{exports[kind]}" for kind, label in re.findall(r'^([a-z.]+_?[a-z]*) "(\w+)" \{$', text, re.M) if kind in exports}
        self.assertEqual(set(re.findall(r"(?:discovery|prometheus)\.\w+\.\w+\.\w+", text)), made)
        self.assertEqual(len(made), 3)


class Files(unittest.TestCase):
    def test_agents_scrape_alike(self):
        one, other = (yaml.safe_load((AGENTS / name).read_text()) for name in ("prometheus-agent.yml", "vmagent.yml"))
        one.pop("remote_write")
        one["scrape_configs"][0].pop("scrape_protocols")
        self.assertEqual(one, other)

    def test_the_sample_limit_is_above_the_exporters(self):
        (most,) = re.findall(r"^\| `--metric.max-series` \| `?(\d+)`? \|", (ROOT / "docs/flags.md").read_text(), re.M)
        config = yaml.safe_load((AGENTS / "vmagent.yml").read_text())
        self.assertGreater(config["scrape_configs"][0]["sample_limit"], int(most))


if __name__ == "__main__":
    unittest.main()
