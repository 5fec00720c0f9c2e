"""Requests read messages that have left memory, and leave it again as soon as nobody looks: as at the memory limit."""

from __future__ import annotations

from typing import Any

import pytest

from qpidd_py.amqp.codec import encode_properties
from qpidd_py.broker.broker import Broker
from qpidd_py.core import Engine, Queue, Route, soon
from qpidd_py.management import changes, model
from qpidd_py.management.model import Management
from qpidd_py.management.turns import Turns
from tests.support.memory import MemoryClient
from tests.support.paged import MemoryPages
from tests.unit.test_management_turns import channel_of

NUMBER = 40
BODY = b"x" * 300
HELD = 5
"""Messages of a segment."""


class Site:
    """A broker without memory: what has been read has left again when the call that brought it is over."""

    def __init__(self, **arguments: Any) -> None:
        self.engine = Engine(segment_size=2048)
        self.broker = Broker("b", engine=self.engine)
        self.management = Management(self.broker)
        self.pages = MemoryPages(self.engine)
        self.pages.on_rot = lambda: None
        self.now = 0.0
        self.deferred: list[Any] = []
        self.turns = Turns(lambda seconds, work: self.deferred.append(work), lambda: self.now)
        self.source, self.target = self.queue("source", **arguments), self.queue("target", **arguments)
        for number in range(NUMBER):
            self.publish(self.source, b"%09d" % number + BODY, priority=number % 3)
        self.engine.end_turn()
        self.engine.flush()
        self.pages.everything()

    def queue(self, name: str, **arguments: Any) -> Queue:
        return self.broker.vhost.declare_queue(None, name, True, False, False, arguments)[0].core

    def publish(self, queue: Queue, body: bytes, **properties: Any) -> None:
        header = encode_properties(properties, len(body))
        assert self.engine.publish(Route([queue]), b"", b"key", header, body)

    def ask(self, method: str, **arguments: Any) -> Any:
        """The result, after a bounded number of turns; what a turn has not used leaves memory before the next one."""
        replies: list[Any] = []
        self.turns.add(channel_of(), self.management.work(method, arguments, replies.append, None))
        for _ in range(400):
            self.now += 1.0
            due, self.deferred = self.deferred, []
            for work in due:
                work()
            self.engine.end_turn()
            self.engine.flush()
            self.pages.everything()
            self.pages.arrive(1)
            self.pages.everything()
            if replies:
                return replies
        raise AssertionError(f"{method} has no answer, after {self.pages.read} pages")

    def numbers(self, queue: Queue) -> list[int]:
        while self.pages.arrive():
            pass
        return [int(message[5][:9]) for message in queue.peek(1000)]


LEVELS: dict[str, Any] = {"x-max-priority": 2}


@pytest.mark.parametrize("arguments", [{}, LEVELS])
@pytest.mark.parametrize("limit", [1, 7, 10, 1000])
def test_a_peek_is_answered(arguments: dict[str, Any], limit: int) -> None:
    site = Site(**arguments)
    wanted = [body[:9] for body in sorted(_bodies(), key=lambda body: -(int(body[:9]) % 3) if arguments else 0)]
    [answer] = site.ask("queue.peek", queue="source", limit=limit)
    assert [message["body"][:9].encode() for message in answer["result"]] == wanted[:limit]
    assert site.engine.pool.at_once == 0


def _first_pages() -> tuple[Site, int]:
    """The second page cannot be read back; and the octets of what a peek shows of the first."""
    site = Site()
    next(octets for octets in site.pages.octets.values() if b"%09d" % HELD in octets)[-5] ^= 1
    header = encode_properties({"priority": 0}, len(_bodies()[0] + BODY))
    return site, HELD * (len(header) + len(_bodies()[0] + BODY))


def test_a_peek_waits_for_nothing_that_it_does_not_show() -> None:
    site, _ = _first_pages()
    [answer] = site.ask("queue.peek", queue="source", limit=HELD)
    assert len(answer["result"]) == HELD
    [answer] = site.ask("queue.peek", queue="source", limit=HELD + 1)
    assert "cannot be read back" in answer["error"]


@pytest.mark.parametrize(("more", "shown"), [(-1, HELD), (0, HELD), (1, None)])
def test_a_peek_shows_so_many_octets(more: int, shown: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the message that exceeds them."""
    site, octets = _first_pages()
    monkeypatch.setattr(model, "BROWSE_OCTETS", octets + more)
    [answer] = site.ask("queue.peek", queue="source", limit=1000)
    assert len(answer.get("result", ())) == (shown or 0) and ("error" in answer) == (shown is None)


def test_a_peek_shows_so_many_octets_of_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    _, octets = _first_pages()
    site = Site()
    monkeypatch.setattr(model, "BROWSE_OCTETS", 3 * octets - octets // HELD)
    [answer] = site.ask("queue.peek", queue="source", limit=1000)
    assert len(answer["result"]) == 3 * HELD - 1


def _bodies() -> list[bytes]:
    return [b"%09d" % number for number in range(NUMBER)]


@pytest.mark.parametrize("arguments", [{}, LEVELS])
def test_a_browser_is_answered(arguments: dict[str, Any]) -> None:
    site = Site(**arguments)
    [answer] = site.ask("queue.peek", queue="source", limit=NUMBER, after=0)
    assert len(answer["result"]) == NUMBER and site.engine.pool.at_once == 0


@pytest.mark.parametrize("arguments", [{}, LEVELS])
@pytest.mark.parametrize("slice", [3, 2048])
def test_a_move_ends(arguments: dict[str, Any], slice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SLICE", slice)
    site = Site(**arguments)
    [answer] = site.ask("queue.move", source="source", target="target")
    assert answer["result"] == {"moved": NUMBER} and site.engine.pool.at_once == 0
    assert sorted(site.numbers(site.target)) == list(range(NUMBER)) and not site.source.ready


def test_a_move_of_some_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    [answer] = site.ask("queue.move", source="source", target="target", limit=17)
    assert answer["result"] == {"moved": 17} and site.numbers(site.target) == list(range(17))


def test_a_move_ends_at_a_full_queue() -> None:
    site = Site()
    site.target.max_count, site.target.rejects = 25, True
    [answer] = site.ask("queue.move", source="source", target="target")
    assert answer["result"] == {"moved": 25}


def test_what_clients_hold_is_not_waited_for() -> None:
    """It cannot be read, and need not be."""
    site = Site()
    client = MemoryClient(site.engine, source=site.source)
    client.channel.prefetch = HELD
    client.channel.consume(site.source, "c", False, HELD)
    while site.source.unacked < HELD:
        client.turn()
        site.pages.arrive()
    client.channel.cancel("c")
    site.pages.everything()
    first = next(octets for octets in site.pages.octets.values() if b"%09d" % (HELD - 1) in octets)
    assert b"%09d" % 0 in first and b"%09d" % HELD not in first
    first[-5] ^= 1
    assert not soon(site.source, 0, lambda: None)
    site.pages.arrive()
    assert site.engine.pool.rotten
    [answer] = site.ask("queue.move", source="source", target="target")
    assert answer["result"] == {"moved": NUMBER - HELD}


def test_a_move_ends_before_what_cannot_be_read_and_says_so() -> None:
    site = Site()
    second = next(octets for octets in site.pages.octets.values() if b"%09d" % HELD in octets)
    second[-5] ^= 1
    [answer] = site.ask("queue.move", source="source", target="target")
    assert answer["error"].endswith(f"cannot be read back from the page file; {HELD} messages were moved before")
