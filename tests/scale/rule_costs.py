"""What each rule costs a Prometheus that has the data: CPU time of its process for one evaluation."""

import signal
import time

from testbed.processes import cpu_seconds, wait_for

# Of each rule at least so many evaluations.
LEAST = 4


def rule_costs(server, process, config, seconds=3.0):
    """A row for each rule of a server, the dearest first: CPU seconds of an evaluation, the group's interval, and what that is in cores.

    The server neither scrapes nor evaluates any more from now on: `config`, its file, is emptied. Each rule is evaluated for some `seconds`:
    garbage collection is a part of the cost, and comes once in a while.
    """
    groups, moment = server.get("rules")["groups"], time.time()
    config.write_text("global: {}\n")
    process.send_signal(signal.SIGHUP)
    wait_for("Prometheus to have no rules", lambda: not server.get("rules")["groups"], 60)
    rows = []
    for group in groups:
        for rule in group["rules"]:
            cost = _cost(server, process, rule["query"], moment, seconds)
            rows.append({"group": group["name"], "rule": rule["name"], "seconds": round(cost, 4), "interval": group["interval"],
                         "cores": round(cost / group["interval"], 5)})
    return sorted(rows, key=lambda row: -row["cores"])


def _cost(server, process, expression, moment, seconds):
    """CPU seconds of one evaluation. The result is counted, so that sending it costs nothing."""
    began, spent, times = time.monotonic(), cpu_seconds(process), 0
    while times < LEAST or time.monotonic() - began < seconds:
        server.get("query", query=f"count({expression})", time=f"{moment:.3f}")
        times += 1
    return (cpu_seconds(process) - spent) / times
