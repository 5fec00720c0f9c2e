"""`/api/ha/events`: what a query says, what is read for it, and who waits."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from multidict import MultiDict

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.broker.events import NAMES, Events
from qpidd_py.cli.client_socket import ConnectionClosed, RequestRefused, Target
from qpidd_py.http import events, news
from qpidd_py.http.door import Door, Problem
from qpidd_py.http.event_query import Wanted, wanted
from qpidd_py.http.events import READERS, Reading
from qpidd_py.http.gate import Gate
from qpidd_py.http.news import Place
from qpidd_py.http.paging import QueryError
from qpidd_py.management.events import LIMIT, shown

ROOT = Path(__file__).resolve().parents[2]

# ---- the query


def query(text: str) -> MultiDict[str]:
    found: MultiDict[str] = MultiDict()
    for each in filter(None, text.split("&")):
        name, _, value = each.partition("=")
        found.add(name, value)
    return found


def test_a_query() -> None:
    assert wanted(query("")) == Wanted(None, "", (), 200, 0)
    found = wanted(query("since=7&history=6a&type=ha.*,bind&type=alarm&limit=1000&wait=30"))
    assert found == Wanted(7, "6a", ("ha.*", "bind", "alarm"), 1000, 30)
    assert [found.takes(name) for name in ("ha.state", "bind", "unbind", "alarmEnd")] == [True, True, False, False]
    assert wanted(query("type=*")).takes("anything")


WRONG = [
    ("limit=-1", "limit '-1', wanted a whole number from 1 to 1000"),
    ("limit=0", "limit '0'"),
    ("limit=1001", "limit '1001'"),
    ("limit=1e3", "limit '1e3'"),
    ("limit=", "limit ''"),
    ("limit=٣", "limit '٣'"),
    ("since=-1", "since '-1'"),
    ("since=" + "9" * 5000, "since '" + "9" * 64 + "', wanted a whole number from 0 to 9007199254740991"),
    ("since=9007199254740992", "since '9007199254740992'"),
    ("since=1&since=2", "parameter 'since' is there twice"),
    ("since=1&wait=31", "wait '31', wanted a whole number from 0 to 30"),
    ("wait=1", "wait is of no use without since"),
    ("history=a", "history is of no use without since"),
    ("since=1&history=" + "x" * 65, "wanted that of an earlier answer"),
    ("types=bind", "parameter 'types'"),
    ("after=1", "parameter 'after', wanted some of since, history, type, limit, wait"),
    ("<script>=1", "parameter '<script>'"),
    ("type=", "type ''"),
    ("type=queuedeclare", "type 'queuedeclare', wanted one of clientConnect"),
    ("type=nothing*", "type 'nothing*'"),
    ("type=*bind", "type '*bind'"),
    ("type=" + ",".join(["bind"] * 21), "type: 21 names, at most 20"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG)
def test_wrong_queries(text: str, reason: str) -> None:
    with pytest.raises(QueryError) as error:
        wanted(query(text))
    assert reason in str(error.value) and len(str(error.value)) < 400


def test_names_are_those_of_the_events_that_are_noted() -> None:
    text = "".join(path.read_text() for path in (ROOT / "qpidd_py").rglob("*.py"))
    noted = set(re.findall(r'(?:events\.|\._)note\(\s*"(\w+)"', text)) | {"subscribe", "unsubscribe"}
    assert noted == set(NAMES)


# ---- what is read


class Broker:
    """Answers as `management/events.py` does, and counts the requests."""

    def __init__(self, *names: str) -> None:
        self.events = Events()
        self.events.begin("h", lambda: 5)
        self.requests = 0
        self.open = 0
        self.refusal: Exception | None = None
        self.refusals: dict[str, Exception] = {}
        self.while_waiting: Callable[[], None] = lambda: None
        self.note(*names)

    def note(self, *names: str) -> None:
        for name in names:
            self.events.note(name)

    def request(self, _: str, arguments: dict[str, Any], deadline: object = None) -> Any:
        self.requests += 1
        if self.refusal is not None:
            raise self.refusal
        kept = self.events
        after = min(arguments.get("after", kept.last), kept.last)
        after = 0 if arguments.get("history", kept.history) != kept.history else after
        if arguments.get("wait") and after == kept.last:
            self.while_waiting()
        missed, found = kept.after(after, LIMIT)
        known = {"history": kept.history, "last": kept.last, "missed": missed}
        return {**known, "events": [shown(*each) for each in found]}


class Connection:
    """Of a user."""

    def __init__(self, broker: Broker, user: str) -> None:
        self._broker, self._user = broker, user

    def request(self, *words: Any) -> Any:
        if error := self._broker.refusals.get(self._user):
            raise error
        return self._broker.request(*words)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._broker.open -= 1


def read(broker: Broker, text: str = "") -> tuple[bool, dict[str, Any], list[int]]:
    reading = Reading(wanted(query(text)))
    reading.read(broker)
    answer = reading.answer()
    return reading.done, answer, [each["number"] for each in answer["events"]]


def test_without_since_the_newest_are_told() -> None:
    broker = Broker(*["a"] * 500, "bind", *["a"] * 499)
    found, answer, numbers = read(broker, "limit=3")
    assert found and numbers == [998, 999, 1000] and broker.requests == 2
    assert {**answer, "events": 0} == {"history": "h", "last": 1000, "next": 1000, "missed": 0, "events": 0}
    assert read(broker, "type=bind&limit=3")[2] == [501]
    assert read(broker, "type=*&limit=3")[2] == [998, 999, 1000]
    assert read(Broker())[0] is False


def test_pages_follow_each_other_without_a_gap() -> None:
    broker = Broker(*["a", "bind"] * 500)
    since, seen = 0, []
    for _ in range(5):
        _, answer, numbers = read(broker, f"since={since}&limit=150&type=bind")
        seen += numbers
        since = answer["next"]
    assert seen == list(range(2, 1001, 2)) and since == 1000


def test_what_was_missed_is_told() -> None:
    broker = Broker(*["a"] * 9000)
    _, answer, numbers = read(broker, "since=10&limit=5")
    assert answer["missed"] == 9000 - 8192 - 10 and numbers[0] == 10 + answer["missed"] + 1 and len(numbers) == 5
    assert read(broker, "since=10&type=bind")[1]["missed"] == 798, "also where nothing is of that type"
    assert read(broker, "type=bind")[1]["missed"] == 0, "of those nobody was asked"


@pytest.mark.parametrize("since", [1000, 9007199254740991])
def test_a_number_that_is_not_there_yet_counts_as_the_last_one(since: int) -> None:
    _, answer, numbers = read(Broker("a", "a"), f"since={since}")
    assert (answer["next"], numbers) == (2, [])


def test_a_broker_that_has_begun_anew_is_read_from_its_beginning() -> None:
    _, answer, numbers = read(Broker("a", "a"), "since=1&history=other")
    assert numbers == [1, 2] and answer["history"] == "h"
    assert read(Broker("a", "a"), "since=1&history=h")[2] == [2]


def test_a_flood_does_not_hold_a_request() -> None:
    broker = Broker(*["a"] * 500)
    ask = broker.request

    def flooded(*words: Any) -> Any:
        broker.note(*["a"] * 300)
        return ask(*words)

    broker.request = flooded  # type: ignore[method-assign, assignment]
    assert read(broker, "since=0&type=bind")[2] == [] and broker.requests < 10


# ---- who waits


class World:
    """Readers of a server whose broker is a fake; `connections`: how often it was connected to, and by whom."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.gone = broker, False
        self.connections: list[str] = []
        self.refused: dict[str, Problem] = {}

        def opened(door: Door) -> Connection:
            self.connections.append(door.target.login.user)
            if problem := self.refused.get(door.target.login.user):
                raise problem
            broker.open += 1
            return Connection(broker, door.target.login.user)

        monkeypatch.setattr(Door, "open", opened)
        monkeypatch.setattr(news, "LOOK", 0.02)
        monkeypatch.setattr(events, "PAUSE", 0.02)

    def run(self, story: Callable[[events.Readers], Coroutine[Any, Any, Any]]) -> Any:
        async def told() -> Any:
            readers = events.Readers(ThreadPoolExecutor(16), Gate())
            found = await story(readers)
            await wait_until(lambda: self.broker.open == 0)
            return found

        return asyncio.run(told())

    async def ask(self, readers: events.Readers, text: str, user: str = "u") -> Any:
        door = Door(Target("h", login=Login(user, "p", "")))
        return await readers.answer(door, query(text), "1.2.3.4", lambda: self.gone)

    @property
    def followed(self) -> str:
        """The user whose login `News` has, once each has asked once."""
        ((user, count),) = Counter(self.connections).most_common(1)
        assert count == 2
        return user

    def asked(self, text: str) -> Any:
        return self.run(lambda readers: self.ask(readers, text))


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(Broker("bind"), monkeypatch)


