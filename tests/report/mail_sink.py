"""A server that takes mails on loopback and prints each as a line of JSON; the first line is its port.

    mail_sink.py plain
    mail_sink.py tls CERTIFICATE KEY     TLS from the first byte, and it wants the user `slurm` with the password `secret word`
"""

import asyncio
import json
import logging
import ssl
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult

_, kind, *files = sys.argv


class Keeper:
    async def handle_DATA(self, server, session, envelope):
        mail = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "hello": session.host_name, "text": envelope.content.decode("ascii")}
        print(json.dumps(mail), flush=True)
        return "250 taken"

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 ok"


def is_slurm(server, session, envelope, mechanism, auth):
    return AuthResult(success=(auth.login, auth.password) == (b"slurm", b"secret word"), handled=False)


async def main():
    context, options = None, {}
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        options = {"authenticator": is_slurm, "auth_required": True, "auth_require_tls": False}
        # It warns that a password could be sent in the clear, and does not know that all is TLS.
        warnings.simplefilter("ignore")
        logging.disable()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(Keeper(), loop=loop, **options), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    # It ends with the test, which closes its input.
    await loop.run_in_executor(None, sys.stdin.read)


asyncio.run(main())
