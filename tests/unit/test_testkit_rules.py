"""When a confirmed message may be missing, rule by rule: the schedule that is allowed, and the one that is not."""

from collections.abc import Iterator
from typing import Any

import pytest

from testkit.judge import NAMED, History, Verdict
from testkit.queues import LIMIT, RULES
from testkit.record import body_of
from testkit.rules import BUFFERS
from torture import decisions

Event = dict[str, Any]


class World:
    """Clients of one queue with a rule, in the order in which things happen: one millisecond each."""

    def __init__(self, kind: str) -> None:
        self.events: list[Event] = []
        for client, more in (("producer", {}), ("remover", {"removes": True})):
            self._say(client, "begin", queue=f"torture.{kind}", **RULES[kind], **more)
        self.at("connected")

    def _say(self, client: str, kind: str, **more: Any) -> int:
        self.events.append({"t": 1000 * len(self.events), "client": client, "kind": kind, **more})
        return 1000 * len(self.events) - 1000

    def publish(self, *ids: str, outcome: str = "ok") -> None:
        for id in ids:
            self._say("producer", "invoke", id=id)
            self._say("producer", outcome, id=id)

    def receive(self, *ids: str) -> None:
        for id in ids:
            self._say("remover", "receive", id=id)
            self._say("remover", "ack", id=id)

    def empty(self) -> None:
        self._say("remover", "empty", asked=1000 * len(self.events) - 500)

    def does(self, *kinds: str) -> None:
        for kind in kinds:
            self._say("remover", kind)

    def at(self, *facts: str, client: str = "remover") -> None:
        for fact in facts:
            self._say(client, "fact", text=f"{fact} 10.0.0.1")

    def verdict(self) -> Verdict:
        return History().add(self.events).verdict()

    def removed_and_lost(self) -> tuple[int, tuple[str, ...]]:
        found = self.verdict()
        assert min(found.lost, NAMED) == len(found.ids.get("missing", ()))
        assert found.valid == (not found.lost)
        return found.removed, found.ids.get("missing", ())


def numbered(first: int, last: int) -> list[str]:
    return [f"p:{number}" for number in range(first, last + 1)]


# ---- limit


@pytest.mark.parametrize("behind", [LIMIT - 1, LIMIT])
def test_displaced_only_if_as_many_as_the_limit_lie_behind_it(behind: int) -> None:
    world = World("newest")
    world.publish("p:1", *numbered(2, behind + 1))
    world.receive(*numbered(2, behind + 1))
    world.empty()
    assert world.removed_and_lost() == ((1, ()) if behind == LIMIT else (0, ("p:1",)))


def test_what_came_after_the_queue_was_seen_empty_has_displaced_nothing() -> None:
    world = World("newest")
    world.publish("p:1")
    world.empty()
    world.publish(*numbered(2, LIMIT + 1))
    world.receive(*numbered(2, LIMIT + 1))
    world.empty()
    assert world.removed_and_lost() == (0, ("p:1",))


def test_one_of_the_newest_is_missed() -> None:
    world = World("newest")
    world.publish(*numbered(1, 2 * LIMIT))
    world.receive(*(id for id in numbered(LIMIT, 2 * LIMIT) if id != f"p:{LIMIT + 5}"))
    world.empty()
    assert world.removed_and_lost() == (LIMIT - 1, (f"p:{LIMIT + 5}",))


@pytest.mark.parametrize("last", [True, False])
def test_one_in_doubt_lies_where_it_was_published(last: bool) -> None:
    world = World("newest")
    if not last:
        world.publish("p:0", outcome="unknown")
    world.publish(*numbered(1, LIMIT))
    if last:
        world.publish("p:0", outcome="unknown")
    world.receive(*numbered(2, LIMIT), "p:0")
    world.empty()
    assert world.removed_and_lost() == ((1, ()) if last else (0, ("p:1",)))


