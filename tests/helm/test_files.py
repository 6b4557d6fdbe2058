"""The chart's files: the tree's rules and dashboards, its README, and its package."""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import tools
from tools import yaml

sys.path.insert(0, str(tools.ROOT / "helm"))
import sync  # noqa: E402  (it lies beside the chart)


EXAMPLE = """
route:
  receiver: nobody
  group_by: [a]
  routes:
    - matchers: ['alertname=~"J.*|\\"x"', severity!=info]
      receiver: owner
      repeat_interval: 1h
inhibit_rules:
  - source_matchers: [a=b]
    target_matchers: ['c!~"d"']
    equal: [e]
receivers:
  - name: nobody
  - name: owner
    email_configs:
      - to: '{{ .GroupLabels.user }}@x'
        require_tls: false
        headers: {Subject: '{{ template "subject" . }}'}
        text: '{{ template "text" . }}'
"""
TEMPLATES = """{{/* A comment with {{ define "no" }}. */}}
{{ define "word" }}{{ if .A }}a{{ else }}b{{ end }}{{ end }}

{{ define "unused" }}{{ end }}
{{ define "subject" -}}
one {{ template "word" . }}
{{- end }}
{{ define "text" }}{{ range .Alerts }}* {{ template "subject" . }}
{{ end }}{{ end }}
"""
_WORD = '{{ define "word" }}{{ if .A }}a{{ else }}b{{ end }}{{ end }}'
_SUBJECT = '{{ define "subject" -}}\none {{ template "word" . }}\n{{- end }}'
MADE = {
    "route": {"receiver": "nobody", "groupBy": ["a"], "routes": [
        {"matchers": [{"name": "alertname", "matchType": "=~", "value": 'J.*|"x'}, {"name": "severity", "matchType": "!=", "value": "info"}],
         "receiver": "owner", "repeatInterval": "1h"}]},
    "inhibitRules": [{"sourceMatch": [{"name": "a", "matchType": "=", "value": "b"}], "targetMatch": [{"name": "c", "matchType": "!~", "value": "d"}],
                      "equal": ["e"]}],
    "receivers": [{"name": "nobody"}, {"name": "owner", "emailConfigs": [{
        "to": "{{ .GroupLabels.user }}@x", "requireTLS": False,
        "headers": [{"key": "Subject", "value": _WORD + _SUBJECT + '{{ template "subject" . }}'}],
        "text": _WORD + _SUBJECT + '{{ define "text" }}{{ range .Alerts }}* {{ template "subject" . }}\n{{ end }}{{ end }}{{ template "text" . }}'}]}],
}


