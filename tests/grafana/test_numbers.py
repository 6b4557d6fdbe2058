"""The numbers of panels for sites and jobs unlike the demo and the recorded machines. Needs promtool (Debian: prometheus)."""

import json
import sys
import unittest

import tools
from panel_numbers import Numbers

sys.path.insert(0, str(tools.ROOT / "grafana" / "src"))
import thresholds  # noqa: E402

TOLD = "1x400"
JOB = 'job="j",instance="n1",jobid="7"'
ADVICE = ("job-report", "Advice: what to change")


class Clusters(Numbers):
    """Several clusters in one Prometheus have the same job numbers."""

    def test_a_row_belongs_to_a_cluster_and_its_link_chooses_it(self):
        series = {}
        for cluster, user in (('cluster="a",', "ann"), ('cluster="b",', "ben"), ("", "cay")):
            series |= {f'jobid:jobledger_job_owner:info{{{cluster}job="j",jobid="7",user="{user}",account="x",partition="p"}}': TOLD,
                       f'jobid:jobledger_job_nodes:count{{{cluster}job="j",jobid="7"}}': TOLD}
        row = 'jobid="7",user="{}",account="x",partition="p"'
        self.gives(("jobs", "Running jobs, the most waste first"), "A", {
            f'{{cluster="a",cluster_link="a",{row.format("ann")}}}': 1, f'{{cluster="b",cluster_link="b",{row.format("ben")}}}': 1,
            # Without the label the choice is All, as Grafana writes it in an address.
            f'{{cluster_link="All",{row.format("cay")}}}': 1}, series)

    def test_a_report_reports_that_several_clusters_have_the_job(self):
        start = 'jobledger_job_start_time_seconds{{cluster="{}",job="j",instance="n1",jobid="7"}}'
        both = {start.format("a"): "60x400", start.format("b"): "60x400"}
        advice = '{what="Jobs of several clusters have this number"}'
        self.gives(("job-report", "Job"), "B", {'{cluster="a",jobid="7"}': 4, '{cluster="b",jobid="7"}': 4}, both)
        self.gives(("job-report", "Job"), "B", {'{cluster="a",jobid="7"}': 1}, both, cluster="a")
        self.gives(ADVICE, "A", {advice: 1}, both, counted="what")
        self.gives(ADVICE, "A", {}, both, cluster="a")
        self.gives(("job-report", "Job"), "D", {'{cluster="a",jobid="7"}': 1, '{cluster="b",jobid="7"}': 1}, both)


class Requeued(Numbers):
    """A job of eight CPUs that ran for ten hours, was requeued, and has run for ten minutes since: one CPU works, a quarter of the time it waits."""

    # Ten hours, two minutes as ended, four minutes of nothing, and ten minutes of the next run.
    SERIES = {
        f"jobledger_job_start_time_seconds{{{JOB}}}": "0x602 stale _x3 36420x10",
        f"jobledger_job_end_time_seconds{{{JOB}}}": "_x600 36000x2 stale",
        f"jobledger_job_cpus{{{JOB}}}": "8x602 stale _x3 8x10",
        f"jobledger_job_cpu_seconds_total{{{JOB},mode=\"user\"}}": "0+60x600 36000x1 stale _x3 0+60x10",
        f"jobledger_job_allocated_cpu_seconds_total{{{JOB}}}": "0+480x600 288000x1 stale _x3 0+480x10",
        'jobledger_node_cores{job="j",instance="n1"}': "48x620", 'jobledger_node_cpus{job="j",instance="n1"}': "48x620",
        f"jobledger_job_alone_seconds_total{{{JOB}}}": "0+60x600 36000x1 stale _x3 0+30x10",
        **{f"jobledger_job_pressure_seconds_total{{{JOB},resource=\"{resource}\",kind=\"some\"}}": "0+3x600 1800x1 stale _x3 0+15x10" for resource in ("io", "memory")}}
    RULES = ("recording/jobs.yaml", "recording/cpu.yaml")

    def of_both_runs(self, title, letter, expected, counted=None):
        with self.subTest(title, letter=letter):
            self.gives(("job-report", title), letter, expected, self.SERIES, at="617m", over="12h", every="1m", rules=self.RULES, counted=counted)

    def test_nothing_is_divided_by_the_time_of_another_run(self):
        for letter, expected in (("B", 1), ("C", 600), ("L", 2)):
            self.of_both_runs("Job", letter, {'{jobid="7"}': expected})
        self.of_both_runs("How well it used what it held", "A", 0.125)
        self.of_both_runs("Time alone", "A", 0.5)
        self.of_both_runs("Nodes of the job", "I", {'{instance="n1"}': 0.25})
        self.of_both_runs("Nodes of the job", "J", {'{instance="n1"}': 0.25})

    def test_advice(self):
        for letter, what in (("F", "About one core was used, the others were idle"), ("M", "Tasks waited for storage"), ("L", "Tasks waited for memory")):
            self.of_both_runs(ADVICE[1], letter, {f'{{what="{what}"}}': 1}, counted="what")
        for letter in "GO":
            self.of_both_runs(ADVICE[1], letter, {}, counted="what")


