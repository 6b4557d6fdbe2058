"""The numbers of the dashboards of jobs, owners, waste and energy for invented series. Needs promtool (Debian: prometheus)."""

import unittest

from panel_numbers import Numbers

# Recorded every four minutes; a query is between two evaluations.
TIME = {"at": "121m30s", "over": "60m", "every": "4m"}
# Evaluations in the range.
TIMES = 15


def recorded(quantity, value, labels, shard="a"):
    """`value` within the time range, and the same before it."""
    return {f'owner:jobledger_owner_{quantity}:increase4m{{job="j",shard="{shard}",{labels}}}': f"{value / TIMES!r}x30"}


class Bands(Numbers):
    """Where the cores and GPUs are."""

    def test_the_bands_are_sums_over_nodes(self):
        series = {}
        for node, values in (("n1", (5, 1, 2, 0)), ("n2", (0, 0, 0, 8))):
            for what, between in (("cores", "young"), ("gpus", "unknown")):
                for band, value in zip(("used", "idle", between, "unallocated"), values):
                    series[f'instance:jobledger_{band}_{what}:rate4m{{job="j",instance="{node}"}}'] = f"{value}x400"
            series[f'instance:jobledger_node_cores:sum{{job="j",instance="{node}"}}'] = "8x400"
            series[f'instance:jobledger_gpus:count{{job="j",instance="{node}"}}'] = "8x400"
        for panel in ("Where the cores are", "Where the GPUs are"):
            for letter, expected in zip("ABCD", (5, 1, 2, 8)):
                with self.subTest(panel, letter=letter):
                    self.gives(("waste", panel), letter, expected, series)
        for stats in (("Cores held by jobs", "CPU efficiency of jobs", "Cores idle in jobs"), ("GPUs held by jobs", "GPU busy in jobs", "GPUs idle in jobs")):
            for title, expected in zip(stats, (0.5, 5 / 6, 1)):
                with self.subTest(title):
                    self.gives(("waste", title), "A", expected, series)


