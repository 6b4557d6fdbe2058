"""Reports of jobs with histories made by chance (job_histories.py): every number is the truth, or the report names a reason.

JOBLEDGER_HISTORIES=5000 makes more of them, JOBLEDGER_HISTORIES_SEED others. Needs Prometheus. sacct is a script.
"""

import collections
import json
import os
import re
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from job_histories import INTERVAL, accounting, histories, put_samples, truth
from tools import Ran, Samples, program, scratch, server_of

COUNT = int(os.environ.get("JOBLEDGER_HISTORIES", "500"))
SEED = os.environ.get("JOBLEDGER_HISTORIES_SEED", "38")

# It has the rows of a number in a file. Without --clusters it knows its own cluster.
SACCT = f"""#!{sys.executable} -IS
import json, os, sys
get = lambda name: next((each.split("=", 1)[1] for each in sys.argv if each.startswith(name + "=")), None)
path = os.path.join(os.path.dirname(__file__), "".join(c if c.isalnum() else "-" for c in get("--jobs")) + ".json")
rows = json.load(open(path)) if os.path.exists(path) else []
clusters = get("--clusters").split(",") if get("--clusters") else ["local", "alpha"]
rows = [row for row in rows if row["cluster"] in clusters]
for row in rows if "--duplicates" in sys.argv else rows[-1:]:
    print("".join(str(row.get(field, "")) + get("--delimiter") for field in get("--format").lower().split(",")))
"""

DAY = 86_400


