"""What is recorded of owners, nodes and ended jobs adds up to what the exporter counted: a real Prometheus over demo nodes whose jobs are short.

Not one of `make unit`: `make rules-live`. The demo is $JOBLEDGER_DEMO, or built. JOBLEDGER_PROMETHEUS=3 takes Debian's newest Prometheus, and
JOBLEDGER_PROMETHEUS=victoria VictoriaMetrics and vmalert of Debian sid: all but what needs rules of one moment (rules/README.md).
Windows are a fifth as long, and jobs come and go ten times as fast: many are shorter than a window.
"""

import contextlib
import os
import pathlib
import re
import sys
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[0] / "grafana"), str(HERE.parents[0] / "e2e"), str(HERE.parents[0] / "scale")]

import tools  # noqa: E402
from testbed.built import program  # noqa: E402
from testbed.processes import free_ports, running, scratch, wait_for  # noqa: E402
from testbed.prometheus import Prometheus, programs  # noqa: E402
from victoria import programs as victoria_programs  # noqa: E402

SERVER = os.environ.get("JOBLEDGER_PROMETHEUS", "2")
ONE_MOMENT = unittest.skipIf(SERVER == "victoria", "vmalert's rules see what others of their group recorded at the evaluation before")

# The window of owners' rules, that of the others, and how long ago all scrapes are over.
WINDOW, HALF, SETTLED = 48, 24, 6
# Evaluations that are looked at.
LEAST = 3
SHORTER = ((r"offset 30s\b", f"offset {SETTLED}s"), (r"offset 270s\b", f"offset {SETTLED + WINDOW}s"), (r"\b4m\b", f"{WINDOW}s"), (r"\b2m\b", f"{HALF}s"), (r"\b5m\b", "60s"),
           (r"\[6m\]", "[72s]"), (r"\[13m\]", "[156s]"), (r">= 120\b", f">= {HALF}"), (r"/ 240\b", f"/ {WINDOW}"), (r"interval: 1m", "interval: 12s"), (r"interval: 90s", "interval: 18s"), (r"interval: 30s", "interval: 6s"))


def shorten(text):
    for pattern, shorter in SHORTER:
        text = re.sub(pattern, shorter, text)
    return text


def grew(metric):
    """How much a counter of nodes grew in the window."""
    return f"sum({metric} offset {SETTLED}s - {metric} offset {SETTLED + WINDOW}s)"


@contextlib.contextmanager
def prometheus(directory, config, address):
    """The API of a Prometheus with this configuration, and that of its rules."""
    command = [str(programs(SERVER)[0]), f"--config.file={config}", f"--storage.tsdb.path={directory}/data", f"--web.listen-address={address}"]
    with running(command, directory / "prometheus.log"):
        yield Prometheus(address), Prometheus(address)


@contextlib.contextmanager
def victoria(directory, config, address):
    """The API of a VictoriaMetrics that scrapes, and that of the vmalert that evaluates the rules over it."""
    found = victoria_programs("sid")
    scrape = directory / "scrape.yml"
    scrape.write_text("".join(line for line in config.read_text().splitlines(keepends=True) if not line.startswith("rule_files")))
    (port,) = free_ports(1)
    with running([str(found / "victoria-metrics"), f"-storageDataPath={directory}/data", f"-httpListenAddr={address}", f"-promscrape.config={scrape}", "-search.latencyOffset=0s",
                  "-search.disableCache", "-memory.allowedPercent=10"], directory / "victoria.log"):
        url = f"http://{address}"
        wait_for("VictoriaMetrics", lambda: urllib.request.urlopen(f"{url}/health", timeout=5).status == 200)
        with running([str(found / "vmalert"), f"-rule={directory}/rules/*.yaml", f"-datasource.url={url}", f"-remoteWrite.url={url}", f"-remoteRead.url={url}", "-notifier.blackhole",
                      f"-httpListenAddr=127.0.0.1:{port}", "-remoteWrite.flushInterval=200ms", "-rule.evalDelay=0s", "-disableAlertgroupLabel"], directory / "vmalert.log"):
            yield Prometheus(address), Prometheus(f"127.0.0.1:{port}")


