"""The DaemonSet: the exporter accepts its command line, and the pod gets only what the exporter needs of the node."""

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import tools
from tools import yaml

sys.path.append(str(tools.ROOT / "tests/e2e"))

from testbed.processes import connects, free_ports, wait_for  # noqa: E402

COLLECTORS = tools.ROOT / "exporter" / "src" / "collector"
HELPER = tools.ROOT / "crates" / "gpu-binding" / "src" / "helper" / "mod.rs"
USAGE = 64
SECRET = "/etc/jobledger/web/web-config.yml"
CERTIFICATES = "/etc/jobledger/tls"


def with_pods():
    """Objects by name of those files of ci/ that have a DaemonSet."""
    found = {path.name[: -len("-values.yaml")]: None for path in tools.CI}
    found = {name: tools.rendered(name) for name in found}
    return {name: made for name, made in found.items() if any(each["kind"] == "DaemonSet" for each in made)}


def pod(made):
    return tools.only("DaemonSet", made)["spec"]["template"]["spec"]


def container(made):
    (one,) = pod(made)["containers"]
    return one


def bears(toleration, taint):
    """Matches as Kubernetes does (Toleration.ToleratesTaint)."""
    key, effect = taint
    return (toleration.get("effect") in (None, effect) and toleration.get("key") in (None, key)
            and toleration.get("operator") == "Exists")


def values(name):
    return yaml.safe_load((tools.CHART / "ci" / f"{name}-values.yaml").read_text())


# To become uid 65534 (docs/security.md).
CHANGE_USERS = {"SETGID", "SETUID"}


def names(expression):
    return set(re.findall(r"CapabilitySet::([A-Z_]+)", expression))


def registry():
    """Capabilities by collector, from its `ENTRY` (listed in exporter/src/collector/registry.rs)."""
    looks = names(re.search(r"const CAPABILITIES[^;]*;", (COLLECTORS / "proc_pid.rs").read_text()).group())
    found = {}
    for module in re.findall(r"super::([\w:]+)::ENTRY", (COLLECTORS / "registry.rs").read_text()):
        path = COLLECTORS / f"{module.replace('::', '/')}.rs"
        entry = re.search(r'const ENTRY: Entry = Entry \{\s*name: "(\w+)".*?\n    capabilities: ([^\n]*),\n', path.read_text(), re.S)
        found[entry.group(1)] = looks if "proc_pid::CAPABILITIES" in entry.group(2) else names(entry.group(2))
    return found, looks


class Capabilities(unittest.TestCase):
    def test_the_registry_is_read_completely(self):
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        self.assertEqual(set(schema["$defs"]["collectors"]["properties"]), set(registry()[0]))

    def test_a_pod_has_only_what_its_collectors_need(self):
        collectors, looks = registry()
        options = {
            "deviceHelper": names(re.search(r"const TWO[^;]*;", HELPER.read_text()).group()),
            "powerPmu": {"PERFMON"}, "environmentHints": looks, "resctrl": set(), "orders": set(),
        }
        for name, made in with_pods().items():
            with self.subTest(name):
                given = values(name)
                # Whoever starts as root becomes another user.
                started = CHANGE_USERS if given.get("profile", "minimal") != "minimal" else set()
                wanted = set(given.get("extraCapabilities", [])) | started
                for collector, on in given.get("collectors", {}).items():
                    wanted |= collectors[collector] if on else set()
                for option, on in given.get("options", {}).items():
                    wanted |= options[option] if on else set()
                context = container(made)["securityContext"]
                self.assertTrue(context["readOnlyRootFilesystem"])
                if given.get("privileged"):
                    self.assertEqual(context, {"readOnlyRootFilesystem": True, "privileged": True})
                    continue
                self.assertFalse(context["allowPrivilegeEscalation"])
                self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                self.assertEqual(context["capabilities"].get("add", []), sorted(wanted))
                if given.get("profile") != "full":
                    self.assertEqual(wanted, started)

    def test_each_collector_alone_gets_its_capabilities(self):
        for collector, needed in registry()[0].items():
            if needed:
                with self.subTest(collector):
                    made = tools.objects(tools.render(tools.image(profile="full", collectors={collector: True})))
                    self.assertEqual(set(container(made)["securityContext"]["capabilities"]["add"]), needed | CHANGE_USERS)

    def test_user_and_groups(self):
        for name, made in with_pods().items():
            with self.subTest(name):
                context = pod(made)["securityContext"]
                minimal = values(name).get("profile", "minimal") == "minimal"
                self.assertEqual(context["runAsUser"], 65534 if minimal else 0)
                self.assertEqual(context.get("runAsNonRoot", False), minimal)
                self.assertFalse(pod(made)["automountServiceAccountToken"])
        self.assertFalse(tools.only("ServiceAccount", tools.rendered("default"))["automountServiceAccountToken"])