def test_nothing_is_excused_unless_the_queue_was_read_out() -> None:
    world = World("newest")
    world.publish(*numbered(1, LIMIT + 1))
    world.receive(*numbered(2, LIMIT + 1))
    assert world.removed_and_lost() == (0, ("p:1",))


# ---- purge


def test_purged() -> None:
    world = World("purged")
    world.publish("p:1")
    world.does("purge", "purged")
    assert world.removed_and_lost() == (1, ())


def test_published_after_the_purge() -> None:
    world = World("purged")
    world.does("purge", "purged")
    world.publish("p:1")
    world.empty()
    assert world.removed_and_lost() == (0, ("p:1",))


@pytest.mark.parametrize(("received", "removed", "lost"), [([], 2, ()), (["p:1"], 0, ("p:2",))])
def test_a_purge_in_doubt_takes_all_or_nothing(received: list[str], removed: int, lost: tuple[str, ...]) -> None:
    """A confirm that rested on a purge which did not survive shows by what was safe before that purge."""
    world = World("purged")
    world.publish("p:1")
    world.does("purge")
    world.publish("p:2")
    world.at("disconnected", "connected")
    world.receive(*received)
    world.empty()
    assert world.removed_and_lost() == (removed, lost)


def test_what_a_deposed_primary_shows_refutes_no_purge() -> None:
    """It confirms nothing afterwards, so that the queue is not seen empty."""
    world = World("purged")
    world.publish("p:1", "p:2")
    world.does("purge")
    world.at("disconnected", "connected")
    world.receive("p:1")
    world.at("disconnected", "connected")
    world.empty()
    assert world.removed_and_lost() == (1, ())


def test_a_purge_in_doubt_is_not_over_when_the_producer_is_connected_again() -> None:
    world = World("purged")
    world.does("purge")
    world.at("disconnected", "connected", client="producer")
    world.publish("p:1")
    world.at("disconnected", "connected")
    world.empty()
    assert world.removed_and_lost() == (1, ())


def test_published_after_a_purge_in_doubt_is_over() -> None:
    world = World("purged")
    world.does("purge")
    world.at("disconnected", "connected")
    world.publish("p:1")
    world.empty()
    assert world.removed_and_lost() == (0, ("p:1",))


def test_what_was_purged_does_not_return() -> None:
    world = World("purged")
    world.publish("p:1")
    world.does("purge", "purged")
    world.receive("p:1")
    world.empty()
    assert (world.verdict().returned, world.verdict().valid) == (1, False)


# ---- route


def test_unroutable_while_there_is_no_binding() -> None:
    world = World("routed")
    world.does("bind", "bound", "unbind")
    world.publish("p:1")
    world.does("unbound")
    world.publish("p:2")
    world.does("bind")
    world.publish("p:3")
    world.does("bound")
    assert world.removed_and_lost() == (3, ())


def test_confirmed_while_it_was_bound() -> None:
    world = World("routed")
    world.does("bind", "bound")
    world.publish("p:1")
    world.does("unbind", "unbound")
    assert world.removed_and_lost() == (0, ("p:1",))


@pytest.mark.parametrize("then", ["bound", "unbound"])
def test_an_unbind_in_doubt_did_not_happen_if_the_binding_is_seen(then: str) -> None:
    """A confirm that rested on an unbind which did not survive."""
    world = World("routed")
    world.does("bind", "bound", "unbind")
    world.publish("p:1")
    world.at("disconnected", "connected")
    world.does(then)
    assert world.removed_and_lost() == ((0, ("p:1",)) if then == "bound" else (1, ()))


def test_what_had_no_route_is_not_seen() -> None:
    world = World("routed")
    world.does("bind", "bound", "unbind", "unbound")
    world.publish("p:1")
    world.does("bind", "bound")
    world.receive("p:1")
    assert (world.verdict().returned, world.verdict().valid) == (1, False)


# ---- auto


def wide(octets: int) -> Iterator[str]:
    """Ids of messages that are so long together, and the first one that makes them longer."""
    number = 0
    while octets >= 0:
        number += 1
        yield f"wide1:{number}"
        octets -= len(body_of(f"wide1:{number}"))


