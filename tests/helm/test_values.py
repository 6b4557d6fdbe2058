"""Values that are refused, each with its message, before anything is installed."""

import json
import re
import unittest
from concurrent.futures import ThreadPoolExecutor

import tools
from tools import yaml

# Values, and a part of the message. Paths are JSON pointers, as helm prints them.
REFUSED = [
    # Names that do not exist, at every depth.
    ("replicas: 1", "additional properties 'replicas' not allowed"),
    ("image: {name: x}", "at '/image': additional properties 'name' not allowed"),
    ("collectors: {cpus: true}", "at '/collectors': additional properties 'cpus' not allowed"),
    ("probes: {liveness: {period: 3}}", "at '/probes/liveness': additional properties 'period' not allowed"),
    ("rules: {files: {alerts/all: true}}", "at '/rules/files': additional properties 'alerts/all' not allowed"),
    ("rules: {alerts: {JobledgerNope: {enabled: false}}}", "at '/rules/alerts': additional properties 'JobledgerNope' not allowed"),
    ("rules: {alerts: {JobledgerGpuLost: {on: false}}}", "at '/rules/alerts/JobledgerGpuLost': additional properties"),
    ("rules: {settings: {gpu_idle_seconds: 1}}", "at '/rules/settings': additional properties 'gpu_idle_seconds' not allowed"),
    ("tolerations: [{effect: NoSchedule, operators: Exists}]", "at '/tolerations/0': additional properties 'operators' not allowed"),
    # Malformed values.
    ("image: {repository: ''}", "at '/image/repository': minLength: got 0, want 1"),
    ("image: {registry: ''}", "at '/image/registry': minLength: got 0, want 1"),
    ("image: {registry: 'https://registry.example.org'}", "at '/image/registry': 'https://registry.example.org' does not match pattern"),
    ("global: {imageRegistry: Mirror}", "at '/global/imageRegistry': 'Mirror' does not match pattern"),
    ("image: {digest: 'sha256:1'}", "at '/image/digest': 'sha256:1' does not match pattern"),
    ("image: {pullPolicy: Sometimes}", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"),
    ("profile: root", "at '/profile': value must be one of 'minimal', 'energy', 'full'"),
    ("collectors: {cpu: 'yes'}", "at '/collectors/cpu': got string, want boolean"),
    ("web: {port: 98100}", "at '/web/port': maximum: got 98,100, want 65,535"),
    ("web: {telemetryPath: /-/ready}", "at '/web/telemetryPath': 'not' failed"),
    ("log: {level: verbose}", "at '/log/level': value must be one of"),
    ("jobs: {retention: 2}", "at '/jobs/retention': got number, want string"),
    ("jobs: {retention: soon}", "at '/jobs/retention': 'soon' does not match pattern"),
    ("jobs: {labels: [jobid]}", "at '/jobs/labels/0': value must be one of 'user', 'account', 'partition', 'qos'"),
    ("metricProfile: tiny", "at '/metricProfile': value must be one of 'lean', 'standard', 'full'"),
    ("maxSeries: -1", "at '/maxSeries': minimum: got -1, want 0"),
    ("gpu: {gresOrder: [first]}", "at '/gpu/gresOrder/0': 'first' does not match pattern"),
    ("gpu: {period: 1ms}", "at '/gpu/period': '1ms' does not match pattern"),
    ("gpu: {period: 1h}", "at '/gpu/period': '1h' does not match pattern"),
    ("web: {listenOn: hostIPv4}", "at '/web/listenOn': value must be one of 'all', 'host'"),
    ("daemonset: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}", "at '/daemonset/updateStrategy/rollingUpdate/maxUnavailable': minimum: got 0, want 1"),
    ("daemonset: {updateStrategy: {rollingUpdate: {maxUnavailable: 0%}}}", "at '/daemonset/updateStrategy/rollingUpdate/maxUnavailable': '0%' does not match"),
    ("daemonset: {updateStrategy: {rollingUpdate: {maxUnavailable: 200%}}}", "at '/daemonset/updateStrategy/rollingUpdate/maxUnavailable': '200%' does not"),
    ("daemonset: {updateStrategy: {type: Recreate}}", "at '/daemonset/updateStrategy/type': value must be one of 'RollingUpdate', 'OnDelete'"),
    ("daemonset: {updateStrategy: {rollingUpdate: {maxSurge: 1}}}", "at '/daemonset/updateStrategy/rollingUpdate/maxSurge': value must be 0"),
    ("resources: {limits: {memory: lots}}", "at '/resources/limits/memory': 'lots' does not match pattern"),
    ("seccompProfile: {type: Localhost}", "at '/seccompProfile': missing property 'localhostProfile'"),
    ("podMonitor: {interval: 15}", "at '/podMonitor/interval': got number, want string"),
    ("serviceMonitor: {jobName: slurm}", "at '/serviceMonitor/jobName': 'slurm' does not match pattern '^jobledger.*$'"),
    ("rules: {alerts: {JobledgerGpuLost: {severity: page}}}", "value must be one of 'critical', 'warning', 'info'"),
    ("podMonitor: {scrapeProtocols: [protobuf]}", "at '/podMonitor/scrapeProtocols/0': value must be one of 'PrometheusProto'"),
    ("vmPodScrape: {labelLimit: 3}", "at '/vmPodScrape': additional properties 'labelLimit' not allowed"),
    ("vmPodScrape: {tlsConfig: {minVersion: TLS12}}", "at '/vmPodScrape/tlsConfig': 'not' failed"),
    ("rules: {alertLabels: {severity: info}}", "at '/rules/alertLabels'"),
    ("rules: {alertLabels: {audience: owner}}", "at '/rules/alertLabels'"),
    ("grafanaDashboard: {instanceSelector: {labels: {a: b}}}", "at '/grafanaDashboard/instanceSelector': additional properties 'labels' not allowed"),
    ("alertmanagerConfig: {enabled: true}", "at '/alertmanagerConfig/mailDomain': minLength: got 0, want 1"),
    ("alertmanagerConfig: {to: {nobody: root@hpc.test}}", "at '/alertmanagerConfig/to': additional properties 'nobody' not allowed"),
    ("alertmanagerConfig: {smarthost: mail}", "at '/alertmanagerConfig/smarthost': 'mail' does not match pattern"),
    ("rules: {excludedJobs: {partition: ['a\"} or vector(1)']}}", "at '/rules/excludedJobs/partition/0': 'not' failed"),
    ("webConfig: {basicAuthUsers: {prometheus: secret}}", "at '/webConfig/basicAuthUsers/prometheus': 'secret' does not match pattern"),
    # Values that would silently be ignored or misread.
    ("collectors: {perf: true}", "at '/collectors/perf': value must be false"),
    ("profile: energy\ncollectors: {perf: true}", "at '/collectors/perf': value must be false"),
    ("profile: energy\ncollectors: {network: true}", "at '/collectors/network': value must be false"),
    ("profile: energy\ncollectors: {memory_traffic: true}", "at '/collectors/memory_traffic': value must be false"),
    ("profile: energy\ncollectors: {procio: true}", "at '/collectors/procio': value must be false"),
    ("profile: energy\ncollectors: {procsum: true}", "at '/collectors/procsum': value must be false"),
    ("collectors: {energy: true}", "at '/collectors/energy': value must be false"),
    ("options: {orders: true}", "at '/options/orders': value must be false"),
    ("profile: energy\noptions: {deviceHelper: true}", "at '/options/deviceHelper': value must be false"),
    ("profile: energy\noptions: {powerPmu: true}", "at '/options/powerPmu': value must be false"),
    ("profile: energy\noptions: {environmentHints: true}", "at '/options/environmentHints': value must be false"),
    ("profile: energy\nprivileged: true", "at '/privileged': value must be false"),
    ("profile: energy\nextraCapabilities: [PERFMON]", "at '/extraCapabilities': maxItems: got 1, want 0"),
    ("profile: full\nextraCapabilities: [ALL]", "at '/extraCapabilities/0': value must be one of"),
    ("profile: full\noptions: {resctrl: true}", "at '/collectors': missing property 'memory_traffic'"),
    ("profile: full\noptions: {deviceHelper: true}\ncollectors: {gpu: false}", "at '/collectors/gpu': value must be true"),
    ("profile: full\noptions: {powerPmu: true}\ncollectors: {energy: false}", "at '/collectors/energy': value must be true"),
    ("profile: full\ngpu: {nvidia: hostPath}", "at '/privileged': value must be true"),
    ("gpu: {nvidia: hostPath}", "at '/gpu/nvidia': value must be one of 'none', 'runtimeClass'"),
    ("gpu: {nvidia: runtimeClass}\ncollectors: {gpu: false}", "at '/collectors/gpu': value must be true"),
    ("host: {network: false}", "at '/collectors': missing property 'node_network'"),
    ("host: {network: false}\ncollectors: {node_network: false}\nweb: {listenOn: host}", "at '/host/network': value must be true"),
    ("web: {port: 443}", "at '/web/port': minimum: got 443, want 1,024"),
    ("profile: energy\nweb: {port: 443}", "at '/web/port': minimum: got 443, want 1,024"),
    ("jobs: {tasks: true}", "at '/jobs/steps': value must be true"),
    ("resources: {limits: {nvidia.com/gpu: 1}}", "invalid propertyName 'nvidia.com/gpu'"),
    ("host: {mounts: [/]}", "at '/host/mounts/0'"),
    ("host: {mounts: [/proc/fs]}", "at '/host/mounts/0'"),
    ("host: {mounts: [/home/../etc]}", "at '/host/mounts/0'"),
    ("host: {lockDirectory: /var/run}", "at '/host/lockDirectory'"),
    # The alternatives.
    ("extraArgs: [--collector.perf]", "at '/extraArgs/0': 'not' failed"),
    ("extraArgs: [--collector.perf=true]", "at '/extraArgs/0': 'not' failed"),
    ("extraArgs: [--no-collector.node_network]", "at '/extraArgs/0': 'not' failed"),
    ("extraArgs: [--jobs.environment-hints]", "at '/extraArgs/0': 'not' failed"),
    ("extraArgs: [--path.procfs=/proc]", "at '/extraArgs/0': 'not' failed"),
    ("extraArgs: ['-h']", "at '/extraArgs/0': '-h' does not match pattern"),
    ("env: [{name: JOBLEDGER_COLLECTOR_PERF, value: 'true'}]", "at '/env/0/name': 'not' failed"),
    # One or the other.
    ("serviceMonitor: {enabled: true}\nservice: {enabled: false}", "at '/service/enabled': value must be true"),
    ("podMonitor: {enabled: true}\ndaemonset: {enabled: false}", "at '/daemonset/enabled': value must be true"),
    ("vmPodScrape: {enabled: true}\ndaemonset: {enabled: false}", "at '/daemonset/enabled': value must be true"),
    ("webConfig: {existingSecret: a, tls: {secretName: b}}", "at '/webConfig/tls/secretName': value must be ''"),
    ("webConfig: {existingSecretHas: {tls: true}}", "at '/webConfig/existingSecretHas/tls': value must be false"),
    ("webConfig: {tls: {clientAuth: RequireAndVerifyClientCert}}", "at '/webConfig/tls/clientAuth': value must be 'NoClientCert'"),
    ("webConfig: {tls: {minVersion: TLS13}}", "at '/webConfig/tls/minVersion': value must be 'TLS12'"),
    ("webConfig: {existingSecret: a, tls: {clientAuth: RequireAndVerifyClientCert}}", "at '/webConfig/tls/clientAuth': value must be 'NoClientCert'"),
    ("webConfig: {existingSecret: a, tls: {minVersion: TLS13}}", "at '/webConfig/tls/minVersion': value must be 'TLS12'"),
    ("webConfig: {existingSecret: a, existingSecretHas: {clientCertificates: true}}", "at '/webConfig/existingSecretHas/tls': value must be true"),
    ("rules: {files: {compat/jobstats: true, compat/treydock: true}}", "at '/rules/files/compat~1treydock': value must be false"),
    ("scrapeConfig: {enabled: true}", "at '/scrapeConfig': 'anyOf' failed"),
    ("scrapeConfig: {staticConfigs: [{targets: ['http://node1:9810']}]}", "at '/scrapeConfig/staticConfigs/0/targets/0'"),
    # Between values (templates/_helpers.tpl).
    ("podMonitor: {enabled: true, scrapeTimeout: 1m}", "podMonitor: scrapeTimeout 1m is longer than the interval 15s"),
    ("scrapeConfig: {enabled: true, scrapeTimeout: 1m, staticConfigs: [{targets: ['a:1']}]}", "scrapeConfig: scrapeTimeout 1m is longer than the interval 15s"),
    ("podMonitor: {enabled: true, sampleLimit: 50000}", "podMonitor.sampleLimit 50000 is not above maxSeries 50000"),
    ("maxSeries: 0\nvmPodScrape: {enabled: true}", "vmPodScrape.sampleLimit 60000 is not above maxSeries 0"),
    ("podMonitor: {enabled: true, tlsConfig: {insecureSkipVerify: true}}", "podMonitor.tlsConfig is set and webConfig has no TLS"),
    ("webConfig: {tls: {secretName: a}}\npodMonitor: {enabled: true}", "webConfig has TLS and podMonitor.tlsConfig is empty"),
    ("webConfig: {existingSecret: a, existingSecretHas: {tls: true}}\nserviceMonitor: {enabled: true}", "webConfig has TLS and serviceMonitor.tlsConfig is empty"),
    ("webConfig: {existingSecret: a, existingSecretHas: {basicAuth: true}}\npodMonitor: {enabled: true}", "podMonitor.basicAuth is empty"),
    ("podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}", "serviceMonitor and podMonitor are all enabled: each pod would be scraped 2 times"),
    ("podMonitor: {enabled: true}\nvmPodScrape: {enabled: true}", "podMonitor and vmPodScrape are all enabled"),
    ("prometheusRule: {enabled: true}\nrules: {files: {alerts/settings: false}}", "alerts of alerts/exporter cannot fire without alerts/settings"),
    ("vmRule: {enabled: true}\nrules: {files: {alerts/settings: false}}", "alerts of alerts/exporter cannot fire without alerts/settings"),
    ("rules: {excludedJobs: {partition: [debug, gpu(]}}", 'rules.excludedJobs.partition: "gpu(" is no regular expression'),
    ("rules: {excludedJobs: {user: ['a)|(b']}}", 'rules.excludedJobs.user: "a)|(b" is no regular expression'),
    ("webConfig: {existingSecret: a, existingSecretHas: {tls: true, clientCertificates: true}}\npodMonitor: {enabled: true}", "asks for client certificates"),
]
# Similar values that are accepted.
TAKEN = [
    "global: {anything: true}",
    "profile: full\ncollectors: {perf: true, gpu: false}",
    "collectors: {perf: false, energy: false}",
    "extraArgs: [--collector.perf.groups=flops, --collector.energy.idle-watts=node=120, --security.no-landlock]",
    "gpu: {gresOrder: [GPU-8f0c0000-aaaa-bbbb-cccc-0123456789ab]}",
    "resources: {requests: {cpu: 0.5, memory: 64Mi}, limits: {memory: 1e9}}",
    "global: {imageRegistry: 'mirror.example.org:5000/hpc'}",
    "image: {registry: 'localhost:5000', repository: hpc/jobledger-exporter}",
    "podMonitor: {enabled: true, sampleLimit: 0, interval: 1m30s, scrapeTimeout: 10s}",
    "rules: {files: {alerts/settings: false}}",
    "rules: {files: {compat/jobstats: true, compat/treydock: false}}",
    "daemonset: {updateStrategy: {rollingUpdate: {maxUnavailable: 3}}}",
    "daemonset: {updateStrategy: {rollingUpdate: {maxUnavailable: 100%}}}",
    "profile: full\nprivileged: true\nweb: {port: 443}",
    "rules: {excludedJobs: {partition: ['(?i)gpu[0-9]+.*', a|b], name: ['x{2,3}']}}",
    "webConfig: {tls: {secretName: a, minVersion: TLS13}}\npodMonitor: {enabled: true, tlsConfig: {serverName: node}}",
]

# Values with their old names, and the new one that the message has.
RENAMED = [
    ("monitor: {kind: PodMonitor}", "monitor.kind is now serviceMonitor.enabled, podMonitor.enabled or vmPodScrape.enabled"),
    ("monitor: {interval: 30s}", "monitor is now serviceMonitor, podMonitor or vmPodScrape, with the same keys"),
    ("rules: {enabled: true}", "rules.enabled is now prometheusRule.enabled (or vmRule.enabled)"),
    ("rules: {namespace: monitoring}", "rules.namespace is now prometheusRule.namespace"),
    ("rules: {labels: {release: x}}", "rules.labels is now prometheusRule.labels"),
    ("rules: {annotations: {}}", "rules.annotations is now prometheusRule.annotations"),
    ("image: {repository: registry.example.org/hpc/jobledger-exporter}",
     "image.repository registry.example.org/hpc/jobledger-exporter has a registry: that is now image.registry"),
    ("test: {image: {repository: docker.io/curlimages/curl}}", "test.image.repository docker.io/curlimages/curl has a registry: that is now test.image.registry"),
]


class Values(unittest.TestCase):
    def all(self, values):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda each: tools.template(yaml.safe_load(each)), values))

    def test_wrong_values_are_refused_with_their_path(self):
        for (values, message), done in zip(REFUSED, self.all([values for values, _ in REFUSED]), strict=True):
            with self.subTest(values):
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, re.sub(r"\s+", " ", done.stderr))

    def test_right_values_are_accepted(self):
        for values, done in zip(TAKEN, self.all(TAKEN), strict=True):
            with self.subTest(values):
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_old_names_are_refused_with_the_new_ones(self):
        for (values, message), done in zip(RENAMED, self.all([values for values, _ in RENAMED]), strict=True):
            with self.subTest(values):
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, re.sub(r"\s+", " ", done.stderr))
        # Whoever has more than one old value reads all of them at once.
        done = tools.template({"monitor": {"kind": "PodMonitor"}, "rules": {"enabled": True}})
        for message in ("monitor.kind is now", "rules.enabled is now"):
            self.assertIn(message, done.stderr)

    def test_every_old_name_of_the_schema_has_a_new_one(self):
        """The schema lets old names through to the template that refuses them."""
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        old = set()
        for name, each in schema["properties"].items():
            old |= {name} if "$comment" in each else {f"{name}.{key}" for key, inner in each.get("properties", {}).items() if "$comment" in inner}
        table = (tools.CHART / "templates" / "_renamed.tpl").read_text()
        self.assertEqual(old, set(re.findall(r"^([a-z][\w.]+): ", table, re.M)) - {"monitor.kind"})
        self.assertLessEqual(old, {values.split(":")[0] + "." + re.search(r"\{(\w+)", values)[1] for values, _ in RENAMED} | {"monitor"})

    def test_apparmor_is_refused_if_the_api_lacks_it(self):
        done = tools.template(tools.image(appArmorProfile={"type": "Unconfined"}), version="1.29.0")
        self.assertIn("appArmorProfile needs Kubernetes 1.30", done.stderr)

    def test_an_old_kubernetes_is_refused(self):
        self.assertIn("requires kubeVersion", tools.template(tools.image(), version="1.26.0").stderr)

    def test_the_schema_allows_unknown_keys_only_where_intended(self):
        """Unknown keys are allowed in Kubernetes' own objects and in maps with the site's names."""
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        found = set()

        def walk(value, path):
            if isinstance(value, dict):
                if value.get("type") == "object" and "additionalProperties" not in value and value.get("maxProperties") != 0:
                    found.add(re.sub(r"/(properties|items|anyOf/\d)", "", path))
                for key, each in value.items():
                    walk(each, f"{path}/{key}")
            elif isinstance(value, list):
                for number, each in enumerate(value):
                    walk(each, f"{path}/{number}")
        walk(schema["properties"], "")
        self.assertEqual(found, {
            "/global", "/env/valueFrom", "/extraVolumes", "/extraVolumeMounts", "/resources/claims",
            "/affinity/nodeAffinity", "/affinity/podAffinity", "/affinity/podAntiAffinity",
            "/networkPolicy/from/podSelector", "/networkPolicy/from/namespaceSelector", "/networkPolicy/from/ipBlock",
            "/scrapeConfig/httpSDConfigs/authorization", "/grafanaDashboard/instanceSelector/matchExpressions",
        })

    def test_every_value_has_a_schema_and_every_schema_a_value(self):
        schema = json.loads((tools.CHART / "values.schema.json").read_text())
        values = yaml.safe_load((tools.CHART / "values.yaml").read_text())
        def current(properties):
            return {name: each for name, each in properties.items() if "$comment" not in each}
        self.assertEqual(set(values), set(current(schema["properties"])))
        for name, value in values.items():
            described = schema["properties"][name]
            described = schema["$defs"][described["$ref"].rpartition("/")[2]] if "$ref" in described else described
            properties = described.get("properties")
            if isinstance(value, dict) and properties and name not in ("collectors", "resources", "appArmorProfile", "seLinuxOptions", "affinity"):
                with self.subTest(name):
                    self.assertEqual(set(value), set(current(properties)))


if __name__ == "__main__":
    unittest.main()
