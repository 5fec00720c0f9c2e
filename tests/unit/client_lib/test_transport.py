"""Connections to a broker, and frames with pika as the judge where it can be one; runs against pika 1.3 and 1.4."""

import math
import socket
import struct
import threading
from typing import Any

import pika
import pika.frame
import pytest
from pamqp import commands

from client_lib.connecting.opening import kernel_address
from client_lib.connecting.parameters import connection_parameters
from client_lib.connecting.transport import (
    Aborted,
    Listener,
    Target,
    Transport,
    describe,
    thread_loop,
)
from client_lib.connecting.wire import content_frames, publish_method, read_header
from client_lib.message import Message
from client_lib.options import Options
from client_lib.urls.url import Endpoint, parse_url
from tests.support.wait import wait_for
from tests.unit.client_lib.link_lab import LinkLab, links

__all__ = ["links"]  # a fixture


class Recorder:
    """A loop in a thread, and what its transports have said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.errors: list[BaseException] = []
        self.loop = thread_loop()
        self.thread = threading.Thread(target=self.loop.run, daemon=True)
        self.thread.start()

    def connect(self, address: Endpoint, ip: str = "127.0.0.1", **options: Any) -> Transport:
        listener = Listener(
            lambda _: self.said.append("opened"),
            lambda _, error: self._end("failed", error),
            lambda _, error: self._end("lost", error),
            lambda _: self.said.append("reached"),
        )
        target = Target(connection_parameters(address, Options(**options)), ip, address.port)
        made: list[Transport] = []
        self.loop.call_soon(lambda: made.append(self.loop.connect(target, listener)))
        return wait_for(lambda: made)[0]

    def _end(self, what: str, error: BaseException) -> None:
        self.errors.append(error)
        self.said.append(what)  # last: tests wait for it

    def close(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.thread.join(30)
        self.loop.close()


@pytest.fixture
def recorder() -> Any:
    recorder = Recorder()
    yield recorder
    recorder.close()


# -- connecting


def test_reached_then_opened(links: LinkLab, recorder: Recorder) -> None:
    transport = recorder.connect(parse_url(links.broker().url))
    wait_for(lambda: recorder.said == ["reached", "opened"])
    assert transport.is_open and not transport.nearly_open


@pytest.mark.parametrize("mode", ["normal", "hang", "stall"])
def test_abort_is_told_once(links: LinkLab, recorder: Recorder, mode: str) -> None:
    broker = links.broker(mode)
    transport = recorder.connect(parse_url(broker.url))
    ready = {"normal": lambda: transport.is_open, "hang": lambda: broker.peers, "stall": lambda: transport.nearly_open}
    wait_for(ready[mode])
    for _ in range(2):
        recorder.loop.call_soon(lambda: transport.abort(Aborted("enough")))
    wait_for(lambda: recorder.said[-1:] == ["lost" if mode == "normal" else "failed"])
    assert describe(recorder.errors[0]) == "enough"
    wait_for(lambda: broker.peers[0].gone)
    assert len(recorder.errors) == 1


def test_abort_before_there_is_a_tcp_connection(links: LinkLab, recorder: Recorder) -> None:
    address = links.swallower()
    transport = recorder.connect(address)
    recorder.loop.call_soon(lambda: transport.abort(Aborted("enough")))
    wait_for(lambda: recorder.said == ["failed"])


def test_abort_of_one_that_could_not_begin(recorder: Recorder) -> None:
    listener = Listener(lambda _: None, lambda _, error: recorder._end("failed", error), lambda _, __: None)
    target = Target(connection_parameters(Endpoint("h"), Options()), "not an ip", 1)
    recorder.loop.call_soon(lambda: recorder.loop.connect(target, listener).abort(Aborted("enough")))
    wait_for(lambda: recorder.said == ["failed"])


@pytest.mark.parametrize("ip", ["not an ip", "255.255.255.255"])
def test_an_address_that_is_none_fails_later_not_at_once(recorder: Recorder, ip: str) -> None:
    recorder.connect(Endpoint("h", 1), ip)
    wait_for(lambda: recorder.said == ["failed"])


def test_the_zone_of_an_ipv6_address_is_a_number_for_the_kernel() -> None:
    *_, where = kernel_address("fe80::1%lo", 1)
    assert where == ("fe80::1", 1, 0, socket.if_nametoindex("lo"))


def test_no_process_listens(recorder: Recorder) -> None:
    recorder.connect(Endpoint("127.0.0.1", 1))
    wait_for(lambda: recorder.said == ["failed"])
    assert "refused" in describe(recorder.errors[0])


def test_a_peer_that_is_gone_at_once(links: LinkLab, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset between our connect(2) and our look at the socket."""

    def create(*_: Any) -> None:
        raise OSError("the socket is not connected")

    monkeypatch.setattr(recorder.loop._services, "set_reader", create)
    recorder.connect(parse_url(links.broker().url))
    wait_for(lambda: recorder.said == ["reached", "failed"])


def test_the_refusal_is_kept(links: LinkLab, recorder: Recorder) -> None:
    broker = links.broker("refuse")
    transport = recorder.connect(parse_url(broker.url))
    wait_for(lambda: recorder.said == ["reached", "failed"])
    assert transport.refusal == (320, broker.refusal)


