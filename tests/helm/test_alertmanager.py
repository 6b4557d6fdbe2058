"""The AlertmanagerConfig: mails and routes are those of rules/alertmanager, as Alertmanager itself sees them."""

import copy
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tools
from test_monitoring import RULES, by_name, rules_of
from tools import yaml

AMTOOL = shutil.which("amtool")
EXAMPLE = RULES / "alertmanager" / "alertmanager.example.yml"


def snake(key):
    return {"requireTLS": "require_tls"}.get(key) or re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), key)


def by_the_operator(made):
    """What the Prometheus Operator makes of an AlertmanagerConfig with the strategy OnNamespace (its pkg/alertmanager/amcfg.go)."""
    own = made["metadata"]["namespace"]
    prefix = f"{own}/{made['metadata']['name']}/"
    spec = copy.deepcopy(made["spec"])

    def matcher(given):
        return f"{given['name']}{given['matchType']}{json.dumps(given['value'])}"

    def route(given):
        found = {snake(key): value for key, value in given.items()}
        found["receiver"] = prefix + found["receiver"]
        found["matchers"] = [matcher(each) for each in given.get("matchers", [])]
        found["routes"] = [route(each) for each in given.get("routes", [])]
        return found

    def mail(given):
        found = {snake(key): value for key, value in given.items()}
        found["headers"] = {each["key"]: each["value"] for each in given.get("headers", [])}
        if "auth_password" in found:
            found["auth_password"] = "secret"
        return found

    top = route(spec["route"])
    top["matchers"].append(f'namespace="{own}"')
    return {
        "route": {"receiver": "null", "routes": [top | {"continue": True}]},
        "inhibit_rules": [{
            "source_matchers": [*map(matcher, each["sourceMatch"]), f'namespace="{own}"'],
            "target_matchers": [*map(matcher, each["targetMatch"]), f'namespace="{own}"'], "equal": each["equal"],
        } for each in spec["inhibitRules"]],
        "receivers": [{"name": "null"}, *({"name": prefix + each["name"], "email_configs": [mail(one) for one in each.get("emailConfigs", [])]}
                                          for each in spec["receivers"])],
    }


