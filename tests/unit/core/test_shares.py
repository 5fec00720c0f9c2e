"""Fair shares of a queue with priorities."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine, Queue
from qpidd_py.core.shares import share_out
from qpidd_py.errors import InvariantError
from tests.support.memory import MemoryClient, deliveries


def queue_of(engine: Engine, limits: list[int]) -> Queue:
    queue = engine.create_queue(1, "q", True)
    queue.add_levels(len(limits) - 1)
    share_out(queue, limits)
    return queue


def order(limits: list[int], *messages: tuple[int, int]) -> str:
    """The priorities in the order of delivery, of so many messages of each."""
    engine = Engine()
    client = MemoryClient(engine, q=queue_of(engine, limits))
    for priority, count in messages:
        for _ in range(count):
            client.publish(b"%d" % priority, "q", priority=priority)
    client.turn()
    client.channel.consume(client.owner.routes[b"q"][0], "c", True)
    return b"".join(body for _, body, _ in deliveries(client.turn())).decode()


def test_each_level_has_its_share_of_a_round() -> None:
    assert order([1, 2, 3], (0, 4), (1, 4), (2, 8)) == "2221102221102200"


def test_a_level_without_a_limit_gives_one_when_a_higher_one_has_had_its_share() -> None:
    assert order([0, 0, 2], (0, 2), (1, 3), (2, 5)) == "2210221021"


def test_without_messages_of_others_one_has_all() -> None:
    assert order([1, 1], (1, 5)) == "11111"
    assert order([2, 0], (0, 3), (1, 2)) == "11000"


def test_what_comes_back_does_not_count() -> None:
    engine = Engine()
    queue = queue_of(engine, [1, 1])
    client = MemoryClient(engine, q=queue)
    for priority in (1, 1, 0, 0):
        client.publish(b"%d" % priority, "q", priority=priority)
    client.turn()
    client.channel.consume(queue, "c", False, 1)
    got = [deliveries(client.turn())[0]]
    client.send(Basic.Nack(1, requeue=True))
    for _ in range(4):
        got += deliveries(client.turn())
        client.send(Basic.Ack(got[-1][0]))
    assert [body for _, body, _ in got] == [b"1", b"1", b"0", b"1", b"0"]
    queue.check()


def test_a_new_primary_begins_with_the_highest() -> None:
    engine, backup = Engine(), Engine()
    backup.passive = True
    queue, copy = queue_of(engine, [1, 1]), queue_of(backup, [1, 1])
    engine.on_batch = lambda batch: backup.apply(bytes(batch))
    client = MemoryClient(engine, q=queue)
    for priority in (0, 0, 1, 1):
        client.publish(b"%d" % priority, "q", priority=priority)
    client.turn()
    client.channel.consume(queue, "c", False, 1)
    client.turn()
    backup.passive = False
    backup.begin_epoch(2)
    other = MemoryClient(backup, q=copy)
    other.channel.consume(copy, "c", True)
    assert [body for _, body, _ in deliveries(other.turn())] == [b"1", b"0", b"1", b"0"]


def test_shares_need_levels() -> None:
    engine = Engine()
    with pytest.raises(InvariantError):
        share_out(engine.create_queue(1, "q", True), [1])
