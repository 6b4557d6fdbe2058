"""The results of a panel's queries for invented series, by promtool."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import expectations
import tools

VALUES = {**expectations.VARIABLES, "cluster": ".*", "jobid": "7", "__interval": "2m", "__rate_interval": "2m"}


def seconds(duration):
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[duration[-1]]


@unittest.skipUnless(shutil.which("promtool"), "rules: needs promtool")
class Numbers(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.dashboards = tools.dashboards()

    def queries(self, uid, title):
        """The queries of a panel by their letters."""
        return {target["refId"]: target["expr"] for panel in tools.panels(self.dashboards[f"jobledger-{uid}.json"]) if panel["title"] == title
                for target in panel["targets"]}

    def variable(self, uid, name):
        """What a hidden variable of a dashboard asks."""
        model, = [one for one in self.dashboards[f"jobledger-{uid}.json"]["templating"]["list"] if one["name"] == name]
        return re.fullmatch(r"query_result\((.*)\)", model["query"]["query"]).group(1)

    def gives(self, panel, letter, expected, series, *, at="1h", over="1h", every="30s", rules=(), counted=None, **values):
        """Asserts that a query of `panel` (dashboard, title), or without a letter a variable's, gives `expected`, {labels: value} or a number, over the range `over` up to `at`.
        With `counted`, `expected` has the number of series by this label's value; the values of series may be NaN."""
        values = {**VALUES, "__range": over, "__range_s": str(seconds(over)), **values}
        expected = expected if isinstance(expected, dict) else {"{}": expected}
        expr = tools.interpolate(self.variable(*panel) if letter is None else self.queries(*panel)[letter], values)
        expr = f"count by ({counted}) ({expr})" if counted else expr
        test = {"rule_files": [str(tools.RULES / name) for name in rules], "evaluation_interval": every, "tests": [{
            "interval": every, "input_series": [{"series": name, "values": given} for name, given in series.items()],
            "promql_expr_test": [{"expr": expr, "eval_time": at, "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()]}]}]}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "test.yaml"
            path.write_text(json.dumps(test))
            ran = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