def test_one_waits_for_what_it_wants(world: World) -> None:
    notes = iter([[], ["alarm"], ["bind"]])
    world.broker.while_waiting = lambda: world.broker.note(*next(notes, []))
    assert [each["number"] for each in world.asked("since=1&wait=30&type=bind")["events"]] == [3]
    assert len(world.connections) == 3, "the reader's two, and the one that follows"


def test_the_time_ends_it(world: World) -> None:
    begun = time.monotonic()
    answer = world.asked("since=1&wait=1")
    assert answer["events"] == [] and answer["next"] == 1 and time.monotonic() - begun >= 1


def test_one_that_has_gone_is_noticed(world: World) -> None:
    world.broker.while_waiting = lambda: setattr(world, "gone", True)
    begun = time.monotonic()
    world.asked("since=1&wait=30")
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestRefused("user 'u' has no tag monitoring", 403), 401), (ConnectionClosed("aborted"), 503)],
)
def test_rights_and_brokers_that_end_meanwhile(world: World, error: Exception, status: int) -> None:
    world.broker.while_waiting = lambda: setattr(world.broker, "refusal", error)
    with pytest.raises(Problem) as problem:
        world.asked("since=1&wait=30")
    assert problem.value.status == status


def test_who_waits_is_told_what_its_own_user_may_see(world: World) -> None:
    """One whose right is taken is refused; the others are followed with another login."""

    async def story(readers: events.Readers) -> None:
        tasks = {user: asyncio.create_task(world.ask(readers, "since=1&wait=30", user)) for user in "abc"}
        await wait_until(lambda: readers._waiting == 3 and len(world.connections) == 4)
        followed = world.followed
        world.refused[followed] = Problem(401, "not_authorised", "x")
        world.broker.refusals[followed] = RequestRefused("no right", 403)
        with pytest.raises(Problem, match="401"):
            await tasks.pop(followed)
        world.broker.note("bind")
        assert [len((await each)["events"]) for each in tasks.values()] == [1, 1]

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)