class TimeCovered(Numbers):
    """Of a job of 40 minutes, scraped every 30 seconds."""

    # Running, then exported as ended for two minutes.
    JOB_SERIES = {f"jobledger_job_start_time_seconds{{{JOB}}}": "_x20 600x84 stale", f"jobledger_job_cpus{{{JOB}}}": "_x20 4x79 stale",
                  f"jobledger_job_end_time_seconds{{{JOB}}}": "_x100 3000x4 stale", f"jobledger_job_allocated_cpu_seconds_total{{{JOB}}}": "_x20 0+120x79 9600x4 stale"}
    UP = 'up{job="j",instance="n1"}'
    # kube-prometheus-stack scrapes it twice, under one job and instance.
    KUBELET = {f'up{{job="kubelet",instance="10.0.0.1:10250",metrics_path="{path}"}}': TOLD for path in ("/metrics", "/metrics/cadvisor")}

    def covered(self, expected, series, **more):
        self.gives(("job-report", "Time covered"), "A", expected, series, **{"at": "1h", "over": "1h", **more})

    def test_scrapes_of_targets_that_exist_twice(self):
        self.covered(1, self.JOB_SERIES | self.KUBELET | {self.UP: TOLD})

    def test_scrapes_of_a_running_job_and_of_one_that_ended_long_ago(self):
        self.covered(1, self.JOB_SERIES | self.KUBELET | {self.UP: TOLD}, at="30m", over="30m")
        self.covered(1, self.JOB_SERIES | {self.UP: TOLD}, at="90m", over="90m")

    def test_scrapes_that_failed_are_missing(self):
        half = {self.UP: "1x39 0x39 1x122", f"jobledger_job_cpus{{{JOB}}}": "_x20 4x19 stale _x39 4x19 stale",
                f"jobledger_job_start_time_seconds{{{JOB}}}": "_x20 600x19 stale _x39 600x24 stale"}
        self.covered(0.5, self.JOB_SERIES | self.KUBELET | half)


class Clean(Numbers):
    def test_a_job_without_advice_has_a_line_that_reports_it(self):
        series = {f"jobledger_job_start_time_seconds{{{JOB}}}": "0x400", f"jobledger_job_cpus{{{JOB}}}": "4x400", f"jobledger_job_allocated_cpu_seconds_total{{{JOB}}}": "0+120x400"}
        letters = list(self.queries(*ADVICE))
        self.gives(ADVICE, letters[-1], {'{what="Nothing (else) to change"}': 1}, series, counted="what")
        for letter in letters[:-1]:
            with self.subTest(letter):
                self.gives(ADVICE, letter, {}, series, counted="what")


