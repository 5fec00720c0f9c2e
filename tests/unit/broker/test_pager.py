"""What goes to the page file when, what a file that fails or is slow means, and which slots are taken."""

from __future__ import annotations

import errno
import logging
import os
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from qpidd_py.broker import pager
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.hooks import HaHooks
from qpidd_py.broker.memory import CAUSE, MemoryWatch
from qpidd_py.broker.pager import BEGIN, LOOK, NAMED, RETRY, ROT, WAIT, Pager, Slots
from qpidd_py.broker.pager import CAUSE as FILE
from qpidd_py.core import Engine, Page, Paging
from qpidd_py.errors import PageError
from tests.support.memory import MemoryClient

MIB = 1 << 20
LIMIT = 64 * MIB
STARTED = 20 * MIB


class Process:
    """A broker whose file does what the test says; its memory is that of its segments, and some more."""

    def __init__(self) -> None:
        self.broker = Broker("b", engine=Engine(segment_size=MIB))
        self.engine = self.broker.engine
        self.writing: list[Page] = []
        self.reading: list[Page] = []
        self.slots: list[int] = []
        self.pager = Pager(self.broker, Paging(self.engine, lambda place, buffer: None), self, LIMIT)
        self.watch = MemoryWatch(self.broker, LIMIT, self.resident, self.pager)
        self.told: list[str] = []
        self.damage: list[str] = []
        told = SimpleNamespace(
            limited=lambda reason: None, alarm=lambda *_: None, paging=self.paging, damaged=self.damage.append
        )
        self.broker.hooks = cast(HaHooks, told)
        self.client = MemoryClient(self.engine, q=self.engine.create_queue(1, "q", False))
        self.now = 0.0

    def resident(self) -> int:
        return STARTED + self.engine.pool.held()

    def write(self, page: Page) -> None:
        self.writing.append(page)

    def read(self, page: Page) -> None:
        self.reading.append(page)

    def shrink(self, slots: int) -> None:
        self.slots.append(slots)

    def paging(self, result: str, reason: str) -> None:
        self.told.append(result)

    def written(self, error: OSError | None = None) -> int:
        number = 0
        while self.writing:
            number += 1
            self.pager.wrote(self.writing.pop(0), error)
        return number

    def publish(self, octets: int, write: bool = True) -> None:
        for _ in range(octets // 60000):
            self.client.publish(b"x" * 60000, "q")
            self.client.turn()
            if write:
                self.written()

    def tick(self, seconds: float = 0.25) -> None:
        self.now += seconds
        self.watch.tick(self.now)


def test_nothing_leaves_below_its_share_and_the_limit_is_never_reached_above() -> None:
    process = Process()
    process.publish(int(BEGIN * LIMIT) - STARTED - 4 * MIB)
    process.tick()
    assert not process.engine.pool.written and not process.writing
    process.publish(4 * LIMIT)
    process.tick()
    assert process.engine.pool.paged > 3 * LIMIT
    assert process.resident() < (BEGIN + 0.1) * LIMIT and not process.broker.limits


def test_lazy_queues_leave_though_there_is_room() -> None:
    process = Process()
    process.publish(8 * MIB)
    process.tick()
    assert not process.writing
    process.broker.configurations.common.lazy[process.engine.queues[1]] = 0
    process.tick()
    assert len(process.writing) == LIMIT // 8 // MIB, "no more than may be on its way"
    process.written(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    process.tick()
    assert not process.writing and not process.engine.pool.paged, "not at once"
    process.publish(2 * MIB)
    process.tick(RETRY)
    assert process.written() and process.engine.pool.paged
    process.tick()
    assert process.told == ["failed"], "there is room, so that messages leave memory is no news"


def test_a_slow_file_makes_publishers_wait_before_the_limit() -> None:
    process = Process()
    while not process.broker.limits:
        process.publish(MIB, write=False)
        assert process.resident() < LIMIT
    assert set(process.broker.limits) == {FILE} and not process.broker.blocked, "a matter of moments"
    assert process.engine.throttled and process.resident() > WAIT * LIMIT
    flight = process.engine.pool.leaving
    assert 0 < flight <= LIMIT // 8 + MIB
    while process.writing:
        process.written()
    assert not process.broker.limits and not process.engine.throttled


def test_a_file_that_hangs_leaves_the_limit_to_do_its_work() -> None:
    process = Process()
    process.publish(2 * LIMIT, write=False)
    assert CAUSE in process.broker.limits and process.broker.blocked


def test_a_full_disk_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.publish(LIMIT - STARTED - 8 * MIB, write=False)
    with caplog.at_level(logging.ERROR):
        assert process.written(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert "cannot be written: No space left on device" in caplog.text
    assert process.pager.shown()["reason"] and not process.engine.pool.paged and not process.engine.pool.leaving
    process.tick()
    assert not process.writing, "not at once"
    assert process.told[-1] == "failed"
    process.tick(RETRY)
    assert process.written()
    assert process.engine.pool.paged and not process.pager.reason


def test_any_other_error_ends_the_use_of_the_file(caplog: pytest.LogCaptureFixture) -> None:
    process = Process()
    process.publish(LIMIT - STARTED - 8 * MIB, write=False)
    process.written(OSError(errno.EIO, os.strerror(errno.EIO)))
    process.tick(10 * RETRY)
    assert not process.writing and "Input/output error" in process.pager.reason
    process.publish(LIMIT)
    assert CAUSE in process.broker.limits


def wanted() -> Process:
    """A consumer waits for pages."""
    process = Process()
    process.publish(2 * LIMIT)
    process.client.channel.consume(process.engine.queues[1], "c", False, 0)
    for _ in range(20):
        process.client.turn()
    assert process.reading
    return process


def test_a_file_that_cannot_be_read_raises_if_a_restart_helps() -> None:
    process = wanted()
    process.pager.restarts = lambda: True
    with pytest.raises(PageError, match="cannot be read"):
        process.pager.arrived(process.reading[0], OSError(errno.EIO, "Input/output error"))
    assert not process.damage and not process.broker.alarms


def test_else_its_messages_wait_and_an_alarm_says_so(caplog: pytest.LogCaptureFixture) -> None:
    process = wanted()
    page = process.reading[0]
    offset = page.place[0] * MIB
    with caplog.at_level(logging.ERROR):
        process.pager.arrived(page, OSError(errno.EIO, "Input/output error"))
    alarm = process.broker.alarms[ROT]
    assert "messages cannot be read back, and wait: queue q (" in alarm
    assert f"the page file, {page.octets} octets at offset {offset}" in alarm
    assert f"at offset {offset}: the page file cannot be read: [Errno 5] Input/output error" in caplog.text
    assert process.damage == [f"the page file, {page.octets} octets at offset {offset}", alarm]
    assert process.pager.shown()["rotten"] == page.octets
    asked, ready = len(process.reading), process.engine.queues[1].ready
    for _ in range(100):
        process.tick()
        process.client.turn()
    assert len(process.reading) == asked and process.engine.queues[1].ready == ready
    assert len(process.damage) == 2 and process.broker.alarms[ROT] == alarm


def test_more_of_it_is_told_at_the_next_tick(caplog: pytest.LogCaptureFixture) -> None:
    process = wanted()
    for page in process.reading[:2]:
        process.pager.arrived(page, OSError(errno.EIO, "Input/output error"))
    assert len(process.damage) == 3, "the plug-in at once"
    before = process.broker.alarms[ROT]
    process.tick()
    assert len(process.damage) == 4 and process.broker.alarms[ROT] == process.damage[-1] != before
    assert caplog.text.count("Input/output error") == 2


def test_the_alarm_ends_when_the_messages_have_left() -> None:
    process = wanted()
    process.pager.arrived(process.reading.pop(0), OSError(errno.EIO, "Input/output error"))
    process.tick()
    process.engine.purge(process.engine.queues[1])
    process.client.turn()
    process.tick()
    assert process.damage[-1] == "" and ROT not in process.broker.alarms and not process.pager.shown()["rotten"]


def test_who_is_called_for_it_looks_again_now_and_then() -> None:
    process = wanted()
    called: list[float] = []
    queue = process.engine.queues[1]

    def look() -> None:
        called.append(process.now)
        if process.client.channel.get(queue, False, look) is not None:
            called.append(-1.0)

    look()
    process.pager.arrived(process.reading[0], OSError(errno.EIO, "Input/output error"))
    for _ in range(int(4 * LOOK / 0.25)):
        process.tick()
    assert 4 <= len(called) <= 7 and -1.0 not in called
    process.engine.purge(queue)
    process.client.turn()
    process.tick(LOOK)
    process.tick(LOOK)
    assert called[-1] == -1.0, "also when no rot is left"


def reading_far_ahead() -> Process:
    """As many segments as may be are being read for a consumer."""
    process = Process()
    process.pager._paging.ahead = 30
    process.publish(4 * LIMIT)
    process.client.channel.consume(process.engine.queues[1], "c", False, 0)
    for _ in range(20):
        process.client.turn()
    return process


def test_a_few_segments_are_read_at_a_time() -> None:
    assert len(reading_far_ahead().reading) == 4


def test_the_file_shrinks_when_its_end_is_free() -> None:
    process = Process()
    process.publish(2 * LIMIT)
    process.engine.purge(process.engine.queues[1])
    process.client.turn()
    process.tick()
    assert process.slots[-1] == 0 and process.pager.shown()["file"] == 0
    assert process.told == ["begun", "ended"]


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_never_given_twice(seed: int) -> None:
    rng, slots, taken = Random(seed), Slots(), set[tuple[int, ...]]()
    for _ in range(300):
        if rng.random() < 0.55 or not taken:
            place = slots.take(rng.choice((1, 1, 3)))
            assert not {slot for other in taken for slot in other} & set(place)
            taken.add(place)
        else:
            place = rng.choice(sorted(taken))
            taken.remove(place)
            slots.give(place)
        assert slots.end == max((slot + 1 for place in taken for slot in place), default=0)


@pytest.mark.parametrize("restarts", [True, False])
def test_what_was_found_by_who_reads_at_once(restarts: bool) -> None:
    """Names of removals, what clients hold of a queue that is deleted: nobody has asked for the page."""
    process = Process()
    process.publish(2 * LIMIT)
    process.pager.restarts = lambda: restarts
    with pytest.raises(PageError):
        process.engine.queues[1].peek(1000)
    assert process.engine.pool.rotten and not process.broker.alarms
    if restarts:
        with pytest.raises(PageError, match="messages cannot be read back, and wait: queue q"):
            process.tick()
        assert not process.damage
    else:
        process.tick()
        assert "queue q (" in process.broker.alarms[ROT] and process.damage == [process.broker.alarms[ROT]]


def test_without_rot_nothing_is_told() -> None:
    process = Process()
    process.pager.restarts = lambda: True
    process.publish(2 * LIMIT)
    for _ in range(3):
        process.tick(LOOK)
    assert not process.damage and not process.broker.alarms


def test_the_alarm_follows_messages_that_leave_a_segment_of_which_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    process = wanted()
    queue = process.engine.queues[1]
    process.pager.arrived(process.reading.pop(0), OSError(errno.EIO, "Input/output error"))
    process.tick()
    before, rotten = queue.unreadable, process.engine.pool.rotten
    told = len(process.damage)
    queue.max_count = queue.ready - 1
    process.client.publish(b"x", "q")
    process.client.turn()
    assert queue.unreadable == before - 2 and process.engine.pool.rotten == rotten
    process.tick(LOOK)
    assert process.broker.alarms[ROT].startswith(f"{before - 2} messages cannot be read back")
    assert len(process.damage) == told + 1
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        process.engine.purge(queue)
        process.client.turn()
        process.tick()
    assert [(record.levelname, record.getMessage()) for record in caplog.records if "rot" in record.getMessage()] == [
        ("WARNING", "rot: no message waits any more that cannot be read")
    ]


def test_what_waits_for_it_is_told_at_the_next_tick(caplog: pytest.LogCaptureFixture) -> None:
    process = wanted()
    process.tick()
    called: list[None] = []
    process.client.channel.get(process.engine.queues[1], False, lambda: called.append(None))
    process.pager.arrived(process.reading[0], OSError(errno.EIO, "Input/output error"))
    assert not called
    process.tick(0.0)
    assert len(called) == 1
    found = [record for record in caplog.records if record.getMessage() == f"rot: {process.broker.alarms[ROT]}"]
    assert [record.levelname for record in found] == ["ERROR"]


def test_a_read_that_has_failed_makes_room_for_another() -> None:
    process = reading_far_ahead()
    for _ in range(5):
        assert len(process.reading) == 4
        process.pager.arrived(process.reading.pop(0), OSError(errno.EIO, "Input/output error"))


@pytest.mark.parametrize(("number", "more"), [(NAMED, ""), (NAMED + 1, "1 more"), (NAMED + 3, "3 more")])
def test_the_alarm_names_some_queues(number: int, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = wanted()
    found: Any = [(SimpleNamespace(name=f"q{each}"), each + 1) for each in range(number)]
    monkeypatch.setattr(pager, "reading", SimpleNamespace(rotten_queues=lambda engine: found))
    names = [f"q{each} ({each + 1})" for each in range(NAMED)] + ([more] if more else [])
    total = number * (number + 1) // 2
    what = f"{total} messages cannot be read back, and wait: queue {', '.join(names)}"
    assert process.pager._rot() == f"{what}; last found in the page file"
