"""The exporter in a container like the pod's: its mounts, user, capabilities and cgroup namespace, and nothing else.

No runtime of containers is needed, and none is asked: unshare(1) and mount(8) make the same of a directory. What a collector
finds there must be what it finds outside. Root only, and not beside tests that make jobs on this machine:

    python3 -m unittest discover -s tests/helm -p 'alone_*.py'
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import tools

# Directories of this machine's system, for a binary that is not static.
SYSTEM = ("usr", "bin", "lib", "lib64", "etc")
# The container has its own; a host path below them that is not mounted is invisible.
OWN = ("proc", "sys", "dev", "run", "tmp", "host")
PROBE = "unshare --mount --cgroup --fork true"


def possible():
    return os.geteuid() == 0 and shutil.which("setpriv") and not subprocess.run(PROBE.split(), capture_output=True).returncode


def pod(made):
    return tools.only("DaemonSet", made)["spec"]["template"]["spec"]


def script(made, root):
    """Shell lines that build the container below `root`, as a runtime would for this pod, and change the root to it."""
    (container,) = pod(made)["containers"]
    paths = {each["name"]: each["hostPath"]["path"] for each in pod(made)["volumes"] if "hostPath" in each}
    lines = ["set -eu", f"root={shlex.quote(str(root))}", "mount --make-rprivate /", "mount -t tmpfs none $root"]
    for name in SYSTEM:
        if Path("/", name).exists():
            lines += [f"mkdir $root/{name}", f"mount --rbind /{name} $root/{name}"]
    lines += [f"mkdir $root/{name}" for name in OWN]
    lines += ["mount -t proc none $root/proc", ": > $root/exporter",
              f"mount --bind {shlex.quote(str(tools.exporter()))} $root/exporter"]
    for mount in container["volumeMounts"]:
        if mount["name"] not in paths:
            continue
        source, target = shlex.quote(paths[mount["name"]]), f"$root{shlex.quote(mount['mountPath'])}"
        # DirectoryOrCreate: an empty directory, but not on this machine.
        lines += [f"mkdir -p {target}", f"[ ! -e {source} ] || mount --rbind {source} {target}"]
        if mount.get("readOnly"):
            lines.append(f"[ ! -e {source} ] || mount -o remount,bind,ro {target}")
    return lines


def confined(made):
    """The command that sets the pod's user and capabilities."""
    context = pod(made)["securityContext"]
    (container,) = pod(made)["containers"]
    bounds = ["-all", *(f"+{each.lower()}" for each in container["securityContext"]["capabilities"].get("add", []))]
    user, group = context["runAsUser"], context["runAsGroup"]
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", f"--bounding-set={','.join(bounds)}", "--inh-caps=-all"]


def states(report):
    """State by collector, without NFS, which depends on the container's own mounts (`host.mounts`)."""
    return dict(re.findall(r"^([a-z_]+) +(\w+) ", report, re.M)) | {"nfs": None}


@unittest.skipUnless(possible(), "root: namespaces are made")
@unittest.skipUnless(tools.exporter(), "exporter: cargo build -p jobledger-exporter")
class Container(unittest.TestCase):
    def output(self, done):
        """What it printed. `--check` ends with 1 where a user without rights may not read what the machine has (RAPL)."""
        self.assertIn(done.returncode, (0, 1) if "--check" in done.args[-1] else (0,), done.stdout + done.stderr)
        return done.stdout

    def inside(self, made, *arguments):
        with tempfile.TemporaryDirectory() as temporary:
            (container,) = pod(made)["containers"]
            command = [*confined(made), "/exporter", *container["args"], *arguments]
            lines = [*script(made, temporary), f"exec chroot $root {shlex.join(command)}"]
            done = subprocess.run(["unshare", "--mount", "--cgroup", "--fork", "sh", "-c", "\n".join(lines)],
                                  env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=600)
        return self.output(done)

    def outside(self, made, *arguments):
        """The same command without the container's mounts, by the same user."""
        (container,) = pod(made)["containers"]
        flags = [each for each in container["args"] if not each.startswith(("--path.", "--jobs.metadata-dir", "--counters.lock-file"))]
        with tempfile.TemporaryDirectory() as temporary:
            os.chmod(temporary, 0o755)
            copy = shutil.copy(tools.exporter(), Path(temporary) / "exporter")
            done = subprocess.run([*confined(made), copy, *flags, *arguments], env={"PATH": os.environ["PATH"]},
                                  capture_output=True, text=True, timeout=600)
        return self.output(done)

    def test_collectors_find_the_same_as_outside(self):
        for name in ("default", "profile-energy", "perf"):
            with self.subTest(name):
                made = tools.rendered(name)
                for _ in range(3):
                    inside, outside = states(self.inside(made, "--check")), states(self.outside(made, "--check"))
                    # Another test's slurmd may start or stop meanwhile.
                    if inside == outside:
                        break
                self.assertGreater(len(inside), 20)
                self.assertEqual(inside, outside)
                self.assertEqual([inside[each] for each in ("node_cpu", "node_memory", "node_network", "node_hardware")], ["ok"] * 4)

    def test_it_sees_the_hosts_devices(self):
        """The node's numbers are the host's."""
        made = tools.rendered("default")
        for family in ("jobledger_node_network_received_bytes_total", "jobledger_node_cpus ", "jobledger_node_memory_total_bytes"):
            with self.subTest(family):
                def series(text, family=family):
                    return {line.split(" ")[0] for line in text.splitlines() if line.startswith(family)}
                inside = series(self.inside(made, "--once"))
                self.assertTrue(inside)
                self.assertEqual(inside, series(self.outside(made, "--once")))

    def test_without_the_mounts_collectors_find_nothing(self):
        """Otherwise the container could see the host without mounts, and the tests above would prove nothing."""
        made = tools.objects(tools.render(tools.CHART / "ci" / "default-values.yaml"))
        (container,) = pod(made)["containers"]
        container["volumeMounts"] = []
        self.assertNotEqual(states(self.inside(made, "--check"))["node_cpu"], "ok")


if __name__ == "__main__":
    unittest.main()
