"""What every file of ci/ renders: Kubernetes and the Prometheus Operator accept it, and the notes warn."""

import subprocess
import tempfile
import tomllib
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tools  # first: it skips where PyYAML is missing
import schemas
from tools import yaml

# A part of each warning, by the file of ci/ that must show it.
WARNED = {
    "default": ["Nobody scrapes it", "localhost/jobledger-exporter:0.1.0 is looked for on each node and in no registry", "Port 9810 of every node", "Profile minimal", "For NVIDIA's set gpu.nvidia", "NFS: no file system"],
    "pod-network": [],
    "basic-auth": ["Probes only see whether the port is open"],
    "tls": ["Probes only see whether the port is open"],
    "perf": ["LIKWID's lock"],
    "nvidia": [],
    "rules": ["runbooks at example.org"],
    "dashboards": [],
    "alertmanager": [],
    "grafana-operator": [],
    "victoriametrics": ["Probes only see whether the port is open", "runbooks at example.org"],
}
# The command that lists what there is once, by the file of ci/.
LISTED = {
    "alertmanager": "prometheusrules,alertmanagerconfigs", "dashboards": "configmaps", "grafana-operator": "grafanadashboards", "rules": "prometheusrules",
    "victoriametrics": "vmrules",
}


def all_ci(function):
    """Calls it for all files of ci/ in parallel: other processes do the work."""
    with ThreadPoolExecutor() as pool:
        return dict(zip([path.name[: -len("-values.yaml")] for path in tools.CI], pool.map(function, tools.CI), strict=True))


