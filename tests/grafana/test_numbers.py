"""Numbers that panels have to show of sites and jobs that neither the demo nor a recorded machine is like. Needs promtool (Debian: prometheus)."""

import unittest

from panel_numbers import Numbers

TOLD = "1x400"


class Clusters(Numbers):
    """Several clusters in one Prometheus have the same job numbers."""

    def test_a_row_is_a_clusters_and_its_link_chooses_that(self):
        series = {}
        for cluster, user in (('cluster="a",', "ann"), ('cluster="b",', "ben"), ("", "cay")):
            series |= {f'jobid:jobledger_job_owner:info{{{cluster}job="j",jobid="7",user="{user}",account="x",partition="p"}}': TOLD,
                       f'jobid:jobledger_job_nodes:count{{{cluster}job="j",jobid="7"}}': TOLD}
        row = 'jobid="7",user="{}",account="x",partition="p"'
        self.gives(("jobs", "Running jobs, the most waste first"), "A", {
            f'{{cluster="a",cluster_link="a",{row.format("ann")}}}': 1, f'{{cluster="b",cluster_link="b",{row.format("ben")}}}': 1,
            # Without the label the choice is All, by which Grafana knows it in an address.
            f'{{cluster_link="All",{row.format("cay")}}}': 1}, series)

    def test_a_report_of_several_clusters_says_so(self):
        start = 'jobledger_job_start_time_seconds{{cluster="{}",job="j",instance="n1",jobid="7"}}'
        both = {start.format("a"): "60x400", start.format("b"): "60x400"}
        advice = '{what="Jobs of several clusters have this number"}'
        self.gives(("job-report", "State"), "A", 4, both)
        self.gives(("job-report", "State"), "A", 1, both, cluster="a")
        self.gives(("job-report", "Advice"), "A", {advice: 1}, both, counted="what")
        self.gives(("job-report", "Advice"), "A", {}, both, cluster="a")
        self.gives(("job-report", "Job"), "D", {'{cluster="a",jobid="7"}': 1, '{cluster="b",jobid="7"}': 1}, both)


class Hours(Numbers):
    def test_cpu_and_gpu_time_is_in_hours(self):
        owner = {f'account:jobledger_job_{what}_seconds:delta1d{{job="j",account="x"}}': f"{value}x400" for what, value in (
            ("allocated_cpu", 72000000), ("unused_cpu", 36000000), ("gpu_allocated", 7200), ("gpu_idle", 3600))}
        labels = '{account="x"}'
        for letter, expected in (("A", {'{account="x",cluster_link="All"}': 20000}), ("C", {labels: 10000}), ("D", {labels: 2}), ("F", {labels: 1}), ("H", {labels: 10016})):
            with self.subTest(letter):
                self.gives(("waste", "Accounts"), letter, expected, owner)
        job = {f'jobid_instance:jobledger_job_{what}:sum{{job="j",instance="n1",jobid="7"}}': f"{value}x400" for what, value in (
            ("cpu_seconds", 36000000), ("unused_cpu_seconds", 7200), ("gpu_idle_seconds", 3600), ("gpus", 1))}
        for title, expected in (("CPU-hours used", 10000), ("CPU-hours not used", 2), ("GPU-hours not used", 1)):
            with self.subTest(title):
                self.gives(("job-report", title), "A", expected, job)


if __name__ == "__main__":
    unittest.main()