@unittest.skipUnless(AMTOOL, "rules: needs amtool (prometheus-alertmanager)")
class Alertmanager(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.made = tools.rendered("alertmanager")
        cls.object = tools.only("AlertmanagerConfig", cls.made)
        cls.config = by_the_operator(cls.object)
        cls.path = Path(temporary.name) / "alertmanager.yml"
        cls.path.write_text(yaml.safe_dump(cls.config))
        cls.example = yaml.safe_load(EXAMPLE.read_text())

    def amtool(self, *arguments):
        done = subprocess.run([AMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def receivers(self, path, labels):
        found = self.amtool("config", "routes", "test", f"--config.file={path}", *(f"{name}={value}" for name, value in labels.items()))
        return found.strip().replace("monitoring/jobledger/", "")

    def test_alertmanager_accepts_it(self):
        self.assertIn("SUCCESS", self.amtool("check-config", self.path))

    def test_every_alert_goes_where_the_example_sends_it(self):
        asked = []
        for name, rule in by_name(rules_of(self.made)).items():
            if "alert" in rule:
                labels = {"alertname": name, "cluster": "alpha", **rule["labels"]}
                self.assertEqual(labels["namespace"], "monitoring")
                asked += [labels, labels | {"user": "alice"}]
        self.assertGreater(len(asked), 40)

        def both(labels):
            return self.receivers(self.path, labels), self.receivers(EXAMPLE, labels)
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(both, asked))
        for labels, (ours, example) in zip(asked, answers, strict=True):
            with self.subTest(labels):
                self.assertEqual(ours, example)
        self.assertGreater(len({ours for ours, _ in answers}), 1)
        # An alert without the namespace is for others.
        self.assertEqual(self.receivers(self.path, asked[0] | {"namespace": "other"}), "null")

    def test_routes_and_inhibitions_are_all_there(self):
        (top,) = self.config["route"]["routes"]

        def shape(route):
            rest = {key: value for key, value in route.items() if key not in ("routes", "matchers", "continue")}
            rest["receiver"] = rest["receiver"].rpartition("/")[2]
            return rest, [shape(each) for each in route.get("routes", [])]
        self.assertEqual(shape(top), shape(self.example["route"]))
        self.assertEqual([each["equal"] for each in self.config["inhibit_rules"]], [each["equal"] for each in self.example["inhibit_rules"]])

    def test_mails_are_those_of_the_example(self):
        """The texts have their templates in them, since an AlertmanagerConfig has no files. What comes out is the same."""
        labels = {"jobid": "7", "user": "alice", "account": "physics", "partition": "gpu", "instance": "node1", "audience": "owner", "alertname": "A",
                  "severity": "warning", "gpu": "0"}
        alerts = [{"status": status, "labels": labels, "startsAt": "2026-01-02T03:04:05Z", "endsAt": "2026-01-02T04:04:05Z",
                   "annotations": {"summary": "s", "description": "d", "runbook_url": "https://r", "dashboard_url": "https://g"}}
                  for status in ["firing"] * 21 + ["resolved"]]
        data = {"receiver": "owner", "status": "firing", "groupLabels": {"user": "alice", "array_job_id": "7", "cluster": "alpha", "audience": "owner"},
                "commonLabels": labels, "commonAnnotations": {"summary": "s"}, "externalURL": "http://alertmanager", "alerts": alerts}
        example = {each["name"]: each.get("email_configs", []) for each in self.example["receivers"]}
        compared = 0
        with tempfile.TemporaryDirectory() as temporary:
            given, empty = Path(temporary) / "data.json", Path(temporary) / "empty.tmpl"
            given.write_text(json.dumps(data))
            empty.write_text("")

            def rendered(text, templates):
                return self.amtool("template", "render", f"--template.data={given}", f"--template.text={text}", f"--template.glob={templates}")
            for receiver in self.config["receivers"][1:]:
                for ours, theirs in zip(receiver["email_configs"], example[receiver["name"].rpartition("/")[2]], strict=True):
                    self.assertEqual(ours["headers"].keys(), theirs["headers"].keys())
                    texts = [(ours[key], theirs[key]) for key in ("text", "html") if theirs.get(key)]
                    texts += [(ours["headers"][key], theirs["headers"][key]) for key in theirs["headers"]]
                    for mine, other in texts:
                        compared += 1
                        with self.subTest(other):
                            result = rendered(mine, empty)
                            self.assertEqual(result, rendered(other, EXAMPLE.parent / "*.tmpl").replace("cluster.example", "hpc.test"))
                            self.assertTrue(result.strip())
        self.assertGreater(compared, 3)

    def test_addresses_are_the_sites(self):
        mails = {each["name"].rpartition("/")[2]: one for each in self.config["receivers"] for one in each.get("email_configs", [])}
        self.assertNotIn("cluster.example", json.dumps(mails))
        self.assertTrue(any(mail["to"].endswith("@hpc.test") for mail in mails.values()))
        changed = yaml.safe_load((tools.CHART / "ci" / "alertmanager-values.yaml").read_text())["alertmanagerConfig"]["to"]
        self.assertTrue(changed)
        for name, address in changed.items():
            self.assertEqual(mails[name]["to"], address)
        for mail in mails.values():
            self.assertEqual([mail[key] for key in ("from", "smarthost", "require_tls", "auth_username")],
                             ["jobledger@hpc.test", "mail.hpc.test:587", True, "jobledger"])
        for receiver in self.object["spec"]["receivers"]:
            for mail in receiver.get("emailConfigs", []):
                self.assertEqual(mail["authPassword"], {"name": "smtp", "key": "password"})

    def test_the_label_can_be_left_out(self):
        made = tools.objects(tools.render(tools.CHART / "ci" / "alertmanager-values.yaml", {"alertmanagerConfig": {"labelNamespace": False}}))
        self.assertFalse([rule for rule in by_name(rules_of(made)).values() if "namespace" in rule.get("labels", {})])


if __name__ == "__main__":
    unittest.main()
