"""The load generator against a broker of a few lines that can be told to do wrong: each fault must void the run."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import load_generator
from benchmarks.processes import BenchmarkError
from tests.support.system import needs

pytestmark = needs("cc")

METHOD, HEADER, BODY = 1, 2, 3


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def delivery(tag: int, body: bytes, size: int | None = None) -> bytes:
    deliver = b"\x08consumer" + struct.pack(">QB", tag, 0) + b"\x00\x00"
    header = struct.pack(">HHQH", 60, 0, len(body) if size is None else size, 0)
    return method(1, 60, 60, deliver) + frame(HEADER, 1, header) + frame(BODY, 1, body)


class FakeBroker:
    """One queue, a thread for each connection. The methods below `answers` are what a test replaces."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a generator that found a fault is gone
            self.converse(sock)

    def converse(self, sock: socket.socket) -> None:
        tags = 0
        with sock, sock.makefile("rb") as reader:
            reader.read(8)
            sock.sendall(method(0, 10, 10, b"\0\x09" + bytes(4) + struct.pack(">I", 5) + b"PLAIN" + bytes(4)))
            while head := reader.read(7):
                kind, _, size = struct.unpack(">BHI", head)
                payload = reader.read(size + 1)[:-1]
                if kind == BODY:
                    tags += 1
                    self.bodies.append(payload)
                    sock.sendall(self.confirmation(tags))
                elif kind == METHOD:
                    sock.sendall(self.answers(struct.unpack(">HH", payload[:4])))

    def answers(self, called: tuple[int, int]) -> bytes:
        simple = {
            (10, 11): method(0, 10, 30, struct.pack(">HIH", 100, 131072, 0)),
            (10, 40): method(0, 10, 41, b"\0"),
            (10, 50): method(0, 10, 51),
            (20, 10): method(1, 20, 11, bytes(4)),
            (50, 10): method(1, 50, 11, b"\0" + struct.pack(">II", self.depth(), 0)),
            (50, 20): method(1, 50, 21),
            (60, 10): method(1, 60, 11),
            (85, 10): method(1, 85, 11),
        }
        if called == (60, 20):
            return method(1, 60, 21, b"\x08consumer") + self.deliveries()
        return simple.get(called, b"")

    def depth(self) -> int:
        return len(self.bodies)

    def confirmation(self, tag: int) -> bytes:
        return method(1, 60, 80, struct.pack(">QB", tag, 0))

    def deliveries(self) -> bytes:
        """Of all messages at once; after that the queue is empty."""
        bodies, self.bodies = self.bodies, []
        return b"".join(delivery(number, body) for number, body in enumerate(bodies, 1))


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    load_generator.build()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    fake = FakeBroker()
    yield fake
    fake.listener.close()


def publish(broker: FakeBroker, count: int = 20, size: int = 40) -> load_generator.Report:
    return load_generator.run("load", address=broker.address, count=count, size=size, window=5, no_consume=True)


def drain(broker: FakeBroker, size: int = 40) -> load_generator.Report:
    return load_generator.run("load", address=broker.address, size=size, no_publish=True)


def test_a_correct_broker_passes(broker: FakeBroker) -> None:
    report = publish(broker)
    assert (report["messages"], report["confirmed"]) == (20, 20)
    report = drain(broker)
    assert (report["delivered"], report["out_of_order"], report["redelivered"]) == (20, 0, 0)


def test_messages_of_a_file_are_sent_in_turn(broker: FakeBroker, tmp_path: Path) -> None:
    parts = [frame(BODY, 1, b"first"), frame(BODY, 1, b"the second")]
    file = tmp_path / "messages"
    file.write_bytes(b"".join(struct.pack(">I", len(part)) + part for part in parts))
    report = load_generator.run("load", address=broker.address, messages=file, count=5, no_consume=True)
    assert report["confirmed"] == 5
    assert broker.bodies == [b"first", b"the second", b"first", b"the second", b"first"]


@pytest.mark.parametrize(
    ("octets", "said"), [(b"", "no messages"), (b"\0\0\0\x05four", "a message is cut"), (None, "No such file")]
)
def test_a_file_without_whole_messages_is_refused(
    broker: FakeBroker, tmp_path: Path, octets: bytes | None, said: str
) -> None:
    file = tmp_path / "messages"
    if octets is not None:
        file.write_bytes(octets)
    with pytest.raises(BenchmarkError, match=said):
        load_generator.run("load", address=broker.address, messages=file, count=5, no_consume=True)


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_declare_and_bind_count_answers(broker: FakeBroker, window: int) -> None:
    for load, counted in (("declare", "queues"), ("bind", "bindings")):
        report = load_generator.run(load, address=broker.address, queue="q", count=30, window=window)
        assert report[counted] == 30


def test_confirm_of_a_tag_that_is_not_in_flight(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "confirmation", lambda tag: method(1, 60, 80, struct.pack(">QB", tag + 50, 1)))
    with pytest.raises(BenchmarkError, match="not in flight"):
        publish(broker)


def test_refused_message(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "confirmation", lambda tag: method(1, 60, 120, struct.pack(">QB", tag, 0)))
    with pytest.raises(BenchmarkError, match="refused"):
        publish(broker)


def test_confirmed_but_not_in_the_queue(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "depth", lambda: 7)
    with pytest.raises(BenchmarkError, match="holds 7 messages, it should hold 8"):
        publish(broker, count=1)


@pytest.mark.parametrize(
    ("deliver", "fault"),
    [
        (lambda bodies: [delivery(n, body) for n, body in enumerate([bodies[0], *bodies], 1)], "came twice"),
        (lambda bodies: [delivery(2, bodies[0])], "delivery tag 2 after 0"),
        (lambda bodies: [delivery(1, bodies[0][:-1])], "body of 39 octets"),
        (lambda bodies: [delivery(1, bodies[0][:-1] + b"!")], "was changed"),
        (lambda bodies: [delivery(1, bodies[0] + b"!", size=40)], "too long"),
        (lambda bodies: [delivery(1, bodies[0])[:-1] + b"\x00"], "0xCE"),
        (lambda bodies: [frame(BODY, 1, bodies[0])], "out of place"),
        (lambda bodies: [method(0, 10, 50, struct.pack(">H", 541) + b"\x04oops" + bytes(4))], "closed 541 oops"),
    ],
)
def test_fault_of_a_delivery(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, deliver: Callable[[list[bytes]], list[bytes]], fault: str
) -> None:
    publish(broker, count=2)
    bodies = list(broker.bodies)

    def deliveries() -> bytes:
        broker.bodies.clear()
        return b"".join(deliver(bodies))

    monkeypatch.setattr(broker, "deliveries", deliveries)
    with pytest.raises(BenchmarkError, match=fault):
        drain(broker)
