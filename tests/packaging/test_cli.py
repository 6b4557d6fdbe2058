"""The binary of the package `jobledger`: its version, how it starts, what it says without a configuration; and the manual pages.

Needs man-db and groff (tests/tools/install-packages.sh) and a binary (JOBLEDGER_CLI).
"""

import os
import re
import statistics
import subprocess
import time
import tomllib
import unittest

from support import CLI, PACKAGING, ROOT

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
STARTS = 50
# As packaging/binary.sh and `make build-cli` make it.
RELEASES = [*ROOT.glob("target/zigbuild/*/release/jobledger"), *ROOT.glob("target/release/jobledger")]


class Binary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert CLI.exists(), f"{CLI} is not there: make test-packages"

    def run_it(self, *words):
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        return subprocess.run([CLI, *words], env=environment, capture_output=True, text=True, check=False)

    def test_version(self):
        done = self.run_it("--version")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, f"jobledger {VERSION}\n", ""))

    def test_without_a_configuration_one_line_says_what_to_do(self):
        # One that the machine has is not looked at.
        done = self.run_it("check", "--config=/dev/null")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (
            2, "", "jobledger: no server is configured: --url, $JOBLEDGER_URL, or server.url in /etc/jobledger/jobledger.toml\n"))

    def test_the_example_is_a_configuration(self):
        done = self.run_it("check", f"--config={PACKAGING}/jobledger.toml.example", "--url=http://127.0.0.1:1")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("127.0.0.1:1 cannot be reached", done.stderr)

    def test_the_time_of_a_start_is_printed(self):
        """Ten milliseconds are the aim on a quiet machine. No machine is asked for it."""
        seconds = []
        for _ in range(STARTS):
            begun = time.perf_counter()
            done = self.run_it("--version")
            seconds.append(time.perf_counter() - begun)
            self.assertEqual(done.returncode, 0)
        print(f"{CLI} starts and ends in {1000 * min(seconds):.1f} ms, the median is {1000 * statistics.median(seconds):.1f} ms", flush=True)


@unittest.skipUnless(RELEASES, "release-binary: no release of jobledger to measure; make packages or make build-cli")
class Release(unittest.TestCase):
    def test_it_is_small(self):
        """It is copied to many login nodes. packaging/binary.sh refuses a larger one."""
        documented = float(re.search(r"^The program has ([\d.]+) MiB", (ROOT / "docs/performance.md").read_text(), re.MULTILINE)[1])
        for binary in RELEASES:
            with self.subTest(binary):
                size = binary.stat().st_size / (1 << 20)
                self.assertLessEqual(size, 16)
                # It varies a little between compilers.
                self.assertAlmostEqual(size, documented, delta=documented / 50)


class ManualPages(unittest.TestCase):
    def test_they_render_without_warnings(self):
        pages = sorted((PACKAGING / "man").iterdir())
        self.assertGreater(len(pages), 6)
        for page in pages:
            with self.subTest(page.name):
                done = subprocess.run(["man", "--warnings", "--local-file", page], env=os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
                                      capture_output=True, text=True, check=True)
                self.assertEqual(done.stderr, "")
                for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
                    self.assertIn(f"\n{section}\n", done.stdout)

    def test_the_programs_page_says_how_it_ends_and_what_it_reads(self):
        page = (PACKAGING / "man/jobledger.1").read_text()
        for section in ('"EXIT STATUS"', "ENVIRONMENT", "FILES", '"SEE ALSO"'):
            self.assertIn(f"\n.SH {section}\n", page)


if __name__ == "__main__":
    unittest.main()
