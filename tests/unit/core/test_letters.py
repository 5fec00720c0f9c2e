"""Messages that leave a queue for another: dead letters, moved ones, leftovers; and what a backup has at each batch."""

from __future__ import annotations

import struct
from collections import Counter
from itertools import pairwise

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Engine, Queue, Route, link_frame, records
from qpidd_py.errors import LinkError
from tests.support.memory import MemoryClient, confirms, deliveries

BATCH = 1
ENQUEUE = 1


@pytest.fixture
def engine() -> Engine:
    return Engine(segment_size=8192)


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1 << 20)]


def bury(queue: Queue, *targets: Queue) -> None:
    """Letters of `queue` go to `targets`, as they are."""
    queue.dead_letter = lambda reason, exchange, key, header, body: (Route(list(targets)), exchange, key, header)


class Prefixes:
    """A backup that sees the log batch by batch: after each, no message may be in two queues."""

    def __init__(self, engine: Engine) -> None:
        self.backup = Engine(lambda position, payload: None, segment_size=8192)
        for queue in engine.queues.values():
            copy = self.backup.create_queue(queue.number, queue.name, True)
            if queue.levels is not None:
                copy.add_levels(len(queue.levels) - 1)
        self.seen: set[bytes] = set()
        self.batches = 0
        engine.on_batch = self.apply

    def apply(self, batch: Batch) -> None:
        self.batches += 1
        self.backup.apply(bytes(batch))
        found = Counter(body for queue in self.backup.queues.values() for body in bodies(queue))
        assert not [body for body, count in found.items() if count > 1], "doubled"
        assert self.seen <= found.keys(), "lost"
        self.seen |= found.keys()


@pytest.mark.parametrize("size", [10, 1000, 3000, 9000])
def test_copy_and_removal_are_in_one_batch(engine: Engine, size: int) -> None:
    source, target = (engine.create_queue(n, name, True) for n, name in ((1, "a"), (2, "letters")))
    prefixes = Prefixes(engine)
    client = MemoryClient(engine, a=source)
    bury(source, target)
    source.max_count = 5
    client.channel.consume(source, "c", False, 2)
    for i in range(60):
        client.publish(b"%d:" % i + b"x" * size, "a")
        if i % 7 == 0:
            client.turn()
        if i == 30:
            client.send(Basic.Nack(2, multiple=True, requeue=False))
    client.turn()
    assert prefixes.batches > 9 and len(prefixes.seen) == 60
    assert (source.ready, source.unacked, target.ready) == (5, 2, 53)
    assert bodies(prefixes.backup.queues[2]) == bodies(target)
    for queue in (source, target):
        queue.check()


def test_letters_of_a_transaction_are_in_its_batch(engine: Engine) -> None:
    source, target = (engine.create_queue(n, name, True) for n, name in ((1, "a"), (2, "letters")))
    client = MemoryClient(engine, a=source)
    bury(source, target)
    for i in range(3):
        client.publish(b"%d" % i * 3000, "a")
    client.channel.consume(source, "c", False, 0)
    client.turn()
    batches: list[Batch] = []
    engine.on_batch = batches.append
    client.channel.tx_select()
    client.send(Basic.Nack(3, multiple=True, requeue=False))
    for _ in range(3):
        client.publish(b"new" * 1000, "a")
    assert client.channel.tx_commit() == engine.position
    client.turn()
    (batch,) = [item for item in batches if any(record[0] == "enqueue" for record in records(bytes(item)[32:]))]
    kinds = Counter(record[0] for record in records(bytes(batch)[32:]))
    assert kinds["enqueue"] == 6 and kinds["dequeue"] == 3
    assert [body[:1] for body in bodies(target)] == [b"0", b"1", b"2"]


def test_queues_that_push_into_one_another_do_not_recurse(engine: Engine) -> None:
    """Each holds one message and buries the rest in the next: as deep as there are queues."""
    queues = [engine.create_queue(n + 1, f"q{n}", True) for n in range(3000)]
    for queue, following in pairwise(queues):
        queue.max_count = 1
        bury(queue, following)
    client = MemoryClient(engine, **{queue.name: queue for queue in queues})
    for i in range(3000):
        client.publish(b"%d" % i, f"q{i}")
    client.publish(b"new", "q0")
    while any(queue.unacked for queue in queues):
        client.turn()
    assert [bodies(queue) for queue in queues] == [[b"new"], *([b"%d" % i] for i in range(2998)), [b"2999", b"2998"]]


