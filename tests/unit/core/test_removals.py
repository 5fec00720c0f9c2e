"""Which messages were not consumed: runs of ids, and what the engine notes of what leaves unconsumed."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from qpidd_py.core import Engine, Queue, Route, reading
from qpidd_py.core.runs import IdRuns, runs_of
from tests.support.memory import MemoryClient

Noted = list[tuple[str, str, bool, list[tuple[str, str, int]], int]]


def header(message_id: str | None, **more: object) -> bytes:
    properties = Basic.Properties(message_id=message_id, **more)  # type: ignore[arg-type]
    return ContentHeader(0, 3, properties).marshal()


def named(ids: list[str | None], most: int = 100) -> list[tuple[str, str, int, int, int]]:
    return runs_of([(number, header(name)) for number, name in enumerate(ids, 1)], most).named


# ---- runs ---------------------------------------------------------------------------------------------------------


def test_numbers_that_follow_on_are_one_run() -> None:
    assert named(["p:1", "p:2", "p:3"]) == [("p:1", "p:3", 3, 1, 3)]


def test_producers_may_take_turns() -> None:
    assert named(["p:1", "q:7", "p:2", "q:8", "p:3"]) == [("p:1", "p:3", 3, 1, 5), ("q:7", "q:8", 2, 2, 4)]


def test_a_gap_or_a_repeated_number_begins_a_new_run() -> None:
    assert [run[:3] for run in named(["p:1", "p:3", "p:3", "p:4"])] == [
        ("p:1", "p:1", 1),
        ("p:3", "p:3", 1),
        ("p:3", "p:4", 2),
    ]


@pytest.mark.parametrize("name", ["uuid", ":1", "p:", "p:01", "p:x", "p:1234567890123456789", "7", "p:٣"])
def test_an_id_of_another_form_is_a_run_of_one(name: str) -> None:
    assert named([name, name]) == [(name, name, 1, 1, 1), (name, name, 1, 2, 2)]


def test_a_number_with_colons_before_it() -> None:
    assert named(["a:b:9", "a:b:10", "p:0", "p:1"]) == [("a:b:9", "a:b:10", 2, 1, 2), ("p:0", "p:1", 2, 3, 4)]


def test_what_has_no_id_or_no_room_is_counted() -> None:
    runs = runs_of([(5, header("p:1")), (6, header(None)), (7, header("x")), (9, header("p:2")), (8, header("y"))], 1)
    assert runs.named == [("p:1", "p:2", 2, 5, 9)]
    assert runs.unnamed == (3, 6, 8)


ALL = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"k": "v" * 300},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "100",
}


@given(st.sets(st.sampled_from(sorted(ALL))), st.sampled_from(["", "a", "p:1"]), st.booleans())
def test_the_id_is_found_behind_any_other_properties(names: set[str], name: str, more: bool) -> None:
    octets = header(name, **{key: ALL[key] for key in names}, **({"user_id": "u", "app_id": "a"} if more else {}))
    found = runs_of([(1, octets)], 5)
    assert [run[0] for run in found.named] == ([name] if name else [])


@given(st.binary(max_size=60))
def test_a_header_that_cannot_be_read_has_no_id(octets: bytes) -> None:
    runs = runs_of([(1, octets), (2, struct.pack(">HHQH", 60, 0, 0, 0xFFFE) + octets)], 5)
    assert len(runs.named) + runs.unnamed[0] == 2


@given(st.lists(st.one_of(st.none(), st.builds("{}:{}".format, st.sampled_from("pq"), st.integers(0, 6)))))
def test_runs_stand_for_the_very_messages(ids: list[str | None]) -> None:
    runs = runs_of([(number, header(name)) for number, name in enumerate(ids)], 8)
    said: Counter[str] = Counter()
    for first, last, count, *_ in runs.named:
        prefix, low, high = first[0], int(first[2:]), int(last[2:])
        assert high - low + 1 == count
        said.update(f"{prefix}:{number}" for number in range(low, high + 1))
    wanted = Counter(name for name in ids if name is not None)
    assert sum(said.values()) + runs.unnamed[0] == len(ids)
    assert not said - wanted


# ---- the engine -----------------------------------------------------------------------------------------------------


class Lab:
    """An engine, its log and what it has noted."""

    def __init__(self, levels: int = 0) -> None:
        self.engine = Engine(segment_size=8192)
        self.queue = self.engine.create_queue(1, "a", True)
        if levels:
            self.queue.add_levels(levels)
        self.client = MemoryClient(self.engine, a=self.queue)
        self.order: list[str] = []
        self.noted: Noted = []
        self.engine.on_removed = self.take
        self.engine.on_batch = lambda batch: self.order.append("batch")

    def take(self) -> None:
        self.order.append("noted")
        for queue, reason, dead, runs in self.engine.removed():
            self.noted.append((queue, reason, dead, [run[:3] for run in runs.named], runs.unnamed[0]))

    def publish(self, *numbers: int, **properties: object) -> None:
        for number in numbers:
            self.client.publish(b"%d" % number, "a", message_id=f"p:{number}", **properties)


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_what_a_limit_pushes_out(lab: Lab) -> None:
    lab.queue.max_count = 2
    lab.publish(*range(1, 6))
    lab.client.turn()
    assert lab.noted == [("a", "maxlen", False, [("p:1", "p:3", 3)], 0)]
    assert lab.order.index("noted") < lab.order.index("batch")


def test_what_expires(lab: Lab) -> None:
    lab.engine.now = 1000
    lab.publish(1, 2, expiration="50")
    lab.publish(3)
    lab.client.turn()
    lab.engine.now = 2000
    lab.engine.tick()
    lab.engine.end_turn()
    assert lab.noted == [("a", "expired", False, [("p:1", "p:2", 2)], 0)]
    assert lab.queue.ready == 1


def test_what_is_rejected(lab: Lab) -> None:
    lab.publish(1, 2, 3)
    lab.client.channel.consume(lab.queue, "c", False, 0)
    lab.client.turn()
    lab.client.send(Basic.Nack(2, multiple=True, requeue=False))
    lab.client.send(Basic.Ack(3))
    lab.client.turn()
    assert lab.noted == [("a", "rejected", False, [("p:1", "p:2", 2)], 0)]


@pytest.mark.parametrize("levels", [0, 3])
def test_what_is_purged_and_what_goes_with_its_queue(levels: int) -> None:
    lab = Lab(levels)
    lab.publish(1, 2, priority=1)
    lab.client.channel.consume(lab.queue, "c", False, 2)
    lab.client.turn()
    lab.publish(3, 4, 5)
    lab.client.turn()
    assert lab.engine.purge(lab.queue) == 3
    lab.engine.flush()
    assert lab.noted == [("a", "purged", False, [("p:3", "p:5", 3)], 0)]
    assert lab.order[-2:] == ["noted", "batch"]
    lab.engine.delete_queue(lab.queue)
    lab.client.turn()
    assert lab.noted[1:] == [("a", "deleted", False, [("p:1", "p:2", 2)], 0)]


def test_a_dead_letter_and_one_without_a_queue(lab: Lab) -> None:
    target = lab.engine.create_queue(2, "letters", True)
    answers = iter([Route([target]), None, Route([])])

    def bury(
        reason: str, exchange: bytes, key: bytes, header: bytes, body: bytes
    ) -> tuple[Route, bytes, bytes, bytes] | None:
        route = next(answers)
        return None if route is None else (route, exchange, key, header)

    lab.queue.dead_letter = bury
    lab.queue.max_count = 1
    lab.publish(1, 2, 3, 4)
    for _ in range(3):
        lab.client.turn()
    noted = sorted(item for item in lab.noted)
    assert noted == [
        ("a", "maxlen", False, [("p:2", "p:2", 1)], 0),
        ("a", "maxlen", True, [("p:1", "p:1", 1), ("p:3", "p:3", 1)], 0),
    ]
    assert target.ready == 1


def test_what_is_moved_is_not_gone_unless_no_queue_takes_it(lab: Lab) -> None:
    target = lab.engine.create_queue(2, "b", True)
    lab.publish(1, 2, 3)
    lab.client.turn()
    assert lab.engine.move(lab.queue, 1, lambda *_: Route([target])) == 1
    assert lab.engine.move(lab.queue, 2, lambda *_: Route([])) == 2
    lab.client.turn()
    assert lab.noted == [("a", "unroutable", False, [("p:2", "p:3", 2)], 0)]


def test_what_is_not_taken_grows_together(lab: Lab) -> None:
    lab.engine.on_removed = lambda: lab.order.append("noticed")
    lab.queue.max_count = 1
    for number in range(1, 6):
        lab.publish(number)
        lab.client.turn()
    assert lab.order.count("noticed") >= 4
    assert lab.engine.removing == [("a", "maxlen", False)]
    lab.take()
    assert lab.noted == [("a", "maxlen", False, [("p:1", "p:4", 4)], 0)] and lab.engine.removing == []


def test_nothing_is_noted_without_a_reader() -> None:
    lab = Lab()
    lab.engine.on_removed = None
    lab.queue.max_count = 1
    lab.publish(1, 2, 3)
    lab.client.turn()
    lab.engine.purge(lab.queue)
    lab.engine.delete_queue(lab.queue)
    assert lab.engine.removing == []


def test_what_is_in_a_queue_by_name(lab: Lab) -> None:
    lab.publish(1, 2, 3, 4)
    lab.client.channel.consume(lab.queue, "c", False, 2)
    lab.client.turn()
    lab.client.send(Basic.Ack(2))
    lab.client.turn()
    runs = contents(lab.queue)
    assert runs == ([("p:1", "p:1", 1), ("p:3", "p:4", 2)], 0)


@pytest.mark.parametrize("levels", [0, 3])
def test_what_leaves_between_two_parts_is_not_named_and_what_stays_is_named_once(levels: int) -> None:
    lab = Lab(levels)
    lab.publish(*range(1, 11))
    lab.client.turn()
    runs = IdRuns(100)
    parts = reading.name_in_parts(lab.queue, runs, 4)
    next(parts)
    lab.engine.purge(lab.queue)
    lab.publish(11, 12)
    lab.client.turn()
    assert list(parts) == []
    assert [run[:3] for run in runs.named] == [("p:1", "p:4", 4), ("p:11", "p:12", 2)]


def contents(queue: Queue) -> tuple[list[tuple[str, str, int]], int]:
    runs = reading.named(queue, 10)
    return [run[:3] for run in runs.named], runs.unnamed[0]
