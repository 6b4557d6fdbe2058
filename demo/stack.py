"""Prometheus with the rules, Alertmanager with the example configuration, and a mail server."""

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import urllib.request

from mailserver import Mailbox
from testbed import packages, prometheus
from testbed.processes import Failure, free_ports, running, scratch, wait_for

RULES = pathlib.Path(__file__).resolve().parents[1] / "rules"
SITE = pathlib.Path(__file__).with_name("site.yaml")
# Seconds. A site scrapes every 15 to 60 s, and mails after minutes. Of the rules those that a job's end waits for are evaluated more often
# here; the others keep their interval.
SCRAPE = 5
EVALUATE = 15
MAIL_AFTER = 10


@dataclasses.dataclass(frozen=True)
class Stack:
    """The addresses of the servers."""

    prometheus: prometheus.Prometheus
    alertmanager: str
    mailbox: Mailbox

    def alerts(self):
        """The labels of the firing alerts: [{label: value}]."""
        found = self.prometheus.get("alerts")["alerts"]
        return [alert["labels"] for alert in found if alert["state"] == "firing"]

    def received(self):
        """The number of alerts in Alertmanager."""
        with urllib.request.urlopen(f"http://{self.alertmanager}/api/v2/alerts", timeout=10) as answer:
            return len(json.load(answer))


def _copy_rules(into):
    for kind in ("recording", "alerts"):
        (into / kind).mkdir(parents=True)
        for path in (RULES / kind).glob("*.yaml"):
            (into / kind / path.name).write_text(re.sub(r"interval: (1m|90s)\n", f"interval: {EVALUATE}s\n", path.read_text()))


def _prometheus_config(targets, alertmanager, rules):
    listed = ", ".join(f"'{target}'" for target in targets)
    files = f"- {SITE}\n" + "".join(f"- {rules}/{part}\n" for part in ("recording/*.yaml", "alerts/*.yaml"))
    return f"""global:
  scrape_interval: {SCRAPE}s
  scrape_timeout: {SCRAPE}s
  evaluation_interval: {EVALUATE}s
  external_labels: {{cluster: demo}}
rule_files:
{files}alerting:
  alertmanagers:
  - static_configs: [{{targets: ['{alertmanager}']}}]
scrape_configs:
- job_name: jobledger
  static_configs: [{{targets: [{listed}]}}]
"""


def _alertmanager_config(smarthost):
    text = (RULES / "alertmanager/alertmanager.example.yml").read_text()
    text = text.replace("smtp_smarthost: localhost:25", f"smtp_smarthost: {smarthost}")
    return re.sub(r"group_wait: \S+", f"group_wait: {MAIL_AFTER}s", text)


@contextlib.contextmanager
def start(targets, version="2"):
    """Starts the servers for a with block. `targets` are the exporters (host:port)."""
    packages.check("servers")
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if not program:
        raise Failure("Alertmanager's package is installed, but there is no alertmanager program")
    binary, _ = prometheus.programs(version)
    with contextlib.ExitStack() as ending:
        directory = ending.enter_context(scratch("jobledger-demo"))
        mailbox = ending.enter_context(Mailbox())
        ending.callback(mailbox.shutdown)
        port, other = free_ports(2)
        server, alertmanager = prometheus.Prometheus(f"127.0.0.1:{port}"), f"127.0.0.1:{other}"
        shutil.copy(RULES / "alertmanager/jobledger.tmpl", directory)
        (directory / "alertmanager.yml").write_text(_alertmanager_config(f"127.0.0.1:{mailbox.server_address[1]}"))
        _copy_rules(directory / "rules")
        (directory / "prometheus.yml").write_text(_prometheus_config(targets, alertmanager, directory / "rules"))
        ending.enter_context(running(
            [program, f"--config.file={directory}/alertmanager.yml", f"--storage.path={directory}/alerts",
             f"--web.listen-address={alertmanager}", "--cluster.listen-address="], directory / "alertmanager.log"))
        ending.enter_context(running(
            [str(binary), f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address={server.address}"], directory / "prometheus.log"))
        for name, address in (("Prometheus", server.address), ("Alertmanager", alertmanager)):
            wait_for(f"{name} to be ready", lambda address=address: urllib.request.urlopen(
                f"http://{address}/-/ready", timeout=5).status == 200, 60)
        yield Stack(server, alertmanager, mailbox)