class Rendered(unittest.TestCase):
    def test_lint_finds_nothing(self):
        for name, done in all_ci(
            lambda path: tools.helm("lint", "--strict", "--kube-version", tools.VERSION, "--values", path)
        ).items():
            with self.subTest(name):
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertNotRegex(done.stdout, r"\[(WARNING|ERROR)\]")

    def test_kubernetes_and_the_operator_accept_what_is_rendered(self):
        for version in schemas.KUBERNETES:
            with tempfile.TemporaryDirectory() as temporary:
                def write(path, version=version, into=Path(temporary)):
                    values = yaml.load(path.read_text(), tools.LOADER)
                    if version == "1.27.0":
                        # Refused there (test_values.py).
                        values.pop("appArmorProfile", None)
                    text = tools.render(values, version=version)
                    (into / path.name).write_text(text)
                    return len(tools.objects(text))
                made = all_ci(write)
                self.assertTrue(all(count for name, count in made.items() if name != "dashboards"), made)
                done = self.conform(version, temporary)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn(f"Valid: {sum(made.values())}, Invalid: 0, Errors: 0, Skipped: 0", done.stdout)

    def conform(self, version, path):
        where = tools.schema_directory()
        command = [tools.paths()["kubeconform"], "-strict", "-summary", "-kubernetes-version", version]
        for each in (version, "operator"):
            command += ["-schema-location", f"{where / each}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"]
        return subprocess.run([*command, path], capture_output=True, text=True, timeout=600)

    def test_the_schemas_refuse_errors(self):
        """Otherwise the schemas could accept everything."""
        wrongs = {
            "podmonitor": (("hostPID: true", "hostPid: true"), ("hostPID: true", "hostPID: perhaps"),
                           ("sampleLimit: 60000", "samplesLimit: 60000"), ("scrapeTimeout: 20s", "scrapeTimeout: soon")),
            "victoriametrics": (("relabelConfigs:", "relabelings:"), ("max_scrape_size:", "bodySizeLimit:"), ("serverName:", "server_name:")),
            "grafana-operator": (("instanceSelector:", "selector:"), ("resyncPeriod: 10m", "resyncPeriod: 10")),
            "alertmanager": (('"groupBy":', '"group_by":'), ('"sendResolved":', '"send_resolved":'), ('"sourceMatch":', '"source_match":')),
        }
        for name, right, wrong in ((name, *pair) for name, pairs in wrongs.items() for pair in pairs):
            text = tools.render(tools.CHART / "ci" / f"{name}-values.yaml")
            with self.subTest(f"{name} {wrong}"), tempfile.TemporaryDirectory() as temporary:
                self.assertIn(right, text)
                (Path(temporary) / "wrong.yaml").write_text(text.replace(right, wrong))
                done = self.conform(tools.VERSION, temporary)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stdout, r"Invalid: [1-9]\d*, Errors: 0")

    def test_names_are_unique_and_everything_is_labelled(self):
        for name in [path.name[: -len("-values.yaml")] for path in tools.CI]:
            with self.subTest(name):
                found = tools.rendered(name)
                ids = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in found]
                self.assertEqual(len(ids), len(set(ids)))
                self.assertTrue(all(len(each["metadata"]["name"]) <= 253 for each in found))
                for each in found:
                    if name != "extra" or each["kind"] != "ConfigMap":
                        self.assertEqual(each["metadata"]["labels"]["app.kubernetes.io/part-of"], "jobledger")

    def test_notes_warn_of_problems(self):
        notes = all_ci(lambda path: self.notes(path))
        for name, text in notes.items():
            with self.subTest(name):
                self.assertIn("Jobledger 0.1.0", text)
                self.assertNotIn("<no value>", text)
                self.assertNotIn("%!", text)
        for name, sentences in WARNED.items():
            for sentence in sentences:
                with self.subTest(name):
                    # ci/perf sets the host directory of the lock; it is removed here.
                    text = self.notes(tools.CHART / "ci" / "perf-values.yaml", {"host": {"lockDirectory": ""}}) if name == "perf" else notes[name]
                    self.assertIn(sentence, " ".join(text.split()))
        for name, kinds in LISTED.items():
            self.assertIn(f"kubectl get {kinds} --all-namespaces --selector app.kubernetes.io/part-of=jobledger\n", notes[name] + "\n")
        self.assertNotIn("--all-namespaces", notes["default"])
        self.assertNotIn("in no registry", notes["pod"] + notes["victoriametrics"])
        rules = tools.CHART / "ci" / "rules-values.yaml"
        self.assertIn("Rules of recording/cpu are partly empty without recording/jobs.", self.notes(rules, {"rules": {"files": {"recording/jobs": False}}}))
        self.assertNotIn("partly empty", notes["rules"])
        self.assertIn("for both operators", self.notes(rules, {"vmRule": {"enabled": True}}))
        self.assertIn('label namespace="monitoring" alone, and this release makes no alerts', self.notes(
            tools.CHART / "ci" / "alertmanager-values.yaml", {"prometheusRule": {"enabled": False}}))
        self.assertNotIn("has no effect in most networks", notes["pod-network"])
        self.assertIn("has no effect in most networks", self.notes(
            tools.CHART / "ci" / "default-values.yaml", {"networkPolicy": {"enabled": True}}))
        self.assertIn("Nothing is installed", self.notes({"daemonset": {"enabled": False}}))

    @classmethod
    def setUpClass(cls):
        """A chart whose notes are an object: helm shows notes only with a cluster."""
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.copy = tools.copy_of_chart(Path(temporary.name))
        notes = (cls.copy / "templates" / "NOTES.txt").read_text()
        (cls.copy / "templates" / "_notes.tpl").write_text('{{- define "notes" -}}\n' + notes + "{{- end -}}\n")
        (cls.copy / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n')

    def notes(self, *values):
        text = tools.render(*values, chart=self.copy, arguments=["--show-only", "templates/notes.yaml"])
        return tools.objects(text)[0]["notes"]

    def test_the_chart_has_this_exporters_version(self):
        chart = yaml.safe_load((tools.CHART / "Chart.yaml").read_text())
        workspace = tomllib.loads((tools.ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        self.assertEqual(chart["appVersion"], workspace["version"])
        self.assertRegex(chart["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(chart["kubeVersion"], f">={schemas.KUBERNETES[0]}-0")
        self.assertEqual(chart["annotations"]["artifacthub.io/license"], workspace["license"].split(" OR ")[0])
        for change in yaml.safe_load(chart["annotations"]["artifacthub.io/changes"]):
            self.assertIn(change["kind"], {"added", "changed", "deprecated", "removed", "fixed", "security"})
            self.assertTrue(change["description"])


if __name__ == "__main__":
    unittest.main()
