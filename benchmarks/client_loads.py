"""The same pattern by client_lib's interfaces and by bare pika; one run is one process, which prints one JSON object.

    python -m benchmarks.client_loads SIDE PATTERN --address HOST:PORT --queue NAME --count N [--window N] [--size N]

Patterns: `window` publishes with at most --window messages unconfirmed; `sync` waits for each confirm; `consume` takes
what waits, prefetch --window, and acknowledges each message.  Every message has an id and delivery mode 2, on all
sides.  Bare pika keeps no message for a re-send: it does strictly less.

Time counts from the first message to the last confirm or, for `consume`, until the broker has read the last
acknowledgement; CPU is user and system time of this process meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pika

from benchmarks.processes import BenchmarkError
from benchmarks.storm import HEADER, start_ok
from client_lib import Connection, Message, aio
from client_lib.connecting.wire import content_frames, method_frame, publish_method
from client_lib.failover import FailoverConnection

PATTERNS: Final = ("window", "sync", "consume")
BARE: Final = {"window": "pika Select", "sync": "pika Blocking", "consume": "pika Select"}
"""The reference: the fastest way of bare pika for the pattern."""


@dataclass(frozen=True)
class Job:
    """The task: `count` messages of `size` octets."""

    address: str
    queue: str
    count: int
    window: int = 1000
    size: int = 1024

    @property
    def body(self) -> bytes:
        return b"x" * self.size

    @property
    def parameters(self) -> pika.ConnectionParameters:
        host, _, port = self.address.rpartition(":")
        return pika.ConnectionParameters(host, int(port))


class Meter:
    """Started with the first message, stopped with the last."""

    def __init__(self, job: Job) -> None:
        self._count = job.count
        self._wall = self._cpu = 0.0
        self.values: dict[str, float] = {}

    def start(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        self.values = {"rate": self._count / seconds, "cpu_us": cpu / self._count * 1e6}


# ---- client_lib, threaded -------------------------------------------------------------------------------------------


def threaded_window(job: Job, meter: Meter) -> None:
    with Connection(job.address) as connection:
        sender = connection.session().queue_sender(job.queue, capacity=job.window)
        body = job.body
        meter.start()
        for _ in range(job.count):
            sender.send(Message(body), sync=False)
        sender.sync()
        meter.stop()


def threaded_sync(job: Job, meter: Meter) -> None:
    with Connection(job.address) as connection:
        sender = connection.session().queue_sender(job.queue, capacity=job.window)
        body = job.body
        meter.start()
        for _ in range(job.count):
            sender.send(Message(body))
        meter.stop()


def threaded_consume(job: Job, meter: Meter) -> None:
    with Connection(job.address) as connection:
        session = connection.session()
        meter.start()
        receiver = session.queue_receiver(job.queue, capacity=job.window)
        for _ in range(job.count):
            session.acknowledge(receiver.fetch(), sync=False)
        session.fence()
        meter.stop()


# ---- client_lib, asyncio --------------------------------------------------------------------------------------------


def aio_window(job: Job, meter: Meter) -> None:
    async def run() -> None:
        async with aio.Connection(job.address) as connection:
            sender = (await connection.session()).queue_sender(job.queue, capacity=job.window)
            body = job.body
            meter.start()
            for _ in range(job.count):
                await sender.send(Message(body), sync=False)
            await sender.sync()
            meter.stop()

    asyncio.run(run())


def aio_sync(job: Job, meter: Meter) -> None:
    async def run() -> None:
        async with aio.Connection(job.address) as connection:
            sender = (await connection.session()).queue_sender(job.queue, capacity=job.window)
            body = job.body
            meter.start()
            for _ in range(job.count):
                await sender.send(Message(body))
            meter.stop()

    asyncio.run(run())


def aio_consume(job: Job, meter: Meter) -> None:
    async def run() -> None:
        async with aio.Connection(job.address) as connection:
            session = await connection.session()
            meter.start()
            receiver = await session.queue_receiver(job.queue, capacity=job.window)
            for _ in range(job.count):
                await session.acknowledge(await receiver.fetch(), sync=False)
            await session.fence()
            meter.stop()

    asyncio.run(run())


# ---- client_lib, pika style -----------------------------------------------------------------------------------------


def _properties(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(delivery_mode=2, message_id=f"benchmark-0123456789:{number}")


def failover_window(job: Job, meter: Meter) -> None:
    connection = FailoverConnection(job.address, publish_window=job.window)
    channel = connection.channel()
    channel.confirm_delivery()
    body = job.body
    meter.start()
    for number in range(job.count):
        channel.basic_publish("", job.queue, body, _properties(number))
    channel.wait_for_confirms()
    meter.stop()
    connection.close()


def failover_sync(job: Job, meter: Meter) -> None:
    connection = FailoverConnection(job.address)
    _publish_one_by_one(connection.channel(), job, meter)
    connection.close()


def failover_consume(job: Job, meter: Meter) -> None:
    connection = FailoverConnection(job.address)
    _consume_blocking(connection.channel(), job, meter)
    connection.close()


def _publish_one_by_one(channel: Any, job: Job, meter: Meter) -> None:
    channel.confirm_delivery()
    body = job.body
    meter.start()
    for number in range(job.count):
        channel.basic_publish("", job.queue, body, _properties(number))
    meter.stop()


def _consume_blocking(channel: Any, job: Job, meter: Meter) -> None:
    left = job.count

    def take(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        nonlocal left
        channel.basic_ack(method.delivery_tag)
        left -= 1
        if not left:
            channel.stop_consuming()

    meter.start()
    channel.basic_qos(prefetch_count=job.window)
    channel.basic_consume(job.queue, take)
    channel.start_consuming()
    meter.stop()


# ---- bare pika ------------------------------------------------------------------------------------------------------


def blocking_sync(job: Job, meter: Meter) -> None:
    connection = pika.BlockingConnection(job.parameters)
    _publish_one_by_one(connection.channel(), job, meter)
    connection.close()


def blocking_consume(job: Job, meter: Meter) -> None:
    connection = pika.BlockingConnection(job.parameters)
    _consume_blocking(connection.channel(), job, meter)
    connection.close()


class SelectLoop:
    """A SelectConnection with one channel, until `stop`."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self.job, self.meter = job, meter
        self.channel: Any = None
        self._connection = pika.SelectConnection(job.parameters, on_open_callback=self._opened)
        self._connection.ioloop.start()

    def _opened(self, connection: Any) -> None:
        self.channel = connection.channel(on_open_callback=self.begin)

    def begin(self, channel: Any) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self.meter.stop()
        self._connection.add_on_close_callback(lambda connection, _reason: connection.ioloop.stop())
        self._connection.close()


