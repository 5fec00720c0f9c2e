"""What the core does is counted at n, 4n and 16n: it grows as what happens, not as what exists."""

import random
from collections.abc import Callable

import pytest

from qpidd_py.core import Engine, Queue
from tests.support.memory import MemoryClient, deliveries, publish_octets

SIZES = (1000, 4000, 16000)


def filled(engine: Engine, count: int) -> Queue:
    queue = engine.create_queue(len(engine.queues) + 1, f"q{len(engine.queues)}", True)
    publisher = MemoryClient(engine, a=queue)
    publisher.connection.feed(b"".join(publish_octets(b"%d" % number, "a") for number in range(count)))
    publisher.turn()
    return queue


def holder(engine: Engine, queue: Queue) -> MemoryClient:
    """A client that holds all messages, unacknowledged, and takes no more."""
    client = MemoryClient(engine)
    client.channel.consume(queue, "holder", False, 0)
    while client.turn():
        pass
    client.channel.cancel("holder")
    return client


def ascending(count: int) -> list[int]:
    return list(range(1, count + 1))


def oldest_first_then_down(count: int) -> list[int]:
    return [1, *range(count - 1, 1, -1), count]


def shuffled(count: int) -> list[int]:
    return random.Random(17).sample(range(1, count + 1), count)


@pytest.mark.parametrize("order", [ascending, oldest_first_then_down, shuffled])
def test_messages_that_come_back_cost_the_same_each_and_are_in_order(order: Callable[[int], list[int]]) -> None:
    for count in SIZES:
        engine = Engine()
        queue = filled(engine, count)
        client = holder(engine, queue)
        client.connection.feed(b"".join(nack(tag) for tag in order(count)))
        assert queue.ready == count
        queue.check()
        other = MemoryClient(engine)
        other.channel.consume(queue, "other", False, 0)
        bodies = [body for _, body, _ in deliveries(other.turn())]
        assert bodies == [b"%d" % number for number in range(count)]
        assert queue.moves <= 2 * count * count.bit_length()


def test_a_client_that_ends_gives_back_all_it_holds_without_comparisons() -> None:
    for count in SIZES:
        engine = Engine()
        queue = filled(engine, count)
        holder(engine, queue).connection.close()
        assert queue.ready == count
        engine.purge(queue)
        assert queue.moves <= 2 * count


def nack(tag: int) -> bytes:
    return b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x78" + tag.to_bytes(8, "big") + b"\x02\xce"
