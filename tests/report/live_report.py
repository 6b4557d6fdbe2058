"""Reports of `jobledger` beside what the exporter's own page says of the same jobs: a real Prometheus over two simulated nodes.

Not one of `make unit`: `make report-live`. The demo is $JOBLEDGER_DEMO, the program $JOBLEDGER_CLI, or both are built. JOBLEDGER_PROMETHEUS=3
takes Debian's newest Prometheus.
"""

import collections
import json
import math
import re
import socket
import subprocess
import time
import unicodedata
import unittest
import urllib.request

from tools import curves_of, demo_nodes, program, Ran, scratch, wait_for

# Jobs of this age were scraped a few times.
LEAST_SECONDS = 30
# By then all that a job is charged with is known: the meter of the whole node is read now and then.
SETTLED_SECONDS = 90
LEAST_JOBS = 20
SAMPLE = re.compile(r'^(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

# Totals of a report, and the counter or last value that each is.
TOTALS = {
    "cpu_seconds": ("jobledger_job_cpu_seconds_total", {}),
    "cpu_system_seconds": ("jobledger_job_cpu_seconds_total", {"mode": "system"}),
    "cpu_allocated_seconds": ("jobledger_job_allocated_cpu_seconds_total", {}),
    "memory_peak_bytes": ("jobledger_job_memory_peak_bytes", {}),
    "io_read_bytes": ("jobledger_job_io_read_bytes_total", {}),
    "io_writes": ("jobledger_job_io_operations_total", {"direction": "write"}),
    "waited_io_seconds": ("jobledger_job_pressure_seconds_total", {"resource": "io", "kind": "some"}),
    "energy_joules": ("jobledger_job_energy_joules_total", {}),
    "energy_dram_joules": ("jobledger_job_energy_joules_total", {"domain": "dram"}),
    "flops": ("jobledger_job_flops_total", {}),
    "oom_kills": ("jobledger_job_oom_kills_total", {}),
}
GPU_TOTALS = {
    "gpu_busy_seconds": ("jobledger_job_gpu_busy_seconds_total", {}),
    "gpu_idle_seconds": ("jobledger_job_gpu_idle_seconds_total", {}),
    "gpu_allocated_seconds": ("jobledger_job_gpu_allocated_seconds_total", {}),
    "gpu_energy_joules": ("jobledger_job_gpu_energy_joules_total", {}),
    "gpu_memory_peak_bytes": ("jobledger_job_gpu_memory_peak_bytes", {}),
}


def page(address):
    """The samples of an exporter by job: {jobid: [(name, labels, value)]}."""
    found = collections.defaultdict(list)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            sample = SAMPLE.match(line)
            if sample:
                labels = dict(LABEL.findall(sample["labels"]))
                if "jobid" in labels:
                    found[labels["jobid"]].append((sample["name"], labels, float(sample["value"])))
    return found


def total(samples, name, labels):
    """The sum of the series with these labels, or None."""
    values = [value for each, own, value in samples if each == name and labels.items() <= own.items()]
    return sum(values) if values else None


def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def rounded(part):
    """The values of a node or a GPU. A sum has the last digit of the order in which its series come."""
    return {key: float(f"{value:.9g}") for key, value in part["values"].items()}


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prometheus, nodes = cls.enterClassContext(demo_nodes("--demo.speed=4", "--jobs.retention=20m", "--jobs.retention-max=30m"))
        cls.program, cls.url, cls.nodes = program(), f"http://{cls.prometheus.address}", nodes
        wait_for("jobs that ended", lambda: len(cls.ended(nodes)) >= LEAST_JOBS, quiet=300)
        # They are in Prometheus with the next scrapes.
        cls.pages = cls.ended(nodes)
        cls.prometheus.wait_scraped()
        cls.prometheus.wait_scraped()

    @classmethod
    def ended(cls, nodes):
        """The samples of jobs that ended and were not too short, by job."""
        found = {}
        for node in nodes:
            for jobid, samples in page(node).items():
                start, end = (total(samples, f"jobledger_job_{name}_time_seconds", {}) for name in ("start", "end"))
                if end and end - start > LEAST_SECONDS and time.time() - end > SETTLED_SECONDS:
                    found[jobid] = samples
        return found

    def run_it(self, *arguments, **environment):
        return Ran(self.program, self.url, "--no-sacct", *arguments, **environment)

    def name(self, jobid):
        """As SLURM shows it: the number of an array's last element is that of the array, too."""
        infos = [labels for name, labels, _ in self.pages.get(jobid, []) if name == "jobledger_job_info" and labels["array_task_id"]]
        return "{array_job_id}_{array_task_id}".format(**infos[-1]) if infos else jobid

    def report(self, jobid, *arguments, statuses=(0,)):
        ran = self.run_it("report", self.name(jobid), "--format=json", *arguments)
        self.assertIn(ran.status, statuses, ran.err)
        return ran.json()

    def same(self, reported, exported, what):
        if exported is None:
            self.assertIsNone(reported, what)
        else:
            self.assertIsNotNone(reported, what)
            self.assertAlmostEqual(reported, exported, delta=1e-9 * abs(exported) + 1e-9, msg=what)

    def test_slurms_mail_has_the_report(self):
        jobid = max(self.pages, key=lambda jobid: len(self.pages[jobid]))
        subject = f"Slurm Job_id={self.name(jobid)} Name=x Ended, Run time 00:01:00, COMPLETED, ExitCode 0"
        ran = self.run_it("mail", "--dry-run", "-s", subject, "alice")
        self.assertEqual((ran.status, ran.err), (0, ""))
        self.assertEqual(ran.out, f"To: alice@localhost\nSubject: {subject}\n\n{subject}\n\n{self.run_it('report', self.name(jobid)).out}\n")

    def test_a_report_waits_for_the_end_of_its_job(self):
        # Not elements of arrays: the last one has the array's number.
        running = self.prometheus.query('jobledger_job_cpus unless on (jobid) (jobledger_job_end_time_seconds or jobledger_job_info{array_job_id!=""})')
        names = {labels["jobid"] for labels, _ in running}
        command = [self.program, f"--url={self.url}", "--no-sacct", "report", "--format=json", "--wait=3000"]
        waiting = {name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for name in names}
        try:
            # As long as none of them ends nothing is written.
            name = wait_for("a job to end", lambda: next((name for name, process in waiting.items() if process.poll() is not None), None), quiet=900)
            out, err = waiting[name].communicate()
            self.assertEqual((waiting[name].returncode, err), (0, ""))
            for node in json.loads(out)["job"]["nodes"]:
                self.assertEqual((node["running"], node["end"] is None), (False, False))
        finally:
            for process in waiting.values():
                process.kill()
                process.communicate()

    def test_totals_are_the_exporters(self):
        for jobid, samples in self.pages.items():
            (node,) = self.report(jobid)["job"]["nodes"]
            self.same(node["end"], total(samples, "jobledger_job_end_time_seconds", {}), f"{jobid}: end")
            for key, (name, labels) in TOTALS.items():
                self.same(node["values"].get(key), total(samples, name, labels), f"{jobid}: {key}")
            boards = {gpu["uuid"] for gpu in node["boards"]}
            self.same(sum(gpu["values"].get("gpu_energy_joules", 0) for gpu in node["gpus"] + node["boards"]) or None,
                      total(samples, "jobledger_job_gpu_energy_joules_total", {}), f"{jobid}: energy of GPUs and boards")
            uuids = {labels["uuid"] for name, labels, _ in samples if name == "jobledger_job_gpu_info"}
            self.assertEqual({gpu["uuid"] for gpu in node["gpus"]}, uuids - boards, jobid)
            for gpu in node["gpus"]:
                for key, (name, labels) in GPU_TOTALS.items():
                    self.same(gpu["values"].get(key), total(samples, name, labels | {"uuid": gpu["uuid"]}), f"{jobid}: {key}")

    def test_a_recording_has_the_same_totals_and_numbers(self):
        with scratch("jobledger-recordings") as directory:
            for jobid in list(self.pages)[:8]:
                online = self.report(jobid)
                (node,) = online["job"]["nodes"]
                url = next(f"http://{address}/metrics" for address in self.nodes if address.rpartition(":")[0] == node["name"] and jobid in page(address))
                ran = Ran(self.program, None, "record", f"--exporter={url}", f"--job={jobid}", f"--output={directory}/%j.om", SLURMD_NODENAME=node["name"])
                self.assertEqual((ran.status, ran.out, ran.err), (0, "", ""))
                offline = Ran(self.program, None, "report", "--format=json", "--recording", f"{directory}/{jobid}.om").json()
                self.assertEqual(offline["job"]["identity"], online["job"]["identity"])
                (recorded,) = offline["job"]["nodes"]
                for key in ("start", "end", "boards"):
                    self.assertEqual(recorded[key], node[key], f"{jobid}: {key}")
                # A server knows nothing of a node before its first scrape.
                self.assertIn(node["hardware"], (recorded["hardware"], dict.fromkeys(recorded["hardware"])), jobid)
                self.assertTrue(all(recorded["hardware"].values()), recorded["hardware"])
                # A recording is reported with all that it has, of which a server is asked for exports alone.
                exported = self.run_it("export", self.name(jobid), f"--output={directory}/{jobid}.json")
                self.assertEqual(exported.status, 0, exported.err)
                (everything,) = json.loads((directory / f"{jobid}.json").read_text())["job"]["nodes"]
                self.assertLessEqual(rounded(node).items(), rounded(everything).items(), jobid)
                # What a job has and no total is not shown of an ended one: a server has it from before.
                for part, whole in zip([recorded, *recorded["gpus"]], [everything, *everything["gpus"]], strict=True):
                    self.assertLessEqual(rounded(part).items(), rounded(whole).items(), jobid)
                    self.assertLessEqual(whole["values"].keys() - part["values"].keys(), {"cpus", "cores", "memory_limit_bytes", "gpu_memory_limit_bytes"}, jobid)
                self.assertIn("cpu_seconds", recorded["values"])
                for key in ("elapsed_seconds", "cpu_efficiency", "gpu_use", "energy_joules", "memory_peak_bytes"):
                    self.same(offline["numbers"].get(key), online["numbers"].get(key), f"{jobid}: {key}")

    def test_numbers_follow_from_the_exporters(self):
        for jobid, samples in self.pages.items():
            numbers = self.report(jobid)["numbers"]
            get = lambda name, **labels: total(samples, f"jobledger_job_{name}", labels)  # noqa: E731
            self.same(numbers["elapsed_seconds"], get("end_time_seconds") - get("start_time_seconds"), jobid)
            held, used = get("allocated_cpu_seconds_total"), get("cpu_seconds_total")
            self.same(numbers["cpu_efficiency"], used / held if held and used is not None else None, f"{jobid}: cpu_efficiency")
            idle, busy = get("gpu_idle_seconds_total"), get("gpu_busy_seconds_total")
            shared = any(name == "jobledger_job_gpu_info" and labels["shared"] == "true" for name, labels, _ in samples)
            if idle is not None and not shared:
                self.same(numbers["gpu_use"], (busy or 0) / ((busy or 0) + idle), f"{jobid}: gpu_use")

    def test_the_integral_of_a_curve_is_its_total(self):
        whole = 0
        for jobid in self.pages:
            document = self.report(jobid)
            (node,), times = document["job"]["nodes"], document["curves"]
            lengths = [end - begin for begin, end in zip([times["start"], *times["ends"]], times["ends"])]
            for (metric, _, gpu), curve in curves_of(document).items():
                values = node["values"] if gpu is None else node["gpus"][gpu]["values"]
                if gpu is None and node["boards"]:
                    values = values | node["boards"][0]["values"]
                if metric in values:
                    integral = sum(value * length for value, length in zip(curve, lengths) if value is not None)
                    # Of a job that was there before the server there is a gap at the beginning, and what it used then is in no bin.
                    delta = 1e-6 * max(1, values[metric])
                    if None in curve:
                        self.assertLessEqual(integral, values[metric] + delta, f"{jobid}: {metric}")
                    else:
                        self.assertAlmostEqual(integral, values[metric], delta=delta, msg=f"{jobid}: {metric}")
                        whole += 1
        self.assertGreater(whole, 0, "no curve without a gap")

    def test_a_page_fits_on_a_terminal(self):
        for jobid in self.pages:
            ran = self.run_it("report", self.name(jobid))
            self.assertEqual((ran.status, ran.err), (0, ""))
            lines = ran.out.splitlines()
            self.assertLessEqual(len(lines), 50, ran.out)
            self.assertLessEqual(max(map(columns, lines)), 80, ran.out)
        self.assertTrue(self.run_it("report", self.name(jobid), "--ascii").out.isascii())
        self.assertIn("\x1b[", self.run_it("report", self.name(jobid), "--color=always").out)

    def test_few_queries_are_enough(self):
        ran = self.run_it("report", self.name(next(iter(self.pages))), "-v")
        self.assertLessEqual(len(ran.err.splitlines()), 8, ran.err)

    def test_a_page_is_a_whole_file_after_as_few_queries(self):
        name = self.name(next(iter(self.pages)))
        with scratch("jobledger-pages") as directory:
            for ending, first in (("html", b"<!DOCTYPE html>"), ("pdf", b"%PDF-")):
                ran = self.run_it("report", name, "-v", f"--output={directory}/report.{ending}")
                self.assertEqual((ran.status, ran.out), (0, ""), ran.err)
                self.assertLessEqual(len(ran.err.splitlines()), 9, ran.err)
                self.assertTrue((directory / f"report.{ending}").read_bytes().startswith(first))
            self.assertEqual(sorted(path.name for path in directory.iterdir()), ["report.html", "report.pdf"])
            ran = self.run_it("report", name, name, f"--output={directory}/two.html")
            self.assertEqual((ran.status, (directory / "two.html").exists()), (2, False), ran.err)

    def test_runs_of_a_requeued_job(self):
        count = 'max by (jobid) (changes(jobledger_job_start_time_seconds[1h])) > 0'
        wait_for("a job that was requeued", lambda: self.prometheus.query(count), quiet=300)
        labels, changes = self.prometheus.query(count)[0]
        # These tests read pages, too: the end of the first run may have been on one of theirs, and on none of the server's.
        first, last = (self.report(labels["jobid"], *which, statuses=(0, 4))["job"] for which in (["--run=1"], []))
        self.assertEqual((first["run"], last["runs"] >= changes + 1), (1, True))
        self.assertGreater(last["nodes"][0]["start"], first["nodes"][0]["seen_until"])
        ran = self.run_it("report", labels["jobid"], "--run=99")
        self.assertEqual(ran.status, 3)
        self.assertRegex(ran.err, r"^jobledger: job \d+ was seen in these runs: --run with one of 1, [\d, ]+\n$")

    def test_a_list_has_the_jobs_of_a_user(self):
        whose = {jobid: labels["user"] for jobid, samples in self.pages.items() for name, labels, _ in samples if name == "jobledger_job_info"}
        user = collections.Counter(whose.values()).most_common(1)[0][0]
        rows = self.run_it("list", f"--user={user}", "--format=json", "--state=ended").json()
        self.assertLessEqual({jobid for jobid, owner in whose.items() if owner == user}, {str(row["job"]) for row in rows})
        self.assertEqual({row["identity"]["user"] for row in rows}, {user})
        by_id = {str(row["job"]): row for row in rows}
        for jobid in by_id.keys() & self.pages.keys():
            self.assertEqual(by_id[jobid]["numbers"]["cpu_efficiency"], self.report(jobid)["numbers"]["cpu_efficiency"], jobid)
        columns_ = self.run_it("list", *sorted(by_id)[:2], "--columns=job,cpu", "--format=parsable").out.splitlines()
        self.assertEqual((columns_[0], len(columns_)), ("job|cpu", 3))
        for line in columns_[1:]:
            jobid, cpu = line.split("|")
            self.assertEqual(float(cpu) if cpu else None, by_id[jobid]["numbers"]["cpu_use"])

    def test_waste_adds_up(self):
        def rows(by):
            ran = self.run_it("waste", f"--by={by}", "--top=100000", "--format=json", "--until=now")
            self.assertEqual(ran.status, 0, ran.err)
            return ran.json()

        wait_for("rows of ended jobs", lambda: self.run_it("waste", "--format=json").status == 0, quiet=120)
        until = round(time.time(), 3)
        expected = self.prometheus.get("query", query="sum(last_over_time(ended:jobledger_job_idle_core_seconds:sum[7d]))", time=until)["result"]
        users = self.run_it("waste", "--by=user", "--format=json", f"--until={self.moment(until)}").json()
        self.assertAlmostEqual(sum(row["idle_core_hours"] for row in users), float(expected[0]["value"][1]) / 3600, places=6)
        jobs = rows("job")
        self.assertEqual(jobs, sorted(jobs, key=lambda row: -row["idle_core_hours"]))

    @staticmethod
    def moment(seconds):
        import datetime
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat().replace("+00:00", "Z")

    def test_check_says_what_works(self):
        ran = self.run_it("check")
        self.assertEqual(ran.status, 0, ran.err)
        self.assertIn("yes 2 nodes with the exporter\n", ran.out)
        self.assertIn("yes rows of ended jobs, for waste\n", ran.out)
        self.assertIn("yes all targets are up\n", ran.out)

    def fails(self, status, pattern, *arguments, url=None, **environment):
        """One line that says what to do."""
        ran = Ran(self.program, url or self.url, "--no-sacct", *arguments, **environment)
        self.assertEqual(ran.status, status, ran.err)
        self.assertRegex(ran.err, f"^jobledger: {pattern}")
        self.assertEqual(ran.err.count("\n"), 1, ran.err)
        self.assertEqual(ran.out, "")

    def test_failures_say_what_to_do(self):
        self.fails(3, "job 1: no node showed it in the 30 days looked at.*--since looks further back", "report", "1")
        self.fails(2, "which job", "report")
        self.fails(3, "job 1: no node", "report", SLURM_JOB_ID="1")
        self.fails(2, "--since=yesterday: no time such as", "report", "1", "--since=yesterday")
        self.fails(2, "--since has to be before", "report", "1", "--since=1h", "--until=2h")
        self.fails(2, "--tz=Mars: there is no such time zone", "report", "1", "--tz=Mars")
        self.fails(2, "whose jobs", "list")
        self.fails(3, "no job of nobody was seen", "list", "--user=nobody")
        self.fails(2, "--columns=x: the columns are job, ", "list", "--user=all", "--columns=x")
        self.fails(2, "/nonexistent/x.toml: there is no such file", "report", "1", "--config=/nonexistent/x.toml")
        self.fails(2, "/nonexistent/http.yml: ", "report", "1", "--http.config.file=/nonexistent/http.yml")
        self.fails(2, "the URL of Prometheus: ", "report", "1", url="ftp://localhost")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            self.fails(1, r"127.0.0.1:\d+ cannot be reached: ", "report", "1", url=f"http://127.0.0.1:{closed.getsockname()[1]}")
        self.fails(1, "/nonexistent/x: there is no directory /nonexistent", "report", self.name(next(iter(self.pages))), "-o", "/nonexistent/x")

    def test_some_of_several_jobs(self):
        jobid = self.name(next(iter(self.pages)))
        ran = self.run_it("report", jobid, "1")
        self.assertEqual(ran.status, 6)
        self.assertIn(f"Job {jobid} ", ran.out)
        self.assertRegex(ran.err, "jobledger: job 1: no node showed it.*\njobledger: 1 of 2 jobs have no report\n$")


class WithoutRules(unittest.TestCase):
    def test_reports_need_none(self):
        with demo_nodes("--demo.speed=4", rules=False) as (prometheus, nodes):
            wait_for("jobs that ended", lambda: Reports.ended(nodes), quiet=300)
            jobid = next(iter(Reports.ended(nodes)))
            prometheus.wait_scraped()
            url, path = f"http://{prometheus.address}", program()
            ran = Ran(path, url, "--no-sacct", "report", jobid, "--format=json")
            self.assertEqual(ran.status, 0, ran.err)
            self.assertTrue(math.isfinite(ran.json()["numbers"]["elapsed_seconds"]))
            self.assertIsNone(ran.json()["numbers"]["carbon_grams"])
            ran = Ran(path, url, "--no-sacct", "waste")
            self.assertEqual((ran.status, ran.err), (1, "jobledger: the server records no rows of ended jobs: it needs rules/recording/ended.yaml and what that needs\n"))
            self.assertIn("no  rows of ended jobs, for waste (load rules/recording)\n", Ran(path, url, "check").out)


if __name__ == "__main__":
    unittest.main()
