"""The container image of packaging/container: content and SBOM for both architectures, its way to a registry, and the chart's pod in containerd.

As root, with buildah, mmdebstrap and skopeo (tests/tools/install-packages.sh container) and the exporter (make tested-programs).
containerd, runc, a registry and qemu's arm64 are Debian's: unpacked, not installed. The exporter for arm64 is JOBLEDGER_EXPORTER_ARM64;
without one it is a small program of Debian's, which needs the same C library.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import urllib.request
from pathlib import Path

from support import EXPORTER, PACKAGING, ROOT

sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/helm")]

import tools as chart  # noqa: E402
from testbed import cache, debian  # noqa: E402
from testbed.processes import connects, free_ports, running, wait_for  # noqa: E402

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
NAME = f"localhost/jobledger-exporter:{VERSION}"
NOBODY = 65534
# All that a program of Debian needs; no shell.
MOST_BYTES = 40 << 20
EPOCH = 1_700_000_000
EMULATOR = "qemu-aarch64-static"
INDEX = "application/vnd.oci.image.index.v1+json"


def unpacked(package, architecture=None):
    """The directory of a package of this Debian's, which is not installed."""
    name = f"{package}:{architecture}" if architecture else package

    def unpack(into):
        if architecture:
            # apt here may not know the other architecture; mmdebstrap brings its own lists.
            subprocess.run(["unshare", "--mount", "--propagation", "private", "mmdebstrap", "--mode=root", "--variant=extract", "--quiet",
                            f"--architectures={architecture}", f"--include={package}", "bookworm", into / "root"], check=True)
        else:
            debian.download_own(package, into)
        # One of the many emulators is used.
        for path in Path(into).glob("usr/bin/qemu-*-static"):
            if path.name != EMULATOR:
                path.unlink()
    key = name.replace(":", "-")
    return cache.built(f"image-tests-{key}", cache.key(key), unpack)


def other_binary():
    """A program for arm64."""
    named = os.environ.get("JOBLEDGER_EXPORTER_ARM64")
    return Path(named) if named else unpacked("coreutils", "arm64") / "root/usr/bin/env"


def build(archive, *binaries):
    command = [PACKAGING / "container/build.sh", "--output", archive]
    for binary in binaries:
        command += ["--binary", binary]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)})


class Archive:
    """An OCI archive, by the image specification: its index, and each image's configuration and files."""

    def __init__(self, path, into):
        self.images = {}
        with tarfile.open(path) as archive:
            def blob(reference):
                return archive.extractfile("./blobs/" + reference["digest"].replace(":", "/"))

            (self.reference,) = json.load(archive.extractfile("./index.json"))["manifests"]
            for reference in json.load(blob(self.reference))["manifests"]:
                manifest = json.load(blob(reference))
                config = json.load(blob(manifest["config"]))
                root = into / reference["platform"]["architecture"]
                root.mkdir()
                for layer in manifest["layers"]:
                    # Keep modes and owners.
                    subprocess.run(["tar", "-xzpf", "-", "-C", root], input=blob(layer).read(), check=True)
                self.images[reference["platform"]["architecture"]] = (reference, config, root)