class SelectPublisher(SelectLoop):
    """Publishes what the window has room for whenever a confirm comes."""

    def begin(self, channel: Any) -> None:
        self.body, self.sent, self.settled = self.job.body, 0, 0
        channel.confirm_delivery(self.confirmed, callback=self.go)

    def go(self, _frame: Any) -> None:
        self.meter.start()
        self.publish()

    def publish(self) -> None:
        publish, queue, body = self.channel.basic_publish, self.job.queue, self.body
        end = min(self.job.count, self.settled + self.job.window)
        while self.sent < end:
            publish("", queue, body, _properties(self.sent))
            self.sent += 1

    def confirmed(self, frame: Any) -> None:
        self.settled = frame.method.delivery_tag if frame.method.multiple else self.settled + 1
        if self.settled >= self.job.count:
            self.stop()
        else:
            self.publish()


class SelectConsumer(SelectLoop):
    """Acknowledges each message in the callback, as pika's examples do."""

    def begin(self, channel: Any) -> None:
        self.left = self.job.count
        self.meter.start()
        channel.basic_qos(prefetch_count=self.job.window)
        channel.basic_consume(self.job.queue, self.take)

    def take(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        self.left -= 1
        if not self.left:
            channel.basic_qos(callback=lambda _frame: self.stop())


def select_sync(job: Job, meter: Meter) -> None:
    SelectPublisher(Job(job.address, job.queue, job.count, 1, job.size), meter)


# ---- no library -----------------------------------------------------------------------------------------------------

ACK_OCTETS: Final = 21
"""Of the frame of a basic.ack."""


def socket_sync(job: Job, meter: Meter) -> None:
    """The same octets for each message, and nothing else: no library can be quicker than the kernel and the broker."""
    with _logged_in(job) as sock:
        pieces = content_frames(1, b"".join(_properties(0).encode()), job.body, 65536)
        octets = publish_method(1, "", job.queue, False) + b"".join(pieces)
        meter.start()
        for _ in range(job.count):
            sock.sendall(octets)
            if len(sock.recv(4096)) != ACK_OCTETS:
                raise BenchmarkError("something else than a confirm has come")
        meter.stop()


def _logged_in(job: Job) -> socket.socket:
    """A connection with channel 1, which confirms."""
    sock = socket.create_connection((job.parameters.host, job.parameters.port))
    tune_ok, confirms = pika.spec.Connection.TuneOk(0, 131072, 0), pika.spec.Confirm.Select()
    sock.sendall(HEADER)
    for words in (
        start_ok("guest", "guest"),
        method_frame(0, tune_ok) + method_frame(0, pika.spec.Connection.Open("/")),
        method_frame(1, pika.spec.Channel.Open()),
        method_frame(1, confirms),
    ):
        sock.recv(65536)
        sock.sendall(words)
    sock.recv(65536)
    return sock


Load = Callable[[Job, Meter], object]
LOADS: Final[dict[tuple[str, str], Load]] = {
    ("pika Select", "window"): SelectPublisher,
    ("pika Select", "sync"): select_sync,
    ("pika Select", "consume"): SelectConsumer,
    ("pika Blocking", "sync"): blocking_sync,
    ("pika Blocking", "consume"): blocking_consume,
    ("threaded", "window"): threaded_window,
    ("threaded", "sync"): threaded_sync,
    ("threaded", "consume"): threaded_consume,
    ("asyncio", "window"): aio_window,
    ("asyncio", "sync"): aio_sync,
    ("asyncio", "consume"): aio_consume,
    ("pika style", "window"): failover_window,
    ("pika style", "sync"): failover_sync,
    ("pika style", "consume"): failover_consume,
    ("plain socket", "sync"): socket_sync,
}
"""BlockingConnection has no way to publish with a window of confirms."""
SIDES: Final = tuple(dict.fromkeys(side for side, _ in LOADS))


def run(side: str, pattern: str, job: Job) -> dict[str, float]:
    """Messages a second and CPU µs a message."""
    meter = Meter(job)
    LOADS[side, pattern](job, meter)
    return meter.values


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_loads", description="One run of one load.")
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("pattern", choices=PATTERNS)
    parser.add_argument("--address", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--window", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1024, help="octets of a body")
    options = vars(parser.parse_args())
    print(json.dumps(run(options.pop("side"), options.pop("pattern"), Job(**options))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
