"""What one client can make others wait: the latency of their confirms while it does its worst, and without it.

A confirm of a cluster waits for turns of three brokers, and for two processors that the flood and the probes share with
them; so the turns themselves are told, too: p99.9 and the longest of all brokers, rounded up to a power of two of us.

`python -m benchmarks.cliffs FLOOD PORT` is that client: it prints `ready` when it has prepared, and goes on until it is
killed.  The probes publish one small message at a time, each on its own connection.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pamqp.commands as commands
import pamqp.frame

from benchmarks.processes import BenchmarkError
from benchmarks.qpidd_cluster import QpiddCluster
from benchmarks.samples import Key, Sample
from qpidd_py.amqp.codec import encode_method, encode_properties
from qpidd_py.amqp.frames import publish_frames

FRAME: Final = 131072
PROBES: Final = 20
PAUSE: Final = 0.001
"""Seconds between two messages of the probes."""
SECONDS: Final = 4.0
_PLAIN: Final = b"\0guest\0guest"


class Client:
    """A connection with one channel; what it sends is octets, what it reads is thrown away or waited for."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = b""
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.wait(commands.Connection.Start)
        self.socket.sendall(encode_method(0, commands.Connection.StartOk({}, "PLAIN", _PLAIN.decode(), "en_US")))
        tune = self.wait(commands.Connection.Tune)
        self.socket.sendall(
            encode_method(0, commands.Connection.TuneOk(tune.channel_max, FRAME, 0))
            + encode_method(0, commands.Connection.Open())
            + encode_method(1, commands.Channel.Open())
        )
        self.wait(commands.Channel.OpenOk)

    def call(self, *methods: Any) -> None:
        """Sends them, and waits for the answer of the last one."""
        self.socket.sendall(b"".join(encode_method(1, method) for method in methods))
        self.wait(type(methods[-1]).valid_responses and _class(type(methods[-1]).valid_responses[0]))

    def wait(self, kind: Any) -> Any:
        while True:
            while self._input:
                used, _, frame = pamqp.frame.unmarshal(self._input) if _whole(self._input) else (0, 0, None)
                if not used:
                    break
                self._input = self._input[used:]
                if isinstance(frame, kind):
                    return frame
            data = self.socket.recv(1 << 16)
            if not data:
                raise BenchmarkError("the broker has closed the connection")
            self._input += data

    def drain(self) -> int:
        """Octets that have come."""
        return len(self.socket.recv(1 << 20))


def _whole(data: bytes) -> bool:
    return len(data) >= 7 and len(data) >= 8 + int.from_bytes(data[3:7], "big")


def _class(name: str) -> Any:
    family, method = name.split(".")
    return getattr(getattr(commands, family), method)


def message(exchange: str, key: str, body: bytes, **properties: Any) -> bytes:
    return publish_frames(1, exchange, key, encode_properties(properties, len(body)), body, FRAME)


# ---- the floods ------------------------------------------------------------------------------------------------------


def keys(client: Client) -> Iterator[bytes]:
    """10,000 bindings of a topic exchange, 130,000 routing keys."""
    client.call(*(commands.Queue.Declare(queue=f"keys{n}", arguments={"x-max-length": 10}) for n in range(10)))
    binds = [commands.Queue.Bind(0, f"keys{n % 10}", "amq.topic", f"a.{n}.*", True) for n in range(10_000)]
    client.call(*binds, commands.Basic.Qos())
    blocks = [
        b"".join(message("amq.topic", f"a.{n % 10_000}.{n}", b"x") for n in range(start, start + 1000))
        for start in range(0, 130_000, 1000)
    ]
    return itertools.cycle(blocks)


def headers(client: Client) -> Iterator[bytes]:
    """1,000 bindings of a headers exchange."""
    client.call(commands.Queue.Declare(queue="headers", arguments={"x-max-length": 10}))
    binds = [
        commands.Queue.Bind(0, "headers", "amq.headers", "", True, {"x-match": "all", "a": n, "b": "x"})
        for n in range(1000)
    ]
    client.call(*binds, commands.Basic.Qos())
    blocks = [
        b"".join(message("amq.headers", "", b"x", headers={"a": n, "b": "x", "c": 1}) for n in range(200))
        for _ in range(2)
    ]
    return itertools.cycle(blocks)


def held(client: Client) -> Iterator[bytes]:
    """160,000 messages handed out to a consumer that then dies; again and again."""
    client.call(commands.Queue.Declare(queue="held"))
    client.socket.sendall(message("", "held", b"x") * 160_000)
    client.call(commands.Basic.Qos())
    while True:
        consumer = Client(client.socket.getpeername()[1])
        consumer.call(commands.Basic.Consume(0, "held"))
        octets = 0
        while octets < 160_000 * 60:
            octets += consumer.drain()
        consumer.socket.close()
        yield b""


def letters(client: Client) -> Iterator[bytes]:
    """200,000 messages that expire at once, to a dead-letter exchange."""
    client.call(commands.Queue.Declare(queue="grave", arguments={"x-max-length": 10}))
    arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    client.call(commands.Queue.Declare(queue="letters", arguments=arguments))
    block = message("", "letters", b"x", expiration="1000") * 200_000
    while True:
        yield block
        time.sleep(3)


