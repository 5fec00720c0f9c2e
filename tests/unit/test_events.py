"""What happens in a broker: what is noted, the request that waits for it, and the lines of `qpid-printevents`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pamqp.commands as commands
import pytest

from qpidd_py.broker.events import KEPT, Events
from qpidd_py.cli.client_socket import ConnectionClosed, RequestRefused
from qpidd_py.cli.event_lines import WAIT, Follow, line, wanted
from qpidd_py.cli.qpid_printevents import _final
from qpidd_py.management.events import AGAIN, GATHER, LIMIT, SLICE
from qpidd_py.management.model import Management
from tests.unit.broker.peer import Peer, Replicated

SECOND = 1_000_000


def noted(events: Events, number: int = 0) -> list[tuple[str, dict[str, Any]]]:
    missed, found = events.after(number, KEPT)
    assert [at for at, _ in found] == list(range(number + missed + 1, events.last + 1)), "no gap"
    return [(name, fields) for _, (_, name, fields) in found]


# ---- the ring


def test_the_last_ones_are_kept() -> None:
    events = Events()
    events.note("before the broker serves")
    assert events.last == 0
    events.begin("x", lambda: 7)
    for number in range(KEPT + 10):
        events.note("a", number=number)
    missed, found = events.after(0, 3)
    assert missed == 10 and [(at, fields["number"]) for at, (_, _, fields) in found] == [(11, 10), (12, 11), (13, 12)]
    assert events.after(KEPT + 9, 5) == (0, [(KEPT + 10, (7, "a", {"number": KEPT + 9}))])
    assert events.after(KEPT + 10, 5) == (0, [])


# ---- a broker


class World:
    """A broker whose time and later calls are the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.broker = Replicated(clocks=lambda: (5, int(self.now * SECOND)))
        self.management = Management(self.broker, "", lambda delay, work: self.later.append((self.now + delay, work)))
        self.peer = Peer(self.broker, product="x")

    def ask(self, peer: Peer | None = None, **arguments: Any) -> list[Any]:
        """The list that gets the answers."""
        answers: list[Any] = []
        asker = (peer or self.peer).connection
        for _ in self.management.work("event.list", arguments, answers.append, asker):
            pass
        return answers

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [each for each in self.later if each[0] <= until]:
            first = min(due, key=lambda each: each[0])
            self.later.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = until

    def names(self, answers: list[Any]) -> list[str]:
        ((ok, result),) = [(each["ok"], each["result"]) for each in answers]
        assert ok
        return [event["event"] for event in result["events"]]


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_noted_on_a_primary_and_on_its_backup(world: World) -> None:
    broker, peer = world.broker, world.peer
    begin = broker.events.last
    peer.open_channel()
    declare = commands.Queue.Declare(queue="q", durable=True)
    for method in (
        declare,
        declare,
        commands.Exchange.Declare(exchange="e", exchange_type="topic"),
        commands.Queue.Bind(queue="q", exchange="e", routing_key="a.#"),
        commands.Basic.Consume(queue="q", consumer_tag="t"),
        commands.Basic.Cancel("t"),
        commands.Queue.Unbind(queue="q", exchange="e", routing_key="a.#"),
        commands.Exchange.Delete(exchange="e"),
        commands.Queue.Delete(queue="q"),
    ):
        peer.publish(b"no event", "q")
        peer.send(1, method)
        broker.advance()
    peer.send(0, commands.Connection.Close(200, "bye", 0, 0))
    broker.alarm("queue q", "full")
    broker.alarm("disk", "full")
    broker.alarm("disk", "")
    bound = {"exchange": "e", "destination": "q", "key": "a.#"}
    who = {"peer": "memory", "user": "guest"}
    declared = [
        ("queueDeclare", {"queue": "q", "durable": True, "exclusive": False, "auto_delete": False, "user": "guest"}),
        ("exchangeDeclare", {"exchange": "e", "type": "topic", "durable": False, "auto_delete": False}),
        ("bind", bound),
    ]
    consumed = [("subscribe", {**who, "queue": "q", "tag": "t"}), ("unsubscribe", {**who, "queue": "q", "tag": "t"})]
    gone = [("unbind", bound), ("exchangeDelete", {"exchange": "e"}), ("queueDelete", {"queue": "q"})]
    said = [
        ("clientDisconnect", {**who, "reason": "closed by the client: 200 bye"}),
        ("queueThresholdExceeded", {"queue": "q", "reason": "full"}),
        ("alarm", {"alarm": "disk", "reason": "full"}),
        ("alarmEnd", {"alarm": "disk"}),
    ]
    assert noted(broker.events, begin) == declared + consumed + gone + said
    assert noted(broker.events)[0] == ("clientConnect", {**who, "product": "x"})
    backup = Replicated()
    backup.passive = True
    backup.events.begin("b", lambda: 0)
    for batch in broker.batches:
        backup.engine.apply(batch)
    assert [each for each in noted(backup.events) if each[0] != "queue.used"] == declared + gone


