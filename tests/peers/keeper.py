#!/usr/bin/env python3
"""Kills processes when its input ends: those whose ids it was given, a line each.

The kernel forgets PR_SET_PDEATHSIG when a process becomes another user, as exporters do that were started as root.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys


@contextlib.contextmanager
def keeper():
    """Runs one for a with block: a function that gives it a process. It ends what is left when this process does, however that ends."""
    process = subprocess.Popen([sys.executable, "-B", str(pathlib.Path(__file__).resolve())], stdin=subprocess.PIPE, text=True, start_new_session=True)

    def keep(pid):
        process.stdin.write(f"{pid}\n")
        process.stdin.flush()

    try:
        yield keep
    finally:
        process.stdin.close()
        process.wait()


def main():
    kept = []
    for line in sys.stdin:
        # It may have ended already.
        with contextlib.suppress(ProcessLookupError):
            kept.append(os.pidfd_open(int(line)))
    for process in kept:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