def test_a_circle_of_letters_lets_the_loop_live(engine: Engine) -> None:
    """The broker ends such circles; were it not to, a turn would still end."""
    a, b = engine.create_queue(1, "a", True), engine.create_queue(2, "b", True)
    bury(a, b)
    bury(b, a)
    a.ttl = b.ttl = 0
    asked: list[str] = []
    engine.schedule = lambda: asked.append("turn")
    client = MemoryClient(engine, a=a, b=b)
    client.publish(b"m", "a")
    client.channel.consume(a, "ca", False)
    client.channel.consume(b, "cb", False)
    client.turn()
    assert asked and (a.ready + a.unacked + b.ready + b.unacked) == 1


def test_one_turn_sends_a_bounded_number(engine: Engine) -> None:
    source, target = engine.create_queue(1, "a", True), engine.create_queue(2, "letters", True)
    bury(source, target)
    client = MemoryClient(engine, a=source)
    for _ in range(30_000):
        client.publish(b"m", "a", expiration="1")
    client.turn()
    engine.now = 10
    engine.tick()
    assert 0 < target.ready < 5000 < source.ready, "what waits is bounded, too"
    while source.unacked or source.ready:
        engine.tick()
        client.turn()
    assert target.ready == 30_000


def test_a_letter_without_a_home_is_gone(engine: Engine) -> None:
    queue = engine.create_queue(1, "a", True)
    bury(queue)
    queue.max_count = 1
    client = MemoryClient(engine, a=queue)
    client.publish(b"1", "a")
    client.publish(b"2", "a")
    client.turn()
    assert bodies(queue) == [b"2"] and queue.unacked == 0
    queue.check()


def test_what_a_full_queue_refuses_is_a_letter(engine: Engine) -> None:
    queue, target = engine.create_queue(1, "a", True), engine.create_queue(2, "letters", True)
    queue.max_count, queue.rejects, queue.refused_die = 1, True, True
    reasons: list[str] = []

    def note(reason: str, exchange: bytes, key: bytes, header: bytes, body: bytes) -> tuple[Route, bytes, bytes, bytes]:
        reasons.append(reason)
        return Route([target]), exchange, key, header

    queue.dead_letter = note
    client = MemoryClient(engine, a=queue)
    client.channel.confirm_select()
    client.publish(b"in", "a")
    client.publish(b"refused", "a")
    frames = client.turn()
    assert [frame.name for _, frame in frames] == ["Basic.Nack", "Basic.Ack"]
    assert (bodies(queue), bodies(target), reasons) == ([b"in"], [b"refused"], ["maxlen"])


def test_a_letter_that_a_full_queue_refuses_goes_on_in_the_same_batch(engine: Engine) -> None:
    source, full, target = (engine.create_queue(n + 1, name, True) for n, name in enumerate(("a", "full", "letters")))
    full.max_count, full.rejects, full.refused_die = 1, True, True
    source.max_count = 1
    bury(source, full)
    bury(full, target)
    prefixes = Prefixes(engine)
    client = MemoryClient(engine, a=source)
    for i in range(20):
        client.publish(b"%d:" % i + b"x" * 1500, "a")
        client.turn()
    assert (source.ready, full.ready, target.ready, len(prefixes.seen)) == (1, 1, 18, 20)


def test_a_letter_that_waits_when_the_role_ends_is_still_in_its_queue(engine: Engine) -> None:
    queue, target = engine.create_queue(1, "a", True), engine.create_queue(2, "letters", True)
    bury(queue, target)
    queue.max_count = 1
    client = MemoryClient(engine, a=queue)
    client.publish(b"1", "a")
    client.publish(b"2", "a")
    engine.demote()
    engine.end_turn()
    assert (bodies(queue), queue.ready, target.ready) == ([b"1", b"2"], 2, 0)
    queue.check()


