"""The cases: what is done to an exporter while it is scraped. Run as a program it prints a table (`make abuse`).

    cases.py [--seconds N]

Each case has a fresh exporter, so that no login is remembered.
"""

import argparse
import contextlib
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import attacks  # noqa: E402
import servers  # noqa: E402
from scraper import Scraper  # noqa: E402
from testbed.processes import scratch, wait_for  # noqa: E402

# Seconds.
LEAD = 1


@dataclasses.dataclass(frozen=True)
class Case:
    """`attack` is called with the port, and with the collectors of the exporter where it has filters."""

    title: str
    attack: Callable
    secure: bool = False
    filters: bool = False
    # A login that was made before the attack is remembered.
    known: bool = False


def guesses(port, count, user=None, each_new=False):
    flood = attacks.one_guess_per_connection if each_new else functools.partial(attacks.busy_clients, paths=lambda: "/")
    flood(port=port, count=count, headers=lambda: attacks.guess(user), tls=attacks.trusting())


def case(title, attack, count, **options):
    extra = {key: options.pop(key) for key in ("user", "each_new") if key in options}
    return Case(title, functools.partial(attack, count=count, **extra), **options)


# What the web server has to withstand.
SERVER = [
    case("600 half heads", attacks.half_heads, 600),
    case("1400 half heads", attacks.half_heads, 1400),
    case("200 half handshakes", attacks.half_handshakes, 200, secure=True, known=True),
    case("700 half handshakes", attacks.half_handshakes, 700, secure=True, known=True),
    case("45 clients that do not read", attacks.lazy_readers, 45),
    case("60 plain clients", attacks.plain, 60),
    case("40 guess users and passwords", guesses, 40, secure=True),
    case("40 guess the scraper's password", guesses, 40, secure=True, user=servers.USER),
    case("12 guess it over a new connection each", guesses, 12, secure=True, user=servers.USER, each_new=True),
]
# What collecting has to withstand.
COLLECTING = [
    case("4 clients that wait for 1 ms", attacks.in_a_hurry, 4),
    case("38 clients with other filters each", attacks.with_filters, 38, filters=True),
]


def suffer(exporter, case, seconds):
    """Scrapes an exporter for some seconds while it is attacked; the scraper knows how it went."""
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(scratch("jobledger-abuse"))
        config = servers.web_config(work) if case.secure else None
        tls, login, helper = (attacks.trusting(), servers.LOGIN, servers.HELPER) if case.secure else (None, None, None)
        port = stack.enter_context(servers.serving(exporter, work, config))
        scraper = stack.enter_context(contextlib.closing(Scraper(port, tls, login)))
        first = stack.enter_context(contextlib.closing(Scraper(port, tls, helper)))
        wait_for(f"{exporter.name} answers", lambda: first.scrape(kept=False) == "200")
        if case.known or not case.secure:
            scraper.scrape(kept=True)
        attack = functools.partial(case.attack, names=exporter.collectors) if case.filters else case.attack
        stack.enter_context(attacks.under(attack, port))
        # The attackers come first.
        time.sleep(LEAD)
        scraper.run(seconds)
        return scraper


def summary(scraper):
    outcomes = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(scraper.outcomes.items()))
    return f"{scraper.worst:.2f} s; {outcomes}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="how long each attack takes")
    seconds = parser.parse_args().seconds
    print("| attack | jobledger: worst; outcomes | node_exporter |\n|---|---|---|")
    for case in SERVER + COLLECTING:
        ours = summary(suffer(servers.Ours, case, seconds))
        theirs = summary(suffer(servers.Theirs, case, seconds)) if servers.NODE_EXPORTER else "not installed"
        print(f"| {case.title} | {ours} | {theirs} |", flush=True)


if __name__ == "__main__":
    main()