def deep(client: Client) -> Iterator[bytes]:
    """A queue of 1,000,000 messages is purged, another one deleted."""
    block = message("", "deep", b"x") * 100_000
    for number in itertools.count():
        client.call(commands.Queue.Declare(queue="deep"))
        for _ in range(10):
            client.socket.sendall(block)
        client.call(commands.Queue.Purge(queue="deep") if number % 2 else commands.Queue.Delete(queue="deep"))
        yield b""


def declarations(client: Client) -> Iterator[bytes]:
    """1 MiB of declarations at once, on one channel."""
    block = b"".join(encode_method(1, commands.Queue.Declare(queue=f"d{n}", nowait=True)) for n in range(30_000))
    return itertools.cycle([block])


def bindings(client: Client) -> Iterator[bytes]:
    """An exchange with 50,000 bindings is deleted."""
    client.call(commands.Queue.Declare(queue="bindings"))
    while True:
        client.call(commands.Exchange.Declare(exchange="bindings", exchange_type="topic"))
        binds = [commands.Queue.Bind(0, "bindings", "bindings", f"a.{n}.*", True) for n in range(50_000)]
        client.call(*binds, commands.Basic.Qos())
        client.call(commands.Exchange.Delete(exchange="bindings"))
        yield b""


def exclusive(client: Client) -> Iterator[bytes]:
    """A connection with 10,000 exclusive queues ends."""
    while True:
        other = Client(client.socket.getpeername()[1])
        declares = [commands.Queue.Declare(queue=f"own{n}", exclusive=True, nowait=True) for n in range(10_000)]
        other.call(*declares, commands.Basic.Qos())
        other.socket.close()
        yield b""


FLOODS: Final[dict[str, Callable[[Client], Iterator[bytes]]]] = {
    flood.__name__: flood for flood in (keys, headers, held, letters, deep, declarations, bindings, exclusive)
}


def flood(name: str, port: int) -> None:
    """Until the process is killed."""
    client = Client(port)
    blocks = FLOODS[name](client)
    print("ready", flush=True)
    for block in blocks:
        client.socket.sendall(block)


# ---- the others ------------------------------------------------------------------------------------------------------


def probe(port: int, seconds: float) -> list[float]:
    """Milliseconds from publish to confirm, each."""
    clients = [Client(port) for _ in range(PROBES)]
    found: list[float] = []
    for number, client in enumerate(clients):
        client.call(commands.Queue.Declare(queue=f"probe{number}", arguments={"x-max-length": 10}))
        client.call(commands.Confirm.Select())
    try:
        end = time.monotonic() + seconds
        for number, client in itertools.cycle(enumerate(clients)):
            begin = time.monotonic()
            if begin >= end:
                return found
            client.socket.sendall(message("", f"probe{number}", b"x"))
            client.wait(commands.Basic.Ack)
            found.append((time.monotonic() - begin) * 1000)
            time.sleep(PAUSE)
    finally:
        for client in clients:
            client.socket.close()
    return found


def quantiles(found: list[float], name: str) -> dict[str, float]:
    ordered = sorted(found)
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    last = len(ordered) - 1
    return {f"{name}_{text}": ordered[min(last, int(len(ordered) * share))] for text, share in shares.items()}


def turns(cluster: QpiddCluster) -> list[int]:
    """Of all brokers: how many took less than 1, 2, 4, ... microseconds, and not less than the one before."""
    took = [cluster.manager(number).call("broker.info")["turns"]["took"] for number in range(cluster.size)]
    return [sum(column) for column in zip(*took, strict=True)]


def longest(before: list[int], after: list[int]) -> dict[str, float]:
    """Milliseconds of the turns between two looks."""
    limits = [
        2**bits / 1000 for bits, (old, new) in enumerate(zip(before, after, strict=True)) for _ in range(new - old)
    ]
    return {"turn_ms_p999": limits[int((len(limits) - 1) * 0.999)], "turn_ms_max": limits[-1]}


def cliffs(brokers: int) -> list[Sample]:
    """Brokers of their own for each flood: first without it, then with it."""
    return [one(name, SECONDS, brokers) for name in FLOODS]


def one(name: str, seconds: float, brokers: int) -> Sample:
    cluster = QpiddCluster(brokers)
    try:
        cluster.start()
        port = cluster.ports[0]
        quiet = probe(port, seconds)
        command = [sys.executable, "-m", "benchmarks.cliffs", name, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise BenchmarkError(f"the flood {name} has not begun")
            before = turns(cluster)
            found = probe(port, seconds)
            took = longest(before, turns(cluster))
            if process.poll() is not None:
                raise BenchmarkError(f"the flood {name} has ended with {process.returncode}")
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.stdout.close()
    finally:
        cluster.stop()
    values = quantiles(quiet, "quiet_ms") | quantiles(found, "ms") | took
    return Sample(Key(brokers, f"cliff {name}", PROBES), cluster.name, values)


if __name__ == "__main__":
    flood(sys.argv[1], int(sys.argv[2]))