def test_tools_make_no_events(world: World) -> None:
    begin = world.broker.events.last
    tool = Peer(world.broker, **{"qpid.ha-admin": 1})
    tool.send(0, commands.Connection.Close(200, "", 0, 0))
    assert noted(world.broker.events, begin) == []


# ---- the request


def test_events_of_a_moment_come_together(world: World) -> None:
    (answer,) = world.ask()
    after = answer["result"]["last"]
    answers = world.ask(after=after, wait=10)
    assert answers == [], "it waits"
    for _ in range(3):
        world.broker.events.note("a")
    assert answers == [] and len(world.later) == 2, "one call for all of them"
    world.wait(GATHER)
    assert world.names(answers) == ["a", "a", "a"]
    assert answers[0]["result"]["events"][0] == {"number": after + 1, "time": 5, "event": "a"}
    world.broker.events.note("nobody waits")
    world.wait(AGAIN)
    assert world.later == [] and len(answers) == 1


def test_the_time_ends_a_request(world: World) -> None:
    answers = world.ask(after=world.broker.events.last, wait=2)
    world.wait(2 - AGAIN)
    assert answers == []
    world.wait(2 * AGAIN)
    assert world.names(answers) == []
    assert world.later == [], "nothing goes on"


def test_one_request_of_a_connection_waits(world: World) -> None:
    """Or a client that never reads could pile them up."""
    last = world.broker.events.last
    answers = [world.ask(after=last, wait=30) for _ in range(100)]
    assert [len(each) for each in answers] == [1] * 99 + [0] and len(world.later) == 1
    other = world.ask(Peer(world.broker, **{"qpid.ha-admin": 1}), after=last, wait=30)
    world.broker.events.note("a")
    world.wait(GATHER)
    assert world.names(answers[-1]) == world.names(other) == ["a"]


def test_many_who_wait_are_answered_in_slices(world: World) -> None:
    last = world.broker.events.last
    tools = [Peer(world.broker, **{"qpid.ha-admin": 1}) for _ in range(5 * SLICE)]
    answers = [world.ask(tool, after=last, wait=30) for tool in tools]
    world.broker.events.note("a")
    done = []
    while not all(answers):
        (due,) = [each for each in world.later if each[0] <= GATHER]
        world.later.remove(due)
        due[1]()
        done.append(sum(map(bool, answers)))
    assert done == [SLICE, 2 * SLICE, 3 * SLICE, 4 * SLICE, 5 * SLICE]


def test_a_peer_that_goes_is_forgotten(world: World) -> None:
    tool = Peer(world.broker, **{"qpid.ha-admin": 1})
    world.ask(tool, after=world.broker.events.last, wait=30)
    tool.connection.closed("gone")
    world.wait(2 * AGAIN)
    assert world.later == []


def test_an_answer_is_bounded_and_says_what_is_missing(world: World) -> None:
    for _ in range(KEPT + 5):
        world.broker.events.note("a")
    (answer,) = world.ask(after=0, wait=30)
    result = answer["result"]
    assert result["missed"] > 0 and len(result["events"]) == LIMIT
    assert result["events"][0]["number"] == result["missed"] + 1
    (answer,) = world.ask(after=result["last"] + 1000, limit=1)
    assert answer["result"]["events"] == [], "ahead of all"
    (answer,) = world.ask(after=result["last"], history="another run")
    assert answer["result"]["events"][0]["number"] == result["missed"] + 1, "the broker has begun anew"


