"""A raw client for attacks: it sends what it likes."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import pamqp.commands as commands
import pamqp.frame

from qpidd_py.amqp.codec import encode_method, make
from qpidd_py.amqp.constants import PROTOCOL_HEADER

CLOSES = {"capabilities": {"authentication_failure_close": True}}


def start_ok(user: str, password: str) -> bytes:
    response = b"\0" + user.encode() + b"\0" + password.encode()
    method = make(
        commands.Connection.StartOk, client_properties=CLOSES, mechanism="PLAIN", response=response, locale="en_US"
    )
    return encode_method(0, method)


class Raw:
    """One connection."""

    def __init__(self, port: int, host: str = "127.0.0.1", source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=20, source_address=(source, 0))
        self._rest = b""

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def frame(self) -> Any:
        """The next frame; None at the end."""
        while True:
            with contextlib.suppress(pamqp.exceptions.UnmarshalingException):
                used, _, frame = pamqp.frame.unmarshal(self._rest)
                self._rest = self._rest[used:]
                return frame
            data = self.socket.recv(65536)
            if not data:
                return None
            self._rest += data

    def begin(self) -> None:
        self.send(PROTOCOL_HEADER)
        assert isinstance(self.frame(), commands.Connection.Start)

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        """Until the connection is open."""
        self.begin()
        self.finish(user, password)

    def finish(self, user: str, password: str) -> None:
        """A login that has begun."""
        self.send(start_ok(user, password))
        tune = self.frame()
        assert isinstance(tune, commands.Connection.Tune), tune
        self.send(encode_method(0, commands.Connection.TuneOk(0, 0, 0)))
        self.send(encode_method(0, commands.Connection.Open()))
        assert isinstance(self.frame(), commands.Connection.OpenOk)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def guessing(port: int, connections: int, user: Callable[[int], str]) -> Iterator[list[Raw]]:
    """As many logins with wrong passwords, all at once; no client waits for their answers.

    All have begun before the first sends its password: time that a starved test takes to connect is none to verify."""
    peers = []
    try:
        for _ in range(connections):
            peers.append(peer := Raw(port))
            peer.begin()
        for number, peer in enumerate(peers):
            peer.send(start_ok(user(number), f"guess {number}"))
        yield peers
    finally:
        for peer in peers:
            peer.close()


def longest_wait(peer: Raw, seconds: float) -> float:
    """The longest time in which an open connection was not answered, in seconds."""
    worst, end, number = 0.0, time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number = number % 1000 + 1
        began = time.monotonic()
        peer.send(encode_method(number, commands.Channel.Open()))
        assert isinstance(peer.frame(), commands.Channel.OpenOk)
        worst = max(worst, time.monotonic() - began)
        peer.send(encode_method(number, commands.Channel.Close(200, "", 0, 0)))
        assert isinstance(peer.frame(), commands.Channel.CloseOk)
    return worst
