#!/usr/bin/python3
"""Datagrams of known sizes.

    traffic.py answer                             answers every question
    traffic.py ask ADDRESS COUNT SENT ANSWERED    sends COUNT datagrams of SENT bytes, each answered by ANSWERED bytes
"""

import socket
import sys

_PORT = 7077


def answer():
    server = socket.socket(type=socket.SOCK_DGRAM)
    server.bind(("0.0.0.0", _PORT))
    while True:
        question, asker = server.recvfrom(65536)
        server.sendto(bytes(int(question.split(b" ")[0])), asker)


def ask(address, count, sent, answered):
    client = socket.socket(type=socket.SOCK_DGRAM)
    client.settimeout(30)
    client.connect((address, _PORT))
    question = (b"%d " % answered).ljust(sent, b".")
    for _ in range(count):
        client.send(question)
        if len(client.recv(65536)) != answered:
            sys.exit("not the answer")


if sys.argv[1] == "ask":
    ask(sys.argv[2], *map(int, sys.argv[3:]))
else:
    answer()
