"""A BMC for a virtual machine, behind qemu's ipmi-bmc-extern and the kernel's own IPMI driver.

qemu passes each message of the driver on by OpenIPMI's protocol for virtual machines (hw/ipmi/ipmi_bmc_extern.c): number, network
function and unit, command, data, checksum. 0xA0 ends a message and 0xA1 a command to the hardware; in a message these two and the
escape itself are escaped.
"""

import contextlib
import socket
import threading
import time

from .processes import wait_for

_MESSAGE, _HARDWARE, _ESCAPE = 0xA0, 0xA1, 0xAA
_ESCAPED_BIT = 0x10
_ENABLE_INTERRUPT, _DISABLE_INTERRUPT = 0x05, 0x06
# Network function and command.
DEVICE_ID, POWER_READING, XCC_ENERGY = (0x06, 0x01), (0x2C, 0x02), (0x3A, 0x32)
_SET_ENABLES, _GET_ENABLES = (0x06, 0x2E), (0x06, 0x2F)
_ACTIVE = 0x40
INVALID_COMMAND = 0xC1
LENOVO = 19046


def framed(message):
    """A message with its checksum, escaped, and with its end."""
    body = bytearray()
    for byte in message + bytes([-sum(message) & 0xFF]):
        body += bytes([_ESCAPE, byte | _ESCAPED_BIT]) if byte in (_MESSAGE, _HARDWARE, _ESCAPE) else bytes([byte])
    return bytes(body) + bytes([_MESSAGE])


class Frames:
    """Finds messages in a stream."""

    def __init__(self):
        self._body = bytearray()
        self._escaped = False

    def feed(self, chunk):
        """The messages that end in this chunk, without their checksums. Commands to the hardware are passed over, and messages
        with a wrong checksum."""
        for byte in chunk:
            if byte in (_MESSAGE, _HARDWARE):
                body, self._body, self._escaped = bytes(self._body), bytearray(), False
                if byte == _MESSAGE and len(body) >= 4 and sum(body) & 0xFF == 0:
                    yield body[:-1]
            elif byte == _ESCAPE:
                self._escaped = True
            else:
                self._body.append(byte & ~_ESCAPED_BIT if self._escaped else byte)
                self._escaped = False


class Bmc:
    """What the BMC says: a scenario sets it."""

    def __init__(self):
        self.manufacturer = 674
        # Watts now, and the completion code in place of a reading.
        self.watts = 300
        self.refuses = 0
        # Seconds that the time stamp is behind.
        self.behind = 0
        # XCC's counter of energy, in mJ; None where there is none.
        self.millijoules = None
        # Whether it answers questions for power and energy, and after how many seconds.
        self.silent = False
        self.delay = 0
        self._enables = 0
        # (seconds, network function and command) of each question.
        self.asked = []

    def times(self, question):
        """When it was asked this."""
        return [at for at, asked in list(self.asked) if asked == question]

    def answer(self, message):
        """The answer to a message, None if there is none."""
        number, function, command, data = message[0], message[1], message[2], message[3:]
        question = function >> 2, command
        self.asked.append((time.monotonic(), question))
        if question in (POWER_READING, XCC_ENERGY):
            if self.silent:
                return None
            time.sleep(self.delay)
        return bytes([number, function | 0x04, command]) + self._body(question, data)

    def _body(self, question, data):
        """Completion code and data."""
        if question == DEVICE_ID:
            maker = self.manufacturer.to_bytes(3, "little")
            # A BMC of IPMI 2.0 with no sensors, event log or inventory.
            return bytes([0, 0x20, 0x01, 0x01, 0x00, 0x02, 0x00]) + maker + b"\x01\x00"
        if question == _SET_ENABLES:
            self._enables = data[0]
            return b"\x00"
        if question == _GET_ENABLES:
            return bytes([0, self._enables])
        stamp = (int(time.time()) - self.behind).to_bytes(4, "little")
        if question == POWER_READING and data[:2] == b"\xdc\x01":
            if self.refuses:
                return bytes([self.refuses])
            statistics = b"".join(watts.to_bytes(2, "little") for watts in (self.watts, 1, 999, 500))
            return b"\x00\xdc" + statistics + stamp + (1000).to_bytes(4, "little") + bytes([_ACTIVE])
        if question == XCC_ENERGY and data == b"\x04\x02\x00\x00\x00" and self.millijoules is not None:
            joules, millijoules = divmod(self.millijoules, 1000)
            return b"\x00\x07\x00" + joules.to_bytes(4, "little") + millijoules.to_bytes(2, "little") + stamp + b"\x00\x00"
        return bytes([INVALID_COMMAND])

    def serve(self, connection):
        """Answers on a connection to qemu until it ends."""
        frames = Frames()
        with contextlib.suppress(OSError):
            while chunk := connection.recv(4096):
                for message in frames.feed(chunk):
                    answer = self.answer(message)
                    if answer is None:
                        continue
                    connection.sendall(framed(answer))
                    if (message[1] >> 2, message[2]) == _SET_ENABLES:
                        # qemu drops what it reads together with this and behind it.
                        interrupt = _ENABLE_INTERRUPT if self._enables & 1 else _DISABLE_INTERRUPT
                        connection.sendall(bytes([interrupt, _HARDWARE]))


@contextlib.contextmanager
def emulated(bed):
    """A BMC with its driver and /dev/ipmi0, for a with block."""
    controller = Bmc()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(bed.bmc_socket))
        thread = threading.Thread(target=controller.serve, args=(connection,), daemon=True)
        thread.start()
        try:
            bed.load_module("ipmi_si")
            bed.load_module("ipmi_devintf")
            try:
                wait_for("the BMC's driver", lambda: bed.agent.call("test -c /dev/ipmi0")[0] == 0, 60)
                yield controller
            finally:
                controller.silent = False
                bed.unload_module("ipmi_devintf")
                bed.unload_module("ipmi_si")
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            thread.join()
