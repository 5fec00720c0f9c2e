"""The work list of a joining backup: what is sent, in which order, and how much at a time.  Queues are real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ha.model.protocol import Kind, decode_drop, decode_merge
from ha.primary import catchup
from ha.primary.catchup import LONG_SET, TURN, WINDOW, Plan
from qpidd_py.core import Queue, decode_ids, encode_ids
from tests.unit.ha.world import FakeConfiguration, Publisher

SIZE = 100
GONE = 1 << 40
"""An id that no queue has."""


class Primary:
    """Queues with messages, and what a backup holds of them."""

    def __init__(self, **counts: int) -> None:
        self.configuration = FakeConfiguration()
        for name in counts:
            self.configuration.declare(name)
        host: Any = SimpleNamespace(engine=self.configuration.engine, configuration=self.configuration)
        self.client = Publisher(host)
        for name, count in counts.items():
            self.publish(name, count)
        self.held: dict[tuple[int, int], bytes] = {}
        self.frames: list[tuple[Kind, int, bytes]] = []

    def publish(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self.client.publish(name, b"x" * SIZE)

    def queue(self, name: str) -> Queue:
        return self.configuration.queues[name][0]

    def ids(self, name: str) -> list[int]:
        return [message[0] for message in self.queue(name).peek(1 << 30)]

    def hold(self, name: str, *ids: int) -> None:
        """The backup has these."""
        queue, uid, _ = self.configuration.queues[name]
        self.held[queue.number, uid] = encode_ids([(each, each) for each in sorted(ids)])

    def plan(self, limit: int = 1) -> Plan:
        """A slice has at least one message."""
        return Plan(self.configuration, dict(self.held), self.configuration.engine.position, limit)

    def send_frame(self, kind: int, position: int, body: bytes) -> None:
        self.frames.append((Kind(kind), position, body))

    def step(self, plan: Plan) -> bool:
        return plan.step(cast(Any, self))

    def sent(self) -> str:
        """The kinds of what was sent since the last call, by their first letters; L for a slice."""
        letters = {Kind.SLICE: "L", Kind.DROP: "D", Kind.MERGE: "M"}
        found = "".join(letters[kind] for kind, _, _ in self.frames)
        self.frames.clear()
        return found


def test_a_backup_that_holds_everything_is_sent_nothing() -> None:
    primary = Primary(p=3, q=0)
    primary.hold("p", *primary.ids("p"))
    plan = primary.plan()
    assert (plan.queues, plan.queues_left, plan.done, plan.messages) == (2, 2, False, 0)
    assert (plan.slices, plan.octets, plan.under_way) == (0, 0, 0)
    assert not primary.step(plan) and primary.sent() == ""
    assert (plan.queues, plan.queues_left, plan.done, plan.messages) == (2, 0, True, 0)


def test_what_it_lacks_is_sent_in_slices_then_put_into_its_place() -> None:
    primary = Primary(p=3, q=1)
    plan = primary.plan()
    assert not primary.step(plan)
    octets = sum(len(body) for kind, _, body in primary.frames if kind is Kind.SLICE)
    assert all(position == plan.cut == primary.configuration.engine.position for _, position, _ in primary.frames)
    assert decode_merge(primary.frames[3][2]) == primary.queue("p").number
    assert primary.sent() == "LLLML" and (plan.slices, plan.octets, plan.under_way) == (4, octets, 4)
    assert (plan.messages, plan.queues_left, plan.done) == (4, 1, False)
    plan.under_way = 0
    assert not primary.step(plan) and decode_merge(primary.frames[0][2]) == primary.queue("q").number
    assert primary.sent() == "M" and (plan.messages, plan.queues_left, plan.done) == (4, 0, True)


def test_slices_are_as_large_as_they_may_be() -> None:
    primary = Primary(p=30)
    plan = primary.plan(10 * SIZE)
    primary.step(plan)
    assert 3 <= plan.slices <= 4 and 1000 <= len(primary.frames[0][2]) <= 2000


def test_so_many_slices_are_under_way_and_one_more_for_each_that_has_arrived() -> None:
    primary = Primary(p=10)
    plan = primary.plan()
    assert not primary.step(plan) and primary.sent() == "L" * WINDOW
    assert not primary.step(plan) and primary.sent() == ""
    plan.under_way -= 1
    assert not primary.step(plan) and primary.sent() == "L" and plan.under_way == WINDOW


def test_what_only_the_backup_has_is_dropped_first() -> None:
    primary = Primary(p=2)
    primary.hold("p", GONE, *primary.ids("p")[:1])
    plan = primary.plan()
    primary.step(plan)
    number, ids = decode_drop(primary.frames[0][2])
    assert (number, decode_ids(ids)) == (primary.queue("p").number, [(GONE, GONE)])
    assert primary.frames[0][1] == plan.cut
    assert primary.sent() == "DLM" and plan.messages == 1


def test_a_queue_that_gets_no_slice_needs_no_place_for_it() -> None:
    primary = Primary(p=1, q=1, r=1)
    primary.hold("q", GONE, *primary.ids("q"))
    primary.hold("r", *primary.ids("r"))
    primary.step(primary.plan())
    assert primary.sent() == "LMD"


def test_what_comes_after_the_cut_comes_live() -> None:
    primary = Primary(p=1)
    plan = primary.plan()
    primary.publish("p")
    primary.step(plan)
    assert primary.sent() == "LM" and plan.messages == 1


def test_what_was_consumed_meanwhile_is_not_sent() -> None:
    primary = Primary(p=2)
    plan = primary.plan()
    primary.client.get("p")
    primary.step(plan)
    assert primary.sent() == "LM" and plan.messages == 1


def test_a_queue_that_is_deleted_is_passed_over_also_in_the_middle() -> None:
    primary = Primary(p=10, q=1, r=1)
    plan = primary.plan()
    primary.step(plan)
    assert primary.sent() == "LLLL"
    plan.under_way = 0
    for name in ("p", "q"):
        primary.configuration.delete(name)
    assert not primary.step(plan)
    assert primary.sent() == "LM" and plan.done and plan.messages == 5


# ---- the bound of one call ---------------------------------------------------------------------------------------

MANY = {f"q{number}": 1 for number in range(TURN + 10)}


def test_many_drops_do_not_hold_up_the_broker() -> None:
    primary = Primary(**MANY)
    for name in MANY:
        primary.hold(name, GONE, *primary.ids(name))
    plan = primary.plan()
    assert primary.step(plan) and primary.sent() == "D" * TURN
    assert not primary.step(plan) and primary.sent() == "D" * 10 and plan.done


def test_slices_count_for_the_bound_and_so_do_their_places() -> None:
    primary = Primary(**MANY)
    for name in [*MANY][1:]:
        primary.hold(name, GONE, *primary.ids(name))
    assert primary.step(primary.plan()) and primary.sent() == "LM" + "D" * (TURN - 2)


def test_queues_without_anything_to_say_count_for_nothing() -> None:
    primary = Primary(**MANY)
    for name in MANY:
        primary.hold(name, *primary.ids(name))
    plan = primary.plan()
    assert not primary.step(plan) and plan.done
    plan = primary.plan()
    for name in MANY:
        primary.configuration.delete(name)
    assert not primary.step(plan) and plan.done and primary.sent() == ""


def test_a_queue_that_is_deleted_in_the_middle_counts_for_nothing() -> None:
    primary = Primary(p=10, **MANY)
    for name in MANY:
        primary.hold(name, GONE, *primary.ids(name))
    plan = primary.plan()
    primary.step(plan)
    plan.under_way = 0
    primary.sent()
    primary.configuration.delete("p")
    assert primary.step(plan) and primary.sent() == "D" * TURN


# ---- what is left ------------------------------------------------------------------------------------------------


def test_what_is_left_is_what_is_there_and_not_held_and_not_sent() -> None:
    primary = Primary(p=10, q=6, r=0)
    primary.hold("p", *primary.ids("p")[:4])
    primary.hold("q", *primary.ids("q")[:1])
    plan = primary.plan()
    each = primary.queue("p").bytes // 10
    assert plan.remaining() == (11, 11 * each)
    plan.under_way = WINDOW - 2
    primary.step(plan)
    assert plan.messages == 2 and plan.remaining() == (9, 9 * each)
    plan.under_way = 0
    primary.step(plan)
    assert plan.messages == 6 and plan.remaining() == (5, 5 * each)
    plan.under_way = 0
    primary.step(plan)
    plan.under_way = 0
    primary.step(plan)
    assert plan.done and plan.messages == 11 and plan.remaining() == (0, 0)


def test_what_is_handed_out_is_left_too() -> None:
    primary = Primary(p=3)
    primary.client.channel.get(primary.queue("p"), False)
    assert primary.queue("p").unacked == 1 and primary.plan().remaining()[0] == 3


def test_no_more_is_left_than_is_there() -> None:
    """A backup may hold what is gone, and messages may come meanwhile."""
    primary = Primary(p=2)
    primary.hold("p", *(GONE + 2 * number for number in range(5)))
    plan = primary.plan()
    assert plan.remaining() == (0, 0)
    primary.publish("p", 10)
    assert plan.remaining()[0] == 7
    plan.under_way = WINDOW - 1
    primary.step(plan)
    assert primary.sent() == "DL"
    primary.publish("p", 10)
    assert plan.remaining()[0] == 1, "the others come live"


@pytest.mark.parametrize(("messages", "expected"), [(-1, 0), (0, 0), (2, 2), (3, 3), (4, 3)])
def test_so_many_messages_of_a_queue_have_their_share_of_its_octets(messages: int, expected: int) -> None:
    queue = Primary(p=3).queue("p")
    assert catchup._sizes(queue, messages) == (expected, queue.bytes * expected // 3)
    assert catchup._sizes(Primary(p=0).queue("p"), messages) == (0, 0)


def sparse(octets: int) -> tuple[bytes, int]:
    """A set of at least so many octets with gaps in it, and how many ids it has."""
    ids: list[tuple[int, int]] = []
    while len(encoded := encode_ids(ids)) < octets:
        ids += [
            (3 * number + 1, 3 * number + 2)
            for number in range(len(ids), len(ids) + max(1, (octets - len(encoded)) // 3))
        ]
    return encoded, 2 * len(ids)


def test_a_short_set_is_counted_and_a_long_one_is_estimated() -> None:
    encoded, count = sparse(LONG_SET)
    assert len(encoded) == LONG_SET and catchup._count_of(encoded) == count
    encoded, count = sparse(LONG_SET + 1)
    assert len(encoded) > LONG_SET and catchup._count_of(encoded) == len(encoded) // 2 != count
