"""The commands of the pages work as written, and --check runs as the service's user and not as root.

As root, with the exporter (make tested-programs).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

from support import EXPORTER, ROOT

sys.path.append(str(ROOT / "tests/e2e"))

from testbed.processes import connects, free_ports, wait_for  # noqa: E402

PAGE = (ROOT / "docs/install.md").read_text()
NOBODY = 65534


def commands(page, word):
    """Lines of shell blocks that contain a word, without comments."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)
    found = [line.split("  #")[0].strip() for line in "".join(blocks).splitlines() if line.strip()]
    return [line for line in found if word in line]


class Pages(unittest.TestCase):
    def test_built_packages_are_installed_from_where_they_were_built(self):
        (command,) = commands((ROOT / "README.md").read_text(), "apt install")
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.assertEqual(command, f"apt install ./target/packages/jobledger-exporter_{version}-1_amd64.deb")
        self.assertIn("out=$PWD/target/packages\n", (ROOT / "packaging/build.sh").read_text())

    def test_pages_that_load_the_packaged_rules_install_them_first(self):
        for name in ("docs/tutorial.md", "docs/install.md"):
            with self.subTest(name):
                before, found, _ = (ROOT / name).read_text().partition("- /usr/share/jobledger/rules")
                self.assertTrue(found)
                self.assertIn("jobledger-monitoring", before)

    def test_files_copied_for_grafana_are_in_its_paths_before_its_restart(self):
        page = (ROOT / "grafana/README.md").read_text()
        lines = commands(page.partition("## Install")[2].partition("\n## ")[0], "")
        self.assertEqual(lines.pop(), "systemctl restart grafana-server")
        for source in ("grafana", "/usr/share/jobledger/grafana"):
            with self.subTest(source), tempfile.TemporaryDirectory() as temporary:
                root = Path(temporary)
                for kind in ("dashboards", "datasources"):
                    # Grafana's package creates these.
                    (root / "etc/grafana/provisioning" / kind).mkdir(parents=True)
                # Installed by packaging/build.sh.
                shutil.copytree(ROOT / "grafana", root / source.strip("/"), ignore=shutil.ignore_patterns("preview", "src"))
                script = "\n".join(lines).replace(" grafana/", f" {root}/{source.strip('/')}/").replace(" /var", f" {root}/var").replace(" /etc", f" {root}/etc")
                subprocess.run(["sh", "-euc", script], check=True)
                provider = (root / "etc/grafana/provisioning/dashboards/jobledger.yaml").read_text()
                path = re.search(r"^ +path: (/\S+)$", provider, re.M)[1]
                wanted = {path.name for path in (ROOT / "grafana/dashboards").glob("*.json")}
                self.assertEqual({path.name for path in (root / path[1:]).iterdir()}, wanted)
                self.assertTrue((root / "etc/grafana/provisioning/datasources/jobledger.yaml").exists())
        self.assertIn("`/usr/share/jobledger`", page)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs"
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        # Every user may run it there.
        os.chmod(scratch.name, 0o755)
        cls.binary = shutil.copy(EXPORTER, Path(scratch.name) / EXPORTER.name)

    def shell(self, command):
        return subprocess.run(["sh", "-c", command], env={"PATH": f"{Path(self.binary).parent}:/usr/sbin:/usr/bin:/sbin:/bin"}, capture_output=True, text=True,
                              check=False, timeout=600)

    @unittest.skipUnless(os.geteuid() == 0, "root: the check is asked as another user")
    def test_check_runs_as_the_services_user(self):
        runbook = (ROOT / "rules/runbooks/JobledgerCollectorFailing.md").read_text()
        (command,) = commands(PAGE, "--check")
        self.assertIn(f"`{command}`", runbook)
        done = self.shell(command.replace("-u jobledger", "-u nobody"))
        self.assertRegex(done.stdout.splitlines()[-1], rf"^Looked as nobody \(uid {NOBODY}\) without capabilities\.", done.stderr)
        self.assertRegex(self.shell(f"{EXPORTER.name} --check").stdout.splitlines()[-1], r"^Looked as root \(uid 0\) with (all capabilities|CAP_)")

    def test_what_the_service_cannot_read_is_in_its_metrics(self):
        (command,) = commands(PAGE, "collector_status_info")
        (port,) = free_ports(1)
        environment = {"JOBLEDGER_CONTROL_SOCKET": str(Path(self.binary).parent / "socket")}
        user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        process = subprocess.Popen(["timeout", "1200", self.binary, f"--web.listen-address=127.0.0.1:{port}"], env=environment | {"PATH": os.environ["PATH"]},
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, **user)
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for("the exporter to listen", lambda: process.poll() is not None or connects(port), interval=0.1)
        self.assertIsNone(process.poll())
        said = self.shell(command.replace(":9810", f":{port}")).stdout
        # No machine has the sources of all collectors.
        self.assertRegex(said, r'(?m)^jobledger_exporter_collector_status_info\{collector="\w+",reason="unsupported",detail="needs [^"]+"\} 1$')


if __name__ == "__main__":
    unittest.main()