@unittest.skipUnless(os.geteuid() == 0, "root: images are built")
class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs"
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = Path(scratch.name)
        cls.archive = cls.scratch / "image.tar"
        build(cls.archive, EXPORTER, other_binary())
        cls.made = Archive(cls.archive, cls.scratch)
        _, cls.config, cls.root = cls.made.images["amd64"]

    def test_both_architectures_have_the_same_settings(self):
        self.assertEqual(self.made.images.keys(), {"amd64", "arm64"})
        self.assertEqual(self.made.reference["mediaType"], INDEX)
        self.assertEqual(self.made.reference["annotations"]["org.opencontainers.image.ref.name"], NAME)
        for architecture, (reference, config, _) in self.made.images.items():
            with self.subTest(architecture):
                self.assertEqual(reference["platform"], {"architecture": architecture, "os": "linux"})
                self.assertEqual((config["architecture"], config["os"]), (architecture, "linux"))
                settings = config["config"]
                self.assertEqual(settings["User"], f"{NOBODY}:{NOBODY}")
                self.assertEqual(settings["Entrypoint"], ["/usr/bin/jobledger-exporter"])
                self.assertEqual(list(settings["ExposedPorts"]), ["9810/tcp"])
                labels = {key.rpartition(".")[2]: value for key, value in settings["Labels"].items()}
                self.assertEqual((labels["version"], labels["licenses"], labels["created"]), (VERSION, "Apache-2.0 OR MIT", "2023-11-14T22:13:20Z"))
                self.assertRegex(labels["revision"], r"^[0-9a-f]{40}$")

    def test_there_is_one_program_and_the_c_library(self):
        for architecture, (_, _, root) in self.made.images.items():
            with self.subTest(architecture):
                files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
                # Without the loader, which is one of the libraries.
                programs = [path for path in files if path.stat().st_mode & 0o111 and ".so" not in path.name]
                self.assertEqual([str(path.relative_to(root)) for path in programs], ["usr/bin/jobledger-exporter"])
                self.assertLess(sum(path.stat().st_size for path in files), MOST_BYTES)
                self.assertEqual([path for path in files if path.stat().st_mode & 0o7002], [], "writable by all, or set-uid")
                # Every file is of its architecture (e_machine of the ELF header).
                machines = {path.read_bytes()[18] for path in files if path.read_bytes()[:4] == b"\x7fELF"}
                self.assertEqual(machines, {{"amd64": 62, "arm64": 183}[architecture]})

    def test_each_has_an_sbom_of_what_is_in_it(self):
        crates = json.loads(subprocess.run(["python3", PACKAGING / "dependencies.py", "sbom"], capture_output=True, check=True).stdout)["components"]
        for architecture, (_, _, root) in self.made.images.items():
            with self.subTest(architecture):
                inside = (root / "usr/share/doc/jobledger-exporter/sbom.cdx.json").read_text()
                self.assertEqual((self.scratch / f"image-{architecture}.cdx.json").read_text(), inside)
                found = json.loads(inside)
                listed = {each["name"]: each for each in found["components"] if each["purl"].startswith("pkg:deb/")}
                self.assertEqual(listed.keys(), {"libc6", "libgcc-s1"})
                for package in listed.values():
                    self.assertRegex(package["version"], r"^\d+\.\d")
                    self.assertIn(f"?arch={architecture}", package["purl"])
                if architecture == "amd64":
                    self.assertEqual([each for each in found["components"] if each not in listed.values()], crates)
                    # The version is that of the library that is there.
                    library = next(root.rglob("libc.so.6")).read_bytes()
                    self.assertIn(f"Debian GLIBC {listed['libc6']['version']}".encode(), library)

    def test_the_same_binaries_make_the_same_bytes(self):
        again = self.scratch / "again.tar"
        build(again, EXPORTER, other_binary())
        self.assertEqual(hashlib.sha256(again.read_bytes()).hexdigest(), hashlib.sha256(self.archive.read_bytes()).hexdigest())

    def test_two_binaries_for_one_architecture_are_refused(self):
        command = [PACKAGING / "container/build.sh", "--output", self.scratch / "two.tar", "--binary", EXPORTER, "--binary", EXPORTER]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("two binaries for amd64", done.stderr)
        self.assertFalse((self.scratch / "two.tar").exists())

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
        done = subprocess.run(["chroot", f"--userspec={NOBODY}:{NOBODY}", self.root, *self.config["config"]["Entrypoint"], "--once", *paths],
                              capture_output=True, text=True, check=False, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('\njobledger_job_cpu_seconds_total{jobid="7",mode="user"} 3', done.stdout)

    def test_the_other_architecture_runs_with_only_its_own_files(self):
        _, _, root = self.made.images["arm64"]
        emulator = shutil.copy(unpacked("qemu-user-static") / "usr/bin" / EMULATOR, root / "emulator")
        self.addCleanup(os.unlink, emulator)
        # An answer shows that its loader found every library.
        done = subprocess.run(["chroot", f"--userspec={NOBODY}:{NOBODY}", root, "/emulator", "/usr/bin/jobledger-exporter", "--version"],
                              capture_output=True, text=True, check=False, timeout=1200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(VERSION if "JOBLEDGER_EXPORTER_ARM64" in os.environ else "coreutils", done.stdout)

    def test_it_goes_to_a_registry_with_all_architectures(self):
        (port,) = free_ports(1)
        config = self.scratch / "registry.yml"
        config.write_text(f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {self.scratch}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n")
        with running([str(unpacked("docker-registry") / "usr/bin/docker-registry"), "serve", str(config)], self.scratch / "registry.log"):
            wait_for("the registry", lambda: connects(port))
            registry = f"127.0.0.1:{port}/hpc"
            done = subprocess.run([PACKAGING / "container/push.sh", registry, "--archive", self.archive, "--dest-tls-verify=false"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"--set image.registry={registry}", done.stdout)
            # What the chart asks for with this registry.
            (pod,) = chart.only("DaemonSet", chart.objects(chart.render({"image": {"registry": registry}})))["spec"]["template"]["spec"]["containers"]
            name, tag = pod["image"].removeprefix(f"127.0.0.1:{port}/").split(":")
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/{name}/manifests/{tag}", headers={"Accept": INDEX})
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.assertEqual(answer.headers["Docker-Content-Digest"], self.made.reference["digest"])
                self.assertEqual({each["platform"]["architecture"] for each in json.load(answer)["manifests"]}, {"amd64", "arm64"})

    def test_push_without_a_registry_or_an_image_says_so(self):
        for arguments, code, message in (((), 64, "usage"), (("registry.test", "--archive", "/nonexistent"), 1, "make image")):
            done = subprocess.run([PACKAGING / "container/push.sh", *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code)
            self.assertIn(message, done.stderr)


def runtime():
    """The PATH with containerd and runc."""
    return f"{unpacked('containerd') / 'usr/bin'}:{unpacked('runc') / 'usr/sbin'}:{os.environ['PATH']}"


@unittest.skipUnless(os.geteuid() == 0, "root: containers are run")
class Pod(unittest.TestCase):
    """The chart's pod in containerd, from the image's archive, as a node does it that imported the archive."""

    @classmethod
    def setUpClass(cls):
        assert EXPORTER.exists(), f"{EXPORTER} is not there: make tested-programs"
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build(cls.scratch / "image.tar", EXPORTER)
        cls.environment = os.environ | {"PATH": runtime()}
        # Of its plugins only those that a container needs.
        config = cls.scratch / "containerd.toml"
        config.write_text(f"""version = 2
root = "{cls.scratch}/root"
state = "{cls.scratch}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
address = "{cls.scratch}/containerd.sock"
""")
        containerd = unpacked("containerd") / "usr/bin/containerd"
        # Mounts, and what it and runc keep below /run, end with it.
        own = Path("/run/containerd")
        if not own.exists():
            own.mkdir()
            stack.callback(own.rmdir)
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'mount -t tmpfs none {own} && exec "$@"', "sh", str(containerd), "--config", str(config)]
        stack.enter_context(running(command, cls.scratch / "containerd.log", env=cls.environment))
        wait_for("containerd", lambda: cls.ctr("version", check=False).returncode == 0)
        cls.ctr("images", "import", str(cls.scratch / "image.tar"))

    @classmethod
    def ctr(cls, *arguments, check=True):
        done = subprocess.run([unpacked("containerd") / "usr/bin/ctr", "--address", cls.scratch / "containerd.sock", "--namespace", "k8s.io", *arguments],
                              env=cls.environment, capture_output=True, text=True, check=False, timeout=1200)
        if check and done.returncode:
            raise AssertionError(f"{done.stderr}\n{(cls.scratch / 'containerd.log').read_text()[-2000:]}")
        return done

    def pod(self, *values):
        """(pod, container) of the chart, with a free port."""
        (port,) = free_ports(1)
        made = chart.only("DaemonSet", chart.objects(chart.render({"web": {"port": port}}, *values)))["spec"]["template"]["spec"]
        (container,) = made["containers"]
        return port, made, container

    def run_pod(self, made, container, name):
        """Starts it with the pod's user, namespaces, mounts and capabilities; returns once it listens."""
        self.assertEqual(container["image"], NAME)
        self.assertTrue(made["hostNetwork"] and made["hostPID"])
        paths = {each["name"]: each["hostPath"]["path"] for each in made["volumes"] if "hostPath" in each}
        options = ["--null-io", "--cgroup", "", "--net-host", "--read-only", f"--with-ns=pid:/proc/{os.getpid()}/ns/pid"]
        # The image's own user, since this ctr cannot set another.
        self.assertEqual((made["securityContext"]["runAsUser"], made["securityContext"]["runAsGroup"]), (NOBODY, NOBODY))
        for mount in container["volumeMounts"]:
            source = paths.get(mount["name"])
            if source is None:
                # An emptyDir in memory.
                options += ["--mount", f"type=tmpfs,src=tmpfs,dst={mount['mountPath']},options=rw:mode=1777"]
            elif Path(source).exists():
                mode = "ro" if mount.get("readOnly") else "rw"
                options += ["--mount", f"type=bind,src={source},dst={mount['mountPath']},options=rbind:{mode}"]
        for each in ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP",
                     "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"):
            options += ["--cap-drop", each]
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.ctr("run", "--detach", *options, container["image"], name, "/usr/bin/jobledger-exporter", *container["args"])
        for each in (("containers", "delete"), ("tasks", "delete"), ("tasks", "kill", "--signal", "SIGKILL")):
            self.addCleanup(self.ctr, *each, name, check=False)
        (line,) = [line for line in self.ctr("tasks", "list").stdout.splitlines() if line.split()[0] == name]
        return int(line.split()[1])

    def test_the_archive_has_the_name_that_the_chart_asks_for(self):
        self.assertIn(NAME, self.ctr("images", "list", "--quiet").stdout.split())

    def test_the_chart_without_values_serves_its_node(self):
        port, made, container = self.pod()
        process = self.run_pod(made, container, "default")
        wait_for("the exporter", lambda: connects(port))
        base = f"http://127.0.0.1:{port}"
        for probe in ("livenessProbe", "readinessProbe"):
            def answered(path=container[probe]["httpGet"]["path"]):
                with urllib.request.urlopen(base + path, timeout=60) as answer:
                    return answer.status == 200
            wait_for(probe, answered)
        with urllib.request.urlopen(f"{base}/metrics", timeout=60) as answer:
            page = answer.read().decode()
        self.assertIn('jobledger_exporter_build_info{', page)
        self.assertIn(f'version="{VERSION}"', page)
        # It sees the host: the node's memory, and the uid of the pod.
        total = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal")).split()[1]) << 10
        self.assertIn(f"jobledger_node_memory_total_bytes {total}\n", page)
        status = dict(line.split(":\t") for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":\t" in line)
        self.assertEqual(status["Uid"].split(), [str(NOBODY)] * 4)
        self.assertEqual({status[kind] for kind in ("CapPrm", "CapEff", "CapInh", "CapBnd")}, {"0" * 16})
        self.assertEqual(status["NoNewPrivs"], "1")


if __name__ == "__main__":
    unittest.main()