class Uneven(Numbers):
    """Of two hours of a job on nodes of four cores or with two GPUs: one does more than the others, or all wait for a while."""

    GPUS, NODES, STALLED, WAITED, IDLE, CPUS = "EINMST"

    def of(self, letter, expected, series):
        """Asserts the measured part, or None where the advice does not apply."""
        what = {self.GPUS: "gpu_uneven", self.NODES: "nodes_uneven", self.STALLED: "stalled_io", self.WAITED: "waited_io",
                self.IDLE: "cpus_idle", self.CPUS: "imbalance"}[letter]
        expr = self.queries(*ADVICE)[letter]
        self.assertIn(thresholds.ADVICE[what][0], expr)
        self.gives(ADVICE, letter, {} if expected is None else {self.labels(what): expected}, series, at="2h", over="2h")

    @staticmethod
    def labels(what):
        return "{" + ",".join(f"{name}={json.dumps(text)}" for name, text in zip(("what", "change", "threshold"), thresholds.ADVICE[what])) + "}"

    @staticmethod
    def node(name, busy_cpus, cpus=4):
        job = f'job="j",instance="{name}",jobid="7"'
        return {f"jobledger_job_start_time_seconds{{{job}}}": "0x240", f"jobledger_job_cpus{{{job}}}": f"{cpus}x240",
                f"jobledger_job_allocated_cpu_seconds_total{{{job}}}": f"0+{30 * cpus}x240", f"jobledger_job_cpu_seconds_total{{{job},mode=\"user\"}}": f"0+{30 * busy_cpus:g}x240",
                f'jobledger_node_cores{{job="j",instance="{name}"}}': f"{cpus}x240", f'jobledger_node_cpus{{job="j",instance="{name}"}}': f"{cpus}x240"}

    def gpus(self, *busy, shared="false"):
        series = self.node("n1", 4)
        for number, part in enumerate(busy):
            of = f'job="j",instance="n1",jobid="7",gpu="{number}",uuid="GPU-{number}"'
            series |= {f'jobledger_job_gpu_info{{{of},shared="{shared}"}}': "1x240", f"jobledger_job_gpu_allocated_seconds_total{{{of}}}": "0+30x240",
                       f"jobledger_job_gpu_busy_seconds_total{{{of}}}": f"0+{30 * part:g}x240", f"jobledger_job_gpu_idle_seconds_total{{{of}}}": f"0+{30 * (1 - part):g}x240"}
        return series

    def test_gpus(self):
        # The mean of 0.9 and 0.5 is 0.7.
        self.of(self.GPUS, 1 - 0.7 / 0.9, self.gpus(0.9, 0.5))
        # One of them was never used.
        self.of(self.GPUS, 0.25, self.gpus(0.75, 0.75, 0.75, 0))
        self.of(self.GPUS, None, self.gpus(0.8, 0.65))
        self.of(self.GPUS, 0.109375, self.gpus(0.8, 0.625))
        self.of(self.GPUS, None, self.gpus(0.9))
        # Where all are hardly used, that is what to change.
        self.of(self.GPUS, None, self.gpus(0.1, 0.02))
        self.of(self.GPUS, None, self.gpus(0.9, 0.5, shared="true"))
        self.gives(Report.VERDICT, "A", {f'{{what="{thresholds.ADVICE["gpu_uneven"][0]}"}}': 65}, self.gpus(0.9, 0.5), at="2h", over="2h")
        self.of(self.GPUS, None, self.node("n1", 4))

    def test_nodes(self):
        self.of(self.NODES, 0.25, self.node("n1", 4) | self.node("n2", 2))
        self.of(self.NODES, None, self.node("n1", 4) | self.node("n2", 2.5))
        # A node of twice the cores has twice the work.
        self.of(self.NODES, None, self.node("n1", 4) | self.node("n2", 8, cpus=8))
        self.of(self.NODES, None, self.node("n1", 4))
        self.of(self.NODES, None, self.node("n1", 0.5) | self.node("n2", 0.2))
        self.of(self.NODES, None, self.gpus(0.9, 0.9) | self.node("n2", 2))

    def counted(self, name, idle, busiest, *, busy=4, cores=8, covered=1):
        """Eight CPUs: how many did nothing, and what the busiest did of 800 instructions. `covered` of the time it was counted."""
        series = self.node(name, busy, cpus=8)
        series[f'jobledger_node_cores{{job="j",instance="{name}"}}'] = f"{cores}x240"
        for counter, each in (("counted_cpu_seconds", 30 * busy), ("cpus_idle_seconds", 30 * idle), ("instructions", 800), ("busiest_cpu_instructions", busiest)):
            series[f'jobledger_job_{counter}_total{{job="j",instance="{name}",jobid="7"}}'] = f"0+{each * covered:g}x240"
        return series

    def test_cpus_of_a_node(self):
        # The mean of eight is 100, of six that work 133.
        self.of(self.CPUS, 0.36, self.counted("n1", 0, 156.25))
        self.of(self.CPUS, None, self.counted("n1", 0, 120))
        self.of(self.CPUS, None, self.counted("n1", 2, 156.25))
        # The worst node.
        self.of(self.CPUS, 0.5, self.counted("n1", 0, 125) | self.counted("n2", 0, 200))
        self.of(self.CPUS, None, self.counted("n1", 0, 200, busy=1))
        self.of(self.CPUS, None, self.gpus(0.9, 0.9) | self.counted("n1", 0, 200))
        self.of(self.CPUS, None, self.node("n1", 4))

    def test_cores_that_do_nothing(self):
        self.of(self.IDLE, 0.375, self.counted("n1", 3, 160))
        self.of(self.IDLE, 0.375, self.counted("n1", 3, 160, covered=0.5))
        self.of(self.IDLE, None, self.counted("n1", 2, 133))
        self.of(self.IDLE, 0.3125, self.counted("n1", 5, 160) | self.counted("n2", 0, 100))
        # A thread on each of four cores.
        self.of(self.IDLE, None, self.counted("n1", 4, 200, cores=4))
        # What other advice says: hardly any core worked, one, none on a node.
        self.of(self.IDLE, None, self.counted("n1", 6, 400, busy=1.5))
        self.of(self.IDLE, None, self.counted("n1", 7, 800, busy=1, cores=4))
        self.of(self.IDLE, None, self.counted("n1", 3, 160) | self.node("n2", 0))
        self.of(self.IDLE, None, self.gpus(0.9, 0.9) | self.counted("n1", 7, 800))
        self.of(self.IDLE, None, self.node("n1", 4))

    def stalled(self, minutes, part):
        """It waits for `part` of the time for so many minutes, after half an hour."""
        waits, samples = round(30 * part, 3), 2 * minutes
        return self.node("n1", 4) | {'jobledger_job_pressure_seconds_total{job="j",instance="n1",jobid="7",resource="io",kind="some"}':
                                     f"0x59 0+{waits:g}x{samples} {waits * samples:g}x{240 - 61 - samples}"}

    def test_a_stall(self):
        # 20 of 120 minutes: with the edges four or five intervals of five minutes.
        self.of(self.STALLED, 4 * 300 / 7200, self.stalled(20, 0.9))
        self.of(self.STALLED, None, self.stalled(20, 0.4))
        self.of(self.STALLED, None, self.stalled(6, 0.9))
        # What waits for most of its time has the other advice.
        self.of(self.STALLED, None, self.stalled(60, 0.9))
        self.of(self.WAITED, 0.45, self.stalled(60, 0.9))
        self.of(self.STALLED, None, self.node("n1", 4))


