"""A fuzzer for what the core makes of frames of the log, and the material of which hostile frames are made.

It runs in one process, so that AddressSanitizer sees it (`make fuzz-sanitized`)."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from ha.model.protocol import Kind, decode_drop, decode_merge, encode_drop, encode_merge
from qpidd_py.amqp.fields import decode_table, encode_table
from qpidd_py.broker.adoption import adopt
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.snapshot import decode_snapshot, encode_snapshot
from qpidd_py.core import Catchup, Connection, decode_ids, encode_ids, link_frame, records
from qpidd_py.errors import AmqpError, LinkError
from tests.fuzz.hostile import INTEGERS, mutated, spoiled
from tests.fuzz.target import Target
from tests.support.memory import MemoryClient

_HEADER: Final = 32
Frame = tuple[int, int, bytes]


class Material(NamedTuple):
    """What a real primary has sent."""

    snapshot: bytes
    slices: list[bytes]
    batches: list[tuple[int, bytes]]
    """(position, records)."""
    queue: int
    """Number of a queue."""
    position: int


@functools.cache
def material() -> Material:
    broker = Broker()
    broker.vhosts.rules.default_replicate = "all"
    sealed: list[bytes] = []
    engine = broker.engine
    engine.on_batch = lambda batch: sealed.append(bytes(batch))
    engine.begin_epoch(1)
    client = MemoryClient(engine)
    for name, arguments in (
        ("a", {}),
        ("b", {"x-max-priority": 3}),
        ("c", {"x-max-length": 5, "x-dead-letter-exchange": ""}),
    ):
        queue, _ = broker.vhost.declare_queue(None, name, True, False, False, arguments)
        client.owner.routes[name.encode()] = [queue.core]
    broker.vhost.declare_exchange("x", "headers", True, False, False, {})
    broker.vhost.bindings.bind("x", broker.vhost.queues["a"], b"k", {"x-match": "any", "h": 1})
    client.turn()
    snapshot, position = encode_snapshot(broker.configurations.snapshot()), engine.position
    for number in range(30):
        client.publish(b"%d" % number * 20, "abc"[number % 3], delivery_mode=2, priority=number % 5, expiration="60000")
        client.turn()
    slices = [Catchup(broker.vhost.queues[name].core, b"", position + 40).slice(1 << 16) for name in "ab"]
    for queue in broker.vhost.queues.values():
        engine.purge(queue.core)
    broker.vhost.delete_queue(None, "c", False, False)
    client.turn()
    batches = [(int.from_bytes(octets[8:16], "little"), octets[_HEADER:]) for octets in sealed]
    later = [batch for batch in batches if batch[0] > position]
    return Material(snapshot, [each for each in slices if each], later, broker.vhost.queues["a"].core.number, position)


def hostile_frame(rng: Random, frame: Frame) -> Frame:
    """Its checksum will be right."""
    kind, position, body = frame
    match rng.randrange(6):
        case 0:
            return rng.choice([*range(13), 255]), position, body
        case 1:
            return kind, rng.choice(INTEGERS) % (1 << 64), body
        case 2 if body:
            return kind, position, _number_in(rng, body)
        case 3 if kind == Kind.SNAPSHOT:
            return kind, position, _hostile_snapshot(rng, body)
        case _:
            return kind, position, spoiled(rng, body)


def _number_in(rng: Random, body: bytes) -> bytes:
    """One number in it is hostile."""
    size = rng.choice([1, 2, 4, 8])
    at = rng.randrange(max(1, len(body) - size + 1))
    found = rng.choice(INTEGERS) % (1 << 8 * size)
    return body[:at] + found.to_bytes(size, "little") + body[at + size :]


def _hostile_snapshot(rng: Random, body: bytes) -> bytes:
    """The operations in it have hostile fields."""
    found = []
    for uid, payload in decode_snapshot(body):
        operation = mutated(rng, decode_table(payload)[0], 2) if rng.random() < 0.3 else None
        try:
            found.append((uid, encode_table(operation) if operation is not None else payload))
        except (AmqpError, ValueError, TypeError, AttributeError, RecursionError, OverflowError, struct.error):
            found.append((uid, payload))  # no encoder writes it
    return encode_snapshot(found)


class Owner:
    """A backup without its conversation: it takes every frame at any time, and on its side it has one link."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.connection = Connection(self.broker.engine, self, True)
        self.connection.switch_to_link(True)
        self.over = False

    def link_frame(self, kind: int, position: int, body: bytes) -> None:
        engine = self.broker.engine
        match kind:
            case Kind.SNAPSHOT:
                adopt(self.broker.configurations, decode_snapshot(body))
            case Kind.SLICE:
                engine.apply_slice(body)
            case Kind.DROP:
                engine.drop(*decode_drop(body))
            case Kind.MERGE:
                engine.merge(decode_merge(body))
            case Kind.HELD:
                decode_ids(body)
            case Kind.LACK:
                for queue in list(engine.queues.values()):
                    Catchup(queue, body, position).drops()
            case Kind.ACK:
                engine.apply_held(position, body)
            case _:
                records(body)

    def link_batches(self, position: int) -> None:
        """Applied."""

    def failed(self, channel: int, code: int, text: str, class_id: int, method_id: int) -> None:
        self.over = True

    def closed(self, reason: str) -> None:
        self.over = True

    def output_ready(self) -> None:
        self.connection.take_output()


def _log(rng: Random) -> list[Frame]:
    found = material()
    frames: list[Frame] = [
        (Kind.SNAPSHOT, found.position, found.snapshot),
        *((Kind.SLICE, found.position, octets) for octets in found.slices),
        (Kind.MERGE, 0, encode_merge(found.queue)),
        (Kind.DROP, 0, encode_drop(found.queue, encode_ids([(1 << 48 | 1, 1 << 48 | 3)]))),
        (Kind.LACK, found.position, encode_ids([(1, 5), (9, 9)])),
        *((Kind.BATCH, position, octets) for position, octets in found.batches),
        *((Kind.ACK, position, octets) for position, octets in found.batches[:2]),
    ]
    return [hostile_frame(rng, frame) if rng.random() < 0.15 else frame for frame in frames if rng.random() < 0.9]


class Log:
    """Each input goes to a backup of its own, over a link."""

    def check(self, frames: list[Frame]) -> None:
        owner = Owner()
        for frame in frames:
            owner.connection.feed(link_frame(*frame))
            owner.broker.engine.end_turn()
            if owner.over:
                break
        for queue in list(owner.broker.engine.queues.values()):
            with contextlib.suppress(LinkError):
                owner.broker.engine.merge(queue.number)
        owner.connection.close()

    def finish(self) -> None:
        """Nothing is left."""


@contextlib.contextmanager
def _scene(folder: Path) -> Iterator[Log]:
    yield Log()


TARGETS: Final = (Target("frames", _log, _scene, 100),)
