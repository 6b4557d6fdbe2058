"""A mail server that keeps the mails it receives."""

import email
import email.policy
import re
import socketserver
import threading


class Mailbox(socketserver.ThreadingTCPServer):
    """The part of SMTP (RFC 5321) that Alertmanager needs, on the loopback address. It forwards nothing."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Session(socketserver.StreamRequestHandler):
    def handle(self):
        self._say("220 demo")
        to = []
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"RCPT":
                to.append(re.search(rb"<(.*?)>", line)[1].decode())
            elif verb == b"DATA":
                self._say("354 go on")
                text = b"".join(part.removeprefix(b".") for part in iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append((to, email.message_from_bytes(text, policy=email.policy.default)))
                to = []
            self._say("221 bye" if verb == b"QUIT" else "250 ok")
            if verb == b"QUIT":
                return

    def _say(self, line):
        self.wfile.write(f"{line}\r\n".encode())
