"""Messages that wait for their time: in which order they leave, and what a backup has of it."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from pamqp.commands import Basic

from qpidd_py.core import Batch, Catchup, Engine, Paging, Queue, Route
from qpidd_py.core.delays import Delays
from qpidd_py.errors import PageError
from tests.support.memory import MemoryClient, confirms

NOW = 1_800_000_000_000


def delay_of(header: bytes) -> int:
    """The correlation-id (and nothing else) says it."""
    return int(header[15 : 15 + header[14]])


class World:
    """A primary on which messages wait in `waiting` and go to `target`, and a backup."""

    def __init__(self) -> None:
        self.engine, self.backup = Engine(segment_size=8192), follower()
        self.engine.now = self.backup.now = NOW
        self.looks = True  # no two messages have one body
        self.engine.on_batch = self.sealed
        self.waiting, self.target = declared(self.engine)
        declared(self.backup)
        self.client = MemoryClient(self.engine, waiting=self.waiting, target=self.target)
        self.client.owner.routes[b"both"] = [self.waiting, self.target]
        self.client.channel.confirm_select()

    def sealed(self, batch: Batch) -> None:
        self.backup.apply(bytes(batch))
        if self.looks:
            both(self.backup)

    def publish(self, *delays: int, queue: str = "waiting") -> None:
        for delay in delays:
            self.client.publish(b"%d" % delay, queue, correlation_id=str(delay))
        self.client.turn()

    def at(self, time: int) -> list[bytes]:
        """What has come to the target so many milliseconds later."""
        return run(self.engine, time)

    def promoted(self, engine: Engine | None = None) -> None:
        self.engine = engine or self.backup
        self.engine.passive = False
        self.engine.begin_epoch(self.engine.epoch + 1)
        self.waiting, self.target = self.engine.queues[1], self.engine.queues[2]


def follower() -> Engine:
    engine = Engine(lambda position, payload: None, segment_size=8192)
    engine.passive = True
    return engine


def declared(engine: Engine) -> tuple[Queue, Queue]:
    waiting, target = engine.create_queue(1, "waiting", True), engine.create_queue(2, "target", True)
    waiting.delays = Delays(delay_of)
    waiting.dead_letter = lambda reason, exchange, key, header, body: (Route([target]), exchange, key, header)
    return waiting, target


def run(engine: Engine, time: int) -> list[bytes]:
    engine.now = NOW + time + 1  # in the millisecond in which it is due it may wait
    for _ in range(1000):
        before = engine.queues[1].ready
        engine.expire_due()
        if engine.queues[1].ready == before:
            break
    engine.flush()
    for queue in engine.queues.values():
        queue.check()
    return bodies(engine.queues[2])


def bodies(queue: Queue) -> list[bytes]:
    return [message[5] for message in queue.peek(1 << 20)]


def both(engine: Engine) -> None:
    assert not {*bodies(engine.queues[1])} & {*bodies(engine.queues[2])}, "a message waits and has left"


def test_they_leave_when_they_are_due_and_not_before() -> None:
    world = World()
    world.publish(30, 10, 20)
    assert world.at(9) == []
    assert world.at(10) == [b"10"]
    assert world.at(25) == [b"10", b"20"]
    assert world.at(1000) == [b"10", b"20", b"30"]
    assert len(delays(world.waiting)) == world.waiting.ready == 0


def delays(queue: Queue) -> Delays:
    assert queue.delays is not None
    return queue.delays


def test_what_is_due_at_one_time_leaves_in_its_order() -> None:
    world = World()
    world.looks = False
    draw = random.Random(1)
    numbers = [draw.randrange(1, 50) for _ in range(2000)]
    for number in numbers:
        world.client.publish(b"%d" % number, "waiting", correlation_id=str(number))
    world.client.turn()
    assert world.at(100) == [b"%d" % number for number in sorted(numbers)]


def test_somebody_is_told_when_the_first_is_due() -> None:
    world = World()
    told: list[int] = []
    world.engine.on_deadline = told.append
    world.publish(500, 300, 400)
    assert NOW + 300 <= min(told) <= NOW + 301
    world.at(301)
    assert NOW + 400 <= told[-1] <= NOW + 401


def test_a_publish_is_confirmed_when_it_is_safe_though_it_waits() -> None:
    world = World()
    world.publish(50)
    assert confirms(world.client.turn()) == []
    world.engine.advance_safe(world.engine.flush())
    assert confirms(world.client.turn()) == [(1, False)]


def test_one_that_enters_other_queues_too_expires_in_none_and_no_consumer_confirms_it() -> None:
    world = World()
    world.looks = False
    world.client.channel.consume(world.target, "c", False, 0)
    world.publish(50, queue="both")
    world.client.send(Basic.Ack(1))
    frames = world.client.turn()
    for _ in range(3):
        world.engine.tick()
        frames += world.client.turn()
    assert confirms(frames) == []
    assert (world.waiting.ready, world.target.ready) == (1, 0)
    world.publish(60, queue="both")
    world.client.channel.cancel("c")
    world.engine.advance_safe(world.engine.flush())
    assert confirms(world.client.turn())
    world.at(1000)
    assert world.target.ready + world.target.unacked == 3


def test_copy_and_removal_are_one_batch_for_a_backup() -> None:
    """`both` looks at the backup after each batch."""
    world = World()
    world.publish(*range(1, 40))
    world.at(20)
    world.engine.flush()
    assert bodies(world.backup.queues[2]) == [b"%d" % number for number in range(1, 21)]


def test_a_promoted_backup_sends_what_is_due_and_nothing_twice() -> None:
    world = World()
    world.publish(30, 10, 20)
    world.at(10)
    world.promoted()
    assert world.at(25) == [b"10", b"20"]
    assert world.at(30) == [b"10", b"20", b"30"]


def test_a_backup_that_joins_has_them_all() -> None:
    world = World()
    world.publish(30, 10, 20, 40)
    world.at(10)
    joined = follower()
    declared(joined)
    cut = world.engine.flush()
    cursors = [Catchup(queue, b"", cut) for queue in world.engine.queues.values()]
    world.engine.on_batch = lambda batch: joined.apply(bytes(batch))
    world.publish(15)
    for cursor in cursors:
        while found := cursor.slice(100):
            joined.apply_slice(found)
        joined.merge(cursor.queue.number)
    world.at(20)
    world.engine.flush()
    world.promoted(joined)
    assert bodies(world.target) == [b"10", b"20"]
    assert world.at(40) == [b"10", b"20", b"15", b"30", b"40"], "15 came at 11"


def test_a_deposed_primary_that_leads_again_goes_on() -> None:
    world = World()
    world.publish(10, 20)
    world.engine.demote()
    world.engine.passive = True
    assert world.at(15) == [], "a backup decides nothing"
    world.promoted(world.engine)
    assert world.at(15) == [b"10"]


def test_a_backup_forgets_the_times_of_what_has_left() -> None:
    world = World()
    world.looks = False
    for time in range(0, 3000, 10):
        world.publish(5)
        world.at(time + 8)
    assert len(delays(world.waiting)) == 0
    assert len(delays(world.backup.queues[1])) <= 2


def test_in_a_transaction() -> None:
    world = World()
    client = MemoryClient(world.engine, waiting=world.waiting)
    client.channel.tx_select()
    for delay in (20, 10):
        client.publish(b"%d" % delay, "waiting", correlation_id=str(delay))
    assert world.at(5) == []
    client.channel.tx_commit()
    world.engine.end_turn()
    world.engine.advance_safe(world.engine.flush())
    assert world.at(1000) == [b"10", b"20"]


def test_what_finds_no_queue_when_it_is_due_is_gone() -> None:
    world = World()
    world.waiting.dead_letter = lambda reason, exchange, key, header, body: (Route([]), exchange, key, header)
    removed: list[Any] = []
    world.engine.on_removed = lambda: removed.extend(world.engine.removed())
    world.publish(10)
    world.at(10)
    world.engine.flush()
    assert (world.waiting.ready, world.target.ready, world.backup.queues[1].ready) == (0, 0, 0)
    assert [(queue, reason) for queue, reason, _, _ in removed] == [("waiting", "unroutable")]


def test_many_that_are_due_at_once_take_several_turns() -> None:
    world = World()
    for _ in range(300):
        world.client.publish(b"1", "waiting", correlation_id="1")
    world.client.turn()
    world.engine.schedule = lambda: None
    world.looks = False
    world.engine.now = NOW + 2
    world.engine.expire_due()
    left = world.waiting.ready
    assert 0 < left < 300
    world.engine.end_turn()
    assert world.waiting.ready < left


@pytest.mark.parametrize("rotten", [False, True])
def test_what_is_not_in_memory_is_read_first_and_what_cannot_be_read_stays(rotten: bool) -> None:
    world = World()
    world.looks = False
    pages: dict[int, bytes] = {}
    paging = Paging(world.engine, lambda place, page: None)
    for number in range(60):
        world.client.publish(bytes(1000), "waiting", correlation_id=str(100 + number))
    world.client.turn()
    world.publish(1000)
    leaving = paging.leave(1 << 30, 0)
    assert leaving
    for place, page in enumerate(leaving, 1):
        page.checksum()
        page.place = (place,)
        pages[place] = bytes(memoryview(page))
        paging.left(page)
    world.engine.now = NOW + 500
    world.engine.expire_due()
    assert world.target.ready == 0, "it has to be read"
    for _ in range(200):
        while (found := paging.next_read()) is not None:
            content = pages[found.place[0]]
            memoryview(found)[:] = bytes(len(content)) if rotten and found.place == (1,) else content
            found.checksum()
            with suppress(PageError):
                paging.arrived(found)
        world.engine.expire_due()
    assert (world.target.ready < 60) == rotten
    assert world.target.ready > 20
    assert world.waiting.ready == 61 - world.target.ready