@contextlib.contextmanager
def stack(*flags):
    """A server over two demo nodes with the rules that are loaded by default: its API, and that of its rules."""
    with contextlib.ExitStack() as held:
        directory = held.enter_context(scratch("jobledger-sums"))
        *ports, own = free_ports(3)
        for seed, port in enumerate(ports, 1):
            held.enter_context(running(
                [str(program("jobledger-demo")), f"--demo.seed={seed}", "--demo.speed=10", f"--jobs.retention={HALF}s", "--scrape.min-interval=0s",
                 "--web.scrapers=127.0.0.1", f"--web.listen-address=127.0.0.1:{port}", *flags], directory / f"demo-{port}.log"))
        (directory / "rules").mkdir()
        for path in [*(tools.RULES / "recording").glob("*.yaml"), tools.RULES / "site.yaml"]:
            (directory / "rules" / path.name).write_text(shorten(path.read_text()))
        config = directory / "prometheus.yml"
        config.write_text(f"global: {{scrape_interval: 6s, scrape_timeout: 4s}}\nrule_files: ['{directory}/rules/*.yaml']\nscrape_configs:\n"
                          f"- job_name: jobledger\n  static_configs: [{{targets: {[f'127.0.0.1:{port}' for port in ports]}}}]\n")
        server, rules = held.enter_context((victoria if SERVER == "victoria" else prometheus)(directory, config, f"127.0.0.1:{own}"))
        wait_for("rules", lambda: rules.get("rules")["groups"])
        wait_for("evaluations", lambda: len(moments(server)) >= LEAST, quiet=120)
        yield server, rules


def moments(prometheus):
    """When the rules of owners were evaluated for both nodes."""
    found = evaluations(prometheus, "instance:jobledger_used_cores:rate4m")
    return sorted(set.intersection(*found)) if len(found) == 2 else []


def evaluations(prometheus, series):
    """When each series of a name was recorded."""
    return [{when for when, _ in each["values"]} for each in prometheus.get("query", query=f"{series}[10m]")["result"]]


