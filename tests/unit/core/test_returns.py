"""Queues that count how often messages come back: the header, the limit, and what a backup knows of it."""

from __future__ import annotations

import random
from typing import Any

import pamqp.header
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Catchup, Engine, Queue, Route, records
from tests.support.memory import MemoryClient, deliveries

COUNT, ACQUIRED = "x-delivery-count", "x-acquired-count"


class World:
    """A primary with a counting queue, a backup that follows it, and a client that takes everything."""

    def __init__(self, most: int = 3, levels: int = 0) -> None:
        self.most, self.levels = most, levels
        self.engine, self.backup = Engine(segment_size=8192), follower()
        self.engine.on_batch = self._sealed
        self.operations: list[str] = []
        self.queue, self.copy = (self.counting(engine) for engine in (self.engine, self.backup))
        self.dead: list[tuple[str, bytes]] = []
        self.queue.dead_letter = self._died
        self.client = self.connected()

    def counting(self, engine: Engine) -> Queue:
        queue = engine.create_queue(1, "q", True)
        if self.levels:
            queue.add_levels(self.levels)
        queue.count_returns(self.most)
        return queue

    def _sealed(self, batch: Batch) -> None:
        self.operations += [record[0] for record in records(bytes(batch)[32:])]
        self.backup.apply(bytes(batch))

    def _died(self, reason: str, exchange: bytes, key: bytes, header: bytes, body: bytes) -> Any:
        self.dead.append((reason, body))
        return Route([]), exchange, key, header

    def connected(self, prefetch: int = 0) -> MemoryClient:
        client = MemoryClient(self.engine, q=self.queue)
        client.channel.consume(self.queue, "c", False, prefetch)
        return client

    def again(self) -> list[tuple[bytes, bool, int | None]]:
        """The client's connection ends, and it comes back: what it gets."""
        self.client.connection.close()
        self.client = self.connected()
        return seen(self.client.turn())

    def joined(self, *, holds: bool) -> Engine:
        """A backup that joins now, and held all the messages before, or none."""
        engine = follower()
        queue = self.counting(engine)
        held = b""
        if holds:
            for record in slices(self.queue, b"", self.engine.flush()):
                engine.apply_slice(enqueues(record))
            engine.merge(1)
            held = queue.held()
        for record in slices(self.queue, held, self.engine.flush()):
            engine.apply_slice(record)
        engine.merge(1)
        engine.set_position(self.engine.position)
        self.engine.on_batch = lambda batch: engine.apply(bytes(batch))
        self.engine.repeat_delivered()
        self.engine.flush()
        self.engine.on_batch = self._sealed
        return engine


def follower() -> Engine:
    engine = Engine(lambda position, payload: None, segment_size=8192)
    engine.passive = True
    return engine


def slices(queue: Queue, held: bytes, cut: int) -> list[bytes]:
    cursor, found = Catchup(queue, held, cut), []
    while records := cursor.slice(200):
        found.append(records)
    return found


def enqueues(data: bytes) -> bytes:
    """Without the counts."""
    found, at = b"", 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found += data[at : at + size] if data[at + 4] == 1 else b""
        at += size
    return found


def seen(frames: list[tuple[int, Any]]) -> list[tuple[bytes, bool, int | None]]:
    """(body, redelivered, count) of each delivery."""
    headers: list[dict[str, Any]] = [
        frame.properties.headers or {} for _, frame in frames if isinstance(frame, pamqp.header.ContentHeader)
    ]
    found = deliveries(frames)
    assert len(headers) == len(found)
    return [(body, again, header.get(COUNT)) for (_, body, again), header in zip(found, headers, strict=True)]


def promoted(engine: Engine) -> list[tuple[bytes, bool, int | None]]:
    """What the first consumer of a new primary gets."""
    engine.passive = False
    engine.begin_epoch(engine.epoch + 1)
    queue = engine.queues[1]
    client = MemoryClient(engine, q=queue)
    client.channel.consume(queue, "c", False, 0)
    queue.check()
    return seen(client.turn())


@pytest.mark.parametrize("how", ["nack", "reject", "recover", "connection"])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_message_comes_back_so_often(most: int, how: str) -> None:
    world = World(most)
    world.client.publish(b"m", "q")
    for count in range(most + 1):
        frames = world.client.turn()
        assert seen(frames) == [(b"m", count > 0, count or None)]
        tag = deliveries(frames)[0][0]
        if how == "connection":
            world.client.connection.close()
            world.client = world.connected()
        elif how == "recover":
            world.client.channel.recover(True)
        else:
            answer = {"nack": Basic.Nack(tag, requeue=True), "reject": Basic.Reject(tag, requeue=True)}[how]
            world.client.send(answer)
    assert seen(world.client.turn()) == []
    assert world.dead == [("delivery_limit", b"m")]
    assert (world.queue.ready, world.queue.unacked) == (0, 0)
    world.client.turn()
    assert world.copy.ready == 0 and promoted(world.backup) == []


