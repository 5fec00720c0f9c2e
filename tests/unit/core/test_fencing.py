"""Tokens of queues with one consumer at a time: who gets one, when, and that it grows whatever happens."""

from __future__ import annotations

import random
from typing import Any

import pamqp.header
import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Engine, Queue
from tests.support.memory import MemoryClient, confirms, deliveries

TOKEN, COUNT, ACQUIRED = "x-fencing-token", "x-delivery-count", "x-acquired-count"


class World:
    """A primary with a queue that hands out tokens, and a backup that acknowledges when it is told to."""

    def __init__(self, epoch: int = 1, levels: int = 0, counts: bool = False) -> None:
        self.engine = Engine(segment_size=8192)
        self.engine.begin_epoch(epoch)
        self.engine.on_batch = self._sealed
        self.sealed = self.engine.position
        self.queue: Queue = self.engine.create_queue(1, "q", True)
        self.queue.single = self.queue.fenced = True
        if levels:
            self.queue.add_levels(levels)
        if counts:
            self.queue.count_returns(20)

    def _sealed(self, batch: Batch) -> None:
        self.sealed = batch.last

    def acknowledged(self) -> None:
        self.engine.advance_safe(self.sealed)

    def client(self, consumes: bool = True, **how: Any) -> MemoryClient:
        client = MemoryClient(self.engine, q=self.queue)
        if consumes:
            client.channel.consume(self.queue, "c", how.get("no_ack", False), how.get("prefetch", 0))
        return client

    def filled(self, *bodies: bytes, **properties: Any) -> None:
        client = self.client(consumes=False)
        for body in bodies:
            client.publish(body, "q", **properties)
        client.turn()


def got(client: MemoryClient) -> list[tuple[bytes, Any]]:
    """Body and token of each delivery of a turn."""
    frames = client.turn()
    tables = [f.properties.headers or {} for _, f in frames if isinstance(f, pamqp.header.ContentHeader)]
    return [(body, table.get(TOKEN)) for (_, body, _), table in zip(deliveries(frames), tables, strict=True)]


def test_nothing_is_delivered_before_the_mark_is_safe() -> None:
    """On a primary that was deposed and does not know it, it never is."""
    world = World()
    world.filled(b"one", b"two")
    client = world.client()
    assert got(client) == []
    world.engine.tick()
    assert got(client) == [] and world.queue.ready == 2
    world.acknowledged()
    first, second = got(client)
    assert (first[0], second[0]) == (b"one", b"two")
    assert first[1] == second[1] and first[1] is not None and first[1] > 0


def test_who_has_it_gets_more_without_waiting_again() -> None:
    world = World()
    client = world.client()
    world.filled(b"one")
    world.acknowledged()
    ((_, token),) = got(client)
    world.filled(b"two")
    assert got(client) == [(b"two", token)]


def test_the_next_consumer_has_a_higher_one_also_if_nothing_happened_in_between() -> None:
    world = World()
    world.filled(b"job")
    tokens: list[int] = []
    for _ in range(5):
        client = world.client()
        client.turn()
        world.acknowledged()
        ((_, token),) = got(client)
        assert token is not None
        tokens.append(token)
        client.connection.close()
    assert tokens == sorted(set(tokens))


def test_one_that_waits_has_none() -> None:
    world = World()
    world.filled(b"one")
    first, second = world.client(), world.client()
    first.turn()
    world.acknowledged()
    ((_, before),) = got(first)
    (consumer,) = second.channel.consumers.values()
    assert got(second) == [] and consumer.fencing_token == 0
    first.connection.close()
    assert got(second) == []
    world.acknowledged()
    ((body, after),) = got(second)
    assert body == b"one" and before is not None and after is not None and after > before
    assert consumer.fencing_token == after


def test_it_is_higher_in_a_later_epoch_however_many_operations_there_were() -> None:
    tokens: list[int] = []
    for epoch, operations in ((1, 500), (2, 1), (65535, 1)):
        world = World(epoch)
        world.filled(*[b"job"] * operations)
        client = world.client()
        client.turn()
        world.acknowledged()
        tokens.append(got(client)[0][1] or 0)
    assert tokens == sorted(set(tokens)) and tokens[-1] < 1 << 63


def test_a_header_of_the_publisher_is_replaced_and_the_others_stay() -> None:
    world = World()
    world.filled(b"x", headers={"a": 1, TOKEN: "mine", "b": [1, {"c": "d"}]}, content_type="text", priority=3)
    client = world.client()
    client.turn()
    world.acknowledged()
    frames = client.turn()
    (properties,) = [f.properties for _, f in frames if isinstance(f, pamqp.header.ContentHeader)]
    table = dict(properties.headers or {})
    assert isinstance(table.pop(TOKEN), int)
    assert table == {"a": 1, "b": [1, {"c": "d"}]} and (properties.content_type, properties.priority) == ("text", 3)


@pytest.mark.parametrize("levels", [0, 3])
def test_with_counts_both_are_there(levels: int) -> None:
    world = World(levels=levels, counts=True)
    rng = random.Random(levels)
    tables = [{f"k{n}": "v" * rng.randrange(60) for n in range(rng.randrange(5))} for _ in range(50)]
    for number, table in enumerate(tables):
        world.filled(b"%d" % number, headers=table or None, priority=1, correlation_id="c" * rng.randrange(9))
    client = world.client()
    client.turn()
    world.acknowledged()
    client.turn()
    client.send(Basic.Nack(0, True, True))
    frames = client.turn()
    found = [dict(f.properties.headers or {}) for _, f in frames if isinstance(f, pamqp.header.ContentHeader)]
    assert [body for _, body, _ in deliveries(frames)] == [b"%d" % number for number in range(50)]
    assert [(table.pop(COUNT), table.pop(ACQUIRED)) for table in found] == [(1, 1)] * 50
    assert len({table.pop(TOKEN) for table in found}) == 1
    assert found == tables


def test_a_publish_is_confirmed_while_a_mark_waits() -> None:
    world = World()
    publisher = world.client(consumes=False)
    publisher.channel.confirm_select()
    world.client()
    publisher.publish(b"x", "q", delivery_mode=2)
    publisher.turn()
    world.acknowledged()
    assert confirms(publisher.turn()) == [(1, False)]


def test_without_backups_it_comes_at_once() -> None:
    world = World()
    world.engine.on_batch = None
    world.filled(b"one")
    client = world.client()
    ((body, token),) = got(client)
    assert body == b"one" and token


def test_a_queue_without_tokens_has_no_header() -> None:
    world = World()
    world.queue.fenced = False
    world.filled(b"one")
    assert got(world.client()) == [(b"one", None)]


def test_a_header_that_fills_a_frame_has_no_token() -> None:
    """The message is delivered whole; the page says that it is not one to write with."""
    world = World()
    world.filled(b"x", headers={"a": "v" * 4040})
    client = world.client()
    client.connection.frame_max = 4096
    client.turn()
    world.acknowledged()
    assert got(client) == [(b"x", None)]
    world.filled(b"y", headers={"a": "v" * 3900})
    ((body, token),) = got(client)
    assert body == b"y" and token
