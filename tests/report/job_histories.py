"""Histories of jobs made by chance, as samples that exporters give of them, and the truth of each: what SLURM and the kernels would say.

A history is a job: its runs, and where each ran. Events are functions that change a history; `histories` puts some of them on each. The
truth follows from the events, not from the samples, and knows nothing of the program that is tested.
"""

import random
import string
import time
from dataclasses import dataclass, field

GIB = 1 << 30
MINUTE, HOUR = 60, 3600
INTERVAL = 60
# --jobs.retention
RETAINED = 120
CPUS_OF_NODE = 16
WATTS, GPU_WATTS = 100, 300
# Samples of what runs go on for so long after the server is started.
AHEAD = 15 * MINUTE


@dataclass
class Place:
    """A run on a node. Times are true ones; the node's clock may be wrong."""

    node: str
    begins: float
    ends: float | None
    use: float
    cpus: list  # of (from when on, how many)
    gpus: list  # of busy parts
    peak: int
    clock: float = 0
    # When the job had no cgroup there; when the exporter was not scraped; when it did not run, with its state kept; when it was started without its state.
    pauses: list = field(default_factory=list)
    unseen: list = field(default_factory=list)
    down: list = field(default_factory=list)
    resets: list = field(default_factory=list)
    # From when on the target has another name.
    renamed: float | None = None
    has_exporter: bool = True
    # The node itself is gone from then on.
    dead: float | None = None


@dataclass
class Run:
    start: float
    end: float | None
    submit: float
    places: list
    state: str = "COMPLETED"
    restarts: int = 0
    suspended: list = field(default_factory=list)

    def was_active(self, begin, end):
        """Seconds between two times in which it was not suspended."""
        return max(0, end - begin) - overlap(self.suspended, begin, end)

    def elapsed(self, now):
        """As SLURM counts it."""
        return self.was_active(self.start, self.end or now)


@dataclass
class History:
    number: int
    user: str
    uid: int
    runs: list
    limit: int
    kinds: set = field(default_factory=set)
    cluster: str = ""
    array: tuple = ()
    leader: int = 0
    # SLURM's accounting knows it. The prolog said what it can: nodes, limit, restarts.
    accounting: bool = False
    prolog: bool = True
    replicas: tuple = ("",)
    # The server has nothing from before.
    kept_from: float = 0
    # Jobs that had the number before, and the one of the other cluster.
    others: list = field(default_factory=list)


def overlap(spans, begin, end):
    return sum(max(0, min(end, b) - max(begin, a)) for a, b in spans)


def spans_of(place, now):
    """When the job had a cgroup there."""
    edges = [place.begins, *[at for pause in place.pauses for at in pause], place.ends or now + AHEAD]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2]) if end > begin]


def held(place, begin, end):
    """CPU seconds of the CPUs that it had between two times."""
    ends = [at for at, _ in place.cpus[1:]] + [end]
    return sum(count * max(0, min(end, until) - max(begin, at)) for (at, count), until in zip(place.cpus, ends))


# Events, in the order in which they are put on a history. One that does not fit returns False.


def last_ended(history):
    return history.runs[-1] if history.runs[-1].end else None


def again(history, chance, elsewhere=False):
    """Another run, after the last one."""
    before = last_ended(history)
    if not before:
        return False
    before.state, gap = chance.choice(["REQUEUED", "PREEMPTED"]), chance.randint(150, 400)
    start = before.end + gap
    end = start + chance.randint(8, 40) * MINUTE
    use = round(chance.uniform(0.1, before.places[0].cpus[0][1] * 0.95), 2)
    nodes = [f"{place.node}{'z' if elsewhere else ''}" for place in before.places]
    places = [Place(node, start, end, use, [(start, old.cpus[0][1])], [round(chance.random(), 2) for _ in old.gpus], chance.randint(1, 7) * GIB) for node, old in zip(nodes, before.places)]
    history.runs.append(Run(start, end, before.end, places, restarts=before.restarts + 1))


def requeue(history, chance):
    return again(history, chance)


def requeue_elsewhere(history, chance):
    return again(history, chance, elsewhere=True)


def node_fails(history, chance):
    """A node dies; SLURM notices it minutes later, and the job begins again on other nodes."""
    run = last_ended(history)
    if not run or run.end - run.start < 12 * MINUTE:
        return False
    dies = run.start + chance.uniform(0.2, 0.6) * (run.end - run.start)
    noticed = dies + chance.randint(60, 300)
    run.end = noticed
    for place in run.places:
        place.ends = noticed
    dead = chance.choice(run.places)
    dead.dead = dies
    again(history, chance, elsewhere=True)
    run.state = "NODE_FAIL"


