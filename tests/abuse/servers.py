"""The exporters under attack: ours on a simulated node, and Debian's node_exporter to compare with."""

import contextlib
import shutil
import subprocess

import scraper
from testbed.built import program
from testbed.processes import connects, free_ports, running, wait_for

NODE_EXPORTER = shutil.which("prometheus-node-exporter")
LOGIN = USER, _ = "prometheus", "right"
# Another user, who lets the exporter make its first page before the attack.
HELPER = "helper", "warm up"
# Of these passwords. The cost is low: a debug build needs some ten times as long as a release.
HASHES = {
    "prometheus": "$2b$05$abcdefghijklmnopqrstuu8xaCxxL82bnl.UY74PMksDxIJShppPC",
    "helper": "$2b$05$zyxwvutsrqponmlkjihgfO5pV4u6XzlZN5jz/H6CABc6Gt4ymVKdu",
}

OURS = ["job", "cpu", "memory", "pressure", "io", "processes", "node_cpu", "node_memory", "node_load", "node_pressure"]
THEIRS = ["cpu", "meminfo", "loadavg", "diskstats", "filesystem", "netdev", "stat", "uname", "vmstat", "time"]


class Ours:
    """The simulated node."""

    name, collectors = "jobledger", OURS

    @staticmethod
    def command(port, web_config):
        return [program("jobledger-demo"), f"--web.listen-address=127.0.0.1:{port}", f"--scrape.timeout={scraper.LIMIT}s",
                *([f"--web.config.file={web_config}"] if web_config else [])]


class Theirs:
    """Debian's node_exporter."""

    name, collectors = "node_exporter", THEIRS

    @staticmethod
    def command(port, web_config):
        return [NODE_EXPORTER, f"--web.listen-address=127.0.0.1:{port}",
                *([f"--web.config.file={web_config}"] if web_config else [])]


def web_config(directory):
    """A web configuration with TLS and one user."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=node", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    path = directory / "web.yml"
    path.write_text(f"tls_server_config:\n  cert_file: {certificate}\n  key_file: {key}\n"
                    "basic_auth_users:\n" + "".join(f"  {user}: {value}\n" for user, value in HASHES.items()))
    return path


@contextlib.contextmanager
def serving(exporter, directory, config=None):
    """Starts an exporter for a with block: its port."""
    (port,) = free_ports(1)
    with running(exporter.command(port, config), directory / f"{exporter.name}.log"):
        wait_for(f"{exporter.name} listens", lambda: connects(port))
        yield port
