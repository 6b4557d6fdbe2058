"""Writes a cluster's past to a Prometheus' data directory, for rules that look back.

It has all families for the last minutes. For longer it has only series that some rule uses with a longer window or offset, and those
that rules record and look back at. promtool makes the blocks.
"""

import multiprocessing
import os
import re
import subprocess

from exposition import labels_of
from tracks import INFO

JOB = "jobledger"
BLOCK = 7200
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LOOKS_BACK = re.compile(r"\b([a-zA-Z_][\w:]*)(?:\{[^}]*\})?\s*(?:\[(\d+)([smhd])\]|offset (\d+)([smhd]))")
# Sums of counters that rules/recording/totals.yaml and booked.yaml record of each job on a node and look back at.
SUMS = {
    "gpu_allocated_seconds": {"jobledger_job_gpu_allocated_seconds_total"},
    "gpu_idle_seconds": {"jobledger_job_gpu_idle_seconds_total"},
    "total_energy_joules": {"jobledger_job_energy_joules_total", "jobledger_job_gpu_energy_joules_total"},
    "cpu_seconds": {"jobledger_job_cpu_seconds_total"},
}
OWNER = "jobid:jobledger_job_owner:info"


def windows(rule_files):
    """How far back rules look, {metric: seconds}."""
    found = {}
    for path in rule_files:
        for name, window, unit, offset, offset_unit in LOOKS_BACK.findall(re.sub(r"^\s*#.*", "", path.read_text(), flags=re.MULTILINE)):
            seconds = int(window or offset) * UNITS[unit or offset_unit]
            found[name] = max(seconds, found.get(name, 0))
    return found


class Backfill:
    """The past of a cluster until `until`: everything for `all_for` seconds, and series that rules look back at for their ranges."""

    def __init__(self, cluster, until, interval, all_for, rule_files=(), daily=False):
        self.cluster, self.until, self.interval, self.all_for = cluster, until, interval, all_for
        self.daily = daily
        self.looked_at = {name: seconds for name, seconds in windows(rule_files).items()
                          if seconds > all_for and (daily or ":" not in name)}

    def write(self, promtool, directory, processes=2):
        """Makes the blocks in `directory`; returns the number of samples."""
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
        """The lines of a node, a list for each scrape."""
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
        """The families that are written for a time; None for all."""
        if at >= self.until - self.all_for:
            return None
        return frozenset(name for name, seconds in self.looked_at.items() if at >= self.until - seconds)

    def _minutes(self, begin, end):
        """The minutes of a span, each with the recorded series that are written for it."""
        for at in range(int(begin // 60 + 1) * 60, int(end), 60):
            yield at, frozenset(name for name, seconds in self.looked_at.items() if ":" in name and at >= self.until - seconds)

    def _sums(self, node, target, begin, end):
        """The series of rules/recording/totals.yaml and booked.yaml of a node's jobs, once a minute."""
        cluster = self.cluster
        for at, names in self._minutes(begin, end):
            if not any(name.startswith("jobid_instance:") for name in names):
                continue
            lines = []
            for slot in cluster.of_node[node]:
                shift = cluster.shift(node, slot)
                for generation, start, stop in slot.jobs(at):
                    labels = f'{target},jobid="{cluster.jobid(slot, generation)}"'
                    used = _used(slot.track, min(at, stop) - start, shift)
                    values = {"told_time_seconds:max": (at, ""), "start_time_seconds:first": (start, ""), "cpu_seconds:sum": (used["cpu_seconds"], "")}
                    # The exporter started before any job.
                    since = f',since="{int(start)}"'
                    values |= {f"{kind}_time_seconds:life": (start, since) for kind in ("start", "counting_start")}
                    values |= {f"{name}:{what}": (value, since) for name, value in used.items() for what in ("life", "booked")}
                    lines += [f"{name}{{{labels}{more}}} {value!r} {at}\n" for name, value, more in
                              ((f"jobid_instance:jobledger_job_{name}", *each) for name, each in values.items()) if name in names]
            yield lines

    def _owners(self, begin, end):
        """The owners of jobs.yaml and their charges of booked.yaml. Each job is charged the same in every minute."""
        cluster = self.cluster
        slots = [(slot, *{labels_of(text)["partition"] for name, text, *_ in slot.track.series if name == INFO},
                  {name: value * len(slot.nodes) * 60 / slot.duration for name, value in _used(slot.track, slot.duration, 0).items()}) for slot in cluster.slots]
        for at, names in self._minutes(begin, end):
            lines, charged = [], {}
            for slot, partition, used in slots:
                for generation, _, stop in slot.jobs(at):
                    jobid = cluster.jobid(slot, generation)
                    user, account, _ = cluster.owner(jobid)
                    owner = f'{{cluster="scale",job="{JOB}",user="{user}",account="{account}",partition="{partition}"'
                    if OWNER in names:
                        lines.append(f'{OWNER}{owner},jobid="{jobid}"}} 1 {at}\n')
                    for name, value in used.items():
                        series = f"owner:jobledger_job_{name}:delta"
                        if series in names and at < stop:
                            charged[series + owner] = charged.get(series + owner, 0) + value
            yield lines + [f"{series}}} {value!r} {at}\n" for series, value in charged.items()]


def _used(track, age, shift):
    """What a job used on a node up to an age, by the names of rules/recording/totals.yaml."""
    families = {name for name, *_ in track.series}
    (cpus,) = [int(texts[0]) for name, _, _, texts, _ in track.series if name == "jobledger_job_cpus"]
    used = {name: track.total(of, age, shift) for name, of in SUMS.items() if of & families}
    allocated = cpus * age
    return used | {"allocated_cpu_seconds": allocated, "unused_cpu_seconds": max(0.0, allocated - used["cpu_seconds"])}


def with_labels(series, labels):
    return f"{series[:-1]},{labels}}}" if series.endswith("}") else f"{series}{{{labels}}}"
