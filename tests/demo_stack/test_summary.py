"""What `make demo` prints about jobs, from a Prometheus' answers."""

import sys
import unittest
from pathlib import Path
from unittest import mock

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY / "demo"), str(REPOSITORY / "tests/e2e")]

import play  # noqa: E402
import reports  # noqa: E402
import summary  # noqa: E402
from testbed.processes import Failure  # noqa: E402

ANSWERS = {
    "jobledger_job_info": [({"jobid": "12", "user": "bob", "name": "idle"}, 1), ({"jobid": "7", "user": "alice", "name": "busy"}, 1)],
    "jobledger_job_start_time_seconds": [({"jobid": "7"}, 1000.0), ({"jobid": "12"}, 1010.0)],
    "jobledger_job_end_time_seconds": [({"jobid": "7"}, 1060.0)],
    "jobledger_job_allocated_cpu_seconds_total": [({"jobid": "7"}, 120.0), ({"jobid": "12"}, 40.0)],
    "jobledger_job_cpu_seconds_total": [({"jobid": "7"}, 90.0), ({"jobid": "12"}, 0.25)],
    "jobledger_job_memory_peak_bytes": [({"jobid": "7"}, 3 << 20)],
    "jobledger_job_memory_limit_bytes": [({"jobid": "7"}, 100 << 20)],
    "jobledger_job_io_read_bytes_total": [({"jobid": "12"}, 5 << 30)],
    "jobledger_job_io_written_bytes_total": [],
    "jobledger_job_oom_kills_total": [({"jobid": "7"}, 1.0), ({"jobid": "12"}, 0.0)],
}
SUMS = {"sum(max_over_time(": 90.25, "sum(jobledger_node_slurm_cpu_unatt": 1.5, "sum(jobledger_node_slurm_cpu_sec": 91.75}


def answer(expression):
    """Prometheus' answer, by the one metric in the expression."""
    for beginning, value in SUMS.items():
        if expression.startswith(beginning):
            return [({}, value)]
    (name,) = [name for name in ANSWERS if name + "[600s]" in expression]
    return ANSWERS[name]


class Rows(unittest.TestCase):
    def setUp(self):
        self.seven, self.twelve = summary.rows(answer, "600s")

    def test_each_job_has_its_own_values(self):
        self.assertEqual((self.seven.jobid, self.seven.user, self.seven.name), (7, "alice", "busy"))
        self.assertEqual((self.seven.cpu_seconds, self.seven.peak_bytes, self.seven.limit_bytes), (90.0, 3 << 20, 100 << 20))
        self.assertEqual((self.twelve.jobid, self.twelve.read_bytes, self.twelve.written_bytes), (12, 5 << 30, None))

    def test_the_ratio_is_of_the_allocated_cpu_time(self):
        self.assertEqual(self.seven.elapsed, 60)
        self.assertEqual(self.seven.cpu_ratio, 0.75)
        self.assertIsNone(self.twelve.elapsed, "it runs")
        self.assertIsNone(self.twelve.cpu_ratio)

    def test_the_table_shows_dashes_for_unknown_values(self):
        head, seven, twelve = summary.table([self.seven, self.twelve]).split("\n")
        self.assertEqual(seven.split(), "7 alice busy 1:00 min 2 90.000 s 75% 3 MiB 100 MiB - - killed: out of memory".split())
        self.assertEqual(twelve.split(), "12 bob idle - - 0.250 s - - - 5 GiB -".split())
        self.assertLessEqual(len(head), 100)


class LateNames(unittest.TestCase):
    def test_a_late_name_is_shown(self):
        series = [{"jobid": "7", "user": "alice", "name": name} for name in ("", "busy")]
        for order in (series, series[::-1]):
            (seven,) = summary.rows(lambda expression: [(labels, 1) for labels in order] if "job_info" in expression else [], "600s")  # noqa: B023
            self.assertEqual((seven.user, seven.name), ("alice", "busy"))

    def test_the_demo_waits_for_names_and_reports_missing_ones(self):
        asked = []

        def query(expression):
            asked.append(expression)
            name = "busy" if len(asked) > 25 else ""
            return [({"jobid": "7", "name": name}, 1)] if "job_info" in expression else []
        with mock.patch("builtins.print") as printed, mock.patch("testbed.processes.time.sleep"):
            play.wait_for_names(query)
        self.assertFalse(printed.called)
        with mock.patch("builtins.print") as printed, mock.patch.object(play, "wait_for", side_effect=Failure("no names")):
            play.wait_for_names(query)
        self.assertIn("no names: slurmctld did not answer", str(printed.call_args))


class Reports(unittest.TestCase):
    def test_those_are_shown_that_used_most_and_that_have_advice(self):
        def row(jobid, start, cores, advice=(), array="", task="", state="ended"):
            return {"job": jobid, "state": state, "start": start, "numbers": {"elapsed_seconds": 10.0, "cores_used": cores}, "advice": list(advice),
                    "identity": {"array_job_id": array, "array_task_id": task}}
        rows = [row(1, 80.0, 9.0, ["low_cpu"]), row(2, 100.0, 3.0), row(3, 100.0, None, ["oom_killed"]), row(4, 95.0, 1.0, ["low_cpu"], "9", "2")]
        self.assertEqual(reports.chosen(rows, 99.0), ["2", "9_2"])
        self.assertEqual(reports.chosen(rows[:2], 99.0), ["2"])
        self.assertEqual(reports.chosen(rows, 200.0), [])
        # A report of a job whose end was not seen is not of all of it.
        self.assertEqual(reports.chosen([*rows, row(5, 100.0, 9.0, state="not seen")], 99.0), ["2", "9_2"])


class Balance(unittest.TestCase):
    def test_jobs_and_unattributed_add_up_to_the_total(self):
        ledger = summary.ledger(answer, "600s")
        self.assertTrue(ledger.balances)
        self.assertIn("90.250 s of jobs + 1.500 s unattributed = 91.750 s: it balances", summary.account(ledger))

    def test_a_ledger_that_does_not_balance_is_reported(self):
        ledger = summary.Ledger(jobs=90.0, unattributed=1.5, total=91.75)
        self.assertFalse(ledger.balances)
        self.assertIn("+0.250000 s are missing", summary.account(ledger))

    def test_a_node_without_cpu_accounting_has_no_ledger(self):
        self.assertIsNone(summary.ledger(lambda expression: [], "600s"))


if __name__ == "__main__":
    unittest.main()