def moment(at):
    """As --until takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


KNOWN = {"end_not_seen", "nodes_not_seen", "scrapes_missing", "counter_reset", "more_nodes_than_allocated", "held_less_than_elapsed", "cpus_changed", "accounting_disagrees", "suspended_unknown", "may_be_a_part",
         "nodes unchecked", "scrapes unchecked", "resets unchecked"}
# Whatever of a job was not seen.
NOT_SEEN = {"end_not_seen", "nodes_not_seen", "nodes unchecked", "may_be_a_part", "more_nodes_than_allocated"}
HELD = NOT_SEEN | {"held_less_than_elapsed", "cpus_changed", "suspended_unknown", "accounting_disagrees"}
# Reasons why a number may be another than the truth. Whose a job is, and which of its runs this is, has none.
EXCUSES = {
    "elapsed": {"end_not_seen", "held_less_than_elapsed", "may_be_a_part", "suspended_unknown"},
    "time_use": {"end_not_seen", "held_less_than_elapsed", "may_be_a_part", "suspended_unknown"},
    "nodes": {"nodes_not_seen", "nodes unchecked", "more_nodes_than_allocated"},
    "cpus": {"nodes_not_seen", "nodes unchecked", "held_less_than_elapsed", "more_nodes_than_allocated", "cpus_changed", "end_not_seen"},
    "cpu_seconds": NOT_SEEN | {"counter_reset", "held_less_than_elapsed"},
    "cpu_held": HELD,
    "cpu_use": HELD | {"counter_reset"},
    "memory_peak": NOT_SEEN,
    "gpu_held": HELD | {"counter_reset"},
    "gpu_busy": HELD | {"counter_reset", "scrapes_missing"},
    "gpu_idle": HELD | {"counter_reset", "scrapes_missing"},
    "energy": NOT_SEEN | {"counter_reset", "held_less_than_elapsed", "scrapes_missing"},
    "run": {"may_be_a_part"},
    "runs": {"may_be_a_part"},
}


def shown(document):
    """The numbers of a report, by the names of `truth`."""
    job, numbers = document["job"], document["numbers"]
    nodes = job["nodes"]
    total = lambda name: _sum(node["values"].get(name) for node in nodes)  # noqa: E731
    of_gpus = lambda name: _sum(gpu["values"].get(name) for node in nodes for gpu in node["gpus"])  # noqa: E731
    return {
        "user": job["identity"]["user"],
        "elapsed": numbers["elapsed_seconds"],
        "time_use": numbers["time_use"],
        "nodes": sorted(node["name"].removesuffix(".cluster") for node in nodes),
        "cpu_seconds": total("cpu_seconds"),
        "cpu_held": total("cpu_allocated_seconds"),
        "cpu_use": numbers["cpu_use"],
        "cpus": numbers["cpus"],
        "memory_peak": numbers["memory_peak_bytes"],
        "gpu_busy": of_gpus("gpu_busy_seconds"),
        "gpu_held": of_gpus("gpu_allocated_seconds"),
        "gpu_idle": numbers["gpu_idle_seconds"],
        "energy": numbers["energy_joules"],
        "run": job["run"],
        "runs": job["runs"],
        "state": job["ended"] and job["ended"]["state"],
    }


def _sum(values):
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def differences(history, run, document, now):
    """What a report has otherwise than the truth: {name: (truth, shown)}."""
    true, found = truth(history, run, now), shown(document)
    elapsed = true["elapsed"]
    # Clocks, seconds of SLURM's records; of a job that runs, the time since the last scrape.
    seconds = (6 if "clocks_differ" in history.kinds else 1.5) + (0 if run.end else 1.5 * INTERVAL)
    whole = sum(b - a for a, b in run.suspended) / elapsed
    # Runs of which the server has nothing may be counted.
    unseen = {len(history.runs) - at for at, each in enumerate(history.runs) if each.start < history.kept_from} | {len(history.runs)}
    # Without the count of requeues and without SLURM's records, another job of the same user looks like a run.
    if not history.prolog and not history.accounting:
        unseen |= {len(history.runs) + len([other for other in history.others if (other.user, other.cluster) == (history.user, history.cluster)])}
    wrong = {}
    for name, value in true.items():
        got = found[name]
        if name in ("run", "runs"):
            right = got == value or not history.kept_from and got - value in {each - len(history.runs) for each in unseen} or history.kept_from and got in {value - at for at in range(len(unseen))}
        elif name == "state":
            right = value is None or got == value
        elif value is None or isinstance(value, (str, list)):
            right = got == value or (name in ("time_use", "gpu_idle", "gpu_busy", "gpu_held") and not value and not got)
        elif name == "cpus" and not run.end:
            # They may have changed since the last scrape.
            right = got in {sum(place.cpus[min(at, len(place.cpus) - 1)][1] for place in run.places) for at in range(9)}
        elif got is None:
            # Of what was in no scrape while it ran, some is not known.
            right = elapsed < 1.5 * INTERVAL and name in ("cpus", "cpu_use", "gpu_busy", "gpu_idle", "gpu_held", "energy")
        else:
            allowed = 0.003 * value + abs(value) * seconds / max(elapsed, 1)
            # On a node a counter of time held goes on while the job is suspended.
            others = [value * (1 + whole)] if name in ("cpu_held", "gpu_held") else []
            right = any(abs(got - each) <= allowed for each in [value, *others])
        if not right:
            wrong[name] = (value, got)
    return wrong


class Verdict:
    """What became of a report: it is right and says so, right and says less, names a reason for what is not, or is wrong."""

    def __init__(self, history, run, status, document, error, now):
        self.history, self.run, self.error, self.wrong = history, run, error, {}
        quality = document["quality"] if document else {"reasons": (), "unchecked": ()}
        self.reasons = {each["reason"] for each in quality["reasons"]} | {f"{what} unchecked" for what in quality["unchecked"]}
        if not document:
            # One that was lost before its first scrape is not known to the server.
            self.word = "reason" if status == 3 and {"is_lost", "short"} <= history.kinds else "wrong"
            return
        different = differences(history, run, document, now)
        self.wrong = {name: values for name, values in different.items() if not self.reasons & EXCUSES.get(name, set())}
        if bool(self.reasons) == quality["exact"] or not self.reasons <= KNOWN:
            self.wrong["exact"] = (not self.reasons, quality["exact"])
        self.word = "wrong" if self.wrong else "reason" if different else "careful" if self.reasons else "exact"

    def __str__(self):
        history, number = self.history, self.history.runs.index(self.run) + 1
        values = "; ".join(f"{name} is {_short(true)}, shown {_short(got)}" for name, (true, got) in self.wrong.items())
        facts = [name for name, is_so in (("accounting", history.accounting), ("prolog", history.prolog)) if is_so]
        return f"{history.number} run {number} of {len(history.runs)} ({', '.join(sorted(history.kinds))}; {', '.join(facts) or 'no facts'}): {values or self.error} [{', '.join(sorted(self.reasons)) or 'no reason'}]"


def _short(value):
    return f"{value:.6g}" if isinstance(value, float) else value


class JobHistories(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Steps of queries are multiples of a time: at the same time of a day all is the same.
        cls.now = time.time() // DAY * DAY
        cls.histories = histories(COUNT, SEED, cls.now)
        cls.program = program()
        cls.directory = cls.enterClassContext(scratch("jobledger-histories"))
        samples = Samples()
        for history in cls.histories:
            put_samples(samples, history, cls.now)
            rows = accounting(history, cls.now)
            for name in {row[key] for row in rows for key in ("jobid", "jobidraw")}:
                (cls.directory / (re.sub(r"\W|_", "-", name) + ".json")).write_text(json.dumps([row for row in rows if name in (row["jobid"], row["jobidraw"])]))
        (cls.directory / "sacct").write_text(SACCT)
        (cls.directory / "sacct").chmod(0o755)
        (cls.directory / "c.toml").write_text(f'[slurm]\nsacct = "{cls.directory}/sacct"\nclusters = {{ alpha = "alpha", beta = "beta" }}\n')
        cls.server = cls.enterClassContext(server_of(samples))

    def report(self, history, *arguments):
        name = "{}_{}".format(*history.array) if history.array and history.prolog else str(history.number)
        cluster = [f"--cluster={history.cluster}"] if history.cluster else []
        return Ran(self.program, f"http://{self.server.address}", f"--config={self.directory}/c.toml", "report", "--format=json", f"--until={moment(self.now)}", name, *cluster, *arguments)

    def verdicts(self, history):
        """Of the last run, and by its number of each run that the server has whole."""
        seen = [run for run in history.runs if run.start >= history.kept_from]
        asked = [(history.runs[-1], [])]
        if len(seen) == len(history.runs) > 1 and not any("number_of" in kind for kind in history.kinds):
            asked += [(run, [f"--run={at}"]) for at, run in enumerate(seen, 1)]
        for run, arguments in asked:
            ran = self.report(history, *arguments)
            document = ran.json() if ran.status in (0, 4) else None
            yield Verdict(history, run, ran.status, document, ran.err.strip(), self.now)

    def test_each_number_is_the_truth_or_has_its_reason(self):
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [verdict for of_one in pool.map(lambda history: list(self.verdicts(history)), self.histories) for verdict in of_one]
        table = collections.defaultdict(collections.Counter)
        for verdict in found:
            for kind in [*verdict.history.kinds, "all"]:
                table[kind][verdict.word] += 1
        words = ("exact", "careful", "reason", "wrong")
        print("\n" + f"{'':26}{'reports':>8}" + "".join(f"{word:>9}" for word in words))
        for kind in sorted(table, key=lambda kind: (kind == "all", kind)):
            print(f"{kind:26}{sum(table[kind].values()):8}" + "".join(f"{table[kind][word]:9}" for word in words))
        wrong = [str(verdict) for verdict in found if verdict.word == "wrong"]
        self.assertEqual(wrong, [], f"{len(wrong)} of {len(found)} are wrong, seed {SEED}:\n" + "\n".join(wrong[:60]))
        self.assertEqual({verdict.word for verdict in found if verdict.history.kinds == {"plain"} and verdict.history.prolog}, {"exact"})


if __name__ == "__main__":
    unittest.main()
