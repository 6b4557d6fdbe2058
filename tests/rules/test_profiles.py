"""What rules and alerts lack in each `--metric.profile` of the exporter, beside what docs/install.md says of it."""

import re
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ("lean", "standard", "full")
WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def profiles():
    """By metric: the smallest profile that it is in, as docs/metrics.md has it; None where a collector has to be switched on."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (\S+) \|", (ROOT / "docs/metrics.md").read_text(), re.M)
    return {name: profile if profile in PROFILES else None for name, profile in rows}


def rules():
    """All rules but those that give names of other exporters."""
    files = [ROOT / "rules/site.yaml", *(path for part in ("recording", "optional", "alerts") for path in sorted((ROOT / "rules" / part).glob("*.yaml")))]
    return [rule for path in files for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


class Profiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.profiles, cls.rules = profiles(), rules()
        cls.recorded = {}
        for rule in cls.rules:
            if "record" in rule:
                cls.recorded.setdefault(rule["record"], set()).update(WORD.findall(str(rule["expr"])))

    def read(self, names, known=frozenset()):
        """Metrics that an expression with these names is made of, through recorded series."""
        found = set()
        for name in names:
            if name in self.recorded and name not in known:
                found |= self.read(self.recorded[name], known | {name})
            elif name in self.profiles:
                found.add(name)
        return found

    def lacking(self, profile):
        """By alert: what it reads that is not in this profile."""
        larger = PROFILES[PROFILES.index(profile) + 1:]
        found = {}
        for rule in self.rules:
            if "alert" in rule:
                lacks = {name for name in self.read(WORD.findall(rule["expr"])) if self.profiles[name] in larger}
                if lacks:
                    found[rule["alert"]] = lacks
        return found

    def test_every_metric_has_a_profile_or_a_collector_that_is_off(self):
        self.assertGreater(len(self.profiles), 300)
        self.assertEqual({self.profiles[name] for name in self.profiles}, {None, *PROFILES})
        self.assertEqual(self.profiles["jobledger_job_cpu_seconds_total"], "lean")
        self.assertIsNone(self.profiles["jobledger_job_flops_total"])

    def test_the_alerts_that_the_lean_profile_silences_are_the_documented_ones(self):
        text = (ROOT / "docs/install.md").read_text()
        documented = text[text.index("  Silent are `Jobledger"):]
        documented = re.findall(r"`(Jobledger\w+)`", documented[:documented.index("\n- ")])
        self.assertEqual(sorted(documented), sorted(self.lacking("lean")))

    def test_no_alert_and_no_recorded_series_lacks_anything_in_the_standard_profile(self):
        self.assertEqual(self.lacking("standard"), {})
        read = self.read(set(self.recorded))
        self.assertGreater(len(read), 100)
        self.assertEqual([name for name in read if self.profiles[name] == "full"], [])


if __name__ == "__main__":
    unittest.main()
