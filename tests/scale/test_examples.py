"""The example configurations of docs/scale: Prometheus accepts them, with the rules at the given paths.

Run: python3 -m unittest discover -s tests/scale
Needs promtool (apt-get install prometheus).
"""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs/scale").glob("*.yml"))
HOME = "/etc/prometheus"


class Limits(unittest.TestCase):
    def test_the_exporters_limit_of_series_is_below_prometheus_sample_limit(self):
        (most,) = re.findall(r"^\| `--metric\.max-series` \| (\d+) \|", (ROOT / "docs/flags.md").read_text(), re.M)
        found = {path.name: re.findall(r"^ *sample_limit: (\d+)$", path.read_text(), re.M) for path in (ROOT / "docs").rglob("*.yml")}
        self.assertTrue(any(found.values()))
        for name, limits in found.items():
            for limit in limits:
                with self.subTest(name):
                    self.assertGreater(int(limit), int(most))


@unittest.skipUnless(shutil.which("promtool"), "rules: needs promtool (apt-get install prometheus)")
class Examples(unittest.TestCase):
    def test_there_are_examples(self):
        self.assertGreaterEqual(len(EXAMPLES), 2)

    def test_promtool_accepts_them(self):
        with tempfile.TemporaryDirectory() as directory:
            home = pathlib.Path(directory)
            shutil.copytree(ROOT / "rules", home / "jobledger")
            (home / "nodes").mkdir()
            (home / "nodes/gpu.json").write_text('[{"targets": ["gpu1:9810"]}]\n')
            for path in EXAMPLES:
                with self.subTest(path.name):
                    text = path.read_text()
                    self.assertIn(HOME, text)
                    (home / path.name).write_text(text.replace(HOME, directory))
                    done = subprocess.run(["promtool", "check", "config", str(home / path.name)], capture_output=True, text=True, check=False)
                    self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                    self.assertNotIn("WARNING", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
