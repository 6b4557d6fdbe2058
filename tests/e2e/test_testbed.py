"""Tests of the harness itself: python3 -m unittest discover -s tests/e2e."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from unittest import mock

import run
from scenarios.devices import Attributed
from testbed import bmc, cache, devices, gpus, packages
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

    def test_two_samples_instead_of_one_are_an_error(self):
        with self.assertRaises(ValueError):
            Metrics('a{x="1"} 1\na{x="2"} 2\n').value("a")


class Packages(unittest.TestCase):
    def test_a_bed_names_missing_packages_and_installs_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            listed = pathlib.Path(directory) / "packages.txt"
            listed.write_text("# comment\nbed  dpkg no-such-package\n")
            with mock.patch.object(packages, "LIST", listed), self.assertRaises(Failure) as raised:
                packages.check("bed")
        self.assertEqual(str(raised.exception), "missing packages: no-such-package; as root: tests/tools/install-packages.sh bed")

    def test_the_beds_packages_are_listed(self):
        sources = [path.read_text() for part in ("tests/e2e", "tests/scale", "demo") for path in (cache.REPOSITORY / part).rglob("*.py")]
        uses = {use for text in sources for use in re.findall(r'packages\.check\("(\w+)"\)', text)} - {"bed"}
        self.assertGreater(len(uses), 4)
        for use in uses:
            self.assertTrue(packages.of(use))


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

    def test_a_byte_that_is_not_attributed_is_an_error(self):
        lines = ('jobledger_node_x_y_total{d="a"} 7', 'jobledger_node_x_unattributed_y_total{d="a"} 2',
                 'jobledger_job_x_y_total{jobid="1",d="a"} 5', 'jobledger_job_x_y_total{jobid="1",d="b"} 100')
        counter = Attributed("x", "y_total", {"d": "a"})
        self.assertEqual(counter.read(Metrics("\n".join(lines))), (2, {1: 5}))
        with self.assertRaises(Failure):
            counter.read(Metrics("\n".join(lines).replace("} 7", "} 8")))

    def test_the_gpus_that_slurm_gave(self):
        for listed, minors in (("gpu:2(IDX:0-1)", {0, 1}), ("gpu:tesla:3(IDX:0,2-3)", {0, 2, 3}), ("gpu(IDX:1)", {1}),
                               ("", set())):
            bed = mock.Mock(run=lambda script, listed=listed: f"JobId=1 CPU_IDs=0 Mem=100 GRES={listed}\n")
            self.assertEqual(gpus.asked_for(bed, 1), minors)

    def test_the_results_of_opening_gpus(self):
        def bed(*words):
            lines = [f"/tmp/script: line 3: /dev/nvidia{minor}: {word}" for minor, word in enumerate(words)]
            return mock.Mock(run=lambda script: "\n".join(lines))
        denied, allowed = "Operation not permitted", "No such device or address"
        self.assertEqual(gpus.opened(bed(denied, allowed, denied, allowed), "x"), {1, 3})
        with self.assertRaises(ValueError):
            gpus.opened(bed(denied, allowed, denied, "No such file or directory"), "x")

    def test_a_driver_counts_gpus_in_another_order_than_nodes(self):
        bed = mock.Mock()
        fake = gpus.Gpus(bed, False, "/x")
        self.assertEqual([gpu.index for gpu in fake.of_minors({0, 2})], [1, 3])
        fake.all[1].processes = ((7, 4096, 0.5),)
        fake.hanging = ["nvmlInit_v2"]
        fake.apply()
        path, content = bed.agent.put.call_args.args
        self.assertEqual(path, "/x/fake-nvml.conf")
        for line in ("gpus 4", "hang nvmlInit_v2", "gpu 1 minor 2", "gpu 1 process 7 4096 50 compute"):
            self.assertIn(line, content.decode().splitlines())

    def test_ranges_of_cpus(self):
        bed = mock.Mock(run=lambda script: "JobId=1 Nodes=node1 CPU_IDs=0-1,3 Mem=100 GRES=\n")
        self.assertEqual(Slurm(bed).cpus(1), {0, 1, 3})


class Controller(unittest.TestCase):
    def test_what_ends_a_message_is_escaped_within_one(self):
        self.assertEqual(bmc.framed(b"\x01\x18\x01"), b"\x01\x18\x01\xe6\xa0")
        self.assertEqual(bmc.framed(b"\xa0\xa1\xaa"), b"\xaa\xb0\xaa\xb1\xaa\xba\x15\xa0")

    def test_messages_are_found_in_a_stream_however_it_is_cut(self):
        messages = [b"\x01\x18\x01", b"\xa0\xa1\xaa\xb0", bytes(range(256))]
        # What qemu sends first: its version and what it can do.
        stream = b"\xff\x01\xa1\x08\x1f\xa1" + b"".join(map(bmc.framed, messages))
        for size in (1, 2, 3, len(stream)):
            frames = bmc.Frames()
            chunks = [stream[at:at + size] for at in range(0, len(stream), size)]
            self.assertEqual([found for chunk in chunks for found in frames.feed(chunk)], messages)

    def test_a_message_with_a_wrong_checksum_is_passed_over(self):
        stream = b"\x01\x18\x01\xe7\xa0" + b"\xa0" + bmc.framed(b"\x02\x18\x01")
        self.assertEqual(list(bmc.Frames().feed(stream)), [b"\x02\x18\x01"])

    def test_it_answers_as_the_specifications_say(self):
        controller = bmc.Bmc()
        controller.manufacturer, controller.watts = bmc.LENOVO, 0x1234
        self.assertEqual(controller.answer(b"\x05\x18\x01"), b"\x05\x1c\x01\0\x20\x01\x01\x00\x02\x00\x66\x4a\x00\x01\x00")
        power = controller.answer(b"\x06\xb0\x02\xdc\x01\x00\x00")
        self.assertEqual((len(power), power[:7], power[-1]), (22, b"\x06\xb4\x02\x00\xdc\x34\x12", 0x40))
        question = b"\x07\xe8\x32\x04\x02\x00\x00\x00"
        self.assertEqual(controller.answer(question), b"\x07\xec\x32\xc1")
        controller.millijoules = 258_003
        self.assertEqual(controller.answer(question)[:12], b"\x07\xec\x32\x00\x07\x00\x02\x01\x00\x00\x03\x00")
        controller.silent = True
        self.assertIsNone(controller.answer(question))
        self.assertEqual(len(controller.times(bmc.XCC_ENERGY)), 3)

    def test_it_switches_the_interrupt_after_its_answer(self):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(bmc.framed(b"\x01\x18\x2e\x01"))
            ours.shutdown(socket.SHUT_WR)
            bmc.Bmc().serve(theirs)
            self.assertEqual(ours.recv(100), bmc.framed(b"\x01\x1c\x2e\x00") + b"\x05\xa1")


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

    def test_a_failed_build_is_repeated(self):
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
            # In a background job SIGINT is ignored, also by its children.
            harness = subprocess.Popen([sys.executable, "-B", "-c", script], cwd=_HERE, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            with harness.stdout:
                directory, pid = harness.stdout.readline().split()
                harness.send_signal(number)
                harness.wait()
            wait_for("the child and the directory to go", lambda: not (
                os.path.exists(directory) or os.path.exists(f"/proc/{pid}")), 30)

    def test_ports_are_given_once_and_can_be_listened_on(self):
        ports = free_ports(8)
        self.assertEqual(len(set(ports)), 8)
        for reuse in [0, 1] * 5000:
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
                other.bind(("127.0.0.1", 0))
                self.assertNotIn(other.getsockname()[1], ports)
        for port in ports:
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", port))
                server.listen(1)

    def test_a_failed_wait_reports_the_last_error(self):
        def never():
            raise Failure("reason")
        with self.assertRaisesRegex(Failure, r"for nothing, nothing ran in .* \(reason\)"):
            wait_for("nothing", never, 0.1, 0.01)

    def test_time_does_not_count_while_a_grandchild_computes(self):
        started = time.monotonic()
        with subprocess.Popen(["sh", "-c", "timeout 60 sh -c 'while :; do :; done'; true"], start_new_session=True) as busy:
            try:
                wait_for("six times the limit", lambda: time.monotonic() - started > 1.8, 0.3, 0.01)
            finally:
                os.killpg(busy.pid, signal.SIGKILL)

    def test_a_changing_error_is_progress(self):
        started = time.monotonic()

        def changes():
            if (passed := time.monotonic() - started) < 1.8:
                raise Failure(f"{passed:.1f}")
            return True
        self.assertTrue(wait_for("six times the limit", changes, 0.3, 0.01))


class Machines(unittest.TestCase):
    """How the harness treats a bed whose machine stops."""

    def _run(self, stops=(), absent=(), late=0):
        """(counts, scenarios run on each machine, output) if the scenario `second` stops the machines `stops`, the machines `absent` do
        not start, and the scenario `third` fails `late` times."""
        ran = []

        class Bed:
            name = "bed"

            def __init__(self):
                self.number, self.stopped = len(ran), False
                ran.append([])
                self.agent, self.slurm = mock.Mock(), mock.Mock()
                self.agent.call = lambda *_, **__: self._call()

            def _call(self):
                if self.stopped:
                    raise TimeoutError
                return 0, "", ""

            def console(self):
                return "soft lockup"

            def __enter__(self):
                if self.number in absent:
                    raise Failure("no slurmd")
                return self

            def __exit__(self, *_):
                return False

        def scenario(title):
            def function(context):
                ran[-1].append(title)
                if title == "second" and context.bed.number in stops:
                    context.bed.stopped = True
                    raise Failure("late")
                if title == "third" and sum(each.count("third") for each in ran) <= late:
                    raise Failure("late")
            function.unable, function.seconds = lambda bed: None, 60
            return function

        scenarios = {title: scenario(title) for title in ("first", "second", "third")}
        options = mock.Mock(scenario=["first"])
        with mock.patch.dict(run.beds.ALL, {"bed": Bed}), mock.patch("builtins.print") as printed, \
                mock.patch.object(run, "_keep_logs"):
            waiting = run.Waiting(scenarios)
            *tally, ran_here = run._run_machine("bed", waiting.take(), waiting, None, options)
            self.assertIsNone(waiting.take())
        self.assertEqual(ran_here, {title for machine in ran for title in machine})
        return tuple(tally), ran, "".join(str(call) for call in printed.call_args_list)

    def test_a_machine_that_stopped_is_replaced_once_and_reported(self):
        tally, ran, output = self._run({0})
        self.assertEqual((tally, ran), ((3, 0), [["first", "second"], ["second", "third"]]))
        self.assertIn("LOST bed, the first machine", output)
        self.assertIn("soft lockup", output)

    def test_a_second_machine_that_stops_is_a_failure(self):
        tally, ran, _ = self._run({0, 1})
        self.assertEqual((tally, ran), ((1, 1), [["first", "second"], ["second"]]))

    def test_a_running_machine_is_kept(self):
        self.assertEqual(self._run()[:2], ((3, 0), [["first", "second", "third"]]))

    def test_a_machine_that_does_not_start_is_replaced_once_and_reported(self):
        tally, ran, output = self._run(absent={0})
        self.assertEqual((tally, ran), ((3, 0), [[], ["first", "second", "third"]]))
        self.assertIn("FAIL bed, the first machine: no slurmd", output)
        self.assertEqual(self._run(absent={0, 1})[:2], ((0, 1), [[], []]))

    def test_a_scenario_that_no_bed_can_run_is_a_failure(self):
        def main(ran):
            with mock.patch.object(run, "_run_beds", return_value=(1, 0, ran)), mock.patch("builtins.print"), \
                    mock.patch("sys.argv", ["run.py", "--exporter", "x", "requeue", "energy"]):
                return run.main()
        self.assertEqual((main({"requeue", "energy"}), main({"requeue"})), (0, 1))

    def test_machines_of_a_bed_share_its_scenarios_and_long_ones_come_first(self):
        def function(seconds, beds=("vm-22.05-v2",)):
            return mock.Mock(seconds=seconds, beds=beds)
        names = list(run.beds.STANDARD)
        chosen = {"short": function(30, names), "long": function(300), "middle": function(100)}
        waiting = run._distributed(chosen, mock.Mock(scenario=[], each=False, bed=names))
        self.assertEqual([waiting[name].seconds() for name in names], [430, 30, 30, 30])
        started = []
        while name := run._next_bed(waiting, started):
            started.append(name)
            self.assertIsNotNone(waiting[name].take())
        # Each bed has one, and what is left of the first bed then is worth another boot; its last 30 s are not.
        self.assertEqual((sorted(started[:4]), started[4:]), (sorted(names), names[:1]))
        self.assertEqual((waiting[names[0]].take()[0], waiting[names[0]].take()), ("short", None))

    def test_a_bed_of_this_machine_is_there_once(self):
        chosen = {str(number): mock.Mock(seconds=100, beds=["host-v1"]) for number in range(9)}
        waiting = run._distributed(chosen, mock.Mock(scenario=[], each=False, bed=list(run.beds.STANDARD)))
        self.assertEqual((run._next_bed(waiting, []), run._next_bed(waiting, ["host-v1"])), ("host-v1", None))

    def test_where_scenarios_or_a_bed_are_named_each_runs_there(self):
        chosen = {"energy": mock.Mock(seconds=90, beds=["vm-22.05-v2"])}
        for options in (mock.Mock(scenario=["energy"], each=False, bed=list(run.beds.STANDARD)),
                        mock.Mock(scenario=[], each=True, bed=list(run.beds.STANDARD)),
                        mock.Mock(scenario=[], each=False, bed=["vm-22.05-v1"])):
            self.assertEqual([each.seconds() for each in run._distributed(chosen, options).values()], [90] * len(options.bed))

    def test_each_scenario_has_beds_and_each_bed_scenarios(self):
        found = {title: function.beds for title, function in run.all_scenarios().items()}
        self.assertEqual({name for names in found.values() for name in names}, set(run.beds.STANDARD))
        self.assertEqual([title for title, names in found.items() if not names], [])

    def test_a_failed_scenario_has_a_second_attempt_and_no_third(self):
        tally, ran, output = self._run(late=1)
        self.assertEqual((tally, ran), ((3, 0), [["first", "second", "third", "third"]]))
        self.assertIn("note bed third: passed at the second attempt", output)
        tally, ran, _ = self._run(late=2)
        self.assertEqual((tally, ran), ((2, 1), [["first", "second", "third", "third"]]))


if __name__ == "__main__":
    unittest.main()
