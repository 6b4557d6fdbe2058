"""The container image of packaging/container/build.sh: its user, its content, and that it runs.

As root, with buildah and mmdebstrap (tests/tools/install-packages.sh) and the exporter's release binary (make build).
"""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
import unittest
from pathlib import Path

from support import EXPORTER, PACKAGING, ROOT

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NOBODY = 65534
# All that a program of Debian needs; no shell.
MOST_BYTES = 40 << 20


@unittest.skipUnless(os.geteuid() == 0, "root: images are built")
class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make build"
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        archive = Path(scratch.name) / "image.tar"
        subprocess.run([PACKAGING / "container/build.sh", "--binary", EXPORTER, "--output", archive], check=True,
                       stdout=subprocess.DEVNULL)
        cls.root = Path(scratch.name) / "root"
        cls.root.mkdir()
        with tarfile.open(archive) as image:
            def blob(reference):
                return image.extractfile("blobs/" + reference["digest"].replace(":", "/"))

            (reference,) = json.load(image.extractfile("index.json"))["manifests"]
            manifest = json.load(blob(reference))
            cls.config = json.load(blob(manifest["config"]))["config"]
            for layer in manifest["layers"]:
                # Keep modes and owners.
                subprocess.run(["tar", "-xzpf", "-", "-C", cls.root], input=blob(layer).read(), check=True)

    def test_it_runs_as_nobody_and_has_labels(self):
        self.assertEqual(self.config["User"], f"{NOBODY}:{NOBODY}")
        self.assertEqual(self.config["Entrypoint"], ["/usr/bin/jobledger-exporter"])
        self.assertEqual(list(self.config["ExposedPorts"]), ["9810/tcp"])
        labels = {key.rpartition(".")[2]: value for key, value in self.config["Labels"].items()}
        self.assertEqual((labels["version"], labels["licenses"]), (VERSION, "Apache-2.0 OR MIT"))
        self.assertRegex(labels["revision"], r"^[0-9a-f]{40}$")

    def test_there_is_one_program_and_the_c_library(self):
        files = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        # Without the loader, which is one of the libraries.
        programs = [path for path in files if path.stat().st_mode & 0o111 and ".so" not in path.name]
        self.assertEqual([str(path.relative_to(self.root)) for path in programs], ["usr/bin/jobledger-exporter"])
        self.assertLess(sum(path.stat().st_size for path in files), MOST_BYTES)
        self.assertEqual([path for path in files if path.stat().st_mode & 0o7002], [], "writable by all, or set-uid")

    def test_it_runs_with_only_its_own_files(self):
        job = self.root / "node/cgroup/system.slice/slurmstepd.scope/job_7"
        job.mkdir(parents=True)
        for name in ("proc", "sys", "dev"):
            (self.root / "node" / name).mkdir()
        (self.root / "node/cgroup/cgroup.controllers").write_text("cpu memory\n")
        for group in (job.parent, job):
            (group / "cgroup.procs").write_text("")
            (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
            (group / "cpu.stat").write_text("usage_usec 5000000\nuser_usec 3000000\nsystem_usec 2000000\n")
        self.addCleanup(shutil.rmtree, self.root / "node")
        paths = [f"--path.{flag}=/node/{name}" for flag, name in
                 (("procfs", "proc"), ("sysfs", "sys"), ("cgroupfs", "cgroup"), ("dev", "dev"))]
        done = subprocess.run(["chroot", f"--userspec={NOBODY}:{NOBODY}", self.root, *self.config["Entrypoint"], "--once", *paths],
                              capture_output=True, text=True, check=False, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('\njobledger_job_cpu_seconds_total{jobid="7",mode="user"} 3', done.stdout)


if __name__ == "__main__":
    unittest.main()
