#!/usr/bin/python3
"""What somebody who took the exporter over says to its BMC helper, on a node with a BMC.

    bmc_attack.py EXPORTER SECONDS      prints how many questions were answered, and how many anew, of each kind: a line of numbers
"""

import os
import socket
import subprocess
import sys
import time

_DEVICE, _QUESTION, _ANSWER = 0xD8, 0xD6, 0xD7
_KINDS = (1, 2, 3)


def _questions(number):
    """The three questions, and what is none: chassis control (power down) as the driver and the BMC have it, another kind, noise."""
    yield from (bytes([_QUESTION, kind, 0, 0]) + number.to_bytes(4, "little") for kind in _KINDS)
    yield bytes([0x00, 0x02, 0x00])
    yield bytes([_QUESTION, 4, 0x00, 0x02]) + bytes(4)
    yield bytes([_QUESTION, 2, 0, 0]) + bytes([0x00, 0x02, 0x00, 0x00, 0x00])
    yield os.urandom(8)
    yield bytes([_DEVICE])


def attack(program, seconds):
    """(answers, answers for which the BMC was asked) of each kind of question."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    device = os.open("/dev/ipmi0", os.O_RDONLY | os.O_NONBLOCK)
    with subprocess.Popen([program, "bmc-helper"], stdin=theirs) as helper:
        theirs.close()
        assert ours.recv(100)[1] == 0, "it is not confined"
        socket.send_fds(ours, [bytes([_DEVICE])], [device])
        os.close(device)
        ours.settimeout(10)
        answered, anew = dict.fromkeys(_KINDS, 0), dict.fromkeys(_KINDS, 0)
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            number += 1
            for message in _questions(number):
                ours.send(message)
            # The power is always answered, so after it nothing of this round is under way; others may be answered before.
            ours.send(bytes([_QUESTION, 2, 0, 0]) + bytes(4))
            while True:
                answer = ours.recv(100)
                assert answer[0] == _ANSWER and len(answer) == 24, answer
                answered[answer[1]] += 1
                anew[answer[1]] += answer[8:12] == bytes(4)
                if answer[4:8] == bytes(4):
                    break
        ours.close()
        helper.wait(10)
    return [(answered[kind], anew[kind]) for kind in _KINDS]


if __name__ == "__main__":
    print(*(number for kind in attack(sys.argv[1], float(sys.argv[2])) for number in kind))
