"""Attacks that a broker has survived, as regression tests: another client is served, and KEPT stays as it is."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pamqp.commands as commands
import pytest

from qpidd_py.amqp.codec import encode_method
from qpidd_py.amqp.constants import PROTOCOL_HEADER
from tests.fuzz.target import judge_words
from tests.security.peers import Raw
from tests.support.memory import publish_octets
from tests.support.process import BrokerProcess
from tests.support.slow import mostly_slow

KEPT = [b"one", b"two", b"three"]
FOREIGN = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100ca010000c60303") + bytes(199),
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "amqp 1.0": b"AMQP\x00\x01\x00\x00",
    "amqp 0-10": b"AMQP\x01\x01\x00\x0a",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "mqtt": b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    "nothing but zeros": bytes(5000),
}


def opened(port: int, source: str = "127.0.0.1") -> Raw:
    peer = Raw(port, source=source)
    peer.log_in()
    peer.send(encode_method(1, commands.Channel.Open()))
    assert isinstance(peer.frame(), commands.Channel.OpenOk)
    return peer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("survivor"), "--channel-max", "2047") as process:
        with opened(process.port) as peer:
            peer.send(encode_method(1, commands.Queue.Declare(queue="kept")))
            assert isinstance(peer.frame(), commands.Queue.DeclareOk)
            peer.send(encode_method(1, commands.Confirm.Select()))
            assert isinstance(peer.frame(), commands.Confirm.SelectOk)
            for body in KEPT:
                peer.send(publish_octets(body, "kept"))
            while peer.frame().delivery_tag < len(KEPT):
                pass
        yield process


@pytest.fixture(autouse=True)
def unharmed(broker: BrokerProcess) -> Iterator[None]:
    yield
    with opened(broker.port) as peer:
        peer.send(encode_method(1, commands.Queue.Declare(queue="kept", passive=True)))
        found = peer.frame()
        assert isinstance(found, commands.Queue.DeclareOk) and found.message_count == len(KEPT)
    judge_words(broker.log)
    assert broker.running


@pytest.mark.parametrize("count", mostly_slow([200, 10_000], 1))
def test_half_open_connections_keep_nobody_out(broker: BrokerProcess, count: int) -> None:
    """They have sent half a header.  Beyond max-newcomers their own address pays."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 20))
            with contextlib.suppress(OSError):
                sock.sendall(PROTOCOL_HEADER[:4])
        with opened(broker.port, "127.0.0.9") as peer:
            peer.send(encode_method(0, commands.Connection.Close(200, "", 0, 0)))
            assert isinstance(peer.frame(), commands.Connection.CloseOk)


def test_a_header_that_comes_octet_by_octet(broker: BrokerProcess) -> None:
    with Raw(broker.port) as peer:
        for octet in PROTOCOL_HEADER:
            peer.send(bytes([octet]))
        assert isinstance(peer.frame(), commands.Connection.Start)


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_protocols(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as peer:
        peer.send(FOREIGN[name])
        assert peer.socket.recv(100)[:8] == PROTOCOL_HEADER
        with contextlib.suppress(ConnectionResetError):
            assert peer.socket.recv(100) == b""


@pytest.mark.parametrize("depth", [100, 20_000])
def test_deep_tables(broker: BrokerProcess, depth: int) -> None:
    table = b""
    for _ in range(depth):
        inside = b"\x01xF" + struct.pack(">I", len(table)) + table
        table = inside if len(inside) < 130_000 else table
    arguments = struct.pack(">I", len(table)) + table
    payload = struct.pack(">HHH", 50, 10, 0) + b"\x01q\x00" + arguments
    with opened(broker.port) as peer:
        peer.send(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")
        assert isinstance(peer.frame(), commands.Connection.Close)


def test_all_channels_at_once(broker: BrokerProcess) -> None:
    with opened(broker.port) as peer:
        peer.send(b"".join(encode_method(number, commands.Channel.Open()) for number in range(2, 2048)))
        assert all(isinstance(peer.frame(), commands.Channel.OpenOk) for _ in range(2, 2048))
        peer.send(encode_method(2048, commands.Channel.Open()))
        refused = peer.frame()
        assert isinstance(refused, commands.Connection.Close) and refused.reply_code == 530, refused


@pytest.mark.parametrize("size", [1 << 30, 1 << 63, (1 << 64) - 1])
def test_an_announced_huge_body(broker: BrokerProcess, size: int) -> None:
    """It is refused as announced; no memory is taken for it."""
    publish = publish_octets(b"", "kept")
    header = publish.index(struct.pack(">HH", 60, 0) + bytes(8))
    with opened(broker.port) as peer:
        peer.send(publish[: header + 4] + struct.pack(">Q", size) + publish[header + 12 :])
        refused = peer.frame()
        assert isinstance(refused, commands.Channel.Close) and refused.reply_code == 311, refused


def test_announced_bodies_that_never_come_cost_no_memory(broker: BrokerProcess) -> None:
    """128 MiB on each of 200 channels."""
    publish = publish_octets(b"", "kept", channel=1)
    header = publish.index(struct.pack(">HH", 60, 0) + bytes(8))
    announced = publish[: header + 4] + struct.pack(">Q", 128 << 20) + publish[header + 12 :]
    with opened(broker.port) as peer:
        channels = range(2, 202)
        peer.send(b"".join(encode_method(number, commands.Channel.Open()) for number in channels))
        assert all(isinstance(peer.frame(), commands.Channel.OpenOk) for _ in channels)
        for number in channels:
            own = struct.pack(">H", number)
            frames = announced.replace(b"\x01\x00\x01", b"\x01" + own, 1).replace(b"\x02\x00\x01", b"\x02" + own, 1)
            peer.send(frames)
        peer.send(encode_method(1, commands.Channel.Close(200, "", 0, 0)))
        assert isinstance(peer.frame(), commands.Channel.CloseOk)
        status = Path(f"/proc/{broker.pid}/status").read_text()
        assert int(status.partition("VmRSS:")[2].split()[0]) < 400 << 10, "KiB"


@pytest.mark.parametrize("count", mostly_slow([2_000, 100_000], 1))
def test_many_queues(broker: BrokerProcess, count: int) -> None:
    with opened(broker.port) as peer:
        for begin in range(0, count, 500):
            peer.send(b"".join(encode_method(1, commands.Queue.Declare(queue=f"q{n}", exclusive=True))
                               for n in range(begin, begin + 500)))  # fmt: skip
            assert all(isinstance(peer.frame(), commands.Queue.DeclareOk) for _ in range(500))
