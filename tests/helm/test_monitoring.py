"""Rules, monitors and dashboards: the cluster gets those of rules/ and grafana/ with the site's changes only."""

import base64
import gzip
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tools
from tools import yaml

sys.path.insert(0, str(tools.ROOT / "helm"))
import sync  # noqa: E402  (it lies beside the chart)

RULES = tools.ROOT / "rules"
DASHBOARDS = tools.ROOT / "grafana" / "dashboards"
# Bytes of all annotations of an object (TotalAnnotationSizeLimitB).
ANNOTATIONS = 256 << 10
# Rules of a group that Mimir takes by default (ruler_max_rules_per_rule_group).
GROUP = 20
# Bytes of an object, which etcd and the API limit; some remain for the rest of it.
OBJECT = (1 << 20) - 10_000
# Text of dashboards that templates or YAML could misinterpret.
SAMPLE = '{"title": "a: b", "legend": "{{jobid}} on {{ $labels.instance }} {{- end }}", "text": "# 1\\n\\t\\u00b5 - \\"x\\"", "v": 1.0}\n'


def groups(text):
    return yaml.load(text, tools.LOADER)["groups"]


def rules_of(made, kind="PrometheusRule"):
    return {each["metadata"]["name"]: each["spec"]["groups"] for each in made if each["kind"] == kind}


def by_name(found):
    """Rules by alert or record; the names are unique (tests/rules)."""
    rules = [rule for made in found.values() for group in made for rule in group["rules"]]
    return {rule.get("alert") or rule["record"]: rule for rule in rules}


