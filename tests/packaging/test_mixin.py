"""The mixin of packaging/mixin.sh: the same bytes every time, and Prometheus, Alertmanager and Grafana can load what is in it.

Needs promtool and amtool (tests/tools/install-packages.sh rules).
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import unittest
from pathlib import Path

import yaml

from support import PACKAGING, ROOT

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NAME = f"jobledger-mixin-{VERSION}"
EPOCH = 1_700_000_000


def build(directory, root=ROOT, **options):
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run([root / "packaging/mixin.sh", "--output", directory], env=environment, stdout=subprocess.DEVNULL, check=True, **options)
    return Path(directory) / f"{NAME}.tar.gz"


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Mixin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = Path(scratch.name)
        cls.archive = build(cls.scratch / "out")
        with tarfile.open(cls.archive) as archive:
            cls.members = archive.getmembers()
            archive.extractall(cls.scratch)
        cls.root = cls.scratch / NAME

    def test_the_same_sources_make_the_same_bytes(self):
        """Times and modes of the files, the umask and the order of directories have no part in it."""
        other = self.scratch / "other"
        for part in ("packaging", "rules", "grafana"):
            shutil.copytree(ROOT / part, other / part, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
        for name in ("Cargo.toml", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"):
            shutil.copy(ROOT / name, other / name)
        for path in other.rglob("*"):
            os.utime(path, (1, 1))
        for path in (other / "rules").rglob("*.yaml"):
            path.chmod(0o600)
        self.assertEqual(digest(build(self.scratch / "again", other, preexec_fn=lambda: os.umask(0o077))), digest(self.archive))

    def test_nothing_of_the_machine_is_in_it(self):
        self.assertEqual({(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in self.members}, {(0, 0, "", "", EPOCH)})
        self.assertEqual({each.mode for each in self.members if each.isfile()}, {0o644})
        self.assertEqual([each.name for each in self.members], sorted((each.name for each in self.members), key=lambda name: name.split("/")))
        self.assertNotIn(str(ROOT), "".join(path.read_text() for path in self.root.rglob("*") if path.is_file()))

    def test_it_has_the_rules_and_dashboards_of_the_tree(self):
        def files(root):
            return {str(path.relative_to(root)): path.read_bytes() for part in ("rules", "grafana/dashboards", "grafana/provisioning")
                    for path in (root / part).rglob("*") if path.is_file()}
        def shipped(path):
            """Not tests, and of the files of rules/ itself only what is no source of others."""
            return not path.startswith("rules/tests/") and (path.count("/") > 1 or path in ("rules/site.yaml", "rules/README.md", "rules/ALERTS.md"))
        wanted = {path: text for path, text in files(ROOT).items() if shipped(path) and "__pycache__" not in path}
        self.assertEqual(files(self.root), wanted)
        self.assertEqual((self.root / "VERSION").read_text(), f"{VERSION}\n")
        self.assertIn(f"dashboards {VERSION}\n", (self.root / "README.md").read_text())
        self.assertNotIn("@", (self.root / "README.md").read_text())

    def test_every_file_is_plain_yaml_or_json(self):
        kinds = {path.suffix for path in self.root.rglob("*") if path.is_file()}
        self.assertEqual(kinds, {".yaml", ".yml", ".json", ".md", ".tmpl", ""})
        for path in self.root.rglob("*.y*ml"):
            self.assertTrue(yaml.safe_load(path.read_text()), path)

    def test_prometheus_loads_the_rules_as_the_readme_says(self):
        config = self.scratch / "prometheus.yml"
        (listed,) = re.findall(r"```yaml\n(rule_files:.*?)```", (self.root / "README.md").read_text(), re.S)
        config.write_text(listed.replace("/etc/prometheus/jobledger", str(self.root)))
        done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        files = len(list(self.root.glob("rules/recording/*.yaml"))) + len(list(self.root.glob("rules/alerts/*.yaml"))) + 1
        self.assertIn(f"SUCCESS: {files} rule files found", done.stdout)
        everything = [str(path) for path in [self.root / "rules/site.yaml", *self.root.glob("rules/*/*.yaml")]]
        done = subprocess.run(["promtool", "check", "rules", *everything], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("SUCCESS"), len(everything))

    def test_alertmanager_takes_the_example(self):
        done = subprocess.run(["amtool", "check-config", self.root / "rules/alertmanager/alertmanager.example.yml"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_alert_has_its_runbook(self):
        alerts = re.findall(r"- alert: (\w+)$", "\n".join(path.read_text() for path in self.root.glob("rules/alerts/*.yaml")), re.M)
        self.assertGreater(len(alerts), 20)
        self.assertEqual([name for name in alerts if not (self.root / f"rules/runbooks/{name}.md").exists()], [])

    def test_grafana_can_import_the_dashboards(self):
        """Each has a fixed uid of its own, and links between them are to uids that are there."""
        boards = [json.loads(path.read_text()) for path in self.root.glob("grafana/dashboards/*.json")]
        self.assertGreater(len(boards), 5)
        uids = [board["uid"] for board in boards]
        self.assertEqual(len(set(uids)), len(uids))
        for board in boards:
            with self.subTest(board["title"]):
                self.assertTrue(board["title"])
                self.assertIsNone(board.get("id"))
                self.assertNotIn("__inputs", board)
                self.assertLessEqual(set(re.findall(r"/d/([-\w]+)", json.dumps(board))), set(uids))

    def test_a_wrong_option_ends_it(self):
        done = subprocess.run([PACKAGING / "mixin.sh", "--nope"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 64)


if __name__ == "__main__":
    unittest.main()
