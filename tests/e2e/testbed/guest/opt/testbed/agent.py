#!/usr/bin/python3
"""agent.py PORT|SOCKET: runs shell scripts and moves files for the harness, one request per connection.

    run TIMEOUT SIZE\\n<script>     ->  RC OUT ERR\\n<output><errors>
    put MODE SIZE PATH\\n<content>  ->  0 0 0\\n
    get PATH\\n                     ->  RC OUT ERR\\n<content><error>
"""

import os
import signal
import socket
import subprocess
import sys


def run(script, timeout):
    process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True, cwd="/")
    try:
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return 124, out, err + b"ended by its timeout of %d s\n" % timeout


def answer(stream):
    verb, _, rest = stream.readline().decode().rstrip("\n").partition(" ")
    if verb == "run":
        timeout, size = rest.split()
        return run(stream.read(int(size)), int(timeout))
    if verb == "put":
        mode, size, path = rest.split(" ", 2)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = path + ".partial"
        with open(partial, "wb") as target:
            left = int(size)
            while left:
                block = stream.read(min(left, 1 << 20))
                if not block:
                    raise EOFError(path)
                target.write(block)
                left -= len(block)
        os.chmod(partial, int(mode, 8))
        os.rename(partial, path)
        return 0, b"", b""
    if verb == "get":
        try:
            with open(rest, "rb") as source:
                return 0, source.read(), b""
        except OSError as error:
            return 1, b"", str(error).encode()
    return 2, b"", b"unknown request"


def main():
    where = sys.argv[1]
    if where.isdigit():
        server = socket.create_server(("0.0.0.0", int(where)))
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(where)
        server.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            with connection.makefile("rwb") as stream:
                rc, out, err = answer(stream)
                stream.write(b"%d %d %d\n" % (rc, len(out), len(err)) + out + err)
            os._exit(0)
        connection.close()


main()