WRONG = [("after", -1), ("after", "x"), ("wait", 31), ("wait", True), ("limit", 0), ("limit", LIMIT + 1)]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_arguments(world: World, name: str, value: Any) -> None:
    (answer,) = world.ask(**{name: value})
    assert not answer["ok"] and answer["code"] == 406 and name in answer["error"]


def test_who_may_ask(world: World) -> None:
    world.broker.rights.checked = True
    world.broker.rights.changed()
    (answer,) = world.ask()
    assert answer["code"] == 403 and "has no tag monitoring" in answer["error"]


def test_a_right_that_is_taken_away_counts_for_a_request_that_waits(world: World) -> None:
    answers = world.ask(after=world.broker.events.last, wait=30)
    world.broker.rights.checked = True
    world.broker.rights.changed()
    world.broker.events.note("secret")
    world.wait(GATHER)
    assert [each.get("code") for each in answers] == [403] and "has no tag monitoring" in answers[0]["error"]


# ---- the tool


def answer_of(history: str, last: int, *events: tuple[int, int], missed: int = 0) -> dict[str, Any]:
    shown = [{"number": number, "time": time, "event": "bind"} for number, time in events]
    return {"history": history, "last": last, "missed": missed, "events": shown}


def kinds(rows: list[dict[str, Any]]) -> list[Any]:
    return [row.get("number", row["event"]) for row in rows]


def test_a_broker_is_followed_over_its_ends() -> None:
    follow = Follow("a:1", None, 100)
    assert follow.request() == {}
    assert kinds(follow.up(101)) == ["brokerUp"] and follow.up(102) == []
    assert follow.answered(102, answer_of("x", 40)) == []
    assert follow.request() == {"after": 40, "wait": WAIT, "history": "x"}
    assert kinds(follow.answered(103, answer_of("x", 45, (44, 103), (45, 103), missed=3))) == ["missed", 44, 45]
    assert kinds(follow.down(104, "gone")) == ["brokerDown"] and follow.down(105, "still") == []
    assert kinds(follow.up(106)) == ["brokerUp"]
    assert follow.request()["after"] == 45, "what happened meanwhile"
    assert kinds(follow.answered(107, answer_of("y", 2, (1, 106), (2, 107)))) == ["brokerRestarted", 1, 2]


def test_a_broker_that_comes_later_is_told_from_its_beginning() -> None:
    follow = Follow("a:1", None, 100)
    follow.down(101, "refused")
    assert follow.request() == {"after": 0, "wait": WAIT}
    assert kinds(follow.answered(200, answer_of("x", 9, (8, 99), (9, 150), missed=7))) == [9], "and nothing older"


def test_a_refusal_ends_the_tool_and_a_broker_that_is_not_ready_does_not() -> None:
    assert _final(RequestRefused("no tag monitoring", 403)) and _final(ConnectionClosed("530", 530))
    assert not _final(RequestRefused("is reading its journal", 320)) and not _final(ConnectionClosed("aborted"))


def test_since() -> None:
    follow = Follow("a:1", 5, 100)
    assert follow.request() == {"after": 5, "wait": WAIT}
    assert kinds(follow.answered(101, answer_of("x", 9, (8, 1), (9, 2), missed=2))) == ["missed", 8, 9]


def test_lines() -> None:
    row = {
        "time": 0,
        "broker": "a:1",
        "number": 3,
        "event": "bind",
        "key": "a\x1b[31m\x9b",
        "durable": True,
        "user": "",
    }
    assert line(row).endswith(' a:1 bind key="a\\u001b[31m\\u009b" durable=true user=""')
    assert wanted(row, []) and wanted(row, [re.compile("nothing"), re.compile("bind")])
    assert wanted(row, [re.compile("durable=true")]) and not wanted(row, [re.compile("queueDeclare")])
