"""The comparison with other exporters, as far as it needs neither them nor control groups. Run: python3 -m unittest discover -s tests/peers"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import cost  # noqa: E402
import exporters  # noqa: E402
import measure  # noqa: E402
import pages  # noqa: E402
import tables  # noqa: E402
from crowd import hierarchies  # noqa: E402
from keeper import keeper  # noqa: E402
from testbed.processes import wait_for  # noqa: E402

OURS, _, _ = exporters.OURS
CEEMS, PLAZONIC, TREYDOCK = exporters.PEERS


def page(*lines):
    return "# HELP cgroup_cpus Number of CPUs\n# TYPE cgroup_cpus gauge\n" + "".join(f"{line}\n" for line in lines)


def of_treydock(*ids):
    families = ("cgroup_cpu_total_seconds", "cgroup_memory_used_bytes", "cgroup_cpus")
    return [f'{family}{{cgroup="/slurm/uid_1001/job_{number}"}} 1.5e+06' for number in ids for family in families]


class Pages(unittest.TestCase):
    def test_comments_are_no_samples(self):
        self.assertEqual(pages.samples(page("up 1", 'a{b="c d"} 2 1700000000000')), [("up", "up", "1"), ("a", 'a{b="c d"}', "2")])

    def test_jobs_are_counted_by_family(self):
        found = pages.by_family(page(*of_treydock(7, 8), 'cgroup_cpus{cgroup="/slurm/uid_1001"} 4'), TREYDOCK.job)
        self.assertEqual(found["cgroup_cpus"], {"7", "8"})

    def test_series_of_a_job_are_those_that_name_one(self):
        text = page(*of_treydock(7, 8), 'cgroup_info{cgroup="/slurm/uid_1001/job_8",jobid="8"} 1', "go_goroutines 9")
        self.assertEqual(pages.series_per_job(text, TREYDOCK.job), 3.5)
        self.assertEqual(pages.series_per_job(page("up 1"), TREYDOCK.job), 0)

    def test_a_page_with_every_job_is_measured(self):
        self.assertIsNone(pages.problem(page(*of_treydock(7, 8)), TREYDOCK, 2))

    def test_a_page_without_all_jobs_says_how_many(self):
        self.assertEqual(pages.problem(page(*of_treydock(7, 8)), TREYDOCK, 3), "shows 2 of 3 jobs")
        self.assertEqual(pages.problem("", TREYDOCK, 1), "shows 0 of 1 jobs")

    def test_a_family_that_a_job_lacks_is_named(self):
        lines = [line for line in of_treydock(7, 8) if not ("memory" in line and "job_8" in line)]
        self.assertEqual(pages.problem(page(*lines), TREYDOCK, 2), "has cgroup_memory_used_bytes of 1 of 2 jobs")

    def test_an_exporter_that_says_that_it_failed_is_not_measured(self):
        bad = 'cgroup_exporter_collect_error{cgroup="/slurm/uid_1001/job_8"} 1'
        self.assertEqual(pages.problem(page(*of_treydock(8), bad), TREYDOCK, 1), f"says that it failed: {bad}")
        self.assertIsNone(pages.problem(page(*of_treydock(8), bad.removesuffix("1") + "0"), TREYDOCK, 1))

    def test_ceems_names_jobs_by_uuid(self):
        labels = 'cgrouphostname="",hostname="n",manager="slurm",uuid="7"'
        lines = [f"ceems_compute_unit_{family}{{{labels}}} 1" for family in ("cpu_user_seconds_total", "memory_used_bytes", "cpus")]
        self.assertIsNone(pages.problem(page(*lines), CEEMS, 1))
        failed = 'ceems_scrape_collector_success{collector="slurm"} 0'
        self.assertIn(failed, pages.problem(page(*lines, failed), CEEMS, 1))

    def test_plazonic_names_jobs_by_jobid(self):
        lines = [f'{family}{{jobid="7",step="",task=""}} 1' for family in PLAZONIC.content]
        self.assertIsNone(pages.problem(page(*lines), PLAZONIC, 1))

    def test_ours_may_lack_pressure_and_not_memory(self):
        lines = [f'{family}{{jobid="7"}} 1' for family in OURS.content]
        health = 'jobledger_exporter_collector_success{{collector="{}"}} 0'
        self.assertIsNone(pages.problem(page(*lines, health.format("pressure")), OURS, 1))
        self.assertIn("says that it failed", pages.problem(page(*lines, health.format("memory")), OURS, 1))


class Installing(unittest.TestCase):
    def test_the_last_word_of_a_tool_is_given_without_addresses(self):
        said = "go: a@v1.0.0: reading https://proxy.example/a/@v/v1.0.0.info: 403 Forbidden\n\tserver response: This module version is not available.\n"
        self.assertEqual(exporters.reason(said), "This module version is not available.")
        self.assertEqual(exporters.reason("a: reading https://proxy.example/a.info: 404 Not Found\n\n"), "a: reading the registry 404 Not Found")
        self.assertEqual(exporters.reason("\n"), "it failed without a word")

    def test_what_cannot_be_installed_is_missing_with_the_reason(self):
        outcomes = {CEEMS.name: (None, "no such module"), TREYDOCK.name: (pathlib.Path("/go/treydock"), None)}
        with mock.patch.object(exporters, "install", lambda exporter: outcomes[exporter.name]):
            found, missing = exporters.programs([OURS, CEEMS, PLAZONIC, TREYDOCK], pathlib.Path("/ours"), {PLAZONIC.name: pathlib.Path("/given")})
        self.assertEqual(found, {OURS.name: pathlib.Path("/ours"), PLAZONIC.name: pathlib.Path("/given"), TREYDOCK.name: pathlib.Path("/go/treydock")})
        self.assertEqual(missing, {CEEMS.name: f"{CEEMS.module}: no such module"})

    def test_go_tools_takes_every_module(self):
        for peer in exporters.PEERS:
            self.assertRegex(peer.module, r"^[a-z0-9.]+/[a-z0-9_./-]+@v\d+\.\d+\.\d+$")

    def test_peers_see_what_a_node_of_slurm_has(self):
        for exporter in exporters.OURS + exporters.PEERS:
            self.assertTrue(any(flag.endswith("=/sys/fs/cgroup") for flag in exporter.flags), exporter.name)


class Tables(unittest.TestCase):
    SIZES = [
        tables.Size(1, 12, [1e-5, 2e-5, 9e-5], [6e-5, 7e-5, 8e-5], {"a": [2e-3, 1e-3, 3e-3], "b": [0.5e-3, 0.5e-3, 2e-3]},
                    {"a": (10.0, 20, 999, 7.25), "b": (3.5, 4, 50, 20.0)}),
        tables.Size(100, 1200, [2e-3], [8e-3], {"a": [0.1234]}, {"a": (10.0, 1010, 99999, 8.0)}),
    ]

    def test_medians_of_all_stand_side_by_side(self):
        self.assertEqual(tables.costs(self.SIZES, ["a", "b"])[2:], [
            "| 1 | 12 | 0.020 | 0.070 | 2.00 | 0.50 |",
            "| 100 | 1200 | 2.00 | 8.00 | 123 | – |",
        ])

    def test_pages_have_a_row_for_each_that_was_measured(self):
        self.assertEqual(tables.pages(self.SIZES, ["a", "b"])[2:], [
            "| 1 | a | 10.0 | 20 | 999 | 2.00 | 7.2 |",
            "| 1 | b | 3.5 | 4 | 50 | 1.00 | 20.0 |",
            "| 100 | a | 10.0 | 1010 | 99999 | 123 | 8.0 |",
        ])

    def test_rows_are_as_wide_as_their_heads(self):
        for table in (tables.costs(self.SIZES, ["a", "b"]), tables.pages(self.SIZES, ["a", "b"])):
            self.assertEqual(len({line.count("|") for line in table}), 1)

    def test_who_was_not_measured_is_named(self):
        self.assertEqual(tables.reasons({"b": "shows 0 of 100 jobs"}), ["- b: shows 0 of 100 jobs"])


class Hierarchies(unittest.TestCase):
    V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    JOINT = "35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"

    def test_it_is_the_one_that_has_memory(self):
        self.assertEqual(hierarchies(self.V1 + self.V2, "\n"), ["v1"])
        self.assertEqual(hierarchies(self.JOINT + self.V2, "cpuset cpu io memory pids\n"), ["v2"])
        self.assertEqual(hierarchies(self.JOINT, ""), [])


class Options(unittest.TestCase):
    def test_a_median_needs_twenty_scrapes(self):
        self.assertEqual(measure._options(["--rounds", "20"]).rounds, 20)
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
            measure._options(["--rounds", "19"])

    def test_a_program_is_a_peers_and_a_file(self):
        self.assertEqual(measure._options(["--program", f"treydock={__file__}"]).program, {"treydock": pathlib.Path(__file__).resolve()})
        for bad in (f"nobody={__file__}", "treydock=/nonexistent", "treydock"):
            with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
                measure._options(["--program", bad])


BURN = """
import subprocess, sys, time
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
if len(sys.argv) == 1:
    burn(0.15)
    subprocess.run([sys.executable, sys.argv[0], "child"], check=True)
    print(time.process_time(), flush=True)
    sys.stdin.read()
