"""Events about messages that were not consumed, and about what is left in the queues."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ha.model.environment import Json
from ha.primary.removals import GATHERED, Removals, joined
from ha.shell import queue_dump
from ha.shell.queue_dump import dump, dump_on_request, dump_steps
from qpidd_py.core import Engine
from qpidd_py.errors import LinkError
from tests.support.memory import MemoryClient
from tests.unit.ha.test_ha_cluster import filled
from tests.unit.ha.world import World


class Lab:
    """An engine whose queue `q` holds one message, and what is written about the others."""

    def __init__(self, burst: int = 100, rate: float = 1.0) -> None:
        self.clock = 100.0
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.engine = Engine(segment_size=8192)
        self.queue = self.engine.create_queue(1, "q", True)
        self.queue.max_count = 1
        self.client = MemoryClient(self.engine, q=self.queue)
        self.removals = Removals(self, self.engine, burst, rate)  # type: ignore[arg-type]

    def now(self) -> float:
        return self.clock

    def wall(self) -> int:
        return 77

    def event(self, kind: str, **fields: Any) -> None:
        self.rows.append((kind, fields))

    def publish(self, *names: str | None) -> None:
        for name in names:
            self.client.publish(b"", "q", message_id=name)
        self.client.turn()

    @property
    def said(self) -> list[tuple[str, str | None, Any, Any]]:
        """(kind, first, last, count) of each row."""
        attrs = [(kind, fields.get("msg_id"), fields["attrs"]) for kind, fields in self.rows]
        return [(kind, name, more.get("last"), more.get("count")) for kind, name, more in attrs]


def test_what_goes_is_written_in_the_same_turn() -> None:
    lab = Lab()
    lab.publish("p:1", "p:2", None, "p:3", "x", "y")
    assert lab.said == [("drop", "p:1", "p:3", 3), ("drop", "x", None, 1), ("drop", None, None, 1)]
    first = lab.rows[0][1]
    assert (first["queue"], first["reason"], first["first_pos"], first["last_pos"]) == ("q", "maxlen", 1, 4)
    assert (lab.rows[2][1]["first_pos"], lab.rows[2][1]["last_pos"]) == (3, 3)


def test_each_reason_has_its_kind() -> None:
    lab = Lab()
    lab.queue.max_count = 9
    lab.publish("p:1", "p:2")
    lab.engine.purge(lab.queue)
    lab.publish("p:3")
    lab.engine.delete_queue(lab.queue)
    lab.client.turn()
    assert [(kind, fields["reason"]) for kind, fields in lab.rows] == [("purge", "purged"), ("purge", "deleted")]


def test_a_flood_is_announced_and_then_gathered() -> None:
    lab = Lab(burst=2, rate=0.5)
    lab.publish("p:0", "p:1", "p:2")
    for number in range(3, 30):
        lab.publish(f"p:{number}")
    assert lab.said == [("drop", "p:0", "p:1", 2), ("drop", None, None, None)]
    assert lab.rows[1][1]["attrs"] == {"gathering": "1", "at": 6} and lab.rows[1][1]["queue"] == "q"
    lab.clock += GATHERED - 0.1
    lab.removals.tick(lab.clock)
    assert len(lab.rows) == 2
    lab.clock += 0.2
    lab.removals.tick(lab.clock)
    assert lab.said[2:] == [("drop", "p:2", "p:28", 27)]
    lab.publish("p:30")
    assert len(lab.rows) == 3  # gathered again, and announced already
    lab.removals.stop()
    assert lab.said[3:] == [("drop", "p:29", None, 1)]


def test_a_row_says_where_in_the_log_its_removals_are() -> None:
    """At once: in the batch that ends at `at`; gathered: behind `since`."""
    lab = Lab(burst=2, rate=0.5)
    lab.publish("p:0", "p:1")
    first = lab.engine.position
    lab.publish("p:2", "p:3")
    lab.publish("p:4")
    second = lab.engine.position
    lab.removals.stop()
    places = [(fields["attrs"]["at"], fields["attrs"].get("since")) for _, fields in lab.rows]
    assert places[0] == (first, None)
    assert places[-1] == (second, first)


def test_after_a_rest_rows_are_written_at_once_again() -> None:
    lab = Lab(burst=2, rate=0.5)
    lab.publish("p:0", "p:1", "p:2", "p:3")
    lab.publish("p:4")
    lab.clock += 60
    lab.removals.tick(lab.clock)
    lab.publish("p:5")
    assert lab.said[-1] == ("drop", "p:4", None, 1)


def test_more_names_than_rows_are_counted() -> None:
    lab = Lab(burst=3)
    lab.publish(*(f"name {number}" for number in range(11)))
    assert [row[1:] for row in lab.said] == [
        *((f"name {number}", None, 1) for number in range(3)),
        (None, None, 7),
    ]
    assert (lab.rows[3][1]["first_pos"], lab.rows[3][1]["last_pos"]) == (4, 10)


def test_places_of_nothing_do_not_count() -> None:
    assert joined((0, 0, 0), (2, 5, 9)) == (2, 5, 9)
    assert joined((1, 7, 7), (2, 5, 6)) == (3, 5, 7)


def test_only_the_primary_writes() -> None:
    world = World()
    world.cluster()
    filled(world, 3)
    primary, backup = world["a"], world["b"]
    assert primary.engine.on_removed is not None and backup.engine.on_removed is None
    primary.node.demote("asked for")
    assert primary.engine.on_removed is None


# ---- dumps ----------------------------------------------------------------------------------------------------------


def test_a_dump_names_everything() -> None:
    lab = Lab()
    lab.queue.max_count = 99
    empty = lab.engine.create_queue(2, "empty", True)
    lab.publish("p:1", "p:2", None, "p:3")
    assert dump(lab, [lab.queue, empty], "stop") == {"queues": 2, "messages": 4, "unnamed": 1}  # type: ignore[arg-type]
    assert lab.rows == [
        ("queue_dump", {"queue": "q", "reason": "stop", "first_pos": 1, "last_pos": 4,
                        "attrs": {"dump": "77", "total": 4, "count": 1}}),
        ("queue_dump", {"queue": "q", "reason": "stop", "first_pos": 1, "last_pos": 4, "msg_id": "p:1",
                        "attrs": {"dump": "77", "last": "p:3", "count": 3}}),
        ("queue_dump", {"queue": "empty", "reason": "stop", "first_pos": None, "last_pos": None,
                        "attrs": {"dump": "77", "total": 0, "count": 0}}),
    ]  # fmt: skip


def test_a_dump_ends_somewhere_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_dump, "ROWS", 3)
    lab = Lab()
    lab.queue.max_count = 99
    lab.publish("a", "b")
    other = lab.engine.create_queue(2, "other", True)
    client = MemoryClient(lab.engine, other=other)
    for name in "cde":
        client.publish(b"", "other", message_id=name)
    client.turn()
    assert dump(lab, [lab.queue, other], "request")["unnamed"] == 2  # type: ignore[arg-type]
    assert [row[1] for row in lab.said] == [None, "a", "b", None, "c"]


def test_a_backup_is_not_asked() -> None:
    world = World()
    world.cluster()
    replies: list[Json] = []
    with pytest.raises(LinkError, match="is a backup"):
        dump_on_request(world["b"].node, [], replies.append, lambda: (0, ""))
    dump_on_request(world["a"].node, [], replies.append, lambda: (0, ""))
    assert replies == [{"ok": True, "result": {"queues": 0, "messages": 0, "unnamed": 0}}]


def test_a_long_dump_takes_turns_and_ends_when_the_primary_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_dump, "SLICE", 2)
    world = World()
    world.cluster()
    primary, replies = world["a"], list[Json]()
    queues = [primary.engine.create_queue(100 + number, f"q{number}", True) for number in range(7)]
    written = len(primary.events)
    dump_on_request(primary.node, queues, replies.append, lambda: (0, ""))
    assert not replies and len(primary.events) == written + 2
    world.run(0.1)
    assert replies == [{"ok": True, "result": {"queues": 7, "messages": 0, "unnamed": 0}}]
    dump_on_request(primary.node, queues, replies.append, lambda: (0, ""))
    primary.node.demote("asked for")
    world.run(0.1)
    assert "the dump is not complete: " in replies[1]["error"]


def test_a_long_queue_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_dump, "MESSAGES", 2)
    lab = Lab()
    lab.queue.max_count = 99
    lab.publish(*(f"p:{number}" for number in range(1, 6)))
    steps = dump_steps(lab, [lab.queue], "request")  # type: ignore[arg-type]
    next(steps)
    lab.publish("p:6")
    assert lab.said == [] and len(list(steps)) == 2
    assert lab.said == [("queue_dump", None, None, 0), ("queue_dump", "p:1", "p:6", 6)]


def test_a_dump_that_the_disk_does_not_take_is_refused() -> None:
    world = World()
    world.cluster()
    replies: list[Json] = []
    looks = itertools.count()
    lost = [(3, "an older one"), (3, "an older one"), (4, "[Errno 28] No space left on device")]
    dump_on_request(world["a"].node, [], replies.append, lambda: lost[min(next(looks), 2)])
    assert replies == [{"ok": False, "error": "the dump is not complete: [Errno 28] No space left on device"}]