class EnergyOfAJob(Numbers):
    def test_what_the_cpu_counts_is_a_row_of_its_own(self):
        series = {}
        for socket, of_package, of_cores in ((0, 6, 3), (1, 4, 2)):
            series |= {f'jobledger_job_energy_joules_total{{{JOB},domain="package",socket="{socket}",method="cpu_time"}}': f"0+{of_package}x100",
                       f'jobledger_job_core_energy_joules_total{{{JOB},socket="{socket}"}}': f"0+{of_cores}x100"}
        self.gives(("job-report", "Energy by meter"), "A", {'{domain="package",method="cpu_time"}': 1000,
                                                            '{domain="cores, part of package",method="counted by the CPU"}': 500}, series)


class Steps(Numbers):
    """A batch step, and one on two nodes, of which one has twice the instructions."""

    PART = 'job="j",instance="{}",jobid="7",step="{}"'

    def test_a_step_is_on_all_of_its_nodes(self):
        series = {f'jobledger_step_cpu_seconds_total{{{self.PART.format("n1", "batch")},mode="user"}}': "0+1x100"}
        for node, times in (("n1", 1), ("n2", 2)):
            part = self.PART.format(node, "0")
            series |= {f'jobledger_step_cpu_seconds_total{{{part},mode="user"}}': "0+36x100", f"jobledger_step_counted_cpu_seconds_total{{{part}}}": "0+30x100",
                       f"jobledger_step_instructions_total{{{part}}}": f"0+{100 * times}x100", f"jobledger_step_cycles_total{{{part}}}": "0+100x100",
                       f'jobledger_step_flops_total{{{part},precision="double"}}': f"0+{30 * times}x100", f'jobledger_step_flops_total{{{part},precision="single"}}': "0+15x100"}
        for letter, expected in (("A", {'{step="0"}': 2, '{step="batch"}': 100 / 3600}), ("D", {'{step="0"}': 1.5}), ("E", {'{step="0"}': 2})):
            with self.subTest(letter):
                self.gives(("job-report", "Steps of the job"), letter, expected, series)


class Energy(Numbers):
    NODE, GPU = "instance:jobledger_node_energy", "instance:jobledger_gpu"
    SOCKETS = {f'{NODE}_joules:rate5m{{job="j",instance="n1"}}': "300x400", f'{NODE}_unattributed_joules:rate5m{{job="j",instance="n1"}}': "200x400"}
    BOARDS = {f'{GPU}_energy_joules:rate5m{{job="j",instance="n2"}}': "500x400",
              f'{GPU}_unattributed_energy_joules_per_joule:ratio_rate5m{{job="j",instance="n2"}}': "0.5x400"}

    def test_whichever_meters_there_are(self):
        for name, series, power, nobody in (("both", self.SOCKETS | self.BOARDS, 800, 450), ("sockets", self.SOCKETS, 300, 200), ("GPUs", self.BOARDS, 500, 250)):
            series = series | {'instance:jobledger_total_energy_joules:rate5m{job="j",instance="n1"}': f"{power}x400"}
            for title, expected in (("No job's", nobody), ("Attributed to jobs", power - nobody), ("No job's, of all", nobody / power)):
                with self.subTest(name, title=title):
                    self.gives(("energy", title), "A", expected, series)


class EnergyOfARange(Numbers):
    PANEL = ("energy", "Energy in this range")
    NODE = 'instance:jobledger_total_energy_joules:rate5m{{job="j",instance="{}"}}'

    def of_an_hour(self, expected, *nodes, every="30s", interval="2m"):
        # From one minute to 61.
        self.gives(self.PANEL, "A", expected, {self.NODE.format(number): given for number, given in enumerate(nodes)}, at="61m", over="1h", every=every, __interval=interval)

    def test_however_often_rules_are_evaluated(self):
        for every in ("15s", "30s", "60s", "120s"):
            with self.subTest(every):
                self.of_an_hour(1000, "1000x400", every=every)

    def test_missing_nodes_and_times_draw_nothing(self):
        half = "_x62 1000x60"
        self.of_an_hour(500, half)
        self.of_an_hour(1500, "1000x400", half)
        self.of_an_hour(500, "1000x58 stale")

    def test_steps_are_not_shorter_than_the_rules_intervals(self):
        target, = [target for panel in tools.panels(self.dashboards["jobledger-energy.json"]) if panel["title"] == self.PANEL[1] for target in panel["targets"]]
        self.assertEqual(target["interval"], "2m")
        self.of_an_hour(1000, "1000x400", interval="10m")


