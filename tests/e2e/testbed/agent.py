"""The client of the agent that runs in a bed (guest/opt/testbed/agent.py)."""

import socket

from .processes import Failure


class Agent:
    """Runs shell scripts as root in a bed and moves files in and out."""

    def __init__(self, address):
        """`address` is a port of the loopback address or the path of a socket."""
        self.address = address

    def run(self, script, timeout=180, check=True):
        """The output of a shell script; Failure if it fails and `check`."""
        rc, out, err = self.call(script, timeout)
        if check and rc != 0:
            raise Failure(f"in the bed: exit status {rc} of: {script.strip()}\n{out}{err}".rstrip())
        return out

    def call(self, script, timeout=180):
        """Exit status, output and errors of a shell script."""
        body = script.encode()
        rc, out, err = self._request(b"run %d %d\n" % (timeout, len(body)) + body, timeout + 60)
        return rc, out.decode(errors="replace"), err.decode(errors="replace")

    def put(self, path, content, mode=0o644):
        """Writes a file in the bed, its directories included."""
        self._request(b"put %o %d %s\n" % (mode, len(content), path.encode()) + content, 300)

    def get(self, path):
        """The content of a file in the bed."""
        rc, out, err = self._request(b"get %s\n" % path.encode(), 300)
        if rc:
            raise Failure(err.decode(errors="replace"))
        return out

    def _request(self, request, timeout):
        family = socket.AF_INET if isinstance(self.address, int) else socket.AF_UNIX
        place = ("127.0.0.1", self.address) if isinstance(self.address, int) else self.address
        with socket.socket(family) as connection:
            connection.settimeout(timeout)
            connection.connect(place)
            connection.sendall(request)
            with connection.makefile("rb") as stream:
                head = stream.readline().split()
                if len(head) != 3:
                    raise Failure("the agent closed the connection")
                rc, out, err = (int(word) for word in head)
                return rc, stream.read(out), stream.read(err)