def number_comes_again(history, chance, user, uid, name):
    """The number was another job's, some hours before."""
    first = history.runs[0]
    end = min(run.start for each in [history, *history.others] for run in each.runs) - chance.randint(20, 90) * MINUTE
    start = end - chance.randint(10, 40) * MINUTE
    same_node = chance.random() < 0.5
    place = Place(first.places[0].node if same_node else f"old{name}", start, end, round(chance.uniform(0.1, 3.5), 2), [(start, 4)], [0.5] * len(first.places[0].gpus), 9 * GIB)
    run = Run(start, end, start - chance.randint(5, 600), [place])
    history.others.append(History(history.number, user, uid, [run], history.limit, cluster=history.cluster, accounting=history.accounting, prolog=history.prolog, replicas=history.replicas))


def number_of_another_user(history, chance):
    number_comes_again(history, chance, "zoe", 1099, history.number)


def number_of_the_same_user(history, chance):
    number_comes_again(history, chance, history.user, history.uid, history.number)


def two_clusters(history, chance):
    """A job of the same number, at about the same time, on the other cluster, whose nodes have the same names."""
    run = history.runs[-1]
    start = run.start + chance.randint(-20, 20) * MINUTE
    end = min(start + chance.randint(8, 50) * MINUTE, time.time() - 5 * MINUTE)
    if end - start < 5 * MINUTE:
        return False
    history.cluster = chance.choice(["alpha", "beta"])
    for other in history.others:
        other.cluster = history.cluster
    place = Place(run.places[0].node, start, end, 0.5, [(start, 2)], [], GIB)
    user, uid = chance.choice([("zoe", 1099), (history.user, history.uid)])
    other = History(history.number, user, uid, [Run(start, end, start - 30, [place], state="FAILED")], history.limit, cluster="beta" if history.cluster == "alpha" else "alpha", accounting=history.accounting, prolog=history.prolog)
    history.others.append(other)


def array(history, chance):
    history.array = (history.number - chance.choice([0, 3]), chance.randint(0, 999))


def het_job(history, chance):
    history.leader = history.number - 1


def suspend(history, chance):
    run = chance.choice(history.runs)
    if not run.end or run.end - run.start < 10 * MINUTE or run.state == "NODE_FAIL":
        return False
    begin = run.start + chance.uniform(0.1, 0.5) * (run.end - run.start)
    length = chance.uniform(0.2, 0.45) * (run.end - run.start)
    # Without SLURM's records a short pause is a program's own for all that is known.
    if not history.accounting and length < 12 * MINUTE:
        return False
    run.suspended.append((begin, begin + length))


def salloc_with_pauses(history, chance):
    """The cgroup of a job goes with its last step and comes with the next one, where no external step holds it. With accounting it is there late, too."""
    run = chance.choice(history.runs)
    if not run.end or run.end - run.start < 20 * MINUTE or run.state == "NODE_FAIL" or run.suspended:
        return False
    length = run.end - run.start
    for place in run.places:
        place.pauses = [(run.start + 0.3 * length, run.start + chance.uniform(0.45, 0.55) * length)]
        if history.accounting and chance.random() < 0.5:
            place.begins = run.start + chance.uniform(0.05, 0.2) * length


def comes_late(history, chance):
    """The first step on a node starts later."""
    run = chance.choice(history.runs)
    if len(run.places) < 2 or not run.end or run.places[-1].pauses:
        return False
    run.places[-1].begins = run.start + chance.uniform(0.2, 0.6) * (run.end - run.start)


def clocks_differ(history, chance):
    for run in history.runs:
        for place in run.places:
            place.clock = chance.uniform(-2.5, 2.5)


