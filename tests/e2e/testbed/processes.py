"""Child processes that cannot outlive the harness, and the removal of what they leave."""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """A failure of a test bed or a scenario."""


class Lost(Exception):
    """The bed's machine does not respond any more."""


def die_with_parent(parent, number):
    """Makes the kernel send this process a signal when the thread of `parent` that forked it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def spawn(argv, log, **options):
    """Starts `argv` in a session of its own; the kernel kills it when the harness dies.

    To be called from the main thread only: the kernel takes the end of the calling thread for the parent's.
    """
    harness = os.getpid()
    with open(log, "ab") as output:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                start_new_session=True,
                                preexec_fn=lambda: die_with_parent(harness, signal.SIGKILL), **options)


def stop(process, number=signal.SIGTERM, grace=10):
    """Ends a process of `spawn` by a signal, and by force if that does not help."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running(argv, log, end=signal.SIGTERM, **options):
    """`spawn` for a with block; the signal `end` ends the process."""
    process = spawn(argv, log, **options)
    try:
        yield process
    finally:
        stop(process, end)


@contextlib.contextmanager
def scratch(name, cgroups=()):
    """A temporary directory that is removed at the end, and the empty cgroups of the given names with it.

    A watcher in a session of its own does the removing when its pipe closes: at the end of the block, or when
    the harness is killed.
    """
    directory = pathlib.Path(tempfile.mkdtemp(prefix=name + "-"))
    directory.chmod(0o755)
    janitor = subprocess.Popen(
        [sys.executable, "-B", str(pathlib.Path(__file__).with_name("janitor.py")), str(directory), *cgroups],
        stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield directory
    finally:
        janitor.stdin.close()
        if janitor.wait() != 0:
            raise Failure(f"{name}: not everything could be removed")


def free_ports(count):
    """Free TCP ports of the loopback address. Within a minute no other process gets them, unless it asks for the number.

    Each has had a connection that its listener's side closed first. A port in TIME_WAIT is what the kernel gives to nobody who
    asks for any, but a server, which sets SO_REUSEADDR, may listen on it (net/ipv4/inet_connection_sock.c).
    """
    ports = []
    for _ in range(count):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            with socket.create_connection(listener.getsockname()):
                listener.accept()[0].close()
            ports.append(listener.getsockname()[1])
    return ports


def connects(port):
    """Whether a server listens on a port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


# Seconds without any progress after which a wait fails, and the longest wait.
QUIET, LONGEST = 60, 600
# Between two questions of a wait.
_MOST_PAUSE = 3


def wait_for(what, condition, quiet=QUIET, interval=0.25):
    """Polls `condition` until it returns a true value, and returns that.

    It waits for progress: it fails after `quiet` seconds in which no process that descends from this one ran. While one runs,
    waits for a CPU or waits for a disk, time does not count, so a busy machine is late for nothing. A condition that raises Failure or
    OSError is asked again; another such error than before is progress, and the last is part of the report. Between two questions is
    twice the time that the first took: on an emulated machine they are the work that is waited for.
    """
    begun, last, still, pause = time.monotonic(), "", 0, interval
    while True:
        asked = time.monotonic()
        try:
            value = condition()
            if value:
                return value
        except (Failure, OSError) as error:
            if (seen := f" ({error})") != last:
                last, still = seen, 0
        now = time.monotonic()
        if is_quiet():
            # The time in the condition itself is this process's own work.
            still += pause
        if still >= quiet or now - begun >= max(LONGEST, 2 * quiet):
            raise Failure(f"waited {now - begun:.0f} s for {what}, nothing ran in {still:.0f} s{last}")
        pause = max(interval, min(2 * (now - asked), _MOST_PAUSE))
        time.sleep(pause)


def is_quiet():
    """Whether no thread of this process and its descendants runs or waits for a CPU or disk, except the caller."""
    waiting, own = ["self"], str(threading.get_native_id())
    while waiting:
        threads = []
        # A process, and a thread, may have ended meanwhile.
        with contextlib.suppress(OSError):
            threads = list(pathlib.Path("/proc", waiting.pop()).glob("task/*"))
        for thread in threads:
            with contextlib.suppress(OSError):
                if thread.name != own and (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD":
                    return False
                waiting += (thread / "children").read_text().split()
    return True


def cpu_seconds(process):
    """CPU seconds of a process so far, to the nanosecond: of its threads, which Go keeps (Documentation/scheduler/sched-stats.rst)."""
    return sum(int(path.read_text().split()[0]) for path in pathlib.Path(f"/proc/{process.pid}/task").glob("*/schedstat")) / 1e9


def exit_on_signals():
    """Turns SIGTERM and the like into SystemExit, so that all with blocks are left."""
    def leave(number, _frame):
        raise SystemExit(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