class Shards(Numbers):
    """Servers that have the nodes of some partitions each write what they recorded to one store (docs/scale.md)."""

    def test_an_account_of_both_is_the_sum(self):
        for level, title in (("account", "Accounts"), ("user", "Users"), ("partition", "Partitions")):
            label = f'{level}="x"'
            series = {}
            for quantity, first, second in (("allocated_cpu_seconds", 36000, 72000), ("allocated_core_seconds", 36000, 72000), ("cpu_seconds", 0, 54000),
                                            ("gpu_allocated_seconds", 3600, 7200), ("gpu_idle_seconds", 3600, 1800), ("energy_joules", 1200, 3000)):
                series |= recorded(quantity, first, label) | recorded(quantity, second, label, "b")
            for letter, expected in zip("ABCDEFGH", (30, 0.5, 15, 3, 0.5, 1.5, 4200, 39)):
                with self.subTest(title, letter=letter):
                    link = ',cluster_link="All"' if letter == "A" else ""
                    self.gives(("waste", title), letter, {f"{{{label}{link}}}": expected}, series, **TIME)

    def test_hours_are_of_3600_seconds(self):
        series = recorded("allocated_cpu_seconds", 72000000, 'account="x"') | recorded("allocated_core_seconds", 36000000, 'account="x"') | recorded("cpu_seconds", 18000000, 'account="x"')
        for letter, expected in (("A", {'{account="x",cluster_link="All"}': 20000}), ("B", {'{account="x"}': 0.5}), ("C", {'{account="x"}': 5000})):
            with self.subTest(letter):
                self.gives(("waste", "Accounts"), letter, expected, series, **TIME)

    def test_cores_of_which_both_hardware_threads_work_are_not_used_twice(self):
        series = recorded("allocated_core_seconds", 3600, 'account="x"') | recorded("cpu_seconds", 7200, 'account="x"')
        self.gives(("waste", "Accounts"), "B", {'{account="x"}': 0}, series, **TIME)
        self.gives(("owner", "CPU efficiency now"), "A", 1, series, **TIME)

    def test_energy_and_its_carbon(self):
        labels = 'user="u",account="x",partition="p"'
        joules = recorded("energy_joules", 12000, labels) | recorded("energy_joules", 30000, labels, "b")
        factor = {f'jobledger:carbon_factor:grams_per_kwh{{shard="{shard}"}}': "360x400" for shard in "ab"}
        self.gives(("energy", "Accounts"), "A", {'{account="x",cluster_link="All"}': 42000}, joules | factor, **TIME)
        self.gives(("energy", "Accounts"), "B", {'{account="x"}': 4.2}, joules | factor, **TIME)
        self.gives(("owner", "Energy"), "A", 42000, joules, **TIME)
        self.gives(("jobs", "Power of jobs"), "A", 42000 / TIMES / 240, joules, **TIME)
        self.gives(("owner", "CO₂ equivalent"), "A", 4.2, joules | factor, **TIME)
        self.gives(("energy", "CO₂ per kWh"), "A", 360, factor)
        # 2800 J in four minutes.
        for dashboard in ("energy", "owner"):
            self.gives((dashboard, "Power by user"), "A", {'{user="u"}': 42000 / TIMES / 240}, joules, **TIME)
        self.gives(("energy", "CO₂ per hour by account"), "A", {'{account="x"}': 42000 / TIMES / 240 * 360 / 3.6e6 * 3600}, joules | factor, **TIME)

    def test_parts_that_count_more_than_their_node(self):
        deficits = {f'jobledger_node_energy_overhead_deficit_joules{{job="j",instance="n{number}"}}': f"{joules}x40" for number, joules in ((1, 0), (2, 50))}
        self.gives(("energy", "Parts beyond the whole"), "A", {'{instance="n2"}': 50}, deficits, **TIME)

    def test_clusters_with_factors_of_their_own(self):
        joules = {f'owner:jobledger_owner_energy_joules:increase4m{{cluster="{cluster}",job="j",account="x"}}': "2000x30" for cluster in "ab"}
        factors = {f'jobledger:carbon_factor:grams_per_kwh{{cluster="{cluster}"}}': f"{grams}x400" for cluster, grams in (("a", 360), ("b", 720))}
        self.gives(("energy", "Accounts"), "B", {'{cluster="a",account="x"}': 3, '{cluster="b",account="x"}': 6}, joules | factors, **TIME)
        # If targets have the label and the factor does not, the factor applies to all of them.
        one = {"jobledger:carbon_factor:grams_per_kwh": "360x400"}
        self.gives(("energy", "Accounts"), "B", {'{cluster="a",account="x"}': 3, '{cluster="b",account="x"}': 3}, joules | one, **TIME)

    def test_the_users_chosen_and_no_others(self):
        series = {}
        for user, value in (("u", 360000), ("v", 36000)):
            for quantity, part in (("allocated_cpu_seconds", 2), ("allocated_core_seconds", 1), ("cpu_seconds", 0.5), ("gpu_allocated_seconds", 0.1), ("gpu_busy_seconds", 0.075),
                                   ("gpu_idle_seconds", 0.025)):
                series |= recorded(quantity, value * part, f'user="{user}",account="x",partition="p"')
        for title, letters in (("CPU-hours", (220, 200)), ("GPU-hours", (11, 10)), ("Cores not used", (0.5, 0.5)), ("GPU busy now", (0.75, 0.75))):
            for user, expected in zip((".*", "u"), letters):
                self.gives(("owner", title), "A", expected, series, user=user, **TIME)
        self.gives(("waste", "Core time unused"), "A", 0.5, series, **TIME)
        self.gives(("waste", "GPU time unused"), "A", 0.25, series, **TIME)
        for dashboard in ("owner", "jobs"):
            self.gives((dashboard, "CPUs held and used"), "A", 360000 * 2 / TIMES / 240, series, user="u", **TIME)
            self.gives((dashboard, "CPUs held and used"), "B", 360000 / 2 / TIMES / 240, series, user="u", **TIME)

    def test_partitions(self):
        series = {}
        for shard, cores, used in (("a", 3600, 1800), ("b", 7200, 900)):
            series |= recorded("allocated_core_seconds", cores, 'partition="x"', shard) | recorded("cpu_seconds", used, 'partition="x"', shard)
        self.gives(("waste", "Efficiency by partition"), "A", {'{partition="x"}': 0.25}, series, **TIME)
        self.gives(("waste", "Cores idle in jobs by partition"), "A", {'{partition="x"}': 8100 / TIMES / 240}, series, **TIME)