class Host(unittest.TestCase):
    def test_host_paths_are_read_only_unless_a_value_changes_that(self):
        writable = {"profile-energy": {"/run/jobledger"}, "profile-full": {"/run/jobledger", "/sys/fs/resctrl"}}
        for name, made in with_pods().items():
            with self.subTest(name):
                paths = {each["name"]: each["hostPath"]["path"] for each in pod(made)["volumes"] if "hostPath" in each}
                mounts = {each["name"]: each for each in container(made)["volumeMounts"]}
                found = {path for volume, path in paths.items() if not mounts[volume].get("readOnly")}
                self.assertEqual(found, writable.get(name, set()))
                self.assertEqual(len({each["mountPath"] for each in mounts.values()}), len(mounts))
                self.assertLessEqual({"/proc", "/sys"}, set(paths.values()))
                self.assertNotIn("/", paths.values())
                # The container's own /proc and /sys differ, and runtimes mask parts of them.
                self.assertFalse({"/proc", "/sys", "/dev"} & {each["mountPath"] for each in mounts.values()})

    def test_paths_of_flags_are_mounted(self):
        for name, made in with_pods().items():
            mounts = [each["mountPath"] for each in container(made)["volumeMounts"]]
            for argument in container(made)["args"]:
                flag, _, path = argument.partition("=")
                if path.startswith("/host"):
                    with self.subTest(f"{name} {flag}"):
                        self.assertTrue(any(f"{path}/".startswith(f"{mount}/") for mount in mounts))

    def test_mounts_below_are_read_only_if_the_api_supports_it(self):
        def recursive(name, version=tools.VERSION):
            """By host path, of those with mounts below them."""
            mounts = {each["name"]: each for each in container(tools.rendered(name, version))["volumeMounts"]}
            return {path: mounts[path].get("recursiveReadOnly") for path in ("proc", "sys", "dev") if path in mounts}
        every = dict.fromkeys(("proc", "sys", "dev"))
        self.assertEqual(recursive("default", "1.30.0"), every)
        self.assertEqual(recursive("default", "1.31.0"), dict.fromkeys(every, "IfPossible"))
        # The writable path is below /sys; the README documents it.
        self.assertEqual(recursive("profile-full"), dict.fromkeys(every, "IfPossible") | {"sys": None})
        self.assertIn("below /sys with `options.resctrl`", (tools.CHART / "README.md").read_text())
        for name, made in with_pods().items():
            for mount in container(made)["volumeMounts"]:
                if "recursiveReadOnly" in mount:
                    with self.subTest(f"{name} {mount['name']}"):
                        # Required by the API.
                        self.assertTrue(mount["readOnly"])
                        self.assertNotIn("mountPropagation", mount)

    def test_it_tolerates_the_taints_of_slurm_nodes(self):
        """Slinky's taints evict pods; those of GPU nodes prevent scheduling."""
        taints = [("nodeset.slinky.slurm.net/worker", "NoExecute"), ("slinky.slurm.net/slurm", "NoExecute"), ("nvidia.com/gpu", "NoSchedule")]
        readme = (tools.CHART / "README.md").read_text()
        for name, made in with_pods().items():
            for taint in taints:
                with self.subTest(f"{name} {taint}"):
                    self.assertTrue(any(bears(each, taint) for each in pod(made)["tolerations"]))
        for key, _ in taints[:2]:
            self.assertIn(key, readme)

    def test_a_file_is_mounted_without_its_directory_and_the_readme_warns(self):
        made = tools.rendered("slinky")
        found = {each["hostPath"]["path"]: each["hostPath"]["type"] for each in pod(made)["volumes"] if "hostPath" in each}
        self.assertEqual(found["/etc/passwd"], "File")
        self.assertNotIn("/etc", found)
        # Both rows of the README mention it.
        for row in ("| /etc/passwd |", "| host.passwd |"):
            (line,) = [line for line in (tools.CHART / "README.md").read_text().splitlines() if line.startswith(row)]
            self.assertIn("until the pod restarts", line)

    def test_gpus_are_never_requested(self):
        for name, made in with_pods().items():
            with self.subTest(name):
                self.assertNotIn("nvidia.com/", json.dumps(container(made)["resources"]))

    def test_nvidia(self):
        made = tools.rendered("nvidia")
        self.assertEqual(pod(made)["runtimeClassName"], "nvidia")
        self.assertIn({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, container(made)["env"])
        for name in ("nvidia", "privileged"):
            # The library opens the device nodes in the container.
            self.assertFalse([each for each in container(tools.rendered(name))["args"] if each.startswith("--path.dev")])
        self.assertIn("--path.dev=/host/dev", container(tools.rendered("default"))["args"])

    def test_without_the_helper_the_flag_disables_it(self):
        for name, made in with_pods().items():
            with self.subTest(name):
                helper = values(name).get("options", {}).get("deviceHelper", False)
                self.assertEqual("--security.no-device-helper" in container(made)["args"], not helper)

    def test_the_network_of_the_host(self):
        self.assertTrue(pod(tools.rendered("default"))["hostNetwork"])
        made = tools.rendered("pod-network")
        self.assertFalse(pod(made)["hostNetwork"])
        self.assertNotIn("hostPort", container(made)["ports"][0])
        self.assertIn("--no-collector.node_network", container(made)["args"])
        self.assertEqual(tools.only("NetworkPolicy", made)["spec"]["egress"], [])


class Image(unittest.TestCase):
    def images(self, **given):
        """Of the exporter and of `helm test`."""
        made = tools.objects(tools.render(given))
        (asking,) = tools.only("Pod", made)["spec"]["containers"]
        return container(made)["image"], asking["image"]

    def test_the_registry_can_be_changed_for_one_or_for_all(self):
        version = yaml.safe_load((tools.CHART / "Chart.yaml").read_text())["appVersion"]
        self.assertEqual(self.images(), (f"localhost/jobledger-exporter:{version}", "docker.io/curlimages/curl:8.10.1"))
        self.assertEqual(self.images(**{"image": {"registry": "registry.example.org/hpc"}})[0], f"registry.example.org/hpc/jobledger-exporter:{version}")
        self.assertEqual(self.images(**{"global": {"imageRegistry": "mirror:5000"}, "image": {"registry": "registry.example.org", "tag": "2"}}),
                         ("mirror:5000/jobledger-exporter:2", "mirror:5000/curlimages/curl:8.10.1"))
        digest = f"sha256:{'0' * 64}"
        self.assertEqual(self.images(image={"digest": digest, "tag": "2"})[0], f"localhost/jobledger-exporter@{digest}")


@unittest.skipUnless(tools.exporter(), "exporter: cargo build -p jobledger-exporter")
class Exporter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name)
        (cls.directory / "tls").mkdir()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", cls.directory / "tls/tls.key", "-out", cls.directory / "tls/tls.crt"],
            check=True, capture_output=True,
        )
        shutil.copy(cls.directory / "tls/tls.crt", cls.directory / "tls/ca.crt")

    def arguments(self, made):
        """The rendered command lines, with the files of secrets that exist."""
        found = [argument.replace("$(HOST_IP)", "127.0.0.1") for argument in container(made)["args"]]
        secrets = [each for each in made if each["kind"] == "Secret"]
        for secret in secrets:
            text = base64.b64decode(secret["data"]["web-config.yml"]).decode()
            path = self.directory / f"{secret['metadata']['name']}.yml"
            path.write_text(text.replace(CERTIFICATES, str(self.directory / "tls")))
            found = [argument.replace(SECRET, str(path)) for argument in found]
        # Secrets of the site do not exist here.
        return [argument for argument in found if SECRET not in argument]

    def run_exporter(self, *arguments):
        return subprocess.run([tools.exporter(), *arguments], env={}, capture_output=True, text=True, timeout=600)

    def test_it_accepts_every_rendered_command_line(self):
        for name, made in with_pods().items():
            with self.subTest(name):
                done = self.run_exporter(*self.arguments(made), "--check")
                self.assertNotEqual(done.returncode, USAGE, done.stderr)
                self.assertIn("COLLECTOR", done.stdout)
                for collector, on in values(name).get("collectors", {}).items():
                    state = re.search(rf"^{collector} +(\w+)", done.stdout, re.M).group(1)
                    self.assertEqual(state != "off", on, collector)

    def test_it_accepts_the_same_periods_as_the_schema(self):
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        pattern = re.compile(schema["properties"]["gpu"]["properties"]["period"]["pattern"])
        for period in ("0s", "999ms", "1000ms", "1s", "9s", "10s", "99s", "299s", "300s", "301s", "1m", "1m1s", "4m59s", "5m", "5m1s", "6m", "60m", "299999ms",
                       "300000ms", "300001ms", "1h", "1d"):
            with self.subTest(period):
                # This parses the whole command line and reads nothing of the node.
                done = self.run_exporter(f"--collector.gpu.period={period}", "generate", "flags")
                self.assertEqual(done.returncode, 0 if pattern.search(period) else USAGE, done.stderr)

    def test_it_accepts_the_profiles_of_the_schema(self):
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        for profile in schema["properties"]["metricProfile"]["enum"]:
            with self.subTest(profile):
                found = container(tools.objects(tools.render(tools.image(metricProfile=profile))))["args"]
                (argument,) = [each for each in found if each.startswith("--metric.profile=")]
                self.assertEqual(argument, f"--metric.profile={profile}")
                self.assertEqual(self.run_exporter(argument, "generate", "flags").returncode, 0)

    def test_it_listens_on_the_nodes_address_of_either_family(self):
        (argument,) = [each for each in container(tools.rendered("tls"))["args"] if each.startswith("--web.listen-address=")]
        for address in ("127.0.0.1", "::1"):
            with self.subTest(address):
                done = self.run_exporter(argument.replace("$(HOST_IP)", address), "generate", "flags")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_it_refuses_a_wrong_command_line(self):
        for wrong in ("--collector.cpus", "--jobs.retention=soon", "--metric.job-labels=jobid"):
            self.assertEqual(self.run_exporter(wrong, "--check").returncode, USAGE)

    def serve(self, name):
        """Starts it like the pod, on a free port of this host; returns port and log once it answers."""
        (port,) = free_ports(1)
        arguments = [each for each in self.arguments(tools.rendered(name)) if not each.startswith("--web.listen-address")]
        log = self.directory / f"{name}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                # A limit, if this test does not end it.
                ["timeout", "1200", tools.exporter(), *arguments, f"--web.listen-address=127.0.0.1:{port}"],
                env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL, stderr=stderr,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        wait_for("the exporter to listen", lambda: process.poll() is not None or connects(port), interval=0.1)
        self.assertIsNone(process.poll(), log.read_text())
        return port, log

    def status(self, port, path, scheme="http"):
        context = ssl.create_default_context(cafile=self.directory / "tls/tls.crt") if scheme == "https" else None
        try:
            with urllib.request.urlopen(f"{scheme}://localhost:{port}{path}", timeout=600, context=context) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def test_probes_use_a_path_that_it_serves(self):
        for name, scheme in (("default", "http"), ("tls-only", "https")):
            made = container(tools.rendered(name))
            port, _ = self.serve(name)
            for probe in ("livenessProbe", "readinessProbe"):
                with self.subTest(f"{name} {probe}"):
                    asked = made[probe]["httpGet"]
                    self.assertEqual(asked["scheme"], scheme.upper())
                    self.assertEqual(self.status(port, asked["path"], scheme), 200)

    def test_probes_use_the_port_if_every_path_is_protected(self):
        port, _ = self.serve("basic-auth")
        self.assertEqual(self.status(port, "/-/healthy", "https"), 401)
        port, _ = self.serve("tls")
        with self.assertRaises((OSError, ssl.SSLError)):
            self.status(port, "/-/healthy", "https")
        for name in ("basic-auth", "tls"):
            for probe in ("livenessProbe", "readinessProbe"):
                self.assertEqual(container(tools.rendered(name))[probe]["tcpSocket"], {"port": "metrics"})

    @unittest.skipUnless(os.geteuid() == 0, "root: capabilities are given up")
    def test_it_keeps_only_capabilities_of_the_pod(self):
        """Started with all capabilities, it logs those it keeps."""
        for name in ("default", "profile-full", "perf"):
            with self.subTest(name):
                port, log = self.serve(name)
                wanted = set(container(tools.rendered(name))["securityContext"]["capabilities"].get("add", []))
                line = wait_for("its log line", lambda log=log: re.search(
                    r'"gave up capabilities","kept":"([^"]*)"', log.read_text()), interval=0.1)
                kept = set(re.findall(r"CAP_([A-Z_]+)", line.group(1)))
                # It would divide counters in BPF where it may; a pod may not.
                self.assertLessEqual(kept - {"BPF"} if name == "perf" else kept, wanted)
                if name == "default":
                    self.assertEqual(kept, set())


if __name__ == "__main__":
    unittest.main()
