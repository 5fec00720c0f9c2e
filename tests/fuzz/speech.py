"""A hostile peer's side of AMQP: logs in with properties of its choice, and then sends what it likes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

import pamqp.commands as commands
import pamqp.frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from qpidd_py.amqp.codec import encode_method, make
from tests.security.peers import Raw
from tests.support.memory import PROTOCOL_HEADER, publish_octets

MANAGEMENT: Final = "qpid.management"
PATIENCE: Final = 30.0
"""Seconds for an answer on a loaded machine."""


class Peer(Raw):
    """A client of a broker."""

    def __init__(self, port: int, user: str, password: str, properties: Mapping[str, Any]) -> None:
        super().__init__(port)
        self.socket.settimeout(PATIENCE)
        self.begin()
        response = f"\0{user}\0{password}".encode()
        start = {"client_properties": dict(properties), "mechanism": "PLAIN", "response": response, "locale": "en_US"}
        self.send(encode_method(0, make(commands.Connection.StartOk, **start)))
        tune = self.frame()
        assert isinstance(tune, commands.Connection.Tune), tune
        self.send(encode_method(0, commands.Connection.TuneOk(0, 131072, 0)))
        self.send(encode_method(0, commands.Connection.Open()))
        opened = self.frame()
        assert isinstance(opened, commands.Connection.OpenOk), f"{opened} {getattr(opened, 'reply_text', '')}"

    def drain(self) -> None:
        """Until the other side closes."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if not self.socket.recv(1 << 16):
                    return
            except ConnectionResetError:
                return
        raise AssertionError("the connection is not closed")


class Requests(Peer):
    """Management requests with octets of any kind as arguments."""

    def __init__(self, port: int, user: str, password: str) -> None:
        super().__init__(port, user, password, {"qpid.ha-admin": 1})
        self.send(encode_method(1, commands.Channel.Open()))
        assert isinstance(self.frame(), commands.Channel.OpenOk)
        self.send(encode_method(1, commands.Basic.Consume(queue=MANAGEMENT, no_ack=True)))
        assert isinstance(self.frame(), commands.Basic.ConsumeOk)
        self._number = 0

    def send_request(self, method: str, body: bytes) -> str:
        self._number += 1
        self.send(publish_octets(body, method, MANAGEMENT, correlation_id=str(self._number)))
        return str(self._number)

    def answer(self, number: str) -> dict[str, Any]:
        """The last part of the answer to this request.  Raises AssertionError when the connection is closed."""
        found = ""
        while True:
            frame = self.frame()
            assert frame is not None and not isinstance(frame, commands.Connection.Close), f"closed: {frame!r}"
            if isinstance(frame, ContentHeader):
                found, size, octets = str(frame.properties.correlation_id), frame.body_size, b""
            elif isinstance(frame, ContentBody):
                octets += frame.value
                if len(octets) == size and found == number:
                    answer: dict[str, Any] = json.loads(octets)
                    if not answer.get("more"):
                        return answer

    def request(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.send_request(method, json.dumps(arguments).encode()))


def serve_handshake(sock: socket.socket) -> tuple[dict[str, Any], bytes]:
    """A broker's side, until the connection is open: the client's properties, and what came after."""
    data = b""

    def more() -> None:
        nonlocal data
        got = sock.recv(1 << 16)
        if not got:
            raise ConnectionResetError("closed during the handshake")
        data += got

    def frame() -> Any:
        nonlocal data
        while True:
            if len(data) >= 7 and len(data) >= int.from_bytes(data[3:7], "big") + 8:
                used, _, found = pamqp.frame.unmarshal(data)
                data = data[used:]
                return found
            more()

    while len(data) < len(PROTOCOL_HEADER):
        more()
    data = data[len(PROTOCOL_HEADER) :]
    sock.sendall(encode_method(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US")))
    properties = dict(frame().client_properties)
    sock.sendall(encode_method(0, commands.Connection.Tune(2047, 131072, 0)))
    while not isinstance(frame(), commands.Connection.Open):
        pass
    sock.sendall(encode_method(0, commands.Connection.OpenOk()))
    return properties, data


def serve_requests(sock: socket.socket, data: bytes, answer: bytes) -> None:
    """A broker's side of management requests: every one gets this answer, until the client closes."""
    number = ""
    while True:
        while len(data) < 7 or len(data) < int.from_bytes(data[3:7], "big") + 8:
            got = sock.recv(1 << 16)
            if not got:
                return
            data += got
        used, channel, frame = pamqp.frame.unmarshal(data)
        data = data[used:]
        if isinstance(frame, commands.Channel.Open):
            sock.sendall(encode_method(channel, commands.Channel.OpenOk()))
        elif isinstance(frame, commands.Basic.Consume):
            sock.sendall(encode_method(channel, commands.Basic.ConsumeOk("c")))
        elif isinstance(frame, ContentHeader):
            number = str(frame.properties.correlation_id)
        elif isinstance(frame, ContentBody):
            header = ContentHeader(0, len(answer), commands.Basic.Properties(correlation_id=number))
            deliver = pamqp.frame.marshal(commands.Basic.Deliver("c", 1, False, "", ""), channel)
            sock.sendall(deliver + pamqp.frame.marshal(header, channel))
            for at in range(0, len(answer), 100_000):
                sock.sendall(pamqp.frame.marshal(ContentBody(answer[at : at + 100_000]), channel))