class TestMove:
    @pytest.fixture
    def source(self, engine: Engine) -> Queue:
        return engine.create_queue(1, "a", True)

    @pytest.fixture
    def target(self, engine: Engine) -> Queue:
        return engine.create_queue(2, "b", True)

    def test_in_order_and_so_many(self, engine: Engine, source: Queue, target: Queue) -> None:
        client = MemoryClient(engine, a=source)
        prefixes = Prefixes(engine)
        for i in range(20):
            client.publish(b"%d" % i * 500, "a")
        client.turn()
        assert engine.move(source, 5, lambda exchange, key, header: Route([target])) == 5
        assert engine.move(source, 99, lambda exchange, key, header: Route([target])) == 15
        client.turn()
        assert bodies(target) == [b"%d" % i * 500 for i in range(20)] == bodies(prefixes.backup.queues[2])
        assert (source.ready, prefixes.backup.queues[1].ready) == (0, 0)

    def test_to_itself(self, engine: Engine, source: Queue) -> None:
        client = MemoryClient(engine, a=source)
        for i in range(9):
            client.publish(b"%d" % i, "a")
        assert engine.move(source, 1 << 40, lambda exchange, key, header: Route([source])) == 9
        assert bodies(source) == [b"%d" % i for i in range(9)]
        source.check()

    @pytest.mark.parametrize("how", ["move", "letter"])
    def test_to_itself_while_the_ring_is_squeezed(self, engine: Engine, source: Queue, how: str) -> None:
        """The copy is pushed to the ring that the message is taken from: it may lie elsewhere then."""
        client = MemoryClient(engine, a=source)
        bury(source, source)
        for i in range(5):
            client.publish(b"%d" % i, "a")
        client.channel.get(source, False)  # stays at the head
        for tag in range(2, 62):
            if how == "move":
                engine.move(source, 3, lambda *_: Route([source]))
            else:
                client.channel.get(source, False)
                client.send(Basic.Reject(tag, requeue=False))
            client.turn()
            source.check()
            assert sorted(bodies(source)) == [b"%d" % i for i in range(5)]

    def test_a_consumer_takes_what_was_about_to_move(self, engine: Engine, source: Queue) -> None:
        source.max_count, source.rejects = 4, True
        client = MemoryClient(engine, a=source)
        for i in range(4):
            client.publish(b"%d" % i, "a")
        client.turn()
        client.channel.consume(source, "c", False, 3)
        assert engine.move(source, 9, lambda *_: Route([source])) == 1
        assert [d[1] for d in deliveries(client.turn())] == [b"0", b"1", b"2"]
        source.check()
        assert bodies(source) == [b"0", b"1", b"2", b"3"]

    def test_priorities_to_itself_and_another(self, engine: Engine, source: Queue, target: Queue) -> None:
        source.add_levels(9)
        client = MemoryClient(engine, a=source)
        for i in range(100):
            client.publish(b"%d" % (i % 10), "a", priority=i % 10)
        assert engine.move(source, 1 << 40, lambda exchange, key, header: Route([source, target])) == 100
        client.turn()
        assert bodies(source) == sorted(bodies(source), reverse=True) == bodies(target)
        source.check()

    def test_none_ends_it(self, engine: Engine, source: Queue, target: Queue) -> None:
        client = MemoryClient(engine, a=source)
        for _ in range(4):
            client.publish(b"m", "a")
        assert engine.move(source, 9, lambda *_: None if target.ready == 2 else Route([target])) == 2
        assert (source.ready, target.ready) == (2, 2)

    def test_the_time_to_live_runs_on(self, engine: Engine, source: Queue, target: Queue) -> None:
        client = MemoryClient(engine, a=source)
        engine.now = 1000
        client.publish(b"m", "a", expiration="100")
        engine.now = 1090
        engine.move(source, 1, lambda *_: Route([target]))
        client.publish(b"new", "a", expiration="100")
        engine.now = 1101
        engine.tick()
        assert (target.ready, source.ready) == (0, 1)

    def test_drain_takes_what_is_handed_out_too(self, engine: Engine, source: Queue, target: Queue) -> None:
        client = MemoryClient(engine, a=source)
        prefixes = Prefixes(engine)
        for i in range(6):
            client.publish(b"%d" % i, "a")
        client.channel.consume(source, "c", False, 4)
        client.turn()
        client.send(Basic.Ack(1))
        prefixes.seen.discard(b"0")
        assert engine.drain(source, lambda *_: Route([target])) and target.ready == 5
        engine.delete_queue(source)
        client.send(Basic.Ack(4, multiple=True))
        client.turn()
        assert bodies(target) == bodies(prefixes.backup.queues[2]) == [b"%d" % i for i in range(1, 6)]

    def test_a_moved_message_is_confirmed_no_sooner_than_it_is_safe(
        self, engine: Engine, source: Queue, target: Queue
    ) -> None:
        engine.on_batch = lambda batch: None
        client = MemoryClient(engine, a=source)
        client.channel.confirm_select()
        client.publish(b"m", "a")
        engine.move(source, 1, lambda *_: Route([target]))
        assert confirms(client.turn()) == []
        engine.advance_safe(engine.position)
        assert confirms(client.turn()) == [(1, False)]