else:
    burn(0.2)
"""


class Costs(unittest.TestCase):
    def test_cpu_time_has_that_of_children_which_ended(self):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory, "burn.py")
            program.write_text(BURN)
            with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                own = float(process.stdout.readline())
                total = cost.cpu_seconds(process.pid)
                process.stdin.close()
        self.assertGreaterEqual(own, 0.15)
        # A tick is 10 ms, user and system are rounded down each.
        self.assertGreaterEqual(total, own + 0.18)

    def test_cpu_time_has_that_of_children_which_run(self):
        child = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\nsys.stdin.read()"
        parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
        with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            process.stdout.readline()
            self.assertEqual(len(cost.children(process.pid)), 1)
            self.assertGreaterEqual(cost.cpu_seconds(process.pid), 0.2)
            process.stdin.close()

    def test_resident_memory_is_in_mebibytes(self):
        self.assertEqual(cost.memory_mib("VmHWM:\t   99999 kB\nVmRSS:\t    2048 kB\n"), 2.0)


class Ends(unittest.TestCase):
    def test_what_a_keeper_was_given_ends_with_it(self):
        process = subprocess.Popen(["sleep", "600"])
        gone = subprocess.Popen(["true"])
        gone.wait()
        with keeper() as keep:
            keep(gone.pid)
            keep(process.pid)
            self.assertIsNone(process.poll())
        self.assertEqual(wait_for("the process is over", process.poll), -9)

    @unittest.skipUnless(os.geteuid() == 0, "root: file systems are mounted")
    def test_a_view_shows_a_crowd_as_a_node_does_and_nobody_else_sees_it(self):
        before = pathlib.Path("/proc/self/mountinfo").read_text()
        with tempfile.TemporaryDirectory() as directory:
            top = pathlib.Path(directory)
            for controller in ("cpuacct", "memory"):
                (top / "real" / controller / "slurm/uid_0").mkdir(parents=True)
                (top / "farm").mkdir(exist_ok=True)
                (top / "farm" / controller).symlink_to(top / "real" / controller)
            (top / "empty").mkdir()
            seen = subprocess.run([HERE / "view.sh", "v1", top / "farm", top / "empty", "sh", "-c", "cd /sys/fs/cgroup && echo * */* */*/* $JOBLEDGER_VIEW"],
                                  check=True, capture_output=True, text=True).stdout.split()
            whole = subprocess.run([HERE / "view.sh", "v2", top / "real", top / "empty", "ls", "/sys/fs/cgroup"],
                                   check=True, capture_output=True, text=True).stdout.split()
        places = ("cpu,cpuacct", "cpuacct", "memory")
        self.assertEqual(seen, [*places, *(f"{place}/slurm" for place in places), *(f"{place}/slurm/uid_0" for place in places)])
        self.assertEqual(whole, ["cpuacct", "memory"])
        self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), before)


if __name__ == "__main__":
    unittest.main()