class Ended(Numbers):
    """Two jobs that ended within the range, and one that ended before it."""

    TABLE = ("jobs", "Jobs that ended in this time range, the most waste first")
    ALICE, BOB = 'jobid="7",user="alice",account="physics",partition="main"', 'jobid="8",user="bob"'

    @staticmethod
    def row(labels, first, **values):
        """What rules/recording/ended.yaml records of a job, twice."""
        return {f'ended:jobledger_job_{name.replace("__", ":")}{{job="j",{labels}}}': "_ " * first + f"{value} {value} stale" for name, value in values.items()}

    def setUp(self):
        self.series = self.row(self.ALICE, 80, owner__info=1, allocated_cpu_seconds__sum=28800, cpu_seconds__sum=3600, idle_core_seconds__sum=10800, gpu_allocated_seconds__sum=7200,
                               gpu_busy_seconds__sum=1800, gpu_idle_seconds__sum=3600, total_energy_joules__sum=5000, memory_peak_bytes__max=6, memory_limit_bytes__sum=24,
                               memory_peak_bytes_per_limit_byte__max_ratio=0.5, oom_kills__sum=2, start_time_seconds__min=1000, end_time_seconds__max=2200, nodes__count=2)
        self.series |= self.row(self.BOB, 90, owner__info=1, allocated_cpu_seconds__sum=60, cpu_seconds__sum=60, idle_core_seconds__sum=0, start_time_seconds__min=2500,
                                end_time_seconds__max=2560, nodes__count=1)
        self.series |= self.row('jobid="9",user="carol"', 2, owner__info=1, idle_core_seconds__sum=99999, start_time_seconds__min=1, end_time_seconds__max=60)
        self.series |= {'ended:jobledger_job_name:info{job="j",jobid="7",name="relax"}': "_ " * 80 + "1 1 stale"}

    def shows(self, letter, expected, **values):
        with self.subTest(letter=letter):
            self.gives(self.TABLE, letter, expected, self.series, over="30m", **values)

    def test_a_row_for_each(self):
        self.shows("A", {f'{{{self.ALICE},cluster_link="All"}}': 1, f'{{{self.BOB},cluster_link="All"}}': 1})
        self.shows("S", {'{jobid="7",name="relax"}': 1})
        both = '{{jobid="{}"}}'.format
        for letter, one, other in (("B", 2200000, 2560000), ("C", 1200, 60), ("D", 2, 1), ("E", 8, 60 / 3600), ("F", 0.25, 1), ("G", 3, 0), ("P", 19, 0),
                                   ("Q", 940000, 2440000), ("R", 2320000, 2680000)):
            self.shows(letter, {both(7): one, both(8): other})
        for letter, value in (("H", 2), ("I", 1 / 3), ("J", 1), ("K", 0.5), ("L", 6), ("M", 24), ("N", 2), ("O", 5000)):
            self.shows(letter, {both(7): value})

    def queries(self, uid, title):
        """Those of a panel, and of a variable."""
        variables = {each["name"]: each.get("definition", "") for each in self.dashboards[f"jobledger-{uid}.json"]["templating"]["list"]}
        return {"A": variables[title].removeprefix("query_result(").removesuffix(")")} if title in variables else super().queries(uid, title)

    def test_the_jobs_with_the_most_waste_are_chosen(self):
        for dashboard in ("jobs", "owner", "waste"):
            self.gives((dashboard, "ended"), "A", {'{jobid="7"}': 10800 + 16 * 3600}, self.series, over="30m", limit="1")
            self.gives((dashboard, "ended"), "A", {'{jobid="7"}': 10800 + 16 * 3600, '{jobid="8"}': 0}, self.series, over="30m")

    def test_no_others_are_shown(self):
        self.shows("C", {'{jobid="8"}': 60}, ended="8")

    def test_the_jobs_of_a_user(self):
        self.shows("C", {'{jobid="8"}': 60}, user="bob")

    def test_the_numbers_above(self):
        for title, expected in (("Ended", 2), ("Too short to sample", 1), ("Killed for memory", 1)):
            with self.subTest(title):
                self.gives(("jobs", title), "A", expected, self.series, over="30m")


class EnergyOfJobs(Numbers):
    def test_energy_so_far_and_its_carbon(self):
        job = 'job="j",jobid="7"'
        series = {f'jobid:jobledger_job_owner:info{{{job},user="u",account="x",partition="p"}}': "1x400", f"jobid:jobledger_job_total_energy_joules:rate2m{{{job}}}": "500x400",
                  "jobledger:carbon_factor:grams_per_kwh": "360x400"}
        series |= {f'jobid_instance:jobledger_job_total_energy_joules:sum{{{job},instance="{node}"}}': "18000x400" for node in ("n1", "n2")}
        table = ("energy", "Running jobs, the most power first")
        self.gives(table, "D", {'{jobid="7"}': 36000}, series)
        self.gives(table, "E", {'{jobid="7"}': 3.6}, series)

    def test_the_nodes_with_the_most_power_and_the_median(self):
        series = {f'instance:jobledger_total_energy_joules:rate5m{{job="j",instance="n{node}"}}': f"{100 * node}x400" for node in range(25)}
        self.gives(("energy", "Power by node"), "A", 1200, series)
        self.gives(("energy", "Power by node"), "B", {"{}": 10}, series, counted="job_")


if __name__ == "__main__":
    unittest.main()