class TestConsumerPriorities:
    @pytest.fixture
    def queue(self, engine: Engine) -> Queue:
        return engine.create_queue(1, "a", True)

    def taken(self, client: MemoryClient) -> Counter[str]:
        frames = client.turn()
        return Counter(str(frame.consumer_tag) for _, frame in frames if isinstance(frame, Basic.Deliver))

    def test_the_highest_take_all_until_they_are_full(self, engine: Engine, queue: Queue) -> None:
        client = MemoryClient(engine, a=queue)
        for tag, priority in (("low", -1), ("none", 0), ("high", 5), ("too", 5)):
            client.channel.consume(queue, tag, False, 3, priority)
        for _ in range(4):
            client.publish(b"m", "a")
        assert self.taken(client) == {"high": 2, "too": 2}
        for _ in range(6):
            client.publish(b"m", "a")
        assert self.taken(client) == {"high": 1, "too": 1, "none": 3, "low": 1}
        client.channel.cancel("high")
        client.send(Basic.Ack(10, multiple=True))
        client.publish(b"m", "a")
        assert self.taken(client) == {"too": 1}
        queue.check()

    def test_equal_ones_take_turns(self, engine: Engine, queue: Queue) -> None:
        client = MemoryClient(engine, a=queue)
        for tag in "abc":
            client.channel.consume(queue, tag, True, 0, 7)
        for _ in range(30):
            client.publish(b"m", "a")
        assert set(self.taken(client).values()) == {10}


class TestThrottle:
    def test_who_begins_to_publish_is_not_read_either(self, engine: Engine) -> None:
        queue = engine.create_queue(1, "a", True)
        client, other = MemoryClient(engine, a=queue), MemoryClient(engine, a=queue)
        client.publish(b"m", "a")
        engine.throttle(True, "test")
        assert (client.connection.input_paused, other.connection.input_paused) == (True, False)
        other.publish(b"m", "a")
        assert other.connection.input_paused
        engine.throttle(False, "test")
        assert not client.connection.input_paused and not other.connection.input_paused

    def test_requests_to_the_broker_are_always_read(self, engine: Engine) -> None:
        client = MemoryClient(engine)
        asked: list[bytes] = []

        def answer(owner: object, channel: int, exchange: bytes, key: bytes, header: bytes, body: bytes) -> None:
            asked.append(body)

        client.owner.route = lambda *_: Route([], handler=answer)  # type: ignore[method-assign]
        client.publish(b"status", "x")
        engine.throttle(True, "test")
        assert not client.connection.input_paused and not client.connection.publisher
        client.publish(b"again", "x")
        assert asked == [b"status", b"again"]


def enqueue_record(route: bytes, header: bytes = b"\0\x3c" + bytes(12), body: bytes = b"body") -> bytes:
    inside = struct.pack("<IHHI", 1, len(route), 0, len(header)) + route + header + body
    return struct.pack("<IBBHQ", 16 + len(inside), ENQUEUE, 0, 1, 1) + inside


@pytest.mark.parametrize(
    ("route", "header"),
    [
        (b"", None),
        (b"\0", None),
        (b"\x01\0", None),
        (b"\0\x01", None),
        (b"\x02ab\x01", None),
        (b"\0\0more", None),
        (b"\xff" + b"e" * 255, None),
        (b"\0\0", b""),
        (b"\0\0", b"\0\x3c" + bytes(11)),
    ],
)
def test_a_record_whose_route_or_header_is_none_costs_the_link(route: bytes, header: bytes | None) -> None:
    backup = Engine()
    backup.create_queue(1, "a", True)
    record = enqueue_record(route) if header is None else enqueue_record(route, header)
    with pytest.raises(LinkError):
        backup.apply(link_frame(BATCH, 1, record, 1))
    with pytest.raises(LinkError):
        backup.apply_slice(record)
    assert backup.queues[1].ready == 0


@pytest.mark.parametrize("route", [b"\0\0", b"\x01e\x02kk", b"\xff" + b"e" * 255 + b"\xff" + b"k" * 255])
def test_a_record_with_two_short_strings_is_taken(route: bytes) -> None:
    backup = Engine()
    queue = backup.create_queue(1, "a", True)
    backup.apply(link_frame(BATCH, 1, enqueue_record(route), 1))
    exchange, key = queue.peek(1)[0][2:4]
    assert bytes([len(exchange)]) + exchange + bytes([len(key)]) + key == route
    backup.begin_epoch(1)
    client = MemoryClient(backup)
    client.channel.consume(queue, "c", True)
    assert deliveries(client.turn()) == [(1, b"body", False)]
