"""The preview of the dashboards (grafana/preview) on a dashboard with every type of panel, against given answers of a Prometheus.

Needs Node.js, the preview's packages and Chromium: `make previews-test` installs them, the largest part of its time.
"""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from fake_prometheus import FakePrometheus

HERE = Path(__file__).resolve().parent
PREVIEW = HERE.parents[1] / "grafana" / "preview"
LONG = 2400  # seconds
MISSING = [
    name
    for name, there in (
        ("Node.js", shutil.which("node")),
        ("Chromium", shutil.which("chromium")),
        ("the preview's packages", (PREVIEW / "node_modules" / "@grafana" / "ui").is_dir()),
    )
    if not there
]


def shoot(folder, *options):
    """Draws a folder's dashboards; returns the process, its reports and the queries."""
    prometheus = FakePrometheus(json.loads((HERE / "answers.json").read_text()))
    with tempfile.TemporaryDirectory() as out:
        dom = Path(out) / "dom.json"
        command = ["node", PREVIEW / "shoot.mjs", "--dashboards", folder, "--out", out, "--dom", dom, "--prometheus", prometheus.url, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
        drawn = json.loads(dom.read_text()) if dom.exists() else []
        sizes = {path.name: path.read_bytes()[16:24] for path in Path(out).glob("*.png")}
    prometheus.shutdown()
    prometheus.server_close()
    return done, drawn, prometheus.asked, sizes


class Files(unittest.TestCase):
    def test_packages_are_pinned_and_name_no_registry(self):
        lock = json.loads((PREVIEW / "package-lock.json").read_text())
        wanted = json.loads((PREVIEW / "package.json").read_text())
        for name, version in (wanted["dependencies"] | wanted["devDependencies"]).items():
            self.assertRegex(version, r"^\d+\.\d+\.\d+$", name)
            self.assertEqual(lock["packages"][f"node_modules/{name}"]["version"], version)
        for name, package in lock["packages"].items():
            self.assertNotIn("resolved", package)
            if name:
                self.assertIn("integrity", package, name)

    def test_each_preset_has_a_dashboard(self):
        dashboards = {path.stem for path in (PREVIEW.parent / "dashboards").glob("*.json")}
        for name, presets in json.loads((PREVIEW / "previews.json").read_text()).items():
            self.assertTrue(presets)
            if dashboards:
                self.assertIn(name, dashboards)


@unittest.skipIf(MISSING, f"previews: needs {', '.join(MISSING)}: make previews-test")
class EveryPanel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.done, drawn, cls.asked, cls.sizes = shoot(HERE / "dashboards")
        if not drawn:
            raise AssertionError(cls.done.stdout + cls.done.stderr)
        cls.dashboard = drawn[0]
        cls.panels = {panel["key"]: panel for panel in cls.dashboard["panels"]}

    def text(self, key):
        return self.panels[key]["text"].split("\n")

    def pixels(self, key, colour):
        return self.panels[key]["colours"].get(colour, 0)

    def test_nothing_failed(self):
        self.assertEqual(self.dashboard["errors"], [])
        self.assertEqual(self.done.returncode, 0, self.done.stdout)

    def test_every_type_of_panel_is_drawn(self):
        source = (PREVIEW / "src" / "panel.tsx").read_text()
        table = source[source.index("const PANELS"):source.index("};", source.index("const PANELS"))]
        known = set(re.findall(r'^  "?([\w-]+)"?:', table, re.M)) | {"text"}
        self.assertGreater(len(known), 10)
        self.assertEqual({panel["type"] for panel in self.panels.values()}, known | {"geomap"})

    def test_the_picture_has_the_given_width_and_the_dashboards_height(self):
        size = self.sizes["every-panel.png"]
        width, height = int.from_bytes(size[:4]), int.from_bytes(size[4:])
        _, top, _, tall = self.panels["22"]["place"]
        self.assertEqual(width, 1600)
        self.assertTrue(top + tall <= height <= top + tall + 40, (height, top, tall))

    def test_what_it_cannot_draw_is_reported_in_the_panel_and_to_the_caller(self):
        self.assertIn("Not in this preview: panels of type geomap", self.text("15"))
        self.assertIn("transformation extractFields (inside Grafana, not published); override of colour", self.panels["14"]["text"])
        self.assertEqual(len(self.dashboard["gaps"]), 3)
        for gap in self.dashboard["gaps"]:
            self.assertIn(f"not in the preview: {gap}", self.done.stdout)

    def test_variables(self):
        head = self.dashboard["head"].split("\n")
        for name, value in (("Data source", "Prometheus"), ("Node", "All"), ("How many", "Three"), ("every", "10m")):
            self.assertEqual(head[head.index(name) + 1], value)
        self.assertNotIn("secret", head)
        self.assertEqual(self.text("3")[0], "Jobs of Three")
        # Several values become a regular expression; the interval follows from the time range and the number of points.
        self.assertIn(r'sum by (mode) (rate(cpu_seconds_total{node=~"(n1|n2\\.x)"}[75s]))', self.asked)
        self.assertIn(r'max_over_time(power_watts{node=~"n2\\.x"}[3600s])', self.asked)

    def test_repeats(self):
        self.assertEqual(self.text("19-n1"), ["n1 in 10m", "180 W"])
        self.assertEqual(self.text("19-n2.x"), ["n2.x in 10m", "260 W"])
        first, second = (self.panels[key] for key in ("21-n1", "21-n2.x"))
        self.assertEqual([first["text"], second["text"]], ["Only n1 over 3600s\n181 W", "Only n2.x over 3600s\n261 W"])
        self.assertEqual(first["place"][1], second["place"][1])
        self.assertLess(first["place"][0], second["place"][0])
        self.assertGreater(self.panels["22"]["place"][1], first["place"][1])

    def test_stat_gauge_and_bar_gauge(self):
        self.assertEqual(self.text("1"), ["Power", "n1", "180.0 W", "n2.x", "250.0 W"])
        self.assertGreater(self.pixels("1", "#ff0000") + self.pixels("1", "#fe0000"), 1000)  # above its threshold
        self.assertIn("42%", self.text("2"))
        self.assertEqual(self.text("3")[1:], ["alice", "7", "bob", "4", "carol", "3"])

    def test_time_series_with_legend_override_and_annotation(self):
        self.assertEqual(self.text("5")[-6:], ["system", "2.98", "4", "User code", "19.8", "30"])
        self.assertGreater(self.pixels("5", "#3366ff"), 10_000)
        self.assertGreater(self.pixels("5", "#ffee00"), 50)

    def test_table_with_transformations_mapping_and_links(self):
        cells = [text for text in self.text("6")[1:] if not text.startswith(("__name__", "job_info"))]
        self.assertEqual(cells, ["Job", "State", "CPUs", "1234567", "PD", "64 CPUs", "7", "Running", "16 CPUs"])
        self.assertEqual(self.panels["6"]["links"][0], "/d/job?var-jobid=1234567&from=64&from=1767225600000&to=1767229200000")

    def test_states(self):
        self.assertGreater(self.pixels("7", "#00aa00"), 2 * self.pixels("7", "#cc0044"))
        self.assertGreater(self.pixels("7", "#cc0044"), 5000)
        self.assertEqual(self.text("8")[1:], ["idle", "held"])
        self.assertGreater(self.pixels("8", "#cc0044"), 5000)

    def test_heatmaps(self):
        self.assertEqual(self.text("9")[1:], ["0%", "100%"])
        # Viridis at 1 is half of a row; at 0.5 a whole one.
        self.assertAlmostEqual(self.pixels("9", "#20928c") / self.pixels("9", "#fde725"), 2, delta=0.15)
        self.assertEqual(self.text("10")[1:], ["1", "3"])  # buckets are no longer cumulative: 1, 3, 0, then three times 2

    def test_xy_chart(self):
        self.assertEqual(self.text("11")[1:], ["Roof", "Job"])
        self.assertGreater(self.pixels("11", "#ee8800"), 500)
        self.assertGreater(self.pixels("11", "#00c0f0"), 200)

    def test_pie_and_bars(self):
        self.assertEqual(self.text("12")[-6:], ["package", "750 J", "75%", "dram", "250 J", "25%"])
        self.assertGreater(self.pixels("13", "#9933cc"), 5000)

    def test_text_and_links(self):
        self.assertIn("Nodes are n1,n2.x, their page", self.text("4"))
        self.assertEqual(self.panels["4"]["links"], ["/d/nodes?var-node=%24__all"])

    def test_no_data_has_the_dashboards_text(self):
        self.assertEqual(self.text("16"), ["Empty", "n.a. on this hardware"])
        self.assertEqual(self.text("17"), ["Absent", "not read"])


@unittest.skipIf(MISSING, f"previews: needs {', '.join(MISSING)}: make previews-test")
class Failing(unittest.TestCase):
    def test_a_refused_query_is_shown_and_fails(self):
        done, drawn, _, _ = shoot(HERE / "broken")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ERROR Refused: query A: not canned: sum(", done.stdout)
        panels = {panel["title"]: panel["text"] for panel in drawn[0]["panels"]}
        self.assertIn("not canned: sum(", panels["Refused"])
        self.assertEqual(panels["Fine"], "Fine\n0.420")

    def test_an_unknown_value_of_a_variable_is_refused(self):
        done, _, _, _ = shoot(HERE / "dashboards", "--var", "node=n9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("n9 is no value of the variable node; there are n1, n2.x", done.stdout)


if __name__ == "__main__":
    unittest.main()
