"""Each queue knows how many of its messages cannot be read back, whatever becomes of them."""

from __future__ import annotations

from random import Random

import pytest
from pamqp.commands import Basic

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.core import Catchup, Engine, Queue, Route, decode_ids, reading, soon
from qpidd_py.errors import RotError
from tests.support.memory import MemoryClient
from tests.support.paged import MemoryPages

SEGMENT = 8192
BODY = b"x" * 1000


class Broker:
    """A plain queue, one with priorities, and one that holds at most some; pages rot at random."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.engine = Engine(segment_size=SEGMENT)
        self.engine.sweep_most, self.engine.pool.sparse = 16, 1
        self.queues = [self.engine.create_queue(number, f"q{number}", True) for number in (1, 2, 3)]
        self.queues[1].add_levels(2)
        self.queues[2].max_count = 30
        self.client = MemoryClient(self.engine)
        self.client.owner.routes[b"all"] = self.queues
        for queue in self.queues:
            self.client.owner.routes[queue.name.encode()] = [queue]
        self.pages = MemoryPages(self.engine)
        self.pages.on_rot = lambda: None
        self.most = 0

    def publish(self) -> None:
        keys = ["all", *(queue.name for queue in self.queues)]
        for _ in range(self.rng.randrange(25)):
            self.client.publish(BODY, self.rng.choice(keys), priority=self.rng.randrange(3))
        self.client.turn()

    def page(self) -> None:
        self.pages.everything()
        for place in self.rng.sample(sorted(self.pages.octets), min(2, len(self.pages.octets))):
            self.pages.octets[place][-5] ^= 1

    def get(self) -> None:
        queue = self.rng.choice(self.queues)
        for _ in range(self.rng.randrange(8)):
            self.client.channel.get(queue, False, lambda: None)
            self.pages.arrive()
        self.client.turn()

    def settle(self) -> None:
        method = self.rng.choice((Basic.Ack(0, True), Basic.Nack(0, True, requeue=True)))
        if any(queue.unacked for queue in self.queues):
            self.client.send(method)
        self.client.turn()

    def purge(self) -> None:
        self.engine.purge(self.rng.choice(self.queues))
        self.client.turn()

    def names(self) -> None:
        """Names are read at once."""
        self.engine.on_removed = self.rng.choice((None, lambda: None))

    def step(self) -> None:
        steps = (
            self.publish,
            self.publish,
            self.page,
            self.page,
            self.get,
            self.get,
            self.settle,
            self.purge,
            self.names,
        )
        self.rng.choice(steps)()
        self.engine.tick()
        self.engine.flush()
        self.pages.vacate()

    def check(self) -> None:
        for queue in self.queues:
            queue.check()
            assert queue.unreadable == number(queue)
        found = [(queue, queue.unreadable) for queue in self.queues if queue.unreadable]
        assert sorted(reading.rotten_queues(self.engine), key=lambda item: item[0].number) == found
        assert bool(found) == bool(self.engine.pool.rotten)
        self.most = max(self.most, len(found))


def number(queue: Queue) -> int:
    return sum(high - low + 1 for low, high in decode_ids(queue.rotten()))


@pytest.mark.parametrize("seed", range(30))
def test_they_are_counted(seed: int) -> None:
    broker = Broker(seed)
    for _ in range(150):
        broker.step()
        broker.check()
    assert broker.most, "none was found"


def test_those_of_a_queue_that_is_deleted_are_counted_no_more() -> None:
    broker = Broker(1)
    while not (found := reading.rotten_queues(broker.engine)):
        broker.step()
    for queue, _ in found:
        broker.engine.delete_queue(queue)
    assert not reading.rotten_queues(broker.engine) and not broker.engine.pool.rotten


def test_those_that_a_joining_broker_drops_are_counted_no_more() -> None:
    broker = Broker(1)
    while not (found := reading.rotten_queues(broker.engine)):
        broker.step()
    broker.engine.demote()
    for queue, _ in found:
        broker.engine.drop(queue.number, queue.rotten())
        queue.check()
    assert not reading.rotten_queues(broker.engine) and not broker.engine.pool.rotten


def test_those_of_an_unfinished_difference_are_counted() -> None:
    """A joining backup keeps them apart until the difference is complete."""
    source, engine = Engine(segment_size=SEGMENT), Engine(segment_size=SEGMENT)
    queues = [source.create_queue(number, "q", True) for number in (1, 2)]
    unfinished, finished = [engine.create_queue(number, "q", True) for number in (1, 2)]
    for number in range(40):
        source.publish(Route(queues[number % 2 :]), b"", b"key", encode_properties({}, len(BODY)), BODY)
        source.end_turn()
    for queue in queues:
        cursor = Catchup(queue, b"", source.flush())
        while records := cursor.slice(3000):
            engine.apply_slice(records)
    engine.merge(2)
    pages = MemoryPages(engine)
    pages.on_rot = lambda: None
    pages.everything()
    for octets in pages.octets.values():
        octets[-5] ^= 1
    with pytest.raises(RotError):
        while not soon(finished, 0, lambda: None):
            pages.arrive()
    assert unfinished.unreadable and finished.unreadable
    finished.check()
    unfinished.check()
    engine.merge(1)
    unfinished.check()


def test_those_that_a_sweep_has_collected_are_counted() -> None:
    engine = Engine(segment_size=SEGMENT)
    queue = engine.create_queue(1, "q", True)
    client, pages = MemoryClient(engine, q=queue), MemoryPages(engine)
    pages.on_rot = lambda: None
    for _ in range(280):
        client.publish(BODY, "q")
        client.turn()
    engine.flush()
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    for tag in range(1, 281):
        if tag % 7:
            client.send(Basic.Ack(tag))
    client.connection.close()
    engine.end_turn()
    engine.pool.sparse = 1
    while not engine.pool.swept:
        engine.tick()
    pages.everything()
    assert pages.octets
    for octets in pages.octets.values():
        octets[-5] ^= 1
    with pytest.raises(RotError):
        while not soon(queue, 0, lambda: None):
            pages.arrive()
    assert queue.unreadable
    queue.check()
