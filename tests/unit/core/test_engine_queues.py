"""What a queue does with its messages: priorities, limits, expiry, dead letters; driven in memory."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Catchup, Engine, Queue, Route
from tests.support.memory import MemoryClient, confirms, deliveries, publish_octets


class TestPriorities:
    @pytest.fixture
    def queue(self, engine: Engine) -> Queue:
        queue = engine.create_queue(1, "a", True)
        queue.add_levels(4)
        return queue

    def test_higher_first_and_in_order_within(self, client: MemoryClient, queue: Queue) -> None:
        for i, priority in enumerate([1, 9, 0, 4, 1]):
            client.publish(b"%d" % i, "a", priority=priority)
        client.publish(b"none", "a")
        client.channel.consume(queue, "c", False, 0)
        assert [d[1] for d in deliveries(client.turn())] == [b"1", b"3", b"0", b"4", b"2", b"none"]
        client.send(Basic.Ack(2, multiple=True))
        client.send(Basic.Nack(6, multiple=True, requeue=True))
        queue.check()
        assert [d[1] for d in deliveries(client.turn())] == [b"0", b"4", b"2", b"none"]

    def test_a_backup_has_the_same_and_a_joiner_too(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        backups = [Engine(lambda position, payload: None, segment_size=65536) for _ in range(2)]
        copies = [backup.create_queue(1, "a", True) for backup in backups]
        for copy in copies:
            copy.add_levels(4)
        engine.on_batch = lambda batch: backups[0].apply(bytes(batch))
        for i in range(20):
            client.publish(b"%d" % i, "a", priority=i * 7 % 5)
        client.channel.consume(queue, "c", False, 12)
        client.turn()
        client.send(Basic.Ack(3))
        client.send(Basic.Ack(7))
        client.turn()
        assert copies[0].held() == queue.held()
        catchup = Catchup(queue, b"", engine.flush())
        while piece := catchup.slice(100):
            backups[1].apply_slice(piece)
        backups[1].merge(1)
        assert catchup.messages == 18
        for copy in copies:
            copy.check()
            assert copy.peek(99) == queue.peek(99)
        backups[0].begin_epoch(1)
        taker = MemoryClient(backups[0])
        taker.channel.consume(copies[0], "c", False, 0)
        assert [d[1] for d in deliveries(taker.turn())] == [m[5] for m in copies[1].peek(99)]

    def test_a_full_ring_keeps_the_highest(self, client: MemoryClient, queue: Queue) -> None:
        queue.max_count = 3
        for priority in [0, 4, 1, 3, 2, 0]:
            client.publish(b"%d" % priority, "a", priority=priority)
        client.turn()
        assert [m[5] for m in queue.peek(9)] == [b"4", b"3", b"2"]

    def test_purge(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        for priority in range(5):
            client.publish(b"m", "a", priority=priority)
        client.turn()
        assert engine.purge(queue) == 5
        queue.check()


class TestLimits:
    def test_the_oldest_goes(self, client: MemoryClient, queue: Queue) -> None:
        queue.max_count = 5
        for i in range(10):
            client.publish(b"%d" % i, "a")
        client.turn()
        assert [m[5] for m in queue.peek(99)] == [b"%d" % i for i in range(5, 10)]

    def test_octets_count_bodies_that_are_ready(self, client: MemoryClient, queue: Queue) -> None:
        queue.max_bytes = 100
        client.channel.consume(queue, "c", False, 1)
        client.publish(b"x" * 90, "a")
        client.turn()
        for size in (60, 40, 30):
            client.publish(b"y" * size, "a")
        client.turn()
        assert [len(m[5]) for m in queue.peek(9)] == [90, 40, 30]

    @pytest.mark.parametrize("rejects", [False, True])
    def test_consumers_that_wait_take_what_a_limit_would_cost(
        self, engine: Engine, client: MemoryClient, queue: Queue, rejects: bool
    ) -> None:
        """However many arrive with one read."""
        queue.max_count, queue.rejects = 2, rejects
        client.channel.confirm_select()
        client.channel.consume(queue, "c", False, 30)
        client.connection.feed(b"".join(publish_octets(b"%d" % i, "a") for i in range(40)))
        frames = client.turn()
        assert [d[1] for d in deliveries(frames)] == [b"%d" % i for i in range(30)]
        assert [m[5] for m in queue.peek(99)[30:]] == ([b"30", b"31"] if rejects else [b"38", b"39"])
        assert sum(frame.name == "Basic.Nack" for _, frame in frames) == (8 if rejects else 0)
        queue.check()

    def test_a_full_queue_refuses(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        queue.max_count, queue.rejects = 2, True
        client.channel.confirm_select()
        for i in range(4):
            client.publish(b"%d" % i, "a")
        frames = client.turn()
        assert [(f.name, f.delivery_tag, f.multiple) for _, f in frames] == [
            ("Basic.Nack", 3, False),
            ("Basic.Nack", 4, False),
            ("Basic.Ack", 2, True),
        ]
        assert [m[5] for m in queue.peek(9)] == [b"0", b"1"]
        engine.purge(queue)
        client.publish(b"5", "a")
        assert confirms(client.turn())[-1][0] == 5

    def test_a_refusal_behind_publishes_that_wait(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        queue.max_count, queue.rejects = 2, True
        engine.on_batch = lambda batch: None
        client.channel.confirm_select()
        for i in range(3):
            client.publish(b"%d" % i, "a")
        assert [(f.name, f.delivery_tag) for _, f in client.turn()] == [("Basic.Nack", 3)]
        engine.advance_safe(engine.position)
        assert confirms(client.turn()) == [(2, True)], "what was refused is not confirmed"


class TestExpiry:
    def test_by_the_message(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        engine.now = 1000
        client.publish(b"short", "a", expiration="50")
        client.publish(b"long", "a", expiration="5000")
        client.turn()
        engine.now = 1050
        engine.tick()
        assert queue.ready == 2
        engine.now = 1051
        engine.tick()
        assert [m[5] for m in queue.peek(9)] == [b"long"]

    def test_without_time_to_live_it_goes_to_who_waits(self, client: MemoryClient, queue: Queue) -> None:
        client.channel.consume(queue, "c", False, 1)
        client.publish(b"taken", "a", expiration="0")
        client.publish(b"late", "a", expiration="0")
        assert [d[1] for d in deliveries(client.turn())] == [b"taken"]
        client.engine.now += 1
        client.send(Basic.Ack(1))
        assert deliveries(client.turn()) == [] and queue.ready == 0

    def test_by_the_queue_and_on_the_backup_that_is_promoted(self, engine: Engine, client: MemoryClient) -> None:
        queue = engine.create_queue(2, "t", True)
        queue.ttl = 100
        client.owner.routes[b"t"] = [queue]
        backup = Engine(lambda position, payload: None, segment_size=65536)
        copy = backup.create_queue(2, "t", True)
        copy.ttl = 100
        engine.on_batch = lambda batch: backup.apply(bytes(batch))
        client.publish(b"m", "t", expiration="99999")
        client.turn()
        backup.now = 200
        backup.tick()
        assert copy.ready == 1, "a backup decides nothing"
        backup.begin_epoch(1)
        backup.tick()
        assert copy.ready == 0

    def test_what_has_expired_is_not_delivered(self, engine: Engine, client: MemoryClient, queue: Queue) -> None:
        client.publish(b"gone", "a", expiration="1")
        client.publish(b"here", "a")
        client.turn()
        engine.now = 10
        client.channel.consume(queue, "c", False, 0)
        assert [d[1] for d in deliveries(client.turn())] == [b"here"]
        assert not client.channel.get(queue, True)

    @pytest.mark.parametrize("expiration", ["x", "-1", "1.5", "+", "", "315360000001", "123456789012345678901234"])
    def test_a_bad_expiration_costs_the_channel(self, client: MemoryClient, expiration: str) -> None:
        client.publish(b"m", "a", expiration=expiration)
        assert client.owner.failures[0][:2] == (1, 406)


def test_dead_letters_say_why(engine: Engine, client: MemoryClient, queue: Queue) -> None:
    dead: list[tuple[str, bytes, bytes]] = []

    def note(reason: str, exchange: bytes, key: bytes, header: bytes, body: bytes) -> None:
        dead.append((reason, key, body))

    queue.dead_letter = note
    queue.max_count = 2
    for body in (b"over", b"old", b"refused"):
        client.publish(body, "a", expiration="10" if body == b"old" else "1000")
    client.turn()
    engine.now = 11
    engine.tick()
    client.channel.consume(queue, "c", False, 0)
    client.turn()
    client.send(Basic.Reject(1, requeue=False))
    client.turn()
    assert dead == [("maxlen", b"a", b"over"), ("expired", b"a", b"old"), ("rejected", b"a", b"refused")]


def test_a_dead_letter_is_confirmed_no_sooner_than_its_copy(engine: Engine, client: MemoryClient, queue: Queue) -> None:
    letters = engine.create_queue(2, "letters", True)
    queue.dead_letter = lambda reason, exchange, key, header, body: (Route([letters]), exchange, key, header)
    engine.on_batch = lambda batch: None
    queue.max_count = 1
    client.channel.confirm_select()
    client.publish(b"1", "a")
    client.publish(b"2", "a")
    assert confirms(client.turn()) == []
    assert ([m[5] for m in queue.peek(9)], [m[5] for m in letters.peek(9)]) == ([b"2"], [b"1"])
    engine.advance_safe(engine.position)
    assert confirms(client.turn()) == [(2, True)]
