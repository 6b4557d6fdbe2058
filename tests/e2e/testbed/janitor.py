"""janitor.py DIRECTORY [CGROUP...]: waits for the end of its standard input, then removes these.

CGROUP is the name of a directory directly below a cgroup v1 hierarchy. Processes are not ended here: the program that
started them ends them with itself, so they are gone or about to go.
"""

import glob
import os
import shutil
import signal
import sys
import time


def remove_cgroups(names, patience=20):
    """Removes the cgroups from the leaves up, and waits until their processes have exited."""
    deadline = time.monotonic() + patience
    while True:
        left = [path for name in names for path in glob.glob("/sys/fs/cgroup/*/" + glob.escape(name))]
        for root in left:
            for directory, _, _ in os.walk(root, topdown=False):
                try:
                    os.rmdir(directory)
                except OSError:
                    pass
        left = [path for path in left if os.path.isdir(path)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directory, *cgroups = sys.argv[1:]
    sys.stdin.buffer.read()
    left = remove_cgroups(cgroups)
    shutil.rmtree(directory, ignore_errors=True)
    if left:
        sys.exit("cgroups left: " + " ".join(left))


main()
