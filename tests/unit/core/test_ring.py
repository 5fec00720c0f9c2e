"""The index of a large queue grows by blocks, wherever its oldest message is."""

from itertools import pairwise
from random import Random

import pytest
from pamqp.commands import Basic

from qpidd_py.amqp.codec import encode_method
from qpidd_py.core import Catchup, Engine, encode_ids
from qpidd_py.core.memory import plan_failures
from tests.support.memory import MemoryClient, publish_octets

BLOCK = 4096
"""Messages of a block."""


def publish(client: MemoryClient, first: int, last: int) -> None:
    client.connection.feed(b"".join(publish_octets(b"%d" % number, "q") for number in range(first, last)))
    client.turn()


@pytest.mark.parametrize("gone", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK // 2, 2 * BLOCK - 1])
def test_messages_keep_their_order_while_the_index_grows(gone: int) -> None:
    engine = Engine()
    queue = engine.create_queue(1, "q", False)
    client = MemoryClient(engine, q=queue)
    publish(client, 0, 2 * BLOCK)
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    if gone:
        client.send(Basic.Ack(gone, True))
    client.connection.close()
    engine.end_turn()
    other = MemoryClient(engine, q=queue)
    rooms = [queue.room]
    for first in range(2 * BLOCK, 9 * BLOCK, 500):
        publish(other, first, min(first + 500, 9 * BLOCK))
        rooms.append(queue.room)
    assert (
        sorted(set(rooms)) == [2 * BLOCK, 4 * BLOCK, 8 * BLOCK, 16 * BLOCK][: len(set(rooms))]
        and rooms[-1] >= 8 * BLOCK
    )
    queue.check()
    found = [int(body) for *_, body in queue.peek(10 * BLOCK)]
    assert found == list(range(gone, 9 * BLOCK))
    assert all(older < newer for (older, *_), (newer, *_) in pairwise(queue.peek(10 * BLOCK)))


def test_an_index_that_is_given_back_grows_again() -> None:
    engine = Engine()
    queue = engine.create_queue(1, "q", False)
    client = MemoryClient(engine, q=queue)
    for _ in range(3):
        publish(client, 0, 3 * BLOCK)
        assert queue.room == 4 * BLOCK
        engine.purge(queue)
        for _ in range(4):
            engine.tick()
        assert queue.room == 0 and queue.ready == 0
    publish(client, 0, 100)
    assert [int(body) for *_, body in queue.peek(100)] == list(range(100))
    queue.check()


def test_what_was_a_long_queue_has_a_short_index_though_its_oldest_message_stays() -> None:
    """Its whole index was squeezed each time it was full: for one message that nobody settled, millions of places."""
    engine = Engine()
    queue = engine.create_queue(1, "q", False)
    client, other = (MemoryClient(engine, q=queue) for _ in range(2))
    publish(client, 0, 3 * BLOCK)
    assert queue.room == 4 * BLOCK
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    for tag in range(2, 3 * BLOCK + 1):
        client.connection.feed(encode_method(1, Basic.Ack(tag)))
    client.turn()
    tag = 3 * BLOCK
    for first in range(3 * BLOCK, 12 * BLOCK, 100):
        publish(other, first, first + 100)
        client.turn()
        client.connection.feed(b"".join(encode_method(1, Basic.Ack(tag + n)) for n in range(1, 101)))
        client.turn()
        tag += 100
        assert queue.room <= 4 * BLOCK
    assert queue.room == 1024
    queue.check()
    client.connection.close()
    engine.end_turn()
    assert [int(body) for *_, body in queue.peek(10)] == [0]
    publish(other, 1, 3 * BLOCK)
    assert [int(body) for *_, body in queue.peek(4 * BLOCK)] == list(range(3 * BLOCK))


def test_without_memory_for_a_shorter_index_the_long_one_stays() -> None:
    engine = Engine()
    queue = engine.create_queue(1, "q", False)
    client, other = (MemoryClient(engine, q=queue) for _ in range(2))
    publish(client, 0, 3 * BLOCK)
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    client.connection.feed(b"".join(encode_method(1, Basic.Ack(tag)) for tag in range(2, 3 * BLOCK + 1)))
    client.turn()
    publish(other, 3 * BLOCK, 4 * BLOCK)
    plan_failures(1, 2)
    publish(other, 4 * BLOCK, 4 * BLOCK + 1)
    assert plan_failures(0) and queue.room == 4 * BLOCK
    queue.check()
    client.connection.close()
    engine.end_turn()
    assert [int(body) for *_, body in queue.peek(2 * BLOCK)] == [0, *range(3 * BLOCK, 4 * BLOCK + 1)]


def records(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        found.append(data[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("seed", range(40))
def test_what_a_difference_brings_comes_to_its_place(seed: int) -> None:
    """In two or three parts, whichever is the longer one, with messages that are gone in between."""
    rng = Random(seed)
    engine, backup = Engine(), Engine()
    queue = engine.create_queue(1, "q", True)
    publish(MemoryClient(engine, q=queue), 0, rng.choice((3, 40, 300, 3 * BLOCK)))
    all_of_it = records(Catchup(queue, b"", engine.flush()).slice(1 << 30) or b"")
    ids = [id for id, *_ in queue.peek(1 << 20)]
    copy = backup.create_queue(1, "q", True)
    edge, part = rng.randrange(len(ids) + 1), rng.random()
    parts = [rng.randrange(3) if rng.random() < part else int(number >= edge) for number in range(len(ids))]
    gone: set[int] = set()
    for now in (0, 1, 2):
        backup.apply_slice(b"".join(record for record, its in zip(all_of_it, parts, strict=True) if its == now))
        dropped = [id for id, its in zip(ids, parts, strict=True) if its == now and rng.random() < 0.1]
        for id in dropped:
            backup.drop(1, encode_ids([(id, id)]))
        gone |= set(dropped)
        backup.merge(1)
        copy.check()
    assert [id for id, *_ in copy.peek(1 << 20)] == [id for id in ids if id not in gone]
    backup.begin_epoch(1)
    assert [id for id, *_ in copy.peek(1 << 20)] == [id for id in ids if id not in gone]


@pytest.mark.parametrize("first", [1, 2])
def test_a_merge_without_memory_changes_nothing_and_goes_on_later(first: int) -> None:
    """The index of what came with the difference is full, and so is that of the live messages."""
    engine, backup = Engine(), Engine()
    queue = engine.create_queue(1, "q", True)
    publish(MemoryClient(engine, q=queue), 0, 2 * BLOCK)
    all_of_it = records(Catchup(queue, b"", engine.flush()).slice(1 << 30) or b"")
    copy = backup.create_queue(1, "q", True)
    backup.apply_slice(b"".join(all_of_it[BLOCK:]))
    backup.merge(1)
    backup.apply_slice(b"".join(all_of_it[:BLOCK]))
    plan_failures(first, 1)
    with pytest.raises(MemoryError):
        backup.merge(1)
    plan_failures(0)
    backup.merge(1)
    copy.check()
    assert [id for id, *_ in copy.peek(1 << 20)] == [id for id, *_ in queue.peek(1 << 20)]
