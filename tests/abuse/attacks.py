"""Hostile clients. Each attack is a function that goes on until its process is killed; `under` runs one for a with block."""

import base64
import contextlib
import http.client
import multiprocessing
import os
import random
import resource
import selectors
import signal
import socket
import ssl
import threading
import time

from testbed.processes import Failure, die_with_parent

HALF_A_HEAD = b"GET /metrics HTTP/1.1\r\nHost: no"
# A record of 512 bytes is announced, a ClientHello of 508 begins.
HALF_A_HELLO = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3])
PATIENCE = 15


@contextlib.contextmanager
def under(attack, *arguments):
    """Runs an attack in a process of its own, so that it takes no time from the victim's interpreter."""
    parent = os.getpid()

    def run():
        die_with_parent(parent, signal.SIGKILL)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        attack(*arguments)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    try:
        yield
        if not process.is_alive():
            raise Failure("the attack is over before its victim")
    finally:
        process.kill()
        process.join()


def says_and_waits(port, count, message):
    """Keeps `count` connections that send a message and nothing more. Each is replaced when it is closed."""
    selector = selectors.DefaultSelector()

    def connect():
        connection = socket.socket()
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.connect(("127.0.0.1", port))
        selector.register(connection, selectors.EVENT_WRITE)

    def replace(connection):
        selector.unregister(connection)
        connection.close()
        connect()

    for _ in range(count):
        connect()
    while True:
        for key, _ in selector.select(1):
            connection = key.fileobj
            if key.events == selectors.EVENT_WRITE:
                try:
                    connection.send(message)
                    selector.modify(connection, selectors.EVENT_READ)
                except OSError:
                    replace(connection)
            elif not received(connection):
                replace(connection)


def received(connection):
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def half_heads(port, count):
    says_and_waits(port, count, HALF_A_HEAD)


def half_handshakes(port, count):
    says_and_waits(port, count, HALF_A_HELLO)


def lazy_readers(port, count):
    """Ask for the metrics and read nothing; replaced after a while, also when they are not closed."""
    request = b"GET /metrics HTTP/1.1\r\nHost: node\r\nAccept: text/plain\r\n\r\n"

    def hold():
        while True:
            with contextlib.suppress(OSError), socket.socket() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                connection.settimeout(PATIENCE)
                connection.connect(("127.0.0.1", port))
                connection.sendall(request)
                wait_for_reset(connection)

    in_threads(count, hold)


def wait_for_reset(connection):
    """Until the other side has closed the connection: without reading, only a reset shows."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
        time.sleep(0.1)


def busy_clients(port, count, paths, headers, tls=None):
    """Ask all the time over connections that they keep. `paths` and `headers` are called for each request."""

    def ask():
        while True:
            try:
                with contextlib.closing(connect(port, tls, PATIENCE)) as connection:
                    answered = True
                    while answered:
                        connection.request("GET", paths(), headers=headers())
                        answer = connection.getresponse()
                        answer.read()
                        answered = not answer.will_close
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)

    in_threads(count, ask)


def one_guess_per_connection(port, count, headers, tls=None):
    """Guess passwords, each over a new connection."""
    busy_clients(port, count, lambda: "/", lambda: headers() | {"Connection": "close"}, tls)


def plain(port, count):
    busy_clients(port, count, lambda: "/metrics", dict)


def with_filters(port, count, names):
    """Each request asks for other collectors."""

    def path():
        wanted = random.sample(names, random.randint(1, len(names)))
        return "/metrics?" + "&".join(f"collect[]={name}" for name in wanted)

    busy_clients(port, count, path, lambda: {"X-Prometheus-Scrape-Timeout-Seconds": "10"})


def in_a_hurry(port, count):
    """Say that they wait for a millisecond."""
    busy_clients(port, count, lambda: "/metrics", lambda: {"X-Prometheus-Scrape-Timeout-Seconds": "0.001"})


def guess(user=None):
    """A wrong password: of this user, or of another one each time."""
    name = user or f"user{random.getrandbits(40)}"
    return {"Authorization": basic(name, str(random.getrandbits(40)))}


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def trusting():
    """A TLS client that takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect(port, tls, timeout):
    if tls:
        return http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=timeout)
    return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)


def in_threads(count, action):
    threads = [threading.Thread(target=action, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