def test_a_queue_without_dead_letters_drops_it() -> None:
    world = World(0)
    world.queue.dead_letter = None
    world.client.publish(b"m", "q")
    world.client.turn()
    world.client.send(Basic.Nack(1, requeue=True))
    assert seen(world.client.turn()) == [] and world.queue.ready == world.queue.unacked == 0
    assert "dequeue" in world.operations


def test_other_queues_count_nothing_and_log_nothing() -> None:
    world = World()
    world.queue = world.engine.create_queue(2, "plain", True)
    world.backup.create_queue(2, "plain", True)
    world.client = world.connected()
    world.client.publish(b"m", "q")
    world.client.turn()
    world.client.send(Basic.Nack(1, requeue=True))
    assert seen(world.client.turn()) == [(b"m", True, None)]
    assert "returned" not in world.operations


def test_without_a_limit_it_is_counted_only() -> None:
    world = World((1 << 64) - 1)
    world.client.publish(b"m", "q")
    world.client.turn()
    for count in range(1, 60):
        assert world.again() == [(b"m", True, count)]


def test_one_state_of_many_is_one_run() -> None:
    world = World()
    for number in range(1000):
        world.client.publish(b"%03d" % number, "q")
    world.client.turn()
    sizes: list[int] = []
    world.engine.on_batch = lambda batch: sizes.append(len(batch))
    world.client.connection.close()
    world.engine.end_turn()
    assert sum(sizes) < 200


@pytest.mark.parametrize("levels", [0, 2])
def test_a_backup_counts_what_was_out(levels: int) -> None:
    """Out for the first time, again, back in the queue, never out: each as it is."""
    world = World(9, levels)
    for body in (b"back", b"again", b"first"):
        world.client.publish(body, "q")
    frames = world.client.turn()
    tags = {body: tag for tag, body, _ in deliveries(frames)}
    world.client.channel.cancel("c")
    for body in (b"back", b"again"):
        world.client.send(Basic.Nack(tags[body], requeue=True))
    world.client.turn()
    assert world.client.channel.get(world.queue, False)  # "back", for the second time
    world.client.send(Basic.Nack(4, requeue=True))
    world.client.channel.get(world.queue, False)
    world.client.send(Basic.Nack(5, requeue=True))
    world.client.turn()
    world.client.channel.get(world.queue, False)
    world.client.turn()
    world.client.publish(b"new", "q")
    world.client.turn()
    assert promoted(world.backup) == [
        (b"back", True, 4),  # three times back, and out
        (b"again", True, 1),  # in the queue
        (b"first", True, 1),
        (b"new", False, None),
    ]


@pytest.mark.parametrize("holds", [False, True])
def test_a_backup_that_joins_gets_the_counts(holds: bool) -> None:
    world = World(9)
    for number in range(30):
        world.client.publish(b"%02d" % number, "q")
    world.client.turn()
    world.client.channel.cancel("c")
    for tag in range(1, 31, 3):
        world.client.send(Basic.Nack(tag, requeue=True))
    for _ in range(5):
        world.client.channel.get(world.queue, False)
    world.client.turn()
    late = world.joined(holds=holds)
    wanted = promoted(world.backup)
    assert [count for _, _, count in wanted[:9]] == [2, 1, 1, 2, 1, 1, 2, 1, 1]
    assert [count for _, _, count in wanted[15:]] == [1] * 15
    assert promoted(late) == wanted


def test_a_message_that_came_back_too_often_by_a_fail_over_leaves() -> None:
    world = World(1)
    world.client.publish(b"m", "q")
    world.client.turn()
    world.again()  # out for the second time
    dead: list[str] = []
    copy = world.copy
    copy.dead_letter = lambda reason, *content: dead.append(reason)  # None: it is dropped
    assert promoted(world.backup) == []
    assert dead == ["delivery_limit"] and copy.ready == copy.unacked == 0


