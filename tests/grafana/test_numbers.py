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


if __name__ == "__main__":
    unittest.main()
