"""Messages through a core without sockets: published with confirms, delivered, acknowledged, confirmed.

`python benchmarks/gate_load.py LOAD MESSAGES` with PYTHONPATH at the tree that is measured, which may be an older one.
What a message costs is the difference of two runs over the difference of their messages (`gate.py`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.amqp.frames import publish_frames
from qpidd_py.core import Connection, Engine, Queue, Route

BATCH: Final = 100
"""Messages of a turn; MESSAGES is a multiple of it."""
HEADER: Final = b"AMQP\x00\x00\x09\x01"
ACK: Final = b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""basic.ack on channel 1, before the delivery tag."""


@dataclass(frozen=True)
class Load:
    size: int
    """Octets of a body."""
    single: bool = False
    """Is each delivery acknowledged by itself?"""
    backup: bool = False
    """Does a second core apply the log?"""
    special: str = ""
    """What the queue has: a `ttl`, a `limit` or `priority`."""


LOADS: Final = {
    "16 octets": Load(16),
    "1 KiB": Load(1024),
    "16 octets, acknowledged one by one": Load(16, single=True),
    "16 octets, and on a backup": Load(16, backup=True),
}
SPECIAL: Final = {f"16 octets, {special}": Load(16, special=special) for special in ("ttl", "limit", "priority")}
"""Compared with a plain queue of the same tree (`tests/unit/core/test_special_costs.py`)."""


class Client:
    """The owner of one connection with one open channel; everything goes to one queue."""

    def __init__(self, engine: Engine, queue: Queue) -> None:
        self.queue = queue
        self.connection = Connection(engine, self)
        self.connection.feed(HEADER)
        self.channel = self.connection.open_channel(1)

    def protocol_header(self, header: bytes) -> None:
        """The core asks for it once."""

    def output_ready(self) -> None:
        """`run` takes the output."""

    def route(self, channel: int, exchange: bytes, routing_key: bytes) -> Route:
        return Route([self.queue])


def run(load: Load, messages: int) -> None:
    engine, batches = Engine(), list[object]()
    backup = _backup(load)
    engine.schedule = lambda: None
    engine.on_batch = lambda batch: batches.append(batch) if backup is None else backup(bytes(batch))
    queue = _special(engine.create_queue(1, "queue", True), load.special)
    producer, consumer = Client(engine, queue), Client(engine, queue)
    producer.channel.confirm_select()
    consumer.channel.consume(queue, "consumer", False, 0)
    published = _published(load.size, {"priority": 4} if load.special == "priority" else {})
    for first in range(0, messages, BATCH):
        producer.connection.feed(published)
        _turn(engine, batches)
        producer.connection.take_output()
        consumer.connection.take_output()
        consumer.connection.feed(_acks(first, load.single))
        _turn(engine, batches)
    if queue.ready or queue.unacked:
        raise SystemExit(f"{queue.ready} messages wait and {queue.unacked} are unacknowledged, expected none")


def _backup(load: Load) -> Callable[[bytes], None] | None:
    if not load.backup:
        return None
    engine = Engine()
    engine.create_queue(1, "queue", True)
    return engine.apply


def _special(queue: Queue, special: str) -> Queue:
    if special == "ttl":
        queue.ttl = 3_600_000
    elif special == "limit":
        queue.max_count, queue.max_bytes = 1 << 20, 1 << 30
    elif special:
        queue.add_levels(9)
    return queue


def _published(size: int, properties: dict[str, int]) -> bytes:
    body = b"x" * size
    return publish_frames(1, "", "queue", encode_properties(properties, size), body, 131072, False) * BATCH


def _acks(first: int, single: bool) -> bytes:
    last = first + BATCH
    if not single:
        return ACK + last.to_bytes(8, "big") + b"\x01\xce"
    return b"".join(ACK + tag.to_bytes(8, "big") + b"\x00\xce" for tag in range(first + 1, last + 1))


def _turn(engine: Engine, batches: list[object]) -> None:
    """A turn, and what it gives up when every backup has it."""
    engine.end_turn()
    engine.advance_safe(engine.position)
    engine.end_turn()
    batches.clear()


if __name__ == "__main__":
    gc.disable()
    run({**LOADS, **SPECIAL}[sys.argv[1]], int(sys.argv[2]))