def test_under_way_when_the_connection_broke() -> None:
    world = World("auto")
    world.publish("wide1:1", "wide1:2", "wide1:3")
    world.receive("wide1:1")
    world.at("disconnected", "connected")
    world.receive("wide1:3")
    assert world.removed_and_lost() == (1, ())


def test_under_way_on_a_connection_that_is_broken_for_the_client_only() -> None:
    """The broker writes to it until its kernel says so; what was published later is not on it."""
    world = World("auto")
    world.publish("wide1:1")
    world.receive("wide1:1")
    world.at("disconnected")
    world.publish("wide1:2")
    world.at("connected")
    world.publish("wide1:3", "wide1:4")
    world.receive("wide1:3", "wide1:4")
    assert world.removed_and_lost() == (1, ())


@pytest.mark.parametrize("late", [["wide1:3"], ["wide1:2", "wide1:3"]])
def test_what_was_published_after_the_new_connection_was_not_under_way(late: list[str]) -> None:
    world = World("auto")
    world.publish("wide1:1", *[id for id in ["wide1:2"] if id in late])
    world.receive("wide1:1")
    world.at("disconnected", "connected")
    world.publish("wide1:3", "wide1:4")
    world.receive("wide1:4")
    assert world.removed_and_lost() == (0, tuple(late))


def test_nothing_is_under_way_on_a_connection_that_goes_on() -> None:
    world = World("auto")
    world.publish("wide1:1", "wide1:2", "wide1:3")
    world.at("disconnected", "connected", client="producer")
    world.receive("wide1:1", "wide1:3")
    world.at("disconnected", "connected")
    assert world.removed_and_lost() == (0, ("wide1:2",))


@pytest.mark.parametrize("all", [True, False])
def test_more_than_the_buffers_hold_was_not_under_way(all: bool) -> None:
    """The reader stalled, and the broker took what it could not write for delivered."""
    ids = list(wide(BUFFERS))
    world = World("auto")
    world.publish(*ids)
    world.at("disconnected", "connected")
    world.receive(*() if all else ids[-1:])
    removed, lost = world.removed_and_lost()
    assert (removed, len(lost)) == ((0, min(len(ids), NAMED)) if all else (len(ids) - 1, 0))


def test_each_gap_needs_a_broken_connection_of_its_own() -> None:
    ids = [f"wide1:{number}" for number in range(1, 6)]
    world = World("auto")
    world.publish(*ids)
    world.at("disconnected", "connected")
    world.receive(*ids[::2])
    assert world.removed_and_lost() == (1, ("wide1:4",))
    world = World("auto")
    world.publish(*ids)
    world.at("disconnected", "connected", "disconnected", "connected")
    world.receive(*ids[::2])
    assert world.removed_and_lost() == (2, ())


# ---- without a rule


def test_refused_once_is_never_seen() -> None:
    begin = {"t": 0, "client": "p", "kind": "begin", "queue": "torture.refusing"}
    refused = [{"t": 1, "client": "p", "kind": kind, "id": "p:1", "once": True} for kind in ("invoke", "nack")]
    assert History().add([begin, *refused]).verdict().valid
    seen = {"t": 3, "client": "c", "kind": "receive", "id": "p:1"}
    assert History().add([begin, *refused, seen]).verdict().phantom == 1


def test_who_removes_by_itself_has_one_connection_at_a_time() -> None:
    """A reader without acknowledgements came back while the broker still wrote to its old connection: two messages went
    there, one that was published later came, and the run of missing ones had no break of its own."""
    found: list[Any] = [each for each in vars(decisions).values() if isinstance(each, type)]
    clients = [each for each in found if getattr(each, "removes", False)]
    assert decisions.Staller in clients
    assert all(each.fenced for each in [*clients, decisions.Reader, decisions.WindowProducer, decisions.Binder])
