"""The socket that every thread may write to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from client_lib.connecting.stream import Reader, Stream
from client_lib.connecting.transport import thread_loop
from tests.support.wait import wait_for

MESSAGES, THREADS = 300, 4


class Lab:
    """A stream on a loop in a thread, and the other end of its connection."""

    def __init__(self) -> None:
        near, self.far = socket.socketpair()
        for sock in (near, self.far):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        near.setblocking(False)
        self.far.settimeout(20)
        self.received: list[bytes] = []
        self.ends: list[Any] = []
        self.loop = thread_loop()
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        reader = Reader(self.received.append, lambda: self.ends.append("closed"), self.ends.append)
        self.stream = Stream(near, self.loop._services, reader)
        self.thread.start()

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (piece := self.far.recv(65536)):
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.thread.join(30)
        self.loop.close()
        self.far.close()
        self.stream.sock.close()


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


def test_many_threads_write_whole_pieces_in_their_order(lab: Lab) -> None:
    """The other side reads late: much waits, and no piece overtakes another one of its thread."""

    def write(thread: int) -> None:
        for number in range(MESSAGES):
            lab.stream.write(bytes((thread,)) + number.to_bytes(2, "big") + bytes(500))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(THREADS)]
    for writer in writers:
        writer.start()
    wait_for(lambda: lab.stream.backlog > 0)
    data = lab.read(MESSAGES * THREADS * 503)
    for writer in writers:
        writer.join(20)
    pieces = [data[at : at + 503] for at in range(0, len(data), 503)]
    for thread in range(THREADS):
        mine = [int.from_bytes(piece[1:3], "big") for piece in pieces if piece[0] == thread]
        assert mine == list(range(MESSAGES))
    wait_for(lambda: lab.stream.backlog == 0)


def test_the_peer_closes(lab: Lab) -> None:
    lab.far.sendall(b"last word")
    lab.far.close()
    wait_for(lambda: len(lab.ends) == 2)
    assert (lab.received, lab.ends) == ([b"last word"], ["closed", None])
    lab.stream.write(b"nothing happens")


def test_a_failed_write_of_another_thread_is_told_in_the_loop_once(lab: Lab) -> None:
    told: list[str] = []
    lab.stream._reader = Reader(
        lab.received.append, lambda: None, lambda error: told.append(f"{threading.current_thread().name}: {error}")
    )
    lab.thread.name = "the loop"
    lab.far.sendall(b"confirms")
    lab.stream.sock.shutdown(socket.SHUT_WR)
    for _ in range(3):
        lab.stream.write(b"x")
    wait_for(lambda: told)
    lab.stream.abort()
    assert len(told) == 1 and told[0].startswith("the loop: ") and "Broken pipe" in told[0]
    assert lab.received == [b"confirms"]


def test_reading_stops_and_goes_on(lab: Lab) -> None:
    done = threading.Event()
    lab.loop.call_soon(lambda: lab.stream.read_on(False))
    lab.loop.call_soon(done.set)
    assert done.wait(20)
    lab.far.sendall(b"early")
    for _ in range(5):  # turns of the loop
        done.clear()
        lab.loop.call_soon(done.set)
        assert done.wait(20)
    assert not lab.received and not lab.stream.reading
    lab.loop.call_soon(lambda: lab.stream.read_on(True))
    wait_for(lambda: lab.received == [b"early"])


def test_what_cannot_be_read_ends_it(lab: Lab) -> None:
    def refuse(_data: bytes) -> None:
        raise ValueError("no frame")

    lab.stream._reader = Reader(refuse, lambda: None, lab.ends.append)
    lab.far.sendall(b"x")
    wait_for(lambda: [str(error) for error in lab.ends] == ["no frame"])