def cpus_change(history, chance):
    """scontrol update takes some of the CPUs away."""
    run = chance.choice(history.runs)
    for place in run.places:
        (at, count), end = place.cpus[0], run.end or time.time()
        if count < 2:
            return False
        place.cpus.append((run.start + chance.uniform(0.3, 0.7) * (end - run.start), count // 2))
        place.use = min(place.use, count // 2)


def never_seen(history, chance):
    """No exporter runs on one of its nodes."""
    run = chance.choice(history.runs)
    if len(run.places) < 2:
        return False
    run.places[-1].has_exporter = False


def is_lost(history, chance):
    """An exporter is not scraped any more, for good; the job goes on."""
    run = history.runs[-1]
    place = chance.choice(run.places)
    end = run.end or time.time() - 5 * MINUTE
    place.unseen.append((run.start + chance.uniform(0.2, 0.9) * (end - run.start), float("inf")))


def gap(history, chance):
    """Scrapes fail for a while: the exporter goes on."""
    place = chance.choice(chance.choice(history.runs).places)
    end = place.ends or time.time() - 10 * MINUTE
    begin = place.begins + chance.uniform(0.2, 0.5) * (end - place.begins)
    place.unseen.append((begin, begin + chance.uniform(0.1, 0.4) * (end - place.begins)))


def exporter_is_down(history, chance):
    """It is restarted with its state some minutes later: nobody counts the GPUs' time meanwhile."""
    place = chance.choice(chance.choice(history.runs).places)
    end = place.ends or time.time() - 10 * MINUTE
    if place.pauses or end - place.begins < 8 * MINUTE:
        return False
    begin = place.begins + chance.uniform(0.2, 0.5) * (end - place.begins)
    place.down.append((begin, begin + chance.uniform(0.1, 0.4) * (end - place.begins)))
    place.unseen.append(place.down[-1])


def begins_anew(history, chance):
    """The exporter is started without its state: what it counts itself begins at 0."""
    place = chance.choice(chance.choice(history.runs).places)
    end = place.ends or time.time() - 2 * MINUTE
    place.resets.append(place.begins + chance.uniform(0.1, 0.9) * (end - place.begins))


def is_renamed(history, chance):
    """The target has another name from some time on."""
    place = chance.choice(history.runs[-1].places)
    end = place.ends or time.time() - 3 * MINUTE
    place.renamed = place.begins + chance.uniform(0.2, 0.8) * (end - place.begins)


def is_kept_shorter(history, chance):
    """The server has forgotten the beginning."""
    run = history.runs[-1]
    if not run.end or history.others:
        return False
    history.kept_from = run.start + chance.uniform(0.2, 0.7) * (run.end - run.start)


def two_replicas(history, chance):
    history.replicas = ("a", "b")
    for other in history.others:
        other.replicas = history.replicas


EVENTS = [requeue, requeue_elsewhere, node_fails, suspend, salloc_with_pauses, comes_late, cpus_change, clocks_differ, never_seen, number_of_another_user, number_of_the_same_user, two_clusters,
          array, het_job, exporter_is_down, gap, is_lost, begins_anew, is_renamed, is_kept_shorter, two_replicas]


def plain(number, chance, now):
    """A job without any event: some are short, some still run."""
    kind = chance.choices(["ended", "short", "running"], [8, 1, 1])[0]
    length = {"ended": lambda: chance.randint(15, 100) * MINUTE + chance.random() * 60, "short": lambda: chance.uniform(2, 90), "running": lambda: chance.randint(20, 80) * MINUTE}[kind]()
    start = now - (length if kind == "running" else chance.uniform(length + 3 * HOUR, 7 * HOUR))
    start = round(start, 3)
    end = None if kind == "running" else round(start + length, 3)
    cpus, gpus = chance.choice([1, 2, 4, 8, 16]), chance.choice([0, 0, 1, 2])
    use = round(chance.uniform(0.05, 0.98) * cpus, 2)
    nodes = [f"h{number}{letter}" for letter in string.ascii_lowercase[:chance.choice([1, 1, 2, 3])]]
    places = [Place(node, start, end, use, [(start, cpus)], [round(chance.random(), 2) for _ in range(gpus)], chance.randint(1, 7) * GIB) for node in nodes]
    run = Run(start, end, start - chance.randint(1, 900), places, state=chance.choice(["COMPLETED", "FAILED", "TIMEOUT"]) if end else "RUNNING")
    user, uid = chance.choice([("alice", 1001), ("bob", 1002), ("carol", 1003)])
    history = History(number, user, uid, [run], limit=chance.choice([60, 120, 480]), accounting=chance.random() < 0.5, prolog=chance.random() < 0.85)
    history.kinds.add(kind if kind != "ended" else "plain")
    return history


def histories(count, seed, now):
    """So many of them, by a seed: of each kind of event about as many, alone and with others."""
    found = []
    for at in range(count):
        chance = random.Random(f"{seed} {at}")
        history = plain(100_000 + 10 * at, chance, now)
        wanted = {EVENTS[at % len(EVENTS)]} if at % 25 else set()
        wanted |= set(chance.sample(EVENTS, chance.choices([0, 1, 2], [6, 3, 1])[0])) if wanted else set()
        for event in EVENTS:
            if event in wanted and event(history, chance) is not False:
                history.kinds.discard("plain")
                history.kinds.add(event.__name__)
        found.append(history)
    return found


# The samples of a history.


def put_samples(samples, history, now):
    # Series have their samples in order of time.
    for one in [*reversed(history.others), history]:
        for run in one.runs:
            for place in run.places:
                if place.has_exporter:
                    for replica in one.replicas:
                        put_place(samples, one, run, place, replica, now)
    put_nodes(samples, history, now)


def label(history, node, renamed, replica):
    more = (f',cluster="{history.cluster}"' if history.cluster else "") + (f',replica="{replica}"' if replica else "")
    return f'instance="{node}{".cluster" if renamed else ""}:9810"{more}'


def scrapes(node, replica, begin, end):
    """When a node is scraped between two times."""
    first = random.Random(node + replica).random() * INTERVAL
    at = first + (begin - first) // INTERVAL * INTERVAL
    while at < end:
        if at >= begin:
            yield round(at, 3)
        at += INTERVAL


def is_seen(history, place, at):
    return at >= history.kept_from and not (place.dead and at >= place.dead) and not any(a <= at < b for a, b in place.unseen)


def put_nodes(samples, history, now):
    """What each node is, from before the first job there until after the last."""
    times = {}
    for one in [history, *history.others]:
        for run in one.runs:
            for place in run.places:
                if place.has_exporter:
                    times.setdefault((one.cluster, place.node), []).append((one, place))
    for (_, node), of in times.items():
        begin = min(place.begins for _, place in of) - 10 * MINUTE
        end = min(max(place.ends or now + AHEAD for _, place in of) + 15 * MINUTE, now + AHEAD)
        one = of[0][0]
        for replica in one.replicas:
            for at in scrapes(node, replica, begin, end):
                seen = all(is_seen(one, place, at) for one, place in of)
                renamed = any(place.renamed and at >= place.renamed for _, place in of)
                on = label(one, node, renamed, replica)
                if at >= history.kept_from:
                    samples.put("up", on + ',job="jobledger"', [at], int(seen))
                if seen:
                    for name, value in (("cpus", CPUS_OF_NODE), ("cores", CPUS_OF_NODE), ("memory_total_bytes", 64 * GIB)):
                        samples.put(f"jobledger_node_{name}", on, [at], value)


def put_place(samples, history, run, place, replica, now):
    shown_from, horizon = 0, now + AHEAD
    spans = spans_of(place, now)
    later = [begin for begin, _ in spans[1:]] + [min((p.begins for r in history.runs for p in r.places if p.node == place.node and r.start > run.start), default=horizon)]
    for (begin, end), following in zip(spans, later):
        # The end is in one scrape at least; then the next one takes its place.
        shown = [at for at in scrapes(place.node, replica, max(begin, shown_from), min(end + RETAINED, horizon))]
        after = [at for at in shown if at >= end]
        shown_from = max(following, after[0] + 1 if after else end)
        for at in shown:
            if at < shown_from and is_seen(history, place, at):
                put_sample(samples, history, run, place, replica, begin, end, at)


def put_sample(samples, history, run, place, replica, begin, end, at):
    """All that the exporter shows of a job at a time."""
    renamed = bool(place.renamed and at >= place.renamed)
    on = f'jobid="{history.number}",' + label(history, place.node, renamed, replica)
    until, has_ended = min(at, end), at >= end
    # What the exporter counts itself, and since when.
    since = max([begin, *[reset for reset in place.resets if begin < reset <= until]])

    def put(name, value, more=""):
        samples.put(f"jobledger_job_{name}", on + more, [at], round(value, 3))

    who = f',user="{history.user}",uid="{history.uid}"'
    if history.prolog:
        who += ',account="physics",partition="main",qos="normal",name="x"'
        who += f',array_job_id="{history.array[0]}",array_task_id="{history.array[1]}"' if history.array else ""
        who += f',het_job_id="{history.leader}"' if history.leader else ""
        put("nodes_asked", len(run.places))
        put("time_limit_seconds", history.limit * MINUTE)
        put("restarts", run.restarts)
    put("info", 1, who)
    put("start_time_seconds", begin + place.clock)
    if has_ended:
        put("end_time_seconds", end + place.clock)
    else:
        put("cpus", [count for begins, count in place.cpus if begins <= at][-1])
        put("gpus", len(place.gpus))
        put("memory_anon_bytes", place.peak * 0.9)
        put("memory_shmem_bytes", 0)
    # Its first value goes back to the job's start, with the CPUs of that moment.
    then = [count for begins, count in place.cpus if begins <= since][-1] if since > begin else place.cpus[0][1]
    put("allocated_cpu_seconds_total", then * (since - begin) + held(place, since, until))
    put("cpu_seconds_total", place.use * run.was_active(begin, until), ',mode="user"')
    put("memory_limit_bytes", 8 * GIB)
    put("memory_peak_bytes", place.peak)
    put("energy_joules_total", WATTS * (until - since), ',domain="package",method="cpus_held_and_cpu_time",socket="0"')
    for index, busy in enumerate(place.gpus):
        gpu = f',gpu="{index}",uuid="GPU-{place.node}-{index}"'
        not_counted = overlap(place.down, since, until)
        active = run.was_active(since, until) - sum(run.was_active(max(a, since), min(b, until)) for a, b in place.down if min(b, until) > max(a, since))
        put("gpu_info", 1, gpu + f',model="H100",minor="{index}",profile="",shared="false"')
        put("gpu_allocated_seconds_total", until - since, gpu)
        put("gpu_energy_joules_total", GPU_WATTS * (until - since), gpu)
        put("gpu_busy_seconds_total", busy * active, gpu)
        put("gpu_idle_seconds_total", until - since - not_counted - busy * active, gpu)


# What is true.


def truth(history, run, now):
    """The numbers of a run, as SLURM and the kernels would give them."""
    end = run.end or now
    elapsed = run.elapsed(now)
    places = run.places
    spans = {id(place): [(a, min(b, now, place.dead or b)) for a, b in spans_of(place, now)] for place in places}
    active = lambda place: sum(run.was_active(a, b) for a, b in spans[id(place)])  # noqa: E731
    there = lambda place: sum(b - a for a, b in spans[id(place)] if b > a)  # noqa: E731
    used = sum(place.use * active(place) for place in places)
    of_cpus = sum(held(place, run.start, end) - sum(held(place, a, b) for a, b in run.suspended) for place in places)
    gpus = [(place, busy) for place in places for busy in place.gpus]
    busy = sum(part * active(place) for place, part in gpus)
    joules = sum(there(place) * (WATTS + GPU_WATTS * len(place.gpus)) for place in places)
    return {
        "user": history.user,
        "elapsed": elapsed,
        "time_use": elapsed / (history.limit * MINUTE) if history.prolog or history.accounting else None,
        "nodes": sorted(place.node for place in places),
        "cpu_seconds": used,
        "cpu_held": of_cpus,
        "cpu_use": used / of_cpus,
        "cpus": sum(place.cpus[-1][1] for place in places),
        "memory_peak": max(place.peak for place in places),
        "gpu_busy": busy if gpus else None,
        "gpu_held": elapsed * len(gpus) if gpus else None,
        "gpu_idle": elapsed * len(gpus) - busy if gpus else None,
        "energy": joules,
        "run": history.runs.index(run) + 1,
        "runs": len(history.runs),
        "state": run.state if history.accounting and run.end else None,
    }


def clock(seconds):
    days, seconds = divmod(round(seconds), 24 * HOUR)
    text = f"{seconds // HOUR:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{days}-{text}" if days else text


def accounting(history, now):
    """Rows of sacct for the number, with --duplicates; the latest is last."""
    rows = []
    for one in [*history.others, history]:
        for run in one.runs if one.accounting else ():
            suspended = sum(b - a for a, b in run.suspended)
            elapsed = round(run.elapsed(now))
            cpus = sum(place.cpus[-1][1] for place in run.places)
            shown = str(one.number)
            if one.array:
                shown = "{}_{}".format(*one.array)
            elif one.leader:
                shown = f"{one.leader}+{one.number - one.leader}"
            rows.append({
                "cluster": one.cluster or "local", "jobid": shown, "jobidraw": str(one.number), "user": one.user, "uid": str(one.uid), "account": "physics", "partition": "main", "qos": "normal",
                "submit": round(run.submit), "eligible": round(run.submit), "start": round(run.start), "end": round(run.end) if run.end else "Unknown", "state": run.state, "exitcode": "0:0",
                "timelimitraw": one.limit, "timelimit": clock(one.limit * MINUTE), "nnodes": len(run.places), "nodelist": ",".join(place.node for place in run.places), "alloccpus": cpus,
                "elapsedraw": elapsed, "elapsed": clock(elapsed), "suspended": clock(suspended), "suspendedraw": round(suspended), "cputimeraw": elapsed * cpus, "restarts": run.restarts, "jobname": "x",
            })
    return sorted(rows, key=lambda row: row["submit"])