class Rules(unittest.TestCase):
    def test_the_defaults_equal_the_files_of_the_tree(self):
        wanted = {}
        for path in RULES.glob("*/*.yaml"):
            if path.parent.name in ("recording", "alerts"):
                wanted[f"jobledger-{path.parent.name}-{path.stem}"] = groups(path.read_text())
        wanted["jobledger-site"] = groups((RULES / "site.yaml").read_text())
        self.assertEqual(rules_of(tools.rendered("rules")), wanted)
        wanted["jobledger-compat-dcgm"] = groups((RULES / "compat" / "dcgm.yaml").read_text())
        self.assertEqual(rules_of(tools.rendered("victoriametrics"), "VMRule"), wanted)

    def test_a_second_release_has_the_same_names(self):
        """Helm refuses an object that another release made, so a second set of rules in the namespace."""
        def ids(name, release):
            made = tools.objects(tools.render(tools.CHART / "ci" / f"{name}-values.yaml", release=release))
            return {(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in made}
        for name in ("alertmanager", "dashboards", "grafana-operator"):
            with self.subTest(name):
                self.assertEqual(ids(name, "one"), ids(name, "two"))
        both = ids("victoriametrics", "one") & ids("victoriametrics", "two")
        self.assertEqual({kind for kind, _, _ in both}, {"VMRule"})

    def test_mimir_takes_every_group(self):
        found = [group for path in sync.sources() if path.startswith("rules/") for group in groups((tools.ROOT / path).read_text())]
        self.assertGreater(len(found), 10)
        self.assertEqual({group["name"]: len(group["rules"]) for group in found if len(group["rules"]) > GROUP}, {})

    def test_files_that_others_read_are_known(self):
        needs = sync.needs()
        self.assertIn("recording/jobs", needs["recording/cpu"])
        self.assertIn("alerts/settings", needs["alerts/jobs-gpu"])
        self.assertNotIn("site", needs)

    def test_the_sites_changes(self):
        made = tools.rendered("rules-changed")
        found = rules_of(made)
        self.assertIn("jobledger-compat-dcgm", found)
        self.assertNotIn("jobledger-recording-node", found)
        before = by_name(rules_of(tools.rendered("rules")))
        rules = by_name(found)
        setting = "jobledger:alert_setting:"
        self.assertEqual(rules[f"{setting}gpu_idle_warning_seconds"]["expr"], "vector(7200)")
        self.assertEqual(rules[f"{setting}gpu_low_use_ratio"]["expr"], "vector(0.25)")
        self.assertEqual(rules[f"{setting}memory_over_asked_least_bytes"]["expr"], "vector(17179869184)")
        self.assertEqual(rules[f"{setting}cpu_low_ratio"], before[f"{setting}cpu_low_ratio"])
        self.assertEqual(rules["jobledger:carbon_intensity:grams_per_kwh"]["expr"], "vector(42.5)")
        self.assertEqual(rules["jobledger:carbon_intensity:grams_per_kwh"]["labels"], {"source": "values.yaml"})
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
        made = tools.objects(tools.render({"daemonset": {"enabled": False}, "prometheusRule": {"enabled": True}, "rules": {
            "carbonIntensity": "max(grid_grams)", "powerUsageEffectiveness": 1.25, "excludedJobs": {"partition": []}}}))
        rules = by_name(rules_of(made))
        self.assertEqual(rules["jobledger:carbon_intensity:grams_per_kwh"]["expr"], "max(grid_grams)")
        self.assertEqual(rules["jobledger:power_usage_effectiveness:ratio"]["expr"], "vector(1.25)")
        self.assertIn('jobledger_job_info{jobid=""}', rules["jobledger:alert_job:excluded"]["expr"])

    def test_links_go_to_the_sites_pages(self):
        for name, rule in by_name(rules_of(tools.rendered("alertmanager"))).items():
            for text in rule.get("annotations", {}).values():
                with self.subTest(name):
                    self.assertNotIn("example.org", text)

    @unittest.skipUnless(tools.PROMTOOL, "rules: needs promtool")
    def test_prometheus_accepts_them(self):
        for name, kind in (("rules", "PrometheusRule"), ("rules-changed", "PrometheusRule"), ("victoriametrics", "VMRule")):
            with self.subTest(name), tempfile.TemporaryDirectory() as temporary:
                paths = []
                for file, made in rules_of(tools.rendered(name), kind).items():
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


MONITORS = {"podmonitor": ("PodMonitor", "podMetricsEndpoints", "relabelings"), "servicemonitor": ("ServiceMonitor", "endpoints", "relabelings"),
            "victoriametrics": ("VMPodScrape", "podMetricsEndpoints", "relabelConfigs")}


class Monitors(unittest.TestCase):
    def test_nodes_of_a_job_differ_only_in_instance(self):
        """Otherwise sums over a job's nodes, which keep all other labels, would be split."""
        for name, (kind, endpoints, relabelings) in MONITORS.items():
            (endpoint,) = tools.only(kind, tools.rendered(name))["spec"][endpoints]
            # Some add a label on purpose.
            rules = [rule for rule in endpoint[relabelings] if rule.get("targetLabel") != "node_name"]
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
        self.assertEqual(spec["scrapeProtocols"], ["PrometheusProto", "OpenMetricsText1.0.0", "PrometheusText0.0.4"])
        spec = tools.only("VMPodScrape", tools.rendered("victoriametrics"))["spec"]
        (endpoint,) = spec["podMetricsEndpoints"]
        self.assertEqual((spec["sampleLimit"], endpoint["max_scrape_size"]), (60000, "20MB"))

    def test_all_monitors_say_the_same(self):
        """But for the names that the VictoriaMetrics operator gives to relabelings."""
        found = []
        for key in ("serviceMonitor", "podMonitor", "vmPodScrape"):
            values = {"enabled": True, "cluster": "alpha", "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "a"}]}
            (made,) = [each for each in tools.objects(tools.render(tools.image(**{key: values}))) if each["kind"].lower() == key.lower()]
            spec = made["spec"]
            (endpoint,) = spec.pop("endpoints", None) or spec.pop("podMetricsEndpoints")
            found.append((spec, {name.replace("elabelConfigs", "elabelings"): value for name, value in endpoint.items()}))
        self.assertEqual(found[1:], found[:1] * 2)

    def test_a_monitor_finds_its_pods_and_its_port(self):
        for name, kind in (("podmonitor", "PodMonitor"), ("servicemonitor", "ServiceMonitor"), ("tls", "PodMonitor"), ("basic-auth", "ServiceMonitor"),
                           ("victoriametrics", "VMPodScrape")):
            with self.subTest(name):
                made = tools.rendered(name)
                monitor = tools.only(kind, made)["spec"]
                selected = monitor["selector"]["matchLabels"].items()
                pods = tools.only("DaemonSet", made)["spec"]["template"]
                target = tools.only("Service", made) if kind == "ServiceMonitor" else pods
                self.assertLessEqual(selected, target["metadata"]["labels"].items())
                (endpoint,) = monitor.get("podMetricsEndpoints") or monitor["endpoints"]
                (port,) = pods["spec"]["containers"][0]["ports"]
                self.assertEqual(endpoint["port"], port["name"])
                self.assertIn(f"--web.telemetry-path={endpoint['path']}", pods["spec"]["containers"][0]["args"])
                self.assertEqual(endpoint["scheme"], "https" if name in ("tls", "basic-auth", "victoriametrics") else "http")
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
        self.assertEqual(spec["scrapeProtocols"], ["PrometheusProto", "OpenMetricsText1.0.0"])

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
        self.assertIn("jobledger-dashboard-sample-one", {each["metadata"]["name"] for each in made})

    def test_each_is_unchanged_in_a_grafanadashboard(self):
        made = tools.objects(tools.render(tools.CHART / "ci" / "grafana-operator-values.yaml", {"dashboards": {"exclude": ["left-out"]}}, chart=self.chart))
        found = {each["metadata"]["name"]: each["spec"]["json"] for each in made}
        self.assertEqual(found.pop("jobledger-dashboard-sample-one"), SAMPLE)
        ours = {path.stem.replace("jobledger-", "jobledger-dashboard-").replace("_", "-"): json.loads(path.read_text()) for path in DASHBOARDS.glob("*.json")}
        self.assertEqual({name: json.loads(text) for name, text in found.items()}, ours)
        for each in made:
            spec = {key: value for key, value in each["spec"].items() if key != "json"}
            self.assertEqual(spec, {"instanceSelector": {"matchLabels": {"dashboards": "grafana"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["internal"]}]}, "allowCrossNamespaceImport": True, "resyncPeriod": "10m", "folder": "HPC"})

    def applied(self, made):
        """Bytes of the annotation of `kubectl apply`, which the API counts, too."""
        text = json.dumps(made, separators=(",", ":"), ensure_ascii=False)
        # In the format of Go's encoder.
        for letter in "<>&":
            text = text.replace(letter, f"\\u{ord(letter):04x}")
        return len(text.encode()) + sum(len(key) + len(value.encode()) for key, value in made["metadata"]["annotations"].items())

    def test_each_can_be_applied(self):
        """By kubectl; what is too big for that has the annotation for Argo CD's server-side apply."""
        for each in tools.objects(tools.render(self.values)) + tools.rendered("grafana-operator"):
            with self.subTest(each["metadata"]["name"]):
                large = each["metadata"]["annotations"].get("argocd.argoproj.io/sync-options") == "ServerSideApply=true"
                self.assertTrue(large or self.applied(each) < ANNOTATIONS)
                self.assertLess(len(json.dumps(each)), OBJECT)

    def test_large_dashboards_are_marked_and_larger_ones_refused(self):
        big = self.chart / "files" / "dashboards" / "big.json"
        self.addCleanup(big.unlink)
        # The encoded text counts: six bytes for each of these characters.
        for count, marked in ((41_600, False), (41_700, True), (166_600, True)):
            big.write_text(f'{{"text": "{"<" * count}"}}')
            for values in (self.values, tools.CHART / "ci" / "grafana-operator-values.yaml"):
                with self.subTest(f"{count} {values.name}"):
                    (made,) = [each for each in tools.objects(tools.render(values, chart=self.chart)) if each["metadata"]["name"].endswith("-big")]
                    self.assertEqual(made["metadata"]["annotations"].get("argocd.argoproj.io/sync-options"), "ServerSideApply=true" if marked else None)
                    self.assertTrue(marked or self.applied(made) < ANNOTATIONS)
        big.write_text(f'{{"text": "{"<" * 166_700}"}}')
        self.assertIn("too many for an object", tools.template(self.values, chart=self.chart).stderr)

    def test_a_release_with_everything_fits_into_helms_secret(self):
        """Helm keeps the chart and what it renders as one Secret, gzip in base64."""
        made = tools.render(self.values, {"grafanaDashboard": {"enabled": True}, "prometheusRule": {"enabled": True}, "vmRule": {"enabled": True}})
        files = [path for path in tools.CHART.rglob("*") if path.is_file() and "ci" not in path.relative_to(tools.CHART).parts]
        release = {"manifest": made, "chart": {str(path.relative_to(tools.CHART)): base64.b64encode(path.read_bytes()).decode() for path in files}}
        self.assertLess(len(base64.b64encode(gzip.compress(json.dumps(release).encode()))), OBJECT)


if __name__ == "__main__":
    unittest.main()
