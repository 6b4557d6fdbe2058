"""A page is opened as Grafana opens it: steps, variables, and rules in the order of what they need."""

import pathlib
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "grafana")]

import bed  # noqa: E402
import dashboards  # noqa: E402


class Opened(unittest.TestCase):
    def test_steps_are_grafanas(self):
        # (range, columns, least step): (step, $__interval, $__rate_interval). 1880 pixels are 24 columns.
        for given, expected in (((3600, 24, None), (30, 30, 120)), ((21_600, 8, None), (30, 30, 120)), ((86_400, 12, None), (120, 120, 150)), ((21_600, 8, "10m"), (600, 600, 630)),
                                ((30 * 86_400, 24, None), (1200, 1200, 1230))):
            with self.subTest(given):
                self.assertEqual(dashboards.timing(*given), expected)

    def test_values_are_escaped_as_grafana_does(self):
        self.assertEqual(dashboards.escaped("node1:9810"), "node1:9810")
        self.assertEqual(dashboards.escaped("a.b-c(d)"), r"a\\.b-c\\(d\\)")

    def test_rules_come_after_those_that_they_need(self):
        text = "groups:\n- name: g\n  rules:\n" + "".join(f"  - {{record: 'a:{name}', expr: '{expr}'}}\n" for name, expr in (("sum", "a:b + a:c"), ("b", "x"), ("c", "a:b * 2"), ("bb", "y")))
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "rules.yaml"
            path.write_text(text)
            self.assertEqual([{rule["record"] for rule in level} for level in dashboards.levels([path])], [{"a:b", "a:bb"}, {"a:c"}, {"a:sum"}])

    def test_all_rules_have_an_order(self):
        paths = [path for path in bed.RULES if "alerts" not in path.parts]
        self.assertGreater(sum(map(len, dashboards.levels(paths))), 40)

    def test_a_table_has_what_each_node_adds(self):
        def panels(cpu):
            return {"jobledger-node": [{"panel": "p", "cpu": cpu, "series": 3, "bytes": 1000}]}
        line = dashboards.table({10: panels(0.2), 20: panels(0.3)})[-1]
        # 0.1 s and 0.01 s for each node.
        self.assertIn("| node | 1h | 0.20 | 0.30 | 10.1 | 3 (p) | 1 | p 0.30 |", line)


if __name__ == "__main__":
    unittest.main()