class Gpus(Numbers):
    @staticmethod
    def site(nodes, per_node):
        """Nodes with GPUs, of which even ones are busy."""
        series = {}
        for node in range(nodes):
            for gpu in range(per_node):
                labels = f'job="j",instance="n{node}",gpu="{gpu}",uuid="GPU-{node}-{gpu}"'
                series |= {f'jobledger_gpu_info{{{labels},profile="",divided="false"}}': TOLD, f"jobledger_gpu_observed_seconds_total{{{labels}}}": "0+30x400",
                           f"jobledger_gpu_busy_seconds_total{{{labels}}}": "0x400" if gpu % 2 else "0+30x400"}
        return series

    def test_a_divided_gpu_is_its_parts(self):
        series = {'jobledger_gpu_info{job="j",instance="n1",gpu="0",uuid="GPU-0",divided="true"}': TOLD} | {
            f'jobledger_gpu_info{{job="j",instance="n1",gpu="0",uuid="MIG-{part}",profile="1g.10gb",divided="false"}}': TOLD for part in range(3)}
        self.gives(("gpu", "GPUs"), "A", 3, series)

    def test_however_many_there_are_they_are_counted_by_tenths(self):
        for nodes in (2, 30):
            self.gives(("gpu", "How busy GPUs are"), "A", {'{busy="0"}': 2 * nodes, '{busy="100"}': 2 * nodes}, self.site(nodes, 4))

    def test_those_with_trouble_are_chosen_then_the_hottest(self):
        series = {}
        for number, (up, celsius) in enumerate(((1, 60), (0, 20), (1, 70), (1, 80))):
            labels = f'job="j",instance="n1",gpu="{number}",uuid="GPU-{number}"'
            series |= {f"jobledger_gpu_info{{{labels}}}": TOLD, f"jobledger_gpu_up{{{labels}}}": f"{up}x400", f"jobledger_gpu_temperature_celsius{{{labels}}}": f"{celsius}x400"}
        series['jobledger_gpu_xid_errors_total{job="j",instance="n1",gpu="0",uuid="GPU-0",code="79"}'] = "0x100 1x300"
        self.gives(("gpu", "worst"), None, {f'{{instance="n1",gpu="{number}",uuid="GPU-{number}"}}': value for number, value in ((0, 1006), (1, 10002), (2, 7), (3, 8))}, series)
        # Of too many, the first of this order.
        many = series | {f'{name}{{job="j",instance="n2",gpu="{number}",uuid="GPU-x{number}"}}': f"{value}x400" for number in range(30)
                         for name, value in (("jobledger_gpu_info", 1), ("jobledger_gpu_up", 1), ("jobledger_gpu_temperature_celsius", 75))}
        self.gives(("gpu", "worst"), None, {'{instance="n1"}': 3, '{instance="n2"}': 27}, many, counted="instance")

    def test_of_a_job_too(self):
        for nodes, rows in ((2, {f'{{row="n{node} GPU {gpu} "}}': 1 for node in range(2) for gpu in range(4)}), (3, {f'{{row="n{node}"}}': 1 for node in range(3)})):
            series = {}
            for node in range(nodes):
                series |= {f'jobledger_job_{name}{{job="j",instance="n{node}",jobid="7"}}': given for name, given in (
                    ("start_time_seconds", "0x400"), ("cpu_seconds_total", "0+30x400"), ("allocated_cpu_seconds_total", "0+30x400"))}
                for gpu in range(4):
                    labels = f'job="j",instance="n{node}",jobid="7",gpu="{gpu}",uuid="GPU-{node}-{gpu}"'
                    series |= {f'jobledger_job_gpu_info{{{labels},profile=""}}': TOLD, f"jobledger_job_gpu_busy_seconds_total{{{labels}}}": "0+15x400",
                               f"jobledger_job_gpu_idle_seconds_total{{{labels}}}": "0+15x400"}
            self.gives(("job-report", "Where and when it was busy"), "A", rows, series, counted="row")


class Targets(Numbers):
    def test_those_that_are_down_are_chosen_then_those_that_fail(self):
        series = {}
        for number, (up, success, seconds) in enumerate(((1, 1, 3), (0, 1, 0), (1, 0, 1))):
            labels = f'job="jobledger",instance="n{number}"'
            series |= {f"up{{{labels}}}": f"{up}x400", f"scrape_duration_seconds{{{labels}}}": f"{seconds}x400", f"jobledger_exporter_build_info{{{labels}}}": TOLD,
                       f'jobledger_exporter_collector_success{{{labels},collector="cpu"}}': f"{success}x400", f'jobledger_exporter_collector_available{{{labels},collector="cpu"}}': TOLD}
        self.gives(("exporter", "worst"), None, {f'{{job="jobledger",instance="n{number}"}}': value for number, value in ((0, 3), (1, 10000), (2, 101))}, series)


