"""Rules, monitors and dashboards: the cluster gets those of rules/ and grafana/ with the site's changes only."""

import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import tools
from tools import yaml

RULES = tools.ROOT / "rules"
DASHBOARDS = tools.ROOT / "grafana" / "dashboards"
# Bytes of all annotations of an object (TotalAnnotationSizeLimitB).
ANNOTATIONS = 256 << 10
# Text of dashboards that templates or YAML could misinterpret.
SAMPLE = '{"title": "a: b", "legend": "{{jobid}} on {{ $labels.instance }} {{- end }}", "text": "# 1\\n\\t\\u00b5 - \\"x\\"", "v": 1.0}\n'


def groups(text):
    return yaml.load(text, tools.LOADER)["groups"]


def prometheus_rules(made):
    return {each["metadata"]["name"]: each["spec"]["groups"] for each in made if each["kind"] == "PrometheusRule"}


def by_name(found):
    """Rules by alert or record; the names are unique (tests/rules)."""
    rules = [rule for made in found.values() for group in made for rule in group["rules"]]
    return {rule.get("alert") or rule["record"]: rule for rule in rules}


class Rules(unittest.TestCase):
    def test_the_defaults_equal_the_files_of_the_tree(self):
        found = prometheus_rules(tools.rendered("rules"))
        wanted = {}
        for path in RULES.glob("*/*.yaml"):
            if path.parent.name in ("recording", "alerts"):
                wanted[f"site-jobledger-exporter-{path.parent.name}-{path.stem}"] = groups(path.read_text())
        wanted["site-jobledger-exporter-site"] = groups((RULES / "site.yaml").read_text())
        self.assertEqual(found, wanted)

    def test_the_sites_changes(self):
        made = tools.rendered("rules-changed")
        found = prometheus_rules(made)
        self.assertIn("site-jobledger-exporter-compat-dcgm", found)
        self.assertNotIn("site-jobledger-exporter-recording-account", found)
        before = by_name(prometheus_rules(tools.rendered("rules")))
        rules = by_name(found)
        setting = "jobledger:alert_setting:"
        self.assertEqual(rules[f"{setting}gpu_idle_warning_seconds"]["expr"], "vector(7200)")
        self.assertEqual(rules[f"{setting}gpu_low_use_ratio"]["expr"], "vector(0.25)")
        self.assertEqual(rules[f"{setting}memory_over_asked_least_bytes"]["expr"], "vector(17179869184)")
        self.assertEqual(rules[f"{setting}cpu_low_ratio"], before[f"{setting}cpu_low_ratio"])
        self.assertEqual(rules["jobledger:carbon_intensity:grams_per_kwh"]["expr"], "vector(42.5)")
        self.assertEqual(re.sub(r"\s+", " ", rules["jobledger:alert_job:excluded"]["expr"]),
                         "group by (cluster, job, instance, slurm_node, jobid) ( "
                         'jobledger_job_info{partition=~"interactive|debug|jupyter.*"} or jobledger_job_info{user=~"root"} )')
        self.assertNotIn("JobledgerJobGpuLowUse", rules)
        lost = rules["JobledgerGpuLost"]
        self.assertEqual(lost["labels"], {"audience": "hardware", "severity": "warning", "team": "hardware", "service": "hpc"})
        self.assertEqual(lost["for"], "10m")
        self.assertEqual(lost["annotations"]["dashboard_url"],
                         "https://grafana.example.org/d/jobledger-node?var-instance={{ $labels.instance }}")
        for name, rule in rules.items():
            if "alert" not in rule:
                continue
            with self.subTest(name):
                self.assertEqual(rule["expr"], before[name]["expr"])
                self.assertEqual(rule["labels"]["service"], "hpc")
                self.assertEqual(rule["annotations"]["contact"], "hpc@cluster.example")
                self.assertEqual(rule["annotations"]["runbook_url"], f"https://wiki.cluster.example/jobledger/{name}.md")
                self.assertEqual(rule["annotations"]["description"], before[name]["annotations"]["description"])
        changed = {name for name in rules.keys() & before.keys() if rules[name] != before[name] and "record" in rules[name]}
        self.assertEqual(changed, {
            f"{setting}gpu_idle_warning_seconds", f"{setting}gpu_low_use_ratio", f"{setting}memory_over_asked_least_bytes",
            "jobledger:carbon_intensity:grams_per_kwh", "jobledger:alert_job:excluded",
        })
        for each in made:
            self.assertEqual(each["metadata"]["namespace"], "monitoring")
            self.assertEqual(each["metadata"]["labels"]["release"], "kube-prometheus-stack")

    def test_an_expression_and_no_exclusion(self):
        made = tools.objects(tools.render({"daemonset": {"enabled": False}, "rules": {
            "enabled": True, "carbonIntensity": "max(grid_grams)", "excludedJobs": {"partition": []}}}))
        rules = by_name(prometheus_rules(made))
        self.assertEqual(rules["jobledger:carbon_intensity:grams_per_kwh"]["expr"], "max(grid_grams)")
        self.assertIn('jobledger_job_info{jobid=""}', rules["jobledger:alert_job:excluded"]["expr"])

    @unittest.skipUnless(tools.PROMTOOL, "rules: needs promtool")
    def test_prometheus_accepts_them(self):
        for name in ("rules", "rules-changed"):
            with self.subTest(name), tempfile.TemporaryDirectory() as temporary:
                paths = []
                for file, made in prometheus_rules(tools.rendered(name)).items():
                    paths.append(Path(temporary) / f"{file}.yaml")
                    paths[-1].write_text(yaml.safe_dump({"groups": made}))
                done = subprocess.run([tools.PROMTOOL, "check", "rules", *paths], capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("SUCCESS"), len(paths))


