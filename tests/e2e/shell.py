#!/usr/bin/env python3
"""Starts a bed and runs each line of the input in it as root, for debugging. The end of input ends the bed."""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True

from testbed import beds  # noqa: E402
from testbed.processes import exit_on_signals  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bed", choices=list(beds.ALL), required=True)
    parser.add_argument("--exporter", metavar="PATH", help="also start this exporter")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="flags of the exporter, after --")
    options = parser.parse_args()
    exit_on_signals()
    with beds.ALL[options.bed]() as bed:
        print(f"logs: {bed.directory}, agent: {bed.agent.address}")
        if options.exporter:
            address = bed.start_exporter(pathlib.Path(options.exporter).resolve(), options.flags)
            print(f"exporter: http://{address}/metrics")
        print(f"every line runs in a new shell; users: {', '.join(bed.slurm.as_user(user) for user in bed.users)}")
        try:
            while True:
                rc, out, err = bed.agent.call(input(f"{bed.name}# "), timeout=600)
                print(out + err + (f"exit status {rc}\n" if rc else ""), end="")
        except (EOFError, KeyboardInterrupt):
            print()


if __name__ == "__main__":
    main()