class Report(Numbers):
    """Of one job, from its own counters."""

    # From the beginning, scraped every 30 seconds, for an hour.
    NODE = {'jobledger_node_cores{job="j",instance="n1"}': "24x400", 'jobledger_node_cpus{job="j",instance="n1"}': "48x400"}

    @staticmethod
    def job(cpus, busy, **more):
        return {f"jobledger_job_start_time_seconds{{{JOB}}}": "0x400", f"jobledger_job_cpus{{{JOB}}}": f"{cpus}x400", f'jobledger_job_cpu_seconds_total{{{JOB},mode="user"}}': f"0+{30 * busy:g}x400",
                f"jobledger_job_allocated_cpu_seconds_total{{{JOB}}}": f"0+{30 * cpus}x400", **{f"jobledger_job_{name}{{{JOB}}}": given for name, given in more.items()}}

    USE = ("job-report", "How well it used what it held")
    VERDICT = ("job-report", "Verdict")

    def says(self, verdict, value, series, **more):
        self.gives(self.VERDICT, "A", {f'{{what="{verdict}"}}': value}, series, **more)

    def test_a_thread_on_a_core_is_full_use_of_it(self):
        for busy, expected in ((0.5, 0.5), (1, 1), (1.3, 1)):
            with self.subTest(busy):
                self.gives(self.USE, "A", expected, self.NODE | self.job(2, busy))
        # Where the rules recorded its cores, the node's own series are not needed: a label proxy hides them.
        recorded = {f"jobid_instance:jobledger_job_cores:sum{{{JOB}}}": "1x400"}
        self.gives(self.USE, "A", 1, recorded | self.job(2, 1))
        self.gives(self.USE, "A", {}, self.job(2, 1))

    def test_a_verdict(self):
        good = "Nothing to change: what is known of it is within its target"
        self.says(good, 20, self.NODE | self.job(8, 4))
        self.says("Its CPUs were used in part", 30, self.NODE | self.job(8, 2))
        self.says("Less than two minutes: totals are exact, and there is nothing to judge yet", 10, self.NODE | self.job(8, 4), at="90s", over="90s")
        self.says("No job of this number within a month: choose one in the Jobs dashboard", 0, self.NODE | self.job(8, 4), jobid="8")
        killed = self.job(8, 4, oom_kills_total="0x20 1x380")
        self.gives(self.VERDICT, "A", {'{what="The job ran out of memory"}': 1}, self.NODE | killed, counted="what")
        self.gives(self.VERDICT, "A", {'{what="The job ran out of memory"}': 168}, self.NODE | killed)

    def test_a_number_is_found_outside_the_time_range(self):
        ran = {name: given.replace("x400", "x100 stale") for name, given in self.job(8, 4).items()}
        ran[f"jobledger_job_end_time_seconds{{{JOB}}}"] = "_x97 2900x3 stale"
        ran[f'jobledger_job_info{{{JOB},user="alice",account="x"}}'] = "1x100 stale"
        row = '{jobid="7"}'
        for at, outside in (("3h", 1), ("50m", 0)):
            for letter, expected in (("B", 2), ("C", 2900), ("D", 1), ("E", 8), ("H", 2900000), ("I", outside), ("J", -60000), ("K", 3020000)):
                with self.subTest(at, letter=letter):
                    end = int(at[:-1]) * {"h": 3600, "m": 60}[at[-1]]
                    self.gives(("job-report", "Job"), letter, {row: expected}, ran, at=at, over="1h", __from=str((end - 3600) * 1000), __to=str(end * 1000))
            self.gives(("job-report", "Job"), "A", {'{jobid="7",user="alice",account="x",cluster_link="All"}': 1}, ran, at=at, over="1h")
        self.says("The job ran at another time: «Go to its time», above", 5, ran, at="3h", over="1h")

    def test_without_a_number_there_are_the_newest_jobs(self):
        series = {}
        for number in range(12):
            labels = f'job="j",instance="n1",jobid="{number}"'
            series |= {f"jobledger_job_start_time_seconds{{{labels}}}": f"{number}x400", f'jobledger_job_info{{{labels},user="u"}}': TOLD}
        self.gives(("job-report", "Job"), "A", {f'{{jobid="{number}",user="u",cluster_link="All"}}': 1 for number in range(2, 12)}, series, jobid="")
        self.gives(("job-report", "Job"), "A", {'{jobid="3",user="u",cluster_link="All"}': 1}, series, jobid="3")

    def test_a_user_that_is_known_later_is_the_same_job(self):
        """--metric.job-labels=user: the series go on under another label."""
        both = {}
        for name, given in self.job(8, 4).items():
            begin, step, _ = (given.partition("x")[0].partition("+") + ("",))[:3] if "+" in given else (given.partition("x")[0], "", "")
            more = given.split("+")[1].partition("x")[0] if "+" in given else None
            both[name.replace("{", '{user="",')] = (f"0+{more}x20" if more else f"{begin}x20") + " stale"
            both[name.replace("{", '{user="alice",')] = "_x21 " + (f"{21 * float(more):g}+{more}x379" if more else f"{begin}x379")
        self.gives(self.USE, "A", 1, self.NODE | both)
        self.gives(("job-report", "Totals and events"), "A", {'{what="CPU-hours held"}': 8}, self.NODE | both)
        self.gives(("job-report", "Totals and events"), "B", {'{what="CPU-hours used"}': 4}, self.NODE | both)

    GPU = 'job="j",instance="n1",jobid="7",gpu="0",uuid="GPU-0"'

    def gpu(self, **counters):
        return {f"jobledger_job_gpu_info{{{self.GPU}}}": TOLD, **{f"jobledger_job_gpu_{name}_seconds_total{{{self.GPU}}}": f"0+{30 * value:g}x400" for name, value in counters.items()}}

    def test_gpus(self):
        series = self.NODE | self.job(2, 1) | self.gpu(allocated=1, busy=0.75, idle=0.25, sm_active=0.5)
        self.gives(self.USE, "C", 0.75, series)
        self.gives(self.USE, "D", 0.5, series)
        self.gives(("job-report", "GPUs, and what the job waited for"), "A", 0.75, series)
        self.gives(("job-report", "GPUs, and what the job waited for"), "B", 0.5, series)
        self.gives(("job-report", "gpus"), None, {'{there="1"}': 1}, series)
        # One that does not report SM active has no gauge of it, and a job without GPUs none of either.
        self.gives(self.USE, "D", {}, self.NODE | self.job(2, 1) | self.gpu(allocated=1, busy=1, idle=0))
        for letter in "CD":
            self.gives(self.USE, letter, {}, self.NODE | self.job(2, 1))
        self.gives(("job-report", "gpus"), None, {'{there="none"}': 1}, self.NODE | self.job(2, 1))

    def test_a_gpu_that_jobs_share_is_judged_for_none_of_them(self):
        idle = self.NODE | self.job(2, 1) | self.gpu(allocated=1, busy=0, idle=1)
        shared = idle | {f'jobledger_job_gpu_info{{{self.GPU},shared="true"}}': TOLD}
        letter = next(letter for letter, expr in self.queries(*ADVICE).items() if '"GPUs were never used"' in expr)
        self.gives(self.USE, "C", 0, idle)
        self.gives(ADVICE, letter, {'{what="GPUs were never used"}': 1}, idle, counted="what")
        self.gives(self.USE, "C", {}, shared)
        self.gives(ADVICE, letter, {}, shared)

    def test_nothing_is_over_one(self):
        late = self.NODE | self.job(2, 3) | self.gpu(allocated=1, busy=1, idle=0, sm_active=1.1)
        self.gives(self.USE, "A", 1, late)
        self.gives(self.USE, "D", 1, late)
        self.gives(("job-report", "GPUs, and what the job waited for"), "B", 1, late)

    def test_energy_is_there_with_all_of_its_parts(self):
        cpu = {f'jobledger_job_energy_joules_total{{{JOB},domain="package",socket="0"}}': "0+30x400"}
        gpu = {f"jobledger_job_gpu_energy_joules_total{{{self.GPU}}}": "0+300x400"}
        for parts, expected in ((cpu, 3600), (cpu | self.gpu(), {}), (cpu | self.gpu() | gpu, 39600), (self.gpu() | gpu, {})):
            self.gives(("job-report", "Energy"), "A", expected, self.job(2, 1) | parts)

    def test_memory(self):
        gib = 2**30
        series = self.job(2, 1, memory_peak_bytes=f"{3 * gib}x400", memory_limit_bytes=f"{8 * gib}x400", memory_anon_bytes=f"{gib}x400", memory_shmem_bytes=f"{gib}x400")
        self.gives(self.USE, "B", 0.375, series)
        self.gives(("job-report", "Job"), "M", {'{jobid="7"}': 3 * gib * 1.2}, series)
        # No amount is enough for nodes with different limits.
        other = {name.replace("n1", "n2"): given for name, given in self.job(2, 1, memory_peak_bytes=f"{gib}x400", memory_limit_bytes=f"{4 * gib}x400").items()}
        self.gives(("job-report", "Job"), "M", {}, series | other)
        # Kernels that do not count the peak: the most that was held.
        self.gives(self.USE, "B", 0.25, {name: given for name, given in series.items() if "peak" not in name})
        # Held, and as it is asked for.
        self.gives(("job-report", "Memory against its limit"), "A", 2 * gib, series)

    def test_imbalance_and_waiting_of_a_job_without_gpus(self):
        other = {name.replace("n1", "n2"): given for name, given in (self.NODE | self.job(2, 0.5)).items()}
        series = self.NODE | self.job(2, 1, pressure_seconds_total="0x1") | other
        del series[f"jobledger_job_pressure_seconds_total{{{JOB}}}"]
        series[f'jobledger_job_pressure_seconds_total{{{JOB},resource="io",kind="some"}}'] = "0+7.5x400"
        self.gives(self.USE, "E", 0.75, series)
        self.gives(self.USE, "F", 0.75, series)
        self.gives(self.USE, "E", {}, series | self.gpu())
        self.gives(("job-report", "Where and when it was busy"), "A", {'{row="n1"}': 1, '{row="n2"}': 0.5}, series)


