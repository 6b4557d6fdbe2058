#!/usr/bin/env python3
"""SLURM, the exporter, Prometheus with the rules, and Alertmanager, with a few jobs to look at: docs/tutorial.md.

Without --simulated SLURM is real: Debian's, in a virtual machine that is built from Debian packages on the first run (some
minutes; root, qemu). Everything listens on 127.0.0.1 and ends with this program."""

import argparse
import contextlib
import pathlib
import sys
import time

sys.dont_write_bytecode = True
REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(REPOSITORY / "tests/e2e"))

import play  # noqa: E402
import reports  # noqa: E402
import stack  # noqa: E402
import summary  # noqa: E402
from testbed import beds  # noqa: E402
from testbed.processes import Failure, exit_on_signals, free_ports, running, scratch, wait_for  # noqa: E402

_SIMULATED_SECONDS = 90


def main():
    options = _options()
    exit_on_signals()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            return _simulated(options) if options.simulated else _real(options)
    except Failure as error:
        print(f"demo: {error}\nWithout SLURM, root and qemu: --simulated", file=sys.stderr)
        return 1
    return 0


def _options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true", help="no SLURM: a simulated node with simulated jobs; needs no root "
                        "if Prometheus and Alertmanager are installed")
    parser.add_argument("--bed", choices=list(beds.ALL), default="vm-22.05-v2", help="where real SLURM runs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="end after so many rounds of jobs (default: on Ctrl-C)")
    parser.add_argument("--prometheus", choices=["2", "3"], default="2", help="which Prometheus (default: %(default)s)")
    parser.add_argument("--exporter", metavar="PATH", type=pathlib.Path, default=REPOSITORY / "target/release/jobledger-exporter")
    parser.add_argument("--simulator", metavar="PATH", type=pathlib.Path, default=REPOSITORY / "target/release/jobledger-demo",
                        help="the exporter on a simulated node, for --simulated (default: %(default)s)")
    parser.add_argument("--cli", metavar="PATH", type=pathlib.Path, default=REPOSITORY / "target/release/jobledger",
                        help="the program that reports jobs (default: %(default)s)")
    return parser.parse_args()


def _real(options):
    print(f"starting SLURM in {options.bed} ...", flush=True)
    with beds.ALL[options.bed]() as bed:
        with play.prologs(bed):
            address = bed.start_exporter(options.exporter.resolve())
            try:
                wait_for("the exporter to answer", lambda: _answers(bed, address), 120)
                with stack.start([address], options.prometheus) as servers:
                    print(f"{bed.run('slurmd -V').strip()}, {bed.cpus} CPUs, cgroup {bed.cgroup}")
                    play.print_addresses(address, servers)
                    balanced = play.rounds_of_jobs(bed, servers, options.cli, options.rounds)
            finally:
                bed.stop_exporter()
    return 0 if balanced else 1


def _answers(bed, address):
    bed.exporter = address
    return bed.scrape().samples


def _simulated(options):
    (port,) = free_ports(1)
    address, mails = f"127.0.0.1:{port}", 0
    with scratch("jobledger-demo-node") as directory:
        command = [str(options.simulator), "--collector.perf", f"--demo.directory={directory}", "--web.scrapers=127.0.0.1",
                   f"--web.listen-address={address}"]
        with running(command, directory / "exporter.log"), stack.start([address], options.prometheus) as servers:
            servers.prometheus.wait_scraped()
            print("a simulated node: no number is real (docs/demo.md)")
            play.print_addresses(address, servers)
            for _ in range(options.rounds or sys.maxsize):
                this = time.time()
                time.sleep(_SIMULATED_SECONDS)
                print(summary.table(summary.rows(servers.prometheus.query, "15m")))
                mails = play.print_alerts(servers, mails)
                reports.show(options.cli, servers.prometheus, this)
    return 0


if __name__ == "__main__":
    sys.exit(main())