def test_many_readers_are_one_connection_to_the_broker(world: World) -> None:
    async def story(readers: events.Readers) -> None:
        await world.ask(readers, "", "u")  # now it is known
        tasks = [asyncio.create_task(world.ask(readers, "since=1&wait=30")) for _ in range(READERS)]
        await wait_until(lambda: readers._waiting == READERS and world.broker.open == 1)
        with pytest.raises(Problem, match=f"429 too_many_requests: {READERS} readers wait"):
            await world.ask(readers, "since=1&wait=30")
        assert (await world.ask(readers, "since=0"))["last"] == 1, "what does not wait is answered"
        world.broker.note("bind")
        assert {len((await each)["events"]) for each in tasks} == {1} and readers._waiting == 0

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)


def test_a_broker_that_is_lost_is_not_asked_by_every_reader(world: World) -> None:
    async def story(readers: events.Readers) -> None:
        await world.ask(readers, "", "u")
        tasks = [asyncio.create_task(world.ask(readers, "since=1&wait=30")) for _ in range(20)]
        await wait_until(lambda: readers._waiting == 20 and world.broker.open == 1)
        world.broker.refusal = ConnectionClosed("aborted")
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {each.status for each in found} == {503} and len(world.connections) == 23

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)


def test_a_connection_that_ends_because_of_its_user_is_no_lost_broker(world: World) -> None:
    """A deleted user's connection is closed with 320, which is 503."""

    async def story(readers: events.Readers) -> None:
        tasks = {user: asyncio.create_task(world.ask(readers, "since=1&wait=30", user)) for user in "ab"}
        await wait_until(lambda: readers._waiting == 2 and len(world.connections) == 3)
        followed = world.followed
        world.refused[followed] = Problem(401, "not_authorised", "Login failed")
        world.broker.refusals[followed] = ConnectionClosed("320 the user was deleted", 320)
        with pytest.raises(Problem, match="401"):
            await tasks.pop(followed)
        world.broker.note("bind")
        assert [len((await each)["events"]) for each in tasks.values()] == [1]

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)


def test_the_end_of_the_server_is_that_of_all_who_wait(world: World) -> None:
    async def story(readers: events.Readers) -> None:
        tasks = [asyncio.create_task(world.ask(readers, "since=1&wait=30")) for _ in range(3)]
        await wait_until(lambda: readers._waiting == 3)
        await readers.end()
        assert [(await each)["events"] for each in tasks] == [[], [], []]

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)


def test_events_that_nobody_wants_wake_nobody(world: World) -> None:
    """Or each of them would be a login of every reader."""

    async def story(readers: events.Readers) -> None:
        first = asyncio.create_task(world.ask(readers, "since=1&wait=2&type=bind"))
        await wait_until(lambda: readers._news._place.number > 20)
        late = await world.ask(readers, "since=1&wait=1&type=bind")
        assert late["events"] == (await first)["events"] == []

    def busy() -> None:
        time.sleep(0.01)
        world.broker.note("alarm")

    world.broker.while_waiting = busy
    world.run(story)
    assert len(world.connections) <= 4


def test_what_came_between_a_question_and_the_wait_is_not_missed(world: World) -> None:
    async def story(readers: events.Readers) -> None:
        first = asyncio.create_task(world.ask(readers, "since=1&wait=30&type=unbind"))
        await wait_until(lambda: readers._waiting == 1 and world.broker.open == 1)
        world.broker.note("bind", *["alarm"] * 5)
        await wait_until(lambda: readers._news._place.number >= 7)
        place = Place("h", 1)
        door = Door(Target("h", login=Login("u", "p", "")))
        for takes, woken in ((lambda name: name == "bind", True), (lambda name: name == "queueDelete", False)):
            assert await readers._news.wait(door, place, takes, time.monotonic() + 0.1, lambda: False) is woken
        assert await readers._news.wait(door, Place("other", 9), lambda _: False, time.monotonic() + 9, lambda: False)
        world.broker.note("unbind")
        assert len((await first)["events"]) == 1

    world.broker.while_waiting = lambda: time.sleep(0.01)
    world.run(story)