class Roofs(Numbers):
    """A job has the roofs of its part of the node."""

    TIME = {"__from": "0", "__to": "3600000"}
    INFO = 'jobledger_node_info{job="j",instance="n1",microarchitecture="%s"}'
    NODE = {'jobledger_node_cores{job="j",instance="n1"}': "48x400", 'jobledger_node_cpus{job="j",instance="n1"}': "48x400", 'jobledger_node_sockets{job="j",instance="n1"}': "2x400"}
    # Four cores at 2 GHz.
    JOB_SERIES = {f"jobledger_job_start_time_seconds{{{JOB}}}": "0x400", f"jobledger_job_cpus{{{JOB}}}": "4x400", f"jobledger_job_counted_cpu_seconds_total{{{JOB}}}": "0+120x400",
                  f"jobledger_job_cycles_total{{{JOB}}}": "0+240000000000x400"}

    def roof(self, letter, expected, series, **more):
        self.gives(("job-report", "Roofline"), letter, expected, series, **{**self.TIME, **more})

    def test_cores_and_sockets_of_the_job(self):
        series = self.NODE | self.JOB_SERIES | {self.INFO % "Emerald Rapids": TOLD}
        # At the end of the range the intensity is 1000: the flat roof, 4 cores x 32 (4) operations x 2 GHz.
        self.roof("V", 256e9, series)
        self.roof("S", 32e9, series)
        # At a quarter of it 10^-1.5: the slope, of one socket.
        self.roof("V", 10**-1.5 * 358.4e9, series, at="15m")
        self.roof("V", 10**-1.5 * 100e9, series, at="15m", bandwidth="100")
        # Where its energy was measured on both sockets, or its cores do not fit one.
        energy = {f'jobledger_job_energy_joules_total{{{JOB},domain="package",socket="{socket}"}}': "0+30x400" for socket in (0, 1)}
        self.roof("V", 10**-2 * 2 * 358.4e9, series | energy, at="10m")
        self.roof("V", 10**-2 * 2 * 358.4e9, series | {f"jobledger_job_cpus{{{JOB}}}": "25x400"}, at="10m")

    def test_what_was_measured_on_the_node_is_preferred(self):
        of = 'jobledger_node_measured_%s{job="j",instance="n1"%s}'
        flops = {of % ("flops_per_second", f',precision="{precision}",width="{width}"'): f"{value:g}x400"
                 for precision, width, value in (("double", "512", 2.4e12), ("double", "256", 1.2e12), ("double", "scalar", 2.4e11), ("single", "512", 4.8e12))}
        series = self.NODE | self.JOB_SERIES | {self.INFO % "Emerald Rapids": TOLD} | flops | {of % ("memory_bandwidth_bytes", ""): "5e11x400"}
        # Four of 48 cores, with the widest vectors or without, and one of two sockets.
        self.roof("V", 2e11, series)
        self.roof("S", 2e10, series)
        self.roof("V", 10**-2 * 2.5e11, series, at="10m")
        self.roof("V", 10**-2 * 100e9, series, at="10m", bandwidth="100")

    def test_imbalance_inside_nodes(self):
        """Four CPUs: the busiest does half of all, one nothing, and three the other half."""
        series = self.NODE | self.JOB_SERIES | {f"jobledger_job_instructions_total{{{JOB}}}": "0+2000x400", f"jobledger_job_busiest_cpu_instructions_total{{{JOB}}}": "0+1000x400",
                                                f"jobledger_job_cpus_idle_seconds_total{{{JOB}}}": "0+30x400"}
        self.gives(("job-report", "Imbalance inside nodes"), "A", 1.5, series)
        self.gives(("job-report", "CPUs that do nothing"), "A", 1, series)

    def test_what_the_bytes_are(self):
        loads = {f"jobledger_job_memory_load_bytes_total{{{JOB}}}": "0+1000x400"}
        traffic = {f'jobledger_job_memory_traffic_bytes_total{{{JOB},kind="dram",direction="read"}}': "0+1000x400"}
        flops = {f"jobledger_job_flops_total{{{JOB}}}": "0+2000x400", f'jobledger_job_cpu_seconds_total{{{JOB},mode="user"}}': "0+120x400"}
        for model, more, expected, intensity in (("Sierra Forest", loads, 3, 2), ("Zen 3", loads, 2, 2), ("Sierra Forest", loads | {name: "0+4000x400" for name in traffic}, 1, 0.5)):
            with self.subTest(model, expected=expected):
                series = self.NODE | self.JOB_SERIES | flops | more | {self.INFO % model: TOLD}
                self.gives(("job-report", "Bytes are"), "A", expected, series)
                self.roof("I", intensity, series)

    def test_processors_whose_loads_lack_prefetches_are_those_of_the_docs(self):
        import re
        text = (tools.ROOT / "docs" / "counters.md").read_text()
        named = set()
        for names, note in re.findall(r"^- \*\*([^*]+)\*\*: (.*)$", text, re.MULTILINE):
            if "Memory loads are reads of data by demand" in note or "what is prefetched into L3 alone is not" in note:
                named |= set(names.split(", "))
        source = (tools.GRAFANA / "src" / "roofs.py").read_text()
        ours = set(re.findall(r'"([^"]+)"', re.search(r"WITHOUT_PREFETCHES = \(([^)]*)\)", source).group(1)))
        self.assertEqual(ours, named)


if __name__ == "__main__":
    unittest.main()
