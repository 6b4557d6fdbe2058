"""Writes a cluster's past into a Prometheus' directory, so that rules which look back find what they look for.

All families for the last minutes; for longer only what some rule asks for with a longer window or offset, and of what the rules
themselves record the series that are asked for over a day. Blocks are made by promtool.
"""

import multiprocessing
import os
import re
import subprocess

from tracks import INFO

JOB = "jobledger"
BLOCK = 7200
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LOOKS_BACK = re.compile(r"\b([a-zA-Z_][\w:]*)(?:\{[^}]*\})?\s*(?:\[(\d+)([smhd])\]|offset (\d+)([smhd]))")
# Recorded over a day (rules/recording/waste.yaml, totals.yaml, jobs.yaml), and the counters that each is the sum of.
DAILY = {
    "jobid_instance:jobledger_job_gpu_allocated_seconds:sum": {"jobledger_job_gpu_allocated_seconds_total"},
    "jobid_instance:jobledger_job_gpu_idle_seconds:sum": {"jobledger_job_gpu_idle_seconds_total"},
    "jobid_instance:jobledger_job_total_energy_joules:sum": {"jobledger_job_energy_joules_total", "jobledger_job_gpu_energy_joules_total"},
    "jobid_instance:jobledger_job_cpu_seconds:sum": {"jobledger_job_cpu_seconds_total"},
}
ALLOCATED, UNUSED = ("jobid_instance:jobledger_job_allocated_cpu_seconds:sum", "jobid_instance:jobledger_job_unused_cpu_seconds:sum")
STARTED = "jobid_instance:jobledger_job_start_time_seconds:max"
OWNER = "jobid:jobledger_job_owner:info"


def windows(rule_files):
    """How far back rules look, {metric: seconds}."""
    found = {}
    for path in rule_files:
        for name, window, unit, offset, offset_unit in LOOKS_BACK.findall(path.read_text()):
            seconds = int(window or offset) * UNITS[unit or offset_unit]
            found[name] = max(seconds, found.get(name, 0))
    return found


class Backfill:
    """The past of a cluster until `until`: all of it for `all_for` seconds, and what rules look at for as long as they do."""

    def __init__(self, cluster, until, interval, all_for, rule_files=(), daily=False):
        self.cluster, self.until, self.interval, self.all_for = cluster, until, interval, all_for
        self.daily = daily
        self.looked_at = {name: seconds for name, seconds in windows(rule_files).items()
                          if seconds > all_for and (daily or ":" not in name)}

    def write(self, promtool, directory, processes=2):
        """Makes the blocks in `directory`; answers how many samples."""
        oldest = self.until - max([self.all_for, *self.looked_at.values()])
        first = int(oldest // BLOCK) * BLOCK
        spans = [(max(oldest, begin), min(self.until, begin + BLOCK)) for begin in range(first, int(self.until) + 1, BLOCK)]
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            work = [pool.apply_async(self._block, (promtool, directory, *span)) for span in reversed(spans) if span[0] < span[1]]
            return sum(each.get() for each in work)

    def _block(self, promtool, directory, begin, end):
        path = directory / f"past-{int(begin)}.om"
        count = 0
        with path.open("w") as file:
            for node in range(self.cluster.count):
                for lines in self.lines(node, begin, end):
                    count += len(lines)
                    file.writelines(lines)
            if self.daily:
                for lines in self._owners(begin, end):
                    count += len(lines)
                    file.writelines(lines)
            file.write("# EOF\n")
        if count:
            command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(path), str(directory)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{path}: {done.stdout[-2000:]}")
        os.unlink(path)
        return count

    def lines(self, node, begin, end):
        """Lines of a node, a list for each scrape."""
        cluster = self.cluster
        target = f'cluster="scale",instance="{cluster.instance(node)}",job="{JOB}"'
        labelled = {}
        at = begin + (node * 7.3) % self.interval
        while at < end:
            names = self._names(at)
            lines = []
            if names is None or names:
                for _, series, value in cluster.samples(node, at, names):
                    text = labelled.get(series)
                    if text is None:
                        text = labelled[series] = with_labels(series, target)
                    lines.append(f"{text} {value} {at:.3f}\n")
            yield lines
            at += self.interval
        if self.daily:
            yield from self._sums(node, target, begin, end)

    def _names(self, at):
        """Which families are written of a time; None is all."""
        if at >= self.until - self.all_for:
            return None
        return frozenset(name for name, seconds in self.looked_at.items() if at >= self.until - seconds)

    def _sums(self, node, target, begin, end):
        """What rules/recording/totals.yaml recorded of a node's jobs, once a minute."""
        cluster = self.cluster
        for slot in cluster.of_node[node]:
            track, shift = slot.track, cluster.shift(node, slot)
            families = {name for name, *_ in track.series}
            (cpus,) = [int(texts[0]) for name, _, _, texts, _ in track.series if name == "jobledger_job_cpus"]
            for at in range(int(begin // 60 + 1) * 60, int(end), 60):
                lines = []
                for generation, start, stop in slot.jobs(at):
                    age = min(at, stop) - start
                    labels = f'{{{target},jobid="{cluster.jobid(slot, generation)}"}}'
                    values = {name: track.total(of, age, shift) for name, of in DAILY.items() if of & families}
                    values[STARTED] = start
                    values[ALLOCATED] = cpus * age
                    values[UNUSED] = max(0.0, cpus * age - values["jobid_instance:jobledger_job_cpu_seconds:sum"])
                    lines += [f"{name}{labels} {value!r} {at}\n" for name, value in values.items() if name in self.looked_at]
                yield lines

    def _owners(self, begin, end):
        """What rules/recording/jobs.yaml recorded of whose jobs are."""
        cluster = self.cluster
        for slot in cluster.slots:
            partition = next(text.partition('partition="')[2].partition('"')[0] for name, text, *_ in slot.track.series if name == INFO)
            for at in range(int(begin // 60 + 1) * 60, int(end), 60):
                lines = []
                for generation, _, _ in slot.jobs(at):
                    jobid = cluster.jobid(slot, generation)
                    user, account, _ = cluster.owner(jobid)
                    lines.append(f'{OWNER}{{cluster="scale",job="{JOB}",jobid="{jobid}",user="{user}",account="{account}",'
                                 f'partition="{partition}"}} 1 {at}\n')
                yield lines


def with_labels(series, labels):
    return f"{series[:-1]},{labels}}}" if series.endswith("}") else f"{series}{{{labels}}}"