def test_a_delivery_that_has_not_left_the_socket_is_no_return() -> None:
    world = World(1)
    world.client.channel.cancel("c")
    world.client.channel.consume(world.queue, "auto", True)
    world.client.publish(b"m", "q")
    world.engine.end_turn()  # the output is not taken
    assert world.queue.unacked == 1
    world.client.connection.close()
    assert world.queue.ready == 1
    world.engine.end_turn()
    backup = world.joined(holds=True)
    world.client = world.connected()
    assert seen(world.client.turn()) == [(b"m", True, None)]
    assert promoted(backup) == [(b"m", True, None)]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"headers": {}},
        {"headers": {COUNT: "mine"}},
        {"headers": {ACQUIRED: "mine", COUNT: 3}},
        {"headers": {"a": 1, COUNT: 7, "b": {COUNT: 5}}},
        {"headers": {"a": [1, 2]}, "content_type": "text/plain", "content_encoding": "utf-8", "message_id": "i"},
        {"content_encoding": "x" * 255, "delivery_mode": 2, "app_id": "a"},
    ],
)
def test_the_header_says_it_and_everything_else_stays(properties: dict[str, Any]) -> None:
    world = World()
    world.client.publish(b"body", "q", **properties)
    world.client.turn()
    world.client.connection.close()
    world.client = world.connected()
    (header,) = [f for _, f in world.client.turn() if isinstance(f, pamqp.header.ContentHeader)]
    found = {name: value for name, value in header.properties if value}
    headers = {**properties.get("headers", {}), COUNT: 1, ACQUIRED: 1}
    assert found == {**properties, "headers": headers}, "(pamqp has an empty cluster_id)"
    assert header.body_size == 4


def test_a_header_that_would_not_fit_a_frame_stays_as_it_is() -> None:
    world = World()
    headers = {"x": "y" * (131072 - 8 - 14 - 4 - 2 - 5)}
    world.client.publish(b"body", "q", headers=headers)
    world.client.turn()
    assert world.again() == [(b"body", True, None)]


def test_get_says_the_count_from_the_first_time_on() -> None:
    """As RabbitMQ."""
    world = World()
    world.client.channel.cancel("c")
    world.client.publish(b"m", "q")
    for count in range(2):
        assert world.client.channel.get(world.queue, False)
        (header,) = [f for _, f in world.client.turn() if isinstance(f, pamqp.header.ContentHeader)]
        assert header.properties.headers == {COUNT: count, ACQUIRED: count}
        world.client.send(Basic.Nack(count + 1, requeue=True))


def test_the_limit_in_a_transaction() -> None:
    world = World(0)
    world.client.publish(b"m", "q")
    world.client.turn()
    world.client.channel.tx_select()
    world.client.send(Basic.Nack(1, requeue=True))
    world.client.channel.tx_rollback()
    assert world.queue.unacked == 1
    world.client.send(Basic.Nack(1, requeue=True))
    world.client.channel.tx_commit()
    world.client.turn()
    assert world.dead == [("delivery_limit", b"m")] and world.copy.ready == 0


@pytest.mark.parametrize("seed", range(12))
def test_random_work_against_a_model(seed: int) -> None:
    """Counts, and whether each message is out, of a primary, its backup and one that joins."""
    rng, world = random.Random(seed), World(4)
    returns: dict[bytes, int] = {}
    out: dict[int, bytes] = {}
    gone: set[bytes] = set()
    world.client.channel.cancel("c")
    for step in range(200):
        choice = rng.random()
        if choice < 0.3:
            returns[b"%03d" % step] = 0
            world.client.publish(b"%03d" % step, "q")
        elif choice < 0.6 and world.queue.ready:
            world.client.channel.get(world.queue, False)
            frames = world.client.turn()
            (tag,) = [int(f.delivery_tag or 0) for _, f in frames if isinstance(f, Basic.GetOk)]
            (body,) = [f.value for _, f in frames if isinstance(f, pamqp.body.ContentBody)]
            (header,) = [f for _, f in frames if isinstance(f, pamqp.header.ContentHeader)]
            assert header.properties.headers == {COUNT: returns[body], ACQUIRED: returns[body]}
            out[tag] = body
        elif choice < 0.7 and out:
            tag = rng.choice(list(out))
            gone.add(out.pop(tag))
            world.client.send(Basic.Ack(tag))
        elif out:
            tag = rng.choice(list(out))
            multiple = rng.random() < 0.3
            for each in [other for other in out if other == tag or (multiple and other < tag)]:
                body = out.pop(each)
                returns[body] += 1
                gone |= {body} if returns[body] > 4 else set()
            world.client.send(Basic.Nack(tag, multiple=multiple, requeue=True))
        if rng.random() < 0.4:
            world.client.turn()
        world.queue.check()
    world.client.turn()
    late = world.joined(holds=rng.random() < 0.5)
    alive = {body: count + (body in out.values()) for body, count in returns.items() if body not in gone}
    wanted = [(body, count > 0, count or None) for body, count in alive.items() if count <= 4]
    assert promoted(late) == wanted
    assert promoted(world.backup) == wanted