# -- heartbeats


@pytest.mark.parametrize(("asked", "offered", "agreed"), [(2, 60, 2), (60, 1, 1), (2, 0, 2), (0, 60, 0)])
def test_heartbeats_are_the_shorter_interval(
    links: LinkLab, recorder: Recorder, asked: int, offered: int, agreed: int
) -> None:
    broker = links.broker()
    broker.heartbeat_offered = offered
    transport = recorder.connect(parse_url(broker.url), heartbeat=asked)
    wait_for(lambda: transport.is_open)
    assert (transport.params.heartbeat, transport.conversation.heartbeat_offered) == (agreed, offered)


def test_heartbeats_are_sent_and_a_silent_broker_is_not_judged_here(links: LinkLab, recorder: Recorder) -> None:
    broker = links.broker()
    broker.beats = False
    transport = recorder.connect(parse_url(broker.url), heartbeat=1)
    wait_for(lambda: broker.heartbeats >= 4)
    assert transport.is_open


# -- the end of a stream


def test_what_came_before_a_failed_write_is_read(links: LinkLab, recorder: Recorder) -> None:
    broker = links.broker()
    transport = recorder.connect(parse_url(broker.url))
    wait_for(lambda: transport.is_open)
    reading = threading.Event()

    def write_and_lose() -> None:
        reading.wait(30)
        transport._stream.fail(BrokenPipeError("the write failed"))

    recorder.loop.call_soon(write_and_lose)
    peer = broker.peers[0]
    peer.send(0, commands.Connection.Close(320, "the last word", 0, 0))
    reading.set()
    wait_for(lambda: "lost" in recorder.said)
    assert transport.refusal == (320, "the last word")


def test_the_cause_of_a_loss_is_kept(links: LinkLab, recorder: Recorder) -> None:
    broker = links.broker()
    transport = recorder.connect(parse_url(broker.url))
    wait_for(lambda: transport.is_open)
    recorder.loop.call_soon(lambda: transport._stream.fail(OSError("a cable")))
    wait_for(lambda: "lost" in recorder.said)
    assert str(transport.cause) == "a cable"


def test_forget_closes_the_descriptor_and_says_nothing(links: LinkLab, recorder: Recorder) -> None:
    transport = recorder.connect(parse_url(links.broker().url))
    wait_for(lambda: transport.is_open)
    done = threading.Event()

    def forget() -> None:
        transport._services.remove_reader(transport._stream.sock.fileno())  # in a child there is no loop
        transport.forget()
        done.set()

    recorder.loop.call_soon(forget)
    assert done.wait(30) and transport._stream.sock.fileno() == -1
    assert recorder.said == ["reached", "opened"]


# -- frames


def header_frame(properties: bytes, size: int = 10) -> bytes:
    return b"".join(content_frames(7, properties, b"x" * size, 1000))[: 7 + 12 + len(properties) + 1]


def test_headers_are_read_as_pika_reads_them() -> None:
    payload = Message("x", "text/plain", "id-1", durable=True, priority=4, ttl=1.5, properties={"n": 5}).encode("id-1")
    frame = header_frame(payload)
    used, ours = read_header(frame + b"more")
    _, theirs = pika.frame.decode_frame(frame)
    assert used == len(frame)
    assert (ours.channel_number, ours.body_size) == (theirs.channel_number, theirs.body_size) == (7, 10)
    assert ours.properties == theirs.properties


def test_a_part_of_a_header_is_waited_for() -> None:
    frame = header_frame(Message("x", id="1").encode("1"))
    assert all(read_header(frame[:length]) == (0, None) for length in range(1, len(frame)))


@pytest.mark.parametrize("number", [1.5, -0.25, math.inf, -math.inf])
def test_floats_stay_floats_and_infinite_ones_end_nothing(number: float) -> None:
    payload = Message("x", properties={"n": 0.5}).encode("1").replace(struct.pack(">d", 0.5), struct.pack(">d", number))
    assert read_header(header_frame(payload))[1].properties.headers == {"n": number}


def test_properties_that_cannot_be_read_end_nothing() -> None:
    broken = struct.pack(">H", 0xA000) + b"\x01x" + struct.pack(">I", 4) + b"\x02\xff\xfeV"
    frame = read_header(header_frame(broken))[1]
    assert frame.properties.content_type == "x" and frame.properties.headers is None


def test_a_frame_without_its_end_is_an_error() -> None:
    frame = header_frame(Message("x").encode("1"))
    with pytest.raises(pika.exceptions.InvalidFrameError):
        read_header(frame[:-1] + b"\x00")


def test_encoders_say_what_pika_would() -> None:
    assert (
        publish_method(3, "x", "key", True)
        == pika.frame.Method(3, pika.spec.Basic.Publish(exchange="x", routing_key="key", mandatory=True)).marshal()
    )
    frames = b"".join(content_frames(1, Message("x").encode("1"), b"a" * 2500, 1000))
    sizes = []
    while frames:
        used, frame = pika.frame.decode_frame(frames)
        frames = frames[used:]
        sizes.append(len(frame.fragment) if isinstance(frame, pika.frame.Body) else frame.body_size)
    assert sizes == [2500, 1000, 1000, 500]
