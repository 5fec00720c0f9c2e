"""One management request to our own broker, as `qpid-ha` sends it, without a second interpreter.  Shell.

Promotions wait for this, and `qpid-ha` would cost as much processor time as the rest of a fail-over.  So this is the
minimum of AMQP 0-9-1 for one request, in two round trips: the broker's connection.start, then everything else at once.
It uses the smallest limits that every peer must accept, so nothing is negotiated.
"""

import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, CONTENT, BODY = 1, 2, 3
START, CLOSE = (10, 10), (10, 50)
CHANNEL_CLOSE, RETURN, DELIVER = (20, 40), (60, 50), (60, 60)
MANAGEMENT = b"qpid.management"
FRAME_MAX = 4096


class Refused(Exception):
    """The broker refuses the request or the connection; the text is the broker's."""


def ask(
    place: "tuple[str, int, tuple[str, str, str] | None]",
    login: "tuple[str, str, str]",
    method: str,
    arguments: str,
    timeout: float,
) -> bytes:
    """Send a request and return the answer as JSON.  `timeout` in seconds for the whole exchange, 0: none.

    `place`: host, port, files for TLS; `login`: mechanism (PLAIN or EXTERNAL), user, password.  Raises `OSError` if
    there is no answer, `Refused` if the broker closes the connection.
    """
    deadline = time.monotonic() + timeout if timeout else None
    host, port, tls = place
    connection = socket.create_connection((host, port), timeout or None)
    if tls is not None:
        connection = context(tls).wrap_socket(connection)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = Frames(connection, deadline)
        connection.sendall(HEADER)
        frames.method(START)
        connection.sendall(_conversation(login, method, arguments))
        frames.method(DELIVER)
        return frames.content()


def context(tls: "tuple[str, str, str]") -> "ssl.SSLContext":
    """For our own broker, whose certificate has the name at which others reach it.  Raises `OSError`."""
    import ssl

    authorities, certificate, key = tls
    made = ssl.create_default_context(cafile=authorities or None)
    made.check_hostname = False
    if certificate:
        made.load_cert_chain(certificate, key or None)
    return made


class Frames:
    """Reads the broker's frames."""

    def __init__(self, connection: socket.socket, deadline: "float | None") -> None:
        self._connection = connection
        self._deadline = deadline
        self._input = bytearray()

    def method(self, wanted: "tuple[int, int]") -> None:
        """Skip frames until the wanted method."""
        while True:
            kind, payload = self._frame()
            found = int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")
            if kind == METHOD and found == wanted:
                return
            if kind == METHOD and found in (CLOSE, CHANNEL_CLOSE, RETURN):
                code, length = int.from_bytes(payload[4:6], "big"), payload[6]
                raise Refused(f"{code} {payload[7 : 7 + length].decode(errors='replace')}")

    def content(self) -> bytes:
        kind, header = self._frame()
        size = int.from_bytes(header[4:12], "big")
        body = b""
        while kind in (CONTENT, BODY) and len(body) < size:
            kind, payload = self._frame()
            body += payload
        return body

    def _frame(self) -> "tuple[int, bytes]":
        self._need(7)
        length = int.from_bytes(self._input[3:7], "big")
        if bytes(self._input[:4]) == HEADER[:4]:
            raise Refused("it speaks another protocol")
        self._need(length + 8)
        kind, payload = self._input[0], bytes(self._input[7 : 7 + length])
        del self._input[: length + 8]
        return kind, payload

    def _need(self, octets: int) -> None:
        while len(self._input) < octets:
            if self._deadline is not None:
                self._connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
            data = self._connection.recv(65536)
            if not data:
                raise ConnectionResetError("connection aborted")
            self._input += data


def _conversation(login: "tuple[str, str, str]", method: str, arguments: str) -> bytes:
    """All frames from connection.start-ok to the request."""
    mechanism, user, password = login
    response = user.encode() if mechanism == "EXTERNAL" else b"\0" + user.encode() + b"\0" + password.encode()
    # The first property admits us on a backup, too; with the second a wrong login gets an answer before the close.
    capability = _short(b"authentication_failure_close") + b"t\x01"
    properties = _short(b"qpid.ha-admin") + b"I\x00\x00\x00\x01" + _short(b"capabilities") + b"F" + _long(capability)
    body = arguments.encode()
    content = (
        b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + b"\x84\x00" + _short(b"application/json") + _short(b"1")
    )
    return b"".join(
        (
            _method(0, 10, 11, _long(properties) + _short(mechanism.encode()) + _long(response) + _short(b"en_US")),
            _method(0, 10, 31, b"\x00\x01" + FRAME_MAX.to_bytes(4, "big") + b"\x00\x00"),
            _method(0, 10, 40, _short(b"/") + b"\x00\x00"),
            _method(1, 20, 10, b"\x00"),
            _method(1, 60, 20, b"\x00\x00" + _short(MANAGEMENT) + b"\x00" + b"\x02" + b"\x00\x00\x00\x00"),
            _method(1, 60, 40, b"\x00\x00" + _short(MANAGEMENT) + _short(method.encode()) + b"\x00"),
            _frame(CONTENT, 1, content),
            _frame(BODY, 1, body),
        )
    )


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def _method(channel: int, class_id: int, method_id: int, arguments: bytes) -> bytes:
    return _frame(METHOD, channel, class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + arguments)


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def describe(error: OSError, address: str) -> str:
    """The error in the words of `qpid-ha`."""
    return f"{type(error).__name__}: {address}: {os.strerror(error.errno) if error.errno else error}"
