"""Tests of the harness itself: python3 -m unittest discover -s tests/e2e."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

from scenarios.devices import Booked
from testbed import cache, devices
from testbed.exposition import Metrics
from testbed.processes import Failure, free_ports, wait_for
from testbed.slurm import Slurm

_HERE = pathlib.Path(__file__).parent


class Exposition(unittest.TestCase):
    def test_labels_are_unescaped_and_may_hold_what_ends_a_sample(self):
        metrics = Metrics('# HELP a b\na{x="1}, \\"y\\\\\\n",z=""} 2.5\nb 1e3\n')
        self.assertEqual(metrics.samples, [("a", {"x": '1}, "y\\\n', "z": ""}, 2.5), ("b", {}, 1000.0)])

    def test_a_line_that_is_no_sample_is_an_error(self):
        for text in ("a{x=1} 2", "a{x=\"1\"}", "a{x=\"1\" 2", "{} 1"):
            with self.assertRaises(ValueError, msg=text):
                Metrics(text + "\n")

    def test_two_of_what_should_be_one_is_an_error(self):
        with self.assertRaises(ValueError):
            Metrics('a{x="1"} 1\na{x="2"} 2\n').value("a")


class Devices(unittest.TestCase):
    def test_seconds_between_readings_are_bracketed(self):
        least, most = devices.Timed(None, 10.0, 11.0).until(devices.Timed(None, 20.0, 21.5))
        self.assertAlmostEqual(least, 8.99)
        self.assertAlmostEqual(most, 11.51)

    def test_joules_are_those_of_the_socket(self):
        rapl = devices.Rapl({("dram", 0): 20, ("dram", 1): 15})
        first, second = devices.Timed(None, 0, 0), devices.Timed(None, 10, 10)
        least, most = rapl.joules("dram", 1, first, second)
        self.assertTrue(least < 150 < most and most - least < 1)

    def test_a_byte_that_nobody_has_is_an_error(self):
        lines = ('jobledger_node_x_y_total{d="a"} 7', 'jobledger_node_x_unattributed_y_total{d="a"} 2',
                 'jobledger_job_x_y_total{jobid="1",d="a"} 5', 'jobledger_job_x_y_total{jobid="1",d="b"} 100')
        booked = Booked("x", "y_total", {"d": "a"})
        self.assertEqual(booked.read(Metrics("\n".join(lines))), (2, {1: 5}))
        with self.assertRaises(Failure):
            booked.read(Metrics("\n".join(lines).replace("} 7", "} 8")))

    def test_ranges_of_cpus(self):
        bed = mock.Mock(run=lambda script: "JobId=1 Nodes=node1 CPU_IDs=0-1,3 Mem=100 GRES=\n")
        self.assertEqual(Slurm(bed).cpus(1), {0, 1, 3})


class Cache(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        environment = mock.patch.dict(os.environ, {"JOBLEDGER_CACHE": self.directory.name})
        environment.start()
        self.addCleanup(environment.stop)

    def test_built_once_and_again_when_its_inputs_change(self):
        source = pathlib.Path(self.directory.name) / "source"
        builds = []
        for content in ("one", "one", "two"):
            source.write_text(content)
            built = cache.built("thing", cache.key(source), lambda into: builds.append(into))
        self.assertEqual(len(builds), 2)
        self.assertEqual([path for path in built.parent.glob("thing-*")], [built])

    def test_a_build_that_fails_is_not_taken_for_done(self):
        def fail(into):
            (into / "half").touch()
            raise Failure("no")
        with self.assertRaises(Failure):
            cache.built("thing", "0" * 16, fail)
        built = cache.built("thing", "0" * 16, lambda into: None)
        self.assertEqual(list(built.iterdir()), [])


class Processes(unittest.TestCase):
    def test_nothing_is_left_when_the_harness_is_killed(self):
        script = textwrap.dedent("""
            import sys
            from testbed.processes import running, scratch
            with scratch("jobledger-selftest") as directory, \\
                    running(["sleep", "600"], directory / "log") as process:
                print(directory, process.pid, flush=True)
                process.wait()
        """)
        for number in (signal.SIGKILL, signal.SIGINT):
            harness = subprocess.Popen([sys.executable, "-B", "-c", script], cwd=_HERE, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
            with harness.stdout:
                directory, pid = harness.stdout.readline().split()
                harness.send_signal(number)
                harness.wait()
            wait_for("the child and the directory to go", lambda: not (
                os.path.exists(directory) or os.path.exists(f"/proc/{pid}")), 30)

    def test_ports_are_distinct(self):
        self.assertEqual(len(set(free_ports(8))), 8)

    def test_waiting_tells_what_was_wrong_last(self):
        def never():
            raise Failure("reason")
        started = time.monotonic()
        with self.assertRaisesRegex(Failure, "for nothing \\(reason\\)"):
            wait_for("nothing", never, 0.1, 0.01)
        self.assertLess(time.monotonic() - started, 30)


if __name__ == "__main__":
    unittest.main()
