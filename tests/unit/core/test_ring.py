"""The index of a large queue grows by blocks, wherever its oldest message is."""

from itertools import pairwise

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Engine
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