class Files(unittest.TestCase):
    def test_copies_and_names_equal_those_of_the_tree(self):
        self.assertEqual(sync.differences(), [], "run `make chart`")

    def test_missing_copies_are_noticed(self):
        with tempfile.TemporaryDirectory() as temporary:
            root, chart = Path(temporary) / "tree", tools.copy_of_chart(Path(temporary))
            for path, text in {
                "rules/site.yaml": "groups: []\n",
                "rules/alerts/new.yaml": "groups:\n- rules:\n  - alert: JobledgerNew\n    expr: a:b:c > 1\n",
                "rules/recording/old.yaml": "groups:\n- rules:\n  - record: a:b:c\n    expr: d\n",
                "rules/alertmanager/alertmanager.example.yml": EXAMPLE,
                "rules/alertmanager/mail.tmpl": TEMPLATES,
                "rules/tests/alerts/new.yaml": "no rule",
                "rules/runbooks/JobledgerNew.md": "no rule",
                "grafana/dashboards/job.json": '{\n  "title": "a  b: µ",\n  "v": [1.0, 2]\n}\n',
                "docs/flags.md": "| `--collector.cpu` |  | `X` | CPU (default: enabled) |\n| `--collector.cpu.x` |  | `X` | y |\n",
            }.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            found = sync.differences(root, chart)
            for line in ("files/rules/alerts/new.yaml is missing", "files/dashboards/job.json is missing", "files/rules/site.yaml differs",
                         "files/rules/alerts/nodes.yaml is in the chart alone", "values.schema.json lacks names or its form"):
                self.assertIn(line, found)
            sync.sync(root, chart)
            self.assertEqual(sync.differences(root, chart), [])
            self.assertEqual(sync.names(root)["collectors"], {"cpu": {"type": "boolean"}})
            self.assertEqual(list(sync.names(root)["alerts"]), ["JobledgerNew"])
            self.assertEqual(sync.copies(chart)["dashboards/job.json"].decode(), '{"title":"a  b: µ","v":[1.0,2]}\n')
            self.assertEqual(set(sync.copies(chart)), {"rules/site.yaml", "rules/alerts/new.yaml", "rules/recording/old.yaml", "dashboards/job.json",
                                                       "needs.json", "alertmanager.json"})
            self.assertEqual(json.loads(sync.copies(chart)["needs.json"]), {"alerts/new": ["recording/old"]})
            self.assertEqual(json.loads(sync.copies(chart)["alertmanager.json"]), MADE)
            self.assertEqual(list(sync.names(root)["receivers"]), ["owner"])

    def test_every_rule_file_can_be_chosen(self):
        def files(*values):
            made = tools.objects(tools.render(tools.CHART / "ci" / "rules-values.yaml", *values))
            return {each["metadata"]["name"] for each in made if each["kind"] == "PrometheusRule"}
        every = set(sync.names()["ruleFiles"])
        default = {name for name in every if name == "site" or name.startswith(("recording/", "alerts/"))}
        self.assertEqual(files(), {f"jobledger-{name.replace('/', '-')}" for name in default})
        # Two of compat/ exclude each other.
        other = {name: name not in default for name in every - {"compat/treydock"}}
        self.assertEqual(files({"rules": {"files": other}}), {f"jobledger-{name.replace('/', '-')}" for name in every - default - {"compat/treydock"}})

    def test_the_readme_is_up_to_date(self):
        self.assertEqual(tools.readme(), (tools.CHART / "README.md").read_text(), "run `make chart`")

    def test_every_value_is_described(self):
        """Each with a default has a line with a description in the table."""
        rows = {}
        for line in (tools.CHART / "README.md").read_text().splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) >= 6 and cells[2] in ("string", "bool", "int", "object", "list", "tpl/object"):
                rows[cells[1]] = cells[-2]
        self.assertGreater(len(rows), 120)
        # Described by their names or by the line above them.
        plain = ("daemonset.updateStrategy.", "resources.", "probes.", "webConfig.existingSecretHas.", "nodeSelector.", "tolerations",
                 "test.image.", "seccompProfile.", "grafanaDashboard.instanceSelector.")
        self.assertEqual([name for name, words in rows.items() if not words and not name.startswith(plain)], [])

    def test_the_package_has_only_the_needed_files(self):
        with tempfile.TemporaryDirectory() as temporary:
            done = tools.helm("package", "--destination", temporary)
            self.assertEqual(done.returncode, 0, done.stderr)
            (package,) = Path(temporary).glob("*.tgz")
            with tarfile.open(package) as archive:
                names = {name.removeprefix("jobledger-exporter/") for name in archive.getnames()}
        self.assertLessEqual({f"files/{path}" for path in sync.sources()}, names)
        self.assertLessEqual({"Chart.yaml", "values.yaml", "values.schema.json", "README.md", "templates/NOTES.txt"}, names)
        self.assertFalse([name for name in names if name.startswith("ci/") or name.endswith(".gotmpl")])


class GoTools(unittest.TestCase):
    SCRIPT = tools.ROOT / "tests" / "tools" / "go-tools.sh"

    def test_names_without_a_whole_version_are_refused(self):
        """"latest" changes."""
        for wrong in ([], ["--source"], ["example.org/x"], ["example.org/x@latest"], ["example.org/x@v1"], ["a@v1.0.0@v1.0.0"], ["-x@v1.0.0"]):
            with self.subTest(wrong):
                done = subprocess.run([self.SCRIPT, *wrong], capture_output=True, text=True, timeout=600)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("usage", done.stderr)

    def test_existing_files_are_not_made_again(self):
        self.assertEqual(tools.go_tools(*tools.TOOLS.values()), list(tools.paths().values()))
        self.assertTrue(all(Path(path).name.endswith(f"@{name.split('@')[1]}") for path, name in zip(tools.paths().values(), tools.TOOLS.values(), strict=True)))

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck: apt-get install shellcheck")
    def test_shellcheck_finds_nothing(self):
        done = subprocess.run(["shellcheck", self.SCRIPT], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