class Sums(unittest.TestCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.prometheus, cls.rules = cls.enterClassContext(stack(*cls.FLAGS))
        cls.moments = moments(cls.prometheus)

    def at(self, when, expression):
        """The only value of an expression at a moment."""
        result = self.prometheus.get("query", query=expression, time=when)["result"]
        self.assertEqual(len(result), 1, f"{expression} at {when}: {result}")
        return float(result[0]["value"][1])

    def same(self, when, one, other, accuracy=1e-6):
        first, second = self.at(when, one), self.at(when, other)
        self.assertAlmostEqual(first, second, delta=accuracy * max(1, abs(second)), msg=f"{one}\n{other}\nat {when}")
        return second

    def test_no_rule_fails(self):
        failed = [(rule["name"], rule["lastError"]) for group in self.rules.get("rules")["groups"] for rule in group["rules"] if rule.get("lastError")]
        self.assertEqual([], failed)

    def test_cpu_time_of_owners_and_the_unattributed_is_the_nodes(self):
        for when in self.moments:
            whole = self.same(when, f"sum(owner:jobledger_owner_cpu_seconds:increase4m) + {grew('jobledger_node_slurm_cpu_unattributed_seconds_total')}",
                              grew("jobledger_node_slurm_cpu_seconds_total"))
            self.assertGreater(whole, 1)

    def test_each_level_has_all_of_it(self):
        for level in ("user", "account", "partition"):
            for when in self.moments:
                self.same(when, f"sum(sum by ({level}) (owner:jobledger_owner_cpu_seconds:increase4m))", "sum(owner:jobledger_owner_cpu_seconds:increase4m)")
                self.assertGreater(self.at(when, f"count(sum by ({level}) (owner:jobledger_owner_cpu_seconds:increase4m))"), 1)

    def test_used_cores_are_what_owners_used(self):
        # Each node has as many cores as CPUs, and uses fewer.
        for when in self.moments:
            self.same(when, f"sum(instance:jobledger_used_cores:rate4m) * {WINDOW}", "sum(owner:jobledger_owner_cpu_seconds:increase4m)")
            self.assertGreater(self.at(when, "min(instance:jobledger_used_cores:rate4m)"), 0)

    @ONE_MOMENT
    def test_bands_of_each_node_are_all_that_it_has(self):
        for what, between, has in (("cores", "young", "instance:jobledger_node_cores:sum"), ("gpus", "unknown", "instance:jobledger_gpus:count")):
            bands = [f"instance:jobledger_{band}_{what}:rate4m" for band in ("used", "idle", between, "unallocated")]
            for when in self.moments:
                self.assertEqual(self.at(when, f"count({bands[0]})"), 2)
                self.assertLess(self.at(when, f"max(abs({' + '.join(bands)} - {has}))"), 1e-9)
                for band in bands:
                    self.assertGreaterEqual(self.at(when, f"min({band})"), -1e-9, band)

    @ONE_MOMENT
    def test_what_is_held_is_what_owners_had(self):
        held = "(instance:jobledger_used_cores:rate4m + instance:jobledger_idle_cores:rate4m)"
        for when in self.moments:
            had = self.at(when, "sum(owner:jobledger_owner_allocated_cpu_seconds:increase4m)")
            # Scrapes that are late make a window longer; a node's bands are its cores at most.
            if self.at(when, f"max({held} / instance:jobledger_node_cores:sum)") < 1 - 1e-9:
                self.same(when, f"sum({held}) * {WINDOW}", "sum(owner:jobledger_owner_allocated_cpu_seconds:increase4m)")
            self.assertLessEqual(self.at(when, f"sum({held}) * {WINDOW}"), had * (1 + 1e-9))

    def test_energy_of_owners_and_the_unattributed_is_the_nodes(self):
        node = "jobledger_node_energy_joules_total"
        booked = f'on (instance, domain, socket, source) jobledger_node_energy_zone_info{{standing="booked"}} offset {SETTLED}s'
        for when in self.moments:
            whole = self.same(when, " + ".join(["sum(owner:jobledger_owner_energy_joules:increase4m)", grew("jobledger_node_energy_unattributed_joules_total"),
                                                grew("jobledger_gpu_unattributed_energy_joules_total")]),
                              f"sum(({node} offset {SETTLED}s - {node} offset {SETTLED + WINDOW}s) and {booked}) + {grew('jobledger_gpu_energy_joules_total')}")
            self.assertGreater(whole, 100)

    def test_a_row_of_an_ended_job_has_its_last_counters(self):
        # As of their own last evaluation: later one of the nodes may have been scraped again.
        when = max(set().union(*evaluations(self.prometheus, "ended:jobledger_job_cpu_seconds:sum")))
        rows = self.prometheus.get("query", query="last_over_time(ended:jobledger_job_cpu_seconds:sum[10m])", time=when)["result"]
        self.assertGreater(len([row for row in rows if row["metric"].get("user")]), 5)
        for row in rows:
            counter = f'jobledger_job_cpu_seconds_total{{jobid="{row["metric"]["jobid"]}"}}[10m]'
            with self.subTest(counter):
                # Of a requeued job it is the latest run; the nodes number their jobs apart, and an old one of the same number is no part of a row.
                # A job has its owner's labels from a moment after its start on. A row has nodes that ended at most some minutes apart.
                ended = f'max_over_time(jobledger_job_end_time_seconds{{jobid="{row["metric"]["jobid"]}"}}[10m])'
                if self.at(when, f"sum(resets({counter}))") == 0 and self.at(when, f"max({ended}) - min({ended})") < 60:
                    self.assertAlmostEqual(float(row["value"][1]), self.at(when, f"sum(max without (user, account) (max_over_time({counter})))"), places=6)
        short = self.prometheus.query(f"last_over_time(ended:jobledger_job_end_time_seconds:max[10m]) - last_over_time(ended:jobledger_job_start_time_seconds:min[10m]) < {WINDOW}")
        self.assertGreater(len(short), 5, "of jobs that were shorter than a window")

    def test_a_row_has_some_samples(self):
        self.assertLessEqual(self.at(self.moments[-1], "max(count_over_time(ended:jobledger_job_cpu_seconds:sum[10m]))"), 5)


class SumsWithLabels(Sums):
    """The same with users and accounts on every series of a job."""

    FLAGS = ("--metric.job-labels=user,account",)

    def test_what_is_recorded_of_a_job_has_the_labels(self):
        for series in ("jobid_instance:jobledger_job_cpu_seconds:rate2m", "jobid:jobledger_job_cores:sum"):
            found = self.prometheus.query(f"last_over_time({series}[10m])")
            self.assertGreater(len([labels for labels, _ in found if labels.get("user") and labels.get("account")]), 5, series)


if __name__ == "__main__":
    unittest.main()
