"""Between asyncio's TLS and the core: output stays in the core, where it is counted, while asyncio has enough."""

from typing import Any

from qpidd_py.core import Connection, Engine
from qpidd_py.tls_pump import CHUNK, TlsPump


class Transport:
    """asyncio's side: says when it has enough."""

    def __init__(self) -> None:
        self.pump: TlsPump
        self.written = 0
        self.limit = 0
        self.paused_reading = False

    def set_write_buffer_limits(self, high: int) -> None:
        self.limit = high

    def get_write_buffer_size(self) -> int:
        return self.written

    def write(self, data: bytes) -> None:
        self.written += len(data)
        if self.written > self.limit:
            self.pump.pause_writing()


class Owner:
    def output_ready(self) -> None:
        """The test flushes."""


def link() -> tuple[Connection, Transport, TlsPump]:
    transport: Any = Transport()
    connection = Connection(Engine(), Owner(), True)
    connection.switch_to_link(True)
    transport.pump = TlsPump(transport, connection)
    return connection, transport, transport.pump


def test_what_asyncio_does_not_take_is_backlog() -> None:
    connection, transport, pump = link()
    size, body = 200, bytes(64 << 10)
    for number in range(size):
        connection.send_frame(2, number, body)
    whole = connection.backlog
    pump.flush()
    assert transport.limit < transport.written <= transport.limit + CHUNK + 2 * len(body)
    assert connection.backlog + transport.written == whole, "it is in the core, and counts as backlog"
    assert pump.waiting == transport.written
    while connection.backlog:
        transport.written = 0
        pump.resume_writing()
    assert connection.sent == whole


def test_what_is_taken_in_pieces_is_what_was_sent() -> None:
    connection, _, _ = link()
    frames = [bytes([number]) * (1000 * number) for number in range(1, 60)]
    for number, body in enumerate(frames):
        connection.send_frame(2, number, body)
    whole = connection.backlog
    taken = b""
    while piece := connection.take_output(False, 4096):
        taken += piece
    assert len(taken) == whole == connection.sent
    assert [taken.count(body) > 0 for body in frames] == [True] * len(frames)