def relabelled(labels, rules):
    """The part of Prometheus' relabeling that the chart's rules use."""
    labels = dict(labels)
    for rule in rules:
        regex = re.compile(rule.get("regex", "(.*)"))
        if rule["action"] == "labeldrop":
            labels = {name: value for name, value in labels.items() if not regex.fullmatch(name)}
        else:
            matched = regex.fullmatch(";".join(labels.get(name, "") for name in rule.get("sourceLabels", [])))
            if matched:
                labels[rule["targetLabel"]] = matched.expand(rule.get("replacement", "$1").replace("$1", r"\1"))
    return {name: value for name, value in labels.items() if not name.startswith("__")}


class Monitors(unittest.TestCase):
    def test_nodes_of_a_job_differ_only_in_instance(self):
        """Otherwise sums over a job's nodes, which keep all other labels, would be split."""
        for name, kind, endpoints in (("podmonitor", "PodMonitor", "podMetricsEndpoints"), ("servicemonitor", "ServiceMonitor", "endpoints")):
            (endpoint,) = tools.only(kind, tools.rendered(name))["spec"][endpoints]
            # ci/podmonitor adds a label on purpose.
            rules = [rule for rule in endpoint["relabelings"] if rule.get("targetLabel") != "node_name"]
            targets = [relabelled({
                "__meta_kubernetes_pod_node_name": node, "instance": f"{node}:9810", "job": "x", "pod": f"p-{node}", "node": node,
                "container": "exporter", "endpoint": "metrics", "service": "s", "namespace": "slurm",
            }, rules) for node in ("node1", "node2")]
            with self.subTest(kind):
                self.assertEqual([target.pop("instance") for target in targets], ["node1", "node2"])
                self.assertEqual(targets[0], targets[1])
                self.assertEqual(targets[0]["job"], "jobledger")
                self.assertLessEqual(set(targets[0]), {"job", "namespace", "cluster"})

    def test_limits_equal_the_values(self):
        spec = tools.only("PodMonitor", tools.rendered("podmonitor"))["spec"]
        self.assertEqual([spec[limit] for limit in ("sampleLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit", "bodySizeLimit")],
                         [60000, 40, 64, 1024, "20MB"])

    def test_a_monitor_finds_its_pods_and_its_port(self):
        for name, kind in (("podmonitor", "PodMonitor"), ("servicemonitor", "ServiceMonitor"), ("tls", "PodMonitor"), ("basic-auth", "ServiceMonitor")):
            with self.subTest(name):
                made = tools.rendered(name)
                monitor = tools.only(kind, made)["spec"]
                selected = monitor["selector"]["matchLabels"].items()
                pods = tools.only("DaemonSet", made)["spec"]["template"]
                target = pods if kind == "PodMonitor" else tools.only("Service", made)
                self.assertLessEqual(selected, target["metadata"]["labels"].items())
                (endpoint,) = monitor.get("podMetricsEndpoints") or monitor["endpoints"]
                (port,) = pods["spec"]["containers"][0]["ports"]
                self.assertEqual(endpoint["port"], port["name"])
                self.assertIn(f"--web.telemetry-path={endpoint['path']}", pods["spec"]["containers"][0]["args"])
                self.assertEqual(endpoint["scheme"], "https" if name in ("tls", "basic-auth") else "http")
                # The pod of `helm test` runs no exporter.
                for each in made:
                    if each["kind"] == "Pod":
                        self.assertFalse(selected <= each["metadata"]["labels"].items())

    def test_nodes_outside_the_cluster(self):
        made = tools.rendered("bare-metal")
        self.assertFalse([each for each in made if each["kind"] == "DaemonSet"])
        spec = tools.only("ScrapeConfig", made)["spec"]
        self.assertEqual(relabelled({"__address__": "node1:9810", "rack_row": "a"}, spec["relabelings"]),
                         {"job": "jobledger-nodes", "cluster": "alpha", "instance": "node1", "rack_row": "a"})
        self.assertEqual(spec["staticConfigs"][0]["targets"], ["node1:9810", "node2:9810"])

    def test_helm_test_expects_protected_paths_to_refuse(self):
        asked = {name: [each["spec"]["containers"][0]["args"][0] for each in tools.rendered(name) if each["kind"] == "Pod"]
                 for name in ("default", "basic-auth", "tls", "tls-only")}
        self.assertIn("ask --fail http://site-jobledger-exporter.default.svc:9810/-/ready", asked["default"][0])
        self.assertIn("401", asked["basic-auth"][0])
        self.assertEqual(asked["tls"], [])
        self.assertIn("https://", asked["tls-only"][0])


    def test_the_network_policy_allows_helm_test(self):
        path = tools.CHART / "ci" / "pod-network-values.yaml"

        def admitted(made):
            (rule,) = tools.only("NetworkPolicy", made)["spec"]["ingress"]
            return rule.get("from", [])
        made = tools.objects(tools.render(path))
        own = yaml.safe_load(path.read_text())["networkPolicy"]["from"]
        self.assertEqual(admitted(made)[:-1], own)
        selected = admitted(made)[-1]["podSelector"]["matchLabels"].items()
        self.assertLessEqual(selected, tools.only("Pod", made)["metadata"]["labels"].items())
        # But not the exporter's pods, nor those of another release.
        self.assertFalse(selected & tools.only("DaemonSet", made)["spec"]["template"]["metadata"]["labels"].items())
        other = tools.objects(tools.render(path, {"fullnameOverride": "other"}))
        self.assertFalse(selected & tools.only("Pod", other)["metadata"]["labels"].items())
        for off in ({"test": {"enabled": False}}, {"service": {"enabled": False}}):
            self.assertEqual(admitted(tools.objects(tools.render(path, off))), own)
        # An empty list allows everybody; an entry would narrow it.
        self.assertEqual(admitted(tools.objects(tools.render(path, {"networkPolicy": {"from": []}}))), [])


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.chart = tools.copy_of_chart(Path(temporary.name))
        folder = cls.chart / "files" / "dashboards"
        folder.mkdir(exist_ok=True)
        for name in ("sample_One", "left-out"):
            (folder / f"{name}.json").write_text(SAMPLE)
        cls.values = tools.CHART / "ci" / "dashboards-values.yaml"

    def test_each_is_unchanged_in_a_configmap(self):
        made = tools.objects(tools.render(self.values, chart=self.chart))
        ours = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS.glob("*.json")}
        found = {}
        for each in made:
            self.assertEqual(each["kind"], "ConfigMap")
            self.assertEqual(each["metadata"]["namespace"], "monitoring")
            self.assertEqual(each["metadata"]["labels"]["grafana_dashboard"], "1")
            self.assertEqual(each["metadata"]["annotations"]["grafana_folder"], "HPC")
            (key,) = each["data"]
            found[key.removesuffix(".json")] = each["data"][key]
        self.assertEqual(found.pop("sample_One"), SAMPLE)
        self.assertEqual({name: json.loads(text) for name, text in found.items()}, ours)
        self.assertIn("site-jobledger-exporter-dashboard-sample-one", {each["metadata"]["name"] for each in made})

    def applied(self, made):
        """Bytes of the annotation of `kubectl apply`, which the API counts, too."""
        text = json.dumps(made, separators=(",", ":"), ensure_ascii=False)
        # In the format of Go's encoder.
        for letter in "<>&":
            text = text.replace(letter, f"\\u{ord(letter):04x}")
        return len(text.encode()) + sum(len(key) + len(value.encode()) for key, value in made["metadata"]["annotations"].items())

    def test_each_can_be_applied_by_kubectl(self):
        for each in tools.objects(tools.render(self.values)):
            with self.subTest(each["metadata"]["name"]):
                self.assertLess(self.applied(each), ANNOTATIONS)

    def test_a_dashboard_too_big_for_kubectl_apply_is_refused(self):
        big = self.chart / "files" / "dashboards" / "big.json"
        self.addCleanup(big.unlink)
        # The encoded text counts: six bytes for each of these characters.
        for count, fits in ((41_600, True), (41_700, False)):
            big.write_text(f'{{"text": "{"<" * count}"}}')
            with self.subTest(count):
                done = tools.template(self.values, chart=self.chart)
                self.assertEqual("too many for `kubectl apply`" not in done.stderr, fits, done.stderr)
                if fits:
                    (made,) = [each for each in tools.objects(done.stdout) if each["metadata"]["name"].endswith("-big")]
                    self.assertLess(self.applied(made), ANNOTATIONS)


if __name__ == "__main__":
    unittest.main()
