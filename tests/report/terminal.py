"""Runs a command on a terminal of 100 columns and 20 lines, presses keys, and prints the screen as a line of JSON after each step.

    terminal.py COMMAND...      steps are lines of JSON: {"keys": TEXT, "until": PATTERN of what the screen then has, or null to wait for the end}

Ends with the command's exit status after its end. What is waited for has two minutes.
"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time

import pyte

COLUMNS, LINES = 100, 20

child, terminal = pty.fork()
if child == 0:
    # The window has its size before the command looks.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execvp(sys.argv[1], sys.argv[1:])

screen = pyte.Screen(COLUMNS, LINES)
stream = pyte.ByteStream(screen)


def read():
    """What the command writes within a tenth of a second; False after its end."""
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            output = os.read(terminal, 65536)
        except OSError:
            return False
        stream.feed(output)
        # pyte has no second screen. What was on the first one was nothing.
        if b"\x1b[?1049l" in output:
            screen.reset()
        return bool(output)
    return True


for line in sys.stdin:
    step, deadline = json.loads(line), time.monotonic() + 120
    os.write(terminal, step["keys"].encode())
    while time.monotonic() < deadline:
        if not read() or (step["until"] and re.search(step["until"], "\n".join(screen.display))):
            break
    print(json.dumps([row.rstrip() for row in screen.display]), flush=True)

sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
